/* SPDX-License-Identifier: MIT
 *
 * AdamW with moments in 8 bits.  It reads gradient, codes and master and writes codes, master, weight and the cleared
 * gradient: 22 bytes a parameter and 1/32 for absmax, where adamw moves 34.  A block of 256 elements is updated with
 * its moments in a cache, then encoded from there.
 *
 * Numbers of codes are looked up, 128 at a time in eight registers; a level of the dynamic map is guessed by a line
 * through its decade and decided by one midpoint (kernels/ops/dynamic_map.h), an fp8 code is computed.
 */
#include "kernels/cpu/dynamic_maps.h"
#include "kernels/cpu/isa/update_rule.h"
#include "kernels/ops/moment_map.h"

enum { TABLE = 128 };

/* table[index], index in [0, TABLE) */
HS_SIMD HsF32x16 look_up(const float *table, HsI32x16 index)
{
#if defined(__AVX512F__)
    const __m512i i = (__m512i)index;
    __m512 quarter[4];
    for (int q = 0; q < 4; q++)
        quarter[q] = _mm512_permutex2var_ps(_mm512_load_ps(table + 32 * q), i, _mm512_load_ps(table + 32 * q + 16));
    const __mmask16 odd = _mm512_test_epi32_mask(i, _mm512_set1_epi32(32));
    const __m512 low = _mm512_mask_blend_ps(odd, quarter[0], quarter[1]);
    const __m512 high = _mm512_mask_blend_ps(odd, quarter[2], quarter[3]);
    return (HsF32x16)_mm512_mask_blend_ps(_mm512_test_epi32_mask(i, _mm512_set1_epi32(64)), low, high);
#elif defined(__AVX2__)
    const HsI32Parts lanes = { .whole = index };
    HsF32Parts found;
    for (int i = 0; i < HS_PARTS; i++)
        found.part[i] = (HsF32Part)_mm256_i32gather_ps(table, (__m256i)lanes.part[i], 4);
    return found.whole;
#else
    HsF32x16 result = { 0 };
    for (int i = 0; i < HS_LANES; i++)
        result[i] = table[index[i]];
    return result;
#endif
}

/* index in [0, 2 TABLE) */
HS_SIMD HsF32x16 look_up_wide(const float *table, HsI32x16 index)
{
#if defined(__AVX512F__)
    return (HsF32x16)_mm512_mask_blend_ps(_mm512_test_epi32_mask((__m512i)index, _mm512_set1_epi32(TABLE)),
                                          (__m512)look_up(table, index), (__m512)look_up(table + TABLE, index));
#else
    return look_up(table, index);
#endif
}

typedef uint8_t HsU8x16 __attribute__((vector_size(16)));

HS_SIMD HsI32x16 load_codes(const uint8_t *codes, int64_t left)
{
    HsU8x16 bytes = { 0 };
    if (left >= HS_LANES)
        memcpy(&bytes, codes, sizeof bytes);
    else
        memcpy(&bytes, codes, (size_t)left);
#if defined(__AVX512F__)
    return (HsI32x16)_mm512_cvtepu8_epi32((__m128i)bytes);
#elif defined(__AVX2__)
    HsI32Parts wide;
    wide.part[0] = (HsI32Part)_mm256_cvtepu8_epi32((__m128i)bytes);
    wide.part[1] = (HsI32Part)_mm256_cvtepu8_epi32(_mm_srli_si128((__m128i)bytes, 8));
    return wide.whole;
#else
    return __builtin_convertvector(bytes, HsI32x16);
#endif
}

HS_SIMD void store_codes(uint8_t *codes, HsI32x16 values, int64_t left)
{
#if defined(__AVX512F__)
    const HsU8x16 bytes = (HsU8x16)_mm512_cvtepi32_epi8((__m512i)values);
#elif defined(__AVX2__)
    const __m256i words = (__m256i)hs_simd_narrow((HsU32x16)values);
    const HsU8x16 bytes = (HsU8x16)_mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
#else
    const HsU8x16 bytes = __builtin_convertvector(values, HsU8x16);
#endif
    if (left >= HS_LANES)
        memcpy(codes, &bytes, sizeof bytes);
    else
        memcpy(codes, &bytes, (size_t)left);
}

HS_SIMD HsF32x16 absolute(HsF32x16 x)
{
    return (HsF32x16)((HsI32x16)x & 0x7FFFFFFF);
}

HS_SIMD HsI32x16 smaller(HsI32x16 a, HsI32x16 b)
{
#if defined(__AVX512F__)
    return (HsI32x16)_mm512_min_epi32((__m512i)a, (__m512i)b);
#else
    return (HsI32x16)hs_simd_select(hs_simd_greater_i32(a, b), (HsF32x16)b, (HsF32x16)a);
#endif
}

