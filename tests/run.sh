#!/bin/bash
# SPDX-License-Identifier: MIT
# run.sh PROGRAM...: run test programs and then the command-line scripts; a line each as they end, then totals, the ten
# slowest, and whether all of them together are within the budget of tests/durations.
# A program fails by its exit code, and also when LeakSanitizer reports (under Criterion that still exits 0).
#
# TIER says how much: `quick` the tests of at most 5 seconds that need no emulator; `test` (the default) all tests, which do
# a pairwise covering of their products of choices; `nightly` all, with whole products.
#
# As many at a time as there are cores, each on its own core: a program with threads that share their cores with
# another's waits at every barrier.  Scripts that say `# Waits more than it computes.` run one after another next to
# these, on any core.  WORKERS=1 runs one after another, with all cores.  DURATIONS=FILE writes what each took,
# BUDGET=no leaves the budget out, which counts the processor's seconds: the clock's also hold what a busy machine or a slow
# disk makes tests wait for.  TEST_LIMIT=SECONDS (900; nightly 14,400) ends a test that waits.  FAIL_FAST=yes begins with
# the shortest and ends after the first that fails.
#
# Temporary files lie in memory where there is room (TMPDIR=FOLDER: elsewhere), since tests write hundreds of checkpoints,
# each of them synchronized: on a slow disk test_continual.sh took 180 seconds instead of 33.
set -u
cd "$(dirname "$0")/.." || exit 1

# run.sh --one PROGRAM|SCRIPT: one of them, a report in one piece.
if [ "${1:-}" = --one ]; then
    log=$(mktemp)
    trap 'rm -f "$log" "$log.time"' EXIT
    start=$SECONDS
    case $2 in
    *.sh) set -- "$2" env BUILD="$BUILD" bash "$2" ;;
    *) set -- "${2#"$BUILD"/}" "$2" ;;
    esac
    name=$1
    shift
    if [ "${WORKERS:-1}" -gt 1 ] && [ -n "${SLOT:-}" ] && command -v taskset >/dev/null; then
        cores=$(taskset -cp $$ | sed 's/.*: //' | tr ',' '\n' | awk -F- '{ for (i = $1; i <= ($2 == "" ? $1 : $2); i++) print i }')
        set -- taskset -c "$(sed -n "$((SLOT % $(wc -l <<<"$cores") + 1))p" <<<"$cores")" "$@"
    fi
    TIMEFORMAT='%U %S'
    { time timeout -k 10 "$TEST_LIMIT" "$@" >"$log" 2>&1; } 2>"$log.time"
    status=$?
    [ -z "${PROCESSOR_SECONDS:-}" ] || awk -v name="$name" '{ printf "%.1f %s\n", $1 + $2, name }' "$log.time" >>"$PROCESSOR_SECONDS"
    [ "$status" != 124 ] && [ "$status" != 137 ] || echo "ended after TEST_LIMIT=$TEST_LIMIT seconds" >>"$log"
    grep -qE 'LeakSanitizer|ERROR: AddressSanitizer|runtime error:' "$log" && status=1
    if [ "$status" = 0 ]; then
        printf 'ok    %s (%d s)\n' "$name" $((SECONDS - start))
    else
        printf 'FAIL  %s\n%s\n' "$name" "$(tail -n 60 "$log")"
        [ -z "${FAIL_FAST:-}" ] || exit 255 # xargs starts no other one
    fi
    exit 0
fi

export WORKERS=${WORKERS:-$(nproc)} BUILD TIER=${TIER:-test}
case $TIER in
quick | test) export TEST_LIMIT=${TEST_LIMIT:-900} ;;
nightly) export TEST_LIMIT=${TEST_LIMIT:-14400} ;;
*)
    echo "TIER=$TIER: give one of quick test nightly" >&2
    exit 2
    ;;
esac
# Some systems run no program from there, as some tests do.
room=$(df --output=avail -m /dev/shm 2>/dev/null | tail -n 1)
if [ -z "${TMPDIR:-}" ] && [ -w /dev/shm ] && [ "${room:-0}" -ge 8192 ] && program=$(mktemp /dev/shm/XXXXXX); then
    printf '#!/bin/sh\n' >"$program"
    chmod +x "$program"
    ! "$program" 2>/dev/null || export TMPDIR=/dev/shm
    rm -f "$program"
fi
results=$(mktemp)
export PROCESSOR_SECONDS=$results.processor
export HALFSTEP_CPU_PEAK=${HALFSTEP_CPU_PEAK:-1e11} # measuring it takes most of a tiny run
trap 'rm -f "$results" "$results.all" "$results.waiting" "$results.processor"' EXIT
# The longest first, so that none is left alone at the end; a test without a duration is new, and may be long.
order=-rn
[ -z "${FAIL_FAST:-}" ] || order=-n
for test in "$@" tests/cli/test_*.sh; do
    printf '%s\n' "$test"
done | awk -v build="$BUILD/" -v tier="$TIER" '
    FNR == NR { if ($1 ~ /^[0-9]+$/) seconds[$2] = $1; next }
    {
        name = index($1, build) == 1 ? substr($1, length(build) + 1) : $1
        long = name in seconds ? seconds[name] : 60
        if (tier != "quick" || (long <= 5 && name !~ /emu|nccl/)) print long, $1
    }' tests/durations - | sort $order | cut -d' ' -f2 >"$results.all"
: >"$results.waiting"
[ "$WORKERS" = 1 ] || grep -l '^# Waits more than it computes\.$' tests/cli/test_*.sh >"$results.waiting"
{
    grep -xFf "$results.waiting" "$results.all" | xargs -r -n 1 "$0" --one &
    grep -vxFf "$results.waiting" "$results.all" | xargs -P "$WORKERS" -n 1 --process-slot-var=SLOT "$0" --one
    wait
} | tee "$results"
passed=$(grep -c '^ok  ' "$results") failed=$(grep -c '^FAIL  ' "$results")
echo "$passed passed, $failed failed"
taken=$(sed -nE 's/^ok    (.*) \(([0-9]+) s\)$/\2 \1/p' "$results" | sort -k1,1rn -k2)
[ -z "${DURATIONS:-}" ] || { sed -n '/^#/p; /^budget/p' tests/durations && printf '%s\n' "$taken"; } >"$DURATIONS"
printf 'The slowest, in seconds:\n%s\n' "$(head -n 10 <<<"$taken" | sed 's/^/  /')"
within=0
[ "$TIER ${BUDGET:-yes} $failed" != "test yes 0" ] || tests/check_durations.sh "$PROCESSOR_SECONDS" || within=1
[ "$failed" = 0 ] && [ "$passed" -gt 0 ] && [ $within = 0 ]
