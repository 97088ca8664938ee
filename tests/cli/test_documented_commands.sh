#!/bin/bash
# SPDX-License-Identifier: MIT
# Every command that README.md, configs/*.yaml, examples/*.c, examples/strategies.md and four pages of examples/howto show in
# a line of its own runs, in the order of the page;
# shortened by keys for a small model and two steps, by another device, or to one operation.  Files that a command needs
# are made first.  Not run: `make demo` and `make test`, which install packages; examples/lessons has its own test.
. "$(dirname "$0")/lib.sh"
ln -s "$root/configs" configs
ln -s "$(dirname "$trainer")" build
mkdir models
cp -r "$root/tests/huggingface/models/gpt2" models/base
mkdir -p data/first data/second data/third data/gpt2 WHERE_YOU_HAVE_IT
for i in $(seq 400); do
    echo "line $i of a text with some words, and more of them"
done | tee WHERE_YOU_HAVE_IT/input.txt data/mine.txt data/first/a.txt data/second/b.md | sed 's/.*/{"text": "&"}/' | gzip >data/third/c.jsonl.gz
cp "$root/tests/chat/conversations.jsonl" data/talks.jsonl
"$trainer" tokenizer train --vocabulary 300 --output data/gpt2/tokenizer.json data/first 2>/dev/null >/dev/null || fail "no tokenizer"

small="model.layers=1 model.heads=2 model.width=32 batch_size=4 max_length=32"
quick="$small max_steps=2 checkpoint_freq=0 evaluation.every=0 evaluation.batches=1 evaluation.sample_tokens=4 ewc.fisher_samples=4"

# keys FILE: what makes a run with this configuration short.
keys() {
    local task tasks
    tasks=$(grep -cE '^  - [{]?name:' "$1")
    # A model that exists has its own shape.
    if grep -q '^init_from:' "$1"; then
        printf '%s ' "$(sed -E 's/model\.[a-z]+=[0-9]+//g' <<<"$quick")"
    else
        printf '%s ' "$quick"
    fi
    for ((task = 0; task < tasks; task++)); do
        printf 'tasks.%s.%s ' "$task" tokens=0 "$task" steps=2 "$task" synthetic_tokens=20000
    done
}

# shorten COMMAND: the same with less to do; what the page says comes later, and wins.
shorten() {
    local config
    config=$(grep -oE 'configs/[a-z0-9-]+\.yaml' <<<"$1")
    case $1 in
    "build/trainer plan "* | *" --print-config"*) echo "$1" ;;
    *"selftest --tune "*) echo "${1/ --tune/ --device emu --tune}" | sed "s|$config|& $small model.vocabulary=300|" ;;
    *"selftest --device cpu"*) echo "${1/--device cpu/--device cpu --op $operation}" ;;
    *" --config "*) echo "$1" | sed -E "s|$config|& $(keys "$config")|; s/--steps [0-9]+/--steps 2/; s/--seeds [0-9]+/--seeds 1/" ;;
    *) echo "$1" ;;
    esac
}

operation=convert # the whole takes a minute
count=0
# run FILE PATTERN: its commands are the lines that the pattern takes its prefix off.
run() {
    local line
    while IFS= read -r line; do
        case $line in make\ *) continue ;; esac
        count=$((count + 1))
        expect 0 bash -c "$(shorten "$line")"
    done < <(sed -nE "s@^$2((build/|mkdir |make ).*)@\1@p" "$root/$1")
}
run README.md '    '
for config in configs/*.yaml; do run "$config" '#     '; done
for example in "$root"/examples/*.c; do run "examples/$(basename "$example")" ' \*     '; done
run examples/strategies.md '    '
run examples/howto/more-tasks.md '    '
run examples/howto/conversations.md '    '
run examples/howto/memory.md '    '
# The page's own model needs transformers; where it is missing, one that it made stands for it.
python3 "$root/examples/howto/pretrained.py" make models/story >out 2>err || cp -r "$root/tests/huggingface/models/llama" models/story
run examples/howto/pretrained.md '    '
python3 "$root/examples/howto/pretrained.py" check models/story models/story-adapter models/story-merged runs/story >out 2>err
code=$?
[ $code = 0 ] || [ $code = 77 ] || fail "examples/howto/pretrained.py: $(tail -n 2 err)"
says runs/cl/metrics.jsonl '"keys":"tasks: mine appended"'
[ "$count" -ge 34 ] || fail "only $count commands were found"
[ -f runs/cl/report.html ] || fail "no report"
[ -f runs/bpe/checkpoints/latest ] || fail "no run with a tokenizer of its own"
finish
