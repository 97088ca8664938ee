/* SPDX-License-Identifier: MIT
 *
 * Products by several threads have the bits of those by one, each time: where each thread packs a block for itself, side by
 * side (kernels/cpu/isa/matmul.c), as products do whose right operand is not packed.  What one wrote beyond its block was
 * another's in one run of ten or nine of ten, by shape and timing.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base/rng.h"
#include "kernels/ops/backend.h"

enum { REPEATS = 40, M = 128 };

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

static void multiply(Product *product, int threads)
{
    HsContext *const context = &product->context;
    context->threads = threads;
    context->workspace_bytes = context->backend->workspace.matmul(context, &product->args);
    context->workspace = aligned_alloc(64, (context->workspace_bytes + 64) / 64 * 64);
    cr_assert_eq(hs_op_matmul(context, &product->args), HS_OK, "%s", hs_error_message());
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
    multiply(product, 1);
    memcpy(alone, product->c, bytes);
    int wrong = 0;
    for (int i = 0; i < REPEATS; i++) {
        memset(product->c, 0xFF, bytes);
        multiply(product, 2 + 2 * (i % 2));
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
