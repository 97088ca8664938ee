/* SPDX-License-Identifier: MIT
 *
 * The cpu backend's matrix products against a plain product in double, for every instruction set that this machine
 * runs: odd sizes, all layouts, dtypes and epilogues, weights packed and not, and bits that do not depend on the number
 * of threads.
 *
 * Bounds.  The sum of K products is within gamma(K + r) * sum |a||b| of the exact one; vdpbf16ps reads subnormal
 * numbers as zero, so inputs here are normal.  What follows the sum adds its own roundings, each of relative size u to
 * a quantity that `magnitude` counts.  An activation is checked from the stored `pre`.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base/tolerance.h"
#include "kernels/cpu/cpu.h"

typedef struct MatmulCase {
    int64_t m, n, k;
    HsDtype dtype, c_dtype;
    bool transpose_a, transpose_b, packed, bias, accumulate;
    HsEpilogue epilogue;
    HsDtype pre_dtype;
    int residual; /* 0: none, 1: a tensor, 2: c itself */
    HsDtype residual_dtype;
} MatmulCase;

/* Roundings of gelu and its derivative: of |x| at most 1 in each of the cubic (5), exp (16: its few units in the last
 * place, and the rounding of its argument, which is below 18 wherever tanh differs from 1), and the rational part (7).
 */
enum { GELU_ROUNDINGS = 28 };

static HsTensor make_tensor(HsDtype dtype, int64_t rows, int64_t columns, uint32_t site)
{
    HsTensor t = hs_tensor_2d(NULL, dtype, rows, columns);
    t.data = aligned_alloc(64, hs_cpu_align(hs_tensor_bytes(&t)));
    cr_assert_not_null(t.data);
    const HsRng rng = { .seed = 7, .site = site };
    for (int64_t i = 0; i < rows * columns; i++)
        hs_dtype_store(dtype, t.data, i, 4.0 * (double)hs_rng_uniform(hs_rng_draw(&rng, (uint64_t)i).word[0]) - 2.0);
    return t;
}

static HsTensor copy_tensor(const HsTensor *source)
{
    HsTensor t = *source;
    t.data = aligned_alloc(64, hs_cpu_align(hs_tensor_bytes(source)));
    cr_assert_not_null(t.data);
    memcpy(t.data, source->data, hs_tensor_bytes(source));
    return t;
}

static double load(const HsTensor *t, int64_t index)
{
    return hs_dtype_load(t->dtype, t->data, index);
}

static double gelu(double x)
{
    return 0.5 * x * (1.0 + tanh(sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x)));
}

static double gelu_derivative(double x)
{
    double c = sqrt(2.0 / M_PI), t = tanh(c * (x + 0.044715 * x * x * x));
    return 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * c * (1.0 + 3.0 * 0.044715 * x * x);
}

static void run(const HsBackend *backend, int threads, const HsMatmulArgs *args)
{
    HsContext context = { .backend = backend, .threads = threads };
    context.workspace_bytes = backend->workspace.matmul(&context, args);
    /* one guard line past the end: the workspace function must not promise too little */
    context.workspace = aligned_alloc(64, hs_cpu_align(context.workspace_bytes) + 64);
    cr_assert_not_null(context.workspace);
    memset(context.workspace, 0xff, context.workspace_bytes + 64); /* NaN: stale scratch must not be read */
    cr_assert_eq(backend->matmul(&context, args), HS_OK, "%s", hs_error_message());
    for (size_t i = 0; i < 64; i++)
        cr_assert_eq(((unsigned char *)context.workspace)[context.workspace_bytes + i], 0xff);
    free(context.workspace);
}

static HsPacked pack(const HsBackend *backend, const HsTensor *w, bool transposed)
{
    HsContext context = { .backend = backend, .threads = 2 };
    HsPacked packed = { NULL, w->dtype, w->shape[transposed ? 1 : 0], w->shape[transposed ? 0 : 1] };
    packed.data = aligned_alloc(64, hs_cpu_align(backend->packed_bytes(&context, w->dtype, packed.k, packed.n)));
    cr_assert_not_null(packed.data);
    const HsPackWeightArgs args = { *w, transposed, &packed };
    cr_assert_eq(backend->pack_weight(&context, &args), HS_OK);
    return packed;
}

