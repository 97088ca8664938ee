#!/bin/bash
# SPDX-License-Identifier: MIT
# Logits of 16 bits in training (precision.logits: compute): every family and mode goes the way of f32 logits, runs repeat
# their bits however they are cut, the head takes a third of the memory, and what needs f32 is refused.
. "$(dirname "$0")/lib.sh"
tiny_config

# Losses of every step within the bound for roundings of the mode's format (lib.sh), of which the logits' is one more.
compare() {
    local device=$1 family=$2 mode=$3 logits
    for logits in f32 compute; do
        expect 0 "$trainer" --config tiny.yaml device="$device" model.family="$family" precision.mode="$mode" \
            precision.logits=$logits logging.every=1 out_dir=$logits
        bits $logits >$logits.bits
    done
    ! cmp -s f32.bits compute.bits || fail "$device, $family, $mode: logits are not rounded"
    near f32 compute "$mode" || fail "$device, $family, $mode: other losses"
    rm -rf f32 compute
}
for mode in bf16 fp16; do
    compare cpu gpt2 $mode
    compare cpu llama $mode
done
compare ref gpt2 bf16
compare emu gpt2 bf16
compare emu llama fp16

# In fp32 there is no narrower format.
for logits in f32 compute; do
    expect 0 "$trainer" --config tiny.yaml precision.mode=fp32 precision.logits=$logits out_dir=wide-$logits
    bits wide-$logits >$logits.bits
done
same f32.bits compute.bits

# Recomputation and resuming change no bit.
narrow="precision.logits=compute max_steps=12 schedule.decay_steps=12"
# shellcheck disable=SC2086
{
    expect 0 "$trainer" --config tiny.yaml $narrow out_dir=whole
    expect 0 "$trainer" --config tiny.yaml $narrow out_dir=again memory.recompute=block
    expect 0 "$trainer" --config tiny.yaml $narrow out_dir=halves max_steps=6
    expect 0 "$trainer" --config tiny.yaml $narrow out_dir=halves
}
bits whole >whole.bits
bits again >again.bits
same whole.bits again.bits
tensors whole | grep -v trainer.json >a
tensors halves | grep -v trainer.json >b
same a b

# Labels drawn for Fisher information and replay read the same logits.
tiny_tasks
for mode in bf16 fp16; do
    expect 0 "$trainer" --config tasks.yaml precision.mode=$mode precision.logits=compute 'continual.strategy=[ewc,mer]' \
        ewc.estimator=sampled mer.group_steps=3 mer.groups=2 out_dir=cl-$mode
done

# 2 bytes a logit in place of 6.
logits() {
    expect 0 "$trainer" plan --no-training --config tiny.yaml model.vocabulary=50304 memory.head_chunk=128 precision.logits="$1"
    awk '$1 == "logits" { print $2 }' out
}
awk -v a="$(logits f32)" -v b="$(logits compute)" 'BEGIN { exit !(a > 30 && a > 2.9 * b && a < 3.1 * b) }' ||
    fail "the plan has $(logits f32) MiB of f32 logits, $(logits compute) MiB of 16 bits"

# Refused by name.
for strategy in lwf der++; do
    expect 2 "$trainer" --config tasks.yaml precision.mode=bf16 precision.logits=compute continual.strategy=$strategy
    grep -q "precision.logits: compute rounds the logits, and strategy $strategy compares them in f32" err ||
        fail "$strategy: $(cat err)"
done
finish
