#!/bin/bash
# SPDX-License-Identifier: MIT
# tasks.N.retain: false: what a task that is to be forgotten leaves in what protects, read out of checkpoints; the figures
# of the matrix, computed again from its losses; resuming; what cannot work is refused by name.
. "$(dirname "$0")/lib.sh"
cat >abc.yaml <<'YAML'
model: {layers: 1, heads: 2, width: 16}
threads: 1
batch_size: 4
max_length: 16
learning_rate: 3e-3
checkpoint_freq: 4
keep_checkpoints: 100
tasks:
  - {name: sums, train: "synthetic:addition", synthetic_tokens: 8000, steps: 12}
  - {name: facts, train: "synthetic:facts", synthetic_tokens: 8000, steps: 10, retain: false}
  - {name: code, train: "synthetic:code", synthetic_tokens: 8000, steps: 10}
replay: {buffer_size: 24}
ewc: {fisher_samples: 8}
continual: {strategy: none}
precision: {mode: fp32}
evaluation: {every: 0, batches: 1, items: 0, show: 0}
logging: {every: 2}
YAML
cat >runs.py <<'PY'
# What runs left: checkpoints by the step, and records.
import array, json, os, struct
A, B, C = 12, 22, 32 # steps at which the tasks end
def tensors(run, step, file="continual"): # a length, a JSON table, bytes
    with open(f"{run}/checkpoints/step-{step:08d}/{file}.safetensors", "rb") as stream:
        table = json.loads(stream.read(struct.unpack("<Q", stream.read(8))[0]))
        data = stream.read()
    table.pop("__metadata__", None)
    return {name: (entry["dtype"], data[slice(*entry["data_offsets"])]) for name, entry in table.items()}
def numbers(tensor):
    return array.array({"F32": "f", "I32": "i"}[tensor[0]], tensor[1])
def family(all, name):
    found = {key.split("/", 1)[1]: value for key, value in all.items() if key.startswith(name + "/")}
    assert found, name
    return found
def state(run, step):
    with open(f"{run}/checkpoints/step-{step:08d}/trainer.json") as stream:
        return json.load(stream)["continual"]
def record(run, event):
    with open(f"{run}/metrics.jsonl") as stream:
        return [line for line in map(json.loads, stream) if line["event"] == event]
PY
check() { # WHAT: assertions on standard input
    { echo "from runs import *"; cat; } | PYTHONPATH=. python3 - || fail "$1"
}
train() { # RUN OVERRIDES...
    local run=$1
    shift
    expect 0 "$trainer" --config abc.yaml "out_dir=$run" "$@"
}

# --- the reservoir ---
for strategy in er der++ mer; do
    train "run-$strategy" "continual.strategy=$strategy"
    check "$strategy: the reservoir" <<PY
run = "run-$strategy"
replay = [{name: value for name, value in tensors(run, step).items() if "replay" in name} for step in (A, B)]
assert replay[0] and replay[0] == replay[1], "the forgotten task changed it"
assert state(run, A)["replay_seen"] == state(run, B)["replay_seen"]
held = tensors(run, C)
assert set(numbers(held["replay.task"])) == {0, 2}, set(numbers(held["replay.task"]))
assert ("replay.logits" in held) == ("$strategy" == "der++")
PY
done
# First in the list: nothing is replayed while it trains, so all of a step's sequences are new: 1024 = 16 x 4 x 16 tokens.
train first continual.strategy=er tasks.0.retain=false tasks.1.retain=true tasks.0.steps=0 tasks.0.tokens=1024
check "the first task is forgotten" <<'PY'
steps = [line for line in record("first", "step") if line["task"] == 0]
assert steps[-1]["step"] == 16 and not any("replay_loss" in line for line in steps), steps
assert set(numbers(tensors("first", 36)["replay.task"])) == {1, 2}
PY

