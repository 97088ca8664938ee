#!/bin/bash
# SPDX-License-Identifier: MIT
# Runs the commands of every lesson, shows what they print, and checks what holds on any machine: bytes, shares, losses.
#
#     examples/lessons/check.sh [BUILD [STEPS [section.key=value ...]]]
#
# BUILD: build folder, default build; STEPS, and the keys, instead of the pages' own, for a quicker look.  LESSONS: the
# numbers of those to run, for one quicker still.
set -u
cd "$(dirname "$0")/../.." || exit 1
build=${1:-build}
steps=${2:-}
overrides=("${@:3}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

# chosen PAGE: whether it is one of LESSONS.
chosen() {
    [[ " ${LESSONS:-1 2 3 4 5 6 7} " == *" ${1%%-*} "* ]]
}

# run PAGE: its commands (indented, from the build folder) with their results in $work.
run() {
    local line
    chosen "$1" || return 0
    grep -E '^    build/' "examples/lessons/$1" | while read -r line; do
        line=${line/#build\//$build\/}
        line=${line//runs\//$work\/}
        [ -z "$steps" ] || line=$(sed -E "s/--steps [0-9]+/--steps $steps/" <<<"$line")
        [[ $line != *" bench "* ]] || line="$line ${overrides[*]}"
        echo "\$ $line"
        # The pages' commands are words without quotes.
        # shellcheck disable=SC2086
        $line 2>"$work/err" </dev/null || { echo "exit code $?"; cat "$work/err"; }
    done >"$work/$1"
    cat "$work/$1"
}

# holds PAGE TEXT AWK: the program, on the page's output, exits with 0.
holds() {
    chosen "$1" || return 0
    if awk "$3" "$work/$1"; then
        echo "  holds: $2"
    else
        echo "  DOES NOT HOLD: $2"
        failures=$((failures + 1))
    fi
    echo
}

page=1-sixteen-bytes.md
run $page
holds $page "16 bytes with 16-bit gradients, 18 with f32 ones, 16 in fp32" '
    /^device:/ { plan++ }
    / (weights|master weights|gradients|optimizer moments) / && !/packed/ {
        for (i = 1; i < NF; i++) if ($i ~ /^[0-9.]+$/ && $(i + 1) ~ /^[0-9.]+$/) { sum[plan] += $(i + 1); break }
    }
    END { exit !(plan == 3 && sum[1] > 15.97 && sum[1] < 16.03 && sum[2] > 17.97 && sum[2] < 18.03 && sum[3] > 15.97 && sum[3] < 16.03) }'

# A row of a table by mode: NAME  first  second  third.
page=2-recomputation.md
run $page
holds $page "recomputed blocks take less than half of the activations, and change no bit of the losses" '
    $1 == "activations" { kept = $2; recomputed = $4 }
    /^\+recompute .*[0-9]\+[0-9]+$/ { distance = $(NF - 2); seen = 1 }
    END { exit !(seen && distance == 0 && recomputed > 0 && recomputed < 0.5 * kept) }'

page=3-fp16-underflow.md
run $page
holds $page "without a scale most gradients of activations underflow in fp16, with one few do" '
    /^underflow of gradients/ { table = 1; next }
    table && /^(block|final|head)/ && NF > 3 { none[$(NF - 1)]; rows++; if ($(NF - 1) > 50) low++; if ($NF == "-" || $NF < 10) high++ }
    END { exit !(rows > 4 && low == rows && high == rows) }'

page=4-bf16-needs-no-scaling.md
run $page
# Zero in exact arithmetic: the query of the first of 128 positions, a sixth of what is counted as attention.
holds $page "in bf16 no gradients underflow but those that are zero anyway, and the loss stays within 1% of fp32" '
    /^underflow of gradients/ { table = 1; next }
    table && /^(block|final|head)/ && NF > 3 { rows++; if ($(NF - 1) == "-" || $(NF - 1) < 100 / 128 / 6 + 0.001) same++ }
    /^bf16 .*[0-9]\+[0-9]+$/ { distance = $(NF - 2); seen = 1 }
    END { exit !(seen && distance < 0.01 && rows > 4 && same == rows) }'

page=5-master-weights.md
run $page
holds $page "rounding to nearest loses a thousand small updates, a master and stochastic rounding keep them" '
    $1 == "exact" { exact = $2 }
    /bf16, nearest/ && !nearest { nearest = $3 }
    /bf16, stochastic/ && !stochastic { stochastic = $3 }
    /copied to bf16/ { master = $6 }
    END { exit !(nearest == 1 && stochastic > 1.05 && stochastic < 1.15 && master - exact < 0.004 && exact - master < 0.004) }'

page=6-accumulation.md
run $page
holds $page "losses of 1, 4 and 16 micro-batches agree to 1e-4, and activations take a quarter and a sixteenth" '
    $1 == "activations" { four = $3 / $2; sixteen = $4 / $2 }
    /^\+accumulate[0-9]+ .*[0-9]\+[0-9]+$/ { if ($(NF - 2) > largest) largest = $(NF - 2); seen++ }
    END { exit !(seen == 2 && largest < 1e-4 && four < 0.26 && sixteen < 0.08) }'

page=7-below-16-bits.md
run $page
holds $page "FP8 stays within 0.5% of bf16, its casts make next to nothing zero and those of 4 bits up to a fifth" '
    /^zeroed by casts/ { table = 1; next }
    /^saturated by casts/ { table = 0 }
    table && /^(x|weight|dy) / { rows++; for (i = 3; i <= 6; i++) if ($i < 0.1) eight++; if ($7 > 1 && $7 < 20) four++ }
    table && /^dy / { blocks = $5 < $3 && $6 < $3 }
    /^(fp8|fp8-delayed|fp8-block|mxfp8) .*[0-9]\+[0-9]+$/ { seen++; if ($(NF - 2) < 0.005) near++ }
    END { exit !(rows == 3 && eight == 12 && four == 3 && blocks && seen == 4 && near == 4) }'
holds $page "next to an outlier of 2^18 one scale makes over a third zero, blocks of 32 less than 1%" '
    /^  E4M3, one scale/ { one = $NF }
    /^  E4M3, blocks of 32/ { blocks = $NF }
    END { exit !(one + 0 > 33 && blocks + 0 < 1 && blocks + 0 > 0) }'

[ "$failures" = 0 ] || { echo "$failures claims do not hold"; exit 1; }
