#!/bin/bash
# SPDX-License-Identifier: MIT
# A base in four bits with adapters (QLoRA): training as PEFT's on what bitsandbytes decodes; the same bits whatever the
# threads, recomputation and interruptions; memory as planned; its files both ways; what is refused.
. "$(dirname "$0")/lib.sh"
models=$root/tests/huggingface/models
quantized=$root/tests/huggingface/quantized

# bitsandbytes' own matrices, PEFT's own adapters (tests/huggingface/quantized.py): losses off f64 by twice what f32 is.
for name in llama gpt2; do
    given=$quantized/$name
    cat >theirs.yaml <<YAML
init_from: $given
adapter: {init_from: $given/adapter, base: nf4}
out_dir: theirs
batch_size: 1
max_length: 48
max_steps: 50
learning_rate: 1e-3
weight_decay: 0.1
optimizer: {betas: [0.9, 0.95], epsilon: 1e-8, clip_norm: 1.0}
schedule: {kind: constant, warmup_steps: 0}
precision: {mode: fp32}
tasks: [{name: text, train: $given/text.txt, validation: $given/text.txt}]
evaluation: {every: 0, sample_tokens: 0}
logging: {every: 1}
YAML
    rm -rf theirs own plain
    expect 0 "$trainer" --config theirs.yaml
    as_listed theirs "$given/losses.txt" || fail "$name: another training than PEFT's"
    # The matrices quantized here, and theirs decoded to f32 once and for all, are the same model.
    expect 0 "$trainer" --config theirs.yaml out_dir=own init_from="$models/$name"
    as_listed own "$given/losses.txt" || fail "$name: quantized otherwise than by bitsandbytes"
    expect 0 "$trainer" --config theirs.yaml out_dir=plain adapter.base=unchanged
    losses theirs >theirs.losses
    losses plain >plain.losses
    same theirs.losses plain.losses
    # Their tensors stand in our checkpoint bit for bit, so it is a source like theirs.
    rm -rf on
    expect 0 "$trainer" --config theirs.yaml out_dir=on init_from=theirs adapter.init_from= adapter.kind=lora \
        adapter.rank=$(grep -o '"r": [0-9]*' "$given/adapter/adapter_config.json" | grep -o '[0-9]*$') adapter.alpha=8 \
        adapter.targets="$([ $name = gpt2 ] && echo '[c_attn, mlp.c_proj]' || echo all-linear)" max_steps=2
done

for i in $(seq 1 400); do echo "line $i of the text, and another hour: $((i * 7919 % 1000))"; done >text.txt
cat >tune.yaml <<YAML
init_from: $models/llama
adapter: {kind: lora, rank: 4, alpha: 8, dropout: 0.1, base: nf4}
batch_size: 4
max_length: 24
max_steps: 12
learning_rate: 1e-2
checkpoint_freq: 4
precision: {mode: fp32}
tasks: [{name: text, train: text.txt, validation: 20%}]
evaluation: {every: 6, batches: 2, sample_tokens: 0}
logging: {every: 1, progress: none, device_seconds: 0, memory: table}
YAML
for mode in fp32 bf16 fp16; do
    rm -rf whole
    expect 0 "$trainer" --config tune.yaml out_dir=whole precision.mode=$mode threads=1
    bits whole >whole.bits
    grep -E "^info: +total" err | tail -1 | awk '$(NF - 2) != $NF { exit 1 }' || fail "$mode: taken is not as planned"
    goes_on_from whole/checkpoints/step-00000008 "$trainer" --config tune.yaml out_dir=run precision.mode=$mode
    losses whole >whole.losses
    for variant in memory.recompute=block threads=2 memory.micro_batch=4; do
        rm -rf other
        expect 0 "$trainer" --config tune.yaml out_dir=other precision.mode=$mode $variant
        losses other >other.losses
        same whole.losses other.losses
    done
done

# Merged onto the decoded matrices it is the model that was trained.
rm -rf whole
expect 0 "$trainer" --config tune.yaml out_dir=whole
expect 0 "$trainer" export --checkpoint whole --merge --output merged --dtype f32
expect 0 "$trainer" export --checkpoint whole --merge --format gguf --output merged.gguf
expect 0 "$trainer" export --checkpoint whole --format peft --output peft
validation() {
    expect 0 "$trainer" eval "$@" tasks.0.train=text.txt tasks.0.validation=20% max_length=24 batch_size=4 precision.mode=fp32
    grep -o "validation loss.*" out
}
[ "$(validation --checkpoint whole)" = "$(validation --checkpoint merged)" ] || fail "merged: another loss than the run's"
[ "$(validation --checkpoint "$quantized/llama")" != "$(validation --checkpoint "$models/llama")" ] ||
    fail "a quantized folder is evaluated as if it was not"
