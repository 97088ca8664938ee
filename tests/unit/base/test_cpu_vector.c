/* SPDX-License-Identifier: MIT
 *
 * The cpu backend's operations that are bound by memory, at sizes where the work is cut in blocks and more than one
 * thread runs (the case tables of tests/ops are smaller): sums over rows against sums in double, and the same bits for
 * 1, 2 and 3 threads, on every instruction set that this machine runs.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base/tolerance.h"
#include "kernels/cpu/cpu.h"

/* Odd, so that every row has a tail, and above each operation's threshold for starting threads. */
enum { ROWS = 257, COLUMNS = 131, COUNT = ROWS * COLUMNS, VOCABULARY = 11, PERIOD = ROWS };

/* One set of operands and results of every operation here; results start as inputs do, since some accumulate. */
enum { SLOTS = 16 };
typedef struct Operands {
    HsTensor slot[SLOTS];
    int used;
} Operands;

static HsTensor tensor(Operands *operands, HsDtype dtype, int64_t rows, int64_t columns)
{
    cr_assert_lt(operands->used, SLOTS);
    HsTensor t = rows == 1 ? hs_tensor_1d(NULL, dtype, columns) : hs_tensor_2d(NULL, dtype, rows, columns);
    t.data = aligned_alloc(64, hs_cpu_align(hs_tensor_bytes(&t)));
    cr_assert_not_null(t.data);
    const HsRng rng = { .seed = 5, .site = (uint32_t)operands->used };
    for (int64_t i = 0; i < rows * columns; i++) {
        const double uniform = (double)hs_rng_uniform(hs_rng_draw(&rng, (uint64_t)i).word[0]);
        hs_dtype_store(dtype, t.data, i, dtype == HS_I32 ? floor(VOCABULARY * uniform) : 4.0 * uniform - 2.0);
    }
    operands->slot[operands->used++] = t;
    return t;
}

static void release(Operands *operands)
{
    for (int i = 0; i < operands->used; i++)
        free(operands->slot[i].data);
}

static double load(HsTensor t, int64_t index)
{
    return hs_dtype_load(t.dtype, t.data, index);
}

static HsContext make_context(const HsBackend *backend, int threads)
{
    static HsDevice device;
    cr_assert_eq(hs_device_host_init(&device), HS_OK);
    HsContext context = { .backend = backend, .device = &device, .threads = threads };
    context.workspace_bytes = 1 << 20;
    context.workspace = aligned_alloc(64, context.workspace_bytes);
    cr_assert_not_null(context.workspace);
    memset(context.workspace, 0xA5, context.workspace_bytes); /* scratch must not be taken for zeros */
    return context;
}

#define EXPECT_NEAR(actual, expected, tolerance, what, index)                                                  \
    cr_assert(fabs((actual) - (expected)) <= (tolerance), "%s: %s[%lld] = %.9g, not %.9g (+-%.2g)", isa, what, \
              (long long)(index), actual, expected, tolerance)

/* ---- operations, each on fresh operands ---- */

static void run_bias(HsContext *context, Operands *o, const char *isa)
{
    const HsTensor dy = tensor(o, HS_BF16, ROWS, COLUMNS), dbias = tensor(o, HS_F32, 1, COLUMNS);
    double before[COLUMNS];
    for (int c = 0; c < COLUMNS; c++)
        before[c] = load(dbias, c);
    cr_assert_eq(hs_op_bias_backward(context, &(HsBiasBackwardArgs){ dy, dbias }), HS_OK, "%s", hs_error_message());
    for (int c = 0; c < COLUMNS; c++) {
        double sum = before[c], magnitude = fabs(before[c]);
        for (int64_t n = 0; n < ROWS; n++) {
            sum += load(dy, n * COLUMNS + c);
            magnitude += fabs(load(dy, n * COLUMNS + c));
        }
        EXPECT_NEAR(load(dbias, c), sum, hs_tolerance(ROWS + 1, 0, HS_F32, HS_F32, magnitude, sum), "dbias", c);
    }
}

