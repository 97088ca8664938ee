#!/bin/bash
# SPDX-License-Identifier: MIT
# trainer compare --front: what is refused, what is said before the first run, the whole default table with a kill in the
# middle, fronts against a brute force over compare.json, points by name, what adapters are compared by.
. "$(dirname "$0")/lib.sh"
tiny_tasks
# As short as a run may be: nearly all of its time is its start.
quick=(max_steps=4 evaluation.batches=1 evaluation.every=0 evaluation.items=0 checkpoint_freq=0 logging.tensorboard=false threads=1)

refused() { # TEXT OPTIONS...: exit code 2 before anything is made
    local text=$1
    shift
    expect 2 "$trainer" compare --config tasks.yaml --front "$@"
    says err "$text"
    [ ! -d run-compare ] || fail "a refused front left a folder: $*"
}
refused "leave out --eta, --rungs and --full" --eta 2
refused "leave out --eta, --rungs and --full" --grid learning_rate=1e-3 --full
refused "--front's table lists strategies" continual.strategy=er
refused "--strategies lists strategies" --strategies none,er continual.strategy=er
refused "did you mean" --strategies er:replay.fractoin=0.1
tiny_config
expect 2 "$trainer" compare --config tiny.yaml --front
says err "needs at least two tasks"

# what_is KEY FILE: of each point in compare.json its KEY, in their order.
what_is() {
    sed -n '/"points":/,$p' "$2" | sed -nE "s/.*\"$1\":[ \t]*\"?([^\",]*)\"?,?\$/\1/p"
}

# check_fronts FILE: each point's place by comparing it with each other one.
check_fronts() {
    paste -d' ' <(what_is learned "$1") <(what_is forgotten "$1") <(what_is text_kept "$1") <(what_is on_front "$1") \
        <(what_is on_front_without_text "$1") <(what_is dominated_by "$1") | awk '
        { l[NR] = $1; f[NR] = $2; text[NR] = $3; all[NR] = $4; own[NR] = $5; by[NR] = $6 }
        function better(a, b) { return text[a] != "all" && l[a] <= l[b] && f[a] <= f[b] && (l[a] < l[b] || f[a] < f[b]) }
        END {
            for (i = 1; i <= NR; i++) {
                if (text[i] == "all")
                    continue
                any = same = 0
                for (k = 1; k <= NR; k++)
                    if (better(k, i)) {
                        any = 1
                        if (text[k] == "none" || text[i] == "sample")
                            same = 1
                    }
                if (all[i] != (any ? "false" : "true") || own[i] != (!same && text[i] == "none" ? "true" : "false") ||
                    (by[i] != "null") != same) { print "point " i " is elsewhere: " l[i], f[i], text[i], all[i], own[i], by[i]; bad = 1 }
                dominated += same
            }
            if (NR < 3 || dominated == 0) { print NR " points, " dominated " dominated"; bad = 1 }
            exit bad
        }' || fail "the fronts in $1 are others"
}

# --- the whole table, killed in the middle ---
table=(compare --config tasks.yaml --front --out table "${quick[@]}")
"$trainer" "${table[@]}" >out 2>err &
pid=$!
for _ in $(seq 1000); do
    grep -q "run 3 of 39" err && break
    sleep 0.01
done
{ kill -KILL $pid && wait $pid; } 2>/dev/null
says err "left out of the front: mer:replay.fraction=0.25:mer.gamma=0.5 is mer:replay.fraction=0.25 in this configuration"
says err "the front: 39 points, 1 seed: 39 runs, of which 0 are finished and 39 are to be trained"
says err "by the planner, at the rates that this device measures"
awk '/by the planner, at the rates/ { said = NR } /run 1 of/ && !said { exit 1 }' err || fail "runs and hours were not said first"
grep -qE "run 3 of 39: .*; about .* left\)" err || fail "a run's end does not say how long the others take"
expect 0 "$trainer" "${table[@]}"
grep -qE "of which ([3-9]|[12][0-9]) are finished and" err || fail "what was finished is not said: $(grep 'the front' err)"
says err "by the times of the finished runs"
[ "$(grep -c "finished before" err)" -ge 3 ] || fail "finished runs were trained again"
check_fronts table/compare.json
for text in "the front, from what forgets least to what learns best:" "the front of what keeps no text:" \
    " is dominated by " "one run a point"; do says out "$text"; done
