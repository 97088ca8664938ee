#!/bin/bash
# SPDX-License-Identifier: MIT
# Conversations from the command line: tokens as transformers has them, training on answers, which template is used, and
# what is refused.
. "$(dirname "$0")/lib.sh"
golden=$root/tests/chat
command -v python3 >/dev/null || { echo "skipped: no python3"; exit 0; }

# ids TEMPLATE: what is expected, as tokenizer encode prints it.
ids() {
    python3 -c 'import json, sys
for line in open(sys.argv[1]): print(*json.loads(line)["tokens"])' "$golden/$1.jsonl"
}
for name in chatml llama3 alpaca; do
    expect 0 "$trainer" tokenizer encode --tokenizer "$golden/tokenizer.json" --chat-template $name "$golden/conversations.jsonl"
    ids $name >expected
    same expected out
done
for name in qwen2.5 llama3.1; do
    python3 - "$golden/tools.$name.jsonl" <<'PYTHON'
import json, sys
lines = [line for line in map(json.loads, open(sys.argv[1], encoding="utf-8")) if "tokens" in line]
open("tools.jsonl", "w", encoding="utf-8").writelines(line["row"] + "\n" for line in lines)
open("tools.json", "w", encoding="utf-8").write("[" + ",\n".join(line["row"] for line in lines) + "]")
open("expected", "w").writelines(" ".join(map(str, line["tokens"])) + "\n" for line in lines)
PYTHON
    for rows in tools.jsonl tools.json; do
        expect 0 "$trainer" tokenizer encode --tokenizer "$golden/tokenizer.json" --chat-template $name $rows
        same expected out
    done
done
expect 0 "$trainer" tokenizer encode --tokenizer "$golden/spaces.json" --chat-template chatml "$golden/conversations.jsonl"
ids chatml.spaces >expected
same expected out

# A tokenizer of one's own: words are learned from, special tokens are the last ids.
expect 0 "$trainer" tokenizer train --vocabulary 320 --output words.json tools.json
special=(--special '<|im_start|>' --special '<|im_end|>')
expect 0 "$trainer" tokenizer train --vocabulary 400 "${special[@]}" --output own.json "$golden/conversations.jsonl"
python3 - <<'PYTHON' || fail "own.json"
import json
made = json.load(open("own.json"))
added = {t["content"]: t["id"] for t in made["added_tokens"]}
assert added == {"<|endoftext|>": 397, "<|im_start|>": 398, "<|im_end|>": 399}, added
assert not [t for t in made["model"]["vocab"] if "im_" in t]
PYTHON
expect 2 "$trainer" tokenizer train --vocabulary 400 --special a --output x.json "$golden/conversations.jsonl"
says err 'error: --special `a`: the vocabulary has this token already'
expect 2 "$trainer" tokenizer train --vocabulary 400 --special X --special X --output x.json "$golden/conversations.jsonl"
says err '--special X is given twice'
[ -e x.json ] && fail "a tokenizer although it was refused"
expect 2 "$trainer" tokenizer count --tokenizer own.json "${special[@]}" "$golden/conversations.jsonl"
says err 'tokenizer count takes no --special'