static void run_norm_forward(HsContext *context, Operands *o, const char *isa)
{
    const HsTensor x = tensor(o, HS_F32, ROWS, COLUMNS), weight = tensor(o, HS_F32, 1, COLUMNS);
    const HsTensor bias = tensor(o, HS_F32, 1, COLUMNS), y = tensor(o, HS_BF16, ROWS, COLUMNS);
    const HsTensor mean = tensor(o, HS_F32, 1, ROWS), rstd = tensor(o, HS_F32, 1, ROWS);
    const HsNormArgs args = { .kind = HS_NORM_LAYER,
                              .epsilon = 1e-5f,
                              .x = x,
                              .weight = weight,
                              .bias = bias,
                              .y = y,
                              .mean = mean,
                              .rstd = rstd };
    cr_assert_eq(hs_op_norm_forward(context, &args), HS_OK, "%s", hs_error_message());
    for (int64_t n = 0; n < ROWS; n++) {
        double sum = 0, size = 0, squares = 0;
        for (int64_t c = 0; c < COLUMNS; c++) {
            sum += load(x, n * COLUMNS + c) / COLUMNS;
            size += fabs(load(x, n * COLUMNS + c)) / COLUMNS;
        }
        for (int64_t c = 0; c < COLUMNS; c++)
            squares += pow(load(x, n * COLUMNS + c) - sum, 2) / COLUMNS;
        const double scale = 1 / sqrt(squares + 1e-5);
        EXPECT_NEAR(load(mean, n), sum, hs_tolerance(COLUMNS, 1, HS_F32, HS_F32, size, sum), "mean", n);
        for (int64_t c = 0; c < COLUMNS; c++) {
            /* The mean's error, at most gamma |x| on average, shifts x - mean and, relative to the deviation, rstd. */
            const double centred = load(x, n * COLUMNS + c) - sum, w = load(weight, c);
            const double value = w * centred * scale + load(bias, c);
            const double magnitude =
                fabs(w) * scale * (size + fabs(centred) * (1 + size * scale)) + fabs(load(bias, c));
            EXPECT_NEAR(load(y, n * COLUMNS + c), value, hs_tolerance(COLUMNS, 10, HS_F32, HS_BF16, magnitude, value),
                        "y", n * COLUMNS + c);
        }
    }
}

/* rstd of `width` elements from `at` on, in double. */
static double rstd_of(HsTensor x, int64_t at, int64_t width, double epsilon)
{
    double squares = 0;
    for (int64_t i = at; i < at + width; i++)
        squares += load(x, i) * load(x, i) / (double)width;
    return 1 / sqrt(squares + epsilon);
}

/* Without a weight, added to a stream in f32 in its own place. */
static void run_norm_added(HsContext *context, Operands *o, const char *isa)
{
    const HsTensor x = tensor(o, HS_BF16, ROWS, COLUMNS), stream = tensor(o, HS_F32, ROWS, COLUMNS);
    const HsTensor rstd = tensor(o, HS_F32, 1, ROWS);
    static double before[COUNT];
    for (int64_t i = 0; i < COUNT; i++)
        before[i] = load(stream, i);
    const HsNormArgs args = {
        .kind = HS_NORM_RMS, .epsilon = 1e-5f, .x = x, .addend = stream, .y = stream, .rstd = rstd
    };
    cr_assert_eq(hs_op_norm_forward(context, &args), HS_OK, "%s", hs_error_message());
    for (int64_t n = 0; n < ROWS; n++) {
        const double scale = rstd_of(x, n * COLUMNS, COLUMNS, (double)args.epsilon);
        EXPECT_NEAR(load(rstd, n), scale, hs_tolerance(COLUMNS, 10, HS_F32, HS_F32, scale, scale), "rstd", n);
        for (int64_t i = n * COLUMNS; i < (n + 1) * COLUMNS; i++) {
            const double value = load(x, i) * scale + before[i], size = fabs(load(x, i)) * scale + fabs(before[i]);
            EXPECT_NEAR(load(stream, i), value, hs_tolerance(COLUMNS, 10, HS_F32, HS_F32, size, value), "stream", i);
        }
    }
}

