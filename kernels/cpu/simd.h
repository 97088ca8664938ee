/* SPDX-License-Identifier: MIT
 *
 * Sixteen lanes of f32 for every instruction set: one source, GCC's vector types, intrinsics only where plain C cannot
 * say it (f16 conversion).  On AVX-512 a value is one register, on AVX2 two, on NEON and in portable code four.
 *
 * Conversions round to nearest even and equal the software encode of kernels/base/dtype.h bit for bit.  A sum over
 * lanes is one fixed tree, so that it is the same on every instruction set and for every thread count.
 */
#ifndef HS_KERNELS_CPU_SIMD_H
#define HS_KERNELS_CPU_SIMD_H

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

/* What one register holds.  GCC splits arithmetic of wider vectors in registers by itself, but compares, takes roots
 * and takes upper halves lane by lane: that is done here on a vector's parts. */
#if defined(__AVX512F__)
enum { HS_PART_BYTES = 64 };
#elif defined(__AVX2__)
enum { HS_PART_BYTES = 32 };
#else
enum { HS_PART_BYTES = 16 };
#endif
enum { HS_PARTS = 64 / HS_PART_BYTES };
typedef float HsF32Part __attribute__((vector_size(HS_PART_BYTES)));
typedef int32_t HsI32Part __attribute__((vector_size(HS_PART_BYTES)));
typedef union HsF32Parts {
    HsF32x16 whole;
    HsF32Part part[HS_PARTS];
    HsF32x8 half[2];
    HsF32x4 quarter[4];
} HsF32Parts;
typedef union HsI32Parts {
    HsI32x16 whole;
    HsI32Part part[HS_PARTS];
} HsI32Parts;

#define HS_SIMD static inline __attribute__((always_inline, unused))

HS_SIMD HsF32x16 hs_simd_splat(float value)
{
    return value - (HsF32x16){ 0 };
}

/* Lanes of the result are all ones or all zeros. */
#define HS_SIMD_COMPARISON(name, Vector, Parts, operation)  \
    HS_SIMD HsI32x16 name(Vector a, Vector b)               \
    {                                                       \
        const Parts x = { .whole = a }, y = { .whole = b }; \
        HsI32Parts result;                                  \
        for (int i = 0; i < HS_PARTS; i++)                  \
            result.part[i] = x.part[i] operation y.part[i]; \
        return result.whole;                                \
    }

HS_SIMD_COMPARISON(hs_simd_less, HsF32x16, HsF32Parts, <)
HS_SIMD_COMPARISON(hs_simd_equal, HsF32x16, HsF32Parts, ==)
HS_SIMD_COMPARISON(hs_simd_greater_i32, HsI32x16, HsI32Parts, >)
HS_SIMD_COMPARISON(hs_simd_equal_i32, HsI32x16, HsI32Parts, ==)

HS_SIMD HsI32x16 hs_simd_splat_i32(int32_t value)
{
    return value - (HsI32x16){ 0 };
}

/* mask lanes are all ones or all zeros, as comparisons give them. */
HS_SIMD HsF32x16 hs_simd_select(HsI32x16 mask, HsF32x16 yes, HsF32x16 no)
{
#if defined(__AVX512F__)
    return (HsF32x16)_mm512_mask_blend_ps(_mm512_movepi32_mask((__m512i)mask), (__m512)no, (__m512)yes);
#else
    return (HsF32x16)((mask & (HsI32x16)yes) | (~mask & (HsI32x16)no));
#endif
}

/* A NaN in b is kept, as is one in a when b is the smaller by no comparison. */
HS_SIMD HsF32x16 hs_simd_max(HsF32x16 a, HsF32x16 b)
{
#if defined(__AVX512F__)
    return (HsF32x16)_mm512_max_ps((__m512)a, (__m512)b); /* the same choice, a > b ? a : b */
#else
    return hs_simd_select(hs_simd_less(b, a), a, b);
#endif
}

