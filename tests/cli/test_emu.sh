#!/bin/bash
# SPDX-License-Identifier: MIT
# `device: emu`: whole training runs through the CUDA kernels, emulated, against the cpu backend; and what may not
# change a bit of them: recomputation, the order in which emulated threads run, recorded steps, an interruption.
. "$(dirname "$0")/lib.sh"

# Small enough for the emulator: 2 blocks, 64 tokens a step, two micro-batches.
cat >emu.yaml <<'YAML'
seed: 7
out_dir: run
batch_size: 2
gradient_accumulation_steps: 2
max_length: 16
max_steps: 20
learning_rate: 1e-3
checkpoint_freq: 0
model: {family: gpt2, layers: 2, heads: 2, width: 32, dropout: 0.1}
tokenizer: {kind: char}
tasks: [{name: addition, train: "synthetic:addition", synthetic_tokens: 8000}]
precision: {mode: fp32}
schedule: {warmup_steps: 4}
evaluation: {every: 0, batches: 1, items: 2}
logging: {every: 1}
YAML
sed -e 's/max_steps: 20/max_steps: 10/' -e '/^tasks:/d' emu.yaml >emu_tasks.yaml
cat >>emu_tasks.yaml <<'YAML'
tasks:
  - {name: addition, train: "synthetic:addition", synthetic_tokens: 8000}
  - {name: facts, train: "synthetic:facts", synthetic_tokens: 8000}
continual: {strategy: [ewc, mer]}
replay: {buffer_size: 24}
ewc: {fisher_samples: 8}
mer: {beta: 1.0, gamma: 0.5}
YAML

# train CONFIG NAME SETTING...: one run.
train() {
    local config=$1 name=$2
    shift 2
    rm -rf "$name"
    expect 0 "$trainer" --config "$config" out_dir="$name" "$@"
}

configs=(emu emu_tasks) modes=(fp32 bf16 fp16) families=(gpt2 llama)
for c in 0 1; do
    for m in 0 1 2; do
        for f in 0 1; do
            in_tier $((c + m + f)) 2 || continue
            config=${configs[c]} mode=${modes[m]} family=${families[f]}
            setting="precision.mode=$mode model.family=$family"
            # shellcheck disable=SC2086
            train $config.yaml cpu device=cpu $setting
            # shellcheck disable=SC2086
            train $config.yaml emu device=emu $setting
            near cpu emu $mode
        done
    done
done

