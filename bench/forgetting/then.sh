#!/bin/bash
# SPDX-License-Identifier: MIT
# then.sh FOLDER: what the model of pretrained.sh learns next, as configurations FOLDER/then/NAME.yaml and their data.
#
#     domain         code in a language that it has not seen (Tcl)
#     language       the manual pages in German
#     conversations  questions about words, and WordNet's answers
#     hundred        a hundred modules of Perl, 24 kB each, one after another
#
# Text that the model knows stands first in each (tasks.N.known); what is lost of it is measured on text that it never saw.
# Every configuration trains the whole model; adapter.kind=lora, adapter.base=nf4 and strategies are the command line's:
#
#     build/trainer compare --config FOLDER/then/domain.yaml --front --strategies none,none:adapter.kind=lora,merge
set -euo pipefail
[ $# -gt 0 ] && [ -s "$1/heldout.txt" ] || { sed -n '3,14s/^# \?//p' "$0" >&2; exit 2; }
out=$(realpath "$1")
source "$(dirname "$0")/packages.sh"
mkdir -p "$out/then/hundred"

# A fiftieth of each text that it was trained on.
if [ ! -s "$out/then/known.txt" ]; then
    for file in "$out"/text/*.txt; do
        head -c $(($(stat -c %s "$file") / 50)) "$file" | iconv -c -f UTF-8 -t UTF-8 2>/dev/null || true
    done >"$out/then/known.txt"
fi
# data FILE PACKAGE PATTERN
data() {
    [ -s "$out/then/$1" ] && return
    fetch "$2"
    text "$2" "$3" 1600000 >"$out/then/$1"
}
data domain.txt tcllib '*.tcl'
data language.txt manpages-de '*.gz'
fetch wordnet-base
[ -s "$out/then/conversations.jsonl" ] || python3 - "$out/packages/wordnet-base" >"$out/then/conversations.jsonl" <<'PY'
import glob, hashlib, json, os, sys
rows = []
for path in glob.glob(os.path.join(sys.argv[1], "**", "data.*"), recursive=True):
    for line in open(path, encoding="utf-8"):
        if line.startswith(" ") or "|" not in line:
            continue
        fields, gloss = line.split("|", 1)
        word = fields.split()[4].replace("_", " ").split("(")[0]
        meaning, *examples = [part.strip() for part in gloss.split('; "')]
        kind = {"n": "noun", "v": "verb", "a": "adjective", "s": "adjective", "r": "adverb"}[fields.split()[2]]
        messages = [{"role": "user", "content": f"What does the {kind} '{word}' mean?"},
                    {"role": "assistant", "content": f"It means: {meaning}."}]
        if examples:
            messages += [{"role": "user", "content": "Use it in a sentence."},
                         {"role": "assistant", "content": examples[0].strip('" ')}]
        rows.append(json.dumps({"messages": messages}))
rows.sort(key=lambda row: hashlib.md5(row.encode()).hexdigest())
print("\n".join(rows[:8000]))
PY
if [ ! -s "$out/then/hundred/99.txt" ]; then
    fetch perl-modules-5.36
    number=0
    while read -r file && [ $number -lt 100 ]; do
        path=$out/packages/perl-modules-5.36/$file
        [ "$(stat -c %s "$path")" -ge 24000 ] || continue
        head -c 24000 "$path" | iconv -c -f UTF-8 -t UTF-8 2>/dev/null >"$out/then/hundred/$(printf %02d $number).txt" || true
        number=$((number + 1))
    done < <(files perl-modules-5.36 '*.pm' 2>/dev/null)
fi

# configuration NAME STEPS [MATRIX]: what all have; the tasks behind the known one come from the standard input
configuration() {
    cat <<YAML
out_dir: $out/then/runs/$1
init_from: $out/model
tasks:
  - {name: known, train: $out/then/known.txt, validation: $out/heldout.txt, known: true}
$(cat)
data: {sampling: random}
batch_size: 8
max_length: 256
max_steps: $2
learning_rate: 5e-4
weight_decay: 0.01
schedule: {kind: cosine, warmup_steps: 20, min_learning_rate: 5e-5}
precision: {mode: bf16}
replay: {buffer_size: 800}
checkpoint_freq: 0
evaluation: {every: 0, batches: 24, items: 0, show: 0, matrix: ${3:-all}}
logging: {every: 50, tensorboard: false}
YAML
}

configuration domain 300 >"$out/then/domain.yaml" <<YAML
  - {name: tcl, train: $out/then/domain.txt, validation: 10%}
YAML
configuration language 300 >"$out/then/language.yaml" <<YAML
  - {name: german, train: $out/then/language.txt, validation: 10%}
YAML
configuration conversations 300 >"$out/then/conversations.yaml" <<YAML
  - {name: words, train: $out/then/conversations.jsonl, validation: 10%}
tokenizer: {chat_template: alpaca}
YAML
for number in $(seq -w 0 99); do
    echo "  - {name: module-$number, train: $out/then/hundred/$number.txt, validation: 10%}"
done | configuration hundred 10 own >"$out/then/hundred.yaml"
