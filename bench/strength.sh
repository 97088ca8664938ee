#!/bin/bash
# SPDX-License-Identifier: MIT
# strength.sh TEXTS [SETTING...]: what `ewc.lambda: auto` is worth, as a Markdown table on standard output.
#
# TEXTS is a folder of text files, each a domain (three or more, a megabyte each).  A setting is a line of the list below,
# by its first word; none named: all of them.  Each is trained with none, joint, ewc (auto) and ewc with each strength of a
# grid (LAMBDAS, in the Fisher's own units, with the curvature that auto takes), one seed (SEED), byte by byte, in JOBS
# processes.  The share is (none - strategy) / (none - joint) of the retained losses: 1 is joint training.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
[ $# -gt 0 ] && [ -d "$1" ] || { sed -n '3,8s/^# \?//p' "$0" >&2; exit 2; }
texts=$(realpath "$1")
shift
trainer=$(realpath "${BUILD:-$root/build}/trainer")
out=${OUT:-$(mktemp -d)}
lambdas=${LAMBDAS:-1 10 100 1000}
mkdir -p "$out"

# name kind width learning_rate length steps_a_task mode
settings() {
    cat <<'LIST'
text            text      64  2e-3  64  300 fp32
text-width-128  text      128 2e-3  64  300 fp32
text-width-256  text      256 2e-3  64  200 bf16
text-width-512  text      512 1e-3  64  100 bf16
text-rate-3e-4  text      64  3e-4  64  300 fp32
text-rate-1e-3  text      64  1e-3  64  300 fp32
text-rate-3e-3  text      64  3e-3  64  300 fp32
text-length-128 text      64  2e-3  128 150 fp32
text-length-256 text      64  2e-3  256 75  fp32
text-0.2M       text      64  2e-3  64  50  fp32
text-4M         text      64  2e-3  64  1000 fp32
made            synthetic 64  1e-3  64  400 fp32
made-width-256  synthetic 256 1e-3  64  200 bf16
made-rate-3e-4  synthetic 64  3e-4  64  400 fp32
made-rate-3e-3  synthetic 64  3e-3  64  400 fp32
made-length-128 synthetic 64  1e-3  128 200 fp32
made-0.2M       synthetic 64  1e-3  64  50  fp32
made-4M         synthetic 64  1e-3  64  1000 fp32
LIST
}

# configuration KIND: the tasks and all that settings have in common
configuration() {
    printf '%s\n' "tokenizer: {kind: byte}" "tasks:"
    if [ "$1" = text ]; then
        for file in "$texts"/*.txt; do
            echo "  - {name: $(basename "$file" .txt), train: $file, validation: 10%}"
        done
    else
        for language in addition facts words reversal; do
            echo "  - {name: $language, train: \"synthetic:$language\"}"
        done
    fi
    cat <<'YAML'
data: {sampling: random}
weight_decay: 0.1
optimizer: {betas: [0.9, 0.99]}
schedule: {kind: cosine, warmup_steps: 20}
checkpoint_freq: 0
evaluation: {every: 0, batches: 10, items: 0, show: 0}
logging: {every: 100, tensorboard: false}
YAML
}

strategies=none,joint,ewc
for lambda in $lambdas; do
    strategies+=,ewc:ewc.lambda=$lambda:ewc.curvature=kronecker
done
echo "| setting | none | joint | auto: retained | share | best of the grid | share | its lambda |"
echo "|---|---|---|---|---|---|---|---|"
settings | while read -r name kind width rate length steps mode; do
    [ $# -eq 0 ] || [[ " $* " == *" $name "* ]] || continue
    configuration "$kind" >"$out/$name.yaml"
    "$trainer" compare --config "$out/$name.yaml" --strategies "$strategies" --seeds 1 --jobs "${JOBS:-2}" out_dir="$out/$name" \
        seed="${SEED:-1}" model.family=llama model.layers=2 model.heads=4 model.width="$width" precision.mode="$mode" \
        batch_size=$((1024 / length)) max_length="$length" max_steps="$steps" learning_rate="$rate" \
        schedule.min_learning_rate="$(awk "BEGIN { print $rate / 10 }")" schedule.warmup_steps=$((steps / 10)) >"$out/$name.log" 2>&1 </dev/null ||
        { tail -n 5 "$out/$name.log" >&2; exit 1; }
    awk -v name="$name" '
        $1 == "none" { none = $2 }
        $1 == "joint" { joint = $2 }
        $1 == "ewc" { auto = $2 }
        $1 ~ /^ewc:ewc.lambda=/ && (best == "" || $2 + 0 < best) { best = $2; split($1, part, /[=:]/); lambda = part[3] }
        function share(loss) { return (none - loss) / (none - joint) }
        END { printf "| %s | %.3f | %.3f | %.3f | %.2f | %.3f | %.2f | %s |\n", name, none, joint, auto, share(auto), best, share(best), lambda }
    ' "$out/$name.log"
done