# What may not change a bit, once for a plain run and once for tasks: environment and settings, each alone, which names the
# culprit, or several together.
cat >each <<'TWINS'
none memory.recompute=attention
none memory.recompute=block
none kernels.cuda_graph=false
none kernels.overlap=false
none kernels.overlap=false kernels.cuda_graph=false
none kernels.sync_launch=true
HALFSTEP_EMU_SEED=2
HALFSTEP_EMU_SCHEDULE=reverse
HALFSTEP_EMU_SCHEDULE=random,HALFSTEP_EMU_SEED=5
HALFSTEP_EMU_STREAMS=early,HALFSTEP_EMU_COPIES=early
TWINS
cat >together <<'TWINS'
HALFSTEP_EMU_SEED=2 memory.recompute=attention kernels.cuda_graph=false
HALFSTEP_EMU_SCHEDULE=reverse memory.recompute=block kernels.overlap=false
HALFSTEP_EMU_SCHEDULE=random,HALFSTEP_EMU_SEED=5,HALFSTEP_EMU_STREAMS=early,HALFSTEP_EMU_COPIES=early kernels.sync_launch=true
TWINS
for config in emu emu_tasks; do
    common="device=emu precision.mode=bf16 model.family=llama logging.every=5"
    # shellcheck disable=SC2086
    train $config.yaml base $common
    bits base >base.bits
    while read -r environment settings; do
        # shellcheck disable=SC2086
        ( [ "$environment" = none ] || export ${environment//,/ }
          rm -rf twin
          "$trainer" --config $config.yaml out_dir=twin $common $settings ) >out 2>err || fail "$environment $settings"
        bits twin >twin.bits
        same base.bits twin.bits
    done < <(if [ "${TIER:-test}" = nightly ]; then cat each; else cat together; fi)
done
# Dropping what was logged and run ahead of gives the same weights: only the record is another.
train emu.yaml ahead device=emu precision.mode=fp16 precision.init_scale=1e9 logging.every=20
train emu.yaml behind device=emu precision.mode=fp16 precision.init_scale=1e9 logging.every=1
says ahead/metrics.jsonl '"skipped_steps":'
for run in ahead behind; do
    (cd $run/checkpoints/step-00000020 && sha256sum model.safetensors optimizer.safetensors) >$run.hash
done
same ahead.hash behind.hash

# A step is recorded where it can be; the log says which.
train emu.yaml graph device=emu
says err "cuda_graph: from a task's second step on"
train emu_tasks.yaml agem device=emu kernels.cuda_graph=true continual.strategy=a-gem
says err "cuda_graph: no step is recorded"

# Logits that are kept and a teacher stand in the recording: the same bits.
turn=0
for strategy in '[lwf,der++]' der++; do
    in_tier $((turn++)) 2 || continue
    rm -rf eager recorded
    train emu_tasks.yaml eager device=emu kernels.cuda_graph=false continual.strategy=$strategy
    train emu_tasks.yaml recorded device=emu kernels.cuda_graph=true continual.strategy=$strategy
    says err "cuda_graph: from a task's second step on"
    bits eager >eager.bits
    bits recorded >recorded.bits
    same eager.bits recorded.bits
done

# Kronecker factors are measured and pull on this device as on that one, and in recorded steps as in others.
setting="precision.mode=bf16 continual.strategy=ewc ewc.curvature=kronecker ewc.block_size=24"
# shellcheck disable=SC2086
train emu_tasks.yaml cpu device=cpu $setting
# shellcheck disable=SC2086
train emu_tasks.yaml emu device=emu kernels.cuda_graph=false $setting
near cpu emu bf16
# shellcheck disable=SC2086
train emu_tasks.yaml recorded device=emu kernels.cuda_graph=true $setting
says err "cuda_graph: from a task's second step on"
bits emu >emu.bits
bits recorded >recorded.bits
same emu.bits recorded.bits

# Stopped with steps under way, and gone on with: the run that was never disturbed.
long="device=emu max_steps=60 logging.every=20"
# shellcheck disable=SC2086
train emu.yaml whole $long
rm -rf stopped
# shellcheck disable=SC2086
"$trainer" --config emu.yaml out_dir=stopped $long >out 2>err &
pid=$!
sleep 0.7
kill -TERM $pid 2>/dev/null
wait $pid
# shellcheck disable=SC2086
expect 0 "$trainer" --config emu.yaml out_dir=stopped $long
for run in whole stopped; do
    (cd $run/checkpoints/step-00000060 && sha256sum model.safetensors optimizer.safetensors) >$run.hash
done
same whole.hash stopped.hash

# The trained weights elsewhere: evaluated and generated from on either device, the loss alike.
for device in cpu emu; do
    expect 0 "$trainer" eval --checkpoint whole device=$device
    sed -nE 's/^validation loss +([0-9.]{5}).*/\1/p' out >$device.loss
    expect 0 "$trainer" generate --checkpoint whole --prompt 1+2= --tokens 8 --temperature 0 device=$device
done
same cpu.loss emu.loss

# tf32 is for devices that have it.
train emu.yaml coarse device=emu precision.mode=tf32 max_steps=2
expect 2 "$trainer" --config emu.yaml out_dir=refused device=cpu precision.mode=tf32
says err "precision.mode: tf32 needs a GPU"
expect 2 "$trainer" --config emu.yaml out_dir=refused device=cpu kernels.cuda_graph=true
says err "kernels.cuda_graph: true needs a device that can record steps"
expect 2 "$trainer" --config emu.yaml out_dir=refused device=emu kernels.matmul=cublaslt
says err "kernels.matmul: cublaslt needs an NVIDIA GPU"
finish
