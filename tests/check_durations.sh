#!/bin/bash
# SPDX-License-Identifier: MIT
# check_durations.sh [TAKEN]: the durations of tests/durations add up to no more than its budget.  With a file of what a run
# took of the processor (seconds and name, a line each): a test that is not listed, or takes more than twice what it is
# listed with, counts with what it took, as a machine of the listed durations' speed would have taken; how fast this one is,
# the median test of at least 5 seconds says.  Every other test counts as listed, so that a busy machine alone does not fail
# a run.  The build has to be without sanitizers: they slow tests by different factors.
set -u
taken=${1:-}
case $taken in "" | /*) ;; *) taken=$PWD/$taken ;; esac
cd "$(dirname "$0")/.." || exit 1
awk -v taken="$taken" '
    /^#/ { next }
    $1 == "budget" { budget = $2; next }
    { listed[$2] = $1; sum += $1 }
    END {
        if (budget == 0) { print "tests/durations: no line `budget SECONDS`"; exit 1 }
        if (taken != "") {
            while ((getline line < taken) > 0) {
                split(line, field, " ")
                took[field[2]] = field[1]
                if (listed[field[2]] >= 5) ratio[++ratios] = field[1] / listed[field[2]]
            }
            for (i = 2; i <= ratios; i++)
                for (j = i; j > 1 && ratio[j - 1] > ratio[j]; j--) { swap = ratio[j]; ratio[j] = ratio[j - 1]; ratio[j - 1] = swap }
            speed = ratios > 0 && ratio[int((ratios + 1) / 2)] > 0 ? ratio[int((ratios + 1) / 2)] : 1
            for (name in took) {
                scaled = took[name] / speed
                grown = scaled > 2 * listed[name] && scaled > listed[name] + 10
                if (grown) printf "%s took %.0f s, of which tests/durations knows %d\n", name, scaled, listed[name]
                if (grown || !(name in listed)) sum += scaled - listed[name]
            }
        }
        printf "tests take %.0f s of one core, of a budget of %d s%s\n", sum, budget, taken == "" ? "" : sprintf(" (this machine: %.2f times the listed durations)", speed)
        if (sum > budget) { print "over the budget: make tests shorter, or raise it in tests/durations with the reason in the commit"; exit 1 }
    }' tests/durations
