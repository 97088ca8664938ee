#!/bin/bash
# SPDX-License-Identifier: MIT
# planted.sh [PATTERN|texts]: mistakes in the text of inline assembly, one at a time: operands exchanged, constraints, immediates
# and types that are wrong, instructions left out.  The emulator's own code does not hold that text (its preprocessed
# source is the same with the mistake, which is checked), so that only the run of what nvcc makes of it can find them: by a
# fault, results that are not ref's, bits that are not the host compiler's, or no end.  With PATTERN, only those whose names
# match.  `make test-ptx-planted`, after `make ptx`.
# shellcheck disable=SC1003,SC2016
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 2
. tests/plant.sh
build=$(realpath "${BUILD:-build}") pattern=${texts:+.} failures=0 count=0
pattern=${pattern:-${1:-}}
nvcc=${NVCC:-nvcc}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
toolbox=kernels/cuda/toolbox
mkdir -p "$work/tree/$toolbox"

# judge ARGUMENTS...: the self-test, or bench/fragments as for a GPU of that much shared memory, with the text in $work/ptx;
# 0: nothing is wrong.
judge() {
    local program=("$build/trainer" selftest --device emu --no-speed --threads 1 "$@") shared=227
    if [ "$1" = fragments ]; then
        shared=$2
        program=("$build/bench/fragments" --device emu)
    fi
    rm -f "$work/kernels"
    HALFSTEP_EMU_SHARED=$shared HALFSTEP_EMU_THREADS=1 HALFSTEP_EMU_PTX="$work/ptx" \
        HALFSTEP_EMU_PTX_COMPARE="$work/kernels" timeout -k 5 "$limit" "${program[@]}" >"$work/said" 2>&1 || return 1
    ! awk -F'\t' '$2 > 0' "$work/kernels" | grep -qvEf <(sed '/^#/d' tests/ptx/differ)
}

# plant NAME HEADER UNIT ARGUMENTS OLD NEW: in ptx_HEADER.cuh, OLD becomes NEW; UNIT is the source that is compiled with it,
# ARGUMENTS are the self-test's, or "fragments KIB".
declare -A compared
plant() {
    local name=$1 header=$toolbox/ptx_$2.cuh unit=kernels/cuda/$3 arguments code=90
    [[ $3 != bench/* ]] || unit=$3
    read -ra arguments <<<"$4"
    [[ $name =~ $pattern ]] || return 0
    count=$((count + 1))
    [[ $unit != *_hopper.cu ]] || code=90a
    [[ $unit != *matmul_fp8.cu && $unit != */fragments.cu ]] || code=89
    if ! exchange "$header" "$5" "$6" "$work/tree/$header"; then
        echo "FAIL  $name: the text to change is not in $header"
        failures=$((failures + 1))
        return
    fi
    [ -z "$texts" ] || return 0
    local flags=(-x c++ -std=c++17 -D_GNU_SOURCE -DHS_EMU -E -P)
    [ -n "${compared[$unit]:-}" ] || compared[$unit]=$(g++ "${flags[@]}" -I. "$unit" | md5sum)
    if [ "$(g++ "${flags[@]}" -I"$work/tree" -I. "$unit" | md5sum)" != "${compared[$unit]}" ]; then
        echo "FAIL  $name: the emulator's own code has changed, too"
        failures=$((failures + 1))
    fi
    rm -rf "$work/ptx"
    cp -rs "$build/ptx/exact" "$work/ptx"
    if ! "$nvcc" -std=c++17 -O3 -I"$work/tree" -I. -arch=compute_$code -fmad=false -ptx -o "$work/planted.ptx" "$unit" \
        >"$work/said" 2>&1; then
        echo "FAIL  $name: does not compile"
        tail -n 3 "$work/said"
        failures=$((failures + 1))
    elif rm "$work/ptx/${unit%.cu}.ptx" && mv "$work/planted.ptx" "$work/ptx/${unit%.cu}.ptx" && (judge "${arguments[@]}") 2>/dev/null; then
        echo "FAIL  $name: not found"
        failures=$((failures + 1))
    else
        echo "ok    $name: $(grep -m1 -oE 'emulator: .*|worst error.*' "$work/said" | cut -c1-130)"
    fi
    rm -f "$work/tree/$header"
}

