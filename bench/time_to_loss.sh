#!/bin/bash
# SPDX-License-Identifier: MIT
# time_to_loss.sh TEXT [small|full|text]: how soon this trainer has the validation loss with which nanoGPT's recipe ends
# in PyTorch: steps, seconds of training (evaluations, compiling and starting aside), and their ratio to PyTorch's.
#
#     PyTorch, AdamW             nanoGPT's settings; and at the best of RATES (chosen with seed 7)
#     this trainer, AdamW        the same settings
#     this trainer, its best     small: configs/nanochat-small.yaml; else what train.size gives
#
# small and full are nanoGPT's character recipes; text is TEXT in tokens that are learned from it, 512 of them, with the
# small recipe's width on 1,024 tokens a step.  TEXT is one plain file; its last tenth is held out.  Steps to a loss lie
# on straight lines between evaluations; a seed's loss is compared with PyTorch's of that seed.
#
# SEEDS (1 2 3); STEPS (2000, full 5000); BEST_STEPS (STEPS): of this trainer's best, whose schedule ends with them;
# RATES (5e-4 1e-3 2e-3 4e-3 8e-3; one alone is taken untried); EVERY (100): steps between evaluations; BATCHES (20):
# their size; MODE (bf16) or fp32; COMPILE=1: torch.compile; THREADS (all cores); PYTHON (python3) has torch and numpy;
# OUT=FOLDER keeps the runs, and takes those that are there; BUILD (build) holds the trainer.
set -euo pipefail
usage="usage: bench/time_to_loss.sh TEXT [small|full|text]"
text=$(realpath "${1:?$usage}")
recipe=${2:-small}
cd "$(dirname "$0")/.."
trainer=${BUILD:-build}/trainer
python=${PYTHON:-python3}
mode=${MODE:-bf16} threads=${THREADS:-$(nproc)} every=${EVERY:-100} batches=${BATCHES:-20}
read -ra rates <<<"${RATES:-5e-4 1e-3 2e-3 4e-3 8e-3}"
read -ra seeds <<<"${SEEDS:-1 2 3}"
out=${OUT:-$(mktemp -d)}
[ -n "${OUT:-}" ] || trap 'rm -rf "$out"' EXIT
mkdir -p "$out"
"$python" -c 'import torch, numpy' || {
    echo "time_to_loss.sh: $python has no torch and numpy: set PYTHON" >&2
    exit 1
}

case $recipe in
small)
    steps=${STEPS:-2000} config=small rate=1e-3 peer=(--recipe small) same=()
    best=(--config configs/nanochat-small.yaml)
    ;;
full)
    steps=${STEPS:-5000} config=full rate=1e-3 peer=(--recipe full) same=()
    best=(--config /dev/null tokenizer.kind=char data.sampling=random train.size=10.6M model.layers=6 model.heads=6
        model.width=384 model.dropout=0.2 batch_size=64 max_length=256)
    ;;
text)
    steps=${STEPS:-2000} config=small rate=1e-3
    [ -e "$out/tokenizer.json" ] ||
        "$trainer" tokenizer train --vocabulary 512 --output "$out/tokenizer.json" "$text" >&2
    peer=(--recipe small --tokenizer "$out/tokenizer.json" --batch 8 --length 128)
    same=(tokenizer.kind=bpe tokenizer.path="$out/tokenizer.json" batch_size=8 max_length=128)
    best=(--config /dev/null data.sampling=random train.size=800k model.layers=4 model.heads=4 model.width=128
        "${same[@]}")
    ;;
*)
    echo "$usage" >&2
    exit 2
    ;;
esac

# peer_run NAME RATE SEED: its evaluations are lines of JSON in OUT/NAME.
peer_run() {
    [ ! -e "$out/$1" ] || return 0
    CUDA_VISIBLE_DEVICES='' "$python" bench/peers/nanogpt_torch.py "$text" "${peer[@]}" --trainer "$trainer" \
        --rate "$2" --seed "$3" --steps "$steps" --every "$every" --batches "$batches" --threads "$threads" \
        --dtype "$mode" ${COMPILE:+--compile} >"$out/$1.part" 2>"$out/$1.log" || { cat "$out/$1.log" >&2; exit 1; }
    mv "$out/$1.part" "$out/$1"
}

