/* SPDX-License-Identifier: MIT
 *
 * Products of FP8 codes by every kernel that can serve them, each number compared.
 *
 * Codes are whole numbers from -2 to 2, whose sums along what the tensor cores add up alone stay below 2^13, which is
 * what their adder keeps (kernels/cuda/product/matmul_fp8.cuh), and scales are powers of two: straight and promoted sums,
 * whole or in slices, have one right answer, the exact sum rounded once.  The host finds it by integers.
 */
#ifndef HS_BENCH_AGREEMENT_CODES_H
#define HS_BENCH_AGREEMENT_CODES_H

#include "bench/agreement_products.h"

/* Passes of y[rows,out] = x[rows,in] w[out,in]^T: multiples of 16, of which some are of no tile and no block of 128.  The
 * first is short enough forward (in) for a straight sum, all others are promoted. */
static const ProductSize code_sizes[] = { { 4096, 3072, 768, 0 }, { 4080, 784, 3056, 0 } };
static const ProductSize tiny_code_sizes[] = { { 272, 144, 160, 0 } };

typedef struct CodeMatrix {
    HsCodes codes; /* as they lie */
    bool across;   /* the transpose lies there */
    int64_t rows, depth;
    signed char *halves; /* [rows,depth], the elements times 2 */
} CodeMatrix;

typedef struct CodeProduct {
    int pass;
    CodeMatrix a, b;
    AgreementMatrix c; /* the initial c of weights' gradients, which are added to it */
    double *expected;
    HsMatmulArgs args;
} CodeProduct;

/* inverses of the tensors' scales, where there are */
static const float code_inverses[2] = { 0.25f, 0.5f };

/* Codes of whole numbers; blocks are scaled by 1/2, 1 or 2. */
static inline void code_fill(CodeMatrix *matrix, unsigned char *data, unsigned char *scales, uint64_t seed)
{
    const HsCodes *const codes = &matrix->codes;
    const int64_t blocks = hs_codes_blocks(codes);
    const int64_t depth = matrix->depth;
    const HsRng numbers = { .seed = seed }, exponents = { .seed = seed, .site = 1 };
#pragma omp parallel for
    for (int64_t row = 0; row < matrix->rows; row++) {
        for (int64_t block = 0; block < blocks; block++)
            scales[row * blocks + block] =
                (unsigned char)(126 + hs_rng_draw(&exponents, (uint64_t)(row * blocks + block)).word[0] % 3);
        for (int64_t i = 0; i < depth; i++) {
            const int64_t at = row * depth + i;
            const int number = (int)(hs_rng_draw(&numbers, (uint64_t)at).word[0] % 5) - 2;
            const int scale = blocks ? scales[row * blocks + i / HS_SCALE_BLOCK_ELEMENTS] : 127;
            data[matrix->across ? i * matrix->rows + row : at] = bench_code_of(number, codes->format);
            matrix->halves[at] = (signed char)(number * (1 << (scale - 126)));
        }
    }
}

static inline HsStatus code_open(Bench *bench, CodeMatrix *matrix, HsCodes codes, bool across, float inverse,
                                 uint64_t seed)
{
    HsDevice *const device = &bench->device;
    const HsScaling scaling = { .scale = 1.0f / inverse, .inverse = inverse };
    const size_t bytes = hs_codes_bytes(&codes);
    void *memory = NULL;
    *matrix = (CodeMatrix){ .codes = codes, .across = across, .rows = codes.rows, .depth = codes.depth };
    if (across) {
        matrix->codes.rows = codes.depth;
        matrix->codes.depth = codes.rows;
    }
    matrix->halves = malloc((size_t)(codes.rows * codes.depth));
    unsigned char *const host = malloc(bytes);
    HsStatus status = matrix->halves && host ? HS_OK : hs_fail(HS_ENOMEM, "%zu bytes of host memory", 2 * bytes);
    if (status == HS_OK) {
        code_fill(matrix, host, host + hs_codes_data_bytes(&codes), seed);
        status = device->alloc(device, bytes, &memory);
    }
    if (status == HS_OK) {
        hs_codes_place(&matrix->codes, memory);
        status = device->copy(device, bench->context.stream, memory, host, bytes);
    }
    if (status == HS_OK)
        status = device->alloc(device, sizeof scaling, &memory);
    if (status == HS_OK) {
        matrix->codes.scaling = memory;
        status = device->copy(device, bench->context.stream, memory, &scaling, sizeof scaling);
    }
    if (status == HS_OK)
        status = device->stream_sync(device, bench->context.stream);
    free(host);
    return status;
}

