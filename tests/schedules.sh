#!/bin/bash
# SPDX-License-Identifier: MIT
# schedules.sh [FIRST LAST]: the Hopper kernels, with warps that wait for each other, against ref on the emulator, in
# orders of events FIRST to LAST (1 to 16): every kind of schedule, other seeds, copies that come late and early, one
# and two host threads, work laid out for 4 and for 132 multiprocessors; one in four also attention as on a GPU with
# 100 KiB of shared memory a multiprocessor.  Small cases of every shape against ref, then bench/agreement, with blocks
# that continue from tile to tile.  Minutes; half an hour with SANITIZE and BUILD given: `make test-schedules`.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 2
build=${BUILD:-build}
first=${1:-1} last=${2:-16}
log=$(mktemp)
trap 'rm -f "$log"' EXIT
failures=0

# expect_right NAME COMMAND...: fails when the command does, and shows what it said.
expect_right() {
    local name=$1
    shift
    if ! "$@" >"$log" 2>&1; then
        echo "FAIL  $name ($settings)"
        tail -n 20 "$log"
        failures=$((failures + 1))
    fi
}

kinds=(pct random forward reverse)
for ((seed = first; seed <= last; seed++)); do
    export HALFSTEP_EMU_SEED=$seed HALFSTEP_EMU_SCHEDULE=${kinds[seed % 4]} HALFSTEP_EMU_THREADS=$((1 + seed / 4 % 2))
    export HALFSTEP_EMU_COPIES=late
    [ $((seed / 8 % 2)) -eq 0 ] || export HALFSTEP_EMU_COPIES=early
    export HALFSTEP_MULTIPROCESSORS=4
    [ $((seed % 3)) -ne 0 ] || export HALFSTEP_MULTIPROCESSORS=132
    settings="seed $seed, $HALFSTEP_EMU_SCHEDULE, copies $HALFSTEP_EMU_COPIES, $HALFSTEP_EMU_THREADS threads, $HALFSTEP_MULTIPROCESSORS multiprocessors"
    for op in attention_forward attention_backward; do
        expect_right $op "$build/trainer" selftest --device emu --no-speed --op $op
        [ $((seed % 4)) -ne 1 ] || expect_right "$op, 100 KiB" env HALFSTEP_EMU_SHARED=99 \
            "$build/trainer" selftest --device emu --no-speed --op $op
    done
    expect_right products "$build/tests/room/ops" --filter 'matmul_tiles/hopper*'
    expect_right 'products of codes' "$build/tests/room/ops" --filter 'fp8_products/*'
    expect_right agreement "$build/bench/agreement" --device emu --tiny
    expect_right 'joint tiles' env HALFSTEP_MULTIPROCESSORS=10 "$build/bench/agreement" --device emu --tiny products:plain
    echo "done  $settings"
done
[ $failures -eq 0 ]
