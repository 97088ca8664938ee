#!/bin/bash
# SPDX-License-Identifier: MIT
# check_lines.sh: no room has more lines than tests/lines allows it.  A change that needs more raises the number there, and
# says in its commit why; one that removes lines may lower it.  check_lines.sh --write: as many as there are, and up to 50.
set -u
cd "$(dirname "$0")/.." || exit 1

# Room, lines; then what stands above the rooms.
count() {
    tests/check_deps.sh --report | awk '{ print $1, $4 }'
    local folder
    for folder in tests bench examples; do
        echo "$folder" "$(find $folder -type f \( -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' -o -name '*.cpp' -o -name '*.sh' -o -name '*.py' \) -print0 |
            xargs -0 cat | wc -l)"
    done
}

if [ "${1-}" = --write ]; then
    lines=$(sed -n '/^#/p' tests/lines && count | awk '{ printf "%-28s %6d\n", $1, int(($2 + 49) / 50) * 50 }')
    printf '%s\n' "$lines" >tests/lines
    exit 0
fi
count | awk '
    FNR == NR { if ($1 !~ /^#/) most[$1] = $2; next }
    !($1 in most) { print "tests/lines: no number for " $1 ": tests/check_lines.sh --write"; bad = 1; next }
    $2 > most[$1] { print $1 " has " $2 " lines, and tests/lines allows " most[$1] ": make it shorter, or raise that with the reason in the commit"; bad = 1 }
    END { exit bad }' tests/lines -
