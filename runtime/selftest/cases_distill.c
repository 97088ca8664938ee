/* SPDX-License-Identifier: MIT
 *
 * Cases of distillation: odd vocabularies, ignored and replayed rows, missing entries, gradients in every format.
 */
#include "runtime/selftest/bounds.h"

static const float weight = 0.7f, temperature = 2.0f;

static HsTensor matrix(const HsTrial *trial, HsDtype dtype)
{
    return hs_tensor_2d(NULL, dtype, trial->config->rows, trial->config->columns);
}

static HsTensor kept(const HsTrial *trial, HsDtype dtype)
{
    return hs_tensor_2d(NULL, dtype, trial->config->rows, trial->config->depth);
}

static HsTensor marks(const HsTrial *trial)
{
    return hs_tensor_1d(NULL, HS_I32, trial->config->rows);
}

static double spread(const HsTrial *trial)
{
    return hs_case_has(trial, HS_CASE_HUGE) ? 200.0 : 3.0;
}

/* --- top_logits: rows N, columns V, depth K --- */

#define TOP(n, v, k)                                                                                                \
    { HS_F32, HS_F32, HS_F32, n, v, k, .options = 0 }, { HS_F32, HS_F32, HS_F32, n, v, k, .options = HS_CASE_PRE }, \
    {                                                                                                               \
        HS_F32, HS_F32, HS_F32, n, v, k, .options = HS_CASE_NONFINITE                                               \
    }

static const HsCase top_cases[] = {
    TOP(1, 1, 1),     TOP(3, 7, 7),      TOP(5, 17, 4),
    TOP(9, 255, 16),  TOP(2, 256, 256),  TOP(70, 300, 256),
    TOP(4, 5003, 16), TOP(2, 60001, 33), { HS_F32, HS_F32, HS_F32, 5, 66, 8, .options = HS_CASE_UNALIGNED },
};

enum { TOP_LOGITS, TOP_VALUE, TOP_INDEX };

static void declare_top(HsTrial *trial)
{
    HsTrialOperand *operands = trial->operands;
    operands[TOP_LOGITS] = hs_input("logits", 3.0, matrix(trial, HS_F32));
    if (hs_case_has(trial, HS_CASE_NONFINITE))
        operands[TOP_LOGITS] = hs_filled(operands[TOP_LOGITS], HS_FILL_BROKEN);
    operands[TOP_VALUE] = hs_output("value", kept(trial, HS_F32));
    operands[TOP_VALUE].exact_bits = true;
    operands[TOP_INDEX] = hs_output("index", kept(trial, HS_I32));
}

/* Rounded to whole numbers, most logits have equals, and zeros come with both signs. */
static HsStatus prepare_top(HsTrial *trial, HsContext *reference)
{
    float *logits = trial->operands[TOP_LOGITS].image;
    (void)reference;
    for (int64_t i = 0; i < trial->config->rows * trial->config->columns && hs_case_has(trial, HS_CASE_PRE); i++)
        logits[i] = rintf(logits[i]);
    return HS_OK;
}

static HsStatus call_top(HsTrial *trial, HsContext *context, const HsTensor *t)
{
    (void)trial;
    return hs_op_top_logits(
        context, &(HsTopLogitsArgs){ .logits = t[TOP_LOGITS], .value = t[TOP_VALUE], .index = t[TOP_INDEX] });
}

static const HsCase top_timed[] = {
    { HS_F32, HS_F32, HS_F32, 512, 50304, 16, .options = 0 },
};

const HsOpTest hs_op_test_top_logits = {
    .cases = top_cases,
    .case_count = HS_COUNT_OF(top_cases),
    .timed = top_timed,
    .timed_count = HS_COUNT_OF(top_timed),
    .declare = declare_top,
    .prepare = prepare_top,
    .call = call_top,
};

/* --- match_logits: alpha is the weight of the targets --- */

