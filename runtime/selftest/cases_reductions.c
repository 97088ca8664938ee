/* SPDX-License-Identifier: MIT
 *
 * Cases of the sums over whole tensors: gradient statistics, scalar products, importance statistics, penalties.
 */
#include "runtime/selftest/bounds.h"

/* grad_stats: three tensors of columns, columns + 1 and 2 columns elements, of dtype, out and other */
#define STATS(n)                                                                         \
    { HS_F32, HS_F32, HS_F32, .columns = n }, { HS_BF16, HS_F32, HS_F16, .columns = n }, \
        { HS_F32, HS_BF16, HS_F16, .columns = n, .options = HS_CASE_NONFINITE },         \
    {                                                                                    \
        HS_BF16, HS_F16, HS_F32, .columns = n, .options = HS_CASE_NONFINITE              \
    }

static const HsCase stats_cases[] = {
    STATS(1),
    STATS(2),
    STATS(7),
    STATS(17),
    STATS(63),
    STATS(64),
    STATS(65),
    STATS(129),
    STATS(5000),
    STATS(70000),
    { HS_F32, HS_BF16, HS_F16, .columns = 20000, .options = HS_CASE_UNALIGNED | HS_CASE_NONFINITE },
};

enum { FIRST, SECOND, THIRD, SUM_SQUARES, NONFINITE, TENSOR_COUNT = 3 };

static void declare_stats(HsTrial *trial)
{
    const HsCase *config = trial->config;
    HsTrialOperand *operands = trial->operands;
    operands[FIRST] = hs_input("first", 1.0, hs_tensor_1d(NULL, config->dtype, config->columns));
    operands[SECOND] = hs_input("second", 1.0, hs_tensor_1d(NULL, config->out, config->columns + 1));
    operands[THIRD] = hs_input("third", 1.0, hs_tensor_2d(NULL, config->other, 2, config->columns));
    for (int i = 0; i < TENSOR_COUNT && hs_case_has(trial, HS_CASE_NONFINITE); i++)
        operands[i].fill = HS_FILL_BROKEN;
    operands[SUM_SQUARES] = hs_output("sum_squares", hs_tensor_1d(NULL, HS_F64, TENSOR_COUNT));
    operands[NONFINITE] = hs_output("nonfinite", hs_tensor_1d(NULL, HS_I64, TENSOR_COUNT));
}

static HsStatus call_stats(HsTrial *trial, HsContext *context, const HsTensor *t)
{
    (void)trial;
    return hs_op_grad_stats(context, &(HsGradStatsArgs){ .tensors = t,
                                                         .count = TENSOR_COUNT,
                                                         .sum_squares = t[SUM_SQUARES].data,
                                                         .nonfinite = t[NONFINITE].data });
}

/* A sum of squares in f32, at worst. */
static void bound_stats(HsTrial *trial)
{
    for (int i = 0; i < TENSOR_COUNT; i++)
        trial->operands[SUM_SQUARES].error[i] =
            hs_gamma(hs_tensor_count(&trial->operands[i].tensor) + 1) * hs_exact(trial, SUM_SQUARES)[i];
}

static const HsCase reduction_timed[] = {
    { HS_F32, HS_F32, HS_F32, .columns = 768 * 3072 },
    { HS_BF16, HS_BF16, HS_BF16, .columns = 768 * 3072 },
    { HS_F16, HS_F16, HS_F16, .columns = 768 * 3072 },
};

const HsOpTest hs_op_test_grad_stats = {
    .cases = stats_cases,
    .case_count = HS_COUNT_OF(stats_cases),
    .timed = reduction_timed,
    .timed_count = HS_COUNT_OF(reduction_timed),
    .declare = declare_stats,
    .bound = bound_stats,
    .call = call_stats,
};

/* The others take pairs or triples of tensors of columns and columns + 1 elements. */
enum { PAIR = 2 };

static HsTensor vector(const HsTrial *trial, HsDtype dtype, int index)
{
    return hs_tensor_1d(NULL, dtype, trial->config->columns + index);
}

/* dot: x in dtype and out, y in other and dtype */
#define DOT(n)                                                                           \
    { HS_F32, HS_F32, HS_F32, .columns = n }, { HS_BF16, HS_F32, HS_F16, .columns = n }, \
    {                                                                                    \
        HS_F16, HS_BF16, HS_F32, .columns = n                                            \
    }

