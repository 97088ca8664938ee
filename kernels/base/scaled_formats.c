/* SPDX-License-Identifier: MIT
 *
 * Formats below 16 bits and their scales, in software.
 */
#include "kernels/base/scaled_formats.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "kernels/base/dtype.h"

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

enum { F32_MANTISSA = 23, F32_BIAS = 127, F32_TOP = 255 };

/* A small format; as in dtype.c, its magnitudes in order are the integers. */
typedef struct Small {
    int exponent_bits, mantissa_bits;
    uint32_t largest; /* of its finite magnitudes */
} Small;

static const Small e4m3 = { 4, 3, 0x7E }, e5m2 = { 5, 2, 0x7B }, e2m1 = { 2, 1, 0x7 };

/* The magnitude below `value`, and what of a unit in its last place is missing, in units of 2^-32. */
static uint32_t round_down(Small small, float value, uint64_t *missing)
{
    const uint32_t bits = bits_of(value) & 0x7FFFFFFFu;
    const int exponent = (int)(bits >> F32_MANTISSA);
    /* Subnormal f32 numbers have no implicit bit, and the exponent of the smallest normal ones. */
    const uint64_t significand = (bits & ((1u << F32_MANTISSA) - 1)) | (exponent == 0 ? 0u : 1u << F32_MANTISSA);
    int target = (exponent == 0 ? 1 : exponent) - F32_BIAS + (1 << (small.exponent_bits - 1)) - 1;
    int dropped = F32_MANTISSA - small.mantissa_bits;
    if (target < 1) { /* subnormal in the small format */
        dropped += 1 - target;
        target = 1;
    }
    if (dropped > 60) {
        *missing = 0;
        return 0;
    }
    const uint64_t rest = significand & (((uint64_t)1 << dropped) - 1);
    *missing = dropped <= 32 ? rest << (32 - dropped) : rest >> (dropped - 32);
    const uint64_t magnitude = ((uint64_t)(target - 1) << small.mantissa_bits) + (significand >> dropped);
    return magnitude > small.largest ? small.largest + 1 : (uint32_t)magnitude;
}

static uint8_t with_sign(Small small, float value, uint32_t magnitude)
{
    const uint32_t sign = bits_of(value) >> 31 << (small.exponent_bits + small.mantissa_bits);
    return (uint8_t)(sign | (magnitude > small.largest ? small.largest : magnitude));
}

static uint8_t encode_stochastic(Small small, float value, uint32_t random)
{
    uint64_t missing;
    const uint32_t below = round_down(small, value, &missing);
    return with_sign(small, value, below + (random < missing ? 1 : 0));
}

uint8_t hs_e4m3_encode_stochastic(float value, uint32_t random)
{
    return isnan(value) ? hs_e4m3_encode_saturate(value) : encode_stochastic(e4m3, value, random);
}

uint8_t hs_e5m2_encode_stochastic(float value, uint32_t random)
{
    return isnan(value) ? hs_e5m2_encode_saturate(value) : encode_stochastic(e5m2, value, random);
}

uint8_t hs_e2m1_encode_stochastic(float value, uint32_t random)
{
    return isnan(value) ? (uint8_t)e2m1.largest : encode_stochastic(e2m1, value, random);
}

uint8_t hs_e2m1_encode(float value)
{
    if (isnan(value))
        return (uint8_t)e2m1.largest;
    const uint64_t half = (uint64_t)1 << 31;
    uint64_t missing;
    const uint32_t below = round_down(e2m1, value, &missing);
    return with_sign(e2m1, value, below + (missing > half || (missing == half && below % 2 == 1) ? 1 : 0));
}

float hs_e2m1_decode(uint8_t code)
{
    static const float magnitudes[] = { 0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f };
    const float magnitude = magnitudes[code & 7];
    return (code & 8) != 0 ? -magnitude : magnitude;
}

float hs_e8m0_decode(uint8_t code)
{
    if (code == F32_TOP)
        return NAN;
    return code == 0 ? 0x1p-127f : float_of((uint32_t)code << F32_MANTISSA);
}

uint8_t hs_e8m0_scale_up(float amax, float largest)
{
    if (!isfinite(amax))
        return F32_TOP;
    const uint32_t bits = bits_of(amax * (1.0f / largest)), mantissa = bits & ((1u << F32_MANTISSA) - 1);
    const uint32_t exponent = bits >> F32_MANTISSA;
    /* Code 0 is 2^-127, half of the smallest normal number. */
    const bool more = exponent == 0 ? mantissa > 1u << (F32_MANTISSA - 1) : mantissa > 0;
    return (uint8_t)(exponent + (more && exponent < F32_TOP - 1 ? 1 : 0));
}

uint8_t hs_e8m0_scale_floor(float amax, float largest)
{
    if (!isfinite(amax))
        return F32_TOP;
    if (amax == 0.0f)
        return 0;
    const int exponent = ilogbf(amax) - ilogbf(largest) + F32_BIAS;
    return (uint8_t)(exponent < 0 ? 0 : exponent);
}

float hs_tensor_scale(float amax, float largest, bool power_of_two)
{
    if (!isfinite(amax) || amax == 0.0f)
        return 1.0f;
    const float scale = largest / amax, finite = isinf(scale) ? FLT_MAX : scale;
    return power_of_two ? float_of(bits_of(finite) & 0x7F800000u) : finite;
}
