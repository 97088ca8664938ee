/* SPDX-License-Identifier: MIT
 *
 * Cases of the norms over rows.  The bounds follow the chain  mean -> centred -> variance -> rstd -> y  with the error
 * of each stage passed on; they hold for a variance taken of centred values (two passes, or an equivalent).
 */
#include "runtime/selftest/coded.h"

#include <math.h>
#include <stdlib.h>

/* rows N, columns C */
enum { X, WEIGHT, BIAS, Y, MEAN, RSTD, BRANCH, RESIDUAL, ADDEND, CODES };

static const float epsilon = 1e-5f;

#define FORWARD(n, c)                                                                                    \
    { HS_F32, HS_F32, HS_F32, n, c, .options = HS_CASE_LAYER | HS_CASE_BIAS },                           \
        { HS_F32, HS_F32, HS_F32, n, c, .options = HS_CASE_LAYER | HS_CASE_IN_PLACE },                   \
        { HS_F32, HS_BF16, HS_F32, n, c, .options = HS_CASE_LAYER },                                     \
        { HS_BF16, HS_BF16, HS_F32, n, c, .options = HS_CASE_LAYER | HS_CASE_BIAS },                     \
        { HS_F16, HS_F16, HS_F32, n, c, .options = HS_CASE_LAYER | HS_CASE_BIAS },                       \
        { HS_F32, HS_F32, HS_F32, n, c, .options = 0 }, { HS_F32, HS_BF16, HS_F32, n, c, .options = 0 }, \
        { HS_BF16, HS_BF16, HS_F32, n, c, .options = HS_CASE_IN_PLACE },                                 \
    {                                                                                                    \
        HS_F16, HS_F16, HS_F32, n, c, .options = 0                                                       \
    }

/* x is made of a residual like it and of a branch in `other`, by dropout, which may be 0. */
#define SUMMED(n, c, ...)                                                                                       \
    { HS_F32, HS_BF16, HS_BF16, n, c, .start = 3, .dropout = 0.2f, .options = HS_CASE_RESIDUAL | __VA_ARGS__ }, \
        { HS_F32, HS_F16, HS_F16, n, c, .dropout = 0.5f, .options = HS_CASE_RESIDUAL | __VA_ARGS__ },           \
    {                                                                                                           \
        HS_F32, HS_F32, HS_F32, n, c, .start = 5, .dropout = 0.1f, .options = HS_CASE_RESIDUAL | __VA_ARGS__    \
    }
#define SUMMED_ALL(n, c)                                                                                    \
    SUMMED(n, c, HS_CASE_LAYER | HS_CASE_BIAS), SUMMED(n, c, HS_CASE_IN_PLACE),                             \
        { HS_F32, HS_BF16, HS_F16, n, c, .dropout = 0.3f, .options = HS_CASE_RESIDUAL | HS_CASE_LAYER },    \
        { HS_F32, HS_BF16, HS_BF16, n, c, .options = HS_CASE_RESIDUAL | HS_CASE_LAYER | HS_CASE_IN_PLACE }, \
    {                                                                                                       \
        HS_F32, HS_BF16, HS_BF16, n, c, .dropout = 0.3f,                                                    \
                                        .options = HS_CASE_RESIDUAL | HS_CASE_LAYER | HS_CASE_UNALIGNED     \
    }
/* A stream in 16 bits, with its rounding passed on: not where rows are so short that nothing else is left of them. */
#define SUMMED_NARROW(n, c)                                                                                       \
    { HS_BF16, HS_BF16, HS_BF16, n, c, .dropout = 0.2f, .options = HS_CASE_RESIDUAL | HS_CASE_LAYER },            \
    {                                                                                                             \
        HS_F16, HS_F16, HS_F16, n, c, .start = 2, .dropout = 0.2f, .options = HS_CASE_RESIDUAL | HS_CASE_IN_PLACE \
    }

/* y is added to a stream in `other`, which it may be: of the branch's format or of f32, as training has it; then others. */
#define ADDED(n, c, ...)                                                                           \
    { HS_BF16, HS_F32, HS_F32, n, c, .options = HS_CASE_ADDEND | HS_CASE_IN_PLACE | __VA_ARGS__ }, \
        { HS_F16, HS_F32, HS_F32, n, c, .options = HS_CASE_ADDEND | __VA_ARGS__ },                 \
        { HS_F32, HS_F32, HS_F32, n, c, .options = HS_CASE_ADDEND | __VA_ARGS__ },                 \
        { HS_BF16, HS_BF16, HS_BF16, n, c, .options = HS_CASE_ADDEND | __VA_ARGS__ },              \
    {                                                                                              \
        HS_F16, HS_F16, HS_F16, n, c, .options = HS_CASE_ADDEND | HS_CASE_IN_PLACE | __VA_ARGS__   \
    }
