#!/bin/bash
# SPDX-License-Identifier: MIT
# trainer --processes N: exit codes, signals, processes that die, are stopped, hang or fail, starting again; no process
# is left behind, and runs that failed continue to the same bits.  The same by mpirun and by torchrun's variables.
# Waits more than it computes.
. "$(dirname "$0")/lib.sh"
shim=$(dirname "$trainer")/faults/shim.so
tiny_config
cp tiny.yaml "tiny-$$.yaml" # by its name the processes of this test are known from others
several=("$trainer" --config "tiny-$$.yaml" distributed.virtual_ranks=2)

# gone: no process of this test is left, after a moment.
gone() {
    local i
    for i in $(seq 50); do
        pgrep -f -- "[t]iny-$$.yaml" >/dev/null || return 0
        sleep 0.1
    done
    fail "processes are left behind: $(pgrep -fa -- "[t]iny-$$.yaml")"
}

# within SECONDS CODE COMMAND...: as expect, and no later.
within() {
    local most=$1 start=$SECONDS
    shift
    expect "$@"
    [ $((SECONDS - start)) -le "$most" ] || fail "$((SECONDS - start)) s instead of $most: ${*:2}"
}

expect 0 "${several[@]}" --processes 2
says err "processes: 2, by shared memory"
[ "$(grep -c 'device: ' err)" = 1 ] || fail "not one process alone describes the run"
[ "$(grep -c 'step 24/24  end' out)" = 1 ] || fail "not one process alone writes to the standard output"
mv run whole
bits whole >whole.bits
# By the key; the option wins; one process is a parent and its child.
expect 0 "${several[@]}" distributed.processes=2
bits run >run.bits
same whole.bits run.bits
rm -rf run
expect 0 "${several[@]}" distributed.processes=3 --processes 1
bits run >run.bits
same whole.bits run.bits
rm -rf run

# What is wrong with the configuration is reported once, before any process starts.
expect 2 "${several[@]}" --processes 2 learning_rat=1
[ "$(wc -l <err)" = 1 ] || fail "a wrong key is reported $(wc -l <err) times"
expect 2 "${several[@]}" --processes 0
expect 2 "${several[@]}" --processes 2 --restart x
HALFSTEP_FAULT=nonsense expect 2 "${several[@]}" --processes 2
says err "HALFSTEP_FAULT=nonsense should be"

# A process dies, ends, is stopped or comes late: named by the other with its step, exit code 1, the checkpoint stays.
for fault in kill:"died: its process has ended|was ended by signal 9" exit:"died: its process has ended|ended with exit code 3" \
    stop:"has been without a heartbeat for"; do
    rm -rf run
    HALFSTEP_FAULT="rank=1,step=15,do=${fault%%:*}" within 20 1 "${several[@]}" --processes 2
    grep -qE "rank 1 of 2 \(host .*, process [0-9]+, step 15, .*\) (${fault#*:})" err || { fail "$fault is not named"; cat err; }
    [ "$(cat run/checkpoints/latest)" = step-00000012 ] || fail "${fault%%:*}: the checkpoint is $(cat run/checkpoints/latest)"
    gone
done
expect 0 "${several[@]}" --processes 2
bits run >run.bits
same whole.bits run.bits
rm -rf run
HALFSTEP_FAULT="rank=0,step=15,do=delay:5" within 30 1 "${several[@]}" --processes 2 distributed.timeout=2
says err "has not come for 2 s (distributed.timeout)"
grep -q "rank 0 of 2 (host .*, step 15, .*is alive" err || fail "the late rank is not named: $(cat err)"
rm -rf run
HALFSTEP_FAULT="rank=1,step=15,do=delay:3" expect 0 "${several[@]}" --processes 2
bits run >run.bits
same whole.bits run.bits

# Starting again: to the same end, at most so often, and not where the configuration is at fault.
rm -rf run
HALFSTEP_FAULT="rank=1,step=15,do=kill" expect 0 "${several[@]}" --processes 2 --restart 1
says err "starting all again, 1 of 1"
bits run >run.bits
same whole.bits run.bits
rm -rf run
HALFSTEP_FAULT="rank=0,step=9,do=exit" expect 0 "${several[@]}" --processes 2 --restart 2 resume=never
bits run >run.bits
same whole.bits run.bits
expect 2 "${several[@]}" --processes 2 --restart 3 learning_rate=1
! grep -q "starting all again" err || fail "a configuration that does not fit is tried again"
rm -rf run
touch run
expect 1 "${several[@]}" --processes 2 --restart 2
says err "starting all again, 2 of 2"
rm -f run