/* x - 1 in the lanes where a < b */
HS_SIMD HsI32x16 count_less(HsI32x16 x, HsF32x16 a, HsF32x16 b)
{
#if defined(__AVX512F__)
    const __mmask16 less = _mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_LT_OQ);
    return (HsI32x16)_mm512_mask_add_epi32((__m512i)x, less, (__m512i)x, _mm512_set1_epi32(1));
#else
    return x - hs_simd_less(a, b);
#endif
}

/* The lines of decades, 0 to 6. */
HS_SIMD HsF32x16 of_decade(const float *values, HsI32x16 decade)
{
#if defined(__AVX512F__)
    return (HsF32x16)_mm512_permutexvar_ps((__m512i)decade, _mm512_loadu_ps(values));
#else
    return look_up(values, decade);
#endif
}

/* The level of the value nearest to x in [0, 1]; a NaN has level 0. */
HS_SIMD HsI32x16 nearest_level(const HsDynamicMap *map, bool is_signed, HsF32x16 x)
{
    HsI32x16 decade = hs_simd_splat_i32(0);
    for (int d = 1; d < HS_DYNAMIC_DECADES; d++)
        decade = count_less(decade, hs_simd_splat(map->begin[d]), x);
    const float last = (float)(hs_dynamic_top(is_signed) - 1);
    /* the maximum first: of a NaN it makes what stands on its right */
    HsF32x16 line = x * of_decade(map->slope, decade) + of_decade(map->offset, decade);
    line = hs_simd_min(hs_simd_max(line, hs_simd_splat(0.0f)), hs_simd_splat(last));
    const HsI32x16 guess = hs_simd_to_i32(line);
    const HsF32x16 limit = is_signed ? look_up(map->limit, guess) : look_up_wide(map->limit, guess);
    return count_less(guess, limit, x);
}

/* The codes of up to 256 values by the dynamic map. */
HS_SIMD void encode_dynamic(const HsDynamicMap *map, bool is_signed, const float *values, float factor, int64_t count,
                            uint8_t *codes)
{
    HS_FOR_LANES(i, left, (int64_t)0, count)
    {
        const HsF32x16 value = hs_simd_load_f32(values + i);
        HsI32x16 level = nearest_level(map, is_signed, absolute(value) * factor);
        if (is_signed) { /* hs_dynamic_signed_code */
            const HsI32x16 negative = hs_simd_less(value, hs_simd_splat(0.0f));
            level = smaller(level, HS_DYNAMIC_SIGNED_TOP + negative);
            level = -smaller(-level, negative); /* at least 1 below zero */
            level = HS_DYNAMIC_ZERO + ((level ^ negative) - negative);
        }
        store_codes(codes + i, level, left);
    }
}

/* Likewise in fp8: without branches, so that the compiler makes vectors of it. */
HS_SIMD void encode_fp8(bool is_signed, const float *values, const uint32_t *word, float factor, int64_t count,
                        uint8_t *codes)
{
    for (int64_t i = 0; i < count; i++)
        codes[i] = hs_moment_encode_fp8(is_signed, values[i], factor, word[i]);
}

/* The codes of a block, and its absmax, which is returned. */
HS_SIMD float encode(const HsDynamicMaps *maps, HsMomentMap map, bool is_signed, const float *values,
                     const uint32_t *word, HsF32x16 largest, int64_t count, uint8_t *codes)
{
    const float absmax = hs_simd_largest(largest), factor = hs_moment_factor(map, is_signed, absmax);
    if (map == HS_MOMENTS_FP8)
        encode_fp8(is_signed, values, word, factor, count, codes);
    else
        encode_dynamic(is_signed ? &maps->with_sign : &maps->without_sign, is_signed, values, factor, count, codes);
    return absmax;
}

