#!/bin/bash
# SPDX-License-Identifier: MIT
# Update rules, groups and frozen parameters of whole runs: a resumed run repeats the bits of an undisturbed one, what is
# frozen stays and takes no memory, a group has its own rate, and what makes no sense is refused by name.
. "$(dirname "$0")/lib.sh"
tiny_config

# resumes NAME OVERRIDE...: 12 steps at once and in two halves have the same bits.
resumes() {
    local name=$1
    shift
    expect 0 "$trainer" --config tiny.yaml max_steps=12 schedule.decay_steps=12 out_dir="$name-a" "$@"
    expect 0 "$trainer" --config tiny.yaml max_steps=6 schedule.decay_steps=12 out_dir="$name-b" "$@"
    expect 0 "$trainer" --config tiny.yaml max_steps=12 schedule.decay_steps=12 out_dir="$name-b" "$@"
    tensors "$name-a" | grep -v trainer.json >a
    tensors "$name-b" | grep -v trainer.json >b
    same a b
}

# In 8 bits: matrices and head; the tables and what is small in f32.
eight="optimizer.kind=adamw8bit model.width=64"
fp8="optimizer.kind=adamwfp8 model.width=64"
# Other projections after the fourth and the eighth of twelve steps: one in each half, and not where they meet.
apollo="optimizer.kind=apollo apollo.rank=4 apollo.interval=4"
for mode in fp32 bf16 fp16; do
    # shellcheck disable=SC2086
    resumes eight-$mode $eight precision.mode=$mode model.tie_head=false
    # shellcheck disable=SC2086
    resumes fp8-$mode $fp8 precision.mode=$mode model.tie_head=false
    resumes rounded-$mode optimizer.moments=bf16 precision.mode=$mode
    resumes muon-$mode optimizer.kind=muon precision.mode=$mode
    # shellcheck disable=SC2086
    resumes apollo-$mode $apollo precision.mode=$mode
    resumes average-$mode average.decay=0.7 evaluation.every=5 checkpoint_freq=1 keep_checkpoints=100 precision.mode=$mode
    resumes free-$mode optimizer.kind=schedule-free evaluation.every=5 checkpoint_freq=1 keep_checkpoints=100 \
        precision.mode=$mode
    resumes frozen-$mode 'train.freeze=["*.h.0.*", embedding]' model.tie_head=false precision.mode=$mode
done
# shellcheck disable=SC2086
resumes eight-stochastic $eight precision.master_weights=false gradient_accumulation_steps=2
# shellcheck disable=SC2086
resumes fp8-stochastic $fp8 precision.master_weights=false gradient_accumulation_steps=2
tensors eight-fp32-a | grep -v trainer.json >a
tensors fp8-fp32-a | grep -v trainer.json >b
cmp -s a b && fail "adamw8bit and adamwfp8 train alike"
resumes rounded-stochastic optimizer.moments=bf16 precision.master_weights=false
resumes stochastic optimizer.kind=muon muon.polynomial=polar-express optimizer.moments=bf16 precision.master_weights=false
resumes average-stochastic average.decay=0.7 evaluation.every=5 checkpoint_freq=1 keep_checkpoints=100 \
    precision.master_weights=false
resumes free-stochastic optimizer.kind=schedule-free evaluation.every=5 checkpoint_freq=1 keep_checkpoints=100 \
    precision.master_weights=false
resumes free-rounded optimizer.kind=schedule-free optimizer.moments=bf16 evaluation.every=5
resumes free-group optimizer.kind=muon evaluation.every=5 'optimizer.groups=[{match: embedding, kind: schedule-free}]'
resumes muon-today optimizer.kind=muon muon.beta2=0.95 muon.equilibrate=true muon.cautious_decay=true muon.head_group=1 \
    muon.momentum_warmup_steps=8 muon.momentum_end=0.8 schedule.kind=wsd
# shellcheck disable=SC2086
resumes apollo-stochastic $apollo optimizer.moments=bf16 precision.master_weights=false gradient_accumulation_steps=2
resumes apollo-mini optimizer.kind=apollo apollo.rank=1 apollo.granularity=tensor apollo.growth_limit=0
resumes apollo-group 'optimizer.groups=[{match: "*.mlp.*", kind: apollo}]' apollo.rank=4
resumes groups 'optimizer.groups=[{match: embedding, learning_rate: 1e-4}, {match: vector, kind: sgd, weight_decay: 0}]'

