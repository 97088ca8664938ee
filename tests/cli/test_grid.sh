#!/bin/bash
# SPDX-License-Identifier: MIT
# trainer compare --grid: what is refused, the search against the full grid, interruptions of every kind, several runs at
# a time, runs that diverge or fail, streams of tasks with several strategies.
. "$(dirname "$0")/lib.sh"
tiny_config
tiny_tasks

# refused TEXT OPTIONS...: exit code 2 before anything is made.
refused() {
    local text=$1
    shift
    expect 2 "$trainer" compare --config tiny.yaml "$@"
    says err "$text"
    [ ! -d run-compare ] || fail "a refused search left a folder: $*"
}
refused "did you mean learning_rate?" --grid lerning_rate=1e-3,1e-2
refused "learning_rate must be a finite number (got fast)" --grid learning_rate=1e-3,fast
refused "model.layers must be at least 1 (got 0)" --grid model.layers=1,0
refused "model.width (32) must be a multiple of model.heads (3)" --grid model.heads=2,3 --grid model.layers=1,2
refused "KEY=VALUE,VALUE" --grid learning_rate
refused "between two commas" --grid learning_rate=1e-3,,1e-2
refused "twice" --grid learning_rate=1e-3,1e-3
refused "given twice" --grid learning_rate=1e-3 --grid learning_rate=1e-2
refused "--seeds" --grid seed=1,2
refused "out_dir" --grid out_dir=a,b
refused "continual.strategy?" --grid strategy=er
refused "at least two tasks" --grid learning_rate=1e-3 --strategies none
refused "tasks.0.validation is 0%" --grid learning_rate=1e-3 tasks.0.validation=0%
refused "are for --grid" --eta 3
refused "leave out --eta and --rungs" --grid learning_rate=1e-3 --full --rungs 2
refused "lower one of them" --grid learning_rate=1e-3 --rungs 10 --eta 10
expect 2 "$trainer" compare --config tasks.yaml --strategies er:replay.buffer_size=8 --grid replay.buffer_size=4,8
says err "leave one out"
expect 2 "$trainer" compare --config tasks.yaml --strategies er,none --grid continual.strategy=er
says err "leave one out"

# --- strategies joined by plus signs, everywhere ---
expect 0 "$trainer" --config tasks.yaml continual.strategy=ewc+er --print-config
says out "strategy: [ewc, er]"
sed 's/strategy: none/strategy: l2+a-gem/' tasks.yaml >joined.yaml
expect 0 "$trainer" --config joined.yaml --print-config
says out "strategy: [l2, a-gem]"
expect 2 "$trainer" --config tasks.yaml continual.strategy=er+ewcc
says err "(got ewcc); did you mean ewc?"
expect 2 "$trainer" --config tasks.yaml continual.strategy=er+
says err "joined by +"

# --- the rate's first guess is the rule's, as train.size has it ---
wide="model.family=llama model.layers=2 model.width=64 model.heads=2 batch_size=16 max_length=64 max_steps=60 optimizer.kind=muon"
# shellcheck disable=SC2086
expect 0 "$trainer" --print-config --config tiny.yaml $wide
# shellcheck disable=SC2086
rate=$("$trainer" --print-config train.size=100k $wide | sed -n 's/^learning_rate: //p')
# shellcheck disable=SC2086
expect 0 "$trainer" compare --config tiny.yaml $wide --grid learning_rate=auto --out auto schedule.warmup_steps=3
says err "--grid learning_rate=$rate,"
says err "the first is the rule's for width 64, 60 steps and muon; of matrices, 1.7e-2"
says err "a factor of sqrt 2 apart, as the rule was measured"
says err "every run has the full length"
ls -d auto/learning_rate=*-seed7 | sed -E 's/.*=(.*)-seed7/\1/' | sort -g | awk '{ rate[NR] = $1 }
    END { for (i = 1; i < NR; i++) if (rate[i + 1] / rate[i] < 1.35 || rate[i + 1] / rate[i] > 1.48) exit 1; exit NR != 5 }' ||
    fail "not five rates, sqrt 2 apart: $(ls auto)"