/* One element against the definition, computed in double. */
static void check_element(const char *isa, const MatmulCase *test, const HsMatmulArgs *args, const HsTensor *old_c,
                          int64_t row, int64_t column)
{
    const int64_t m = test->m, n = test->n, k = test->k, index = row * n + column;
    double sum = 0, magnitude = 0;
    for (int64_t p = 0; p < k; p++) {
        double product = load(&args->a.values, test->transpose_a ? p * m + row : row * k + p) *
                         load(&args->b.values, test->transpose_b ? column * k + p : p * n + column);
        sum += product;
        magnitude += fabs(product);
    }
    if (test->bias) {
        sum += load(&args->bias, column);
        magnitude += fabs(load(&args->bias, column));
    }
    double value = sum;
    int roundings = 4;
    const bool squares = hs_epilogue_activation(test->epilogue) == HS_ACTIVATION_RELU2;
    if (hs_epilogue_activates(test->epilogue)) {
        double stored = load(&args->pre, index);
        double bound = hs_tolerance(k, 2, HS_F32, test->pre_dtype, magnitude, sum);
        cr_assert(fabs(stored - sum) <= bound, "%s pre[%ld,%ld]: %g, expected %g +- %g", isa, (long)row, (long)column,
                  stored, sum, bound);
        value = squares ? fmax(stored, 0) * fmax(stored, 0) : gelu(stored);
        magnitude = squares ? value : fabs(stored);
        roundings += squares ? 0 : GELU_ROUNDINGS;
    } else if (test->epilogue == HS_EPILOGUE_RELU2_BACKWARD) {
        const double slope = 2 * fmax(load(&args->pre, index), 0);
        value = sum * slope;
        magnitude *= slope;
    } else if (test->epilogue == HS_EPILOGUE_GELU_BACKWARD) {
        double x = load(&args->pre, index);
        value = sum * gelu_derivative(x);
        /* the sum's error is scaled by the derivative (at most 1.13), the derivative's (terms up to 1 + |x|) by the sum
         */
        magnitude = magnitude * 1.13 + fabs(sum) * (1 + fabs(x));
        roundings += GELU_ROUNDINGS;
    }
    if (test->residual) {
        double r = test->residual == 2 ? load(old_c, index) : load(&args->residual, index);
        value += r;
        magnitude += fabs(r);
    }
    if (test->accumulate) {
        value += load(old_c, index);
        magnitude += fabs(load(old_c, index));
    }
    double bound =
        hs_tolerance(hs_epilogue_activates(test->epilogue) ? 1 : k, roundings, HS_F32, test->c_dtype, magnitude, value);
    double got = load(&args->c, index);
    cr_assert(fabs(got - value) <= bound,
              "%s %ldx%ldx%ld %s->%s ta %d tb %d packed %d epilogue %d: c[%ld,%ld] = %.9g, expected %.9g +- %g", isa,
              (long)m, (long)n, (long)k, hs_dtype_name(test->dtype), hs_dtype_name(test->c_dtype), test->transpose_a,
              test->transpose_b, test->packed, (int)test->epilogue, (long)row, (long)column, got, value, bound);
}

/* Run a case on one instruction set with 1 to 4 threads: same bits, right values.  Large outputs are sampled. */
static void check_case(const char *isa, const HsBackend *backend, const MatmulCase *test)
{
    const int64_t m = test->m, n = test->n, k = test->k;
    HsMatmulArgs args = { .alpha = 1.0f,
                          .transpose_a = test->transpose_a,
                          .transpose_b = test->transpose_b,
                          .accumulate = test->accumulate,
                          .epilogue = test->epilogue };
    args.a.values = test->transpose_a ? make_tensor(test->dtype, k, m, 1) : make_tensor(test->dtype, m, k, 1);
    args.b.values = test->transpose_b ? make_tensor(test->dtype, n, k, 2) : make_tensor(test->dtype, k, n, 2);
    const HsTensor old_c = make_tensor(test->c_dtype, m, n, 3);
    if (test->bias) {
        args.bias = make_tensor(HS_F32, 1, n, 4);
        args.bias = hs_tensor_1d(args.bias.data, HS_F32, n);
    }
    if (test->residual == 1)
        args.residual = make_tensor(test->residual_dtype, m, n, 5);
    if (test->epilogue != HS_EPILOGUE_NONE)
        args.pre = make_tensor(test->pre_dtype, m, n, 6);
    HsPacked packed = { 0 };
    HsTensor b = args.b.values;
    if (test->packed) {
        packed = pack(backend, &args.b.values, test->transpose_b);
        args.b = hs_operand_packed(b, &packed);
        args.b.values.data = NULL; /* must not be touched */
    }

    HsTensor results[4];
    for (int t = 0; t < 4; t++) {
        results[t] = copy_tensor(&old_c);
        args.c = results[t];
        if (test->residual == 2)
            args.residual = args.c;
        run(backend, t + 1, &args);
        cr_assert_eq(memcmp(results[t].data, results[0].data, hs_tensor_bytes(&old_c)), 0,
                     "%s %ldx%ldx%ld: %d threads give other bits than 1", isa, (long)m, (long)n, (long)k, t + 1);
    }
    args.b.values = b;
    const int64_t stride = m * n <= 4096 ? 1 : m * n / 997;
    for (int64_t index = 0; index < m * n; index += stride)
        check_element(isa, test, &args, &old_c, index / n, index % n);
    check_element(isa, test, &args, &old_c, m - 1, n - 1);

    for (int t = 0; t < 4; t++)
        free(results[t].data);
    free(args.a.values.data), free(args.b.values.data), free(old_c.data), free(args.bias.data), free(args.pre.data);
    free(packed.data);
    if (test->residual == 1)
        free(args.residual.data);
}