# Over tasks, with every strategy, from a checkpoint of the first task and one of the second.
tiny_tasks
resumes_tasks() {
    local options="checkpoint_freq=1 keep_checkpoints=1000 tasks.2.steps=4 max_steps=7 $*" checkpoint
    rm -rf whole run
    # shellcheck disable=SC2086
    expect 0 "$trainer" --config tasks.yaml $options
    mv run whole
    bits whole >whole.bits
    for checkpoint in $(ls -d whole/checkpoints/step-* | sed -n '4p;10p'); do
        # shellcheck disable=SC2086
        goes_on_from "$checkpoint" "$trainer" --config tasks.yaml $options
    done
    rm -rf run
}
turn=0
for what in optimizer.kind=muon "$apollo" "$eight" "$fp8" train.freeze=matrix optimizer.kind=schedule-free; do
    while read -r settings; do
        # shellcheck disable=SC2086
        ! in_tier $((turn++)) 2 || resumes_tasks "$what" $settings
    done <<'SETTINGS'
continual.strategy=[ewc,mer] mer.group_steps=3 mer.groups=2 mer.beta=0.5 precision.mode=bf16
continual.strategy=[si,er] precision.mode=fp16 precision.init_scale=1e13
continual.strategy=[ewc,a-gem] ewc.mode=separate ewc.step=proximal
continual.strategy=l2 precision.mode=fp32
SETTINGS
    turn=$((turn + 1))
done

# What is frozen stays, bit for bit, and has neither moments nor a penalty.
python3 - frozen-fp32-a <<'PY' || fail "frozen tensors"
import json, struct, sys
folder = sys.argv[1] + "/checkpoints/" + open(sys.argv[1] + "/checkpoints/latest").read().strip()
def names(file):
    data = open(f"{folder}/{file}", "rb").read()
    return json.loads(data[8:8 + struct.unpack("<Q", data[:8])[0]])
model, moments = names("model.safetensors"), names("optimizer.safetensors")
frozen = [n for n in model if ".h.0." in n or "wte" in n or "wpe" in n]
assert frozen and not [n for n in moments for f in frozen if n.startswith(f + ".")], moments.keys()
assert "transformer.h.1.attn.c_attn.weight.m" in moments and "lm_head.weight.v" in moments
PY

# A checkpoint's model is the moving average of what was trained: here, from the checkpoints of all steps, in double.  The
# first is what was trained; then 3 roundings a step, of numbers no larger than twice the largest that were averaged.  Training is as without averages.
for mode in fp32 bf16 fp16 stochastic; do
    python3 - "average-$mode-a" <<'PY' || fail "average-$mode"
import array, json, struct, sys
def tensors(path):
    data = open(path, "rb").read()
    size = 8 + struct.unpack("<Q", data[:8])[0]
    def values(row):
        begin, end = (size + o for o in row["data_offsets"])
        if row["dtype"] == "BF16": # the upper halves of f32
            halves = array.array("H", data[begin:end])
            return array.array("f", b"".join(struct.pack("<HH", 0, h) for h in halves))
        return array.array("f", data[begin:end])
    rows = json.loads(data[8:size])
    return {name: values(row) for name, row in rows.items() if row.get("dtype") in ("F32", "BF16")}
average, largest, apart = {}, {}, 0
for step in range(1, 13):
    folder = f"{sys.argv[1]}/checkpoints/step-{step:08}"
    model, states = tensors(folder + "/model.safetensors"), tensors(folder + "/optimizer.safetensors")
    rate = max(1 - 0.7, 1 / step)
    for name, saved in model.items():
        trained = states[name + ".trained"]
        before = average.get(name, trained)
        average[name] = [a + rate * (p - a) for a, p in zip(before, trained)]
        for i, a in enumerate(average[name]):
            largest[name, i] = max(largest.get((name, i), 0), abs(trained[i]))
            assert abs(a - saved[i]) <= 3 * step * 2**-24 * 2 * largest[name, i], (name, i, step, a, saved[i])
            apart = max(apart, abs(saved[i] - trained[i]))
assert apart > 1e-4, apart
PY
    plain="precision.mode=$mode"
    [ $mode != stochastic ] || plain="precision.master_weights=false"
    expect 0 "$trainer" --config tiny.yaml max_steps=12 out_dir="plain-$mode" "$plain"
    python3 - "average-$mode-a" "plain-$mode" <<'PY' || fail "average.decay changed how $mode trains"
import json, sys
a, b = ([(e["step"], e["loss"], e["grad_norm"]) for e in map(json.loads, open(run + "/metrics.jsonl")) if e["event"] == "step"]
        for run in sys.argv[1:])
assert a and a == b, (a, b)
PY
done
# Of schedule-free the model is x = y + (1 - 1 / beta1) (z - y), of the states in the same checkpoint: product and sum, and
# one rounding to the model's format.  That is what was evaluated: in fp32 the checkpoint's loss has the run's digits.
# Evaluations leave training as it is.
for mode in fp32 bf16 fp16 stochastic; do
    python3 - "free-$mode-a" <<'PY' || fail "free-$mode"
