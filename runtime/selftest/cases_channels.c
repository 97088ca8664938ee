/* SPDX-License-Identifier: MIT
 *
 * Cases of what APOLLO's steps are made of: random matrices, and factors of channels.
 */
#include <math.h>
#include <string.h>

#include "runtime/selftest/trial.h"

/* random_matrix: y in out; the interval is depth */
#define RANDOM(n, c, steps)                                        \
    {                                                              \
        HS_F32, HS_F32, HS_F32, n, c, .depth = steps, .options = 0 \
    }
static const HsCase random_cases[] = {
    RANDOM(1, 1, 1),      RANDOM(1, 3, 200),
    RANDOM(7, 17, 3),     RANDOM(64, 65, 2),
    RANDOM(5, 4097, 200), { HS_F32, HS_F32, HS_F32, 3, 64, .depth = 5, .options = HS_CASE_UNALIGNED },
};

enum { RANDOM_Y };

static void declare_random(HsTrial *trial)
{
    const HsCase *config = trial->config;
    trial->operands[RANDOM_Y] = hs_output("y", hs_tensor_2d(NULL, HS_F32, config->rows, config->columns));
    trial->operands[RANDOM_Y].exact_bits = true;
}

/* A step within an interval and not at its start. */
static HsStatus call_random(HsTrial *trial, HsContext *context, const HsTensor *t)
{
    const uint32_t interval = (uint32_t)trial->config->depth;
    return hs_op_random_matrix(
        context, &(HsRandomMatrixArgs){ .rng = { .seed = trial->seed, .step = 7 * interval + interval / 2 },
                                        .interval = interval,
                                        .y = t[RANDOM_Y] });
}

static const HsCase random_timed[] = { RANDOM(256, 768, 200) };

const HsOpTest hs_op_test_random_matrix = {
    .cases = random_cases,
    .case_count = HS_COUNT_OF(random_cases),
    .timed = random_timed,
    .timed_count = HS_COUNT_OF(random_timed),
    .declare = declare_random,
    .call = call_random,
};

/* channel_factors: depth rows of r; g is [rows, columns]; moments in out */
#define OF_MOMENTS(dtype, k, n, c, more)                           \
    {                                                              \
        HS_F32, dtype, HS_F32, n, c, .depth = k, .options = (more) \
    }
#define CHANNELS(k, n, c)                                                                                              \
    OF_MOMENTS(HS_F32, k, n, c, 0), OF_MOMENTS(HS_F32, k, n, c, HS_CASE_OF_COLUMNS),                                   \
        OF_MOMENTS(HS_F32, k, n, c, HS_CASE_LIMITED),                                                                  \
        OF_MOMENTS(HS_F32, k, n, c, HS_CASE_LIMITED | HS_CASE_OF_COLUMNS), OF_MOMENTS(HS_F32, k, n, c, HS_CASE_WHOLE), \
        OF_MOMENTS(HS_F32, k, n, c, HS_CASE_LIMITED | HS_CASE_OF_COLUMNS | HS_CASE_WHOLE),                             \
        OF_MOMENTS(HS_BF16, k, n, c, HS_CASE_LIMITED), OF_MOMENTS(HS_BF16, k, n, c, HS_CASE_OF_COLUMNS)
static const HsCase channels_cases[] = {
    CHANNELS(1, 1, 1),
    CHANNELS(1, 17, 70),
    CHANNELS(3, 5, 2),
    CHANNELS(8, 64, 64),
    CHANNELS(9, 65, 129),
    CHANNELS(33, 300, 9),
    CHANNELS(4, 2, 1030),
    OF_MOMENTS(HS_F32, 4, 17, 9, HS_CASE_LIMITED | HS_CASE_SKIP),
    OF_MOMENTS(HS_BF16, 4, 9, 17, HS_CASE_OF_COLUMNS | HS_CASE_SKIP),
    OF_MOMENTS(HS_F32, 8, 64, 24, HS_CASE_LIMITED | HS_CASE_UNALIGNED),
    OF_MOMENTS(HS_BF16, 8, 24, 64, HS_CASE_LIMITED | HS_CASE_OF_COLUMNS | HS_CASE_UNALIGNED),
};

enum { SCALARS, R, M, V, G, NORM, FACTORS };

static const float beta1 = 0.9f, beta2 = 0.99f, epsilon = 1e-8f, scale = 1.5f, growth = 1.01f;
static const HsStepScalars step_scalars = { .bias_correction1 = 0.271f, .bias_correction2 = 0.0297f };

static int64_t channels_of(const HsTrial *trial)
{
    return hs_case_has(trial, HS_CASE_OF_COLUMNS) ? trial->config->columns : trial->config->rows;
}

/* The norm before is small enough for a limit in most cases with many channels, and not in those with few. */
static void declare_channels(HsTrial *trial)
{
    const HsCase *config = trial->config;
    const int64_t channels = channels_of(trial);
    const HsTensor moment = hs_tensor_2d(NULL, config->out, config->depth, channels);
    trial->operands[SCALARS] =
        hs_filled(hs_input("scalars", 0.0, hs_tensor_1d(NULL, HS_U8, sizeof step_scalars)), HS_FILL_ZERO);
    trial->operands[R] = hs_input("r", 1.0, hs_tensor_2d(NULL, HS_F32, config->depth, channels));
    trial->operands[M] = hs_updated("m", 0.1, moment);
    trial->operands[V] = hs_filled(hs_updated("v", 0.01, moment), HS_FILL_POSITIVE);
    trial->operands[M].one_sided = trial->operands[V].one_sided = moment.dtype == HS_BF16;
    if (hs_case_has(trial, HS_CASE_LIMITED)) {
        trial->operands[G] = hs_input("g", 1.0, hs_tensor_2d(NULL, HS_F32, config->rows, config->columns));
        trial->operands[NORM] = hs_filled(hs_updated("norm", 20.0, hs_tensor_1d(NULL, HS_F32, 1)), HS_FILL_POSITIVE);
    }
    trial->operands[FACTORS] = hs_output("factors", hs_tensor_1d(NULL, HS_F32, channels));
}

