/* SPDX-License-Identifier: MIT
 *
 * Whether every kernel of 16-bit products computes what it should on this device, before it is timed: factors are small
 * whole numbers, so that every sum is exact in whatever order, and the one rounding at the output leaves one right
 * answer.  Sizes are no multiples of any tile; forward, dgrad and wgrad read both orders of both operands; k whole and
 * in slices.
 */
#ifndef HS_BENCH_PRODUCT_AGREEMENT_H
#define HS_BENCH_PRODUCT_AGREEMENT_H

#include "bench/product_kernels.h"

enum { AGREEMENT_ROWS = 328, AGREEMENT_IN = 200, AGREEMENT_OUT = 392 };

/* Row-major on the host, and the same on the device. */
typedef struct AgreementMatrix {
    HsTensor tensor;
    float *values;
} AgreementMatrix;

static inline HsStatus agreement_fill(Bench *bench, AgreementMatrix *matrix, HsDtype dtype, int64_t rows,
                                      int64_t columns, uint64_t seed)
{
    const int64_t count = rows * columns;
    const HsRng rng = { .seed = seed };
    HsDevice *device = &bench->device;
    matrix->tensor = hs_tensor_2d(NULL, dtype, rows, columns);
    matrix->values = malloc((size_t)count * sizeof *matrix->values);
    void *const words = malloc(hs_tensor_bytes(&matrix->tensor));
    HsStatus status = matrix->values && words ? HS_OK : hs_fail(HS_ENOMEM, "%" PRId64 " numbers", count);
    for (int64_t i = 0; status == HS_OK && i < count; i++) {
        matrix->values[i] = (float)((int)(hs_rng_draw(&rng, (uint64_t)i).word[0] % 9) - 4);
        hs_dtype_store(dtype, words, i, (double)matrix->values[i]);
    }
    if (status == HS_OK)
        status = device->alloc(device, hs_tensor_bytes(&matrix->tensor), &matrix->tensor.data);
    if (status == HS_OK)
        status =
            device->copy(device, bench->context.stream, matrix->tensor.data, words, hs_tensor_bytes(&matrix->tensor));
    if (status == HS_OK)
        status = device->stream_sync(device, bench->context.stream);
    free(words);
    return status;
}

static inline void agreement_release(Bench *bench, AgreementMatrix *matrix)
{
    bench_release(bench, &matrix->tensor);
    free(matrix->values);
}

/* c = op(a) op(b), one rounding to c's format. */
static inline void agreement_expect(const HsMatmulArgs *args, const float *a, const float *b, void *c)
{
    const int64_t m = args->c.shape[0], n = args->c.shape[1], k = args->a.shape[args->transpose_a ? 0 : 1];
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            float sum = 0.0f;
            for (int64_t x = 0; x < k; x++)
                sum += a[args->transpose_a ? x * m + i : i * k + x] * b[args->transpose_b ? j * k + x : x * n + j];
            hs_dtype_store(args->c.dtype, c, i * n + j, (double)sum);
        }
}

/* Numbers of one forced product that are not as expected; c is filled with ones before. */
static inline HsStatus agreement_run(Bench *bench, const ForcedProduct *product, const void *expected, int64_t *wrong)
{
    HsContext context = bench->context;
    HsDevice *device = &bench->device;
    const HsTensor *c = &product->args->c;
    const size_t bytes = hs_tensor_bytes(c), size = hs_dtype_bytes(c->dtype);
    BenchContender contender = { .context = &context, .call = call_forced, .arguments = product };
    unsigned char *const found = malloc(bytes);
    HsStatus status = found ? bench_workspace(&contender) : hs_fail(HS_ENOMEM, "%zu bytes", bytes);
    if (status == HS_OK) {
        memset(found, 0xff, bytes);
        status = device->copy(device, context.stream, c->data, found, bytes);
    }
    if (status == HS_OK)
        status = call_forced(&context, product);
    if (status == HS_OK)
        status = device->copy(device, context.stream, found, c->data, bytes);
    if (status == HS_OK)
        status = device->stream_sync(device, context.stream);
    for (size_t i = 0; status == HS_OK && i < bytes; i += size)
        *wrong += memcmp(found + i, (const unsigned char *)expected + i, size) != 0;
    if (context.workspace)
        device->release(device, context.workspace);
    free(found);
    return status;
}

