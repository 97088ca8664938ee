#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""make_tools.py TEMPLATES FOLDER: conversations with tools, and what transformers makes of them.

TEMPLATES holds the published chat templates qwen2.5.jinja and llama3.1.jinja; they are others' work and not in this
repository.  FOLDER has the tokenizer.json of make.py.

    FOLDER/tools.NAME.jsonl   a line each: the row as a text, since 1, 1.0 and 1e0 are one value and three spellings; what
                              apply_chat_template renders of it; which of its tokens the loss counts; in the first lines
                              the tokens
"""

import json
import os
import random
import re
import sys

from transformers import PreTrainedTokenizerFast

COUNT, WITH_TOKENS = 48, 8
NUMBERS = ["0", "-0", "-0.0", "1", "-17", "1.0", "1e5", "1E+2", "100000000000000000000000000", "0.1", "1e16", "1e15", "1e-5",
           "0.0001", "123456789.125", "5.9604644775390625e-08", "2.5e-324", "1e999", "-1e999", "NaN", "Infinity",
           "-Infinity", "9007199254740993", "0.30000000000000004", "1.7976931348623157e308", "12345678901234567890.0"]
TEXTS = ["", "Paris", "東京", "naïve café", "\"quoted\"", "back\\slash", "two\nlines\ttab", "\x01\x1f\x7f\b\f\r", "<b>&'</b>",
         "🙂", "\u2028line", " blanks ", "{\"a\": 1}", "</tool_call>", "<|im_end|>"]
NAMES = ["get_weather", "add", "find", "日付"]
START, END = "\ue000", "\ue001"


def spelled(text):
    return "@@" + text + "@@"


def value(draw, depth=0):
    kind = draw.randrange(9 if depth < 3 else 6)
    if kind < 3:
        return draw.choice(TEXTS)
    if kind < 5:
        return spelled(draw.choice(NUMBERS))
    if kind == 5:
        return draw.choice([True, False, None])
    if kind == 6:
        return [value(draw, depth + 1) for _ in range(draw.randrange(4))]
    return {draw.choice(TEXTS + ["b", "a", "Z"]): value(draw, depth + 1) for _ in range(draw.randrange(4))}


def tool(draw):
    name = draw.choice(NAMES)
    function = {"name": name, "description": draw.choice(TEXTS),
                "parameters": {"type": "object", "properties": {"x": {"type": "number", "minimum": spelled(draw.choice(NUMBERS))},
                                                                "any": value(draw)},
                               "required": draw.choice([[], ["x"]])}}
    return draw.choice([{"type": "function", "function": function}, function, {"type": "function", "function": {"name": name}}, {}])


def call(draw, name):
    arguments = draw.choice([{}, {"x": spelled(draw.choice(NUMBERS))}, value(draw), {"a": value(draw), "b": value(draw)},
                             "{\"city\": \"Paris\", \"days\": 3}"])
    made = {"name": draw.choice(NAMES), "arguments": arguments}
    if name == "qwen2.5" and draw.random() < 0.2:
        return made
    return draw.choice([{"type": "function", "function": made}, {"function": made}, {"id": "c1", "type": "function", "function": made}])


def content(draw):
    return draw.choice(TEXTS[1:]) + draw.choice(["", "\n", " ", "?"])


def conversation(draw, name, index):
    llama = name == "llama3.1"
    messages = [{"role": "system", "content": content(draw)}] if draw.random() < 0.5 else []
    for _ in range(draw.randint(1, 3)):
        messages.append({"role": "user", "content": content(draw)})
        if draw.random() < 0.7:
            count = 1 if llama else draw.randint(1, 3)
            called = {"role": "assistant", "tool_calls": [call(draw, name) for _ in range(count)]}
            called.update(draw.choice([{}, {"content": None}, {"content": ""}, {"content": content(draw)}]))
            messages.append(called)
            for at in range(count if draw.random() < 0.9 else 0):
                result = content(draw)
                if llama and draw.random() < 0.3:
                    result = draw.choice([{"t": spelled("21.50"), "a": []}, [value(draw)]])
                role = "ipython" if llama and draw.random() < 0.3 else "tool"
                messages.append({"role": role, "content": result, "tool_call_id": f"c{at}", "name": "find"})
        messages.append({"role": "assistant", "content": content(draw)})
        if draw.random() < 0.2:
            messages[-1]["train"] = draw.random() < 0.5
    if index % 8 == 7 and messages[-2]["role"] in ("tool", "ipython"):
        messages.pop()
    row = {"tools": [tool(draw) for _ in range(draw.randint(1, 3))], "messages": messages}
    if index % 12 == 5:
        row["tools"] = []
    elif index % 12 == 6:
        del row["tools"]
    elif index % 12 == 8:
        row["tools"] = None
    if llama and index % 6 == 4:
        row["chat_template_kwargs"] = {"tools_in_user_message": index % 12 == 4}
    return row


def replaced(text, old, new, count=1):
    assert text.count(old) >= 1, old
    return text.replace(old, new, count)


def marked(name, template):
    """The published program with a character at both ends of what the loss counts."""
    counts = "(message.train if message.train is defined else message.role == 'assistant')"
    start, end = f"('{START}' if {counts} else '')", f"('{END}' if {counts} else '')"
    if name == "qwen2.5":
        template = replaced(template, "message.role + '\\n' + message.content + '<|im_end|>'",
                            f"message.role + {start} + '\\n' + message.content + '<|im_end|>' + {end}")
        template = replaced(template, "{{- '<|im_start|>' + message.role }}", "{{- '<|im_start|>' + message.role + '" + START + "' }}")
        head, tail = template.split("</tool_call>' }}")
        return head + "</tool_call>' }}" + replaced(tail, "'<|im_end|>\\n'", f"'<|im_end|>{END}\\n'")
    template = replaced(template, "'<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>'",
                        f"'<|end_header_id|>\\n\\n' + {start} + message['content'] | trim + '<|eot_id|>' + {end}")
    template = replaced(template, "'{\"name\": \"' + tool_call.name", f"'{START}{{\"name\": \"' + tool_call.name")
    head, tail = template.split("{{- \"<|eom_id|>\" }}")
    return head + "{{- \"<|eom_id|>\" }}" + replaced(tail, "\"<|eot_id|>\"", f"\"<|eot_id|>{END}\"")


def spans_of(name, text):
    """Of the text without the two characters.  Qwen's program writes the newline behind the role in several places."""
    spans, clean = [], ""
    for part in re.split(f"([{START}{END}])", text):
        if part == START:
            spans.append([len(clean) + (name == "qwen2.5"), None])
        elif part == END:
            spans[-1][1] = len(clean)
        else:
            clean += part
    return spans, clean


