/* SPDX-License-Identifier: MIT
 *
 * Number formats against an independent truth: every bit pattern's value by IEEE 754's formula (ldexp), and encoding
 * by searching that list for the nearest value, ties to the even pattern.  Exhaustive: all patterns, and around each
 * one the value itself, the midpoint to the next, and the doubles next to the midpoint.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base/dtype.h"

enum { MOST_PATTERNS = 1 << 16 };

/* The non-negative finite values of a format in increasing order; values[i] belongs to pattern i, and one more entry
 * stands for the first value that is too large. */
static double values[MOST_PATTERNS / 2 + 1];

static int finite_patterns(const HsDtypeInfo *info)
{
    /* IEEE formats give the whole top exponent to infinity and NaN; E4M3 only its topmost pattern. */
    int all = 1 << (info->exponent_bits + info->mantissa_bits);
    return info->has_infinity ? all - (1 << info->mantissa_bits) : all - 1;
}

static double value_of(const HsDtypeInfo *info, int pattern)
{
    int mantissa = pattern & ((1 << info->mantissa_bits) - 1);
    int exponent = pattern >> info->mantissa_bits;
    int bias = (1 << (info->exponent_bits - 1)) - 1;
    double fraction = ldexp(mantissa, -info->mantissa_bits);
    return exponent == 0 ? ldexp(fraction, 1 - bias) : ldexp(1 + fraction, exponent - bias);
}

static int fill_values(const HsDtypeInfo *info)
{
    int count = finite_patterns(info);
    for (int i = 0; i <= count; i++)
        values[i] = value_of(info, i);
    return count;
}

/* The pattern nearest to `magnitude`; `count` when that is past the largest finite value. */
static int nearest_pattern(double magnitude, int count)
{
    int low = 0, high = count;
    if (magnitude >= values[high])
        return count;
    while (high - low > 1) {
        int middle = (low + high) / 2;
        if (values[middle] <= magnitude)
            low = middle;
        else
            high = middle;
    }
    double tie = (values[low] + values[high]) / 2; /* exact: neighbours differ in the last place only */
    if (magnitude == tie)
        return low % 2 == 0 ? low : high;
    return magnitude < tie ? low : high;
}

static uint32_t stored_bits(HsDtype dtype, double value)
{
    uint8_t one;
    uint16_t two;
    if (hs_dtype_bytes(dtype) == 1) {
        hs_dtype_store(dtype, &one, 0, value);
        return one;
    }
    hs_dtype_store(dtype, &two, 0, value);
    return two;
}

static uint32_t encoded_bits(HsDtype dtype, float value)
{
    return dtype == HS_F16    ? hs_f16_encode(value)
           : dtype == HS_BF16 ? hs_bf16_encode(value)
           : dtype == HS_E4M3 ? hs_e4m3_encode(value)
                              : hs_e5m2_encode(value);
}

static const HsDtype small_formats[] = { HS_F16, HS_BF16, HS_E4M3, HS_E5M2 };

/* Counts mismatches rather than asserting a million times: each Criterion assertion is a message to its parent. */
static int check_point(HsDtype dtype, double magnitude, int count)
{
    const HsDtypeInfo *info = hs_dtype_info(dtype);
    uint32_t expected = (uint32_t)nearest_pattern(magnitude, count);
    uint32_t sign = 1u << (info->exponent_bits + info->mantissa_bits);
    int wrong = stored_bits(dtype, magnitude) != expected;
    wrong += stored_bits(dtype, -magnitude) != (sign | expected);
    if ((double)(float)magnitude == magnitude) {
        wrong += encoded_bits(dtype, (float)magnitude) != expected;
        wrong += encoded_bits(dtype, (float)-magnitude) != (sign | expected);
    }
    if (wrong)
        cr_log_error("%s: %a should be %x, is %x", info->name, magnitude, expected, stored_bits(dtype, magnitude));
    return wrong;
}

