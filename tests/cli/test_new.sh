#!/bin/bash
# SPDX-License-Identifier: MIT
# trainer new: a configuration from texts and a time, which loads, runs by the second line that is printed, and replaces no
# file; and what it says of texts, times and places that cannot be.
. "$(dirname "$0")/lib.sh"

# prose BYTES: words that are not all alike.
prose() {
    awk -v bytes="$1" 'BEGIN { srand(7); while (n < bytes) { w = ""; k = 2 + int(rand() * 6)
        for (i = 0; i < k; i++) w = w sprintf("%c", 97 + int(26 * rand() * rand())); n += k + 1; printf "%s%s", w, rand() < 0.1 ? "\n" : " " } }'
}
prose 60000 >book.txt
mkdir -p code/inner mixed binary empty
prose 30000 >code/one.py
prose 30000 >code/inner/two.py
cp -r code/. mixed
printf '\0\1\2' >mixed/one.pyc
head -c 30000 /dev/zero >binary/one.dat
printf 'too short\n' >short.txt

# trains FILE: its values are those of a run, and each has a comment above it.
trains() {
    expect 0 "$trainer" --config "$1" --print-config
    awk '/^[ -]*[a-z_]+: [^ ]/ && !/- name:/ && before !~ /^ *#/ { print FILENAME ": no reason: " $0; bad = 1 }
         { before = $0 } END { exit bad }' "$1" || fail "$1 has values without a reason"
}

# What the text is worth ends before the time does.
expect 0 "$trainer" new --text code --hours 1 --output hour.yaml threads=1
says err "there is too little text for 1 hours: after 4 passes over it"
says hour.yaml "4.00 passes over it"

# From nothing, then the line that it prints, with one key changed.
expect 0 "$trainer" new --text code --hours 0.005 threads=1
[ "$(wc -l <out)" = 2 ] || fail "two lines were to be printed: $(cat out)"
says out "code.yaml: "
[ "$(tail -n 1 out)" = "$trainer --config code.yaml threads=1" ] || fail "not a command: $(tail -n 1 out)"
command=$(tail -n 1 out)
trains code.yaml
says code.yaml 'train: "code"'
says code.yaml "kind: muon"
cp code.yaml code.kept
expect 2 "$trainer" new --text code --hours 0.005
says err "code.yaml is there already"
same code.kept code.yaml
bash -c "$command tasks.0.tokens=20000 evaluation.every=0" >out 2>err || fail "the command failed: $(tail -n 1 err)"
[ -f runs/code/report.html ] || fail "no run"

# A name that is more than a word to a shell, in the line that is printed and in the one of the file's head.
expect 0 "$trainer" new --text code --hours 0.005 --output "it's an hour.yaml" threads=1
bash -c "$(tail -n 1 out) --print-config" >/dev/null || fail "not a command: $(tail -n 1 out)"
head_command=$(sed -n 's/^# trainer \(plan .*\)    shows its memory$/\1/p' "it's an hour.yaml")
bash -c "$trainer $head_command --no-training" >/dev/null || fail "not a command: $head_command"

