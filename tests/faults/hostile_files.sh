#!/bin/bash
# SPDX-License-Identifier: MIT
# hostile_files.sh: COUNT damaged or hostile files (1600) in place of every file that the program reads: cut off, with
# bits turned, bytes put in, huge numbers, deep nesting, another file's content, folders, FIFOs, links in a circle,
# devices.  No crash, no wait of ten seconds, no more than a gigabyte of address space; an error names the file.  A file
# that a checksum covers is refused, or passed over with a warning that names it, and the run comes to the undisturbed
# end; any other may be another good file.
count=${COUNT:-1600}
RANDOM=${SEED:-1}
. "$(dirname "$0")/lib.sh"
small_configs
"$trainer" tokenizer train --output bpe.json --vocabulary 280 words.jsonl >out 2>err || fail "tokenizer: $(tail -n 1 err)"
token_file 400 >tokens.bin
"$trainer" selftest --device emu --tune table.tune --config one.yaml >out 2>err || fail "tuning: $(tail -n 1 err)"
mkdir originals && cp -- *.yaml *.json* *.txt* *.csv *.bin originals
# Two whole checkpoints, the latest of which is in the middle; and the end that a run comes to from there.
"$trainer" --config two.yaml continual.strategy=[ewc,er] max_steps=3 >out 2>err || fail "whole: $(tail -n 1 err)"
mkdir fixtures
mv run fixtures/whole
LD_PRELOAD=$shim FAULT_KINDS=rename FAULT_AT=12 FAULT_HOW=kill \
    "$trainer" --config two.yaml continual.strategy=[ewc,er] >out 2>err &
wait $! 2>/dev/null
step=$(cat run/checkpoints/latest)
mv run fixtures/half
expected=$(cd fixtures && bits whole)

# Sources come last: the ends of checkpoints name the times that these had.
# file | what covers it: sealed by checksums, or open | folder it starts from | arguments
roles=(
    "run/metrics.jsonl|open|whole|report --run run"
    "run/run.json|open|whole|report --run run"
)
for member in trainer.json model.safetensors optimizer.safetensors continual.safetensors tokenizer.json config.yaml; do
    roles+=("run/checkpoints/$step/$member|sealed|half|--config two.yaml continual.strategy=[ewc,er]"
        "run/checkpoints/$step/$member|alone|half|inspect --checkpoint run/checkpoints/$step")
done
roles+=(
    "run/checkpoints/$step/checksums.json|sealed|half|--config two.yaml continual.strategy=[ewc,er]"
    "run/checkpoints/$step/checksums.json|open|half|inspect --checkpoint run/checkpoints/$step"
    "run/checkpoints/latest|sealed|half|--config two.yaml continual.strategy=[ewc,er]"
    "run/metrics.jsonl|open|half|--config two.yaml continual.strategy=[ewc,er]"
    "one.yaml|open|-|--config one.yaml max_steps=1"
    "bpe.json|open|-|--config one.yaml max_steps=1 tokenizer.kind=bpe tokenizer.path=bpe.json tasks.0.train=words.jsonl"
    "sums.txt|open|-|--config one.yaml max_steps=1"
    "words.jsonl|open|-|--config one.yaml max_steps=1 tasks.0.train=words.jsonl"
    "list.json|open|-|--config one.yaml max_steps=1 tasks.0.train=list.json"
    "table.csv|open|-|--config one.yaml max_steps=1 tasks.0.train=table.csv"
    "sums.txt.gz|open|-|--config one.yaml max_steps=1 tasks.0.train=sums.txt.gz"
    "words.jsonl.zst|open|-|--config one.yaml max_steps=1 tasks.0.train=words.jsonl.zst"
    "tokens.bin|open|-|--config one.yaml max_steps=1 tokenizer.kind=byte tasks.0.train=tokens.bin"
    "table.tune|open|-|--config one.yaml max_steps=1 device=emu kernels.tuning=table.tune"
)

# What is done to a file, one a line; $1 places of each kind that has places.
ops() {
    local size=$2 k
    for ((k = 0; k < 2 * $1; k++)); do echo "cut $((k * size / (2 * $1)))"; done
    for ((k = 0; k < 2 * $1; k++)); do echo "flip $((RANDOM * 32768 % size)) $((k % 8))"; done
    for ((k = 0; k < $1; k++)); do
        for byte in 00 ff 22 5b 0a; do echo "put $((RANDOM * 32768 % size)) $byte"; done
        for value in 99999999999999999999 -1 1e999 0; do echo "number $k $value"; done
    done
    printf '%s\n' "nest [" 'nest {"a":' empty blank noise twice "head ff" "head 00" "swap one.yaml" "swap words.jsonl" \
        "swap sums.txt.gz" "swap tokens.bin" "swap bpe.json" folder fifo circle dangling \
        "device /dev/zero" "device /dev/null" closed
}

