#!/bin/bash
# SPDX-License-Identifier: MIT
# gpu.sh [--device cuda|emu] [--trainer PATH] [--out DIR] [--seconds S]: everything that a day with a GPU should tell, in
# one command of at most ten minutes: versions, the emulator's assumptions, every kernel against the reference, cpu against
# the device, products against cuBLASLt, attention and GPT-2 124M against PyTorch in the same run, tuning, every kernel's speed.
#
# The machine needs the driver only; nvcc, and python3 with PyTorch, are used where they are.  PATH is a built trainer with
# bench/ beside it, and lib/ if it brings libraries (bench/device_package.sh makes such a folder); without it the project
# is built.  Results: README.md, results.json, the golden fragments.txt and the tuning.txt of this GPU under DIR
# (bench/results/<device name>).  A phase that fails says so there, and the next one runs; what matters most comes first.
# --device emu: the same script at tiny sizes on the emulator.
set -uo pipefail
export LC_ALL=C
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
device=cuda trainer='' out='' allowed=570
while [ $# -gt 0 ]; do
    case $1 in
    --device) device=$2 ;;
    --trainer) trainer=$2 ;;
    --out) out=$2 ;;
    --seconds) allowed=$2 ;;
    *)
        sed -n '3,5s/^# //p' "${BASH_SOURCE[0]}" >&2
        exit 2
        ;;
    esac
    shift 2
done
deadline=0
# Checkpoints of 124M parameters go to memory where there is some: the disk is not what is measured.
work=$(mktemp -d -p "$([ -w /dev/shm ] && [ "$device" = cuda ] && echo /dev/shm || echo "${TMPDIR:-/tmp}")")
trap 'stop_peer; rm -rf "$work"' EXIT
peer_pid=''
failures=0

# --- Sizes -----------------------------------------------------------------------------------------------------------
modes='bf16 fp16 tf32 fp32'
if [ "$device" = emu ]; then
    tiny=--tiny measure_s=0
    layers=1 width=32 heads=2 vocabulary=264 length=16 batch=2 rounds=1
    parity_layers=1 parity_width=32 parity_length=16 parity_steps=3
    # All operations take minutes when emulated: these stand for them.
    only_ops='add norm_forward matmul'
else
    tiny='' measure_s=0.2
    layers=12 width=768 heads=12 vocabulary=50304 length=1024 batch=32 rounds=3
    parity_layers=2 parity_width=64 parity_length=64 parity_steps=20
    only_ops=''
fi
# Steps of one turn, so that every mode's turn takes a few seconds.
steps_of() {
    case $device-$1 in
    emu-*) echo 3 ;;
    *-bf16 | *-fp16) echo 40 ;;
    *) echo 15 ;;
    esac
}

# --- Phases ----------------------------------------------------------------------------------------------------------
# limited SECONDS COMMAND...: at most so long, and never past the end of all.
limited() {
    local left=$((deadline - SECONDS)) most=$1
    shift
    [ "$left" -gt 0 ] || return 124
    timeout -k 5 $((left < most ? left : most)) "$@"
}

# phase TITLE COMMAND...: the command's output becomes a section of the page.
phase() {
    local title=$1 code start=$SECONDS
    shift
    echo "== $title" >&2
    if [ $SECONDS -ge $deadline ]; then
        printf '\n## %s\n\nNot run: no time left.\n' "$title" >>"$out/README.md"
        failures=$((failures + 1))
        return
    fi
    "$@" >"$work/section" 2>"$work/errors"
    code=$?
    {
        printf '\n## %s\n\n' "$title"
        cat "$work/section"
        [ $code -eq 0 ] || printf '\nFailed (exit code %d): %s\n' $code "$(tail -n 1 "$work/errors")"
        printf '\n(%d s)\n' $((SECONDS - start))
    } >>"$out/README.md"
    [ $code -eq 0 ] || failures=$((failures + 1))
    cat "$work/errors" >>"$out/log.txt"
    sed 's/^/  /' "$work/section" >&2
    { printf '[\n' && sed '$!s/$/,/' "$work/json" && printf ']\n'; } >"$out/results.json"
}

json() {
    # shellcheck disable=SC2059
    printf "$@" >>"$work/json"
    echo >>"$work/json"
}

program() {
    local name=$1
    shift
    # shellcheck disable=SC2086
    limited "$budget" "${ours[@]}" "$(dirname "$trainer")/bench/$name" --device "$device" $tiny --json "$work/json" "$@"
}