#define ADDED_ALL(n, c)                                                                                      \
    ADDED(n, c, 0), ADDED(n, c, HS_CASE_LAYER | HS_CASE_BIAS),                                               \
        { HS_BF16, HS_F32, HS_F32, n, c, .options = HS_CASE_ADDEND | HS_CASE_IN_PLACE | HS_CASE_UNALIGNED }, \
        { HS_F32, HS_BF16, HS_BF16, n, c, .options = HS_CASE_ADDEND | HS_CASE_IN_PLACE },                    \
        { HS_BF16, HS_F16, HS_F32, n, c, .options = HS_CASE_ADDEND | HS_CASE_LAYER },                        \
    {                                                                                                        \
        HS_F16, HS_F32, HS_F32, n, c, .unweighted = true, .options = HS_CASE_ADDEND | HS_CASE_IN_PLACE       \
    }

#define UNWEIGHTED(n, c)                                                                                                    \
    { HS_F32, HS_F32, HS_F32, n, c, .unweighted = true, .options = 0 },                                                     \
        { HS_F32, HS_BF16, HS_F32, n, c, .unweighted = true, .options = 0 },                                                \
        { HS_BF16, HS_BF16, HS_F32, n, c, .unweighted = true, .options = HS_CASE_IN_PLACE },                                \
        { HS_F16, HS_F16, HS_F32, n, c, .unweighted = true, .options = HS_CASE_LAYER },                                     \
        { HS_F32, HS_F16, HS_F16, n, c, .unweighted = true, .dropout = 0.3f, .options = HS_CASE_RESIDUAL | HS_CASE_LAYER }, \
        { HS_F32,                                                                                                           \
          HS_BF16,                                                                                                          \
          HS_BF16,                                                                                                          \
          n,                                                                                                                \
          c,                                                                                                                \
          .unweighted = true,                                                                                               \
          .dropout = 0.2f,                                                                                                  \
          .options = HS_CASE_RESIDUAL | HS_CASE_IN_PLACE },                                                                 \
    {                                                                                                                       \
        HS_BF16, HS_BF16, HS_F32, n, c, .unweighted = true, .options = HS_CASE_LAYER | HS_CASE_UNALIGNED                    \
    }

/* y is left in codes: as kernels leave it, then where those are a pass apart. */
#define CAST_OF(dtype, n, c, format, ...)                                                 \
    {                                                                                     \
        dtype, HS_BF16, HS_BF16, n, c, .start = 3, .cast = format, .options = __VA_ARGS__ \
    }
#define CAST(n, c)                                                                                        \
    CAST_OF(HS_F32, n, c, HS_E4M3, HS_CASE_LAYER | HS_CASE_BIAS), CAST_OF(HS_BF16, n, c, HS_E4M3, 0),     \
        CAST_OF(HS_F32, n, c, HS_E4M3, HS_CASE_RESIDUAL | HS_CASE_LAYER | HS_CASE_BIAS, .dropout = 0.2f), \
        CAST_OF(HS_F32, n, c, HS_E4M3, HS_CASE_RESIDUAL, .dropout = 0.3f),                                \
        CAST_OF(HS_F32, n, c, HS_E4M3, HS_CASE_RESIDUAL, .unweighted = true, .dropout = 0.3f),            \
        CAST_OF(HS_F32, n, c, HS_E5M2, 0), CAST_OF(HS_F32, n, c, HS_E4M3, HS_CASE_LAYER | HS_CASE_UNALIGNED)

/* The wider rows are for backends that keep a row in registers: a tile just full or just not, one warp or several, a
 * row that no registers hold, each in steps of 8 elements, of 4 (100) and of one (513). */
static const HsCase forward_cases[] = {
    FORWARD(1, 1),
    FORWARD(2, 2),
    FORWARD(3, 7),
    FORWARD(7, 17),
    FORWARD(17, 63),
    FORWARD(64, 64),
    FORWARD(65, 127),
    FORWARD(3, 129),
    FORWARD(2, 768),
    FORWARD(5, 1030),
    FORWARD(9, 100),
    FORWARD(9, 256),
    FORWARD(3, 264),
    FORWARD(3, 513),
    FORWARD(9, 1024),
    FORWARD(9, 1032),
    FORWARD(2, 1025),
    FORWARD(3, 4104),
    FORWARD(1, 9001),
    FORWARD(2, 9008),
    FORWARD(1, 16384),
    FORWARD(2, 16392),
    FORWARD(1, 16385),
    SUMMED_ALL(1, 4),
    SUMMED_ALL(3, 7),
    SUMMED_ALL(17, 63),
    SUMMED_ALL(65, 128),
    SUMMED_ALL(9, 100),
    SUMMED_ALL(9, 256),
    SUMMED_ALL(3, 264),
    SUMMED_ALL(2, 768),
    SUMMED_ALL(9, 1024),
    SUMMED_ALL(9, 1032),
    SUMMED_ALL(3, 4104),
    SUMMED_ALL(2, 16392),
    SUMMED_NARROW(17, 63),
    SUMMED_NARROW(9, 256),
    SUMMED_NARROW(2, 16392),
    ADDED_ALL(1, 1),
    ADDED_ALL(1, 8),
    ADDED_ALL(7, 17),
    ADDED_ALL(9, 100),
    ADDED_ALL(65, 128),
    ADDED_ALL(9, 256),
    ADDED_ALL(3, 264),
    ADDED_ALL(3, 513),
    ADDED_ALL(9, 1024),
    ADDED_ALL(3, 1032),
    ADDED_ALL(2, 4104),
    ADDED_ALL(2, 16392),
    UNWEIGHTED(1, 4),
    UNWEIGHTED(3, 7),
    UNWEIGHTED(17, 63),
    UNWEIGHTED(9, 256),
    UNWEIGHTED(9, 1024),
    UNWEIGHTED(3, 1032),
    UNWEIGHTED(2, 16392),
    CAST(1, 4),
    CAST(3, 7),
    CAST(17, 64),
    CAST(9, 100),
    CAST(9, 256),
    CAST(3, 264),
    CAST(2, 768),
    CAST(9, 1024),
    CAST(9, 1032),
    CAST(3, 4104),
    CAST(2, 16392),
};

