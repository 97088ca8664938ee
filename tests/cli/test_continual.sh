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

# rows NAME COUNT: so many rows of the matrix, each as a record, and a page that says the last.
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
ewc ewc.estimator=batched
ewc ewc.estimator=empirical
ewc ewc.estimator=exact max_length=8 ewc.fisher_samples=2
ewc ewc.step=proximal ewc.normalize=mean
ewc ewc.mode=separate
ewc ewc.normalize=l2 ewc.gamma=0.9
ewc ewc.normalize=none ewc.exclude=[embedding,norm]
ewc ewc.exclude=*.mlp.*
mer mer.group_steps=2 mer.groups=3
mer gradient_accumulation_steps=4
mer mer.mode=algorithm6 mer.group_steps=4
mer mer.mode=algorithm7 mer.group_steps=4 mer.groups=3
mer mer.mode=reptile mer.interval=5
mer mer.beta=0.1 mer.gamma=0.1 mer.compensate_learning_rate=true
a-gem agem.reference_batches=2
er continual.optimizer_state=keep continual.schedule=single
er continual.schedule=rewarm continual.rewarm_fraction=0.25
FORMS
train joint continual.strategy=joint
rows joint 2
losses joint | head -n 2 | grep -q '^\[null,null,null\]$' || fail "joint training has only a last row"

# --- what must do nothing ---
# Penalties of strength 0, replay of nothing, interpolation to where one is: not a bit of difference.
for options in "l2 l2.lambda=0" "ewc ewc.lambda=0" "ewc ewc.lambda=0 ewc.step=proximal" "si si.strength=0" \
    "er replay.fraction=0" "mer replay.fraction=0 mer.beta=1 mer.gamma=1 mer.group_steps=4" \
    "mer replay.fraction=0 mer.mode=reptile mer.epsilon=1 mer.interval=3"; do
    rm -rf idle
    # shellcheck disable=SC2086
    train idle continual.strategy=$options
    losses idle >idle.losses
    same none.losses idle.losses
done
# Before the first task's end there is nothing to protect and nothing of earlier tasks to replay.
losses none 1 >none.first
for strategy in l2 ewc si a-gem; do
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
for mode in bf16 fp16; do
    for options in er "[ewc,mer] mer.groups=2" a-gem "si precision.gradients=compute" "[ewc,er] ewc.mode=separate"; do
        rm -rf half
        # shellcheck disable=SC2086
        train half precision.mode=$mode gradient_accumulation_steps=2 batch_size=2 memory.recompute=block \
            continual.strategy=$options
        rows half 4
        grep -q '"loss":null' half/metrics.jsonl && fail "$mode, $options: a loss is not a number"
    done
done

# --- what changes no bit ---
for options in er "[ewc,mer] mer.groups=2 mer.group_steps=3" a-gem "joint gradient_accumulation_steps=2"; do
    rm -rf base
    # shellcheck disable=SC2086
    train base threads=1 precision.mode=bf16 continual.strategy=$options
    bits base >base.bits
    for variant in threads=2 memory.recompute=attention memory.recompute=block "data.workers=3 data.prefetch=1" \
        data.prefetch=16; do
        rm -rf variant
        # shellcheck disable=SC2086
        train variant precision.mode=bf16 continual.strategy=$options $variant
        bits variant >variant.bits
        same base.bits variant.bits
    done
done
finish
