#!/bin/bash
# SPDX-License-Identifier: MIT
# Thread counts, recomputation policies and an interruption change no bit of the losses and the final tensors.
. "$(dirname "$0")/lib.sh"
tiny_config
for mode in fp32 bf16 fp16; do
    expect 0 "$trainer" --config tiny.yaml precision.mode=$mode out_dir=base-$mode threads=1
    record base-$mode >base.record
    tensors base-$mode >base.hash
    for variant in threads=2 threads=3 memory.recompute=attention memory.recompute=mlp memory.recompute=block \
        "memory.recompute=block memory.recompute_every=2"; do
        rm -rf variant
        # shellcheck disable=SC2086
        expect 0 "$trainer" --config tiny.yaml precision.mode=$mode out_dir=variant $variant
        record variant >variant.record
        same base.record variant.record
        tensors variant >variant.hash
        # trainer.json holds the length of files that name no configuration: equal too
        same base.hash variant.hash
    done
done
# Interrupted by SIGTERM, then resumed: the same tensors (the record has one more checkpoint line).
expect 0 "$trainer" --config tiny.yaml out_dir=whole max_steps=200 checkpoint_freq=0
"$trainer" --config tiny.yaml out_dir=stopped max_steps=200 checkpoint_freq=0 >out 2>err &
pid=$!
sleep 0.3
kill -TERM $pid 2>/dev/null
wait $pid
expect 0 "$trainer" --config tiny.yaml out_dir=stopped max_steps=200 checkpoint_freq=0
(cd whole/checkpoints/step-00000200 && sha256sum model.safetensors optimizer.safetensors) >whole.hash
(cd stopped/checkpoints/step-00000200 && sha256sum model.safetensors optimizer.safetensors) >stopped.hash
same whole.hash stopped.hash
finish
