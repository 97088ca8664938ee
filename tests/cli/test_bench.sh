#!/bin/bash
# SPDX-License-Identifier: MIT
# trainer bench: the table, the JSON and the page; the same arithmetic where it must be the same; what is refused.
. "$(dirname "$0")/lib.sh"
tiny_config

# value KEY FILE: the numbers of that name, one a line, in the order of the modes.
value() {
    sed -nE "s/^ *\"$1\": ([-+0-9.e]+|null|true|false),?$/\1/p" "$2"
}

# list KEY N FILE: the elements of the N-th list of that name.
list() {
    awk -v key="\"$1\": [" -v wanted="$2" '
        index($0, key) { seen++; inside = seen == wanted; next }
        inside && /\]/ { exit }
        inside { gsub(/[ ,]/, ""); print }' "$3"
}

# farthest A B: the largest relative distance between two columns of numbers.
farthest() {
    paste "$1" "$2" | awk '{ d = ($1 - $2) / $2; d = d < 0 ? -d : d; if (d > most) most = d } END { printf "%.17g\n", most }'
}

# holds EXPRESSION TEXT: of awk.
holds() {
    awk "BEGIN { exit !($1) }" || fail "$2: $1"
}

# --- a ladder ---
expect 0 "$trainer" bench --config tiny.yaml --modes fp32,bf16,fp16,+recompute,+accumulate4 device=cpu
json=run-bench/bench.json page=run-bench/bench.html
for mode in fp32 bf16 fp16 +recompute +accumulate4; do
    grep -qE "^${mode/+/[+]} .*24[+]0$" out || fail "the table has no row of 24 steps for $mode"
done
for text in "a step's time (ms)" "memory at most (MiB)" "underflow of gradients (%)" "page: $page"; do says out "$text"; done
for text in '"complete": true' '"interleaved": true' '"reference": "fp32"' '"name": "fp16+recompute+accumulate4"' \
    '"name": "block 1, mlp"' '"split_seconds"' '"config": "device: cpu'; do says $json "$text"; done
for n in 1 2 3 4 5; do list losses $n $json >losses.$n; done
[ "$(cat losses.? | wc -l)" = 120 ] || fail "bench.json must have 5 modes with 24 losses each"
[ "$(list seconds 3 $json | head -n 3 | grep -c null)" = 2 ] || fail "exactly the first two of three steps are not timed"
value finished $json | grep -q false && fail "a mode did not finish"
value tokens_per_second $json | awk '!($1 > 0) { exit 1 }' || fail "a mode has no speed"
# Planned is what was taken.
for what in planned peak; do sed -n "/\"$what\": {/,/}/p" $json | grep -v '[{}]' >$what.bytes; done
same planned.bytes peak.bytes
[ -s planned.bytes ] || fail "bench.json says nothing of memory"
# Recomputation changes no bit, and takes less.
same losses.3 losses.4
value activations $json >activations # planned and peak of each mode in turn
holds "$(sed -n 8p activations) < $(sed -n 6p activations)" "recomputation saves no activations"
[ "$(value recompute $json | head -n 3 | sort -u)" = 0 ] || fail "modes that keep all have no time of recomputation"
# Micro-batches round sums in other places.  The first step's loss is a mean of the same f32 losses, 128 of them, summed
# in double in another order; later ones are of weights that gradients with f16's rounding made.
cmp -s losses.4 losses.5 && fail "accumulation is said to change no bit: was it on?"
head -n 1 losses.4 >first.4
head -n 1 losses.5 >first.5
holds "$(farthest first.5 first.4) <= 128 / 2^53" "accumulation changed the first loss"
holds "$(farthest losses.5 losses.4) <= 1 / 2^10" "accumulation changed the losses"
# The figures are of the curves.
list distances 2 $json | sort -g | tail -n 1 >most
value distance_most $json | sed -n 2p >said
same most said
tail -n 3 losses.2 | awk '{ sum += $1 } END { printf "%.10f\n", sum / NR }' >mean
value training_loss $json | sed -n 2p | awk '{ printf "%.10f\n", $1 }' >said
same mean said
[ "$(value distance_most $json | head -n 1)" = 0 ] || fail "fp32 is at a distance from itself"
# The page.
for text in "Speed against memory" "Memory by what it is for" "Time of a step" "Gradients of activations" "fp16 subnormal"; do
    says $page "$text"
done
grep -qE 'https?://' $page && fail "the page asks the network for something"

# --- what is measured is training: a separate run has the same losses ---
expect 0 "$trainer" --config tiny.yaml device=cpu precision.mode=fp32 logging.every=1
sed -nE 's/.*"event":"step".*"loss":([-+0-9.e]+).*/\1/p' run/metrics.jsonl >own
same own losses.1
sed -nE 's/.*"event":"eval".*"val_loss":([-+0-9.e]+).*/\1/p' run/metrics.jsonl | tail -n 1 >own
value validation_loss $json | head -n 1 >said
same own said

