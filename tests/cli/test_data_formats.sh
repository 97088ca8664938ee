#!/bin/bash
# SPDX-License-Identifier: MIT
# The same documents in every format train the same; what is no text is refused, and nothing is left behind.
. "$(dirname "$0")/lib.sh"
tiny_config
train() {
    expect "$1" "$trainer" --config tiny.yaml max_steps=2 evaluation.every=0 "tasks.0.train=$2" out_dir="run-$3" "${@:4}"
}
for i in $(seq 60); do echo "{\"text\":\"line $i, and \\\"some\\\" more\\nof it\",\"id\":$i}"; done >x.jsonl
(echo '['; sed '$!s/$/,/' x.jsonl; echo ']') >x.json
(echo 'id,text'; for i in $(seq 60); do printf '%s,"line %s, and ""some"" more\nof it"\r\n' "$i" "$i"; done) >x.csv
cp x.jsonl x.ndjson
gzip -k x.jsonl x.csv
cp x.csv.gz unnamed
cp "$root"/tests/unit/source/parquet/lines-zstd.parquet x.parquet
gzip -k x.parquet
train 0 x.jsonl reference
for file in x.json x.csv x.ndjson x.jsonl.gz x.csv.gz x.parquet x.parquet.gz; do
    train 0 "$file" "$file"
    same <(record run-reference | sed 's/run-[a-z.]*//') <(record "run-$file" | sed 's/run-[a-z.]*//')
done
train 0 unnamed unnamed tasks.0.format=csv
same <(losses run-reference) <(losses run-unnamed)
# Never as raw text.
head -c 400 x.parquet >cut.parquet
cp x.parquet renamed.txt
head -c 100 x.jsonl.gz >cut.jsonl.gz
for file in cut.parquet renamed.txt cut.jsonl.gz; do
    train 1 "$file" refused
    says err "$file"
done
says err "is cut off"
train 0 renamed.txt renamed tasks.0.format=parquet
same <(losses run-reference) <(losses run-renamed)
cp x.jsonl wrong.json
train 1 wrong.json refused
says err "wrong.json:1: a .json file must be a list of documents"
says err "set the task's format: jsonl"
train 0 wrong.json jsonl tasks.0.format=jsonl
train 2 x.json refused tasks.0.format=xml
says err "tasks.0.format"

# Tabs for commas, by name and by format.
(printf 'id\ttext\n'; for i in $(seq 60); do printf '%s\t"line %s, and ""some"" more\nof it"\r\n' "$i" "$i"; done) >x.tsv
cp x.tsv x.tab
gzip -k x.tsv
for file in x.tsv x.tab x.tsv.gz; do
    train 0 "$file" "$file"
    same <(losses run-reference) <(losses "run-$file")
done
train 0 x.tsv commas tasks.0.format=tsv
train 1 x.csv refused tasks.0.format=tsv
says err "x.csv:1: the header is one field, which holds commas"

# A byte order mark in front of what is read, wherever it is read.
mark() { printf '\xef\xbb\xbf' | cat - "$1"; }
for file in x.jsonl x.json x.csv x.tsv; do
    mark "$file" >"marked-$file"
    train 0 "marked-$file" "marked-$file"
    same <(losses run-reference) <(losses "run-marked-$file")
done
printf 'some text to learn from, and some more text\n' >t.txt
mark t.txt >marked.txt
expect 0 "$trainer" tokenizer train --vocabulary 262 --output t.json t.txt
expect 0 "$trainer" tokenizer train --vocabulary 262 --output marked.json marked.txt
same t.json marked.json
mark tiny.yaml >marked.yaml
expect 0 "$trainer" --config marked.yaml max_steps=2 evaluation.every=0 tasks.0.train=x.jsonl out_dir=run-yaml
same <(losses run-reference) <(losses run-yaml)
sample=(generate --checkpoint run-reference --tokens 5 --temperature 0 --json --prompt-file)
printf 'line' >prompt.txt
expect 0 "$trainer" "${sample[@]}" prompt.txt
cp out sampled
mark prompt.txt >marked-prompt.txt
expect 0 "$trainer" "${sample[@]}" marked-prompt.txt
same out sampled
printf 'line' | iconv -f UTF-8 -t UTF-16 >wide.txt
expect 1 "$trainer" "${sample[@]}" wide.txt
says err "wide.txt: is UTF-16 text by its first bytes"
printf '{"context": "line", "endings": ["1", "2"], "label": 0, "score": NaN}\n' >choices.jsonl
expect 0 "$trainer" eval --checkpoint run-reference --choices choices.jsonl
cp out chosen
mark choices.jsonl >marked-choices.jsonl
expect 0 "$trainer" eval --checkpoint run-reference --choices marked-choices.jsonl
same out chosen
printf '{"context": "line",\n"endings": ["1", "2"], "label": 0}\n' >pretty.jsonl
expect 1 "$trainer" eval --checkpoint run-reference --choices pretty.jsonl
says err "pretty.jsonl:1: the object that begins here does not end on its line"

# What a checkout without the file has in its place.
printf 'version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 57176\n' >pointer
for name in p.txt p.json p.yaml p.bin; do cp pointer "$name"; done
train 1 p.txt refused
says err "p.txt: is a Git LFS pointer, which stands for a file that was not fetched: \`git lfs pull\`"
expect 1 "$trainer" tokenizer encode --tokenizer p.json t.txt
says err "p.json: is a Git LFS pointer"
expect 1 "$trainer" "${sample[@]}" p.txt
says err "p.txt: is a Git LFS pointer"
expect 1 "$trainer" tokenizer encode --tokenizer t.json - <pointer
says err "the standard input: is a Git LFS pointer"

# Validation within a folder of training: left out, or said; a run that began before keeps what it read.
mkdir -p folder/deep
sed -n '1,40p' x.jsonl >folder/a.jsonl
sed -n '41,60p' x.jsonl >folder/deep/v.jsonl
apart=(tasks.0.validation=folder/deep/v.jsonl)
train 0 folder/a.jsonl alone "${apart[@]}"
grep -q "of validation's" err && fail "validation is apart"
for source in folder 'folder/**/*.jsonl' 'folder/{a,deep/v}.jsonl'; do
    rm -rf run-apart
    train 0 "$source" apart "${apart[@]}"
    says err "warning: task t: folder/deep/v.jsonl: read for validation, and left out of training"
    same <(losses run-alone) <(losses run-apart)
done
cp folder/deep/v.jsonl copy.jsonl
train 0 '[folder/a.jsonl, copy.jsonl]' both "${apart[@]}"
says err "validation's 600 bytes, 20 of 20 documents, are in the training text as well"
train 0 '[folder/a.jsonl, folder/a.jsonl]' twice "${apart[@]}"
says err "train reads folder/a.jsonl twice"
# A run with its folder among its texts does not read itself, and can be continued.
expect 0 "$trainer" --config tiny.yaml max_steps=2 evaluation.every=0 tasks.0.train=folder out_dir=folder/run
expect 0 "$trainer" --config tiny.yaml max_steps=4 evaluation.every=0 tasks.0.train=folder out_dir=folder/run
says err "the run's own folder, $PWD/folder/run, lies among the texts, and is left out of them"
expect 0 "$trainer" eval --checkpoint folder/run
state=run-apart/checkpoints/$(cat run-apart/checkpoints/latest)
says "$state/trainer.json" '"validation_apart": true'
[ -d run-refused ] && fail "a refused run left a folder"
finish
