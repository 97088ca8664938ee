#!/bin/bash
# SPDX-License-Identifier: MIT
# The reading order of one training step in ARCHITECTURE.md (between `spine` and `end of spine`): every file is there, is
# listed once, and has the number of lines that its row says, to the nearest ten; so has the total.
# check_spine.sh --write renews the numbers.
set -u
cd "$(dirname "$0")/.." || exit 1
page=ARCHITECTURE.md

# The page with today's numbers.  A row:  | `path` | lines | what it shows |     The total:  Total: N lines in M files.
renewed() {
    awk '
        function rounded(lines) { return int((lines + 5) / 10) * 10 }
        function lines_of(path,   line, count, got) {
            while ((got = (getline line < path)) > 0)
                count++
            close(path)
            if (got < 0) { print "check_spine.sh: " path " is not there" > "/dev/stderr"; bad = 1 }
            if (path in seen) { print "check_spine.sh: " path " is listed twice" > "/dev/stderr"; bad = 1 }
            seen[path] = 1
            return count
        }
        /^<!-- end of spine -->/ { inside = 0 }
        inside && match($0, /^\| `[^`]+` \| [0-9]* \|/) {
            split($0, part, "`")
            lines = lines_of(part[2])
            total += lines
            files++
            $0 = "| `" part[2] "` | " rounded(lines) " |" substr($0, RLENGTH + 1)
        }
        inside && /^Total: / { $0 = "Total: " rounded(total) " lines in " files " files." }
        /^<!-- spine -->/ { inside = 1; spines++ }
        { print }
        END {
            if (spines != 1 || files < 10) { print "check_spine.sh: ARCHITECTURE.md has lost its reading order" > "/dev/stderr"; bad = 1 }
            exit bad
        }' "$page"
}

new=$(mktemp) || exit 1
trap 'rm -f "$new"' EXIT
renewed >"$new" || exit 1
cmp -s "$page" "$new" && exit 0
if [ "${1-}" = --write ]; then
    cat "$new" >"$page"
    exit 0
fi
echo "$page: the reading order of a training step is stale; run: tests/check_spine.sh --write (or make docs)"
diff "$page" "$new" | grep '^[<>]'
exit 1