expect 0 "$trainer" generate --checkpoint whole --prompt "line 7" --tokens 6 --temperature 0 precision.mode=fp32
cp out unmerged.text
expect 0 "$trainer" generate --checkpoint merged --prompt "line 7" --tokens 6 --temperature 0 precision.mode=fp32
same unmerged.text out

# The CUDA kernels, emulated: a model of the size that `near` knows, as in test_emu.sh.
cat >emu.yaml <<'YAML'
seed: 7
batch_size: 2
gradient_accumulation_steps: 2
max_length: 16
max_steps: 20
learning_rate: 1e-2
checkpoint_freq: 0
model: {layers: 2, heads: 2, width: 32, mlp_width: 96}
precision: {init_scale: 1024} # none overflows: a step skipped on one device only would shift the others' batches
adapter: {kind: lora, rank: 4, alpha: 8, base: nf4}
tokenizer: {kind: char}
tasks: [{name: addition, train: "synthetic:addition", synthetic_tokens: 8000}]
evaluation: {every: 0, batches: 1, items: 2}
logging: {every: 1}
YAML
for family in gpt2 llama; do
    for mode in fp32 bf16 fp16; do
        rm -rf cpu emu
        expect 0 "$trainer" --config emu.yaml out_dir=cpu device=cpu precision.mode=$mode model.family=$family
        expect 0 "$trainer" --config emu.yaml out_dir=emu device=emu precision.mode=$mode model.family=$family
        near cpu emu $mode
    done
done

# Strategies on adapters; a teacher is a copy, which stays when the run is interrupted.
for strategy in ewc mer er lwf; do
    rm -rf whole
    expect 0 "$trainer" --config tune.yaml out_dir=whole continual.strategy=$strategy keep_checkpoints=9 tasks.1.name=second \
        tasks.1.train=synthetic:facts tasks.1.synthetic_tokens=4000 max_steps=6 ewc.fisher_samples=8
    bits whole >whole.bits
    goes_on_from whole/checkpoints/step-00000008 "$trainer" --config tune.yaml out_dir=run continual.strategy=$strategy \
        tasks.1.name=second tasks.1.train=synthetic:facts tasks.1.synthetic_tokens=4000 max_steps=6 ewc.fisher_samples=8
done

# What is refused.
rm -rf other
for strategy in inc-lora o-lora; do
    expect 2 "$trainer" --config tune.yaml out_dir=other continual.strategy=$strategy tasks.1.name=second \
        tasks.1.train=synthetic:facts
    says err "adapter.base: nf4 contradicts continual.strategy: $strategy"
done
expect 2 "$trainer" --config tune.yaml out_dir=other adapter.kind=none adapter.rank=16 adapter.alpha=32 adapter.dropout=0
says err "adapter.base is set, but adapter.kind is none"
expect 2 "$trainer" --config emu.yaml out_dir=other model.width=20
says err "adapter.base: nf4 cuts each matrix into blocks of 64 elements"
damaged() { # KEY VALUE: of quantization_config
    rm -rf damaged
    cp -rL "$quantized/llama" damaged
    sed -i -E "s/(\"$1\": )[^,}]*/\1$2/" damaged/config.json
    expect 1 "$trainer" --config theirs.yaml out_dir=other init_from=damaged adapter.init_from= adapter.kind=lora
    says err "damaged/config.json: quantization_config is"
    says err "bnb_4bit_quant_type nf4"
}
damaged bnb_4bit_quant_type '"fp4"'
damaged bnb_4bit_use_double_quant false
damaged quant_method '"gptq"'
# Bytes of the header are as many as before, so that only what they say differs.
broken() { # FROM TO MESSAGE
    rm -rf damaged
    cp -rL "$quantized/llama" damaged
    sed -i "s/$1/$2/" damaged/model.safetensors
    expect 1 "$trainer" --config theirs.yaml out_dir=other init_from=damaged adapter.init_from= adapter.kind=lora
    says err "$3"
}
broken 'layers.0.mlp.up_proj.weight.absmax' 'layers.0.mlp.up_proj.weight.absmay' 'layers.0.mlp.up_proj.weight.absma'
broken '"blocksize": 64' '"blocksize": 32' 'supported is quant_type nf4, blocksize 64'
broken '"shape": \[24, 16\]' '"shape": [16, 24]' 'shape is not [24, 16]'
broken '"nested_offset": ' '"nested_offzet": ' 'with a nested_offset'
finish