static inline void code_release(Bench *bench, CodeMatrix *matrix)
{
    if (matrix->codes.data)
        bench->device.release(&bench->device, matrix->codes.data);
    if (matrix->codes.scaling)
        bench->device.release(&bench->device, matrix->codes.scaling);
    free(matrix->halves);
}

/* c before its one rounding. */
static inline void code_expect(CodeProduct *product, double factor)
{
    const int64_t m = product->a.rows, n = product->b.rows, k = product->a.depth;
#pragma omp parallel for
    for (int64_t row = 0; row < m; row++)
        for (int64_t column = 0; column < n; column++) {
            const signed char *const a = product->a.halves + row * k, *const b = product->b.halves + column * k;
            int sum = 0;
            for (int64_t i = 0; i < k; i++)
                sum += a[i] * b[i];
            product->expected[row * n + column] = 0.25 * factor * sum;
        }
    for (int64_t i = 0; product->args.accumulate && i < m * n; i++)
        product->expected[i] += (double)product->c.values[i];
}

static inline void code_close(Bench *bench, CodeProduct *product)
{
    code_release(bench, &product->a);
    code_release(bench, &product->b);
    agreement_release(bench, &product->c);
    free(product->expected);
}

/* across: codes of gradients as they lie where a cast along serves as one across too */
static inline HsStatus code_make(Bench *bench, const ProductSize *size, int pass, HsScaleGranularity granularity,
                                 bool across, CodeProduct *product)
{
    const bool wgrad = pass == AGREEMENT_WGRAD, forward = pass == AGREEMENT_FORWARD;
    const int64_t m = wgrad ? size->out : size->rows, n = forward ? size->out : size->in;
    const int64_t k = forward ? size->in : wgrad ? size->rows : size->out;
    const HsDtype format = forward ? HS_E4M3 : HS_E5M2;
    const bool scaled = granularity == HS_SCALE_TENSOR;
    const float inverse_a = scaled ? code_inverses[0] : 1.0f, inverse_b = scaled ? code_inverses[1] : 1.0f;
    *product = (CodeProduct){ .pass = pass };
    const HsCodes a = { format, granularity, m, k, NULL, NULL, NULL },
                  b = { HS_E4M3, granularity, n, k, NULL, NULL, NULL };
    HS_TRY(code_open(bench, &product->a, a, across && wgrad, inverse_a, 21));
    HS_TRY(code_open(bench, &product->b, b, across && !forward, inverse_b, 22));
    HS_TRY(agreement_fill(bench, &product->c, hs_tensor_2d(NULL, wgrad ? HS_F32 : HS_BF16, m, n), 23));
    product->args = (HsMatmulArgs){ .a = hs_operand_codes(product->a.codes),
                                    .b = hs_operand_codes(product->b.codes),
                                    .transpose_a = product->a.across,
                                    .transpose_b = !product->b.across,
                                    .policy = { format, HS_E4M3, granularity },
                                    .alpha = 1.0f,
                                    .accumulate = wgrad,
                                    .c = product->c.tensor };
    product->expected = malloc((size_t)(m * n) * sizeof *product->expected);
    if (!product->expected)
        return hs_fail(HS_ENOMEM, "%" PRId64 " numbers", m * n);
    code_expect(product, (double)inverse_a * (double)inverse_b);
    return HS_OK;
}

/* Numbers that are wrong by one kernel, whole or in slices. */
static inline HsStatus code_run(Bench *bench, const CodeProduct *product, const char *kernel, int slices,
                                int64_t *wrong)
{
    HsTensor c = product->c.tensor;
    void *const words = malloc(hs_tensor_bytes(&c));
    HsStatus status = words ? agreement_reset(bench, &c, product->args.accumulate ? product->c.values : NULL, words)
                            : hs_fail(HS_ENOMEM, "%zu bytes", hs_tensor_bytes(&c));
    if (status == HS_OK)
        status = agreement_call(bench, &product->args, kernel, slices, words);
    if (status == HS_OK)
        *wrong = agreement_count(c.dtype, words, product->expected, NULL, hs_tensor_count(&c));
    free(words);
    return status;
}