expect 0 "$trainer" compare --config tiny.yaml --grid learning_rate=auto --rungs 2 --out auto2
says err "a factor of 2 apart, as the rule is carried on"
[ "$(ls -d auto2/*-1of3-seed7 | wc -l)" = 5 ] || fail "--rungs was not heard"
refused "there is a rule for the rate of muon and of adamw, and none for optimizer.kind: sgd" --grid learning_rate=auto optimizer.kind=sgd
refused "learning_rate must be a finite number (got auto)" --grid learning_rate=auto,1e-3

# --- the search finds what the full grid finds ---
grid=(--config tiny.yaml --grid learning_rate=1e-6,1e-2,1e-4,1e-5,3e-5,1e-3 --grid "optimizer.betas=[0.9, 0.95],[0.8, 0.9]")
expect 0 "$trainer" compare "${grid[@]}" --rungs 3 --out search --jobs 1
says out "dropped at rung 1"
says out "lower is better"
says out "trained: 3.67 runs of full length a seed, the whole grid is 12"
says out "learning_rate: 0.01"
says out "or for a command line: learning_rate=1e-2 'optimizer.betas="
cp out search.out
[ "$(ls -d search/*-1of9-seed7 | wc -l)" = 12 ] || fail "twelve short runs expected: $(ls search)"
[ "$(ls -d search/*-1of3-seed7 | wc -l)" = 4 ] || fail "four longer runs expected: $(ls search)"
expect 0 "$trainer" compare "${grid[@]}" --full --out full
for what in name yaml overrides; do
    best() { sed -n '/"best"/,$p' "$1/compare.json" | grep "\"$what\""; }
    [ "$(best search)" = "$(best full)" ] || fail "the search's $what: $(best search), the grid's: $(best full)"
