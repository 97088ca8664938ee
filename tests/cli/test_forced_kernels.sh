#!/bin/bash
# SPDX-License-Identifier: MIT
# Which kernels serve: selftest --force-tile and --slices, kernels.hopper, HALFSTEP_MULTIPROCESSORS, and what is refused.
. "$(dirname "$0")/lib.sh"

expect 0 "$trainer" selftest "${pairs[@]}" --device emu --no-speed --op matmul --match 'f16 ->' --hashes \
    --force-tile wgmma-256x128,mma-64x64 --slices 2 --force-tile mma-64x64:1 --force-tile mma-64x64
same <(grep '^products' out) - <<'TEXT'
products: forced to wgmma-256x128,mma-64x64, slices: 2
products: forced to mma-64x64, slices: 1
products: forced to mma-64x64, slices: 2
TEXT
# Each line is of its kernels: the bits of one that was forced alone.
grep '^matmul' out >together
expect 0 "$trainer" selftest "${pairs[@]}" --device emu --no-speed --op matmul --match 'f16 ->' --hashes --force-tile mma-64x64:1
same <(sed -n 2p together) <(grep '^matmul' out)
! cmp -s <(sed -n 2p together) <(sed -n 3p together) || fail "one slice and two give the same bits: $(cat together)"
expect 2 "$trainer" selftest --device emu --op matmul --force-tile mma-64x64:0
says err "--force-tile must be a whole number from 1 to 32 (got 0)"
expect 2 "$trainer" selftest --device emu --op matmul --force-tile mma-64x64 --force-tile wgmma-1x1
says err "no kernel wgmma-1x1 on this GPU"
expect 2 "$trainer" selftest --device emu --op matmul --force-tile wgmma-256x128,wgmma-1x1
says err "no kernel wgmma-1x1 on this GPU: use some of ffma-128x128,"
expect 2 env HALFSTEP_EMU_SHARED=163 "$trainer" selftest --device emu --op matmul --force-tile wgmma-256x128
says err "no kernel wgmma-256x128 on this GPU"
expect 2 "$trainer" selftest --device emu --op combine --slices 2
says err "--force-tile and --slices are for --op matmul: add that"
expect 2 "$trainer" selftest --device cpu --op matmul --slices 2
says err "--force-tile and --slices choose among a GPU's kernels"
expect 2 "$trainer" selftest --device emu --op matmul --slices 33
expect 0 "$trainer" selftest --list
[ "$(wc -l <out)" -ge 33 ] || fail "--list has fewer operations than there are: $(cat out)"

cat >emu.yaml <<'YAML'
seed: 7
device: emu
batch_size: 2
max_length: 64
max_steps: 20
learning_rate: 1e-3
checkpoint_freq: 20
model: {family: gpt2, layers: 1, heads: 2, width: 64, dropout: 0.1}
tokenizer: {kind: char}
tasks: [{name: addition, train: "synthetic:addition", synthetic_tokens: 8000}]
precision: {mode: bf16}
evaluation: {every: 0, batches: 1, items: 2}
logging: {every: 1}
YAML
for use in all products attention none; do
    expect 0 "$trainer" --config emu.yaml out_dir=$use kernels.hopper=$use
done
near none all bf16
near none products bf16
near none attention bf16
# The model of a small GPU takes mma.sync for products this small, so that attention alone distinguishes the four.
bits all >all.bits
bits attention >attention.bits
bits none >none.bits
same all.bits attention.bits
! cmp -s all.bits none.bits || fail "kernels.hopper: none has the bits of Hopper's attention"
expect 2 "$trainer" --config emu.yaml out_dir=all max_steps=24 kernels.hopper=none
says err "differing: kernels.hopper"
expect 2 "$trainer" --config emu.yaml out_dir=refused device=cpu kernels.hopper=none
says err "kernels.hopper: none chooses among a GPU's kernels, and this run is on cpu"
expect 2 env HALFSTEP_EMU_SHARED=163 "$trainer" --config emu.yaml out_dir=refused kernels.hopper=none
says err "emulated has 8.0: leave it out"
[ ! -e refused ] || fail "a refused run left files"

expect 0 env HALFSTEP_MULTIPROCESSORS=132 "$trainer" --config emu.yaml out_dir=large
says err "laid out for 132 multiprocessors instead of 4"
near all large bf16
# How Hopper's products store changes no bit of a training.
expect 0 env HALFSTEP_MULTIPROCESSORS=132 HALFSTEP_HOPPER_STORES=copies "$trainer" --config emu.yaml out_dir=copies
bits large >large.bits
bits copies >copies.bits
same large.bits copies.bits
# Nor whether a gate is in the product's epilogue or a kernel behind it: of 16 bits and FP8 on Hopper, of 16 bits elsewhere.
llama=(--config emu.yaml model.family=llama model.dropout=0)
for how in bf16,227,H200 fp8,227,H200 bf16,163,A100; do
    IFS=, read -r mode shared card <<<"$how"
    card=${card/H200/H200 SXM}
    for gates in epilogue apart; do
        name=$mode-$shared-$gates
        expect 0 env HALFSTEP_MULTIPROCESSORS=132 HALFSTEP_EMU_SHARED="$shared" HALFSTEP_GATES=$gates "$trainer" \
            "${llama[@]}" model.mlp_width=136 precision.mode="$mode" max_steps=4 out_dir="$name"
        bits "$name" >"$name.bits"
        expect 0 env HALFSTEP_GATES=$gates "$trainer" plan --card "${card/A100/A100 80GB}" --step "${llama[@]}" \
            device=cuda model.width=512 model.heads=8 batch_size=128 precision.mode="$mode"
        awk -F ' *[|] *' '$2 == "forward" && $3 == "matmul" { print $5 - $4 }' out >"$name.apart"
    done
    same "$mode-$shared-epilogue.bits" "$mode-$shared-apart.bits"
    kernels=$(($(cat "$mode-$shared-apart.apart") - $(cat "$mode-$shared-epilogue.apart")))
    [ $kernels = 1 ] || fail "$how: $kernels kernels less than with gates apart"
done
# Parts of dQ of three blocks of keys, in one order and as they come.
long=(--config emu.yaml max_length=300 batch_size=1)
expect 0 "$trainer" "${long[@]}" out_dir=ordered
expect 0 "$trainer" "${long[@]}" out_dir=unordered kernels.deterministic=false
near ordered unordered bf16
expect 2 "$trainer" "${long[@]}" out_dir=refused device=cpu kernels.deterministic=false
says err "kernels.deterministic: false is for GPUs, and this run is on cpu"
expect 2 "$trainer" "${long[@]}" out_dir=refused kernels.deterministic=false kernels.hopper=products
says err "kernels.deterministic: false saves waits in attention's kernels for compute capability 9.0 alone"
expect 2 env HALFSTEP_GATES=some "$trainer" --config emu.yaml out_dir=refused
says err "HALFSTEP_GATES=some: say epilogue or apart"
expect 2 env HALFSTEP_HOPPER_STORES=some "$trainer" --config emu.yaml out_dir=refused
says err "HALFSTEP_HOPPER_STORES=some: say lines or copies"
expect 2 env HALFSTEP_MULTIPROCESSORS=0 "$trainer" --config emu.yaml out_dir=refused
says err "HALFSTEP_MULTIPROCESSORS=0: give a number from 1 to 4096"
finish
