/* SPDX-License-Identifier: MIT
 *
 * How the epilogues of a matrix product read and write: sixteen columns at a time, rounded once.
 */
#ifndef HS_KERNELS_CPU_ISA_MATMUL_STORE_H
#define HS_KERNELS_CPU_ISA_MATMUL_STORE_H

#include "kernels/cpu/isa/matmul.h"
#include "kernels/cpu/simd.h"

#ifdef HS_ISA_avx512bf16
#include <immintrin.h>
#endif

/* Rounding of sixteen results.  vcvtneps2bf16 equals the exact rule except that it flushes subnormal numbers; sums of
 * vdpbf16ps are never subnormal, and what a GELU makes subnormal the next vdpbf16ps would take for zero. */
HS_SIMD void store_whole(HsDtype dtype, HsPanelFormat format, void *c, int64_t index, HsF32x16 value)
{
#ifdef HS_ISA_avx512bf16
    if (dtype == HS_BF16 && format == HS_PANEL_BF16_PAIRS) {
        _mm256_storeu_si256((__m256i *)(void *)((uint16_t *)c + index), (__m256i)_mm512_cvtneps_pbh((__m512)value));
        return;
    }
#endif
    (void)format;
    hs_simd_store(dtype, c, index, value);
}

/* store_whole, not for f16, and what it stored: from the register, since a load so soon after the store of a line that
 * is not in the first-level cache was measured to wait for the line. */
HS_SIMD HsF32x16 store_rounded(HsDtype dtype, HsPanelFormat format, void *c, int64_t index, HsF32x16 value)
{
    if (dtype == HS_F32) {
        hs_simd_store_f32((float *)c + index, value);
        return value;
    }
#ifdef HS_ISA_avx512bf16
    const HsU16x16 bits =
        format == HS_PANEL_BF16_PAIRS ? (HsU16x16)_mm512_cvtneps_pbh((__m512)value) : hs_simd_to_bf16(value);
#else
    (void)format;
    const HsU16x16 bits = hs_simd_to_bf16(value);
#endif
    memcpy((uint16_t *)c + index, &bits, sizeof bits);
    return hs_simd_from_bf16(bits);
}

HS_SIMD HsF32x16 load(const HsTensor *t, int64_t index, int lanes)
{
    return hs_simd_load_part(t->dtype, t->data, index, lanes);
}

HS_SIMD void store(const HsTensor *t, HsPanelFormat format, int64_t index, HsF32x16 value, int lanes)
{
    if (lanes == HS_LANES)
        store_whole(t->dtype, format, t->data, index, value);
    else
        hs_simd_store_part(t->dtype, t->data, index, value, lanes);
}

/* Stores, and returns what a reader will see. */
HS_SIMD HsF32x16 store_and_see(const HsTensor *t, HsPanelFormat format, int64_t index, HsF32x16 value, int lanes)
{
    if (lanes == HS_LANES && t->dtype != HS_F16)
        return store_rounded(t->dtype, format, t->data, index, value);
    store(t, format, index, value, lanes);
    return load(t, index, lanes);
}

#endif
