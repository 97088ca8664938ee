/* SPDX-License-Identifier: MIT
 *
 * What one vector register holds, a part of simd.h's sixteen lanes: the types, and what depends on a lane's type and place.
 */
#ifndef HS_KERNELS_CPU_SIMD_PART_H
#define HS_KERNELS_CPU_SIMD_PART_H

#include <stdint.h>
#include <string.h>

#include "kernels/base/tensor.h"

#if defined(__AVX2__) || defined(__SSE2__)
#include <immintrin.h>
#elif defined(HS_ISA_neon)
#include <arm_neon.h>
#endif

enum { HS_LANES = 16 };

typedef float HsF32x16 __attribute__((vector_size(64)));
typedef float HsF32x8 __attribute__((vector_size(32)));
typedef float HsF32x4 __attribute__((vector_size(16)));
typedef int32_t HsI32x16 __attribute__((vector_size(64)));
typedef uint32_t HsU32x16 __attribute__((vector_size(64)));
typedef uint16_t HsU16x16 __attribute__((vector_size(32)));
typedef double HsF64x8 __attribute__((vector_size(64)));

/* What one register holds.  GCC splits arithmetic of wider vectors in registers by itself, but compares, converts, takes
 * roots and takes upper halves lane by lane, and stores through the stack: that is done here on a vector's parts. */
#if defined(__AVX512F__)
enum { HS_PART_BYTES = 64 };
#elif defined(__AVX2__)
enum { HS_PART_BYTES = 32 };
#else
enum { HS_PART_BYTES = 16 };
#endif
enum { HS_PARTS = 64 / HS_PART_BYTES, HS_PART_LANES = HS_PART_BYTES / 4 };
typedef float HsF32Part __attribute__((vector_size(HS_PART_BYTES)));
typedef int32_t HsI32Part __attribute__((vector_size(HS_PART_BYTES)));
typedef double HsF64Part __attribute__((vector_size(HS_PART_BYTES)));
typedef union HsF32Parts {
    HsF32x16 whole;
    HsF32Part part[HS_PARTS];
    HsF32x8 half[2];
    HsF32x4 quarter[4];
} HsF32Parts;
typedef union HsF64Parts {
    HsF64x8 half[2]; /* of sixteen numbers */
    HsF64Part part[2 * HS_PARTS];
} HsF64Parts;
typedef union HsI32Parts {
    HsI32x16 whole;
    HsI32Part part[HS_PARTS];
} HsI32Parts;

#define HS_SIMD static inline __attribute__((always_inline, unused))

HS_SIMD HsF32Part hs_part_splat(float value)
{
    return value - (HsF32Part){ 0 };
}

/* mask lanes are all ones or all zeros, as comparisons give them. */
HS_SIMD HsF32Part hs_part_select(HsI32Part mask, HsF32Part yes, HsF32Part no)
{
#if defined(__AVX512F__)
    return (HsF32Part)_mm512_mask_blend_ps(_mm512_movepi32_mask((__m512i)mask), (__m512)no, (__m512)yes);
#elif defined(__AVX2__)
    return (HsF32Part)_mm256_blendv_ps((__m256)no, (__m256)yes, (__m256)mask);
#else
    return (HsF32Part)((mask & (HsI32Part)yes) | (~mask & (HsI32Part)no));
#endif
}

/* a > b ? a : b: a NaN in b is kept, as is one in a when b is the smaller by no comparison. */
HS_SIMD HsF32Part hs_part_max(HsF32Part a, HsF32Part b)
{
#if defined(__AVX512F__)
    return (HsF32Part)_mm512_max_ps((__m512)a, (__m512)b);
#elif defined(__AVX2__)
    return (HsF32Part)_mm256_max_ps((__m256)a, (__m256)b);
#elif defined(__SSE2__)
    return (HsF32Part)_mm_max_ps((__m128)a, (__m128)b);
#else
    return hs_part_select(a > b, a, b);
#endif
}

