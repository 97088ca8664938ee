/* SPDX-License-Identifier: MIT
 *
 * Products of FP8 codes by tensor cores, on the emulator, against sums of integers: a number of E4M3 is a multiple of 2^-9
 * and one of E5M2 of 2^-16.  Codes of small magnitude make sums that f32 holds exactly, in whatever order, so that every
 * kernel has to give the same bits; sums of all codes are held to a bound, with the tensor cores' 14 bits too.
 *
 * 528 x 400: three rows of clusters' tiles and four columns of 128, none of them full, for two clusters.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base/scaled_formats.h"
#include "kernels/tuning/tuning.h"
#include "tests/support/emulator.h"

enum { M = 528, N = 400, SMALL_E4M3 = 40, SMALL_E5M2 = 28, FINITE = 124 };

/* One operand: codes that the host and the device have, and its scales. */
typedef struct Operand {
    HsCodes codes;        /* on the device */
    unsigned char *image; /* k-major */
    bool across;          /* on the device it is the transpose */
    HsScaling scaling;
} Operand;

typedef struct Product {
    HsDevice device;
    Operand a, b;
    int64_t k;
    double *sums, *sizes; /* [M,N], exact, scales of blocks and tensors among them; of absolute values */
    float *found;
} Product;

static Product product;

static void *on_device(const void *image, size_t bytes)
{
    HsDevice *const device = &product.device;
    void *memory = NULL;
    cr_assert_eq(device->alloc(device, bytes, &memory), HS_OK, "%s", hs_error_message());
    cr_assert_eq(device->copy(device, NULL, memory, image, bytes), HS_OK);
    cr_assert_eq(device->stream_sync(device, NULL), HS_OK);
    return memory;
}

/* most: magnitudes of codes below it; signs: both. */
static void make_operand(Operand *operand, HsDtype format, HsScaleGranularity granularity, int64_t rows, int most,
                         bool signs, uint64_t seed)
{
    const HsRng rng = { .seed = seed };
    operand->codes = (HsCodes){ format, granularity, rows, product.k, NULL, NULL, NULL };
    operand->image = malloc(hs_codes_bytes(&operand->codes));
    hs_codes_place(&operand->codes, operand->image);
    for (int64_t i = 0; i < rows * product.k; i++) {
        const HsPhilox draw = hs_rng_draw(&rng, (uint64_t)i);
        operand->codes.data[i] =
            (unsigned char)(draw.word[0] % (unsigned)most | (signs && draw.word[1] % 2 ? 0x80u : 0u));
    }
    for (int64_t i = 0; i < rows * hs_codes_blocks(&operand->codes); i++)
        operand->codes.block_scales[i] = (unsigned char)(126 + hs_rng_draw(&rng, (uint64_t)i).word[2] % 3);
    operand->scaling = (HsScaling){ .scale = 4.0f, .inverse = 0.25f };
}

static double number_of(const Operand *operand, int64_t row, int64_t k)
{
    const HsCodes *const codes = &operand->codes;
    const uint8_t code = operand->image[row * product.k + k];
    const double number = (double)(codes->format == HS_E4M3 ? hs_e4m3_decode(code) : hs_e5m2_decode(code));
    if (codes->granularity != HS_SCALE_BLOCK)
        return number;
    const unsigned char *const scales = operand->image + hs_codes_data_bytes(codes);
    return number * (double)hs_e8m0_decode(scales[row * hs_codes_blocks(codes) + k / HS_SCALE_BLOCK_ELEMENTS]);
}

