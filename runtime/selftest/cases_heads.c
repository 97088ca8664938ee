/* SPDX-License-Identifier: MIT
 *
 * Cases of the operations on single heads of the packed projection: QK-norm and the rotary embedding.
 */
#include "kernels/checks/checks.h"
#include "runtime/selftest/trial.h"

#include <math.h>

/* batch, sequence length, heads, kv heads, head dimension */
#define NORM(...)                                                                                                  \
    { HS_F32, HS_F32, HS_F32, .heads = { __VA_ARGS__ } }, { HS_BF16, HS_BF16, HS_BF16, .heads = { __VA_ARGS__ } }, \
    {                                                                                                              \
        HS_F16, HS_F16, HS_F16, .heads = { __VA_ARGS__ }                                                           \
    }

/* Without weights; of all heads at once, which makes rows of odd widths, of whole packs, of several warps and, in the last,
 * such that no registers hold. */
#define NORM_WITHOUT(...)                                                                                       \
    { HS_F32, HS_F32, HS_F32, .heads = { __VA_ARGS__ }, .unweighted = true },                                   \
        { HS_BF16, HS_BF16, HS_BF16, .heads = { __VA_ARGS__ }, .unweighted = true },                            \
        { HS_F16, HS_F16, HS_F16, .heads = { __VA_ARGS__ }, .unweighted = true, .options = HS_CASE_UNALIGNED }, \
    {                                                                                                           \
        HS_BF16, HS_BF16, HS_BF16, .heads = { __VA_ARGS__ }, .unweighted = true, .whole = true                  \
    }
#define WHOLE_NORM(...)                                                                                  \
    { HS_F32, HS_F32, HS_F32, .heads = { __VA_ARGS__ }, .whole = true },                                 \
        { HS_BF16, HS_BF16, HS_BF16, .heads = { __VA_ARGS__ }, .whole = true },                          \
        { HS_F16, HS_F16, HS_F16, .heads = { __VA_ARGS__ }, .whole = true },                             \
    {                                                                                                    \
        HS_BF16, HS_BF16, HS_BF16, .heads = { __VA_ARGS__ }, .whole = true, .options = HS_CASE_UNALIGNED \
    }
#define NORM_CASES                                                                                                     \
    NORM(1, 1, 1, 1, 1), NORM(2, 3, 4, 2, 8), NORM(1, 17, 6, 2, 16), NORM(3, 7, 3, 1, 63), NORM(1, 65, 2, 2, 64),      \
        NORM(2, 33, 7, 7, 128), NORM(1, 5, 2, 1, 256), NORM(2, 20, 4, 2, 96), NORM(1, 19, 3, 3, 20),                   \
        NORM(1, 18, 5, 1, 249), NORM_WITHOUT(1, 1, 1, 1, 1), NORM_WITHOUT(3, 7, 3, 1, 63),                             \
        NORM_WITHOUT(1, 37, 6, 2, 64), NORM_WITHOUT(2, 5, 2, 1, 256), WHOLE_NORM(1, 1, 1, 1, 1),                       \
        WHOLE_NORM(1, 1, 2, 1, 2), WHOLE_NORM(2, 3, 4, 2, 8), WHOLE_NORM(3, 7, 3, 1, 63), WHOLE_NORM(1, 65, 2, 2, 64), \
        WHOLE_NORM(1, 37, 12, 4, 64), WHOLE_NORM(2, 9, 16, 16, 128), WHOLE_NORM(1, 19, 5, 1, 20),                      \
        WHOLE_NORM(1, 18, 40, 8, 249), WHOLE_NORM(1, 17, 66, 2, 256)

static const HsCase norm_cases[] = { NORM_CASES };

static const float epsilon = 1e-6f;

static int64_t normed_heads(const HsTrial *trial)
{
    return trial->config->heads.heads + trial->config->heads.kv_heads;
}

