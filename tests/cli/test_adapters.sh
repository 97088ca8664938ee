#!/bin/bash
# SPDX-License-Identifier: MIT
# Adapters: the same bits whatever the threads, recomputation and interruptions; memory as planned; strategies on them;
# PEFT's format and merged models; what is refused.
. "$(dirname "$0")/lib.sh"
models=$root/tests/huggingface/models
for i in $(seq 1 400); do echo "line $i of the text, and another hour: $((i * 7919 % 1000))"; done >text.txt
cat >tune.yaml <<YAML
init_from: $models/llama
adapter: {kind: lora, rank: 4, alpha: 8, dropout: 0.1, targets: [q_proj, v_proj, mlp]}
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

# planned FILE ROW: the row's planned MiB and what was taken at most
planned() {
    grep -E "^info: +$2 " "$1" | tail -1 | awk '{print $(NF - 2), $NF}'
}

for mode in fp32 bf16 fp16; do
    rm -rf whole
    expect 0 "$trainer" --config tune.yaml out_dir=whole precision.mode=$mode threads=1
    cp err whole.err
    bits whole >whole.bits
    says whole/report.html "<dt>adapter</dt><dd>lora, rank"
    says whole/report.html "<dt>of these trained</dt>"
    # shellcheck disable=SC2046
    set -- $(planned whole.err total)
    [ "${1:-0}" = "${2:-1}" ] || fail "$mode: $1 MiB planned, $2 taken"
    goes_on_from whole/checkpoints/step-00000008 "$trainer" --config tune.yaml out_dir=run precision.mode=$mode
    losses whole >whole.losses
    for variant in memory.recompute=block memory.recompute=mlp threads=2; do
        rm -rf other
        expect 0 "$trainer" --config tune.yaml out_dir=other precision.mode=$mode $variant
        losses other >other.losses
        same whole.losses other.losses
    done
done
# The losses fall, and the base stays to the bit: merged and unmerged are one model.
head -1 whole.losses >first
expect 0 "$trainer" export --checkpoint whole --format peft --output peft
expect 0 "$trainer" export --checkpoint whole --merge --output merged
expect 0 "$trainer" export --checkpoint whole --merge --format gguf --output merged.gguf
validation() {
    expect 0 "$trainer" eval "$@" tasks.0.train=text.txt tasks.0.validation=20% max_length=24 batch_size=4 precision.mode=fp32
    grep -o "validation loss.*" out
}
[ "$(validation --checkpoint whole)" = "$(validation --checkpoint merged)" ] || fail "merged: another loss than the run's"
expect 0 "$trainer" generate --checkpoint whole --prompt "line 7" --tokens 6 --temperature 0 precision.mode=fp32
cp out unmerged.text
expect 0 "$trainer" generate --checkpoint merged --prompt "line 7" --tokens 6 --temperature 0 precision.mode=fp32
same unmerged.text out

# Adapters of PEFT's format are gone on with, alpha and targets theirs; a key that says otherwise is an error.
sed '/^adapter/d' tune.yaml >base.yaml
expect 0 "$trainer" --config base.yaml out_dir=on adapter.init_from=peft precision.mode=fp16
[ "$(losses on | head -1)" != "$(cat first)" ] || fail "adapter.init_from changed nothing"
expect 2 "$trainer" --config base.yaml out_dir=other adapter.init_from=peft adapter.rank=8
says err "adapter.rank: 8 contradicts peft/adapter_config.json, where r is 4; leave the key out"
expect 2 "$trainer" --config base.yaml out_dir=other adapter.init_from=nowhere
says err "nowhere is no folder with an adapter_config.json"
sed 's/"use_rslora"/"use_dora":true,"use_rslora"/; s/: *false/:false/' peft/adapter_config.json >dora.json
cp -r peft dora
mv dora.json dora/adapter_config.json
expect 1 "$trainer" --config base.yaml out_dir=other adapter.init_from=dora
says err "dora/adapter_config.json: use_dora is true, which is not supported"
rm -rf other
expect 2 "$trainer" --config base.yaml out_dir=other init_from="$models/gpt2" adapter.init_from=peft
says err "names no matrix of this model"

# A run with adapters starts another one; a run without them cannot take them.
expect 0 "$trainer" --config tune.yaml out_dir=again init_from=whole precision.mode=fp16
expect 2 "$trainer" --config base.yaml out_dir=other init_from=whole
says err "give it the section adapter of that run"
expect 2 "$trainer" export --checkpoint whole --output other
says err "--merge adds them to its matrices"
expect 2 "$trainer" export --checkpoint "$models/llama" --merge --output other
says err "no adapters"
expect 2 "$trainer" --config base.yaml out_dir=other adapter.rank=8
says err "adapter.rank is set, but adapter.kind is none"
expect 2 "$trainer" --config tune.yaml out_dir=other adapter.targets=c_attn
says err "adapter.targets: \`c_attn\` names no matrix of this model"

# PEFT's own adapters, trained on as PEFT does (tests/huggingface/adapters.py): losses off f64 by twice what its f32 is.
for name in llama gpt2 qwen2 smollm3 olmo2 phi3 granite gemma2 gemma3 nanochat; do
    given=$root/tests/huggingface/adapters/$name
    cat >theirs.yaml <<YAML
