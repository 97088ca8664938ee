#!/bin/bash
# SPDX-License-Identifier: MIT
# `device: emu` with several processes, each with its own emulated GPU, which exchange through the stand-in for
# NCCL: the same bits as one process, what the library's own sums give, and failures of the library.
. "$(dirname "$0")/lib.sh"
ulimit -c 0
export HALFSTEP_EMU_GUARD=off # test_emu.sh has it

cat >emu.yaml <<'YAML'
seed: 7
out_dir: run
device: emu
batch_size: 4
max_length: 16
max_steps: 6
learning_rate: 1e-3
checkpoint_freq: 3
model: {family: gpt2, layers: 2, heads: 2, width: 32, dropout: 0.1}
tokenizer: {kind: char}
tasks:
  - {name: addition, train: "synthetic:addition", synthetic_tokens: 8000, steps: 3}
  - {name: facts, train: "synthetic:facts", synthetic_tokens: 8000, steps: 3}
continual: {strategy: [ewc]}
ewc: {fisher_samples: 8}
precision: {mode: bf16}
schedule: {warmup_steps: 2}
evaluation: {every: 0, batches: 1, items: 2}
logging: {every: 1}
distributed: {virtual_ranks: 4, timeout: 20}
memory: {micro_batch: 1}
YAML

# losses RUN: of every step, as they were written.
losses() {
    grep -o '"loss":[^,]*' "$1/metrics.jsonl"
}

expect 0 "$trainer" --config emu.yaml out_dir=one
losses one >one.txt
[ "$(wc -l <one.txt)" = 6 ] || fail "one process wrote other than 6 losses: $(cat one.txt)"
for processes in 2 4; do
    expect 0 "$trainer" --config emu.yaml out_dir=many$processes --processes $processes
    says err "between devices: NCCL, sums along the tree of processes"
    losses many$processes | cmp - one.txt || fail "$processes processes have other losses than one"
    for file in model.safetensors optimizer.safetensors continual.safetensors; do
        cmp one/checkpoints/step-00000006/$file many$processes/checkpoints/step-00000006/$file || fail "$processes processes: $file differs"
    done
done

# Another order of delays and of streams changes nothing.
HALFSTEP_NCCL_SEED=5 HALFSTEP_EMU_STREAMS=early expect 0 "$trainer" --config emu.yaml out_dir=early --processes 2
losses early | cmp - one.txt || fail "the order of streams changed losses"

expect 0 "$trainer" --config emu.yaml out_dir=own distributed.exact=false distributed.virtual_ranks=0 --processes 4
says err "between devices: NCCL, sums in its own order"
losses own >own.txt
python3 - one.txt own.txt <<'PY' || fail "the library's sums: $(paste one.txt own.txt)"
import sys
one, own = ([float(line.split(":")[1]) for line in open(name)] for name in sys.argv[1:])
assert len(one) == len(own) and all(abs(a - b) < 0.02 for a, b in zip(one, own))
PY
# Losses may round to the same numbers; of all weights some differ.
cmp -s one/checkpoints/step-00000006/model.safetensors own/checkpoints/step-00000006/model.safetensors &&
    fail "the library's sums are the tree's"

HALFSTEP_NCCL_FAULT=1,30,async expect 1 "$trainer" --config emu.yaml out_dir=async --processes 2
says err "gave up: NCCL: remote process exited or there was a network error"
says err "2 processes: rank 1 of 2 (host "
HALFSTEP_NCCL_FAULT=1,30,hang expect 1 "$trainer" --config emu.yaml out_dir=hang distributed.timeout=2 --processes 2
says err "for the other ranks, as long as it may"
HALFSTEP_NCCL_FAULT=1,30,die expect 1 "$trainer" --config emu.yaml out_dir=die --processes 2
says err "rank 1 of 2 (host "
HALFSTEP_NCCL=/nowhere expect 1 "$trainer" --config emu.yaml out_dir=absent --processes 2
says err "NCCL cannot be opened: /nowhere"
expect 2 "$trainer" --config emu.yaml out_dir=graph kernels.cuda_graph=true --processes 2
says err "what they exchange cannot be recorded; set it to false"
[ "$(find /dev/shm -name 'halfstep-nccl-*' -newer emu.yaml 2>/dev/null | wc -l)" = 0 ] || fail "segments were left in /dev/shm"
finish
