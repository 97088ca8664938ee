/* SPDX-License-Identifier: MIT
 *
 * Products by several threads have the bits of those by one, each time: where each thread packs a block for itself, side by
 * side (kernels/cpu/isa/matmul.c), as products do whose right operand is not packed.  What one wrote beyond its block was
 * another's in one run of ten or nine of ten, by shape and timing.
 *
 * And a product has the bits of its rows' products: how many rows there are decides into which tasks the work is cut, and
 * an element's sum must not depend on it.  Tall enough for the largest tasks, wide enough for several of the second
 * operand's panels, once in one block of depth and once in several.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base/rng.h"
#include "kernels/ops/backend.h"

enum { REPEATS = 40, M = 128, ROWS = 4357, SLICE = 96 };

typedef struct Product {
    HsDevice device;
    HsContext context;
    HsMatmulArgs args;
    uint16_t *a, *b, *c;
} Product;

static uint16_t *numbers(int64_t count, uint64_t seed)
{
    const HsRng rng = { .seed = seed };
    uint16_t *const values = malloc((size_t)count * sizeof *values);
    for (int64_t i = 0; i < count; i++)
        values[i] = (uint16_t)(0x3F00u + hs_rng_draw(&rng, (uint64_t)i).word[0] % 256); /* 0.5 to 1.99 in bf16 */
    return values;
}

static void multiply(HsContext *context, const HsMatmulArgs *args, int threads)
{
    context->threads = threads;
    context->workspace_bytes = context->backend->workspace.matmul(context, args);
    context->workspace = aligned_alloc(64, (context->workspace_bytes + 64) / 64 * 64);
    cr_assert_eq(hs_op_matmul(context, args), HS_OK, "%s", hs_error_message());
    free(context->workspace);
}

static void compare(Product *product, int64_t n, int64_t k, bool transpose_a, bool transpose_b)
{
    const size_t bytes = (size_t)(M * n) * sizeof(uint16_t);
    product->a = numbers(M * k, 1);
    product->b = numbers(n * k, 2);
    product->c = malloc(bytes);
    uint16_t *const alone = malloc(bytes);
    product->args = (HsMatmulArgs){
        .a = hs_operand(hs_tensor_2d(product->a, HS_BF16, transpose_a ? k : M, transpose_a ? M : k)),
        .b = hs_operand(hs_tensor_2d(product->b, HS_BF16, transpose_b ? n : k, transpose_b ? k : n)),
        .transpose_a = transpose_a,
        .transpose_b = transpose_b,
        .alpha = 1.0f,
        .c = hs_tensor_2d(product->c, HS_BF16, M, n),
    };
    multiply(&product->context, &product->args, 1);
    memcpy(alone, product->c, bytes);
    int wrong = 0;
    for (int i = 0; i < REPEATS; i++) {
        memset(product->c, 0xFF, bytes);
        multiply(&product->context, &product->args, 2 + 2 * (i % 2));
        wrong += memcmp(alone, product->c, bytes) != 0;
    }
    cr_expect_eq(wrong, 0, "n %d, k %d, %d%d: %d of %d times", (int)n, (int)k, transpose_a, transpose_b, wrong,
                 REPEATS);
    free(product->a);
    free(product->b);
    free(product->c);
    free(alone);
}

static void compare_all(const char *isa)
{
    Product product = { 0 };
    if (isa)
        setenv("HALFSTEP_CPU_ISA", isa, 1);
    cr_assert_eq(hs_device_host_init(&product.device), HS_OK);
    product.context.device = &product.device;
    if (hs_backend_cpu(&product.context.backend) != HS_OK)
        return; /* a processor without it */
    for (int layout = 0; layout < 4; layout++)
        for (int64_t n = 32; n <= 64; n += 32)
            for (int64_t k = 95; k <= 128; k += 33) {
                compare(&product, n, k, layout & 1, layout & 2);
                compare(&product, n, k + 1, layout & 1, layout & 2);
            }
}

Test(product_threads, have_the_bits_of_one)
{
    compare_all(NULL);
}

Test(product_threads, have_the_bits_of_one_without_vectors)
{
    compare_all("portable");
}

Test(product_threads, have_the_bits_of_one_without_bf16)
{
    compare_all("avx2");
}

typedef struct Case {
    int64_t n, k;
    HsEpilogue epilogue;
    bool gradient; /* of a weight: both operands stored along the rows, neither packed */
} Case;

static void *product_of(HsContext *context, HsMatmulArgs *args, int64_t rows, int64_t columns)
{
    const size_t bytes = (size_t)(rows * columns) * sizeof(uint16_t);
    args->c = hs_tensor_2d(malloc(bytes), HS_BF16, rows, columns);
    memset(args->c.data, 0xFF, bytes);
    multiply(context, args, 2);
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

static void compare_slices(HsContext *context, const Case *one)
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
    uint16_t *const whole = product_of(context, &args, ROWS, columns);
    int64_t wrong = 0;
    for (int64_t row = 0; row < ROWS; row += SLICE) {
        const int64_t rows = ROWS - row < SLICE ? ROWS - row : SLICE;
        uint16_t *const part = slice_of(a, one, row, rows);
        args.a = left(part, one, rows);
        args.pre.shape[0] = rows;
        uint16_t *const alone = product_of(context, &args, rows, columns);
        wrong += memcmp(alone, whole + row * columns, (size_t)(rows * columns) * sizeof *alone) != 0;
        free(alone);
        free(part);
    }
    cr_expect_eq(wrong, 0, "n %d, k %d, epilogue %d: %d slices differ", (int)one->n, (int)one->k, (int)one->epilogue,
                 (int)wrong);
    free(a), free(w), free(packed.data), free(pre), free(whole);
}

Test(product_threads, have_the_bits_of_the_rows_alone)
{
    static const Case cases[] = {
        { 640, 96, HS_EPILOGUE_NONE, false },     { 704, 96, HS_EPILOGUE_GELU, false },
        { 768, 96, HS_EPILOGUE_SWIGLU, false },   { 640, 1090, HS_EPILOGUE_NONE, false },
        { 768, 1090, HS_EPILOGUE_SWIGLU, false }, { 704, 1090, HS_EPILOGUE_NONE, true },
    };
    HsDevice device;
    cr_assert_eq(hs_device_host_init(&device), HS_OK);
    HsContext context = { .device = &device };
    cr_assert_eq(hs_backend_cpu(&context.backend), HS_OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        compare_slices(&context, &cases[i]);
}
