#!/bin/bash
# SPDX-License-Identifier: MIT
# run.sh [PART...]: the campaigns of this folder at their full size, one after another, and a line of counts for each.
# COUNT=N gives every part that size.
set -u
folder=$(cd "$(dirname "$0")" && pwd)
[ $# -gt 0 ] || set -- $(cd "$folder" && ls ./*.sh | sed 's/.*\///; s/\.sh$//' | grep -vxE 'run|lib')
log=$(mktemp)
trap 'rm -f "$log"' EXIT
failed=
for part in "$@"; do
    start=$SECONDS
    bash "$folder/$part.sh" >"$log" 2>&1
    status=$?
    if [ $status = 0 ]; then
        printf 'ok    %s (%d s)\n' "$(tail -n 1 "$log")" $((SECONDS - start))
    else
        failed="$failed $part"
        grep -E '^FAIL|^  ' "$log" | head -n 60
        printf 'FAIL  %s (%d s)\n' "$(tail -n 1 "$log")" $((SECONDS - start))
    fi
done
[ -z "$failed" ] || { echo "faults failed:$failed"; exit 1; }
