#!/bin/bash
# SPDX-License-Identifier: MIT
# run.sh [quick|whole]: the kernels' PTX, as nvcc makes it, run on the emulator (kernels/emu/ptx).
#
#     quick   a pairwise covering of every operation's cases, and products of FP8 codes by mma.sync: against ref, and each
#             launch against the host compiler's code bit by bit
#     whole   all cases; the blocks of smaller GPUs, products by every tile, FP8; what is shipped against ref in several
#             orders of events; training steps
#
# Two texts: build/ptx/exact, without fused operations that the source does not ask for, has the bits of the host's code but
# where CUDA's exponential, logarithm or tanh rounds otherwise than the host's: in the kernels of tests/ptx/differ, and in no
# other.  build/ptx/shipped is what nvcc puts into the program.  At the end: kernels that ran, and those that never did.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 2
build=$(realpath "${BUILD:-build}") what=${1:-quick} failures=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trainer=$build/trainer

fail() {
    echo "FAIL  $1"
    failures=$((failures + 1))
}

# try NAME COMMAND...: in the background, two at a time; its words are shown when it fails.
names=() pids=()
try() {
    local name=$1
    shift
    while [ "$(jobs -rp | wc -l)" -ge "$(nproc)" ]; do wait -n; done
    "$@" >"$work/said.${#names[@]}" 2>&1 &
    names+=("$name") pids+=($!)
}
gather() {
    local i
    for i in "${!pids[@]}"; do
        wait "${pids[$i]}" || { fail "${names[$i]}"; tail -n 12 "$work/said.$i"; }
    done
    names=() pids=()
}

# An operation's self-test under the exact text, each launch both ways.
compare() {
    local name=$1
    shift
    try "$name" env HALFSTEP_EMU_THREADS=1 HALFSTEP_EMU_PTX="$build/ptx/exact" HALFSTEP_EMU_PTX_COMPARE="$work/kernels" \
        "$trainer" selftest --device emu --no-speed --threads 1 "$@"
}

start=$SECONDS
mapfile -t operations < <("$trainer" selftest --device emu --list | awk '!/^device/ { print $1 }')
pairs=()
[ "$what" = whole ] || pairs=(--pairs)
for operation in "${operations[@]}"; do
    compare "$operation" "${pairs[@]}" --op "$operation"
done
HALFSTEP_EMU_SHARED=99 compare "products of codes, as on 8.9" --op matmul --match e4m3
if [ "$what" = whole ]; then
    for operation in attention_forward attention_backward matmul; do
        for shared in 163 99; do
            HALFSTEP_EMU_SHARED=$shared compare "$operation, blocks of $shared KiB" --pairs --op "$operation"
        done
    done
    for tile in $("$trainer" selftest --device emu --op matmul --force-tile=none 2>&1 | grep -oE '(wgmma|mma|simt)-[a-z0-9x-]+' | sort -u); do
        compare "matmul by $tile" --pairs --op matmul --force-tile="$tile"
    done
    for shared in 227 99; do
        try "experiments, blocks of $shared KiB" env HALFSTEP_EMU_SHARED=$shared HALFSTEP_EMU_PTX="$build/ptx/exact" \
            HALFSTEP_EMU_PTX_COMPARE="$work/kernels" "$build/bench/fragments" --device emu
    done
    try "products of codes" env HALFSTEP_EMU_PTX="$build/ptx/exact" HALFSTEP_EMU_PTX_COMPARE="$work/kernels" \
        "$build/tests/room/ops" --filter 'fp8_products/*'
    try "updates" env HALFSTEP_EMU_PTX="$build/ptx/exact" HALFSTEP_EMU_PTX_COMPARE="$work/kernels" \
        "$build/tests/room/ops" --filter '*update*/*'
    try "products by tiles" env HALFSTEP_EMU_PTX="$build/ptx/exact" HALFSTEP_EMU_PTX_COMPARE="$work/kernels" \
        "$build/tests/room/ops" --filter 'matmul_tiles/*'