/* b where either is NaN, as the maximum. */
HS_SIMD HsF32x16 hs_simd_min(HsF32x16 a, HsF32x16 b)
{
#if defined(__AVX512F__)
    return (HsF32x16)_mm512_min_ps((__m512)a, (__m512)b);
#else
    return hs_simd_select(hs_simd_less(a, b), a, b);
#endif
}

/* *sum += v, in a loop: a whole wide vector that a loop carries would live in memory, its parts stay in registers. */
HS_SIMD void hs_simd_accumulate(HsF32Parts *sum, HsF32x16 v)
{
    const HsF32Parts x = { .whole = v };
    for (int i = 0; i < HS_PARTS; i++)
        sum->part[i] += x.part[i];
}

HS_SIMD float hs_simd_sum(HsF32x16 v)
{
#if defined(__AVX512F__)
    HsF32x8 a = __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7) +
                __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15);
    HsF32x4 b = __builtin_shufflevector(a, a, 0, 1, 2, 3) + __builtin_shufflevector(a, a, 4, 5, 6, 7);
#else
    const HsF32Parts x = { .whole = v };
    HsF32x4 b = (x.quarter[0] + x.quarter[2]) + (x.quarter[1] + x.quarter[3]);
#endif
    return (b[0] + b[2]) + (b[1] + b[3]);
}

/* The lanes as doubles, for sums over whole tensors; and the sum of sixteen of those, again one fixed tree. */
HS_SIMD void hs_simd_widen(HsF32x16 v, HsF64x8 *low, HsF64x8 *high)
{
#if defined(__AVX512F__)
    *low = __builtin_convertvector(__builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7), HsF64x8);
    *high = __builtin_convertvector(__builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15), HsF64x8);
#else
    const HsF32Parts x = { .whole = v };
    *low = __builtin_convertvector(x.half[0], HsF64x8);
    *high = __builtin_convertvector(x.half[1], HsF64x8);
#endif
}

HS_SIMD double hs_simd_sum_f64(HsF64x8 low, HsF64x8 high)
{
    low += high;
    return ((low[0] + low[4]) + (low[1] + low[5])) + ((low[2] + low[6]) + (low[3] + low[7]));
}

HS_SIMD float hs_simd_largest(HsF32x16 v)
{
    float largest = v[0];
    for (int i = 1; i < HS_LANES; i++)
        largest = v[i] > largest ? v[i] : largest;
    return largest;
}

/* ------------------------------------------------------------------------------------------- loads and stores */
HS_SIMD HsF32x16 hs_simd_load_f32(const float *p)
{
    HsF32x16 v;
    memcpy(&v, p, sizeof v);
    return v;
}

HS_SIMD void hs_simd_store_f32(float *p, HsF32x16 v)
{
    memcpy(p, &v, sizeof v);
}

#if defined(__AVX512F__)
/* Each half word to the upper half of a lane over zeros: one permutation where widening and shifting are two. */
HS_SIMD HsF32x16 hs_simd_from_bf16(__m256i bits)
{
    const __m512i lane = _mm512_set_epi32(0xF0000, 0xE0000, 0xD0000, 0xC0000, 0xB0000, 0xA0000, 0x90000, 0x80000,
                                          0x70000, 0x60000, 0x50000, 0x40000, 0x30000, 0x20000, 0x10000, 0);
    return (HsF32x16)_mm512_maskz_permutexvar_epi16(0xAAAAAAAAu, lane, _mm512_castsi256_si512(bits));
}
#endif

HS_SIMD HsF32x16 hs_simd_load_bf16(const uint16_t *p)
{
#if defined(__AVX512F__)
    return hs_simd_from_bf16(_mm256_loadu_si256((const __m256i *)(const void *)p));
#elif defined(HS_ISA_neon)
    HsF32Parts v;
    for (int i = 0; i < HS_PARTS; i++)
        v.part[i] = (HsF32Part)vshll_n_u16(vld1_u16(p + 4 * i), 16);
    return v.whole;
#else
    HsU16x16 bits;
    memcpy(&bits, p, sizeof bits);
    return (HsF32x16)(__builtin_convertvector(bits, HsU32x16) << 16);
#endif
}

