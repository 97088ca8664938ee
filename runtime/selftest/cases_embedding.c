/* SPDX-License-Identifier: MIT
 *
 * Cases of the embeddings and of the bias gradient: sums of rows, chosen by tokens or not.
 */
#include "runtime/selftest/trial.h"

#include <math.h>

/* embedding: rows N, columns C, depth V; heads.sequence_length T; dtype: tables (forward) or dy (backward). */
enum { TOKENS, TOKEN_TABLE, POSITION_TABLE, Y, STARTS };

enum { EXTRA_POSITIONS = 5 }; /* rows of the position table beyond what the case reads */

/* Several documents in a sequence. */
#define DOCUMENTS(n, t, c, v)                                                                                      \
    { HS_F32,           HS_BF16, HS_F32, n, c, v, .heads = { .sequence_length = t }, .options = HS_CASE_POSITIONS, \
      .documents = true },                                                                                         \
    {                                                                                                              \
        HS_BF16, HS_F32, HS_BF16, n, c, v, .heads = { .sequence_length = t }, .options = HS_CASE_POSITIONS,        \
                                           .documents = true                                                       \
    }

/* Tokens' rows times a factor. */
#define TIMES(in, result, n, t, c, v, factor, with)                                                  \
    {                                                                                                \
        in, result, in, n, c, v, .heads = { .sequence_length = t }, .alpha = factor, .options = with \
    }
#define FACTORS(n, t, c, v)                                                                                          \
    TIMES(HS_F32, HS_F32, n, t, c, v, 27.7f, 0), TIMES(HS_F32, HS_F32, n, t, c, v, -0.3f, HS_CASE_POSITIONS),        \
        TIMES(HS_BF16, HS_F32, n, t, c, v, 27.7f, HS_CASE_POSITIONS), TIMES(HS_BF16, HS_BF16, n, t, c, v, -0.3f, 0), \
        TIMES(HS_F16, HS_F16, n, t, c, v, 12, HS_CASE_POSITIONS)
#define FACTOR_CASES(most_rows)                                                                              \
    FACTORS(1, 1, 1, 1), FACTORS(34, 17, 63, 5), FACTORS(130, 65, 128, 3), FACTORS(most_rows, 100, 520, 40), \
        TIMES(HS_BF16, HS_F32, 150, 3, 64, 2, 27.7f, HS_CASE_POSITIONS | HS_CASE_UNALIGNED),                 \
    {                                                                                                        \
        HS_BF16, HS_F32, HS_BF16, 600, 20, 9, .heads = { .sequence_length = 300 }, .alpha = 12,              \
                                              .options = HS_CASE_POSITIONS, .documents = true                \
    }

#define FORWARD(n, t, c, v)                                                                                                 \
    { HS_F32, HS_F32, HS_F32, n, c, v, .heads = { .sequence_length = t } },                                                 \
        { HS_F32, HS_BF16, HS_F32, n, c, v, .heads = { .sequence_length = t }, .options = HS_CASE_POSITIONS },              \
        { HS_BF16, HS_BF16, HS_BF16, n, c, v, .heads = { .sequence_length = t }, .options = HS_CASE_POSITIONS },            \
        { HS_BF16, HS_F32, HS_BF16, n, c, v, .heads = { .sequence_length = t }, .start = 3, .options = HS_CASE_POSITIONS }, \
    {                                                                                                                       \
        HS_F16, HS_F16, HS_F16, n, c, v, .heads = { .sequence_length = t }, .start = 2, .options = HS_CASE_POSITIONS        \
    }

static const HsCase forward_cases[] = {
    FORWARD(1, 1, 1, 1),
    FORWARD(6, 3, 7, 2),
    FORWARD(34, 17, 63, 5),
    FORWARD(64, 64, 65, 11),
    FORWARD(130, 65, 128, 3),
    FORWARD(21, 7, 129, 200),
    DOCUMENTS(1, 1, 1, 1),
    DOCUMENTS(34, 17, 63, 5),
    DOCUMENTS(130, 65, 128, 3),
    DOCUMENTS(600, 300, 20, 9),
    { HS_BF16, HS_F32, HS_BF16, 6, 64, 5, .heads = { .sequence_length = 3 },
      .options = HS_CASE_POSITIONS | HS_CASE_UNALIGNED },
    FACTOR_CASES(100),
};

/* Of a table only the rows move that some token or position names: of V rows, N random tokens name
 * V (1 - (1 - 1/V)^N) on average. */
