/* SPDX-License-Identifier: MIT
 *
 * Sixteen lanes of f32 for every instruction set: one source, GCC's vector types, intrinsics only where plain C cannot
 * say it (f16 conversion).  On AVX-512 a value is one register, on AVX2 two, in portable code four.
 *
 * Conversions round to nearest even and equal the software encode of kernels/base/dtype.h bit for bit (bf16 by integer
 * arithmetic: the hardware instruction flushes subnormals).  A sum over lanes is one fixed tree, so that it is the same
 * on every instruction set and for every thread count.
 */
#ifndef HS_KERNELS_CPU_SIMD_H
#define HS_KERNELS_CPU_SIMD_H

#include <stdint.h>
#include <string.h>

#include "kernels/base/dtype.h"
#include "kernels/base/rng.h"

#if defined(__AVX2__) || defined(__SSE2__)
#include <immintrin.h>
#endif

enum { HS_LANES = 16 };

typedef float HsF32x16 __attribute__((vector_size(64)));
typedef float HsF32x8 __attribute__((vector_size(32)));
typedef float HsF32x4 __attribute__((vector_size(16)));
typedef int32_t HsI32x16 __attribute__((vector_size(64)));
typedef uint32_t HsU32x16 __attribute__((vector_size(64)));
typedef uint16_t HsU16x16 __attribute__((vector_size(32)));
typedef double HsF64x8 __attribute__((vector_size(64)));

#define HS_SIMD static inline __attribute__((always_inline, unused))

HS_SIMD HsF32x16 hs_simd_splat(float value)
{
    return value - (HsF32x16){ 0 };
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
    return hs_simd_select(a > b, a, b);
#endif
}

/* b where either is NaN, as the maximum. */
HS_SIMD HsF32x16 hs_simd_min(HsF32x16 a, HsF32x16 b)
{
#if defined(__AVX512F__)
    return (HsF32x16)_mm512_min_ps((__m512)a, (__m512)b);
#else
    return hs_simd_select(a < b, a, b);
#endif
}

/* How many lanes of a mask are true. */
HS_SIMD int32_t hs_simd_count(HsI32x16 mask)
{
#if defined(__AVX512F__)
    return __builtin_popcount(_mm512_movepi32_mask((__m512i)mask));
#else
    int32_t count = 0;
    for (int lane = 0; lane < HS_LANES; lane++)
        count -= mask[lane];
    return count;
#endif
}

HS_SIMD float hs_simd_sum(HsF32x16 v)
{
    HsF32x8 a = __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7) +
                __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15);
    HsF32x4 b = __builtin_shufflevector(a, a, 0, 1, 2, 3) + __builtin_shufflevector(a, a, 4, 5, 6, 7);
    return (b[0] + b[2]) + (b[1] + b[3]);
}

/* The lanes as doubles, for sums over whole tensors; and the sum of sixteen of those, again one fixed tree. */
HS_SIMD void hs_simd_widen(HsF32x16 v, HsF64x8 *low, HsF64x8 *high)
{
    *low = __builtin_convertvector(__builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7), HsF64x8);
    *high = __builtin_convertvector(__builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15), HsF64x8);
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

HS_SIMD HsF32x16 hs_simd_load_bf16(const uint16_t *p)
{
    HsU16x16 bits;
    memcpy(&bits, p, sizeof bits);
    return (HsF32x16)(__builtin_convertvector(bits, HsU32x16) << 16);
}

HS_SIMD HsU16x16 hs_simd_to_bf16(HsF32x16 v)
{
    HsU32x16 bits = (HsU32x16)v;
    HsU32x16 rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
    HsU32x16 is_nan = (HsU32x16)((HsI32x16)(bits & 0x7FFFFFFFu) > 0x7F800000);
    rounded = (is_nan & (bits >> 16 | 0x40u)) | (~is_nan & rounded);
    return __builtin_convertvector(rounded, HsU16x16);
}

/* hs_bf16_encode_stochastic in every lane: the upper half of each word decides about the dropped bits. */
HS_SIMD HsU16x16 hs_simd_to_bf16_stochastic(HsF32x16 v, const uint32_t word[HS_LANES])
{
    HsU32x16 random, bits = (HsU32x16)v;
    memcpy(&random, word, sizeof random);
    HsF32x16 rounded = (HsF32x16)((bits + (random >> 16)) >> 16);
    HsI32x16 finite = ((HsI32x16)bits & 0x7F800000) != 0x7F800000;
    HsF32x16 special = (HsF32x16) __builtin_convertvector(hs_simd_to_bf16(v), HsU32x16);
    return __builtin_convertvector((HsU32x16)hs_simd_select(finite, rounded, special), HsU16x16);
}

