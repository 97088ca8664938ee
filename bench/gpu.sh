#!/bin/bash
# SPDX-License-Identifier: MIT
# gpu.sh [--device cuda|emu] [--phases LIST] [--ops LIST] [--op-seconds S] [--out DIR] [--seconds S] [--memory SIZE]
# [--build DIR]: what a day with a GPU should show, in calls of at most nine minutes each, with the driver and nothing else:
#
#     gpu.sh --phases smoke        is anything wrong, and what: a minute
#     gpu.sh --phases correct      the emulator's assumptions, the cpu's losses, every kernel against the reference
#     gpu.sh --phases speed        products (FP8, too), GPT-2 124M and attention against cuBLASLt and PyTorch, in one run
#     gpu.sh --phases counters     the hardware's counters of eight kernels (ncu)
#     gpu.sh --phases more         where time is left: memory.offload, what GPUs exchange, the other modes, every operation's speed
#
# LIST names groups (these; the first three when nothing is said) or single phases, with commas: see `groups` below.
# The programs are those next to this file (a package made by `make gpu-package`), else those of DIR (../build), else
# the project is built.  Python with PyTorch, ncu and compute-sanitizer are used where they are.
#
# Results: README.md, results.json (a line for each figure), log.txt, and what phases leave (fragments.txt, tuning.txt,
# trace.json, counters.csv) under --out (bench/results/<device name>): at most eight files.  They are written as phases
# end.  A phase that fails says why, whole, and the next one runs; what matters most comes first.  S seconds (540 for each
# word of LIST) are counted from the start of this script; an operation of the self-test has --op-seconds (20).
# GPT-2's batch is 32 sequences, halved until the plan fits the card, or SIZE (12GiB) of it.
# --device emu: the same script at tiny sizes on the emulator.
set -uo pipefail
export LC_ALL=C
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
usage() {
    sed -n '3,12s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
    exit 2
}

# group: its phases, in order.
declare -A groups=(
    [smoke]='smoke'
    [correct]='fragments agreement parity hopper rounds forced selftest sanitizer'
    [speed]='losses products fp8 tuning gpt2 small attention trace'
    [counters]='counters'
    [more]='gates offload collectives bandwidth modes operations'
)
declare -A titles=(
    [smoke]='Smoke'
    [fragments]="The emulator's assumptions"
    [forced]='Products by each kernel, against the reference'
    [agreement]='Large products and attention, number by number'
    [rounds]='The same, every block going round many times'
    [hopper]="Hopper's operations against the reference"
    [selftest]='Every operation, or every other one, against the reference'
    [parity]='The same losses as on the cpu'
    [sanitizer]="compute-sanitizer on Hopper's kernels"
    [losses]='GPT-2 124M: losses by mode and library'
    [products]='Products next to cuBLASLt'
    [fp8]='Products of FP8 codes next to cuBLASLt'
    [tuning]='Tuning'
    [gpt2]='GPT-2 124M in bf16'
    [small]='A small model: what launches cost'
    [attention]='Attention'
    [trace]='A step, operation by operation'
    [gates]='SwiGLU in the epilogue of products, and behind them'
    [offload]="States, gradients and weights in the host's memory"
    [collectives]='Between GPUs, by NCCL'
    [bandwidth]='Memory-bound operations'
    [modes]='GPT-2 124M in the other modes'
    [operations]='Every operation: error and roofline'
    [counters]='Counters of eight kernels'
)

device=cuda list=smoke,correct,speed only_ops='' op_seconds='' out='' allowed='' build='' card_memory=0
while [ $# -gt 0 ]; do
    [ $# -ge 2 ] || usage
    case $1 in
    --device) device=$2 ;;
    --phases) list=$2 ;;
    --ops) only_ops=${2//,/ } ;;
    --op-seconds) op_seconds=$2 ;;
    --out) out=$2 ;;
    --seconds) allowed=$2 ;;
    --memory) card_memory=$2 ;;
    --build) build=$2 ;;
    *) usage ;;
    esac
    shift 2