# --- Versions --------------------------------------------------------------------------------------------------------
versions() {
    local commit
    commit=$(cat "$here/COMMIT" 2>/dev/null || git -C "$here" describe --always --dirty 2>/dev/null || echo unknown)
    echo "- commit: $commit"
    echo "- date: $(date -u +%Y-%m-%d)"
    echo "- device: $description"
    echo "- processor: $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), $(nproc) cores"
    if command -v nvidia-smi >/dev/null; then
        nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.sm,clocks.max.sm,clocks.max.mem,power.limit \
            --format=csv | sed 's/^/- /'
    fi
    echo "- nvcc: $( (nvcc --version 2>/dev/null || echo ', none') | sed -n 's/.*, //p' | tail -n 1)"
    echo "- PyTorch: $torch"
    json '{"bench":"versions","commit":"%s","device":"%s","torch":"%s"}' "$commit" "$description" "$torch"
}

# --- The emulator's assumptions --------------------------------------------------------------------------------------
# After an experiment that hung or broke the device's context, the next ones get a process of their own.
fragments() {
    local from=0 before=-1 code worst=0 start=$SECONDS
    : >"$work/fragments"
    while [ "$from" -gt "$before" ] && [ $((SECONDS - start)) -lt 60 ]; do
        before=$from
        budget=20
        program fragments --from "$from" "$out/fragments.txt" >>"$work/fragments"
        code=$?
        [ $code -eq 0 ] || worst=$code
        [ $code -ne 124 ] || echo " | FAILED: no end in 20 s |" >>"$work/fragments"
        [ $code -eq 3 ] || [ $code -eq 124 ] || break
        # Rows so far, without the two lines of the head.
        from=$(($(grep -c '^|' "$work/fragments") - 2))
    done
    cat "$work/fragments"
    return "$worst"
}

# --- Every kernel against the reference ------------------------------------------------------------------------------
selftest() {
    local op code=0
    : >"$work/selftest"
    for op in ${only_ops:-all}; do
        # shellcheck disable=SC2046
        limited "$budget" "${ours[@]}" "$trainer" selftest --device "$device" --no-speed \
            $([ "$op" = all ] || echo --op "$op") >>"$work/selftest" || code=$?
    done
    # A line an operation: NAME N cases  worst error E of tolerance  ok
    awk '/ cases / { ops++; cases += $2; if ($6 + 0 > worst) worst = $6 + 0; if ($NF == "ok") good++; else print "- " $0 }
        END { printf "%d of %d operations within tolerance, %d cases, worst error %.3g of tolerance.\n", good, ops, cases, worst }' \
        "$work/selftest"
    json '{"bench":"selftest","operations":%d,"ok":%d}' "$(grep -c ' cases ' "$work/selftest")" "$(grep -cE ' ok *$' "$work/selftest")"
    return $code
}

# --- The same training on the cpu and on the device --------------------------------------------------------------------
# tiny_run DEVICE FAMILY MODE NAME: the losses of a short run, a line a step.
tiny_run() {
    local log=$work/$4.log
    cat >"$work/tiny.yaml" <<YAML
seed: 7
model: {family: $2, layers: $parity_layers, heads: 2, width: $parity_width}
tasks: [{name: mixture, train: "synthetic:mixture", synthetic_tokens: 20000}]
batch_size: 4
max_length: $parity_length
max_steps: $parity_steps
learning_rate: 1e-3
checkpoint_freq: 0
evaluation: {every: 0, batches: 1}
logging: {every: 1, tensorboard: false, progress: none}
YAML
    limited 60 "${ours[@]}" "$trainer" --config "$work/tiny.yaml" device="$1" precision.mode="$3" resume=never out_dir="$work/$4" \
        >"$log" 2>&1 || { tail -n 1 "$log" >&2; return 1; }
    sed -n 's/.*"event":"step".*"loss":\([^,}]*\).*/\1/p' "$work/$4/metrics.jsonl"
    rm -rf "${work:?}/$4"
}

