/* SPDX-License-Identifier: MIT
 *
 * Products of a size at which persistent kernels go round: every large tile, every epilogue, each number compared.
 *
 * Operands are whole numbers from -4 to 4, over 8.  Products are then multiples of 1/64, and sums of thousands of them
 * are exact in f32 in whatever order, so that all kernels have to give the same bits: the sums S[M,N] once rounded.  S
 * comes from one kernel of mma.sync and is checked against the operands, S r = A (B r) for vectors r (Freivalds 1977,
 * "Probabilistic machines can use less running time"); every other result is then computed on the host, element by
 * element.  Only activations and their derivatives are not exact: those may be off by the bounds of
 * runtime/selftest/bounds.h.
 */
#ifndef HS_BENCH_AGREEMENT_PRODUCTS_H
#define HS_BENCH_AGREEMENT_PRODUCTS_H

#include <fnmatch.h>
#include <math.h>

#include "bench/product_kernels.h"
#include "runtime/selftest/bounds.h"

enum { AGREEMENT_PASSES = 3, AGREEMENT_FORWARD = 0, AGREEMENT_DGRAD, AGREEMENT_WGRAD };

/* y[rows,out] = x[rows,in] w[out,in]^T and its gradients.  No size is a multiple of a tile; halves of `out` are whole
 * lines of 16 bytes, as gates in the epilogue need them; `odd` columns are cut off
 * so that no row of c is a whole number of 16 bytes. */
typedef struct ProductSize {
    int64_t rows, out, in, odd;
} ProductSize;

static const ProductSize product_sizes[] = { { 4096, 768, 3072, 3 }, { 4072, 784, 3048, 2 } };
/* For an emulator: enough tiles that each of two clusters computes several, enough steps that rings go round. */
static const ProductSize tiny_product_sizes[] = { { 520, 272, 328, 3 } };

typedef struct ProductCase {
    const char *name;
    int pass;
    HsDtype out, other; /* c; residual or pre */
    HsEpilogue epilogue;
    unsigned options; /* HS_CASE_... */
    bool odd;
} ProductCase;

#define BOTH_16(name, pass, epilogue, options)                  \
    { name, pass, HS_BF16, HS_BF16, epilogue, options, false }, \
    {                                                           \
        name, pass, HS_F32, HS_F32, epilogue, options, false    \
    }