Test(dtype, every_pattern_decodes_to_its_value_and_encodes_back)
{
    for (size_t f = 0; f < sizeof small_formats / sizeof small_formats[0]; f++) {
        HsDtype dtype = small_formats[f];
        const HsDtypeInfo *info = hs_dtype_info(dtype);
        int count = fill_values(info), wrong = 0;
        int sign = 1 << (info->exponent_bits + info->mantissa_bits);
        for (int pattern = 0; pattern < 2 * sign; pattern++) {
            uint16_t wide = (uint16_t)pattern;
            uint8_t narrow = (uint8_t)pattern;
            const void *bits = info->bytes == 2 ? (const void *)&wide : (const void *)&narrow;
            double value = hs_dtype_load(dtype, bits, 0);
            int magnitude = pattern & (sign - 1);
            if (magnitude > count || (magnitude == count && !info->has_infinity)) {
                wrong += !isnan(value);
                /* The payload survives; a signalling NaN comes back quiet (the mantissa's top bit set). */
                int quiet = pattern | 1 << (info->mantissa_bits - 1);
                wrong += stored_bits(dtype, value) != (uint32_t)quiet;
                continue;
            }
            double expected = magnitude == count ? INFINITY : values[magnitude];
            wrong += fabs(value) != expected || (signbit(value) != 0) != (pattern >= sign);
            wrong += stored_bits(dtype, value) != (uint32_t)pattern;
            wrong += encoded_bits(dtype, (float)value) != (uint32_t)pattern;
        }
        cr_expect_eq(wrong, 0, "%s: %d patterns", info->name, wrong);
    }
}

Test(dtype, encoding_is_the_nearest_value_ties_to_even)
{
    for (size_t f = 0; f < sizeof small_formats / sizeof small_formats[0]; f++) {
        HsDtype dtype = small_formats[f];
        const HsDtypeInfo *info = hs_dtype_info(dtype);
        int count = fill_values(info), wrong = 0;
        for (int i = 0; i < count && wrong == 0; i++) {
            double tie = (values[i] + values[i + 1]) / 2;
            wrong += check_point(dtype, tie, count);
            /* One double to either side: a detour through float would land on the tie and round twice. */
            wrong += check_point(dtype, nextafter(tie, 0), count);
            wrong += check_point(dtype, nextafter(tie, INFINITY), count);
            wrong += check_point(dtype, nextafterf((float)tie, 0), count);
            wrong += check_point(dtype, nextafterf((float)tie, INFINITY), count);
            wrong += check_point(dtype, nextafter(values[i + 1], 0), count);
        }
        cr_expect_eq(wrong, 0, "%s", info->name);
    }
}

Test(dtype, table_agrees_with_the_patterns)
{
    for (size_t f = 0; f < sizeof small_formats / sizeof small_formats[0]; f++) {
        const HsDtypeInfo *info = hs_dtype_info(small_formats[f]);
        int count = fill_values(info);
        cr_expect_eq(info->max, values[count - 1], "%s", info->name);
        cr_expect_eq(info->smallest_subnormal, values[1], "%s", info->name);
        cr_expect_eq(info->smallest_normal, values[1 << info->mantissa_bits], "%s", info->name);
        cr_expect_eq(info->epsilon, ldexp(1, -info->mantissa_bits), "%s", info->name);
        cr_expect_eq(info->bytes * 8, (size_t)(1 + info->exponent_bits + info->mantissa_bits), "%s", info->name);
        HsDtype found = HS_DTYPE_COUNT;
        cr_expect(hs_dtype_find(info->safetensors_name, &found) && found == small_formats[f]);
        cr_expect(hs_dtype_find(info->name, &found) && found == small_formats[f]);
    }
    HsDtype found;
    cr_expect_not(hs_dtype_find("fp32", &found));
}

