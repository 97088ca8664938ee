#!/bin/bash
# SPDX-License-Identifier: MIT
# trainer plan, the refusal of what does not fit, and memory.auto_fit, which trains the same within the limit.
. "$(dirname "$0")/lib.sh"

cat >fit.yaml <<'YAML'
seed: 7
out_dir: run
batch_size: 256
max_length: 16
max_steps: 20
learning_rate: 1e-3
checkpoint_freq: 0
device: cpu
model: {family: gpt2, layers: 2, heads: 2, width: 32, dropout: 0.1}
tokenizer: {kind: char}
tasks: [{name: addition, train: "synthetic:addition", synthetic_tokens: 80000}]
precision: {mode: fp32}
schedule: {warmup_steps: 4}
evaluation: {every: 0, batches: 1}
logging: {every: 1, memory: table}
YAML

# total FILE: MiB of the plan's last row.
total() {
    awk '$1 == "total" { print $2 }' "$1"
}

# The 12 GB scenario, without its data, for a GPU that is not here: 4.6 GB, and what the table is made of.
expect 0 "$trainer" plan --config "$root/configs/cl-12gb.yaml" --device-memory 12GiB
says err "planned without the tasks' data"
says out "reference gradient"
says out "left: "
awk '$1 == "total" { gb = $2 * 1048576 / 1e9; if (gb < 4.4 || gb > 4.9) exit 1 }' out || fail "the 12 GB scenario takes $(total out) MiB"
# Rows but the indented ones, and but the replay buffer, which lies on the host, add up to the total.
awk '/^  [a-zA-Z]/ && $1 != "total" && $1 != "replay" { for (i = 1; i <= NF; i++) if ($i ~ /^[0-9]+\.[0-9]$/) { sum += $i; break } }
     $1 == "total" { total = $2 }
     END { d = sum - total; if (d > 1 || d < -1) { print "rows: " sum ", total: " total; exit 1 } }' out || fail "the rows don't add up"
expect 0 "$trainer" plan --config "$root/configs/cl-12gb.yaml" --device-memory 12GiB --layers
says out "block 11"
expect 0 "$trainer" plan --config "$root/configs/cl-12gb.yaml" --device-memory 12GiB --table
[ "$(grep -cE '^\| [0-9]+ GB \| [0-9]+ M \|' out)" = 6 ] || fail "six sizes were asked for"
expect 1 "$trainer" plan --config "$root/configs/cl-12gb.yaml" --device-memory 5GiB
says err "would refuse"
says out "the effective batch stays"
expect 2 "$trainer" plan --config fit.yaml --device-memory many
says err "a size in bytes, such as 12GiB, 500MB or 1048576 (got many)"
expect 2 "$trainer" plan --config fit.yaml --device-memory 12
says err "from 1MiB to 1024TiB"
expect 2 "$trainer" plan

# What the limit does not allow is refused before anything is there, with lines that make it fit.
# A limit as it was written when the number meant MiB is refused with the unit to add.
expect 2 "$trainer" --config fit.yaml memory.limit=12
says err "write 12MiB"
expect 1 "$trainer" --config fit.yaml memory.limit=12MiB
says err "nothing was allocated"
says err "activations: block.0.mlp.up.out, f32 [4096, 128]"
says err "auto_fit: true"
[ -d run ] && fail "a refused run left a folder"

# Far more than any machine has: planned all the same, with its sizes, and training is refused with the same figure.
expect 1 "$trainer" plan --config fit.yaml max_length=8192 batch_size=1048576 model.layers=64 tasks.0.synthetic_tokens=200000 max_steps=1
says out "the plan exceeds it by"
planned=$(grep -oE 'the plan needs [0-9]+ MiB' err)
expect 1 "$trainer" --config fit.yaml max_length=8192 batch_size=1048576 model.layers=64 tasks.0.synthetic_tokens=200000 max_steps=1
says err "$planned"
says err "nothing was allocated"
[ -d run ] && fail "a refused run left a folder"
# Text that would fill the memory is not begun; a plan does without.
expect 2 "$trainer" --config fit.yaml tasks.0.synthetic_tokens=9000000000000000
says err "lower synthetic_tokens"
expect 0 "$trainer" plan --config fit.yaml tasks.0.synthetic_tokens=9000000000000000 model.vocabulary=64
says err "planned without the tasks' data"
expect 2 "$trainer" plan --config fit.yaml tasks.0.epochs=9000000000000000 batch_size=1
says err "more than can be counted"

