/* SPDX-License-Identifier: MIT
 *
 * Cases of distillation: odd vocabularies, ignored and replayed rows, missing entries, gradients in every format, caps.
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
    return hs_case_has(trial, HS_CASE_HUGE) ? 200.0 : trial->config->cap > 0.0f ? 50.0 : 3.0;
}

/* --- top_logits: rows N, columns V, depth K --- */

#define TOP(n, v, k)                                                                                                \
    { HS_F32, HS_F32, HS_F32, n, v, k, .options = 0 }, { HS_F32, HS_F32, HS_F32, n, v, k, .options = HS_CASE_PRE }, \
    {                                                                                                               \
        HS_F32, HS_F32, HS_F32, n, v, k, .options = HS_CASE_NONFINITE                                               \
    }

/* Far above the cap logits are equal in f32, but not in order. */
#define CAPPED_TOP(n, v, k)                                                                        \
    { HS_F32, HS_F32, HS_F32, n, v, k, .cap = 30 }, { HS_F32, HS_F32, HS_F32, n, v, k, .cap = 1 }, \
        { HS_F32, HS_F32, HS_F32, n, v, k, .cap = 2000, .options = HS_CASE_PRE },                  \
    {                                                                                              \
        HS_F32, HS_F32, HS_F32, n, v, k, .cap = 30, .options = HS_CASE_NONFINITE                   \
    }

static const HsCase top_cases[] = {
    TOP(1, 1, 1),
    TOP(3, 7, 7),
    TOP(5, 17, 4),
    TOP(9, 255, 16),
    TOP(2, 256, 256),
    TOP(70, 300, 256),
    TOP(4, 5003, 16),
    TOP(2, 60001, 33),
    { HS_F32, HS_F32, HS_F32, 5, 66, 8, .options = HS_CASE_UNALIGNED },
    CAPPED_TOP(1, 1, 1),
    CAPPED_TOP(9, 255, 16),
    CAPPED_TOP(70, 300, 256),
    CAPPED_TOP(4, 5003, 16),
};

enum { TOP_LOGITS, TOP_VALUE, TOP_INDEX };

static void declare_top(HsTrial *trial)
{
    HsTrialOperand *operands = trial->operands;
    operands[TOP_LOGITS] = hs_input("logits", spread(trial), matrix(trial, HS_F32));
    if (hs_case_has(trial, HS_CASE_NONFINITE))
        operands[TOP_LOGITS] = hs_filled(operands[TOP_LOGITS], HS_FILL_BROKEN);
    operands[TOP_VALUE] = hs_output("value", kept(trial, HS_F32));
    operands[TOP_VALUE].exact_bits = trial->config->cap == 0.0f;
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
    return hs_op_top_logits(context, &(HsTopLogitsArgs){ .logits = t[TOP_LOGITS],
                                                         .cap = trial->config->cap,
                                                         .value = t[TOP_VALUE],
                                                         .index = t[TOP_INDEX] });
}

