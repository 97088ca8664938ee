#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""exported.py FOLDER NAME: whether transformers renders tests/chat/conversations.jsonl by the template of an exported folder
as NAME.jsonl has it where that is there, and so the rows of tools.NAME.jsonl and turns.NAME.jsonl, and ends a text where an
answer ends.  Says "skipped" where there is no transformers."""

import glob
import json
import os
import sys

try:
    from transformers import AutoTokenizer, GenerationConfig
except ImportError:
    print("skipped: no transformers")
    sys.exit(0)

folder, name = sys.argv[1:]
here = os.path.dirname(os.path.abspath(__file__))
made = AutoTokenizer.from_pretrained(folder)


def read(path):
    path = os.path.join(here, path)
    return [json.loads(line) for line in open(path, encoding="utf-8")] if os.path.exists(path) else []


lines = read(name + ".jsonl")
talks = [talk["messages"] for talk in read("conversations.jsonl")] if lines else []
turns = read(f"turns.{name}.jsonl")
talks += [json.loads(line["row"])["messages"] for line in turns]
lines += turns
assert lines, name
for messages, line in zip(talks, lines, strict=True):
    text = made.apply_chat_template(messages, tokenize=False)
    assert text == line["text"], (text, line["text"])
    if "prompt" in line:
        answered = messages if messages[-1]["role"] == "user" else messages[:-1]
        text = made.apply_chat_template(answered, tokenize=False, add_generation_prompt=True)
        assert text == line["prompt"], (text, line["prompt"])
    if "tokens" in line:
        ids = made.apply_chat_template(messages, return_dict=True)["input_ids"]
        assert ids == line["tokens"], (ids, line["tokens"])
for path in glob.glob(os.path.join(here, f"tools.{name}.jsonl")):
    for line in map(json.loads, open(path, encoding="utf-8")):
        row = json.loads(line["row"])
        text = made.apply_chat_template(row["messages"], tools=row.get("tools"), tokenize=False,
                                        **row.get("chat_template_kwargs", {}))
        assert text == line["text"], (text, line["text"])
ends = GenerationConfig.from_pretrained(folder).eos_token_id
ends = ends if isinstance(ends, list) else [ends]
counted = [ids for line in lines if "tokens" in line for ids, mark, after in
           zip(line["tokens"], line["mask"], line["mask"][1:] + "0") if mark == "1" and after == "0"]
assert all(token in ends for token in counted), (set(counted), ends)
print(f"{name}: {len(lines)} conversations")
