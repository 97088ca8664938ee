#!/bin/bash
# SPDX-License-Identifier: MIT
# What leaves says all that was trained on: templates, tokens and sampling defaults of the folder that a run began with;
# a GGUF's way to cut text; PEFT's lists of modules. What a format cannot say is refused by its name.
. "$(dirname "$0")/lib.sh"
models=$root/tests/huggingface/models
for i in $(seq 1 200); do echo "line $i of the text, and another hour: $((i * 7919 % 1000))"; done >text.txt
cat >tune.yaml <<'YAML'
batch_size: 1
max_length: 16
max_steps: 2
learning_rate: 1e-2
checkpoint_freq: 0
precision: {mode: fp32}
tasks: [{name: text, train: text.txt}]
evaluation: {every: 0, batches: 1, sample_tokens: 0}
logging: {progress: none, device_seconds: 0, tensorboard: false}
YAML

# holds FILE EXPRESSION: a condition on the JSON of FILE, as `j`
holds() {
    python3 -c 'import json, sys; j = json.load(open(sys.argv[1])); sys.exit(not eval(sys.argv[2]))' "$1" "$2" ||
        { fail "$1: not $2"; cat "$1"; }
}

# edit FILE STATEMENT: the JSON of FILE, as `j`, changed by a statement
edit() {
    python3 -c 'import json, sys; j = json.load(open(sys.argv[1])); exec(sys.argv[2]); json.dump(j, open(sys.argv[1], "w"))' "$1" "$2"
}

# ---- a folder of Hugging Face

cp -rL "$models/llama" folder
# Three merges less, and three special tokens.
edit folder/tokenizer.json 't = j["added_tokens"]; v = j["model"]["vocab"]; del j["model"]["merges"][-3:]
for n, name in enumerate(("<pad>", "<unk>", "<more>")):
    del v[[k for k in v if v[k] == 269 + n][0]]; v[name] = 269 + n; t.append(dict(t[0], id=269 + n, content=name))'
cat >folder/tokenizer_config.json <<'JSON'
{"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 48, "padding_side": "left", "add_prefix_space": false,
 "eos_token": {"__type": "AddedToken", "content": "<|endoftext|>", "lstrip": false}, "pad_token": "<more>", "extra_special_tokens": ["<more>"],
 "chat_template": "{% for m in messages %}[{{ m['role'] }}] {{ m['content'] }}\n{% endfor %}"}
JSON
echo '{"pad_token": "<pad>", "unk_token": {"content": "<unk>", "lstrip": false}}' >folder/special_tokens_map.json
echo '{"eos_token_id": [0, 266], "pad_token_id": 268, "do_sample": true, "temperature": 0.6, "top_k": 20, "_from_model_config": true, "transformers_version": "4.1"}' >folder/generation_config.json
mkdir folder/additional_chat_templates
printf 'with tools' >folder/additional_chat_templates/tool_use.jinja
edit folder/config.json 'j.update(eos_token_id=[0, 266], pad_token_id=268)'

# carries FOLDER ENDS: what an export must have of the one above
carries() {
    holds "$1/tokenizer_config.json" "j['chat_template'].startswith('{% for m in messages %}[{{ m')"
    holds "$1/tokenizer_config.json" "j['pad_token'] == '<pad>' and j['unk_token']['content'] == '<unk>' and j['extra_special_tokens'] == ['<more>']"
    holds "$1/tokenizer_config.json" "j['eos_token']['content'] == '<|endoftext|>' and j['model_max_length'] == 48 and j['padding_side'] == 'left'"
    holds "$1/tokenizer_config.json" "'add_prefix_space' not in j and j['tokenizer_class'] == 'PreTrainedTokenizerFast'"
    holds "$1/generation_config.json" "j['eos_token_id'] == $2 and j['pad_token_id'] == 268 and j['temperature'] == 0.6 and j['top_k'] == 20 and j['do_sample']"
    holds "$1/generation_config.json" "'_from_model_config' not in j and 'transformers_version' not in j"
    holds "$1/config.json" "j['eos_token_id'] == $2 and j['pad_token_id'] == 268"
    [ "$(cat "$1/additional_chat_templates/tool_use.jinja")" = "with tools" ] || fail "$1 has no further template"
}