static const HsCase dot_cases[] = {
    DOT(1),   DOT(2),    DOT(17),    DOT(64),
    DOT(129), DOT(5000), DOT(70000), { HS_F32, HS_BF16, HS_F32, .columns = 20000, .options = HS_CASE_UNALIGNED }
};

enum { DOT_X, DOT_Y = DOT_X + PAIR, DOT_VALUES = DOT_Y + PAIR };

static void declare_dot(HsTrial *trial)
{
    const HsCase *config = trial->config;
    trial->operands[DOT_X] = hs_input("x 0", 1.0, vector(trial, config->dtype, 0));
    trial->operands[DOT_X + 1] = hs_input("x 1", 1.0, vector(trial, config->out, 1));
    trial->operands[DOT_Y] = hs_input("y 0", 1.0, vector(trial, config->other, 0));
    trial->operands[DOT_Y + 1] = hs_input("y 1", 1.0, vector(trial, config->dtype, 1));
    trial->operands[DOT_VALUES] = hs_output("values", hs_tensor_1d(NULL, HS_F64, PAIR));
}

static HsStatus call_dot(HsTrial *trial, HsContext *context, const HsTensor *t)
{
    (void)trial;
    return hs_op_dot(context,
                     &(HsDotArgs){ .x = t + DOT_X, .y = t + DOT_Y, .count = PAIR, .values = t[DOT_VALUES].data });
}

/* Products of two f32 are exact in double. */
static void bound_dot(HsTrial *trial)
{
    for (int pair = 0; pair < PAIR; pair++) {
        const double *x = hs_initial(trial, DOT_X + pair), *y = hs_initial(trial, DOT_Y + pair);
        const int64_t count = trial->config->columns + pair;
        double size = 0.0;
        for (int64_t i = 0; i < count; i++)
            size += fabs(x[i] * y[i]);
        trial->operands[DOT_VALUES].error[pair] = hs_bound_double_sum(count, size);
    }
}

const HsOpTest hs_op_test_dot = {
    .cases = dot_cases,
    .case_count = HS_COUNT_OF(dot_cases),
    .timed = reduction_timed,
    .timed_count = HS_COUNT_OF(reduction_timed),
    .declare = declare_dot,
    .bound = bound_dot,
    .call = call_dot,
};

static const HsCase importance_cases[] = {
    { HS_F32, HS_F64, HS_F32, .columns = 1 },
    { HS_F32, HS_F64, HS_F32, .columns = 7 },
    { HS_F32, HS_F64, HS_F32, .columns = 64 },
    { HS_F32, HS_F64, HS_F32, .columns = 129 },
    { HS_F32, HS_F64, HS_F32, .columns = 5000 },
    { HS_F32, HS_F64, HS_F32, .columns = 70000 },
    { HS_F32, HS_F64, HS_F32, .columns = 20000, .options = HS_CASE_UNALIGNED },
};

enum { I_TENSOR, I_MAXIMUM = I_TENSOR + PAIR, I_SUM, I_SQUARES };

static void declare_importance(HsTrial *trial)
{
    for (int i = 0; i < PAIR; i++)
        trial->operands[I_TENSOR + i] =
            hs_filled(hs_input(i ? "second" : "first", 1.0, vector(trial, HS_F32, i)), HS_FILL_POSITIVE);
    trial->operands[I_MAXIMUM] = hs_output("maximum", hs_tensor_1d(NULL, HS_F64, PAIR));
    trial->operands[I_MAXIMUM].exact_bits = true;
    trial->operands[I_SUM] = hs_output("sum", hs_tensor_1d(NULL, HS_F64, PAIR));
    trial->operands[I_SQUARES] = hs_output("sum_squares", hs_tensor_1d(NULL, HS_F64, PAIR));
}

static HsStatus call_importance(HsTrial *trial, HsContext *context, const HsTensor *t)
{
    (void)trial;
    return hs_op_importance_stats(context, &(HsImportanceStatsArgs){ .tensors = t + I_TENSOR,
                                                                     .count = PAIR,
                                                                     .maximum = t[I_MAXIMUM].data,
                                                                     .sum = t[I_SUM].data,
                                                                     .sum_squares = t[I_SQUARES].data });
}

