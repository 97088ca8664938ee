#!/bin/bash
# SPDX-License-Identifier: MIT
# recipe.sh TEXT rates|embeddings|steps|batches|sizes: what the rules of runtime/config/recipe.c were measured by, on TEXT (a file,
# folder or pattern) in bytes, with one thread.
#   rates       the best learning rate of Muon's matrices at WIDTHS (128 256 512), 60 steps of 8 x 128 tokens, four layers
#   embeddings  the best rate of embedding, head and norms at those widths, matrices at RATE (8e-3)
#   steps       how the best rate moves with the number of steps, STEPS (60 250 1000), two layers of width 64, one rate for all
#   batches     how it moves with the batch, BATCHES (8 32 128) of 128 tokens, width 128, 250 steps (STEPS), one rate for all
#   sizes       loss after ten tokens a parameter at SIZES, by train.size, and L = E + A N^-a fitted on all but the last
# RATES: the rates tried; OUT=FOLDER keeps the runs and takes those that are there; BUILD=FOLDER (build) holds the trainer.
set -euo pipefail
usage="usage: bench/recipe.sh TEXT rates|embeddings|steps|batches|sizes"
text=$(realpath -s "${1:?$usage}")
phase=${2:?$usage}
cd "$(dirname "$0")/.."
out=${OUT:-$(mktemp -d)}
[ -n "${OUT:-}" ] || trap 'rm -rf "$out"' EXIT
mkdir -p "$out"
cat >"$out/recipe.yaml" <<YAML
model: {family: llama, layers: 4, heads: 4, width: 128}
tokenizer: {kind: byte}
tasks: [{name: text, train: "$text", validation: 5%}]
threads: 1
weight_decay: 0.1
schedule: {kind: wsd, wsd_decay_fraction: 0.5, wsd_shape: linear}
optimizer: {kind: muon, groups: [{match: [embedding, head, norm]}]}
checkpoint_freq: 0
resume: never
evaluation: {every: 0, batches: 40}
logging: {tensorboard: false}
YAML

# loss NAME KEY=VALUE...: of a run, by its record if it is there.
loss() {
    local folder=$out/$1
    shift
    if [ ! -f "$folder.done" ]; then
        nice "${BUILD:-build}/trainer" --config "$out/recipe.yaml" out_dir="$folder" "$@" >"$folder.log" 2>&1 || { cat "$folder.log" >&2; exit 1; }
        touch "$folder.done"
    fi
    grep -oE 'end  val_loss [0-9.]+' "$folder.log" | tail -n 1 | grep -oE '[0-9.]+'
}

# sweep NAME RATE-KEYS KEY=VALUE...: the loss at each of RATES, which stands for @ in the keys, and where a parabola of the logarithm
# through the lowest three has its end.
sweep() {
    local name=$1 keys=$2 rate
    shift 2
    # shellcheck disable=SC2086
    for rate in $rates; do
        echo "$rate $(loss "$name-$rate" batch_size=8 max_length=128 "$@" ${keys//@/$rate})"
    done | python3 -c '
import math, sys
points = [tuple(map(float, line.split())) for line in sys.stdin]
low = min(range(len(points)), key=lambda i: points[i][1])
where = "at the edge"
if 0 < low < len(points) - 1:
    (a, fa), (b, fb), (c, fc) = [(math.log(rate), loss) for rate, loss in points[low - 1:low + 2]]
    up, down = (b - a) * (fb - fc), (b - c) * (fb - fa)
    where = f"best {math.exp(b - ((b - a) * up - (b - c) * down) / (up - down) / 2):.2e}"
print(sys.argv[1], *(f"{rate:g}:{loss:.4f}" for rate, loss in points), where, flush=True)' "$name"
}

group=optimizer.groups.0.learning_rate
case $phase in
rates)
    rates=${RATES:-2e-3 4e-3 8e-3 1.6e-2 3.2e-2}
    for width in ${WIDTHS:-128 256 512}; do
        sweep "rates-$width" "learning_rate=@" model.width="$width" model.heads=$((width / 32)) $group=8e-3 max_steps=60 schedule.warmup_steps=3
    done
    ;;