/* Nearest even by integers: add half of the last kept bit's weight, less one where that bit is even.  A NaN keeps its
 * sign and upper bits and becomes quiet.  vcvtneps2bf16 gives the same bits, but takes subnormal numbers for zero: only
 * vectors that hold one (vfpclassps, class 0x20) go the long way.  BFCVTN is this rule. */
HS_SIMD HsU16x16 hs_simd_to_bf16(HsF32x16 v)
{
#if defined(__AVX512BF16__)
    if (__builtin_expect(_mm512_fpclass_ps_mask((__m512)v, 0x20) == 0, 1))
        return (HsU16x16)_mm512_cvtneps_pbh((__m512)v);
#elif defined(HS_ISA_neonbf16)
    const HsF32Parts x = { .whole = v };
    bfloat16x8_t half[2];
    for (int i = 0; i < 2; i++)
        half[i] = vcvtq_high_bf16_f32(vcvtq_low_bf16_f32((float32x4_t)x.part[2 * i]), (float32x4_t)x.part[2 * i + 1]);
    HsU16x16 result;
    memcpy(&result, half, sizeof result);
    return result;
#endif
    HsU32x16 bits = (HsU32x16)v;
    HsU32x16 rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
#if defined(__AVX512F__)
    const __mmask16 is_nan = _mm512_cmp_ps_mask((__m512)v, (__m512)v, _CMP_UNORD_Q);
    const __m512i quiet = _mm512_or_si512(_mm512_srli_epi32((__m512i)bits, 16), _mm512_set1_epi32(0x40));
    return (HsU16x16)_mm512_cvtepi32_epi16(_mm512_mask_mov_epi32((__m512i)rounded, is_nan, quiet));
#else
    HsU32x16 is_nan = (HsU32x16)hs_simd_greater_i32((HsI32x16)(bits & 0x7FFFFFFFu), hs_simd_splat_i32(0x7F800000));
    rounded = (is_nan & (bits >> 16 | 0x40u)) | (~is_nan & rounded);
    return __builtin_convertvector(rounded, HsU16x16);
#endif
}

/* hs_bf16_encode_stochastic in every lane: the upper half of each word decides about the dropped bits. */
HS_SIMD HsU16x16 hs_simd_to_bf16_stochastic(HsF32x16 v, const uint32_t word[HS_LANES])
{
    HsU32x16 random, bits = (HsU32x16)v;
    memcpy(&random, word, sizeof random);
    HsF32x16 rounded = (HsF32x16)((bits + (random >> 16)) >> 16);
    HsI32x16 is_special = hs_simd_equal_i32((HsI32x16)bits & 0x7F800000, hs_simd_splat_i32(0x7F800000));
    HsF32x16 special = (HsF32x16) __builtin_convertvector(hs_simd_to_bf16(v), HsU32x16);
    return __builtin_convertvector((HsU32x16)hs_simd_select(is_special, special, rounded), HsU16x16);
}

#if defined(__AVX512F__)
/* The first `count` (0..15) lanes. */
HS_SIMD __mmask16 hs_simd_first(int64_t count)
{
    return (__mmask16)((1u << count) - 1u);
}
#endif

/* Lanes from `count` on set to zero. */
HS_SIMD HsF32x16 hs_simd_keep_first(HsF32x16 v, int64_t count)
{
    if (count >= HS_LANES)
        return v;
#if defined(__AVX512F__)
    return (HsF32x16)_mm512_maskz_mov_ps(hs_simd_first(count), (__m512)v);
#else
    const HsI32x16 lane = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 };
    return (HsF32x16)((HsI32x16)v & hs_simd_greater_i32(hs_simd_splat_i32((int32_t)count), lane));
#endif
}

