#!/bin/bash
# SPDX-License-Identifier: MIT
# Text becomes tokens once (data.cache): a run by way of the cache is to the bit the run that has its tokens in memory, in
# every order of windows, with masks, conversations, several processes; the cache is used again, never where the text, the
# tokenizer or the reading is another, and never where it is damaged; a kill while it is made leaves nothing wrong; where
# it cannot be written the run has its tokens in memory.
. "$(dirname "$0")/lib.sh"
mkdir texts talks
for part in 1 2 3; do
    for i in $(seq $((part * 400))); do echo "line $i of part $part, and another number: $((i * 7919 % 1000)), don't stop"; done >texts/$part.txt
done
for i in $(seq 300); do
    echo "{\"prompt\": \"what is $((i % 90)) and $((i % 17))?\", \"completion\": \" $((i % 90 + i % 17)), that is $i\"}"
done >pairs.jsonl
for i in $(seq 200); do
    echo "{\"messages\": [{\"role\": \"user\", \"content\": \"is there tea number $i?\"}, {\"role\": \"assistant\", \"content\": \"Yes, $((i * 31 % 97)) of green, and $(seq -s ' ' $((i % 30))).\"}]}"
done >talks/talks.jsonl
expect 0 "$trainer" tokenizer train --vocabulary 500 --special '<|im_start|>' --special '<|im_end|>' --output tok.json texts talks/talks.jsonl
cat >cache.yaml <<'YAML'
seed: 5
batch_size: 4
max_length: 32
max_steps: 16
checkpoint_freq: 8
learning_rate: 1e-3
model: {family: llama, layers: 1, heads: 2, width: 32}
tokenizer: {kind: bpe, path: tok.json, chat_template: chatml}
tasks: [{name: a, train: texts, validation: 10%}]
evaluation: {every: 8, batches: 4}
logging: {every: 1, progress: none}
YAML

# What the process took is no more than was planned, nor 64 MiB less: a sanitizer takes more.
within_plan() {
    case $trainer in *san/*) return ;; esac
    sed -nE 's/.*the process ([0-9.]+) MiB, at most ([0-9.]+) planned.*/\1 \2/p' err | grep -q . || fail "no plan for the process"
    sed -nE 's/.*the process ([0-9.]+) MiB, at most ([0-9.]+) planned.*/\1 \2/p' err |
        awk '{ if ($1 > $2 || $1 < $2 - 64) exit 1 }' || fail "the process: $(grep 'the process' err)"
}

# alike [OPTION...]: in memory, into the cache, and from the cache.
alike() {
    rm -rf memory made again
    expect 0 "$trainer" --config cache.yaml out_dir=memory data.cache=off "$@"
    expect 0 "$trainer" --config cache.yaml out_dir=made data.cache=kept "$@"
    expect 0 "$trainer" --config cache.yaml out_dir=again data.cache=kept "$@"
    says err "info: tokens of an earlier run's text are taken from kept (data.cache)"
    within_plan
    for run in memory made again; do
        losses $run >$run.losses
        bits $run | grep safetensors >$run.bits
    done
    for run in made again; do
        same memory.losses $run.losses
        same memory.bits $run.bits
    done
}
alike
# A table of 80 MiB has its first values in pieces.
expect 0 "$trainer" --config cache.yaml out_dir=large data.cache=off model.vocabulary=655360 max_steps=1 evaluation.batches=1
within_plan
alike data.sampling=random
alike tasks.0.train=pairs.jsonl evaluation.items=20
alike tasks.0.train=talks data.packing=documents
alike tasks.0.train=talks data.packing=none
alike tasks.0.train=talks max_length=16
alike tasks.0.train='[texts/1.txt,synthetic:arithmetic]' tasks.0.synthetic_tokens=20000
alike tasks.0.train='[texts/1.txt,texts/2.txt]' tasks.0.validation=texts/3.txt
alike --processes 2 distributed.virtual_ranks=2 tasks.0.train=pairs.jsonl
alike tasks.1.name=b tasks.1.train=pairs.jsonl tasks.0.steps=8 tasks.1.steps=8 'continual.strategy=[ewc,er]' ewc.fisher_samples=8

# run NAME [OPTION...] -> whether the text was read.
run() {
    rm -rf "$1"
    expect 0 "$trainer" --config cache.yaml out_dir="$1" data.cache=fresh max_steps=2 evaluation.every=0 "${@:2}"
}
reads() { says err "info: text becomes tokens once, which are kept in fresh"; }
reads_not() { says err "info: tokens of an earlier run's text are taken from fresh"; }
run one && reads
run one && reads_not
# Another path to the same bytes is the same text; a touched file is.
cp -r texts copied
run one tasks.0.train=copied && reads_not
touch texts/2.txt
run one && reads_not
# Another byte, with size and time put back; another tokenizer; another field.
cp -p texts/2.txt before
printf 'L' | dd of=texts/2.txt bs=1 conv=notrunc status=none
touch -r before texts/2.txt
run one && reads
cp -p before texts/2.txt
expect 0 "$trainer" tokenizer train --vocabulary 480 --special '<|im_start|>' --special '<|im_end|>' --output other.json texts
run one tokenizer.path=other.json && reads
run one tasks.0.train=pairs.jsonl && reads
run one tasks.0.train=pairs.jsonl tasks.0.completion_field=prompt tasks.0.prompt_field=completion && reads
expect 0 "$trainer" cache --folder fresh
[ "$(grep -c 'texts\|pairs' out)" = 5 ] || fail "the list of the cache: $(cat out)"

