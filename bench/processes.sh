#!/bin/bash
# SPDX-License-Identifier: MIT
# processes.sh [--rounds N] [--steps N] TEXT [BUILD]: what several processes cost on this machine, as a Markdown page.
#
#     speed    two processes of one thread against one process of two threads, in turns; medians of N rounds (5)
#     memory   of each stage of distributed.zero: planned, taken, and ZeRO's formula
#     sent     a step, as each process counted it, next to the theory
#     sums     of the shared-memory communicator, next to the memory's own speed (bench/comm)
#
# Two models on TEXT, characters, bf16: nanoGPT's small recipe, and eight layers of width 512.  BUILD (build) holds the
# trainer and bench/comm.
set -eu
rounds=5 steps=40
while [ $# -gt 0 ]; do
    case $1 in
    --rounds) rounds=$2 && shift 2 ;;
    --steps) steps=$2 && shift 2 ;;
    *) break ;;
    esac
done
[ $# -ge 1 ] && [ $# -le 2 ] || { sed -n '3,12s/^# \?//p' "$0" >&2; exit 2; }
text=$(realpath "$1")
build=$(realpath "${2:-$(dirname "$0")/../build}")
for program in trainer bench/comm; do
    [ -x "$build/$program" ] || { echo "processes.sh: $build/$program is not there: run make and make bench-programs" >&2; exit 1; }
done
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"

echo "seed: 1337" >base.yaml
common=(--config base.yaml device=cpu "tasks.0.train=$text" tokenizer.kind=char precision.mode=bf16 distributed.virtual_ranks=4
    "max_steps=$steps" checkpoint_freq=0 evaluation.every=0 evaluation.sample_tokens=0 logging.every=1 logging.tensorboard=false
    logging.progress=lines memory.limit=0 distributed.exact=true schedule.warmup_steps=4)
small=(model.family=gpt2 model.layers=4 model.heads=4 model.width=128 batch_size=12 max_length=64 learning_rate=1e-3)
large=(model.family=llama model.layers=8 model.heads=8 model.width=512 batch_size=8 max_length=256 learning_rate=1e-3)

# train NAME OPTION...: a run, its log in NAME.log.
train() {
    local name=$1
    shift
    rm -rf run
    "$build/trainer" "${common[@]}" out_dir=run "$@" >"$name.log" 2>&1 || { tail -n 5 "$name.log" >&2; exit 1; }
}

# speed NAME: of the last run, without the first quarter of its steps, tokens a second.
speed() {
    sed -nE 's/.*"tokens_per_second":([0-9.e+]+).*/\1/p' run/metrics.jsonl | tail -n +$((steps / 4 + 1)) | median
}
median() {
    sort -g | awk '{ v[NR] = $1 } END { print (v[int((NR + 1) / 2)] + v[int(NR / 2) + 1]) / 2 }'
}

ways=("1 2 0" "1 2 piece" "2 1 0" "2 1 1" "2 1 2" "2 1 3") # processes, threads of each, stage
measure_speed() { # NAME OPTION...
    local name=$1 round way
    shift
    for ((round = 0; round < rounds; round++)); do
        for way in "${ways[@]}"; do
            read -r processes threads zero <<<"$way"
            local stage=("distributed.zero=$zero")
            [ "$zero" = piece ] && stage=(distributed.virtual_ranks=0)
            train "$name" "$@" threads="$threads" --processes "$processes" "${stage[@]}"
            speed >>"$name.$processes.$zero"
        done
    done
    local whole
    whole=$(median <"$name.1.0")
    for way in "${ways[@]}"; do
        read -r processes threads zero <<<"$way"
        median <"$name.$processes.$zero" | awk -v n="$name" -v p="$processes" -v t="$threads" -v z="$zero" -v whole="$whole" \
            '{ printf "| %s | %d | %d | %s | %.0f | %.3f |\n", n, p, t, z == "piece" ? "one piece" : "zero " z, $1, $1 / whole }'
    done
}

echo "| model | processes | threads of each | division | tokens/s | share of the first line |"
echo "|---|---|---|---|---|---|"
measure_speed small "${small[@]}"
measure_speed large "${large[@]}"

echo
echo "Four processes, the large model, MiB: what rank 0 planned and took, and what a step sent."
echo
echo "| zero | planned | taken | states planned | ZeRO's formula | sent, planned | sent: rank 0 to 3 |"
echo "|---|---|---|---|---|---|---|"
"$build/trainer" plan "${common[@]}" "${large[@]}" threads=1 distributed.processes=4 >plan.log 2>&1
for zero in 0 1 2 3; do
    train four "${large[@]}" threads=1 --processes 4 distributed.zero=$zero max_steps=3
    read -r states formula sent <<<"$(awk -v z=$zero '$1 == z { i = $2 == "*" ? 4 : 3; print $i, $(i + 1), $(i + 2) }' plan.log)"
    awk -v z=$zero -v states="$states" -v formula="$formula" -v sent="$sent" '
        /memory \(MiB\) +planned/ { table = 1 }
        table && $2 == "total" { planned = $3; taken = $5 }
        /MiB sent a step/ { for (i = 2; i <= NF; i++) if ($i == "MiB" && $(i + 1) == "sent") ranks = ranks " " $(i - 1) }
        END { printf "| %d | %s | %s | %s | %s | %s |%s |\n", z, planned, taken, states, formula, sent, ranks }' four.log
done

echo
echo "The shared-memory communicator, two ranks, next to the memory's speed in the same run:"
echo
"$build/bench/comm" 2 64 | sed 's/^/    /'
