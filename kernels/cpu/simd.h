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

#include "kernels/cpu/simd_part.h"

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
    const HsI32Parts m = { .whole = mask };
    const HsF32Parts x = { .whole = yes }, y = { .whole = no };
    HsF32Parts result;
    for (int i = 0; i < HS_PARTS; i++)
        result.part[i] = hs_part_select(m.part[i], x.part[i], y.part[i]);
    return result.whole;
}

/* hs_part_max and hs_part_min of every lane: NaN in b is kept. */
#define HS_SIMD_OF_TWO(name, of_part)                            \
    HS_SIMD HsF32x16 name(HsF32x16 a, HsF32x16 b)                \
    {                                                            \
        const HsF32Parts x = { .whole = a }, y = { .whole = b }; \
        HsF32Parts result;                                       \
        for (int i = 0; i < HS_PARTS; i++)                       \
            result.part[i] = of_part(x.part[i], y.part[i]);      \
        return result.whole;                                     \
    }

HS_SIMD_OF_TWO(hs_simd_max, hs_part_max)
HS_SIMD_OF_TWO(hs_simd_min, hs_part_min)

/* Integers as numbers, rounded to nearest even, and numbers as integers, rounded to zero. */
HS_SIMD HsF32x16 hs_simd_from_i32(HsI32x16 integers)
{
    const HsI32Parts x = { .whole = integers };
    HsF32Parts result;
    for (int i = 0; i < HS_PARTS; i++)
        result.part[i] = __builtin_convertvector(x.part[i], HsF32Part);
    return result.whole;
}

HS_SIMD HsI32x16 hs_simd_to_i32(HsF32x16 numbers)
{
    const HsF32Parts x = { .whole = numbers };
    HsI32Parts result;
    for (int i = 0; i < HS_PARTS; i++)
        result.part[i] = __builtin_convertvector(x.part[i], HsI32Part);
    return result.whole;
}

/* x between low and high; NaN stays NaN. */
HS_SIMD HsF32x16 hs_simd_clamp(HsF32x16 x, float low, float high)
{
    return hs_simd_min(hs_simd_splat(high), hs_simd_max(hs_simd_splat(low), x));
}

/* What a loop carries: a whole wide vector would live in memory, its parts stay in registers. */

/* *sum += v */
HS_SIMD void hs_simd_accumulate(HsF32Parts *sum, HsF32x16 v)
{
    const HsF32Parts x = { .whole = v };
    for (int i = 0; i < HS_PARTS; i++)
        sum->part[i] += x.part[i];
}

/* *most = max(v, *most): passes over NaN. */
HS_SIMD void hs_simd_raise(HsF32Parts *most, HsF32x16 v)
{
    const HsF32Parts x = { .whole = v };
    for (int i = 0; i < HS_PARTS; i++)
        most->part[i] = hs_part_max(x.part[i], most->part[i]);
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
HS_SIMD HsF64Parts hs_simd_widen(HsF32x16 v)
{
    HsF64Parts wide;
#if defined(__AVX512F__)
    wide.half[0] = __builtin_convertvector(__builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7), HsF64x8);
    wide.half[1] = __builtin_convertvector(__builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15), HsF64x8);
#else
    const HsF32Parts x = { .whole = v };
    for (int i = 0; i < 2; i++)
        wide.half[i] = __builtin_convertvector(x.half[i], HsF64x8);
#endif
    return wide;
}

/* *sum += x, and += x y, where the product is not rounded if the instruction set can. */
HS_SIMD void hs_simd_accumulate_f64(HsF64Parts *sum, HsF64Parts x)
{
    for (int i = 0; i < 2 * HS_PARTS; i++)
        sum->part[i] += x.part[i];
}

HS_SIMD void hs_simd_accumulate_products(HsF64Parts *sum, HsF64Parts x, HsF64Parts y)
{
    for (int i = 0; i < 2 * HS_PARTS; i++)
        sum->part[i] += x.part[i] * y.part[i];
}