# Damaged: a byte, the end, nothing left; then what is left is made anew, and right.
run sound
losses sound >sound.losses
part=$(ls -S fresh/*.tokens | head -n 1)
for damage in byte cut empty header; do
    for file in fresh/*.tokens; do
        case $damage in
        byte) printf '\377' | dd of="$file" bs=1 seek=1101 conv=notrunc status=none ;;
        cut) truncate -s -9 "$file" ;;
        empty) : >"$file" ;;
        header) printf 'x' | dd of="$file" bs=1 seek=40 conv=notrunc status=none ;;
        esac
    done
    run damaged
    grep -q "damaged, and not used" err || fail "$damage: nothing is said: $(cat err)"
    losses damaged >damaged.losses
    same sound.losses damaged.losses
done
# A part whose time alone differs is looked through, and used.
touch fresh/*.tokens
run one && reads_not

# Killed while it is made, at any moment.
for i in $(seq 40); do cat texts/*.txt pairs.jsonl; done >long.txt
for delay in 0.02 0.05 0.1 0.2; do
    "$trainer" --config cache.yaml out_dir=killed data.cache=fresh tasks.0.train=long.txt max_steps=2 >out 2>err &
    sleep $delay
    kill -9 $! 2>/dev/null
    wait $! 2>/dev/null
done
run whole tasks.0.train=long.txt
losses whole >whole.losses
run whole tasks.0.train=long.txt data.cache=off
losses whole >memory.losses
same memory.losses whole.losses

# Two runs at once make it once, and both are right.
rm -rf fresh
"$trainer" --config cache.yaml out_dir=left data.cache=fresh tasks.0.train=long.txt max_steps=2 evaluation.every=0 >left.out 2>left.err &
run right tasks.0.train=long.txt
wait $! || fail "of two runs at once one failed: $(tail -n 3 left.err)"
losses left >left.losses
losses right >right.losses
same memory.losses left.losses
same memory.losses right.losses
[ "$(ls fresh/*.tokens | wc -l)" = 1 ] || fail "two runs at once left $(ls fresh)"

# Where it cannot be written: a file in the folder's place, a folder that may only be read, a full disk.
echo text >file
run nowhere data.cache=file/fresh
says err "warning: data.cache: file/fresh: "
losses nowhere >nowhere.losses
same sound.losses nowhere.losses
rm -rf fresh
LD_PRELOAD=$(dirname "$trainer")/faults/shim.so FAULT_KINDS=sync FAULT_AT=1 FAULT_ERROR=ENOSPC "$trainer" --config cache.yaml \
    out_dir=full data.cache=fresh tasks.0.train=long.txt max_steps=2 evaluation.every=0 >out 2>err ||
    fail "a full disk ended the run: $(tail -n 3 err)"
says err "No space left on device: the tokens of this run's text are kept in memory"
says err "warning: data.cache: fresh/"
losses full >full.losses
same memory.losses full.losses
[ -z "$(ls fresh/*.tokens* 2>/dev/null)" ] || fail "a full disk left $(ls fresh)"

# A limit, and the command that lists and clears.
run one data.cache_limit=1
expect 0 "$trainer" cache --config cache.yaml data.cache=fresh
says out "fresh: 1 parts"
run two tasks.0.train=pairs.jsonl data.cache_limit=1
says err "was removed from fresh, by data.cache_limit"
expect 0 "$trainer" cache clear --folder fresh --unused 1
says out "fresh: removed 0 parts"
expect 0 "$trainer" cache clear --folder fresh
says out "fresh: removed 1 parts"
expect 0 "$trainer" cache --folder nowhere-at-all
says out "nowhere-at-all: 0 parts"
expect 2 "$trainer" cache --config cache.yaml data.cache=off
# A plan reads little text, and takes what is in the cache.
cat long.txt long.txt long.txt >huge.txt
large=(tasks.0.train=huge.txt max_epochs=1 max_steps=0 evaluation.every=0 data.cache=fresh)
expect 0 "$trainer" plan --no-training --config cache.yaml "${large[@]}"
says err "the number of steps is not known"
expect 0 "$trainer" --config cache.yaml out_dir=huge "${large[@]}" max_steps=1
expect 0 "$trainer" plan --no-training --config cache.yaml "${large[@]}"
! grep -q "planned without" err || fail "a plan does not take tokens from the cache: $(cat err)"
# By default small texts are not kept, and larger ones next to it.
run default data.cache=auto
[ ! -e .halfstep-tokens ] || fail "little text is kept"
finish
