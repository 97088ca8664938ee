#!/bin/bash
# SPDX-License-Identifier: MIT
# run.sh: the layouts of the tensor-core instructions by CuTe's layout algebra against those of the emulator and of the
# kernels; then mistakes planted into each kind of number, each of which has to be found.  `make test-layouts`, which
# passes BUILD, CXX and NVCC.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 2
what=layouts
. tests/cutlass.sh
# has_rows KIND SUFFIX: of the instructions on stdin, those that CuTe's tables do not have are reported.
has_rows() {
    local instruction missing=0
    while read -r instruction; do
        instructions=$((instructions + 1))
        grep -q "^$1;$instruction$2;" "$tables" && continue
        echo "FAIL  $instruction: the wrappers have it, cute.cpp has no row ($1)"
        missing=1
    done
    return $missing
}

# check_complete: each instruction of the wrappers has its row.
check_complete() {
    local status=0 instructions=0 wgmma=kernels/cuda/toolbox/ptx_wgmma.cuh mma=kernels/cuda/toolbox/ptx_mma.cuh types
    types=$(sed -nE 's/^HS_WGMMA_OVERLOADS\([A-Za-z0-9]+, "([a-z0-9]+)"\)$/\1/p' $wgmma)
    # wgmma_instructions MACRO
    wgmma_instructions() {
        local columns type
        sed -nE "s/.*$1\(([0-9]+), type, .*/\1/p" $wgmma | while read -r columns; do
            for type in $types; do
                echo "wgmma.m64n${columns}k16 $type"
            done
        done
    }
    has_rows sums '' < <(wgmma_instructions HS_WGMMA) || status=1
    has_rows registers '' < <(wgmma_instructions HS_WGMMA_REGISTERS) || status=1
    has_rows mma ' C' < <(sed -nE 's/.*HS_MMA\("(m[0-9]+n[0-9]+k[0-9]+)\.row\.col\.f32\.([a-z0-9]+)\..*/mma.\1 \2/p' $mma) ||
        status=1
    has_rows ldmatrix '' < <(sed -nE 's/.*"(ldmatrix)\.sync\.aligned\.m8n8(\.x[124](\.trans)?)\.shared.*/\1\2/p' $mma) ||
        status=1
    [ $status -eq 0 ] && echo "ok    rows for the $instructions instructions of the wrappers"
    [[ $types == *tf32* ]] || echo "none  wgmma in tf32: the wrappers do not have it"
    return $status
}

find_headers
program=$build/layouts/cute tables=$build/layouts/tables.txt
mkdir -p "$build/layouts"
if [ ! "$program" -nt tests/layouts/cute.cpp ] || [ ! "$program" -nt tests/layouts/table.h ] ||
    [ "$include" != "$(cat "$program.include" 2>/dev/null)" ]; then
    echo "  CXX $program (a minute)"
    # The outside headers are not held to this project's warnings.
    "${CXX:-g++}" -std=c++17 -O0 -Wall -Wextra -Wshadow -Wno-unknown-pragmas -Werror -I. -isystem "$include" \
        -isystem "$cuda" -isystem "$cuda/cccl" -o "$program" tests/layouts/cute.cpp || exit 1
    echo "$include" >"$program.include"
fi
"$program" >"$tables" || exit 1

failures=0
compare=$build/tests/compare_layouts
check_complete || failures=1
"$compare" "$tables" || failures=1
for kind in mma ldmatrix sums registers operand swizzled tile staging start leading stride type advance instruction; do
    "$compare" "$tables" --planted $kind || failures=1
done
exit $failures
