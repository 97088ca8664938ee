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
train 0 x.jsonl reference
for file in x.json x.csv x.ndjson x.jsonl.gz x.csv.gz; do
    train 0 "$file" "$file"
    same <(record run-reference | sed 's/run-[a-z.]*//') <(record "run-$file" | sed 's/run-[a-z.]*//')
done
train 0 unnamed unnamed tasks.0.format=csv
same <(losses run-reference) <(losses run-unnamed)
# Never as raw text.
printf 'PAR1\025\000\025\000PAR1' >x.parquet
cp x.parquet renamed.txt
head -c 100 x.jsonl.gz >cut.jsonl.gz
for file in x.parquet renamed.txt cut.jsonl.gz; do
    train 1 "$file" refused
    says err "$file"
done
says err "is cut off"
cp x.jsonl wrong.json
train 1 wrong.json refused
says err "wrong.json:1: a .json file must be a list of documents"
says err "set the task's format: jsonl"
train 0 wrong.json jsonl tasks.0.format=jsonl
train 2 x.json refused tasks.0.format=xml
says err "tasks.0.format"
[ -d run-refused ] && fail "a refused run left a folder"
finish
