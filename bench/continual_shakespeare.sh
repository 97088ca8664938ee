#!/bin/bash
# SPDX-License-Identifier: MIT
# [OUT=FOLDER] continual_shakespeare.sh TEXT [BUILD]: real text, then two synthetic domains, with nanoGPT's small recipe for each: the
# matrix with none, ewc, er and mer.  TEXT is tiny shakespeare or any plain UTF-8 text.
set -euo pipefail
text=$(realpath "${1:?usage: bench/continual_shakespeare.sh TEXT [BUILD]}")
build=$(realpath "${2:-build}")
folder=${OUT:-$(mktemp -d)}
mkdir -p "$folder"
cat >"$folder/run.yaml" <<YAML
seed: 1337
out_dir: $folder/run
model: {family: gpt2, layers: 4, heads: 4, width: 128, bias: false}
tokenizer: {kind: char}
tasks:
  - {name: shakespeare, train: $text}
  - {name: sums, train: "synthetic:arithmetic"}
  - {name: code, train: "synthetic:code"}
data: {sampling: random}
batch_size: 12
max_length: 64
max_steps: 2000
learning_rate: 1e-3
weight_decay: 0.1
schedule: {kind: cosine, warmup_steps: 100, min_learning_rate: 1e-4}
optimizer: {betas: [0.9, 0.99]}
continual: {strategy: none}
replay: {buffer_size: 5120, fraction: 0.25}
ewc: {lambda: 5000, normalize: true}
mer: {beta: 1.0, gamma: 0.3, group_steps: 4}
checkpoint_freq: 0
evaluation: {every: 0, batches: 20}
logging: {every: 100}
YAML
"$build/trainer" compare --config "$folder/run.yaml" --strategies none,ewc,er,mer --seeds 1 --jobs 1 --out "$folder/compare" \
    logging.tensorboard=false
for strategy in none ewc er mer; do
    echo "== $strategy"
    "$build/trainer" --config "$folder/run.yaml" "continual.strategy=[$strategy]" logging.progress=lines \
        logging.tensorboard=false "out_dir=$folder/compare/$strategy-seed1337" 2>/dev/null | sed -n '/held-out/,$p'
done
echo "outputs in $folder"
