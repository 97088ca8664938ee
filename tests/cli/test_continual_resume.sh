#!/bin/bash
# SPDX-License-Identifier: MIT
# A run over several tasks, resumed from every checkpoint that it ever wrote, and stopped inside MER's groups: the same
# record and the same files as the run that was left alone.
. "$(dirname "$0")/lib.sh"
tiny_tasks

# resume_everywhere OVERRIDES...: saves at every step, then continues from each of the checkpoints; by `make test` from every
# third, from others in each call.
turn=0
resume_everywhere() {
    local options="checkpoint_freq=1 keep_checkpoints=1000 tasks.2.steps=4 max_steps=7 $*" checkpoint
    rm -rf whole part
    # shellcheck disable=SC2086
    expect 0 "$trainer" --config tasks.yaml $options
    mv run whole
    bits whole >whole.bits
    [ "$(ls -d whole/checkpoints/step-* | wc -l)" = 18 ] || fail "18 checkpoints expected: $(ls whole/checkpoints)"
    for checkpoint in whole/checkpoints/step-*; do
        in_tier $((turn++)) 3 || continue
        # shellcheck disable=SC2086
        goes_on_from "$checkpoint" "$trainer" --config tasks.yaml $options
    done
    turn=$((turn + 1)) # 18 is a multiple of 3
    rm -rf run
}

resume_everywhere 'continual.strategy=[ewc,mer]' mer.group_steps=3 mer.groups=2 mer.beta=0.5 precision.mode=bf16
resume_everywhere 'continual.strategy=[si,er]' precision.mode=fp16 precision.init_scale=1e13 precision.growth_interval=4
resume_everywhere 'continual.strategy=[ewc,a-gem]' ewc.mode=separate ewc.step=proximal gradient_accumulation_steps=2
resume_everywhere 'continual.strategy=[ewc,der++]' replay.buffer_size=8 der.top_k=5 precision.mode=bf16
resume_everywhere continual.strategy=der++ precision.mode=fp16 precision.init_scale=1e13 gradient_accumulation_steps=2
resume_everywhere 'continual.strategy=[ewc,mer,merge]' merge.share=0.6 precision.mode=bf16 precision.master_weights=false
resume_everywhere continual.strategy=lwf precision.mode=bf16 memory.micro_batch=2
resume_everywhere 'continual.strategy=[lwf,der++]' precision.mode=fp16 precision.init_scale=1e13 memory.recompute=block
resume_everywhere continual.strategy=generative replay.buffer_size=6 generative.fraction=1 precision.mode=fp16
resume_everywhere 'continual.strategy=[ewc,lwf,generative]' replay.buffer_size=40 generative.fraction=1 memory.micro_batch=1
# Without boundaries the Fisher is measured in the middle of the stream, and a checkpoint may lie before it.
resume_everywhere 'continual.strategy=[ewc,mer]' continual.boundaries=none continual.consolidate_every=4 mer.group_steps=3 \
    precision.mode=bf16
resume_everywhere 'continual.strategy=[ewc,der++]' continual.boundaries=none continual.consolidate_every=5 precision.mode=fp16 \
    precision.init_scale=1e13
resume_everywhere 'continual.strategy=[si,a-gem]' continual.boundaries=none continual.consolidate_every=3

resume_everywhere 'continual.strategy=[ewc,er]' ewc.curvature=kronecker ewc.block_size=24 ewc.gamma=0.5 ewc.lambda=30
resume_everywhere continual.strategy=ewc ewc.block_size=24 # the strength follows how foreign a task is

# stopped_at FILE TEXT OVERRIDES...: SIGTERM as soon as FILE of the run says TEXT; resumed, it ends as if left alone.
stopped_at() {
    local file=$1 text=$2 options pid run
    shift 2
    options="checkpoint_freq=0 max_steps=100 $*"
    rm -rf whole stopped
    # shellcheck disable=SC2086
    expect 0 "$trainer" --config tasks.yaml $options out_dir=whole
    rm err # where the run before said the same
    # shellcheck disable=SC2086
    "$trainer" --config tasks.yaml $options out_dir=stopped >out 2>err &
    pid=$!
    for _ in $(seq 2000); do
        grep -q "$text" $file 2>/dev/null && break
        sleep 0.005
    done
    kill -TERM $pid
    wait $pid
    [ $? = 143 ] || fail "a stopped run must say so"
    says err "stopped by SIGTERM"
    where=$(sed -nE 's/.*stopped by SIGTERM after step ([0-9]+).*/\1/p' err)
    rm -f stopped.json # none where nothing was trained yet
    [ ! -e stopped/checkpoints/latest ] || cp stopped/checkpoints/"$(cat stopped/checkpoints/latest)"/trainer.json stopped.json
    # shellcheck disable=SC2086
    expect 0 "$trainer" --config tasks.yaml $options out_dir=stopped
    # The stopped run has one more checkpoint, so its record is longer by a line.
    for run in whole stopped; do
        record $run | grep -v '"event":"checkpoint"' >$run.bits
        tensors $run | grep -v trainer.json >>$run.bits
    done
    same whole.bits stopped.bits
}