expect 0 "$trainer" export --checkpoint folder --output copied
carries copied "[0, 266]"
expect 0 "$trainer" --config tune.yaml init_from=folder out_dir=first
mv folder elsewhere
expect 0 "$trainer" export --checkpoint first --output of-run
carries of-run "[0, 266]"
expect 0 "$trainer" export --checkpoint first --format gguf --output of-run.gguf
python3 "$root/tests/huggingface/gguf.py" of-run.gguf >keys.json
expect 0 "$trainer" export --checkpoint first --output by-its-name.gguf
same of-run.gguf by-its-name.gguf
holds keys.json "j['tokenizer.chat_template'].startswith('{% for m') and j['tokenizer.chat_templates'] == ['tool_use'] and j['tokenizer.chat_template.tool_use'] == 'with tools'"
holds keys.json "j['tokenizer.ggml.eos_token_id'] == 0 and j['tokenizer.ggml.eot_token_id'] == 266"
holds keys.json "j['tokenizer.ggml.padding_token_id'] == 269 and j['tokenizer.ggml.unknown_token_id'] == 270"
holds keys.json "j['general.sampling.top_k'] == 20 and abs(j['general.sampling.temp'] - 0.6) < 1e-7"
# Another run that begins with that one, and one that continues it.
expect 0 "$trainer" --config tune.yaml init_from=first out_dir=second
expect 0 "$trainer" export --checkpoint second --output of-second
carries of-second "[0, 266]"
mv elsewhere folder
expect 0 "$trainer" --config tune.yaml init_from=folder out_dir=first max_steps=3 resume=changed
mv folder elsewhere
expect 0 "$trainer" export --checkpoint first --output of-first
carries of-first "[0, 266]"
# The template that the run was given by its name goes before the folder's, and ends its answers as the run did.
mv elsewhere folder
expect 0 "$trainer" --config tune.yaml init_from=folder out_dir=named tokenizer.chat_template=alpaca tokenizer.end_of_text='<more>'
expect 0 "$trainer" export --checkpoint named --output of-named
says err "the chat template is tokenizer.chat_template's, alpaca, in place of the folder's own"
holds of-named/tokenizer_config.json "'### Instruction' in j['chat_template'] and j['eos_token'] == '<more>' and j['pad_token'] == '<pad>'"
holds of-named/generation_config.json "j['eos_token_id'] == [271, 0, 266]"
# A token that is not special is not named: transformers would find it in texts, where the run did not.
expect 0 "$trainer" --config tune.yaml init_from="$models/llama" out_dir=letters tokenizer.end_of_text=the
expect 0 "$trainer" export --checkpoint letters --output of-letters
says err "token 258 ends a text and is no special token"
holds of-letters/tokenizer_config.json "'eos_token' not in j"
holds of-letters/generation_config.json "j['eos_token_id'] == [0, 258]"
[ ! -e of-named/additional_chat_templates ] || fail "a template that was not trained on is exported"
# chat_template.jinja is the template that transformers takes.
printf 'from a file' >folder/chat_template.jinja
expect 0 "$trainer" export --checkpoint folder --output jinja
[ "$(cat jinja/chat_template.jinja)" = "from a file" ] || fail "chat_template.jinja is lost"
expect 0 "$trainer" export --checkpoint folder --format gguf --output jinja.gguf
python3 "$root/tests/huggingface/gguf.py" jinja.gguf >keys.json
holds keys.json "j['tokenizer.chat_template'] == 'from a file'"
# A run of an earlier version has none of this.
old=first/checkpoints/$(cat first/checkpoints/latest)
[ -f "$old/carried.json" ] || fail "no carried.json in $old"
rm "$old/carried.json"
expect 1 "$trainer" export --checkpoint "$old" --output of-damaged
says err "carried.json"
edit "$old/checksums.json" 'del j["files"]["carried.json"]'
expect 0 "$trainer" export --checkpoint first --output of-old
holds of-old/generation_config.json "j == {'bos_token_id': 0, 'eos_token_id': 0}"
# A file that is no JSON is named.
echo '{"eos_token": ' >folder/tokenizer_config.json
expect 1 "$trainer" export --checkpoint folder --output broken
says err "tokenizer_config.json: byte"
rm -rf folder