static HsTensor projection(const HsTrial *trial, HsDtype dtype)
{
    const HsHeads *heads = &trial->config->heads;
    return hs_tensor_2d(NULL, dtype, hs_heads_rows(heads), hs_heads_columns(heads));
}

/* What is normed of row n, number i: a head, or all of a kind; queries first. */
typedef struct Normed {
    int64_t at, width;
    bool query;
} Normed;

static int64_t normed_count(const HsTrial *trial)
{
    return trial->config->whole ? 2 : normed_heads(trial);
}

/* Of one row, with the weight of queries or of keys. */
static int64_t normed_by(const HsTrial *trial, bool query)
{
    const HsHeads *heads = &trial->config->heads;
    return trial->config->whole ? 1 : query ? heads->heads : heads->kv_heads;
}

static int64_t normed_width(const HsTrial *trial, bool query)
{
    const HsHeads *heads = &trial->config->heads;
    return heads->head_dim * (!trial->config->whole ? 1 : query ? heads->heads : heads->kv_heads);
}

static Normed normed_at(const HsTrial *trial, int64_t n, int64_t i)
{
    const bool query = i < normed_by(trial, true);
    const int64_t width = normed_width(trial, query), row = n * hs_heads_columns(&trial->config->heads);
    const int64_t keys = trial->config->heads.heads * trial->config->heads.head_dim;
    return (Normed){ row + (query ? i * width : keys + (i - normed_by(trial, true)) * width), width, query };
}

/* Where head h of row n starts. */
static int64_t head_at(const HsTrial *trial, int64_t n, int64_t h)
{
    return n * hs_heads_columns(&trial->config->heads) + h * trial->config->heads.head_dim;
}

static HsTensor head_statistics(const HsTrial *trial)
{
    return hs_tensor_2d(NULL, HS_F32, hs_heads_rows(&trial->config->heads), normed_count(trial));
}

static HsTensor head_weight(const HsTrial *trial, bool query)
{
    return hs_tensor_1d(NULL, HS_F32, normed_width(trial, query));
}

enum { X, Q_WEIGHT, K_WEIGHT, Y, RSTD, STARTS };

static void declare_forward(HsTrial *trial)
{
    trial->operands[X] = hs_input("x", 2.0, projection(trial, trial->config->dtype));
    if (!trial->config->unweighted) {
        trial->operands[Q_WEIGHT] = hs_input("q_weight", 1.0, head_weight(trial, true));
        trial->operands[K_WEIGHT] = hs_input("k_weight", 1.0, head_weight(trial, false));
    }
    trial->operands[Y] = hs_output("y", projection(trial, trial->config->out));
    trial->operands[RSTD] = hs_output("rstd", head_statistics(trial));
}

static HsStatus call_forward(HsTrial *trial, HsContext *context, const HsTensor *t)
{
    return hs_op_head_norm_forward(context, &(HsHeadNormArgs){ .heads = trial->config->heads,
                                                               .whole = trial->config->whole,
                                                               .epsilon = epsilon,
                                                               .x = t[X],
                                                               .q_weight = t[Q_WEIGHT],
                                                               .k_weight = t[K_WEIGHT],
                                                               .y = t[Y],
                                                               .rstd = t[RSTD] });
}

/* Sums of squares don't cancel, so every error is relative: width + 3 roundings under the root (which halves them), the
 * root and the division, two products. */
static void bound_forward(HsTrial *trial)
{
    const HsHeads *heads = &trial->config->heads;
    for (int64_t n = 0; n < hs_heads_rows(heads); n++) {
        for (int64_t h = 0; h < normed_count(trial); h++) {
            const Normed normed = normed_at(trial, n, h);
            const double relative = hs_gamma(normed.width + 3) + hs_gamma(HS_FUNCTION_ROUNDINGS);
            const int64_t at = n * normed_count(trial) + h;
            trial->operands[RSTD].error[at] = relative * hs_exact(trial, RSTD)[at];
            for (int64_t i = normed.at; i < normed.at + normed.width; i++)
                trial->operands[Y].error[i] = (relative + hs_gamma(3)) * fabs(hs_exact(trial, Y)[i]);
        }
    }
}

