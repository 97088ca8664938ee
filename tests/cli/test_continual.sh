#!/bin/bash
# SPDX-License-Identifier: MIT
# Every strategy over three tiny tasks: what a run shows and leaves, what must be equal to no protection at all, and what
# changes no bit.
. "$(dirname "$0")/lib.sh"
tiny_tasks

# train NAME OVERRIDES...: a run in ./NAME that must succeed.
train() {
    local name=$1
    shift
    expect 0 "$trainer" --config tasks.yaml out_dir="$name" "$@"
}

# rows NAME COUNT: COUNT rows of the matrix, each as a record, and a page that says the last.
rows() {
    local got
    got=$(grep -c '"event":"matrix"' "$1/metrics.jsonl")
    [ "$got" = "$2" ] || fail "$1: $got matrix records instead of $2"
    [ -s "$1/report.html" ] || fail "$1 has no report.html"
}

# losses NAME [ROW]: the matrix, or a row of it (from 1).
losses() {
    grep '"event":"matrix"' "$1/metrics.jsonl" | tail -n 1 |
        sed -E 's/.*"losses":\[(\[.*\])\],"untrained".*/\1/; s/\],\[/]\n[/g' | sed -n "${2:-1,\$}p"
}

# member NAME KEY: a figure of the last summary.
member() {
    grep '"event":"matrix"' "$1/metrics.jsonl" | tail -n 1 | sed -E "s/.*\"$2\":([^,}]*).*/\1/"
}

# below A B: true for numbers a < b.
below() {
    awk -v a="$1" -v b="$2" 'BEGIN { exit !(a + 0 < b + 0) }'
}

# --- every strategy, every form ---
train none
rows none 4
says out "untrained"
says out "after reversal"
says out "forgetting"
losses none >none.losses
[ "$(wc -l <none.losses)" = 3 ] || fail "three rows of losses expected"
index=0
while read -r options; do
    index=$((index + 1))
    # shellcheck disable=SC2086
    train "form$index" continual.strategy=$options
    rows "form$index" 4
    says out "after reversal"
    same_as_none=$(losses "form$index" | cmp -s - none.losses && echo yes)
    [ -z "$same_as_none" ] || fail "$options: the same losses as without a strategy"
done <<'FORMS'
er
l2
ewc
si
a-gem
mer
[ewc,er]
[l2,mer]
[si,a-gem]
ewc ewc.curvature=diagonal
ewc ewc.estimator=batched
ewc ewc.estimator=empirical
ewc ewc.estimator=exact max_length=8 ewc.fisher_samples=2
ewc ewc.step=proximal ewc.normalize=mean ewc.lambda=5000
ewc ewc.mode=separate
ewc ewc.normalize=l2 ewc.gamma=0.9 ewc.lambda=5000
ewc ewc.curvature=kronecker
ewc ewc.curvature=kronecker ewc.block_size=24 ewc.estimator=empirical ewc.exclude=[embedding,norm] optimizer.kind=muon
ewc ewc.curvature=kronecker ewc.lambda=1 optimizer.kind=sgd learning_rate=1e-3 schedule.min_learning_rate=1e-4
ewc ewc.normalize=none ewc.exclude=[embedding,norm]
ewc ewc.exclude=*.mlp.*
mer mer.group_steps=2 mer.groups=3
mer gradient_accumulation_steps=4
mer mer.mode=algorithm6 mer.group_steps=4
mer mer.mode=algorithm7 mer.group_steps=4 mer.groups=3
mer mer.mode=reptile mer.interval=5
mer mer.beta=0.1 mer.gamma=0.1 mer.compensate_learning_rate=true
mer mer.beta=0.1 mer.gamma=0.1
[si,mer] mer.gamma=0.01 precision.mode=fp16
mer replay.draw=any
er replay.late_part=0.5 replay.late_fraction=0.4
er continual.schedule=infinite continual.optimizer_state=reset
a-gem agem.reference_batches=2
der++
der++ der.top_k=1 der.beta=0.5 replay.fraction=0.5
[ewc,der++]
lwf
[lwf,er]
[ewc,lwf,er]
generative
generative generative.alpha=0 generative.top_k=5
[lwf,generative] generative.alpha=0.5 generative.beta=0.5
[ewc,generative] generative.fraction=0.05 generative.top_k=3 replay.buffer_size=7
[lwf,der++] lwf.alpha=3 lwf.temperature=1
er continual.optimizer_state=keep continual.schedule=single
er continual.schedule=rewarm continual.rewarm_fraction=0.25
merge
[merge,ewc,mer] merge.share=0.8
[er,merge] precision.mode=bf16 precision.master_weights=false
FORMS
train joint continual.strategy=joint
rows joint 2
losses joint | head -n 2 | grep -q '^\[null,null,null\]$' || fail "joint training has only a last row"

