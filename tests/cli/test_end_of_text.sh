#!/bin/bash
# SPDX-License-Identifier: MIT
# The token between documents: a warning where none is known, the key that names it, in training, resuming, eval, generate.
. "$(dirname "$0")/lib.sh"
tiny_config
printf '%s\n' '{"text":"aaa bbb aaa bbb"}' '{"text":"ccc ddd ccc ddd"}' >one.jsonl
for i in $(seq 20); do cat one.jsonl; done >x.jsonl
expect 0 "$trainer" tokenizer train --vocabulary 260 --output own.json one.jsonl
sed 's/<|endoftext|>/<|im_end|>/g' own.json >tokenizer.json
keys=("tasks.0.train=x.jsonl" max_steps=3 tokenizer.kind=bpe tokenizer.path=tokenizer.json evaluation.every=0)
expect 0 "$trainer" --config tiny.yaml "${keys[@]}"
says err "warning: task t: no end-of-text token is known: its 40 documents run together without a border; set tokenizer.end_of_text"
[ "$(grep -c "end-of-text" err)" = 1 ] || fail "the warning does not come once"
expect 2 "$trainer" --config tiny.yaml "${keys[@]}" out_dir=refused 'tokenizer.end_of_text="<|end|>"'
says err 'tokenizer.end_of_text: no token of the vocabulary is `<|end|>`'
# With the key: no warning, and the run's commands know it from the checkpoint.
keys+=('tokenizer.end_of_text="<|im_end|>"' out_dir=ended)
expect 0 "$trainer" --config tiny.yaml "${keys[@]}"
grep "end-of-text" err && fail "a warning although the token is known"
expect 0 "$trainer" --config tiny.yaml "${keys[@]}" max_steps=4
grep "end-of-text" err && fail "a warning after resuming"
expect 0 "$trainer" eval --checkpoint ended
grep "end-of-text" err && fail "a warning in eval"
expect 0 "$trainer" generate --checkpoint ended --prompt '' --tokens 5
# Another token would be another text: not on resuming.
expect 2 "$trainer" --config tiny.yaml "${keys[@]}" max_steps=5 'tokenizer.end_of_text='
says err "tokenizer.end_of_text"
# Files of a char tokenizer run together too; one document, and generated text, do not.
expect 0 "$trainer" --config tiny.yaml tasks.0.train=x.jsonl tokenizer.kind=char max_steps=1 out_dir=char
says err "no end-of-text token is known"
expect 0 "$trainer" --config tiny.yaml tokenizer.kind=char max_steps=1 out_dir=generated
grep "end-of-text" err && fail "a warning about generated text"
tr -d '\n' <x.jsonl >one.txt
expect 0 "$trainer" --config tiny.yaml tasks.0.train=one.txt tokenizer.kind=char max_steps=1 out_dir=single
grep "end-of-text" err && fail "a warning about one document"
finish
