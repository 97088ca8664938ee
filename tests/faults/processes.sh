#!/bin/bash
# SPDX-License-Identifier: MIT
# processes.sh: a rank of 2 or 4 processes is killed, or stopped, or the parent of all is, COUNT times (100), at moments
# that are drawn (SEED=N draws others), under distributed.zero 0, 1 and 3, two tasks with ewc and mer.  Each time:
#
#     the rank is named within 10 seconds, the exit code is 1, no process and no shared memory is left behind
#     the latest checkpoint loads
#     --restart, or the same command with another number of processes and another stage, continues
#
# A run that has come to its end has the record and the checkpoint of an undisturbed one, byte for byte (times excepted).
# Then what ends all ranks alike: gradients that are not finite, a full disk, a signal that one of them has.
count=${COUNT:-100}
RANDOM=${SEED:-1}
. "$(dirname "$0")/lib.sh"
export ASAN_OPTIONS=${ASAN_OPTIONS:-}:handle_abort=1
config=several-$$.yaml # by its name the processes of this test are known from others
cat >"$config" <<'YAML'
seed: 3
out_dir: run
device: cpu
threads: 1
batch_size: 8
max_length: 16
max_steps: 40
checkpoint_freq: 3
learning_rate: 2e-3
model: {family: llama, layers: 2, heads: 2, width: 144, dropout: 0.1}
tokenizer: {kind: byte}
precision: {mode: bf16}
tasks:
  - {name: a, train: "synthetic:arithmetic", synthetic_tokens: 4000}
  - {name: b, train: "synthetic:english", synthetic_tokens: 4000}
evaluation: {every: 10, batches: 2, items: 0, sample_tokens: 0}
logging: {every: 1, progress: lines, tensorboard: false}
continual: {strategy: [ewc, mer]}
ewc: {fisher_samples: 32}
mer: {buffer_size: 16}
distributed: {virtual_ranks: 4}
YAML
kills=0 stops=0 parents=0 restarted=0 resumed=0 compared=0 loaded=0 slowest_ms=0

ms() {
    echo $((${EPOCHREALTIME/./} / 1000))
}

left_over() {
    pgrep -f -- "[s]everal-$$.yaml"
}

# ended SECONDS: the run's processes are gone within that time.
ended() {
    local i
    for ((i = 0; i < $1 * 20; i++)); do
        left_over >/dev/null || return 0
        sleep 0.05
    done
    return 1
}

# start PROCESSES ZERO [OPTION...]: the run in the background, its parent in $parent.
start() {
    what="$1 processes, zero $2${3:+, ${*:3}}"
    "$trainer" --config "$config" --processes "$1" distributed.zero="$2" "${@:3}" >out 2>err </dev/null &
    parent=$!
}

# process_of RANK: its process, nothing where it has not started or has ended.
process_of() {
    local process
    for process in $(pgrep -P $parent); do
        grep -qz "^HALFSTEP_RANK=$1\$" "/proc/$process/environ" 2>/dev/null && echo "$process"
    done
}

# named RANK PROCESSES: waits until the failure of that rank is reported; how long it took counts.
named() {
    local began now
    began=$(ms)
    until grep -qE "rank $1 (of $2 .*(died|ended|heartbeat)|was ended by signal)" err; do
        now=$(ms)
        if [ $((now - began)) -gt 10000 ]; then
            fail "$what: rank $1, $signal after $delay ms, is not named within 10 s"
            tail -n 3 err
            return
        fi
        kill -0 $parent 2>/dev/null || { grep -qE "rank $1 (of $2 .*(died|ended|heartbeat)|was ended)" err && break
            fail "$what: rank $1, $signal after $delay ms, is not named"; tail -n 3 err; return; }
        sleep 0.05
    done
    now=$(ms)
    [ $((now - began)) -le $slowest_ms ] || slowest_ms=$((now - began))
}

# strike PROCESSES: a signal to a drawn process, after a drawn time; $hit says which, empty where the run had ended.
strike() {
    local process drawn=$((RANDOM % 20))
    hit= signal=KILL victim=0
    delay=$((RANDOM % whole_ms))
    sleep "$(printf '%d.%03d' $((delay / 1000)) $((delay % 1000)))"
    victim=$((RANDOM % $1))
    if [ $drawn -ge 17 ]; then
        kill -KILL $parent 2>/dev/null && hit=parent
        return
    fi
    [ $drawn -lt "$stop_every" ] && signal=STOP
    process=$(process_of $victim)
    [ -n "$process" ] && kill -$signal "$process" 2>/dev/null && hit=rank
}

count_strike() {
    if [ $hit = parent ]; then
        parents=$((parents + 1))
    elif [ $signal = STOP ]; then
        stops=$((stops + 1))
    else
        kills=$((kills + 1))
    fi
}

nobody_stays() {
    local process
    ended 3 && return
    for process in $(left_over); do
        fail "$what: $signal to ${hit:-no process} $victim after $delay ms: left behind: $(tr '\0' ' ' <"/proc/$process/cmdline")"
        kill -KILL "$process"
    done
}

# What must hold after a strike that ended the run.
look_around() {
    nobody_stays
    [ -z "$(comm -13 <(echo "$shared_before") <(shared_memory))" ] || fail "$what: shared memory is left behind: $(shared_memory)"
    [ -e run/checkpoints/latest ] || return
    loaded=$((loaded + 1))
    "$trainer" eval --checkpoint run >out.eval 2>err.eval </dev/null || fail "$what: the checkpoint does not load: $(tail -n 1 err.eval)"
}
shared_memory() {
    find /dev/shm -maxdepth 1 -name '*halfstep*' | sort
}
shared_before=$(shared_memory)