static double named_bytes(const HsTrial *trial, int token_table, int position_table)
{
    const HsCase *config = trial->config;
    const double vocabulary = (double)config->depth;
    double rows = vocabulary * -expm1((double)config->rows * log1p(-1.0 / vocabulary));
    if (hs_operand_present(trial, position_table))
        rows += (double)config->heads.sequence_length;
    return rows * (double)config->columns * (double)hs_dtype_bytes(trial->operands[token_table].tensor.dtype);
}

static float factor_of(const HsTrial *trial)
{
    return trial->config->alpha == 0.0f ? 1.0f : trial->config->alpha;
}

static void declare_forward(HsTrial *trial)
{
    const HsCase *config = trial->config;
    const int64_t positions = config->start + config->heads.sequence_length + EXTRA_POSITIONS;
    HsTrialOperand *operands = trial->operands;
    operands[TOKENS] =
        hs_filled(hs_input("tokens", (double)config->depth, hs_tensor_1d(NULL, HS_I32, config->rows)), HS_FILL_INDEX);
    operands[TOKEN_TABLE] =
        hs_input("token_table", 1.0, hs_tensor_2d(NULL, config->dtype, config->depth, config->columns));
    if (hs_case_has(trial, HS_CASE_POSITIONS))
        operands[POSITION_TABLE] =
            hs_input("position_table", 1.0, hs_tensor_2d(NULL, config->dtype, positions, config->columns));
    operands[Y] = hs_output("y", hs_tensor_2d(NULL, config->out, config->rows, config->columns));
    operands[STARTS] = hs_starts_operand(trial, config->rows);
}

static HsStatus prepare_forward(HsTrial *trial, HsContext *reference)
{
    (void)reference;
    if (trial->config->documents)
        hs_trial_draw_starts(trial, STARTS);
    return HS_OK;
}

static HsStatus call_forward(HsTrial *trial, HsContext *context, const HsTensor *t)
{
    return hs_op_embedding_forward(context, &(HsEmbeddingArgs){ .tokens = t[TOKENS],
                                                                .token_table = t[TOKEN_TABLE],
                                                                .position_table = t[POSITION_TABLE],
                                                                .starts = t[STARTS],
                                                                .sequence_length = trial->config->heads.sequence_length,
                                                                .position_start = trial->config->start,
                                                                .factor = factor_of(trial),
                                                                .y = t[Y] });
}

/* One addition: its error is relative to the sum itself, of which a product with the factor has rounded one term. */
static void bound_forward(HsTrial *trial)
{
    const int64_t columns = trial->config->columns;
    const int32_t *tokens = trial->operands[TOKENS].exact.data;
    const double factor = (double)factor_of(trial);
    for (int64_t i = 0; i < hs_tensor_count(&trial->operands[Y].tensor); i++) {
        const double token = hs_initial(trial, TOKEN_TABLE)[tokens[i / columns] * columns + i % columns];
        const double product = factor == 1.0 ? 0.0 : hs_gamma(1) * fabs(factor * token);
        const double sum =
            hs_case_has(trial, HS_CASE_POSITIONS) ? hs_gamma(1) * (fabs(hs_exact(trial, Y)[i]) + product) : 0.0;
        trial->operands[Y].error[i] = product + sum;
    }
}

static double bytes_forward(const HsTrial *trial, const HsContext *context)
{
    (void)context;
    return named_bytes(trial, TOKEN_TABLE, POSITION_TABLE) + hs_operand_bytes(&trial->operands[TOKENS]) +
           hs_operand_bytes(&trial->operands[Y]);
}

static const HsCase forward_timed[] = {
    { HS_BF16, HS_F32, HS_BF16, 4096, 768, 50304, .heads = { .sequence_length = 1024 }, .options = HS_CASE_POSITIONS },
    { HS_F32, HS_F32, HS_F32, 4096, 768, 50304, .heads = { .sequence_length = 1024 }, .options = HS_CASE_POSITIONS },
    { HS_F16, HS_F16, HS_F16, 4096, 768, 50304, .heads = { .sequence_length = 1024 }, .options = HS_CASE_POSITIONS },
};

const HsOpTest hs_op_test_embedding_forward = {
    .cases = forward_cases,
    .case_count = HS_COUNT_OF(forward_cases),
    .timed = forward_timed,
    .timed_count = HS_COUNT_OF(forward_timed),
    .bytes = bytes_forward,
    .declare = declare_forward,
    .prepare = prepare_forward,
    .bound = bound_forward,
    .call = call_forward,
};

enum { BACKWARD_TOKENS, DY, DTOKEN_TABLE, DPOSITION_TABLE, BACKWARD_STARTS };