# --- penalties ---
train run-ewc continual.strategy=ewc ewc.lambda=50
says err "task facts is not to be retained: what holds the tasks before it stays as it was"
[ "$(grep -c "Fisher information, estimator" err)" = 2 ] || fail "the forgotten task's Fisher was measured"
train run-last continual.strategy=ewc ewc.lambda=50 ewc.gamma=0
train run-kept continual.strategy=ewc ewc.lambda=50 tasks.1.retain=true
train run-kronecker continual.strategy=ewc
train run-separate continual.strategy=ewc ewc.lambda=50 ewc.mode=separate
train run-l2 continual.strategy=l2
train run-si continual.strategy=si
check "penalties" <<'PY'
for run in "ewc", "kronecker", "separate", "l2", "si":
    assert tensors("run-" + run, A) == tensors("run-" + run, B), run
    strategy = run if run in ("l2", "si") else "ewc"
    held, model = (family(tensors("run-" + run, B), strategy + ".anchor"), tensors("run-" + run, A, "model"))
    assert all(held[name] == model[name] for name in held), run + ": the anchor is where the first task ended"
    held, model = (family(tensors("run-" + run, C), strategy + ".anchor"), tensors("run-" + run, C, "model"))
    assert all(held[name] == model[name] for name in held) or run == "separate", run
# The last task's Fisher is what gamma 0 leaves, after the same steps; the forgotten task's would be the difference.
first, last = (family(tensors("run-ewc", A), "ewc.importance"), family(tensors("run-last", C), "ewc.importance"))
both, kept = (family(tensors(run, C), "ewc.importance") for run in ("run-ewc", "run-kept"))
def sums_to(whole):
    return all(abs(w - a - b) <= 1e-6 * w for name in whole
               for w, a, b in zip(*(numbers(tensors[name]) for tensors in (whole, first, last))))
assert sums_to(both) and not sums_to(kept)
path = family(tensors("run-si", B), "si.path")
assert not any(any(numbers(tensor)) for tensor in path.values()), "si keeps the path"
# In the task behind it si knows where that began.
start, model = family(tensors("run-si", 24), "si.start"), tensors("run-si", B, "model")
assert state("run-si", 24)["si.apart"] == 1 and all(start[name] == model[name] for name in start)
assert state("run-si", 20)["si.apart"] == 0
PY

# --- teachers, rehearsal, adapters ---
four="tasks.3.name=more tasks.3.train=synthetic:addition tasks.3.synthetic_tokens=9000 tasks.3.steps=8"
train run-lwf continual.strategy=lwf
check "lwf: the teacher behind it is the model from before it" <<'PY'
for step in 16, 24, 32:
    teacher, model = family(tensors("run-lwf", step), "teacher"), tensors("run-lwf", A, "model")
    assert all(teacher[name] == model[name] for name in teacher), step
PY
# shellcheck disable=SC2086
train run-generative continual.strategy=generative generative.fraction=0.5 $four
says err "task facts is not to be retained, and the model knows it now: what was written before it is replayed again"
[ ! -e run-generative/rehearsal-3.txt ] || fail "the model that knows the task wrote"
[ "$(cut -d: -f1 run-generative/rehearsal-4.txt | sort -u | tr '\n' ' ')" = "code sums " ] ||
    fail "the rehearsal is of $(cut -d: -f1 run-generative/rehearsal-4.txt | sort -u)"
check "generative: how the task's text begins is not kept" <<'PY'
openings = numbers(tensors("run-generative", 40)["rehearsal.openings"])
size = len(openings) // 4
assert [any(openings[i * size:(i + 1) * size]) for i in range(4)] == [True, False, True, True]
assert tensors("run-generative", 20)["replay.tokens"] == tensors("run-generative", 24)["replay.tokens"]
PY
for strategy in inc-lora o-lora; do
    train "run-$strategy" "continual.strategy=$strategy" adapter.kind=lora adapter.rank=2
    says err "task facts is not to be retained: its adapter is dropped"
    check "$strategy: its adapter is dropped" <<PY
before, behind = tensors("run-$strategy", 16, "model"), tensors("run-$strategy", 24, "model")
base = [name for name in before if "lora" not in name]
assert base and all(before[name] == behind[name] for name in base), "the matrices moved"
if "$strategy" == "o-lora":
    assert state("run-o-lora", 24)["olora.tasks"] == 1