HS_SIMD HsF64Parts hs_simd_square(HsF64Parts x)
{
    for (int i = 0; i < 2 * HS_PARTS; i++)
        x.part[i] *= x.part[i];
    return x;
}

HS_SIMD double hs_simd_sum_f64(HsF64Parts sum)
{
    const HsF64x8 low = sum.half[0] + sum.half[1];
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
#if defined(__AVX512F__)
/* The first `count` (0..15) lanes. */
HS_SIMD __mmask16 hs_simd_first(int64_t count)
{
    return (__mmask16)((1u << count) - 1u);
}
#endif

/* Sixteen elements from `index` on. */
HS_SIMD HsF32x16 hs_simd_load(HsDtype dtype, const void *array, int64_t index)
{
    HsF32Parts v;
    for (int i = 0; i < HS_PARTS; i++)
        v.part[i] = hs_part_load(dtype, array, index + i * HS_PART_LANES);
    return v.whole;
}

HS_SIMD HsF32x16 hs_simd_load_f32(const float *p)
{
    return hs_simd_load(HS_F32, p, 0);
}

/* The first `count` (1..16) lanes only; the others are zero, and memory behind them is not touched. */
HS_SIMD HsF32x16 hs_simd_load_part(HsDtype dtype, const void *array, int64_t index, int64_t count)
{
#if defined(__AVX512F__)
    if (count >= HS_LANES)
        return hs_simd_load(dtype, array, index);
    const __mmask16 first = hs_simd_first(count);
    if (dtype == HS_F32)
        return (HsF32x16)_mm512_maskz_loadu_ps(first, (const float *)array + index);
    const __m256i half = _mm256_maskz_loadu_epi16(first, (const uint16_t *)array + index);
    if (dtype == HS_BF16)
        return hs_part_from_bf16(half);
    return (HsF32x16)_mm512_cvtph_ps(half);
#else
    const size_t bytes = dtype == HS_F32 ? 4 : 2;
    const unsigned char *from = (const unsigned char *)array + (size_t)index * bytes;
    unsigned char lanes[64];
    if (count < HS_LANES) {
        memset(lanes, 0, sizeof lanes);
        from = memcpy(lanes, from, (size_t)count * bytes);
    }
    return hs_simd_load(dtype, from, 0);
#endif
}

HS_SIMD void hs_simd_store_f32(float *p, HsF32x16 v)
{
    const HsF32Parts x = { .whole = v };
    for (int i = 0; i < HS_PARTS; i++)
        hs_part_store_f32(p + i * HS_PART_LANES, x.part[i]);
}

/* Words below 2^16. */
HS_SIMD HsU16x16 hs_simd_narrow(HsU32x16 words)
{
#if defined(__AVX512F__)
    return (HsU16x16)_mm512_cvtepi32_epi16((__m512i)words);
#elif defined(__AVX2__)
    const HsI32Parts x = { .whole = (HsI32x16)words };
    const __m256i quarters = _mm256_packus_epi32((__m256i)x.part[0], (__m256i)x.part[1]); /* in the order 0 2 1 3 */
    return (HsU16x16)_mm256_permute4x64_epi64(quarters, 0xD8);
#else
    return __builtin_convertvector(words, HsU16x16);
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
    const HsU32x16 bits = (HsU32x16)v;
    HsU32x16 rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
#if defined(__AVX512F__)
    const __mmask16 is_nan = _mm512_cmp_ps_mask((__m512)v, (__m512)v, _CMP_UNORD_Q);
    const __m512i quiet = _mm512_or_si512(_mm512_srli_epi32((__m512i)bits, 16), _mm512_set1_epi32(0x40));
    rounded = (HsU32x16)_mm512_mask_mov_epi32((__m512i)rounded, is_nan, quiet);
#else
#if defined(__AVX2__)
    const HsF32Parts x = { .whole = v };
    const __m256 either_is_nan = _mm256_cmp_ps((__m256)x.part[0], (__m256)x.part[1], _CMP_UNORD_Q);
    if (__builtin_expect(_mm256_movemask_ps(either_is_nan) == 0, 1))
        return hs_simd_narrow(rounded);
#endif
    HsU32x16 is_nan = (HsU32x16)hs_simd_greater_i32((HsI32x16)(bits & 0x7FFFFFFFu), hs_simd_splat_i32(0x7F800000));
    rounded = (is_nan & (bits >> 16 | 0x40u)) | (~is_nan & rounded);
#endif
    return hs_simd_narrow(rounded);
}

HS_SIMD HsF32x16 hs_simd_from_bf16(HsU16x16 bits)
{
#if defined(__AVX512F__)
    return hs_part_from_bf16((__m256i)bits);
#elif defined(__AVX2__)
    const __m128i halves[HS_PARTS] = { _mm256_castsi256_si128((__m256i)bits),
                                       _mm256_extracti128_si256((__m256i)bits, 1) };
    HsF32Parts v;
    for (int i = 0; i < HS_PARTS; i++)
        v.part[i] = (HsF32Part)_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves[i]), 16);
    return v.whole;