# The end of text by any name reaches all three files.
cp -rL "$models/llama" folder
edit folder/tokenizer.json 'v = j["model"]["vocab"]; del v["<|endoftext|>"]; v["[EOS]"] = 0; j["added_tokens"][0]["content"] = "[EOS]"'
echo '{"eos_token": "[EOS]"}' >folder/tokenizer_config.json
echo '{"eos_token_id": 0}' >folder/generation_config.json
expect 0 "$trainer" export --checkpoint folder --output named-end
holds named-end/config.json "j['eos_token_id'] == 0"
holds named-end/generation_config.json "j['eos_token_id'] == 0"
holds named-end/tokenizer_config.json "j['eos_token'] == '[EOS]'"
rm -rf folder

# ---- GGUF: how text becomes tokens

# refuses STATEMENT TEXT: a tokenizer.json changed by the statement cannot be said, and TEXT is why
refuses() {
    rm -rf folder
    cp -rL "$models/llama" folder
    edit folder/tokenizer.json "$1"
    expect 1 "$trainer" export --checkpoint folder --format gguf --output refused.gguf
    says err "$2"
}

# cut_as STATEMENT NAME: ggml's name for its way to cut text
cut_as() {
    rm -rf folder cut.gguf
    cp -rL "$models/llama" folder
    edit folder/tokenizer.json "$1"
    expect 0 "$trainer" export --checkpoint folder --format gguf --output cut.gguf
    python3 "$root/tests/huggingface/gguf.py" cut.gguf >keys.json
    holds keys.json "j['tokenizer.ggml.pre'] == '$2'"
}

byte_level='{"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": %s}'
# shellcheck disable=SC2059
plain=$(printf "$byte_level" False) cutting=$(printf "$byte_level" True)
contractions="(?i:'s|'t|'re|'ve|'m|'ll|'d)"
rest='| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+'
llama3="$contractions|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}$rest"
qwen="$contractions|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}$rest"
# split EXPRESSION [BEHAVIOR INVERT]
split() {
    echo "j['pre_tokenizer'] = {'type': 'Sequence', 'pretokenizers': [{'type': 'Split', 'pattern': {'Regex': r\"\"\"$1\"\"\"}, 'behavior': '${2:-Isolated}', 'invert': ${3:-False}}, $plain]}"
}
whole="j['model']['ignore_merges'] = True"