import array, json, struct, sys
def tensors(path):
    data = open(path, "rb").read()
    size = 8 + struct.unpack("<Q", data[:8])[0]
    def values(row):
        begin, end = (size + o for o in row["data_offsets"])
        if row["dtype"] == "BF16": # the upper halves of f32
            halves = array.array("H", data[begin:end])
            return array.array("f", b"".join(struct.pack("<HH", 0, h) for h in halves))
        return array.array("f", data[begin:end])
    rows = json.loads(data[8:size])
    narrow = {name for name, row in rows.items() if row.get("dtype") == "BF16"}
    return {name: values(row) for name, row in rows.items() if row.get("dtype") in ("F32", "BF16")}, narrow
apart = 0
for step in (1, 5, 12):
    folder = f"{sys.argv[1]}/checkpoints/step-{step:08}"
    (model, narrow), (states, _) = tensors(folder + "/model.safetensors"), tensors(folder + "/optimizer.safetensors")
    for name, saved in model.items():
        for x, y, d in zip(saved, states[name + ".trained"], states[name + ".z_minus_y"], strict=True):
            moved = (1 - 1 / 0.9) * d
            bound = 3 * 2**-24 * (abs(y) + abs(moved)) + (2**-8 * abs(x) if name in narrow else 0)
            assert abs(x - (y + moved)) <= bound, (name, step, x, y, d)
            apart = max(apart, abs(x - y))
assert apart > 1e-5, apart
PY
    plain="precision.mode=$mode"
    [ $mode != stochastic ] || plain="precision.master_weights=false"
    expect 0 "$trainer" --config tiny.yaml max_steps=12 out_dir="free-plain-$mode" optimizer.kind=schedule-free "$plain" \
        checkpoint_freq=0 evaluation.every=12
    python3 - "free-$mode-a" "free-plain-$mode" <<'PY' || fail "evaluations change how $mode trains without a schedule"
import json, sys
a, b = ([(e["step"], e["loss"], e["grad_norm"]) for e in map(json.loads, open(run + "/metrics.jsonl")) if e["event"] == "step"]
        for run in sys.argv[1:])
assert a and a == b, (a, b)
PY
done
expect 0 "$trainer" eval --checkpoint free-fp32-a --batches 2
says out "validation loss  $(python3 -c 'import json, sys
print("%.6f" % [e for e in map(json.loads, open(sys.argv[1])) if e["event"] == "eval"][-1]["val_loss"])' free-fp32-a/metrics.jsonl)"
expect 0 "$trainer" export --checkpoint average-fp32-a --out exported
python3 - average-fp32-a/checkpoints/step-00000012/model.safetensors exported/model.safetensors <<'PY' || fail "an export has no averages"
import json, struct, sys
def tensor(path, name):
    data = open(path, "rb").read()
    size = 8 + struct.unpack("<Q", data[:8])[0]
    begin, end = json.loads(data[8:size])[name]["data_offsets"]
    return data[size + begin:size + end]
assert tensor(sys.argv[1], "transformer.ln_f.weight") == tensor(sys.argv[2], "transformer.ln_f.weight")
PY

# Codes of one byte and an absmax for 256 of them; embeddings, vectors and matrices under 4096 elements in f32.
for run in eight-fp32-a fp8-fp32-a; do
    python3 - $run <<'PY' || fail "$run: states in 8 bits"
import json, struct, sys
folder = sys.argv[1] + "/checkpoints/" + open(sys.argv[1] + "/checkpoints/latest").read().strip()
def names(file):
    data = open(f"{folder}/{file}", "rb").read()
    return json.loads(data[8:8 + struct.unpack("<Q", data[:8])[0]])