def expected(name, template, row, made):
    settings = row.get("chat_template_kwargs", {})
    tools, messages = row.get("tools"), row["messages"]
    text = made.apply_chat_template(messages, tools=tools, chat_template=template, tokenize=False, **settings)
    spans, again = spans_of(name, made.apply_chat_template(messages, tools=tools, chat_template=marked(name, template),
                                                           tokenize=False, **settings))
    assert again == text, (again, text)
    both = made(text, add_special_tokens=False, return_offsets_mapping=True)
    ids = made.apply_chat_template(messages, tools=tools, chat_template=template, return_dict=True, **settings)["input_ids"]
    assert both["input_ids"] == ids
    mask = "".join("1" if any(e > begin and s < end for begin, end in spans) else "0" for s, e in both["offset_mapping"])
    return {"text": text, "mask": mask, "tokens": ids}


def main(templates, folder):
    made = PreTrainedTokenizerFast(tokenizer_file=os.path.join(folder, "tokenizer.json"), bos_token="<|begin_of_text|>",
                                   eos_token="<|endoftext|>")
    for name in ("qwen2.5", "llama3.1"):
        template = open(os.path.join(templates, name + ".jinja"), encoding="utf-8").read()
        draw = random.Random(11)
        with open(os.path.join(folder, f"tools.{name}.jsonl"), "w", encoding="utf-8") as file:
            for index in range(COUNT):
                row = json.dumps(conversation(draw, name, index), ensure_ascii=False)
                row = re.sub(r'"@@(.*?)@@"', r"\1", row)
                line = {"row": row, **expected(name, template, json.loads(row), made)}
                if index >= WITH_TOKENS:
                    del line["tokens"]
                file.write(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
