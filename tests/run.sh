#!/bin/bash
# SPDX-License-Identifier: MIT
# run.sh PROGRAM...: run test programs and then the command-line scripts; one line each, totals last.
# A program fails by its exit code, and also when LeakSanitizer reports (under Criterion that still exits 0).
set -u
cd "$(dirname "$0")/.." || exit 1
passed=0 failed=0
log=$(mktemp)
trap 'rm -f "$log"' EXIT

report() { # name status seconds
    if [ "$2" = 0 ]; then
        passed=$((passed + 1))
        echo "ok    $1 ($3 s)"
    else
        failed=$((failed + 1))
        echo "FAIL  $1"
        tail -n 60 "$log"
    fi
}

run() { # name command...
    local name=$1 start=$SECONDS status
    shift
    "$@" >"$log" 2>&1
    status=$?
    grep -qE 'LeakSanitizer|ERROR: AddressSanitizer|runtime error:' "$log" && status=1
    report "$name" "$status" $((SECONDS - start))
}

for program in "$@"; do
    run "${program#"$BUILD"/}" "$program"
done
for script in tests/cli/test_*.sh; do
    run "$script" env BUILD="$BUILD" bash "$script"
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