/* In place: y is x, or the addend; with a branch the residual is x. */
static int output_of(const HsTrial *trial)
{
    return hs_operand_present(trial, Y) ? Y : hs_case_has(trial, HS_CASE_ADDEND) ? ADDEND : X;
}

static void declare_forward(HsTrial *trial)
{
    const HsCase *config = trial->config;
    const HsTensor rows = hs_tensor_1d(NULL, HS_F32, config->rows);
    const HsTensor columns = hs_tensor_1d(NULL, HS_F32, config->columns);
    HsTrialOperand *operands = trial->operands;
    const HsTensor x = hs_tensor_2d(NULL, config->dtype, config->rows, config->columns);
    const bool summed = hs_case_has(trial, HS_CASE_RESIDUAL), added = hs_case_has(trial, HS_CASE_ADDEND);
    const bool in_place = hs_case_has(trial, HS_CASE_IN_PLACE);
    operands[X] = in_place && !added ? hs_updated("x", 2.0, x) : summed ? hs_output("x", x) : hs_input("x", 2.0, x);
    if (summed)
        operands[BRANCH] = hs_input("branch", 1.0, hs_tensor_2d(NULL, config->other, config->rows, config->columns));
    if (summed && !in_place)
        operands[RESIDUAL] = hs_input("residual", 2.0, x);
    const HsTensor stream = hs_tensor_2d(NULL, config->other, config->rows, config->columns);
    if (added)
        operands[ADDEND] = in_place ? hs_updated("addend", 2.0, stream) : hs_input("addend", 2.0, stream);
    if (!config->unweighted)
        operands[WEIGHT] = hs_input("weight", 1.0, columns);
    if (hs_case_has(trial, HS_CASE_BIAS))
        operands[BIAS] = hs_input("bias", 1.0, columns);
    if (!in_place || summed)
        operands[Y] = hs_output("y", hs_tensor_2d(NULL, config->out, config->rows, config->columns));
    if (hs_case_has(trial, HS_CASE_LAYER))
        operands[MEAN] = hs_output("mean", rows);
    operands[RSTD] = hs_output("rstd", rows);
    if (hs_case_casts(config))
        hs_trial_declare_cast(trial, CODES, &operands[Y].tensor);
    else
        hs_trial_ask_amax(trial, output_of(trial));
}

static HsStatus prepare_forward(HsTrial *trial, HsContext *reference)
{
    (void)reference;
    hs_trial_prepare_cast(trial, CODES);
    return HS_OK;
}

static HsStatus follow_forward(HsTrial *trial, HsContext *reference, void *const *stored)
{
    return hs_trial_follow_cast(trial, reference, stored, Y, CODES);
}

/* Codes are all that is left of a y that is cast. */
static double bytes_forward(const HsTrial *trial, const HsContext *context)
{
    (void)context;
    return hs_trial_bytes(trial) - (hs_case_casts(trial->config) ? hs_operand_bytes(&trial->operands[Y]) : 0.0);
}

static int residual_of(const HsTrial *trial)
{
    return hs_operand_present(trial, RESIDUAL) ? RESIDUAL : X;
}

static HsStatus call_forward(HsTrial *trial, HsContext *context, const HsTensor *t)
{
    HsNormArgs args = { .kind = hs_case_has(trial, HS_CASE_LAYER) ? HS_NORM_LAYER : HS_NORM_RMS,
                        .epsilon = epsilon,
                        .x = t[X],
                        .weight = t[WEIGHT],
                        .bias = t[BIAS],
                        .addend = t[ADDEND],
                        .y = t[output_of(trial)],
                        .mean = t[MEAN],
                        .rstd = t[RSTD] };
    if (hs_case_has(trial, HS_CASE_RESIDUAL)) {
        args.branch = t[BRANCH];
        args.residual = t[residual_of(trial)];
        args.probability = trial->config->dropout;
        args.rng = (HsRng){ trial->seed, 11, 5, trial->config->start, NULL };
    }
    const bool casts = hs_case_casts(trial->config) && args.y.dtype != HS_F64;
    if (casts)
        args.cast = hs_trial_cast(trial, t, Y, CODES);
    HS_TRY(hs_op_norm_forward(context, &args));
    if (!casts)
        return HS_OK;
    /* A y that is cast may not be stored: once more, of x as the cast left it. */
    args.cast = (HsCodes){ 0 };
    args.branch = args.residual = (HsTensor){ 0 };
    return hs_op_norm_forward(context, &args);
}

/* What the statistics of one row are, and how far off. */
typedef struct HsRowStatistics {
    double mean, mean_error, rstd, rstd_error;
} HsRowStatistics;

