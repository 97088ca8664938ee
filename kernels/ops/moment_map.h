/* SPDX-License-Identifier: MIT
 *
 * Both maps of AdamW's moments in 8 bits: what a code of m or v (is_signed: m) stands for.
 *
 *     map        m                          v                          largest number   1 and 1, 448 and 57344
 *     dynamic    signed codes               unsigned codes             kernels/ops/dynamic_map.h
 *     fp8        E4M3                       E5M2 without a sign        kernels/ops/code_rule.h
 *
 *     moment = number(code) unit,  unit = absmax / largest      code: of the number nearest to moment factor,
 *                                                               factor = largest / absmax
 *
 * A level is the magnitude's place among the map's numbers.  E4M3 has 3 bits of mantissa and nothing below 1/229,376 of
 * its largest; E5M2 has 2, and reaches down to 1 / 3.8e9, as squares need.  A v above 0 never has the code of 0: with
 * an m that is not 0, only epsilon would be left to divide by.
 *
 * The dynamic map takes the nearest number, as bitsandbytes does; fp8 one of the two around the moment by random bits, as
 * moments in bf16 do: to the nearest, a v that changes by less than 1/16 to 1/8 of itself in a step keeps its share of
 * the block's largest for ever.  Measured: 4096 gradients of unequal sizes (e^N(0,1)), 5 / (1 - beta2) steps, then as
 * many with the sizes of each block permuted; root of v over the one of v in double, where sizes fell:
 *
 *     beta2    fp8, nearest    fp8, random bits    dynamic, nearest
 *     0.95     1.06            0.99                1.02
 *     0.99     2.71            0.98                1.66
 *     0.999    3.33            0.98                3.40
 */
#ifndef HS_KERNELS_OPS_MOMENT_MAP_H
#define HS_KERNELS_OPS_MOMENT_MAP_H

#include <float.h>

#include "kernels/ops/code_rule.h"
#include "kernels/ops/ops.h"

HS_CODE_FUNCTION HsDtype hs_moment_format(bool is_signed)
{
    return is_signed ? HS_E4M3 : HS_E5M2;
}

HS_CODE_FUNCTION float hs_moment_largest(HsMomentMap map, bool is_signed)
{
    return map == HS_MOMENTS_FP8 ? hs_code_largest(hs_moment_format(is_signed)) : 1.0f;
}

/* What a code's number is multiplied by. */
HS_CODE_FUNCTION float hs_moment_unit(HsMomentMap map, bool is_signed, float absmax)
{
    return map == HS_MOMENTS_FP8 ? absmax / hs_moment_largest(map, is_signed) : absmax;
}

/* What a moment is multiplied by: finite, and unit a normal number, or both 0. */
HS_CODE_FUNCTION float hs_moment_factor(HsMomentMap map, bool is_signed, float absmax)
{
    const float largest = hs_moment_largest(map, is_signed);
    return absmax < largest * FLT_MIN ? 0.0f : largest / absmax;
}

/* The code of a magnitude's bits, not of NaN: the one below, or the one above where what is missing to it is no more than
 * `random`, both in 2^-16 of the two codes' distance.  No more than the largest.  Without branches, for vectors. */
HS_CODE_FUNCTION uint32_t hs_moment_stochastic(HsDtype format, uint32_t magnitude, uint32_t random)
{
    const int mantissa = hs_code_mantissa(format), bias = hs_code_bias(format), dropped = 23 - mantissa;
    const uint32_t normal =
        ((magnitude + (random << (dropped - 16))) >> dropped) - ((uint32_t)(127 - bias) << mantissa);
    /* Below the smallest normal number: in units of 2^-16 of the smallest subnormal. */
    const uint32_t least = (uint32_t)(127 + 1 - bias) << 23;
    const float units = hs_code_float(magnitude < least ? magnitude : 0u) *
                        hs_code_float((uint32_t)(127 + bias - 1 + mantissa + 16) << 23);
    const uint32_t subnormal = ((uint32_t)(int32_t)units + random) >> 16;
    const uint32_t code = magnitude < least ? subnormal : normal, top = hs_code_top(format);
    return code < top ? code : top;
}

/* The 16 random bits of a moment, of its element's word: as with bf16, m has the upper half and v the lower. */
HS_CODE_FUNCTION uint32_t hs_moment_random(bool is_signed, uint32_t word)
{
    return is_signed ? word >> 16 : word & 0xFFFFu;
}

/* The fp8 code of a moment, by its element's word. */
HS_CODE_FUNCTION uint8_t hs_moment_encode_fp8(bool is_signed, float moment, float factor, uint32_t word)
{
    const HsDtype format = hs_moment_format(is_signed);
    const uint32_t bits = hs_code_bits(hs_code_product(moment, factor)), magnitude = bits & 0x7FFFFFFFu;
    uint32_t code = hs_moment_stochastic(format, magnitude, hs_moment_random(is_signed, word));
    code = !is_signed && moment > 0.0f && code == 0 ? 1u : code;
    return (uint8_t)(magnitude > 0x7F800000u ? hs_code_nan(format) : code | (is_signed ? bits >> 31 << 7 : 0u));
}

/* The number of a code. */
HS_CODE_FUNCTION float hs_moment_number(HsMomentMap map, bool is_signed, int code)
{
    return map == HS_MOMENTS_FP8 ? hs_code_decode(hs_moment_format(is_signed), (uint8_t)code)
                                 : hs_dynamic_value(is_signed, code);
}

/* --- levels --- */

HS_CODE_FUNCTION int hs_moment_top(HsMomentMap map, bool is_signed)
{
    return map == HS_MOMENTS_FP8 ? (int)hs_code_top(hs_moment_format(is_signed)) : hs_dynamic_top(is_signed);
}

/* The code of a moment with a magnitude of this level. */
HS_CODE_FUNCTION int hs_moment_code(HsMomentMap map, bool is_signed, double moment, int level)
{
    if (map == HS_MOMENTS_FP8)
        return is_signed ? level | (signbit(moment) ? 0x80 : 0) : level == 0 && moment > 0.0 ? 1 : level;
    return is_signed ? hs_dynamic_signed_code(moment < 0.0, level) : level;
}

#endif
