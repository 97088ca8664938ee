/* SPDX-License-Identifier: MIT
 *
 * Cases of the update rules, plain and with what continual learning adds.
 */
#include "runtime/selftest/bounds.h"

#include <string.h>

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

/* Protection: both steps with and without an importance, each alone and with the path integral; the path alone. */
#define GUARDED(n, more)                                                                                          \
    UPDATE(n, (more) | HS_CASE_ANCHOR | HS_CASE_IMPORTANCE),                                                      \
        UPDATE(n, (more) | HS_CASE_ANCHOR | HS_CASE_IMPORTANCE | HS_CASE_PROXIMAL),                               \
        UPDATE(n, (more) | HS_CASE_ANCHOR), UPDATE(n, (more) | HS_CASE_ANCHOR | HS_CASE_PROXIMAL),                \
        UPDATE(n, (more) | HS_CASE_PATH), UPDATE(n, (more) | HS_CASE_PATH | HS_CASE_ANCHOR | HS_CASE_IMPORTANCE), \
        UPDATE(n, (more) | HS_CASE_PATH | HS_CASE_ANCHOR | HS_CASE_IMPORTANCE | HS_CASE_PROXIMAL)

static const HsCase adamw_cases[] = {
    UPDATE(1, 0),     UPDATE(2, 0),      UPDATE(3, 0),
    UPDATE(7, 0),     UPDATE(17, 0),     UPDATE(63, 0),
    UPDATE(64, 0),    UPDATE(65, 0),     UPDATE(127, 0),
    UPDATE(129, 0),   UPDATE(5000, 0),   GUARDED(1, 0),
    GUARDED(17, 0),   GUARDED(65, 0),    GUARDED(129, 0),
    GUARDED(1023, 0), GUARDED(20000, 0), GUARDED(64, HS_CASE_UNALIGNED),
};

#define SGD(n)         UPDATE(n, 0), UPDATE(n, HS_CASE_MOMENTUM), UPDATE(n, HS_CASE_MOMENTUM | HS_CASE_NESTEROV)
#define GUARDED_SGD(n) GUARDED(n, 0), GUARDED(n, HS_CASE_MOMENTUM), GUARDED(n, HS_CASE_MOMENTUM | HS_CASE_NESTEROV)
static const HsCase sgd_cases[] = {
    SGD(1),
    SGD(3),
    SGD(17),
    SGD(64),
    SGD(65),
    SGD(129),
    SGD(5000),
    GUARDED_SGD(17),
    GUARDED_SGD(65),
    GUARDED(20000, 0),
    GUARDED(64, HS_CASE_UNALIGNED | HS_CASE_MOMENTUM),
};

enum { SCALARS, GRAD, WEIGHT, MASTER, M, V, IMPORTANCE, ANCHOR, PATH, BUFFER = M };

static const HsStepScalars step_scalars = { .learning_rate = 0.01f,
                                            .gradient_multiplier = 0.37f,
                                            .bias_correction1 = 0.271f,
                                            .bias_correction2 = 0.0297f,
                                            .unscale = 0.61f };
static const float decay = 0.1f, rate_scale = 0.5f, beta1 = 0.9f, beta2 = 0.99f, adam_epsilon = 1e-8f, momentum = 0.9f;
/* lr strength importance is near 1 in the proximal step, and the pull in the gradient step some hundred gradients. */
static const float strength = 300.0f;

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
    operands[WEIGHT].overwritten = hs_case_has(trial, HS_CASE_MASTER);
    if (hs_case_has(trial, HS_CASE_MASTER))
        operands[MASTER] = hs_updated("master", 1.0, hs_tensor_1d(NULL, HS_F32, config->columns));
    operands[WEIGHT].one_sided = config->dtype == HS_BF16 && !hs_case_has(trial, HS_CASE_MASTER);
    const HsTensor state = hs_tensor_1d(NULL, HS_F32, config->columns);
    if (hs_case_has(trial, HS_CASE_IMPORTANCE))
        operands[IMPORTANCE] = hs_filled(hs_input("importance", 1.0, state), HS_FILL_POSITIVE);
    if (hs_case_has(trial, HS_CASE_ANCHOR))
        operands[ANCHOR] = hs_input("anchor", 1.0, state);
    if (hs_case_has(trial, HS_CASE_PATH))
        operands[PATH] = hs_updated("path", 0.1, state);
}