/* All of a kind at once: 8 query heads, a key and a value head of 13 columns. */
static void run_head_norm_whole(HsContext *context, Operands *o, const char *isa)
{
    enum { HEADS = 8, HEAD_DIM = 13, QUERIES = HEADS * HEAD_DIM, WIDTH = (HEADS + 2) * HEAD_DIM };
    const HsHeads heads = { 1, ROWS, HEADS, 1, HEAD_DIM };
    const HsTensor x = tensor(o, HS_F32, ROWS, WIDTH), y = tensor(o, HS_F32, ROWS, WIDTH);
    const HsTensor rstd = tensor(o, HS_F32, ROWS, 2), dy = tensor(o, HS_F32, ROWS, WIDTH);
    const HsTensor dx = tensor(o, HS_F32, ROWS, WIDTH), q_weight = tensor(o, HS_F32, 1, QUERIES);
    const HsTensor k_weight = tensor(o, HS_F32, 1, HEAD_DIM), dq_weight = tensor(o, HS_F32, 1, QUERIES);
    const HsTensor dk_weight = tensor(o, HS_F32, 1, HEAD_DIM);
    const HsHeadNormArgs forward = { .heads = heads,
                                     .whole = true,
                                     .epsilon = 1e-5f,
                                     .x = x,
                                     .q_weight = q_weight,
                                     .k_weight = k_weight,
                                     .y = y,
                                     .rstd = rstd };
    double sums[QUERIES], sizes[QUERIES];
    for (int64_t d = 0; d < QUERIES; d++)
        sums[d] = load(dq_weight, d), sizes[d] = fabs(sums[d]);
    const HsHeadNormBackwardArgs backward = { .heads = heads,
                                              .whole = true,
                                              .dy = dy,
                                              .x = x,
                                              .q_weight = q_weight,
                                              .k_weight = k_weight,
                                              .rstd = rstd,
                                              .dx = dx,
                                              .dq_weight = dq_weight,
                                              .dk_weight = dk_weight };
    cr_assert_eq(hs_op_head_norm_forward(context, &forward), HS_OK, "%s", hs_error_message());
    cr_assert_eq(hs_op_head_norm_backward(context, &backward), HS_OK, "%s", hs_error_message());
    for (int64_t n = 0; n < ROWS; n++) {
        const int64_t row = n * WIDTH;
        const double scale = rstd_of(x, row, QUERIES, (double)forward.epsilon);
        EXPECT_NEAR(load(rstd, 2 * n), scale, hs_tolerance(QUERIES, 10, HS_F32, HS_F32, scale, scale), "rstd", n);
        for (int64_t d = 0; d < QUERIES; d++) {
            const double value = load(q_weight, d) * load(x, row + d) * scale;
            EXPECT_NEAR(load(y, row + d), value, hs_tolerance(QUERIES, 10, HS_F32, HS_F32, fabs(value), value), "y",
                        row + d);
            sums[d] += load(dy, row + d) * load(x, row + d) * load(rstd, 2 * n);
            sizes[d] += fabs(load(dy, row + d) * load(x, row + d)) * load(rstd, 2 * n);
        }
        for (int64_t d = WIDTH - HEAD_DIM; d < WIDTH; d++)
            cr_assert(load(y, row + d) == load(x, row + d) && load(dx, row + d) == load(dy, row + d), "%s: values",
                      isa);
    }
    for (int64_t d = 0; d < QUERIES; d++)
        EXPECT_NEAR(load(dq_weight, d), sums[d], hs_tolerance(ROWS, 5, HS_F32, HS_F32, sizes[d], sums[d]), "dq_weight",
                    d);
}