# Each task's own loss when it ends and all of them at the end: the numbers that all of them have there.
train sparse evaluation.matrix=own
rows sparse 4
[ "$(losses none 3)" = "$(losses sparse 3)" ] || fail "evaluation.matrix: own: another last row"
[ "$(losses sparse 1)" = "[$(losses none 1 | tr -d '[]' | cut -d, -f 1),null,null]" ] || fail "own: more than the first task's loss"
[ "$(losses sparse 2)" = "[null,$(losses none 2 | tr -d '[]' | cut -d, -f 2),null]" ] || fail "own: more than the second task's loss"
[ "$(member none learned)" = "$(member sparse learned)" ] || fail "own: learned differs"
[ "$(member none bwt)" = "$(member sparse bwt)" ] || fail "own: bwt differs"

# --- what must do nothing ---
# Penalties of strength 0, replay of nothing, interpolation to where one is: not a bit of difference.
for options in "l2 l2.lambda=0" "ewc ewc.lambda=0" "ewc ewc.lambda=0 ewc.step=proximal" \
    "ewc ewc.lambda=0 ewc.curvature=kronecker" "si si.strength=0" \
    "er replay.fraction=0" "mer replay.fraction=0 mer.beta=1 mer.gamma=1 mer.group_steps=4" \
    "mer replay.fraction=0 mer.mode=reptile mer.epsilon=1 mer.interval=3" "merge merge.share=1" "lwf lwf.alpha=0" "der++ replay.fraction=0"; do
    rm -rf idle
    # shellcheck disable=SC2086
    train idle continual.schedule=fresh continual.optimizer_state=reset continual.strategy=$options
    losses idle >idle.losses
    same none.losses idle.losses
done
# Logits that weigh nothing: replay alone.
train replayed continual.strategy=er
train unmatched continual.strategy=der++ der.alpha=0
losses replayed >replayed.losses
losses unmatched >unmatched.losses
same replayed.losses unmatched.losses
# Before the first task's end there is nothing to protect and nothing of earlier tasks to replay.
losses none 1 >none.first
for strategy in l2 ewc si a-gem lwf generative merge; do
    rm -rf first
    train first continual.strategy=$strategy
    losses first 1 >first.first
    same none.first first.first
done
# A penalty without limit holds every parameter that the first task used.
train held continual.strategy=ewc ewc.step=proximal ewc.normalize=mean ewc.lambda=1e12
below "$(member held forgetting)" "$(awk -v f="$(member none forgetting)" 'BEGIN { print f / 4 }')" ||
    fail "forgetting $(member held forgetting) under ewc without limit, $(member none forgetting) without"
# One task: the strategies run, and there is no matrix.
cat >one.yaml <<'YAML'
{max_steps: 6, max_length: 32, batch_size: 4, model: {layers: 1, heads: 2, width: 32}, ewc: {fisher_samples: 8},
 tasks: [{name: only, train: "synthetic:addition", synthetic_tokens: 8000}]}
YAML
expect 0 "$trainer" --config one.yaml out_dir=one 'continual.strategy=[ewc,er]'
[ "$(grep -c '"event":"matrix"' one/metrics.jsonl)" = 0 ] || fail "a matrix of one task"

# --- 16-bit modes, with accumulation and recomputation ---
turn=0
for mode in bf16 fp16; do
    for options in er "[ewc,mer] mer.groups=2" a-gem "si precision.gradients=compute" "[ewc,er] ewc.mode=separate" der++ "[lwf,er]" generative \
        "ewc ewc.curvature=kronecker ewc.block_size=24"; do
        in_tier $((turn++)) 2 || continue
        rm -rf half
        # shellcheck disable=SC2086
        train half precision.mode=$mode gradient_accumulation_steps=2 batch_size=2 memory.recompute=block \
            continual.strategy=$options
        rows half 4
        grep -q '"loss":null' half/metrics.jsonl && fail "$mode, $options: a loss is not a number"
    done
done

# --- the teacher ---
# A task begins with a teacher that says what the model says; then they part.
rm -rf taught
train taught continual.strategy=lwf model.dropout=0 logging.every=1
for task in 1 2; do
    grep "\"event\":\"step\".*\"task\":$task," taught/metrics.jsonl | sed -E 's/.*"distillation":([^,]*),.*/\1/' >terms
    [ "$(wc -l <terms)" = 12 ] || fail "task $task: a distillation in each of 12 steps expected"
    below "$(head -n 1 terms)" 1e-6 || fail "task $task: the teacher differs from the model that it is: $(head -n 1 terms)"
    below 1e-4 "$(tail -n 1 terms)" || fail "task $task: the teacher has followed the model"
done
grep '"task":0,' taught/metrics.jsonl | grep -q distillation && fail "a teacher in the first task"

