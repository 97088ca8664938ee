#!/bin/bash
# SPDX-License-Identifier: MIT
# stream.sh FOLDER [BUFFER]: on standard output, the configuration of a stream of texts, FOLDER/*.txt in their order.
#
# Byte by byte, a Llama of 0.8 million parameters, 500 steps of 16 x 128 tokens a task; a replay buffer of BUFFER sequences
# (2700: 6% of four texts of 1.6 MB).  With gather.sh's streams:
#
#     bench/forgetting/gather.sh texts
#     bench/forgetting/stream.sh texts/mixed >mixed.yaml
#     build/trainer compare --config mixed.yaml --strategies none,ewc,generative,er,mer,joint --seeds 5
set -euo pipefail
[ $# -gt 0 ] && [ -d "$1" ] || { sed -n '3,10s/^# \?//p' "$0" >&2; exit 2; }
texts=$(realpath "$1")
printf '%s\n' "out_dir: runs/$(basename "$texts")" "tokenizer: {kind: byte}" "tasks:"
for file in "$texts"/*.txt; do
    name=$(basename "$file" .txt)
    [ "$name" = packages ] || echo "  - {name: ${name#[0-9]-}, train: $file, validation: 10%}"
done
cat <<YAML
model: {family: llama, layers: 4, heads: 4, width: 128}
data: {sampling: random}
batch_size: 16
max_length: 128
max_steps: 500
learning_rate: 1.4e-3
weight_decay: 0.1
optimizer: {betas: [0.9, 0.99]}
schedule: {kind: cosine, warmup_steps: 50, min_learning_rate: 1.4e-4}
precision: {mode: bf16}
replay: {buffer_size: ${2:-2700}}
generative: {fraction: 0.5}
checkpoint_freq: 0
evaluation: {every: 0, batches: 20, items: 0, show: 0}
logging: {every: 100, tensorboard: false}
YAML
