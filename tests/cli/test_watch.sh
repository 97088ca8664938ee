#!/bin/bash
# SPDX-License-Identifier: MIT
# Early warning: a task that is being forgotten is named while it happens, by looks (evaluation.watch) and by surveys, with
# the figures that surveys and the matrix have; not where replay protects it, nor where it is to be forgotten; the same
# after a kill.
. "$(dirname "$0")/lib.sh"
cat >abc.yaml <<'YAML'
model: {layers: 1, heads: 2, width: 32}
threads: 1
batch_size: 8
max_length: 24
learning_rate: 4e-3
checkpoint_freq: 35
keep_checkpoints: 100
tasks:
  - {name: sums, train: "synthetic:addition", synthetic_tokens: 30000, steps: 140}
  - {name: facts, train: "synthetic:facts", synthetic_tokens: 30000, steps: 140}
  - {name: code, train: "synthetic:code", synthetic_tokens: 30000, steps: 140}
continual: {strategy: none}
precision: {mode: fp32}
evaluation: {every: 0, batches: 4, items: 0, show: 0}
logging: {every: 70}
YAML
train() { # RUN OVERRIDES...
    local run=$1
    shift
    expect 0 "$trainer" --config abc.yaml "out_dir=$run" "$@"
}
warned() { # COUNT WHAT
    [ "$(grep -c "^warning: .* is being forgotten" err)" = "$1" ] || fail "$2: not $1 warnings: $(grep ^warning err)"
}
check() { # WHAT: assertions on standard input
    { echo 'import json, re'; echo 'def record(run, event): return [line for line in map(json.loads, open(f"{run}/metrics.jsonl")) if line["event"] == event]'; cat; } |
        python3 - || fail "$1"
}

# 1% of 140 steps, each three passes of a batch, is 4.2 batches: one look at four of them, in a task's middle.
train whole
warned 2 "nothing against forgetting"
cp err said
check "looks" <<'PY'
events, matrix = record("whole", "forgetting"), record("whole", "matrix")[-1]
assert [(e["step"], e["task"], e["name"]) for e in events] == [(210, 1, "sums"), (350, 2, "facts")], events
said = [line for line in open("said") if "being forgotten" in line]
for task, (event, line) in enumerate(zip(events, said)):
    # evaluation.batches are as many as a look's: the matrix has the same windows
    own, untrained = matrix["losses"][task][task], matrix["untrained"][task]
    assert event["loss_at_end"] == own, (event, own)
    left = (untrained - event["loss"]) / (untrained - own)
    assert abs(event["left"] - left) < 1e-9 and left < 0.9
    for text in f"{event['loss']:.4f} at step {event['step']}, after 70 steps of", f"{own:.4f} when", f"{100 * left:.0f}%":
        assert text in line, (text, line)
assert "What helps: continual.strategy er" in said[0]
page = open("whole/report.html").read()
assert "was being forgotten" in page and "sums at step 210" in page
PY
# With looks or without, the same is trained.
train deaf evaluation.watch=false
warned 0 "watch: false"
same <(record whole | grep -vE '"event":"(forgetting|checkpoint)"') <(record deaf | grep -v '"event":"checkpoint"')
same whole/checkpoints/step-00000420/model.safetensors deaf/checkpoints/step-00000420/model.safetensors
rm -rf deaf

# Surveys, and the look that they stand for; again when twice as much is lost, and not before.
train surveys evaluation.all_tasks_every=35
check "surveys" <<'PY'
matrix = record("surveys", "matrix")[-1]
surveys = record("surveys", "tasks")
expected, last = [], [0, 0, 0]
for survey in surveys:
    ended = (survey["step"] - 1) // 140
    for task in range(ended):
        own, untrained = matrix["losses"][task][task], matrix["untrained"][task]
        rise = survey["losses"][task] - own
        if rise > 0.1 * (untrained - own) and rise >= 2 * last[task]:
            last[task] = rise
            expected.append((survey["step"], matrix["names"][task], survey["losses"][task]))
events = [(e["step"], e["name"], e["loss"]) for e in record("surveys", "forgetting")]
assert events == expected and len(events) >= 2, (events, expected)
assert len(events) < sum((survey["step"] - 1) // 140 for survey in surveys), "every survey warns"
PY

# --- where there is nothing to warn of ---
train joint continual.strategy=joint
warned 0 joint
train joint-surveys continual.strategy=joint evaluation.all_tasks_every=35
warned 0 "joint, surveys"
train er continual.strategy=er replay.fraction=0.75
warned 0 "three quarters of each batch replayed"
train retain tasks.0.retain=false
warned 1 "sums are to be forgotten"
says err "warning: task facts is being forgotten"
train short tasks.1.steps=130 tasks.2.steps=20 # a look would cost more than it may
warned 0 "short tasks"

# --- what would help ---
train little continual.strategy=er replay.fraction=0.02
says err "What helps: a larger replay.fraction (0.02 now) or replay.buffer_size"
train penalty continual.strategy=l2 l2.lambda=1e-6
says err "What helps: a larger l2.lambda, or er next to l2, with a replay.fraction of the text"
train reference continual.strategy=none continual.boundaries=none
warned 2 "one stream"

# --- killed before a look, at its step and behind it ---
bits whole >whole.bits
for step in 175 210 245 280; do
    goes_on_from whole/checkpoints/step-00000$step "$trainer" --config abc.yaml out_dir=run
done
finish