static inline void code_json(const Bench *bench, const CodeProduct *product, const char *scales, const char *kernel,
                             int64_t whole, int64_t cut)
{
    static const char *const passes[] = { "forward", "dgrad", "wgrad" };
    const HsCodes *const a = &product->a.codes;
    bench_json(bench,
               "{\"bench\":\"agreement\",\"m\":%" PRId64 ",\"n\":%" PRId64 ",\"k\":%" PRId64
               ",\"pass\":\"%s\",\"across\":%s,\"codes\":\"%s\",\"scales\":\"%s\",\"kernel\":\"%s\",\"wrong\":%" PRId64
               ",\"wrong_in_slices\":%" PRId64 "}",
               product->a.rows, product->b.rows, product->a.depth, passes[product->pass],
               product->b.across ? "true" : "false", hs_dtype_name(a->format), scales, kernel, whole, cut);
}

/* A row of the table: by every kernel that can serve the product. */
static inline HsStatus code_row(Bench *bench, const CodeProduct *product, int *failed)
{
    enum { MOST = 128 };
    static const char *const passes[] = { "forward", "dgrad", "wgrad" };
    HsProductChoice choices[MOST];
    const HsCodes *const a = &product->a.codes;
    const char *const scales = a->granularity == HS_SCALE_TENSOR ? "tensor" : "blocks";
    const int count = bench->tuner->choices(&bench->context, &product->args, choices, MOST), before = *failed;
    int kernels = 0;
    printf("| %" PRId64 " x %" PRId64 " x %" PRId64 " | %s%s | %s x e4m3, %s | %s |", product->a.rows, product->b.rows,
           product->a.depth, passes[product->pass], product->b.across ? ", across" : "", hs_dtype_name(a->format),
           scales, hs_dtype_name(product->c.tensor.dtype));
    for (int i = 0; i < count; i++) {
        int64_t whole = 0, cut = 0;
        bool seen = false;
        for (int j = 0; j < i; j++)
            seen = seen || strcmp(choices[j].kernel, choices[i].kernel) == 0;
        if (seen)
            continue;
        HS_TRY(code_run(bench, product, choices[i].kernel, 1, &whole));
        HS_TRY(code_run(bench, product, choices[i].kernel, 3, &cut));
        kernels++;
        if (whole > 0 || cut > 0)
            printf(" %s: %" PRId64 " and %" PRId64 " wrong;", choices[i].kernel, whole, cut);
        *failed += (whole > 0) + (cut > 0);
        code_json(bench, product, scales, choices[i].kernel, whole, cut);
    }
    printf("%s %d kernels |\n", *failed == before ? " none wrong," : "", kernels);
    fflush(stdout);
    return HS_OK;
}

/* errors: HS_ENUMERIC where a kernel is wrong */
static inline HsStatus agreement_codes(Bench *bench)
{
    static const HsScaleGranularity granularities[] = { HS_SCALE_TENSOR, HS_SCALE_BLOCK };
    const ProductSize *sizes = bench->tiny ? tiny_code_sizes : code_sizes;
    const int count = (int)((bench->tiny ? sizeof tiny_code_sizes : sizeof code_sizes) / sizeof *sizes);
    int failed = 0;
    printf(
        "### Products of FP8 codes\n\nNumbers that are wrong where one answer is right, by each kernel that can serve; "
        "k whole, and in three slices.\n\n"
        "| M x N x K | pass | codes | c | wrong |\n|---|---|---|---|---|\n");
    for (int i = 0; i < count; i++)
        for (int pass = 0; pass < AGREEMENT_PASSES; pass++)
            for (int way = 0; way < (pass == AGREEMENT_FORWARD ? 2 : 3); way++) {
                CodeProduct product;
                HsStatus status =
                    code_make(bench, &sizes[i], pass, granularities[way == 1 ? 1 : 0], way == 2, &product);
                if (status == HS_OK)
                    status = code_row(bench, &product, &failed);
                code_close(bench, &product);
                HS_TRY(status);
            }
    printf("\n");
    return failed == 0 ? HS_OK : hs_fail(HS_ENUMERIC, "products of codes: %d results are wrong", failed);
}

#endif