[ "$(grep -c "<title>" table/compare.html)" -ge 39 ] || fail "compare.html has no chart"
grep -qE '(src|href)="?https?:' table/compare.html && fail "compare.html asks the network for something"
for what in short_name sequences text_share numbers_per_parameter trainable_parameters share_closed; do
    [ "$(what_is $what table/compare.json | grep -vc null)" -ge 35 ] || fail "$what is not in compare.json"
done
# Figures by another way: 24 sequences of 32 tokens; EWC's importance and anchor over parameters; joint closes all.
grep -E '^. er 0.1 ' out | grep -q " 24, [0-9.]*% " || fail "the sample of er is not 24 sequences"
grep -E '^. l2  ' out | awk '{ exit $8 != "1.0" }' || fail "l2 keeps one number a parameter: $(grep '^. l2  ' out)"
grep -E '^. joint ' out | grep -q " 100% " || fail "joint closes all of the distance"
# Nothing is trained twice, and the same figures are written.
cp out first.out
cp table/compare.json first.json
stat -c '%n %y' table/*/metrics.jsonl >before
expect 0 "$trainer" "${table[@]}"
stat -c '%n %y' table/*/metrics.jsonl >after
same before after
same first.out out
same first.json table/compare.json

# --- points by name: exactly those; a rate at which nothing is learned is dominated ---
named=(compare --config tasks.yaml --front --strategies none,er:replay.fraction=0.5,er:replay.fraction=0.5:learning_rate=1e-7 --seeds 2 --out named
    "${quick[@]}" max_steps=12)
expect 0 "$trainer" "${named[@]}"
says err "the front: 3 points, 2 seeds: 6 runs"
grep -qE "^er learning_rate 1e-7 is dominated by (none|er), which learns [0-9.]+ nats better and forgets [0-9.]+ less" out ||
    fail "a rate at which nothing is learned is not dominated: $(tail -n 5 out)"
check_fronts named/compare.json
# What was forgotten, by the run's own matrix: the mean over seeds of the first tasks' rises.
for seed in 7 8; do
    grep '"event":"matrix"' named/none-seed$seed/metrics.jsonl | tail -n 1 | grep -oE '"losses":\[\[[^"]*' | tr -d '[]' |
        sed 's/"losses"://' | tr ',' ' ' | awk '{ print ($7 - $1 + $8 - $5) / 2 }'
done | awk '{ sum += $1 } END { printf "%.3f\n", sum / NR }' >wanted
what_is forgotten named/compare.json | head -n 1 | awk '{ printf "%.3f\n", $1 }' >got
same wanted got
# Every combination of --strategies and --grid is a point, at full length.
expect 0 "$trainer" compare --config tasks.yaml --front --strategies none,er --grid learning_rate=1e-3,1e-2 --out product "${quick[@]}"
says err "the front: 4 points"
says out "er learning_rate 1e-2"

# --- adapters: their own table, and parameters that are trained ---
adapters=(adapter.kind=lora adapter.rank=2 adapter.alpha=4)
expect 0 "$trainer" compare --config tasks.yaml --front --out adapters "${quick[@]}" "${adapters[@]}" \
    --strategies none,none:adapter.rank=8,er:adapter.targets=attention,o-lora,joint
[ "$(what_is trainable_parameters adapters/compare.json | head -n 2 | awk 'NR == 1 { a = $1 } NR == 2 { print $1 / a }')" = 4 ] ||
    fail "four times the rank has not four times the parameters: $(what_is trainable_parameters adapters/compare.json)"
finish