static const ProductCase product_cases[] = {
    BOTH_16("plain", AGREEMENT_FORWARD, HS_EPILOGUE_NONE, 0),
    { "plain, rows of odd length", AGREEMENT_FORWARD, HS_BF16, HS_BF16, HS_EPILOGUE_NONE, 0, true },
    BOTH_16("bias", AGREEMENT_FORWARD, HS_EPILOGUE_NONE, HS_CASE_BIAS),
    { "GELU, bias", AGREEMENT_FORWARD, HS_BF16, HS_BF16, HS_EPILOGUE_GELU, HS_CASE_BIAS, false },
    { "GELU, bias, pre", AGREEMENT_FORWARD, HS_BF16, HS_BF16, HS_EPILOGUE_GELU, HS_CASE_BIAS | HS_CASE_PRE, false },
    { "GELU, bias, pre in f32", AGREEMENT_FORWARD, HS_BF16, HS_F32, HS_EPILOGUE_GELU, HS_CASE_BIAS | HS_CASE_PRE,
      false },
    { "squared ReLU, pre", AGREEMENT_FORWARD, HS_BF16, HS_BF16, HS_EPILOGUE_RELU2, HS_CASE_PRE, false },
    { "SwiGLU", AGREEMENT_FORWARD, HS_BF16, HS_BF16, HS_EPILOGUE_SWIGLU, HS_CASE_PRE, false },
    { "GEGLU, bias", AGREEMENT_FORWARD, HS_BF16, HS_BF16, HS_EPILOGUE_GEGLU, HS_CASE_PRE | HS_CASE_BIAS, false },
    BOTH_16("residual, bias", AGREEMENT_FORWARD, HS_EPILOGUE_NONE, HS_CASE_RESIDUAL | HS_CASE_BIAS),
    { "residual in f32", AGREEMENT_FORWARD, HS_BF16, HS_F32, HS_EPILOGUE_NONE, HS_CASE_RESIDUAL, false },
    { "residual in f32, rows of odd length", AGREEMENT_FORWARD, HS_BF16, HS_F32, HS_EPILOGUE_NONE, HS_CASE_RESIDUAL,
      true },
    { "added, rows of odd length", AGREEMENT_FORWARD, HS_BF16, HS_BF16, HS_EPILOGUE_NONE, HS_CASE_ACCUMULATE, true },
    { "GELU's derivative, rows of odd length", AGREEMENT_FORWARD, HS_BF16, HS_BF16, HS_EPILOGUE_GELU_BACKWARD,
      HS_CASE_PRE, true },
    { "residual in place", AGREEMENT_FORWARD, HS_F32, HS_F32, HS_EPILOGUE_NONE, HS_CASE_RESIDUAL | HS_CASE_IN_PLACE,
      false },
    BOTH_16("plain", AGREEMENT_DGRAD, HS_EPILOGUE_NONE, 0),
    { "GELU's derivative", AGREEMENT_DGRAD, HS_BF16, HS_BF16, HS_EPILOGUE_GELU_BACKWARD, HS_CASE_PRE, false },
    BOTH_16("GELU's derivative, added", AGREEMENT_DGRAD, HS_EPILOGUE_GELU_BACKWARD, HS_CASE_PRE | HS_CASE_ACCUMULATE),
    { "squared ReLU's derivative", AGREEMENT_DGRAD, HS_BF16, HS_BF16, HS_EPILOGUE_RELU2_BACKWARD, HS_CASE_PRE, false },
    { "SwiGLU's derivative", AGREEMENT_DGRAD, HS_BF16, HS_BF16, HS_EPILOGUE_SWIGLU_BACKWARD, HS_CASE_PRE, false },
    { "GEGLU's derivative", AGREEMENT_DGRAD, HS_BF16, HS_BF16, HS_EPILOGUE_GEGLU_BACKWARD, HS_CASE_PRE, false },
    BOTH_16("added", AGREEMENT_DGRAD, HS_EPILOGUE_NONE, HS_CASE_ACCUMULATE),
    { "residual in f32, added", AGREEMENT_DGRAD, HS_BF16, HS_F32, HS_EPILOGUE_NONE,
      HS_CASE_RESIDUAL | HS_CASE_ACCUMULATE, false },
    { "plain", AGREEMENT_WGRAD, HS_F32, HS_F32, HS_EPILOGUE_NONE, 0, false },
    BOTH_16("added", AGREEMENT_WGRAD, HS_EPILOGUE_NONE, HS_CASE_ACCUMULATE),
};
#undef BOTH_16
enum { PRODUCT_CASES = sizeof product_cases / sizeof *product_cases };

/* On the host as values, and on the device. */
typedef struct AgreementMatrix {
    HsTensor tensor;
    float *values;
} AgreementMatrix;

static inline void agreement_release(Bench *bench, AgreementMatrix *matrix)
{
    bench_release(bench, &matrix->tensor);
    free(matrix->values);
    matrix->values = NULL;
}

