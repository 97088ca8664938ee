#!/bin/bash
# SPDX-License-Identifier: MIT
# kill_continual.sh N [SEED]: runs over three tasks, killed with -9: first once in each phase that is short or rare (while
# the Fisher is measured, while a checkpoint is written, between a task's checkpoint and its row of the matrix), then at N
# random moments of each configuration.  Every time the run is resumed; in the end the record and the final checkpoint must
# equal those of an undisturbed run, byte for byte (times excepted).
moments=${1:-20}
RANDOM=${2:-1}
. "$(dirname "$0")/lib.sh"
tiny_tasks

# Saving every second step makes a save, a group left open and a boundary likely moments.
common="checkpoint_freq=2 max_steps=50 logging.every=1 evaluation.every=7"
mer="continual.strategy=[ewc,mer] mer.group_steps=4 mer.groups=2 mer.beta=0.5 precision.mode=bf16"
# Most of the time goes into the Fisher.
fisher="continual.strategy=ewc ewc.fisher_samples=1500 max_steps=20 precision.mode=fp32"
# The first steps overflow and are skipped; later the scale grows until it overflows again.
fp16="continual.strategy=er precision.mode=fp16 precision.init_scale=1e13 precision.growth_interval=6"

start() { # FOLDER: the run in the background, its process in $pid
    # shellcheck disable=SC2086
    (cd "$1" && exec "$trainer" --config ../tasks.yaml $options >out 2>err) &
    pid=$!
}

finished() {
    grep -q '"event":"end"' killed/run/metrics.jsonl 2>/dev/null
}

undisturbed() { # OPTIONS: leaves calm/run and calm.bits, and whole_ms
    options="$common $1"
    rm -rf calm killed
    mkdir calm killed
    local began
    began=$(date +%s%N)
    # shellcheck disable=SC2086
    (cd calm && "$trainer" --config ../tasks.yaml $options >out 2>err) || fail "undisturbed: $(tail -n 1 calm/err)"
    whole_ms=$((($(date +%s%N) - began) / 1000000))
    bits calm/run >calm.bits
}

# Resume to the end and compare.
compare() {
    # shellcheck disable=SC2086
    (cd killed && "$trainer" --config ../tasks.yaml $options >out 2>err) || fail "resumed: $(tail -n 1 killed/err)"
    bits killed/run >killed.bits
    same calm.bits killed.bits
    [ "$(find killed/run/checkpoints -name '.tmp-*' | wc -l)" = 0 ] || fail "temporary folders are left"
}

# --- phases: each watcher returns once its phase has begun; each proof tells afterwards whether the kill was in it ---
last_step=100 # the end of the second task, of 50 steps as the first
in_fisher() {
    grep -q 'task facts: Fisher information' killed/err 2>/dev/null
}
was_in_fisher() {
    [ "$(grep -c '"event":"importance"' killed/run/metrics.jsonl)" = 1 ]
}
in_save() {
    compgen -G 'killed/run/checkpoints/.tmp-step-*' >/dev/null
}
was_in_save() {
    in_save
}
in_boundary() {
    [ -d killed/run/checkpoints/step-"$(printf %08d $last_step)" ]
}
was_in_boundary() {
    in_boundary && ! grep -q "\"event\":\"matrix\",\"step\":$last_step," killed/run/metrics.jsonl
}

kill_in() { # PHASE OPTIONS
    local phase=$1 attempt hit=
    undisturbed "$2"
    for attempt in $(seq 30); do
        rm -rf killed
        mkdir killed
        start killed
        until "in_$phase" || finished; do :; done
        kill -9 $pid 2>/dev/null
        wait $pid 2>/dev/null
        if "was_in_$phase" && ! finished; then
            hit=yes
            break
        fi
    done
    [ -n "$hit" ] || fail "no kill of $attempt came in phase $phase"
    compare
    echo "killed in phase $phase (attempt $attempt)"
}

kill_in fisher "$mer ewc.fisher_samples=3000"
kill_in save "$mer"
kill_in boundary "$mer evaluation.batches=400 tasks.0.validation=60% tasks.0.synthetic_tokens=100000"

# --- random moments ---
for configuration in "$mer" "$fisher" "$fp16"; do
    undisturbed "$configuration"
    kills=0 attempts=0
    while [ "$kills" -lt "$moments" ] && [ "$attempts" -lt $((moments * 20)) ]; do
        attempts=$((attempts + 1))
        # Early kills keep the run from finishing before the last of the moments.
        wait_ms=$((RANDOM % (whole_ms / 3 + 1) + 5))
        start killed
        sleep "$(printf '%d.%03d' $((wait_ms / 1000)) $((wait_ms % 1000)))"
        if kill -9 $pid 2>/dev/null; then kills=$((kills + 1)); fi
        wait $pid 2>/dev/null
        # A run that came to its end is compared and starts over, so that every kill hits a living one.
        if [ "$kills" -lt "$moments" ] && finished; then
            compare
            rm -rf killed/run
        fi
    done
    compare
    skipped=$(grep -c '^info: step [0-9]* skipped' calm/err)
    echo "$kills kills of $configuration ($whole_ms ms, $skipped steps skipped)"
    case $configuration in
    *fp16*) [ "$skipped" -gt 0 ] || fail "no step was skipped" ;;
    esac
done
finish
