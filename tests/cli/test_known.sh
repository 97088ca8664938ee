#!/bin/bash
# SPDX-License-Identifier: MIT
# tasks.N.known: what the model has learned before the run is protected and followed, and changes no weight; the rest has
# the learning rates of a run without it.
. "$(dirname "$0")/lib.sh"
tiny_tasks
sed -i 's/dropout: 0.1/dropout: 0/' tasks.yaml
expect 0 "$trainer" --config tasks.yaml out_dir=base tasks.1.steps=1 tasks.2.steps=1 evaluation.watch=false
# The same tasks after it: addition is known.
sed -e '/^model/d; /^tokenizer/d; s/name: addition,/name: addition, known: true,/' -e '1i init_from: base' tasks.yaml >after.yaml
sed '/name: addition/d' after.yaml >without.yaml

# weights FOLDER: of a checkpoint, by their names
weights() {
    sha256sum <"$1/model.safetensors"
}

# matrix FOLDER ROW COLUMN: a loss, rows and columns from 1
matrix() {
    grep '"event":"matrix"' "$1/metrics.jsonl" | tail -n 1 |
        sed -E 's/.*"losses":\[(\[.*\])\],"untrained".*/\1/; s/\],\[/\n/g; s/[][]//g' | sed -n "$2p" | cut -d, -f "$3"
}

# One after the other and with a checkpoint at the known task's end: its weights are those that it began with.
for options in "none" "[ewc,er]" "mer" "merge" "generative" "der++" "er optimizer.kind=muon" \
    "ewc precision.mode=bf16 precision.master_weights=false"; do
    rm -rf run
    # shellcheck disable=SC2086
    expect 0 "$trainer" --config after.yaml checkpoint_freq=1 keep_checkpoints=99 continual.strategy=$options
    says err "known already: no weight changes"
    known=$(grep -oE "addition, [0-9]+ step" err | grep -oE "[0-9]+" | head -n 1)
    first=$(printf 'run/checkpoints/step-%08d' "$known")
    before=run/checkpoints/step-00000001
    [ "$(weights "$before")" = "$(weights "$first")" ] || fail "$options: weights changed in a known task"
    [ "$(matrix run 1 1)" = "$(grep '"event":"matrix"' run/metrics.jsonl | head -n 1 | sed -E 's/.*"untrained":\[([^,]*),.*/\1/')" ] ||
        fail "$options: the known task's loss is not the one that the run began with"
done
# Three steps fill a buffer of 12; one does where nothing is replayed; keys of the task's own come before both.
for expected in "3 er replay.buffer_size=12" "6 er" "1 ewc" "1 none" "5 er tasks.0.steps=5"; do
    rm -rf run
    # shellcheck disable=SC2086
    set -- $expected
    expect 0 "$trainer" --config after.yaml continual.strategy="$2" ${3:+"$3"} max_steps=2
    says err "addition, $1 steps"
done

# The schedule begins where training does: the rates of a run without the task.
for schedule in fresh single infinite rewarm; do
    rm -rf run alone
    expect 0 "$trainer" --config after.yaml continual.schedule=$schedule continual.optimizer_state=keep tasks.0.steps=3 logging.every=1
    expect 0 "$trainer" --config without.yaml out_dir=alone continual.schedule=$schedule continual.optimizer_state=keep logging.every=1
    for name in run alone; do
        grep '"event":"step"' $name/metrics.jsonl | sed -E 's/.*"learning_rate":([^,]*),.*/\1/' >$name.rates
    done
    head -n 3 run.rates | cmp -s - <(printf '0\n0\n0\n') || fail "$schedule: a rate other than 0 in the known task"
    tail -n +4 run.rates | cmp - alone.rates || fail "$schedule: other rates than without the known task"
done

# One task that is trained has the schedule that is set: no rate could be held from one to the next.
rm -rf run
expect 0 "$trainer" --config after.yaml continual.strategy=er tasks.2.steps=2
says err "continual.schedule auto: infinite"
rm -rf run
sed '/name: reversal/d' after.yaml >one.yaml
expect 0 "$trainer" --config one.yaml continual.strategy=er
! grep -q "continual.schedule auto" err || fail "er holds a rate for one task"

# What protects it: replayed from the first trained task on, and less of it lost.
rm -rf run
expect 0 "$trainer" --config after.yaml continual.strategy=none
unprotected=$(matrix run 3 1)
rm -rf run
expect 0 "$trainer" --config after.yaml continual.strategy=er replay.fraction=0.5
awk -v a="$(matrix run 3 1)" -v b="$unprotected" 'BEGIN { exit !(a < b) }' || fail "er protects nothing of what is known"
# An adapter: drawn for the first task that trains it, so that a share of nothing leaves the model as it was.
rm -rf run
expect 0 "$trainer" --config after.yaml adapter.kind=lora continual.strategy=merge merge.share=0 tasks.2.steps=1 max_steps=6 learning_rate=1e-2
[ "$(matrix run 1 1)" = "$(matrix run 2 1)" ] || fail "merge.share 0 with an adapter: the known task's loss moved"

# Interrupted anywhere, and MER's trial, which is of the first task that is trained.
rm -rf run whole
options="max_steps=4 tasks.0.steps=3 checkpoint_freq=1 keep_checkpoints=99 continual.strategy=[ewc,er,merge]"
# shellcheck disable=SC2086
expect 0 "$trainer" --config after.yaml $options
mv run whole
bits whole >whole.bits
for checkpoint in whole/checkpoints/step-*; do
    # shellcheck disable=SC2086
    goes_on_from "$checkpoint" "$trainer" --config after.yaml $options
done
rm -rf run
expect 0 "$trainer" --config after.yaml continual.strategy=mer mer.beta=0.1 mer.gamma=0.1 max_steps=40 tasks.0.steps=2
says err "trial: the learning rate is"
# joint trains on it, too.
expect 0 "$trainer" --config after.yaml out_dir=joint continual.strategy=joint max_steps=4

# --- what is refused ---
refused() {
    local message=$1
    shift
    expect 2 "$trainer" --config "$@"
    says err "$message"
}
refused "the model begins untrained: it knows nothing; set init_from" tasks.yaml tasks.0.known=true
refused "tasks.2.known is true, and a task that is trained stands before it, facts" after.yaml tasks.2.known=true out_dir=x
refused "there is nothing to train; append a task" after.yaml tasks.1.known=true tasks.2.known=true out_dir=x
refused "contradicts continual.boundaries: none" after.yaml continual.boundaries=none continual.strategy=er out_dir=x
refused "tasks.0.retain is false, and the model knows that task already" after.yaml tasks.0.retain=false out_dir=x
rm -rf run
expect 0 "$trainer" --config after.yaml continual.strategy=er max_steps=2
refused "tasks.0.known is false, and was true in run" after.yaml continual.strategy=er max_steps=2 tasks.0.known=false
finish
