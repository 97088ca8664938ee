#!/bin/sh
# SPDX-License-Identifier: MIT
# check_size.sh FILE...: no function over 80 lines, no CUDA kernel, or what one consists of, over 120.  `check_size.sh --report FILE...` prints the
# five longest functions and files instead.
# The formatter puts a function's braces into the first column, so its body is what lies between two such lines.
report=
[ "$1" = --report ] && { report=1; shift; }
list=$(mktemp)
trap 'rm -f "$list"' EXIT
awk '
    FNR == 1 { start = 0; head = ""; kernel = 0 }
    /^\{/ && head !~ /^(namespace|extern)/ { start = FNR }
    /^\}/ && start {
        print FNR - start - 1, (kernel ? 120 : 80), FILENAME ":" start - 1
        start = 0
    }
    /__global__|__device__|HS_DEVICE/ { kernel = 1 }
    /^$/ && !start { kernel = 0 }
    !/^[ \t]*$/ && !start { head = $0 }
' "$@" >"$list"
if [ "$report" ]; then
    echo "longest functions (lines, place):"
    sort -rn "$list" | head -5 | awk '{ print "  " $1, $3 }'
    echo "longest files (lines):"
    wc -l "$@" | grep -v ' total$' | sort -rn | head -5 | sed 's/^ */  /'
    exit 0
fi
awk '$1 > $2 { print $3 ": a function of " $1 " lines, at most " $2 ": let it do one thing"; bad = 1 } END { exit bad }' "$list"
