/* SPDX-License-Identifier: MIT
 *
 * Codes below 16 bits: the arithmetic that the backends' kernels share against the formats' definitions, for every bf16
 * number and for f32 numbers at every place where rounding turns; the rotation against its matrix; the product of codes
 * against integers, which know no rounding; what is not finite.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base/dtype.h"
#include "kernels/base/scaled_formats.h"
#include "kernels/cpu/cpu.h"
#include "kernels/ops/backend.h"
#include "kernels/ops/code_rule.h"

#define RUN(call) cr_assert_eq((call), HS_OK, "%s", hs_error_message())

static uint8_t defined(HsDtype format, float value)
{
    return format == HS_E4M3   ? hs_e4m3_encode_saturate(value)
           : format == HS_E5M2 ? hs_e5m2_encode_saturate(value)
                               : hs_e2m1_encode(value);
}

static uint8_t defined_stochastic(HsDtype format, float value, uint32_t random)
{
    return format == HS_E4M3   ? hs_e4m3_encode_stochastic(value, random)
           : format == HS_E5M2 ? hs_e5m2_encode_stochastic(value, random)
                               : hs_e2m1_encode_stochastic(value, random);
}

static float number_of(HsDtype format, uint8_t code)
{
    return format == HS_E4M3 ? hs_e4m3_decode(code) : format == HS_E5M2 ? hs_e5m2_decode(code) : hs_e2m1_decode(code);
}

static void expect_code(HsDtype format, float value)
{
    const uint8_t expected = defined(format, value), got = hs_code_encode(format, value);
    cr_assert_eq(got, expected, "format %d: %a is %02x, expected %02x", (int)format, (double)value, got, expected);
    for (uint32_t i = 0; i < 4; i++) {
        const uint32_t random = i == 0 ? 0 : i == 3 ? UINT32_MAX : hs_code_bits(value) * 2654435761u + i;
        cr_assert_eq(hs_code_encode_stochastic(format, value, random), defined_stochastic(format, value, random));
    }
}

Test(quantize, shared_arithmetic_is_the_definition)
{
    static const HsDtype formats[] = { HS_E4M3, HS_E5M2, HS_E2M1 };
    for (size_t f = 0; f < sizeof formats / sizeof *formats; f++) {
        const HsDtype format = formats[f];
        for (uint32_t bits = 0; bits < 65536; bits++) /* every bf16 number */
            expect_code(format, hs_code_float(bits << 16));
        const int codes = format == HS_E2M1 ? 16 : 256;
        for (int code = 0; code < codes; code++) {
            const float number = number_of(format, (uint8_t)code), again = hs_code_decode(format, (uint8_t)code);
            cr_assert(isnan(number) ? isnan(again) : memcmp(&number, &again, sizeof number) == 0, "code %02x", code);
            if (isnan(number) || isinf(number))
                continue;
            /* Halfway to the next number, and its neighbours in f32. */
            const float next = number_of(format, (uint8_t)(code + 1) & (uint8_t)(codes - 1));
            const float middle = isfinite(next) ? number + (next - number) / 2 : number * 1.0625f;
            for (int step = -2; step <= 2; step++)
                expect_code(format, hs_code_float(hs_code_bits(middle) + (uint32_t)step));
        }
    }
}

Test(quantize, shared_scales_are_the_definition)
{
    for (uint32_t bits = 0; bits < 0x7F800000u; bits += 3000017u) {
        const float amax = hs_code_float(bits);
        for (HsDtype format = HS_E4M3; format <= HS_E5M2; format++) {
            const float largest = hs_code_largest(format);
            cr_assert_eq(hs_code_block_exponent(format, bits), hs_e8m0_scale_up(amax, largest), "%a", (double)amax);
            for (int power = 0; power < 2; power++)
                cr_assert_eq(hs_code_tensor_scale(format, bits, power), hs_tensor_scale(amax, largest, power));
        }
    }
    for (uint32_t code = 0; code < 255; code++) {
        cr_assert_eq(hs_code_power(code), hs_e8m0_decode((uint8_t)code));
        cr_assert_eq(hs_code_power(code) * hs_code_inverse_power(code), 1.0f);
    }
}

/* Rows of the matrix by the definition of Hadamard matrices: element (i, j) is -1 to the number of common bits. */
Test(quantize, rotation_is_orthogonal)
{
    double matrix[HS_CODES_RUN][HS_CODES_RUN], product = 0;
    for (int j = 0; j < HS_CODES_RUN; j++) {
        float unit[HS_CODES_RUN] = { 0 };
        unit[j] = 1.0f;
        hs_code_rotate(unit);
        for (int i = 0; i < HS_CODES_RUN; i++) {
            const bool odd = __builtin_popcount((unsigned)(i & j)) % 2 == 1, sign = (HS_CODE_SIGNS >> j & 1) != 0;
            cr_assert_eq(unit[i], odd != sign ? -0.25f : 0.25f);
            matrix[i][j] = (double)unit[i];
        }
    }
    for (int i = 0; i < HS_CODES_RUN; i++)
        for (int k = 0; k < HS_CODES_RUN; k++, product = 0) {
            for (int j = 0; j < HS_CODES_RUN; j++)
                product += matrix[i][j] * matrix[k][j];
            cr_assert_eq(product, i == k ? 1.0 : 0.0);
        }
}

enum { ROWS = 17, COLUMNS = 33, DEPTH = 300 };

