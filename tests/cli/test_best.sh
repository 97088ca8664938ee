#!/bin/bash
# SPDX-License-Identifier: MIT
# keep_best and early_stop: against the record of the evaluations themselves, over interruptions, and over several tasks.
. "$(dirname "$0")/lib.sh"
tiny_config
tiny_tasks

# evaluations DIR [TASK]: "step loss" of the evaluations in training.
evaluations() {
    sed -nE "s/.*\"event\":\"eval\",\"step\":([0-9]+)${2:+,\"task\":$2}.*\"val_loss\":([0-9.e+-]+).*/\1 \2/p" "$1/metrics.jsonl"
}
lowest() {
    sort -s -g -k 2 | head -n 1
}

# The learning rate climbs until the run goes astray, so that the best is in the middle.
astray="learning_rate=2 schedule.warmup_steps=40 schedule.kind=constant max_steps=40 evaluation.every=4 checkpoint_freq=6 keep_checkpoints=1"
expect 0 "$trainer" --config tiny.yaml $astray keep_best=true
read -r step loss < <(evaluations run | lowest)
{ [ "$step" -gt 4 ] && [ "$step" -lt 32 ]; } || fail "the lowest loss is at step $step, which tests nothing"
name=$(printf 'step-%08d' "$step")
[ "$(cat run/checkpoints/best)" = "$name" ] || fail "best is $(cat run/checkpoints/best), the lowest loss is at step $step"
[ "$(ls run/checkpoints | tr '\n' ' ')" = "best latest $name step-00000040 " ] || fail "kept: $(ls run/checkpoints)"
says err "best checkpoint: run/checkpoints/best"
# The commands take it by option and by name, and it is the one that was measured.
expect 0 "$trainer" eval --checkpoint run --best --batches 2
says out "checkpoint       run/checkpoints/$name"
says out "$(printf 'validation loss  %.6f' "$loss")"
cp out by_option
expect 0 "$trainer" eval --checkpoint run/checkpoints/best --batches 2
same by_option out
expect 0 "$trainer" eval --checkpoint run/checkpoints/latest --batches 2
says out "step-00000040"
expect 0 "$trainer" generate --checkpoint run --best --tokens 3
expect 0 "$trainer" inspect --checkpoint run --best
# A finished run that is started again leaves all of it as it is.
bits run >once
expect 0 "$trainer" --config tiny.yaml $astray keep_best=true
bits run >twice
same once twice
[ "$(cat run/checkpoints/best)" = "$name" ] || fail "best moved to $(cat run/checkpoints/best)"