# --- again: its own folder is cleaned, others are left alone ---
mkdir -p run-bench/bf16 && touch run-bench/keep run-bench/bf16/run.json # as earlier releases left it
expect 0 "$trainer" bench --config tiny.yaml --modes fp32,+accumulate2:seed=9 --tokens 1000 device=cpu
says out "8+0" # 1000 / 128, rounded up
[ -f run-bench/keep ] && [ ! -d run-bench/bf16 ] ||
    fail "a second bench did not clean up after the first"
mkdir mine && touch mine/precious
expect 1 "$trainer" bench --config tiny.yaml --modes fp32 --out mine device=cpu
says err "no bench made"
[ "$(ls mine)" = precious ] || fail "a foreign folder was touched"
# Long text is kept as tokens there before anything else is.
yes 'a line of a long text' | head -c 34000000 >long.txt
expect 0 "$trainer" bench --config tiny.yaml --modes fp32 --steps 2 --out long device=cpu tasks.0.train=long.txt \
    tasks.0.validation=1% evaluation.items=0
[ -d long/.halfstep-tokens ] || fail "a long text left no tokens"
rm long.txt

# --- refused before anything trains or is made ---
refused() { # CODE TEXT ARGUMENTS...
    local code=$1 text=$2
    shift 2
    expect "$code" "$trainer" bench --config tiny.yaml --out refused device=cpu "$@"
    says err "$text"
    [ ! -d refused ] || fail "a refused bench left a folder: $*"
    rm -rf refused
}
refused 2 "did you mean bf16?" --modes fp32,bf61
refused 2 "mode tf32: " --modes fp32,tf32
refused 2 "mode fp32+cublaslt: " --modes fp32,+cublaslt
refused 2 "mode fp32+graph: " --modes fp32+graph
refused 2 "mode fp16+no-masters: " --modes bf16,fp16+no-masters
refused 2 "mode fp32+accumulate3: batch_size 4" --modes fp32,+accumulate3
refused 2 "did you mean" --modes fp32:model.layerz=3
refused 2 "joint" --modes fp32 continual.strategy=joint
# Of a quarter of the activations, on every instruction set, at most 1.3 MiB; of all at least 1.6.
refused 1 "mode fp32: the plan needs" --modes fp32+recompute+accumulate4,fp32 memory.limit=1800KiB threads=2
refused 2 "--steps and --tokens" --modes fp32 --steps 3 --tokens 5
expect 2 "$trainer" bench --config tiny.yaml
says err "--modes"
expect 0 "$trainer" bench --help
for text in no-masters recompute-attention accumulateN; do says out "$text"; done

# --- what does not fit together runs one after another, with the same losses ---
expect 0 "$trainer" bench --config tiny.yaml --modes fp32,bf16 --out one-by-one device=cpu memory.limit=3MiB
says out "one after another"
for n in 1 2; do
    list losses $n one-by-one/bench.json >alone
    same losses.$n alone
done

# --- a mode with gradients that no scale mends is reported, and the others continue ---
expect 0 "$trainer" bench --config tiny.yaml --out broken device=cpu \
    --modes bf16,fp16:precision.loss_scale=static:precision.init_scale=1e30
says out "ended after 0 steps: gradients are not finite"
grep -qE '^bf16 .*24[+]0$' out || fail "the mode next to a broken one did not train"
says broken/bench.json '"failure": "gradients are not finite'
expect 0 "$trainer" bench --config tiny.yaml --modes fp16 --steps 3 --out broken device=cpu

# --- an interruption ends it with what is there ---
"$trainer" bench --config tiny.yaml --modes fp32,bf16 --steps 1000000 --out stopped device=cpu >out 2>err &
bench=$!
for _ in $(seq 200); do
    grep -q "taking turns" err && break
    sleep 0.05
done
sleep 2
kill -INT $bench
wait $bench
[ $? = 130 ] || fail "a bench that SIGINT stopped must exit with 130"
says err "stopped by a signal"
grep -qE '^bf16 ' out || fail "an interrupted bench has no table"
says stopped/bench.json '"interrupted": true'
[ -s stopped/bench.html ] || fail "an interrupted bench wrote no page"

# --- through the CUDA code, emulated ---
expect 0 "$trainer" bench --config tiny.yaml --modes fp32,bf16,+recompute,+graph --steps 4 --out emu device=emu \
    batch_size=2 max_length=16 model.layers=1 model.width=16 evaluation.batches=1
says out "the device is emulated"
for n in 2 3 4; do list losses $n emu/bench.json >losses.$n; done
[ "$(wc -l <losses.2)" = 4 ] || fail "the emulated bench has no losses"
same losses.2 losses.3
same losses.2 losses.4
value backward emu/bench.json | awk '!($1 > 0) { exit 1 }' || fail "an emulated mode has no split"
finish
