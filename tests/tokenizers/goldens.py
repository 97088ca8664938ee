# SPDX-License-Identifier: MIT
"""goldens.py FOLDER: small tokenizer.json files and what the `tokenizers` library makes of texts, for tests/unit."""
import json
import pathlib
import sys

import kinds

SAMPLE = ["The quick brown fox isn't lazy; it jumps over 12345 dogs.\n  Caf\u00e9 na\u00efve r\u00e9sum\u00e9 \u65e5\u672c\u8a9e "
          "na na na the the there other mother"]
TEXTS = [
    "", " ", "a", " a", "the mother  isn't there", "\u2581the", "\n\n the\t", "12345 1234567 x1y",
    "cafe\u0301 \u212b \ufb01 \u0301\u0323a", "\u65e5\u672c\u8a9e \U0001f600\U0001f468\u200d\U0001f469 \U00031350",
    "<s>the</s> a<s> <s>", " <x>  Word. word <x>Word caf\u00e9 e\u0301<x>", "THE Mother\u0130", "...,;!? (the)",
    "\u0897\U00010d50\U00011f04 \u2028\u180e", "don't DON'T '\u017f", "the <0x0A>\r\n\r\nend   ",
]


def compact(tokenizer):
    return json.dumps(json.loads(tokenizer.to_str()), ensure_ascii=True, separators=(",", ":"))


def chosen():
    stages = dict(kinds.stages(SAMPLE))
    pieces = kinds.sentence_pieces(SAMPLE)
    everything = dict(kinds.build(SAMPLE))
    names = ["llama3", "qwen2", "pythia", "added", "split-merged_with_next-True", "split-contiguous-False", "sequence",
             "punctuation-merged_with_previous", "whitespace"]
    return {**{name: pieces[name] for name in ("llama2", "mistral", "gemma", "always", "never")},
            **{name: everything.get(name) or stages[name] for name in names}}


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(exist_ok=True)
    with open(folder / "golden.jsonl", "w", encoding="ascii") as golden:
        for name, tokenizer in chosen().items():
            (folder / f"{name}.json").write_text(compact(tokenizer) + "\n", encoding="ascii")
            for text in TEXTS:
                ids = tokenizer.encode(text, add_special_tokens=False).ids
                line = {"tokenizer": name, "text": text, "tokens": ids, "decoded": tokenizer.decode(ids, skip_special_tokens=False)}
                golden.write(json.dumps(line, ensure_ascii=True) + "\n")


main()
