/* SPDX-License-Identifier: MIT
 *
 * A product has the bits of its rows' products: how many rows there are decides into which tasks the work is cut
 * (kernels/cpu/isa/matmul.c), and an element's sum must not depend on it.  Tall enough for the largest tasks, wide enough
 * for several of the second operand's panels, once in one block of depth and once in several.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base/rng.h"
#include "kernels/ops/backend.h"

enum { ROWS = 4352, SLICE = 96, THREADS = 2 };

typedef struct Case {
    int64_t n, k;
    HsEpilogue epilogue;
    bool gradient; /* of a weight: both operands stored along the rows, neither packed */
} Case;

static uint16_t *numbers(int64_t count, uint64_t seed)
{
    const HsRng rng = { .seed = seed };
    uint16_t *const values = malloc((size_t)count * sizeof *values);
    for (int64_t i = 0; i < count; i++) {
        const uint32_t word = hs_rng_draw(&rng, (uint64_t)i).word[0];
        values[i] = (uint16_t)((word & 0x8000u) | (0x3D80u + word % 256)); /* 0.06 to 0.25 in bf16, either sign */
    }
    return values;
}

static void *run(HsContext *context, HsMatmulArgs *args, int64_t rows, int64_t columns)
{
    const size_t bytes = (size_t)(rows * columns) * sizeof(uint16_t);
    args->c = hs_tensor_2d(malloc(bytes), HS_BF16, rows, columns);
    memset(args->c.data, 0xFF, bytes);
    context->workspace_bytes = context->backend->workspace.matmul(context, args);
    context->workspace = aligned_alloc(64, (context->workspace_bytes + 64) / 64 * 64);
    cr_assert_eq(hs_op_matmul(context, args), HS_OK, "%s", hs_error_message());
    free(context->workspace);
    return args->c.data;
}

/* Rows [row, row + rows) of op(a), stored as a is. */
static uint16_t *slice_of(const uint16_t *a, const Case *one, int64_t row, int64_t rows)
{
    uint16_t *const slice = malloc((size_t)(rows * one->k) * sizeof *slice);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t k = 0; k < one->k; k++)
            slice[one->gradient ? k * rows + i : i * one->k + k] =
                a[one->gradient ? k * ROWS + row + i : (row + i) * one->k + k];
    return slice;
}

static HsOperand left(uint16_t *a, const Case *one, int64_t rows)
{
    return hs_operand(hs_tensor_2d(a, HS_BF16, one->gradient ? one->k : rows, one->gradient ? rows : one->k));
}

static void compare(HsContext *context, const Case *one)
{
    uint16_t *const a = numbers(ROWS * one->k, 1), *const w = numbers(one->n * one->k, 2);
    const bool gates = hs_epilogue_gates(one->epilogue);
    const int64_t columns = gates ? one->n / 2 : one->n;
    HsTensor weight = hs_tensor_2d(w, HS_BF16, one->gradient ? one->k : one->n, one->gradient ? one->n : one->k);
    HsPacked packed = { NULL, HS_BF16, one->k, one->n };
    HsMatmulArgs args = { .b = hs_operand(weight),
                          .transpose_a = one->gradient,
                          .transpose_b = !one->gradient,
                          .alpha = 1.0f,
                          .epilogue = one->epilogue };
    if (!one->gradient) {
        packed.data =
            aligned_alloc(64, (context->backend->packed_bytes(context, HS_BF16, one->k, one->n) + 63) / 64 * 64);
        const HsPackWeightArgs packing = { weight, true, &packed };
        cr_assert_eq(context->backend->pack_weight(context, &packing), HS_OK);
        args.b = hs_operand_packed(weight, &packed);
    }
    uint16_t *const pre = malloc((size_t)(ROWS * one->n) * sizeof *pre);
    if (one->epilogue != HS_EPILOGUE_NONE)
        args.pre = hs_tensor_2d(pre, HS_BF16, ROWS, one->n);
    args.a = left(a, one, ROWS);
    uint16_t *const whole = run(context, &args, ROWS, columns);
    int64_t wrong = 0;
    for (int64_t row = 0; row < ROWS; row += SLICE) {
        const int64_t rows = ROWS - row < SLICE ? ROWS - row : SLICE;
        uint16_t *const part = slice_of(a, one, row, rows);
        args.a = left(part, one, rows);
        args.pre.shape[0] = rows;
        uint16_t *const alone = run(context, &args, rows, columns);
        wrong += memcmp(alone, whole + row * columns, (size_t)(rows * columns) * sizeof *alone) != 0;
        free(alone);
        free(part);
    }
    cr_expect_eq(wrong, 0, "n %d, k %d, epilogue %d: %d slices differ", (int)one->n, (int)one->k, (int)one->epilogue,
                 (int)wrong);
    free(a), free(w), free(packed.data), free(pre), free(whole);
}

Test(product_cuts, do_not_show)
{
    static const Case cases[] = {
        { 640, 96, HS_EPILOGUE_NONE, false },     { 704, 96, HS_EPILOGUE_GELU, false },
        { 768, 96, HS_EPILOGUE_SWIGLU, false },   { 640, 1090, HS_EPILOGUE_NONE, false },
        { 768, 1090, HS_EPILOGUE_SWIGLU, false }, { 704, 1090, HS_EPILOGUE_NONE, true },
    };
    HsDevice device;
    cr_assert_eq(hs_device_host_init(&device), HS_OK);
    HsContext context = { .device = &device, .threads = THREADS };
    cr_assert_eq(hs_backend_cpu(&context.backend), HS_OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        compare(&context, &cases[i]);
}
