#!/bin/bash
# SPDX-License-Identifier: MIT
# init_from and export: a run that starts from a folder which transformers wrote (tests/huggingface/make.py), continues
# when that folder is gone, starts another run, and leaves as a folder that is the same model.
. "$(dirname "$0")/lib.sh"
models=$root/tests/huggingface/models
for i in $(seq 1 400); do echo "line $i of the text, and another hour: $((i * 7919 % 1000))"; done >text.txt
cat >tune.yaml <<'YAML'
batch_size: 2
max_length: 24
max_steps: 12
learning_rate: 1e-3
checkpoint_freq: 4
precision: {mode: fp32}
tasks: [{name: text, train: text.txt, validation: 20%}]
evaluation: {every: 6, batches: 2, sample_tokens: 0}
logging: {every: 1, progress: none, device_seconds: 0}
YAML

# loss COMMAND...: a command's validation loss
loss() {
    expect 0 "$@"
    grep -o "validation loss.*" out
}

for name in gpt2 qwen2; do
    # Every part of the first weights counts: the run's untrained loss is the folder's.
    cp -rL "$models/$name" folder
    expect 0 "$trainer" --config tune.yaml init_from=folder out_dir=whole
    says err "weights: folder"
    bits whole >whole.bits
    # A checkpoint says where the run began, and needs it no more; the configuration does.
    expect 2 "$trainer" --config tune.yaml init_from=gone out_dir=other
    says err "init_from: gone is neither a Hugging Face folder (config.json) nor a run's folder"
    mv folder elsewhere
    expect 0 "$trainer" eval --checkpoint whole
    mv elsewhere folder
    for step in 4 8; do
        [ -d "whole/checkpoints/step-0000000$step" ] || continue
        goes_on_from "whole/checkpoints/step-0000000$step" "$trainer" --config tune.yaml init_from=folder out_dir=run
    done
    # What is exported is the same model, in each format that holds it.
    own=$(loss "$trainer" eval --checkpoint whole)
    rm -rf exported
    expect 0 "$trainer" export --checkpoint whole --output exported
    [ "$(loss "$trainer" eval --checkpoint exported tasks.0.train=text.txt tasks.0.validation=20% max_length=24 batch_size=2 precision.mode=fp32)" = "$own" ] ||
        fail "$name: the exported folder has another loss than the run: $own"
    expect 2 "$trainer" export --checkpoint whole --output exported
    says err "exported is not empty"
    for dtype in bf16 f16; do
        expect 0 "$trainer" export --checkpoint whole --output "exported-$dtype" --dtype "$dtype"
        expect 0 "$trainer" generate --checkpoint "exported-$dtype" --tokens 3 --prompt line
    done
    # The three ways to continue from a run: its folder, a step, what `latest` names.
    for from in whole whole/checkpoints/step-00000012 whole/checkpoints/latest exported; do
        rm -rf again
        expect 0 "$trainer" --config tune.yaml init_from="$from" out_dir=again max_steps=2
        record again | grep '"event":"step"' >"again.$(basename "$from")"
    done
    same again.whole again.step-00000012
    same again.whole again.latest
    same again.whole again.exported
    rm -rf folder whole run again* exported*
done

# A file for llama.cpp holds the same weights.
for name in llama llama-tied llama3 qwen2 qwen3 smollm3 olmo2 olmo3 phi3 granite gemma3; do
    for dtype in f32 f16 q8_0; do
        expect 0 "$trainer" export --checkpoint "$models/$name" --format gguf --dtype "$dtype" --output "$name-$dtype.gguf"
        expect 0 python3 "$root/tests/huggingface/gguf.py" "$models/$name" "$name-$dtype.gguf"
    done
done
expect 0 "$trainer" export --checkpoint "$models/llama" --format gguf --dtype q8_0 --output narrow.gguf
says err "16 matrices have rows that are no multiple of 32 numbers, and are f16"
expect 0 "$trainer" --config tune.yaml out_dir=own max_steps=2 model.family=llama model.layers=2 model.width=64 model.mlp_width=96
expect 0 "$trainer" export --checkpoint own --output own-hf
for dtype in f32 f16 q8_0; do
    expect 0 "$trainer" export --checkpoint own --format gguf --dtype "$dtype" --output "own-$dtype.gguf"
    expect 0 python3 "$root/tests/huggingface/gguf.py" own-hf "own-$dtype.gguf"