embeddings)
    rates=${RATES:-2e-3 4e-3 8e-3 1.6e-2}
    for width in ${WIDTHS:-128 256 512}; do
        sweep "embeddings-$width" "$group=@" model.width="$width" model.heads=$((width / 32)) learning_rate="${RATE:-8e-3}" max_steps=60 schedule.warmup_steps=3
    done
    ;;
steps)
    rates=${RATES:-4e-3 8e-3 1.6e-2 3.2e-2}
    for steps in ${STEPS:-60 250 1000}; do
        sweep "steps-$steps" "learning_rate=@ $group=@" model.layers=2 model.width=64 model.heads=2 max_steps="$steps" schedule.warmup_steps=$((steps / 20))
    done
    ;;
batches)
    rates=${RATES:-4e-3 8e-3 1.6e-2 3.2e-2}
    steps=${STEPS:-250}
    for batch in ${BATCHES:-8 32 128}; do
        sweep "batches-$steps-$batch" "learning_rate=@ $group=@" batch_size="$batch" evaluation.batches=$((1280 / batch)) max_steps="$steps" schedule.warmup_steps=$((steps / 20))
    done
    ;;
sizes)
    cat >"$out/recipe.yaml" <<YAML
tokenizer: {kind: byte}
tasks: [{name: text, train: "$text", validation: 5%}]
threads: 1
checkpoint_freq: 0
resume: never
evaluation: {every: 0, batches: 100}
logging: {tensorboard: false}
YAML
    for size in ${SIZES:-100k 150k 220k 330k 600k}; do
        value=$(loss "size-$size" train.size="$size")
        echo "$size $value $(grep -oE 'model: llama, [0-9]+ layers, width [0-9]+' "$out/size-$size.log" | grep -oE '[0-9]+' | tr '\n' ' ')$(grep -oE 'steps: [0-9]+ of [0-9]+ x [0-9]+' "$out/size-$size.log" | grep -oE '[0-9]+' | tr '\n' ' ')"
    done | python3 -c '
import sys
rows = []
for line in sys.stdin:
    name, loss, layers, width, steps, batch, length = line.split()
    size, tokens = 12 * int(layers) * int(width) ** 2, int(steps) * int(batch) * int(length)
    rows.append((size, float(loss)))
    print(f"{name}: {size} parameters, {tokens} tokens, loss {loss}", flush=True)


def fit(rows):
    """E, A, a with the least squares of the losses; for each a and E the best A is linear."""
    best = None
    for a in (i / 200 for i in range(10, 201)):
        xs = [size ** -a for size, _ in rows]
        ys = [loss for _, loss in rows]
        mx, my = sum(xs) / len(xs), sum(ys) / len(ys)
        slope = sum((x - mx) * (y - my) for x, y in zip(xs, ys)) / sum((x - mx) ** 2 for x in xs)
        level = my - slope * mx
        if level < 0:
            continue
        error = sum((level + slope * x - y) ** 2 for x, y in zip(xs, ys))
        best = min(best or (error, level, slope, a), (error, level, slope, a))
    return best[1:]


level, slope, a = fit(rows[:-1])
predicted = level + slope * rows[-1][0] ** -a
print(f"without the last: L = {level:.3f} + {slope:.3f} N^-{a:.3f}; the last {rows[-1][1]:.4f}, predicted {predicted:.4f}: "
      f"{100 * (predicted / rows[-1][1] - 1):+.1f}%")
level, slope, a = fit(rows)
print(f"all: L = {level:.3f} + {slope:.3f} N^-{a:.3f}; off by " + ", ".join(f"{level + slope * n ** -a - l:+.4f}" for n, l in rows))'
    ;;
*)
    echo "$usage" >&2
    exit 2
    ;;
esac