# Training, and what is said of conversations that are long.
cp "$golden/conversations.jsonl" talks.jsonl
cat >chat.yaml <<'YAML'
seed: 7
out_dir: run
batch_size: 4
max_length: 64
max_steps: 6
checkpoint_freq: 3
learning_rate: 1e-3
model: {family: llama, layers: 1, heads: 2, width: 32}
tokenizer: {kind: bpe, path: own.json, chat_template: chatml}
tasks: [{name: t, train: talks.jsonl}]
evaluation: {every: 3, batches: 2}
logging: {every: 1}
YAML
expect 0 "$trainer" --config chat.yaml
says err "conversations are longer than max_length, 64 tokens; the longest has"
grep -q "no end-of-text" err && fail "a border is asked for that the template has"
expect 0 "$trainer" eval --checkpoint run
expect 0 "$trainer" eval --checkpoint run --file talks.jsonl
# A loss is the mean over the answers that count: of two, the mean of each one's alone, weighted by their tokens.
talk() {
    printf '{"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "the cake"%s}, %s, %s]}\n' \
        "$1" '{"role": "user", "content": "hm"}' "{\"role\": \"assistant\", \"content\": \"seven\"$2}"
}
loss() {
    talk "$1" "$2" >talk.jsonl
    expect 0 "$trainer" eval --checkpoint run --file talk.jsonl --json data.packing=none
    grep -o '"val_loss":[0-9.]*' out | cut -d: -f2
}
tokens() { "$trainer" tokenizer encode --tokenizer own.json --text "$1<|im_end|>" | wc -l; }
awk -v both="$(loss '' '')" -v one="$(loss '' ', "weight": 0')" -v two="$(loss ', "train": false' ', "weight": 1')" \
    -v n="$(tokens 'the cake')" -v m="$(tokens 'seven')" 'BEGIN {
        off = (n * one + m * two) / (n + m) - both
        exit !(n != m && one > 0 && two > 0 && one != two && off < 1e-5 && off > -1e-5)
    }' || fail "losses of answers do not add up"
talk ', "weight": 0.5' '' >talk.jsonl
expect 1 "$trainer" eval --checkpoint run --file talk.jsonl
says err 'talk.jsonl:1: messages[1]: `weight` is 0.5: a message is counted whole or not at all: 0 or 1'
# Tools are trained on, and what a template does with a call that may not be meant is said.
call='{"function": {"name": "f", "arguments": '
printf '{"tools": [{"name": "f"}], "messages": [{"role": "user", "content": "hi"}, %s, %s]}\n' \
    "{\"role\": \"assistant\", \"content\": \"so\", \"tool_calls\": [$call\"{}\"}}]}" '{"role": "tool", "content": "cake"}' \
    "{\"role\": \"assistant\", \"content\": \"so\", \"tool_calls\": [$call{}}}]}" '{"role": "ipython", "content": "cake"}' >calls.jsonl
sed 's/ipython/tool/; s/"content": "so", //' calls.jsonl >plain.jsonl
tools=(--config chat.yaml tokenizer.path="$golden/tokenizer.json" max_steps=1 max_length=512 batch_size=1 data.packing=documents)
expect 0 "$trainer" "${tools[@]}" tasks.0.train=calls.jsonl tokenizer.chat_template=llama3.1 out_dir=called
says err 'task t: messages that call a tool and have a content too: 2; the chat template llama3.1 leaves the content out'
says err 'task t: calls of tools with a string as arguments: 1; the chat template llama3.1 puts it in quotes'
expect 0 "$trainer" "${tools[@]}" tasks.0.train=plain.jsonl tokenizer.chat_template=qwen2.5 out_dir=plain
says err 'task t: calls of tools with a string as arguments: 1; the chat template qwen2.5'
grep -q "a content too" err && fail "a content is missed that is rendered"
expect 0 "$trainer" generate --checkpoint plain --chat --prompt tea --tokens 3
expect 1 "$trainer" "${tools[@]}" tasks.0.train=calls.jsonl tokenizer.chat_template=chatml out_dir=x
says err 'calls.jsonl:1: `tools`: the template chatml does not render tools: name qwen2.5 or llama3.1 as tokenizer.chat_template'
# Killed and gone on from: the same bits.
expect 0 "$trainer" --config chat.yaml out_dir=whole
bits whole >whole.bits
goes_on_from whole/checkpoints/step-00000003 "$trainer" --config chat.yaml
# Another template would be another text; a run from before there was the key continues.
expect 2 "$trainer" --config chat.yaml max_steps=8 tokenizer.chat_template=qwen2
says err "differing: tokenizer.chat_template"
awk '{print "{\"text\": \"some words of line " NR " and more of them\"}"}' talks.jsonl >text.jsonl
expect 0 "$trainer" --config chat.yaml out_dir=before tasks.0.train=text.jsonl tokenizer.chat_template=auto
expect 0 "$trainer" --config chat.yaml out_dir=before tasks.0.train=text.jsonl max_steps=8
# A model of ours that knew no conversations is trained on with a template.
expect 0 "$trainer" --config chat.yaml out_dir=after init_from=before tokenizer.chat_template=chatml tokenizer.path=own.json model.layers=1