# Without memory, and without room, in one of the processes.
if [ -e "$shim" ]; then
    for fault in "memory ENOMEM 1 400" "write ENOSPC 0 30"; do
        set -- $fault
        rm -rf run
        # AddressSanitizer would rather stand before the shim, and count what the shim keeps.
        ASAN_OPTIONS=verify_asan_link_order=0:detect_leaks=0:allocator_may_return_null=1 LD_PRELOAD=$shim FAULT_KINDS=$1 FAULT_ERROR=$2 FAULT_RANK=$3 FAULT_AT=$4 FAULT_COUNT=0 \
            within 20 1 "${several[@]}" --processes 2
        says err "rank $3 of 2"
        gone
    done
fi

# Signals: all save and leave; the exit code is that of one process; a run continues.
for signal in INT TERM USR1 HUP; do
    rm -rf run
    "${several[@]}" --processes 2 max_steps=100000 checkpoint_freq=0 out_dir=run logging.every=1 >out 2>err &
    parent=$!
    for i in $(seq 100); do grep -qs '"event":"step"' run/metrics.jsonl && break; sleep 0.1; done
    kill -$signal $parent
    wait $parent
    code=$?
    [ $code = $((128 + $(kill -l $signal))) ] || fail "SIG$signal: exit code $code"
    [ -e run/checkpoints/latest ] || fail "SIG$signal: nothing was saved"
    [ "$(grep -c 'saving, then leaving' err)" = 1 ] || fail "SIG$signal is reported $(grep -c 'saving, then leaving' err) times"
    gone
done
# The parent killed: no process stays.
"${several[@]}" --processes 3 max_steps=100000 distributed.virtual_ranks=0 batch_size=3 out_dir=orphans >out 2>err &
parent=$!
for i in $(seq 100); do grep -qs '"event":"step"' orphans/metrics.jsonl && break; sleep 0.1; done
kill -KILL $parent
wait $parent 2>/dev/null
gone
# All of them stopped and continued: no process takes the others for dead.
"${several[@]}" --processes 2 max_steps=100000 out_dir=paused >out 2>err &
parent=$!
for i in $(seq 100); do grep -qs '"event":"step"' paused/metrics.jsonl && break; sleep 0.1; done
kill -TSTP $parent
sleep 8
kill -CONT $parent
sleep 2
kill -0 $parent 2>/dev/null || fail "a pause ended the run: $(cat err)"
kill -TERM $parent
wait $parent
[ $? = 143 ] || fail "after a pause SIGTERM does not end the run in order"
gone

# Started by others, the same bits.
port=$((20000 + $$ % 20000))
for transport in auto tcp; do
    rm -rf run
    RANK=1 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port "${several[@]}" distributed.transport=$transport >out.1 2>err.1 &
    RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port expect 0 "${several[@]}" distributed.transport=$transport
    wait $! || fail "rank 1: $(cat err.1)"
    bits run >run.bits
    same whole.bits run.bits
    [ ! -s out.1 ] && [ ! -s err.1 ] || fail "rank 1 says something"
done
says err "processes: 2, by TCP through rank 0"
# Rank 0, through which all goes, dies: the other knows.
rm -rf run
export HALFSTEP_FAULT="rank=0,step=15,do=kill"
RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port "${several[@]}" distributed.transport=tcp >out.0 2>err.0 &
RANK=1 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port within 10 1 "${several[@]}" distributed.transport=tcp
wait
unset HALFSTEP_FAULT
grep -qE "rank 1: [a-z_]+: rank 0 of 2 \(host .*\) died: its connection is closed" err || fail "rank 0 is not named: $(cat err)"
if [ -e "$(dirname "$trainer")/libhalfstep-mpi.so" ]; then
    for transport in auto mpi; do
        rm -rf run
        expect 0 env ASAN_OPTIONS=detect_leaks=0 timeout 100 mpirun --allow-run-as-root --map-by :OVERSUBSCRIBE -n 2 "${several[@]}" distributed.transport=$transport
        bits run >run.bits
        same whole.bits run.bits
    done
    says err "processes: 2, by MPI"
    rm -rf run
    HALFSTEP_FAULT="rank=1,step=15,do=exit" expect 3 env ASAN_OPTIONS=detect_leaks=0 timeout 100 mpirun --allow-run-as-root --map-by :OVERSUBSCRIBE -n 2 \
        "${several[@]}" distributed.transport=mpi
    says err "died: its connection is closed"
fi
finish
