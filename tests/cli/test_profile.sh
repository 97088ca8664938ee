#!/bin/bash
# SPDX-License-Identifier: MIT
# bench/profile on a short trace of the demo: its parts add up to the step, every figure is one, a trace compared with
# itself is the same, and one that does not say what operations cost is refused.
. "$(dirname "$0")/lib.sh"
profile=$(dirname "$trainer")/bench/profile

expect 0 "$trainer" --config "$root/configs/demo.yaml" device=cpu threads=2 precision.mode=bf16 max_steps=5 \
    logging.trace=3-5 evaluation.every=0 evaluation.batches=1 evaluation.sample_tokens=0 logging.tensorboard=false \
    checkpoint_freq=0 out_dir=demo
sed -E 's/,"flops":[^}]*\}/}/' demo/trace.json >bare.json

# adds_up FILE: in each table, the shares of all rows but the step's add up to 100 %, but for their rounding.
adds_up() {
    awk -F'|' '
        function done() {
            if (rows > 0 && (sum > 100 + 0.05 * rows || sum < 100 - 0.05 * rows)) { print "shares: " sum; bad = 1 }
            tables += rows > 0; rows = sum = 0
        }
        !/^\|/ { done(); column = 0; next }
        column == 0 { for (i = 1; i <= NF; i++) if ($i == " share ") column = i; next }
        /^\| \*\*step/ || /^\|---/ { next }
        { sum += $column; rows++ }
        END { done(); exit bad || tables != 2 }' "$1" || fail "$1: the parts do not add up"
    grep -vE '^## ' "$1" | grep -iqE '\b(nan|inf)\b' && fail "$1: not all figures are numbers"
    return 0
}

expect 0 "$profile" --threads 2 --json page.json demo/trace.json
adds_up out
says out "## demo (bf16)"
says out "now: 3 steps of"
says out "| **step** | | |"
for row in "backward | mlp.up | matmul wgrad | 4" "backward | mlp.up | matmul dgrad | 4" "forward | attention | attention_forward | 4"; do
    says out "| $row |"
done
# The JSON's figures are not rounded: the rows' milliseconds are the step's.
grep -oE '"(ms|share)":[-0-9.e+]+' page.json | awk -F: '
    NR == 1 { step = $2 }                     # the step comes first, then the classes, then the rows
    NR > 2 && $1 ~ /ms/ { ms += $2 }
    NR > 2 && $1 ~ /share/ { share += $2 }
    END { exit !(ms > 1.999999 * step && ms < 2.000001 * step && share > 1.999999 && share < 2.000001) }' ||
    fail "the JSON's classes and rows do not add up to its step"
grep -q 'null' page.json && fail "the JSON holds what is no number"

# Compared with itself.
sed -nE 's/^\| ([^|]*\| [^|]*\| [^|]*)\|.*/\1/p' out | sort >rows
expect 0 "$profile" --threads 2 --before demo/trace.json demo/trace.json
adds_up out
says out "| before, ms | before / now |"
sed -nE 's/^\| ([^|]*\| [^|]*\| [^|]*)\|.*/\1/p' out | grep -v '^class' | sort >compared
grep '^\(forward\|backward\|head\)' rows >a
grep '^\(forward\|backward\|head\)' compared >b
same a b
awk -F'|' '/^\| / && $NF == "" && $(NF - 1) ~ /[0-9]/ && $(NF - 1) != " 1.00 " { print; bad = 1 } END { exit bad }' out ||
    fail "the trace is not the same as itself"
for arguments in "bare.json" "--before bare.json demo/trace.json"; do
    # shellcheck disable=SC2086
    expect 1 "$profile" $arguments
    says err "bare.json does not say what operations cost"
done
expect 1 "$profile"
says err "which trace?"
expect 1 "$profile" --fast demo/trace.json
says err "--fast is not known"
expect 1 "$profile" none.json
says err "none.json"
printf '{"traceEvents":[]}' >empty.json
expect 1 "$profile" empty.json
says err "no optimizer step is in it"
finish
