#!/bin/bash
# SPDX-License-Identifier: MIT
# A stream of tasks that grows: a run of three tasks, finished, stopped or killed at any moment, continues with a fourth
# and equals the run that had four from the start; what makes its past untrue is refused by name, and changes no file.
# With COUNT=N, N runs are killed at random moments (SEED=N draws others); tests/faults/growing.sh does that in numbers.
. "$(dirname "$0")/lib.sh"
RANDOM=${SEED:-1}

# tasks LINE...: the configuration on standard output, with these tasks.
tiny_tasks
addition='{name: addition, train: "synthetic:addition", synthetic_tokens: 8000}'
facts='{name: facts, train: "synthetic:facts", synthetic_tokens: 8000}'
reversal='{name: reversal, train: "synthetic:reversal", synthetic_tokens: 8000}'
more='{name: more, train: "synthetic:facts", synthetic_tokens: 9000, steps: 9, learning_rate: 2e-3}'
tasks() {
    sed '/^tasks:/,/name: reversal/d' tasks.yaml
    echo tasks:
    printf '  - %s\n' "$@"
}
tasks "$addition" "$facts" "$reversal" >three.yaml
tasks "$addition" "$facts" "$reversal" "$more" >four.yaml

# steps DIR: the record of what was trained.  A task that was not yet known is in no row of the matrix, its rate in no
# record of importance, and tasks have no number while there is one.
steps() {
    record "$1" | grep -vE '"event":"(matrix|changed)"' | sed -E 's/,"rate_strength_maximum":[^,]*//; s/,"task":[0-9]+//'
}

# state DIR: the latest checkpoint, to the bit, but for the matrix and the record's length.
state() {
    local folder
    folder=$1/checkpoints/$(cat "$1/checkpoints/latest")
    grep -vE '"(jsonl|tensorboard)_bytes"' "$folder/trainer.json" | sed '/"matrix_untrained"/,$d'
    tensors "$1" | grep -v trainer.json
}

# figures DIR: the untrained row and all rows of the last matrix, a loss a line.
figures() {
    grep '"event":"matrix"' "$1/metrics.jsonl" | tail -n 1 |
        sed -E 's/.*"losses":(.*),"untrained":(.*),"floor".*/\2,\1/' | tr -d '[]' | tr , '\n'
}

# equals A B NULLS: B grew to what A was; NULLS losses of its matrix could not be measured, the others are A's.
equals() {
    same <(steps "$1") <(steps "$2")
    same <(state "$1") <(state "$2")
    paste -d' ' <(figures "$1") <(figures "$2") | awk -v want="$3" -v name="$2" '
        $2 == "null" { absent++; next }
        $1 != $2 { print name ": a loss of the matrix is " $2 ", and " $1 " of the run from the start"; exit 1 }
        END { if (absent + 0 != want) { print name ": " absent + 0 " losses are absent, not " want; exit 1 } }' ||
        fail "the matrix of $2"
}

# --- a rate that is held from task to task, and comes down in the last one: known only as long as it has not ---
# rates DIR: step and learning rate of each record.
rates() {
    sed -nE 's/^\{"event":"step","step":([0-9]+),.*"learning_rate":([^,]*),.*/\1 \2/p' "$1/metrics.jsonl"
}
held="continual.strategy=er continual.schedule=infinite schedule.min_learning_rate=1e-5 logging.every=1"
# shellcheck disable=SC2086
expect 0 "$trainer" --config three.yaml out_dir=held $held
rates held >three.rates
# shellcheck disable=SC2086
expect 0 "$trainer" --config four.yaml out_dir=held $held
says err "as if they had been listed from the start, but for the learning rate: it came down"
rates held >four.rates
# shellcheck disable=SC2086
expect 0 "$trainer" --config four.yaml out_dir=straight $held
rates straight >straight.rates
same three.rates <(head -n "$(wc -l <three.rates)" four.rates)
awk -v half="$(($(wc -l <three.rates) / 3 / 2))" '
    FILENAME == "three.rates" { third[FNR] = $2; steps = FNR; next }
    FILENAME == "straight.rates" { straight[FNR] = $2; next }
    { grown[FNR] = $2; all = FNR }
    END {
        for (i = 1; i <= steps - half; i++) if (third[i] != straight[i]) { print "step " i ": " third[i] " and " straight[i]; bad = 1 }
        if (!(third[steps] < 0.5 * third[steps - half]) || straight[steps] != straight[steps - half]) { print "the third task ends at " third[steps] " and " straight[steps]; bad = 1 }
        if (!(grown[steps + 1] > third[steps]) || !(grown[all] < 0.5 * 2e-3)) { print "the fourth runs from " grown[steps + 1] " to " grown[all]; bad = 1 }
        exit bad
    }' three.rates straight.rates four.rates || fail "the rates of an infinite schedule"
