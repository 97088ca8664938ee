#!/bin/bash
# SPDX-License-Identifier: MIT
# The commands around a run over several tasks: report, eval, compare, the joint run's losses; and what is refused.
. "$(dirname "$0")/lib.sh"
tiny_tasks

# refused TEXT OVERRIDES...: exit code 2, a message that says TEXT, and no folder.
refused() {
    local text=$1
    shift
    rm -rf refused
    expect 2 "$trainer" --config tasks.yaml out_dir=refused "$@"
    says err "$text"
    [ ! -d refused ] || fail "a refused run left a folder: $*"
}

# --- refused before anything is made ---
refused "remove" 'continual.strategy=[ewc,l2]'
refused "continual.strategy: none stands alone" 'continual.strategy=[none,er]'
refused "continual.strategy: joint stands alone" 'continual.strategy=[joint,ewc]'
refused "mer replays already: remove er" 'continual.strategy=[er,mer]'
refused "er is listed twice" 'continual.strategy=[er,er]'
refused "did you mean" continual.strategy=ewcc
refused "did you mean" continual.stratgy=ewc
refused "ewc.exclude" continual.strategy=ewc ewc.exclude=nothing.like.this
refused "every parameter" continual.strategy=ewc 'ewc.exclude=*'
refused "tasks.0.steps and tasks.0.epochs both give the task's length" tasks.0.steps=3 tasks.0.epochs=1
refused "give each task its own name" tasks.1.name=addition
refused "mer.groups" continual.strategy=mer mer.mode=reptile mer.groups=2
refused "mer.groups" continual.strategy=mer mer.mode=algorithm6 mer.groups=2
refused "tasks" tasks.5.name=more
refused "replay.fraction" continual.strategy=er replay.fraction=1
refused "ewc.lambda" continual.strategy=ewc ewc.lambda=-1
refused "did you mean" continual.strategy=ewc ewc.estimator=sample
refused "ewc.mode: separate has no meaning with ewc.curvature: kronecker" ewc.curvature=kronecker ewc.mode=separate
refused "ewc.step: proximal has no meaning" ewc.curvature=kronecker ewc.step=proximal
refused "ewc.normalize: max has no meaning" ewc.curvature=kronecker ewc.lambda=1 ewc.normalize=max
refused "ewc.estimator: batched has no meaning" ewc.curvature=kronecker ewc.estimator=batched
refused "ewc.curvature" ewc.curvature=kroneker
refused "continual.schedule" tasks.1.learning_rate=1e-3 continual.schedule=single
refused "less than one step" max_steps=0 tasks.1.tokens=10
expect 1 "$trainer" --config tasks.yaml out_dir=refused continual.joint_run=nowhere
says err "nowhere"
expect 2 "$trainer" compare --strategies none,er
says err "--config"
expect 2 "$trainer" compare --config tasks.yaml --strategies none,nothing
says err 'there is no strategy `nothing`'
expect 2 "$trainer" compare --config tasks.yaml --strategies none,,er
expect 2 "$trainer" compare --config tasks.yaml --strategies er:replay.buffer_sise=8
says err "did you mean"
expect 2 "$trainer" compare --config tasks.yaml --strategies er,er
says err "twice"
expect 2 "$trainer" compare --config tasks.yaml --seeds 0
expect 2 "$trainer" report
expect 1 "$trainer" report --run nowhere
says err "nowhere"
[ ! -d run ] && [ ! -d run-compare ] || fail "a refused command left a folder"

# --- report ---
expect 0 "$trainer" --config tasks.yaml 'continual.strategy=[ewc,er]'
cp run/report.html first.html
expect 0 "$trainer" report --run run
same first.html run/report.html
for text in addition facts reversal forgetting; do says run/report.html "$text"; done
grep -qE '(src|href)="?https?:' run/report.html && fail "report.html asks the network for something"
# Called again, the finished run trains nothing and leaves the same record and the same page.
record run >first.record
expect 0 "$trainer" --config tasks.yaml 'continual.strategy=[ewc,er]'
record run >second.record
same first.record second.record
# What a task did to the parameters cannot be done twice.
expect 2 "$trainer" --config tasks.yaml 'continual.strategy=[ewc,er]' max_steps=20
says err "cannot be made longer"

