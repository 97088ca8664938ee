/* SPDX-License-Identifier: MIT
 *
 * Cases of the update rules, plain and with what continual learning adds.
 */
#include "runtime/selftest/bounds.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/ops/moment_map.h"

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

/* Protection: both steps with and without an importance, each alone and with the path integral; the path alone;
 * a pull computed beforehand, alone and with a penalty. */
#define GUARDED(n, more)                                                                                          \
    UPDATE(n, (more) | HS_CASE_ANCHOR | HS_CASE_IMPORTANCE),                                                      \
        UPDATE(n, (more) | HS_CASE_ANCHOR | HS_CASE_IMPORTANCE | HS_CASE_PROXIMAL),                               \
        UPDATE(n, (more) | HS_CASE_ANCHOR), UPDATE(n, (more) | HS_CASE_ANCHOR | HS_CASE_PROXIMAL),                \
        UPDATE(n, (more) | HS_CASE_PATH), UPDATE(n, (more) | HS_CASE_PATH | HS_CASE_ANCHOR | HS_CASE_IMPORTANCE), \
        UPDATE(n, (more) | HS_CASE_PULL), UPDATE(n, (more) | HS_CASE_PULL | HS_CASE_ANCHOR | HS_CASE_IMPORTANCE), \
        UPDATE(n, (more) | HS_CASE_PATH | HS_CASE_ANCHOR | HS_CASE_IMPORTANCE | HS_CASE_PROXIMAL)

/* moments in out */
#define ROUNDED_MOMENTS(n, more)                                                                  \
    { HS_F32, HS_BF16, HS_F32, .columns = n, .options = (more) },                                 \
        { HS_BF16, HS_BF16, HS_BF16, .columns = n, .options = (more) | HS_CASE_MASTER },          \
        { HS_BF16, HS_BF16, HS_F32, .columns = n, .options = (more) | HS_CASE_MASTER },           \
        { HS_F16, HS_BF16, HS_F16, .columns = n, .options = (more) | HS_CASE_MASTER },            \
        { HS_BF16, HS_BF16, HS_BF16, .columns = n, .options = (more) },                           \
    {                                                                                             \
        HS_BF16, HS_BF16, HS_F32, .columns = n, .options = (more) | HS_CASE_MASTER | HS_CASE_SKIP \
    }