limit=120
product="--op matmul --pairs"
bf16=product/matmul_bf16.cu hopper=product/matmul_hopper.cu fp8=product/matmul_fp8_hopper.cu
attention=attention/attention_forward_hopper.cu

plant "convert: halves of bf16 exchanged" convert layers/norm.cu "--op norm_forward --pairs" \
    'asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low))' \
    'asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(low), "f"(high))'
plant "convert: halves of f16 exchanged" convert layers/norm.cu "--op norm_forward --pairs" \
    '"cvt.rn.f16x2.f32 %0, %1, %2;"' '"cvt.rn.f16x2.f32 %0, %2, %1;"'
plant "convert: bf16 in place of f16" convert layers/norm.cu "--op norm_forward --pairs" \
    '"cvt.rn.f16x2.f32 %0' '"cvt.rn.bf16x2.f32 %0'
plant "grid: no wait for the kernel before" grid layers/norm.cu "--op norm_forward --pairs" \
    'asm volatile("griddepcontrol.wait;" ::: "memory")' 'asm volatile("" ::: "memory")'
plant "copy: what is not valid is copied, too" copy $bf16 "$product --force-tile=mma-64x64" \
    '[%0], [%1], 16, %2;" ::"r"(destination), "l"(source), "r"(valid)' '[%0], [%1], 16, 16;" ::"r"(destination), "l"(source)'
plant "copy: waits for one group fewer" copy $bf16 "$product --force-tile=mma-64x64" \
    'cp.async.wait_group %0;" ::"n"(pending)' 'cp.async.wait_group %0;" ::"n"(pending + 1)'
plant "copy: no commit" copy $bf16 "$product --force-tile=mma-64x64" \
    'asm volatile("cp.async.commit_group;" ::: "memory")' 'asm volatile("" ::: "memory")'
plant "mma: registers of a exchanged" mma $bf16 "$product --force-tile=mma-64x64" \
    '{%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};" \' '{%0,%1,%2,%3},{%4,%6,%5,%7},{%8,%9},{%0,%1,%2,%3};" \'
plant "mma: registers of b exchanged" mma $bf16 "$product --force-tile=mma-64x64" \
    '{%4,%5,%6,%7},{%8,%9},' '{%4,%5,%6,%7},{%9,%8},'
plant "mma: other sums are added to" mma $bf16 "$product --force-tile=mma-64x64" \
    '{%8,%9},{%0,%1,%2,%3};" \' '{%8,%9},{%1,%0,%3,%2};" \'
plant "mma: f16 in place of bf16" mma $bf16 "$product --force-tile=mma-64x64" \
    'HS_MMA("m16n8k16.row.col.f32.bf16.bf16.f32"' 'HS_MMA("m16n8k16.row.col.f32.f16.f16.f32"'
plant "mma: a sum is not an input" mma $bf16 "$product --force-tile=mma-64x64" \
    '{%8,%9},{%0,%1,%2,%3};" \
                 : "+f"(d[0])' '{%8,%9},{%0,%1,%2,%3};" \
                 : "=f"(d[0])'
plant "ldmatrix: results exchanged" mma $bf16 "$product --force-tile=mma-64x64" \
    'x4.shared.b16 {%0,%1,%2,%3}' 'x4.shared.b16 {%0,%2,%1,%3}'
plant "ldmatrix: not transposed" mma $bf16 "$product --force-tile=mma-64x64" 'm8n8.x4.trans.shared' 'm8n8.x4.shared'
wide="$product --force-tile=wgmma-128x256"
plant "mbarrier: one arrival too many is wanted" mbarrier $hopper "$wide" '"r"(address), "r"(arrivals)' \
    '"r"(address), "r"(arrivals + 1)'