static const HsCase norm_timed[] = {
    { HS_BF16, HS_BF16, HS_BF16, .heads = { 4, 1024, 12, 4, 64 } },
    { HS_F32, HS_F32, HS_F32, .heads = { 4, 1024, 12, 4, 64 } },
    { HS_F16, HS_F16, HS_F16, .heads = { 4, 1024, 12, 4, 64 } },
};

const HsOpTest hs_op_test_head_norm_forward = {
    .cases = norm_cases,
    .case_count = HS_COUNT_OF(norm_cases),
    .timed = norm_timed,
    .timed_count = HS_COUNT_OF(norm_timed),
    .declare = declare_forward,
    .bound = bound_forward,
    .call = call_forward,
};

/* And each mix of formats. */
static const HsCase norm_backward_cases[] = {
    NORM_CASES,
#define MIXED_NORM(...)                                                                                           \
    { HS_BF16, HS_BF16, HS_F32, .heads = { __VA_ARGS__ } }, { HS_F32, HS_F16, HS_F16, .heads = { __VA_ARGS__ } }, \
    {                                                                                                             \
        HS_F32, HS_F32, HS_BF16, .heads = { __VA_ARGS__ }, .whole = true                                          \
    }
    MIXED_NORM(1, 5, 2, 1, 7),
    MIXED_NORM(1, 37, 6, 2, 64),
};

enum { B_DY, B_X, B_Q_WEIGHT, B_K_WEIGHT, B_RSTD, B_DX, B_DQ_WEIGHT, B_DK_WEIGHT };

static void declare_backward(HsTrial *trial)
{
    HsTrialOperand *operands = trial->operands;
    operands[B_DY] = hs_input("dy", 1.0, projection(trial, trial->config->other));
    operands[B_X] = hs_input("x", 2.0, projection(trial, trial->config->dtype));
    operands[B_RSTD] = hs_filled(hs_input("rstd", 0.5, head_statistics(trial)), HS_FILL_POSITIVE);
    operands[B_DX] = hs_output("dx", projection(trial, trial->config->out));
    if (!trial->config->unweighted) {
        operands[B_Q_WEIGHT] = hs_input("q_weight", 1.0, head_weight(trial, true));
        operands[B_K_WEIGHT] = hs_input("k_weight", 1.0, head_weight(trial, false));
        operands[B_DQ_WEIGHT] = hs_updated("dq_weight", 1.0, head_weight(trial, true));
        operands[B_DK_WEIGHT] = hs_updated("dk_weight", 1.0, head_weight(trial, false));
    }
    hs_trial_ask_amax(trial, B_DX);
}

static HsStatus call_backward(HsTrial *trial, HsContext *context, const HsTensor *t)
{
    return hs_op_head_norm_backward(context, &(HsHeadNormBackwardArgs){ .heads = trial->config->heads,
                                                                        .whole = trial->config->whole,
                                                                        .dy = t[B_DY],
                                                                        .x = t[B_X],
                                                                        .q_weight = t[B_Q_WEIGHT],
                                                                        .k_weight = t[B_K_WEIGHT],
                                                                        .rstd = t[B_RSTD],
                                                                        .dx = t[B_DX],
                                                                        .dq_weight = t[B_DQ_WEIGHT],
                                                                        .dk_weight = t[B_DK_WEIGHT] });
}