init_from: $models/$name
adapter: {init_from: $given}
out_dir: theirs
batch_size: 1
max_length: 48
max_steps: 20
learning_rate: 1e-2
weight_decay: 0.1
optimizer: {betas: [0.9, 0.95], epsilon: 1e-8, clip_norm: 1.0}
schedule: {kind: constant, warmup_steps: 0}
precision: {mode: fp32}
tasks: [{name: text, train: $given/text.txt, validation: $given/text.txt}]
evaluation: {every: 0, sample_tokens: 0}
logging: {every: 1}
YAML
    rm -rf theirs
    expect 0 "$trainer" --config theirs.yaml
    as_listed theirs "$given/losses.txt" || fail "$name: another training than PEFT's"
done

# Accumulated micro-batches are one batch.
rm -rf one two
expect 0 "$trainer" --config tune.yaml out_dir=one adapter.dropout=0 max_steps=24
expect 0 "$trainer" --config tune.yaml out_dir=two adapter.dropout=0 max_steps=24 memory.micro_batch=1
near one two fp32 96

# The CUDA kernels, emulated: a model of the size that `near` knows, as in test_emu.sh.
cat >emu.yaml <<'YAML'
seed: 7
batch_size: 2
gradient_accumulation_steps: 2
max_length: 16
max_steps: 20
learning_rate: 1e-2
checkpoint_freq: 0
model: {layers: 2, heads: 2, width: 32}
adapter: {kind: lora, rank: 4, alpha: 8}
tokenizer: {kind: char}
tasks: [{name: addition, train: "synthetic:addition", synthetic_tokens: 8000}]
evaluation: {every: 0, batches: 1, items: 2}
logging: {every: 1}
YAML
turn=0
for family in gpt2 llama; do
    for mode in fp32 bf16 fp16; do
        in_tier $((turn++)) 2 || continue
        rm -rf cpu emu
        expect 0 "$trainer" --config emu.yaml out_dir=cpu device=cpu precision.mode=$mode model.family=$family
        expect 0 "$trainer" --config emu.yaml out_dir=emu device=emu precision.mode=$mode model.family=$family
        near cpu emu $mode
    done
done

# What protects parameters protects those of adapters.
for strategy in ewc si l2 mer a-gem er merge; do
    rm -rf run
    expect 0 "$trainer" --config tune.yaml out_dir=run continual.strategy=$strategy tasks.1.name=second \
        tasks.1.train=synthetic:facts tasks.1.synthetic_tokens=4000 max_steps=6 ewc.fisher_samples=8
done
# An adapter a task: interrupted, appended to, and the same as without the rule of its strength 0.
sed '/^tasks/d; s/max_steps: 12/max_steps: 6/' tune.yaml >domains.yaml
cat >>domains.yaml <<'YAML'
tasks:
  - {name: text, train: text.txt, validation: 20%}
  - {name: facts, train: "synthetic:facts", synthetic_tokens: 4000}
YAML
cp domains.yaml three.yaml
echo '  - {name: reversal, train: "synthetic:reversal", synthetic_tokens: 4000}' >>three.yaml
for strategy in inc-lora o-lora o-lora+er; do
    rm -rf whole
    expect 0 "$trainer" --config three.yaml out_dir=whole continual.strategy=$strategy keep_checkpoints=9
    bits whole >whole.bits
    for step in whole/checkpoints/step-*; do
        goes_on_from "$step" "$trainer" --config three.yaml out_dir=run continual.strategy=$strategy keep_checkpoints=9
    done
    rm -rf grown
    expect 0 "$trainer" --config domains.yaml out_dir=grown continual.strategy=$strategy
    expect 0 "$trainer" --config three.yaml out_dir=grown continual.strategy=$strategy
    (cd whole/checkpoints/step-00000018 && sha256sum model.safetensors optimizer.safetensors) >whole.hash
    (cd grown/checkpoints/step-00000018 && sha256sum model.safetensors optimizer.safetensors) >grown.hash
    same whole.hash grown.hash
    cp -r whole "whole-$strategy"
done
rm -rf zero
expect 0 "$trainer" --config three.yaml out_dir=zero continual.strategy=o-lora olora.lambda=0
(cd whole-inc-lora/checkpoints/step-00000018 && sha256sum model.safetensors) >inc.hash
(cd zero/checkpoints/step-00000018 && sha256sum model.safetensors) >zero.hash
same inc.hash zero.hash
expect 2 "$trainer" export --checkpoint whole-o-lora --format peft --output other
says err "has merged the adapters of earlier tasks into the model"
expect 0 "$trainer" export --checkpoint whole-o-lora --merge --output merged-o-lora
expect 2 "$trainer" --config base.yaml continual.strategy=o-lora out_dir=other
says err "gives each task an adapter, and adapter.kind is none"
expect 2 "$trainer" --config tune.yaml adapter.also_train=matrix out_dir=other
says err "which has an adapter"
expect 2 "$trainer" --config tune.yaml continual.strategy=ewc ewc.curvature=kronecker
says err "ewc.curvature: kronecker needs the matrices themselves"
finish
