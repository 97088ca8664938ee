#!/bin/bash
# SPDX-License-Identifier: MIT
# The losses of a tiny run per precision mode and recipe of codes, on the portable kernels, with the same bits on every
# machine.  When a change moves one on purpose, run this with GOLDEN=write and say why in CHANGELOG.md.
. "$(dirname "$0")/lib.sh"
tiny_config
golden=$root/tests/golden/losses.txt
export HALFSTEP_CPU_ISA=portable
for family in gpt2 llama; do
    for mode in fp32 bf16 fp16; do
        expect 0 "$trainer" --config tiny.yaml model.family=$family precision.mode=$mode out_dir=$family-$mode
        printf '%s %s %s\n' "$family" "$mode" \
            "$(sed -nE 's/.*"event":"eval","step":24,.*"val_loss":([0-9.]{8}).*/\1/p' $family-$mode/metrics.jsonl)"
    done
    for recipe in current delayed block mxfp8 nvfp4; do
        expect 0 "$trainer" --config tiny.yaml model.family=$family precision.mode=fp8 precision.fp8.recipe=$recipe \
            precision.fp8.keep=none out_dir=$family-$recipe
        printf '%s %s %s\n' "$family" "fp8-$recipe" \
            "$(sed -nE 's/.*"event":"eval","step":24,.*"val_loss":([0-9.]{8}).*/\1/p' $family-$recipe/metrics.jsonl)"
    done
done >losses.txt
[ "${GOLDEN:-}" = write ] && cp losses.txt "$golden"
same "$golden" losses.txt
finish
