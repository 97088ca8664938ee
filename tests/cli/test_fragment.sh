#!/bin/bash
# SPDX-License-Identifier: MIT
# The canonical training keys load exactly as written and train.
. "$(dirname "$0")/lib.sh"
cat >fragment.yaml <<'YAML'
batch_size: 8
gradient_accumulation_steps: 4   # effective batch 32
max_length: 2048
use_amp: true                    # precision picks bf16 where the hardware has it, else fp16 with dynamic loss scaling
use_gradient_checkpointing: true
target_gpu_util: 0.8             # fraction of the device's memory the plan may use
checkpoint_freq: 20              # optimizer steps
max_epochs: 3
learning_rate: 2e-4
weight_decay: 0.01
ewc:
  lambda: 5000.0
  normalize: true
mer:
  buffer_size: 5120
  beta: 0.1
  gamma: 0.1
YAML
expect 0 "$trainer" --config fragment.yaml --print-config
for line in "max_length: 2048" "learning_rate: 0.0002" "buffer_size: 5120" "lambda: 5000"; do says out "$line"; done
expect 0 "$trainer" --config fragment.yaml max_steps=1 batch_size=1 gradient_accumulation_steps=2 max_length=64
# Sections that are written choose the strategies.  Rates that hardly move the model are made up for, after a trial; what
# they would mean alone is said.
says err "strategy ewc"
says err "strategy mer"
says err "compensated (mer.compensate_learning_rate: auto): the factor is 0.3"
says err "trial: the learning rate is "
# The one warning is of ewc.lambda, once its strength is known.
[ "$(grep -c '^warning: ewc.lambda is .* times the strength that is best for most streams' err)" = 1 ] || fail "no warning of ewc.lambda"
says err "accumulated batches are steps, and not one large batch"
expect 0 "$trainer" --config fragment.yaml max_steps=1 batch_size=1 gradient_accumulation_steps=2 max_length=64 \
    mer.compensate_learning_rate=false out_dir=literal
says err "each window moves the model by 0.01 of what its steps do"
grep -q "^info: trial" err && fail "a trial was made, and its learning rate is not wanted"
finish