#define MATCH(n, v, k)                                                                                       \
    { HS_F32, HS_F32, HS_F32, n, v, k, .alpha = 1.0f }, { HS_F32, HS_BF16, HS_F32, n, v, k, .alpha = 1.0f }, \
        { HS_F32, HS_F16, HS_F32, n, v, k, .alpha = 0.5f },                                                  \
    {                                                                                                        \
        HS_F32, HS_F32, HS_F32, n, v, k, .alpha = 0.5f                                                       \
    }

static const HsCase match_cases[] = {
    MATCH(1, 1, 1),
    MATCH(7, 7, 7),
    MATCH(17, 63, 5),
    MATCH(9, 300, 256),
    MATCH(64, 65, 16),
    MATCH(20, 5003, 16),
    { HS_F32, HS_BF16, HS_F32, 9, 66, 8, .alpha = 0.5f, .options = HS_CASE_UNALIGNED },
};

enum { LOGITS, TARGETS, REPLAYED, SCALE, LOSSES, DLOGITS, VALUE, INDEX, TEACHER = VALUE };

static void declare_common(HsTrial *trial)
{
    const HsCase *config = trial->config;
    HsTrialOperand *operands = trial->operands;
    operands[LOGITS] = hs_input("logits", spread(trial), matrix(trial, HS_F32));
    operands[TARGETS] = hs_filled(hs_input("targets", (double)config->columns, marks(trial)), HS_FILL_TARGET);
    operands[REPLAYED] = hs_filled(hs_input("replayed", 2.0, marks(trial)), HS_FILL_INDEX);
    operands[SCALE] = hs_filled(hs_input("gradient_scale", 1.0, hs_tensor_1d(NULL, HS_F32, 1)), HS_FILL_POSITIVE);
    operands[SCALE].as_is = true;
    operands[LOSSES] = hs_output("losses", hs_tensor_1d(NULL, HS_F32, config->rows));
    operands[DLOGITS] = hs_updated("dlogits", 1.0, matrix(trial, config->out));
}

static void declare_match(HsTrial *trial)
{
    declare_common(trial);
    trial->operands[VALUE] = hs_input("value", 3.0, kept(trial, HS_F32));
    trial->operands[INDEX] = hs_input("index", 1.0, kept(trial, HS_I32));
}

/* The places of a row differ, and some are missing. */
static HsStatus prepare_match(HsTrial *trial, HsContext *reference)
{
    const int64_t count = trial->config->depth;
    int32_t *index = trial->operands[INDEX].image;
    (void)reference;
    for (int64_t n = 0; n < trial->config->rows; n++)
        for (int64_t k = 0; k < count; k++)
            index[n * count + k] = (n + k) % 5 == 4 ? -1 : (int32_t)((7 * n + k) % trial->config->columns);
    return HS_OK;
}

static HsStatus call_match(HsTrial *trial, HsContext *context, const HsTensor *t)
{
    return hs_op_match_logits(context, &(HsMatchLogitsArgs){ .logits = t[LOGITS],
                                                             .targets = t[TARGETS],
                                                             .replayed = t[REPLAYED],
                                                             .value = t[VALUE],
                                                             .index = t[INDEX],
                                                             .weight = weight,
                                                             .target_weight = trial->config->alpha,
                                                             .gradient_scale = t[SCALE].data,
                                                             .losses = t[LOSSES],
                                                             .dlogits = t[DLOGITS] });
}

/* A distance rounds once, what it is multiplied by a few times; then two products are added. */
static void bound_match(HsTrial *trial)
{
    const int64_t columns = trial->config->columns, count = trial->config->depth;
    const int32_t *index = trial->operands[INDEX].exact.data;
    const double scale = (double)*(const float *)trial->operands[SCALE].exact.data;
    for (int64_t n = 0; n < trial->config->rows; n++) {
        trial->operands[LOSSES].error[n] = hs_gamma(count + 8) * hs_exact(trial, LOSSES)[n];
        for (int64_t v = n * columns; v < (n + 1) * columns; v++)
            trial->operands[DLOGITS].error[v] =
                hs_gamma(2) * fabs((double)trial->config->alpha * hs_initial(trial, DLOGITS)[v]);
        for (int64_t k = n * count; k < (n + 1) * count; k++) {
            if (index[k] < 0)
                continue;
            const double distance =
                fabs(hs_initial(trial, LOGITS)[n * columns + index[k]] - hs_initial(trial, VALUE)[k]);
            trial->operands[DLOGITS].error[n * columns + index[k]] +=
                hs_gamma(8) * scale * 2.0 * (double)weight / (double)count * distance;
        }
    }
}

