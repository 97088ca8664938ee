#!/bin/bash
# SPDX-License-Identifier: MIT
# allocations.sh: memory runs out at every n-th allocation of some twenty small runs and commands, COUNT failures in all
# (12000).  Each has to end with exit code 1 and a message that says memory, or to give the very result of an undisturbed
# run; never by a signal, never never.  One in RECOVER (10) is started again and has to come to the undisturbed end.
count=${COUNT:-12000}
every=${RECOVER:-10}
. "$(dirname "$0")/lib.sh"
make_fixtures
mapfile -t rows < <(workloads | grep -E "^(${ONLY:-.*})\|")
told=0 harmless=0 openmp=0

# What the end of a run says of it: exit code, message, result.
judge() {
    local what="allocation $at of $calls"
    case $code in
    0)
        look
        if [ "$left" = "$expected" ]; then
            harmless=$((harmless + 1))
        else
            fail "$name: $what: exit code 0 with another result"
            diff <(echo "$expected") <(echo "$left") | head -n 4
        fi
        ;;
    1 | 2)
        if [[ $said == *"libgomp: "* ]]; then # ends the process by itself, and nothing may be lost by that
            openmp=$((openmp + 1))
            recover "$what"
        elif [[ $said =~ error:[^$'\n']*[Mm]emory || $said =~ "Cannot allocate memory" ]]; then
            told=$((told + 1))
        else
            fail "$name: $what: exit code $code without a word about memory: ${said##*$'\n'}"
        fi
        ;;
    *) fail "$name: $what: exit code $code: ${said##*$'\n'}" ;;
    esac
    [ -z "${VERBOSE:-}" ] || echo "$name $at: $code ${said##*$'\n'}"
}

total=0 weights=() sums=() ends=()
for row in "${rows[@]}"; do
    workload "$row"
    calm memory || finish
    # Beyond some thousands the calls of a command are much alike.
    [ "$calls" -le 4000 ] && weights+=("$calls") || weights+=(4000)
    total=$((total + weights[-1])) sums+=("$calls") ends+=("$expected")
done
for i in "${!ends[@]}"; do
    workload "${rows[$i]}"
    calls=${sums[$i]} expected=${ends[$i]}
    # A share of COUNT by the number of its allocations, one at least, spread evenly.
    share=$((count * weights[i] / total))
    [ "$share" -ge 1 ] || share=1
    [ "$share" -le "$calls" ] || share=$calls
    before=$failures
    for ((k = 0; k < share; k++)); do
        at=$((1 + (2 * k + 1) * calls / (2 * share)))
        disturb memory $at FAULT_COUNT=$((k % 3 == 2 ? 0 : 1))
        judge
        [ $((k % every)) != 0 ] || recover "allocation $at"
    done
    echo "  $name: $share of $calls allocations failed, $((failures - before)) wrongly"
done
echo "allocations: $disturbed failures: $told reported, $harmless without effect, $openmp ended by OpenMP; $recovered recovered, $failures wrong"
finish