/* x is off by e, which is 0 where it is given:
 *  mean = sum x / C:        mean(e) + gamma(C+1) mean(|x| + e)
 *  d = x - mean:            e_d = e + mean_error + u (|x| + e + |mean|)
 *  var = sum d^2 / C:       mean(2|d| e_d + e_d^2) + gamma(C+2) var
 *  rstd = (var + eps)^-1/2: relative error half of var's, plus the root and the division */
static HsRowStatistics analyse_row(const double *x, const double *e, int64_t count, bool layer)
{
    HsRowStatistics row = { 0 };
    double sum = 0.0, absolute = 0.0, off = 0.0;
    for (int64_t c = 0; layer && c < count; c++) {
        sum += x[c];
        absolute += fabs(x[c]) + e[c];
        off += e[c];
    }
    row.mean = sum / (double)count;
    row.mean_error = off / (double)count + hs_gamma(count + 1) * absolute / (double)count;
    double variance = 0.0, passed_on = 0.0;
    for (int64_t c = 0; c < count; c++) {
        const double d = x[c] - row.mean;
        const double rounded = layer ? row.mean_error + hs_gamma(1) * (fabs(x[c]) + e[c] + fabs(row.mean)) : 0.0;
        const double error = e[c] + rounded;
        variance += d * d / (double)count;
        passed_on += (2.0 * fabs(d) * error + error * error) / (double)count;
    }
    const double total = variance + (double)epsilon;
    row.rstd = 1.0 / sqrt(total);
    const double relative = (passed_on + hs_gamma(count + 3) * total) / total;
    row.rstd_error = row.rstd * (0.5 * relative + relative * relative + hs_gamma(HS_FUNCTION_ROUNDINGS));
    return row;
}

/* What the norm reads is off by, where it is made: dropout's chain (cases_elementwise.c) and the store. */
static void bound_sum(HsTrial *trial, double *stored)
{
    const double factor = 1.0 / (1.0 - (double)trial->config->dropout);
    HsTrialOperand *x = &trial->operands[X];
    for (int64_t i = 0; hs_case_has(trial, HS_CASE_RESIDUAL) && i < hs_tensor_count(&x->tensor); i++) {
        x->error[i] = hs_gamma(4) *
                      (factor * fabs(hs_initial(trial, BRANCH)[i]) + fabs(hs_initial(trial, residual_of(trial))[i]));
        const double size = fabs(hs_exact(trial, X)[i]) + x->error[i];
        stored[i] = x->error[i] + hs_tolerance(0, 0, HS_F32, x->tensor.dtype, 0.0, size);
    }
}

static void bound_forward(HsTrial *trial)
{
    const int64_t columns = trial->config->columns;
    const bool layer = hs_case_has(trial, HS_CASE_LAYER), summed = hs_case_has(trial, HS_CASE_RESIDUAL);
    HsTrialOperand *y = &trial->operands[output_of(trial)];
    double *stored = calloc((size_t)hs_tensor_count(&trial->operands[X].tensor), sizeof *stored);
    if (stored == NULL)
        return; /* bounds of 0: the case fails */
    bound_sum(trial, stored);
    for (int64_t n = 0; n < trial->config->rows; n++) {
        const double *x = (summed ? hs_exact(trial, X) : hs_initial(trial, X)) + n * columns, *e = stored + n * columns;
        const HsRowStatistics row = analyse_row(x, e, columns, layer);
        if (layer)
            trial->operands[MEAN].error[n] = row.mean_error;
        trial->operands[RSTD].error[n] = row.rstd_error;
        for (int64_t c = 0; c < columns; c++) {
            const double weight = hs_operand_present(trial, WEIGHT) ? fabs(hs_initial(trial, WEIGHT)[c]) : 1.0;
            const double d = fabs(x[c] - row.mean);
            const double spread = fabs(x[c]) + e[c] + fabs(row.mean); /* also when y = x (w rstd) - mean (w rstd) */
            const double bias = hs_operand_present(trial, BIAS) ? fabs(hs_initial(trial, BIAS)[c]) : 0.0;
            const double addend =
                hs_operand_present(trial, ADDEND) ? fabs(hs_initial(trial, ADDEND)[n * columns + c]) : 0.0;
            y->error[n * columns + c] =
                weight * ((row.rstd + row.rstd_error) * (row.mean_error + e[c]) + d * row.rstd_error) +
                hs_gamma(addend > 0.0 ? 6 : 5) * (weight * spread * row.rstd + bias + addend);
        }
    }
    free(stored);
}

static const HsCase forward_timed[] = {
    { HS_F32, HS_BF16, HS_F32, 4096, 768, .options = HS_CASE_LAYER | HS_CASE_BIAS },
    { HS_F32, HS_F32, HS_F32, 4096, 768, .options = HS_CASE_LAYER | HS_CASE_BIAS },
    { HS_F16, HS_F16, HS_F32, 4096, 768, .options = HS_CASE_LAYER | HS_CASE_BIAS },
    { HS_F32, HS_BF16, HS_BF16, 4096, 768, .dropout = 0.1f,
      .options = HS_CASE_LAYER | HS_CASE_BIAS | HS_CASE_RESIDUAL },
};

