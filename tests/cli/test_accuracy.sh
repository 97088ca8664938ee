#!/bin/bash
# SPDX-License-Identifier: MIT
# What is remembered: accuracies next to losses in the record, the log, the page and the commands; every task measured
# during training; prompts continued at the end.  None of it changes training, and none is lost or doubled by a kill.
. "$(dirname "$0")/lib.sh"
tiny_tasks

# member FILE EVENT KEY: a number or a list of the event's last line.
member() {
    grep "\"event\":\"$2\"" "$1" | tail -n 1 | sed -E "s/.*\"$3\":(\[[^]]*\]|[^,}]*).*/\1/"
}

# accuracies NAME: the matrix's rows, of prompts seen in training.
accuracies() {
    grep '"event":"matrix"' "$1/metrics.jsonl" | tail -n 1 | sed -E 's/.*"accuracy_seen":\[(\[.*\])\],"accuracy_unseen":.*/\1/; s/\],\[/]\n[/g'
}

# steps_of NAME: the training losses.
steps_of() {
    record "$1" | grep '"event":"step"'
}

# --- measuring changes no bit of training ---
options="continual.strategy=[ewc,er] evaluation.every=5"
# shellcheck disable=SC2086
expect 0 "$trainer" --config tasks.yaml $options out_dir=plain evaluation.items=0 evaluation.show=0
# shellcheck disable=SC2086
expect 0 "$trainer" --config tasks.yaml $options out_dir=measured evaluation.items=30 evaluation.all_tasks_every=3
steps_of plain >plain.steps
steps_of measured >measured.steps
same plain.steps measured.steps
for file in model.safetensors optimizer.safetensors; do
    same "plain/checkpoints/$(cat plain/checkpoints/latest)/$file" "measured/checkpoints/$(cat measured/checkpoints/latest)/$file"
done
grep -q accuracy_seen plain/metrics.jsonl && ! grep -q '"accuracy_seen":null' plain/metrics.jsonl && fail "accuracies without items"
grep -q '"event":"samples"' plain/metrics.jsonl && fail "evaluation.show=0 shows prompts"

# --- the record ---
# 36 steps, tasks of 12: boundaries have a row of the matrix, the other multiples of 3 a record of every task.
grep '"event":"tasks"' measured/metrics.jsonl | sed -E 's/.*"step":([0-9]+).*/\1/' | tr '\n' ' ' >surveyed
[ "$(cat surveyed)" = "3 6 9 15 18 21 27 30 33 " ] || fail "every task was measured at $(cat surveyed)"
for key in names losses accuracy_seen accuracy_unseen; do
    [ "$(member measured/metrics.jsonl tasks $key | tr -cd , | wc -c)" = 2 ] || fail "tasks record: three $key expected"
done
[ "$(accuracies measured | wc -l)" = 4 ] || fail "four rows of accuracies expected"
grep '"event":"eval"' measured/metrics.jsonl | grep -q '"bits_per_byte":[0-9.]*,"accuracy_seen":' || fail "eval records without accuracy"
says out "exact completions, prompts seen in training"
says out "bits per byte"
says err "prompts, each with what the model makes of it"
[ "$(grep -c ' -> ' err)" = 9 ] || fail "three prompts of each task expected"
[ "$(grep -o '"prompt"' measured/metrics.jsonl | wc -l)" = 9 ] || fail "nine samples expected in the record"
for text in "What is remembered word for word" "Prompts and their continuations" "higher is better" "lower is better"; do
    says measured/report.html "$text"
done

# --- killed and resumed: one record a due step, the same bits ---
# shellcheck disable=SC2086
expect 0 "$trainer" --config tasks.yaml $options out_dir=many evaluation.items=30 evaluation.all_tasks_every=3 checkpoint_freq=1 keep_checkpoints=1000
mv many whole
bits whole >whole.bits
for step in 00000003 00000006 00000012 00000013 00000024 00000036; do
    # shellcheck disable=SC2086
    goes_on_from "whole/checkpoints/step-$step" "$trainer" --config tasks.yaml $options evaluation.items=30 \
        evaluation.all_tasks_every=3 checkpoint_freq=1 keep_checkpoints=1000
done

# --- eval ---
expect 0 "$trainer" eval --checkpoint measured
says out "of 30 prompts seen in training"
says out "bits per byte"
expect 0 "$trainer" eval --checkpoint measured --json
[ "$(grep -o '"accuracy_seen": *[0-9.]' out | wc -l)" = 3 ] || fail "eval --json: three accuracies expected"
# What eval finds over as many windows is what the run's last row says.
expect 0 "$trainer" eval --checkpoint measured --batches 2 --json
found=$(grep -oE '"accuracy_seen": *[0-9.]+' out | sed 's/.*: *//' | paste -sd,)
[ "$(accuracies measured | tail -n 1)" = "[$found]" ] || fail "eval says $found, the matrix another"

# --- joint: no forgetting, and none said ---
expect 0 "$trainer" --config tasks.yaml continual.strategy=joint out_dir=joint evaluation.items=10
says out "forgetting             none"
grep -i 'nan' out err joint/metrics.jsonl joint/report.html | grep -vi 'finance\|device' | grep -q . && fail "a joint run says nan"
says joint/report.html ">none<"
[ "$(member joint/metrics.jsonl matrix forgetting)" = null ] || fail "joint: forgetting must be null"
expect 0 "$trainer" compare --config tasks.yaml --strategies none,joint --seeds 1 out_dir=both evaluation.items=10
grep -w 'nan' out err both-compare/compare.html both-compare/*.json && fail "compare says nan"
grep -qE '^joint .* none ' out || fail "the table does not say that joint forgets none"
says out "exact"

# --- one task of a file, with a tokenizer of bytes ---
for i in 1 2 3 4 5 6; do
    for pair in a:xy b:yz c:zx d:xx e:yy; do
        printf '{"prompt": "%s>", "completion": "%s"}\n' "${pair%:*}" "${pair#*:}"
    done
done >pairs.jsonl
printf '{"prompt": "f>", "completion": "xyz"}\n' >more.jsonl
cat more.jsonl more.jsonl more.jsonl more.jsonl more.jsonl more.jsonl >held.jsonl
sed '/  - {name/d; s/^tasks:/tasks: [{name: pairs, train: pairs.jsonl, validation: held.jsonl}]/; s/kind: char/kind: byte/' tasks.yaml >one.yaml
expect 0 "$trainer" --config one.yaml out_dir=one max_length=16 evaluation.show=2 evaluation.all_tasks_every=4
[ "$(grep -c '"event":"tasks"' one/metrics.jsonl)" = 2 ] || fail "a run of one task: records expected at 4 and 8, and at 12 its evaluation"
grep -q '"event":"eval".*"accuracy_seen":[01].*"accuracy_unseen":[01]' one/metrics.jsonl || fail "no accuracies of pairs"
says err 'pairs: "f>" -> '
expect 0 "$trainer" eval --checkpoint one
says out "of 5 prompts seen in training"
says out "of 1 prompts unseen in training"

# --- refused ---
expect 2 "$trainer" --config tasks.yaml out_dir=refused evaluation.items=-1
expect 2 "$trainer" --config tasks.yaml out_dir=refused evaluation.all_tasks_every=-1
expect 2 "$trainer" --config tasks.yaml out_dir=refused evaluation.show=-2
[ ! -d refused ] || fail "a refused run left a folder"
finish
