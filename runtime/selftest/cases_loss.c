/* SPDX-License-Identifier: MIT
 *
 * Cases of the cross-entropy: odd vocabularies, ignored targets, z-loss, gradient in place, logits too large for exp,
 * logits of 16 bits.
 */
#include "runtime/selftest/trial.h"

#include <math.h>

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
    const double spread = hs_case_has(trial, HS_CASE_HUGE) ? 200.0 : 3.0;
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
                               .targets = t[TARGETS],
                               .z_loss = z_of(trial),
                               .gradient_scale = t[SCALE].data,
                               .losses = t[LOSSES],
                               .dlogits = hs_case_has(trial, HS_CASE_GRADIENT) ? t[gradient_of(trial)] : absent });
}

/* The exact lse of a row, and how far off f32 may be: each exponent l - max is rounded (u (|l| + |max|)) and its
 * exponential is a function's roundings off, the sum gathers V terms, the logarithm and the last addition round again.
 */
typedef struct HsLossRow {
    double lse, error;
} HsLossRow;

static HsLossRow analyse_row(const double *logits, int64_t count)
{
    double maximum = -INFINITY, largest = 0.0, total = 0.0;
    for (int64_t v = 0; v < count; v++) {
        maximum = fmax(maximum, logits[v]);
        largest = fmax(largest, fabs(logits[v]));
    }
    for (int64_t v = 0; v < count; v++)
        total += exp(logits[v] - maximum);
    const double lse = maximum + log(total);
    /* a rescaled running sum takes two more roundings a term */
    const double error = hs_gamma(2) * largest + hs_gamma(3 * count + HS_FUNCTION_ROUNDINGS) +
                         hs_gamma(HS_FUNCTION_ROUNDINGS + 1) * (fabs(lse) + log(total));
    return (HsLossRow){ lse, error };
}

static void bound(HsTrial *trial)
{
    const int64_t columns = trial->config->columns;
    const int32_t *targets = trial->operands[TARGETS].exact.data;
    const double scale = (double)*(const float *)trial->operands[SCALE].exact.data, z = (double)z_of(trial);
    for (int64_t n = 0; n < trial->config->rows; n++) {
        if (targets[n] < 0)
            continue; /* exact zeros */
        const double *logits = hs_initial(trial, LOGITS) + n * columns;
        const HsLossRow row = analyse_row(logits, columns);
        trial->operands[LOSSES].error[n] = row.error + hs_gamma(1) * (fabs(row.lse) + fabs(logits[targets[n]]));
        for (int64_t v = 0; hs_case_has(trial, HS_CASE_GRADIENT) && v < columns; v++) {
            const double exponent_error =
                row.error + hs_gamma(2) * (fabs(logits[v]) + fabs(row.lse)) + hs_gamma(HS_FUNCTION_ROUNDINGS);
            const double p = exp(logits[v] - row.lse), pull = 1.0 + 2.0 * z * fabs(row.lse);
            const double magnitude = pull * p + (v == targets[n] ? 1.0 : 0.0);
            trial->operands[gradient_of(trial)].error[n * columns + v] =
                scale * (pull * p * expm1(exponent_error) + 2.0 * z * row.error * p + hs_gamma(6) * magnitude);
        }
    }
}

static const HsCase loss_timed[] = {
    { HS_F32, HS_BF16, HS_F32, 512, 50304, .options = HS_CASE_GRADIENT },
    { HS_F32, HS_F32, HS_F32, 512, 50304, .options = HS_CASE_GRADIENT },
    { HS_F32, HS_F16, HS_F32, 512, 50304, .options = HS_CASE_GRADIENT },
    { HS_BF16, HS_BF16, HS_BF16, 512, 50304, .options = HS_CASE_GRADIENT | HS_CASE_IN_PLACE },
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
