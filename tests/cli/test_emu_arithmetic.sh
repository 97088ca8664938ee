#!/bin/bash
# SPDX-License-Identifier: MIT
# Arithmetic that GPUs leave open, on the emulator, each as far off as it may be: the self-test's bounds hold.
. "$(dirname "$0")/lib.sh"

export HALFSTEP_EMU_GUARD=off
for error in above mixed; do
    for operation in matmul attention_forward cross_entropy; do
        expect 0 env HALFSTEP_EMU_APPROXIMATE=$error "$trainer" selftest --device emu --no-speed --op $operation
    done
done
expect 2 env HALFSTEP_EMU_APPROXIMATE=wrong "$trainer" selftest --device emu --no-speed --op combine
says err "HALFSTEP_EMU_APPROXIMATE=wrong: give one of exact above below mixed"
finish