parity() {
    local family mode verdict code=0
    echo "Largest difference between the losses of the cpu and of the device over $parity_steps steps, relative, and in"
    echo "unit roundoffs of the mode's products; and whether two runs on the device give the same bits."
    echo
    echo "| model | mode | difference | roundoffs | repeated |"
    echo "|---|---|---|---|---|"
    for family in gpt2 llama; do
        for mode in $modes; do
            # The cpu has no products in tf32: its fp32 stands in.
            if ! { tiny_run cpu "$family" "${mode/tf32/fp32}" cpu >"$work/cpu.losses" &&
                tiny_run "$device" "$family" "$mode" first >"$work/first.losses" &&
                tiny_run "$device" "$family" "$mode" second >"$work/second.losses"; }; then
                echo "| $family | $mode | failed: $(tail -n 1 "$work/errors") | | |"
                code=1
                continue
            fi
            verdict=same
            cmp -s "$work/first.losses" "$work/second.losses" || { verdict=DIFFERENT; code=1; }
            paste "$work/cpu.losses" "$work/first.losses" | awk -v family="$family" -v mode="$mode" -v verdict="$verdict" '
                { difference = $1 > $2 ? $1 - $2 : $2 - $1; difference /= $1; if (difference > most) most = difference }
                END {
                    bits = mode == "bf16" ? 8 : mode == "fp32" ? 24 : 11
                    printf "| %s | %s | %.2g | %.2g | %s |\n", family, mode, most, most * 2 ^ bits, verdict
                }'
            json '{"bench":"parity","family":"%s","mode":"%s","losses_cpu":[%s],"losses":[%s],"repeated":"%s"}' "$family" \
                "$mode" "$(paste -sd, "$work/cpu.losses")" "$(paste -sd, "$work/first.losses")" "$verdict"
        done
    done
    return $code
}

# --- Every kernel's speed --------------------------------------------------------------------------------------------
operations() {
    local op names=()
    for op in $only_ops; do
        names+=(--op "$op")
    done
    limited "$budget" "${ours[@]}" "$(dirname "$trainer")/bench/ops" --device "$device" --json "$work/json" "${names[@]}" |
        sed '/^# /d; s/^## /### /'
}

# --- GPT-2 124M ------------------------------------------------------------------------------------------------------
# own_turn MODE STEPS GRAPH: "TOKENS_PER_SECOND MIB" of one run of the trainer.
own_turn() {
    local log=$work/gpt2.log
    cat >"$work/gpt2.yaml" <<YAML
seed: 1
model: {family: gpt2, layers: $layers, heads: $heads, width: $width, bias: true, vocabulary: $vocabulary}
tasks: [{name: mixture, train: "synthetic:mixture", synthetic_tokens: $((12 * batch * length + 20000))}]
batch_size: $batch
max_length: $length
max_steps: $2
learning_rate: 6e-4
target_gpu_util: 0.9
optimizer: {betas: [0.9, 0.95], clip_norm: 1.0}
kernels: {cuda_graph: $3}
checkpoint_freq: 0
evaluation: {every: 0, batches: 1}
logging: {every: $(($2 < 5 ? 1 : 5)), tensorboard: false, progress: none}
YAML
    limited 100 "${ours[@]}" "$trainer" --config "$work/gpt2.yaml" device="$device" precision.mode="$1" resume=never \
        memory.head_chunk=$((batch * length < 8192 ? batch * length : 8192)) out_dir="$work/gpt2" >"$log" 2>&1 ||
        { grep -m 1 error "$log" >&2 || tail -n 1 "$log" >&2; rm -rf "$work/gpt2"; return 1; }
    # The first record holds the start.
    sed -n 's/.*"event":"step".*"tokens_per_second":\([^,}]*\).*/\1/p' "$work/gpt2/metrics.jsonl" | sed 1d | sort -g |
        awk '{ rate[NR] = $1 } END { printf "%.1f ", rate[int((NR + 1) / 2)] }'
    sed -n 's/.*memory (MiB)://p' "$log" | tr -c '0-9.\n' ' ' | awk '{ for (i = 1; i <= NF; i++) total += $i } END { printf "%.4g\n", total }'
    rm -rf "$work/gpt2"
}

start_peer() {
    [ "$torch" != none ] && [ "$device" = cuda ] || return 0
    mkfifo "$work/ask" "$work/answer"
    # shellcheck disable=SC2086
    python3 "$here/peers/gpt2_torch.py" --batch "$batch" --length "$length" $modes <"$work/ask" >"$work/answer" \
        2>>"$out/log.txt" &
    peer_pid=$!
    exec 7>"$work/ask" 8<"$work/answer"
}

# The peer compiles for a minute or two; what needs no quiet GPU runs meanwhile.
await_peer() {
    local line start=$SECONDS
    [ -n "$peer_pid" ] || return 0
    echo >>"$out/README.md"
    while [ $((SECONDS - start)) -lt 150 ] && read -r -t 90 -u 8 line; do
        [ "$line" = prepared ] && return
        echo "- PyTorch: $line s" >>"$out/README.md"
    done
    echo "- PyTorch: was not prepared after $((SECONDS - start)) s" >>"$out/README.md"
    stop_peer
}