# Patience: by hand from the undisturbed record.
stop=$(evaluations run | awk -v patience=3 -v delta=0.01 '
    NR == 1 || $2 < gain - delta { gain = $2; waited = 0; next }
    ++waited == patience { print $1; exit }')
[ -n "$stop" ] || fail "no stall in the record"
early="$astray early_stop.patience=3 early_stop.min_delta=0.01"
expect 0 "$trainer" --config tiny.yaml $early out_dir=early
says err "early stop at step $stop: 3 evaluations in a row without a gain"
says early/metrics.jsonl "{\"event\":\"early_stop\",\"step\":$stop,\"evaluations\":3,"
says early/report.html "ended early"
says early/report.html "at step $stop, after 3 evaluations without a gain"
[ "$(cat early/checkpoints/latest)" = "$(printf 'step-%08d' "$stop")" ] || fail "the run continued to $(cat early/checkpoints/latest)"
evaluations early >stopped
evaluations run | head -n "$(wc -l <stopped)" >part
same stopped part
# It is over: the same command finds nothing to do, more patience continues, as if there had been more from the start.
bits early >once
expect 0 "$trainer" --config tiny.yaml $early out_dir=early
says err "the run ended early at step $stop"
bits early >twice
same once twice
expect 0 "$trainer" --config tiny.yaml $astray out_dir=early
evaluations early >gone_on
evaluations run >whole
same whole gone_on

# From every checkpoint of a run that is interrupted, also of the instant in which the best is saved or the task ends:
# the same record, the same files, the same best.
resume_everywhere() {
    local checkpoint config=$1
    shift
    rm -rf whole run
    # shellcheck disable=SC2086
    expect 0 "$trainer" --config $config "$@" keep_checkpoints=1000
    mv run whole
    bits whole >whole.bits
    for checkpoint in whole/checkpoints/step-*; do
        goes_on_from "$checkpoint" "$trainer" --config $config "$@" keep_checkpoints=1000
        for name in whole/checkpoints/best*; do
            # Of the checkpoint that went along itself, the name was written before `latest`.
            [ "$(cat "$name")" \> "$(basename "$checkpoint")" ] || continue
            same "$name" "run/checkpoints/$(basename "$name")"
        done
    done
}
# shellcheck disable=SC2086
resume_everywhere tiny.yaml $early keep_best=true checkpoint_freq=9 max_steps=30
grep -q '"event":"early_stop"' whole/metrics.jsonl || fail "no early stop was interrupted"

# A run that died in an evaluation owes it: what it saves then, before its first step, still knows where the data stood.
owed="max_steps=18 checkpoint_freq=6 evaluation.every=6 keep_checkpoints=9"
rm -rf run
expect 0 "$trainer" --config tiny.yaml $owed keep_best=true out_dir=whole-owed
expect 0 "$trainer" --config tiny.yaml $owed # without a best: each checkpoint is of the instant before the evaluation
mkdir -p owed/checkpoints
cp -r run/checkpoints/step-00000006 owed/checkpoints
echo step-00000006 >owed/checkpoints/latest
cp run/metrics.jsonl run/events.* owed
expect 0 "$trainer" --config tiny.yaml $owed keep_best=true out_dir=owed
bits whole-owed >whole.bits
bits owed >owed.bits
same whole.bits owed.bits

# Several tasks: patience ends one and the next begins; each has its own best.
tasks="learning_rate=0.3 continual.strategy=er checkpoint_freq=0 evaluation.every=3 max_steps=15 keep_best=true early_stop.patience=2 early_stop.min_delta=3"
resume_everywhere tasks.yaml $tasks
grep -qE '"event":"early_stop","step":[0-9]+,"task"' whole/metrics.jsonl || fail "no task ended early"
[ "$(grep -c '"event":"matrix"' whole/metrics.jsonl)" = 4 ] || fail "four rows expected"
for task in 0 1 2; do
    # The task's own entry of its row counts too.
    row=$(grep "\"event\":\"matrix\".*\"task\":$task" whole/metrics.jsonl)
    own=$(grep -oE '"losses":\[.*\]\],"untrained' <<<"$row" | grep -oE '\[[^][]*\]' | sed -n "$((task + 1))p" | tr -d '[]' | cut -d, -f$((task + 1)))
    step=$({ evaluations whole $task; echo "$(grep -oE '"step":[0-9]+' <<<"$row" | cut -d: -f2) $own"; } | lowest | cut -d' ' -f1)
    [ "$(cat whole/checkpoints/best-$((task + 1)))" = "$(printf 'step-%08d' "$step")" ] ||
        fail "task $task: best is $(cat whole/checkpoints/best-$((task + 1))), the lowest loss is at step $step"
done
same whole/checkpoints/best whole/checkpoints/best-3

# A longer run keeps the rows that it measured before.
expect 0 "$trainer" --config tasks.yaml max_steps=4 evaluation.every=0 out_dir=longer
rows() { grep '"event":"matrix"' longer/metrics.jsonl | sed -E 's/.*"losses":\[(.*)\],"untrained.*/\1/' | tail -n 1 | grep -oE '\[[^][]*\]' | head -n 2; }
rows >before
expect 0 "$trainer" --config tasks.yaml max_steps=8 evaluation.every=0 out_dir=longer
rows >after
same before after
[ "$(grep -c '"event":"matrix"' longer/metrics.jsonl)" = 4 ] || fail "a longer run has $(grep -c '"event":"matrix"' longer/metrics.jsonl) rows"

# Refused where nothing is evaluated on the way, or nothing is kept.
expect 2 "$trainer" --config tiny.yaml evaluation.every=0 early_stop.patience=2 out_dir=none
says err "early_stop.patience uses evaluations during training, but evaluation.every is 0"
expect 2 "$trainer" --config tiny.yaml evaluation.every=0 keep_best=true out_dir=none
says err "keep_best uses evaluations"
expect 2 "$trainer" --config tiny.yaml early_stop.patence=2
says err "did you mean early_stop.patience?"
expect 1 "$trainer" eval --checkpoint longer --best
says err "longer: no best checkpoint is kept there"
echo step-99 >longer/checkpoints/best
expect 1 "$trainer" eval --checkpoint longer --best
says err "best: \`step-99\` is not the name of a checkpoint"
echo step-00000099 >longer/checkpoints/best
expect 1 "$trainer" eval --checkpoint longer --best
says err "longer/checkpoints/best names step-00000099"
finish