# From the checkpoint before it came down the run grows to the bit, once.
rm -rf held straight
# shellcheck disable=SC2086
expect 0 "$trainer" --config three.yaml out_dir=held $held
# shellcheck disable=SC2086
expect 0 "$trainer" --config four.yaml out_dir=straight $held
[ -f held/checkpoints/held ] || fail "no checkpoint is held"
cp -r held again
# shellcheck disable=SC2086
expect 0 "$trainer" --config four.yaml out_dir=held $held resume=held
says err "resume held: back to the checkpoint before the learning rate was let down, in held"
same <(steps straight) <(steps held)
same <(state straight) <(state held)
# The same command again goes back to where the new last task's rate was held until.
# shellcheck disable=SC2086
expect 0 "$trainer" --config four.yaml out_dir=again $held resume=held
# shellcheck disable=SC2086
expect 0 "$trainer" --config four.yaml out_dir=again $held resume=held
says err "resume held: back to the checkpoint before the learning rate was let down, in again"
same <(state straight) <(state again)
# shellcheck disable=SC2086
expect 0 "$trainer" --config three.yaml out_dir=plain continual.strategy=none resume=held
says err "resume held: plain keeps none of before a learning rate was let down"
sed -i 's/^continual: {strategy: none}/continual: {strategy: none, schedule: fresh, optimizer_state: reset}/' tasks.yaml three.yaml four.yaml

# --- every strategy, several modes: finished, then longer ---
grows() { # OVERRIDES...
    rm -rf whole grown
    expect 0 "$trainer" --config four.yaml out_dir=whole "$@"
    expect 0 "$trainer" --config three.yaml out_dir=grown "$@"
    expect 0 "$trainer" --config four.yaml out_dir=grown "$@"
    says err "new tasks: more; the run had 3 until here, and continues as if they had been listed from the start"
    equals whole grown 2
}
mer="mer.group_steps=3 mer.beta=0.5"
grows continual.strategy=none gradient_accumulation_steps=2 memory.recompute=block continual.optimizer_state=keep
grows continual.strategy=l2 continual.schedule=rewarm optimizer.kind=sgd learning_rate=0.05
# shellcheck disable=SC2086
grows 'continual.strategy=[ewc,mer]' $mer mer.groups=2 precision.mode=bf16
grows 'continual.strategy=[ewc,a-gem]' ewc.mode=separate ewc.step=proximal gradient_accumulation_steps=2
grows continual.strategy=ewc ewc.block_size=24 # factors, and a strength that the new task decides
grows 'continual.strategy=[si,er]' precision.mode=fp16 precision.init_scale=1e13 precision.growth_interval=4
grows continual.strategy=mer mer.mode=algorithm6 mer.gamma=0.3
# shellcheck disable=SC2086
grows continual.strategy=mer mer.mode=algorithm7 $mer precision.mode=bf16 precision.master_weights=false
grows continual.strategy=mer mer.mode=reptile optimizer.kind=muon
grows continual.strategy=er evaluation.every=3 early_stop.patience=1 early_stop.min_delta=0.5 keep_best=true
grep -q '"event":"early_stop"' grown/metrics.jsonl || fail "no task ended early"
same whole/checkpoints/best-3 grown/checkpoints/best-3
same whole/checkpoints/best-4 grown/checkpoints/best-4

