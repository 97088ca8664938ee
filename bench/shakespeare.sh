#!/bin/bash
# SPDX-License-Identifier: MIT
# shakespeare.sh TEXT [small|full] [MODE...]: nanoGPT's character recipe in each precision mode, one after another:
# wall time, best validation loss, tokens per second.  BUILD=FOLDER (build) holds the trainer.
set -eu
text=$1
recipe=${2:-small}
shift 2 || shift $#
modes=${*:-fp32 bf16 fp16}
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
printf '%-6s %10s %12s %14s %14s\n' mode seconds "best val" "at step" "tokens/s"
for mode in $modes; do
    start=$(date +%s.%N)
    "${BUILD:-build}/trainer" --config "configs/shakespeare-$recipe.yaml" tasks.0.train="$text" precision.mode="$mode" \
        out_dir="$work/$mode" evaluation.sample_tokens=0 >"$work/$mode.log" 2>&1 || { cat "$work/$mode.log"; exit 1; }
    end=$(date +%s.%N)
    python3 - "$mode" "$start" "$end" "$work/$mode/metrics.jsonl" <<'PY'
import json, sys, statistics
mode, start, end, path = sys.argv[1], float(sys.argv[2]), float(sys.argv[3]), sys.argv[4]
records = [json.loads(line) for line in open(path)]
evaluations = [r for r in records if r["event"] == "eval"]
best = min(evaluations, key=lambda r: r["val_loss"])
rate = statistics.median(r["tokens_per_second"] for r in records if r["event"] == "step")
print(f"{mode:6s} {end - start:10.1f} {best['val_loss']:12.4f} {best['step']:14d} {rate:14.0f}", flush=True)
PY
done