#else
    uint16_t words[HS_LANES];
    memcpy(words, &bits, sizeof words);
    return hs_simd_load(HS_BF16, words, 0);
#endif
}

/* hs_bf16_encode_stochastic in every lane: the upper half of each word decides about the dropped bits. */
HS_SIMD HsU16x16 hs_simd_to_bf16_stochastic(HsF32x16 v, const uint32_t word[HS_LANES])
{
    HsU32x16 random, bits = (HsU32x16)v;
    memcpy(&random, word, sizeof random);
    HsF32x16 rounded = (HsF32x16)((bits + (random >> 16)) >> 16);
    HsI32x16 is_special = hs_simd_equal_i32((HsI32x16)bits & 0x7F800000, hs_simd_splat_i32(0x7F800000));
    HsF32x16 special = (HsF32x16)((HsU32x16)hs_simd_from_bf16(hs_simd_to_bf16(v)) >> 16);
    return hs_simd_narrow((HsU32x16)hs_simd_select(is_special, special, rounded));
}

/* Lanes from `count` on set to zero. */
HS_SIMD HsF32x16 hs_simd_keep_first(HsF32x16 v, int64_t count)
{
#if defined(__AVX512F__)
    return count >= HS_LANES ? v : (HsF32x16)_mm512_maskz_mov_ps(hs_simd_first(count), (__m512)v);
#else
    HsF32Parts x = { .whole = v };
    for (int i = 0; i < HS_PARTS; i++)
        x.part[i] = (HsF32Part)((HsI32Part)x.part[i] & (hs_part_numbers(i) < (int32_t)count));
    return x.whole;
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

HS_SIMD void hs_simd_store_f16(uint16_t *p, HsF32x16 v)
{
#if defined(__AVX512F__)
    _mm256_storeu_si256((__m256i *)(void *)p,
                        _mm512_cvtps_ph((__m512)v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#elif defined(__F16C__)
    const HsF32Parts x = { .whole = v };
    for (int i = 0; i < HS_PARTS; i++)
        _mm_storeu_si128((__m128i *)(void *)(p + i * HS_PART_LANES),
                         _mm256_cvtps_ph((__m256)x.part[i], _MM_FROUND_TO_NEAREST_INT));
#elif defined(HS_ISA_neon)
    const HsF32Parts x = { .whole = v };
    for (int i = 0; i < HS_PARTS; i++)
        vst1_u16(p + 4 * i, vreinterpret_u16_f16(vcvt_f16_f32((float32x4_t)x.part[i])));
#else
    for (int i = 0; i < HS_LANES; i++)
        p[i] = hs_f16_encode(v[i]);
#endif
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
    x = hs_simd_clamp(x, -105.0f, 89.0f);
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