# What a reader of the run sees.
says grown/metrics.jsonl '{"event":"changed","step":'
says grown/metrics.jsonl '"keys":"tasks: more appended"'
says grown/config.yaml "name: more"
says grown/report.html "after more"
says grown/report.html "tasks: more appended"
says grown/run.json '"name":"more"'
expect 0 "$trainer" --config four.yaml out_dir=grown continual.strategy=er evaluation.every=3 early_stop.patience=1 early_stop.min_delta=0.5 keep_best=true
[ "$(grep -c '"event":"changed"' grown/metrics.jsonl)" = 1 ] || fail "an appended task is recorded twice"
grep -E '^after (addition|facts) .* - *$' out >table # nothing is printed again
expect 0 "$trainer" report --run grown
expect 0 "$trainer" eval --checkpoint grown
says out more

# --- one task becomes two, then three at once; no char of theirs is new ---
tasks "$facts" >one.yaml
tasks "$facts" "$more" >two.yaml
tasks "$facts" "$more" "${facts/name: facts/name: again}" "${facts/name: facts/name: last}" >many.yaml
for keep in false true; do
    keys="continual.strategy=[ewc,er] keep_best=$keep"
    rm -rf whole grown
    for file in one two many; do
        # shellcheck disable=SC2086
        expect 0 "$trainer" --config $file.yaml out_dir=grown $keys
    done
    # shellcheck disable=SC2086
    expect 0 "$trainer" --config many.yaml out_dir=whole $keys
    same <(state whole) <(state grown)
    [ $keep = true ] || equals whole grown 2
done
# Where the best checkpoint is younger than the row, the row is measured again: the two runs' own, and those of the third.
[ "$(grep -c '"event":"matrix"' grown/metrics.jsonl)" = 5 ] || fail "five rows expected, one of them measured twice"
for task in 1 2 3 4; do same whole/checkpoints/best-$task grown/checkpoints/best-$task; done

# Stopped in its only task: every row is still to come.
keys="continual.strategy=[ewc,er]"
rm -rf whole grown
expect 0 "$trainer" --config many.yaml out_dir=whole $keys
expect 0 "$trainer" --config one.yaml out_dir=grown $keys
rm -r grown/checkpoints/step-00000012
echo step-00000010 >grown/checkpoints/latest
expect 0 "$trainer" --config many.yaml out_dir=grown $keys
equals whole grown 0

# --- a comparison of strategies grows with its runs ---
for file in three four; do
    expect 0 "$trainer" compare --config $file.yaml --strategies none,er --seeds 1 --out compared max_steps=5
done
says compared/compare.html "after more"
says compared/er-seed7/metrics.jsonl '"keys":"tasks: more appended"'
grep -q '"forgetting": *{ *"mean": *null' <(tr -d '\n' <compared/compare.json) && fail "compare knows no forgetting"

# --- stopped in any task, by each of its checkpoints ---
options="continual.strategy=[ewc,mer] mer.group_steps=3 mer.groups=2 mer.beta=0.5 checkpoint_freq=4 keep_checkpoints=1000 max_steps=7 precision.mode=bf16"
rm -rf whole part
# shellcheck disable=SC2086
expect 0 "$trainer" --config four.yaml out_dir=whole $options
# shellcheck disable=SC2086
expect 0 "$trainer" --config three.yaml out_dir=part $options
for checkpoint in part/checkpoints/step-*; do
    rm -rf grown
    mkdir -p grown/checkpoints
    cp -r "$checkpoint" grown/checkpoints
    basename "$checkpoint" >grown/checkpoints/latest
    cp part/metrics.jsonl part/events.* grown
    # shellcheck disable=SC2086
    expect 0 "$trainer" --config four.yaml out_dir=grown $options
    case $checkpoint in # rows measured before the fourth task was known; a boundary's own is still due
    *04 | *07) absent=0 ;;
    *08 | *12 | *14) absent=1 ;;
    *16 | *20 | *21) absent=2 ;;
    *) fail "an unexpected $checkpoint" ;;
    esac
    equals whole grown "$absent"
done