/* Whole numbers over 8; each number of `seed` makes another matrix. */
static inline HsStatus agreement_fill(Bench *bench, AgreementMatrix *matrix, HsTensor tensor, uint64_t seed)
{
    const int64_t count = hs_tensor_count(&tensor);
    const HsRng rng = { .seed = seed };
    matrix->tensor = tensor;
    matrix->values = malloc((size_t)count * sizeof *matrix->values);
    void *const words = malloc(hs_tensor_bytes(&tensor));
    HsStatus status = matrix->values && words ? HS_OK : hs_fail(HS_ENOMEM, "%" PRId64 " numbers", count);
#pragma omp parallel for
    for (int64_t i = 0; i < (status == HS_OK ? count : 0); i++) {
        matrix->values[i] = 0.125f * (float)((int)(hs_rng_draw(&rng, (uint64_t)i).word[0] % 9) - 4);
        hs_dtype_store(tensor.dtype, words, i, (double)matrix->values[i]);
    }
    if (status == HS_OK)
        status = bench_upload(bench, &matrix->tensor, words);
    free(words);
    return status;
}

/* One pass of one size: its operands, and the exact sums. */
typedef struct AgreementPass {
    int pass;
    HsDtype dtype;
    int64_t m, n, k;
    AgreementMatrix a, b;
    float *sums; /* [m, n] */
} AgreementPass;

static inline HsMatmulArgs agreement_args(const AgreementPass *pass)
{
    return (HsMatmulArgs){ .a.values = pass->a.tensor,
                           .b.values = pass->b.tensor,
                           .transpose_a = pass->pass == AGREEMENT_WGRAD,
                           .transpose_b = pass->pass == AGREEMENT_FORWARD,
                           .alpha = 1.0f };
}

/* One product by a kernel; what stands in c comes back. */
static inline HsStatus agreement_call(Bench *bench, const HsMatmulArgs *args, const char *kernel, int slices,
                                      void *found)
{
    HsContext context = bench->context;
    HsDevice *device = &bench->device;
    const ForcedProduct product = { args, kernel, slices, bench->tuner };
    BenchContender contender = { .context = &context, .call = call_forced, .arguments = &product };
    HsStatus status = bench_workspace(&contender);
    if (status == HS_OK)
        status = call_forced(&context, &product);
    if (status == HS_OK)
        status = device->copy(device, context.stream, found, args->c.data, hs_tensor_bytes(&args->c));
    if (status == HS_OK)
        status = device->stream_sync(device, context.stream);
    if (context.workspace)
        device->release(device, context.workspace);
    return status;
}

/* op(matrix) at (row, column), where `across` is the length of a stored row. */
static inline double agreement_at(const AgreementMatrix *matrix, bool transposed, int64_t row, int64_t column)
{
    const int64_t across = matrix->tensor.shape[1];
    return (double)matrix->values[transposed ? column * across + row : row * across + column];
}

/* How many rows of the sums are not those of the operands, by vectors of whole numbers: all of it is exact. */
static inline HsStatus agreement_verify(const AgreementPass *pass, int64_t *wrong)
{
    enum { VECTORS = 4 };
    const HsMatmulArgs args = agreement_args(pass);
    double *const r = malloc((size_t)(pass->n + pass->k) * sizeof *r), *const br = r ? r + pass->n : NULL;
    if (!r)
        return hs_fail(HS_ENOMEM, "%" PRId64 " numbers", pass->n + pass->k);
    for (uint64_t vector = 0; vector < VECTORS; vector++) {
        const HsRng rng = { .seed = 77 + vector };
        for (int64_t j = 0; j < pass->n; j++)
            r[j] = (double)(hs_rng_draw(&rng, (uint64_t)j).word[0] % 1021);
        for (int64_t x = 0; x < pass->k; x++) {
            br[x] = 0.0;
            for (int64_t j = 0; j < pass->n; j++)
                br[x] += agreement_at(&pass->b, args.transpose_b, x, j) * r[j];
        }
        int64_t rows = 0;
#pragma omp parallel for reduction(+ : rows)
        for (int64_t i = 0; i < pass->m; i++) {
            double expected = 0.0, found = 0.0;
            for (int64_t x = 0; x < pass->k; x++)
                expected += agreement_at(&pass->a, args.transpose_a, i, x) * br[x];
            for (int64_t j = 0; j < pass->n; j++)
                found += (double)pass->sums[i * pass->n + j] * r[j];
            rows += expected != found;
        }
        *wrong += rows;
    }
    free(r);
    return HS_OK;
}

