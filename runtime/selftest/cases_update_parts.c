/* SPDX-License-Identifier: MIT
 *
 * Cases of parts of an update: a matrix brought to one size, and its neurons, before a step; after it, the average.
 */
#include <math.h>
#include <string.h>

#include "runtime/selftest/trial.h"

/* normalize: x in f32, y in out */
#define NORMALIZE(n)                                                                     \
    { HS_F32, HS_F32, HS_F32, .columns = n }, { HS_F32, HS_BF16, HS_F32, .columns = n }, \
    {                                                                                    \
        HS_F32, HS_F16, HS_F32, .columns = n                                             \
    }
static const HsCase normalize_cases[] = { NORMALIZE(1),  NORMALIZE(3),   NORMALIZE(17),
                                          NORMALIZE(64), NORMALIZE(129), NORMALIZE(5000) };

enum { NORMALIZE_X, NORMALIZE_SUM, NORMALIZE_Y };

static void declare_normalize(HsTrial *trial)
{
    const int64_t count = trial->config->columns;
    trial->operands[NORMALIZE_X] = hs_input("x", 1.0, hs_tensor_1d(NULL, HS_F32, count));
    trial->operands[NORMALIZE_SUM] =
        hs_filled(hs_input("sum of squares", (double)count, hs_tensor_1d(NULL, HS_F64, 1)), HS_FILL_POSITIVE);
    trial->operands[NORMALIZE_Y] = hs_output("y", hs_tensor_1d(NULL, trial->config->out, count));
}

static HsStatus call_normalize(HsTrial *trial, HsContext *context, const HsTensor *t)
{
    (void)trial;
    return hs_op_normalize(context, &(HsNormalizeArgs){ .x = t[NORMALIZE_X],
                                                        .sum_squares = t[NORMALIZE_SUM].data,
                                                        .epsilon = 1e-7f,
                                                        .y = t[NORMALIZE_Y] });
}

/* The factor is rounded to f32 once, and the product. */
static void bound_normalize(HsTrial *trial)
{
    for (int64_t i = 0; i < trial->config->columns; i++)
        trial->operands[NORMALIZE_Y].error[i] = hs_gamma(2) * fabs(hs_exact(trial, NORMALIZE_Y)[i]);
}

static const HsCase normalize_timed[] = { { HS_F32, HS_BF16, HS_F32, .columns = 768 * 3072 } };

const HsOpTest hs_op_test_normalize = {
    .cases = normalize_cases,
    .case_count = HS_COUNT_OF(normalize_cases),
    .timed = normalize_timed,
    .timed_count = HS_COUNT_OF(normalize_timed),
    .declare = declare_normalize,
    .bound = bound_normalize,
    .call = call_normalize,
};

/* scale_neurons: x in dtype */
#define NEURONS(n, c)                                                                                \
    { HS_F32, HS_F32, HS_F32, n, c, .options = 0 }, { HS_BF16, HS_F32, HS_F32, n, c, .options = 0 }, \
    {                                                                                                \
        HS_F16, HS_F32, HS_F32, n, c, .options = 0                                                   \
    }
static const HsCase neurons_cases[] = {
    NEURONS(1, 1),
    NEURONS(3, 2),
    NEURONS(7, 17),
    NEURONS(64, 64),
    NEURONS(65, 127),
    NEURONS(129, 40),
    NEURONS(2, 1030),
    NEURONS(300, 9),
    { HS_BF16, HS_F32, HS_F32, 17, 65, .options = HS_CASE_SKIP },
    { HS_F32, HS_F32, HS_F32, 5, 64, .options = HS_CASE_SKIP },
};

enum { NEURONS_SCALARS, NEURONS_X, NEURONS_SECOND };

static void declare_neurons(HsTrial *trial)
{
    const HsCase *config = trial->config;
    trial->operands[NEURONS_SCALARS] =
        hs_filled(hs_input("scalars", 0.0, hs_tensor_1d(NULL, HS_U8, sizeof(HsStepScalars))), HS_FILL_ZERO);
    trial->operands[NEURONS_X] = hs_updated("x", 0.1, hs_tensor_2d(NULL, config->dtype, config->rows, config->columns));
    trial->operands[NEURONS_SECOND] =
        hs_filled(hs_updated("second_moment", 0.01, hs_tensor_1d(NULL, HS_F32, config->rows)), HS_FILL_POSITIVE);
}

static HsStatus prepare_neurons(HsTrial *trial, HsContext *reference)
{
    (void)reference;
    const HsStepScalars scalars = { .skip = hs_case_has(trial, HS_CASE_SKIP) };
    memcpy(trial->operands[NEURONS_SCALARS].image, &scalars, sizeof scalars);
    return HS_OK;
}

