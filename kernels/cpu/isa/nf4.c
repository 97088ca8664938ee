/* SPDX-License-Identifier: MIT
 *
 * Four-bit weights where a product packs its right operand: the piece that becomes words is decoded into the
 * first-level cache, and nothing else of the matrix ever exists in more than four bits.
 */
#include "kernels/cpu/dynamic_maps.h"
#include "kernels/cpu/isa/matmul.h"
#include "kernels/cpu/simd.h"

/* level[c] of the sixteen codes in eight bytes, the upper half of each first. */
HS_SIMD HsF32x16 levels_of(const unsigned char *codes, HsF32x16 levels)
{
#if defined(__AVX2__)
    const __m128i bytes = _mm_loadl_epi64((const __m128i *)(const void *)codes), four = _mm_set1_epi8(15);
    const __m128i upper = _mm_and_si128(_mm_srli_epi16(bytes, 4), four), lower = _mm_and_si128(bytes, four);
    const __m128i all = _mm_unpacklo_epi8(upper, lower);
#if defined(__AVX512F__)
    return (HsF32x16)_mm512_permutexvar_ps(_mm512_cvtepu8_epi32(all), (__m512)levels);
#else
    const __m256i indices[HS_PARTS] = { _mm256_cvtepu8_epi32(all), _mm256_cvtepu8_epi32(_mm_srli_si128(all, 8)) };
    const HsF32Parts table = { .whole = levels };
    HsF32Parts found;
    for (int i = 0; i < HS_PARTS; i++) { /* eight levels at a time: a permutation looks at three bits */
        const __m256 low = _mm256_permutevar8x32_ps((__m256)table.part[0], indices[i]);
        const __m256 high = _mm256_permutevar8x32_ps((__m256)table.part[1], indices[i]);
        const __m256 fourth_bit = _mm256_castsi256_ps(_mm256_slli_epi32(indices[i], 28));
        found.part[i] = (HsF32Part)_mm256_blendv_ps(low, high, fourth_bit);
    }
    return found.whole;
#endif
#else
    float values[HS_LANES];
    (void)levels;
    for (int i = 0; i < HS_LANES / 2; i++) {
        values[2 * i] = hs_nf4_levels[codes[i] >> 4];
        values[2 * i + 1] = hs_nf4_levels[codes[i] & 15];
    }
    return hs_simd_load_f32(values);
#endif
}

HS_SIMD void decode(HsDtype dtype, const HsQuantized *quantized, int64_t first, int64_t count, void *out)
{
    const HsF32x16 levels = hs_simd_load_f32(hs_nf4_levels);
    for (int64_t i = 0; i < count;) {
        const int64_t left = HS_NF4_BLOCK - (first + i) % HS_NF4_BLOCK, end = i + (left < count - i ? left : count - i);
        const float absmax = hs_cpu_nf4_absmax(quantized, (first + i) / HS_NF4_BLOCK);
        const unsigned char *codes = quantized->codes + (first + i) / 2;
        for (; i + HS_LANES <= end; i += HS_LANES, codes += HS_LANES / 2)
            hs_simd_store(dtype, out, i, levels_of(codes, levels) * absmax);
        if (i < end) { /* half a vector */
            unsigned char last[HS_LANES / 2] = { 0 };
            memcpy(last, codes, (size_t)(end - i) / 2);
            hs_simd_store_part(dtype, out, i, levels_of(last, levels) * absmax, end - i);
            i = end;
        }
    }
}

void HS_ISA_NAME(hs_nf4_decode)(const HsQuantized *quantized, int64_t first, int64_t count, HsDtype dtype, void *out)
{
    if (dtype == HS_F32)
        decode(HS_F32, quantized, first, count, out);
    else if (dtype == HS_BF16)
        decode(HS_BF16, quantized, first, count, out);
    else
        decode(HS_F16, quantized, first, count, out);
}