done
[ "$(stat -c %s own-q8_0.gguf)" -lt $(($(stat -c %s own-f32.gguf) / 3)) ] || fail "q8_0 takes $(stat -c %s own-q8_0.gguf) bytes"
expect 2 "$trainer" export --checkpoint "$models/llama" --format gguf --output llama-f32.gguf
says err "llama-f32.gguf is there already"
expect 1 "$trainer" export --checkpoint "$models/gpt2" --format gguf --output gpt2.gguf
says err "GGUF is not written for models of type gpt2: use --format hf, or train with model.family: llama"
expect 1 "$trainer" export --checkpoint "$models/gemma2" --format gguf --output gemma2.gguf
says err "ggml's architecture gemma2 has no model.score_scale: use --format hf"
# transformers refuses a whole number as a cap, and any other for query_pre_attn_scalar.
expect 0 "$trainer" export --checkpoint "$models/gemma2" --output capped
grep -q '"final_logit_softcapping":\s*10\.0,' capped/config.json || fail "a cap is no float: $(grep soft capped/config.json)"
grep -q '"query_pre_attn_scalar":\s*16,' capped/config.json || fail "no whole number: $(grep scalar capped/config.json)"
expect 1 "$trainer" export --checkpoint "$models/ministral" --format gguf --output ministral.gguf
says err "GGUF is not written for models of type ministral"
expect 2 "$trainer" export --checkpoint "$models/llama" --dtype q8_0 --output q8
says err "--dtype must be f32, bf16 or f16"

# Multiple choice, against transformers in float64; of any text the loss.
for name in gpt2 llama3 qwen3; do
    expect 0 "$trainer" eval --checkpoint "$models/$name" --choices "$models/choices.jsonl" precision.mode=fp32 batch_size=3
    shares=$(for by in "likelihood\$" "likelihood a token" "likelihood a byte"; do sed -nE "s/.* ([0-9.]+) by $by.*/\1/p" out; done)
    [ "$(echo $shares)" = "$(tail -n 1 "$models/$name/bound.txt")" ] ||
        fail "$name: right answers $(tr '\n' ' ' <out), transformers $(tail -n 1 "$models/$name/bound.txt")"
    expect 0 "$trainer" eval --checkpoint "$models/$name" --choices "$models/choices.jsonl" --json
    says out '"questions":40'
    expect 0 "$trainer" eval --checkpoint "$models/$name" --file text.txt max_length=32
    says out "bits per byte"
done
echo '{"ctx": "a", "endings": ["b", "c"], "label": 2}' >wrong.jsonl
expect 1 "$trainer" eval --checkpoint "$models/llama" --choices wrong.jsonl
says err "wrong.jsonl:1: the label must name one of the 2 endings, from 0 (or A) on"
echo '{"ctx": "a", "endings": ["b"], "label": 0}' >wrong.jsonl
expect 1 "$trainer" eval --checkpoint "$models/llama" --choices wrong.jsonl
says err "wrong.jsonl:1: no list of 2 to 26 endings"
: >wrong.jsonl
expect 1 "$trainer" eval --checkpoint "$models/llama" --choices wrong.jsonl
says err "wrong.jsonl: no question in it: each line must be a JSON object with context, endings and label"
expect 2 "$trainer" eval --checkpoint "$models/llama" --choices wrong.jsonl --file text.txt

# Folders that hold something else than config.json says.
cp -rL "$models/llama" folder
expect 2 "$trainer" --config tune.yaml init_from=folder out_dir=other model.layers=3
says err "model.layers: 3 contradicts folder/config.json, where num_hidden_layers is 2; leave the key out"
sed -i 's/"num_hidden_layers": 2/"num_hidden_layers": 3/' folder/config.json
expect 1 "$trainer" --config tune.yaml init_from=folder out_dir=other
says err "folder: tensor \`model.layers.2.input_layernorm.weight\` is missing"
sed -i 's/"num_hidden_layers": 3/"num_hidden_layers": 1/' folder/config.json
expect 1 "$trainer" --config tune.yaml init_from=folder out_dir=other
says err "belongs to nothing that config.json describes: is it this model's config.json?"
sed -i 's/"num_hidden_layers": 1/"num_hidden_layers": 2/; s/"intermediate_size": 24/"intermediate_size": 32/' folder/config.json
expect 1 "$trainer" --config tune.yaml init_from=folder out_dir=other
says err "has shape [24, 16], the model needs [32, 16]"
cp "$models/qwen2/model.safetensors.index.json" folder
rm folder/model.safetensors
expect 1 "$trainer" --config tune.yaml init_from=folder out_dir=other
says err "cannot open folder/model-0000"
finish