Test(dtype, overflow_and_saturation)
{
    cr_expect_eq(hs_f16_encode(65504.0f), 0x7BFF);
    cr_expect_eq(hs_f16_encode(65519.0f), 0x7BFF, "below the tie");
    cr_expect_eq(hs_f16_encode(65520.0f), 0x7C00, "the tie goes to the even neighbour, infinity");
    cr_expect_eq(hs_f16_encode(-INFINITY), 0xFC00);
    cr_expect_eq(hs_e4m3_encode(464.0f), 0x7E, "the tie between 448 and what would be 480");
    cr_expect_eq(hs_e4m3_encode(465.0f), 0x7F, "E4M3 has no infinity: NaN");
    cr_expect_eq(hs_e4m3_encode(-INFINITY), 0xFF);
    cr_expect_eq(hs_e5m2_encode(1e6f), 0x7C);
    cr_expect_eq(hs_e4m3_encode_saturate(1e6f), 0x7E);
    cr_expect_eq(hs_e4m3_encode_saturate(-INFINITY), 0xFE);
    cr_expect_eq(hs_e5m2_encode_saturate(61440.0f), 0x7B);
    cr_expect_eq(hs_e5m2_encode_saturate(-1e30f), 0xFB);
    cr_expect_eq(hs_e4m3_encode_saturate(NAN) & 0x7F, 0x7F, "saturation does not hide a NaN");
    cr_expect_eq(hs_e5m2_encode_saturate(3.0f), hs_e5m2_encode(3.0f));
    cr_expect_eq(hs_bf16_encode(3.4e38f), 0x7F80);
    float f32;
    hs_dtype_store(HS_F32, &f32, 0, 1e300);
    cr_expect_eq(f32, INFINITY);
}

Test(dtype, integers_round_to_even_and_clamp)
{
    const struct {
        HsDtype dtype;
        double value, expected;
    } cases[] = {
        { HS_U8, 2.5, 2 },          { HS_U8, 3.5, 4 },          { HS_U8, 255.6, 255 },
        { HS_U8, -1, 0 },           { HS_U8, NAN, 0 },          { HS_U16, 70000, 65535 },
        { HS_U16, 1.49, 1 },        { HS_I32, -2.5, -2 },       { HS_I32, 1e10, 2147483647.0 },
        { HS_I32, -1e10, -0x1p31 }, { HS_I64, -1e30, -0x1p63 }, { HS_I64, 1e15 + 0.5, 1e15 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int64_t room[2] = { 0, 0 };
        hs_dtype_store(cases[i].dtype, room, 1, cases[i].value);
        cr_expect_eq(hs_dtype_load(cases[i].dtype, room, 1), cases[i].expected, "case %zu", i);
    }
    int64_t most = 0;
    hs_dtype_store(HS_I64, &most, 0, 1e30);
    cr_expect_eq(most, INT64_MAX);
}

Test(dtype, stochastic_rounding_has_the_stated_probability)
{
    /* Of the 65536 equally likely random words exactly low16 carry into the kept half. */
    const float samples[] = { 1.0f, 1.001f, -3.14159f, 1e-40f, 65504.3f };
    for (size_t s = 0; s < sizeof samples / sizeof samples[0]; s++) {
        uint32_t bits;
        memcpy(&bits, &samples[s], sizeof bits);
        uint32_t up = 0, other = 0;
        for (uint32_t random = 0; random < 65536; random++) {
            uint16_t rounded = hs_bf16_encode_stochastic(samples[s], (uint16_t)random);
            if (rounded == (bits >> 16) + 1)
                up++;
            else if (rounded != bits >> 16)
                other++;
        }
        cr_expect_eq(up, bits & 0xFFFF);
        cr_expect_eq(other, 0u);
    }
    cr_expect_eq(hs_bf16_encode_stochastic(INFINITY, 0xFFFF), 0x7F80);
    cr_expect(isnan(hs_bf16_decode(hs_bf16_encode_stochastic(NAN, 0xFFFF))));
}
