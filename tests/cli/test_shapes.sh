#!/bin/bash
# SPDX-License-Identifier: MIT
# Blocks of later families through everything that training does: formats, backends, recomputation, packing, tasks with EWC
# and MER, offload, several processes, an interruption.
. "$(dirname "$0")/lib.sh"
export HALFSTEP_EMU_GUARD=off # test_emu.sh has it

# As `near` knows it: 2 blocks, 32 wide, sequences of 16 tokens.
cat >base.yaml <<'YAML'
seed: 7
out_dir: run
device: cpu
batch_size: 4
max_length: 16
max_steps: 20
learning_rate: 1e-3
checkpoint_freq: 0
model: {family: llama, layers: 2, heads: 2, width: 32, kv_heads: 1, head_dim: 16, tie_head: true}
tokenizer: {kind: char}
tasks: [{name: addition, train: "synthetic:addition", synthetic_tokens: 8000}]
precision: {mode: fp32}
schedule: {warmup_steps: 4}
evaluation: {every: 0, batches: 1, items: 0, show: 0}
logging: {every: 1}
YAML
# shape NAME MODEL: base.yaml with these keys of section model.
shape() {
    sed "s/tie_head: true}/$2}/" base.yaml >"$1.yaml"
    sed '/^tasks:/d' "$1.yaml" >"$1-tasks.yaml"
    cat >>"$1-tasks.yaml" <<'YAML'
tasks:
  - {name: addition, train: "synthetic:addition", synthetic_tokens: 8000, steps: 4}
  - {name: facts, train: "synthetic:facts", synthetic_tokens: 8000, steps: 4}
continual: {strategy: [ewc, mer]}
replay: {buffer_size: 24}
ewc: {fisher_samples: 8}
YAML
}
gemma='norms: around, activation: geglu, embedding_factor: 0, norm_offset: true, tie_head: true'
shape gemma2 "$gemma, score_cap: 2, logit_cap: 4, attention: [window 5, full]"
shape gemma3 "$gemma, qk_norm: true, attention: [window 5 theta 100, full]"
shape olmo2 'norms: after, qk_norm: true, qk_norm_span: projection, tie_head: false'
shape nanochat 'norm_weights: false, embedding_norm: true, qk_norm: true, qk_norm_rotated: true, activation: relu2, logit_cap: 15, smear: 24, input_blend: true, backout: true, init: nanochat, tie_head: false, attention: [window 5, full values]'
shape sinks 'branch_factor: 0.5, logit_factor: 0.5, rope_share: 0.5, tie_head: true, attention: [window 5 sink, nope sink]'
all='gemma2 gemma3 olmo2 nanochat sinks'

# train CONFIG NAME SETTING...: one run.
train() {
    local config=$1 name=$2
    shift 2
    rm -rf "$name"
    expect 0 "$trainer" --config "$config.yaml" out_dir="$name" "$@"
}
# equal A B: their last tensors.
equal() {
    [ "$(tensors "$1" | grep -v trainer.json)" = "$(tensors "$2" | grep -v trainer.json)" ] || fail "$1 and $2 end with other tensors"
}

turn=0
for name in $all; do
    for mode in fp32 bf16 fp16; do
        train $name cpu precision.mode=$mode
        train $name ref precision.mode=$mode device=ref
        near cpu ref $mode 64
        in_tier $((turn++)) 5 || continue
        train $name emu precision.mode=$mode device=emu
        near cpu emu $mode 64
        HALFSTEP_EMU_SCHEDULE=random HALFSTEP_EMU_SEED=$turn train $name again precision.mode=$mode device=emu
        equal emu again
    done
    # What may not change a bit.
    for mode in fp32 bf16; do
        train $name cpu precision.mode=$mode
        for setting in threads=3 memory.recompute=attention memory.recompute=mlp memory.recompute=block; do
            in_tier $((turn++)) 2 || continue
            train $name other precision.mode=$mode $setting
            equal cpu other
        done
    done
    for recipe in current delayed block mxfp8 nvfp4; do
        in_tier $((turn++)) 5 || continue
        train $name other precision.mode=fp8 precision.fp8.recipe=$recipe
        train $name again precision.mode=fp8 precision.fp8.recipe=$recipe memory.recompute=block threads=2
        equal other again
    done
    # Several documents in a row.
    train $name cpu data.packing=documents
    train $name ref data.packing=documents device=ref
    near cpu ref fp32 32
    # Tasks, in one piece, interrupted, by several processes, and with states on the host.
    train $name-tasks whole precision.mode=bf16 checkpoint_freq=3 distributed.virtual_ranks=2
    rm -rf half
    cp -r whole half
    rm -rf half/checkpoints/step-00000008
    ls half/checkpoints | grep -x 'step-00000006' >half/checkpoints/latest || fail "$name: no checkpoint of step 6"
    expect 0 "$trainer" --config $name-tasks.yaml out_dir=half precision.mode=bf16 checkpoint_freq=3 distributed.virtual_ranks=2
    equal whole half
    for zero in 0 1 2 3; do
        in_tier $((turn++)) 2 || continue
        rm -rf two
        expect 0 "$trainer" --processes 2 --config $name-tasks.yaml out_dir=two precision.mode=bf16 checkpoint_freq=3 distributed.virtual_ranks=2 distributed.zero=$zero
        equal whole two
    done
    for offload in optimizer gradients weights; do
        in_tier $((turn++)) 5 || continue
        train $name-tasks plain precision.mode=bf16 device=emu
        train $name-tasks off precision.mode=bf16 device=emu memory.offload=$offload
        equal plain off
    done
done
finish