static void bound_importance(HsTrial *trial)
{
    for (int i = 0; i < PAIR; i++) {
        const int64_t count = trial->config->columns + i;
        trial->operands[I_SUM].error[i] = hs_bound_double_sum(count, hs_exact(trial, I_SUM)[i]);
        trial->operands[I_SQUARES].error[i] = hs_bound_double_sum(count, hs_exact(trial, I_SQUARES)[i]);
    }
}

static const HsCase importance_timed[] = {
    { HS_F32, HS_F64, HS_F32, .columns = 768 * 3072 },
};

const HsOpTest hs_op_test_importance_stats = {
    .cases = importance_cases,
    .case_count = HS_COUNT_OF(importance_cases),
    .timed = importance_timed,
    .timed_count = HS_COUNT_OF(importance_timed),
    .declare = declare_importance,
    .bound = bound_importance,
    .call = call_importance,
};

/* penalty: parameters in dtype; the last of three has no anchor */
#define PENALTY(n)                                                                \
    { HS_F32, HS_F64, HS_F32, .columns = n, .options = HS_CASE_IMPORTANCE },      \
        { HS_BF16, HS_F64, HS_F32, .columns = n, .options = HS_CASE_IMPORTANCE }, \
        { HS_F16, HS_F64, HS_F32, .columns = n, .options = 0 },                   \
    {                                                                             \
        HS_F32, HS_F64, HS_F32, .columns = n, .options = 0                        \
    }

static const HsCase penalty_cases[] = { PENALTY(1),
                                        PENALTY(7),
                                        PENALTY(17),
                                        PENALTY(64),
                                        PENALTY(65),
                                        PENALTY(129),
                                        PENALTY(5000),
                                        PENALTY(70000),
                                        { HS_BF16, HS_F64, HS_F32, .columns = 20000,
                                          .options = HS_CASE_IMPORTANCE | HS_CASE_UNALIGNED } };

enum { P_IMPORTANCE, P_ANCHOR = P_IMPORTANCE + 3, P_PARAMETER = P_ANCHOR + 3, P_VALUES = P_PARAMETER + 3 };

static void declare_penalty(HsTrial *trial)
{
    for (int i = 0; i < 3; i++) {
        if (hs_case_has(trial, HS_CASE_IMPORTANCE) && i < PAIR)
            trial->operands[P_IMPORTANCE + i] =
                hs_filled(hs_input("importance", 1.0, vector(trial, HS_F32, i)), HS_FILL_POSITIVE);
        if (i < PAIR)
            trial->operands[P_ANCHOR + i] = hs_input("anchor", 1.0, vector(trial, HS_F32, i));
        trial->operands[P_PARAMETER + i] = hs_input("parameter", 1.0, vector(trial, trial->config->dtype, i));
    }
    trial->operands[P_VALUES] = hs_output("values", hs_tensor_1d(NULL, HS_F64, 3));
}

static HsStatus call_penalty(HsTrial *trial, HsContext *context, const HsTensor *t)
{
    (void)trial;
    return hs_op_penalty(context, &(HsPenaltyArgs){ .importance = t + P_IMPORTANCE,
                                                    .anchor = t + P_ANCHOR,
                                                    .parameter = t + P_PARAMETER,
                                                    .count = 3,
                                                    .values = t[P_VALUES].data });
}

/* Difference (twice, for it is squared), square and product in f32, all terms positive; the sum in double. */
static void bound_penalty(HsTrial *trial)
{
    for (int i = 0; i < PAIR; i++) {
        const double value = hs_exact(trial, P_VALUES)[i];
        trial->operands[P_VALUES].error[i] =
            hs_gamma(4) * value + hs_bound_double_sum(trial->config->columns + i, value);
    }
}

static const HsCase penalty_timed[] = {
    { HS_F32, HS_F64, HS_F32, .columns = 768 * 3072, .options = HS_CASE_IMPORTANCE },
    { HS_BF16, HS_F64, HS_F32, .columns = 768 * 3072, .options = HS_CASE_IMPORTANCE },
};

const HsOpTest hs_op_test_penalty = {
    .cases = penalty_cases,
    .case_count = HS_COUNT_OF(penalty_cases),
    .timed = penalty_timed,
    .timed_count = HS_COUNT_OF(penalty_timed),
    .declare = declare_penalty,
    .bound = bound_penalty,
    .call = call_penalty,
};