const HsOpTest hs_op_test_norm_forward = {
    .cases = forward_cases,
    .case_count = HS_COUNT_OF(forward_cases),
    .timed = forward_timed,
    .timed_count = HS_COUNT_OF(forward_timed),
    .declare = declare_forward,
    .prepare = prepare_forward,
    .bytes = bytes_forward,
    .bound = bound_forward,
    .call = call_forward,
    .follow = follow_forward,
};

enum {
    B_DY,
    B_X,
    B_WEIGHT,
    B_MEAN,
    B_RSTD,
    B_DX,
    B_DWEIGHT,
    B_DBIAS,
    B_DX_ROUNDED,
    B_DX_SUMS,
    B_DX_MASKED,
    B_CODES = B_DX_MASKED
};

#define BACKWARD(n, c)                                                                                   \
    { HS_F32, HS_F32, HS_F32, n, c, .options = HS_CASE_LAYER | HS_CASE_BIAS },                           \
        { HS_F32, HS_F32, HS_F32, n, c, .options = HS_CASE_LAYER | HS_CASE_ACCUMULATE },                 \
        { HS_F32, HS_F32, HS_BF16, n, c, .options = HS_CASE_LAYER | HS_CASE_BIAS | HS_CASE_ACCUMULATE }, \
        { HS_BF16, HS_BF16, HS_BF16, n, c, .options = HS_CASE_LAYER | HS_CASE_BIAS },                    \
        { HS_F16, HS_F16, HS_F16, n, c, .options = HS_CASE_LAYER | HS_CASE_BIAS | HS_CASE_ACCUMULATE },  \
        { HS_F32, HS_F32, HS_F32, n, c, .options = 0 },                                                  \
        { HS_F32, HS_F32, HS_BF16, n, c, .options = HS_CASE_ACCUMULATE },                                \
        { HS_BF16, HS_BF16, HS_BF16, n, c, .options = HS_CASE_ACCUMULATE },                              \
    {                                                                                                    \
        HS_F16, HS_F16, HS_F16, n, c, .options = 0                                                       \
    }

/* What a product wants in addition to dx; of an f32 dy the copy is in bf16. */
#define FINISHED(n, c)                                                                                                      \
    { HS_F32, HS_F32, HS_BF16, n, c, .sums = true, .options = HS_CASE_LAYER | HS_CASE_BIAS | HS_CASE_ACCUMULATE },          \
        { HS_F32, HS_F32, HS_F16, n, c, .sums = true, .options = HS_CASE_LAYER | HS_CASE_BIAS },                            \
        { HS_F32, HS_F32, HS_BF16, n, c, .sums = true, .options = HS_CASE_ACCUMULATE },                                     \
        { HS_F32, HS_F32, HS_BF16, n, c, .sums = true, .options = HS_CASE_LAYER | HS_CASE_ACCUMULATE | HS_CASE_UNALIGNED }, \
    {                                                                                                                       \
        HS_F32, HS_F32, HS_F32, n, c, .sums = true, .options = HS_CASE_LAYER | HS_CASE_ACCUMULATE                           \
    }

/* The branch's gradient in addition to dx, in dy's format, with dropout or, as evaluation has it, none. */
#define MASKED(n, c)                                                                                               \
    { HS_F32, HS_F32, HS_BF16, n, c, .start = 3, .dropout = 0.2f, .options = HS_CASE_LAYER | HS_CASE_ACCUMULATE }, \
        { HS_F32, HS_F32, HS_F16, n, c, .dropout = 0.5f, .options = HS_CASE_LAYER | HS_CASE_BIAS },                \
        { HS_F32, HS_F32, HS_F32, n, c, .start = 5, .dropout = 0.1f, .options = HS_CASE_ACCUMULATE },              \
        { HS_F32, HS_F32, HS_BF16, n, c, .dropout = 0.3f, .options = HS_CASE_ACCUMULATE | HS_CASE_UNALIGNED },     \
    {                                                                                                              \
        HS_BF16, HS_BF16, HS_BF16, n, c, .dropout = 0.2f, .options = HS_CASE_LAYER | HS_CASE_BIAS                  \
    }

/* Of a branch in 16 bits whose norm is added to an f32 stream. */
#define OF_BRANCH(n, c)                                                                                 \
    { HS_BF16, HS_BF16, HS_F32, n, c, .options = HS_CASE_LAYER | HS_CASE_BIAS },                        \
        { HS_F16, HS_F16, HS_F32, n, c, .options = 0 },                                                 \
        { HS_F16, HS_F16, HS_F32, n, c, .options = HS_CASE_LAYER | HS_CASE_BIAS | HS_CASE_ACCUMULATE }, \
        { HS_BF16, HS_BF16, HS_F32, n, c, .unweighted = true, .options = HS_CASE_ACCUMULATE },          \
        { HS_BF16, HS_BF16, HS_F32, n, c, .dropout = 0.2f, .options = HS_CASE_LAYER },                  \
    {                                                                                                   \
        HS_BF16, HS_BF16, HS_F32, n, c, .options = HS_CASE_UNALIGNED                                    \
    }