compare() {
    bits run >run.bits
    compared=$((compared + 1))
    same calm.bits run.bits
    [ -z "$(find run/checkpoints -name '.tmp-*')" ] || fail "$what: temporary folders are left"
    rm -rf run
}

counts=(2 4) stages=(0 1 3)
draw() {
    processes=${counts[RANDOM % 2]} zero=${stages[RANDOM % 3]}
}

# A strike, and the run is to continue by itself.
restart_by_itself() {
    start $processes $zero --restart 2
    strike $processes
    [ "$hit" != rank ] || named $victim $processes
    wait $parent 2>/dev/null
    code=$?
    case $hit$code in
    rank0)
        if grep -q "starting all again, 1 of 2" err; then
            count_strike
            restarted=$((restarted + 1))
        fi
        ;;
    parent137) count_strike && look_around ;;
    0) ;;
    *) fail "$what: $signal to ${hit:-no process} $victim after $delay ms: exit code $code: $(tail -n 1 err)" ;;
    esac
}

# A strike that ends the run.
end_by_strike() {
    start $processes $zero
    strike $processes
    [ "$hit" != rank ] || named $victim $processes
    wait $parent 2>/dev/null
    code=$?
    case $hit$code in
    rank1 | parent137) count_strike && look_around ;;
    0) ;;
    rank0 | parent0) grep -q '"event":"end"' run/metrics.jsonl || fail "$what: struck, and ends well" ;; # it was leaving
    *) fail "$what: $signal to ${hit:-no process} $victim after $delay ms: exit code $code: $(tail -n 1 err)" ;;
    esac
}

stop_every=0
"$trainer" --config "$config" >out 2>err || fail "undisturbed: $(tail -n 1 err)"
bits run >calm.bits
losses run >calm.losses
rm -rf run
began=$(ms)
start 4 1
wait $parent || fail "$what: $(tail -n 1 err)"
whole_ms=$(($(ms) - began))
compare

starts=0
while [ $((kills + stops + parents)) -lt "$count" ] && [ $starts -lt $((count * 4)) ]; do
    starts=$((starts + 1))
    stop_every=$((starts % 3 == 0 ? 4 : 0)) # they last: some seconds until a heartbeat is missed
    draw
    if [ $((starts % 4)) = 0 ]; then restart_by_itself; else end_by_strike; fi
    grep -q '^info: continuing from' err && resumed=$((resumed + 1))
    [ $code != 0 ] || compare
    nobody_stays
done
draw
start $processes $zero
wait $parent || fail "$what, the last start: $(tail -n 1 err)"
compare

# --- what ends all of them alike ---
# Diverging: one message, and one copy of the state.
start 2 1 precision.mode=fp32 learning_rate=1000 optimizer.clip_norm=0 schedule.warmup_steps=0 continual.strategy=none
wait $parent
code=$?
[ $code = 1 ] || fail "diverging: exit code $code"
[ "$(grep -o 'gradients are not finite at step .*' err | sort -u | wc -l)" = 1 ] || fail "diverging: not one message: $(cat err)"
[ "$(grep -c '"event":"diverged"' run/metrics.jsonl)" = 1 ] || fail "diverging: not recorded once"
[ "$(find run/diverged -name model.safetensors | wc -l)" = 1 ] || fail "diverging: no state is kept: $(ls run)"
expect 0 "$trainer" inspect --checkpoint run/diverged
[ -z "$(find run -name '.tmp-*')" ] || fail "diverging: temporary folders are left"
ended 3 || fail "diverging: processes are left behind"
rm -rf run

# No room for a checkpoint, which process 0 writes, as it begins, in its midst, and at its end.
for kind in mkdir write sync rename; do
    rm -rf run
    LD_PRELOAD=$shim FAULT_KINDS=$kind FAULT_ERROR=ENOSPC FAULT_RANK=0 FAULT_AT=4 FAULT_COUNT=0 start 4 3
    wait $parent
    code=$?
    [ $code = 1 ] || fail "no room ($kind): exit code $code: $(tail -n 1 err)"
    says err "No space left on device"
    says err "rank 0 of 4"
    look_around
    start 2 0
    wait $parent || fail "$what after there was no room: $(tail -n 1 err)"
    compare
done

# A signal that one of them has, and the other while both save: all save, and leave.
for rank in 0 1; do
    rm -rf run
    start 2 $rank
    until grep -qs '"event":"step"' run/metrics.jsonl || ! kill -0 $parent; do sleep 0.02; done
    kill -TERM "$(process_of $rank)"
    sleep 0.01
    kill -TERM "$(process_of $((1 - rank)))" 2>/dev/null
    wait $parent
    code=$?
    [ $code = 143 ] || fail "SIGTERM to rank $rank: exit code $code: $(tail -n 1 err)"
    [ "$(grep -c 'saving, then leaving' err)" = 1 ] || fail "SIGTERM to rank $rank: $(grep -c 'saving, then leaving' err) say so"
    look_around
    start 4 1
    wait $parent || fail "$what after a signal: $(tail -n 1 err)"
    # It has saved once more, which its record says.
    tensors run | grep -v trainer.json >run.bits
    grep -v trainer.json calm.bits | tail -n 3 | cmp -s - run.bits || fail "$what after a signal: another end"
    losses run | cmp -s - calm.losses || fail "$what after a signal: other losses"
done
echo "processes: $kills ranks killed, $stops stopped, $parents parents killed; $restarted restarts, $resumed resumed," \
    "$loaded checkpoints loaded, $compared ends compared, named after at most $slowest_ms ms, $failures differences"
finish