/* Whole numbers of the smallest one, in 64 bits: every sum is exact. */
static void take_sums(void)
{
    double *const a = malloc((size_t)(M * product.k) * sizeof *a), *const b =
                                                                       malloc((size_t)(N * product.k) * sizeof *b);
    const int unit_a = product.a.codes.format == HS_E4M3 ? 10 : 17; /* a block scale may halve */
    for (int64_t i = 0; i < M * product.k; i++)
        a[i] = ldexp(number_of(&product.a, i / product.k, i % product.k), unit_a);
    for (int64_t i = 0; i < N * product.k; i++)
        b[i] = ldexp(number_of(&product.b, i / product.k, i % product.k), 10);
    for (int64_t m = 0; m < M; m++)
        for (int64_t n = 0; n < N; n++) {
            int64_t sum = 0, size = 0;
            for (int64_t k = 0; k < product.k; k++) {
                const int64_t term = (int64_t)a[m * product.k + k] * (int64_t)b[n * product.k + k];
                sum += term;
                size += term < 0 ? -term : term;
            }
            product.sums[m * N + n] = ldexp((double)sum, -unit_a - 10 - 4);
            product.sizes[m * N + n] = ldexp((double)size, -unit_a - 10 - 4);
        }
    free(a);
    free(b);
}

static void upload(Operand *operand)
{
    HsCodes *const codes = &operand->codes;
    unsigned char *const stored = malloc(hs_codes_bytes(codes));
    memcpy(stored, operand->image, hs_codes_bytes(codes));
    const int64_t rows = codes->rows, depth = codes->depth;
    if (operand->across) {
        for (int64_t i = 0; i < rows * depth; i++)
            stored[i % depth * rows + i / depth] = operand->image[i];
        codes->rows = depth;
        codes->depth = rows;
    }
    codes->scaling = on_device(&operand->scaling, sizeof operand->scaling);
    hs_codes_place(codes, on_device(stored, hs_codes_bytes(codes)));
    free(stored);
}

static void close_product(void)
{
    Operand *const operands[] = { &product.a, &product.b };
    for (int i = 0; i < 2; i++) {
        product.device.release(&product.device, operands[i]->codes.scaling);
        product.device.release(&product.device, operands[i]->codes.data);
        free(operands[i]->image);
    }
    free(product.sums);
    free(product.sizes);
    free(product.found);
    product.device.deinit(&product.device);
}

/* across: of b, or of both */
static void open_ordered(HsDtype a, HsScaleGranularity granularity, int64_t k, bool small, bool signs, int across)
{
    const HsCudaOptions options = { 0 };
    cr_assert_eq(emulator()->device_init(&product.device, &options), HS_OK, "%s", hs_error_message());
    product.k = k;
    product.sums = malloc(M * N * sizeof(double));
    product.sizes = malloc(M * N * sizeof(double));
    product.found = malloc(M * N * sizeof(float));
    make_operand(&product.a, a, granularity, M, !small ? FINITE : a == HS_E4M3 ? SMALL_E4M3 : SMALL_E5M2, signs, 11);
    make_operand(&product.b, HS_E4M3, granularity, N, small ? SMALL_E4M3 : FINITE, signs, 12);
    take_sums();
    product.a.across = across > 1;
    product.b.across = across > 0;
    upload(&product.a);
    upload(&product.b);
}

static void open_product(HsDtype a, HsScaleGranularity granularity, int64_t k, bool small, bool signs)
{
    open_ordered(a, granularity, k, small, signs, 0);
}

/* What c begins as where it accumulates: so small a multiple of the sums' unit that additions to it are exact too. */
static double beginning(void)
{
    return ldexp(1.0, product.a.codes.format == HS_E4M3 ? -10 : -17);
}

