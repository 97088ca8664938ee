#!/bin/bash
# SPDX-License-Identifier: MIT
# bench/fragments with the emulator on both sides: every experiment runs and agrees, the words do not depend on the order
# of events, and a GPU before Hopper is not taken for a failure.  And: where the benchmarks' part for GPUs was built, it
# can be opened and holds the experiments.
. "$(dirname "$0")/lib.sh"
fragments=$(dirname "$trainer")/bench/fragments

# words FILE: what a dump has of exact experiments; how far two blocks' shared memory lies apart is only reported.
words() {
    awk '/^[^ ]/ { told = /distance of two blocks/ } !told' "$1"
}

expect 0 "$fragments" --device emu --json figures.json first
# The distance is another one where another block came first.
grep -vE 'distance of two blocks|\| mma e' out >rows
[ "$(grep -c '| holds |$' rows)" -ge 77 ] || fail "fewer experiments than there are: $(cat out)"
grep -qE 'BROKEN|differs|not on this GPU' rows && fail "not all experiments hold: $(cat out)"
[ "$(grep -c '"bench":"fragment"' figures.json)" = $(($(grep -c ' holds ' rows) + 4)) ] || fail "figures.json: not a line each"
words first >expected
for order in "SCHEDULE=pct SEED=2 COPIES=early STREAMS=early" "SCHEDULE=reverse" "SCHEDULE=random SEED=3"; do
    # shellcheck disable=SC2046,SC2086
    expect 0 env $(printf 'HALFSTEP_EMU_%s ' $order) "$fragments" --device emu again
    words again >got
    same got expected
done

# From an experiment in the middle on, adding to the dump.
before=$(grep -c '^[^ ]' first) all=$(grep -c '^| .* | .* |' rows)
all=$((all - 1 + 4)) # but for the header, and with those that were left out of rows
expect 0 "$fragments" --from 40 --device emu first
[ "$(grep -c '^[^ ]' first)" = $((before + all - 40)) ] || fail "--from 40 added other words than those left"
[ "$(grep -c '^|' out)" = $((all - 40)) ] || fail "--from 40 printed other rows than those left: $(cat out)"

# FP8 by mma.sync is 8.9's.
expect 0 env HALFSTEP_EMU_SHARED=99 "$fragments" --device emu ada
[ "$(grep -c '| mma e.* holds |$' out)" = 3 ] || fail "codes: $(cat out)"

expect 0 env HALFSTEP_EMU_SHARED=163 "$fragments" --device emu older
says out "| wgmma bf16 n64 | exact | | not on this GPU |"
says out "| named barriers | exact | 512 of 512 | holds |"
[ "$(grep -c '^[^ ]' older)" = "$(grep -c ' holds ' out)" ] || fail "the dump has other experiments than ran"

if [ -e "${fragments%/*}/parts/libhalfstep-cuda.so" ]; then
    "$fragments" --device cuda >out 2>&1
    grep -qE 'cannot be opened|comes from another build|has no fragments' out && fail "the benchmarks' part for GPUs: $(cat out)"
else
    expect 1 "$fragments" --device cuda
    says err "this build has no kernels for GPUs; to build them (nvcc is needed): make cuda"
fi
finish