#define BACKWARD(n, t, c, v)                                                                                     \
    { HS_F32, HS_F32, HS_F32, n, c, v, .heads = { .sequence_length = t } },                                      \
        { HS_F32, HS_BF16, HS_F32, n, c, v, .heads = { .sequence_length = t }, .options = HS_CASE_POSITIONS },   \
        { HS_BF16, HS_F32, HS_BF16, n, c, v, .heads = { .sequence_length = t }, .options = HS_CASE_POSITIONS },  \
        { HS_BF16, HS_BF16, HS_BF16, n, c, v, .heads = { .sequence_length = t }, .options = HS_CASE_POSITIONS }, \
    {                                                                                                            \
        HS_F16, HS_F16, HS_F16, n, c, v, .heads = { .sequence_length = t }, .options = HS_CASE_POSITIONS         \
    }

static const HsCase backward_cases[] = {
    BACKWARD(1, 1, 1, 1),
    BACKWARD(6, 3, 7, 2),
    BACKWARD(34, 17, 63, 5),
    BACKWARD(64, 64, 65, 11),
    BACKWARD(130, 65, 128, 3),
    BACKWARD(21, 7, 129, 200),
    /* long runs of one token, over many tiles and stretches of a GPU's ordering; tokens of one, two and three digits */
    BACKWARD(2500, 500, 12, 1),
    BACKWARD(2200, 1100, 4, 2),
    BACKWARD(4200, 300, 3, 260),
    BACKWARD(300, 100, 520, 40),
    BACKWARD(700, 7, 4, 66000),
    DOCUMENTS(1, 1, 1, 1),
    DOCUMENTS(34, 17, 63, 5),
    DOCUMENTS(130, 65, 128, 3),
    DOCUMENTS(1500, 500, 12, 7),
    { HS_BF16, HS_F32, HS_BF16, 150, 64, 2, .heads = { .sequence_length = 3 },
      .options = HS_CASE_POSITIONS | HS_CASE_UNALIGNED },
    FACTOR_CASES(300),
    FACTORS(2200, 1100, 4, 2),
};

static void declare_backward(HsTrial *trial)
{
    const HsCase *config = trial->config;
    const int64_t positions = config->heads.sequence_length + EXTRA_POSITIONS;
    HsTrialOperand *operands = trial->operands;
    operands[BACKWARD_TOKENS] =
        hs_filled(hs_input("tokens", (double)config->depth, hs_tensor_1d(NULL, HS_I32, config->rows)), HS_FILL_INDEX);
    operands[DY] = hs_input("dy", 1.0, hs_tensor_2d(NULL, config->dtype, config->rows, config->columns));
    operands[DTOKEN_TABLE] =
        hs_updated("dtoken_table", 1.0, hs_tensor_2d(NULL, config->out, config->depth, config->columns));
    if (hs_case_has(trial, HS_CASE_POSITIONS))
        operands[DPOSITION_TABLE] =
            hs_updated("dposition_table", 1.0, hs_tensor_2d(NULL, config->out, positions, config->columns));
    operands[BACKWARD_STARTS] = hs_starts_operand(trial, config->rows);
}

static HsStatus prepare_backward(HsTrial *trial, HsContext *reference)
{
    (void)reference;
    if (trial->config->documents)
        hs_trial_draw_starts(trial, BACKWARD_STARTS);
    return HS_OK;
}

static HsStatus call_backward(HsTrial *trial, HsContext *context, const HsTensor *t)
{
    return hs_op_embedding_backward(context,
                                    &(HsEmbeddingBackwardArgs){ .tokens = t[BACKWARD_TOKENS],
                                                                .dy = t[DY],
                                                                .starts = t[BACKWARD_STARTS],
                                                                .sequence_length = trial->config->heads.sequence_length,
                                                                .factor = factor_of(trial),
                                                                .dtoken_table = t[DTOKEN_TABLE],
                                                                .dposition_table = t[DPOSITION_TABLE] });
}

/* A sum of at most N rows and of what was there: first the absolute values are gathered, then scaled by gamma.  The sum
 * of the rows times a factor is another rounding. */
