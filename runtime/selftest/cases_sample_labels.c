/* SPDX-License-Identifier: MIT
 *
 * Cases of sampled labels.  A label is a choice: with C_v the exact cumulated probability of the labels up to v, and
 * `error` what rounding may move it by, a backend may choose v where
 *     C_(v-1) - error <= uniform < C_v + error,
 * which is the reference's v alone unless the uniform number lies within `error` of a boundary.
 */
#include "runtime/selftest/bounds.h"

#define SAMPLE(n, v)                                                                               \
    { HS_F32, HS_I32, HS_F32, n, v, .options = 0 }, { HS_F32, HS_I32, HS_F32, n, v, .start = 40 }, \
    {                                                                                              \
        HS_F32, HS_I32, HS_F32, n, v, .options = HS_CASE_HUGE                                      \
    }

static const HsCase sample_cases[] = {
    SAMPLE(3, 1),
    SAMPLE(50, 2),
    SAMPLE(90, 7),
    SAMPLE(170, 17),
    SAMPLE(63, 63),
    SAMPLE(65, 64),
    SAMPLE(64, 65),
    SAMPLE(9, 511),
    SAMPLE(90, 513),
    SAMPLE(70, 300),
    SAMPLE(40, 5003),
    SAMPLE(3, 60001),
    { HS_F32, HS_I32, HS_F32, 9, 260, .options = HS_CASE_UNALIGNED },
    { HS_BF16, HS_I32, HS_F32, 90, 7, .options = 0 },
    { HS_BF16, HS_I32, HS_F32, 70, 300, .options = 0 },
    { HS_F16, HS_I32, HS_F32, 90, 513, .options = 0 },
    { HS_F16, HS_I32, HS_F32, 40, 5003, .options = HS_CASE_HUGE },
    { HS_BF16, HS_I32, HS_F32, 9, 260, .options = HS_CASE_UNALIGNED },
    { HS_F32, HS_I32, HS_F32, 70, 300, .start = 40, .options = HS_CASE_POSITIONS },
    { HS_F32, HS_I32, HS_F32, 3, 1, .cap = 30 },
    { HS_F32, HS_I32, HS_F32, 90, 7, .cap = 30 },
    { HS_F32, HS_I32, HS_F32, 64, 65, .cap = 30, .options = HS_CASE_HUGE },
    { HS_F32, HS_I32, HS_F32, 9, 511, .cap = 2000 },
    { HS_F32, HS_I32, HS_F32, 40, 5003, .cap = 30 },
    { HS_F32, HS_I32, HS_F32, 3, 60001, .cap = 5 },
    { HS_F32, HS_I32, HS_F32, 9, 260, .cap = 30, .options = HS_CASE_UNALIGNED },
    { HS_BF16, HS_I32, HS_F32, 70, 300, .cap = 30 },
    { HS_F16, HS_I32, HS_F32, 90, 513, .cap = 30 },
    { HS_F32, HS_I32, HS_F32, 70, 300, .start = 40, .cap = 30, .options = HS_CASE_POSITIONS },
};

enum { LOGITS, TARGETS, NUMBERS };

static HsRng rng_of(const HsTrial *trial)
{
    return (HsRng){ .seed = trial->seed, .step = 11, .site = 5, .row_offset = trial->config->start };
}

static void declare(HsTrial *trial)
{
    const HsCase *config = trial->config;
    const double spread = hs_case_has(trial, HS_CASE_HUGE) ? 200.0 : config->cap > 0.0f ? 50.0 : 2.0;
    trial->operands[LOGITS] =
        hs_input("logits", spread, hs_tensor_2d(NULL, config->dtype, config->rows, config->columns));
    trial->operands[TARGETS] = hs_filled(
        hs_updated("targets", (double)config->columns, hs_tensor_1d(NULL, HS_I32, config->rows)), HS_FILL_TARGET);
    if (hs_case_has(trial, HS_CASE_POSITIONS))
        trial->operands[NUMBERS] =
            hs_filled(hs_input("rows", 1000.0, hs_tensor_1d(NULL, HS_I32, config->rows)), HS_FILL_INDEX);
}

static HsStatus call(HsTrial *trial, HsContext *context, const HsTensor *t)
{
    return hs_op_sample_labels(context, &(HsSampleLabelsArgs){ .rng = rng_of(trial),
                                                               .logits = t[LOGITS],
                                                               .cap = trial->config->cap,
                                                               .targets = t[TARGETS],
                                                               .rows = t[NUMBERS] });
}

/* Each exponent l - max is rounded, as l is by a cap, and its exponential a function's roundings off; a sum of V
 * positive terms, in any order, is off by gamma_V of itself: together `sum_error` on any running sum, relative to the
 * total.  Both sides of sum > uniform total carry it, and the product rounds once. */
static bool accepts(const HsTrial *trial, int operand, int64_t row, double label)
{
    (void)operand;
    const int64_t count = trial->config->columns;
    const double *stored = hs_initial(trial, LOGITS) + row * count;
    const float cap = trial->config->cap;
    const int32_t before = ((const int32_t *)trial->operands[TARGETS].image)[row];
    if (before < 0 || label < 0 || label >= (double)count)
        return false;
    double maximum = -INFINITY, total = 0.0, below = 0.0, up_to = 0.0, sum_error = 0.0, capping;
    for (int64_t v = 0; v < count; v++)
        maximum = fmax(maximum, stored[v]);
    maximum = hs_bound_cap(cap, maximum, &capping);
    for (int64_t v = 0; v < count; v++) {
        const double logit = hs_bound_cap(cap, stored[v], &capping), e = exp(logit - maximum);
        total += e;
        below += (double)v < label ? e : 0.0;
        up_to += (double)v <= label ? e : 0.0;
        sum_error += e * (expm1(capping + hs_gamma(1) * (maximum - logit)) + hs_gamma(HS_FUNCTION_ROUNDINGS));
    }
    sum_error = sum_error / total + hs_gamma(count);
    const double error = 2.0 * sum_error / (1.0 - sum_error) + hs_gamma(1);
    const HsRng rng = rng_of(trial);
    const int64_t number =
        hs_operand_present(trial, NUMBERS) ? ((const int32_t *)trial->operands[NUMBERS].image)[row] : row;
    const double uniform = (double)hs_rng_uniform(hs_rng_draw(&rng, (uint64_t)(rng.row_offset + number)).word[0]);
    return below / total - error <= uniform && uniform < up_to / total + error;
}

static const HsCase sample_timed[] = {
    { HS_F32, HS_I32, HS_F32, 512, 50304, .options = 0 },
};

const HsOpTest hs_op_test_sample_labels = {
    .cases = sample_cases,
    .case_count = HS_COUNT_OF(sample_cases),
    .timed = sample_timed,
    .timed_count = HS_COUNT_OF(sample_timed),
    .declare = declare,
    .call = call,
    .accepts = accepts,
};