/* The first `count` lanes, stochastically rounded. */
HS_SIMD void hs_simd_store_part_stochastic(void *array, int64_t index, HsF32x16 v, const uint32_t word[HS_LANES],
                                           int64_t count)
{
    const HsU16x16 bits = hs_simd_to_bf16_stochastic(v, word);
    const int64_t lanes = count < HS_LANES ? count : HS_LANES;
    memcpy((uint16_t *)array + index, &bits, (size_t)lanes * sizeof(uint16_t));
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
    const size_t bytes = dtype == HS_F32 ? 4 : 2;
    unsigned char lanes[64] = { 0 };
    memcpy(lanes, (const unsigned char *)array + (size_t)index * bytes, (size_t)count * bytes);
    return hs_simd_load(dtype, lanes, 0);
}

HS_SIMD void hs_simd_store_part(HsDtype dtype, void *array, int64_t index, HsF32x16 v, int64_t count)
{
    if (count >= HS_LANES) {
        hs_simd_store(dtype, array, index, v);
        return;
    }
    const size_t bytes = dtype == HS_F32 ? 4 : 2;
    unsigned char lanes[64];
    hs_simd_store(dtype, lanes, 0, v);
    memcpy((unsigned char *)array + (size_t)index * bytes, lanes, (size_t)count * bytes);
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
    x = hs_simd_select(x < -105.0f, hs_simd_splat(-105.0f), x);
    x = hs_simd_select(x > 89.0f, hs_simd_splat(89.0f), x);
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

HS_SIMD HsF32x16 hs_simd_sqrt(HsF32x16 v)
{
#if defined(__AVX512F__)
    return (HsF32x16)_mm512_sqrt_ps((__m512)v);
#else
    for (int i = 0; i < HS_LANES; i++)
        v[i] = __builtin_sqrtf(v[i]);
    return v;
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

/* Tanh form of GELU (Hendrycks & Gimpel 2016): x/2 (1 + tanh u) = x sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3). */
HS_SIMD HsF32x16 hs_simd_gelu(HsF32x16 x)
{
    HsF32x16 complement;
    return x * hs_simd_sigmoid(x * (1.5957691216057308f + 0.0713548162726f * (x * x)), &complement);
}

/* d/dx of it: s + x s (1 - s) (2u)' */
HS_SIMD HsF32x16 hs_simd_gelu_derivative(HsF32x16 x)
{
    /* Beyond |x| = 30 the derivative is 0 or 1 to the last bit, and x^3 must not overflow. */
    x = hs_simd_max(hs_simd_splat(-30.0f), hs_simd_min(hs_simd_splat(30.0f), x));
    HsF32x16 complement, square = x * x;
    HsF32x16 s = hs_simd_sigmoid(x * (1.5957691216057308f + 0.0713548162726f * square), &complement);
    HsF32x16 inner = x * (1.5957691216057308f + 0.2140644488178f * square);
    return s + inner * (s * complement);
}

/* ------------------------------------------------------------------------------------------- random numbers */
/* Philox works on the widest integer vectors there are, since its products need both halves of 64 bits. */
#if defined(__AVX512F__)
enum { HS_DRAW_LANES = 16 };
#define HS_DRAW_ZIP_LOWER 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define HS_DRAW_ZIP_UPPER 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#elif defined(__AVX2__)
enum { HS_DRAW_LANES = 8 };
#define HS_DRAW_ZIP_LOWER 0, 8, 1, 9, 2, 10, 3, 11
#define HS_DRAW_ZIP_UPPER 4, 12, 5, 13, 6, 14, 7, 15
#else
enum { HS_DRAW_LANES = 4 };
#define HS_DRAW_ZIP_LOWER 0, 4, 1, 5
#define HS_DRAW_ZIP_UPPER 2, 6, 3, 7
#endif
typedef uint32_t HsDrawLanes __attribute__((vector_size(4 * HS_DRAW_LANES)));
#define HS_DRAW_ZIP(a, b, lanes) __builtin_shufflevector(a, b, lanes)

HS_SIMD void hs_simd_multiply_wide(HsDrawLanes a, uint32_t b, HsDrawLanes *low, HsDrawLanes *high)
{
#if defined(__AVX512F__)
    const __m512i factor = _mm512_set1_epi32((int)b);
    const __m512i even = _mm512_mul_epu32((__m512i)a, factor);
    const __m512i odd = _mm512_mul_epu32(_mm512_srli_epi64((__m512i)a, 32), factor);
    *high = (HsDrawLanes)_mm512_mask_blend_epi32(0xAAAA, _mm512_srli_epi64(even, 32), odd);
    *low = (HsDrawLanes)_mm512_mask_blend_epi32(0xAAAA, even, _mm512_slli_epi64(odd, 32));
#elif defined(__AVX2__)
    const __m256i factor = _mm256_set1_epi32((int)b);
    const __m256i even = _mm256_mul_epu32((__m256i)a, factor);
    const __m256i odd = _mm256_mul_epu32(_mm256_srli_epi64((__m256i)a, 32), factor);
    *high = (HsDrawLanes)_mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xAA);
    *low = (HsDrawLanes)_mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xAA);
#elif defined(__SSE2__)
    const __m128i factor = _mm_set1_epi32((int)b), lower = _mm_set_epi32(0, -1, 0, -1);
    const __m128i even = _mm_mul_epu32((__m128i)a, factor);
    const __m128i odd = _mm_mul_epu32(_mm_srli_epi64((__m128i)a, 32), factor);
    *high = (HsDrawLanes)_mm_or_si128(_mm_srli_epi64(even, 32), _mm_andnot_si128(lower, odd));
    *low = (HsDrawLanes)_mm_or_si128(_mm_and_si128(lower, even), _mm_slli_epi64(odd, 32));
#else
    for (int lane = 0; lane < HS_DRAW_LANES; lane++) {
        const uint64_t product = (uint64_t)a[lane] * b;
        (*low)[lane] = (uint32_t)product;
        (*high)[lane] = (uint32_t)(product >> 32);
    }
#endif
}

