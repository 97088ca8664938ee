#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""make.py TEMPLATES FOLDER: conversations, and what transformers makes of them.

TEMPLATES holds the published chat templates, NAME.jinja each (chatml, qwen2, qwen2.5, llama3, llama3.1, alpaca); they are
others' work and not in this repository.

    FOLDER/conversations.jsonl   of this script's own making: one a line, as messages
    FOLDER/tokenizer.json        byte-level merges learned from them, NFC, with the templates' special tokens, which puts
                                 <|begin_of_text|> in front of a text; spaces.json: the same with spaces as U+2581
    FOLDER/NAME.jsonl            a line each: the text, in every fifth the text that an answer to all but the last
                                 message comes after (an assistant's), which of its tokens are an assistant's, and the
                                 tokens (chatml, llama3, alpaca)
"""

import json
import os
import random
import sys

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

COUNT, VOCABULARY = 200, 420
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|begin_of_text|>", "<|start_header_id|>",
           "<|end_header_id|>", "<|eot_id|>", "</s>"]
WORDS = "the a tea cake seven blue river counts 12 305 x=1; café naïve 茶 東京 🙂 don't it's Ω ß\u0301 e\u0301 tab\there".split(" ")
ODD = ["", " ", "\n", "\n\n", "  two  blanks  ", "\n\nlines\n\n", "\u00a0nbsp\u3000", "\x1cseparator\x1f", "<|im_end|>",
       "user\n", "### Response:\n", "\r\n", "a" * 70, "<|eot_id|> in the middle", "\u0301mark", "ends in \\", "\"quoted\""]


def content(draw):
    if draw.random() < 0.25:
        return draw.choice(ODD)
    text = " ".join(draw.choice(WORDS) for _ in range(draw.randint(1, 9)))
    return draw.choice(["", "", "", "\n", " "]) + text + draw.choice(["", "", ".", "\n", "  "])


def conversations():
    """Systems or none, one to four turns, the last one sometimes without an answer."""
    draw = random.Random(7)
    for index in range(COUNT):
        messages = [{"role": "system", "content": content(draw)}] if draw.random() < 0.4 else []
        for _ in range(draw.randint(1, 4)):
            messages.append({"role": "user", "content": content(draw)})
            messages.append({"role": "assistant", "content": content(draw)})
        if index % 10 == 9:
            messages.append({"role": "user", "content": content(draw)})
        yield messages


def tokenizer(texts, spaces):
    """One that merges across what stands before and in an answer, if nothing keeps them apart."""
    made = Tokenizer(models.BPE(unk_token=None, byte_fallback=spaces))
    alphabet = [] if spaces else pre_tokenizers.ByteLevel.alphabet()
    fallback = [f"<0x{byte:02X}>" for byte in range(256)] if spaces else []
    made.normalizer = (normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]) if spaces
                       else normalizers.NFC())
    if not spaces:
        made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.decoder = (decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                       decoders.Strip(" ", 1, 0)]) if spaces else decoders.ByteLevel())
    made.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=VOCABULARY + len(fallback), initial_alphabet=alphabet,
                                                        special_tokens=fallback + SPECIAL, show_progress=False,
                                                        max_token_length=8))
    begin = "<|begin_of_text|>"
    made.post_processor = processors.TemplateProcessing(single=f"{begin} $A", pair=f"{begin} $A {begin} $B",
                                                        special_tokens=[(begin, made.token_to_id(begin))])
    return made


# What is an assistant's, in programs of our own that render as the published ones do.
MARKED = {
    "chatml": "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}{% if m.role == 'assistant' %}{% generation %}"
              "{{ m.content + '<|im_end|>' }}{% endgeneration %}{% else %}{{ m.content + '<|im_end|>' }}{% endif %}"
              "{{ '\n' }}{% endfor %}",
    "llama3": "{{ bos_token }}{% for m in messages %}{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\n\n' }}"
              "{% if m.role == 'assistant' %}{% generation %}{{ m.content | trim + '<|eot_id|>' }}{% endgeneration %}"
              "{% else %}{{ m.content | trim + '<|eot_id|>' }}{% endif %}{% endfor %}",
    "alpaca": "{{ bos_token }}{% for m in messages %}{% if m.role == 'system' %}{{ m.content | trim + '\n\n' }}"
              "{% elif m.role == 'user' %}{{ '### Instruction:\n' + m.content | trim + '\n\n' }}{% else %}"
              "{{ '### Response:\n' }}{% generation %}{{ m.content | trim + eos_token }}{% endgeneration %}{{ '\n\n' }}"
              "{% endif %}{% endfor %}",
}
MARKED["qwen2"] = MARKED["qwen2.5"] = MARKED["chatml"]
MARKED["llama3.1"] = MARKED["llama3"]
SYSTEM = {"qwen2": "You are a helpful assistant.",
          "qwen2.5": "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."}
DATED = "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n"


def as_marked(name, messages):
    """The same messages with what the template adds, for the marked program."""
    has_system = messages[0]["role"] == "system"
    if name in SYSTEM and not has_system:
        return [{"role": "system", "content": SYSTEM[name]}] + messages
    if name == "llama3.1":
        system = messages[0]["content"].strip() if has_system else ""
        return [{"role": "system", "content": DATED + system}] + messages[has_system:]
    return messages


def expected(name, template, messages, made):
    text = made.apply_chat_template(messages, chat_template=template, tokenize=False)
    answered = messages if messages[-1]["role"] == "user" else messages[:-1]
    prompt = made.apply_chat_template(answered, chat_template=template, tokenize=False, add_generation_prompt=True)
    line = {"text": text, "prompt": prompt}
    # The marked program would trim the date's own blank lines where no system message follows them.
    bare_date = name == "llama3.1" and not (messages[0]["role"] == "system" and messages[0]["content"].strip())
    marked = MARKED[name].replace("m.content | trim + '<|eot_id|>' }}{% endif %}",
                                  "(m.content if loop.first else m.content | trim) + '<|eot_id|>' }}{% endif %}"
                                  if bare_date else "m.content | trim + '<|eot_id|>' }}{% endif %}")
    both = made.apply_chat_template(as_marked(name, messages), chat_template=marked, return_dict=True,
                                    return_assistant_tokens_mask=True)
    again = made.apply_chat_template(as_marked(name, messages), chat_template=marked, tokenize=False)
    assert again == text, (name, again, text)
    assert both["input_ids"] == made(text, add_special_tokens=False)["input_ids"]
    line["tokens"] = both["input_ids"]
    line["mask"] = "".join(map(str, both["assistant_masks"]))
    return line


def main(templates, folder):
    os.makedirs(folder, exist_ok=True)
    talks = list(conversations())
    with open(os.path.join(folder, "conversations.jsonl"), "w", encoding="utf-8") as file:
        for messages in talks:
            file.write(json.dumps({"messages": messages}, ensure_ascii=False) + "\n")
    texts = [m["role"] + "\n" + m["content"] for messages in talks for m in messages]
    made = {}
    for stem, spaces in (("tokenizer", False), ("spaces", True)):
        core = tokenizer(texts, spaces)
        core.save(os.path.join(folder, stem + ".json"))
        made[stem] = PreTrainedTokenizerFast(tokenizer_object=core, bos_token="<|begin_of_text|>",
                                             eos_token="<|endoftext|>")
    for name in MARKED:
        template = open(os.path.join(templates, name + ".jinja"), encoding="utf-8").read()
        for stem, suffix in (("tokenizer", ""), ("spaces", ".spaces")):
            if suffix and name not in ("chatml", "alpaca"):
                continue
            with open(os.path.join(folder, name + suffix + ".jsonl"), "w", encoding="utf-8") as file:
                for index, messages in enumerate(talks):
                    line = expected(name, template, messages, made[stem])
                    if suffix:
                        del line["text"]
                    if suffix or index % 5 != 4:
                        del line["prompt"]
                    if name not in ("chatml", "llama3", "alpaca"):
                        del line["tokens"]
                    file.write(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
