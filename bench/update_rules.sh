#!/bin/bash
# SPDX-License-Identifier: MIT
# update_rules.sh TEXT [small|full] [STEPS]: Muon against AdamW on nanoGPT's character recipe: steps and seconds to the loss that AdamW
# ends with, three seeds, each rule at the best of its learning rates (chosen with seed 7 and half the steps).  The schedule is as
# long as the run.  RATES_ADAMW, RATES_MUON: the rates tried (one alone is taken untried); EVALUATE (100): steps between evaluations;
# BATCHES (20): their size; OUT=FOLDER keeps the runs, and takes those that are there; BUILD=FOLDER (build) holds the trainer.
set -euo pipefail
text=$(realpath "${1:?usage: bench/update_rules.sh TEXT [small|full] [STEPS]}")
recipe=${2:-small}
steps=${3:-2000}
cd "$(dirname "$0")/.."
out=${OUT:-$(mktemp -d)}
[ -n "${OUT:-}" ] || trap 'rm -rf "$out"' EXIT
mkdir -p "$out"
declare -A rates=([adamw]="${RATES_ADAMW:-1e-3 2e-3 4e-3 8e-3}" [muon]="${RATES_MUON:-2e-3 4e-3 8e-3 1.6e-2}")

# one RULE RATE SEED STEPS
one() {
    local folder=$out/$1-$2-$3-$4
    [ -f "$folder.done" ] && return
    "${BUILD:-build}/trainer" --config "configs/shakespeare-$recipe.yaml" tasks.0.train="$text" optimizer.kind="$1" learning_rate="$2" \
        schedule.min_learning_rate="$(python3 -c "print($2 / 10)")" schedule.decay_steps="$4" schedule.warmup_steps=$(($4 / 10)) \
        max_steps="$4" seed="$3" evaluation.every="${EVALUATE:-100}" evaluation.batches="${BATCHES:-20}" evaluation.sample_tokens=0 \
        checkpoint_freq=0 resume=never out_dir="$folder" >"$folder.log" 2>&1 || { cat "$folder.log" >&2; exit 1; }
    touch "$folder.done"
}

# The validation losses of runs, as "step loss seconds" lines.
curve() {
    python3 -c 'import json, sys
for record in map(json.loads, open(sys.argv[1])):
    if record["event"] == "eval":
        print(record["step"], record["val_loss"], record["time_s"])' "$1/metrics.jsonl"
}

best=()
for rule in adamw muon; do
    read -ra tried <<<"${rates[$rule]}"
    if [ ${#tried[@]} -gt 1 ]; then
        for rate in "${tried[@]}"; do
            one $rule "$rate" 7 $((steps / 2))
            echo "$(curve "$out/$rule-$rate-7-$((steps / 2))" | tail -1 | cut -d' ' -f2) $rate"
        done | sort -n | tee "$out/$rule.rates" | sed "s/^/$rule, $((steps / 2)) steps: loss /; s/ \([^ ]*\)$/ at \1/"
        tried=("$(head -1 "$out/$rule.rates" | cut -d' ' -f2)")
    fi
    best+=("${tried[0]}")
done
for seed in 1 2 3; do
    one adamw "${best[0]}" $seed "$steps"
    one muon "${best[1]}" $seed "$steps"
    curve "$out/adamw-${best[0]}-$seed-$steps" >"$out/a"
    curve "$out/muon-${best[1]}-$seed-$steps" >"$out/b"
    python3 - $seed "${best[@]}" "$out/a" "$out/b" <<'PY'
import sys

seed, rate_a, rate_b = sys.argv[1:4]
adamw, muon = ([tuple(map(float, line.split())) for line in open(path)] for path in sys.argv[4:])


def reaches(curve, loss):
    """Steps and seconds to the loss, on straight lines between evaluations."""
    before = None
    for now in curve:
        if now[1] <= loss:
            share = 1.0 if before is None else (before[1] - loss) / (before[1] - now[1])
            return now if before is None else [b + share * (n - b) for b, n in zip(before, now)]
        before = now
    return None


loss = min(point[1] for point in adamw)
a, b = reaches(adamw, loss), reaches(muon, loss)
there = "never" if b is None else f"{b[0]:.0f} steps, {b[2]:.1f} s: {b[0] / a[0]:.2f} of the steps, {b[2] / a[2]:.2f} of the time"
print(f"seed {seed}: AdamW at {rate_a} ends with {loss:.3f} after {a[0]:.0f} steps, {a[2]:.1f} s; "
      f"Muon at {rate_b} is there after {there}; it ends with {min(p[1] for p in muon):.3f}", flush=True)
PY
done