# In the middle of a task; with windows of 21 steps, one stop in 21 falls between two of them.
in_a_task='"event":"step".*"task":1'
stopped_at stopped/metrics.jsonl "$in_a_task" continual.strategy=er
stopped_at stopped/metrics.jsonl "$in_a_task" continual.strategy=mer mer.group_steps=7 mer.groups=3
grep -oE '"mer.steps_in_interval": *[0-9]+' stopped.json
# In the evaluation before the first step of all, which is made to take a second.
stopped_at stopped/config.yaml "seed" continual.strategy=er precision.mode=fp16 evaluation.batches=0 evaluation.every=0 \
    tasks.0.synthetic_tokens=2000000
[ "$where" = 0 ] || fail "stopped only after step $where"
# In the trial of learning rates before the first step of all: it is made again.
stopped_at err "trial: learning rate" continual.strategy=mer batch_size=16 mer.group_steps=64 mer.beta=0.1 mer.gamma=0.1 max_steps=800 tasks.1.steps=6 \
    tasks.2.steps=1
[ "$where" = 0 ] || fail "stopped only after step $where"
# While the Fisher is measured, of a second and more: it is given up, what was trained lies saved before it.
stopped_at err "task addition: Fisher information" 'continual.strategy=[ewc,er]' ewc.fisher_samples=2000 ewc.estimator=empirical \
    'continual.optimizer_state=reset' max_steps=20 evaluation.every=5
[ "$where" = 20 ] || fail "stopped after step $where, not behind a task's last"
grep -qE '"task": *0' stopped.json || fail "the Fisher was not given up"
grep -qE '"task_steps": *20' stopped.json || fail "the task's steps are not saved"
# While the model writes: it is begun again from the boundary before.
stopped_at stopped/rehearsal-2.txt ':' continual.strategy=generative replay.buffer_size=3000 generative.fraction=900 \
    max_steps=20 tasks.1.steps=6 tasks.2.steps=1 replay.fraction=0.9
[ "$where" = 20 ] || fail "stopped after step $where, not where the rehearsal is written"
# The same Fisher in the middle of a stream.
stopped_at err "the stream: Fisher information" 'continual.strategy=[ewc,er]' ewc.fisher_samples=2000 ewc.estimator=empirical \
    continual.boundaries=none continual.consolidate_every=200 max_steps=200
[ "$where" = 200 ] || fail "stopped after step $where, not at the consolidation"
# In one of the long steps of a task that replays: it is given up too, and its batch is the next one again.
stopped_at stopped/metrics.jsonl '"event":"step","step":2,' continual.strategy=er gradient_accumulation_steps=512 max_steps=2 \
    tasks.1.steps=1 tasks.2.steps=1 logging.every=1 schedule.warmup_steps=0
[ "$where" = 2 ] || fail "the step that was under way was finished first: stopped after step $where"
# --- keys with a changed default ---
# Such a checkpoint of an earlier version: the keys that there were not then are not in its configuration, the others have
# the earlier defaults.  A configuration that says nothing continues that run, to the bit.
earlier_defaults="continual.schedule=fresh continual.optimizer_state=reset replay.draw=any replay.late_part=0 mer.beta=1.0 mer.gamma=0.7 \
    mer.compensate_learning_rate=false generative.alpha=0 generative.top_k=20"
sed -i '/^mer:/d' tasks.yaml
turn=0
for strategy in mer er generative; do
    in_tier $((turn++)) 3 || continue
    rm -rf whole early
    # shellcheck disable=SC2086
    expect 0 "$trainer" --config tasks.yaml out_dir=whole continual.strategy=$strategy $earlier_defaults
    # shellcheck disable=SC2086
    HALFSTEP_FAULT=rank=0,step=20,do=kill "$trainer" --config tasks.yaml out_dir=early continual.strategy=$strategy $earlier_defaults \
        >out 2>err
    python3 - early <<'PY'
import json, re, sys
folder = sys.argv[1] + "/checkpoints/" + open(sys.argv[1] + "/checkpoints/latest").read().strip()
text = open(folder + "/config.yaml").read()
for key in ("draw", "late_part", "late_fraction", "alpha"):
    section = "generative" if key == "alpha" else "replay"
    begin = text.index("\n" + section + ":")
    end = re.compile(r"\n\S").search(text, begin + 1).start()
    part, count = re.subn(r"\n  %s:[^\n]*" % key, "", text[begin:end])
    assert count == 1, key
    text = text[:begin] + part + text[end:]
open(folder + "/config.yaml", "w").write(text)
sums = json.load(open(folder + "/checksums.json"))
del sums["files"]["config.yaml"]
json.dump(sums, open(folder + "/checksums.json", "w"))
PY
    expect 0 "$trainer" --config tasks.yaml out_dir=early continual.strategy=$strategy
    says err "replay.draw: any, as this run began; a new run has another default"
    same <(tensors whole | grep -v trainer.json) <(tensors early | grep -v trainer.json)
done
finish
