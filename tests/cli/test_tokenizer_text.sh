#!/bin/bash
# SPDX-License-Identifier: MIT
# tokenizer encode, decode and count: round trips, token files that train as their text does, places in errors.
. "$(dirname "$0")/lib.sh"
mkdir docs
for i in $(seq 300); do
    printf 'Line %s: the café serves tea, 茶, and "cake" at 7:30;\ttabs  and   blanks.\r\n' "$i"
done >docs/a.txt
printf 'no line end at its end, <|endoftext|> inside' >docs/b.txt
sed 's/\r$//; s/["\\]/\\&/g; s/\t/\\t/g; s/.*/{"text": "&"}/' docs/a.txt >lines.jsonl
expect 0 "$trainer" tokenizer train --vocabulary 400 --output bpe.json docs/a.txt
echo '{"halfstep_tokenizer": 1, "kind": "byte"}' >byte.json
for i in $(seq 2000); do # any bytes but zero are text to the byte tokenizer
    printf "\\$(printf %03o $(((i * i + 91) * 37 % 255 + 1)))"
done >noise.bytes

# There and back: files, the standard input, gzip, any bytes; a token file too.
for pair in "bpe.json docs/a.txt" "bpe.json docs/b.txt" "byte.json docs/a.txt" "byte.json noise.bytes"; do
    read -r tokenizer file <<<"$pair"
    expect 0 "$trainer" tokenizer encode --tokenizer "$tokenizer" "$file"
    cp out ids
    [ "$(wc -l <ids)" = 1 ] || fail "$file: a text is one document, so one line"
    grep -qvE '^[0-9]+( [0-9]+)*$' ids && fail "$file: not numbers with blanks between"
    expect 0 "$trainer" tokenizer decode --tokenizer "$tokenizer" ids
    same "$file" out
    expect 0 "$trainer" tokenizer encode --tokenizer "$tokenizer" - <"$file"
    same ids out
    gzip -c "$file" >zipped.txt.gz
    expect 0 "$trainer" tokenizer encode --tokenizer "$tokenizer" zipped.txt.gz
    same ids out
    expect 0 "$trainer" tokenizer decode --tokenizer "$tokenizer" - <ids
    same "$file" out
    expect 0 "$trainer" tokenizer encode --tokenizer "$tokenizer" --output there.bin "$file"
    expect 0 "$trainer" tokenizer decode --tokenizer "$tokenizer" there.bin
    same "$file" out
done
# Bytes are their own numbers: an oracle without a tokenizer.
expect 0 "$trainer" tokenizer encode --tokenizer byte.json noise.bytes
echo $(od -An -v -tu1 noise.bytes) >expected
same expected out

# Documents: a line each, and end-of-text between them in a token file.
expect 0 "$trainer" tokenizer encode --tokenizer bpe.json lines.jsonl
[ "$(wc -l <out)" = 300 ] || fail "300 documents expected, $(wc -l <out) lines"
expect 0 "$trainer" tokenizer encode --tokenizer byte.json --output lines.bin lines.jsonl
says out "300 documents"
expect 0 "$trainer" tokenizer decode --tokenizer byte.json lines.bin
sed 's/\r$//' docs/a.txt | awk 'NR > 1 { printf "<|endoftext|>" } { printf "%s", $0 }' >expected
same expected out
expect 0 "$trainer" tokenizer decode --tokenizer byte.json --skip-end-of-text lines.bin
sed 's/\r$//' docs/a.txt | tr -d '\n' >expected
same expected out
[ "$(od -An -tu4 -N12 lines.bin | xargs)" = "20240520 1 $((($(stat -c %s lines.bin) - 1024) / 2))" ] || fail "the header is not llm.c's"

