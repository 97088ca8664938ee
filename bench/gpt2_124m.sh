#!/bin/bash
# SPDX-License-Identifier: MIT
# gpt2_124m.sh [MODE...]: steps of the GPT-2 124M shape from random weights, on built-in text, at T 256 and T 1024:
# tokens per second and the share of the products' measured peak (6 N + 6 L C T flops a token).
set -eu
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for mode in ${*:-bf16}; do
    for shape in "4 256" "1 1024"; do
        set -- $shape
        build/trainer --config configs/gpt2-124m.yaml tokenizer.kind=byte tokenizer.path= tasks.0.train=synthetic:mixture \
            tasks.0.validation=10% model.vocabulary=50304 batch_size="$1" max_length="$2" model.max_positions=1024 \
            gradient_accumulation_steps=1 max_steps=8 schedule.warmup_steps=2 schedule.decay_steps=0 logging.every=1 evaluation.every=0 \
            evaluation.batches=1 checkpoint_freq=0 precision.mode="$mode" out_dir="$work/$mode-$2" \
            >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
        python3 - "$mode" "$2" "$work/$mode-$2/metrics.jsonl" <<'PY'
import json, sys, statistics
mode, length, path = sys.argv[1], int(sys.argv[2]), sys.argv[3]
steps = [json.loads(line) for line in open(path)]
rates = [r["tokens_per_second"] for r in steps if r["event"] == "step"][2:]
rate = statistics.median(rates)
flops = 6 * 123.6e6 + 6 * 12 * 768 * length
print(f"{mode} T {length}: {rate:.0f} tokens/s, {rate * flops * 1e-9:.0f} GFLOP/s", flush=True)
PY
        rm -rf "$work/$mode-$2"
    done
done
