#!/bin/bash
# SPDX-License-Identifier: MIT
# run.sh [texts]: each wrapper of inline PTX and what CUTLASS, libcu++ or the CUDA headers have for the same instruction, by the
# machine code of both (twins.cu, compare.py); the interfaces of cuBLASLt and NCCL that are written out by hand and the
# libraries' headers (libraries.cu); then mistakes planted into each, every one of which has to be found.
# `make test-twins`, which passes BUILD and NVCC; where nvcc or headers cannot be had, the test is skipped.
# shellcheck disable=SC2016
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 2
what=twins
. tests/plant.sh
if [ -z "$texts" ]; then
    . tests/cutlass.sh
    [ -n "${NVCC:-}" ] || skip "no nvcc was found"
    find_headers
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0 count=0

# compile OUT ARGUMENTS...: with the headers in $work/tree, if there are any, before the project's.
compile() {
    local out=$1
    shift
    "$NVCC" -std=c++17 -O3 -I"$work/tree" -I. -I"$include" -diag-suppress 177,550 -o "$out" "$@" >"$work/said" 2>&1
}
compare_hopper() {
    compile "$work/hopper.cubin" -gencode arch=compute_90a,code=sm_90a -cubin tests/twins/twins.cu || return 2
    python3 tests/twins/compare.py "$work/hopper.cubin" >"$work/said"
}
compare_all() {
    compile "$work/fp8.cubin" -DTWINS_FP8 -gencode arch=compute_89,code=sm_89 -cubin tests/twins/twins.cu || return 2
    compile "$work/hopper.cubin" -gencode arch=compute_90a,code=sm_90a -cubin tests/twins/twins.cu || return 2
    python3 tests/twins/compare.py "$work/hopper.cubin" "$work/fp8.cubin" >"$work/said"
}
check_cublaslt() {
    compile /dev/null -DTWINS_CUBLASLT -arch=sm_80 -ptx tests/twins/libraries.cu
}
check_nccl() {
    compile /dev/null -DTWINS_NCCL -I"$nccl" -arch=sm_80 -ptx tests/twins/libraries.cu
}

# plant NAME TEST FILE OLD NEW
plant() {
    if ! exchange "$3" "$4" "$5" "$work/tree/$3"; then
        echo "FAIL  $1: the text to change is not in $3"
        failures=$((failures + 1))
    elif [ -n "$texts" ]; then
        count=$((count + 1))
    elif "$2"; then
        echo "FAIL  $1: planted, and not found"
        failures=$((failures + 1))
    else
        echo "ok    $1: $(grep -m1 -oE 'FAIL .*|error: .*' "$work/said" | cut -c1-110)"
    fi
    rm -rf "$work/tree"
}

if [ -z "$texts" ]; then
    compare_all || failures=1
    cat "$work/said"
fi
toolbox=kernels/cuda/toolbox
plant "halves exchanged" compare_hopper $toolbox/ptx_convert.cuh '"f"(high), "f"(low)' '"f"(low), "f"(high)'
plant "a fence of other memory" compare_hopper $toolbox/ptx_mbarrier.cuh 'fence.proxy.async.shared::cta;' 'fence.proxy.async.global;'
plant "an arrival that releases to more" compare_hopper $toolbox/ptx_mbarrier.cuh 'mbarrier.arrive.release.cta' 'mbarrier.arrive.release.cluster'
plant "another block" compare_hopper $toolbox/ptx_mbarrier.cuh '"mapa.shared::cluster.u32 %0, %1, %2;"' '"mapa.shared::cluster.u32 %0, %2, %1;"'
plant "registers of a product" compare_hopper $toolbox/ptx_mma.cuh '{%4,%5,%6,%7},{%8,%9},' '{%4,%6,%5,%7},{%8,%9},'
plant "coordinates of a store" compare_hopper $toolbox/ptx_tensor_copy.cuh '[%1, {%2, %3, %4}], [%0];" ::"r"(source)' '[%1, {%3, %2, %4}], [%0];" ::"r"(source)'
plant "which operand is transposed" compare_hopper $toolbox/ptx_wgmma.cuh 'add, 1, 1, %" a3 ", %" a4 ";' 'add, 1, 1, %" a4 ", %" a3 ";'
plant "format of codes" compare_hopper $toolbox/ptx_wgmma.cuh 'HS_WGMMA_FP8_OVERLOADS(E5m2, E4m3, "e5m2.e4m3")' 'HS_WGMMA_FP8_OVERLOADS(E5m2, E4m3, "e4m3.e5m2")'
plant "a wait that is shorter" compare_hopper $toolbox/ptx_tensor_copy.cuh 'cp.async.bulk.wait_group.read %0;" ::"n"(pending)' 'cp.async.bulk.wait_group.read %0;" ::"n"(pending + 1)'

if [ -n "$texts" ] || [ -f "$cuda/cublasLt.h" ]; then
    if [ -n "$texts" ]; then :; elif check_cublaslt; then echo "ok    cuBLASLt's interface is its header's"; else failures=1; cat "$work/said"; fi
    plant "an attribute of cuBLASLt" check_cublaslt kernels/cuda/product/cublaslt.cu 'LT_OPERATION_SCALE_B = 18' 'LT_OPERATION_SCALE_B = 19'
    plant "a parameter of cuBLASLt" check_cublaslt kernels/cuda/product/cublaslt.cu 'void *workspace, size_t workspace_bytes' 'void *workspace, int workspace_bytes'
else
    echo "SKIPPED  cuBLASLt: $cuda has no cublasLt.h"
fi
nccl=/usr/include
if [ -z "$texts" ] && [ ! -f $nccl/nccl.h ]; then
    if fetch nvidia-nccl-cu13 2.28.3; then nccl=$package/nvidia/nccl/include; fi
fi
if [ -n "$texts" ] || [ -f "$nccl/nccl.h" ]; then
    if [ -n "$texts" ]; then :; elif check_nccl; then echo "ok    NCCL's interface is its header's"; else failures=1; cat "$work/said"; fi
    plant "a type of NCCL" check_nccl kernels/cuda/comm/library.cuh 'NCCL_BF16 = 9' 'NCCL_BF16 = 10'
    plant "a structure of NCCL" check_nccl kernels/cuda/comm/library.cuh 'unsigned magic, version;' 'unsigned version, magic;'
else
    echo "SKIPPED  NCCL: no nccl.h, and the package nvidia-nccl-cu13 cannot be had"
fi
[ -z "$texts" ] || echo "$count planted, $failures failures"
exit $((failures > 0))