/* Draws first .. first + HS_DRAW_LANES - 1, one per lane, then transposed to the order of elements. */
HS_SIMD void hs_simd_draw_lanes(const HsRng *rng, uint64_t first, uint32_t *word)
{
    HsDrawLanes c0, c1, c2 = rng->site - (HsDrawLanes){ 0 }, c3 = hs_rng_step(rng) - (HsDrawLanes){ 0 };
    for (int lane = 0; lane < HS_DRAW_LANES; lane++) {
        c0[lane] = (uint32_t)(first + (uint64_t)lane);
        c1[lane] = (uint32_t)((first + (uint64_t)lane) >> 32);
    }
    uint32_t k0 = (uint32_t)rng->seed, k1 = (uint32_t)(rng->seed >> 32);
    for (int round = 0; round < 10; round++) {
        HsDrawLanes low0, high0, low1, high1;
        hs_simd_multiply_wide(c0, 0xD2511F53u, &low0, &high0);
        hs_simd_multiply_wide(c2, 0xCD9E8D57u, &low1, &high1);
        c0 = high1 ^ c1 ^ k0;
        c1 = low1;
        c2 = high0 ^ c3 ^ k1;
        c3 = low0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    const HsDrawLanes even_lower = HS_DRAW_ZIP(c0, c2, HS_DRAW_ZIP_LOWER);
    const HsDrawLanes even_upper = HS_DRAW_ZIP(c0, c2, HS_DRAW_ZIP_UPPER);
    const HsDrawLanes odd_lower = HS_DRAW_ZIP(c1, c3, HS_DRAW_ZIP_LOWER);
    const HsDrawLanes odd_upper = HS_DRAW_ZIP(c1, c3, HS_DRAW_ZIP_UPPER);
    const HsDrawLanes ordered[4] = { HS_DRAW_ZIP(even_lower, odd_lower, HS_DRAW_ZIP_LOWER),
                                     HS_DRAW_ZIP(even_lower, odd_lower, HS_DRAW_ZIP_UPPER),
                                     HS_DRAW_ZIP(even_upper, odd_upper, HS_DRAW_ZIP_LOWER),
                                     HS_DRAW_ZIP(even_upper, odd_upper, HS_DRAW_ZIP_UPPER) };
    memcpy(word, ordered, sizeof ordered);
}

/* Words of 16 consecutive draws: word[4 * i + w] is word w of draw first + i, as hs_rng_draw defines it. */
HS_SIMD void hs_simd_draw64(const HsRng *rng, uint64_t first, uint32_t word[64])
{
    for (int draw = 0; draw < 16; draw += HS_DRAW_LANES)
        hs_simd_draw_lanes(rng, first + (uint64_t)draw, word + 4 * draw);
}

/* out[i] = 1 when element first + i is kept by dropout of this probability (rng.h's rule), else 0. */
HS_SIMD void hs_simd_keep_row(const HsRng *rng, float probability, uint64_t first, int64_t count, float *out)
{
    uint32_t word[64];
    int64_t done = 0;
    while (done < count) {
        const uint64_t element = first + (uint64_t)done;
        const int64_t skipped = (int64_t)(element % 4), left = count - done;
        const int64_t lanes = left < 64 - skipped ? left : 64 - skipped;
        hs_simd_draw64(rng, element / 4, word);
        for (int64_t i = 0; i < lanes; i++)
            out[done + i] = hs_rng_uniform(word[skipped + i]) >= probability ? 1.0f : 0.0f;
        done += lanes;
    }
}

#endif