#define UNWEIGHTED_BACKWARD(n, c)                                                                           \
    { HS_F32, HS_F32, HS_F32, n, c, .unweighted = true, .options = HS_CASE_LAYER },                         \
        { HS_F32, HS_F32, HS_BF16, n, c, .unweighted = true, .options = HS_CASE_ACCUMULATE },               \
        { HS_F16, HS_F16, HS_F16, n, c, .unweighted = true, .options = HS_CASE_LAYER | HS_CASE_UNALIGNED }, \
        { HS_F32, HS_F32, HS_BF16, n, c, .sums = true, .unweighted = true, .options = HS_CASE_ACCUMULATE }, \
        { HS_F32, HS_F32, HS_F16, n, c, .sums = true, .unweighted = true, .options = HS_CASE_LAYER },       \
    {                                                                                                       \
        HS_F32, HS_F32, HS_BF16, n, c, .unweighted = true, .dropout = 0.2f, .options = HS_CASE_ACCUMULATE   \
    }

/* dx_rounded is left in codes: as kernels leave it, then where those are a pass apart. */
#define CAST_BACKWARD_OF(gradient, n, c, format, ...)                                                        \
    {                                                                                                        \
        HS_F32, HS_F32, gradient, n, c, .sums = true, .cast = format, .options = HS_CASE_LAYER | __VA_ARGS__ \
    }
#define CAST_BACKWARD(n, c)                                                                                       \
    CAST_BACKWARD_OF(HS_BF16, n, c, HS_E5M2, HS_CASE_BIAS | HS_CASE_ACCUMULATE),                                  \
        CAST_BACKWARD_OF(HS_BF16, n, c, HS_E5M2, 0, .unweighted = true),                                          \
        CAST_BACKWARD_OF(HS_BF16, n, c, HS_E4M3, HS_CASE_ACCUMULATE), CAST_BACKWARD_OF(HS_F32, n, c, HS_E5M2, 0), \
        CAST_BACKWARD_OF(HS_BF16, n, c, HS_E5M2, HS_CASE_ACCUMULATE | HS_CASE_UNALIGNED)

static const HsCase backward_cases[] = {
    BACKWARD(1, 1),
    BACKWARD(2, 2),
    BACKWARD(3, 7),
    BACKWARD(7, 17),
    BACKWARD(17, 63),
    BACKWARD(64, 64),
    BACKWARD(65, 127),
    BACKWARD(3, 129),
    BACKWARD(700, 33),
    BACKWARD(5, 1030),
    BACKWARD(21, 100),
    BACKWARD(37, 256),
    BACKWARD(19, 512),
    BACKWARD(37, 520),
    BACKWARD(3, 513),
    BACKWARD(18, 1032),
    BACKWARD(17, 2056),
    BACKWARD(1, 8192),
    BACKWARD(18, 8200),
    BACKWARD(2, 8193),
    BACKWARD(35, 768),
    FINISHED(1, 1),
    FINISHED(3, 7),
    FINISHED(65, 127),
    FINISHED(700, 33),
    FINISHED(21, 100),
    FINISHED(37, 256),
    FINISHED(19, 512),
    FINISHED(37, 520),
    FINISHED(530, 768),
    FINISHED(18, 1032),
    FINISHED(17, 2056),
    FINISHED(18, 8200),
    MASKED(1, 4),
    MASKED(3, 7),
    MASKED(65, 127),
    MASKED(700, 36),
    MASKED(21, 100),
    MASKED(37, 256),
    MASKED(19, 512),
    MASKED(37, 520),
    MASKED(530, 768),
    MASKED(18, 1032),
    MASKED(17, 2056),
    MASKED(18, 8200),
    OF_BRANCH(1, 4),
    OF_BRANCH(3, 7),
    OF_BRANCH(65, 127),
    OF_BRANCH(37, 256),
    OF_BRANCH(37, 520),
    OF_BRANCH(35, 768),
    OF_BRANCH(18, 1032),
    OF_BRANCH(18, 8200),
    UNWEIGHTED_BACKWARD(1, 4),
    UNWEIGHTED_BACKWARD(3, 7),
    UNWEIGHTED_BACKWARD(65, 127),
    UNWEIGHTED_BACKWARD(37, 256),
    UNWEIGHTED_BACKWARD(35, 768),
    UNWEIGHTED_BACKWARD(18, 1032),
    UNWEIGHTED_BACKWARD(18, 8200),
    CAST_BACKWARD(1, 4),
    CAST_BACKWARD(3, 7),
    CAST_BACKWARD(700, 36),
    CAST_BACKWARD(37, 256),
    CAST_BACKWARD(37, 520),
    CAST_BACKWARD(530, 768),
    CAST_BACKWARD(18, 1032),
    CAST_BACKWARD(17, 2056),
    CAST_BACKWARD(18, 8200),
};