static HsStatus prepare_channels(HsTrial *trial, HsContext *reference)
{
    (void)reference;
    HsStepScalars scalars = step_scalars;
    scalars.skip = hs_case_has(trial, HS_CASE_SKIP);
    memcpy(trial->operands[SCALARS].image, &scalars, sizeof scalars);
    return HS_OK;
}

static HsStatus call_channels(HsTrial *trial, HsContext *context, const HsTensor *t)
{
    return hs_op_channel_factors(context, &(HsChannelFactorsArgs){ .scalars = t[SCALARS].data,
                                                                   .beta1 = beta1,
                                                                   .beta2 = beta2,
                                                                   .epsilon = epsilon,
                                                                   .scale = scale,
                                                                   .growth = growth,
                                                                   .whole = hs_case_has(trial, HS_CASE_WHOLE),
                                                                   .of_columns = hs_case_has(trial, HS_CASE_OF_COLUMNS),
                                                                   .rng = { .seed = trial->seed, .step = 5, .site = 2 },
                                                                   .r = t[R],
                                                                   .m = t[M],
                                                                   .v = t[V],
                                                                   .g = t[G],
                                                                   .norm = t[NORM],
                                                                   .factors = t[FACTORS] });
}

/* What t is at element i of r, and what it may be off by: m takes two products and an addition, v one product more, and
 * t five operations and a root; of v's relative error half is passed on. */
static double bound_moments(HsTrial *trial, int64_t i, double *error)
{
    const double r = fabs(hs_initial(trial, R)[i]), b1 = (double)beta1, b2 = (double)beta2;
    const double m = b1 * fabs(hs_initial(trial, M)[i]) + (1.0 - b1) * r;
    const double v = b2 * hs_initial(trial, V)[i] + (1.0 - b2) * r * r;
    const double divisor =
        (double)step_scalars.bias_correction1 * (sqrt(v / (double)step_scalars.bias_correction2) + (double)epsilon);
    trial->operands[M].error[i] = hs_gamma(4) * m;
    trial->operands[V].error[i] = hs_gamma(5) * v;
    *error = hs_gamma(4 + 3 + 5 + HS_FUNCTION_ROUNDINGS) * m / divisor;
    const double exact = b1 * hs_initial(trial, M)[i] + (1.0 - b1) * hs_initial(trial, R)[i];
    return exact / divisor;
}

/* Of a channel, or of all: t.t by the errors of t and by sums of K terms (and N channels), r.r by its sums; the root of
 * each halves the relative error.  Then two roots, a quotient, scale, and with a limit: f g has the relative error of f,
 * and those of sums of as many terms as a channel has, and of all channels; the limit passes this on. */
static void bound_channels(HsTrial *trial)
{
    const int64_t depth = trial->config->depth, channels = channels_of(trial);
    const int64_t length = hs_case_has(trial, HS_CASE_OF_COLUMNS) ? trial->config->rows : trial->config->columns;
    const bool limited = hs_case_has(trial, HS_CASE_LIMITED);
    double all_t = 0.0, all_off = 0.0, worst = 0.0;
    if (hs_case_has(trial, HS_CASE_SKIP))
        return;
    for (int64_t j = 0; j < channels; j++) {
        double t = 0.0, off = 0.0;
        for (int64_t k = 0; k < depth; k++) {
            double error;
            const double exact = bound_moments(trial, k * channels + j, &error);
            t += exact * exact;
            off += 2.0 * fabs(exact) * error + error * error;
        }
        all_t += t;
        all_off += off;
        /* |sqrt(a + e) - sqrt(a)| <= e / sqrt(a), which is at least twice what a small e gives */
        const double relative = off / t + hs_gamma(depth + 1 + depth + 1 + 2 * HS_FUNCTION_ROUNDINGS + 3);
        trial->operands[FACTORS].error[j] = relative;
        worst = relative > worst ? relative : worst;
    }
    const double of_all = all_off / all_t + hs_gamma(2 * (depth + channels + 2) + 2 * HS_FUNCTION_ROUNDINGS + 3);
    if (hs_case_has(trial, HS_CASE_WHOLE))
        worst = of_all;
    const double norm = worst + hs_gamma(length + channels + 4 + 2 * HS_FUNCTION_ROUNDINGS);
    for (int64_t j = 0; j < channels; j++) {
        double relative = hs_case_has(trial, HS_CASE_WHOLE) ? of_all : trial->operands[FACTORS].error[j];
        relative += limited ? norm + hs_gamma(4) : 0.0;
        trial->operands[FACTORS].error[j] = (relative + hs_gamma(2)) * hs_exact(trial, FACTORS)[j];
    }
    if (limited)
        trial->operands[NORM].error[0] = (norm + hs_gamma(4)) * hs_exact(trial, NORM)[0];
}

static const HsCase channels_timed[] = {
    OF_MOMENTS(HS_F32, 256, 768, 3072, HS_CASE_LIMITED | HS_CASE_OF_COLUMNS),
    OF_MOMENTS(HS_F32, 256, 3072, 768, HS_CASE_LIMITED),
};

const HsOpTest hs_op_test_channel_factors = {
    .cases = channels_cases,
    .case_count = HS_COUNT_OF(channels_cases),
    .timed = channels_timed,
    .timed_count = HS_COUNT_OF(channels_timed),
    .declare = declare_channels,
    .prepare = prepare_channels,
    .bound = bound_channels,
    .call = call_channels,
};