static inline void agreement_close(Bench *bench, AgreementPass *pass)
{
    agreement_release(bench, &pass->a);
    agreement_release(bench, &pass->b);
    free(pass->sums);
    pass->sums = NULL;
}

/* Operands of a pass, and its sums by a kernel of mma.sync. */
static inline HsStatus agreement_open(Bench *bench, const ProductSize *size, int number, HsDtype dtype,
                                      AgreementPass *pass)
{
    const int64_t rows = size->rows, out = size->out, in = size->in;
    const HsTensor x = hs_tensor_2d(NULL, dtype, rows, in), w = hs_tensor_2d(NULL, dtype, out, in);
    const HsTensor dy = hs_tensor_2d(NULL, dtype, rows, out);
    *pass = (AgreementPass){ .pass = number, .dtype = dtype };
    pass->m = number == AGREEMENT_WGRAD ? out : rows;
    pass->n = number == AGREEMENT_FORWARD ? out : in;
    pass->k = number == AGREEMENT_FORWARD ? in : number == AGREEMENT_DGRAD ? out : rows;
    HS_TRY(agreement_fill(bench, &pass->a, number == AGREEMENT_FORWARD ? x : dy, 1));
    HS_TRY(agreement_fill(bench, &pass->b, number == AGREEMENT_WGRAD ? x : w, 2));
    HsMatmulArgs args = agreement_args(pass);
    args.c = hs_tensor_2d(NULL, HS_F32, pass->m, pass->n);
    pass->sums = malloc(hs_tensor_bytes(&args.c));
    if (!pass->sums)
        return hs_fail(HS_ENOMEM, "%zu bytes", hs_tensor_bytes(&args.c));
    HS_TRY(bench->device.alloc(&bench->device, hs_tensor_bytes(&args.c), &args.c.data));
    HsStatus status = agreement_call(bench, &args, "mma-128x128", 1, pass->sums);
    bench_release(bench, &args.c);
    int64_t wrong = 0;
    if (status == HS_OK)
        status = agreement_verify(pass, &wrong);
    if (status == HS_OK && wrong > 0)
        status = hs_fail(HS_ENUMERIC, "mma-128x128 itself gives wrong sums, in %" PRId64 " rows of 4 x %" PRId64, wrong,
                         pass->m);
    return status;
}

/* What a case has besides the operands, and what has to come out of it. */
typedef struct AgreementCase {
    AgreementMatrix bias, other, c; /* other: residual or pre */
    double *expected, *error;       /* of c, before its one rounding; error 0: exact */
    double *pre;                    /* what pre has to hold, where it is written */
    int64_t columns, other_columns; /* of c, of other */
} AgreementCase;

static inline bool agreement_has(const ProductCase *config, unsigned option)
{
    return (config->options & option) != 0;
}