/* Every instruction set of the build that this machine runs. */
static void check_everywhere(const MatmulCase *test)
{
    const char *isa;
    for (int i = 0; (isa = hs_backend_cpu_isa_name(i)); i++) {
        const HsBackend *backend;
        HsStatus status = hs_backend_cpu_for_isa(isa, &backend);
        if (status == HS_EUNSUPPORTED)
            continue;
        cr_assert_eq(status, HS_OK);
        check_case(isa, backend, test);
    }
}

static const HsDtype act[] = { HS_F32, HS_BF16, HS_F16 };

Test(matmul, sizes_and_layouts)
{
    static const int64_t sizes[][3] = {
        { 1, 1, 1 },      { 1, 64, 3 },    { 2, 65, 17 },  { 3, 5, 2 },    { 4, 130, 33 },
        { 5, 16, 64 },    { 6, 64, 31 },   { 7, 63, 16 },  { 13, 17, 19 }, { 97, 31, 65 },
        { 103, 129, 12 }, { 12, 300, 40 }, { 64, 64, 64 }, { 1, 257, 80 },
    };
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (int layout = 0; layout < 8; layout++)
            for (int d = 0; d < 3; d++) {
                MatmulCase test = { .m = sizes[s][0], .n = sizes[s][1], .k = sizes[s][2], .dtype = act[d] };
                test.transpose_a = layout & 1, test.transpose_b = layout & 2, test.packed = layout & 4;
                test.c_dtype = (s + (size_t)layout / 2) % 2 ? HS_F32 : act[d];
                check_everywhere(&test);
            }
}

/* More than one block of depth, of rows, of columns, and of panels. */
Test(matmul, blocks)
{
    static const int64_t sizes[][3] = { { 101, 70, 1031 }, { 20, 30, 2501 }, { 5, 7, 3074 }, { 199, 523, 60 } };
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (int layout = 0; layout < 8; layout++) {
            MatmulCase test = { .m = sizes[s][0], .n = sizes[s][1], .k = sizes[s][2], .dtype = act[s % 3] };
            test.transpose_a = layout & 1, test.transpose_b = layout & 2, test.packed = layout & 4;
            test.c_dtype = layout % 3 ? HS_F32 : test.dtype;
            check_everywhere(&test);
        }
}

/* b too deep for one chunk: 2 M words at a time. */
Test(matmul, chunks)
{
    for (int d = 0; d < 2; d++) {
        MatmulCase test = { .m = 2, .n = 530, .k = 9001, .dtype = act[d], .c_dtype = HS_F32, .accumulate = true };
        check_everywhere(&test);
    }
}

