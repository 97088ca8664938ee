#!/bin/bash
# SPDX-License-Identifier: MIT
# trainer plan --ladder: each rung saves what it is there for, is what its keys train, and takes what it plans; --table's row for each
# card; what makes no sense is refused.
. "$(dirname "$0")/lib.sh"

cat >ladder.yaml <<'YAML'
seed: 7
out_dir: run
batch_size: 2
max_length: 32
max_steps: 4
device: cpu
model: {family: llama, layers: 3, heads: 4, kv_heads: 2, width: 64, mlp_width: 128, tie_head: false}
tokenizer: {kind: byte}
tasks: [{name: mixture, train: "synthetic:mixture", synthetic_tokens: 20000}]
adapter: {kind: lora, rank: 4, alpha: 8, targets: attention}
memory: {recompute: mlp}
evaluation: {every: 0, batches: 1, sample_tokens: 0}
YAML

# What each rung changes, by the categories of another truth than the code: bytes counted here from the model's shape.
check() {
    python3 - "$1" "$2" <<'PY'
import json, sys

ladder = json.loads(open(sys.argv[1]).read())
rungs = {rung["name"]: rung for rung in ladder["rungs"]}
assert list(rungs) == ["fp32", "fp16", "bf16", "+ recomputation", "+ attention without T x T", "+ 8-bit optimizer", "+ LoRA", "+ QLoRA"], list(rungs)
planned = {name: rung.get("planned", {}) for name, rung in rungs.items()}
C, V, F, L, T, B, H, K = 64, 257, 128, 3, 32, 2, 4, 2
matrices = L * (C * C + 2 * C * K * C // H + C * C + 3 * C * F)
parameters = 2 * V * C + matrices + (2 * L + 1) * C
assert ladder["parameters"] == parameters, (ladder["parameters"], parameters)


def near(name, category, bytes):  # each tensor is padded
    got = planned[name].get(category, 0)
    assert bytes <= got <= bytes + 64 * (4 * L * 8 + 16), (name, category, got, bytes)


near("fp32", "weights", 4 * parameters)
near("fp32", "gradients", 4 * parameters)
near("fp32", "optimizer moments", 8 * parameters)
assert "master weights" not in planned["fp32"]
vectors = (2 * L + 1) * C
near("bf16", "weights", 2 * (parameters - vectors) + 4 * vectors)
near("bf16", "master weights", 4 * (parameters - vectors))
assert planned["fp16"]["weights"] == planned["bf16"]["weights"] and planned["fp16"]["activations"] == planned["bf16"]["activations"]
assert planned["bf16"]["activations"] < planned["fp32"]["activations"]
assert planned["+ recomputation"]["activations"] < planned["bf16"]["activations"]
assert planned["+ recomputation"] == planned["+ attention without T x T"]
# The head and the matrices have 4096 elements and more: two codes an element, two absmax for 256; the others stay in f32.
near("+ 8-bit optimizer", "optimizer moments", (2 + 8 / 256) * (V * C + matrices) + 8 * (V * C + vectors))
assert planned["+ LoRA"]["gradients"] == planned["+ LoRA"]["master weights"]
# A 4-wide branch on q, k, v, o of each layer: A [4, 64], B [64 | 32 | 32 | 64, 4].
near("+ LoRA", "gradients", 4 * L * 4 * (4 * C + 2 * C + 2 * C * K // H))
# Codes of four bits, a byte for 64 of them, and an f32 for 256 of those bytes, in place of bf16 (Dettmers et al. 2023).
assert planned["+ QLoRA"]["gradients"] == planned["+ LoRA"]["gradients"]
four = (0.5 + 1 / 64 + 4 / 64 / 256) * matrices
near("+ QLoRA", "weights", planned["+ LoRA"]["weights"] - 2 * matrices + four - 64 * 4 * L * 8)
# Scores: [B, H, T, T] a layer in the activations' format.
layer = B * H * T * T
scores = [rung["computed_score_bytes"] for rung in ladder["rungs"]]
assert scores[:5] == [4 * L * layer, 2 * L * layer, 2 * L * layer, 2 * layer, 0] and not any(scores[5:]), scores
first = before = ladder["rungs"][0]["bytes"]
for rung in ladder["rungs"]:
    assert sum(rung["planned"].values()) == rung["planned_bytes"] and rung["bytes"] == rung["planned_bytes"] + rung["computed_score_bytes"]
    assert rung["bytes"] <= before, rung["name"]
    assert abs(rung["saved_of_the_last"] - (1 - rung["bytes"] / before)) < 1e-12
    assert abs(rung["saved_of_the_first"] - (1 - rung["bytes"] / first)) < 1e-12
    assert rung["fits"] == (rung["bytes"] <= ladder["limit_bytes"])
    before = rung["bytes"]
    known = sys.argv[2] == "timed"
    assert (rung["step_seconds"] is not None and rung["step_seconds"] > 0) == known, rung
PY
}

for device in cpu emu; do
    expect 0 "$trainer" plan --ladder --json --config ladder.yaml device=$device
    cp out $device.json
    check $device.json "$([ $device = cpu ] && echo timed || echo untimed)" || fail "the ladder on $device"
    # Each rung trained: planned is taken, to the byte.  By `make test` on the device with its own memory.
    [ $device = emu ] || in_tier 1 2 || continue
    expect 0 env DEVICE=$device STEPS=2 BUILD="${BUILD:-build}" "$root/bench/ladder.sh" ladder.yaml
    [ "$(grep -c '| yes |' out)" = "$(grep -c '"name"' <(tr ',' '\n' <$device.json))" ] || fail "not every rung was trained on $device"
    says out "| + LoRA |"
done

# A rung's keys, written behind the file, are the rung.
keys=$(python3 -c 'import json; print("\n".join(json.load(open("cpu.json"))["rungs"][6]["overrides"]))')
mapfile -t keys <<<"$keys"
expect 0 "$trainer" plan --config ladder.yaml "${keys[@]}"
total=$(awk '$1 == "total" { print $2 }' out)
python3 -c 'import json, sys; rung = json.load(open("cpu.json"))["rungs"][6]; sys.exit("%.1f" % (rung["planned_bytes"] / 2 ** 20) != sys.argv[1])' "$total" ||
    fail "the plan of a rung's keys is another: $total"

# The text: every rung, what does not fit, and that scores are computed.
expect 0 "$trainer" plan --ladder --config ladder.yaml memory.limit=3MiB
for rung in fp32 fp16 bf16 "+ recomputation" "+ attention without T x T" "+ 8-bit optimizer" "+ LoRA" "+ QLoRA"; do
    grep -qE "^  ${rung//+/\\+} .*%.*(yes|no)$" out || fail "no line for $rung"
done
says out "scores, computed: this runtime's attention never writes its scores"
grep -qE "^  fp32 .* no$" out || fail "fp32 fits into 3 MiB"
grep -qE "^  \+ LoRA .* yes$" out || fail "LoRA does not fit into 3 MiB"

# A rung that the configuration cannot have is a line with the reason; the others are planned.
refused="continual.strategy=ewc ewc.curvature=kronecker adapter.kind=none adapter.rank=16 adapter.alpha=32"
# shellcheck disable=SC2086
expect 0 "$trainer" plan --ladder --config ladder.yaml $refused
says out "+ LoRA                     not here: rung + LoRA: "
says out "adapter.kind is lora: set diagonal, or auto"
grep -qE "^  \+ 8-bit optimizer .*%" out || fail "the rungs before LoRA are not planned"
# shellcheck disable=SC2086
expect 0 "$trainer" plan --ladder --json --config ladder.yaml $refused
says out '"refused":"rung + LoRA: '
expect 0 "$trainer" plan --ladder --config ladder.yaml continual.strategy=inc-lora
says out "fp32                       not here: rung fp32: command line: continual.strategy: inc-lora gives each task an adapter"
grep -qE "^  \+ LoRA .* 0\.0% +0\.0% .* yes$" out || fail "LoRA is the first rung that inc-lora has"
expect 0 "$trainer" plan --table --config ladder.yaml continual.strategy=inc-lora
grep -qE "^\| 24 GB \| - \| - \| [0-9]+; [0-9]+ \|" out || fail "inc-lora on 24 GB: $(grep '| 24 GB' out | tail -n 1)"
says out "full, AdamW: not here: rung "

# Cards: memory and times of a GPU that is not here.
expect 0 "$trainer" plan --ladder --config ladder.yaml --card "rtx 3060" device=auto
says out "device: RTX 3060 of 12288 MiB that is not here"
says out "at the card's datasheet"
grep -qE "^  \+ LoRA .* yes$" out || fail "a tiny model does not fit into 12 GB"
expect 0 "$trainer" plan --config ladder.yaml --card "H100 SXM" device=cuda precision.mode=bf16
says out "at the datasheet's 989400 GFLOP/s (bf16)"
says out "parameters moved at 3350.0 GB/s"
expect 2 "$trainer" plan --config ladder.yaml --card "RTX 360"
says err "there is no \`RTX 360\`; did you mean RTX 3060?; the cards are RTX 4060 (8 GB), "
expect 2 "$trainer" plan --config ladder.yaml --card "RTX 3060" --device-memory 12GiB
says err "--card RTX 3060 has 12 GB of memory: leave --device-memory out"
expect 2 "$trainer" plan --config ladder.yaml --card "RTX 3060"
says err "the configuration's device is cpu: add device=cuda"
expect 2 "$trainer" plan --config ladder.yaml --json
says err "--json is the ladder's: add --ladder"
for other in table layers fit; do
    expect 2 "$trainer" plan --config ladder.yaml --ladder --$other
    says err "--ladder and --$other are two tables"
done
expect 2 "$trainer" plan --ladder
says err "--config FILE is missing"
expect 2 "$trainer" plan --ladder --config ladder.yaml model.layers=-1
says err "model.layers must be at least 1"
expect 0 "$trainer" plan --help
says out "--ladder"
says out "The cards: RTX 4060 (8 GB), "
# Far more than any machine has: numbers, and no rung fits.
expect 0 "$trainer" plan --ladder --config ladder.yaml max_length=8192 batch_size=65536 model.layers=512
[ "$(grep -cE '^  .*% .* no$' out)" = "$(grep -c '"name"' <(tr ',' '\n' <cpu.json))" ] || fail "something fits that cannot"

expect 2 "$trainer" plan --ladder --config ladder.yaml max_length=65536 batch_size=1048576 model.layers=512
says err "more than can be planned: lower them"

# By card: what a larger one holds is more; eight hold what one does.
expect 0 "$trainer" plan --table --config ladder.yaml device=auto --device-memory 12GiB
sed -n '/full, AdamW/,$p' out >fits
for size in 8 12 16 24 40 80 "8 x 80"; do
    grep -qE "^\| $size GB \| .*[0-9]+; [0-9]+ \|" fits || fail "no row for $size GB"
done
awk -F'|' '/^\| [0-9]+ GB/ { for (i = 3; i <= 6; i++) { split($i, a, ";"); if (a[1] + 0 < most[i]) exit 1; most[i] = a[1] + 0 } }' fits || fail "a larger card holds less"
# A sequence at a time fits and one more does not, by the planner itself.
most=$(awk -F'|' '/^\| 8 GB/ { split($3, a, ";"); print a[1] + 0 }' fits)
fits_8gb() {
    "$trainer" plan --config ladder.yaml device=auto --device-memory 8GiB precision.mode=bf16 memory.recompute=block adapter.kind=none adapter.rank=16 \
        adapter.alpha=32 batch_size="$1" >out 2>err
}
fits_8gb "$most" || fail "$most sequences do not fit into 8 GB"
if [ "$most" -lt 1048576 ]; then
    fits_8gb $((most + 1)) && fail "$((most + 1)) sequences fit into 8 GB, too"
fi
expect 0 "$trainer" plan --table --config "$root/configs/ladder/llama-3.1-8b.yaml" --device-memory 24GiB
grep -qE '^\| 24 GB \| no: [0-9.]+ GiB \| no: [0-9.]+ GiB \| [0-9]+; [0-9]+ \|' out || fail "Llama 3.1 8B on 24 GB: $(grep '| 24 GB' out)"

# The field's four: planned within seconds, wherever.
for model in gpt2-124m llama-3.2-1b llama-2-7b llama-3.1-8b; do
    expect 0 timeout 10 "$trainer" plan --ladder --config "$root/configs/ladder/$model.yaml" --card "RTX 4090"
    grep -qE "^  \+ LoRA .* yes$" out || fail "LoRA of $model does not fit into 24 GB"
done

# What owners of a card compare fits into the card that it is for.
fits_card() {
    local card=$1 config=$2
    shift 2
    expect 0 "$trainer" plan --no-training --card "$card" --config "$root/configs/cards/$config.yaml" device=cuda "$@"
}
fits_card "RTX 4090" full-0.5b
fits_card "RTX 4090" full-0.5b precision.mode=fp8
fits_card "RTX 5060 Ti" full-0.5b memory.micro_batch=4
fits_card "RTX 3060" full-0.5b memory.micro_batch=2
fits_card "RTX 3060" lora-1b
fits_card "RTX 3060" qlora-8b
finish
