#!/bin/bash
# SPDX-License-Identifier: MIT
# gpu_faults.sh: the calls of bench/gpu.sh whole, on the emulator; then faults put into one operation's kernel (wrong
# numbers, a write outside its tensor, no end), which must leave the other operations' results whole and say what it was.
# About ten minutes: `make test-gpu-script`, which passes the tools.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 2
build=${BUILD:?make test-gpu-script} failures=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/empty"

fail() {
    echo "FAIL  $*"
    failures=$((failures + 1))
}

bench/package/make.sh "$build" "$work/package" || exit 2
for phases in smoke correct speed counters more; do
    if (cd "$work/empty" && "$work/package/gpu.sh" --device emu --phases $phases --out "$work/$phases") >"$work/said" 2>&1; then
        echo "ok    $phases: $(tail -n 1 "$work/said")"
    else
        fail "$phases: $(tail -n 3 "$work/said")"
    fi
    [ "$(find "$work/$phases" -type f | wc -l)" -le 8 ] || fail "$phases: more than eight files"
done

# fault NAME OLD NEW TEXT: in the kernel of rope, OLD becomes NEW; the page then holds TEXT, and the others' results.
fault() {
    local name=$1 page=$work/fault/README.md
    mkdir -p "$work/kernels/cuda/layers" "$work/planted"
    OLD=$2 NEW=$3 perl -0pe 's/\Q$ENV{OLD}\E/$ENV{NEW}/ and $n++; END { exit !$n }' kernels/cuda/layers/rope.cu >"$work/kernels/cuda/layers/rope.cu" ||
        { fail "$name: rope.cu does not hold what is to be changed"; return; }
    # shellcheck disable=SC2015,SC2086
    $CXX $CXXFLAGS -x c++ -c -o "$work/planted/rope.emu.o" "$work/kernels/cuda/layers/rope.cu" &&
        $CXX $LDFLAGS -shared -Wl,-soname,libhalfstep-emu.so -o "$work/planted/libhalfstep-emu.so" "$work/planted/rope.emu.o" \
            ${OBJECTS/"$build/obj/kernels/cuda/layers/rope.emu.o"/} || { fail "$name: does not compile"; return; }
    rm -rf "$work/faulty"
    cp -r "$work/package" "$work/faulty"
    cp "$work/planted/libhalfstep-emu.so" "$work/faulty/parts/"
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
fault 'wrong numbers' 'sine = fmaf(square, sine, -1.0f / 6);' 'sine = fmaf(square, sine, -1.0f / 5);' ' is .*, expected '
fault 'a write outside' 'task.y.store(first, a);' 'task.y.store(first + ((int64_t)1 << 28), a);' 'rope_kernel'
fault 'no end' 'item < items; item += THREADS' 'item < items; item += 0' 'no end in 25 s'
echo "$failures failures"
[ $failures -eq 0 ]