/* As norm_backward without the mean: gamma(width + 10) on dx's terms.  Adds to what dweight sums up. */
static void bound_normed(HsTrial *trial, int64_t n, int64_t i)
{
    const Normed normed = normed_at(trial, n, i);
    const bool weighted = !trial->config->unweighted;
    const double *dy = hs_initial(trial, B_DY) + normed.at, *x = hs_initial(trial, B_X) + normed.at;
    const double *weight = hs_initial(trial, normed.query ? B_Q_WEIGHT : B_K_WEIGHT);
    double *dweight = trial->operands[normed.query ? B_DQ_WEIGHT : B_DK_WEIGHT].error;
    const double rstd = hs_initial(trial, B_RSTD)[n * normed_count(trial) + i];
    double mean_g_xhat = 0.0;
    for (int64_t d = 0; d < normed.width; d++) {
        const double dy_xhat = fabs(dy[d] * x[d]) * rstd;
        mean_g_xhat += (weighted ? fabs(weight[d]) : 1.0) * dy_xhat / (double)normed.width;
        if (weighted)
            dweight[d] += dy_xhat;
    }
    for (int64_t d = 0; d < normed.width; d++) {
        const double g = (weighted ? fabs(weight[d]) : 1.0) * fabs(dy[d]);
        trial->operands[B_DX].error[normed.at + d] =
            hs_gamma(normed.width + 10) * rstd * (g + fabs(x[d]) * rstd * mean_g_xhat);
    }
}

/* A weight's gradient sums over rows and what is normed with it: gamma(rows * count + 5). */
static void bound_backward(HsTrial *trial)
{
    static const int gradients[2] = { B_DK_WEIGHT, B_DQ_WEIGHT };
    const int64_t rows = hs_heads_rows(&trial->config->heads);
    const bool weighted = !trial->config->unweighted;
    for (int query = 0; query < 2; query++)
        for (int64_t d = 0; weighted && d < normed_width(trial, query); d++)
            trial->operands[gradients[query]].error[d] = fabs(hs_initial(trial, gradients[query])[d]);
    for (int64_t n = 0; n < rows; n++)
        for (int64_t i = 0; i < normed_count(trial); i++)
            bound_normed(trial, n, i);
    for (int query = 0; query < 2; query++)
        for (int64_t d = 0; weighted && d < normed_width(trial, query); d++)
            trial->operands[gradients[query]].error[d] *= hs_gamma(rows * normed_by(trial, query) + 5);
}

const HsOpTest hs_op_test_head_norm_backward = {
    .cases = norm_backward_cases,
    .case_count = HS_COUNT_OF(norm_backward_cases),
    .timed = norm_timed,
    .timed_count = HS_COUNT_OF(norm_timed),
    .declare = declare_backward,
    .bound = bound_backward,
    .call = call_backward,
};

/* rope: `start` far from zero shows an angle that was rounded to f32 before its cosine was taken. */
#define ROPE(begin, ...)                                                                                      \
    { HS_F32, HS_F32, HS_F32, .start = begin, .heads = { __VA_ARGS__ } },                                     \
        { HS_F32, HS_F32, HS_F32, .start = begin, .heads = { __VA_ARGS__ }, .options = HS_CASE_INVERSE },     \
        { HS_BF16, HS_BF16, HS_BF16, .start = begin, .heads = { __VA_ARGS__ }, .options = HS_CASE_IN_PLACE }, \
        { HS_BF16,                                                                                            \
          HS_BF16,                                                                                            \
          HS_BF16,                                                                                            \
          .start = begin,                                                                                     \
          .heads = { __VA_ARGS__ },                                                                           \
          .options = HS_CASE_IN_PLACE | HS_CASE_INVERSE },                                                    \
    {                                                                                                         \
        HS_F16, HS_F16, HS_F16, .start = begin, .heads = { __VA_ARGS__ }                                      \
    }