stop_peer() {
    [ -n "$peer_pid" ] || return 0
    kill "$peer_pid" 2>/dev/null
    peer_pid=''
}

# peer_turn MODE STEPS: as own_turn; 2: it answers no more.
peer_turn() {
    local mode rate peak
    echo "$1 $2" >&7
    read -r -t 60 -u 8 mode rate peak || return 2
    [ "$mode" = "$1" ] || return 1
    echo "$rate $peak"
}

gpt2() {
    local round mode result end=$((SECONDS + budget)) graph=true code=0
    : >"$work/turns"
    for ((round = 1; round <= rounds; round++)); do
        for mode in $modes; do
            [ $SECONDS -lt $((end < deadline ? end : deadline)) ] || break 2
            if ! result=$(own_turn "$mode" "$(steps_of "$mode")" $graph) && [ $graph = true ]; then
                echo "$mode failed: $(tail -n 1 "$work/errors"). From here on without kernels.cuda_graph."
                echo
                graph=false code=1
                result=$(own_turn "$mode" "$(steps_of "$mode")" $graph)
            fi
            if [ -n "$result" ]; then
                echo "$mode own $result" >>"$work/turns"
            else
                [ "$round" -gt 1 ] || echo "$mode failed: $(tail -n 1 "$work/errors")"
                code=1
            fi
            [ -n "$peer_pid" ] || continue
            result=$(peer_turn "$mode" "$(steps_of "$mode")")
            case $? in
            0) echo "$mode torch $result" >>"$work/turns" ;;
            2) stop_peer ;;
            esac
        done
    done
    [ -n "$peer_pid" ] || echo "PyTorch has no columns: ${torch_missing:-it did not start}."
    echo "$layers layers, width $width, vocabulary $vocabulary, $batch x $length tokens a step; medians of at most $rounds turns, taken in"
    echo "turn. Operations: 6 N + 6 L C T a token. MFU: of the fastest product in that mode of this run, either library's."
    echo
    echo "| mode | tokens/s | TFLOP/s | MFU | memory MiB | PyTorch tokens/s | its memory MiB | ratio |"
    echo "|---|---|---|---|---|---|---|---|"
    for mode in $modes; do
        gpt2_row "$mode" || code=1
    done
    [ "$device" = emu ] || printf '\nThe aim on an H200: at least 600,000 tokens/s in bf16, and more than PyTorch.\n'
    return $code
}

median() {
    sort -g | awk '{ value[NR] = $1 } END { if (NR) print NR % 2 ? value[(NR + 1) / 2] : (value[NR / 2] + value[NR / 2 + 1]) / 2 }'
}

gpt2_row() {
    local own own_mib peer peer_mib limit
    own=$(awk -v mode="$1" '$1 == mode && $2 == "own" { print $3 }' "$work/turns" | median)
    own_mib=$(awk -v mode="$1" '$1 == mode && $2 == "own" { print $4 }' "$work/turns" | median)
    peer=$(awk -v mode="$1" '$1 == mode && $2 == "torch" { print $3 }' "$work/turns" | median)
    peer_mib=$(awk -v mode="$1" '$1 == mode && $2 == "torch" { print $4 }' "$work/turns" | median)
    [ -n "$own$peer" ] || return 0
    limit=$(grep "\"bench\":\"product\".*\"mode\":\"${1/#fp/f}\"" "$work/json" | awk -F'[:,}]' '
        { for (i = 1; i < NF; i++) if ($i ~ /^"(cublaslt_)?tflops"$/ && $(i + 1) + 0 > most) most = $(i + 1) + 0 }
        END { print most }')
    awk -v mode="$1" -v own="$own" -v own_mib="$own_mib" -v peer="$peer" -v peer_mib="$peer_mib" -v limit="$limit" \
        -v L="$layers" -v C="$width" -v T="$length" -v V="$vocabulary" 'BEGIN {
            N = 12 * L * C * C + (V + T) * C
            rate = own * (6 * N + 6 * L * C * T) * 1e-12
            share = limit + 0 > 0 ? sprintf("%.0f%%", 100 * rate / limit) : ""
            ratio = peer + 0 > 0 ? sprintf("%.2f", own / peer) : ""
            printf("| %s | %.0f | %.4g | %s | %s | %s | %s | %s |\n", mode, own, rate, share, own_mib, peer, peer_mib, ratio)
        }' || return 1
    json '{"bench":"gpt2","mode":"%s","tokens_per_second":%s,"memory_mib":%s,"torch_tokens_per_second":%s,"torch_memory_mib":%s}' \
        "$1" "${own:-null}" "${own_mib:-null}" "${peer:-null}" "${peer_mib:-null}"
}

