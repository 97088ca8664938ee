#!/bin/bash
# SPDX-License-Identifier: MIT
# memory.offload on the emulator: a model that memory.limit refuses trains with its states on the host, with the losses
# and checkpoints of the same run on the device, whoever goes on from whose checkpoint, and whatever the rule.
. "$(dirname "$0")/lib.sh"
export HALFSTEP_EMU_GUARD=off # test_emu.sh has it

cat >emu.yaml <<'YAML'
seed: 7
out_dir: run
device: emu
batch_size: 4
max_length: 16
max_steps: 6
learning_rate: 1e-2
weight_decay: 0.1
target_gpu_util: 1
checkpoint_freq: 3
model: {family: gpt2, layers: 2, heads: 2, width: 64, dropout: 0.1}
tokenizer: {kind: char}
tasks:
  - {name: addition, train: "synthetic:addition", synthetic_tokens: 8000, steps: 3}
  - {name: facts, train: "synthetic:facts", synthetic_tokens: 8000, steps: 3}
continual: {strategy: [er]}
precision: {mode: bf16}
schedule: {warmup_steps: 2}
evaluation: {every: 0, batches: 1, items: 2}
logging: {every: 1}
YAML

# tensors_of DIR: what training computed, of its last checkpoint.
tensors_of() {
    cat "$1"/checkpoints/step-00000006/{model,optimizer}.safetensors | sha256sum
}

# equal A B: their losses and last tensors.
equal() {
    losses "$1" >a.txt
    losses "$2" | cmp - a.txt || fail "$1 and $2 have other losses"
    [ "$(tensors_of "$1")" = "$(tensors_of "$2")" ] || fail "$1 and $2 end with other tensors"
}

# Too large for the device, and not with its states on the host.
expect 0 "$trainer" --config emu.yaml out_dir=device
expect 1 "$trainer" --config emu.yaml memory.limit=1500KiB
says err "offload: optimizer"
expect 0 "$trainer" --config emu.yaml out_dir=host memory.limit=1500KiB memory.offload=optimizer memory.recompute=none
says err "offloaded states"
equal device host
expect 0 "$trainer" --config emu.yaml out_dir=fitted memory.limit=1500KiB memory.auto_fit=true
says err "offload: optimizer"
equal device fitted

# Rules and formats; more than one step of AdamW in 8 bits; gradients and weights in 16 bits.
for keys in "optimizer.moments=bf16" "precision.master_weights=false" "precision.mode=fp32" \
    "precision.mode=fp16 precision.gradients=compute" "optimizer.kind=sgd optimizer.nesterov=true" \
    "optimizer.kind=adamw8bit"; do
    rm -rf on off
    # shellcheck disable=SC2086
    expect 0 "$trainer" --config emu.yaml out_dir=off $keys
    # shellcheck disable=SC2086
    expect 0 "$trainer" --config emu.yaml out_dir=on memory.offload=optimizer $keys
    equal off on
done

# From a checkpoint in the middle, states move either way; a kill loses nothing.
for way in "none optimizer" "optimizer none" "optimizer optimizer"; do
    read -r before after <<<"$way"
    rm -rf killed
    expect 0 "$trainer" --config emu.yaml out_dir=killed memory.offload="$before"
    rm -rf killed/checkpoints/step-00000006
    echo step-00000003 >killed/checkpoints/latest
    expect 0 "$trainer" --config emu.yaml out_dir=killed memory.offload="$after" resume=auto
    [ "$(tensors_of device)" = "$(tensors_of killed)" ] || fail "$way: other tensors after going on"
done
rm -rf killed
"$trainer" --config emu.yaml out_dir=killed memory.offload=optimizer checkpoint_freq=1 >out 2>err &
pid=$!
for _ in $(seq 200); do
    [ -e killed/checkpoints/step-00000002 ] && break
    sleep 0.05
done
kill -KILL $pid
wait $pid 2>/dev/null
expect 0 "$trainer" --config emu.yaml out_dir=killed memory.offload=optimizer resume=auto
[ "$(tensors_of device)" = "$(tensors_of killed)" ] || fail "other tensors after a kill"

# Several processes, each with the states of its part.
expect 0 "$trainer" --config emu.yaml out_dir=two distributed.virtual_ranks=2 memory.micro_batch=2
for zero in 0 1 2 3; do
    expect 0 "$trainer" --config emu.yaml out_dir=two$zero distributed.virtual_ranks=2 memory.micro_batch=2 \
        distributed.zero=$zero memory.offload=optimizer --processes 2
    equal two two$zero
done

# The plan: what lies where, and what it costs.
expect 0 "$trainer" plan --config emu.yaml memory.offload=optimizer
says out "without what lies on the host"
says out "memory.offload: a step moves"
grep -q '^  offloaded states *1\.[0-9]' out || fail "the plan shows no states on the host: $(grep offloaded out)"
grep -q '^  master weights *0\.0' out || fail "masters are on the device yet"

# Refused by name.
expect 2 "$trainer" --config emu.yaml out_dir=no device=cpu memory.offload=optimizer
says err "memory.offload: optimizer moves states"
expect 2 "$trainer" --config emu.yaml out_dir=no memory.offload=optimizer optimizer.kind=muon
says err "muon"
for strategy in ewc si l2 mer; do
    expect 2 "$trainer" --config emu.yaml out_dir=no memory.offload=optimizer "continual.strategy=[$strategy]"
    says err "strategy $strategy reads them there"
done
HALFSTEP_CPU_ISA=portable expect 1 "$trainer" --config emu.yaml out_dir=no memory.offload=optimizer
says err "no fused multiply-add"
finish
