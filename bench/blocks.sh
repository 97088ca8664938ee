#!/bin/bash
# SPDX-License-Identifier: MIT
# blocks.sh TEXT [--steps N] [--seeds N] [--out FOLDER] [KEY=VALUE...]: blocks of today's models from scratch, on the same text.
#
# GPT-2's, Llama's, Gemma 3's and nanochat's block with as many parameters, trained by the recipe of
# configs/shakespeare-small.yaml (AdamW, the same tokens in the same order); and nanochat's with its own recipe
# (configs/nanochat-small.yaml: Muon, rates by kind, other first values).  Prints a Markdown table: loss on the last tenth of
# TEXT, mean and standard deviation over the seeds, time of the steps.  BUILD (build) says where the trainer is.
set -eu
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
steps=2000 seeds=3 out=runs/blocks
[ $# -gt 0 ] && [ "${1#-}" = "$1" ] || { sed -n '3,8s/^# \?//p' "$0" >&2; exit 2; }
text=$(realpath "$1")
shift
while [ $# -gt 0 ] && [ "${1#--}" != "$1" ]; do
    [ $# -gt 1 ] || { echo "blocks.sh: $1 needs a value" >&2; exit 2; }
    case $1 in
    --steps) steps=$2 ;;
    --seeds) seeds=$2 ;;
    --out) out=$2 ;;
    *) echo "blocks.sh: there is no option $1" >&2; exit 2 ;;
    esac
    shift 2
done
trainer=$(realpath "${BUILD:-$root/build}/trainer")
[ -x "$trainer" ] || { echo "blocks.sh: $trainer is not there: run make" >&2; exit 1; }

small=$root/configs/shakespeare-small.yaml
llama='model.family=llama model.norm_epsilon=1e-6'
gemma='model.norms=around model.activation=geglu model.embedding_factor=0 model.qk_norm=true'
nanochat='model.shape=nanochat-d12 model.family=llama model.head_dim=32 model.mlp_width=496 model.score_scale=0.25456 model.init=normal'
# NAME|CONFIGURATION|KEYS, of 0.79 to 0.81 million parameters with 65 characters
rows="GPT-2|$small|
Llama|$small|$llama model.mlp_width=344
Gemma 3|$small|$llama $gemma model.mlp_width=340 model.rope_theta=1000000
nanochat|$small|$nanochat
nanochat, its recipe|$root/configs/nanochat-small.yaml|model.mlp_width=496"
pattern='model.attention=[5x window 17 theta 10000, full]'
values='model.attention=[window 17, window 17 values, window 17, last full values]'

mkdir -p "$out"
echo "| block | parameters | loss | tokens/s |"
echo "|---|---|---|---|"
while IFS='|' read -r name config keys; do
    for ((seed = 1; seed <= seeds; seed++)); do
        folder="$out/${name// /-}-$seed"
        extra=()
        [ "$name" != "Gemma 3" ] || extra=("$pattern")
        [ "$name" != nanochat ] || extra=("$values")
        [ -s "$folder/metrics.jsonl" ] && grep -q '"event":"end"' "$folder/metrics.jsonl" && continue
        # shellcheck disable=SC2086
        "$trainer" --config "$config" tasks.0.train="$text" out_dir="$folder" seed="$seed" max_steps="$steps" \
            evaluation.every=0 evaluation.batches=200 evaluation.sample_tokens=0 checkpoint_freq=0 logging.progress=none \
            $keys "${extra[@]}" "$@" >"$folder.txt" 2>&1 || { tail -n 3 "$folder.txt" >&2; exit 1; }
    done
    python3 -B - "$name" "$out/${name// /-}" "$seeds" <<'PYTHON'
import json, re, statistics, sys
name, prefix, seeds = sys.argv[1], sys.argv[2], int(sys.argv[3])
losses, rates = [], []
for seed in range(1, seeds + 1):
    events = [json.loads(line) for line in open(f"{prefix}-{seed}/metrics.jsonl")]
    losses.append([e["val_loss"] for e in events if e["event"] == "end"][-1])
    rates.append(statistics.median(e["tokens_per_second"] for e in events if e["event"] == "step"))
    parameters = re.search(r"([0-9.]+) million parameters", open(f"{prefix}-{seed}.txt").read())[1]
spread = f" ± {statistics.stdev(losses):.3f}" if seeds > 1 else ""
print(f"| {name} | {parameters} million | {statistics.mean(losses):.3f}{spread} | {statistics.median(rates):,.0f} |", flush=True)
PYTHON
done <<<"$rows"
