#!/bin/bash
# SPDX-License-Identifier: MIT
# What must never be lost or pass in silence: a run with all checkpoints damaged, closed standard streams, two
# trainers in one folder, signals in every phase, a log that is no longer read.
. "$(dirname "$0")/lib.sh"
tiny_config
expect 0 "$trainer" --config tiny.yaml out_dir=whole
bits whole >whole.bits

# unusable TEXT: a run without a checkpoint that can be used is refused, by name and reason, and left as it is.
unusable() {
    (cd run && find . -type f ! -name .lock -exec sha256sum {} + | sort) >before
    expect 1 "$trainer" --config tiny.yaml
    says err "$1"
    says err "step-00000018/"
    says err "step-00000024"
    says err "run/checkpoints: none of its 2 checkpoints can be used"
    says err "to start over, remove run"
    expect 2 "$trainer" --config tiny.yaml resume=never
    says err "run holds a run already and resume is never"
    (cd run && find . -type f ! -name .lock -exec sha256sum {} + | sort) >after
    same before after
}

fresh() {
    rm -rf run
    cp -r whole run
}

fresh
for step in run/checkpoints/step-*; do printf 'X' | dd of="$step/model.safetensors" bs=1 seek=900 conv=notrunc status=none; done
unusable "model.safetensors"
fresh
for step in run/checkpoints/step-*; do sed -i 's/"format": *"[^"]*"/"format": "a later version"/' "$step/checksums.json"; done
unusable "is not one this version reads"
fresh
for step in run/checkpoints/step-*; do rm "$step/trainer.json" && mkdir "$step/trainer.json"; done
unusable "trainer.json"
# Only `latest` is left.
fresh
rm -r run/checkpoints/step-*
expect 1 "$trainer" --config tiny.yaml
says err "none of its 0 checkpoints can be used"
# One that is whole serves, with a warning, as before.
fresh
printf 'X' | dd of=run/checkpoints/step-00000024/model.safetensors bs=1 seek=900 conv=notrunc status=none
expect 0 "$trainer" --config tiny.yaml
says err "using the newest intact checkpoint, run/checkpoints/step-00000018"
record run | grep -v '"event":"checkpoint"' >run.record
record whole | grep -v '"event":"checkpoint"' >whole.record
same run.record whole.record

# Closed streams: no file gets their numbers.
rm -rf closed
"$trainer" --config tiny.yaml out_dir=closed >&- 2>&- <&- || fail "exit code $? with closed streams"
bits closed | sed 's/closed/whole/g' >closed.bits
same whole.bits closed.bits
grep -v '^{.*}$' closed/metrics.jsonl && fail "metrics.jsonl holds other lines"
expect 0 "$trainer" --config tiny.yaml out_dir=closed

# Two trainers: the second names the folder's owner; reports are made meanwhile; a killed owner's lock means nothing.
"$trainer" --config tiny.yaml out_dir=owned max_steps=1000000 checkpoint_freq=20 >/dev/null 2>&1 &
owner=$!
for _ in $(seq 500); do
    [ -s owned/checkpoints/latest ] && break
    sleep 0.02
done
expect 1 "$trainer" --config tiny.yaml out_dir=owned max_steps=1000000 checkpoint_freq=20
says err "owned: process $owner is training there"
expect 0 "$trainer" report --run owned
kill -9 $owner
wait $owner 2>/dev/null
step=$(sed 's/step-0*//' owned/checkpoints/latest)
expect 0 "$trainer" --config tiny.yaml out_dir=owned max_steps=$((step + 40)) checkpoint_freq=20

# stopped SIGNAL NUMBER: announced at once, saved, distinguished from a failure, continued.
stopped() {
    rm -rf stopped err
    "$trainer" --config tiny.yaml out_dir=stopped max_steps=400 checkpoint_freq=0 logging.every=20 evaluation.every=0 >out 2>err &
    pid=$!
    for _ in $(seq 1000); do
        grep -q '"event":"step"' stopped/metrics.jsonl 2>/dev/null && break
        sleep 0.005
    done
    kill "-$1" $pid
    wait $pid
    [ $? = $((128 + $2)) ] || fail "not exit code $((128 + $2)) after SIG$1"
    says err "SIG$1: saving, then leaving; once more: leaving at once"
    says err "stopped by SIG$1 after step"
    grep -q "error" err && fail "a stop that was asked for is called an error"
    [ -s stopped/checkpoints/latest ] || fail "nothing was saved after SIG$1"
}
for signal in 'INT 2' 'TERM 15' 'HUP 1' 'USR1 10'; do
    # shellcheck disable=SC2086
    stopped $signal
done
expect 0 "$trainer" --config tiny.yaml out_dir=stopped max_steps=400 checkpoint_freq=0 logging.every=20 evaluation.every=0
[ "$(grep -c '"event":"step"' stopped/metrics.jsonl)" = 20 ] || fail "a stopped run did not continue to its end"

# Before training there is nothing to save: it ends at once and leaves nothing.
"$trainer" --config tiny.yaml out_dir=early tasks.0.synthetic_tokens=400000000 >out 2>err &
pid=$!
sleep 0.3
kill -TERM $pid
wait $pid
[ $? = 143 ] || fail "not exit code 143 before training"
[ ! -e early ] || fail "files were left before training: $(ls early)"

# In an evaluation that takes long: given up, saved, owed.
rm -rf long
evaluation="out_dir=long max_steps=10 evaluation.every=5 evaluation.batches=0 checkpoint_freq=0 tasks.0.synthetic_tokens=2000000"
# shellcheck disable=SC2086
"$trainer" --config tiny.yaml $evaluation logging.every=5 >out 2>err &
pid=$!
for _ in $(seq 1000); do
    grep -q '"event":"step"' long/metrics.jsonl 2>/dev/null && break
    sleep 0.005