/* `accumulate` is on: dx starts with the other consumer's gradient. */
static void run_norm_backward(HsContext *context, Operands *o, const char *isa)
{
    const HsTensor dy = tensor(o, HS_BF16, ROWS, COLUMNS), x = tensor(o, HS_F32, ROWS, COLUMNS);
    const HsTensor weight = tensor(o, HS_F32, 1, COLUMNS), mean = tensor(o, HS_F32, 1, ROWS);
    const HsTensor rstd = tensor(o, HS_F32, 1, ROWS), dx = tensor(o, HS_F32, ROWS, COLUMNS);
    const HsTensor dweight = tensor(o, HS_F32, 1, COLUMNS), dbias = tensor(o, HS_F32, 1, COLUMNS);
    static double before[COUNT];
    double weight_sum[COLUMNS], weight_size[COLUMNS], bias_sum[COLUMNS], bias_size[COLUMNS];
    for (int64_t i = 0; i < COUNT; i++)
        before[i] = load(dx, i);
    for (int64_t c = 0; c < COLUMNS; c++) {
        weight_sum[c] = load(dweight, c), weight_size[c] = fabs(weight_sum[c]);
        bias_sum[c] = load(dbias, c), bias_size[c] = fabs(bias_sum[c]);
    }
    const HsTensor rounded = tensor(o, HS_BF16, ROWS, COLUMNS), sums = tensor(o, HS_F32, 1, COLUMNS);
    const HsTensor converted = tensor(o, HS_BF16, ROWS, COLUMNS), summed = tensor(o, HS_F32, 1, COLUMNS);
    memcpy(summed.data, sums.data, hs_tensor_bytes(&sums));
    const HsNormBackwardArgs args = { .kind = HS_NORM_LAYER,
                                      .dy = dy,
                                      .x = x,
                                      .weight = weight,
                                      .mean = mean,
                                      .rstd = rstd,
                                      .accumulate = true,
                                      .dx = dx,
                                      .dweight = dweight,
                                      .dbias = dbias,
                                      .dx_rounded = rounded,
                                      .dx_sums = sums };
    cr_assert_eq(hs_op_norm_backward(context, &args), HS_OK, "%s", hs_error_message());
    /* What two more operations make of dx, to the bit. */
    const HsConvertArgs convert = { .x = dx, .y = converted };
    cr_assert_eq(hs_op_convert(context, &convert), HS_OK, "%s", hs_error_message());
    cr_assert_eq(hs_op_bias_backward(context, &(HsBiasBackwardArgs){ dx, summed }), HS_OK, "%s", hs_error_message());
    cr_assert_eq(memcmp(rounded.data, converted.data, hs_tensor_bytes(&rounded)), 0, "%s: dx_rounded", isa);
    cr_assert_eq(memcmp(sums.data, summed.data, hs_tensor_bytes(&sums)), 0, "%s: dx_sums", isa);
    for (int64_t n = 0; n < ROWS; n++) {
        /* The statistics are operands here, so they are exact, whatever they would be for this x. */
        const double m = load(mean, n), r = load(rstd, n);
        double mean_g = 0, mean_gx = 0, size_g = 0, size_gx = 0;
        for (int64_t c = 0; c < COLUMNS; c++) {
            const double d = load(dy, n * COLUMNS + c), xhat = (load(x, n * COLUMNS + c) - m) * r;
            const double g = load(weight, c) * d;
            mean_g += g / COLUMNS, size_g += fabs(g) / COLUMNS;
            mean_gx += g * xhat / COLUMNS, size_gx += fabs(g * xhat) / COLUMNS;
            weight_sum[c] += d * xhat, weight_size[c] += fabs(d * xhat);
            bias_sum[c] += d, bias_size[c] += fabs(d);
        }
        for (int64_t c = 0; c < COLUMNS; c++) {
            const int64_t i = n * COLUMNS + c;
            const double xhat = (load(x, i) - m) * r, g = load(weight, c) * load(dy, i);
            const double value = before[i] + r * (g - mean_g - xhat * mean_gx);
            const double magnitude = fabs(before[i]) + fabs(r) * (fabs(g) + size_g + fabs(xhat) * size_gx);
            EXPECT_NEAR(load(dx, i), value, hs_tolerance(COLUMNS, 10, HS_F32, HS_F32, magnitude, value), "dx", i);
        }
    }
    for (int64_t c = 0; c < COLUMNS; c++) {
        EXPECT_NEAR(load(dweight, c), weight_sum[c],
                    hs_tolerance(ROWS + 1, 4, HS_F32, HS_F32, weight_size[c], weight_sum[c]), "dweight", c);
        EXPECT_NEAR(load(dbias, c), bias_sum[c], hs_tolerance(ROWS + 1, 0, HS_F32, HS_F32, bias_size[c], bias_sum[c]),
                    "dbias", c);
    }
}

/* Few tokens, so that each table row is the sum of many: a 16-bit table must still be rounded only once. */
static void run_embedding_backward(HsContext *context, Operands *o, const char *isa)
{
    const HsTensor tokens = tensor(o, HS_I32, 1, ROWS), dy = tensor(o, HS_BF16, ROWS, COLUMNS);
    const HsTensor table = tensor(o, HS_BF16, VOCABULARY, COLUMNS), positions = tensor(o, HS_F32, PERIOD, COLUMNS);
    static double sum[VOCABULARY * COLUMNS], size[VOCABULARY * COLUMNS], rows_of[VOCABULARY];
    memset(rows_of, 0, sizeof rows_of);
    for (int64_t i = 0; i < VOCABULARY * COLUMNS; i++)
        sum[i] = load(table, i), size[i] = fabs(sum[i]);
    for (int64_t n = 0; n < ROWS; n++) {
        const int64_t token = ((const int32_t *)tokens.data)[n];
        rows_of[token]++;
        for (int64_t c = 0; c < COLUMNS; c++) {
            sum[token * COLUMNS + c] += load(dy, n * COLUMNS + c);
            size[token * COLUMNS + c] += fabs(load(dy, n * COLUMNS + c));
        }
    }
    const HsEmbeddingBackwardArgs args = { .tokens = tokens,
                                           .dy = dy,
                                           .sequence_length = PERIOD,
                                           .factor = 1.0f,
                                           .dtoken_table = table,
                                           .dposition_table = positions };
    cr_assert_eq(hs_op_embedding_backward(context, &args), HS_OK, "%s", hs_error_message());
    for (int64_t i = 0; i < VOCABULARY * COLUMNS; i++)
        EXPECT_NEAR(load(table, i), sum[i],
                    hs_tolerance((int64_t)rows_of[i / COLUMNS] + 1, 0, HS_F32, HS_BF16, size[i], sum[i]), "dtable", i);
}