# Which template: the folder's, by its text.
mkdir folder
cp own.json folder/tokenizer.json
folder=(--config chat.yaml out_dir=auto tokenizer.path=folder/tokenizer.json tokenizer.chat_template=auto)
expect 2 "$trainer" "${folder[@]}"
says err "talks.jsonl:1: a conversation needs a chat template, and none is next to the tokenizer: name one as tokenizer.chat_template"
echo '{{ messages }}' >folder/chat_template.jinja
expect 2 "$trainer" "${folder[@]}"
says err "the chat template of folder/chat_template.jinja (XXH3 "
echo '{}' >folder/tokenizer_config.json
rm folder/chat_template.jinja
python3 - <<'PYTHON'
import json
program = ("{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
           "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")
json.dump({"chat_template": [{"name": "default", "template": program}]}, open("folder/tokenizer_config.json", "w"))
PYTHON
expect 0 "$trainer" "${folder[@]}"
says auto/config.yaml "chat_template: chatml"
record run >run.record
record auto >auto.record
same run.record auto.record
expect 0 "$trainer" tokenizer encode --tokenizer folder/tokenizer.json talks.jsonl
mv out first
expect 0 "$trainer" tokenizer encode --tokenizer own.json --chat-template chatml talks.jsonl
same first out

# A conversation a row: what is cut is counted, by an oracle that has their lengths; resumed, and with replay, the same bits.
read -r cut lost answers <<<"$(python3 - "$golden/chatml.jsonl" <<'PYTHON'
import json, sys
masks = [json.loads(line)["mask"] for line in open(sys.argv[1])]
ends = [mask[49:] for mask in masks if len(mask) > 49]
print(len(ends), sum(map(len, ends)), sum(end.count("1") for end in ends))
PYTHON
)"
rows=(--config chat.yaml tokenizer.path="$golden/tokenizer.json" data.packing=none max_length=48)
expect 0 "$trainer" "${rows[@]}" out_dir=rows tasks.0.validation=talks.jsonl
says err "of 400 documents are cut at max_length: $((2 * lost)) tokens at their ends are lost, $((2 * answers)) of which the loss would count"
says err "task t: $((2 * cut)) of 400"
rm -r whole
expect 0 "$trainer" "${rows[@]}" out_dir=whole continual.strategy=er replay.buffer_size=16
bits whole >whole.bits
goes_on_from whole/checkpoints/step-00000003 "$trainer" "${rows[@]}" continual.strategy=er replay.buffer_size=16
expect 2 "$trainer" "${rows[@]}" out_dir=rows tasks.0.validation=talks.jsonl data.packing=stream max_steps=8
says err "differing: data.packing"
expect 2 "$trainer" --config chat.yaml out_dir=x data.packing=none max_length=4
says err "has a token that the loss counts among its first 5 (data.packing: none): raise max_length"

# Templates of which each takes other conversations: tokens as transformers has them.
for name in gemma gemma2 smollm3 phi3 phi3.5 phi4-mini granite3.0 granite mistral-v3 mistral-nemo ministral mistral-v7-tekken; do
    python3 - "$golden/turns.$name.jsonl" $name <<'PYTHON'
