#!/bin/bash
# SPDX-License-Identifier: MIT
# kills.sh: SIGKILL, COUNT in all (1040), spread over ten configurations: before the n-th system call (n is drawn, and
# known afterwards) and after some milliseconds.  Each run is killed, started again, killed again, until it comes to
# its end; its record and its final checkpoint must then equal an undisturbed run's, byte for byte (times excepted).
# SEED=N draws other moments.
count=${COUNT:-1040}
RANDOM=${SEED:-1}
. "$(dirname "$0")/lib.sh"
small_configs
longer="max_steps=30 logging.every=1 evaluation.every=7 keep_best=true"
tasks="keep_best=true tasks.0.steps=12 tasks.1.steps=12 checkpoint_freq=2 evaluation.every=4 evaluation.all_tasks_every=3"
"$trainer" tokenizer train --output bpe.json --vocabulary 280 words.jsonl >out 2>err || fail "tokenizer: $(tail -n 1 err)"
token_file 400 >tokens.bin

configurations=(
    "fp32: one.yaml $longer"
    "bf16: one.yaml $longer device=cpu precision.mode=bf16 checkpoint_freq=2 keep_checkpoints=1"
    "fp16, steps skipped: one.yaml $longer precision.mode=fp16 precision.init_scale=1e13 precision.growth_interval=6"
    "accumulation, recompute: one.yaml $longer device=cpu threads=2 gradient_accumulation_steps=3 memory.recompute=block keep_checkpoints=5 checkpoint_freq=3"
    "bpe: one.yaml $longer tokenizer.kind=bpe tokenizer.path=bpe.json tasks.0.train=words.jsonl"
    "packed tokens: one.yaml $longer tokenizer.kind=byte tasks.0.train=tokens.bin"
    "ewc: two.yaml $tasks continual.strategy=ewc ewc.fisher_samples=8"
    "ewc, factors: two.yaml $tasks continual.strategy=ewc ewc.curvature=kronecker ewc.block_size=24 ewc.fisher_samples=8"
    "ewc, mer: two.yaml $tasks device=cpu continual.strategy=[ewc,mer] precision.mode=bf16"
    "a-gem: two.yaml $tasks continual.strategy=a-gem"
    "si, er: two.yaml $tasks continual.strategy=[si,er] model.family=llama"
)
total=0 resumed=0 compared=0 wrong_before=0

# One run, killed by the way that is asked for; whether it came to its end is in `ended`.
by_call() { # KINDS are all system calls; a number beyond the last of them lets the run end
    LD_PRELOAD=$shim FAULT_KINDS=calls FAULT_AT=$1 FAULT_HOW=kill "$trainer" "${arguments[@]}" >out 2>err </dev/null &
    wait $! 2>/dev/null
    code=$?
}
by_time() {
    "$trainer" "${arguments[@]}" >out 2>err </dev/null &
    local pid=$!
    sleep "$(printf '0.%03d' $1)"
    kill -9 $pid 2>/dev/null
    wait $pid 2>/dev/null
    code=$?
}

# What the best checkpoint is called besides.
all_bits() {
    bits run
    cat run/checkpoints/best*
}

compare() {
    left=$(all_bits 2>&1)
    compared=$((compared + 1))
    [ "$left" = "$expected" ] || {
        fail "$name: another end after $here kills (SEED=${SEED:-1})"
        diff <(echo "$expected") <(echo "$left") | head -n 5
    }
    [ -z "$(find run/checkpoints -name '.tmp-*')" ] || fail "$name: temporary folders are left"
    rm -rf run
}

each=$(((count + ${#configurations[@]} - 1) / ${#configurations[@]}))
for row in "${configurations[@]}"; do
    name=${row%%: *}
    read -ra arguments <<<"--config ${row#*: }"
    rm -rf run
    began=${EPOCHREALTIME/./}
    LD_PRELOAD=$shim FAULT_KINDS=calls FAULT_REPORT=calls "$trainer" "${arguments[@]}" >out 2>err ||
        fail "$name: undisturbed: $(tail -n 1 err)"
    calls=$(sed -n 's/^all //p' calls)
    whole_ms=$(((${EPOCHREALTIME/./} - began) / 1000))
    expected=$(all_bits)
    rm -rf run
    here=0 starts=0
    while [ $here -lt "$each" ] && [ $starts -lt $((each * 8)) ]; do
        starts=$((starts + 1))
        # Early moments, mostly, so that many kills go into one run; some of them are late.
        if [ $((starts % 4)) = 0 ]; then
            by_time $((RANDOM % (whole_ms * 2 / 3 + 2) + 1))
        else
            by_call $((RANDOM * 32768 % (calls * 3 / 4) + RANDOM % calls / 4 + 1))
        fi
        case $code in
        137) here=$((here + 1)) ;;
        0) compare ;;
        *)
            fail "$name: exit code $code after $here kills: $(tail -n 1 err)"
            rm -rf run
            ;;
        esac
        grep -q '^info: continuing from' err && resumed=$((resumed + 1))
    done
    "$trainer" "${arguments[@]}" >out 2>err || fail "$name: the last start: $(tail -n 1 err)"
    compare
    total=$((total + here))
    echo "  $name: $here kills in $starts starts, $((failures - wrong_before)) differences"
    wrong_before=$failures
done
echo "kills: $total kills of ${#configurations[@]} configurations, $resumed resumed, $compared ends compared, $failures differences"
finish