# Files that are no text are left out, and no others; the run's folder is another one.
printf 'GIF89a\0' >mixed/odd.py
cp code/*.py mixed && printf 'caf\351' >mixed/latin.py
ln -s . mixed/again
# A folder without text, a link to nothing, records without documents, and some with.
mkdir -p mixed/blobs/deep && printf '\0' | tee mixed/blobs/a mixed/blobs/deep/b >/dev/null
ln -s nowhere mixed/lost
printf '{"name": "settings", "version": 1}\n' >mixed/package.json
printf '{"text": "%s"}\n' one two >mixed/lines.jsonl
expect 0 "$trainer" new --text mixed/ --hours 0.005 --output code2.yaml
says err "left out, as they hold no text or no documents: 3 of 3 without an end of their names, 1 .json, 1 of $(find mixed -name '*.py' | wc -l) .py, 1 .pyc, 1 not in UTF-8"
says code2.yaml 'train: "mixed/"'
same <(sed -n '/^    exclude:/,/^    #/p' code2.yaml) - <<'YAML'
    exclude:
      - "*.json"
      - "*.pyc"
      - "mixed/blobs"
      - "mixed/latin.py"
      - "mixed/lost"
      - "mixed/odd.py"
    # cut from the end; the share falls as the text grows
YAML
trains code2.yaml
expect 0 "$trainer" --config code2.yaml tasks.0.tokens=4000 evaluation.every=0 resume=never out_dir=runs/left
says err "1 symbolic link to a folder above is not followed"
says err "6 files or folders are left out, as \`exclude\` says"
expect 0 "$trainer" new --text ./code --out other.yaml --hours 0.005
says other.yaml 'out_dir: "runs/code-2"'

# Two texts: tasks in order, with replay.
expect 0 "$trainer" new --text code --text book.txt --hours 0.005 --output two.yaml
trains two.yaml
says two.yaml "strategy: er"
says two.yaml "docs/forgetting.md"
[ "$(grep -c '^  - name' two.yaml)" = 2 ] || fail "not two tasks"
grep -n '^    train' two.yaml | tr '\n' ' ' | grep -q 'code.*book.txt' || fail "the tasks are not in order"

# Weights that exist: all of the model, or what memory has room for.
model=$root/tests/huggingface/models/llama
expect 0 "$trainer" new --checkpoint "$model" --text book.txt --hours 0.005 --output tuned.yaml
trains tuned.yaml
says tuned.yaml "init_from: \"$model\""
says tuned.yaml "training all of the model takes"
says tuned.yaml "kind: none"
says tuned.yaml "Loss before training"
expect 1 "$trainer" new --checkpoint "$model" --text book.txt --hours 0.005 --output never.yaml memory.limit=1MiB target_gpu_util=0.01
says err "an adapter on four bits a weight takes"
says err "name a smaller model"

# refused TEXT ARGUMENTS...: nothing is written.
refused() {
    local text=$1
    shift
    expect 2 "$trainer" new --output never.yaml "$@"
    says err "$text"
    [ ! -e never.yaml ] && [ ! -e never.tokenizer.json ] || { fail "something was written: $*"; rm -f never.*; }
}
refused "--text PATH is missing" --hours 1
refused "--hours H is missing" --text code
for hours in 0 -1 1e9 nan soon; do refused "--hours must be a number from 0.005 to 8760 (got $hours)" --text code --hours=$hours; done
refused "--text nowhere: nothing is there: name a file or a folder" --text nowhere --hours 1
refused "--text empty: no files are in this folder" --text empty --hours 1
refused "--text binary: none of its files is text (1 .dat)" --text binary --hours 1
refused "--text short.txt: is too short" --text short.txt --hours 1
mkdir $'bad\nname'
refused "control characters, which a configuration cannot hold: rename it" --text $'bad\nname' --hours 1
refused "is neither a Hugging Face folder" --checkpoint empty --text code --hours 1
refused "--text code is given twice" --text code --text code --hours 1
refused "unknown key model.layer; did you mean model.layers?" --text code --hours 1 model.layer=3
expect 1 "$trainer" new --text binary/one.dat --hours 1 --output never.yaml
says err "binary/one.dat: byte 0: a zero byte"
[ ! -e never.yaml ] || fail "a file of zero bytes made a configuration"
expect 2 "$trainer" new --text code --hours 1 --output missing/x.yaml
says err "the folder missing is not there: make it first"

# train.size: by the same rules, each value with its reason, and said by a run.
expect 0 "$trainer" --print-config train.size=100k
says out "# by train.size 100k: of matrices, 1.7e-2"
expect 0 "$trainer" --config /dev/null train.size=30k tasks.0.train=book.txt max_steps=10 model.layers=1 out_dir=sized
says err "train.size 30k sets batch_size "
! grep -q 'sets.*model.layers' err || fail "a given key was filled in"
says err "all others: muon"
# A run that continues for longer keeps what it began with.
rate=$(grep '^learning_rate' sized/config.yaml)
expect 0 "$trainer" --config /dev/null train.size=30k tasks.0.train=book.txt max_steps=20 model.layers=1 out_dir=sized
says err "what train.size sets is as this run began"
[ "$rate" = "$(grep '^learning_rate' sized/config.yaml)" ] || fail "the rate is another one"
expect 2 "$trainer" --config /dev/null train.size=90k tasks.0.train=book.txt max_steps=20 model.layers=1 out_dir=sized
says err "train.size"
finish