done
phases=()
for word in ${list//,/ }; do
    # shellcheck disable=SC2206
    phases+=(${groups[$word]:-$word})
done
for word in "${phases[@]}"; do
    [ -n "${titles[$word]:-}" ] || { echo "gpu.sh: no phase $word: use some of ${!groups[*]} ${!titles[*]}" >&2; exit 2; }
done
allowed=${allowed:-$((540 * $(wc -w <<<"${list//,/ }")))}
deadline=$allowed # bash counts SECONDS from its own start
# Checkpoints of 124M parameters go to memory where there is some: the disk is not what is measured.
work=$(mktemp -d -p "$([ -w /dev/shm ] && [ "$device" = cuda ] && echo /dev/shm || echo "${TMPDIR:-/tmp}")")
trap 'stop_peer; stop_clocks >/dev/null; rm -rf "$work"' EXIT
peer_pid='' tested_ops=''
failures=0

# --- Sizes -----------------------------------------------------------------------------------------------------------
hopper_ops='matmul attention_forward attention_backward'
if [ "$device" = emu ]; then
    tiny=--tiny measure_s=0 patience=10
    layers=1 width=32 heads=2 vocabulary=264 length=16 batch=2 rounds=1 loss_steps=3
    parity_layers=1 parity_width=32 parity_length=16 parity_steps=3 parity_modes='bf16 fp32' parity_families=gpt2
    forced_16bit='wgmma-256x256:1 wgmma-256x128:3 wgmma-256x256-joint:1' forced_codes=wgmma-fp8-256x256:1 forced_f32=''
    covering=--pairs large=132 # as a large GPU
    op_seconds=${op_seconds:-120}
    # All operations take minutes when emulated: these stand for them.
    only_ops=${only_ops:-'matmul combine norm_forward'}
else
    tiny='' measure_s=0.2 patience=1
    layers=12 width=768 heads=12 vocabulary=50304 length=1024 batch=32 rounds=3 loss_steps=15
    parity_layers=2 parity_width=64 parity_length=64 parity_steps=20 parity_modes='bf16 fp16 tf32 fp32'
    parity_families='gpt2 llama'
    forced_16bit='wgmma-256x256:1 wgmma-256x128:1 wgmma-128x256:1 wgmma-256x256:3 wgmma-256x128:3'
    forced_16bit+=' wgmma-128x256:3 wgmma-256x256-joint:1 wgmma-256x128-joint:1 wgmma-128x256-joint:1'
    forced_16bit+=' mma-128x256:1 mma-128x128:3 mma-128x64,mma-64x64:1'
    forced_codes='wgmma-fp8-256x128:1 wgmma-fp8-256x128:3 wgmma-fp8-256x256,wgmma-fp8-256x128-joint:1'
    forced_f32='ffma-128x128:1 ffma-64x64:3'
    covering='' large='' # its own number of multiprocessors
    op_seconds=${op_seconds:-20}
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
# limited SECONDS COMMAND...: at most so long on a GPU, more on the emulator, and never past the end of all.
limited() {
    local left=$((deadline - SECONDS)) most=$(($1 * patience))
    shift
    [ "$left" -gt 0 ] || return 124
    timeout -k 5 $((left < most ? left : most)) "$@"
}

# tool NAME: sets `tool` to the command that runs the trainer or a program of bench/.  Our libraries are for our programs
# alone: python3 has its own.
tool() {
    tool=(env LD_LIBRARY_PATH="$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}${cublaslt:+:$cublaslt}")
    if [ -x "$here/halfstep-gpu" ]; then
        tool+=("$here/halfstep-gpu" "$1")
    elif [ "$1" = trainer ]; then
        tool+=("$build/trainer")
    else
        tool+=("$build/bench/$1")
    fi
}

# --- Clocks while it computes: an idle GPU's say nothing ---
timed_phases=' products fp8 gpt2 small attention gates modes '
clocks_pid=''

# A sample every 100 ms until stop_clocks.
start_clocks() {
    local reasons=clocks_event_reasons.active
    case $timed_phases in *" $1 "*) ;; *) return 0 ;; esac
    command -v nvidia-smi >/dev/null || return 0
    # Drivers before 535 call it so.
    nvidia-smi -i 0 --query-gpu=$reasons --format=csv,noheader >/dev/null 2>&1 || reasons=clocks_throttle_reasons.active
    nvidia-smi -i 0 --query-gpu=clocks.sm,power.draw,utilization.gpu,$reasons --format=csv,noheader,nounits -lms 100 \
        >"$work/clocks" 2>/dev/null &
    clocks_pid=$!
}

# stop_clocks NAME: of the samples in which the GPU was busy, the medians, and what held the clock back.
stop_clocks() {
    local clock power count
    [ -n "$clocks_pid" ] || return 0
    kill "$clocks_pid" 2>/dev/null
    wait "$clocks_pid" 2>/dev/null
    clocks_pid=''
    awk -F', *' 'NF == 4 && $3 >= 50' "$work/clocks" >"$work/busy"
    count=$(wc -l <"$work/busy")
    [ "$count" -gt 0 ] || return 0
    clock=$(cut -d, -f1 "$work/busy" | median) power=$(cut -d, -f2 "$work/busy" | median)
    # Of the reasons' bits 0x4 is the power limit, 0x80 its hardware brake, 0x20 and 0x40 are heat.
    awk -F', *' -v clock="$clock" -v power="$power" -v name="${1:-}" -v json="$work/json" '
        function bits(place) { return index("0123456789abcdef", tolower(substr($4, length($4) - place, 1))) - 1 }
        { capped += int(bits(0) / 4) % 2 || int(bits(1) / 8) % 2; hot += int(bits(1) / 2) % 4 > 0 }
        NR == 1 || $1 < least { least = $1 }
        $1 > most { most = $1 }
        END {
            printf "\nClocks, of %d samples under load: %g MHz (%d to %d), %g W; held back by power in %.0f%%, by heat in %.0f%%.\n",
                NR, clock, least, most, power, 100 * capped / NR, 100 * hot / NR
            printf "{\"bench\":\"clocks\",\"phase\":\"%s\",\"samples\":%d,\"sm_mhz\":%g,\"least_mhz\":%d,\"power_w\":%g,\"capped\":%.2f,\"hot\":%.2f}\n",
                name, NR, clock, least, power, capped / NR, hot / NR >>json
        }' "$work/busy"
}

