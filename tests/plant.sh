# shellcheck shell=bash
# SPDX-License-Identifier: MIT
# What the scripts share that plant mistakes into the sources (planted.sh, ptx/planted.sh, twins/run.sh, gpu_faults.sh).
# Sourced by them.  With `texts` as their argument they only look whether every text that is to be changed is there, which
# `make check-plants` does: a source that has moved on would leave them without a mistake to find.

# exchange FILE OLD NEW TO: FILE with the text OLD replaced by NEW becomes TO.  1: FILE does not hold OLD.
exchange() {
    mkdir -p "$(dirname "$4")"
    OLD=$2 NEW=$3 perl -0pe 's/\Q$ENV{OLD}\E/$ENV{NEW}/ and $n++; END { exit !$n }' "$1" >"$4"
}

texts=''
[ "${1:-}" != texts ] || texts=yes
