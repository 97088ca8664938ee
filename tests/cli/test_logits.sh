#!/bin/bash
# SPDX-License-Identifier: MIT
# Logits, and a residual stream, of 16 bits in training (precision.logits and precision.residual: compute): every family and
# mode goes the way of f32 ones, runs repeat their bits however they are cut, the head takes a third of the memory, the
# stream a half, and what needs f32 is refused.
. "$(dirname "$0")/lib.sh"
tiny_config

# Losses of every step within the bound for roundings of the mode's format (lib.sh), of which the logits' is one more, and
# the stream's one behind each branch.
compare() {
    local device=$1 family=$2 mode=$3 key format
    expect 0 "$trainer" --config tiny.yaml device="$device" model.family="$family" precision.mode="$mode" logging.every=1 \
        out_dir=f32
    bits f32 >f32.bits
    for key in logits residual; do
        expect 0 "$trainer" --config tiny.yaml device="$device" model.family="$family" precision.mode="$mode" \
            precision.$key=compute logging.every=1 out_dir=$key
        bits $key >$key.bits
        ! cmp -s f32.bits $key.bits || fail "$device, $family, $mode: $key is not rounded"
        near f32 $key "$mode" || fail "$device, $family, $mode: other losses by $key"
    done
    rm -rf f32 logits residual
}
for mode in bf16 fp16; do
    compare cpu gpt2 $mode
    compare cpu llama $mode
done
compare ref gpt2 bf16
compare emu gpt2 bf16
compare emu llama fp16

# In fp32 there is no narrower format.
for format in f32 compute; do
    expect 0 "$trainer" --config tiny.yaml precision.mode=fp32 precision.logits=$format precision.residual=$format \
        out_dir=wide-$format
    bits wide-$format >$format.bits
done
same f32.bits compute.bits

# Recomputation and resuming change no bit.
narrow="precision.logits=compute precision.residual=compute max_steps=12 schedule.decay_steps=12"
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
    expect 0 "$trainer" --config tasks.yaml precision.mode=$mode precision.logits=compute precision.residual=compute \
        'continual.strategy=[ewc,mer]' \
        ewc.estimator=sampled mer.group_steps=3 mer.groups=2 out_dir=cl-$mode
done

# 2 bytes a logit in place of 6.
logits() {
    expect 0 "$trainer" plan --no-training --config tiny.yaml model.vocabulary=50304 memory.head_chunk=128 precision.logits="$1"
    awk '$1 == "logits" { print $2 }' out
}
awk -v a="$(logits f32)" -v b="$(logits compute)" 'BEGIN { exit !(a > 30 && a > 2.9 * b && a < 3.1 * b) }' ||
    fail "the plan has $(logits f32) MiB of f32 logits, $(logits compute) MiB of 16 bits"

# 2 bytes a number of the stream in place of 4, of which a block of GPT-2 keeps two: the sums behind its branches.
kept() {
    expect 0 "$trainer" plan --no-training --config tiny.yaml model.layers="$2" precision.residual="$1" batch_size=640
    awk '$1 == "kept" { print $2 }' out
}
saved=$(awk -v a="$(kept f32 12)" -v b="$(kept f32 8)" -v c="$(kept compute 12)" -v d="$(kept compute 8)" \
    -v rows="$((640 * $(sed -n 's/^max_length: //p' tiny.yaml)))" -v width="$(sed -nE 's/.*width: ([0-9]+).*/\1/p' tiny.yaml)" \
    'BEGIN { print (a - b - (c - d)) * 2 ^ 20 / (4 * rows * width * 2) }')
awk -v saved="$saved" 'BEGIN { exit !(saved > 1.95 && saved < 2.05) }' || fail "a block keeps $saved numbers of the stream less"

# Refused by name.
for strategy in lwf der++; do
    expect 2 "$trainer" --config tasks.yaml precision.mode=bf16 precision.logits=compute continual.strategy=$strategy
    grep -q "precision.logits: compute rounds the logits, and strategy $strategy compares them in f32" err ||
        fail "$strategy: $(cat err)"
done
finish