done
kill -TERM $pid
wait $pid
[ $? = 143 ] || fail "not exit code 143 in an evaluation"
says err "stopped by SIGTERM after step 5"
grep -q '"event":"eval"' long/metrics.jsonl && fail "the evaluation was not given up"
# shellcheck disable=SC2086
expect 0 "$trainer" --config tiny.yaml $evaluation logging.every=5
[ "$(grep -c '"event":"eval"' long/metrics.jsonl)" = 2 ] || fail "an evaluation is missing or there twice"

# Prompts longer than the windows: what the loss counts is in few of them, and the share is reported.
for _ in $(seq 40); do printf '{"prompt":"%0300d","completion":"y"}\n' 0; done >long.jsonl
for _ in $(seq 40); do printf '{"prompt":"%040d","completion":"yyyyyyyyyyyy"}\n' 0; done >short.jsonl
expect 2 "$trainer" --config tiny.yaml out_dir=masked tasks.0.train=long.jsonl
says err "task t: 89.3% of the training windows of max_length 32 hold no token that the loss counts, and most steps"
expect 0 "$trainer" --config tiny.yaml out_dir=masked batch_size=16 tasks.0.train=long.jsonl
says err "warning: task t: 89.3% of the training windows"
expect 0 "$trainer" --config tiny.yaml out_dir=short tasks.0.train=short.jsonl
says err "of the training windows of max_length 32 hold no token that the loss counts and teach nothing"

# Data that changed between two starts: refused, naming the file; as it was, the run continues.
mkdir texts
for part in one two; do
    for i in $(seq 200); do echo "$part: line $i of a text, and $((i * 7919 % 1000)) for another number"; done | head -c 9000 >texts/$part.txt
done
expect 0 "$trainer" --config tiny.yaml out_dir=data tasks.0.train=texts
cp -r texts kept
printf x >>texts/one.txt
expect 2 "$trainer" --config tiny.yaml out_dir=data tasks.0.train=texts max_steps=30
says err "texts/one.txt: has 9"
says err "since data/checkpoints/step-00000024, and the run would continue on other data"
cp kept/one.txt texts/one.txt
sed -i '1s/o/0/' texts/two.txt
expect 2 "$trainer" --config tiny.yaml out_dir=data tasks.0.train=texts max_steps=30
says err "texts/two.txt: has other bytes, "
cp kept/* texts
cp texts/one.txt texts/three.txt
expect 2 "$trainer" --config tiny.yaml out_dir=data tasks.0.train=texts max_steps=30
says err "texts/three.txt: is new since"
rm texts/three.txt texts/two.txt
expect 2 "$trainer" --config tiny.yaml out_dir=data tasks.0.train=texts max_steps=30
says err "texts/two.txt: was removed since"
cp kept/* texts
touch texts/one.txt
expect 0 "$trainer" --config tiny.yaml out_dir=data tasks.0.train=texts max_steps=30

# A configuration as editors on Windows save it: a byte order mark, and lines that end in CR LF.
{ printf '\357\273\277' && sed 's/$/\r/' tiny.yaml; } >windows.yaml
expect 0 "$trainer" --config windows.yaml out_dir=windows
bits windows | sed 's/windows/whole/g' >windows.bits
same whole.bits windows.bits

# Names that come from files: shown, and not obeyed by a terminal.
printf 'max_steps: 3\n"\\e]0;mine\\a": 1\n' >hostile.yaml
expect 2 "$trainer" --config hostile.yaml
says err "]0;mine"
cp err shown
printf '{"model":{"type":"\\u001b[31m\\u009b2J"}}' >hostile.json
expect 1 "$trainer" --config tiny.yaml tokenizer.kind=bpe tokenizer.path=hostile.json out_dir=hostile
says err "?[31m"
grep -q "$(printf '\033')\|$(printf '\302\233')" err shown && fail "a message holds what a terminal would obey"
expect 2 "$trainer" --config tiny.yaml "tasks.0.name=$(printf 'a\033[31m')"
says err "tasks.0.name holds a control character"

# A TensorBoard file that was removed is begun anew; metrics.jsonl, which nothing repeats, has to be put back.
fresh
rm run/events.out.tfevents.0.halfstep
expect 0 "$trainer" --config tiny.yaml max_steps=30
says err "warning: run/events.out.tfevents.0.halfstep is missing: a new one begins with the next step"
[ -s run/events.out.tfevents.0.halfstep ] || fail "no new TensorBoard file was begun"
expect 0 "$trainer" --config tiny.yaml max_steps=36
grep -q "is missing" err && fail "the new TensorBoard file is not gone on with"
fresh
rm run/metrics.jsonl
expect 1 "$trainer" --config tiny.yaml max_steps=30
says err "run/metrics.jsonl has 0 bytes, but had"

# Files that may not grow: an error of write, not the end of the process by SIGXFSZ.
rm -rf small
(ulimit -f 8 && exec "$trainer" --config tiny.yaml out_dir=small) >out 2>err
[ $? = 1 ] || fail "exit code $? where files may not grow"
says err "File too large"
expect 0 "$trainer" --config tiny.yaml out_dir=small
bits small | sed 's/small/whole/g' >small.bits
same whole.bits small.bits

# The log is no longer read.
{ "$trainer" --config tiny.yaml out_dir=unread 2>&1; echo $? >code; } | head -n 1 >/dev/null
[ "$(cat code)" = 0 ] || fail "exit code $(cat code) when the reader of the log has gone"
bits unread | sed 's/unread/whole/g' >unread.bits
same whole.bits unread.bits
finish
