/* SPDX-License-Identifier: MIT
 *
 * Philox 4x32-10 (kernels/base/rng.h) for many draws at once, the same words to the bit on every instruction set: what
 * dropout and stochastic rounding draw from.
 */
#ifndef HS_KERNELS_CPU_SIMD_RANDOM_H
#define HS_KERNELS_CPU_SIMD_RANDOM_H

#include "kernels/base/rng.h"
#include "kernels/cpu/simd.h"

/* Philox, one draw in each lane of 64 bits: a counter word is the lower half of its lane, and since products take lower
 * halves only, whatever stands above it may stay there.  A whole product is then the low word as it is and the high one
 * after one shift.  Lanes hold draws in the order that makes the last transposition two interleavings. */
#if defined(__AVX512F__)
enum { HS_DRAW_LANES = 8 };
#define HS_DRAW_ORDER 0, 4, 1, 5, 2, 6, 3, 7
#define HS_DRAW_EVEN  0, 8, 2, 10, 4, 12, 6, 14
#define HS_DRAW_ODD   1, 9, 3, 11, 5, 13, 7, 15
#elif defined(__AVX2__)
enum { HS_DRAW_LANES = 4 };
#define HS_DRAW_ORDER 0, 2, 1, 3
#define HS_DRAW_EVEN  0, 4, 2, 6
#define HS_DRAW_ODD   1, 5, 3, 7
#else
enum { HS_DRAW_LANES = 2 };
#define HS_DRAW_ORDER 0, 1
#define HS_DRAW_EVEN  0, 2
#define HS_DRAW_ODD   1, 3
#endif
typedef uint64_t HsDrawLanes __attribute__((vector_size(8 * HS_DRAW_LANES)));
#define HS_DRAW_ZIP(a, b, lanes) __builtin_shufflevector(a, b, lanes)

/* All 64 bits of the lower halves' products. */
HS_SIMD HsDrawLanes hs_simd_multiply_lower(HsDrawLanes a, uint32_t b)
{
#if defined(__AVX512F__)
    return (HsDrawLanes)_mm512_mul_epu32((__m512i)a, _mm512_set1_epi64(b));
#elif defined(__AVX2__)
    return (HsDrawLanes)_mm256_mul_epu32((__m256i)a, _mm256_set1_epi64x(b));
#elif defined(__SSE2__)
    return (HsDrawLanes)_mm_mul_epu32((__m128i)a, _mm_set1_epi64x(b));
#elif defined(HS_ISA_neon)
    return (HsDrawLanes)vmull_u32(vmovn_u64((uint64x2_t)a), vdup_n_u32(b));
#else
    return (a & 0xFFFFFFFFu) * b;
#endif
}

/* The draws with their numbers in the lanes; words[w] has word w in the lower halves. */
HS_SIMD void hs_simd_philox(const HsRng *rng, HsDrawLanes draws, HsDrawLanes words[4])
{
    HsDrawLanes c0 = draws, c1 = draws >> 32;
    HsDrawLanes c2 = rng->site - (HsDrawLanes){ 0 }, c3 = hs_rng_step(rng) - (HsDrawLanes){ 0 };
    uint32_t k0 = (uint32_t)rng->seed, k1 = (uint32_t)(rng->seed >> 32);
    for (int round = 0; round < 10; round++) {
        const HsDrawLanes product0 = hs_simd_multiply_lower(c0, 0xD2511F53u);
        const HsDrawLanes product1 = hs_simd_multiply_lower(c2, 0xCD9E8D57u);
        c0 = (product1 >> 32) ^ c1 ^ k0;
        c1 = product1;
        c2 = (product0 >> 32) ^ c3 ^ k1;
        c3 = product0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    words[0] = c0;
    words[1] = c1;
    words[2] = c2;
    words[3] = c3;
}

/* Draws first .. first + HS_DRAW_LANES - 1, in the order of elements. */
HS_SIMD void hs_simd_draw_lanes(const HsRng *rng, uint64_t first, uint32_t *word)
{
    HsDrawLanes c[4];
    hs_simd_philox(rng, first + (HsDrawLanes){ HS_DRAW_ORDER }, c);
    const HsDrawLanes words01 = (c[0] & 0xFFFFFFFFu) | c[1] << 32, words23 = (c[2] & 0xFFFFFFFFu) | c[3] << 32;
    const HsDrawLanes ordered[2] = { HS_DRAW_ZIP(words01, words23, HS_DRAW_EVEN),
                                     HS_DRAW_ZIP(words01, words23, HS_DRAW_ODD) };
    memcpy(word, ordered, sizeof ordered);
}

/* Words of 16 consecutive draws: word[4 * i + w] is word w of draw first + i, as hs_rng_draw defines it. */
HS_SIMD void hs_simd_draw64(const HsRng *rng, uint64_t first, uint32_t word[64])
{
    for (int draw = 0; draw < 16; draw += HS_DRAW_LANES)
        hs_simd_draw_lanes(rng, first + (uint64_t)draw, word + 4 * draw);
}

/* Words of elements first .. first + 63; returns where the first one stands. */
HS_SIMD const uint32_t *hs_simd_draw_elements(const HsRng *rng, uint64_t first, uint32_t word[64 + 4 * HS_DRAW_LANES])
{
    hs_simd_draw64(rng, first / 4, word);
    if (first % 4 != 0)
        hs_simd_draw_lanes(rng, first / 4 + 16, word + 64);
    return word + first % 4;
}

#endif