import json, sys
lines = list(map(json.loads, open(sys.argv[1], encoding="utf-8")))
open(sys.argv[2] + ".jsonl", "w", encoding="utf-8").writelines(line["row"] + "\n" for line in lines)
lines = [line for line in lines if "tokens" in line]
open("turns.jsonl", "w", encoding="utf-8").writelines(line["row"] + "\n" for line in lines)
open("expected", "w").writelines(" ".join(map(str, line["tokens"])) + "\n" for line in lines)
PYTHON
    expect 0 "$trainer" tokenizer encode --tokenizer "$golden/special.json" --chat-template $name turns.jsonl
    same expected out
done

# An exported folder answers by the same template, as transformers renders it (where that is there), and is known again.
exports() {
    local name=$1 tokenizer=$golden/$2.json talks=$3
    expect 0 "$trainer" --config chat.yaml tokenizer.path="$tokenizer" tokenizer.chat_template="$name" tasks.0.train="$talks" \
        out_dir="run-$name" max_steps=1
    expect 0 "$trainer" export --checkpoint "run-$name" --output "hf-$name"
    expect 0 "${PYTHON:-python3}" "$golden/exported.py" "hf-$name" "$name"
    expect 0 "$trainer" --config chat.yaml --print-config tokenizer.path="hf-$name/tokenizer.json" tokenizer.chat_template=auto
    says out "chat_template: $name"
    expect 0 "$trainer" generate --checkpoint "hf-$name" --chat --prompt tea --tokens 3 "${@:4}"
}
for name in chatml qwen2 qwen2.5 llama3 llama3.1 alpaca; do exports $name tokenizer talks.jsonl; done
for name in gemma smollm3 phi3 phi3.5 phi4-mini granite3.0 mistral-v3 mistral-nemo ministral; do exports $name special $name.jsonl; done
for name in granite mistral-v7-tekken; do exports $name special $name.jsonl --system 'be brief'; done
exports gemma2 special gemma2.jsonl
# Where the day of rendering would be written, and where a system message has no place.
expect 1 "$trainer" generate --checkpoint run-granite --chat --prompt tea --tokens 3
says err "begin the conversation with one (generate --chat: --system)"
expect 1 "$trainer" generate --checkpoint run-gemma2 --chat --system x --prompt tea --tokens 3
says err "the template gemma2 has no system message"
expect 0 "$trainer" --config chat.yaml tokenizer.path="$golden/special.json" tokenizer.chat_template=mistral-v3 tasks.0.train=mistral-v3.jsonl out_dir=left max_steps=1
left=$(python3 -c 'import json
talks = [json.loads(line)["messages"] for line in open("mistral-v3.jsonl", encoding="utf-8")]
print(sum(talk[0]["role"] == "system" and talk[-1]["role"] != "user" for talk in talks))')
says err "task t: system messages of conversations that do not end with the user's message: $left; the chat template mistral-v3 leaves the content out, as published"

# What is refused names file, line and mend.
expect 2 "$trainer" --config chat.yaml out_dir=x tokenizer.chat_template=llama3
says err "llama3 writes the tokens <|begin_of_text|>, <|start_header_id|>, <|end_header_id|>, <|eot_id|>, which this tokenizer (kind bpe) does not have"
expect 2 "$trainer" --config chat.yaml out_dir=x tokenizer.kind=byte tokenizer.path=
says err "train --special '<|im_start|>' --special '<|im_end|>' SOURCE"
expect 2 "$trainer" --config chat.yaml out_dir=x tokenizer.kind=char tokenizer.path= tokenizer.chat_template=alpaca
says err "which this tokenizer (kind char) does not have"
(cat talks.jsonl; echo '{"messages": [{"role": "judge", "content": "guilty"}]}') >broken.jsonl
expect 1 "$trainer" --config chat.yaml out_dir=x tasks.0.train=broken.jsonl
says err 'broken.jsonl:201: messages[0]: `judge` is no role that templates have here'
[ -e x/checkpoints ] && fail "a checkpoint of a run that was refused"
finish