/* What moves is counted as if every row were replayed: only its entries of the logits, and of the gradient where the
 * targets weigh 1. */
static double bytes_of_match(const HsTrial *trial, const HsContext *context)
{
    const HsTrialOperand *operands = trial->operands;
    const double entries = (double)(trial->config->rows * trial->config->depth);
    const double whole = hs_operand_bytes(&operands[LOGITS]) + hs_operand_bytes(&operands[DLOGITS]);
    const double gradient = 2.0 * entries * (double)hs_dtype_bytes(trial->config->out);
    (void)context;
    return hs_trial_bytes(trial) - whole + entries * sizeof(float) +
           (trial->config->alpha == 1.0f ? gradient : hs_operand_bytes(&operands[DLOGITS]));
}

static const HsCase match_timed[] = {
    { HS_F32, HS_BF16, HS_F32, 512, 50304, 16, .alpha = 0.5f },
};

const HsOpTest hs_op_test_match_logits = {
    .cases = match_cases,
    .case_count = HS_COUNT_OF(match_cases),
    .timed = match_timed,
    .timed_count = HS_COUNT_OF(match_timed),
    .declare = declare_match,
    .prepare = prepare_match,
    .bound = bound_match,
    .call = call_match,
    .bytes = bytes_of_match,
};

/* --- distill --- */

#define DISTILL(n, v)                                                                                               \
    { HS_F32, HS_F32, HS_F32, n, v, .options = 0 }, { HS_F32, HS_BF16, HS_F32, n, v, .options = HS_CASE_RESIDUAL }, \
        { HS_F32, HS_F16, HS_F32, n, v, .options = HS_CASE_HUGE },                                                  \
    {                                                                                                               \
        HS_F32, HS_F32, HS_F32, n, v, .options = HS_CASE_HUGE                                                       \
    }

static const HsCase distill_cases[] = {
    DISTILL(1, 1),     DISTILL(7, 7),
    DISTILL(17, 63),   DISTILL(9, 300),
    DISTILL(64, 65),   DISTILL(4, 5003),
    DISTILL(2, 60001), { HS_F32, HS_BF16, HS_F32, 9, 66, .options = HS_CASE_UNALIGNED },
};

/* With HS_CASE_RESIDUAL no row is said to be replayed; with HS_CASE_HUGE those that are have a teacher too. */
static HsTeaching teaching_of(const HsTrial *trial, bool again)
{
    if (!again)
        return (HsTeaching){ .weight = weight, .temperature = temperature, .target_weight = 1.0f };
    return (HsTeaching){ .weight = hs_case_has(trial, HS_CASE_HUGE) ? 1.25f : 0.0f,
                         .temperature = 0.75f,
                         .target_weight = 0.25f };
}

static void declare_distill(HsTrial *trial)
{
    declare_common(trial);
    if (hs_case_has(trial, HS_CASE_RESIDUAL))
        trial->operands[REPLAYED] = (HsTrialOperand){ 0 };
    trial->operands[TEACHER] = hs_input("teacher", spread(trial), matrix(trial, HS_F32));
    trial->operands[LOSSES].role = HS_ROLE_BOTH; /* replayed rows keep what they have */
    trial->operands[LOSSES].overwritten = true;
}

static HsStatus call_distill(HsTrial *trial, HsContext *context, const HsTensor *t)
{
    return hs_op_distill(context, &(HsDistillArgs){ .logits = t[LOGITS],
                                                    .teacher = t[TEACHER],
                                                    .targets = t[TARGETS],
                                                    .replayed = t[REPLAYED],
                                                    .fresh = teaching_of(trial, false),
                                                    .again = teaching_of(trial, true),
                                                    .gradient_scale = t[SCALE].data,
                                                    .losses = t[LOSSES],
                                                    .dlogits = t[DLOGITS] });
}

