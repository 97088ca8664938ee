/* SPDX-License-Identifier: MIT
 *
 * Formats below 16 bits against published vectors, and against their definitions: every value of a format by IEEE
 * 754's formula, the nearest one by a search, all 65,536 numbers of bf16.
 */
#include <criterion/criterion.h>
#include <float.h>
#include <math.h>

#include "kernels/base/dtype.h"
#include "kernels/base/rng.h"
#include "kernels/base/scaled_formats.h"

Test(scaled_formats, vectors_of_e4m3_and_e5m2)
{
    const struct {
        float value;
        uint8_t e4m3, e5m2;
    } vectors[] = {
        { 1.0f, 0x38, 0x3C },
        { -0.0f, 0x80, 0x80 },
        { 0.1f, 0x1D, 0x2E },
        { 0.3f, 0x2A, 0x35 },
        { 1.0625f, 0x38, 0x3C },
        { 1.1875f, 0x3A, 0x3D },
        { 17.0f, 0x58, 0x4C },
        { 19.0f, 0x5A, 0x4D },
        { 448.0f, 0x7E, 0x5F },
        { 464.0f, 0x7E, 0x5F },
        { 480.0f, 0x7E, 0x60 },
        { -464.0f, 0xFE, 0xDF },
        { 0x1p-9f, 0x01, 0x18 },
        { 0x1p-10f, 0x00, 0x14 },
        { 1.0001f * 0x1p-10f, 0x01, 0x14 },
        { 1.5f * 0x1p-9f, 0x02, 0x1A },
        { 2.5f * 0x1p-9f, 0x02, 0x1D },
        { 0x1p-17f, 0x00, 0x00 },
        { 1.001f * 0x1p-17f, 0x00, 0x01 },
        { 61439.0f, 0x7E, 0x7B },
        { 61440.0f, 0x7E, 0x7B },
        { INFINITY, 0x7E, 0x7B },
        { NAN, 0x7F, 0x7F },
    };
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) {
        const float value = vectors[i].value;
        cr_expect_eq(hs_e4m3_encode_saturate(value), vectors[i].e4m3, "%a: e4m3 %02X", (double)value,
                     hs_e4m3_encode_saturate(value));
        cr_expect_eq(hs_e5m2_encode_saturate(value), vectors[i].e5m2, "%a: e5m2 %02X", (double)value,
                     hs_e5m2_encode_saturate(value));
    }
}

/* The non-negative numbers of a format in order, by the formula. */
typedef struct Format {
    const char *name;
    int exponent_bits, mantissa_bits, count; /* of finite magnitudes */
    uint8_t (*encode)(float value);
    uint8_t (*encode_stochastic)(float value, uint32_t random);
} Format;

static const Format formats[] = {
    { "e4m3", 4, 3, 127, hs_e4m3_encode_saturate, hs_e4m3_encode_stochastic },
    { "e5m2", 5, 2, 124, hs_e5m2_encode_saturate, hs_e5m2_encode_stochastic },
    { "e2m1", 2, 1, 8, hs_e2m1_encode, hs_e2m1_encode_stochastic },
};
enum { FORMATS = sizeof formats / sizeof *formats };

static double number_of(const Format *format, int magnitude)
{
    const int mantissa = magnitude & ((1 << format->mantissa_bits) - 1), exponent = magnitude >> format->mantissa_bits;
    const int bias = (1 << (format->exponent_bits - 1)) - 1;
    const double fraction = ldexp(mantissa, -format->mantissa_bits);
    return exponent == 0 ? ldexp(fraction, 1 - bias) : ldexp(1.0 + fraction, exponent - bias);
}

/* The largest magnitude that is not above `value`. */
static int below(const Format *format, double value)
{
    int magnitude = 0;
    while (magnitude + 1 < format->count && number_of(format, magnitude + 1) <= value)
        magnitude++;
    return magnitude;
}

static int nearest(const Format *format, double value)
{
    const int low = below(format, value);
    if (low + 1 == format->count)
        return low;
    const double tie = (number_of(format, low) + number_of(format, low + 1)) / 2.0;
    return value > tie || (value == tie && low % 2 == 1) ? low + 1 : low;
}

/* A magnitude with a sign where the format has it. */
static uint8_t code_of(const Format *format, int magnitude, bool negative)
{
    return (uint8_t)(magnitude | (negative ? 1 << (format->exponent_bits + format->mantissa_bits) : 0));
}

/* Through f32, not through a detour: bf16's numbers are f32's. */
Test(scaled_formats, every_number_of_bf16_becomes_the_nearest_one)
{
    for (int f = 0; f < FORMATS; f++) {
        const Format *format = &formats[f];
        int wrong = 0;
        for (uint32_t bits = 0; bits < 65536; bits++) {
            const float value = hs_bf16_decode((uint16_t)bits);
            if (isnan(value))
                continue;
            wrong += format->encode(value) != code_of(format, nearest(format, fabs((double)value)), bits >> 15 != 0);
        }
        cr_expect_eq(wrong, 0, "%s: %d codes", format->name, wrong);
    }
}

/* Rounding up where the random number is below the share of the way, exactly: the number that just does not, and the one
 * that does. */
