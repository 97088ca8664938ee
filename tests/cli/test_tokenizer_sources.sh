#!/bin/bash
# SPDX-License-Identifier: MIT
# `tokenizer train` reads what training reads: the same documents in any format give the same tokenizer.
. "$(dirname "$0")/lib.sh"
learn() {
    expect "$1" "$trainer" tokenizer train --vocabulary 300 --output "$2.json" "${@:3}"
}
mkdir -p plain lines mixed/deep
for i in $(seq 40); do
    printf 'number %s is a "number", and so on' "$i" >plain/$((100 + i)).txt
    printf '{"id": %s, "text": "number %s is a \\"number\\", and so on"}\n' "$i" "$i" >>lines/x.jsonl
done
(echo '['; sed '$!s/$/,/' lines/x.jsonl; echo ']') >x.json
(echo 'id,text'; sed 's/.*"text": "\(.*\)"}/1,"\1"/; s/\\"/""/g' lines/x.jsonl) >x.csv
head -n 20 lines/x.jsonl | gzip >mixed/a.jsonl.gz
(echo body; tail -n +22 x.csv | cut -d, -f2-) | sed 's/body/text/' >mixed/deep/b.csv
learn 0 reference plain
[ "$(grep -c number reference.json)" -ge 1 ] || fail "nothing was learned"
learn 0 folder lines
learn 0 glob 'lines/*.jsonl'
learn 0 json x.json
learn 0 csv x.csv
learn 0 mixed mixed
for other in folder glob json csv mixed; do same reference.json $other.json; done
# What another program left there is left out by name or path.
mkdir -p left/node_modules/deep
cp plain/* left && printf 'caf\351' >left/latin.txt && printf 'x' >left/node_modules/deep/y.txt && printf 'GIF89a' >left/a.gif
learn 1 refused left
says err "leave it out (tasks.N.exclude)"
learn 0 left --exclude '*.gif' --exclude left/latin.txt --exclude node_modules left
same reference.json left.json
learn 0 left 'left/**/*.txt' --exclude '../*/left/l*.txt' --exclude './left/node_modules'
same reference.json left.json
expect 0 "$trainer" tokenizer count --tokenizer reference.json --exclude '*' --exclude 'left/*' plain/101.txt
# A name with signs of a pattern stands for itself alone.
mv left/latin.txt 'left/latin[1].txt' && cp plain/101.txt left/latin1.txt
learn 0 left --exclude '*.gif' --exclude 'left/latin[1].txt' --exclude node_modules left
learn 0 twice plain left/latin1.txt
same twice.json left.json
# Fields and formats have names here too.
sed 's/"text"/"body"/' lines/x.jsonl >body.txt
learn 0 body --format jsonl --text-field body body.txt
same reference.json body.json
sed 's/"text": "\(number\) /"prompt": "\1", "completion": " /' lines/x.jsonl >pairs.jsonl
learn 0 pairs pairs.jsonl
same reference.json pairs.json
sed 's/"prompt"/"q"/; s/"completion"/"a"/' pairs.jsonl >questions.jsonl
learn 0 questions --prompt-field q --completion-field a questions.jsonl
same reference.json questions.json
# What training refuses is refused.
printf 'PAR1\025\000PAR1' >x.parquet
learn 1 refused x.parquet
says err "x.parquet: begins as a Parquet file"
printf 'caf\351' >latin.txt
learn 1 refused latin.txt
says err "latin.txt: byte 3 (0xE9) is not UTF-8"
learn 2 refused --format xml x.json
says err "tasks.0.format"
printf 'ab' >x.bin
learn 2 refused x.bin
says err "token files (.bin) hold no text"
learn 1 refused none.txt
says err "none.txt"
[ -f refused.json ] && fail "a refused call wrote a tokenizer"
finish