typedef struct Codes {
    HsCodes codes;
    HsScaling scaling;
    unsigned char bytes[ROWS * 2 * DEPTH];
} Codes;

static void random_codes(Codes *to, HsDtype format, int64_t rows, uint32_t seed)
{
    to->scaling = (HsScaling){ .scale = 1.0f, .inverse = 1.0f };
    to->codes = (HsCodes){ format, HS_SCALE_TENSOR, rows, DEPTH, to->bytes, NULL, &to->scaling };
    for (int64_t i = 0; i < rows * DEPTH; i++) {
        seed = seed * 1664525u + 1013904223u;
        to->bytes[i] = (unsigned char)(seed >> 24);
        if (!isfinite(number_of(format, to->bytes[i])))
            to->bytes[i] = 0x11;
    }
}

/* Numbers as integers: E4M3 in units of 2^-9, E5M2 of 2^-16 (OCP 8-bit floating point, table 1). */
static int64_t integer_of(HsDtype format, uint8_t code)
{
    return (int64_t)ldexp((double)number_of(format, code), format == HS_E4M3 ? 9 : 16);
}

static void compare_with_integers(const HsBackend *backend, HsDtype left, double relative)
{
    static Codes a, b;
    static float c[ROWS * COLUMNS];
    static _Alignas(64) unsigned char workspace[1 << 22];
    random_codes(&a, left, ROWS, 1);
    random_codes(&b, HS_E4M3, COLUMNS, 2);
    HsDevice device;
    RUN(hs_device_host_init(&device));
    HsContext context = {
        .backend = backend, .device = &device, .threads = 2, .workspace = workspace, .workspace_bytes = sizeof workspace
    };
    const HsMatmulArgs args = { .a = hs_operand_codes(a.codes),
                                .b = hs_operand_codes(b.codes),
                                .transpose_b = true,
                                .policy = { left, HS_E4M3, HS_SCALE_TENSOR },
                                .alpha = 1.0f,
                                .c = hs_tensor_2d(c, HS_F32, ROWS, COLUMNS) };
    RUN(hs_op_matmul(&context, &args));
    for (int64_t row = 0; row < ROWS; row++) {
        for (int64_t column = 0; column < COLUMNS; column++) {
            int64_t sum = 0, magnitude = 0;
            for (int64_t k = 0; k < DEPTH; k++) {
                const int64_t product =
                    integer_of(left, a.bytes[row * DEPTH + k]) * integer_of(HS_E4M3, b.bytes[column * DEPTH + k]);
                sum += product;
                magnitude += product < 0 ? -product : product;
            }
            const int exponent = left == HS_E4M3 ? -18 : -25;
            const double expected = ldexp((double)sum, exponent), bound = ldexp((double)magnitude, exponent) * relative;
            const double got = (double)c[row * COLUMNS + column];
            cr_assert(fabs(got - expected) <= bound + fabs(expected) * 0x1p-24, "%g, expected %g", got, expected);
        }
    }
}

/* ref sums in double, where nothing is lost; cpu in f32, DEPTH roundings at most. */
Test(quantize, products_are_those_of_integers)
{
    const HsBackend *cpu;
    RUN(hs_backend_cpu(&cpu));
    for (HsDtype left = HS_E4M3; left <= HS_E5M2; left++) {
        compare_with_integers(hs_backend_ref(), left, 0.0);
        compare_with_integers(cpu, left, DEPTH * 0x1p-24);
    }
}

/* An infinity is cast to the largest number, and still found: the product's factor is NaN. */
Test(quantize, what_is_not_finite_stays_visible)
{
    const float broken[] = { INFINITY, -INFINITY, NAN };
    static _Alignas(64) unsigned char workspace[1 << 22];
    const HsBackend *backends[] = { hs_backend_ref(), NULL };
    RUN(hs_backend_cpu(&backends[1]));
    HsDevice device;
    RUN(hs_device_host_init(&device));
    for (int i = 0; i < 6; i++) {
        float x[64] = { 0 };
        unsigned char bytes[64];
        HsScaling scaling = { .kept = 2.0f };
        HsContext context = { .backend = backends[i % 2],
                              .device = &device,
                              .threads = 1,
                              .workspace = workspace,
                              .workspace_bytes = sizeof workspace };
        x[9] = broken[i / 2];
        x[10] = 3.0f;
        HsQuantizeArgs args = { .x = hs_tensor_2d(x, HS_F32, 4, 16),
                                .along = { HS_E4M3, HS_SCALE_TENSOR, 4, 16, bytes, NULL, &scaling },
                                .records = true };
        RUN(hs_op_quantize(&context, &args));
        cr_expect(isnan(HS_SCALING_FACTOR(&scaling)));
        cr_expect(isnan(scaling.inverse), "also where amax is not recorded");
        cr_expect_eq(bytes[9] & 0x7F, isnan(x[9]) ? 0x7F : 0x7E);
        cr_expect_eq(bytes[10], hs_e4m3_encode(3.0f));
        args.source = HS_SCALE_KEPT;
        scaling.amax = 0.0f;
        RUN(hs_op_quantize(&context, &args));
        cr_expect(isnan(HS_SCALING_FACTOR(&scaling)));
        cr_expect_eq(bytes[10], hs_e4m3_encode(6.0f));
        args.records = false;
        scaling.amax = 0.0f;
        x[9] = 0.0f;
        RUN(hs_op_quantize(&context, &args));
        cr_expect_eq(HS_SCALING_FACTOR(&scaling), 0.5f);
    }
}