/* c [M,N] of dtype by the first of `kernels`. */
static void multiply(const char *kernels, int slices, HsDtype dtype, bool accumulate)
{
    HsDevice *const device = &product.device;
    HsContext context = { .backend = emulator()->backend, .device = device, .threads = 1 };
    const HsCodes *const a = &product.a.codes, *const b = &product.b.codes;
    float *const words = calloc(M * N, sizeof *words);
    for (int64_t i = 0; i < M * N; i++)
        hs_dtype_store(dtype, words, i, accumulate ? beginning() : (double)NAN);
    const HsTensor c = hs_tensor_2d(on_device(words, M * N * hs_dtype_bytes(dtype)), dtype, M, N);
    const HsMatmulArgs args = { .a = hs_operand_codes(*a),
                                .b = hs_operand_codes(*b),
                                .transpose_a = product.a.across,
                                .transpose_b = !product.b.across,
                                .policy = { a->format, b->format, a->granularity },
                                .alpha = 2.0f,
                                .c = c,
                                .accumulate = accumulate };
    cr_assert_eq(emulator()->tuner->force(device, kernels, slices), HS_OK, "%s", hs_error_message());
    context.workspace_bytes = context.backend->workspace.matmul(&context, &args);
    if (context.workspace_bytes > 0)
        cr_assert_eq(device->alloc(device, context.workspace_bytes, &context.workspace), HS_OK);
    cr_assert_eq(hs_op_matmul(&context, &args), HS_OK, "%s", hs_error_message());
    cr_assert_eq(device->copy(device, NULL, words, c.data, M * N * hs_dtype_bytes(dtype)), HS_OK);
    cr_assert_eq(device->stream_sync(device, NULL), HS_OK, "%s", hs_error_message());
    for (int64_t i = 0; i < M * N; i++)
        product.found[i] = (float)hs_dtype_load(dtype, words, i);
    free(words);
    device->release(device, c.data);
    if (context.workspace)
        device->release(device, context.workspace);
}

static float rounded(HsDtype dtype, double value)
{
    float word[2];
    hs_dtype_store(dtype, word, 0, value);
    return (float)hs_dtype_load(dtype, word, 0);
}

/* Every bit: 2 sums of both scales' inverses (take_sums has these), and what it is added to. */
static void expect_exact(const char *kernels, int slices, HsDtype dtype, bool accumulate)
{
    multiply(kernels, slices, dtype, accumulate);
    int64_t wrong = 0;
    for (int64_t i = 0; i < M * N; i++)
        wrong += product.found[i] != rounded(dtype, 2.0 * product.sums[i] + (accumulate ? beginning() : 0.0));
    cr_expect_eq(wrong, 0, "%s, %d slices, %s: %lld numbers are wrong", kernels, slices, hs_dtype_name(dtype),
                 (long long)wrong);
}

/* Of the terms' sizes, the largest error. */
static double worst_error(const char *kernels, int slices)
{
    multiply(kernels, slices, HS_F32, false);
    double worst = 0.0;
    for (int64_t i = 0; i < M * N; i++) { /* with fmax gcc 12 for Arm stops with an internal error */
        const double error = fabs((double)product.found[i] - 2.0 * product.sums[i]) / (2.0 * product.sizes[i]);
        worst = error > worst ? error : worst;
    }
    return worst;
}

Test(fp8_products, forward)
{
    open_product(HS_E4M3, HS_SCALE_TENSOR, 656, true, true);
    expect_exact("wgmma-fp8-256x256", 1, HS_BF16, false);
    expect_exact("wgmma-fp8-256x128", 1, HS_BF16, false);
    expect_exact("wgmma-fp8-256x128", 3, HS_BF16, false);
    expect_exact("wgmma-fp8-256x128", 1, HS_F32, false);
    close_product();
}

Test(fp8_products, gradient_of_an_input)
{
    open_product(HS_E5M2, HS_SCALE_TENSOR, 272, true, true);
    expect_exact("wgmma-fp8-256x128", 1, HS_BF16, false);
    expect_exact("wgmma-fp8-256x128", 2, HS_F32, false);
    close_product();
}

Test(fp8_products, gradient_of_a_weight)
{
    open_product(HS_E5M2, HS_SCALE_TENSOR, 400, true, true);
    expect_exact("wgmma-fp8-256x128", 1, HS_F32, true);
    expect_exact("wgmma-fp8-256x128", 3, HS_F32, true);
    expect_exact("wgmma-fp8-256x128-joint", 0, HS_F32, true);
    close_product();
}