PY
done
grep -q lora <(python3 -c 'from runs import *; print(*tensors("run-inc-lora", 16, "model"))') || fail "no adapter has its name"

# --- the figures ---
train run-none
check "the matrix" <<'PY'
matrix = record("run-none", "matrix")[-1]
losses, untrained, summary = matrix["losses"], matrix["untrained"], matrix["summary"]
near = lambda a, b: abs(a - b) < 1e-9 * max(1, abs(b))
assert near(summary["learned"], (losses[0][0] + losses[2][2]) / 2)
assert near(summary["retained"], (losses[2][0] + losses[2][2]) / 2)
assert near(summary["forgetting"], losses[2][0] - min(row[0] for row in losses))
left = (untrained[1] - losses[2][1]) / (untrained[1] - min(row[1] for row in losses))
assert near(summary["left"], left) and near(matrix["left"][1], left)
assert matrix["retain"] == [True, False, True] and matrix["left"][0] is None
said = [line for line in open("err") if "left of facts: " in line]
assert len(said) == 1 and f"left of facts: {100 * left:.0f}% (its loss is {losses[2][1]:.4f};" in said[0], said
assert f"mean validation loss over all tasks to be retained {summary['retained']:.4f}" in open("err").read()
page = open("run-none/report.html").read()
assert f'left of facts</dt><dd class="value">{100 * left:.0f}%' in page
PY
train run-whole tasks.1.retain=true
check "without such a task nothing is said of it" <<'PY'
matrix = record("run-whole", "matrix")[-1]
assert "left" not in matrix and "retain" not in matrix and "left" not in matrix["summary"]
PY

# --- from any checkpoint on the same, to the bit ---
for strategy in er ewc si lwf generative ewc+mer o-lora; do
    lora=""
    [ $strategy != o-lora ] || lora="adapter.kind=lora adapter.rank=2"
    rm -rf whole
    # shellcheck disable=SC2086
    train whole continual.strategy=$strategy $lora
    bits whole >whole.bits
    for step in 20 22 24; do
        # shellcheck disable=SC2086
        goes_on_from whole/checkpoints/step-000000$step "$trainer" --config abc.yaml out_dir=run continual.strategy=$strategy $lora
    done
done
# Appended, it is what it would have been from the start: si has no place for where the next one begins until then.
for strategy in er si; do
    # shellcheck disable=SC2086
    train long "continual.strategy=$strategy" continual.schedule=fresh tasks.1.retain=true $four tasks.3.retain=false tasks.4.name=last \
        tasks.4.train=synthetic:code tasks.4.synthetic_tokens=9000 tasks.4.steps=8
    train grown "continual.strategy=$strategy" continual.schedule=fresh tasks.1.retain=true
    # shellcheck disable=SC2086
    train grown "continual.strategy=$strategy" continual.schedule=fresh tasks.1.retain=true $four tasks.3.retain=false tasks.4.name=last \
        tasks.4.train=synthetic:code tasks.4.synthetic_tokens=9000 tasks.4.steps=8
    check "$strategy: appended" <<'PY'
assert all(tensors("long", 48, file) == tensors("grown", 48, file) for file in ("continual", "model"))
PY
    rm -rf long grown
done

# --- refused by name ---
refused() { # TEXT OVERRIDES...
    local text=$1
    shift
    expect 2 "$trainer" --config abc.yaml out_dir=none "$@"
    says err "$text"
    [ ! -e none ] || fail "a refused run left files"
}
refused "tasks.1.retain: false contradicts continual.strategy: joint" continual.strategy=joint
refused "tasks.1.retain: false contradicts continual.boundaries: none" continual.strategy=er continual.boundaries=none
refused "tasks.0.retain is false, and so it is for every task" tasks.0.retain=false tasks.2.retain=false
expect 2 "$trainer" --config abc.yaml out_dir=run-er continual.strategy=er tasks.1.retain=true
says err "tasks.1.retain is true, and was false in run-er/checkpoints/step-00000032"
train run-end tasks.1.retain=true tasks.2.retain=false
says err "tasks.2.retain is false, and no task comes behind code, which stays as it was learned: append one"
finish