static void bound_backward(HsTrial *trial)
{
    const HsCase *config = trial->config;
    const HsTensor tokens = trial->operands[BACKWARD_TOKENS].exact, starts = trial->operands[BACKWARD_STARTS].exact;
    for (int which = DTOKEN_TABLE; which <= DPOSITION_TABLE; which++) {
        HsTrialOperand *table = &trial->operands[which];
        if (!hs_operand_present(trial, which))
            continue;
        const double factor = which == DTOKEN_TABLE ? fabs((double)factor_of(trial)) : 1.0;
        for (int64_t i = 0; i < hs_tensor_count(&table->tensor); i++)
            table->error[i] = fabs(table->initial[i]);
        for (int64_t n = 0; n < config->rows; n++) {
            const int64_t start = config->documents ? ((const int32_t *)starts.data)[n] : 0;
            const int64_t row =
                which == DTOKEN_TABLE ? ((const int32_t *)tokens.data)[n] : n % config->heads.sequence_length - start;
            for (int64_t c = 0; c < config->columns; c++)
                table->error[row * config->columns + c] +=
                    factor * fabs(hs_initial(trial, DY)[n * config->columns + c]);
        }
        for (int64_t i = 0; i < hs_tensor_count(&table->tensor); i++)
            table->error[i] *= hs_gamma(config->rows + (factor != 1.0));
    }
}

/* The named rows are read and written. */
static double bytes_backward(const HsTrial *trial, const HsContext *context)
{
    (void)context;
    return 2.0 * named_bytes(trial, DTOKEN_TABLE, DPOSITION_TABLE) +
           hs_operand_bytes(&trial->operands[BACKWARD_TOKENS]) + hs_operand_bytes(&trial->operands[DY]);
}

static const HsCase backward_timed[] = {
    { HS_BF16, HS_F32, HS_BF16, 4096, 768, 50304, .heads = { .sequence_length = 1024 }, .options = HS_CASE_POSITIONS },
    { HS_F32, HS_F32, HS_F32, 4096, 768, 50304, .heads = { .sequence_length = 1024 }, .options = HS_CASE_POSITIONS },
    { HS_F16, HS_F16, HS_F16, 4096, 768, 50304, .heads = { .sequence_length = 1024 }, .options = HS_CASE_POSITIONS },
};

const HsOpTest hs_op_test_embedding_backward = {
    .cases = backward_cases,
    .case_count = HS_COUNT_OF(backward_cases),
    .timed = backward_timed,
    .timed_count = HS_COUNT_OF(backward_timed),
    .bytes = bytes_backward,
    .declare = declare_backward,
    .prepare = prepare_backward,
    .bound = bound_backward,
    .call = call_backward,
};

/* bias_backward: rows N, columns C */
enum { BIAS_DY, DBIAS };

#define BIAS(n, c)                                                                                   \
    { HS_F32, HS_F32, HS_F32, n, c, .options = 0 }, { HS_BF16, HS_F32, HS_F32, n, c, .options = 0 }, \
    {                                                                                                \
        HS_F16, HS_F32, HS_F32, n, c, .options = 0                                                   \
    }

static const HsCase bias_cases[] = {
    BIAS(1, 1), BIAS(2, 7), BIAS(3, 65), BIAS(17, 64), BIAS(63, 3), BIAS(129, 127), BIAS(700, 33), BIAS(128, 300),
};

static void declare_bias(HsTrial *trial)
{
    const HsCase *config = trial->config;
    trial->operands[BIAS_DY] = hs_input("dy", 1.0, hs_tensor_2d(NULL, config->dtype, config->rows, config->columns));
    trial->operands[DBIAS] = hs_updated("dbias", 1.0, hs_tensor_1d(NULL, config->out, config->columns));
}

static HsStatus call_bias(HsTrial *trial, HsContext *context, const HsTensor *t)
{
    (void)trial;
    return hs_op_bias_backward(context, &(HsBiasBackwardArgs){ t[BIAS_DY], t[DBIAS] });
}

static void bound_bias(HsTrial *trial)
{
    const HsCase *config = trial->config;
    for (int64_t c = 0; c < config->columns; c++) {
        double magnitude = fabs(hs_initial(trial, DBIAS)[c]);
        for (int64_t n = 0; n < config->rows; n++)
            magnitude += fabs(hs_initial(trial, BIAS_DY)[n * config->columns + c]);
        trial->operands[DBIAS].error[c] = hs_gamma(config->rows) * magnitude;
    }
}

static const HsCase bias_timed[] = {
    { HS_BF16, HS_F32, HS_F32, 4096, 3072, .options = 0 },
    { HS_F32, HS_F32, HS_F32, 4096, 3072, .options = 0 },
    { HS_F16, HS_F32, HS_F32, 4096, 3072, .options = 0 },
};

const HsOpTest hs_op_test_bias_backward = {
    .cases = bias_cases,
    .case_count = HS_COUNT_OF(bias_cases),
    .timed = bias_timed,
    .timed_count = HS_COUNT_OF(bias_timed),
    .declare = declare_bias,
    .bound = bound_bias,
    .call = call_bias,
};
