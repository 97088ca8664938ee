#!/bin/bash
# SPDX-License-Identifier: MIT
# calls.sh: system calls that fail, COUNT in all (4800 asked for, about 2600 made: some kinds have few calls): each kind of call with each error that it may have, once or from
# there on, at places spread over the whole of some twenty small runs and commands; reads and writes that move half of
# what they were asked to.  Each run has to end with exit code 1 and a message that gives the error, or with the very
# result of an undisturbed run.  One in RECOVER (8) is started again and has to come to the undisturbed end.
count=${COUNT:-4800}
every=${RECOVER:-8}
. "$(dirname "$0")/lib.sh"
make_fixtures
mapfile -t rows < <(workloads | grep -E "^(${ONLY:-.*})\|")

# kind | its errors
kinds=(
    'open|EMFILE EACCES ENOMEM EIO'
    'read|EIO EINTR short'
    'write|ENOSPC EDQUOT EIO EINTR EFBIG short'
    'sync|EIO ENOSPC EDQUOT'
    'rename|ENOSPC EACCES EIO'
    'unlink|EACCES EIO'
    'mkdir|ENOSPC EDQUOT EACCES'
    'truncate|EIO EACCES'
    'close|EIO ENOSPC EDQUOT'
    'stat|EACCES ENOMEM EIO'
    'list|EMFILE ENOMEM EIO'
    'lock|EAGAIN EINTR EIO'
    'thread|EAGAIN'
    'map|ENOMEM EAGAIN EACCES'
)
declare -A words=(
    [EMFILE]="Too many open files" [EACCES]="Permission denied" [ENOMEM]="Cannot allocate memory"
    [EIO]="Input/output error" [EINTR]="Interrupted system call" [ENOSPC]="No space left on device"
    [EDQUOT]="Disk quota exceeded" [EFBIG]="File too large" [EAGAIN]="Resource temporarily unavailable"
)
told=0 harmless=0 openmp=0

judge() {
    local what="$kind $at of $calls: $error"
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
        if [ "$error" = short ]; then
            fail "$name: $what: bytes in two parts are no error: ${said##*$'\n'}"
        elif [[ $said == *"libgomp: "* ]]; then # ends the process by itself, and nothing may be lost by that
            openmp=$((openmp + 1))
            recover "$what"
        elif [[ $said == *error:* && $said == *"${words[$error]}"* ]]; then
            told=$((told + 1))
        elif [[ $kind == lock && $said == *"is training there"* ]] || [[ $kind == map && $said =~ error:.*memory ]] ||
            [[ $said == *"error: standard output is incomplete"* ]]; then
            told=$((told + 1)) # what the error means there
        else
            fail "$name: $what: exit code $code without the error's name: ${said##*$'\n'}"
        fi
        ;;
    *) fail "$name: $what: exit code $code: ${said##*$'\n'}" ;;
    esac
    [ -z "${VERBOSE:-}" ] || echo "$name $what $at: $code ${said##*$'\n'}"
}

# strike KIND ERROR K OF: the K-th of OF failures, spread over the calls of that kind.
strike() {
    kind=$1 error=$2
    at=$((1 + ($3 * 1000 + turn * 618 % 1000) * calls / (1000 * $4))) # another place of its part each time
    if [ "$error" = short ]; then
        disturb "$kind" $at FAULT_HOW=short FAULT_COUNT=$(($3 % 2))
    else
        # Interrupted for ever is nothing that happens.
        [ "$error" = EINTR ] && rest=3 || rest=$(($3 % 2))
        disturb "$kind" $at FAULT_ERROR="$error" FAULT_COUNT=$rest
    fi
    judge
    [ $((disturbed % every)) != 0 ] || recover "$kind $at: $error"
}

# The pairs of workload, kind and error in turn, each at more places the larger COUNT is.
pairs=0
for row in "${kinds[@]}"; do
    read -ra errors <<<"${row#*|}"
    pairs=$((pairs + ${#errors[@]}))
done
places=$((count / (pairs * ${#rows[@]})))
[ "$places" -ge 1 ] || places=1
step=$((pairs * ${#rows[@]} / count)) # a small COUNT takes one pair in $step
[ "$step" -ge 1 ] || step=1
turn=0
for row in "${rows[@]}"; do
    workload "$row"
    before=$failures began=$disturbed
    calm calls || continue
    declare -A made=()
    while read -r kind calls; do made[$kind]=$calls; done <calls
    for kind_row in "${kinds[@]}"; do
        read -ra errors <<<"${kind_row#*|}"
        calls=${made[${kind_row%%|*}]:-0}
        for error in "${errors[@]}"; do
            turn=$((turn + 1))
            [ $((turn % step)) = 0 ] || continue
            for ((k = 0; k < places && k < calls; k++)); do
                strike "${kind_row%%|*}" "$error" $k $((places < calls ? places : calls))
            done
        done
    done
    echo "  $name: $((disturbed - began)) of ${made[all]} calls failed, $((failures - before)) wrongly"
done
echo "calls: $disturbed failures: $told reported, $harmless without effect, $openmp ended by OpenMP; $recovered recovered, $failures wrong"
finish