# phase NAME: the function's output becomes a section of the page, and what it said of a failure follows, whole.
phase() {
    local title=${titles[$1]} code start=$SECONDS
    echo "== $title" >&2
    if [ $SECONDS -ge "$deadline" ]; then
        printf '\n## %s\n\nNot run: no time left.\n' "$title" >>"$out/README.md"
        failures=$((failures + 1))
        return
    fi
    start_clocks "$1"
    "phase_$1" >"$work/section" 2>"$work/errors"
    code=$?
    stop_clocks "$1" >>"$work/section"
    {
        printf '\n## %s\n\n' "$title"
        cat "$work/section"
        [ $code -eq 0 ] || { printf '\nFailed (exit code %d):\n\n' $code && tail -n 20 "$work/errors" | sed 's/^/    /'; }
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

# program SECONDS NAME ARGUMENTS...: a program of bench/.
program() {
    local most=$1 tool
    tool "$2"
    shift 2
    # shellcheck disable=SC2086
    limited "$most" "${tool[@]}" --device "$device" $tiny --json "$work/json" "$@"
}

versions() {
    local commit
    commit=$(cat "$here/COMMIT" 2>/dev/null || git -C "$here" describe --always --dirty 2>/dev/null || echo unknown)
    echo "- commit: $commit"
    echo "- command: gpu.sh --device $device --phases $list --seconds $allowed"
    echo "- date: $(date -u +%Y-%m-%d)"
    echo "- device: $description"
    echo "- processor: $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), $(nproc) cores"
    if command -v nvidia-smi >/dev/null; then
        nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.sm,clocks.max.sm,clocks.max.mem,power.limit \
            --format=csv | sed 's/^/- /'
    fi
    echo "- nvcc: $( (nvcc --version 2>/dev/null || echo ', none') | sed -n 's/.*, //p' | tail -n 1)"
    echo "- PyTorch: $torch"
    echo "- GPT-2: $batch sequences of $length tokens a step"
    json '{"bench":"versions","commit":"%s","device":"%s","torch":"%s","phases":"%s"}' "$commit" "$description" "$torch" \
        "$list"
}

# shellcheck source=bench/gpu/smoke.sh
. "$here/gpu/smoke.sh"
# shellcheck source=bench/gpu/correct.sh
. "$here/gpu/correct.sh"
# shellcheck source=bench/gpu/speed.sh
. "$here/gpu/speed.sh"
# shellcheck source=bench/gpu/counters.sh
. "$here/gpu/counters.sh"

# --- Main ------------------------------------------------------------------------------------------------------------
if [ ! -x "$here/halfstep-gpu" ]; then
    build=${build:-$here/../build}
    if [ ! -x "$build/trainer" ] || [ ! -x "$build/bench/agreement" ]; then
        echo "== building" >&2
        make -C "$here/.." -j"$(nproc)" BUILD="$build" all $([ "$device" != cuda ] || echo cuda) emu bench-programs >&2 || exit 1
    fi
    build=$(realpath "$build")
fi
# PyTorch's version, and the folder of the cuBLASLt that it brings, for where no other is installed.
cublaslt=''
{ read -r torch && read -r cublaslt; } < <(python3 -c 'import glob, os, torch
root = os.path.dirname(os.path.dirname(torch.__file__))
print(torch.__version__)
print(os.path.dirname((glob.glob(root + "/nvidia/**/libcublasLt.so.1*", recursive=True) + [""])[0]))' 2>/dev/null)
torch=${torch:-none} cublaslt=${cublaslt:-} torch_missing='' peer_mode='' peer_preparing=''
[ "$torch" != none ] || torch_missing='python3 cannot import torch'
[ "$device" = cuda ] || torch_missing='the emulator is no match for it'
tool trainer
description=$(limited 60 "${tool[@]}" selftest --device "$device" --no-speed --op combine 2>&1 | sed -n 's/^device: //p')
if [ -z "$description" ]; then
    "${tool[@]}" selftest --device "$device" --no-speed --op combine >&2
    exit 1
fi
name=$( (nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null || echo gpu) | head -n 1 | tr 'A-Z ' 'a-z-')
[ "$device" = cuda ] || name=emulator
out=${out:-$here/results/$name}
mkdir -p "$out"
memory=$(nvidia-smi --query-gpu=memory.total --format=csv,noheader,nounits 2>/dev/null | head -n 1)
fit_batch
: >"$work/json"
: >"$out/log.txt"
printf '# %s\n\nGenerated by bench/gpu.sh.\n' "$name" >"$out/README.md"
[ "$device" = cuda ] || printf '\nEmulated, at tiny sizes: no figure of speed here means anything.\n' >>"$out/README.md"
{ printf '\n## Versions\n\n' && versions; } >>"$out/README.md"
for word in "${phases[@]}"; do
    phase "$word"
done
stop_peer
echo "results: $out ($failures phases failed, $SECONDS s)" >&2
[ "$failures" -eq 0 ]