/* x x^T or x^T x, then its square and itself, as Muon has them: the halves have the bits that both have. */
static void check_symmetric(const char *isa, const HsBackend *backend, int64_t n, int64_t k, HsDtype dtype, bool across)
{
    HsTensor x = make_tensor(dtype, across ? k : n, across ? n : k, 1);
    HsTensor whole = make_tensor(dtype, n, n, 2), half = make_tensor(dtype, n, n, 3);
    HsTensor whole_square = make_tensor(HS_F32, n, n, 4), half_square = make_tensor(HS_F32, n, n, 5);
    for (int threads = 1; threads <= 3; threads++)
        for (int symmetric = 0; symmetric < 2; symmetric++) {
            const HsTensor *const gram = symmetric ? &half : &whole;
            HsMatmulArgs args = { .a.values = x,
                                  .b.values = x,
                                  .transpose_a = across,
                                  .transpose_b = !across,
                                  .symmetric = symmetric,
                                  .alpha = -4.75f,
                                  .c = *gram };
            run(backend, threads, &args);
            args = (HsMatmulArgs){ .a.values = *gram,
                                   .b.values = *gram,
                                   .symmetric = symmetric,
                                   .alpha = 0.125f,
                                   .addend = *gram,
                                   .c = symmetric ? half_square : whole_square };
            run(backend, threads, &args);
            if (symmetric)
                cr_expect(memcmp(whole.data, half.data, hs_tensor_bytes(&whole)) == 0 &&
                              memcmp(whole_square.data, half_square.data, hs_tensor_bytes(&whole_square)) == 0,
                          "%s, %lld of depth %lld, %s, across %d, %d threads", isa, (long long)n, (long long)k,
                          hs_dtype_name(dtype), across, threads);
        }
    free(x.data), free(whole.data), free(half.data), free(whole_square.data), free(half_square.data);
}

Test(matmul, symmetric)
{
    static const int64_t sizes[][2] = { { 1, 3 },    { 8, 70 },  { 33, 16 },    { 64, 64 },
                                        { 130, 65 }, { 257, 5 }, { 200, 1100 }, { 128, 9001 } };
    const char *isa;
    for (int i = 0; (isa = hs_backend_cpu_isa_name(i)); i++) {
        const HsBackend *backend;
        if (hs_backend_cpu_for_isa(isa, &backend) != HS_OK)
            continue;
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
            for (int d = 0; d < 3; d++)
                for (int across = 0; across < 2; across++)
                    check_symmetric(isa, backend, sizes[s][0], sizes[s][1], act[d], across);
    }
}

Test(matmul, epilogues)
{
    static const int64_t sizes[][3] = { { 9, 70, 20 }, { 5, 33, 1100 } };
    for (size_t s = 0; s < 2; s++)
        for (int option = 0; option < 36; option++)
            for (int d = 0; d < 3; d++) {
                MatmulCase test = { .m = sizes[s][0], .n = sizes[s][1], .k = sizes[s][2], .dtype = act[d] };
                test.transpose_b = true;
                test.packed = option % 2;
                test.c_dtype = option % 4 < 2 ? act[d] : HS_F32;
                test.epilogue = (HsEpilogue)(option % 3);
                test.pre_dtype = act[option / 4 % 3];
                test.residual = option / 3 % 3;
                test.residual_dtype = act[option / 9 % 3];
                test.bias = option / 5 % 2;
                test.accumulate = option / 7 % 2;
                check_everywhere(&test);
            }
}

Test(matmul, squared_relu)
{
    for (int option = 0; option < 24; option++)
        for (int d = 0; d < 3; d++) {
            MatmulCase test = { .m = 9, .n = option % 4 < 2 ? 64 : 71, .k = 40, .dtype = act[d], .transpose_b = true };
            test.epilogue = option % 2 ? HS_EPILOGUE_RELU2_BACKWARD : HS_EPILOGUE_RELU2;
            test.c_dtype = option % 8 < 4 ? act[d] : HS_F32;
            test.pre_dtype = option % 3 ? test.c_dtype : HS_F32;
            test.residual = option / 8;
            test.residual_dtype = act[d];
            check_everywhere(&test);
        }
}

/* The weight gradient: dw += dy^T x, into f32 and into 16 bits. */
Test(matmul, weight_gradient)
{
    for (int d = 0; d < 3; d++)
        for (int wide = 0; wide < 2; wide++) {
            MatmulCase test = { .m = 128, .n = 128, .k = 768, .dtype = act[d], .transpose_a = true };
            test.accumulate = true;
            test.c_dtype = wide ? HS_F32 : act[d];
            check_everywhere(&test);
        }
}