/* Logits of [-2, 2): exp's argument is rounded at 1 + |lse| + |l|, its value by two units, the sum V times. */
static void run_cross_entropy(HsContext *context, Operands *o, const char *isa)
{
    const HsTensor logits = tensor(o, HS_F32, ROWS, COLUMNS), targets = tensor(o, HS_I32, 1, ROWS);
    const HsTensor losses = tensor(o, HS_F32, 1, ROWS), dlogits = tensor(o, HS_BF16, ROWS, COLUMNS);
    const float scale = 3.0f, z = 0.25f;
    ((int32_t *)targets.data)[7] = -1;
    const HsCrossEntropyArgs args = { .logits = logits,
                                      .targets = targets,
                                      .z_loss = z,
                                      .gradient_scale = &scale,
                                      .losses = losses,
                                      .dlogits = dlogits };
    cr_assert_eq(hs_op_cross_entropy(context, &args), HS_OK, "%s", hs_error_message());
    for (int64_t n = 0; n < ROWS; n++) {
        const int32_t target = ((const int32_t *)targets.data)[n];
        double sum = 0;
        for (int64_t c = 0; c < COLUMNS; c++)
            sum += exp(load(logits, n * COLUMNS + c));
        const double lse = log(sum);
        const double loss = target < 0 ? 0 : lse - load(logits, n * COLUMNS + target);
        EXPECT_NEAR(load(losses, n), loss, hs_tolerance(COLUMNS, 16, HS_F32, HS_F32, 3 + lse, loss), "loss", n);
        for (int64_t c = 0; c < COLUMNS; c++) {
            const int64_t i = n * COLUMNS + c;
            const double pull = 3.0 * (1 + 0.5 * lse) * exp(load(logits, i) - lse), onehot = c == target ? 3.0 : 0.0;
            const double value = target < 0 ? 0 : pull - onehot;
            EXPECT_NEAR(load(dlogits, i), value,
                        hs_tolerance(COLUMNS, 16, HS_F32, HS_BF16, pull * (3 + lse) + onehot, value), "dlogits", i);
        }
    }
}

/* Infinities and NaN are counted, and left out of the sum; the bound is a sum in double of exact squares. */
static void run_grad_stats(HsContext *context, Operands *o, const char *isa)
{
    const HsTensor tensors[2] = { tensor(o, HS_BF16, ROWS, COLUMNS), tensor(o, HS_F32, ROWS, COLUMNS) };
    const HsTensor results = tensor(o, HS_F64, 1, 2), counts = tensor(o, HS_I64, 1, 2);
    ((uint16_t *)tensors[0].data)[3] = 0x7F80;
    ((uint16_t *)tensors[0].data)[COUNT - 1] = 0xFFC0;
    ((float *)tensors[1].data)[COUNT / 2] = -INFINITY;
    const HsGradStatsArgs args = { tensors, 2, results.data, counts.data };
    cr_assert_eq(hs_op_grad_stats(context, &args), HS_OK, "%s", hs_error_message());
    for (int t = 0; t < 2; t++) {
        double sum = 0;
        for (int64_t i = 0; i < COUNT; i++)
            sum += isfinite(load(tensors[t], i)) ? pow(load(tensors[t], i), 2) : 0;
        EXPECT_NEAR(load(results, t), sum, 2 * hs_tolerance(COUNT, 1, HS_F64, HS_F64, sum, sum), "sum of squares", t);
        cr_assert(load(counts, t) == 2 - t, "%s: %g non-finite", isa, load(counts, t));
    }
}

static const HsStepScalars step_scalars = { .learning_rate = 0.01f,
                                            .gradient_multiplier = 0.5f,
                                            .bias_correction1 = 0.271f,
                                            .bias_correction2 = 0.0299f,
                                            .unscale = 1.0f,
                                            .free_rate = 0.02f,
                                            .free_weight = 0.3f };

