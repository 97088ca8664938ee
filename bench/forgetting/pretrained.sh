#!/bin/bash
# SPDX-License-Identifier: MIT
# pretrained.sh FOLDER [MINUTES [TRAINER]]: a model of 11 million parameters, FOLDER/model, trained from scratch on 81 MB of
# documentation and code out of Debian packages, and what it then learns.
#
# Does what is missing and no more: fetches the text, learns a tokenizer, and trains for MINUTES (55); called again, it
# continues from there.  TOKENS says how much in all: 32,768,000, 1.2 passes over the text.  Shape, batch, rates and schedule are
# what train.size makes of 9 million parameters in the blocks.  FOLDER/pretrain.yaml is the run's configuration,
# FOLDER/packages.txt says which versions the text came from; FOLDER/heldout.txt is text of the same kinds that the model
# never sees, for what is forgotten of it.  TRAINER: build/trainer.  then.sh makes of it what comes next.
set -euo pipefail
[ $# -gt 0 ] || { sed -n '3,10s/^# \?//p' "$0" >&2; exit 2; }
mkdir -p "$1"
out=$(realpath "$1")
minutes=${2:-55}
trainer=$(realpath "${3:-build/trainer}")
source "$(dirname "$0")/packages.sh"

# name package pattern megabytes; words: of HTML what a reader sees
texts() {
    cat <<'LIST'
dictionary dict-gcide           *.dict.dz           8
kernel     linux-doc-6.1        *.rst.gz            8
python     python3.11-doc       */_sources/*.txt    8
perl       perl-doc             *.pod               6
git        git-doc              *.txt               4
llvm       llvm-14-doc          */_sources/*.txt    4
vim        vim-runtime          */doc/*.txt         6
manuals    manpages-dev         *.3*.gz             4
handbook   debian-handbook      */en-US/*.html      4 words
httpd      apache2-doc          */en/*.html         4 words
sqlite     sqlite3-doc          *.html              6 words
boost      libboost1.81-doc     *.html              6 words
octave     octave-doc           *.html              4 words
stdlib     libpython3.11-stdlib *.py                8
go         golang-1.19-src      *.go                6
rust       rust-src             *.rs                6
elisp      emacs-el             *.el.gz             6
LIST
}

mkdir -p "$out/text"
texts | while read -r name package pattern megabytes words; do
    file=$out/text/$name.txt
    [ -s "$file" ] && continue
    fetch "$package"
    if [ -n "$words" ]; then
        { text "$package" "$pattern" $((megabytes * 4000000)) | words_of_html | head -c $((megabytes * 1000000)); } \
            >"$file.part" 2>/dev/null || true # head ends the others
    else
        text "$package" "$pattern" $((megabytes * 1000000)) >"$file.part"
    fi
    # The last hundredth is held out; in a file for each text, so that an interrupted call leaves no text twice.
    size=$(stat -c %s "$file.part")
    mkdir -p "$out/heldout"
    tail -c $((size / 100)) "$file.part" >"$out/heldout/$name.txt"
    head -c $((size - size / 100)) "$file.part" | iconv -c -f UTF-8 -t UTF-8 >"$file.cut" || true
    rm "$file.part"
    mv "$file.cut" "$file"
    echo "$name: $package $(cat "$out/packages/$package/.version")" >>"$out/packages.txt"
    echo "$file: $(stat -c %s "$file") bytes" >&2
done

texts | while read -r name _; do cat "$out/heldout/$name.txt"; done >"$out/heldout.txt"
[ -s "$out/tokenizer.json" ] || "$trainer" tokenizer train --vocabulary 8192 -o "$out/tokenizer.json" "$out"/text
cat >"$out/pretrain.yaml" <<YAML
out_dir: $out/model
tokenizer: {kind: bpe, path: $out/tokenizer.json}
tasks:
  - {name: text, train: $out/text, validation: 0.5%, tokens: ${TOKENS:-32768000}}
train: {size: 9M}
data: {sampling: random}
precision: {mode: bf16}
checkpoint_freq: 500
evaluation: {every: 1000, batches: 30, items: 0, show: 0}
logging: {every: 50, tensorboard: false}
YAML
status=0
timeout --signal=TERM "${minutes}m" "$trainer" --config "$out/pretrain.yaml" || status=$?
[ $status -eq 124 ] && echo "to be continued: run the same command again" >&2 || exit $status