/* The first `count` lanes, stochastically rounded. */
HS_SIMD void hs_simd_store_part_stochastic(void *array, int64_t index, HsF32x16 v, const uint32_t word[HS_LANES],
                                           int64_t count)
{
    const HsU16x16 bits = hs_simd_to_bf16_stochastic(v, word);
    if (count >= HS_LANES)
        memcpy((uint16_t *)array + index, &bits, sizeof bits);
    else
#if defined(__AVX512F__)
        _mm256_mask_storeu_epi16((uint16_t *)array + index, hs_simd_first(count), (__m256i)bits);
#else
        memcpy((uint16_t *)array + index, &bits, (size_t)count * sizeof(uint16_t));
#endif
}

HS_SIMD void hs_simd_store_bf16(uint16_t *p, HsF32x16 v)
{
    HsU16x16 bits = hs_simd_to_bf16(v);
    memcpy(p, &bits, sizeof bits);
}

HS_SIMD HsF32x16 hs_simd_load_f16(const uint16_t *p)
{
    HsF32x16 v;
#if defined(__AVX512F__)
    v = (HsF32x16)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
#elif defined(__F16C__)
    float lanes[HS_LANES];
    for (int half = 0; half < 2; half++)
        _mm256_storeu_ps(lanes + 8 * half,
                         _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(p + 8 * half))));
    memcpy(&v, lanes, sizeof v);
#elif defined(HS_ISA_neon)
    HsF32Parts x;
    for (int i = 0; i < HS_PARTS; i++)
        x.part[i] = (HsF32Part)vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p + 4 * i)));
    v = x.whole;
#else
    for (int i = 0; i < HS_LANES; i++)
        v[i] = hs_f16_decode(p[i]);
#endif
    return v;
}

