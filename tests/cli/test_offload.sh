#!/bin/bash
# SPDX-License-Identifier: MIT
# memory.offload on the emulator: a model that memory.limit refuses trains with its states, gradients or weights on the
# host, with the losses and checkpoints of the same run on the device, whichever continues from the other's checkpoint,
# whatever the rule and the strategy.
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
evaluation: {every: 0, batches: 1, items: 0, show: 0}
logging: {every: 1, memory: table}
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

# Too large for the device, and not with more and more on the host; what fits has the bits of the same micro-batches.
# What was planned is taken, in every category.
turn=0
for level in gradients:4 optimizer:7 weights:3; do
    large=(--config emu.yaml model.width=128 model.layers=4 memory.limit="${level#*:}MiB" evaluation.items=1)
    rm -rf fitted large
    expect 1 "$trainer" "${large[@]}" out_dir=fitted
    says err "offload: ${level%:*}"
    in_tier $((turn++)) 3 || continue
    expect 0 "$trainer" "${large[@]}" out_dir=fitted memory.auto_fit=true
    says err "offload: ${level%:*}"
    says err "offloaded states"
    planned >unequal || fail "$level: planned is not taken: $(cat unequal)"
    expect 0 "$trainer" "${large[@]}" out_dir=large memory.limit=0 \
        memory.micro_batch="$(sed -n 's/^micro_batch: //p; s/^ *micro_batch: //p' err | tail -n 1 | grep . || echo 4)"
    equal large fitted
done
expect 0 "$trainer" --config emu.yaml out_dir=device