/* Statistics need not belong to x: the formula takes them as given. */
static void declare_backward(HsTrial *trial)
{
    const HsCase *config = trial->config;
    const HsTensor rows = hs_tensor_1d(NULL, HS_F32, config->rows);
    const HsTensor columns = hs_tensor_1d(NULL, HS_F32, config->columns);
    HsTrialOperand *operands = trial->operands;
    operands[B_DY] = hs_input("dy", 1.0, hs_tensor_2d(NULL, config->other, config->rows, config->columns));
    operands[B_X] = hs_input("x", 2.0, hs_tensor_2d(NULL, config->dtype, config->rows, config->columns));
    if (!config->unweighted)
        operands[B_WEIGHT] = hs_input("weight", 1.0, columns);
    if (hs_case_has(trial, HS_CASE_LAYER))
        operands[B_MEAN] = hs_input("mean", 0.2, rows);
    operands[B_RSTD] = hs_filled(hs_input("rstd", 0.5, rows), HS_FILL_POSITIVE);
    const HsTensor dx = hs_tensor_2d(NULL, config->out, config->rows, config->columns);
    operands[B_DX] = hs_case_has(trial, HS_CASE_ACCUMULATE) ? hs_updated("dx", 1.0, dx) : hs_output("dx", dx);
    if (!config->unweighted)
        operands[B_DWEIGHT] = hs_updated("dweight", 1.0, columns);
    if (hs_case_has(trial, HS_CASE_BIAS))
        operands[B_DBIAS] = hs_updated("dbias", 1.0, columns);
    if (config->dropout > 0.0f)
        operands[B_DX_MASKED] =
            hs_output("dx_masked", hs_tensor_2d(NULL, config->other, config->rows, config->columns));
    if (!hs_case_casts(config))
        hs_trial_ask_amax(trial, config->dropout > 0.0f ? B_DX_MASKED : config->sums ? B_DX_ROUNDED : B_DX);
    if (!config->sums)
        return;
    const HsDtype rounded = config->other == HS_F32 ? HS_BF16 : config->other;
    operands[B_DX_ROUNDED] = hs_output("dx_rounded", hs_tensor_2d(NULL, rounded, config->rows, config->columns));
    operands[B_DX_SUMS] = hs_updated("dx_sums", 1.0, columns);
    if (hs_case_casts(config))
        hs_trial_declare_cast(trial, B_CODES, &operands[B_DX_ROUNDED].tensor);
}

static HsStatus prepare_backward(HsTrial *trial, HsContext *reference)
{
    (void)reference;
    hs_trial_prepare_cast(trial, B_CODES);
    return HS_OK;
}

static HsStatus follow_backward(HsTrial *trial, HsContext *reference, void *const *stored)
{
    return hs_trial_follow_cast(trial, reference, stored, B_DX_ROUNDED, B_CODES);
}

static double bytes_backward(const HsTrial *trial, const HsContext *context)
{
    (void)context;
    return hs_trial_bytes(trial) -
           (hs_case_casts(trial->config) ? hs_operand_bytes(&trial->operands[B_DX_ROUNDED]) : 0.0);
}

static HsStatus call_backward(HsTrial *trial, HsContext *context, const HsTensor *t)
{
    const bool casts = hs_case_casts(trial->config) && t[B_DX].dtype != HS_F64;
    HsNormBackwardArgs args = { .kind = hs_case_has(trial, HS_CASE_LAYER) ? HS_NORM_LAYER : HS_NORM_RMS,
                                .dy = t[B_DY],
                                .x = t[B_X],
                                .weight = t[B_WEIGHT],
                                .mean = t[B_MEAN],
                                .rstd = t[B_RSTD],
                                .accumulate = hs_case_has(trial, HS_CASE_ACCUMULATE),
                                .dx = t[B_DX],
                                .dweight = t[B_DWEIGHT],
                                .dbias = t[B_DBIAS],
                                .dx_rounded = t[B_DX_ROUNDED],
                                .dx_sums = t[B_DX_SUMS],
                                .probability = trial->config->dropout,
                                .rng = { trial->seed, 11, 5, trial->config->start, NULL } };
    if (trial->config->dropout > 0.0f)
        args.dx_masked = t[B_DX_MASKED];
    if (casts)
        args.cast = hs_trial_cast(trial, t, B_DX_ROUNDED, B_CODES);
    HS_TRY(hs_op_norm_backward(context, &args));
    /* What is cast may not be stored: it is dx, which is, rounded. */
    return casts ? hs_op_convert(context, &(HsConvertArgs){ .x = args.dx, .y = args.dx_rounded }) : HS_OK;
}

/* |xhat| without cancellation. */
static double spread_of(const HsTrial *trial, int64_t row, int64_t column)
{
    const double mean = hs_operand_present(trial, B_MEAN) ? fabs(hs_initial(trial, B_MEAN)[row]) : 0.0;
    return (fabs(hs_initial(trial, B_X)[row * trial->config->columns + column]) + mean) *
           hs_initial(trial, B_RSTD)[row];
}

/* Both see dx as it is stored. */
static void bound_finished(HsTrial *trial)
{
    const int64_t rows = trial->config->rows, columns = trial->config->columns;
    const HsTrialOperand *dx = &trial->operands[B_DX];
    for (int64_t c = 0; trial->config->sums && c < columns; c++) {
        double magnitude = fabs(hs_initial(trial, B_DX_SUMS)[c]), passed_on = 0.0;
        for (int64_t n = 0; n < rows; n++) {
            const int64_t i = n * columns + c;
            const double exact = fabs(hs_exact(trial, B_DX)[i]);
            const double error = dx->error[i] + hs_tolerance(0, 0, HS_F32, HS_F32, 0.0, exact + dx->error[i]);
            trial->operands[B_DX_ROUNDED].error[i] = error;
            passed_on += error;
            magnitude += exact + error;
        }
        trial->operands[B_DX_SUMS].error[c] = passed_on + hs_gamma(rows) * magnitude;
    }
}