static const HsCase rope_cases[] = {
    ROPE(0, 1, 1, 1, 1, 2),
    ROPE(0, 2, 3, 4, 2, 8),
    ROPE(5, 1, 17, 3, 1, 16),
    ROPE(0, 2, 65, 2, 2, 64),
    ROPE(129, 1, 7, 6, 3, 34),
    ROPE(1000, 1, 33, 2, 1, 128),
    ROPE(30000, 1, 3, 1, 1, 256),
    ROPE(1000000, 2, 5, 3, 1, 24),
#define SCALED_ROPE(kind, type, begin, bits)                                                            \
    {                                                                                                   \
        type, type, type, .start = begin, .heads = { 1, 9, 3, 1, 64 }, .scaling = kind, .options = bits \
    }
#define ROPE_OF_DOCUMENTS(...)                                                                \
    { HS_F32, HS_F32, HS_F32, .heads = { __VA_ARGS__ }, .documents = true },                  \
        { HS_F16, HS_F16, HS_F16, .start = 40, .heads = { __VA_ARGS__ }, .documents = true }, \
    {                                                                                         \
        HS_BF16, HS_BF16, HS_BF16, .heads = { __VA_ARGS__ }, .documents = true,               \
                                   .options = HS_CASE_IN_PLACE | HS_CASE_INVERSE              \
    }
    ROPE_OF_DOCUMENTS(1, 1, 1, 1, 2),
    ROPE_OF_DOCUMENTS(2, 65, 2, 2, 64),
    ROPE_OF_DOCUMENTS(3, 200, 3, 1, 16),
    SCALED_ROPE(HS_ROPE_LINEAR, HS_F32, 4000, 0),
    SCALED_ROPE(HS_ROPE_LLAMA3, HS_F32, 4000, 0),
    SCALED_ROPE(HS_ROPE_LLAMA3, HS_BF16, 4000, HS_CASE_IN_PLACE | HS_CASE_INVERSE),
    SCALED_ROPE(HS_ROPE_YARN, HS_F32, 4000, 0),
    SCALED_ROPE(HS_ROPE_YARN, HS_F16, 4000, HS_CASE_IN_PLACE | HS_CASE_INVERSE),
    SCALED_ROPE(HS_ROPE_LONGROPE, HS_F32, 4000, 0),
    SCALED_ROPE(HS_ROPE_LONGROPE, HS_BF16, 4000, HS_CASE_IN_PLACE | HS_CASE_INVERSE),
/* A part of each head. */
#define ROPE_OF_PART(turned, ...)                                                   \
    { HS_F32, HS_F32, HS_F32, .rotated = turned, .heads = { __VA_ARGS__ } },        \
        { HS_BF16, HS_BF16, HS_BF16, .rotated = turned, .heads = { __VA_ARGS__ } }, \
    {                                                                               \
        HS_F16, HS_F16, HS_F16, .rotated = turned, .heads = { __VA_ARGS__ },        \
                                .options = HS_CASE_IN_PLACE | HS_CASE_INVERSE       \
    }
    ROPE_OF_PART(2, 1, 5, 2, 1, 8),
    ROPE_OF_PART(16, 1, 17, 3, 1, 64),
    ROPE_OF_PART(96, 2, 9, 2, 2, 128),
    ROPE_OF_PART(6, 1, 3, 1, 1, 34),
};

/* Scaled eight times beyond 1024 tokens. */
static HsRopeRule rule_of(const HsTrial *trial)
{
    static const double divisors[32] = { 1,  1.1, 1.2, 1.5, 2,  2.5, 3,  4,  5,  6,  7,  8,  9,  10, 11, 12,
                                         13, 14,  15,  16,  17, 18,  20, 22, 24, 26, 28, 30, 32, 36, 40, 48 };
    const bool yarn = trial->config->scaling == HS_ROPE_YARN;
    return (HsRopeRule){ .theta = 10000.0,
                         .rotated = trial->config->rotated,
                         .divisors = divisors,
                         .scaling = trial->config->scaling,
                         .factor = 8,
                         .original_length = 1024,
                         .low = 1,
                         .high = yarn ? 32 : 4 };
}

static void declare_rope(HsTrial *trial)
{
    const HsTensor x = projection(trial, trial->config->dtype);
    const bool in_place = hs_case_has(trial, HS_CASE_IN_PLACE);
    trial->operands[X] = in_place ? hs_updated("x", 1.0, x) : hs_input("x", 1.0, x);
    if (!in_place)
        trial->operands[Y] = hs_output("y", x);
    trial->operands[STARTS] = hs_starts_operand(trial, hs_heads_rows(&trial->config->heads));
    hs_trial_ask_amax(trial, in_place ? X : Y);
}