/* adamw on a block of elements; the moments pass through m[] and v[]. */
HS_SIMD void adamw8bit_block(const HsAdamW8bitArgs *args, const HsDynamicMaps *maps, const HsProtection *protection,
                             HsDtype gradient, HsDtype copy, HsRowBlock range, uint32_t word[64])
{
    const HsUpdateArgs *update = &args->update;
    const HsStepScalars *scalars = update->scalars;
    const float rate = scalars->learning_rate * update->learning_rate_scale;
    const float keep = HS_RULE_KEEP(hs_cpu_fma, rate, update->weight_decay);
    const float step = rate / scalars->bias_correction1, correction = 1.0f / scalars->bias_correction2;
    const float beta1 = args->beta1, beta2 = args->beta2, multiplier = scalars->gradient_multiplier;
    uint8_t *const m_codes = args->m.data, *const v_codes = args->v.data;
    float *const m_absmax = (float *)args->m_absmax.data + range.begin / HS_DYNAMIC_BLOCK;
    float *const v_absmax = (float *)args->v_absmax.data + range.begin / HS_DYNAMIC_BLOCK;
    const bool is_fp8 = args->map == HS_MOMENTS_FP8;
    const float *const m_number = is_fp8 ? maps->e4m3 : maps->with_sign.value;
    const float *const v_number = is_fp8 ? maps->e5m2 : maps->without_sign.value;
    const float m_unit = hs_moment_unit(args->map, true, *m_absmax);
    const float v_unit = hs_moment_unit(args->map, false, *v_absmax);
    float m_new[HS_DYNAMIC_BLOCK], v_new[HS_DYNAMIC_BLOCK];
    HsF32x16 m_largest = hs_simd_splat(0.0f), v_largest = m_largest;
    HS_FOR_LANES(i, left, range.begin, range.end)
    {
        const HsF32x16 raw = hs_simd_load_part(gradient, update->grad.data, i, left);
        const HsF32x16 before = hs_update_load_parameter(update, copy, i, left);
        HsF32x16 g = raw * multiplier;
        if (protection)
            g = hs_update_with_penalty(protection, g, before, i, left);
        const HsF32x16 m_value = look_up_wide(m_number, load_codes(m_codes + i, left));
        const HsF32x16 v_value = look_up_wide(v_number, load_codes(v_codes + i, left));
        const HsF32x16 m = HS_RULE_ADAMW_M(hs_simd_fma, m_value * m_unit, g, beta1, 1.0f - beta1);
        const HsF32x16 v = HS_RULE_ADAMW_V(hs_simd_fma, v_value * v_unit, g, beta2, 1.0f - beta2);
        const HsF32x16 p =
            HS_RULE_ADAMW_P(hs_simd_fma, hs_simd_sqrt, before, keep, m, v, step, correction, args->epsilon);
        hs_simd_store_f32(m_new + (i - range.begin), m);
        hs_simd_store_f32(v_new + (i - range.begin), v);
        m_largest = hs_simd_max(m_largest, hs_simd_keep_first(absolute(m), left));
        v_largest = hs_simd_max(v_largest, hs_simd_keep_first(v, left));
        hs_update_finish(update, protection, gradient, copy, word, i, left, rate, raw, before, p);
    }
    const int64_t count = range.end - range.begin;
    uint32_t random[HS_DYNAMIC_BLOCK];
    for (int64_t i = 0; is_fp8 && i < count; i += 64)
        hs_simd_draw64(&update->rng, (uint64_t)(update->rng.row_offset + range.begin + i) / 4, random + i);
    *m_absmax = encode(maps, args->map, true, m_new, random, m_largest, count, m_codes + range.begin);
    *v_absmax = encode(maps, args->map, false, v_new, random, v_largest, count, v_codes + range.begin);
}

typedef struct Call {
    const HsAdamW8bitArgs *args;
    const HsDynamicMaps *maps;
} Call;

static void adamw8bit_range(const void *arguments, HsRowBlock range)
{
    const Call *call = arguments;
    const HsAdamW8bitArgs *args = call->args;
    const HsProtection *protection = &args->update.protection;
    const bool guarded = hs_update_is_protected(protection);
    const HsDtype gradient = args->update.grad.dtype, copy = args->update.weight.dtype;
    uint32_t word[64];
    for (int64_t begin = range.begin; begin < range.end; begin += HS_DYNAMIC_BLOCK) {
        const int64_t end = begin + HS_DYNAMIC_BLOCK;
        const HsRowBlock block = { begin, end < range.end ? end : range.end };
        if (gradient == HS_F32 && copy == HS_BF16 && !guarded)
            adamw8bit_block(args, call->maps, NULL, HS_F32, HS_BF16, block, word);
        else if (gradient == HS_F32 && copy == HS_F32 && !guarded)
            adamw8bit_block(args, call->maps, NULL, HS_F32, HS_F32, block, word);
        else
            adamw8bit_block(args, call->maps, guarded ? protection : NULL, gradient, copy, block, word);
    }
}

HsStatus HS_ISA_NAME(hs_cpu_adamw8bit)(HsContext *context, const HsAdamW8bitArgs *args)
{
    const Call call = { args, hs_cpu_dynamic_maps() };
    hs_update_through_pieces(context, &args->update, HS_DYNAMIC_BLOCK, adamw8bit_range, &call);
    return HS_OK;
}
