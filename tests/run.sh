#!/bin/bash
# SPDX-License-Identifier: MIT
# run.sh PROGRAM...: run test programs and then the command-line scripts; a line each as they end, totals last.
# A program fails by its exit code, and also when LeakSanitizer reports (under Criterion that still exits 0).
#
# As many at a time as there are cores, each on a core of its own: a program whose threads have to share their cores with
# another's waits at every barrier.  WORKERS=1 runs one after another, with all cores.
set -u
cd "$(dirname "$0")/.." || exit 1

# run.sh --one PROGRAM|SCRIPT: one of them, a report in one piece.
if [ "${1:-}" = --one ]; then
    log=$(mktemp)
    trap 'rm -f "$log"' EXIT
    start=$SECONDS
    case $2 in
    *.sh) set -- "$2" env BUILD="$BUILD" bash "$2" ;;
    *) set -- "${2#"$BUILD"/}" "$2" ;;
    esac
    name=$1
    shift
    if [ "${WORKERS:-1}" -gt 1 ] && command -v taskset >/dev/null; then
        cores=$(taskset -cp $$ | sed 's/.*: //' | tr ',' '\n' | awk -F- '{ for (i = $1; i <= ($2 == "" ? $1 : $2); i++) print i }')
        set -- taskset -c "$(sed -n "$((SLOT % $(wc -l <<<"$cores") + 1))p" <<<"$cores")" "$@"
    fi
    "$@" >"$log" 2>&1
    status=$?
    grep -qE 'LeakSanitizer|ERROR: AddressSanitizer|runtime error:' "$log" && status=1
    if [ "$status" = 0 ]; then
        printf 'ok    %s (%d s)\n' "$name" $((SECONDS - start))
    else
        printf 'FAIL  %s\n%s\n' "$name" "$(tail -n 60 "$log")"
    fi
    exit 0
fi

export WORKERS=${WORKERS:-$(nproc)} BUILD
results=$(mktemp)
trap 'rm -f "$results"' EXIT
# The longest first, so that none is left alone at the end.
long=(tests/cli/test_emu.sh tests/cli/test_emu_kernels.sh "$BUILD/tests/room/ops" tests/cli/test_gpu_script.sh
    tests/cli/test_offload.sh)
for test in "${long[@]}" "$@" tests/cli/test_*.sh; do
    printf '%s\n' "$test"
done | awk '!seen[$0]++' | xargs -P "$WORKERS" -n 1 --process-slot-var=SLOT "$0" --one | tee "$results"
passed=$(grep -c '^ok  ' "$results") failed=$(grep -c '^FAIL  ' "$results")
echo "$passed passed, $failed failed"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
