#!/bin/bash
# SPDX-License-Identifier: MIT
# generate --chat: each turn is what the rendered conversation continues as; it stops where an answer ends.  The tokens that
# end a text, and those that a tokenizer puts in front of one.
. "$(dirname "$0")/lib.sh"
command -v python3 >/dev/null || { echo "skipped: no python3"; exit 0; }

# A model that knows four answers by heart.
python3 - <<'PYTHON'
import json
pairs = [("hello", "good day to you"), ("tea?", "yes please"), ("seven times two", "fourteen"), ("bye", "farewell")]
with open("talks.jsonl", "w") as file:
    for i in range(60):
        messages = []
        for k in range(3):
            said, answer = pairs[(i + k * (1 + i // 4 % 3)) % 4]
            messages += [{"role": "user", "content": said}, {"role": "assistant", "content": answer}]
        file.write(json.dumps({"messages": messages[: 2 * (1 + i % 3)]}) + "\n")
PYTHON
expect 0 "$trainer" tokenizer train --vocabulary 300 --special '<|im_start|>' --special '<|im_end|>' --output own.json talks.jsonl
cat >chat.yaml <<'YAML'
seed: 7
out_dir: run
batch_size: 8
max_length: 96
max_steps: 150
checkpoint_freq: 0
learning_rate: 1e-2
model: {family: llama, layers: 2, heads: 2, width: 64}
tokenizer: {kind: bpe, path: own.json, chat_template: chatml}
tasks: [{name: t, train: talks.jsonl}]
precision: {mode: fp32}
schedule: {warmup_steps: 10}
evaluation: {every: 0, batches: 2}
YAML
expect 0 "$trainer" --config chat.yaml
greedy=(generate --checkpoint run --temperature 0 --tokens 40)
for pair in "hello=good day to you" "tea?=yes please" "seven times two=fourteen" "bye=farewell"; do
    expect 0 "$trainer" "${greedy[@]}" --chat --prompt "${pair%%=*}"
    [ "$(cat out)" = "${pair#*=}" ] || fail "${pair%%=*}: $(cat out) instead of ${pair#*=}"
done
# A line a turn; empty ones are none.
printf 'hello\n\nbye\r\ntea?' >turns
expect 0 "$trainer" "${greedy[@]}" --chat <turns
printf 'good day to you\nfarewell\nyes please\n' >expected
same expected out

# The same as the rendered text continues, turn by turn, with all that was said before.
frame() { printf '<|im_start|>user\n%s<|im_end|>\n<|im_start|>assistant\n' "$1"; }
printf '<|im_start|>system\nbe brief<|im_end|>\n' >text
: >expected
while read -r said; do
    frame "$said" >>text
    "$trainer" "${greedy[@]}" --prompt-file text --json >answer.json || fail "no answer to $said"
    python3 -c 'import json; print(json.load(open("answer.json"))["samples"][0]["text"])' | tee -a expected >answer
    printf '%s<|im_end|>\n' "$(cat answer)" >>text
done < <(printf 'seven\nhello there\ntea? tea?\n')
printf 'seven\nhello there\ntea? tea?\n' >turns
expect 0 "$trainer" "${greedy[@]}" --chat --system 'be brief' <turns
same expected out
# One turn as JSON: several answers, each to the prompt alone, from the seeds that are given with them.
expect 0 "$trainer" generate --checkpoint run --chat --prompt hello --samples 2 --temperature 2 --tokens 12 --json
python3 - <<'PYTHON' >seeds || fail "--json"
import json
made = json.load(open("out"))
assert made["prompt"] == "hello" and len(made["samples"]) == 2
print(made["samples"][1]["seed"], end="")
print(made["samples"][1]["tokens"], file=open("second", "w"))
PYTHON
expect 0 "$trainer" generate --checkpoint run --chat --prompt hello --temperature 2 --tokens 12 --seed "$(cat seeds)" --json
python3 -c 'import json; print(json.load(open("out"))["samples"][0]["tokens"])' >again
same second again
expect 2 "$trainer" generate --checkpoint run --chat --json
expect 2 "$trainer" generate --checkpoint run --system x --prompt a
# Another template, on the command line; one that the tokenizer lacks the tokens of; none.
expect 0 "$trainer" "${greedy[@]}" --chat --prompt hello tokenizer.chat_template=qwen2.5
expect 2 "$trainer" "${greedy[@]}" --chat --prompt hello tokenizer.chat_template=llama3
says err "llama3 writes the tokens"
expect 2 "$trainer" "${greedy[@]}" --chat --prompt hello tokenizer.chat_template=auto
says err "name one as tokenizer.chat_template"

# generation_config.json: any of its tokens ends a text, and is no part of it.
cp -rL "$root/tests/huggingface/models/llama" folder
first=(generate --checkpoint folder --temperature 0 --tokens 16 --prompt 'the hand' --json)
expect 0 "$trainer" "${first[@]}"
tokens() { python3 -c 'import json, sys; print(*json.load(open(sys.argv[1]))["samples"][0]["tokens"])' "$1"; }
tokens out >whole
read -r -a ids <whole
[ "${#ids[@]}" -ge 4 ] || fail "too few tokens: ${ids[*]}"
for eos in "${ids[3]}" "[9999, ${ids[3]}]"; do
    echo "{\"eos_token_id\": $eos}" >folder/generation_config.json
    expect 0 "$trainer" "${first[@]}"
    python3 - "${ids[3]}" "${ids[@]}" <<'PYTHON' >expected
import sys
stop, *ids = sys.argv[1:]
print(*ids[: ids.index(stop)])
PYTHON
    tokens out >found
    same expected found
done
echo '{"eos_token_id": "x"}' >folder/generation_config.json
expect 1 "$trainer" "${first[@]}"
says err "folder/generation_config.json: eos_token_id must be the number of a token, or a list of such numbers"
rm folder/generation_config.json

# A post-processor's token in front of a text: as if the prompt began with it.
expect 0 "$trainer" generate --checkpoint folder --temperature 0 --tokens 16 --prompt '<|endoftext|>the hand' --json
tokens out >expected
sed -E 's/("ctx": ?")/\1<|endoftext|>/' "$root/tests/huggingface/models/choices.jsonl" >begun.jsonl
cmp -s begun.jsonl "$root/tests/huggingface/models/choices.jsonl" && fail "begun.jsonl"
expect 0 "$trainer" eval --checkpoint folder --choices begun.jsonl
mv out begun
python3 - <<'PYTHON'
import json
made = json.load(open("folder/tokenizer.json"))
made["post_processor"]["single"].insert(0, {"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}})
made["post_processor"]["special_tokens"] = {"<|endoftext|>": {"id": "<|endoftext|>", "ids": [0], "tokens": ["<|endoftext|>"]}}
json.dump(made, open("folder/tokenizer.json", "w"))
PYTHON
expect 0 "$trainer" "${first[@]}"
tokens out >found
same expected found
expect 0 "$trainer" eval --checkpoint folder --choices "$root/tests/huggingface/models/choices.jsonl"
same begun out
finish