static void run_adamw(HsContext *context, Operands *o, const char *isa)
{
    const HsTensor grad = tensor(o, HS_F32, ROWS, COLUMNS), m = tensor(o, HS_F32, ROWS, COLUMNS);
    const HsTensor v = tensor(o, HS_F32, ROWS, COLUMNS), master = tensor(o, HS_F32, ROWS, COLUMNS);
    const HsTensor weight = tensor(o, HS_BF16, ROWS, COLUMNS);
    static double g[COUNT], m0[COUNT], v0[COUNT], p0[COUNT];
    for (int64_t i = 0; i < COUNT; i++) {
        ((float *)v.data)[i] = fabsf(((float *)v.data)[i]);
        g[i] = 0.5 * load(grad, i), m0[i] = load(m, i), v0[i] = load(v, i), p0[i] = load(master, i);
    }
    const float beta1 = 0.9f, beta2 = 0.99f, epsilon = 1e-8f, decay = 0.1f;
    const HsAdamWArgs args = { .update.scalars = &step_scalars,
                               .beta1 = beta1,
                               .beta2 = beta2,
                               .epsilon = epsilon,
                               .update.weight_decay = decay,
                               .update.learning_rate_scale = 1.0f,
                               .update.rng = { .seed = 1 },
                               .update.grad = grad,
                               .m = m,
                               .v = v,
                               .update.master = master,
                               .update.weight = weight };
    cr_assert_eq(hs_op_adamw(context, &args), HS_OK, "%s", hs_error_message());
    const double b1 = (double)beta1, b2 = (double)beta2, rate = (double)step_scalars.learning_rate;
    for (int64_t i = 0; i < COUNT; i++) {
        const double m_size = fabs(b1 * m0[i]) + fabs((1 - b1) * g[i]);
        const double m1 = b1 * m0[i] + (1 - b1) * g[i], v1 = b2 * v0[i] + (1 - b2) * g[i] * g[i];
        const double step = rate / (double)step_scalars.bias_correction1 /
                            (sqrt(v1 / (double)step_scalars.bias_correction2) + (double)epsilon);
        const double p = p0[i] * (1 - rate * (double)decay) - step * m1;
        EXPECT_NEAR(load(m, i), m1, hs_tolerance(2, 2, HS_F32, HS_F32, m_size, m1), "m", i);
        EXPECT_NEAR(load(v, i), v1, hs_tolerance(2, 3, HS_F32, HS_F32, v1, v1), "v", i);
        /* 2 + 2 roundings of m, at most 3 of v under the root, and 8 of the step's own operations. */
        EXPECT_NEAR(load(master, i), p, hs_tolerance(2, 15, HS_F32, HS_F32, fabs(p0[i]) + step * m_size, p), "p", i);
        cr_assert(((const uint16_t *)weight.data)[i] == hs_bf16_encode(((const float *)master.data)[i]));
        cr_assert(load(grad, i) == 0.0);
    }
}