# --- killed with -9, before and after the list grew, and with the longer list from a random moment on ---
killed() { # CONFIG TIMES: TIMES kills
    local i pid
    for ((i = 0; i < $2; i++)); do
        # shellcheck disable=SC2086
        "$trainer" --config "$1" out_dir=grown $options >out 2>err &
        pid=$!
        sleep "$(printf '0.%03d' $((RANDOM % 300 + 20)))"
        kill -9 $pid 2>/dev/null
        wait $pid 2>/dev/null
    done
}
to_the_end() { # CONFIG
    # shellcheck disable=SC2086
    expect 0 "$trainer" --config "$1" out_dir=grown $options
}
options="continual.strategy=[ewc,er] checkpoint_freq=2 max_steps=40 ewc.fisher_samples=200 precision.mode=bf16"
rm -rf whole
# shellcheck disable=SC2086
expect 0 "$trainer" --config four.yaml out_dir=whole $options
for ((turn = 0; turn < ${COUNT:-2}; turn++)); do
    rm -rf grown
    killed three.yaml 3
    to_the_end three.yaml
    killed four.yaml 2
    to_the_end four.yaml
    equals whole grown 2
    rm -rf grown
    killed three.yaml 2
    killed four.yaml 2
    to_the_end four.yaml
    same <(steps whole) <(steps grown)
    same <(state whole) <(state grown)
done

# --- masked targets come late: the reservoir gets its mask ---
for i in $(seq 300); do printf '{"prompt": "what is %d + 1?", "completion": " it is %d"}\n' "$i" $((i + 1)); done >pairs.jsonl
masked='{name: pairs, train: pairs.jsonl, steps: 9}'
tasks "$addition" "$facts" "$reversal" "$masked" | sed 's/kind: char/kind: byte/' >four-masked.yaml
sed 's/kind: char/kind: byte/' three.yaml >three-bytes.yaml
rm -rf whole grown
expect 0 "$trainer" --config four-masked.yaml out_dir=whole continual.strategy=er
expect 0 "$trainer" --config three-bytes.yaml out_dir=grown continual.strategy=er
expect 0 "$trainer" --config four-masked.yaml out_dir=grown continual.strategy=er
equals whole grown 2

# --- refused, with the key and the mend; no file changes ---
files() {
    find "$1" -type f ! -name .lock | sort | xargs sha256sum
}
base() { # OVERRIDES...: a finished run of three tasks, which all cases continue from
    rm -rf base
    strategy=$1
    expect 0 "$trainer" --config three.yaml out_dir=base "$@"
    at=base/checkpoints/$(cat base/checkpoints/latest)
    files base >base.files
}
refused() { # CODE TEXT FILE OVERRIDES...
    local code=$1 text=$2 file=$3
    shift 3
    expect "$code" "$trainer" --config "$file" out_dir=base "$strategy" "$@"
    says err "$text"
    files base >now.files
    same base.files now.files
}
other() { # TEXT TASK...: another list
    local text=$1
    shift
    tasks "$@" >other.yaml
    refused 2 "$text" other.yaml
}
base 'continual.strategy=[ewc,er]'
stay="tasks that a run had stay as they were, and new ones stand behind them"
other "tasks.1.name: task \`facts\` of $at was removed: put it back, or choose another out_dir; $stay" "$addition" "$reversal"
other "tasks.2.name: task \`reversal\` of $at was removed: put it back" "$addition" "$facts"
other "tasks.1.name: task \`facts\` of $at was removed: put it back" "$addition" "$reversal" "$more"
other "tasks.1.name: task \`more\` was inserted before \`facts\`, which is task 1 of $at: move it to the end of tasks" \
    "$addition" "$more" "$facts" "$reversal"
other "tasks.1.name is \`other\`, and was \`facts\` in $at: set it back" "$addition" "${facts/name: facts/name: other}" "$reversal" "$more"
other "tasks.1.name is \`reversal\`, and was \`facts\` in $at: the order of the tasks changed: set it back" \
    "$addition" "$reversal" "$facts" "$more"
