#!/bin/bash
# SPDX-License-Identifier: MIT
# run.sh: the trainer for Arm's 64-bit processors, cross-compiled, under qemu's user mode (`make arm-check`, which passes
# BUILD and the libraries' PACKAGES): every operation's self-test and tests of products and vectors on each row of the
# ladder of instruction sets, what a processor without bf16 gets, and fifty steps compared with this machine's.
#
# An emulator shows that instructions are used as the manual has them.  It shows no speed, and no processor's mistakes.
# PARTS chooses among build, choice, selftest, tests, losses.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 2
build=${BUILD:?make arm-check} parts=${PARTS:-build choice selftest tests losses}
arm=$build/arm sysroot=$build/arm-sysroot trainer=$build/arm/trainer
rows='neonbf16 neon portable'
failed=0

skip() {
    echo "SKIPPED  arm: $1; nothing was run"
    exit 0
}

fail() {
    echo "FAIL  $1"
    failed=1
}

has() {
    case " $parts " in *" $1 "*) return 0 ;; esac
    return 1
}

[ "$(uname -m)" = x86_64 ] || skip "this compares with x86, and here is $(uname -m): make test tries it itself"
cross=aarch64-linux-gnu
qemu=$(command -v qemu-aarch64-static || command -v qemu-aarch64) || skip "qemu-aarch64 is not there (Debian: qemu-user-static)"
command -v $cross-gcc >/dev/null || skip "$cross-gcc is not there (Debian: gcc-aarch64-linux-gnu)"
# shellcheck disable=SC2086
tests/arm/sysroot.sh "$sysroot" ${PACKAGES:?} >"$build/arm-sysroot.log" 2>&1 ||
    skip "the system's package sources have no libraries for arm64 ($build/arm-sysroot.log)"
root=$(realpath "$sysroot/root")
export QEMU_LD_PREFIX=$root OMP_WAIT_POLICY=passive

# arm_make TARGET...
arm_make() {
    PKG_CONFIG_SYSROOT_DIR=$root PKG_CONFIG_LIBDIR=$root/usr/lib/$cross/pkgconfig:$root/usr/share/pkgconfig \
        make --no-print-directory BUILD="$arm" CC="$cross-gcc --sysroot=$root -Itests/arm/framework" CRITERION= NVCC= \
        MPICC= "$@" >"$build/arm-make.log" 2>&1 && return
    tail -n 30 "$build/arm-make.log"
    fail "make $*"
    exit 1
}

# on ROW PROGRAM ARGUMENT...
on() {
    local row=$1
    shift
    HALFSTEP_CPU_ISA=$row "$qemu" "$@"
}

# No sum of a whole tile may go through memory in the loop: vector registers are stored to the stack nowhere.
check_spills() {
    local file function
    for file in matmul_kernel.neon:multiply_f32_6x4 matmul_kernel.neonbf16:multiply_bf16_6x4 matmul_bfmmla.neonbf16:multiply_6x4; do
        function=${file#*:}
        $cross-objdump -d "$arm/obj/kernels/cpu/isa/${file%:*}.o" >"$arm/code.txt"
        sed -n "/<$function>:/,/^$/p" "$arm/code.txt" >"$arm/kernel.txt"
        grep -qE 'fmla|bfdot|bfmmla' "$arm/kernel.txt" || fail "$file: no kernel was found"
        ! grep -E '(str|stp|ldr|ldp)[[:space:]]+q.*\[sp' "$arm/kernel.txt" || fail "$file: registers are spilled"
    done
}

# is_chosen PROCESSOR ROW: what qemu's processor gets by default.
is_chosen() {
    "$qemu" -cpu "$1" "$trainer" selftest --no-speed --device cpu --op roll_scales | grep -q ", $2, " ||
        fail "$1 does not run $2"
}

if has build; then
    arm_make WERROR=1 all
    check_spills
fi
if has choice; then
    is_chosen max neonbf16
    is_chosen cortex-a72 neon
    ! HALFSTEP_CPU_ISA=neonbf16 "$qemu" -cpu cortex-a72 "$trainer" selftest --device cpu --op roll_scales \
        >"$arm/refused.txt" 2>&1 && grep -q 'does not support neonbf16' "$arm/refused.txt" ||
        fail "a processor without bf16 was not refused neonbf16"
    echo "arm: the row follows the processor: neonbf16 on max, neon on cortex-a72, which is refused neonbf16"
fi
if has selftest; then
    for row in $rows; do
        on "$row" "$trainer" selftest --no-speed --device cpu --pairs >"$arm/selftest-$row.txt" ||
            { grep -v ' ok ' "$arm/selftest-$row.txt"; fail "selftest on $row"; }
        echo "arm: selftest on $row: $(grep -c ' ok ' "$arm/selftest-$row.txt") operations ok"
    done
fi
# The tests visit all rows themselves.  Those of the emulated GPU, of other processes and of files need more than qemu has.
if has tests; then
    arm_make "$arm/tests/room/kernels" "$arm/tests/room/base" "$arm/tests/room/ops"
    while read -r program suites; do
        # shellcheck disable=SC2086
        "$qemu" "$arm/tests/room/$program" $suites >"$arm/test-$program.txt" 2>&1 ||
            { tail -n 20 "$arm/test-$program.txt"; fail "tests of $program"; }
        echo "arm: tests of $program: $(tail -n 1 "$arm/test-$program.txt")"
    done <<SUITES
kernels matmul
base simd dtype rng scaled_formats tolerance
ops checks continual_ops cost nf4 quantize sample_labels streams update update_8bit update_epilogue
SUITES
fi
# steps PROCESSOR ROW MODE NAME RATE COMMAND...
steps() {
    local processor=$1 row=$2 mode=$3 name=$4 rate=$5
    shift 5
    HALFSTEP_CPU_ISA=$row "$@" --config tests/arm/llama.yaml "precision.mode=$mode" "learning_rate=$rate" \
        "out_dir=$arm/losses/$processor-$mode-$row$name" >"$arm/steps.txt" 2>&1 && return
    grep -q 'does not support\|is not an instruction set' "$arm/steps.txt" && return # of this machine
    tail -n 5 "$arm/steps.txt"
    fail "fifty steps on $processor, $row, $mode"
}
if has losses; then
    rm -rf "$arm/losses"
    for mode in fp32 bf16; do
        for row in portable avx2 avx512 avx512bf16; do
            for nudge in 0 1 2 3; do
                steps x86 $row $mode -$nudge "$(python3 -c "print(1e-3 * (1 + $nudge * 2**-23))")" "$build/trainer"
            done
        done
        for row in $rows; do
            steps arm "$row" $mode -0 1e-3 "$qemu" "$trainer"
        done
    done
    python3 tests/arm/losses.py "$arm/losses" || failed=1
fi
exit $failed
