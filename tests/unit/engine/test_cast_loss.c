/* SPDX-License-Identifier: MIT
 *
 * What a cast would lose, against the cast itself by the reference backend, with its codes read back.
 */
#include <criterion/criterion.h>
#include <math.h>

#include "kernels/base/rng.h"
#include "kernels/base/scaled_formats.h"
#include "kernels/ops/backend.h"
#include "runtime/engine/cast_loss.h"

enum { ROWS = 150, DEPTH = 270 }; /* no multiple of a block */

static float values[ROWS * DEPTH];
static unsigned char memory[2 * ROWS * DEPTH];

/* Normal numbers of widths that differ by row, and one outlier. */
static void fill(void)
{
    const HsRng rng = { .seed = 5 };
    for (int i = 0; i < ROWS * DEPTH; i++) {
        double pair[2];
        const HsPhilox draw = hs_rng_draw(&rng, (uint64_t)i);
        hs_rng_normal(draw.word[0], draw.word[1], pair);
        values[i] = (float)ldexp(pair[0], -(i / DEPTH % 24));
    }
    values[7 * DEPTH + 100] = 300;
    values[9 * DEPTH + 3] = 0;
}

static double number_of(const HsCodes *codes, int64_t row, int64_t k)
{
    const int64_t blocks = hs_codes_blocks(codes);
    const unsigned char *const line = codes->data + row * hs_codes_row_bytes(codes);
    const bool four = codes->format == HS_E2M1;
    const uint8_t block = blocks > 0 ? codes->block_scales[row * blocks + k / hs_scale_block(codes->granularity)] : 0;
    const double worth = blocks == 0 ? 1 : four ? (double)hs_e4m3_decode(block) : (double)hs_e8m0_decode(block);
    const double number =
        four ? (double)hs_e2m1_decode((uint8_t)(line[k / 2] >> (k % 2 ? 4 : 0) & 15)) : (double)hs_e4m3_decode(line[k]);
    return number * worth * (double)codes->scaling->inverse;
}

static void compare(const HsCastRule *rule)
{
    HsDevice device;
    HsScaling scaling = { .scale = 1, .inverse = 1 };
    cr_assert_eq(hs_device_host_init(&device), HS_OK);
    HsContext context = { .backend = hs_backend_ref(), .device = &device, .threads = 1 };
    HsCodes codes = { rule->format, rule->granularity, ROWS, DEPTH, NULL, NULL, &scaling };
    hs_codes_place(&codes, memory);
    const HsQuantizeArgs args = {
        .x = hs_tensor_2d(values, HS_F32, ROWS, DEPTH), .along = codes, .squares = rule->squares, .records = true
    };
    cr_assert_eq(hs_op_quantize(&context, &args), HS_OK, "%s", hs_error_message());
    double error = 0, squares = 0;
    for (int64_t i = 0; i < ROWS * DEPTH; i++) {
        const double x = (double)values[i], back = number_of(&codes, i / DEPTH, i % DEPTH);
        error += (x - back) * (x - back);
        squares += x * x;
    }
    HsCastLoss loss = { 0 };
    const int64_t cut = hs_scale_block(rule->granularity) > 0 ? hs_scale_block(rule->granularity) : 11;
    hs_cast_loss_add(rule, values, cut, DEPTH, 300, &loss); /* in two parts, of whole blocks */
    hs_cast_loss_add(rule, values + cut * DEPTH, ROWS - cut, DEPTH, 300, &loss);
    cr_expect_eq(loss.elements, ROWS * DEPTH);
    cr_expect_eq((uint64_t)loss.saturated, scaling.saturated, "format %d", (int)rule->format);
    cr_expect_eq((uint64_t)loss.zeroed, scaling.zeroed, "format %d: %lld, %llu", (int)rule->format,
                 (long long)loss.zeroed, (unsigned long long)scaling.zeroed);
    /* Sums of as many doubles; what a code is worth is one more product in f32 here. */
    cr_expect_float_eq(hs_cast_loss_error(&loss), sqrt(error / squares), 1e-6 * sqrt(error / squares));
}

Test(cast_loss, is_what_the_reference_loses)
{
    static const HsCastRule rules[] = {
        { HS_E4M3, HS_SCALE_TENSOR, false }, { HS_E4M3, HS_SCALE_BLOCK, false }, { HS_E4M3, HS_SCALE_BLOCK, true },
        { HS_E4M3, HS_SCALE_MX, false },     { HS_E2M1, HS_SCALE_NV, false },    { HS_E2M1, HS_SCALE_NV, true },
    };
    fill();
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        compare(&rules[i]);
}

Test(cast_loss, zeros_lose_nothing)
{
    const HsCastRule rule = { HS_E2M1, HS_SCALE_NV, true };
    const float zeros[32] = { 0 };
    HsCastLoss loss = { 0 };
    hs_cast_loss_add(&rule, zeros, 2, 16, 0, &loss);
    cr_expect_eq(loss.zeroed, 0);
    cr_expect_eq(hs_cast_loss_error(&loss), 0);
}