done
grep -qE '(src|href)="?https?:' search/compare.html && fail "compare.html asks the network for something"
for text in "Best combination" "dropped at rung 2" "lower is better" "(best)"; do says search/compare.html "$text"; done
# A short run is a separate run with a schedule that ends where it ends, and not the beginning of a long one.
short=(search/*1e-2*0.9_*0.95*-1of9-seed7)
expect 0 "$trainer" --config tiny.yaml learning_rate=1e-2 max_steps=3 schedule.warmup_steps=1 out_dir=alone
bits alone >alone.bits
bits "${short[0]}" >short.bits
grep -v trainer.json alone.bits >a
grep -v trainer.json short.bits >b
same a b

# Left to itself it does not make runs of 24 steps shorter.
expect 0 "$trainer" compare "${grid[@]}" --out full
says err "runs are short already (24 steps): 1 rung"
says out "the whole grid is 12"

# --- once more: nothing is trained twice, and a larger grid adds what it lacks ---
stamps() { (cd "$1" && stat -c '%n %y' ./*/checkpoints/step-*/*); }
stamps search >before
expect 0 "$trainer" compare "${grid[@]}" --rungs 3 --out search
same search.out out
stamps search >after
same before after
cp search/compare.json search.json
expect 0 "$trainer" compare "${grid[@]}" --rungs 3 --grid weight_decay=0.1 --out search
expect 0 "$trainer" compare --rungs 3 "${grid[@]/3e-5,1e-3/3e-5,1e-3,2e-2}" --out search
[ "$(ls -d search/*=2e-2*-1of9-seed7 | wc -l)" = 2 ] || fail "two more short runs expected"
expect 2 "$trainer" compare "${grid[@]}" --rungs 3 --out search max_steps=36
says err "was made for another length"

# --- several at a time: the same bytes ---
expect 0 "$trainer" compare "${grid[@]}" --rungs 3 --out both --jobs 2
same search.json both/compare.json
sed 's/both/search/g' out >both.out
same search.out both.out

# --- interrupted, in order and not: the same bytes ---
wait_for() { # FILE PROCESS
    for _ in $(seq 1000); do
        [ -s "$1" ] && return
        sleep 0.01
    done
    fail "$1 did not appear"
}
gone() { # PATTERN: no process works on it any more
    for _ in $(seq 300); do
        pgrep -f "$1" >/dev/null || return
        sleep 0.1
    done
    fail "a run outlived its comparison: $(pgrep -fa "$1")"
}
for signal in TERM KILL INT; do
    rm -rf stopped
    "$trainer" compare "${grid[@]}" --rungs 3 --out "$PWD/stopped" --jobs 2 >out 2>err &
    pid=$!
    wait_for stopped/learning_rate=1e-6_optimizer.betas=_0.8__0.9_-1of9-seed7/checkpoints/latest
    kill -$signal $pid
    wait $pid 2>/dev/null
    code=$?
    case $signal in
    TERM) [ $code = 143 ] && says err "stopped by SIGTERM" || fail "SIGTERM: exit code $code" ;;
    INT) [ $code = 130 ] || [ $code = 0 ] || fail "SIGINT: exit code $code" ;; # a script's background jobs ignore it
    esac
    expect 0 "$trainer" compare "${grid[@]}" --rungs 3 --out "$PWD/stopped" --jobs 2
    same search.json stopped/compare.json
    gone "$PWD/stopped/"
done

# --- a run that diverges ranks last ---
wild="precision.mode=fp16 optimizer.clip_norm=0 model.init_std=1 max_steps=6"
# shellcheck disable=SC2086
expect 0 "$trainer" compare --config tiny.yaml --grid learning_rate=900,1e-3 --out wild $wild
says err "learning_rate=900, seed 7: diverged, which counts as infinitely bad"
sed -n 3p out | grep -q '^learning_rate=900 *diverged' || fail "the diverged run is not the last row"
grep -qE "\"diverged\":\s*true" wild/compare.json || fail "compare.json does not say that a run diverged"
expect 0 "$trainer" report --run wild/learning_rate=900-seed7
says wild/learning_rate=900-seed7/report.html diverged
# shellcheck disable=SC2086
expect 1 "$trainer" compare --config tiny.yaml --grid learning_rate=900,901 --out wilder $wild
says err "every combination diverged"

# --- a run that fails is named, with its reason, and the others end ---
expect 1 "$trainer" compare --config tiny.yaml --grid tasks.0.train=nowhere.txt,synthetic:mixture --out failing --jobs 2
says err "failing/tasks.0.train=nowhere.txt-seed7"
says err "nowhere.txt"
gone "failing/tasks"
# A length that comes to no step at all.
expect 2 "$trainer" compare --config tiny.yaml --grid learning_rate=1e-3,1e-2,1e-4 max_steps=0 tasks.0.tokens=200 --rungs 2 --out short
says err "fewer --rungs"

# --- a stream, with strategies as one of the keys, over seeds ---
stream=(--config tasks.yaml --strategies none,ewc+er --grid learning_rate=3e-3,1e-5 --seeds 2 --rungs 2)
expect 0 "$trainer" compare "${stream[@]}" --out stream
says out "retained loss in nats a token, lower is better, mean +- standard deviation over seeds"
says out "strategy:"
says out "none:learning_rate=1e-5"
[ "$(ls -d stream/*-1of3-seed[78] | wc -l)" = 8 ] || fail "eight short runs expected: $(ls stream)"
# The mean over seeds of the matrices' last rows.
best=$(sed -n '/"best"/,$p' stream/compare.json | sed -nE 's/.*"name":.*"(.*)".*/\1/p' | tr ':' '_')
for seed in 7 8; do
    grep '"event":"matrix"' "stream/$best-seed$seed/metrics.jsonl" | tail -n 1 | sed -E 's/.*"retained":([0-9.e-]+).*/\1/'
done | awk '{ sum += $1 } END { printf "%.9f\n", sum / 2 }' >mean
sed -n '/"best"/,$p' stream/compare.json | sed -nE 's/.*"loss":[^0-9]*([0-9.]+).*/\1/p' | awk '{ printf "%.9f\n", $1 }' >best.loss
same mean best.loss
finish