static inline double agreement_gelu(double x)
{
    return 0.5 * x * (1.0 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
}

static inline double agreement_gelu_derivative(double x)
{
    const double t = tanh(0.7978845608028654 * (x + 0.044715 * x * x * x));
    return 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * 0.7978845608028654 * (1.0 + 3.0 * 0.044715 * x * x);
}

static inline double agreement_rounded(HsDtype dtype, double value)
{
    int64_t word; /* room for one element of any dtype */
    hs_dtype_store(dtype, &word, 0, value);
    return hs_dtype_load(dtype, &word, 0);
}

static inline double agreement_silu_derivative(double x)
{
    const double s = 1.0 / (1.0 + exp(-x));
    return s * (1.0 + x * (1.0 - s));
}

/* Element i of c behind a gate, which has two columns of sums, and of both halves of pre. */
static inline void agreement_expect_gated(const ProductCase *config, const AgreementPass *pass, AgreementCase *made,
                                          int64_t i)
{
    const int64_t row = i / made->columns, features = made->columns;
    const HsActivation f = hs_epilogue_activation(config->epilogue);
    double halves[2];
    for (int half = 0; half < 2; half++) {
        const int64_t column = half * features + i % features, at = row * pass->n + column;
        const double bias = agreement_has(config, HS_CASE_BIAS) ? (double)made->bias.values[column] : 0.0;
        halves[half] = agreement_rounded(config->other, (double)pass->sums[at] + bias);
        made->pre[at] = halves[half];
    }
    const double x = halves[0], y = f == HS_ACTIVATION_SILU ? x / (1.0 + exp(-x)) : agreement_gelu(x);
    made->expected[i] = y * halves[1];
    made->error[i] = fabs(halves[1]) * hs_bound_gate(f, x).value_error;
}

/* Element i of the gradient, which is twice as wide as the sums: every kernel rounds them to c's format first. */
static inline void agreement_expect_ungated(const ProductCase *config, const AgreementPass *pass, AgreementCase *made,
                                            int64_t i)
{
    const int64_t row = i / made->columns, features = pass->n, column = i % made->columns;
    const HsActivation f = hs_epilogue_activation(config->epilogue);
    const float *const pre = made->other.values + row * made->other_columns + column % features;
    const double x = (double)pre[0], up = (double)pre[features];
    const double value = agreement_rounded(config->out, (double)pass->sums[row * features + column % features]);
    const HsGateBound bound = hs_bound_gate(f, x);
    const bool silu = f == HS_ACTIVATION_SILU;
    const double y = silu ? x / (1.0 + exp(-x)) : agreement_gelu(x);
    const double slope = silu ? agreement_silu_derivative(x) : agreement_gelu_derivative(x);
    made->expected[i] = column < features ? value * up * slope : value * y;
    made->error[i] = column < features ? fabs(value * up) * bound.slope_error : fabs(value) * bound.value_error;
}

/* Element i of row-major c. */
static inline void agreement_expect(const ProductCase *config, const AgreementPass *pass, AgreementCase *made,
                                    int64_t i)
{
    if (hs_epilogue_gates(config->epilogue)) {
        agreement_expect_gated(config, pass, made, i);
        return;
    }
    if (hs_epilogue_ungates(config->epilogue)) {
        agreement_expect_ungated(config, pass, made, i);
        return;
    }
    const int64_t row = i / made->columns, column = i % made->columns;
    double value = (double)pass->sums[row * pass->n + column], error = 0.0;
    if (agreement_has(config, HS_CASE_BIAS))
        value += (double)made->bias.values[column];
    const bool squares = hs_epilogue_activation(config->epilogue) == HS_ACTIVATION_RELU2;
    if (hs_epilogue_activates(config->epilogue)) {
        const double x = agreement_has(config, HS_CASE_PRE) ? agreement_rounded(config->other, value) : value;
        made->pre[i] = x;
        error = squares ? hs_bound_relu2(x, 0.0) : hs_bound_gelu(x, 0.0);
        value = squares ? fmax(x, 0.0) * fmax(x, 0.0) : agreement_gelu(x);
    } else if (hs_epilogue_differentiates(config->epilogue)) {
        const double pre = (double)made->other.values[i];
        const double slope = squares ? 2.0 * fmax(pre, 0.0) : agreement_gelu_derivative(pre);
        error = fabs(value) * ((squares ? 0.0 : hs_bound_gelu_derivative(pre)) + hs_gamma(1) * fabs(slope));
        value *= slope;
    }
    if (agreement_has(config, HS_CASE_RESIDUAL))
        value += (double)(agreement_has(config, HS_CASE_IN_PLACE) ? made->c : made->other).values[i];
    if (agreement_has(config, HS_CASE_ACCUMULATE))
        value += (double)made->c.values[i];
    made->expected[i] = value;
    made->error[i] = error;
}

static inline void agreement_unmake(Bench *bench, AgreementCase *made)
{
    agreement_release(bench, &made->bias);
    agreement_release(bench, &made->other);
    agreement_release(bench, &made->c);
    free(made->expected);
    free(made->error);
    free(made->pre);
}

static inline HsStatus agreement_make(Bench *bench, const ProductCase *config, const AgreementPass *pass, int64_t odd,
                                      AgreementCase *made)
{
    const bool gates = hs_epilogue_gates(config->epilogue), ungates = hs_epilogue_ungates(config->epilogue);
    const int64_t columns = pass->n - (config->odd ? odd : 0);
    *made = (AgreementCase){ .columns = gates     ? columns / 2
                                        : ungates ? columns * 2
                                                  : columns,
                             .other_columns = ungates ? columns * 2 : columns };
    const int64_t count = pass->m * made->columns;
    made->expected = malloc((size_t)count * sizeof(double));
    made->error = malloc((size_t)count * sizeof(double));
    made->pre = malloc((size_t)(pass->m * made->other_columns) * sizeof(double));
    if (!made->expected || !made->error || !made->pre)
        return hs_fail(HS_ENOMEM, "%" PRId64 " numbers", 3 * count);
    HS_TRY(agreement_fill(bench, &made->bias, hs_tensor_1d(NULL, HS_F32, made->other_columns), 3));
    HS_TRY(agreement_fill(bench, &made->other, hs_tensor_2d(NULL, config->other, pass->m, made->other_columns), 4));
    HS_TRY(agreement_fill(bench, &made->c, hs_tensor_2d(NULL, config->out, pass->m, made->columns), 5));
#pragma omp parallel for
    for (int64_t i = 0; i < count; i++)
        agreement_expect(config, pass, made, i);
    return HS_OK;
}

/* Numbers of a result that are not as expected; what was never written is NaN. */
static inline int64_t agreement_count(HsDtype dtype, const void *found, const double *expected, const double *error,
                                      int64_t count)
{
    int64_t wrong = 0;
#pragma omp parallel for reduction(+ : wrong)
    for (int64_t i = 0; i < count; i++) {
        const double value = hs_dtype_load(dtype, found, i);
        const double off = error ? error[i] : 0.0;
        const double bound = off == 0.0 ? fabs(value - agreement_rounded(dtype, expected[i]))
                                        : fabs(value - expected[i]) - off -
                                              hs_tolerance(0, 0, HS_F32, dtype, 0.0, fabs(expected[i]) + off);
        wrong += !(bound <= 0.0);
    }
    return wrong;
}

/* The initial c, or NaN everywhere, on the device. */
static inline HsStatus agreement_reset(Bench *bench, HsTensor *tensor, const float *values, void *words)
{
    HsDevice *device = &bench->device;
    memset(words, 0xff, hs_tensor_bytes(tensor));
#pragma omp parallel for
    for (int64_t i = 0; i < (values ? hs_tensor_count(tensor) : 0); i++)
        hs_dtype_store(tensor->dtype, words, i, (double)values[i]);
    HS_TRY(device->copy(device, bench->context.stream, tensor->data, words, hs_tensor_bytes(tensor)));
    return device->stream_sync(device, bench->context.stream);
}

/* One case by one kernel: *wrong numbers in c and, where it is written, in pre. */
static inline HsStatus agreement_run(Bench *bench, const ProductCase *config, const AgreementPass *pass,
                                     AgreementCase *made, const char *kernel, int slices, int64_t *wrong)
{
    HsMatmulArgs args = agreement_args(pass);
    HsDevice *device = &bench->device;
    const bool forward = hs_epilogue_activates(config->epilogue) || hs_epilogue_gates(config->epilogue);
    const bool writes_pre = forward && agreement_has(config, HS_CASE_PRE);
    const bool in_place = agreement_has(config, HS_CASE_IN_PLACE);
    const bool reads_c = in_place || agreement_has(config, HS_CASE_ACCUMULATE);
    const int64_t count = pass->m * made->columns, others = pass->m * made->other_columns;
    if (config->odd)
        args.b.values.shape[0] = made->columns; /* fewer rows of w */
    args.c = made->c.tensor;
    args.accumulate = agreement_has(config, HS_CASE_ACCUMULATE);
    if (agreement_has(config, HS_CASE_BIAS))
        args.bias = made->bias.tensor;
    if (agreement_has(config, HS_CASE_RESIDUAL))
        args.residual = in_place ? args.c : made->other.tensor;
    if (agreement_has(config, HS_CASE_PRE))
        args.pre = made->other.tensor;
    args.epilogue = config->epilogue;
    void *const words = malloc((size_t)(count > others ? count : others) * sizeof(float));
    HsStatus status = words ? agreement_reset(bench, &args.c, reads_c ? made->c.values : NULL, words)
                            : hs_fail(HS_ENOMEM, "%" PRId64 " numbers", count);
    if (status == HS_OK && writes_pre)
        status = agreement_reset(bench, &args.pre, NULL, words);
    if (status == HS_OK)
        status = agreement_call(bench, &args, kernel, slices, words);
    if (status == HS_OK)
        *wrong += agreement_count(args.c.dtype, words, made->expected, made->error, count);
    if (status == HS_OK && writes_pre)
        status = device->copy(device, bench->context.stream, words, args.pre.data, hs_tensor_bytes(&args.pre));
    if (status == HS_OK && writes_pre)
        status = device->stream_sync(device, bench->context.stream);
    if (status == HS_OK && writes_pre)
        *wrong += agreement_count(args.pre.dtype, words, made->pre, NULL, others);
    free(words);
    return status;
}

/* How a kernel goes along k: whole, in three slices, or, of Hopper's, where the case allows it, with joint tiles. */
enum { AGREEMENT_WHOLE, AGREEMENT_SLICES, AGREEMENT_JOINT, AGREEMENT_WAYS };

static inline bool agreement_joint(const ProductCase *config, const ProductKernel *kernel)
{
    return kernel->hopper && config->out == HS_F32 && !config->odd && config->epilogue == HS_EPILOGUE_NONE &&
           (config->options & ~(unsigned)HS_CASE_ACCUMULATE) == 0;
}

/* A row of the table: a case by every large kernel that there is, in each way along k. */
static inline HsStatus agreement_row(Bench *bench, const ProductCase *config, const AgreementPass *pass, int64_t odd,
                                     int *failed)
{
    static const char *const pass_names[] = { "forward", "dgrad", "wgrad" };
    AgreementCase made;
    HsStatus status = agreement_make(bench, config, pass, odd, &made);
    printf("| %" PRId64 " x %" PRId64 " x %" PRId64 " | %s | %s | %s -> %s |", pass->m, made.columns, pass->k,
           pass_names[config->pass], config->name, hs_dtype_name(pass->dtype), hs_dtype_name(config->out));
    for (int kernel = 0; status == HS_OK && kernel < PRODUCT_KERNELS; kernel++) {
        const ProductKernel *row = &product_kernels[kernel];
        if (!row->large || !has_kernel(bench, row))
            continue;
        int64_t wrong[AGREEMENT_WAYS] = { 0 };
        const int ways = agreement_joint(config, row) ? AGREEMENT_WAYS : AGREEMENT_JOINT;
        char joint[HS_TUNING_KERNEL];
        snprintf(joint, sizeof joint, "%s-joint", row->name);
        for (int way = 0; status == HS_OK && way < ways; way++)
            status = agreement_run(bench, config, pass, &made, way == AGREEMENT_JOINT ? joint : row->name,
                                   way == AGREEMENT_SLICES ? 3 : 1, &wrong[way]);
        if (status != HS_OK)
            break;
        for (int way = 0; way < ways; way++)
            printf("%s%" PRId64, way == 0 ? " " : ", ", wrong[way]);
        printf(" |");
        bench_json(
            bench,
            "{\"bench\":\"agreement\",\"m\":%" PRId64 ",\"n\":%" PRId64 ",\"k\":%" PRId64
            ",\"pass\":\"%s\",\"case\":\"%s\",\"dtype\":\"%s\",\"out\":\"%s\",\"kernel\":\"%s\",\"wrong\":%" PRId64
            ",\"wrong_in_slices\":%" PRId64 ",\"wrong_joint\":%" PRId64 "}",
            pass->m, made.columns, pass->k, pass_names[config->pass], config->name, hs_dtype_name(pass->dtype),
            hs_dtype_name(config->out), row->name, wrong[AGREEMENT_WHOLE], wrong[AGREEMENT_SLICES],
            wrong[AGREEMENT_JOINT]);
        for (int way = 0; way < ways; way++)
            *failed += wrong[way] > 0;
    }
    printf("\n");
    fflush(stdout);
    agreement_unmake(bench, &made);
    return status;
}

/* All passes of one size; in f16 those without an epilogue, which is the same code for both. */
static inline HsStatus agreement_size(Bench *bench, const ProductSize *size, HsDtype dtype, const char *epilogue,
                                      int *failed)
{
    for (int number = 0; number < AGREEMENT_PASSES; number++) {
        AgreementPass pass = { .sums = NULL };
        HsStatus status = HS_OK;
        for (int i = 0; status == HS_OK && i < PRODUCT_CASES; i++) {
            ProductCase config = product_cases[i];
            const bool plain = config.options == 0 && config.epilogue == HS_EPILOGUE_NONE;
            if (config.pass != number || (dtype != HS_BF16 && !plain) ||
                (epilogue && fnmatch(epilogue, config.name, 0) != 0))
                continue;
            if (!pass.sums)
                status = agreement_open(bench, size, number, dtype, &pass);
            config.out = config.out == HS_BF16 ? dtype : config.out;
            if (status == HS_OK)
                status = agreement_row(bench, &config, &pass, size->odd, failed);
        }
        agreement_close(bench, &pass);
        HS_TRY(status);
    }
    return HS_OK;
}

/* epilogue: of the cases that it names, a pattern as the shell has them; NULL: all.  errors: HS_ENUMERIC where a kernel is wrong */
static inline HsStatus agreement_products(Bench *bench, const char *epilogue)
{
    const ProductSize *sizes = bench->tiny ? tiny_product_sizes : product_sizes;
    const int count = (int)((bench->tiny ? sizeof tiny_product_sizes : sizeof product_sizes) / sizeof *sizes);
    int failed = 0;
    printf("### Products\n\nNumbers that are wrong where one answer is right; k whole, then in three slices, then with "
           "joint tiles.\n\n"
           "| M x N x K | pass | epilogue | format |");
    for (int kernel = 0; kernel < PRODUCT_KERNELS; kernel++)
        if (product_kernels[kernel].large && has_kernel(bench, &product_kernels[kernel]))
            printf(" %s |", product_kernels[kernel].name);
    printf("\n|---|---|---|---|");
    for (int kernel = 0; kernel < PRODUCT_KERNELS; kernel++)
        if (product_kernels[kernel].large && has_kernel(bench, &product_kernels[kernel]))
            printf("---|");
    printf("\n");
    for (int i = 0; i < count; i++) {
        HS_TRY(agreement_size(bench, &sizes[i], HS_BF16, epilogue, &failed));
        HS_TRY(agreement_size(bench, &sizes[i], HS_F16, epilogue, &failed));
    }
    printf("\n");
    return failed == 0 ? HS_OK : hs_fail(HS_ENUMERIC, "products: %d results are wrong", failed);
}

#endif
