#!/bin/bash
# SPDX-License-Identifier: MIT
# `selftest --tune`: a table measured on the emulator, where times mean nothing; a run that uses it; what is refused.
. "$(dirname "$0")/lib.sh"

cat >emu.yaml <<'YAML'
seed: 7
out_dir: run
device: emu
batch_size: 2
max_length: 16
max_steps: 20
learning_rate: 1e-3
checkpoint_freq: 10
model: {family: llama, layers: 2, heads: 2, width: 32, dropout: 0.1}
tokenizer: {kind: char}
tasks: [{name: addition, train: "synthetic:addition", synthetic_tokens: 8000}]
precision: {mode: bf16}
schedule: {warmup_steps: 4}
evaluation: {every: 0, batches: 1, items: 2}
logging: {every: 1}
YAML

# Every product of the configuration has its row, whatever the texts: SwiGLU's, the head's with its odd vocabulary.
expect 0 "$trainer" selftest --tune table.txt --config emu.yaml
says out "Emulated: these times say nothing about any hardware."
says out "set kernels.tuning to it"
says table.txt "device	emulated"
for product in "32	96	32	nt	16bit" "32	32	96	nn	16bit" "96	32	32	tn	16bit" "32	256	32	nt	16bit" "32	13	32	nt	16bit"; do
    says table.txt "$product"
done
[ ! -e table.txt.*.tmp ] || fail "a temporary file was left behind"
expect 0 "$trainer" selftest --tune coarse.txt --config emu.yaml precision.mode=tf32 --device emu
says coarse.txt "32	96	32	nt	tf32"

# Codes: forward, gradients of inputs and of weights; their operands decoded are a choice like any other.
expect 0 "$trainer" selftest --tune coded.txt --config emu.yaml precision.mode=fp8
for product in "32	96	32	nt	fp8" "32	32	96	nt	fp8-promoted" "96	32	32	nt	fp8-promoted" "32	13	32	nt	16bit"; do
    says coded.txt "$product	"
done
expect 0 "$trainer" selftest --tune blocks.txt --config emu.yaml precision.mode=fp8 precision.fp8.recipe=block
says blocks.txt "32	96	32	nt	fp8-blocks"
awk -F'\t' -v OFS='\t' '$5 ~ /^fp8/ { $6 = $1 > 32 ? "bf16-mma-64x64" : "wgmma-fp8-256x128"; $7 = 1 } { print }' coded.txt >other.txt
expect 0 "$trainer" --config emu.yaml out_dir=codes precision.mode=fp8
for table in coded other; do
    expect 0 "$trainer" --config emu.yaml out_dir=$table precision.mode=fp8 kernels.tuning=$table.txt
    near codes $table bf16
    rm -rf $table
done
awk -F'\t' -v OFS='\t' '$5 == "fp8-promoted" { $6 = "wgmma-fp8-256x256" } { print }' coded.txt >straight.txt
expect 2 "$trainer" --config emu.yaml out_dir=refused precision.mode=fp8 kernels.tuning=straight.txt
says err "no kernel wgmma-fp8-256x256 for this product on this GPU"

# Other tiles and slices than the model's, so that using the table shows: k in two slices, large tiles.
awk -F'\t' -v OFS='\t' '/^[0-9]/ && $6 ~ /^w?mma-[0-9]/ { $6 = $1 > 32 ? "mma-128x256" : "wgmma-256x128"; $7 = $3 > 64 ? 2 : 1 } { print }' table.txt >other.txt
expect 0 "$trainer" --config emu.yaml out_dir=model
for table in table other; do
    expect 0 "$trainer" --config emu.yaml out_dir=$table kernels.tuning=$table.txt
    says err "products by the table $table.txt: "
    near model $table bf16
    expect 0 "$trainer" --config emu.yaml out_dir=again kernels.tuning=$table.txt
    bits $table >first.bits
    bits again >second.bits
    same first.bits second.bits
    rm -rf again
done

# Continuing: the same table under any name, no other one.
expect 0 "$trainer" --config emu.yaml out_dir=stopped kernels.tuning=other.txt max_steps=20
rm -rf stopped/checkpoints/step-00000020
echo step-00000010 >stopped/checkpoints/latest
cp other.txt moved.txt
expect 2 "$trainer" --config emu.yaml out_dir=stopped kernels.tuning=table.txt
says err "was trained with another kernels.tuning table"
expect 0 "$trainer" --config emu.yaml out_dir=stopped kernels.tuning=moved.txt
bits stopped >second.bits
bits other >first.bits
same first.bits second.bits
# The weights go anywhere.
expect 0 "$trainer" eval --checkpoint other device=cpu

# Refusals name the key, the file, the line and the mend.
sed 's/^multiprocessors.*/multiprocessors	132/' table.txt >elsewhere.txt
expect 2 "$trainer" --config emu.yaml out_dir=refused kernels.tuning=elsewhere.txt
says err "kernels.tuning: elsewhere.txt: measured on emulated (132 multiprocessors"
sed '7s/16bit.*/16bit	mma-1x1	1	1/' table.txt >unknown.txt
expect 2 "$trainer" --config emu.yaml out_dir=refused kernels.tuning=unknown.txt
says err "kernels.tuning: unknown.txt:7: no kernel mma-1x1"
expect 2 "$trainer" --config emu.yaml out_dir=refused kernels.tuning=absent.txt
says err "kernels.tuning: absent.txt: cannot be opened"
expect 2 "$trainer" --config emu.yaml out_dir=refused device=cpu kernels.tuning=table.txt
says err "kernels.tuning: table.txt chooses among a GPU's kernels, and this run is on cpu"
[ ! -e refused ] || fail "a refused run left files"
expect 2 "$trainer" selftest --tune table.txt --device cpu
says err "--tune measures a GPU's kernels"
expect 2 "$trainer" selftest --tune table.txt --device emu
says err "name a tiny model with --config FILE"
expect 2 "$trainer" selftest --config emu.yaml
says err "--config is for --tune FILE: add that, or leave --config out"
expect 2 "$trainer" selftest --tune no/such/folder/table.txt --config emu.yaml
says err "the folder no/such/folder is not there"

expect 0 "$trainer" reference --predicted
says out "PREDICTED, NOT MEASURED"
finish
