#!/bin/sh
# SPDX-License-Identifier: MIT
# check_size.sh FILE...: no source file over 500 lines.
status=0
for file in "$@"; do
    lines=$(wc -l <"$file")
    if [ "$lines" -gt 500 ]; then
        echo "$file: $lines lines, at most 500: split it by topic"
        status=1
    fi
done
exit $status