/* The sums of a's rows are bias_backward's, to the bit, and leave the product as it is without them. */
static void check_row_sums(const HsBackend *backend, HsDtype dtype, int64_t m, int64_t n, int64_t k)
{
    const HsTensor first = make_tensor(HS_F32, 1, m, 3), c = make_tensor(HS_F32, m, n, 4);
    const HsTensor expected = copy_tensor(&first), sums = copy_tensor(&first), with_sums = copy_tensor(&c);
    HsMatmulArgs args = { .a.values = make_tensor(dtype, k, m, 1),
                          .b.values = make_tensor(dtype, k, n, 2),
                          .transpose_a = true,
                          .alpha = 1.0f,
                          .accumulate = true,
                          .c = c };
    run(backend, 2, &args);
    args.c = with_sums;
    args.row_sums = hs_tensor_1d(sums.data, HS_F32, m);
    run(backend, 2, &args);
    cr_expect_eq(memcmp(with_sums.data, c.data, hs_tensor_bytes(&c)), 0);

    const HsBiasBackwardArgs bias = { .dy = args.a.values, .dbias = hs_tensor_1d(expected.data, HS_F32, m) };
    HsContext context = { .backend = backend, .threads = 2 };
    context.workspace_bytes = backend->workspace.bias_backward(&context, &bias);
    context.workspace = aligned_alloc(64, hs_cpu_align(context.workspace_bytes));
    cr_assert_not_null(context.workspace);
    cr_assert_eq(backend->bias_backward(&context, &bias), HS_OK, "%s", hs_error_message());
    cr_expect_eq(memcmp(sums.data, expected.data, hs_tensor_bytes(&first)), 0, "%s, %ld x %ld x %ld",
                 hs_dtype_name(dtype), (long)m, (long)n, (long)k);
    free(context.workspace), free(args.a.values.data), free(args.b.values.data), free(first.data), free(c.data);
    free(expected.data), free(sums.data), free(with_sums.data);
}

Test(matmul, row_sums)
{
    const char *isa;
    const HsBackend *backend;
    for (int i = 0; (isa = hs_backend_cpu_isa_name(i)); i++) {
        if (hs_backend_cpu_for_isa(isa, &backend) != HS_OK)
            continue;
        for (int d = 0; d < 3; d++) {
            check_row_sums(backend, act[d], 1, 1, 1);
            check_row_sums(backend, act[d], 67, 3, 35);
            check_row_sums(backend, act[d], 128, 64, 700);
        }
    }
}

/* A non-finite number spoils its row and column of c, and nothing else: padding must not let it spread. */
Test(matmul, nan_and_infinity)
{
    const char *isa;
    const HsBackend *backend;
    for (int i = 0; (isa = hs_backend_cpu_isa_name(i)); i++) {
        if (hs_backend_cpu_for_isa(isa, &backend) != HS_OK)
            continue;
        for (int d = 0; d < 3; d++)
            for (int transpose = 0; transpose < 2; transpose++) {
                const int64_t m = 8, n = 67, k = 35;
                HsMatmulArgs args = { .a.values = make_tensor(act[d], transpose ? k : m, transpose ? m : k, 1),
                                      .b.values = make_tensor(act[d], transpose ? n : k, transpose ? k : n, 2),
                                      .transpose_a = transpose,
                                      .transpose_b = transpose,
                                      .alpha = 1.0f,
                                      .c = make_tensor(act[d], m, n, 3) };
                hs_dtype_store(act[d], args.a.values.data, transpose ? (k - 1) * m + 7 : 7 * k + k - 1,
                               (double)INFINITY);
                hs_dtype_store(act[d], args.b.values.data, transpose ? 66 * k : 66, (double)NAN);
                run(backend, 2, &args);
                for (int64_t index = 0; index < m * n; index++) {
                    double value = load(&args.c, index);
                    if (index % n == 66)
                        cr_assert(isnan(value), "%s: NaN lost", isa);
                    else if (index / n == 7)
                        cr_assert(isinf(value), "%s: infinity lost: %g", isa, value);
                    else
                        cr_assert(isfinite(value), "%s: c[%ld] = %g", isa, (long)index, value);
                }
                free(args.a.values.data), free(args.b.values.data), free(args.c.data);
            }
    }
}

Test(matmul, unknown_instruction_set)
{
    const HsBackend *backend;
    cr_assert_eq(hs_backend_cpu_for_isa("mmx", &backend), HS_EINVAL);
    cr_assert(strstr(hs_error_message(), "portable"), "%s", hs_error_message());
}