/* Without a schedule, in the paper's y and z: z is m + y here. */
static void run_schedule_free(HsContext *context, Operands *o, const char *isa)
{
    const HsTensor grad = tensor(o, HS_F32, ROWS, COLUMNS), m = tensor(o, HS_F32, ROWS, COLUMNS);
    const HsTensor v = tensor(o, HS_F32, ROWS, COLUMNS), weight = tensor(o, HS_F32, ROWS, COLUMNS);
    static double g[COUNT], m0[COUNT], v0[COUNT], y0[COUNT];
    for (int64_t i = 0; i < COUNT; i++) {
        ((float *)v.data)[i] = fabsf(((float *)v.data)[i]);
        g[i] = 0.5 * load(grad, i), m0[i] = load(m, i), v0[i] = load(v, i), y0[i] = load(weight, i);
    }
    const float beta1 = 0.9f, beta2 = 0.99f, decay = 0.1f, epsilon = 1e-8f;
    const HsAdamWArgs args = { .update.scalars = &step_scalars,
                               .beta1 = beta1,
                               .beta2 = beta2,
                               .epsilon = epsilon,
                               .schedule_free = true,
                               .update.weight_decay = decay,
                               .update.learning_rate_scale = 1.0f,
                               .update.grad = grad,
                               .m = m,
                               .v = v,
                               .update.weight = weight };
    cr_assert_eq(hs_op_adamw(context, &args), HS_OK, "%s", hs_error_message());
    const double b1 = (double)beta1, b2 = (double)beta2, rate = (double)step_scalars.free_rate;
    const double c = (double)step_scalars.free_weight;
    for (int64_t i = 0; i < COUNT; i++) {
        const double v1 = b2 * v0[i] + (1 - b2) * g[i] * g[i], z0 = y0[i] + m0[i];
        const double quotient = g[i] / (sqrt(v1) + (double)epsilon), d = quotient + (double)decay * y0[i];
        const double y = (1 - c) * y0[i] + c * z0 + rate * (b1 * (1 - c) - 1) * d, z = z0 - rate * d;
        const double size = fabs(quotient) + fabs((double)decay * y0[i]);
        /* 2 + 3 roundings of v, half of which the quotient has, its own 3, decay 1, the factor 5; sums 2. */
        const double y_size = fabs(y0[i]) + c * fabs(m0[i]) + rate * (b1 * (1 - c) + 1) * size;
        EXPECT_NEAR(load(v, i), v1, hs_tolerance(2, 3, HS_F32, HS_F32, v1, v1), "v", i);
        EXPECT_NEAR(load(weight, i), y, hs_tolerance(2, 12, HS_F32, HS_F32, y_size, y), "y", i);
        EXPECT_NEAR(load(m, i), z - y,
                    hs_tolerance(2, 12, HS_F32, HS_F32, fabs(m0[i]) + rate * b1 * (1 - c) * size, z - y), "z - y", i);
        cr_assert(load(grad, i) == 0.0);
    }
}

/* No master: the weight is p, stochastically rounded; within p's error bound the rounding is monotone in p. */
static void run_adamw_stochastic(HsContext *context, Operands *o, const char *isa)
{
    const HsTensor grad = tensor(o, HS_BF16, ROWS, COLUMNS), m = tensor(o, HS_F32, ROWS, COLUMNS);
    const HsTensor v = tensor(o, HS_F32, ROWS, COLUMNS), weight = tensor(o, HS_BF16, ROWS, COLUMNS);
    const HsRng rng = { .seed = 77, .step = 3, .site = 4 };
    static double g[COUNT], p0[COUNT];
    for (int64_t i = 0; i < COUNT; i++) {
        ((float *)m.data)[i] = 0.0f;
        ((float *)v.data)[i] = 1.0f;
        g[i] = 0.5 * load(grad, i), p0[i] = load(weight, i);
    }
    const HsAdamWArgs args = { .update.scalars = &step_scalars,
                               .beta1 = 0.5f,
                               .beta2 = 1.0f,
                               .epsilon = 0.0f,
                               .update.learning_rate_scale = 1.0f,
                               .update.rng = rng,
                               .update.grad = grad,
                               .m = m,
                               .v = v,
                               .update.weight = weight };
    cr_assert_eq(hs_op_adamw(context, &args), HS_OK, "%s", hs_error_message());
    const double step = (double)step_scalars.learning_rate / (double)step_scalars.bias_correction1 *
                        sqrt((double)step_scalars.bias_correction2);
    for (int64_t i = 0; i < COUNT; i++) {
        const double p = p0[i] - step * 0.5 * g[i];
        const double bound = hs_tolerance(2, 15, HS_F32, HS_F32, fabs(p0[i]) + step * fabs(g[i]), p);
        const uint16_t random = (uint16_t)(hs_rng_draw(&rng, (uint64_t)i / 4).word[i % 4] >> 16);
        double low = (double)hs_bf16_decode(hs_bf16_encode_stochastic((float)(p - bound), random));
        double high = (double)hs_bf16_decode(hs_bf16_encode_stochastic((float)(p + bound), random));
        cr_assert(load(weight, i) >= fmin(low, high) && load(weight, i) <= fmax(low, high), "%s: w[%lld]", isa,
                  (long long)i);
    }
}