cut_as "pass" gpt-2
cut_as "$(split "$llama3"); $whole" llama-bpe
cut_as "$(split "$llama3")" smaug-bpe
cut_as "$(split "$llama3" Removed True)" smaug-bpe
cut_as "$(split "$qwen")" qwen2
cut_as "$(split "$qwen"); j['normalizer'] = {'type': 'NFC'}" qwen2
cut_as "j['pre_tokenizer'] = {'type': 'Sequence', 'pretokenizers': [{'type': 'Digits', 'individual_digits': True}, $cutting]}" smollm
cut_as "j['normalizer'] = {'type': 'Sequence', 'normalizers': []}" gpt-2
refuses "j['normalizer'] = {'type': 'Lowercase'}" "the normalizer Lowercase changes text"
refuses "j['normalizer'] = {'type': 'Replace', 'pattern': {'String': '\r\n'}, 'content': '\n'}" "the normalizer Replace changes text"
refuses "$(split "$llama3"); j['normalizer'] = {'type': 'NFC'}" "the normalizer NFC changes text"
refuses "$(split "$qwen"); j['normalizer'] = {'type': 'Sequence', 'normalizers': [{'type': 'NFC'}, {'type': 'NFKC'}]}" "the normalizer NFKC"
refuses "j['pre_tokenizer']['add_prefix_space'] = True" "add_prefix_space puts a space in front"
refuses "$(split "$qwen"); j['pre_tokenizer']['pretokenizers'][1]['add_prefix_space'] = True" "add_prefix_space puts a space in front"
refuses "$(split "$qwen"); $whole" "ignore_merges leaves words whole"
refuses "$whole" "ignore_merges leaves words whole"
refuses "$(split "$llama3"); j['pre_tokenizer']['pretokenizers'][1]['use_regex'] = True" "ggml has no name for the way in which this tokenizer cuts text"
refuses "$(split "$llama3" Removed)" "ggml has no name"
refuses "$(split "$llama3" MergedWithNext)" "ggml has no name"
refuses "$(split "$llama3"); j['pre_tokenizer']['pretokenizers'].insert(1, {'type': 'Digits', 'individual_digits': True})" "ggml has no name for the way in which this tokenizer cuts text (3 stages, Split first)"
refuses "j['pre_tokenizer'] = {'type': 'Sequence', 'pretokenizers': [{'type': 'Digits', 'individual_digits': False}, $cutting]}" "ggml has no name"
refuses "j['added_tokens'][0]['lstrip'] = True" "added token \`<|endoftext|>\` has lstrip"
refuses "j['added_tokens'] += [dict(j['added_tokens'][0], id=j['model']['vocab'][t], content=t) for t in ('ha', 'and')]" "the added tokens \`ha\` and \`and\` overlap in texts"
refuses "j['model']['vocab']['<|im_end|>'] = j['model']['vocab'].pop('en'); del j['model']['merges'][-1]" "\`<|im_end|>\` is a word here"
refuses "del j['model']['vocab']['!']" "no token for byte 0x21"
refuses "j['post_processor'] = {'type': 'TemplateProcessing', 'single': [{'SpecialToken': {'id': 'the', 'type_id': 0}}, {'SpecialToken': {'id': 'an', 'type_id': 0}}, {'Sequence': {'id': 'A', 'type_id': 0}}], 'pair': [], 'special_tokens': {'the': {'id': 'the', 'ids': [258], 'tokens': ['the']}, 'an': {'id': 'an', 'ids': [259], 'tokens': ['an']}}}" "puts 2 tokens in front"
# What a text begins and ends with.
cut_as "j['post_processor'] = {'type': 'TemplateProcessing', 'single': [{'SpecialToken': {'id': 'the', 'type_id': 0}}, {'Sequence': {'id': 'A', 'type_id': 0}}, {'SpecialToken': {'id': 'an', 'type_id': 0}}], 'pair': [], 'special_tokens': {'the': {'id': 'the', 'ids': [258], 'tokens': ['the']}, 'an': {'id': 'an', 'ids': [259], 'tokens': ['an']}}}" gpt-2
holds keys.json "'tokenizer.ggml.eot_token_id' not in j" # <|endoftext|>, which programs know
holds keys.json "j['tokenizer.ggml.bos_token_id'] == 258 and j['tokenizer.ggml.add_bos_token'] and j['tokenizer.ggml.eos_token_id'] == 259 and j['tokenizer.ggml.add_eos_token']"
rm -rf folder ./*.gguf

# ---- PEFT: which modules a name means

# PEFT's rule for modules_to_save, applied to the base's own names: a module is saved whole where its name ends in one of
# the list; stored are those tensors, and the head of a tied model, which PEFT gives a table for itself.
cat >modules.py <<'PYTHON'
import json, struct, sys
base, adapter, tied = sys.argv[1], sys.argv[2], sys.argv[3:] == ["tied"]
def tensors(path):
    data = open(path, "rb").read()
    length = struct.unpack_from("<Q", data)[0]
    return {key: data[8 + length + entry["data_offsets"][0]:8 + length + entry["data_offsets"][1]]
            for key, entry in json.loads(data[8:8 + length]).items() if key != "__metadata__"}
config = json.load(open(adapter + "/adapter_config.json"))
names = set(tensors(base + "/model.safetensors")) | ({"lm_head.weight"} if tied else set())
stored = tensors(adapter + "/adapter_model.safetensors")
wanted = {name for name in names if any(name.rsplit(".", 1)[0].endswith(end) for end in config["modules_to_save"])}
found = {name[len("base_model.model."):] for name in stored if ".lora_" not in name}
assert wanted == found, (config["modules_to_save"], wanted ^ found)
if tied:
    table = [name for name in stored if "embed_tokens" in name or ".wte." in name]
    assert stored["base_model.model.lm_head.weight"] == stored[table[0]]
PYTHON

# saves MODEL TARGETS ALSO [tied]: an export with a list that means what was trained, read again as the same
saves() {
    rm -rf run peft merged again again-merged
    expect 0 "$trainer" --config tune.yaml init_from="$models/$1" out_dir=run adapter.kind=lora adapter.rank=2 \
        "adapter.targets=$2" "adapter.also_train=$3"
    expect 0 "$trainer" export --checkpoint run --format peft --output peft
    python3 modules.py "$models/$1" peft ${4:-} || fail "$1, $3: PEFT would save other modules"
    expect 0 "$trainer" export --checkpoint run --merge --output merged
    expect 0 "$trainer" --config tune.yaml init_from="$models/$1" out_dir=again adapter.init_from=peft learning_rate=0 max_steps=1 \
        weight_decay=0
    expect 0 "$trainer" export --checkpoint again --merge --output again-merged
    same merged/model.safetensors again-merged/model.safetensors
}

saves llama-tied "[q_proj, v_proj]" embedding tied
saves llama-tied "[mlp]" "[head, norm]" tied
saves llama "[q_proj, v_proj]" "['model.norm.*']"
saves llama "[q_proj]" "['*.1.*norm*']"
saves llama "[q_proj]" "['*.mlp.*']"
saves llama "[o_proj]" "['*.gate_proj.*', '*.up_proj.*', 'model.layers.0.self_attn.qkv*']"
saves gpt2 "[c_attn]" "['*.mlp.*']"
saves gpt2 "[c_attn]" "['transformer.wte.*', '*.ln_1.*']" tied
rm -rf run
expect 2 "$trainer" --config tune.yaml init_from="$models/llama" out_dir=run adapter.kind=lora "adapter.also_train=['*.gate_proj.*']"
says err "without model.layers.0.mlp.up_proj.weight, and these are one matrix here"
expect 0 "$trainer" --config tune.yaml init_from="$models/gpt2" out_dir=run adapter.kind=lora adapter.also_train=bias adapter.targets=c_attn
expect 1 "$trainer" export --checkpoint run --format peft --output other
says err "PEFT saves whole modules"

# PEFT's embedding alone leaves the head of a tied model as it was: another model than this one can be.
expect 0 "$trainer" --config tune.yaml init_from="$models/llama-tied" out_dir=tied adapter.kind=lora adapter.also_train=embedding
expect 0 "$trainer" export --checkpoint tied --format peft --output peft-tied
# only KIND STATEMENT: peft-tied changed to hold one table, or two that differ, under the given adapter_config.json
only() {
    rm -rf only
    cp -r peft-tied only
    python3 - "$1" <<'PYTHON'
import json, struct, sys
path = "only/adapter_model.safetensors"
data = bytearray(open(path, "rb").read())
length = struct.unpack_from("<Q", data)[0]
head = json.loads(data[8:8 + length])
name = "base_model.model.lm_head.weight"
if sys.argv[1] == "differ":
    data[8 + length + head[name]["data_offsets"][0]] ^= 1
    body = data
else:
    first, last = head.pop(name)["data_offsets"]
    body = data[8 + length:8 + length + first] + data[8 + length + last:]
    for key, entry in head.items():
        if key != "__metadata__" and entry["data_offsets"][0] >= last:
            entry["data_offsets"] = [at - (last - first) for at in entry["data_offsets"]]
    text = json.dumps(head).encode()
    body = struct.pack("<Q", len(text)) + text + body
open(path, "wb").write(body)
PYTHON
    edit only/adapter_config.json "$2"
    rm -rf run
}
on() {
    "$trainer" --config tune.yaml init_from="$models/llama-tied" out_dir=run adapter.init_from=only
}
only alone 'j["modules_to_save"] = ["embed_tokens"]'
expect 1 on
says err "\`base_model.model.model.embed_tokens.weight\` is trained and \`lm_head\` is not stored"
only alone 'j.update(modules_to_save=["embed_tokens"], ensure_weight_tying=True)'
expect 0 on
only differ 'pass'
expect 1 on
says err "is trained and \`lm_head\` differs from it"
only alone 'j["modules_to_save"] = ["lm_head"]'
expect 1 on
says err "modules_to_save is [\"lm_head\"], which is not supported; supported: the head together with the embedding, as the head is the embedding's table here"
# Names are PEFT's to the letter, and what changes the mathematics is refused.
for change in 'j["layers_to_transform"] = 0' 'j["kasa_config"] = {"beta": 1}' 'j["velora_config"] = {"x": 1}' \
    'j["target_modules"] = ["mlp"]' 'j["target_modules"] = ["q_*"]' 'j["modules_to_save"] = ["[en]"]' 'j["target_modules"] = ".*q_proj"'; do
    only alone "$change"
    expect 1 on
    says err "which is not supported"
done
finish