Test(scaled_formats, stochastic_rounding_goes_up_as_often_as_it_should)
{
    const HsRng rng = { .seed = 11 };
    for (int f = 0; f < FORMATS; f++) {
        const Format *format = &formats[f];
        int wrong = 0;
        for (uint64_t i = 0; i < 20000; i++) {
            const HsPhilox words = hs_rng_draw(&rng, i);
            const double spread = ldexp(1.0, (int)(words.word[1] % 24) - 18);
            const float value = (float)(((double)words.word[0] * 0x1p-31 - 1.0) * 8.0 * spread);
            const int low = below(format, fabs((double)value));
            const bool negative = signbit(value) != 0;
            if (low + 1 == format->count) {
                wrong += format->encode_stochastic(value, words.word[2]) != code_of(format, low, negative);
                continue;
            }
            const double gap = number_of(format, low + 1) - number_of(format, low);
            const double share = (fabs((double)value) - number_of(format, low)) / gap * 0x1p32;
            const double first = floor(share); /* numbers below it go up */
            if (first > 0.0)
                wrong +=
                    format->encode_stochastic(value, (uint32_t)(first - 1.0)) != code_of(format, low + 1, negative);
            wrong += format->encode_stochastic(value, (uint32_t)first) != code_of(format, low, negative);
        }
        cr_expect_eq(wrong, 0, "%s: %d codes", format->name, wrong);
    }
}

Test(scaled_formats, what_is_too_large_or_no_number)
{
    for (int f = 0; f < FORMATS; f++) {
        const Format *format = &formats[f];
        const uint8_t largest = (uint8_t)(format->count - 1);
        cr_expect_eq(format->encode(INFINITY), largest);
        cr_expect_eq(format->encode_stochastic(INFINITY, UINT32_MAX), largest);
        cr_expect_eq(format->encode_stochastic(-FLT_MAX, 0), code_of(format, largest, true));
        cr_expect_eq(format->encode_stochastic(0x1p-149f, 1), 0, "%s", format->name);
        cr_expect_eq(format->encode(-NAN), format->count == 8 ? 7 : 0x7F);
        cr_expect_eq(format->encode_stochastic(NAN, 5), format->count == 8 ? 7 : 0x7F);
    }
}

Test(scaled_formats, four_bits)
{
    const float ties[][2] = { { .25f, 0.0f }, { .75f, 1.0f }, { 1.25f, 1.0f }, { 1.75f, 2.0f },
                              { 2.5f, 2.0f }, { 3.5f, 4.0f }, { 5.0f, 4.0f } };
    for (size_t i = 0; i < sizeof ties / sizeof *ties; i++) {
        cr_expect_eq(hs_e2m1_decode(hs_e2m1_encode(ties[i][0])), ties[i][1], "%g", (double)ties[i][0]);
        cr_expect_eq(hs_e2m1_decode(hs_e2m1_encode(-ties[i][0])), -ties[i][1]);
    }
    for (uint8_t code = 0; code < 16; code++)
        cr_expect_eq(hs_e2m1_encode(hs_e2m1_decode(code)), code);
}

Test(scaled_formats, scales_of_blocks)
{
    const struct {
        float amax;
        uint8_t up, floor;
    } vectors[] = { { 448.0f, 127, 127 }, { 449.0f, 128, 127 },  { 512.0f, 128, 128 },     { 1.0f, 119, 119 },
                    { 1.75f, 119, 119 },  { 0.0f, 0, 0 },        { 1.7500001f, 120, 119 }, { INFINITY, 255, 255 },
                    { NAN, 255, 255 },    { FLT_MAX, 247, 246 }, { 0x1p-149f, 0, 0 } };
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) {
        const float amax = vectors[i].amax;
        cr_expect_eq(hs_e8m0_scale_up(amax, 448.0f), vectors[i].up, "%a: up %d", (double)amax,
                     hs_e8m0_scale_up(amax, 448.0f));
        cr_expect_eq(hs_e8m0_scale_floor(amax, 448.0f), vectors[i].floor, "%a: floor %d", (double)amax,
                     hs_e8m0_scale_floor(amax, 448.0f));
    }
    for (int code = 0; code < 255; code++)
        cr_expect_eq((double)hs_e8m0_decode((uint8_t)code), ldexp(1.0, code - 127), "%d", code);
    cr_expect(isnan(hs_e8m0_decode(255)));
}

Test(scaled_formats, scales_of_tensors)
{
    const struct {
        float amax, scale, power_of_two;
    } vectors[] = { { 1.0f, 448.0f, 256.0f },   { 3.0f, 149.33333f, 128.0f }, { 448.0f, 1.0f, 1.0f },
                    { 449.0f, .9977728f, .5f }, { 0.0f, 1.0f, 1.0f },         { INFINITY, 1.0f, 1.0f },
                    { NAN, 1.0f, 1.0f },        { 1e-40f, FLT_MAX, 0x1p127f } };
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) {
        cr_expect_eq(hs_tensor_scale(vectors[i].amax, 448.0f, false), vectors[i].scale, "%g", (double)vectors[i].amax);
        cr_expect_eq(hs_tensor_scale(vectors[i].amax, 448.0f, true), vectors[i].power_of_two);
    }
}
