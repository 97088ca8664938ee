#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""make_turns.py TEMPLATES FOLDER: conversations by templates of which each takes others, and what transformers makes of them.

TEMPLATES holds the published chat templates, NAME.jinja each; they are others' work and not in this repository.  FOLDER has
the tokenizer.json of make.py.

    FOLDER/special.json       that tokenizer with the special tokens of these templates
    FOLDER/turns.NAME.jsonl   a line each: the row as a text; what apply_chat_template renders of it; in every fourth the
                              text that an answer to all but the last message comes after (an assistant's); which of its
                              tokens are an assistant's; in the first lines the tokens
"""

import datetime
import json
import os
import random
import sys

from make import content
from transformers import PreTrainedTokenizerFast
from transformers.utils import chat_template_utils

COUNT, WITH_TOKENS = 40, 6
SPECIAL = ["<bos>", "<start_of_turn>", "<end_of_turn>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>",
           "<|start_of_role|>", "<|end_of_role|>", "<|end_of_text|>", "<s>", "[INST]", "[/INST]", "[SYSTEM_PROMPT]",
           "[/SYSTEM_PROMPT]"]
ODD = ["<end_of_turn>\n", "<|end|>", "</s>", "[INST] x [/INST]", "/no_think", "<think>\nhm\n</think>\nso", "\n\n\nlate",
       "<|end_of_text|>", "<bos>"]
MODES = ["/no_think", "/think", "be brief /no_think", "/think\nbe long  \n", "/thi/no_thinknk now", "/system_override",
         "a /system_override b ", "x/no_think /system_override\n", "/system_/thinkoverride y", "/sys/system_overridetem_override"]

# What ends an answer; in what share a system message comes first; whether other orders of roles are taken.
FORMS = {
    "gemma": ("<end_of_turn>", 0.4, False),
    "gemma2": ("<end_of_turn>", 0, False),
    "smollm3": ("<|im_end|>", 0.7, False),
    "phi3": ("<|end|>", 0.4, True),
    "phi3.5": ("<|end|>", 0.4, True),
    "phi4-mini": ("<|end|>", 0.4, True),
    "granite3.0": ("<|end_of_text|>", 0.4, True),
    "granite": ("<|end_of_text|>", 1, True),
    "mistral-v3": ("</s>", 0.5, False),
    "mistral-nemo": ("</s>", 0.5, False),
    "ministral": ("</s>", 0.5, False),
    "mistral-v7-tekken": ("</s>", 1, True),
}
BEGIN = {"gemma": "<bos>", "gemma2": "<bos>"}


class OnOneDay(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2025, 7, 8, tzinfo=tz)


def words(draw):
    return draw.choice(ODD) if draw.random() < 0.15 else content(draw)


def conversation(draw, name, index):
    _, share, free = FORMS[name]
    messages = [{"role": "system", "content": words(draw)}] if draw.random() < share else []
    if messages and name == "smollm3" and draw.random() < 0.6:
        messages[0]["content"] = draw.choice(MODES)
    elif messages and draw.random() < 0.2:
        messages[0]["content"] = ""
    for _ in range(draw.randint(1, 3)):
        if free and draw.random() < 0.2:
            messages.append({"role": draw.choice(["system", "user"]), "content": draw.choice(["", words(draw)])})
        messages.append({"role": "user", "content": words(draw)})
        messages.append({"role": "assistant", "content": words(draw)})
    if index % 5 == 4:
        messages.append({"role": "user", "content": words(draw)})
    return messages


def spans_of(render, name, messages, text):
    """Where answers stand: behind the text that asks for one, to the end of what renders with it."""
    end, spans = FORMS[name][0], []
    for at, message in enumerate(messages):
        if message["role"] != "assistant":
            continue
        # What stands in front of the last message of all, and nowhere else, is not in front of this answer.
        moves = messages[0]["role"] == "system" and name in ("mistral-v3", "mistral-nemo", "ministral")
        before = messages[moves:at]
        asked, answered = render(before, True), render(before + [message], False)
        if name.startswith("phi"):
            answered = answered.removesuffix("<|endoftext|>")
        assert answered.startswith(asked)
        spans.append((len(asked), answered.rindex(end) + len(end)))
        assert text.startswith(answered[: spans[-1][1]])
    return spans


def expected(name, template, messages, made):
    def render(said, asks):
        begin, end = BEGIN.get(name, "<s>"), "</s>" if "istral" in name else "<|endoftext|>"
        return made.apply_chat_template(said, chat_template=template, tokenize=False, add_generation_prompt=asks,
                                        bos_token=begin, eos_token=end)

    text = render(messages, False)
    spans = spans_of(render, name, messages, text)
    both = made(text, add_special_tokens=False, return_offsets_mapping=True)
    mask = "".join("1" if any(e > begin and s < end for begin, end in spans) else "0"
                   for s, e in both["offset_mapping"])
    answered = messages if messages[-1]["role"] == "user" else messages[:-1]
    return {"text": text, "prompt": render(answered, True), "mask": mask, "tokens": both["input_ids"]}


def special(folder):
    """The same merges, so that texts without special tokens are cut as they were."""
    with open(os.path.join(folder, "tokenizer.json"), encoding="utf-8") as file:
        made = json.load(file)
    for token in SPECIAL:
        made["added_tokens"].append({"id": len(made["model"]["vocab"]) + SPECIAL.index(token), "content": token,
                                     "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
                                     "special": True})
    path = os.path.join(folder, "special.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(made, file, ensure_ascii=False, separators=(",", ":"))
    return PreTrainedTokenizerFast(tokenizer_file=path, bos_token="<|begin_of_text|>", eos_token="<|endoftext|>")


def main(templates, folder):
    made = special(folder)
    chat_template_utils.datetime = OnOneDay
    for name in FORMS:
        with open(os.path.join(templates, name + ".jinja"), encoding="utf-8") as file:
            template = file.read()
        draw = random.Random(13)
        with open(os.path.join(folder, f"turns.{name}.jsonl"), "w", encoding="utf-8") as file:
            for index in range(COUNT):
                messages = conversation(draw, name, index)
                row = json.dumps({"messages": messages}, ensure_ascii=False)
                line = {"row": row, **expected(name, template, messages, made)}
                if index >= WITH_TOKENS:
                    del line["tokens"]
                if index % 4 != 3:
                    del line["prompt"]
                file.write(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