# count against encode, and against wc.
tokens=$("$trainer" tokenizer encode --tokenizer bpe.json docs | wc -w)
bytes=$(cat docs/*.txt | wc -c)
expect 0 "$trainer" tokenizer count --tokenizer bpe.json docs
says out "documents        2"
says out "bytes            $bytes"
says out "tokens           $tokens ($((tokens + 2)) with end-of-text)"
expect 0 "$trainer" tokenizer count --tokenizer bpe.json --json docs
[ "$(cat out)" = "$(awk -v b="$bytes" -v t="$tokens" -v v="$(grep -o '"vocabulary":[0-9]*' out | cut -d: -f2)" -v r="$(grep -o '"bytes_per_token":[0-9.]*' out | cut -d: -f2)" 'BEGIN {
    if (r < b / t * (1 - 1e-9) || r > b / t * (1 + 1e-9)) exit 1
    printf "{\"documents\":2,\"bytes\":%d,\"tokens\":%d,\"tokens_with_end_of_text\":%d,\"bytes_per_token\":%s,\"vocabulary\":%d}", b, t, t + 2, r, v }')" ] || fail "count --json: $(cat out)"
expect 0 "$trainer" tokenizer encode --tokenizer bpe.json --output docs.bin docs
expect 0 "$trainer" tokenizer count --tokenizer bpe.json docs.bin
says out "tokens           $((tokens + 2)) "

# A token file trains as its text does, to the last digit; with a configuration's tokenizer and fields.
cat >train.yaml <<'YAML'
batch_size: 2
max_length: 16
max_steps: 4
model: {layers: 1, heads: 2, width: 16}
tokenizer: {kind: bpe, path: bpe.json}
tasks: [{name: t, train: lines.jsonl}]
evaluation: {every: 2, batches: 2}
logging: {every: 1}
YAML
for source in docs lines.jsonl; do
    expect 0 "$trainer" --config train.yaml "tasks.0.train=$source" out_dir=text-run
    expect 0 "$trainer" tokenizer encode --config train.yaml --output packed.bin $source
    expect 0 "$trainer" --config train.yaml tasks.0.train=packed.bin out_dir=bin-run
    [ "$(losses text-run | wc -l)" -ge 6 ] || fail "too few losses"
    losses text-run >text.losses
    losses bin-run >bin.losses
    same text.losses bin.losses
    rm -rf text-run bin-run
done
# Kind char is made from the configuration's text; words with = change the configuration.
expect 0 "$trainer" tokenizer encode --config train.yaml tokenizer.kind=char tokenizer.path= tasks.0.train=docs/a.txt docs/a.txt
cp out ids
expect 0 "$trainer" tokenizer decode --config train.yaml tokenizer.kind=char tokenizer.path= tasks.0.train=docs/a.txt ids
same docs/a.txt out
# Llama 2 puts a space before a text, which is none of it: each document begins anew.
llama=$root/tests/unit/tokenizer/golden/llama2.json
printf ' two\nlines' >one.txt
printf 'h\303\251 \360\237\231\202' >two.txt
for output in "" "--output two.bin"; do
    expect 0 "$trainer" tokenizer encode --tokenizer "$llama" $output one.txt two.txt
    cp out ids
    expect 0 "$trainer" tokenizer decode --tokenizer "$llama" --skip-end "$([ -n "$output" ] && echo two.bin || echo ids)"
    cat one.txt two.txt | cmp - out || fail "Llama 2: $(cat out)"
done
# A vocabulary above 65536 is written as u32.
python3 - <<'PY' 2>/dev/null && wide=1
import json
json.dump({"halfstep_tokenizer": 1, "kind": "char", "characters": list(range(32, 0xD800)) + list(range(0xE000, 0x14000))}, open("wide.json", "w"))
PY
if [ -n "${wide:-}" ]; then
    printf 'a\360\223\217\277b' >wide.txt # U+133FF, above 65536 characters
    expect 0 "$trainer" tokenizer encode --tokenizer wide.json --output wide.bin wide.txt
    [ "$(od -An -tu4 -N12 wide.bin | xargs)" = "20240801 7 3" ] || fail "a wide header is $(od -An -tu4 -N12 wide.bin)"
    expect 0 "$trainer" tokenizer decode --tokenizer wide.json wide.bin
    same wide.txt out
fi

# One text, token by token.
expect 0 "$trainer" tokenizer encode --tokenizer byte.json --text 'ab'
[ "$(cat out)" = "$(printf '97\ta\n98\tb')" ] || fail "--text: $(cat out)"

# What is wrong, and where.
printf '12 7\n3 x4' >bad.ids
expect 1 "$trainer" tokenizer decode --tokenizer byte.json bad.ids
says err 'bad.ids:2:3: `x` is not part of a token number'
printf '12 7\n3 257\n' >bad.ids
expect 1 "$trainer" tokenizer decode --tokenizer byte.json - <bad.ids
says err 'the standard input:2:3: token 257 is not below the tokenizer'
echo 99999999999999999999 >bad.ids
expect 1 "$trainer" tokenizer decode --tokenizer byte.json bad.ids
printf 'caf\351' >latin.txt
expect 1 "$trainer" tokenizer encode --tokenizer bpe.json latin.txt
says err "latin.txt: byte 3 (0xE9) is not UTF-8"
expect 1 "$trainer" tokenizer encode --tokenizer bpe.json --output new.bin docs latin.txt
[ -z "$(ls new.bin* 2>/dev/null)" ] || fail "a refused call wrote $(ls new.bin*)"
(cat lines.jsonl; echo '{"body": 1}') >broken.jsonl
expect 1 "$trainer" tokenizer count --tokenizer bpe.json broken.jsonl
says err "broken.jsonl:301: has neither"
expect 1 "$trainer" tokenizer count --tokenizer bpe.json --format jsonl - <broken.jsonl
says err "the standard input:301: has neither"
expect 2 "$trainer" tokenizer encode --tokenizer bpe.json docs.bin
says err "docs.bin: token files (.bin) hold no text"
# A byte order mark before the numbers, as some shells write it.
printf '104 105\n' >numbers.txt
printf '\xef\xbb\xbf104 105\n' >marked.txt
expect 0 "$trainer" tokenizer decode --tokenizer bpe.json numbers.txt
cp out decoded
expect 0 "$trainer" tokenizer decode --tokenizer bpe.json marked.txt
same out decoded
mkdir mixed
cp docs/a.txt mixed
expect 0 "$trainer" tokenizer encode --tokenizer bpe.json --output mixed/out.bin mixed
expect 2 "$trainer" tokenizer encode --tokenizer bpe.json --output mixed/out.bin mixed
says err "mixed/out.bin is one of the sources (mixed/out.bin), and would be replaced: write to another file"
expect 2 "$trainer" tokenizer encode --tokenizer bpe.json --output new.txt docs
says err "must end in .bin"
expect 2 "$trainer" tokenizer encode --tokenizer bpe.json --output nowhere/new.bin docs
says err "nowhere/new.bin: the folder nowhere is not there"
expect 2 "$trainer" tokenizer encode docs
says err "--tokenizer FILE and --config FILE"
expect 2 "$trainer" tokenizer count --tokenizer bpe.json
says err "name at least one file"
expect 2 "$trainer" tokenizer decode --tokenizer bpe.json --json ids
says err "tokenizer decode takes no --json"
expect 2 "$trainer" tokenizer decod ids
says err "did you mean decode?"
expect 2 "$trainer" tokenizer count --tokenzier bpe.json docs
says err "did you mean --tokenizer?"
expect 2 "$trainer" generate --checkpoint run --sampels 3
says err "did you mean --samples?"
if [ -w /dev/full ]; then
    "$trainer" tokenizer encode --tokenizer byte.json docs >/dev/full 2>err && fail "a full output was not noticed"
    says err "cannot be written"
fi
sed 's/"text": "\(Line [0-9]*\)/"prompt": "\1", "completion": "/' lines.jsonl >pairs.jsonl
expect 0 "$trainer" tokenizer encode --tokenizer bpe.json --output pairs.bin pairs.jsonl
says err "300 documents have a prompt"
finish
