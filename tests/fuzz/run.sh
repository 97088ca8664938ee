#!/bin/bash
# SPDX-License-Identifier: MIT
# run.sh FUZZER...: each for FUZZ_SECONDS from its seed corpus; any crash, leak or hang fails.
set -u
cd "$(dirname "$0")/../.." || exit 1
status=0
for fuzzer in "$@"; do
    name=$(basename "$fuzzer" | sed 's/^fuzz_//')
    work=$(dirname "$fuzzer")/corpus-$name
    mkdir -p "$work"
    echo "fuzzing $name for ${FUZZ_SECONDS} s"
    if ! "$fuzzer" "$work" "tests/fuzz/corpus/$name" -max_total_time="${FUZZ_SECONDS}" -timeout=20 -rss_limit_mb=4096 \
        -print_final_stats=1 -artifact_prefix="$work-" >"$work.log" 2>&1; then
        echo "FAIL $name: see $work.log"
        tail -n 30 "$work.log"
        status=1
    else
        grep -E 'number_of_executed_units|new_units_added' "$work.log"
    fi
done
exit $status