# spoil GOOD BAD OP ARGUMENT...: the file BAD, which is not there.
spoil() {
    local good=$1 bad=$2
    case $3 in
    cut) head -c "$4" "$good" >"$bad" ;;
    flip)
        local byte
        byte=$(od -An -tu1 -j "$4" -N 1 "$good")
        cp "$good" "$bad"
        printf "\\x$(printf %02x $((byte ^ 1 << $5)))" | dd of="$bad" bs=1 seek="$4" conv=notrunc status=none
        ;;
    put) { head -c "$4" "$good"; printf "\\x$5"; tail -c +$(($4 + 1)) "$good"; } >"$bad" ;;
    number) LC_ALL=C sed -z "s/[0-9][0-9]*/$5/$(($4 + 1))" "$good" >"$bad" ;;
    nest) yes "$4" | head -n 100000 | tr -d '\n' >"$bad" ;;
    empty) : >"$bad" ;;
    blank) printf '\n \t\n\n' >"$bad" ;;
    noise) for ((i = 0; i < 300; i++)); do printf "\\x$(printf %02x $((RANDOM % 256)))"; done >"$bad" ;;
    twice) cat "$good" "$good" >"$bad" ;;
    head) { for ((i = 0; i < 8; i++)); do printf "\\x$4"; done; tail -c +9 "$good"; } >"$bad" ;;
    swap) cp "originals/$4" "$bad" ;;
    folder) mkdir "$bad" ;;
    fifo) mkfifo "$bad" ;;
    circle) ln -s "$(basename "$bad")" "$bad" ;;
    dangling) ln -s nowhere "$bad" ;;
    device) ln -s "$4" "$bad" ;;
    closed) cp "$good" "$bad" && chmod 000 "$bad" ;;
    esac
}

refused=0 passed_over=0 harmless=0
# The end of a run over a hostile file.
judge() {
    local what="$file, $op" base=${file##*/}
    case $code in
    0)
        if [ "$covers" = alone ]; then
            fail "$what: taken for good"
        elif [ "$covers" = sealed ] && [ "$(bits run 2>&1 | sed '/"event":"checkpoint"/d')" != "$(sed '/"event":"checkpoint"/d' <<<"$expected")" ]; then
            fail "$what: another end: $(grep -m 1 warning err)"
        elif [ "$covers" = sealed ] && grep -q "^warning: .*checkpoint" err; then
            passed_over=$((passed_over + 1))
        else
            harmless=$((harmless + 1))
        fi
        ;;
    1 | 2)
        # A damaged file may also name another one, which is not there.
        if grep -q "^error: .*${base%.*}" err || grep -q "^error: .*: No such file or directory$" err; then
            refused=$((refused + 1))
        else
            fail "$what: the message does not name the file: $(tail -n 1 err)"
        fi
        ;;
    124) fail "$what: no end within ten seconds" ;;
    *) fail "$what: exit code $code: $(tail -n 1 err)" ;;
    esac
}

places=$(((count / ${#roles[@]} - 8) / 13))
[ "$places" -ge 1 ] || places=1
total=0
every=$((${#roles[@]} * (13 * places + 20) / count)) # a small COUNT takes one in $every
[ "$every" -ge 1 ] || every=1
turn=0
for role in "${roles[@]}"; do
    IFS='|' read -r file covers from arguments <<<"$role"
    read -ra arguments <<<"$arguments"
    good=$file
    [ "$from" = - ] || good=fixtures/$from/${file#run/}
    cp "$good" good
    before=$failures began=$total
    while read -r -u 3 op; do
        turn=$((turn + 1))
        [ $((turn % every)) = 0 ] || continue
        rm -rf run
        [ "$from" = - ] || cp -r "fixtures/$from" run
        rm -f "$file"
        # shellcheck disable=SC2086
        spoil good "$file" $op
        # Where the file was not changed after all there is nothing to see; root may read what is closed.
        if [ -f "$file" ] && [ ! -L "$file" ] && [ -r "$file" ] && cmp -s good "$file"; then
            rm -rf "$file"
            cp good "$file"
            continue
        fi
        (ulimit -v $address_space && exec timeout 10 "$trainer" "${arguments[@]}") >out 2>err </dev/null
        code=$?
        total=$((total + 1))
        judge
        rm -rf "$file"
        [ "$from" != - ] || cp good "$file"
    done 3< <(ops "$places" "$(stat -c %s good)")
    echo "  $file ($covers): $((total - began)) hostile files, $((failures - before)) wrongly"
done
echo "hostile_files: $total files in ${#roles[@]} places: $refused refused, $passed_over passed over, $harmless read as another good file; $failures wrong"
finish
