#!/bin/bash
# SPDX-License-Identifier: MIT
# Training in codes below 16 bits: each recipe learns as bf16 does, and continues and computes again to the same bits.
. "$(dirname "$0")/lib.sh"
tiny_config
run_as() { # run_as FOLDER SETTING...
    local folder=$1
    shift
    expect 0 "$trainer" --config tiny.yaml out_dir="$folder" precision.mode=fp8 schedule.kind=constant "$@"
}
weights() { sha256sum <"$1/checkpoints/$(cat "$1/checkpoints/latest")/model.safetensors"; }
loss() { sed -n 's/.*"event":"end".*"val_loss":\([0-9.]*\).*/\1/p' "$1/metrics.jsonl"; }

expect 0 "$trainer" --config tiny.yaml out_dir=bf16 precision.mode=bf16 schedule.kind=constant
for recipe in current delayed block mxfp8 nvfp4; do
    keep=none # two blocks are few: auto would leave one
    run_as whole precision.fp8.recipe=$recipe precision.fp8.keep=$keep
    run_as again precision.fp8.recipe=$recipe precision.fp8.keep=$keep memory.recompute=block
    [ "$(weights whole)" = "$(weights again)" ] || fail "$recipe: recomputation leaves other weights"
    run_as halves precision.fp8.recipe=$recipe precision.fp8.keep=$keep max_steps=11
    run_as halves precision.fp8.recipe=$recipe precision.fp8.keep=$keep
    [ "$(weights whole)" = "$(weights halves)" ] || fail "$recipe: a resumed run leaves other weights"
    # What is recorded of casts: each role, and after a resumption the same as without.
    for role in x weight dy; do
        grep -q "\"event\":\"scales\".*\"role\":\"$role\",\"amax\":[0-9]" whole/metrics.jsonl || fail "$recipe: no $role"
    done
    [ "$(grep '"scales"' whole/metrics.jsonl | tail -1)" = "$(grep '"scales"' halves/metrics.jsonl | tail -1)" ] ||
        fail "$recipe: a resumed run records other casts"
    grep -q 'What the casts did' whole/report.html || fail "$recipe: the page shows no casts"
    # Of bf16's loss: 0.5%; of four bits, which have no such claim, 5%.
    awk -v a="$(loss bf16)" -v b="$(loss whole)" -v most="$([ "$recipe" = nvfp4 ] && echo 0.05 || echo 0.005)" \
        'BEGIN { exit !(a > 0 && b > 0 && (b - a) / a < most) }' || fail "$recipe: loss $(loss whole), bf16 $(loss bf16)"
    [ "$(weights whole)" != "$(weights bf16)" ] || fail "$recipe has bf16's weights"
    expect 0 "$trainer" eval --checkpoint whole
    rm -rf whole again halves
done

# Products and norms that leave codes (docs/precision.md): by the kernels of an RTX 4090 the bits are those of casts apart,
# behind gates apart, and of x made again, which is cast apart; with dropout, whose mask norms apply, and without.
export HALFSTEP_EMU_SHARED=99
on_card() { # on_card FOLDER SETTING...
    run_as "$1" precision.fp8.recipe=delayed precision.fp8.keep=none device=emu model.family=llama model.width=64 \
        model.mlp_width=192 max_steps=4 max_length=64 "${@:2}"
}
# Two blocks of four layers: of 8 casts of x six are left to norms and products, of 8 of dy two to products and, without
# dropout, four to norms; attention's x is cast twice.
for way in "0.1 8" "0 4"; do
    dropout=${way% *}
    on_card whole model.dropout="$dropout"
    HALFSTEP_GATES=apart on_card apart model.dropout="$dropout"
    on_card again memory.recompute=block model.dropout="$dropout"
    [ "$(weights whole)" = "$(weights apart)" ] || fail "dropout $dropout: codes that are left are not those of casts"
    [ "$(weights whole)" = "$(weights again)" ] || fail "dropout $dropout: codes that are left are not those of recomputation"
    [ "$(grep '"scales"' whole/metrics.jsonl)" = "$(grep '"scales"' apart/metrics.jsonl)" ] ||
        fail "dropout $dropout: other casts are recorded"
    expect 0 "$trainer" plan --config tiny.yaml --card "RTX 4090" --step device=cuda precision.mode=fp8 \
        model.family=llama model.dropout="$dropout" precision.fp8.recipe=delayed precision.fp8.keep=none
    [ "$(awk -F ' *[|] *' '$3 == "quantize" { printf "%s %d ", $2, $4 }' out)" = "around it 8 forward 2 backward ${way#* } " ] ||
        fail "dropout $dropout: not as many casts as there should be: $(grep quantize out)"
    rm -rf whole apart again
done
unset HALFSTEP_EMU_SHARED

# What is kept in 16 bits, and what cannot be.
run_as kept precision.fp8.keep="[first, '*.mlp.*']"
expect 2 "$trainer" --config tiny.yaml out_dir=no precision.mode=fp8 precision.fp8.keep=nothing-like-it
says err "nothing-like-it\` names no linear layer"
expect 2 "$trainer" --config tiny.yaml out_dir=no precision.mode=fp8 precision.fp8.keep="[first, last, '*']"
says err "leaves no linear layer to run in fp8"
expect 2 "$trainer" --config tiny.yaml out_dir=no precision.mode=fp8 precision.fp8.recipe=block precision.fp8.power_of_two=true
says err "precision.fp8.power_of_two is for recipe current only"
expect 2 "$trainer" plan --config tiny.yaml device=cuda --card "H100 SXM" precision.mode=fp8 kernels.matmul=cublaslt
says err "cublaslt does not serve precision.mode fp8"