# --- eval ---
expect 0 "$trainer" eval --checkpoint run
for text in addition facts reversal "mean loss"; do says out "$text"; done
[ "$(grep -c '^validation loss' out)" = 3 ] || fail "eval: three losses expected"
expect 0 "$trainer" eval --checkpoint run --batches 2
# eval sees what training saw: the last row of the matrix.
grep '"event":"matrix"' run/metrics.jsonl | tail -n 1 |
    sed -E 's/.*\[([^]]*)\]\],"untrained".*/\1/' | tr ',' '\n' | awk '{ printf "%.6f\n", $1 }' >matrix.losses
awk '/^validation loss/ { print $3 }' out >eval.losses
same matrix.losses eval.losses
expect 0 "$trainer" generate --checkpoint run --tokens 10 --prompt 1

# --- a joint run to compare with ---
expect 0 "$trainer" --config tasks.yaml continual.strategy=joint out_dir=joint
expect 0 "$trainer" --config tasks.yaml continual.strategy=er out_dir=er continual.joint_run=joint
says out "joint"
says out "excess over joint"
tail -n 2 er/metrics.jsonl | grep '"event":"matrix"' | grep -q '"excess_over_joint":null' && fail "no excess over joint"
refused "joint" continual.joint_run=joint tasks.0.name=other

# --- compare: nothing is trained twice ---
compare() {
    expect 0 "$trainer" compare --config tasks.yaml --strategies none,ewc+er:ewc.lambda=10 --seeds 2 "$@"
}
compare --out comparison
for text in strategy retained none "ewc+er:ewc" compare.html; do says out "$text"; done
[ -s comparison/compare.html ] || fail "no compare.html"
[ -s comparison/compare.json ] || fail "no compare.json"
[ "$(ls -d comparison/*-seed* | wc -l)" = 4 ] || fail "four runs expected: $(ls comparison)"
grep -qE '(src|href)="?https?:' comparison/compare.html && fail "compare.html asks the network for something"
cp out first.out
cp comparison/compare.json first.json
cp comparison/compare.html first.html
for run in comparison/*-seed*; do (cd "$run/checkpoints" && stat -c '%n %y' step-*/*); done >first.times
compare --out comparison
same first.out out
same first.json comparison/compare.json
same first.html comparison/compare.html
for run in comparison/*-seed*; do (cd "$run/checkpoints" && stat -c '%n %y' step-*/*); done >second.times
same first.times second.times
# A run of a comparison is the run that its configuration makes alone.
expect 0 "$trainer" --config tasks.yaml seed=8 out_dir=alone logging.progress=none
bits alone >alone.bits
bits comparison/none-seed8 >compared.bits
same alone.bits compared.bits
# Stopped in its third run and called again: the same tensors.
stopped="--config tasks.yaml --strategies none,ewc+er:ewc.lambda=10 --seeds 2 --out stopped evaluation.every=0"
# shellcheck disable=SC2086
"$trainer" compare $stopped >out 2>err &
pid=$!
for _ in $(seq 500); do
    [ -s stopped/none-seed8/metrics.jsonl ] && break
    sleep 0.02
done
kill -TERM $pid
wait $pid
[ $? = 143 ] || fail "a stopped comparison must say so"
says err "stopped by SIGTERM"
# shellcheck disable=SC2086
expect 0 "$trainer" compare $stopped
for run in none-seed7 none-seed8; do tensors stopped/$run | grep -v trainer.json; done >stopped.hash
for run in none-seed7 none-seed8; do tensors comparison/$run | grep -v trainer.json; done >compared.hash
same compared.hash stopped.hash
# The strategies' tensors are inspected with the rest.
expect 0 "$trainer" --config tasks.yaml continual.strategy=[ewc,er] out_dir=both
expect 0 "$trainer" inspect --checkpoint both
says out "exponents of ewc.importance"
says out "replay.tokens"
# A name may hold the sign that joins names.
expect 0 "$trainer" compare --config tasks.yaml --strategies der++,lwf+der++:lwf.alpha=2 --seeds 1 --out plus evaluation.every=0 max_steps=3
says out "lwf+der++:lwf.alpha=2"
grep -qF '"strategy":"lwf + der++"' plus/lwf+der++_lwf.alpha=2-seed7/run.json || fail "lwf+der++ is not lwf and der++"
finish