for mode in fp32 bf16; do
    limit=$([ $mode = fp32 ] && echo 12 || echo 9)
    expect 0 "$trainer" --config fit.yaml precision.mode=$mode out_dir=whole-$mode
    expect 0 "$trainer" --config fit.yaml precision.mode=$mode memory.limit=${limit}MiB memory.auto_fit=true out_dir=fitted-$mode
    says err "micro_batch"
    awk -v limit=$limit '/ total / { if ($3 > 0.8 * limit || $3 != $5) exit 1; seen = 1 } END { exit !seen }' err ||
        fail "$mode: planned and taken: $(grep ' total ' err)"
    near whole-$mode fitted-$mode $mode 4096
    # The lines, written out, are the same run; and so is the fitted run, stopped and gone on with.
    grep -qE '^  micro_batch: [0-9]+' fitted-$mode/config.yaml || fail "the resolved configuration does not say micro_batch"
    expect 0 "$trainer" --config fit.yaml precision.mode=$mode memory.limit=${limit}MiB memory.auto_fit=true out_dir=two max_steps=12 schedule.decay_steps=20
    expect 0 "$trainer" --config fit.yaml precision.mode=$mode memory.limit=${limit}MiB memory.auto_fit=true out_dir=two max_steps=20 schedule.decay_steps=20
    [ "$(tensors two | head -n 1)" = "$(tensors fitted-$mode | head -n 1)" ] || fail "$mode: stopped and gone on with, the fitted run is another"
    rm -r two
done

# What an hour, a night and a week train here: by the same rules as train.size, some ten tokens a parameter.
expect 0 "$trainer" plan --config fit.yaml tasks.0.synthetic_tokens=9000000000000000 model.vocabulary=64 max_steps=20
says out "in a given time, by the rules of train.size"
awk '/^  (an hour|a night|a week)/ { sub(/an hour|a night, 10 h|a week, 168 h/, "")
         rows++; k = $5 / $1; if (k < 7 || k > 14) { print "tokens a parameter: " $0; exit 1 }
         if ($6 * $8 * $10 / 1e6 > 1.1 * $5 || $6 * $8 * $10 / 1e6 < 0.9 * $5) { print "steps: " $0; exit 1 }
         if ($1 + 0 <= last) { print "no larger: " $0; exit 1 } last = $1 + 0 }
     END { exit rows != 3 }' out || fail "the table of times: $(grep -A 5 'in a given time' out)"
# A text that is read through in less than an hour.
expect 0 "$trainer" plan --config fit.yaml
says out "longer times train the same: after 4 passes"
[ "$(grep -cE '^  (an hour|a night|a week)' out)" = 1 ] || fail "one time was enough"
[ ! -e runs ] || fail "a plan left a folder"
expect 0 "$trainer" plan --config fit.yaml --no-training
! grep -q "in a given time" out || fail "--no-training trains"
expect 0 "$trainer" plan --config fit.yaml device=ref
! grep -q "in a given time" out || fail "the reference has no rate"
expect 2 "$trainer" plan --config fit.yaml --no-training --ladder
says err "--no-training is for the plan itself"

# A step on a card that is not here: its launches by part add up, and every one is listed.
step="--config $root/configs/shakespeare-small.yaml device=cuda precision.mode=bf16 model.vocabulary=65"
# shellcheck disable=SC2086
expect 0 "$trainer" plan $step --card "H200 SXM" --step
says out "PREDICTED, NOT MEASURED"
launches=$(awk -F ' *[|] *' '$3 == "**all**" { parts += $5 } $2 == "**step**" { step = $5 } END { if (parts == step) print step }' out)
[ "${launches:-0}" -gt 50 ] || fail "the parts' launches do not add up to the step's"
# shellcheck disable=SC2086
expect 0 "$trainer" plan $step --card "H200 SXM" --launches
[ "$(grep -cE '^ *[0-9]+  [a-z_]+ +[0-9]+ x [0-9]+ ' out)" = "$launches" ] || fail "not $launches launches are listed"
says out "attention_forward_hopper_kernel"
# shellcheck disable=SC2086
expect 0 "$trainer" plan $step --card "RTX 3060" --launches
! grep -q hopper out || fail "a card without them has no kernels for Hopper"
# shellcheck disable=SC2086
expect 2 "$trainer" plan $step --step
says err "--step and --launches need a card"
# shellcheck disable=SC2086
expect 2 "$trainer" plan $step --card "H200 SXM" --step memory.offload=optimizer
says err "the host updates in the middle of a step"
# shellcheck disable=SC2086
expect 2 "$trainer" plan $step --card "H200 SXM" --step distributed.processes=2
says err "--scaling is for several"
finish
