#!/bin/bash
# SPDX-License-Identifier: MIT
# gpu_faults.sh [smoke|texts]: the calls of bench/gpu.sh whole, on the emulator; then faults put into one operation's kernel (wrong
# numbers, a write outside its tensor, no end), which must leave the other operations' results whole and say what it was; and
# ten faults of which smoke has to name the first step that cannot be right.  With `smoke` these alone.  About 25 minutes:
# `make test-gpu-script`, which passes the tools.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 2
. tests/plant.sh
build=${BUILD:-build} failures=0 count=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/empty"

fail() {
    echo "FAIL  $*"
    failures=$((failures + 1))
}

[ -n "$texts" ] || bench/package/make.sh "$build" "$work/package" || exit 2
calls=(smoke correct speed counters more)
[ -z "${1:-}" ] || calls=()
for phases in "${calls[@]}"; do
    if (cd "$work/empty" && "$work/package/gpu.sh" --device emu --phases $phases --out "$work/$phases") >"$work/said" 2>&1; then
        echo "ok    $phases: $(tail -n 1 "$work/said")"
    else
        fail "$phases: $(tail -n 3 "$work/said")"
    fi
    [ "$(find "$work/$phases" -type f | wc -l)" -le 8 ] || fail "$phases: more than eight files"
done

# plant NAME UNIT FILE OLD NEW: a package in $work/faulty, of which the source UNIT was compiled with OLD replaced by NEW in FILE.
plant() {
    local name=$1 unit=$2 file=$3 planted=$work/planted
    rm -rf "$planted" "$work/faulty"
    mkdir -p "$planted/$(dirname "$unit")" "$planted/$(dirname "$file")"
    cp "$unit" "$planted/$unit"
    count=$((count + 1))
    exchange "$file" "$4" "$5" "$planted/changed" || { fail "$name: $file does not hold what is to be changed"; return 1; }
    [ -z "$texts" ] || return 1
    mv "$planted/changed" "$planted/$file"
    # shellcheck disable=SC2015,SC2086
    $CXX -I"$planted" $CXXFLAGS -x c++ -c -o "$planted/planted.emu.o" "$planted/$unit" &&
        $CXX $LDFLAGS -shared -Wl,-soname,libhalfstep-emu.so -o "$planted/libhalfstep-emu.so" "$planted/planted.emu.o" \
            ${OBJECTS/"$build/obj/${unit%.c*}.emu.o"/} || { fail "$name: does not compile"; return 1; }
    cp -r "$work/package" "$work/faulty"
    cp "$planted/libhalfstep-emu.so" "$work/faulty/parts/"
}

# fault NAME OLD NEW TEXT: in the kernel of rope, OLD becomes NEW; the page then holds TEXT, and the others' results.
fault() {
    local name=$1 page=$work/fault/README.md
    plant "$name" kernels/cuda/layers/rope.cu kernels/cuda/layers/rope.cu "$2" "$3" || return
    if (cd "$work/empty" && "$work/faulty/gpu.sh" --device emu --phases selftest --ops norm_forward,rope,combine --op-seconds 25 --out "$work/fault") \
        >"$work/said" 2>&1; then
        fail "$name: not found"
    elif grep -q '^2 operations within tolerance, 1 not' "$page" && grep -q 'rope: FAILED' "$page" && grep -q -- "$4" "$page"; then
        echo "ok    $name: $(grep -- "$4" "$page" | head -n 1 | sed 's/^ *//')"
    else
        fail "$name: the page does not say what it should:"
        sed -n '/## Every/,$p' "$page"
    fi
}

# smoke_fault STEP UNIT FILE OLD NEW: the first step that fails is this one.
smoke_fault() {
    local step=$1 first
    plant "$step" "$2" "$3" "$4" "$5" || return
    (cd "$work/empty" && "$work/faulty/gpu.sh" --device emu --phases smoke --out "$work/fault") >"$work/said" 2>&1
    first=$(sed -nE 's/^- \*\*(.*): FAILED\*\*.*/\1/p' "$work/fault/README.md" | head -n 1)
    if [ "$first" = "$step" ]; then
        echo "ok    smoke: $(grep -F -- "**$step: FAILED**" "$work/fault/README.md")"
    else
        fail "smoke names '$first' for a fault in: $step"
    fi
}
cuda=kernels/cuda product=kernels/cuda/product attention=kernels/cuda/attention layers=kernels/cuda/layers
smoke_fault 'code for all GPUs (convert)' $layers/elementwise.cu $layers/elementwise.cu \
    'run_elementwise(context, ConvertRule{}, args->x,' 'run_elementwise(context, ConvertRule{}, args->y,'
smoke_fault 'sums of a warp and a block (norm_forward)' $layers/norm.cu $cuda/toolbox/reduce.cuh \
    'offset > 0; offset /= 2' 'offset > 1; offset /= 2'
smoke_fault 'products by mma-128x128' $product/matmul_bf16.cu $product/matmul_shared.cuh \
    'ptx::mma_bf16(d, a, b);' 'ptx::mma_f16(d, a, b);'
smoke_fault 'products by wgmma-256x256' $product/matmul_hopper.cu $product/matmul_hopper_epilogue.cuh \
    'from ^ i % 2 * 64' 'from'
smoke_fault 'products by wgmma-256x256-joint' $product/matmul_hopper.cu $product/matmul_hopper_work.cuh \
    'work.turn = last - range.begin / deal.range;' 'work.turn = 0;'
smoke_fault 'attention forward' $attention/attention_forward_hopper.cu $attention/attention_forward_hopper.cu \
    'factors[half] = attention.dropout.factor / total;' 'factors[half] = attention.dropout.factor;'
smoke_fault 'attention backward' $attention/attention_backward_hopper.cu $attention/attention_backward_hopper.cu \
    '(gradient[4 * j + i] - query.value[i % 2 * 2 + 1])' '(gradient[4 * j + i] + query.value[i % 2 * 2 + 1])'
smoke_fault 'three steps by kernels for all GPUs, one by one' $layers/cross_entropy.cu $layers/cross_entropy.cu \
    'lse - target_logit' 'lse'
smoke_fault 'kernels that begin early' $layers/cross_entropy.cu $layers/cross_entropy.cu 'begin_after_kernel_before();' ''
smoke_fault 'recorded steps' kernels/emu/graph.cpp kernels/emu/graph.cpp \
    '*exec = new Executable{ graph->operations };' 'graph->operations.pop_back(), *exec = new Executable{ graph->operations };'
if [ "${1:-}" = smoke ]; then
    echo "$failures failures"
    exit $((failures > 0))
fi
fault 'wrong numbers' 'sine = fmaf(square, sine, -1.0f / 6);' 'sine = fmaf(square, sine, -1.0f / 5);' ' is .*, expected '
fault 'a write outside' 'task.y.store(first, a);' 'task.y.store(first + ((int64_t)1 << 28), a);' 'rope_kernel'
fault 'no end' 'item < items; item += THREADS' 'item < items; item += 0' 'no end in 25 s'
echo "$count planted, $failures failures"
[ $failures -eq 0 ]
