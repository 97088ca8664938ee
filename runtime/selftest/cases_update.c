/* SPDX-License-Identifier: MIT
 *
 * Cases of the gradient statistics and of the update rules.
 */
#include "runtime/selftest/trial.h"

#include <math.h>
#include <string.h>

/* grad_stats: three tensors of columns, columns + 1 and 2 columns elements, of dtype, out and other */
#define STATS(n)                                                                         \
    { HS_F32, HS_F32, HS_F32, .columns = n }, { HS_BF16, HS_F32, HS_F16, .columns = n }, \
        { HS_F32, HS_BF16, HS_F16, .columns = n, .options = HS_CASE_NONFINITE },         \
    {                                                                                    \
        HS_BF16, HS_F16, HS_F32, .columns = n, .options = HS_CASE_NONFINITE              \
    }

static const HsCase stats_cases[] = {
    STATS(1), STATS(2), STATS(7), STATS(17), STATS(63), STATS(64), STATS(65), STATS(129), STATS(5000), STATS(70000),
};

enum { FIRST, SECOND, THIRD, SUM_SQUARES, NONFINITE, TENSOR_COUNT = 3 };

static void declare_stats(HsTrial *trial)
{
    const HsCase *config = trial->config;
    HsOperand *operands = trial->operands;
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

const HsOpTest hs_op_test_grad_stats = {
    .cases = stats_cases,
    .case_count = HS_COUNT_OF(stats_cases),
    .speed = { HS_F32, HS_BF16, HS_F32, .columns = 1000000 },
    .declare = declare_stats,
    .bound = bound_stats,
    .call = call_stats,
};

/* update rules: weight in dtype, gradient in other */
#define UPDATE(n, more)                                                                          \
    { HS_F32, HS_F32, HS_F32, .columns = n, .options = (more) },                                 \
        { HS_F32, HS_F32, HS_BF16, .columns = n, .options = (more) },                            \
        { HS_BF16, HS_F32, HS_BF16, .columns = n, .options = (more) | HS_CASE_MASTER },          \
        { HS_BF16, HS_F32, HS_F32, .columns = n, .options = (more) | HS_CASE_MASTER },           \
        { HS_F16, HS_F32, HS_F16, .columns = n, .options = (more) | HS_CASE_MASTER },            \
        { HS_BF16, HS_F32, HS_BF16, .columns = n, .options = (more) },                           \
    {                                                                                            \
        HS_BF16, HS_F32, HS_F32, .columns = n, .options = (more) | HS_CASE_MASTER | HS_CASE_SKIP \
    }

static const HsCase adamw_cases[] = {
    UPDATE(1, 0),  UPDATE(2, 0),  UPDATE(3, 0),   UPDATE(7, 0),   UPDATE(17, 0),   UPDATE(63, 0),
    UPDATE(64, 0), UPDATE(65, 0), UPDATE(127, 0), UPDATE(129, 0), UPDATE(5000, 0),
};

#define SGD(n) UPDATE(n, 0), UPDATE(n, HS_CASE_MOMENTUM), UPDATE(n, HS_CASE_MOMENTUM | HS_CASE_NESTEROV)
static const HsCase sgd_cases[] = { SGD(1), SGD(3), SGD(17), SGD(64), SGD(65), SGD(129), SGD(5000) };

enum { SCALARS, GRAD, WEIGHT, MASTER, M, V, BUFFER = M };

static const HsStepScalars step_scalars = {
    .learning_rate = 0.01f, .gradient_multiplier = 0.37f, .bias_correction1 = 0.271f, .bias_correction2 = 0.0297f
};
static const float decay = 0.1f, rate_scale = 0.5f, beta1 = 0.9f, beta2 = 0.99f, adam_epsilon = 1e-8f, momentum = 0.9f;

/* The operands that both rules share. */
static void declare_parameter(HsTrial *trial)
{
    const HsCase *config = trial->config;
    HsOperand *operands = trial->operands;
    operands[SCALARS] =
        hs_filled(hs_input("scalars", 0.0, hs_tensor_1d(NULL, HS_U8, sizeof step_scalars)), HS_FILL_ZERO);
    operands[GRAD] = hs_updated("grad", 1.0, hs_tensor_1d(NULL, config->other, config->columns));
    operands[GRAD].exact_bits = true; /* zero, or nothing */
    operands[WEIGHT] = hs_updated("weight", 1.0, hs_tensor_1d(NULL, config->dtype, config->columns));
    if (hs_case_has(trial, HS_CASE_MASTER))
        operands[MASTER] = hs_updated("master", 1.0, hs_tensor_1d(NULL, HS_F32, config->columns));
    operands[WEIGHT].one_sided = config->dtype == HS_BF16 && !hs_case_has(trial, HS_CASE_MASTER);
}

static HsStatus prepare_update(HsTrial *trial, HsContext *reference)
{
    (void)reference;
    HsStepScalars scalars = step_scalars;
    scalars.skip = hs_case_has(trial, HS_CASE_SKIP);
    memcpy(trial->operands[SCALARS].image, &scalars, sizeof scalars);
    return HS_OK;
}

static void declare_adamw(HsTrial *trial)
{
    declare_parameter(trial);
    trial->operands[M] = hs_updated("m", 0.1, hs_tensor_1d(NULL, HS_F32, trial->config->columns));
    trial->operands[V] =
        hs_filled(hs_updated("v", 0.01, hs_tensor_1d(NULL, HS_F32, trial->config->columns)), HS_FILL_POSITIVE);
}

static HsStatus call_adamw(HsTrial *trial, HsContext *context, const HsTensor *t)
{
    return hs_op_adamw(context, &(HsAdamWArgs){ .scalars = t[SCALARS].data,
                                                .beta1 = beta1,
                                                .beta2 = beta2,
                                                .epsilon = adam_epsilon,
                                                .weight_decay = decay,
                                                .learning_rate_scale = rate_scale,
                                                .rng = { .seed = trial->seed, .step = 5, .site = 2 },
                                                .grad = t[GRAD],
                                                .m = t[M],
                                                .v = t[V],
                                                .master = t[MASTER],
                                                .weight = t[WEIGHT] });
}

/* The parameter's error goes to where it lives; a weight beside a master sees the master's rounding too. */
static void set_parameter_error(HsTrial *trial, int64_t i, double error)
{
    if (!hs_operand_present(trial, MASTER)) {
        trial->operands[WEIGHT].error[i] = error;
        return;
    }
    trial->operands[MASTER].error[i] = error;
    const double p = fabs(hs_exact(trial, MASTER)[i]);
    trial->operands[WEIGHT].error[i] = error + hs_tolerance(0, 0, HS_F32, HS_F32, 0.0, p + error);
}

static double initial_parameter(const HsTrial *trial, int64_t i)
{
    return hs_initial(trial, hs_operand_present(trial, MASTER) ? MASTER : WEIGHT)[i];
}

/* m: two products and an addition, g itself one product.  v: the same with g^2; all its terms are positive, so its
 * error is relative.  The step m/bc1 / (sqrt(v/bc2) + eps) passes m's error on and half of v's, and adds its own
 * roundings. */
static void bound_adamw(HsTrial *trial)
{
    for (int64_t i = 0; i < trial->config->columns && !hs_case_has(trial, HS_CASE_SKIP); i++) {
        const double g = fabs(hs_initial(trial, GRAD)[i] * (double)step_scalars.gradient_multiplier);
        const double b1 = (double)beta1, rate = (double)step_scalars.learning_rate * (double)rate_scale;
        const double m = b1 * fabs(hs_initial(trial, M)[i]) + (1.0 - b1) * g, v = hs_exact(trial, V)[i];
        const double p = fabs(initial_parameter(trial, i));
        trial->operands[M].error[i] = hs_gamma(4) * m;
        trial->operands[V].error[i] = hs_gamma(6) * v;
        const double step = rate * m / (double)step_scalars.bias_correction1 /
                            (sqrt(v / (double)step_scalars.bias_correction2) + (double)adam_epsilon);
        /* m: 4, v: 6 / 2, quotients, products, root and sum: 8 and a function */
        const double error = hs_gamma(4 + 3 + 8 + HS_FUNCTION_ROUNDINGS) * step +
                             hs_gamma(3) * (p * (1.0 + rate * (double)decay) + step);
        set_parameter_error(trial, i, error);
    }
}

const HsOpTest hs_op_test_adamw = {
    .cases = adamw_cases,
    .case_count = HS_COUNT_OF(adamw_cases),
    .speed = { HS_BF16, HS_F32, HS_F32, .columns = 1000000, .options = HS_CASE_MASTER },
    .declare = declare_adamw,
    .prepare = prepare_update,
    .bound = bound_adamw,
    .call = call_adamw,
};

static void declare_sgd(HsTrial *trial)
{
    declare_parameter(trial);
    if (hs_case_has(trial, HS_CASE_MOMENTUM))
        trial->operands[BUFFER] = hs_updated("buffer", 1.0, hs_tensor_1d(NULL, HS_F32, trial->config->columns));
}

static HsStatus call_sgd(HsTrial *trial, HsContext *context, const HsTensor *t)
{
    return hs_op_sgd(context, &(HsSgdArgs){ .scalars = t[SCALARS].data,
                                            .momentum = hs_case_has(trial, HS_CASE_MOMENTUM) ? momentum : 0.0f,
                                            .weight_decay = decay,
                                            .learning_rate_scale = rate_scale,
                                            .nesterov = hs_case_has(trial, HS_CASE_NESTEROV),
                                            .rng = { .seed = trial->seed, .step = 5, .site = 2 },
                                            .grad = t[GRAD],
                                            .buffer = t[BUFFER],
                                            .master = t[MASTER],
                                            .weight = t[WEIGHT] });
}

/* d = g + wd p: 3 roundings on |g| + wd |p|; each of buffer, direction and parameter adds a product and an addition. */
static void bound_sgd(HsTrial *trial)
{
    for (int64_t i = 0; i < trial->config->columns && !hs_case_has(trial, HS_CASE_SKIP); i++) {
        const double g = fabs(hs_initial(trial, GRAD)[i] * (double)step_scalars.gradient_multiplier);
        const double rate = (double)step_scalars.learning_rate * (double)rate_scale;
        const double p = fabs(initial_parameter(trial, i)), descent = g + (double)decay * p;
        double direction = descent;
        if (hs_case_has(trial, HS_CASE_MOMENTUM)) {
            const double buffer = (double)momentum * fabs(hs_initial(trial, BUFFER)[i]) + descent;
            trial->operands[BUFFER].error[i] = hs_gamma(5) * buffer;
            direction = hs_case_has(trial, HS_CASE_NESTEROV) ? descent + (double)momentum * buffer : buffer;
        }
        set_parameter_error(trial, i, hs_gamma(9) * rate * direction + hs_gamma(1) * (p + rate * direction));
    }
}

const HsOpTest hs_op_test_sgd = {
    .cases = sgd_cases,
    .case_count = HS_COUNT_OF(sgd_cases),
    .speed = { HS_BF16, HS_F32, HS_F32, .columns = 1000000, .options = HS_CASE_MASTER | HS_CASE_MOMENTUM },
    .declare = declare_sgd,
    .prepare = prepare_update,
    .bound = bound_sgd,
    .call = call_sgd,
};
