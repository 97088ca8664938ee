#!/bin/bash
# SPDX-License-Identifier: MIT
# growing.sh: runs over two tasks, killed COUNT times in all (360) before drawn system calls, to which a third task is
# appended: when they are finished, and killed on; or at the moment of a kill.  The end must equal that of the run which
# had three tasks from the start (continual.schedule fresh: a held rate comes down in the last task): checkpoint and record, but for the rows of the matrix.  SEED=N draws other moments.
count=${COUNT:-360}
RANDOM=${SEED:-1}
. "$(dirname "$0")/lib.sh"
small_configs
cp two.yaml three.yaml
sed -i '/name: words/a\  - {name: more, train: more.txt, validation: 30%, steps: 4}' three.yaml
tr 5 6 <sums.txt >more.txt
configurations=(
    "none: "
    "er, fp16: continual.strategy=er precision.mode=fp16 precision.init_scale=1e13 precision.growth_interval=6"
    "ewc, mer: device=cpu continual.strategy=[ewc,mer] precision.mode=bf16"
    "ewc separate, a-gem: continual.strategy=[ewc,a-gem] ewc.mode=separate gradient_accumulation_steps=2"
    "si, er: continual.strategy=[si,er] model.family=llama"
    "l2, reptile: continual.strategy=[l2,mer] mer.mode=reptile mer.groups=1"
)
total=0 compared=0 wrong_before=0

steps() {
    record run | grep -vE '"event":"(matrix|changed)"' | sed -E 's/,"rate_strength_maximum":[^,]*//'
}
# All that was trained: the matrix has empty cells, and with them the record another length.
end_of_run() {
    local folder
    folder=run/checkpoints/$(cat run/checkpoints/latest)
    steps
    grep -vE '"(jsonl|tensorboard)_bytes"' "$folder/trainer.json" | sed '/"matrix_untrained"/,$d'
    tensors run | grep -v trainer.json
    cat run/checkpoints/best*
}

# start CONFIG [CALL]: killed before that call, if it comes to it; exit code in `code`.
start() {
    LD_PRELOAD=$shim FAULT_KINDS=calls FAULT_AT=${2:-0} FAULT_HOW=kill "$trainer" --config "$1" "${arguments[@]}" >out 2>err </dev/null &
    wait $! 2>/dev/null
    code=$?
    case $code in
    137) total=$((total + 1)) ;;
    0) ;;
    *) fail "$name: exit code $code: $(tail -n 1 err)" ;;
    esac
}

# killed CONFIG KILLS: KILLS at most, fewer when the run comes to its end.
killed() {
    local i
    for ((i = 0; i < $2; i++)); do
        start "$1" $((RANDOM % (calls / 2) + 1))
        [ $code = 137 ] || return
    done
}

for row in "${configurations[@]}"; do
    name=${row%%: *}
    read -ra arguments <<<"keep_best=true checkpoint_freq=1 evaluation.every=2 continual.schedule=fresh ${row#*: }"
    rm -rf run
    LD_PRELOAD=$shim FAULT_KINDS=calls FAULT_REPORT=calls "$trainer" --config three.yaml "${arguments[@]}" >out 2>err ||
        fail "$name: undisturbed: $(tail -n 1 err)"
    calls=$(sed -n 's/^all //p' calls)
    expected=$(end_of_run)
    before=$total
    for ((turn = 0; total - before < count / ${#configurations[@]} && turn < 8 * count; turn++)); do
        rm -rf run
        killed two.yaml $((RANDOM % 3 + 1))
        [ $((turn % 2)) = 1 ] || start two.yaml
        killed three.yaml $((RANDOM % 3 + 1))
        start three.yaml
        left=$(end_of_run 2>&1)
        compared=$((compared + 1))
        [ "$left" = "$expected" ] || {
            fail "$name: another end than that of three tasks (SEED=${SEED:-1})"
            diff <(echo "$expected") <(echo "$left") | head -n 5
        }
        [ -z "$(find run/checkpoints -name '.tmp-*')" ] || fail "$name: temporary folders are left"
    done
    echo "  $name: $((total - before)) kills, $((failures - wrong_before)) differences"
    wrong_before=$failures
done
echo "growing: $total kills of ${#configurations[@]} configurations that grew, $compared ends compared, $failures differences"
finish