# --- Attention -------------------------------------------------------------------------------------------------------
attention() {
    local rival=''
    if [ "$torch" != none ] && [ "$device" = cuda ]; then
        limited $((budget / 2)) python3 "$here/peers/attention_torch.py" 0.1 >"$work/attention.torch" ||
            printf "PyTorch's attention did not finish; the table has what it measured.\n\n"
        [ -s "$work/attention.torch" ] && rival=$work/attention.torch
    fi
    program attention --seconds $measure_s ${rival:+"$rival"}
}

# --- Tuning ----------------------------------------------------------------------------------------------------------
# What the products' choices should be on this GPU, by measurement.
tuning() {
    if [ "$device" = emu ]; then
        echo "Not on the emulator."
        return
    fi
    limited "$budget" "${ours[@]}" "$trainer" selftest --device "$device" --tune "$out/tuning.txt"
}

# --- Main ------------------------------------------------------------------------------------------------------------
if [ -z "$trainer" ]; then
    echo "== building" >&2
    make -C "$here/.." -j"$(nproc)" build/trainer bench-programs >&2 || exit 1
    trainer=$here/../build/trainer
fi
trainer=$(realpath "$trainer")
# PyTorch's version, and the folder of the cuBLASLt that it brings, for where no other is installed.
{ read -r torch && read -r cublaslt; } < <(python3 -c 'import glob, os, torch
root = os.path.dirname(os.path.dirname(torch.__file__))
print(torch.__version__)
print(os.path.dirname((glob.glob(root + "/nvidia/**/libcublasLt.so.1*", recursive=True) + [""])[0]))' 2>/dev/null)
torch=${torch:-none} cublaslt=${cublaslt:-}
# Our libraries are for our programs alone: python3 has its own.
ours=(env LD_LIBRARY_PATH="$(dirname "$trainer")/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}${cublaslt:+:$cublaslt}")
torch_missing=''
[ "$torch" != none ] || torch_missing='python3 cannot import torch'
[ "$device" = cuda ] || torch_missing='the emulator is no match for it'
description=$("${ours[@]}" "$trainer" selftest --device "$device" --no-speed --op add 2>&1 | sed -n 's/^device: //p')
if [ -z "$description" ]; then
    "${ours[@]}" "$trainer" selftest --device "$device" --no-speed --op add >&2
    exit 1
fi
name=$( (nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null || echo gpu) | head -n 1 | tr 'A-Z ' 'a-z-')
[ "$device" = cuda ] || name=emulator
out=${out:-$here/results/$name}
mkdir -p "$out"
# A card of 24 GB takes a quarter of the tokens.
memory=$(nvidia-smi --query-gpu=memory.total --format=csv,noheader,nounits 2>/dev/null | head -n 1)
if [ "$device" = cuda ] && [ "${memory:-0}" -lt 70000 ]; then
    batch=$((memory > 35000 ? 16 : memory > 20000 ? 8 : 4))
fi
: >"$work/json"
: >"$out/log.txt"
printf '# %s\n\nGenerated by bench/gpu.sh.\n' "$name" >"$out/README.md"
[ "$device" = cuda ] || printf '\nEmulated, at tiny sizes: no figure of speed here means anything.\n' >>"$out/README.md"

deadline=$((SECONDS + allowed))
phase "Versions" versions
start_peer
phase "The emulator's assumptions" fragments
budget=60
phase "Every operation against the reference" selftest
phase "The same losses" parity
await_peer
budget=100
phase "Products against cuBLASLt" program products --seconds $measure_s
budget=60
phase "Attention" attention
budget=150
phase "GPT-2 124M" gpt2
stop_peer
if "${ours[@]}" "$trainer" selftest --help | grep -q -- --tune; then
    budget=60
    phase "Tuning" tuning
fi
budget=40
phase "Memory-bound operations" program bandwidth --seconds $measure_s
budget=120
phase "Every operation: error and roofline" operations
echo "results: $out ($failures phases failed, $SECONDS s)" >&2
[ "$failures" -eq 0 ]