Test(fp8_products, blocks)
{
    open_product(HS_E4M3, HS_SCALE_BLOCK, 656, true, true);
    expect_exact("wgmma-fp8-256x128", 1, HS_BF16, false);
    expect_exact("wgmma-fp8-256x128", 3, HS_F32, true);
    expect_exact("wgmma-fp8-256x128-joint", 0, HS_F32, true);
    close_product();
}

Test(fp8_products, blocks_of_gradients)
{
    open_product(HS_E5M2, HS_SCALE_BLOCK, 144, true, true);
    expect_exact("wgmma-fp8-256x128", 1, HS_F32, false);
    close_product();
}

/* More steps than the rings have stages, less than one, and rows that no tensor copy takes, which are decoded. */
Test(fp8_products, other_depths)
{
    open_product(HS_E4M3, HS_SCALE_TENSOR, 1040, true, true);
    expect_exact("wgmma-fp8-256x256", 1, HS_F32, false);
    close_product();
    open_product(HS_E4M3, HS_SCALE_BLOCK, 16, true, true);
    expect_exact("wgmma-fp8-256x128", 1, HS_F32, false);
    close_product();
    open_product(HS_E4M3, HS_SCALE_TENSOR, 73, true, true);
    expect_exact("", 0, HS_F32, false);
    close_product();
}

/* The same codes decoded, which is one more way to choose: k in whole steps of those kernels, and not. */
Test(fp8_products, decoded)
{
    open_product(HS_E4M3, HS_SCALE_TENSOR, 656, true, true);
    expect_exact("bf16-wgmma-256x256", 1, HS_BF16, false);
    expect_exact("bf16-mma-128x128", 3, HS_F32, true);
    close_product();
    open_product(HS_E5M2, HS_SCALE_TENSOR, 400, true, true);
    expect_exact("bf16-wgmma-256x128-joint", 0, HS_F32, true);
    expect_exact("bf16-wgmma-256x128", 2, HS_F32, true);
    close_product();
    open_product(HS_E4M3, HS_SCALE_BLOCK, 144, true, true);
    expect_exact("bf16-wgmma-128x256", 1, HS_BF16, false);
    close_product();
}

/* A scaling that says of its tensor that not all was finite. */
Test(fp8_products, not_finite)
{
    open_product(HS_E4M3, HS_SCALE_TENSOR, 32, true, true);
    product.b.scaling.amax = INFINITY;
    product.device.release(&product.device, product.b.codes.scaling);
    product.b.codes.scaling = on_device(&product.b.scaling, sizeof product.b.scaling);
    multiply("wgmma-fp8-256x128", 1, HS_F32, false);
    for (int64_t i = 0; i < M * N; i++)
        cr_assert(isnan(product.found[i]), "element %lld: %g", (long long)i, (double)product.found[i]);
    close_product();
}

/* As on 8.9. */
Test(fp8_products, by_mma)
{
    setenv("HALFSTEP_EMU_SHARED", "99", 1);
    open_product(HS_E4M3, HS_SCALE_TENSOR, 656, true, true);
    expect_exact("mma-fp8-128x128", 1, HS_BF16, false);
    expect_exact("mma-fp8-128x128", 3, HS_F32, true);
    close_product();
    open_product(HS_E5M2, HS_SCALE_TENSOR, 272, true, true);
    expect_exact("mma-fp8-128x128", 1, HS_F32, true);
    close_product();
    open_product(HS_E4M3, HS_SCALE_BLOCK, 400, true, true);
    expect_exact("mma-fp8-128x128", 1, HS_F32, true);
    expect_exact("mma-fp8-128x128", 2, HS_BF16, false);
    close_product();
}