plant "mbarrier: half the bytes are expected" mbarrier $hopper "$wide" '[%0], %1;" ::"r"(address), "r"(bytes)' \
    '[%0], %1;" ::"r"(address), "r"(bytes / 2)'
plant "mbarrier: waits for the other parity" mbarrier $hopper "$wide" '"@!over bra again;\n"
                          "}" ::"r"(address),
                          "r"(parity)' '"@!over bra again;\n"
                          "}" ::"r"(address),
                          "r"(parity ^ 1)'
plant "mbarrier: does not wait" mbarrier $hopper "$wide" '"mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 over, [%0], %1;\n"' \
    '"setp.eq.u32 over, 0, 0;\n"'
plant "fence of shared memory left out" mbarrier $hopper "$wide" 'asm volatile("fence.proxy.async.shared::cta;" ::: "memory")' \
    'asm volatile("" ::: "memory")'
plant "bar.sync: name and count exchanged" mbarrier $hopper "$wide" '"bar.sync %0, %1;"' '"bar.sync %1, %0;"'
plant "cluster: no barrier" mbarrier $hopper "$product --force-tile=wgmma-256x256" '"barrier.cluster.arrive.relaxed.aligned;\n"
                          "barrier.cluster.wait.acquire.aligned;"' '""'
plant "mapa: operands exchanged" mbarrier $hopper "$product --force-tile=wgmma-256x256" '"mapa.shared::cluster.u32 %0, %1, %2;"' \
    '"mapa.shared::cluster.u32 %0, %2, %1;"'
plant "setmaxnreg: more than there are" mbarrier $hopper "$wide" '"setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(count)' \
    '"setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(256)'
plant "load: coordinates exchanged" tensor_copy $hopper "$wide" '"{%3, %4}], [%2];"' '"{%4, %3}], [%2];"'
plant "load: another barrier" tensor_copy $hopper "$wide" '"{%3, %4}], [%2];" ::"r"(destination),
                          "l"(map), "r"(mbarrier)' '"{%3, %4}], [%2];" ::"r"(destination),
                          "l"(map), "r"(mbarrier + 8)'
plant "store: coordinates exchanged" tensor_copy $hopper "$wide" 'bulk_group [%1, {%2, %3, %4}], [%0];" ::"r"(source)' \
    'bulk_group [%1, {%3, %2, %4}], [%0];" ::"r"(source)'
plant "store: shared memory is free too early" tensor_copy $hopper "$wide" 'cp.async.bulk.wait_group.read %0;" ::"n"(pending)' \
    'cp.async.bulk.wait_group.read %0;" ::"n"(pending + 1)'
plant "wgmma: descriptors exchanged" wgmma $hopper "$wide" '"%" a0 ", %" a1 ", add, 1, 1, %" a3' '"%" a1 ", %" a0 ", add, 1, 1, %" a3'
plant "wgmma: the other operand is transposed" wgmma $hopper "$wide" 'add, 1, 1, %" a3 ", %" a4 ";\n}"' \
    'add, 1, 1, %" a4 ", %" a3 ";\n}"'
plant "wgmma: adds where it should not" wgmma $hopper "$wide" 'setp.ne.b32 add, %" a2 ", 0;\n"                                        \' \
    'setp.eq.b32 add, %" a2 ", 0;\n"                                        \'
plant "wgmma: no fence" wgmma $hopper "$wide" 'asm volatile("wgmma.fence.sync.aligned;" ::: "memory")' 'asm volatile("" ::: "memory")'
plant "wgmma: no commit" wgmma $hopper "$wide" 'asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory")' \
    'asm volatile("" ::: "memory")'