HS_SIMD void hs_simd_store_f16(uint16_t *p, HsF32x16 v)
{
#if defined(__AVX512F__)
    _mm256_storeu_si256((__m256i *)(void *)p,
                        _mm512_cvtps_ph((__m512)v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#elif defined(__F16C__)
    float lanes[HS_LANES];
    memcpy(lanes, &v, sizeof v);
    for (int half = 0; half < 2; half++)
        _mm_storeu_si128((__m128i *)(void *)(p + 8 * half),
                         _mm256_cvtps_ph(_mm256_loadu_ps(lanes + 8 * half), _MM_FROUND_TO_NEAREST_INT));
#elif defined(HS_ISA_neon)
    const HsF32Parts x = { .whole = v };
    for (int i = 0; i < HS_PARTS; i++)
        vst1_u16(p + 4 * i, vreinterpret_u16_f16(vcvt_f16_f32((float32x4_t)x.part[i])));
#else
    for (int i = 0; i < HS_LANES; i++)
        p[i] = hs_f16_encode(v[i]);
#endif
}

/* Sixteen elements from `index` on of an array of f32, bf16 or f16.  With a constant dtype the branch folds away. */
HS_SIMD HsF32x16 hs_simd_load(HsDtype dtype, const void *array, int64_t index)
{
    if (dtype == HS_F32)
        return hs_simd_load_f32((const float *)array + index);
    if (dtype == HS_BF16)
        return hs_simd_load_bf16((const uint16_t *)array + index);
    return hs_simd_load_f16((const uint16_t *)array + index);
}

HS_SIMD void hs_simd_store(HsDtype dtype, void *array, int64_t index, HsF32x16 v)
{
    if (dtype == HS_F32)
        hs_simd_store_f32((float *)array + index, v);
    else if (dtype == HS_BF16)
        hs_simd_store_bf16((uint16_t *)array + index, v);
    else
        hs_simd_store_f16((uint16_t *)array + index, v);
}

/* The first `count` (1..16) lanes only; the others are zero, and memory behind them is not touched. */
HS_SIMD HsF32x16 hs_simd_load_part(HsDtype dtype, const void *array, int64_t index, int64_t count)
{
    if (count >= HS_LANES)
        return hs_simd_load(dtype, array, index);
#if defined(__AVX512F__)
    const __mmask16 first = hs_simd_first(count);
    if (dtype == HS_F32)
        return (HsF32x16)_mm512_maskz_loadu_ps(first, (const float *)array + index);
    const __m256i half = _mm256_maskz_loadu_epi16(first, (const uint16_t *)array + index);
    if (dtype == HS_BF16)
        return hs_simd_from_bf16(half);
    return (HsF32x16)_mm512_cvtph_ps(half);
#else
    const size_t bytes = dtype == HS_F32 ? 4 : 2;
    unsigned char lanes[64] = { 0 };
    memcpy(lanes, (const unsigned char *)array + (size_t)index * bytes, (size_t)count * bytes);
    return hs_simd_load(dtype, lanes, 0);
#endif
}

HS_SIMD void hs_simd_store_part(HsDtype dtype, void *array, int64_t index, HsF32x16 v, int64_t count)
{
    if (count >= HS_LANES) {
        hs_simd_store(dtype, array, index, v);
        return;
    }
#if defined(__AVX512F__)
    const __mmask16 first = hs_simd_first(count);
    if (dtype == HS_F32) {
        _mm512_mask_storeu_ps((float *)array + index, first, (__m512)v);
        return;
    }
    const __m256i half = dtype == HS_BF16 ? (__m256i)hs_simd_to_bf16(v)
                                          : _mm512_cvtps_ph((__m512)v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    _mm256_mask_storeu_epi16((uint16_t *)array + index, first, half);
#else
    const size_t bytes = dtype == HS_F32 ? 4 : 2;
    unsigned char lanes[64];
    hs_simd_store(dtype, lanes, 0, v);
    memcpy((unsigned char *)array + (size_t)index * bytes, lanes, (size_t)count * bytes);
#endif
}

/* statement for every vector of elements begin .. end - 1: first element i, `left` lanes, which is the constant
 * HS_LANES in all but the last, so that what is written for any number of lanes compiles to whole loads and stores in
 * the loop. */
#define HS_FOR_VECTORS(i, left, begin, end, ...)       \
    do {                                               \
        int64_t i = (begin);                           \
        for (; i + HS_LANES <= (end); i += HS_LANES) { \
            const int64_t left = HS_LANES;             \
            __VA_ARGS__;                               \
        }                                              \
        if (i < (end)) {                               \
            const int64_t left = (end)-i;              \
            __VA_ARGS__;                               \
        }                                              \
    } while (0)

/* CALL(in, out) with constants for the pairs that training has, and any other pair as it comes. */
#define HS_FOR_DTYPES(in, out, CALL)                 \
    do {                                             \
        if ((in) == HS_BF16 && (out) == HS_BF16)     \
            CALL(HS_BF16, HS_BF16);                  \
        else if ((in) == HS_F32 && (out) == HS_F32)  \
            CALL(HS_F32, HS_F32);                    \
        else if ((in) == HS_F16 && (out) == HS_F16)  \
            CALL(HS_F16, HS_F16);                    \
        else if ((in) == HS_F32 && (out) == HS_BF16) \
            CALL(HS_F32, HS_BF16);                   \
        else if ((in) == HS_BF16 && (out) == HS_F32) \
            CALL(HS_BF16, HS_F32);                   \
        else                                         \
            CALL(in, out);                           \
    } while (0)

/* Factors of a row's elements, f32, which may be absent: 1 then, and the same instructions. */
typedef struct HsSimdFactors {
    const float *data;
    int64_t step; /* 0: these lanes serve for all */
} HsSimdFactors;

HS_SIMD HsSimdFactors hs_simd_factors(const HsTensor *factors)
{
    static const float ones[HS_LANES] = { 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1 };
    return hs_tensor_present(factors) ? (HsSimdFactors){ factors->data, 1 } : (HsSimdFactors){ ones, 0 };
}

HS_SIMD HsF32x16 hs_simd_load_factors(HsSimdFactors factors, int64_t index, int64_t count)
{
    return hs_simd_load_part(HS_F32, factors.data, index * factors.step, count);
}

/* `count` consecutive elements to floats, and back with one rounding. */
HS_SIMD void hs_simd_row_to_f32(HsDtype dtype, const void *array, int64_t count, float *out)
{
    for (int64_t i = 0; i < count; i += HS_LANES)
        hs_simd_store_part(HS_F32, out, i, hs_simd_load_part(dtype, array, i, count - i), count - i);
}

HS_SIMD void hs_simd_row_from_f32(HsDtype dtype, const float *values, int64_t count, void *array)
{
    for (int64_t i = 0; i < count; i += HS_LANES)
        hs_simd_store_part(dtype, array, i, hs_simd_load_part(HS_F32, values, i, count - i), count - i);
}

/* ------------------------------------------------------------------------------------------- functions */
/* e^x, below 2 ulp: x = n ln 2 + r with |r| <= ln 2 / 2, e^r = 1 + r + r^2 P(r) with P a Chebyshev fit (relative
 * error 8e-9), and 2^n in two factors, so that subnormal results and overflow to infinity come out right.  NaN stays
 * NaN. */
HS_SIMD HsF32x16 hs_simd_exp(HsF32x16 x)
{
#if defined(__AVX512F__) /* both forms let NaN through */
    x = (HsF32x16)_mm512_min_ps(_mm512_set1_ps(89.0f), _mm512_max_ps(_mm512_set1_ps(-105.0f), (__m512)x));
#else
    x = hs_simd_select(hs_simd_less(x, hs_simd_splat(-105.0f)), hs_simd_splat(-105.0f), x);
    x = hs_simd_select(hs_simd_less(hs_simd_splat(89.0f), x), hs_simd_splat(89.0f), x);
#endif
    const float magic = 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer held in the low bits */
    HsF32x16 shifted = x * 1.44269504088896341f + magic;
    HsF32x16 n = shifted - magic;
    HsF32x16 r = x - n * 0x1.62ep-1f; /* ln 2 in two parts, the first so short that the product is exact */
    r = r - n * 0x1.0bfbe8p-15f;
    HsF32x16 p = r * 0x1.6d112cp-10f + 0x1.120b9p-7f;
    p = p * r + 0x1.555519p-5f;
    p = p * r + 0x1.5554dcp-3f;
    p = p * r + 0.5f;
    p = p * (r * r) + r + 1.0f;
#if defined(__AVX512F__)
    return (HsF32x16)_mm512_scalef_ps((__m512)p, (__m512)n); /* the same: one rounding, where the result is subnormal */
#else
    HsI32x16 exponent = (HsI32x16)shifted - 0x4B400000;
    HsI32x16 first = exponent >> 1;
    HsF32x16 scale1 = (HsF32x16)((first + 127) << 23);
    HsF32x16 scale2 = (HsF32x16)((exponent - first + 127) << 23);
    return p * scale1 * scale2;
#endif
}

/* a b + c, rounded once where the instruction set can. */
HS_SIMD HsF32x16 hs_simd_fma_each(HsF32x16 a, HsF32x16 b, HsF32x16 c)
{
#if defined(__AVX512F__)
    return (HsF32x16)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__AVX2__)
    HsF32Parts x = { .whole = a }, y = { .whole = b }, z = { .whole = c };
    for (int i = 0; i < HS_PARTS; i++)
        x.part[i] = (HsF32Part)_mm256_fmadd_ps((__m256)x.part[i], (__m256)y.part[i], (__m256)z.part[i]);
    return x.whole;
#elif defined(HS_ISA_neon)
    HsF32Parts x = { .whole = a }, y = { .whole = b }, z = { .whole = c };
    for (int i = 0; i < HS_PARTS; i++)
        x.part[i] = (HsF32Part)vfmaq_f32((float32x4_t)z.part[i], (float32x4_t)x.part[i], (float32x4_t)y.part[i]);
    return x.whole;
#else
    return a * b + c; /* contracted by compilers for targets that have the instruction */
#endif
}

HS_SIMD HsF32x16 hs_simd_fma(HsF32x16 a, float b, HsF32x16 c)
{
    return hs_simd_fma_each(a, hs_simd_splat(b), c);
}

HS_SIMD HsF32x16 hs_simd_sqrt(HsF32x16 v)
{
#if defined(__AVX512F__)
    return (HsF32x16)_mm512_sqrt_ps((__m512)v);
#else
    HsF32Parts x = { .whole = v };
    for (int i = 0; i < HS_PARTS; i++)
#if defined(__AVX2__)
        x.part[i] = (HsF32Part)_mm256_sqrt_ps((__m256)x.part[i]);
#elif defined(__SSE2__)
        x.part[i] = (HsF32Part)_mm_sqrt_ps((__m128)x.part[i]);
#elif defined(HS_ISA_neon)
        x.part[i] = (HsF32Part)vsqrtq_f32((float32x4_t)x.part[i]);
#else
        for (int lane = 0; lane < HS_LANES / HS_PARTS; lane++)
            x.part[i][lane] = __builtin_sqrtf(x.part[i][lane]);
#endif
    return x.whole;
#endif
}

/* 1 / (1 + e^-z), exact to some ulp on both sides, since nothing cancels; *complement = 1 - result = e^-z * result.
 * Where e^-z overflows the result is 0, and the minimum, which drops a NaN on its left, makes infinity times zero the 1
 * that it stands for. */
HS_SIMD HsF32x16 hs_simd_sigmoid(HsF32x16 z, HsF32x16 *complement)
{
    HsF32x16 e = hs_simd_exp(-z);
    HsF32x16 result = 1.0f / (1.0f + e);
    *complement = hs_simd_min(e * result, hs_simd_splat(1.0f));
    return result;
}

/* x sigmoid(x), and its derivative s (1 + x (1 - s)) */
HS_SIMD HsF32x16 hs_simd_silu(HsF32x16 x, HsF32x16 *slope)
{
    HsF32x16 complement, s = hs_simd_sigmoid(x, &complement);
    *slope = s * (1.0f + x * complement);
    return x * s;
}

/* Tanh form of GELU (Hendrycks & Gimpel 2016): x/2 (1 + tanh u) = x sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3). */
HS_SIMD HsF32x16 hs_simd_gelu(HsF32x16 x)
{
    HsF32x16 complement;
    return x * hs_simd_sigmoid(x * (1.5957691216057308f + 0.0713548162726f * (x * x)), &complement);
}

/* The same, and d/dx of it: s + x s (1 - s) (2u)' */
HS_SIMD HsF32x16 hs_simd_gelu_with_slope(HsF32x16 x, HsF32x16 *slope)
{
    /* Beyond |x| = 30 the derivative is 0 or 1 to the last bit, and so is s; x^3 must not overflow. */
    const HsF32x16 near = hs_simd_max(hs_simd_splat(-30.0f), hs_simd_min(hs_simd_splat(30.0f), x));
    HsF32x16 complement, square = near * near;
    HsF32x16 s = hs_simd_sigmoid(near * (1.5957691216057308f + 0.0713548162726f * square), &complement);
    HsF32x16 inner = near * (1.5957691216057308f + 0.2140644488178f * square);
    *slope = s + inner * (s * complement);
    return x * s;
}

/* max(x, 0)^2 (So et al. 2021, section 3.1), and its derivative; NaN stays NaN. */
HS_SIMD HsF32x16 hs_simd_relu2(HsF32x16 x, HsF32x16 *slope)
{
    const HsF32x16 positive = hs_simd_max(hs_simd_splat(0.0f), x);
    *slope = 2.0f * positive;
    return positive * positive;
}

#endif
