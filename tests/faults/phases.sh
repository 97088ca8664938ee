#!/bin/bash
# SPDX-License-Identifier: MIT
# phases.sh: runs over three tasks, killed with -9 once (COUNT times) in each phase that is short or rare: while the
# Fisher is measured, while a checkpoint is written, between a task's checkpoint and its row of the matrix.  Every time the
# run is resumed; in the end the record and the final checkpoint must equal those of an undisturbed run, byte for byte
# (times excepted).  kills.sh kills at moments that are drawn.
count=${COUNT:-1}
. "$(dirname "$0")/../cli/lib.sh"
tiny_tasks

# Saving every second step makes a save, a group left open and a boundary likely moments.
common="checkpoint_freq=2 max_steps=50 logging.every=1 evaluation.every=7"
mer="continual.strategy=[ewc,mer] mer.group_steps=4 mer.groups=2 mer.beta=0.5 precision.mode=bf16"
killed=0

start() { # FOLDER: the run in the background, its process in $pid
    # shellcheck disable=SC2086
    (cd "$1" && exec "$trainer" --config ../tasks.yaml $options >out 2>err) &
    pid=$!
}

finished() {
    grep -q '"event":"end"' killed/run/metrics.jsonl 2>/dev/null
}

undisturbed() { # OPTIONS: leaves calm/run and calm.bits
    options="$common $1"
    rm -rf calm killed
    mkdir calm killed
    # shellcheck disable=SC2086
    (cd calm && "$trainer" --config ../tasks.yaml $options >out 2>err) || fail "undisturbed: $(tail -n 1 calm/err)"
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

# --- phases: each watcher returns once its phase has begun; each proof shows afterwards whether the kill was in it ---
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
    killed=$((killed + 1))
    echo "  killed in phase $phase (attempt $attempt)"
}

for ((turn = 0; turn < count; turn++)); do
    kill_in fisher "$mer ewc.fisher_samples=3000"
    kill_in save "$mer"
    kill_in boundary "$mer evaluation.batches=400 tasks.0.validation=60% tasks.0.synthetic_tokens=100000"
done
echo "phases: $killed kills in three phases, $failures differences"
finish