static const HsCase adamw_cases[] = {
    UPDATE(1, 0),
    UPDATE(2, 0),
    UPDATE(3, 0),
    UPDATE(7, 0),
    UPDATE(17, 0),
    UPDATE(63, 0),
    UPDATE(64, 0),
    UPDATE(65, 0),
    UPDATE(127, 0),
    UPDATE(129, 0),
    UPDATE(5000, 0),
    GUARDED(1, 0),
    GUARDED(17, 0),
    GUARDED(65, 0),
    GUARDED(129, 0),
    GUARDED(1023, 0),
    GUARDED(20000, 0),
    GUARDED(64, HS_CASE_UNALIGNED),
    ROUNDED_MOMENTS(1, 0),
    ROUNDED_MOMENTS(17, 0),
    ROUNDED_MOMENTS(65, 0),
    ROUNDED_MOMENTS(5000, 0),
    ROUNDED_MOMENTS(129, HS_CASE_PATH | HS_CASE_ANCHOR | HS_CASE_IMPORTANCE),
    ROUNDED_MOMENTS(1023, HS_CASE_PULL | HS_CASE_ANCHOR | HS_CASE_PROXIMAL),
    ROUNDED_MOMENTS(64, HS_CASE_UNALIGNED),
    UPDATE(1, HS_CASE_SCHEDULE_FREE),
    UPDATE(7, HS_CASE_SCHEDULE_FREE),
    UPDATE(17, HS_CASE_SCHEDULE_FREE),
    UPDATE(65, HS_CASE_SCHEDULE_FREE),
    UPDATE(129, HS_CASE_SCHEDULE_FREE),
    UPDATE(5000, HS_CASE_SCHEDULE_FREE),
    GUARDED(17, HS_CASE_SCHEDULE_FREE),
    GUARDED(1023, HS_CASE_SCHEDULE_FREE),
    GUARDED(64, HS_CASE_SCHEDULE_FREE | HS_CASE_UNALIGNED),
    ROUNDED_MOMENTS(17, HS_CASE_SCHEDULE_FREE),
    ROUNDED_MOMENTS(5000, HS_CASE_SCHEDULE_FREE),
    ROUNDED_MOMENTS(129, HS_CASE_SCHEDULE_FREE | HS_CASE_PATH | HS_CASE_ANCHOR | HS_CASE_IMPORTANCE),
    ROUNDED_MOMENTS(64, HS_CASE_SCHEDULE_FREE | HS_CASE_UNALIGNED),
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

/* direction: in f32 after momentum, in any format before descend */
static const HsCase momentum_cases[] = {
    UPDATE(1, 0),
    UPDATE(3, HS_CASE_NESTEROV),
    UPDATE(17, 0),
    UPDATE(65, HS_CASE_NESTEROV),
    UPDATE(5000, 0),
    UPDATE(5000, HS_CASE_NESTEROV),
    GUARDED(17, 0),
    GUARDED(129, HS_CASE_NESTEROV),
    GUARDED(64, HS_CASE_UNALIGNED),
    UPDATE(5000, HS_CASE_NO_MOMENT),
    GUARDED(17, HS_CASE_NO_MOMENT),
    GUARDED(65, HS_CASE_NO_MOMENT | HS_CASE_UNALIGNED),
};

#define DESCEND(n)                                                                       \
    UPDATE(n, 0), { HS_BF16, HS_BF16, HS_F32, .columns = n, .options = HS_CASE_MASTER }, \
        { HS_BF16, HS_BF16, HS_F32, .columns = n },                                      \
    {                                                                                    \
        HS_F16, HS_F16, HS_F32, .columns = n, .options = HS_CASE_MASTER                  \
    }
/* A direction of `height` rows, `n` elements in all, with factors of its rows or columns. */
#define SCALED(height, n, more)                                                                        \
    { HS_F32, HS_F32, HS_F32, .rows = height, .columns = n, .options = (more) },                       \
        { HS_F32, HS_F32, HS_BF16, .rows = height, .columns = n, .options = (more) },                  \
        { HS_BF16, HS_F32, HS_F32, .rows = height, .columns = n, .options = (more) | HS_CASE_MASTER }, \
        { HS_F16, HS_F32, HS_F16, .rows = height, .columns = n, .options = (more) | HS_CASE_MASTER },  \
    {                                                                                                  \
        HS_BF16, HS_F32, HS_BF16, .rows = height, .columns = n, .options = (more)                      \
    }

static const HsCase descend_cases[] = {
    DESCEND(1),
    DESCEND(3),
    DESCEND(17),
    DESCEND(65),
    DESCEND(5000),
    GUARDED(17, 0),
    GUARDED(129, 0),
    GUARDED(64, HS_CASE_UNALIGNED),
    UPDATE(3, HS_CASE_CAUTIOUS),
    UPDATE(5000, HS_CASE_CAUTIOUS),
    GUARDED(65, HS_CASE_CAUTIOUS),
    SCALED(1, 1, 0),
    SCALED(7, 21, 0),
    SCALED(3, 51, HS_CASE_OF_COLUMNS),
    SCALED(40, 5120, 0),
    SCALED(40, 5120, HS_CASE_OF_COLUMNS),
    SCALED(9, 117, HS_CASE_CAUTIOUS),
    SCALED(8, 136, HS_CASE_OF_COLUMNS | HS_CASE_ANCHOR | HS_CASE_IMPORTANCE | HS_CASE_PATH),
    SCALED(16, 256, HS_CASE_ANCHOR | HS_CASE_IMPORTANCE | HS_CASE_PROXIMAL),
    SCALED(4, 64, HS_CASE_OF_COLUMNS | HS_CASE_UNALIGNED),
    SCALED(4, 64, HS_CASE_SKIP),
};

enum { SCALARS, GRAD, WEIGHT, MASTER, M, V, IMPORTANCE, ANCHOR, PULL, PATH, DIRECTION, BUFFER = M, FACTORS = M };

static const HsStepScalars step_scalars = { .learning_rate = 0.01f,
                                            .momentum = 0.9f,
                                            .gradient_multiplier = 0.37f,
                                            .bias_correction1 = 0.271f,
                                            .bias_correction2 = 0.0297f,
                                            .unscale = 0.61f,
                                            .free_rate = 0.013f,
                                            .free_weight = 0.21f };
static const float decay = 0.1f, rate_scale = 0.5f, beta1 = 0.9f, beta2 = 0.99f, adam_epsilon = 1e-8f, momentum = 0.9f;
/* lr strength importance is near 1 in the proximal step, and the pull in the gradient step some hundred gradients. */
static const float strength = 300.0f;

/* The operands that the rules share. */
static void declare_parameter(HsTrial *trial)
{
    const HsCase *config = trial->config;
    HsTrialOperand *operands = trial->operands;
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
    if (hs_case_has(trial, HS_CASE_PULL))
        operands[PULL] = hs_input("pull", 1.0, state);
    if (hs_case_has(trial, HS_CASE_PATH))
        operands[PATH] = hs_updated("path", 0.1, state);
}

static HsProtection protection_of(const HsTrial *trial, const HsTensor *t)
{
    return (HsProtection){ .importance = t[IMPORTANCE],
                           .anchor = t[ANCHOR],
                           .path = t[PATH],
                           .pull = t[PULL],
                           .strength = strength,
                           .proximal = hs_case_has(trial, HS_CASE_PROXIMAL) };
}

static HsUpdateArgs update_of(const HsTrial *trial, const HsTensor *t)
{
    return (HsUpdateArgs){ .scalars = t[SCALARS].data,
                           .weight_decay = decay,
                           .learning_rate_scale = rate_scale,
                           .rng = { .seed = trial->seed, .step = 5, .site = 2 },
                           .grad = t[GRAD],
                           .master = t[MASTER],
                           .weight = t[WEIGHT],
                           .protection = protection_of(trial, t) };
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
    const HsTensor moment = hs_tensor_1d(NULL, trial->config->out, trial->config->columns);
    trial->operands[M] = hs_updated("m", 0.1, moment);
    trial->operands[V] = hs_filled(hs_updated("v", 0.01, moment), HS_FILL_POSITIVE);
    trial->operands[M].one_sided = trial->operands[V].one_sided = moment.dtype == HS_BF16;
}

static HsStatus call_adamw(HsTrial *trial, HsContext *context, const HsTensor *t)
{
    return hs_op_adamw(context, &(HsAdamWArgs){ .update = update_of(trial, t),
                                                .beta1 = beta1,
                                                .beta2 = beta2,
                                                .epsilon = adam_epsilon,
                                                .schedule_free = hs_case_has(trial, HS_CASE_SCHEDULE_FREE),
                                                .m = t[M],
                                                .v = t[V] });
}

static const double *parameter_before(const HsTrial *trial)
{
    return hs_initial(trial, hs_operand_present(trial, MASTER) ? MASTER : WEIGHT);
}

static double learning_rate(const HsTrial *trial)
{
    const bool free = hs_case_has(trial, HS_CASE_SCHEDULE_FREE);
    return (double)(free ? step_scalars.free_rate : step_scalars.learning_rate) * (double)rate_scale;
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

/* The sizes of what a gradient is made of: |grad multiplier| + |strength pull| + |strength importance (p - anchor)|. */
static double gradient_size(const HsTrial *trial, int64_t i)
{
    double g = fabs(hs_initial(trial, GRAD)[i] * (double)step_scalars.gradient_multiplier);
    if (hs_operand_present(trial, PULL))
        g += (double)strength * fabs(hs_initial(trial, PULL)[i]);
    if (!has_gradient_step(trial))
        return g;
    return g + pull(trial, i) * fabs(parameter_before(trial)[i] - hs_initial(trial, ANCHOR)[i]);
}

/* Roundings on that size: one product; or one difference, two products and an addition; with a pull one addition more.
 */
static int gradient_roundings(const HsTrial *trial)
{
    return (has_gradient_step(trial) ? 4 : 1) + (hs_operand_present(trial, PULL) ? 2 : 0);
}

/* What comes after the rule, which leaves p off by `error`.
 * Proximal: k takes 3 roundings, k / (1 + k) two more and dampens k's; difference, product: 7 on what is taken away,
 * which is k / (1 + k) (p - anchor) = k (p_new - anchor); then the subtraction.  p's own error only shrinks.
 * Path: what is stored differs by its whole tolerance, and difference, unscaling and product round once each. */
static void bound_finish(HsTrial *trial, int64_t i, double error)
{
    const bool master = hs_operand_present(trial, MASTER);
    const int kept = master ? MASTER : WEIGHT;
    const double p = hs_exact(trial, kept)[i];
    if (hs_case_has(trial, HS_CASE_PROXIMAL))
        error +=
            hs_gamma(7) * learning_rate(trial) * pull(trial, i) * (fabs(p - hs_initial(trial, ANCHOR)[i]) + error) +
            hs_gamma(1) * fabs(p);
    hs_bound_parameter(trial, WEIGHT, MASTER, i, error);
    if (!hs_operand_present(trial, PATH))
        return;
    const HsTrialOperand *operand = &trial->operands[kept];
    const double rounding = hs_tolerance(0, 0, HS_F32, operand->tensor.dtype, 0.0, fabs(p) + error);
    const double stored = error + rounding * (operand->one_sided ? 2.0 : 1.0);
    const double g = fabs(hs_initial(trial, GRAD)[i] * (double)step_scalars.unscale);
    const double moved = fabs(p - hs_initial(trial, kept)[i]) + stored;
    trial->operands[PATH].error[i] = g * (stored + hs_gamma(3) * moved);
}

/* One element without a schedule, where v's relative error is known.  The direction is a quotient, which passes on the
 * gradient's roundings and half of v's error and adds quotient, root and sum, plus decay, fused.  Of the step's factor
 * lr (b1 (1-c) - 1) each rounding is of no more than lr (b1 (1-c) + 1): product of rates, difference, sum, product; z - y
 * has lr b1 (1-c).  Two fused additions follow. */
static void bound_schedule_free(HsTrial *trial, int64_t i, double relative)
{
    const double g = gradient_size(trial, i), p = fabs(parameter_before(trial)[i]), rate = learning_rate(trial);
    const double c = (double)step_scalars.free_weight, kept = (double)beta1 * (1.0 - c);
    const double apart = fabs(hs_initial(trial, M)[i]);
    const double quotient = g / (sqrt(hs_exact(trial, V)[i]) + (double)adam_epsilon);
    const double direction = quotient + (double)decay * p;
    const double off =
        (hs_gamma(gradient_roundings(trial) + 3 + HS_FUNCTION_ROUNDINGS) + relative / 2) * (1 + relative) * quotient +
        hs_gamma(1) * direction;
    const double step = rate * (kept + 1.0), back = rate * kept;
    trial->operands[M].error[i] =
        back * off + hs_gamma(5) * back * direction + hs_gamma(2) * (apart + back * direction);
    bound_finish(trial, i,
                 step * off + hs_gamma(5) * step * direction + hs_gamma(2) * (p + c * apart + step * direction));
}

/* m: two products and an addition after the gradient's roundings.  v: the same with g^2, where all terms are positive
 * but g itself may be a difference.  The step m/bc1 / (sqrt(v/bc2) + eps) passes m's error on and half of v's relative
 * one, and adds its own roundings. */
static void bound_adamw(HsTrial *trial)
{
    const int roundings = gradient_roundings(trial);
    for (int64_t i = 0; i < trial->config->columns && !hs_case_has(trial, HS_CASE_SKIP); i++) {
        const double g = gradient_size(trial, i), b1 = (double)beta1, b2 = (double)beta2, rate = learning_rate(trial);
        const double m = b1 * fabs(hs_initial(trial, M)[i]) + (1.0 - b1) * g, v = hs_exact(trial, V)[i];
        const double v_size = b2 * hs_initial(trial, V)[i] + (1.0 - b2) * g * g;
        const double p = fabs(parameter_before(trial)[i]);
        trial->operands[M].error[i] = hs_gamma(3 + roundings) * m;
        trial->operands[V].error[i] = hs_gamma(4 + 2 * roundings) * v_size;
        if (hs_case_has(trial, HS_CASE_SCHEDULE_FREE)) {
            bound_schedule_free(trial, i, trial->operands[V].error[i] / v);
            continue;
        }
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

/* Moments of the 8-bit rule before and after the step, exactly; what a correct f32 may be off by. */
enum { M_ABSMAX = DIRECTION, V_ABSMAX };
typedef struct Moment {
    double before, after, error;
} Moment;

static double decoded(const HsTrial *trial, bool is_signed, int64_t i)
{
    const HsMomentMap map = trial->config->map;
    const uint8_t *codes = trial->operands[is_signed ? M : V].image;
    const double absmax = hs_initial(trial, is_signed ? M_ABSMAX : V_ABSMAX)[i / HS_DYNAMIC_BLOCK];
    return (double)hs_moment_number(map, is_signed, codes[i]) * absmax / (double)hs_moment_largest(map, is_signed);
}

static double exact_gradient(const HsTrial *trial, int64_t i)
{
    double g = hs_initial(trial, GRAD)[i] * (double)step_scalars.gradient_multiplier;
    if (hs_operand_present(trial, PULL))
        g += (double)strength * hs_initial(trial, PULL)[i];
    return has_gradient_step(trial) ? g + pull(trial, i) * (parameter_before(trial)[i] - hs_initial(trial, ANCHOR)[i])
                                    : g;
}

/* Of m, on sizes: adamw's, one more where the unit multiplies, and fp8's where the unit is made. */
static int moment_roundings(const HsTrial *trial)
{
    return trial->config->map == HS_MOMENTS_FP8 ? 5 : 4;
}

static Moment moment_of(const HsTrial *trial, bool is_signed, int64_t i)
{
    const double beta = (double)(is_signed ? beta1 : beta2), power = is_signed ? 1.0 : 2.0;
    const double g = exact_gradient(trial, i), size = gradient_size(trial, i);
    const int roundings = gradient_roundings(trial), own = moment_roundings(trial) + (is_signed ? 0 : 1);
    Moment moment = { .before = decoded(trial, is_signed, i) };
    moment.after = beta * moment.before + (1.0 - beta) * (is_signed ? g : g * g);
    moment.error =
        hs_gamma(own + (int64_t)power * roundings) * (beta * fabs(moment.before) + (1.0 - beta) * pow(size, power));
    return moment;
}

static void declare_adamw8bit(HsTrial *trial)
{
    const int64_t count = trial->config->columns, blocks = hs_dynamic_blocks(count);
    declare_parameter(trial);
    trial->operands[M] = hs_filled(hs_updated("m", 256.0, hs_tensor_1d(NULL, HS_U8, count)), HS_FILL_INDEX);
    const double v_codes = (double)hs_moment_top(trial->config->map, false) + 1.0;
    trial->operands[V] = hs_filled(hs_updated("v", v_codes, hs_tensor_1d(NULL, HS_U8, count)), HS_FILL_INDEX);
    trial->operands[M_ABSMAX] =
        hs_filled(hs_updated("m_absmax", 0.1, hs_tensor_1d(NULL, HS_F32, blocks)), HS_FILL_POSITIVE);
    trial->operands[V_ABSMAX] =
        hs_filled(hs_updated("v_absmax", 0.01, hs_tensor_1d(NULL, HS_F32, blocks)), HS_FILL_POSITIVE);
}

/* Codes of NaN become the one below. */
static HsStatus prepare_adamw8bit(HsTrial *trial, HsContext *reference)
{
    uint8_t *codes = trial->operands[M].image;
    for (int64_t i = 0; i < trial->config->columns && trial->config->map == HS_MOMENTS_FP8; i++)
        codes[i] = (uint8_t)(codes[i] - ((codes[i] & 0x7F) == 0x7F));
    return prepare_update(trial, reference);
}

static HsStatus call_adamw8bit(HsTrial *trial, HsContext *context, const HsTensor *t)
{
    return hs_op_adamw8bit(context, &(HsAdamW8bitArgs){ .update = update_of(trial, t),
                                                        .beta1 = beta1,
                                                        .beta2 = beta2,
                                                        .epsilon = adam_epsilon,
                                                        .map = trial->config->map,
                                                        .m = t[M],
                                                        .v = t[V],
                                                        .m_absmax = t[M_ABSMAX],
                                                        .v_absmax = t[V_ABSMAX] });
}

/* absmax is off by no more than the element of its block that is off most. */
static void bound_adamw8bit(HsTrial *trial)
{
    const int roundings = moment_roundings(trial) + gradient_roundings(trial);
    for (int64_t i = 0; i < trial->config->columns && !hs_case_has(trial, HS_CASE_SKIP); i++) {
        const Moment m = moment_of(trial, true, i), v = moment_of(trial, false, i);
        double *const absmax_error[] = { &trial->operands[M_ABSMAX].error[i / HS_DYNAMIC_BLOCK],
                                         &trial->operands[V_ABSMAX].error[i / HS_DYNAMIC_BLOCK] };
        *absmax_error[0] = fmax(*absmax_error[0], m.error);
        *absmax_error[1] = fmax(*absmax_error[1], v.error);
        const double p = fabs(parameter_before(trial)[i]), rate = learning_rate(trial);
        const double m_size = m.error / hs_gamma(roundings);
        const double step = rate * m_size / (double)step_scalars.bias_correction1 /
                            (sqrt(v.after / (double)step_scalars.bias_correction2) + (double)adam_epsilon);
        const double relative = v.error / v.after;
        const double error = (hs_gamma(roundings + 8 + HS_FUNCTION_ROUNDINGS) + relative / 2) * (1 + relative) * step +
                             hs_gamma(3) * (p * (1.0 + rate * (double)decay) + step);
        bound_finish(trial, i, error);
    }
}

/* Whether a moment of this sign and of magnitude x, in the map's numbers and off by `slack` at most, may have the code:
 * x lies between the midpoints around the code's level, or, where random bits choose, between the numbers next to it.
 * The last level of a sign reaches to the end.  The first negative level of the dynamic map reaches to 0, and so does the
 * first of fp8's v that is not 0. */
static bool may_have_code(HsMomentMap map, bool is_signed, bool is_negative, double x, double slack, int code)
{
    const bool fp8 = map == HS_MOMENTS_FP8;
    const int zero = is_signed && !fp8 ? HS_DYNAMIC_ZERO : 0;
    const bool has_sign = is_signed && (fp8 ? code >= 0x80 : code < HS_DYNAMIC_ZERO);
    const int level = fp8 && has_sign ? code - 0x80 : abs(code - zero);
    const int top = is_negative && !fp8 ? HS_DYNAMIC_ZERO : hs_moment_top(map, is_signed);
    const int least = fp8 ? !is_signed : is_negative;
    if (is_negative != has_sign || level < least || level > top)
        return false;
    double low = 0.0, high = (double)hs_moment_largest(map, is_signed);
    if (level > least)
        low = (double)(fp8 ? hs_moment_number(map, is_signed, level - 1) : hs_dynamic_midpoint(is_signed, level - 1));
    if (level < top)
        high = (double)(fp8 ? hs_moment_number(map, is_signed, level + 1) : hs_dynamic_midpoint(is_signed, level));
    return x >= low - slack && x <= high + slack;
}

static bool accepts_code(const HsTrial *trial, int operand, int64_t i, double value)
{
    if (hs_case_has(trial, HS_CASE_SKIP))
        return false;
    const bool is_signed = operand == M;
    const HsMomentMap map = trial->config->map;
    const int absmax_of = is_signed ? M_ABSMAX : V_ABSMAX;
    const Moment moment = moment_of(trial, is_signed, i);
    const double absmax = hs_exact(trial, absmax_of)[i / HS_DYNAMIC_BLOCK];
    const double factor = (double)hs_moment_largest(map, is_signed) / absmax, x = fabs(moment.after) * factor;
    const double absmax_error = trial->operands[absmax_of].error[i / HS_DYNAMIC_BLOCK] / absmax;
    const double slack = moment.error * factor + x * (absmax_error + hs_gamma(3));
    const bool either = fabs(moment.after) <= moment.error, negative = moment.after < 0.0;
    return may_have_code(map, is_signed, negative, x, slack, (int)value) ||
           (either && may_have_code(map, is_signed, !negative, x, slack, (int)value));
}

/* Moments in fp8: weights with and without a master, and a skipped step. */
#define FP8(n, more)                                                                                          \
    { HS_F32, HS_F32, HS_F32, .columns = n, .map = HS_MOMENTS_FP8, .options = (more) },                       \
        { HS_BF16, HS_F32, HS_F32, .columns = n, .map = HS_MOMENTS_FP8, .options = (more) | HS_CASE_MASTER }, \
        { HS_F16, HS_F32, HS_F16, .columns = n, .map = HS_MOMENTS_FP8, .options = (more) | HS_CASE_MASTER },  \
        { HS_BF16, HS_F32, HS_BF16, .columns = n, .map = HS_MOMENTS_FP8, .options = (more) },                 \
    {                                                                                                         \
        HS_BF16, HS_F32, HS_F32, .columns = n, .map = HS_MOMENTS_FP8,                                         \
                                 .options = (more) | HS_CASE_MASTER | HS_CASE_SKIP                            \
    }
#define FP8_GUARDED(n) \
    FP8(n, HS_CASE_PATH | HS_CASE_ANCHOR | HS_CASE_IMPORTANCE), FP8(n, HS_CASE_PULL | HS_CASE_ANCHOR | HS_CASE_PROXIMAL)

/* Around a block of codes, a warp's quads and a thread block's tiles. */
static const HsCase adamw8bit_cases[] = {
    UPDATE(1, 0),
    UPDATE(3, 0),
    UPDATE(17, 0),
    UPDATE(255, 0),
    UPDATE(256, 0),
    UPDATE(257, 0),
    UPDATE(1023, 0),
    UPDATE(4097, 0),
    UPDATE(20000, 0),
    GUARDED(1, 0),
    GUARDED(129, 0),
    GUARDED(300, 0),
    GUARDED(1025, 0),
    GUARDED(20000, 0),
    GUARDED(320, HS_CASE_UNALIGNED),
    FP8(1, 0),
    FP8(17, 0),
    FP8(255, 0),
    FP8(256, 0),
    FP8(257, 0),
    FP8(1023, 0),
    FP8(4097, 0),
    FP8(20000, 0),
    FP8_GUARDED(129),
    FP8_GUARDED(1025),
    FP8(320, HS_CASE_UNALIGNED),
};

static const HsCase adamw8bit_timed[] = {
    { HS_BF16, HS_F32, HS_F32, .columns = 768 * 3072, .options = HS_CASE_MASTER },
    { HS_F32, HS_F32, HS_F32, .columns = 768 * 3072, .options = 0 },
    { HS_BF16, HS_F32, HS_F32, .columns = 768 * 3072, .options = HS_CASE_MASTER | HS_CASE_ANCHOR | HS_CASE_IMPORTANCE },
    { HS_BF16, HS_F32, HS_F32, .columns = 768 * 3072, .map = HS_MOMENTS_FP8, .options = HS_CASE_MASTER },
};

const HsOpTest hs_op_test_adamw8bit = {
    .cases = adamw8bit_cases,
    .case_count = HS_COUNT_OF(adamw8bit_cases),
    .timed = adamw8bit_timed,
    .timed_count = HS_COUNT_OF(adamw8bit_timed),
    .declare = declare_adamw8bit,
    .prepare = prepare_adamw8bit,
    .bound = bound_adamw8bit,
    .accepts = accepts_code,
    .call = call_adamw8bit,
};

static const HsCase adamw_timed[] = {
    { HS_BF16, HS_F32, HS_F32, .columns = 768 * 3072, .options = HS_CASE_MASTER },
    { HS_F32, HS_F32, HS_F32, .columns = 768 * 3072, .options = 0 },
    { HS_F16, HS_F32, HS_F32, .columns = 768 * 3072, .options = HS_CASE_MASTER },
    { HS_BF16, HS_F32, HS_F32, .columns = 768 * 3072, .options = HS_CASE_MASTER | HS_CASE_ANCHOR | HS_CASE_IMPORTANCE },
    { HS_BF16, HS_BF16, HS_F32, .columns = 768 * 3072, .options = HS_CASE_MASTER },
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
    return hs_op_sgd(context, &(HsSgdArgs){ .update = update_of(trial, t),
                                            .momentum = hs_case_has(trial, HS_CASE_MOMENTUM) ? momentum : 0.0f,
                                            .nesterov = hs_case_has(trial, HS_CASE_NESTEROV),
                                            .buffer = t[BUFFER] });
}

/* d = g + wd p: two roundings after the gradient's, on |g| + wd |p|; each of buffer, direction and parameter adds a
 * product and an addition. */
static void bound_sgd(HsTrial *trial)
{
    const int roundings = gradient_roundings(trial);
    for (int64_t i = 0; i < trial->config->columns && !hs_case_has(trial, HS_CASE_SKIP); i++) {
        const double p = fabs(parameter_before(trial)[i]), rate = learning_rate(trial);
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

/* The same as lists of LIST_MOST tensors at most, parts of the whole one: more than a launch takes. */
enum { LIST_MOST = 80 };
static const HsCase update_list_cases[] = {
    UPDATE(1, 0),
    UPDATE(257, 0),
    UPDATE(257, HS_CASE_MOMENTUM),
    UPDATE(2000, 0),
    UPDATE(20000, 0),
    UPDATE(20000, HS_CASE_MOMENTUM),
    ROUNDED_MOMENTS(5000, 0),
    GUARDED(600, 0),
    GUARDED(600, HS_CASE_MOMENTUM | HS_CASE_NESTEROV),
    GUARDED(20000, 0),
    UPDATE(1500, HS_CASE_UNALIGNED),
};

static HsTensor part_of(const HsTensor *whole, int64_t first, int64_t count)
{
    if (!hs_tensor_present(whole))
        return *whole;
    return hs_tensor_1d((unsigned char *)whole->data + (size_t)first * hs_dtype_bytes(whole->dtype), whole->dtype,
                        count);
}

/* Elements [first, first + count) of every operand but the scalars. */
static HsUpdateArgs part_of_update(const HsTrial *trial, const HsTensor *t, int64_t first, int64_t count)
{
    HsTensor part[HS_TRIAL_OPERANDS];
    for (int i = 0; i < HS_TRIAL_OPERANDS; i++)
        part[i] = i == SCALARS ? t[i] : part_of(&t[i], first, count);
    HsUpdateArgs update = update_of(trial, part);
    update.rng.row_offset = first;
    return update;
}

static HsStatus call_update_list(HsTrial *trial, HsContext *context, const HsTensor *t)
{
    const int64_t grains = (trial->config->columns + HS_SPAN_GRAIN - 1) / HS_SPAN_GRAIN;
    const int64_t length = (grains + LIST_MOST - 1) / LIST_MOST * HS_SPAN_GRAIN;
    HsAdamWArgs adamw[LIST_MOST];
    HsSgdArgs sgd[LIST_MOST];
    HsUpdateListArgs list = { .adamw = adamw, .sgd = sgd };
    const bool moving = hs_case_has(trial, HS_CASE_MOMENTUM);
    for (int64_t first = 0; first < trial->config->columns; first += length) {
        const int64_t left = trial->config->columns - first, count = left < length ? left : length;
        const HsUpdateArgs update = part_of_update(trial, t, first, count);
        if (moving)
            sgd[list.sgd_count++] = (HsSgdArgs){ .update = update,
                                                 .momentum = momentum,
                                                 .nesterov = hs_case_has(trial, HS_CASE_NESTEROV),
                                                 .buffer = part_of(&t[BUFFER], first, count) };
        else
            adamw[list.adamw_count++] = (HsAdamWArgs){ .update = update,
                                                       .beta1 = beta1,
                                                       .beta2 = beta2,
                                                       .epsilon = adam_epsilon,
                                                       .m = part_of(&t[M], first, count),
                                                       .v = part_of(&t[V], first, count) };
    }
    return hs_op_update_list(context, &list);
}

static void declare_update_list(HsTrial *trial)
{
    (hs_case_has(trial, HS_CASE_MOMENTUM) ? declare_sgd : declare_adamw)(trial);
}

static void bound_update_list(HsTrial *trial)
{
    (hs_case_has(trial, HS_CASE_MOMENTUM) ? bound_sgd : bound_adamw)(trial);
}

const HsOpTest hs_op_test_update_list = {
    .cases = update_list_cases,
    .case_count = HS_COUNT_OF(update_list_cases),
    .timed = adamw_timed,
    .timed_count = HS_COUNT_OF(adamw_timed),
    .declare = declare_update_list,
    .prepare = prepare_update,
    .bound = bound_update_list,
    .call = call_update_list,
};

/* It reads what the other rules update. */
static void declare_momentum(HsTrial *trial)
{
    const HsTensor state = hs_tensor_1d(NULL, HS_F32, trial->config->columns);
    declare_parameter(trial);
    for (int i = GRAD; i <= MASTER; i++) {
        HsTrialOperand *operand = &trial->operands[i];
        if (hs_operand_present(trial, i))
            *operand = hs_input(operand->name, operand->scale, operand->tensor);
    }
    trial->operands[PATH] = (HsTrialOperand){ 0 };
    if (!hs_case_has(trial, HS_CASE_NO_MOMENT))
        trial->operands[M] = hs_updated("m", 1.0, state);
    trial->operands[DIRECTION] = hs_output("direction", state);
}

static HsStatus call_momentum(HsTrial *trial, HsContext *context, const HsTensor *t)
{
    return hs_op_momentum(context, &(HsMomentumArgs){ .update = update_of(trial, t),
                                                      .nesterov = hs_case_has(trial, HS_CASE_NESTEROV),
                                                      .m = t[M],
                                                      .direction = t[DIRECTION] });
}

/* Two products and an addition, once for m and once more for a direction that looks ahead; 1 - b is exact. */
static void bound_momentum(HsTrial *trial)
{
    const int roundings = gradient_roundings(trial);
    const double b = (double)momentum;
    for (int64_t i = 0; i < trial->config->columns && !hs_case_has(trial, HS_CASE_SKIP); i++) {
        if (hs_case_has(trial, HS_CASE_NO_MOMENT)) {
            trial->operands[DIRECTION].error[i] = hs_gamma(roundings) * gradient_size(trial, i);
            continue;
        }
        const double fresh = (1.0 - b) * gradient_size(trial, i);
        const double m = b * fabs(hs_initial(trial, M)[i]) + fresh;
        trial->operands[M].error[i] = hs_gamma(3 + roundings) * m;
        trial->operands[DIRECTION].error[i] = hs_case_has(trial, HS_CASE_NESTEROV)
                                                  ? hs_gamma(6 + roundings) * (fresh + b * m)
                                                  : trial->operands[M].error[i];
    }
}

/* The parameter is read only where a penalty pulls on it; then from its master, if there is one. */
static double bytes_momentum(const HsTrial *trial, const HsContext *context)
{
    (void)context;
    const int kept = hs_operand_present(trial, MASTER) ? MASTER : WEIGHT;
    double bytes = 0.0;
    for (int i = 0; i <= DIRECTION; i++) {
        const bool pulled = i != WEIGHT && i != MASTER && i != ANCHOR && i != IMPORTANCE;
        if (hs_operand_present(trial, i) && (pulled || (has_gradient_step(trial) && (i > MASTER || i == kept))))
            bytes += (i == M ? 2.0 : 1.0) * (double)hs_tensor_bytes(&trial->operands[i].tensor);
    }
    return bytes;
}

static const HsCase momentum_timed[] = {
    { HS_BF16, HS_F32, HS_F32, .columns = 768 * 3072, .options = HS_CASE_MASTER | HS_CASE_NESTEROV },
};

const HsOpTest hs_op_test_momentum = {
    .cases = momentum_cases,
    .case_count = HS_COUNT_OF(momentum_cases),
    .timed = momentum_timed,
    .timed_count = HS_COUNT_OF(momentum_timed),
    .declare = declare_momentum,
    .prepare = prepare_update,
    .bound = bound_momentum,
    .call = call_momentum,
    .bytes = bytes_momentum,
};

/* With rows the direction is a matrix with factors. */
static void declare_descend(HsTrial *trial)
{
    const int64_t rows = trial->config->rows, count = trial->config->columns;
    declare_parameter(trial);
    trial->operands[DIRECTION] = hs_input("direction", 1.0,
                                          rows > 0 ? hs_tensor_2d(NULL, trial->config->out, rows, count / rows)
                                                   : hs_tensor_1d(NULL, trial->config->out, count));
    const int64_t factors = hs_case_has(trial, HS_CASE_OF_COLUMNS) && rows > 0 ? count / rows : rows;
    if (rows > 0)
        trial->operands[FACTORS] =
            hs_filled(hs_input("factors", 1.0, hs_tensor_1d(NULL, HS_F32, factors)), HS_FILL_POSITIVE);
}

static HsStatus call_descend(HsTrial *trial, HsContext *context, const HsTensor *t)
{
    return hs_op_descend(context, &(HsDescendArgs){ .update = update_of(trial, t),
                                                    .cautious = hs_case_has(trial, HS_CASE_CAUTIOUS),
                                                    .of_columns = hs_case_has(trial, HS_CASE_OF_COLUMNS),
                                                    .direction = t[DIRECTION],
                                                    .factors = t[FACTORS] });
}

static double factor_at(const HsTrial *trial, int64_t i)
{
    const int64_t rows = trial->config->rows;
    if (rows == 0)
        return 1.0;
    const int64_t columns = trial->config->columns / rows;
    return hs_initial(trial, FACTORS)[hs_case_has(trial, HS_CASE_OF_COLUMNS) ? i % columns : i / columns];
}

/* The rate, what it keeps, and the step: two roundings each, and the factor's; then product and difference. */
static void bound_descend(HsTrial *trial)
{
    const int roundings = trial->config->rows > 0 ? 6 : 5;
    for (int64_t i = 0; i < trial->config->columns && !hs_case_has(trial, HS_CASE_SKIP); i++) {
        const double p = fabs(parameter_before(trial)[i]), rate = learning_rate(trial);
        const double step = rate * factor_at(trial, i) * fabs(hs_initial(trial, DIRECTION)[i]);
        bound_finish(trial, i, hs_gamma(roundings) * (p * (1.0 + rate * (double)decay) + step));
    }
}

static const HsCase descend_timed[] = {
    { HS_BF16, HS_BF16, HS_F32, .columns = 768 * 3072, .options = HS_CASE_MASTER },
};

const HsOpTest hs_op_test_descend = {
    .cases = descend_cases,
    .case_count = HS_COUNT_OF(descend_cases),
    .timed = descend_timed,
    .timed_count = HS_COUNT_OF(descend_timed),
    .declare = declare_descend,
    .prepare = prepare_update,
    .bound = bound_descend,
    .call = call_descend,
};