static HsProtection protection_of(const HsTrial *trial, const HsTensor *t)
{
    return (HsProtection){ .importance = t[IMPORTANCE],
                           .anchor = t[ANCHOR],
                           .path = t[PATH],
                           .strength = strength,
                           .proximal = hs_case_has(trial, HS_CASE_PROXIMAL) };
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
                                                .weight = t[WEIGHT],
                                                .protection = protection_of(trial, t) });
}

static const double *parameter_before(const HsTrial *trial)
{
    return hs_initial(trial, hs_operand_present(trial, MASTER) ? MASTER : WEIGHT);
}

static double learning_rate(void)
{
    return (double)step_scalars.learning_rate * (double)rate_scale;
}

/* strength * importance, 0 without an anchor */
static double pull(const HsTrial *trial, int64_t i)
{
    if (!hs_operand_present(trial, ANCHOR))
        return 0.0;
    return (double)strength * (hs_operand_present(trial, IMPORTANCE) ? hs_initial(trial, IMPORTANCE)[i] : 1.0);
}

static bool has_gradient_step(const HsTrial *trial)
{
    return hs_operand_present(trial, ANCHOR) && !hs_case_has(trial, HS_CASE_PROXIMAL);
}

/* The sizes of what a gradient is made of: |grad multiplier| + |strength importance (p - anchor)|. */
static double gradient_size(const HsTrial *trial, int64_t i)
{
    const double g = fabs(hs_initial(trial, GRAD)[i] * (double)step_scalars.gradient_multiplier);
    if (!has_gradient_step(trial))
        return g;
    return g + pull(trial, i) * fabs(parameter_before(trial)[i] - hs_initial(trial, ANCHOR)[i]);
}

/* Roundings on that size: one product; or one difference, two products and an addition. */
static int gradient_roundings(const HsTrial *trial)
{
    return has_gradient_step(trial) ? 4 : 1;
}

/* What comes after the rule, whose p is off by `error`.
 * Proximal: k takes 3 roundings, k / (1 + k) two more and dampens k's; difference, product: 7 on what is taken away,
 * which is k / (1 + k) (p - anchor) = k (p_new - anchor); then the subtraction.  p's own error only shrinks.
 * Path: what is stored differs by its whole tolerance, and difference, unscaling and product round once each. */
static void bound_finish(HsTrial *trial, int64_t i, double error)
{
    const bool master = hs_operand_present(trial, MASTER);
    const int kept = master ? MASTER : WEIGHT;
    const double p = hs_exact(trial, kept)[i];
    if (hs_case_has(trial, HS_CASE_PROXIMAL))
        error += hs_gamma(7) * learning_rate() * pull(trial, i) * (fabs(p - hs_initial(trial, ANCHOR)[i]) + error) +
                 hs_gamma(1) * fabs(p);
    hs_bound_parameter(trial, WEIGHT, MASTER, i, error);
    if (!hs_operand_present(trial, PATH))
        return;
    const HsOperand *operand = &trial->operands[kept];
    const double rounding = hs_tolerance(0, 0, HS_F32, operand->tensor.dtype, 0.0, fabs(p) + error);
    const double stored = error + rounding * (operand->one_sided ? 2.0 : 1.0);
    const double g = fabs(hs_initial(trial, GRAD)[i] * (double)step_scalars.unscale);
    const double moved = fabs(p - hs_initial(trial, kept)[i]) + stored;
    trial->operands[PATH].error[i] = g * (stored + hs_gamma(3) * moved);
}

/* m: two products and an addition after the gradient's roundings.  v: the same with g^2, where all terms are positive
 * but g itself may be a difference.  The step m/bc1 / (sqrt(v/bc2) + eps) passes m's error on and half of v's relative
 * one, and adds its own roundings. */