plant "wgmma: waits for one group fewer" wgmma $attention "--op attention_forward --pairs" \
    'wgmma.wait_group.sync.aligned %0;" ::"n"(pending)' 'wgmma.wait_group.sync.aligned %0;" ::"n"(pending + 1)'
plant "wgmma: registers of a exchanged" wgmma $attention "--op attention_forward --pairs" \
    '"r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3])' '"r"(a[0]), "r"(a[2]), "r"(a[1]), "r"(a[3])'
plant "wgmma: codes of the other format" wgmma $fp8 "$product --force-tile=wgmma-fp8-256x128" \
    'HS_WGMMA_FP8_OVERLOADS(E5m2, E4m3, "e5m2.e4m3")' 'HS_WGMMA_FP8_OVERLOADS(E5m2, E4m3, "e4m3.e4m3")'

# By the experiments that a GPU runs: what few kernels need, or need seldom.
slope="--op matmul --force-tile=mma-64x64 --match=gelu'"
limit=30
few=bench/fragments.cu hop=bench/fragments_hopper.cu
plant "clamp: ends exchanged" convert $bf16 "$slope" '%0, %0, %1;" : "+f"(x) : "f"(low)' '%0, %0, %1;" : "+f"(x) : "f"(high)'
plant "fragments: codes of warps in the other format" mma $few "fragments 99" 'HS_MMA_FP8("e5m2", "e4m3")' 'HS_MMA_FP8("e4m3", "e4m3")'
plant "fragments: registers of codes exchanged" mma $few "fragments 99" '".f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9}' '".f32 {%0,%1,%2,%3},{%4,%5,%7,%6},{%8,%9}'
plant "fragments: a third coordinate at another place" tensor_copy $hop "fragments 227" '[%1, {%2, %3, %4}], [%0];" ::"r"(source),
                     "l"(map), "r"(x), "r"(y), "r"(z)
                     : "memory"));
#endif
}

HS_DEVICE void store_tile(uint32_t source, const TensorMap *map, int x, int y, int z, int w)' '[%1, {%2, %4, %3}], [%0];" ::"r"(source),
                     "l"(map), "r"(x), "r"(y), "r"(z)
                     : "memory"));
#endif
}

HS_DEVICE void store_tile(uint32_t source, const TensorMap *map, int x, int y, int z, int w)'
plant "fragments: stored, not added" tensor_copy $hop "fragments 227" 'cp.reduce.async.bulk.tensor.3d.global.shared::cta.add.tile.bulk_group' \
    'cp.async.bulk.tensor.3d.global.shared::cta.bulk_group'
plant "fragments: another word's turn" mbarrier $hop "fragments 227" '"ld.acquire.gpu.global.u32 %0, [%1];"' '"ld.acquire.gpu.global.u32 %0, [%1+-4];"'
plant "fragments: a turn is not given" mbarrier $hop "fragments 227" '"st.release.gpu.global.u32 [%0], %1;"' '"st.release.gpu.global.u32 [%0], 0;"'
plant "fragments: store to the own block" mbarrier $hop "fragments 227" '"mapa.shared::cluster.u32 %0, %1, %2;"' '"mov.u32 %0, %1;"'
plant "fragments: more registers are kept than there are" mbarrier $hop "fragments 227" 'setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(count)' 'setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(count + 16)'
plant "fragments: the second kernel does not wait" grid $hop "fragments 227" 'asm volatile("griddepcontrol.wait;" ::: "memory")' 'asm volatile("" ::: "memory")'
plant "fragments: descriptors of codes exchanged" wgmma $hop "fragments 227" '"%" a0 ", %" a1   \' '"%" a1 ", %" a0   \'
plant "fragments: wgmma n64 takes other sums" wgmma $hop "fragments 227" 'HS_SUMS_32(i)  HS_SUMS_8(i), HS_SUMS_8(i + 8)' 'HS_SUMS_32(i)  HS_SUMS_8(i + 8), HS_SUMS_8(i)'

echo "$count planted, $failures failures"
exit $((failures > 0))
