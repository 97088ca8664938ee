/* SPDX-License-Identifier: MIT
 *
 * Cases of the cross-entropy: odd vocabularies, ignored targets, z-loss, gradient in place, logits too large for exp,
 * logits of 16 bits, capped logits.
 */
#include "runtime/selftest/bounds.h"

/* rows N, columns V; dtype: logits; out: dlogits */
#define LOSS(n, v)                                                                                                 \
    { HS_F32, HS_F32, HS_F32, n, v, .options = 0 }, { HS_F32, HS_F32, HS_F32, n, v, .options = HS_CASE_GRADIENT }, \
        { HS_F32, HS_BF16, HS_F32, n, v, .options = HS_CASE_GRADIENT },                                            \
        { HS_F32, HS_F16, HS_F32, n, v, .options = HS_CASE_GRADIENT | HS_CASE_Z_LOSS },                            \
        { HS_F32, HS_F32, HS_F32, n, v, .options = HS_CASE_GRADIENT | HS_CASE_IN_PLACE | HS_CASE_Z_LOSS },         \
    {                                                                                                              \
        HS_F32, HS_BF16, HS_F32, n, v, .options = HS_CASE_GRADIENT | HS_CASE_HUGE                                  \
    }

#define NARROW_LOSS(half, n, v)                                                                        \
    { half, half, half, n, v, .options = 0 }, { half, half, half, n, v, .options = HS_CASE_GRADIENT }, \
        { half, half, half, n, v, .options = HS_CASE_GRADIENT | HS_CASE_IN_PLACE | HS_CASE_Z_LOSS },   \
    {                                                                                                  \
        half, half, half, n, v, .options = HS_CASE_GRADIENT | HS_CASE_IN_PLACE | HS_CASE_HUGE          \
    }
#define NARROW_LOSSES(n, v) NARROW_LOSS(HS_BF16, n, v), NARROW_LOSS(HS_F16, n, v)

/* Numbers of up to some five times the cap; the last one's are all far below it. */
#define CAPPED_LOSS(n, v)                                                                                             \
    { HS_F32, HS_F32, HS_F32, n, v, .cap = 30 },                                                                      \
        { HS_F32, HS_F32, HS_F32, n, v, .cap = 30, .options = HS_CASE_GRADIENT },                                     \
        { HS_F32, HS_BF16, HS_F32, n, v, .cap = 30, .options = HS_CASE_GRADIENT | HS_CASE_Z_LOSS },                   \
        { HS_F32, HS_F16, HS_F32, n, v, .cap = 30, .options = HS_CASE_GRADIENT },                                     \
        { HS_F32, HS_F32, HS_F32, n, v, .cap = 30, .options = HS_CASE_GRADIENT | HS_CASE_IN_PLACE | HS_CASE_Z_LOSS }, \
    {                                                                                                                 \
        HS_F32, HS_F32, HS_F32, n, v, .cap = 2000, .options = HS_CASE_GRADIENT                                        \
    }
#define NARROW_CAPPED_LOSS(half, n, v)                                                                     \
    { half, half, half, n, v, .cap = 30, .options = HS_CASE_GRADIENT },                                    \
    {                                                                                                      \
        half, half, half, n, v, .cap = 30, .options = HS_CASE_GRADIENT | HS_CASE_IN_PLACE | HS_CASE_Z_LOSS \
    }
#define CAPPED_LOSSES(n, v) CAPPED_LOSS(n, v), NARROW_CAPPED_LOSS(HS_BF16, n, v), NARROW_CAPPED_LOSS(HS_F16, n, v)