/* These are compared with the reference by tests/ops; here they run for their bits only. */
static void run_elementwise(HsContext *context, Operands *o, const char *isa)
{
    (void)isa;
    const HsTensor x = tensor(o, HS_BF16, ROWS, 2 * COLUMNS), wide = tensor(o, HS_F32, ROWS, 2 * COLUMNS);
    const HsTensor y = tensor(o, HS_BF16, ROWS, COLUMNS), dy = tensor(o, HS_F32, ROWS, COLUMNS);
    const HsRng rng = { .seed = 8, .row_offset = 3 };
    for (HsActivation gate = HS_ACTIVATION_GELU; gate <= HS_ACTIVATION_SILU; gate++) {
        cr_assert_eq(hs_op_swiglu_forward(context, &(HsUnaryArgs){ gate, x, y }), HS_OK);
        cr_assert_eq(hs_op_swiglu_backward(context, &(HsUnaryBackwardArgs){ gate, dy, x, wide }), HS_OK);
    }
    const HsDropoutArgs dropout = { .probability = 0.3f, .rng = rng, .x = x, .residual = wide, .y = wide };
    cr_assert_eq(hs_op_dropout_forward(context, &dropout), HS_OK);
    cr_assert_eq(hs_op_combine(context, &(HsCombineArgs){ .x = dy, .y = y, .alpha = 1.0f, .beta = 1.0f }), HS_OK);
    cr_assert_eq(hs_op_convert(context, &(HsConvertArgs){ .x = wide, .y = x, .stochastic = true, .rng = rng }), HS_OK);
}

/* A skipped step clears the gradient and touches nothing else. */
static void run_skipped(HsContext *context, Operands *o, const char *isa)
{
    const HsTensor grad = tensor(o, HS_BF16, ROWS, COLUMNS), m = tensor(o, HS_F32, ROWS, COLUMNS);
    const HsTensor v = tensor(o, HS_F32, ROWS, COLUMNS), weight = tensor(o, HS_F32, ROWS, COLUMNS);
    static float before[3][COUNT];
    const HsTensor kept[3] = { m, v, weight };
    for (int t = 0; t < 3; t++)
        memcpy(before[t], kept[t].data, sizeof before[t]);
    ((uint16_t *)grad.data)[5] = 0x7FC0;
    const HsStepScalars skip = { .learning_rate = 0.01f,
                                 .gradient_multiplier = NAN,
                                 .bias_correction1 = 0.271f,
                                 .bias_correction2 = 0.0299f,
                                 .unscale = 1.0f,
                                 .skip = 1 };
    const HsAdamWArgs args = { .update.scalars = &skip,
                               .beta1 = 0.9f,
                               .beta2 = 0.99f,
                               .epsilon = 1e-8f,
                               .update.weight_decay = 0.1f,
                               .update.learning_rate_scale = 1.0f,
                               .update.grad = grad,
                               .m = m,
                               .v = v,
                               .update.weight = weight };
    cr_assert_eq(hs_op_adamw(context, &args), HS_OK, "%s", hs_error_message());
    for (int t = 0; t < 3; t++)
        cr_assert(memcmp(before[t], kept[t].data, sizeof before[t]) == 0, "%s: a skipped step changed state %d", isa,
                  t);
    for (int64_t i = 0; i < COUNT; i++)
        cr_assert(((const uint16_t *)grad.data)[i] == 0, "%s: gradient not cleared", isa);
}

/* ---- every instruction set, 1, 2 and 3 threads ---- */

static void check(void (*run)(HsContext *, Operands *, const char *))
{
    for (int index = 0; hs_backend_cpu_isa_name(index); index++) {
        const char *isa = hs_backend_cpu_isa_name(index);
        const HsBackend *backend;
        if (hs_backend_cpu_for_isa(isa, &backend) == HS_EUNSUPPORTED)
            continue;
        Operands results[3] = { 0 };
        for (int threads = 1; threads <= 3; threads++) {
            HsContext context = make_context(backend, threads);
            run(&context, &results[threads - 1], isa);
            free(context.workspace);
        }
        for (int threads = 2; threads <= 3; threads++) {
            for (int i = 0; i < results[0].used; i++)
                cr_assert(memcmp(results[0].slot[i].data, results[threads - 1].slot[i].data,
                                 hs_tensor_bytes(&results[0].slot[i])) == 0,
                          "%s: tensor %d differs between 1 and %d threads", isa, i, threads);
        }
        for (int threads = 1; threads <= 3; threads++)
            release(&results[threads - 1]);
    }
}

#define CHECK(name)        \
    Test(cpu_vector, name) \
    {                      \
        check(run_##name); \
    }

CHECK(bias)
CHECK(norm_forward)
CHECK(norm_backward)
CHECK(norm_added)
CHECK(head_norm_whole)
CHECK(embedding_backward)
CHECK(cross_entropy)
CHECK(grad_stats)
CHECK(adamw)
CHECK(adamw_stochastic)
CHECK(schedule_free)
CHECK(elementwise)
CHECK(skipped)