static void bound_adamw(HsTrial *trial)
{
    const int roundings = gradient_roundings(trial);
    for (int64_t i = 0; i < trial->config->columns && !hs_case_has(trial, HS_CASE_SKIP); i++) {
        const double g = gradient_size(trial, i), b1 = (double)beta1, b2 = (double)beta2, rate = learning_rate();
        const double m = b1 * fabs(hs_initial(trial, M)[i]) + (1.0 - b1) * g, v = hs_exact(trial, V)[i];
        const double v_size = b2 * hs_initial(trial, V)[i] + (1.0 - b2) * g * g;
        const double p = fabs(parameter_before(trial)[i]);
        trial->operands[M].error[i] = hs_gamma(3 + roundings) * m;
        trial->operands[V].error[i] = hs_gamma(4 + 2 * roundings) * v_size;
        const double step = rate * m / (double)step_scalars.bias_correction1 /
                            (sqrt(v / (double)step_scalars.bias_correction2) + (double)adam_epsilon);
        /* |sqrt(1 + e) - 1| <= e / 2 (1 + e); quotients, products, root and sum: 8 and a function */
        const double relative = trial->operands[V].error[i] / v;
        const double error =
            (hs_gamma(3 + roundings + 8 + HS_FUNCTION_ROUNDINGS) + relative / 2) * (1 + relative) * step +
            hs_gamma(3) * (p * (1.0 + rate * (double)decay) + step);
        bound_finish(trial, i, error);
    }
}

static const HsCase adamw_timed[] = {
    { HS_BF16, HS_F32, HS_F32, .columns = 768 * 3072, .options = HS_CASE_MASTER },
    { HS_F32, HS_F32, HS_F32, .columns = 768 * 3072, .options = 0 },
    { HS_F16, HS_F32, HS_F32, .columns = 768 * 3072, .options = HS_CASE_MASTER },
    { HS_BF16, HS_F32, HS_F32, .columns = 768 * 3072, .options = HS_CASE_MASTER | HS_CASE_ANCHOR | HS_CASE_IMPORTANCE },
};

const HsOpTest hs_op_test_adamw = {
    .cases = adamw_cases,
    .case_count = HS_COUNT_OF(adamw_cases),
    .timed = adamw_timed,
    .timed_count = HS_COUNT_OF(adamw_timed),
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
                                            .weight = t[WEIGHT],
                                            .protection = protection_of(trial, t) });
}

/* d = g + wd p: two roundings after the gradient's, on |g| + wd |p|; each of buffer, direction and parameter adds a
 * product and an addition. */
static void bound_sgd(HsTrial *trial)
{
    const int roundings = gradient_roundings(trial);
    for (int64_t i = 0; i < trial->config->columns && !hs_case_has(trial, HS_CASE_SKIP); i++) {
        const double p = fabs(parameter_before(trial)[i]), rate = learning_rate();
        const double descent = gradient_size(trial, i) + (double)decay * p;
        double direction = descent;
        if (hs_case_has(trial, HS_CASE_MOMENTUM)) {
            const double buffer = (double)momentum * fabs(hs_initial(trial, BUFFER)[i]) + descent;
            trial->operands[BUFFER].error[i] = hs_gamma(4 + roundings) * buffer;
            direction = hs_case_has(trial, HS_CASE_NESTEROV) ? descent + (double)momentum * buffer : buffer;
        }
        bound_finish(trial, i, hs_gamma(8 + roundings) * rate * direction + hs_gamma(1) * (p + rate * direction));
    }
}

static const HsCase sgd_timed[] = {
    { HS_BF16, HS_F32, HS_F32, .columns = 768 * 3072, .options = HS_CASE_MASTER | HS_CASE_MOMENTUM },
    { HS_F32, HS_F32, HS_F32, .columns = 768 * 3072, .options = HS_CASE_MOMENTUM },
    { HS_F16, HS_F32, HS_F32, .columns = 768 * 3072, .options = HS_CASE_MASTER | HS_CASE_MOMENTUM },
};

const HsOpTest hs_op_test_sgd = {
    .cases = sgd_cases,
    .case_count = HS_COUNT_OF(sgd_cases),
    .timed = sgd_timed,
    .timed_count = HS_COUNT_OF(sgd_timed),
    .declare = declare_sgd,
    .prepare = prepare_update,
    .bound = bound_sgd,
    .call = call_sgd,
};