static const HsCase loss_cases[] = {
    LOSS(1, 1),
    LOSS(2, 2),
    LOSS(3, 7),
    LOSS(7, 17),
    LOSS(17, 63),
    LOSS(5, 64),
    LOSS(9, 65),
    LOSS(3, 127),
    LOSS(2, 129),
    LOSS(70, 300),
    LOSS(4, 5003),
    LOSS(260, 37),
    /* a GPU's block takes several rows, which are longer than its threads reach at once; and a row that fits no GPU's
       shared memory */
    LOSS(23, 17001),
    LOSS(2, 60001),
    /* rows and gradients that begin at different places of a pack */
    { HS_F32, HS_F32, HS_F32, 5, 66, .options = HS_CASE_GRADIENT | HS_CASE_UNALIGNED },
    { HS_F32, HS_BF16, HS_F32, 5, 64, .options = HS_CASE_GRADIENT | HS_CASE_UNALIGNED },
    { HS_F32, HS_F32, HS_F32, 5, 67, .options = HS_CASE_GRADIENT | HS_CASE_IN_PLACE | HS_CASE_UNALIGNED },
    NARROW_LOSSES(1, 1),
    NARROW_LOSSES(3, 7),
    NARROW_LOSSES(7, 17),
    NARROW_LOSSES(5, 64),
    NARROW_LOSSES(70, 300),
    NARROW_LOSSES(4, 5003),
    /* more than one group a thread, and a row that no GPU's shared memory holds */
    NARROW_LOSSES(13, 33001),
    NARROW_LOSS(HS_BF16, 2, 120003),
    { HS_BF16, HS_BF16, HS_BF16, 5, 67, .options = HS_CASE_GRADIENT | HS_CASE_UNALIGNED },
    { HS_F16, HS_F16, HS_F16, 5, 72, .options = HS_CASE_GRADIENT | HS_CASE_IN_PLACE | HS_CASE_UNALIGNED },
    CAPPED_LOSSES(1, 1),
    CAPPED_LOSSES(3, 7),
    CAPPED_LOSSES(17, 63),
    CAPPED_LOSSES(9, 65),
    CAPPED_LOSSES(70, 300),
    CAPPED_LOSSES(4, 5003),
    CAPPED_LOSSES(13, 33001),
    CAPPED_LOSS(2, 60001),
    NARROW_CAPPED_LOSS(HS_BF16, 2, 120003),
    { HS_F32, HS_F32, HS_F32, 5, 66, .cap = 30, .options = HS_CASE_GRADIENT | HS_CASE_HUGE },
    { HS_F32, HS_BF16, HS_F32, 5, 64, .cap = 30, .options = HS_CASE_GRADIENT | HS_CASE_UNALIGNED },
    { HS_BF16, HS_BF16, HS_BF16, 5, 67, .cap = 30, .options = HS_CASE_GRADIENT | HS_CASE_UNALIGNED },
    { HS_F16, HS_F16, HS_F16, 5, 72, .cap = 30, .options = HS_CASE_GRADIENT | HS_CASE_IN_PLACE | HS_CASE_UNALIGNED },
};

enum { LOGITS, TARGETS, SCALE, LOSSES, DLOGITS };

static const float z_coefficient = 1e-2f;

static float z_of(const HsTrial *trial)
{
    return hs_case_has(trial, HS_CASE_Z_LOSS) ? z_coefficient : 0.0f;
}

static int gradient_of(const HsTrial *trial)
{
    return hs_case_has(trial, HS_CASE_IN_PLACE) ? LOGITS : DLOGITS;
}

static void declare(HsTrial *trial)
{
    const HsCase *config = trial->config;
    const bool wants = hs_case_has(trial, HS_CASE_GRADIENT), in_place = hs_case_has(trial, HS_CASE_IN_PLACE);
    const HsTensor logits = hs_tensor_2d(NULL, config->dtype, config->rows, config->columns);
    const double spread = hs_case_has(trial, HS_CASE_HUGE) ? 200.0 : config->cap > 0.0f ? 50.0 : 3.0;
    HsTrialOperand *operands = trial->operands;
    operands[LOGITS] = in_place ? hs_updated("logits", spread, logits) : hs_input("logits", spread, logits);
    operands[TARGETS] = hs_filled(
        hs_input("targets", (double)config->columns, hs_tensor_1d(NULL, HS_I32, config->rows)), HS_FILL_TARGET);
    operands[SCALE] = hs_filled(hs_input("gradient_scale", 1.0, hs_tensor_1d(NULL, HS_F32, 1)), HS_FILL_POSITIVE);
    operands[SCALE].as_is = true;
    operands[LOSSES] = hs_output("losses", hs_tensor_1d(NULL, HS_F32, config->rows));
    if (wants && !in_place)
        operands[DLOGITS] = hs_output("dlogits", hs_tensor_2d(NULL, config->out, config->rows, config->columns));
}

static HsStatus call(HsTrial *trial, HsContext *context, const HsTensor *t)
{
    const HsTensor absent = { 0 };
    return hs_op_cross_entropy(
        context,
        &(HsCrossEntropyArgs){ .logits = t[LOGITS],
                               .cap = trial->config->cap,
                               .targets = t[TARGETS],
                               .z_loss = z_of(trial),
                               .gradient_scale = t[SCALE].data,
                               .losses = t[LOSSES],
                               .dlogits = hs_case_has(trial, HS_CASE_GRADIENT) ? t[gradient_of(trial)] : absent });
}

