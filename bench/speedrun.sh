#!/bin/bash
# SPDX-License-Identifier: MIT
# speedrun.sh FOLDER [SECONDS]: configs/speedrun-cpu.yaml on this machine's own text, then nanoGPT's recipe in PyTorch
# on the same tokens for as long, and both losses of all held-out text in bits a byte.  FOLDER gets text and tokenizer
# (kept, and taken where they are), and the runs.  SECONDS (3600): the configuration's tokens are scaled to them.
#
# PEER: options of bench/peers/nanogpt_torch.py (the same shape and batch, at a rate of 1e-3); PYTHON (python3) has
# torch and numpy, or only this trainer runs; BUILD (build) holds the trainer.
set -euo pipefail
folder=$(realpath "${1:?usage: bench/speedrun.sh FOLDER [SECONDS]}")
seconds=${2:-3600}
cd "$(dirname "$0")/.."
trainer=${BUILD:-build}/trainer
python=${PYTHON:-python3}
[ -e "$folder/train.jsonl" ] || bench/machine_text.sh "$folder"
[ -e "$folder/tokenizer.json" ] ||
    "$trainer" tokenizer train --vocabulary 8192 --output "$folder/tokenizer.json" "$folder/train.jsonl"
tokens=$(sed -nE 's/^    tokens: ([0-9]+).*/\1/p' configs/speedrun-cpu.yaml)
start=$(date +%s.%N)
"$trainer" --config configs/speedrun-cpu.yaml tokenizer.path="$folder/tokenizer.json" \
    tasks.0.train="$folder/train.jsonl" tasks.0.validation="$folder/validation.jsonl" \
    tasks.0.tokens=$((tokens * seconds / 3600)) resume=never out_dir="$folder/run"
took=$(echo "$(date +%s.%N) $start" | awk '{ printf "%.1f", $1 - $2 }')
own=$("$trainer" eval --checkpoint "$folder/run" | awk '/^bits per byte/ { print $NF }')
echo "this trainer: $own bits a byte after $took seconds, start and evaluations included"
if ! "$python" -c 'import torch, numpy' 2>/dev/null; then
    echo "PyTorch's run is skipped: $python has no torch and numpy"
    exit 0
fi
read -ra peer <<<"${PEER:---layers 6 --heads 7 --width 224 --batch 16 --length 256 --rate 1e-3}"
CUDA_VISIBLE_DEVICES='' "$python" bench/peers/nanogpt_torch.py "$folder/train.jsonl" \
    --validation "$folder/validation.jsonl" --tokenizer "$folder/tokenizer.json" --trainer "$trainer" \
    --seconds "$took" --batches 35 --last-batches 0 "${peer[@]}" | tee "$folder/peer.jsonl"
"$python" -c 'import json, sys
last = json.loads(sys.stdin.readlines()[-1])
print("PyTorch: %.6f bits a byte after %.1f seconds of training alone, %d steps" %
      (last["bits_per_byte"], last["seconds"], last["step"]))' <"$folder/peer.jsonl"