/* The exact lse of a row of logits / t, and how far off f32 may be: as for the cross-entropy, with the roundings of the
 * division. */
typedef struct RowScores {
    double lse, error;
} RowScores;

static RowScores analyse(const double *logits, int64_t count, double t)
{
    double maximum = -INFINITY, largest = 0.0, total = 0.0;
    for (int64_t v = 0; v < count; v++) {
        maximum = fmax(maximum, logits[v]);
        largest = fmax(largest, fabs(logits[v]));
    }
    for (int64_t v = 0; v < count; v++)
        total += exp((logits[v] - maximum) / t);
    const double lse = maximum / t + log(total);
    const double error = hs_gamma(8) * largest / t + hs_gamma(2 * count + HS_FUNCTION_ROUNDINGS) +
                         hs_gamma(HS_FUNCTION_ROUNDINGS + 1) * (fabs(lse) + log(total));
    return (RowScores){ lse, error };
}

static void bound_distill_row(HsTrial *trial, int64_t n, const HsTeaching *teaching, double pull)
{
    const int64_t columns = trial->config->columns, row = n * columns;
    const double *logits = hs_initial(trial, LOGITS) + row, *teacher = hs_initial(trial, TEACHER) + row;
    const double t = (double)teaching->temperature;
    const RowScores student = analyse(logits, columns, t), taught = analyse(teacher, columns, t);
    double loss = 0.0, size = 0.0;
    for (int64_t v = 0; v < columns; v++) {
        const double l = logits[v] / t - student.lse, z = teacher[v] / t - taught.lse, p = exp(l), q = exp(z);
        const double l_error = student.error + hs_gamma(4) * (fabs(logits[v]) / t + fabs(student.lse));
        const double z_error = taught.error + hs_gamma(4) * (fabs(teacher[v]) / t + fabs(taught.lse));
        const double p_error = p * expm1(l_error + hs_gamma(HS_FUNCTION_ROUNDINGS));
        const double q_error = q * expm1(z_error + hs_gamma(HS_FUNCTION_ROUNDINGS));
        trial->operands[DLOGITS].error[row + v] =
            pull * (p_error + q_error + hs_gamma(6) * (p + q)) +
            hs_gamma(3) * (double)teaching->target_weight * fabs(hs_initial(trial, DLOGITS)[row + v]);
        loss += q_error * fabs(z - l) + (q + q_error) * (l_error + z_error);
        size += (q + q_error) * (fabs(z - l) + l_error + z_error);
    }
    trial->operands[LOSSES].error[n] = (double)teaching->weight * (loss + hs_gamma(columns + 6) * size);
}

static void bound_distill(HsTrial *trial)
{
    const int32_t *targets = trial->operands[TARGETS].exact.data;
    const double scale = (double)*(const float *)trial->operands[SCALE].exact.data;
    const int32_t *replayed = trial->operands[REPLAYED].exact.data;
    for (int64_t n = 0; n < trial->config->rows; n++) {
        const HsTeaching teaching = teaching_of(trial, replayed && replayed[n]);
        if (targets[n] >= 0 && teaching.weight != 0.0f)
            bound_distill_row(trial, n, &teaching, scale * (double)teaching.weight / (double)teaching.temperature);
    }
}

static const HsCase distill_timed[] = {
    { HS_F32, HS_BF16, HS_F32, 512, 50304, .options = HS_CASE_RESIDUAL },
    { HS_F32, HS_F32, HS_F32, 512, 50304, .options = HS_CASE_RESIDUAL },
};

const HsOpTest hs_op_test_distill = {
    .cases = distill_cases,
    .case_count = HS_COUNT_OF(distill_cases),
    .timed = distill_timed,
    .timed_count = HS_COUNT_OF(distill_timed),
    .declare = declare_distill,
    .bound = bound_distill,
    .call = call_distill,
};
