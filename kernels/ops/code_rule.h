/* SPDX-License-Identifier: MIT
 *
 * The arithmetic of quantize at one element, without branches, for the CPU's vectors and a GPU's kernels: the bits of
 * kernels/base/dtype.h and scaled_formats.h, which are the specification (tests/ops/test_quantize.c compares all).
 *
 * Products and sums here are exact or are rounded alone: nothing that a compiler fuses changes a bit.
 */
#ifndef HS_KERNELS_OPS_CODE_RULE_H
#define HS_KERNELS_OPS_CODE_RULE_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "kernels/ops/codes.h"

/* Loops over a run that a kernel has in registers.  The host's compiler does not know the pragma. */
#if defined(__CUDA_ARCH__) || defined(__HIP_DEVICE_COMPILE__)
#define HS_CODE_UNROLL _Pragma("unroll")
#else
#define HS_CODE_UNROLL
#endif

HS_CODE_FUNCTION uint32_t hs_code_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

HS_CODE_FUNCTION float hs_code_float(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* a b, rounded, whatever follows. */
HS_CODE_FUNCTION float hs_code_product(float a, float b)
{
#if defined(__CUDA_ARCH__)
    return __fmul_rn(a, b);
#else
    return a * b;
#endif
}

/* A format as numbers that become constants where it is known: bits of its mantissa, bias of its exponent, its largest
 * magnitude as a code. */
HS_CODE_FUNCTION int hs_code_mantissa(HsDtype format)
{
    return format == HS_E4M3 ? 3 : format == HS_E5M2 ? 2 : 1;
}

HS_CODE_FUNCTION int hs_code_bias(HsDtype format)
{
    return format == HS_E4M3 ? 7 : format == HS_E5M2 ? 15 : 1;
}

HS_CODE_FUNCTION uint32_t hs_code_top(HsDtype format)
{
    return format == HS_E4M3 ? 0x7Eu : format == HS_E5M2 ? 0x7Bu : 7u;
}

HS_CODE_FUNCTION float hs_code_largest(HsDtype format)
{
    return format == HS_E4M3 ? 448.0f : format == HS_E5M2 ? 57344.0f : 6.0f;
}

/* The code of a NaN: E2M1 has none. */
HS_CODE_FUNCTION uint32_t hs_code_nan(HsDtype format)
{
    return format == HS_E2M1 ? 7u : 0x7Fu;
}

HS_CODE_FUNCTION int hs_code_sign_shift(HsDtype format)
{
    return format == HS_E2M1 ? 3 : 7;
}

/* Magnitude's bits of a magnitude's bits: nearest, ties to even, saturating; not of NaN. */
HS_CODE_FUNCTION uint32_t hs_code_nearest(HsDtype format, uint32_t magnitude)
{
    const int mantissa = hs_code_mantissa(format), bias = hs_code_bias(format), dropped = 23 - mantissa;
    const uint32_t rounded = magnitude + ((1u << (dropped - 1)) - 1) + ((magnitude >> dropped) & 1u);
    const uint32_t normal = (rounded >> dropped) - ((uint32_t)(127 - bias) << mantissa);
    /* Below the smallest normal number: in units of the smallest subnormal, of which 2^mantissa is the former. */
    const uint32_t least = (uint32_t)(127 + 1 - bias) << 23;
    const float units =
        hs_code_float(magnitude < least ? magnitude : 0u) * hs_code_float((uint32_t)(127 + bias - 1 + mantissa) << 23);
    const uint32_t subnormal = (uint32_t)(int32_t)rintf(units);
    const uint32_t code = magnitude < least ? subnormal : normal, top = hs_code_top(format);
    return code < top ? code : top;
}

/* Likewise by random bits: up where `random` is below what was cut off, in units of 2^-32 of the last place. */
HS_CODE_FUNCTION uint32_t hs_code_stochastic(HsDtype format, uint32_t magnitude, uint32_t random)
{
    const int mantissa = hs_code_mantissa(format), bias = hs_code_bias(format);
    const uint32_t top = hs_code_top(format), exponent = magnitude >> 23;
    const uint64_t significand = (magnitude & 0x7FFFFFu) | (exponent == 0 ? 0u : 0x800000u);
    int target = (int)(exponent == 0 ? 1u : exponent) - 127 + bias, dropped = 23 - mantissa;
    if (target < 1) {
        dropped += 1 - target;
        target = 1;
    }
    if (dropped > 60)
        return 0;
    const uint64_t rest = significand & (((uint64_t)1 << dropped) - 1);
    const uint64_t missing = dropped <= 32 ? rest << (32 - dropped) : rest >> (dropped - 32);
    const uint64_t below = ((uint64_t)(target - 1) << mantissa) + (significand >> dropped);
    if (below >= top)
        return top;
    return (uint32_t)below + (random < missing ? 1u : 0u);
}

/* A value's code, with its sign. */
HS_CODE_FUNCTION uint8_t hs_code_encode(HsDtype format, float value)
{
    const uint32_t bits = hs_code_bits(value), magnitude = bits & 0x7FFFFFFFu;
    const uint32_t code = hs_code_nearest(format, magnitude) | bits >> 31 << hs_code_sign_shift(format);
    return (uint8_t)(magnitude > 0x7F800000u ? hs_code_nan(format) : code);
}

HS_CODE_FUNCTION uint8_t hs_code_encode_stochastic(HsDtype format, float value, uint32_t random)
{
    const uint32_t bits = hs_code_bits(value), magnitude = bits & 0x7FFFFFFFu;
    if (magnitude > 0x7F800000u)
        return (uint8_t)hs_code_nan(format);
    return (uint8_t)(hs_code_stochastic(format, magnitude, random) | bits >> 31 << hs_code_sign_shift(format));
}

HS_CODE_FUNCTION float hs_code_decode(HsDtype format, uint8_t code)
{
    const int mantissa = hs_code_mantissa(format), bias = hs_code_bias(format), sign_shift = hs_code_sign_shift(format);
    const uint32_t magnitude = code & ((1u << sign_shift) - 1), sign = (uint32_t)(code >> sign_shift & 1) << 31;
    const uint32_t normal = (magnitude << (23 - mantissa)) + ((uint32_t)(127 - bias) << 23);
    const float unit = hs_code_float((uint32_t)(127 - bias + 1 - mantissa) << 23);
    uint32_t bits = magnitude < 1u << mantissa ? hs_code_bits((float)(int32_t)magnitude * unit) : normal;
    if (format == HS_E4M3)
        bits = magnitude == 0x7Fu ? 0x7FC00000u : bits;
    if (format == HS_E5M2)
        bits = magnitude >= 0x7Cu ? 0x7F800000u | magnitude << 21 : bits;
    return hs_code_float(bits | sign);
}

/* E8M0 of a block, from the bits of its largest magnitude: the exponent of amax / largest, rounded up; NaN where a number
 * of the block is not finite. */
HS_CODE_FUNCTION uint32_t hs_code_block_exponent(HsDtype format, uint32_t amax_bits)
{
    if (amax_bits >= 0x7F800000u)
        return 255u;
    const uint32_t bits = hs_code_bits(hs_code_product(hs_code_float(amax_bits), 1.0f / hs_code_largest(format)));
    const uint32_t exponent = bits >> 23, mantissa = bits & 0x7FFFFFu;
    const bool more = exponent == 0 ? mantissa > 0x400000u : mantissa > 0;
    return exponent + (more && exponent < 254u ? 1u : 0u);
}

/* 2^(code - 127); NaN for 255. */
HS_CODE_FUNCTION float hs_code_power(uint32_t code)
{
    return hs_code_float(code == 255u ? 0x7FC00000u : code == 0 ? 0x400000u : code << 23);
}

/* 1 / hs_code_power, exactly. */
HS_CODE_FUNCTION float hs_code_inverse_power(uint32_t code)
{
    return hs_code_power(code == 255u ? 255u : 254u - code);
}

/* A tensor's scale from the bits of its largest magnitude. */
HS_CODE_FUNCTION float hs_code_tensor_scale(HsDtype format, uint32_t amax_bits, bool power_of_two)
{
    if (amax_bits == 0 || amax_bits >= 0x7F800000u)
        return 1.0f;
    const uint32_t bits = hs_code_bits(hs_code_largest(format) / hs_code_float(amax_bits));
    const uint32_t finite = bits >= 0x7F800000u ? 0x7F7FFFFFu : bits;
    return hs_code_float(power_of_two ? finite & 0x7F800000u : finite);
}

/* What one number of E2M1 times E4M3 is worth in a tensor, of which amax is the largest magnitude: 6 * 448 make it. */
HS_CODE_FUNCTION float hs_code_nv_inverse(uint32_t amax_bits)
{
    if (amax_bits == 0 || amax_bits >= 0x7F800000u)
        return 1.0f;
    const float inverse = hs_code_float(amax_bits) / 2688.0f;
    return inverse == 0.0f ? 1.0f : inverse;
}

/* E4M3 of a block of E2M1. */
HS_CODE_FUNCTION uint8_t hs_code_nv_block(uint32_t amax_bits, float inverse)
{
    return hs_code_encode(HS_E4M3, hs_code_float(amax_bits) / hs_code_product(6.0f, inverse));
}

/* What a block's 1 is worth in the tensor: elements are divided by it before the cast, all to 0 where it is 0. */
HS_CODE_FUNCTION float hs_code_nv_worth(uint8_t block, float inverse)
{
    return hs_code_product(hs_code_decode(HS_E4M3, block), inverse);
}

/* factor: what nv divides by (hs_code_nv_worth), what the others multiply by. */
HS_CODE_FUNCTION float hs_code_scaled(HsScaleGranularity granularity, float x, float factor)
{
    if (granularity == HS_SCALE_NV)
        return factor == 0.0f ? 0.0f : x / factor;
    return hs_code_product(x, factor);
}

/* What a block scale multiplies a code's number by. */
HS_CODE_FUNCTION float hs_code_block_worth(HsScaleGranularity granularity, uint8_t block)
{
    return granularity == HS_SCALE_NV ? hs_code_decode(HS_E4M3, block) : hs_code_power(block);
}

/* Sixteen neighbours times H diag(signs) / 4, H the Hadamard matrix of order 16 in natural order: its own transpose, and
 * with the factor orthogonal, so that a product along what both operands are rotated along stays what it was.  The signs
 * are those of one fixed word: they break patterns that H alone would gather in one element. */
enum { HS_CODE_SIGNS = 0x9D34 };

HS_CODE_FUNCTION void hs_code_rotate(float x[HS_CODES_RUN])
{
    HS_CODE_UNROLL
    for (int i = 0; i < HS_CODES_RUN; i++)
        x[i] = (HS_CODE_SIGNS >> i & 1) != 0 ? -x[i] : x[i];
    HS_CODE_UNROLL
    for (int half = 1; half < HS_CODES_RUN; half *= 2) {
        HS_CODE_UNROLL
        for (int i = 0; i < HS_CODES_RUN; i++) {
            if ((i & half) != 0)
                continue;
            const float a = x[i], b = x[i + half];
            x[i] = a + b;
            x[i + half] = a - b;
        }
    }
    HS_CODE_UNROLL
    for (int i = 0; i < HS_CODES_RUN; i++)
        x[i] *= 0.25f;
}

/* What a process sends to others for a scaling's amax. */
HS_CODE_FUNCTION float hs_code_maximum(const HsScaling *scaling)
{
    return hs_code_bits(scaling->amax) < 0x7F800000u ? scaling->amax : hs_code_float(0x7F800000u);
}

/* The end of a step for one scaling (HsRollScalesArgs), in two halves between which the history's maximum is found.
 * amax: the scaling's, or the largest of all processes'.  ring: [length]; NULL: no delayed scaling.  headroom: 2^-margin. */
HS_CODE_FUNCTION void hs_code_roll_in(HsScaling *scaling, HsScaling *report, float amax, float *ring, int64_t length)
{
    const uint32_t bits = hs_code_bits(amax);
    if (report)
        *report = *scaling;
    if (ring && bits != 0 && bits < 0x7F800000u)
        ring[scaling->recorded++ % (uint64_t)length] = amax;
    scaling->amax = 0.0f;
    scaling->elements = scaling->saturated = scaling->zeroed = 0;
}

/* Entries of a ring that there are. */
HS_CODE_FUNCTION int64_t hs_code_filled(const HsScaling *scaling, int64_t length)
{
    return (int64_t)scaling->recorded < length ? (int64_t)scaling->recorded : length;
}

HS_CODE_FUNCTION void hs_code_keep(HsScaling *scaling, float amax, float headroom)
{
    if (!(amax > 0.0f))
        return;
    const uint32_t kept = hs_code_bits(hs_code_product(scaling->largest, headroom) / amax);
    scaling->kept = hs_code_float(kept >= 0x7F800000u ? 0x7F7FFFFFu : kept);
}

#endif