static void bound_top(HsTrial *trial)
{
    for (int64_t i = 0; i < hs_tensor_count(&trial->operands[TOP_VALUE].tensor) && trial->config->cap > 0.0f; i++)
        trial->operands[TOP_VALUE].error[i] = hs_gamma(HS_CAP_ROUNDINGS) * fabs(hs_exact(trial, TOP_VALUE)[i]);
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
    .bound = bound_top,
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
    { HS_F32, HS_F32, HS_F32, 7, 7, 7, .alpha = 1.0f, .cap = 30 },
    { HS_F32, HS_F32, HS_F32, 9, 300, 256, .alpha = 0.5f, .cap = 30 },
    { HS_F32, HS_BF16, HS_F32, 64, 65, 16, .alpha = 1.0f, .cap = 30 },
    { HS_F32, HS_F16, HS_F32, 20, 5003, 16, .alpha = 0.5f, .cap = 30 },
    { HS_F32, HS_F32, HS_F32, 17, 63, 5, .alpha = 0.5f, .cap = 2000 },
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
                                                             .cap = trial->config->cap,
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

/* A distance rounds once, what it is multiplied by a few times; then two products are added.  With a cap the distance
 * is off by the logit's error d before that: the square by (2 |distance| + d) d. */
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
            double off, slope_off;
            const double x = hs_initial(trial, LOGITS)[n * columns + index[k]], share = (double)weight / (double)count;
            const double logit = hs_bound_cap(trial->config->cap, x, &off);
            const double slope = hs_bound_cap_slope(trial->config->cap, x, &slope_off);
            const double distance = fabs(logit - hs_initial(trial, VALUE)[k]);
            const double error = hs_gamma(8) * distance + off + slope_off * (distance + off);
            trial->operands[DLOGITS].error[n * columns + index[k]] += scale * 2.0 * share * slope * error;
            trial->operands[LOSSES].error[n] += share * (2.0 * distance + off) * off;
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

#define CAPPED_DISTILL(n, v)                                                                \
    { HS_F32, HS_F32, HS_F32, n, v, .cap = 30 },                                            \
        { HS_F32, HS_BF16, HS_F32, n, v, .cap = 30, .options = HS_CASE_RESIDUAL },          \
        { HS_F32, HS_F16, HS_F32, n, v, .cap = 30, .options = HS_CASE_HUGE },               \
        { HS_F32, HS_F32, HS_F32, n, v, .cap = 30, .options = HS_CASE_HUGE | HS_CASE_PRE }, \
    {                                                                                       \
        HS_F32, HS_F32, HS_F32, n, v, .cap = 30, .options = HS_CASE_POSITIONS               \
    }

static const HsCase distill_cases[] = {
    DISTILL(1, 1),           DISTILL(7, 7),
    DISTILL(17, 63),         DISTILL(9, 300),
    DISTILL(64, 65),         DISTILL(4, 5003),
    DISTILL(2, 60001),       { HS_F32, HS_BF16, HS_F32, 9, 66, .options = HS_CASE_UNALIGNED },
    CAPPED_DISTILL(1, 1),    CAPPED_DISTILL(7, 7),
    CAPPED_DISTILL(17, 63),  CAPPED_DISTILL(9, 300),
    CAPPED_DISTILL(4, 5003),
};

/* The teacher's cap is another one; with HS_CASE_PRE the teacher has none, with HS_CASE_POSITIONS it alone has one. */
static float student_cap(const HsTrial *trial)
{
    return hs_case_has(trial, HS_CASE_POSITIONS) ? 0.0f : trial->config->cap;
}

static float teacher_cap(const HsTrial *trial)
{
    return hs_case_has(trial, HS_CASE_PRE) ? 0.0f : trial->config->cap * 1.5f;
}

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
                                                    .cap = student_cap(trial),
                                                    .teacher_cap = teacher_cap(trial),
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

static RowScores analyse(const double *stored, float cap, int64_t count, double t)
{
    double maximum = -INFINITY, largest = 0.0, total = 0.0, capping = 0.0, off;
    for (int64_t v = 0; v < count; v++) {
        const double logit = hs_bound_cap(cap, stored[v], &off);
        maximum = fmax(maximum, logit);
        largest = fmax(largest, fabs(logit));
        capping = fmax(capping, off);
    }
    for (int64_t v = 0; v < count; v++)
        total += exp((hs_bound_cap(cap, stored[v], &off) - maximum) / t);
    const double lse = maximum / t + log(total);
    const double error = capping / t + hs_gamma(8) * largest / t + hs_gamma(2 * count + HS_FUNCTION_ROUNDINGS) +
                         hs_gamma(HS_FUNCTION_ROUNDINGS + 1) * (fabs(lse) + log(total));
    return (RowScores){ lse, error };
}

static void bound_distill_row(HsTrial *trial, int64_t n, const HsTeaching *teaching, double pull)
{
    const int64_t columns = trial->config->columns, row = n * columns;
    const double *logits = hs_initial(trial, LOGITS) + row, *teacher = hs_initial(trial, TEACHER) + row;
    const double t = (double)teaching->temperature;
    const float cap = student_cap(trial), other_cap = teacher_cap(trial);
    const RowScores student = analyse(logits, cap, columns, t), taught = analyse(teacher, other_cap, columns, t);
    double loss = 0.0, size = 0.0;
    for (int64_t v = 0; v < columns; v++) {
        double l_off, z_off, slope_off;
        const double logit = hs_bound_cap(cap, logits[v], &l_off) / t;
        const double other = hs_bound_cap(other_cap, teacher[v], &z_off) / t;
        const double slope = hs_bound_cap_slope(cap, logits[v], &slope_off);
        const double l = logit - student.lse, z = other - taught.lse, p = exp(l), q = exp(z);
        const double l_error = student.error + l_off / t + hs_gamma(4) * (fabs(logit) + fabs(student.lse));
        const double z_error = taught.error + z_off / t + hs_gamma(4) * (fabs(other) + fabs(taught.lse));
        const double p_error = p * expm1(l_error + hs_gamma(HS_FUNCTION_ROUNDINGS));
        const double q_error = q * expm1(z_error + hs_gamma(HS_FUNCTION_ROUNDINGS));
        const double difference = p_error + q_error + hs_gamma(6) * (p + q);
        trial->operands[DLOGITS].error[row + v] =
            pull * slope * (difference + slope_off * (p + q + difference)) +
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