# --- a stream without marks ---
# Nothing but marks is missing: where they make no difference, or come as often as consolidations, the matrix is the same.
for options in none "l2 l2.lambda=300" "si si.strength=50"; do
    rm -rf marked unmarked
    # shellcheck disable=SC2086
    train marked continual.optimizer_state=keep continual.schedule=single continual.strategy=$options
    # shellcheck disable=SC2086
    train unmarked continual.boundaries=none continual.consolidate_every=12 continual.strategy=$options
    rows unmarked 4
    losses marked >marked.losses
    losses unmarked >unmarked.losses
    same marked.losses unmarked.losses
done
while read -r options; do
    rm -rf unmarked
    # shellcheck disable=SC2086
    train unmarked continual.boundaries=none continual.consolidate_every=5 continual.strategy=$options
    rows unmarked 4
    losses unmarked | cmp -s - none.losses && fail "$options without boundaries: the same losses as without a strategy"
done <<'UNMARKED'
er
ewc
ewc ewc.mode=separate
ewc ewc.curvature=kronecker
mer mer.group_steps=7
[ewc,mer] mer.groups=2
a-gem
der++
UNMARKED
[ "$(grep -c '"event":"importance"' unmarked/metrics.jsonl)" = 0 ] || fail "der++ has no importance"
refused() {
    expect 2 "$trainer" --config tasks.yaml continual.boundaries=none "$@"
    says err "continual.boundaries"
}
for strategy in lwf generative joint; do
    refused continual.strategy=$strategy
done
expect 0 "$trainer" --config tasks.yaml out_dir=late continual.boundaries=none continual.strategy=l2
says err "l2 protects nothing: continual.consolidate_every is 500, and the stream has 36 steps"
refused early_stop.patience=1
refused tasks.1.learning_rate=1e-3
# What a step saw follows from where tasks end.
rm -rf unmarked
train unmarked continual.boundaries=none max_steps=6
expect 2 "$trainer" --config tasks.yaml out_dir=unmarked continual.boundaries=none max_steps=7
says err "the lengths of all tasks but the last stay as they were"

# --- generative replay keeps no text ---
# What a checkpoint of a later task holds was written by the model: three samples in the log, all of them in a file.
rm -rf written
train written continual.strategy=generative replay.buffer_size=12 generative.fraction=1 logging.progress=none
for task in 2 3; do
    [ "$(wc -l <written/rehearsal-$task.txt)" = 12 ] || fail "rehearsal-$task.txt does not hold 12 sequences"
done
[ ! -e written/rehearsal-1.txt ] || fail "a rehearsal before the first task"
[ "$(grep -c '^info: rehearsal of' err)" = 6 ] || fail "three samples a task are to be shown"
grep -q '^addition: ' written/rehearsal-3.txt && grep -q '^facts: ' written/rehearsal-3.txt ||
    fail "the rehearsal before the third task is not of both earlier ones"
python3 - written <<'PY' || fail "the reservoir is not what the model wrote"
import glob, json, struct, sys
folder = sorted(glob.glob(sys.argv[1] + "/checkpoints/step-*"))[-1]
with open(folder + "/continual.safetensors", "rb") as file:
    size = struct.unpack("<Q", file.read(8))[0]
    header = json.loads(file.read(size))
    data = file.read()
begin, end = header["replay.tokens"]["data_offsets"]
tokens = struct.unpack("<%dH" % ((end - begin) // 2), data[begin:end])
length = header["replay.tokens"]["shape"][1]
rows = [tokens[i : i + length] for i in range(0, len(tokens), length)]
alphabet = json.load(open(folder + "/tokenizer.json"))
lines = open(sys.argv[1] + "/rehearsal-3.txt", encoding="utf-8").read().splitlines()
assert len(rows) == len(lines) == 12
# One symbol of the text is one token: equal symbols exactly where tokens are equal.
for row, line in zip(rows, lines):
    text = line.split(": ", 1)[1].replace("\\n", "\n")
    assert len(text) == len(row), (len(text), len(row))
    pairs = set(zip(text, row))
    assert len(pairs) == len(set(text)) == len(set(row))
PY

# --- what changes no bit ---
turn=0
for options in er "[ewc,mer] mer.groups=2 mer.group_steps=3" a-gem "joint gradient_accumulation_steps=2" \
    "[lwf,der++]" generative "ewc ewc.curvature=kronecker ewc.block_size=24"; do
    rm -rf base
    # shellcheck disable=SC2086
    train base threads=1 precision.mode=bf16 continual.strategy=$options
    bits base >base.bits
    for variant in threads=2 memory.recompute=attention memory.recompute=block "data.workers=3 data.prefetch=1" \
        data.prefetch=16; do
        in_tier $((turn++)) 3 || continue
        rm -rf variant
        # shellcheck disable=SC2086
        train variant precision.mode=bf16 continual.strategy=$options $variant
        bits variant >variant.bits
        same base.bits variant.bits
    done
done
finish
