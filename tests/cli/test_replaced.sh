#!/bin/bash
# SPDX-License-Identifier: MIT
# A command that writes a named file or folder replaces nothing that it reads, and says so before it reads.
. "$(dirname "$0")/lib.sh"
tiny_config
texts() { printf '["the quick brown fox", "jumps over lazy dog", "the quick brown fox"]\n'; }
# kept CODE WORDS COMMAND...: refused with these words, and texts.json is what it was.
kept() {
    expect "$1" "$trainer" "${@:3}"
    says err "$2"
    same texts.json original
}
learn=(tokenizer train --vocabulary 270)
texts >texts.json
cp texts.json original
mkdir folder full
cp texts.json folder
ln -s texts.json link.json
ln texts.json hard.json
sources="is one of the sources (texts.json), and would be replaced: write to another file"
kept 2 "texts.json $sources" "${learn[@]}" --output texts.json texts.json
kept 2 "link.json $sources" "${learn[@]}" --output link.json texts.json
kept 2 "hard.json $sources" "${learn[@]}" --output hard.json texts.json
kept 2 "./folder/../texts.json $sources" "${learn[@]}" --output ./folder/../texts.json texts.json
for source in folder 'folder/*.json' '**/texts.json'; do
    kept 2 "folder/texts.json is one of the sources (folder/texts.json)" "${learn[@]}" --output folder/texts.json "$source"
done
same folder/texts.json original
# A file that is no tokenizer, which -o a*.json would name first; a tokenizer is replaced.
printf '["other texts"]' >other.json
kept 2 "texts.json exists, and is not a tokenizer.json" "${learn[@]}" --output texts.json other.json
expect 0 "$trainer" "${learn[@]}" --output made.json texts.json
expect 0 "$trainer" "${learn[@]}" --output made.json texts.json

# Before any source is read: this one cannot be.
printf '["broken' >broken.json
kept 2 "missing/r.json: the folder missing is not there: make it first" "${learn[@]}" --output missing/r.json broken.json
kept 2 "folder: is a folder: name a file" "${learn[@]}" --output folder broken.json
kept 2 "texts.json/r: cannot be written: texts.json is not a folder" "${learn[@]}" --output texts.json/r broken.json
kept 2 '--special <x> is given twice' "${learn[@]}" --special '<x>' --special '<x>' --output r.json broken.json
kept 2 "missing/r.bin: the folder missing is not there" tokenizer encode --tokenizer made.json --output missing/r.bin broken.json
[ -e r.json ] && fail "a tokenizer although it was refused"

# Token files, and what a shell sends to a file that is read.
expect 0 "$trainer" tokenizer encode --tokenizer made.json --output ids.bin texts.json
cp ids.bin ids.original
printf 'abcd' >raw.bin
kept 2 "raw.bin exists, and is not a token file" tokenizer encode --tokenizer made.json --output raw.bin texts.json
"$trainer" tokenizer decode --tokenizer made.json ids.bin >>ids.bin 2>err && fail "decoded into what it reads"
says err "the standard output is ids.bin, which is to be read"
same ids.bin ids.original
"$trainer" tokenizer encode --tokenizer made.json --format json - <texts.json >>texts.json 2>err && fail "encoded into its input"
says err "the standard output is one of the sources"
"$trainer" tokenizer encode --tokenizer made.json texts.json >>texts.json 2>err && fail "encoded into what it reads"
says err "the standard output is one of the sources"
same texts.json original

# A run's own files, and folders that are not empty.
expect 0 "$trainer" --config tiny.yaml max_steps=1 evaluation.every=0 out_dir=run
step=$(cat run/checkpoints/latest)
cp "run/checkpoints/$step/config.yaml" config.original
for page in "run/checkpoints/$step/config.yaml" "run/checkpoints/$step/model.safetensors" run/report.html run/metrics.jsonl; do
    expect 2 "$trainer" inspect --checkpoint run --html "$page"
    says err "$page is"
done
expect 2 "$trainer" inspect --checkpoint "run/checkpoints/$step" --html "run/checkpoints/$step/config.yaml"
same "run/checkpoints/$step/config.yaml" config.original
expect 2 "$trainer" inspect --checkpoint run --html missing/page.html
mkfifo pipe.html
expect 2 "$trainer" inspect --checkpoint run --html pipe.html
says err "pipe.html: is no regular file"
[ -p pipe.html ] || fail "a pipe became a file"
expect 0 "$trainer" inspect --checkpoint run --html page.html
expect 0 "$trainer" inspect --checkpoint run --html page.html
# Before the model is read: there is none.
touch full/file
expect 2 "$trainer" export --checkpoint none --output full
says err "full is not empty"
expect 1 "$trainer" export --checkpoint none --output texts.json/out
says err "texts.json is not a folder"
expect 2 "$trainer" export --checkpoint none --format gguf --output texts.json
says err "texts.json is there already"
expect 1 "$trainer" export --checkpoint none --format gguf --output missing/m.gguf
says err "the folder missing is not there"
expect 0 "$trainer" export --checkpoint run --output new/deep/folder
[ -f new/deep/folder/model.safetensors ] || fail "no export in a folder that was not there"
expect 2 "$trainer" selftest --device cpu --tune missing/table.json
says err "the folder missing is not there"
expect 2 "$trainer" selftest --device cpu --tune tiny.yaml --config tiny.yaml
says err "is the configuration"

# One's own configuration in the run's folder; the run's is started from again.
mkdir mine
(echo '# a comment'; cat tiny.yaml) >mine/config.yaml
cp mine/config.yaml mine.original
expect 2 "$trainer" --config mine/config.yaml out_dir=mine max_steps=1
says err "mine/config.yaml: the run writes its whole configuration to this very file, in place of yours"
same mine/config.yaml mine.original
expect 0 "$trainer" --config run/config.yaml max_steps=2
finish