# own_run NAME SEED OPTION...: the same of this trainer.  Seconds are those of steps, by their speed.
own_run() {
    local name=$1 seed=$2
    shift 2
    [ ! -e "$out/$name" ] || return 0
    "$trainer" "$@" tasks.0.train="$text" tasks.0.validation=10% device=cpu threads="$threads" seed="$seed" \
        precision.mode="$mode" evaluation.every="$every" evaluation.batches="$batches" \
        evaluation.sample_tokens=0 checkpoint_freq=0 resume=never logging.every=10 logging.tensorboard=false \
        out_dir="$out/$name.run" >"$out/$name.log" 2>&1 || { cat "$out/$name.log" >&2; exit 1; }
    "$python" - "$out/$name.run" >"$out/$name.part" <<'PY'
import json
import os
import re
import sys

with open(os.path.join(sys.argv[1], "config.yaml"), encoding="utf-8") as file:
    keys = dict(re.findall(r"^(batch_size|gradient_accumulation_steps|max_length): (\d+)", file.read(), re.M))
tokens = 1
for value in keys.values():
    tokens *= int(value)
seconds = last = 0
for line in open(os.path.join(sys.argv[1], "metrics.jsonl"), encoding="utf-8"):
    record = json.loads(line)
    if record["event"] == "step":
        seconds += (record["step"] - last) * tokens / record["tokens_per_second"]
        last = record["step"]
    elif record["event"] == "eval":
        print(json.dumps({"step": record["step"], "seconds": seconds, "val_loss": record["val_loss"],
                          "bits_per_byte": record["bits_per_byte"]}))
PY
    mv "$out/$name.part" "$out/$name"
}

lowest() {
    "$python" -c 'import json, sys
print("%.4f" % min(json.loads(line)["val_loss"] for line in open(sys.argv[1])))' "$1"
}

chosen=${rates[0]}
if [ ${#rates[@]} -gt 1 ]; then
    for tried in "${rates[@]}"; do
        peer_run "peer-$tried-7" "$tried" 7
        echo "$(lowest "$out/peer-$tried-7") $tried"
    done | sort -n | tee "$out/rates" | sed 's/^\([^ ]*\) /PyTorch, seed 7: loss \1 at /'
    chosen=$(head -n 1 "$out/rates" | cut -d' ' -f2)
fi
for seed in "${seeds[@]}"; do
    peer_run "peer-$rate-$seed" $rate "$seed"
    peer_run "peer-$chosen-$seed" "$chosen" "$seed"
    own_run "own-adamw-$seed" "$seed" --config "configs/shakespeare-$config.yaml" learning_rate=$rate \
        schedule.decay_steps="$steps" max_steps="$steps" "${same[@]}"
    own_run "own-best-$seed" "$seed" "${best[@]}" max_steps="${BEST_STEPS:-$steps}"
done

tuned=()
[ "$chosen" = "$rate" ] || tuned=("PyTorch, AdamW at $chosen=peer-$chosen")
"$python" - "$out" "PyTorch, AdamW at $rate=peer-$rate" "${tuned[@]}" \
    "this trainer, AdamW at $rate=own-adamw" "this trainer, its best=own-best" -- "${seeds[@]}" <<'PY'
import json
import statistics
import sys

folder, cut = sys.argv[1], sys.argv.index("--")
contenders, seeds = [word.rsplit("=", 1) for word in sys.argv[2:cut]], sys.argv[cut + 1 :]


def curve(name, seed):
    with open(f"{folder}/{name}-{seed}", encoding="utf-8") as file:
        records = [json.loads(line) for line in file]
    return [(r["val_loss"], r["step"], r["seconds"], r["bits_per_byte"]) for r in records]


def reaches(points, loss):
    """Step and seconds at which a curve first has the loss."""
    before = None
    for now in points:
        if now[0] <= loss:
            share = 1.0 if before is None else (before[0] - loss) / (before[0] - now[0])
            return now[1:3] if before is None else [b + share * (n - b) for b, n in zip(before[1:3], now[1:3])]
        before = now
    return None


def mean(values, digits):
    spread = f" ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.{digits}f}{spread}"


print("| | best loss | bits a byte | seeds there | steps | of PyTorch's | seconds | of PyTorch's |")
print("|---|---|---|---|---|---|---|---|")
first = {seed: curve(contenders[0][1], seed) for seed in seeds}
targets = {seed: min(point[0] for point in first[seed]) for seed in seeds}
for label, name in contenders:
    curves = {seed: curve(name, seed) for seed in seeds}
    there = {seed: reaches(curves[seed], targets[seed]) for seed in seeds}
    reached = [seed for seed in seeds if there[seed]]
    cells = [label, *(mean([min(p[column] for p in curves[s]) for s in seeds], 4) for column in (0, 3)),
             f"{len(reached)} of {len(seeds)}"]
    for column, digits in ((0, 0), (1, 1)):
        own = [there[seed][column] for seed in reached]
        ratios = [there[seed][column] / reaches(first[seed], targets[seed])[column] for seed in reached]
        cells += [mean(own, digits), mean(ratios, 2)] if reached else ["", ""]
    print("| " + " | ".join(cells) + " |")
PY