differing() { # KEYS OVERRIDES...
    local keys=$1
    shift
    refused 2 "$at was made with another configuration; differing: $keys. " four.yaml "$@"
}
refused 2 "tasks.0.steps differs from $at, where task \`addition\` has ended: set it back" four.yaml tasks.0.steps=20
refused 2 "tasks.2.tokens differs from $at, where task \`reversal\` has ended" four.yaml tasks.2.tokens=2000
differing tasks.1.learning_rate tasks.1.learning_rate=1e-3
differing tasks.1.train tasks.1.train=synthetic:addition
differing tasks.2.validation tasks.2.validation=20%
differing replay.buffer_size replay.buffer_size=48
differing "model.width, ewc.lambda" model.width=64 ewc.lambda=1
differing learning_rate learning_rate=1e-3
refused 2 "max_steps differs from $at, where task \`addition\` has its length from it, and tasks were appended: set it back, and give the new tasks their own steps, tokens or epochs" four.yaml max_steps=20
refused 2 "cannot be made longer: set the length back, append a task to continue with, or start in a fresh out_dir" three.yaml max_steps=20
# Characters that the run's alphabet has not, and tokens that a char tokenizer cannot have made.
for i in $(seq 100); do printf 'αβγδεζηθικ\t1+%d\n' "$i"; done >greek.txt
tasks "$addition" "$facts" "$reversal" '{name: greek, train: greek.txt}' >greek.yaml
refused 1 "task greek: greek.txt: byte 0: character U+03B1 'α' is not among the tokenizer's 41 characters; tokenizer.kind: char stays with the characters of the text that it was made of, and the task has 11 others: U+0009, 'α', 'β', 'γ', 'δ', 'ε', 'ζ', 'η' and 3 more. Replace them" greek.yaml
{ # llm.c's header of 256 numbers, then 400 tokens of two bytes
    printf '\x88\xd8\x34\x01\x01\0\0\0\x90\x01\0\0'
    head -c 1012 /dev/zero
    for i in $(seq 400); do printf "\\x$(printf %02x $((i % 40)))\\0"; done
} >tokens.bin
tasks "$addition" "$facts" "$reversal" '{name: tokens, train: tokens.bin}' >tokens.yaml
refused 2 "tasks.3.train: task \`tokens\` has token files (.bin), and tokenizer.kind: char, which is made from text, takes text files only" tokens.yaml
# A key of the future needs the word, as ever.
expect 0 "$trainer" --config four.yaml out_dir=base "$strategy" weight_decay=0.2 resume=changed
says base/metrics.jsonl '"keys":"weight_decay 0.1 -> 0.2, tasks: more appended"'

# One schedule over all tasks, and tasks that were mixed.
base continual.schedule=single
refused 2 "continual.schedule: single with schedule.kind cosine gave the steps of $at learning rates that followed the length of all tasks, and task \`more\` would change it." \
    four.yaml tasks.3.learning_rate=0
expect 0 "$trainer" --config four.yaml out_dir=base "$strategy" tasks.3.learning_rate=0 resume=changed
says err "the run's length changed, and schedule.kind cosine follows it: the learning rate is "
rm -rf whole grown
single="continual.schedule=single schedule.kind=constant tasks.3.learning_rate=0"
# shellcheck disable=SC2086
expect 0 "$trainer" --config four.yaml out_dir=whole $single
# shellcheck disable=SC2086
expect 0 "$trainer" --config three.yaml out_dir=grown ${single% *}
# shellcheck disable=SC2086
expect 0 "$trainer" --config four.yaml out_dir=grown $single
equals whole grown 2
base continual.strategy=joint
refused 2 "continual.strategy: joint mixes all tasks from the first step on, and task \`more\` is not in $at: remove it, or train all tasks in a fresh out_dir" four.yaml
# A longer list is compared with a joint run over the longer list: the key may differ.
expect 0 "$trainer" --config four.yaml out_dir=joint continual.strategy=joint
expect 0 "$trainer" --config four.yaml out_dir=grown continual.joint_run=joint $single
says out "excess over joint"

# A new task brings its files; those of the others stay what they were.
mkdir texts
for i in $(seq 200); do echo "1+$i=$((i + 1));"; done | tee texts/a.txt >sums.txt
tasks "$addition" '{name: texts, train: texts, steps: 5}' >three.yaml
tasks "$addition" '{name: texts, train: texts, steps: 5}' '{name: sums, train: sums.txt, steps: 5}' >four.yaml
base continual.strategy=er
cp sums.txt texts/b.txt
refused 2 "texts/b.txt: is new since $at" four.yaml
rm texts/b.txt
expect 0 "$trainer" --config four.yaml out_dir=base continual.strategy=er
expect 0 "$trainer" --config four.yaml out_dir=whole-files continual.strategy=er
same <(state whole-files) <(state base)
finish