/* The exact lse of a row, and how far off f32 may be: each exponent l - max is rounded (u (|l| + |max|)) and its
 * exponential is a function's roundings off, the sum gathers V terms, the logarithm and the last addition round again.
 * An error of all logits, of capped ones, is one of the lse. */
typedef struct HsLossRow {
    double lse, error;
} HsLossRow;

static HsLossRow analyse_row(const double *stored, float cap, int64_t count)
{
    double maximum = -INFINITY, largest = 0.0, total = 0.0, capping = 0.0, error_of_cap;
    for (int64_t v = 0; v < count; v++) {
        const double logit = hs_bound_cap(cap, stored[v], &error_of_cap);
        maximum = fmax(maximum, logit);
        largest = fmax(largest, fabs(logit));
        capping = fmax(capping, error_of_cap);
    }
    for (int64_t v = 0; v < count; v++)
        total += exp(hs_bound_cap(cap, stored[v], &error_of_cap) - maximum);
    const double lse = maximum + log(total);
    /* a rescaled running sum takes two more roundings a term */
    const double error = capping + hs_gamma(2) * largest + hs_gamma(3 * count + HS_FUNCTION_ROUNDINGS) +
                         hs_gamma(HS_FUNCTION_ROUNDINGS + 1) * (fabs(lse) + log(total));
    return (HsLossRow){ lse, error };
}

/* Of one element of the gradient, over its scale, from the number x that is stored.  With a cap two numbers on the way
 * may be subnormal, too: p, which pull multiplies, and pull p; each is off by half of the smallest one. */
static double gradient_error(const HsTrial *trial, const HsLossRow *row, double x, bool is_target)
{
    const double z = (double)z_of(trial), flushed = 0x1p-117;
    double cap_error, slope_error;
    const double logit = hs_bound_cap(trial->config->cap, x, &cap_error);
    const double slope = hs_bound_cap_slope(trial->config->cap, x, &slope_error);
    const double exponent_error =
        cap_error + row->error + hs_gamma(2) * (fabs(logit) + fabs(row->lse)) + hs_gamma(HS_FUNCTION_ROUNDINGS);
    const double p = exp(logit - row->lse), pull = 1.0 + 2.0 * z * fabs(row->lse);
    const double magnitude = pull * p + (is_target ? 1.0 : 0.0);
    const double error = pull * p * expm1(exponent_error) + 2.0 * z * row->error * p + hs_gamma(6) * magnitude;
    if (!(trial->config->cap > 0.0f))
        return error;
    return slope * (error + slope_error * (magnitude + error)) + flushed * magnitude + (pull + 4.0) * 0x1p-150;
}

static void bound(HsTrial *trial)
{
    const int64_t columns = trial->config->columns;
    const int32_t *targets = trial->operands[TARGETS].exact.data;
    const double scale = (double)*(const float *)trial->operands[SCALE].exact.data;
    double cap_error;
    for (int64_t n = 0; n < trial->config->rows; n++) {
        if (targets[n] < 0)
            continue; /* exact zeros */
        const double *stored = hs_initial(trial, LOGITS) + n * columns;
        const HsLossRow row = analyse_row(stored, trial->config->cap, columns);
        const double target = hs_bound_cap(trial->config->cap, stored[targets[n]], &cap_error);
        trial->operands[LOSSES].error[n] = row.error + cap_error + hs_gamma(1) * (fabs(row.lse) + fabs(target));
        for (int64_t v = 0; hs_case_has(trial, HS_CASE_GRADIENT) && v < columns; v++)
            trial->operands[gradient_of(trial)].error[n * columns + v] =
                scale * gradient_error(trial, &row, stored[v], v == targets[n]);
    }
}

static const HsCase loss_timed[] = {
    { HS_F32, HS_BF16, HS_F32, 512, 50304, .options = HS_CASE_GRADIENT },
    { HS_F32, HS_F32, HS_F32, 512, 50304, .options = HS_CASE_GRADIENT },
    { HS_F32, HS_F16, HS_F32, 512, 50304, .options = HS_CASE_GRADIENT },
    { HS_BF16, HS_BF16, HS_BF16, 512, 50304, .options = HS_CASE_GRADIENT | HS_CASE_IN_PLACE },
    { HS_F32, HS_BF16, HS_F32, 512, 50304, .cap = 30, .options = HS_CASE_GRADIENT },
};

const HsOpTest hs_op_test_cross_entropy = {
    .cases = loss_cases,
    .case_count = HS_COUNT_OF(loss_cases),
    .timed = loss_timed,
    .timed_count = HS_COUNT_OF(loss_timed),
    .declare = declare,
    .bound = bound,
    .call = call,
};