/* One product by every kernel, whole and in slices; wrong[kernel] grows. */
static inline HsStatus agreement_check(Bench *bench, HsMatmulArgs *args, const float *a, const float *b, int kernels,
                                       int64_t *wrong)
{
    enum { SLICES = 3 };
    void *const expected = malloc(hs_tensor_bytes(&args->c));
    HsStatus status = expected ? bench->device.alloc(&bench->device, hs_tensor_bytes(&args->c), &args->c.data)
                               : hs_fail(HS_ENOMEM, "%zu bytes", hs_tensor_bytes(&args->c));
    if (status == HS_OK)
        agreement_expect(args, a, b, expected);
    for (int kernel = 0; status == HS_OK && kernel < kernels; kernel++)
        for (int slices = 1; status == HS_OK && slices <= SLICES; slices += SLICES - 1) {
            const ForcedProduct product = forced_product(bench, args, kernel, slices);
            status = agreement_run(bench, &product, expected, &wrong[kernel]);
        }
    bench_release(bench, &args->c);
    free(expected);
    return status;
}

/* All passes of y[rows,out] = x[rows,in] w[out,in]^T in one format. */
static inline HsStatus agreement_format(Bench *bench, HsDtype dtype, int kernels, int64_t *wrong)
{
    AgreementMatrix x = { .values = NULL }, w = { .values = NULL }, dy = { .values = NULL };
    HsStatus status = agreement_fill(bench, &x, dtype, AGREEMENT_ROWS, AGREEMENT_IN, 1);
    if (status == HS_OK)
        status = agreement_fill(bench, &w, dtype, AGREEMENT_OUT, AGREEMENT_IN, 2);
    if (status == HS_OK)
        status = agreement_fill(bench, &dy, dtype, AGREEMENT_ROWS, AGREEMENT_OUT, 3);
    if (status == HS_OK) {
        HsMatmulArgs passes[] = {
            { .a = x.tensor,
              .b = w.tensor,
              .transpose_b = true,
              .c = hs_tensor_2d(NULL, dtype, AGREEMENT_ROWS, AGREEMENT_OUT) },
            { .a = dy.tensor, .b = w.tensor, .c = hs_tensor_2d(NULL, dtype, AGREEMENT_ROWS, AGREEMENT_IN) },
            { .a = dy.tensor,
              .b = x.tensor,
              .transpose_a = true,
              .c = hs_tensor_2d(NULL, HS_F32, AGREEMENT_OUT, AGREEMENT_IN) },
        };
        const float *const lefts[] = { x.values, dy.values, dy.values };
        const float *const rights[] = { w.values, w.values, x.values };
        for (int pass = 0; status == HS_OK && pass < 3; pass++)
            status = agreement_check(bench, &passes[pass], lefts[pass], rights[pass], kernels, wrong);
    }
    agreement_release(bench, &x);
    agreement_release(bench, &w);
    agreement_release(bench, &dy);
    return status;
}

/* A table of all kernels that the device has.  errors: HS_ENUMERIC where one is wrong */
static inline HsStatus agreement_print(Bench *bench)
{
    static const HsDtype dtypes[] = { HS_BF16, HS_F16 };
    const int kernels = ladder_kernels(&bench->device);
    int64_t wrong[2][PRODUCT_KERNELS] = { { 0 } };
    int failed = 0;
    for (int d = 0; d < 2; d++)
        HS_TRY(agreement_format(bench, dtypes[d], kernels, wrong[d]));
    printf("Numbers that are wrong where one answer is right (%d x %d x %d, three passes, whole and in slices):\n\n"
           "| kernel | bf16 | f16 |\n|---|---|---|\n",
           (int)AGREEMENT_ROWS, (int)AGREEMENT_IN, (int)AGREEMENT_OUT);
    for (int kernel = 0; kernel < kernels; kernel++) {
        const char *name = product_kernels[kernel].name;
        printf("| %s | %" PRId64 " | %" PRId64 " |\n", name, wrong[0][kernel], wrong[1][kernel]);
        bench_json(bench, "{\"bench\":\"agreement\",\"kernel\":\"%s\",\"wrong\":%" PRId64 "}", name,
                   wrong[0][kernel] + wrong[1][kernel]);
        failed += wrong[0][kernel] + wrong[1][kernel] > 0;
    }
    printf("\n");
    return failed == 0 ? HS_OK : hs_fail(HS_ENUMERIC, "%d kernels compute wrong products", failed);
}

#endif