static HsStatus prepare_rope(HsTrial *trial, HsContext *reference)
{
    (void)reference;
    if (trial->config->documents)
        hs_trial_draw_starts(trial, STARTS);
    return HS_OK;
}

static HsStatus call_rope(HsTrial *trial, HsContext *context, const HsTensor *t)
{
    return hs_op_rope(context, &(HsRopeArgs){ .heads = trial->config->heads,
                                              .rule = rule_of(trial),
                                              .position_start = trial->config->start,
                                              .inverse = hs_case_has(trial, HS_CASE_INVERSE),
                                              .starts = t[STARTS],
                                              .x = t[X],
                                              .y = t[hs_case_has(trial, HS_CASE_IN_PLACE) ? X : Y] });
}

/* a cos - b sin: cosine and sine good to a function's roundings at any position, a product, an addition; where there is
 * an amplitude, its own rounding and that of the product with it. */
static void bound_rope(HsTrial *trial)
{
    const int64_t width = trial->config->heads.head_dim;
    HsTrialOperand *y = &trial->operands[hs_case_has(trial, HS_CASE_IN_PLACE) ? X : Y];
    const HsRopeRule rule = rule_of(trial);
    const int64_t rotated = hs_rope_rotated(&rule, width);
    const int roundings = HS_FUNCTION_ROUNDINGS + (hs_rope_amplitude(&rule) != 1.0 ? 4 : 2);
    for (int64_t n = 0; n < hs_heads_rows(&trial->config->heads); n++) {
        for (int64_t h = 0; h < normed_heads(trial); h++) {
            for (int64_t d = 0; d < rotated; d++) {
                const int64_t at = head_at(trial, n, h), other = (d + rotated / 2) % rotated;
                y->error[at + d] = hs_gamma(roundings) * hs_rope_amplitude(&rule) *
                                   (fabs(hs_initial(trial, X)[at + d]) + fabs(hs_initial(trial, X)[at + other]));
            }
        }
    }
}

/* In place, what is not rotated stays where it is, unless it is looked at. */
static double bytes_rope(const HsTrial *trial, const HsContext *context)
{
    (void)context;
    const HsHeads *heads = &trial->config->heads;
    const HsRopeRule rule = rule_of(trial);
    const double turned = (double)((heads->heads + heads->kv_heads) * hs_rope_rotated(&rule, heads->head_dim)) /
                          (double)((heads->heads + 2 * heads->kv_heads) * heads->head_dim);
    const double starts = hs_operand_present(trial, STARTS) ? hs_operand_bytes(&trial->operands[STARTS]) : 0.0;
    const bool stay = hs_case_has(trial, HS_CASE_IN_PLACE) && !hs_operand_present(trial, HS_TRIAL_AMAX);
    return starts + (hs_trial_bytes(trial) - starts) * (stay ? turned : 1.0);
}

static const HsCase rope_timed[] = {
    { HS_BF16, HS_BF16, HS_BF16, .heads = { 4, 1024, 12, 4, 64 }, .options = HS_CASE_IN_PLACE },
    { HS_F32, HS_F32, HS_F32, .heads = { 4, 1024, 12, 4, 64 }, .options = HS_CASE_IN_PLACE },
    { HS_F16, HS_F16, HS_F16, .heads = { 4, 1024, 12, 4, 64 }, .options = HS_CASE_IN_PLACE },
};

const HsOpTest hs_op_test_rope = {
    .cases = rope_cases,
    .case_count = HS_COUNT_OF(rope_cases),
    .timed = rope_timed,
    .timed_count = HS_COUNT_OF(rope_timed),
    .bytes = bytes_rope,
    .declare = declare_rope,
    .prepare = prepare_rope,
    .bound = bound_rope,
    .call = call_rope,
};