/* a < b ? a : b: b where either is NaN, as the maximum. */
HS_SIMD HsF32Part hs_part_min(HsF32Part a, HsF32Part b)
{
#if defined(__AVX512F__)
    return (HsF32Part)_mm512_min_ps((__m512)a, (__m512)b);
#elif defined(__AVX2__)
    return (HsF32Part)_mm256_min_ps((__m256)a, (__m256)b);
#elif defined(__SSE2__)
    return (HsF32Part)_mm_min_ps((__m128)a, (__m128)b);
#else
    return hs_part_select(a < b, a, b);
#endif
}

/* The numbers of a part's lanes among sixteen. */
HS_SIMD HsI32Part hs_part_numbers(int part)
{
    static const int32_t numbers[HS_LANES] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 };
    HsI32Part lanes;
    memcpy(&lanes, numbers + part * HS_PART_LANES, sizeof lanes);
    return lanes;
}

HS_SIMD HsF32Part hs_part_load_f32(const float *p)
{
    HsF32Part v;
    memcpy(&v, p, sizeof v);
    return v;
}

HS_SIMD void hs_part_store_f32(float *p, HsF32Part v)
{
    memcpy(p, &v, sizeof v);
}

#if defined(__AVX512F__)
/* Each half word to the upper half of a lane over zeros: one permutation where widening and shifting are two. */
HS_SIMD HsF32Part hs_part_from_bf16(__m256i bits)
{
    const __m512i lane = _mm512_set_epi32(0xF0000, 0xE0000, 0xD0000, 0xC0000, 0xB0000, 0xA0000, 0x90000, 0x80000,
                                          0x70000, 0x60000, 0x50000, 0x40000, 0x30000, 0x20000, 0x10000, 0);
    return (HsF32Part)_mm512_maskz_permutexvar_epi16(0xAAAAAAAAu, lane, _mm512_castsi256_si512(bits));
}
#endif

HS_SIMD HsF32Part hs_part_load_bf16(const uint16_t *p)
{
#if defined(__AVX512F__)
    return hs_part_from_bf16(_mm256_loadu_si256((const __m256i *)(const void *)p));
#elif defined(__AVX2__)
    const __m128i bits = _mm_loadu_si128((const __m128i *)(const void *)p);
    return (HsF32Part)_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16);
#elif defined(__SSE2__)
    const __m128i bits = _mm_loadl_epi64((const __m128i *)(const void *)p);
    return (HsF32Part)_mm_unpacklo_epi16(_mm_setzero_si128(), bits);
#elif defined(HS_ISA_neon)
    return (HsF32Part)vshll_n_u16(vld1_u16(p), 16);
#else
    HsI32Part bits;
    for (int i = 0; i < HS_PART_LANES; i++)
        bits[i] = (int32_t)((uint32_t)p[i] << 16);
    return (HsF32Part)bits;
#endif
}

HS_SIMD HsF32Part hs_part_load_f16(const uint16_t *p)
{
#if defined(__AVX512F__)
    return (HsF32Part)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
#elif defined(__F16C__)
    return (HsF32Part)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
#elif defined(HS_ISA_neon)
    return (HsF32Part)vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)));
#else
    HsF32Part v;
    for (int i = 0; i < HS_PART_LANES; i++)
        v[i] = hs_f16_decode(p[i]);
    return v;
#endif
}

/* Elements from `index` on of an array of f32, bf16 or f16.  With a constant dtype the branch folds away. */
HS_SIMD HsF32Part hs_part_load(HsDtype dtype, const void *array, int64_t index)
{
    if (dtype == HS_F32)
        return hs_part_load_f32((const float *)array + index);
    if (dtype == HS_BF16)
        return hs_part_load_bf16((const uint16_t *)array + index);
    return hs_part_load_f16((const uint16_t *)array + index);
}

#endif