static HsStatus call_neurons(HsTrial *trial, HsContext *context, const HsTensor *t)
{
    (void)trial;
    return hs_op_scale_neurons(context, &(HsScaleNeuronsArgs){ .scalars = t[NEURONS_SCALARS].data,
                                                               .beta2 = 0.9f,
                                                               .epsilon = 1e-10f,
                                                               .size = 0.2f,
                                                               .x = t[NEURONS_X],
                                                               .second_moment = t[NEURONS_SECOND] });
}

/* A row's squares are C products and additions of numbers above 0, so V is off by C + 5 roundings; its root by half as
 * many and 1, f by 2 more.  |f x|^2 has those of the squares and of f^2, and R additions; the factor half of all that,
 * and 3. */
static void bound_neurons(HsTrial *trial)
{
    const int64_t rows = trial->config->rows, columns = trial->config->columns;
    const int64_t second = columns + 5, f = second / 2 + 3, factor = (second + 2 * f + rows) / 2 + 4;
    for (int64_t i = 0; i < rows * columns && !hs_case_has(trial, HS_CASE_SKIP); i++) {
        trial->operands[NEURONS_SECOND].error[i / columns] =
            hs_gamma(second) * hs_exact(trial, NEURONS_SECOND)[i / columns];
        trial->operands[NEURONS_X].error[i] = hs_gamma(f + factor + 2) * fabs(hs_exact(trial, NEURONS_X)[i]);
    }
}

static const HsCase neurons_timed[] = { { HS_BF16, HS_F32, HS_F32, 3072, 768, .options = 0 } };

const HsOpTest hs_op_test_scale_neurons = {
    .cases = neurons_cases,
    .case_count = HS_COUNT_OF(neurons_cases),
    .timed = neurons_timed,
    .timed_count = HS_COUNT_OF(neurons_timed),
    .declare = declare_neurons,
    .prepare = prepare_neurons,
    .bound = bound_neurons,
    .call = call_neurons,
};

/* average: x in dtype */
#define AVERAGE_OF(n)                                                                    \
    { HS_F32, HS_F32, HS_F32, .columns = n }, { HS_BF16, HS_F32, HS_F32, .columns = n }, \
    {                                                                                    \
        HS_F16, HS_F32, HS_F32, .columns = n                                             \
    }
static const HsCase average_cases[] = {
    AVERAGE_OF(1),     AVERAGE_OF(3),
    AVERAGE_OF(17),    AVERAGE_OF(64),
    AVERAGE_OF(129),   AVERAGE_OF(5000),
    AVERAGE_OF(20000), { HS_BF16, HS_F32, HS_F32, .columns = 64, .options = HS_CASE_UNALIGNED }
};

enum { AVERAGE_RATE, AVERAGE_X, AVERAGE };

static const float average_rate = 0.07f;

static void declare_average(HsTrial *trial)
{
    const int64_t count = trial->config->columns;
    trial->operands[AVERAGE_RATE] =
        hs_filled(hs_input("rate", 0.0, hs_tensor_1d(NULL, HS_U8, sizeof average_rate)), HS_FILL_ZERO);
    trial->operands[AVERAGE_X] = hs_input("x", 1.0, hs_tensor_1d(NULL, trial->config->dtype, count));
    trial->operands[AVERAGE] = hs_updated("average", 1.0, hs_tensor_1d(NULL, HS_F32, count));
}

static HsStatus prepare_average(HsTrial *trial, HsContext *reference)
{
    (void)reference;
    memcpy(trial->operands[AVERAGE_RATE].image, &average_rate, sizeof average_rate);
    return HS_OK;
}

static HsStatus call_average(HsTrial *trial, HsContext *context, const HsTensor *t)
{
    (void)trial;
    return hs_op_average(context,
                         &(HsAverageArgs){ .rate = t[AVERAGE_RATE].data, .x = t[AVERAGE_X], .average = t[AVERAGE] });
}

/* Difference and product, then the sum. */
static void bound_average(HsTrial *trial)
{
    for (int64_t i = 0; i < trial->config->columns; i++) {
        const double distance = fabs(hs_initial(trial, AVERAGE_X)[i] - hs_initial(trial, AVERAGE)[i]);
        trial->operands[AVERAGE].error[i] =
            hs_gamma(2) * (double)average_rate * distance + hs_gamma(1) * fabs(hs_exact(trial, AVERAGE)[i]);
    }
}

static const HsCase average_timed[] = { { HS_F32, HS_F32, HS_F32, .columns = 768 * 3072 } };

const HsOpTest hs_op_test_average = {
    .cases = average_cases,
    .case_count = HS_COUNT_OF(average_cases),
    .timed = average_timed,
    .timed_count = HS_COUNT_OF(average_timed),
    .declare = declare_average,
    .prepare = prepare_average,
    .bound = bound_average,
    .call = call_average,
};
