#!/bin/bash
# SPDX-License-Identifier: MIT
# profile.sh TEXT [BUILD [BEFORE-TRAINER]]: where a step spends its time on this CPU, for the small and the full
# character recipe, for GPT-2 124M at T 256 and for the main job, in bf16: pages of build/bench/profile, one below the
# other.
#
# A few late steps of short runs are traced.  With another build's trainer the two take turns, ROUNDS (3) times each,
# and thrice as often for the small recipe with its short turns; the pages get its column.  THREADS (0: all) of each.
# MODELS ("small full gpt2 cl") says which pages.
set -eu
if [ $# -lt 1 ] || [ $# -gt 3 ]; then
    sed -n '3,10s/^# \?//p' "$0" >&2
    exit 2
fi
text=$(realpath "$1")
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$(realpath "${2:-$root/build}")
before=${3:+$(realpath "$3")}
rounds=${ROUNDS:-3}
threads=${THREADS:-0}
[ -r "$text" ] || { echo "profile.sh: $text cannot be read" >&2; exit 1; }
for program in "$build/trainer" "$build/bench/profile" ${before:+"$before"}; do
    [ -x "$program" ] || { echo "profile.sh: $program is not there: run make and make bench-programs" >&2; exit 1; }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

# trace TRAINER NAME CONFIG STEPS OVERRIDE...: leaves NAME/trace.json.
trace() {
    local trainer=$1 name=$2 config=$3 steps=$4
    shift 4
    "$trainer" --config "$root/configs/$config.yaml" device=cpu threads="$threads" precision.mode=bf16 \
        tasks.0.validation=10% logging.trace="$steps" max_steps="${steps#*-}" resume=never checkpoint_freq=0 \
        evaluation.every=0 evaluation.batches=1 evaluation.sample_tokens=0 logging.tensorboard=false \
        logging.progress=none out_dir="$name" "$@" >log 2>&1 || { cat log >&2; exit 1; }
    [ -s "$name/trace.json" ] || { echo "profile.sh: $name left no trace" >&2; exit 1; }
}

# page ROUNDS NAME CONFIG STEPS OVERRIDE...
page() {
    local rounds=$1 name=$2 round arguments=(--threads "$threads")
    local traces=()
    shift
    for round in $(seq "$rounds"); do
        if [ -n "$before" ]; then
            trace "$before" "$@"
            mv "$name/trace.json" "$name.$round.before.json"
            rm -rf "$name"
            arguments+=(--before "$name.$round.before.json")
        fi
        trace "$build/trainer" "$@"
        mv "$name/trace.json" "$name.$round.json"
        rm -rf "$name"
        traces+=("$name.$round.json")
    done
    "$build/bench/profile" "${arguments[@]}" "${traces[@]}"
    echo
    rm -f "$name".*.json
}

printf '# Where the time of a step goes\n\nTimes are those of traced steps: the time in no operation holds the noting of them, too.\n\n'
for model in ${MODELS:-small full gpt2 cl}; do
    case $model in
    small) page $((3 * rounds)) shakespeare-small shakespeare-small 200-290 tasks.0.train="$text" ;;
    full) page "$rounds" shakespeare-full shakespeare-full 3-5 tasks.0.train="$text" ;;
    gpt2)
        page "$rounds" gpt2-124m gpt2-124m 3-6 tokenizer.kind=byte tokenizer.path= tasks.0.train=synthetic:mixture \
            model.vocabulary=50304 model.max_positions=1024 gradient_accumulation_steps=1 batch_size=4 max_length=256 \
            schedule.warmup_steps=2 schedule.decay_steps=18865
        ;;
    cl) page "$rounds" cl cl 800-890 logging.every=50 ;;
    *) echo "profile.sh: MODELS are small, full, gpt2, cl; not $model" >&2 && exit 1 ;;
    esac
done