/* Codes that lie across k: the bits of those along it; on 9.0, where no such kernel is, decoded. */
Test(fp8_products, across)
{
    setenv("HALFSTEP_EMU_SHARED", "99", 1);
    for (int across = 1; across <= 2; across++) {
        open_ordered(HS_E5M2, HS_SCALE_TENSOR, 272, true, true, across);
        expect_exact("mma-fp8-128x128", 1, HS_BF16, false);
        expect_exact("mma-fp8-128x128", 2, HS_F32, true);
        close_product();
        open_ordered(HS_E4M3, HS_SCALE_TENSOR, 656, true, true, across);
        expect_exact("mma-fp8-128x128", 1, HS_F32, true);
        expect_exact("mma-fp8-128x128", 3, HS_BF16, false);
        close_product();
        open_ordered(HS_E5M2, HS_SCALE_TENSOR, 73, true, true, across);
        expect_exact("", 0, HS_F32, false);
        close_product();
    }
    setenv("HALFSTEP_EMU_SHARED", "227", 1);
    open_ordered(HS_E5M2, HS_SCALE_TENSOR, 400, true, true, 2);
    expect_exact("", 0, HS_F32, true);
    close_product();
}

/* All codes with 14 bits: sums depend on their order, which is that of codes along k. */
Test(fp8_products, across_has_the_bits_of_along)
{
    setenv("HALFSTEP_EMU_SHARED", "99", 1);
    setenv("HALFSTEP_EMU_SUMS", "truncate", 1);
    float *const along = malloc(M * N * sizeof *along);
    open_product(HS_E5M2, HS_SCALE_TENSOR, 656, false, true);
    multiply("mma-fp8-128x128", 1, HS_F32, false);
    memcpy(along, product.found, M * N * sizeof *along);
    const double error = worst_error("mma-fp8-128x128", 1);
    cr_expect_gt(error, 660 * 0x1p-24, "nothing was cut");
    close_product();
    for (int across = 1; across <= 2; across++) {
        open_ordered(HS_E5M2, HS_SCALE_TENSOR, 656, false, true, across);
        multiply("mma-fp8-128x128", 1, HS_F32, false);
        cr_expect_eq(memcmp(along, product.found, M * N * sizeof *along), 0, "%d operands across", across);
        close_product();
    }
    free(along);
}

/* Sums of f32 additions: gamma of k and two factors. */
Test(fp8_products, all_codes)
{
    open_product(HS_E5M2, HS_SCALE_TENSOR, 656, false, true);
    cr_expect_leq(worst_error("wgmma-fp8-256x128", 1), (656 + 4) * 0x1p-24);
    close_product();
    open_product(HS_E4M3, HS_SCALE_BLOCK, 656, false, true);
    cr_expect_leq(worst_error("wgmma-fp8-256x128", 1), (656 + 4) * 0x1p-24);
    close_product();
}

/* With 14 bits an instruction loses 34 * 2^-13 of its terms' sizes at most (cases_matmul.c), and a part of 128 of k four
 * times that, whatever k is.  Terms of one sign lose most. */
Test(fp8_products, fourteen_bits)
{
    setenv("HALFSTEP_EMU_SUMS", "truncate", 1);
    open_product(HS_E4M3, HS_SCALE_BLOCK, 2048, false, false);
    const double blocks = worst_error("wgmma-fp8-256x128", 1);
    close_product();
    open_product(HS_E5M2, HS_SCALE_TENSOR, 2048, false, false);
    const double promoted = worst_error("wgmma-fp8-256x128", 1);
    printf("2048 terms of one sign with 14 bits: blocks %.3g, promoted %.3g of the terms' sizes\n", blocks, promoted);
    cr_expect_leq(blocks, 136 * 0x1p-13);
    cr_expect_leq(promoted, 136 * 0x1p-13);
    cr_expect_gt(promoted, 2050 * 0x1p-24, "nothing was cut");
    close_product();
}
