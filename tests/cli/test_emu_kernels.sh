#!/bin/bash
# SPDX-License-Identifier: MIT
# Every CUDA kernel on the emulator against the reference, in several of the orders that a GPU could take: which warp runs
# first, when asynchronous copies arrive, when a stream's work is done, how much shared memory a block may have, for how
# many multiprocessors work is laid out.  And with arithmetic that GPUs leave open as far off as it may be: the bounds hold
# where approximate instructions err by all that is documented and where tensor cores cut their sums.
. "$(dirname "$0")/lib.sh"

# kernels SETTING...: each an environment variable without its prefix HALFSTEP_EMU_.
kernels() {
    expect 0 env "${@/#/HALFSTEP_EMU_}" "$trainer" selftest "${pairs[@]}" --device emu --no-speed
    [ "$(grep -c ' ok ' out)" -ge 40 ] || fail "fewer operations than there are: $(cat out)"
}
export HALFSTEP_MULTIPROCESSORS=132
kernels SCHEDULE=pct SEED=1 COPIES=late STREAMS=late SHARED=227 APPROXIMATE=mixed SUMS=truncate
export HALFSTEP_MULTIPROCESSORS=4
# What shared memory decides about: the tiles of products and of attention; other orders of all kernels are test-schedules',
# at night.
for op in matmul attention_forward attention_backward; do
    expect 0 env HALFSTEP_EMU_SCHEDULE=pct HALFSTEP_EMU_SEED=2 HALFSTEP_EMU_COPIES=early HALFSTEP_EMU_STREAMS=early \
        HALFSTEP_EMU_SHARED=99 HALFSTEP_EMU_APPROXIMATE=above HALFSTEP_EMU_SUMS=truncate "$trainer" selftest "${pairs[@]}" --device emu --no-speed --op $op
done
expect 0 env HALFSTEP_EMU_SHARED=163 HALFSTEP_EMU_SCHEDULE=reverse "$trainer" selftest "${pairs[@]}" --device emu --no-speed --op matmul
expect 0 env HALFSTEP_EMU_SUMS=truncate "$trainer" selftest "${pairs[@]}" --device emu --no-speed --op matmul --force-tile wgmma-256x128 --match 'bf16 ->'
expect 0 env HALFSTEP_EMU_SUMS=truncate "$trainer" selftest "${pairs[@]}" --device emu --no-speed --op matmul --force-tile wgmma-fp8-256x256 --match ' x e4m3'
expect 2 env HALFSTEP_EMU_SUMS=rounded "$trainer" selftest "${pairs[@]}" --device emu --no-speed --op combine
says err "HALFSTEP_EMU_SUMS=rounded: give one of exact truncate"
finish