fi
gather
sort "$work/kernels" | awk -F'\t' '{ l[$3] += $1; d[$3] += $2; if (!($3 in f) || f[$3] == "") f[$3] = $4 }
    END { for (k in l) print l[k] "\t" d[k] "\t" k "\t" f[k] }' >"$work/all"
awk -F'\t' '$2 > 0' "$work/all" | grep -vEf <(sed '/^#/d' tests/ptx/differ) >"$work/wrong"
while IFS=$'\t' read -r launches different kernel first; do
    fail "$kernel: $different of $launches launches differ from the host compiler's code: $first"
done <"$work/wrong"
awk -F'\t' '{ l += $1; d += $2; k++; if ($2 > 0) n++ }
    END { printf "%d kernels ran, %d launches; %d kernels with a function of CUDA'"'"'s differ, in %d launches\n", k, l, n, d }' \
    "$work/all"

if [ "$what" = whole ]; then
    # What is shipped, in four orders of events.
    export HALFSTEP_EMU_PTX=$build/ptx/shipped
    seed=0
    for schedule in pct random forward reverse; do
        seed=$((seed + 1))
        for operation in "${operations[@]}"; do
            HALFSTEP_EMU_SEED=$seed HALFSTEP_EMU_SCHEDULE=$schedule try "$operation as shipped, $schedule" \
                "$trainer" selftest --device emu --no-speed --threads 1 --pairs --op "$operation"
        done
    done
    gather
    unset HALFSTEP_EMU_PTX
    # Two layers and three steps, by the host compiler's code and by PTX: losses differ by what exponentials do.
    for model in "model.family=gpt2" "model.family=llama" "model.family=gpt2 precision.mode=fp8" \
        "model.family=llama precision.mode=fp16 kernels.hopper=none" \
        "model.family=llama adapter.kind=lora adapter.rank=4 adapter.base=nf4"; do
        for text in "" "$build/ptx/exact"; do
            rm -rf "$work/run"
            # shellcheck disable=SC2086
            HALFSTEP_EMU_PTX=$text "$trainer" --config /dev/null tokenizer.kind=byte tasks.0.train=README.md \
                tasks.0.validation=10% model.layers=2 model.heads=2 model.width=64 max_length=32 batch_size=2 \
                max_steps=3 device=emu logging.every=1 resume=never out_dir="$work/run" $model 2>&1 |
                sed -nE 's/^step .* loss ([0-9.]+) .*/\1/p' >"$work/losses${text:+.text}"
        done
        [ "$(wc -l <"$work/losses")" -ge 3 ] && paste "$work/losses" "$work/losses.text" |
            awk '{ d = $1 - $2; if (NF != 2 || d * d > 1e-6) exit 1 }' || {
            fail "three steps of $model"
            paste "$work/losses" "$work/losses.text"
        }
    done
fi

# Names as the emulator's compiler has them (library.cpp).
cat "$build"/ptx/exact/kernels/cuda/*/*.ptx | sed -nE 's/^(\.visible |\.weak )?\.entry ([^(]*)\($/\2/p' |
    sed -E 's/7hs_cuda/6hs_emu/; s/[0-9]+_GLOBAL__N__[0-9a-f]+_[0-9]+_[a-z_0-9]+_cu_[0-9a-f]{8}/12_GLOBAL__N_1/' |
    sort -u >"$work/there"
cut -f3 "$work/all" | sort -u | comm -13 - "$work/there" >"$work/missing"
echo "$(wc -l <"$work/there") kernels are there; instances that never ran: $(wc -l <"$work/missing")"
echo "their text has $(cat "$build"/ptx/exact/kernels/cuda/*/*.ptx | awk -f tests/ptx/forms.awk)"
[ "$what" != whole ] || grep -oE '[a-z_]+[a-z0-9_]*_kernel' "$work/missing" | sed -E 's/^(hs_emu|_1)[0-9]+//' | sort | uniq -c |
    sort -rn
echo "$failures failed, $((SECONDS - start)) s"
exit $((failures > 0))