# Rules and formats; more than one step of AdamW in 8 bits; gradients and weights in 16 bits.
turn=0
for case in "optimizer:optimizer.moments=bf16" "weights:precision.master_weights=false" "gradients:precision.mode=fp32" \
    "gradients:precision.mode=fp16 precision.gradients=compute" "weights:optimizer.kind=sgd optimizer.nesterov=true" \
    "weights:optimizer.kind=adamw8bit" "weights:optimizer.kind=adamwfp8" "optimizer:average.decay=0.9" \
    "weights:average.decay=0.9" "optimizer:optimizer.kind=schedule-free" \
    "gradients:optimizer.kind=schedule-free precision.mode=fp32" \
    "weights:optimizer.kind=schedule-free precision.master_weights=false"; do
    in_tier $((turn++)) 2 || continue
    rm -rf on off
    # shellcheck disable=SC2086
    expect 0 "$trainer" --config emu.yaml out_dir=off ${case#*:}
    # shellcheck disable=SC2086
    expect 0 "$trainer" --config emu.yaml out_dir=on memory.offload="${case%%:*}" ${case#*:}
    equal off on
done

# What strategies keep of each parameter is on the host, too; a step of fp16 that overflows is skipped there.
for case in "weights:ewc, mer" "gradients:si" "optimizer:a-gem"; do
    rm -rf on off
    strategy=("continual.strategy=[${case#*:}]" ewc.curvature=diagonal ewc.fisher_samples=8 precision.mode=fp16 precision.init_scale=1e8)
    expect 0 "$trainer" --config emu.yaml out_dir=off "${strategy[@]}"
    expect 0 "$trainer" --config emu.yaml out_dir=on memory.offload="${case%%:*}" "${strategy[@]}"
    equal off on
done

# From a checkpoint in the middle, states move either way; a kill loses nothing.
turn=0
for way in "none optimizer" "optimizer weights" "weights gradients" "gradients none"; do
    in_tier $((turn++)) 2 || continue
    read -r before after <<<"$way"
    rm -rf killed
    expect 0 "$trainer" --config emu.yaml out_dir=killed memory.offload="$before"
    rm -rf killed/checkpoints/step-00000006
    echo step-00000003 >killed/checkpoints/latest
    expect 0 "$trainer" --config emu.yaml out_dir=killed memory.offload="$after" resume=auto
    [ "$(tensors_of device)" = "$(tensors_of killed)" ] || fail "$way: other tensors after continuing"
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
    in_tier $((zero + 1)) 2 || continue
    expect 0 "$trainer" --config emu.yaml out_dir=two$zero distributed.virtual_ranks=2 memory.micro_batch=2 \
        distributed.zero=$zero memory.offload=optimizer --processes 2
    equal two two$zero
done
for ways in 2:gradients 3:weights; do
    rm -rf twice
    expect 0 "$trainer" --config emu.yaml out_dir=twice distributed.virtual_ranks=2 memory.micro_batch=2 \
        distributed.zero="${ways%:*}" memory.offload="${ways#*:}" --processes 2
    equal two twice
done
# A Fisher's sums are exchanged from where the device's kernels write them.
fisher=(distributed.virtual_ranks=2 memory.micro_batch=2 "continual.strategy=[ewc, mer]" ewc.curvature=diagonal ewc.fisher_samples=8)
expect 0 "$trainer" --config emu.yaml out_dir=fisher "${fisher[@]}"
expect 0 "$trainer" --config emu.yaml out_dir=fisher-two "${fisher[@]}" distributed.zero=1 memory.offload=optimizer --processes 2
equal fisher fisher-two
planned || fail "a Fisher on the host: other memory than planned"
expect 2 "$trainer" --config emu.yaml out_dir=no distributed.virtual_ranks=2 memory.micro_batch=2 distributed.zero=1 \
    memory.offload=gradients --processes 2
says err "need distributed.zero: 2"

# memory.place: the first level that fits the device, then moments and masters in files where the host has no room.
mkdir disk
placed=(--config emu.yaml out_dir=placed memory.place.gpu=1500KiB memory.place.disk=disk)
expect 0 "$trainer" "${placed[@]}"
says err "with memory.offload: optimizer, which is taken"
equal device placed
[ -z "$(grep 'on disk' err)" ] || fail "states are on disk, though the host has room"
rm -rf placed
expect 0 "$trainer" "${placed[@]}" memory.place.cpu=1300KiB
says err "memory.place: moments go to disk"
equal device placed
wide=(model.width=128 memory.place.gpu=4MiB memory.place.cpu=2MiB)
rm -rf placed
expect 0 "$trainer" "${placed[@]}" "${wide[@]}" memory.place.gpu=0 memory.place.cpu=0 out_dir=wide
expect 0 "$trainer" "${placed[@]}" "${wide[@]}"
says err "memory.place: moments and masters go to disk"
equal wide placed
planned >unequal || fail "place: planned is not taken: $(cat unequal)"
[ -z "$(ls disk)" ] || fail "files are left on disk: $(ls disk)"
rm -rf placed
expect 1 "$trainer" "${placed[@]}" memory.place.cpu=1MiB memory.place.disk=
says err "memory.place.cpu allows 1: name a folder for the rest as memory.place.disk"
expect 1 "$trainer" plan "${placed[@]}" memory.place.cpu=1MiB memory.place.disk=
says err "memory.place.cpu allows 1: name a folder for the rest as memory.place.disk"
expect 1 "$trainer" "${placed[@]}" memory.place.cpu=1MiB memory.place.disk=/nowhere
says err "states on disk: no file can be made in /nowhere: No such file or directory"
expect 2 "$trainer" "${placed[@]}" memory.place.cpu=10
says err "memory.place.cpu must be 0 or at least 1MiB"
# On a CPU all is in place.cpu.
on_cpu=(--config emu.yaml device=cpu model.width=128)
expect 0 "$trainer" "${on_cpu[@]}" out_dir=cpu
room=$(awk '$2 == "total" { print int($3 - 2) }' err) # 3 MiB are moments; packed weights depend on the processor
expect 1 "$trainer" "${on_cpu[@]}" out_dir=cpu-disk memory.place.cpu="${room}MiB"
says err "memory.place.cpu's $room MiB"
expect 0 "$trainer" "${on_cpu[@]}" out_dir=cpu-disk memory.place.cpu="${room}MiB" memory.place.disk=disk
says err "memory.place: moments go to disk"
equal cpu cpu-disk

# The plan: what lies where, and what it costs.
expect 0 "$trainer" plan --config emu.yaml memory.offload=optimizer
says out "without what lies on the host or on disk"
says out "memory.offload: the update moves"
expect 0 "$trainer" plan --config emu.yaml memory.offload=weights
says out "passes move"
offloaded=$(awk '/^  offloaded states/ { print $3 }' out)
expect 0 "$trainer" plan --config emu.yaml memory.offload=optimizer
grep -q '^  offloaded states *1\.[0-9]' out || fail "the plan shows no states on the host: $(grep offloaded out)"
grep -q '^  master weights *0\.0' out || fail "masters are on the device yet"
awk -v all="$offloaded" '/^  offloaded states/ { exit !(all > $3) }' out || fail "with weights no more is on the host: $offloaded"

# Refused by name.
expect 2 "$trainer" --config emu.yaml out_dir=no device=cpu memory.offload=optimizer
says err "memory.offload: optimizer moves states"
expect 2 "$trainer" --config emu.yaml out_dir=no memory.offload=optimizer optimizer.kind=muon
says err "muon"
expect 2 "$trainer" --config emu.yaml out_dir=no memory.offload=optimizer optimizer.kind=apollo apollo.rank=4
says err "apollo makes the step of"
expect 2 "$trainer" --config emu.yaml out_dir=no memory.offload=optimizer continual.strategy=[ewc] ewc.curvature=kronecker
says err "or ewc.curvature: diagonal"
HALFSTEP_CPU_ISA=portable expect 1 "$trainer" --config emu.yaml out_dir=no memory.offload=optimizer
says err "no fused multiply-add"
finish
