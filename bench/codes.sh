#!/bin/bash
# SPDX-License-Identifier: MIT
# codes.sh CONFIG [KEY=VALUE...]: what the recipes below 16 bits cost in loss against bf16, as a Markdown table on
# standard output: the validation loss at the end, each seed's and its distance from bf16's with the same seed.
#
# RECIPES (current delayed block mxfp8 nvfp4), SEEDS (1 2 3), JOBS processes of one thread each (1), OUT a folder for the
# runs, BUILD=FOLDER (build) holds the trainer.  Runs that are there already are not run again.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
[ $# -gt 0 ] && [ -f "$1" ] || { sed -n '3,7s/^# \?//p' "$0" >&2; exit 2; }
config=$1
shift
trainer=$(realpath "${BUILD:-$root/build}/trainer")
out=${OUT:-$(mktemp -d)}
recipes=${RECIPES:-current delayed block mxfp8 nvfp4}
seeds=${SEEDS:-1 2 3}
mkdir -p "$out"

run() { # RECIPE SEED; the recipe bf16 is the mode
    local folder=$out/$1-$2 keys=(precision.mode=bf16)
    [ "$1" = bf16 ] || keys=(precision.mode=fp8 precision.fp8.recipe="$1")
    grep -q '"event":"end"' "$folder/metrics.jsonl" 2>/dev/null && return
    "$trainer" --config "$config" "${keys[@]}" seed="$2" threads=1 checkpoint_freq=0 evaluation.sample_tokens=0 \
        logging.progress=lines out_dir="$folder" "${overrides[@]}" >"$folder.log" 2>&1 ||
        { tail -3 "$folder.log" >&2; echo "codes.sh: $1, seed $2: ended early" >&2; }
}
overrides=("$@")
for seed in $seeds; do
    for recipe in bf16 $recipes; do
        while [ "$(jobs -rp | wc -l)" -ge "${JOBS:-1}" ]; do wait -n; done
        run "$recipe" "$seed" &
    done
done
wait
python3 - "$out" "$seeds" bf16 $recipes <<'PY'
import json, os, sys
out, seeds, recipes = sys.argv[1], sys.argv[2].split(), sys.argv[3:]


def final(recipe, seed):
    """The last validation loss of a run; None where it diverged or is not there."""
    path = os.path.join(out, f"{recipe}-{seed}", "metrics.jsonl")
    if not os.path.exists(path):
        return None
    records = [json.loads(line) for line in open(path)]
    if not any(r["event"] == "end" for r in records):
        return None
    return [r["val_loss"] for r in records if r["event"] == "eval"][-1]


print("| recipe | " + " | ".join(f"seed {s}" for s in seeds) + " | farthest from bf16 |")
print("|---|" + "---|" * (len(seeds) + 1))
for recipe in recipes:
    losses = [final(recipe, s) for s in seeds]
    base = [final("bf16", s) for s in seeds]
    cells = ["ended early" if v is None else f"{v:.4f}" for v in losses]
    shares = [100 * (v - b) / b for v, b in zip(losses, base) if v is not None and b is not None]
    worst = max(shares, key=abs, default=None)
    cells.append("" if recipe == "bf16" or worst is None else f"{worst:+.2f}%")
    print(f"| {recipe} | " + " | ".join(cells) + " |")
PY
