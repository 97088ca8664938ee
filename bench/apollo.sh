#!/bin/bash
# SPDX-License-Identifier: MIT
# apollo.sh TEXT [STEPS]: APOLLO with AdamW and Muon on nanoGPT's small character recipe: the last validation loss of seeds 1337
# and 1338, each rule at the best of its rates for the first seed, and what its states take.  RULES: those that run; RATES: the rates
# tried in place of the rules' own; THREADS (0: all cores); OUT=FOLDER keeps the runs, and takes those that are there; BUILD=FOLDER (build) holds the trainer.
set -euo pipefail
text=$(realpath "${1:?usage: bench/apollo.sh TEXT [STEPS]}")
steps=${2:-1000}
cd "$(dirname "$0")/.."
out=${OUT:-$(mktemp -d)}
[ -n "${OUT:-}" ] || trap 'rm -rf "$out"' EXIT
mkdir -p "$out"
declare -A settings=(
    [adamw]="optimizer.kind=adamw" [adamw8bit]="optimizer.kind=adamw8bit" [muon]="optimizer.kind=muon"
    [apollo]="optimizer.kind=apollo apollo.rank=32" # a quarter of the width
    [apollo4]="optimizer.kind=apollo apollo.rank=32 apollo.scale=4"
    [mini]="optimizer.kind=apollo apollo.rank=1 apollo.granularity=tensor")
declare -A rates=(
    [adamw]="2e-3 4e-3 8e-3" [adamw8bit]="4e-3" [muon]="8e-3" [apollo]="8e-3 1.6e-2 3.2e-2"
    [apollo4]="4e-3 8e-3 1.6e-2" [mini]="4e-3 8e-3 1.6e-2")

# configure RULE RATE SEED: the command line's settings.
configure() {
    echo "--config configs/shakespeare-small.yaml tasks.0.train=$text ${settings[$1]} learning_rate=$2" \
        "schedule.min_learning_rate=$(python3 -c "print($2 / 10)") schedule.decay_steps=$steps schedule.warmup_steps=$((steps / 10)) max_steps=$steps seed=$3" \
        "threads=${THREADS:-0} evaluation.every=$steps evaluation.batches=100 evaluation.sample_tokens=0 checkpoint_freq=0 resume=never"
}

# loss RULE RATE SEED: of the run, which is made if it is not there.
loss() {
    local folder=$out/$1-$2-$3-$steps
    if [ ! -f "$folder.done" ]; then
        # shellcheck disable=SC2046
        "${BUILD:-build}/trainer" $(configure "$1" "$2" "$3") out_dir="$folder" >"$folder.log" 2>&1 || { cat "$folder.log" >&2; exit 1; }
        touch "$folder.done"
    fi
    python3 -c 'import json, sys
print("%.4f" % [r["val_loss"] for r in map(json.loads, open(sys.argv[1])) if r["event"] == "eval"][-1])' "$folder/metrics.jsonl"
}

for rule in ${RULES:-adamw adamw8bit apollo apollo4 mini muon}; do
    for rate in ${RATES:-${rates[$rule]}}; do
        echo "$(loss "$rule" "$rate" 1337) $rate"
    done | sort -n | tee "$out/$rule.rates" | sed "s/^/$rule, seed 1337: loss /; s/ \([^ ]*\)$/ at \1/"
    best=$(head -1 "$out/$rule.rates" | cut -d' ' -f2)
    # shellcheck disable=SC2046
    states=$("${BUILD:-build}/trainer" plan --no-training $(configure "$rule" "$best" 1337) | awk '/optimizer moments/ { print $3, "MiB,", $4, "bytes a parameter" }')
    echo "$rule at $best: $(loss "$rule" "$best" 1337) $(loss "$rule" "$best" 1338), states $states"
done