/* dx as it is stored, times 1 / (1 - p) or 0: three roundings more. */
static void bound_masked(HsTrial *trial)
{
    const HsTrialOperand *dx = &trial->operands[B_DX];
    const double factor = 1.0 / (1.0 - (double)trial->config->dropout);
    for (int64_t i = 0; hs_operand_present(trial, B_DX_MASKED) && i < hs_tensor_count(&dx->tensor); i++) {
        const double exact = fabs(hs_exact(trial, B_DX)[i]);
        const double error = dx->error[i] + hs_tolerance(0, 0, HS_F32, dx->tensor.dtype, 0.0, exact + dx->error[i]);
        trial->operands[B_DX_MASKED].error[i] = factor * (error + hs_gamma(3) * (exact + error));
    }
}

static double weight_size(const HsTrial *trial, int64_t column)
{
    return hs_operand_present(trial, B_WEIGHT) ? fabs(hs_initial(trial, B_WEIGHT)[column]) : 1.0;
}

static void bound_parameters(HsTrial *trial)
{
    const int64_t rows = trial->config->rows, columns = trial->config->columns;
    const double *dy = hs_initial(trial, B_DY);
    for (int64_t c = 0; hs_operand_present(trial, B_DWEIGHT) && c < columns; c++) {
        double dweight = fabs(hs_initial(trial, B_DWEIGHT)[c]), dbias = 0.0;
        for (int64_t n = 0; n < rows; n++) {
            dweight += fabs(dy[n * columns + c]) * spread_of(trial, n, c);
            dbias += fabs(dy[n * columns + c]);
        }
        trial->operands[B_DWEIGHT].error[c] = hs_gamma(rows + 5) * dweight;
        if (hs_operand_present(trial, B_DBIAS))
            trial->operands[B_DBIAS].error[c] = hs_gamma(rows) * (dbias + fabs(hs_initial(trial, B_DBIAS)[c]));
    }
}

/* dx is a sum of three terms, two of them products with sums over C: gamma(C + 10) on the absolute values of all. */
static void bound_backward(HsTrial *trial)
{
    const int64_t rows = trial->config->rows, columns = trial->config->columns;
    const double *dy = hs_initial(trial, B_DY);
    HsTrialOperand *dx = &trial->operands[B_DX];
    for (int64_t n = 0; n < rows; n++) {
        double mean_g = 0.0, mean_g_xhat = 0.0;
        for (int64_t c = 0; c < columns; c++) {
            const double g = weight_size(trial, c) * fabs(dy[n * columns + c]) / (double)columns;
            mean_g += hs_case_has(trial, HS_CASE_LAYER) ? g : 0.0;
            mean_g_xhat += g * spread_of(trial, n, c);
        }
        for (int64_t c = 0; c < columns; c++) {
            const int64_t i = n * columns + c;
            const double g = weight_size(trial, c) * fabs(dy[i]), rstd = hs_initial(trial, B_RSTD)[n];
            const double magnitude = rstd * (g + mean_g + spread_of(trial, n, c) * mean_g_xhat);
            const double previous = hs_case_has(trial, HS_CASE_ACCUMULATE) ? fabs(dx->initial[i]) : 0.0;
            dx->error[i] = hs_gamma(columns + 10) * magnitude + hs_gamma(1) * previous;
        }
    }
    bound_parameters(trial);
    bound_finished(trial);
    bound_masked(trial);
}

static const HsCase backward_timed[] = {
    { HS_F32, HS_F32, HS_BF16, 4096, 768, .options = HS_CASE_LAYER | HS_CASE_BIAS | HS_CASE_ACCUMULATE },
    { HS_F32, HS_F32, HS_BF16, 4096, 768, .sums = true, .options = HS_CASE_LAYER | HS_CASE_BIAS | HS_CASE_ACCUMULATE },
    { HS_F32, HS_F32, HS_F32, 4096, 768, .options = HS_CASE_LAYER | HS_CASE_BIAS | HS_CASE_ACCUMULATE },
    { HS_F16, HS_F16, HS_F16, 4096, 768, .options = HS_CASE_LAYER | HS_CASE_BIAS | HS_CASE_ACCUMULATE },
    { HS_F32, HS_F32, HS_BF16, 4096, 768, .dropout = 0.1f,
      .options = HS_CASE_LAYER | HS_CASE_BIAS | HS_CASE_ACCUMULATE },
};

const HsOpTest hs_op_test_norm_backward = {
    .cases = backward_cases,
    .case_count = HS_COUNT_OF(backward_cases),
    .timed = backward_timed,
    .timed_count = HS_COUNT_OF(backward_timed),
    .declare = declare_backward,
    .prepare = prepare_backward,
    .bytes = bytes_backward,
    .bound = bound_backward,
    .call = call_backward,
    .follow = follow_backward,
};
