#!/bin/bash
# SPDX-License-Identifier: MIT
# Training with tokenizer.json files of other families than GPT-2's; what is refused, and with which exit code.
. "$(dirname "$0")/lib.sh"
tiny_config
files=$root/tests/unit/tokenizer/golden
printf '%s\n' '{"text":"the mother isn'\''t there, caf\u0065\u0301 12345"}' '{"text":"the other dogs \u65e5"}' >one.jsonl
for i in $(seq 40); do cat one.jsonl; done >x.jsonl
keys=("tasks.0.train=x.jsonl" max_steps=2 tokenizer.kind=bpe evaluation.every=0)
for kind in llama2 mistral qwen2; do
    expect 0 "$trainer" --config tiny.yaml "${keys[@]}" tokenizer.path="$files/$kind.json" out_dir=$kind
    expect 0 "$trainer" generate --checkpoint $kind --prompt 'the mother' --tokens 5
    says out "the mother"
done
# The checkpoint's tokenizer is the file, byte for byte.
same "$files/llama2.json" "$(ls llama2/checkpoints/*/tokenizer.json | head -n 1)"
# A file that another kind would not read.
expect 2 "$trainer" --config tiny.yaml tokenizer.kind=byte tokenizer.path="$files/llama2.json" out_dir=byte
says err "tokenizer.path has no meaning with tokenizer.kind: byte"
# A character without a token, named with its source.
sed 's/"byte_fallback":true/"byte_fallback":false/; s/"unk_token":"<unk>"/"unk_token":null/' "$files/llama2.json" >bare.json
printf '%s\n' '{"text":"the \u00f1"}' >strange.jsonl
expect 1 "$trainer" --config tiny.yaml "${keys[@]}" tasks.0.train=strange.jsonl tokenizer.path=bare.json out_dir=bare
says err "has no token for character U+00F1"
# An expression that backtracks without end.
sed 's/"Regex":"[^"]*"/"Regex":"(t+)+u"/' "$files/llama3.json" >slow.json
head -c 20000 /dev/zero | tr '\0' t >t.txt
expect 1 "$trainer" --config tiny.yaml "${keys[@]}" tasks.0.train=t.txt tokenizer.path=slow.json out_dir=slow
says err "slow.json: pre_tokenizer Split: the expression"
finish