model, states = names("model.safetensors"), names("optimizer.safetensors")
eight = 0
for name, row in model.items():
    if name == "__metadata__":
        continue
    count = 1
    for extent in row["shape"]:
        count *= extent
    small = count < 4096 or "wte" in name or "wpe" in name
    eight += not small
    for moment in "mv":
        assert states[f"{name}.{moment}"]["dtype"] == ("F32" if small else "U8"), name
        assert states[f"{name}.{moment}"]["shape"] == row["shape"], name
        assert (f"{name}.{moment}_absmax" in states) == (not small), name
        assert small or states[f"{name}.{moment}_absmax"]["shape"] == [(count + 255) // 256], name
assert eight == 9, eight
PY
    expect 0 "$trainer" inspect --checkpoint $run
done

expect 0 "$trainer" plan --no-training --config tiny.yaml 'train.freeze=[matrix, vector, embedding]' model.tie_head=false
says out "8224 trainable, 33984 frozen (train.freeze)"
expect 0 "$trainer" plan --no-training --config tiny.yaml optimizer.kind=muon
says out "optimizer: muon, 0.025 million parameters in 8 tensors, peak learning rate 0.001"
# shellcheck disable=SC2086
expect 0 "$trainer" plan --no-training --config tiny.yaml $apollo
says out "optimizer: apollo, 0.025 million parameters in 8 tensors, peak learning rate 0.001"
# The tiny model's matrices are 32 wide.
expect 0 "$trainer" plan --no-training --config tiny.yaml optimizer.kind=apollo
says err "apollo serves matrices of the blocks with both sides above apollo.rank"
says err "Lower apollo.rank"
# shellcheck disable=SC2086
expect 0 "$trainer" plan --no-training --config tiny.yaml $eight
says out "optimizer: adamw8bit, 0.098 million parameters in 8 tensors, peak learning rate 0.001"
# shellcheck disable=SC2086
expect 0 "$trainer" plan --no-training --config tiny.yaml $fp8
says out "optimizer: adamwfp8, 0.098 million parameters in 8 tensors, peak learning rate 0.001"
expect 0 "$trainer" plan --no-training --config tiny.yaml 'optimizer.groups=[{match: "*.mlp.*", learning_rate: 2e-3}]'
says out "group 0: adamw, 0.016 million parameters in 4 tensors, peak learning rate 0.002"
says out "all others: adamw"
expect 0 "$trainer" plan --no-training --config tiny.yaml 'optimizer.groups=[{match: "*.mlp.*", weight_decay: 0}]'
says out "group 0: adamw, 0.016 million parameters in 4 tensors, peak learning rate 0.001, weight decay 0"

refused() {
    local text=$1
    shift
    expect 2 "$trainer" --config tiny.yaml out_dir=refused "$@"
    says err "$text"
}
expect 2 "$trainer" --config tasks.yaml out_dir=refused continual.strategy=merge average.decay=0.9
says err "strategy merge makes others between tasks: remove one of the two"
expect 2 "$trainer" --config tasks.yaml out_dir=refused continual.strategy=merge optimizer.kind=schedule-free
says err "strategy merge makes other weights between tasks: choose another of the two"
refused "evaluates and saves a mean of its weights already; leave average.decay out" \
    optimizer.kind=schedule-free average.decay=0.9
refused "the first must be above 0" 'optimizer.groups=[{match: head, kind: schedule-free}]' optimizer.betas='[0, 0.95]' \
    model.tie_head=false
refused "train.size has no rule for the rate of optimizer.kind: schedule-free" optimizer.kind=schedule-free train.size=300k
refused "optimizer.moments: bf16 is for AdamW's moments, and optimizer.kind: sgd has none" \
    optimizer.kind=sgd optimizer.moments=bf16
refused 'train.freeze: `*.c_atn.*` names no parameter' 'train.freeze="*.c_atn.*"'
refused "names every parameter" 'train.freeze="*"'
refused "optimizer.groups.0.match is missing" 'optimizer.groups=[{learning_rate: 1e-3}]'
refused 'optimizer.groups.0.match: `nothing`' 'optimizer.groups=[{match: nothing}]'
refused "belongs to an earlier group" 'optimizer.groups=[{match: matrix}, {match: "*.mlp.*"}]'
refused "muon serves matrices of the blocks only" 'optimizer.groups=[{match: embedding, kind: muon}]'
refused "apollo serves matrices of the blocks with both sides above apollo.rank only" \
    'optimizer.groups=[{match: embedding, kind: apollo}]'
refused "apollo.growth_limit must be 0, for none, or at least 1" optimizer.kind=apollo apollo.growth_limit=0.5
refused "adamw8bit serves parameters of 4096 elements and more that are no embeddings only, and transformer.wte.weight" \
    'optimizer.groups=[{match: embedding, kind: adamw8bit}]'
refused "adamwfp8 serves parameters of 4096 elements and more that are no embeddings only, and transformer.wte.weight" \
    'optimizer.groups=[{match: embedding, kind: adamwfp8}]'
refused "unknown key optimizer.groups.0.rate" 'optimizer.groups=[{match: head, rate: 1}]'
expect 2 "$trainer" --config tiny.yaml max_steps=14 schedule.decay_steps=12 out_dir=muon-fp32-a optimizer.kind=muon \
    precision.mode=fp32 train.freeze=vector resume=changed
says err "differing: train.freeze"
# shellcheck disable=SC2086
expect 2 "$trainer" --config tiny.yaml max_steps=14 schedule.decay_steps=12 out_dir=eight-fp32-a model.tie_head=false \
    precision.mode=fp32 model.width=64 resume=changed
says err "differing: optimizer.kind"
# The same shapes and formats: only the codes' meaning differs.
# shellcheck disable=SC2086
expect 2 "$trainer" --config tiny.yaml max_steps=14 schedule.decay_steps=12 out_dir=eight-fp32-a model.tie_head=false \
    precision.mode=fp32 $fp8 resume=changed
says err "differing: optimizer.kind"
finish
