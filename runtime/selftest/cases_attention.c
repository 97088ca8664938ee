/* SPDX-License-Identifier: MIT
 *
 * Cases of attention: head dimensions 8 to 256, groups of 1 to 8 query heads, lengths around the edges of tiles,
 * dropout, scores too large for a naive exp, several documents in a sequence, windows and capped scores, sinks.
 */
#include "runtime/selftest/attention_bounds.h"

/* batch, sequence length, heads, kv heads, head dimension */
#define DTYPES(...)                                                                                                \
    { HS_F32, HS_F32, HS_F32, .heads = { __VA_ARGS__ } }, { HS_BF16, HS_BF16, HS_BF16, .heads = { __VA_ARGS__ } }, \
        { HS_F16, HS_F16, HS_F16, .heads = { __VA_ARGS__ } },                                                      \
        { HS_F32, HS_F32, HS_F32, .heads = { __VA_ARGS__ }, .start = 3, .dropout = 0.2f },                         \
    {                                                                                                              \
        HS_BF16, HS_BF16, HS_BF16, .heads = { __VA_ARGS__ }, .start = 5, .dropout = 0.1f                           \
    }

/* 16-bit inputs, gradients and results in f32. */
#define MIXED(...)                                         \
    {                                                      \
        HS_BF16, HS_F32, HS_F32, .heads = { __VA_ARGS__ }, \
    }

#define HUGE_SCORES(...)                                                             \
    { HS_F32, HS_F32, HS_F32, .heads = { __VA_ARGS__ }, .options = HS_CASE_HUGE },   \
    {                                                                                \
        HS_BF16, HS_BF16, HS_BF16, .heads = { __VA_ARGS__ }, .options = HS_CASE_HUGE \
    }

/* Several tiles of 128 tokens, for the kernels that walk them, and more than their rings have stages; f32 has none of
 * those. */
#define LONG(...)                                                                          \
    { HS_BF16, HS_BF16, HS_BF16, .heads = { __VA_ARGS__ } },                               \
        { HS_F16, HS_F16, HS_F16, .heads = { __VA_ARGS__ }, .start = 2, .dropout = 0.3f }, \
    {                                                                                      \
        HS_BF16, HS_BF16, HS_BF16, .heads = { __VA_ARGS__ }, .start = 1, .dropout = 0.1f   \
    }

/* Several documents in a sequence, from one token long to several tiles. */
#define DOCUMENTS(...)                                                                                      \
    { HS_F32, HS_F32, HS_F32, .heads = { __VA_ARGS__ }, .documents = true },                                \
        { HS_BF16, HS_BF16, HS_BF16, .heads = { __VA_ARGS__ }, .documents = true },                         \
        { HS_F16, HS_F16, HS_F16, .heads = { __VA_ARGS__ }, .documents = true },                            \
        { HS_F32, HS_F32, HS_F32, .heads = { __VA_ARGS__ }, .dropout = 0.2f, .documents = true },           \
    {                                                                                                       \
        HS_BF16, HS_BF16, HS_BF16, .heads = { __VA_ARGS__ }, .start = 5, .dropout = 0.1f, .documents = true \
    }

/* A window, a cap, and both with documents: in f32 and, with dropout, on 16-bit matrix units. */
#define RULED(seen, most, ...)                                                                                \
    { HS_F32, HS_F32, HS_F32, .heads = { __VA_ARGS__ }, .window = seen },                                     \
        { HS_F32, HS_F32, HS_F32, .heads = { __VA_ARGS__ }, .cap = most, .dropout = 0.2f },                   \
        { HS_BF16, HS_BF16, HS_BF16, .heads = { __VA_ARGS__ }, .window = seen, .start = 5, .dropout = 0.1f }, \
        { HS_F16, HS_F16, HS_F16, .heads = { __VA_ARGS__ }, .cap = most },                                    \
        { HS_BF16, HS_BF16, HS_BF16, .heads = { __VA_ARGS__ }, .cap = most, .options = HS_CASE_HUGE },        \
        { HS_F32, HS_F32, HS_F32, .heads = { __VA_ARGS__ }, .window = seen, .cap = most, .documents = true }, \
    {                                                                                                         \
        HS_BF16, HS_BF16, HS_BF16, .heads = { __VA_ARGS__ }, .window = seen, .cap = most, .documents = true   \
    }

#define RULED_CASES                                                                                              \
    RULED(1, 1.0f, 1, 3, 1, 1, 8), RULED(2, 0.5f, 2, 17, 8, 1, 24), RULED(16, 2.0f, 1, 17, 2, 2, 32),            \
        RULED(64, 5.0f, 1, 65, 3, 1, 64), RULED(63, 50.0f, 1, 130, 2, 1, 128), RULED(5, 1.5f, 1, 150, 1, 1, 17), \
        RULED(100, 3.0f, 2, 300, 4, 2, 64), RULED(33, 2.0f, 1, 98, 1, 1, 96), RULED(20, 4.0f, 1, 68, 2, 1, 192), \
        RULED(65, 50.0f, 1, 140, 2, 1, 256), RULED(128, 2.0f, 1, 516, 2, 1, 40), RULED(300, 2.0f, 1, 257, 2, 1, 128)

/* Sinks, some of them far above or below all scores, alone and with what else ends a row. */
#define SINKS(seen, ...)                                                                                          \
    { HS_F32, HS_F32, HS_F32, .heads = { __VA_ARGS__ }, .options = HS_CASE_SINKS },                               \
        { HS_F32, HS_F32, HS_F32, .heads = { __VA_ARGS__ }, .options = HS_CASE_SINKS | HS_CASE_HUGE },            \
        { HS_BF16,        HS_BF16,         HS_BF16,    .heads = { __VA_ARGS__ },                                  \
          .window = seen, .dropout = 0.1f, .start = 5, .options = HS_CASE_SINKS },                                \
        { HS_F16, HS_F16, HS_F16, .heads = { __VA_ARGS__ }, .documents = true, .options = HS_CASE_SINKS },        \
    {                                                                                                             \
        HS_BF16, HS_BF16, HS_BF16, .heads = { __VA_ARGS__ }, .cap = 3.0f, .options = HS_CASE_SINKS | HS_CASE_HUGE \
    }

#define SINK_CASES                                                                                                \
    SINKS(1, 1, 3, 1, 1, 8), SINKS(5, 2, 17, 8, 1, 24), SINKS(30, 1, 65, 3, 1, 64), SINKS(64, 1, 130, 2, 1, 128), \
        SINKS(9, 1, 150, 1, 1, 17), SINKS(100, 2, 300, 4, 2, 64), SINKS(20, 1, 68, 2, 1, 192),                    \
        SINKS(65, 1, 140, 2, 1, 256)

static const HsCase attention_cases[] = {
    DTYPES(1, 1, 1, 1, 8),
    DTYPES(2, 2, 2, 1, 16),
    DTYPES(1, 3, 3, 3, 32),
    DTYPES(3, 7, 4, 2, 64),
    DTYPES(1, 17, 8, 1, 24),
    DTYPES(2, 63, 2, 2, 32),
    DTYPES(1, 64, 3, 1, 64),
    DTYPES(1, 65, 2, 2, 80),
    DTYPES(1, 127, 2, 1, 128),
    DTYPES(1, 129, 2, 2, 8),
    DTYPES(1, 33, 2, 1, 256),
    DTYPES(1, 150, 1, 1, 17),
    DTYPES(2, 20, 12, 4, 64),
    DTYPES(1, 132, 4, 2, 64),
    DTYPES(1, 98, 1, 1, 96),
    DTYPES(1, 136, 2, 1, 128),
    DTYPES(1, 68, 2, 1, 192),
    DTYPES(1, 67, 1, 1, 200),
    DTYPES(1, 68, 2, 1, 256),
    DTYPES(2, 37, 4, 1, 100),
    MIXED(1, 37, 2, 1, 32),
    HUGE_SCORES(1, 70, 2, 1, 32),
    HUGE_SCORES(1, 130, 1, 1, 64),
    LONG(1, 257, 2, 1, 128),
    LONG(3, 300, 2, 2, 40),
    LONG(1, 516, 2, 1, 64),
    LONG(1, 384, 3, 3, 104),
    LONG(1, 516, 1, 1, 96),
    LONG(1, 772, 1, 1, 32),
    DOCUMENTS(1, 1, 1, 1, 8),
    DOCUMENTS(2, 17, 8, 1, 24),
    DOCUMENTS(2, 63, 2, 2, 32),
    DOCUMENTS(1, 64, 3, 1, 64),
    DOCUMENTS(2, 129, 2, 2, 8),
    DOCUMENTS(1, 127, 2, 1, 128),
    DOCUMENTS(1, 150, 1, 1, 17),
    DOCUMENTS(1, 98, 1, 1, 96),
    DOCUMENTS(1, 130, 2, 1, 192),
    DOCUMENTS(1, 140, 2, 1, 256),
    DOCUMENTS(3, 300, 4, 2, 64),
    DOCUMENTS(1, 516, 2, 1, 40),
    DOCUMENTS(1, 257, 2, 1, 128),
    DOCUMENTS(2, 388, 1, 1, 96),
    DOCUMENTS(1, 772, 1, 1, 32),
    DOCUMENTS(1, 67, 1, 1, 200),
    RULED_CASES,
    SINK_CASES,
};

static float scale_of(const HsTrial *trial)
{
    return 1.0f / sqrtf((float)trial->config->heads.head_dim);
}

/* starts: NULL: none */
static HsScoreRule rule_of(const HsTrial *trial, const HsTensor *starts)
{
    return (HsScoreRule){ .scale = scale_of(trial),
                          .cap = trial->config->cap,
                          .window = trial->config->window,
                          .starts = starts ? *starts : (HsTensor){ 0 } };
}

/* The optimizer step, of which masks are drawn, is counted in the device's memory. */
static HsTrialOperand step_operand(const HsTrial *trial)
{
    if (trial->config->dropout == 0.0f)
        return (HsTrialOperand){ 0 };
    HsTrialOperand step = hs_filled(hs_input("step", 1000.0, hs_tensor_1d(NULL, HS_I32, 1)), HS_FILL_INDEX);
    step.parameter = true;
    return step;
}

/* counter: where the code that draws finds it */
static HsRng rng_of(const HsTrial *trial, const void *counter)
{
    return (HsRng){
        .seed = trial->seed, .step = 7, .site = 3, .row_offset = trial->config->start, .step_counter = counter
    };
}

static HsTensor projection(const HsTrial *trial, HsDtype dtype)
{
    const HsHeads *heads = &trial->config->heads;
    return hs_tensor_2d(NULL, dtype, hs_heads_rows(heads), hs_heads_columns(heads));
}

static HsTensor result(const HsTrial *trial, HsDtype dtype)
{
    const HsHeads *heads = &trial->config->heads;
    return hs_tensor_2d(NULL, dtype, hs_heads_rows(heads), heads->heads * heads->head_dim);
}

static HsTensor statistics(const HsTrial *trial)
{
    return hs_tensor_2d(NULL, HS_F32, hs_heads_rows(&trial->config->heads), trial->config->heads.heads);
}

/* Scores of a few hundred: exp overflows unless the maximum is taken off first. */
static double spread_of(const HsTrial *trial)
{
    return hs_case_has(trial, HS_CASE_HUGE) ? 12.0 : 1.0;
}

/* A vector with a number a head. */
static HsTensor of_heads(const HsTrial *trial)
{
    return hs_tensor_1d(NULL, HS_F32, trial->config->heads.heads);
}

static HsTrialOperand sinks_operand(const HsTrial *trial)
{
    const double spread = hs_case_has(trial, HS_CASE_HUGE) ? 100.0 : 3.0;
    return hs_case_has(trial, HS_CASE_SINKS) ? hs_input("sinks", spread, of_heads(trial)) : (HsTrialOperand){ 0 };
}

static HsStatus prepare_starts(HsTrial *trial, int operand)
{
    if (trial->config->documents)
        hs_trial_draw_starts(trial, operand);
    return HS_OK;
}

static const int32_t *starts_of(const HsTrial *trial, int operand)
{
    return trial->config->documents ? trial->operands[operand].exact.data : NULL;
}

enum { QKV, OUT, LSE, STARTS, STEP, SINK };

static void declare_forward(HsTrial *trial)
{
    trial->operands[QKV] = hs_input("qkv", spread_of(trial), projection(trial, trial->config->dtype));
    trial->operands[OUT] = hs_output("out", result(trial, trial->config->out));
    trial->operands[LSE] = hs_output("lse", statistics(trial));
    trial->operands[STARTS] = hs_starts_operand(trial, hs_heads_rows(&trial->config->heads));
    trial->operands[STEP] = step_operand(trial);
    trial->operands[SINK] = sinks_operand(trial);
    hs_trial_ask_amax(trial, OUT);
}

/* Outputs are means, largest where few keys are seen, at the beginning: not so of the last token, where its value is. */
static void raise_last_value(HsTrial *trial)
{
    const HsHeads *const heads = &trial->config->heads;
    const HsTrialOperand *const qkv = &trial->operands[QKV];
    const int64_t values = heads->kv_heads * heads->head_dim, end = hs_tensor_count(&qkv->tensor);
    for (int64_t i = end - values; i < end; i++)
        hs_dtype_store(qkv->tensor.dtype, qkv->image, i, 64.0 * hs_dtype_load(qkv->tensor.dtype, qkv->image, i));
}

static HsStatus prepare_forward(HsTrial *trial, HsContext *reference)
{
    (void)reference;
    if (hs_operand_present(trial, HS_TRIAL_AMAX))
        raise_last_value(trial);
    return prepare_starts(trial, STARTS);
}

static HsStatus call_forward(HsTrial *trial, HsContext *context, const HsTensor *t)
{
    return hs_op_attention_forward(context, &(HsAttentionArgs){ .heads = trial->config->heads,
                                                                .rule = rule_of(trial, &t[STARTS]),
                                                                .dropout = trial->config->dropout,
                                                                .rng = rng_of(trial, t[STEP].data),
                                                                .qkv = t[QKV],
                                                                .sinks = t[SINK],
                                                                .out = t[OUT],
                                                                .lse = t[LSE] });
}

static void bound_forward(HsTrial *trial)
{
    const HsAttentionView view = { .heads = trial->config->heads,
                                   .scale = (double)scale_of(trial),
                                   .window = trial->config->window,
                                   .cap = (double)trial->config->cap,
                                   .dropout = trial->config->dropout,
                                   .rng = rng_of(trial, trial->operands[STEP].image),
                                   .starts = starts_of(trial, STARTS),
                                   .sinks = hs_case_has(trial, HS_CASE_SINKS) ? hs_initial(trial, SINK) : NULL,
                                   .qkv = hs_initial(trial, QKV),
                                   .lse = hs_exact(trial, LSE),
                                   .weights = trial->config->dtype };
    hs_bound_attention_forward(&view, trial->operands[OUT].error, trial->operands[LSE].error);
}

static const HsCase attention_timed[] = {
    { HS_BF16, HS_BF16, HS_BF16, .heads = { 4, 1024, 12, 12, 64 } },
    { HS_F32, HS_F32, HS_F32, .heads = { 4, 1024, 12, 12, 64 } },
    { HS_F16, HS_F16, HS_F16, .heads = { 4, 1024, 12, 12, 64 } },
};

const HsOpTest hs_op_test_attention_forward = {
    .cases = attention_cases,
    .case_count = HS_COUNT_OF(attention_cases),
    .timed = attention_timed,
    .timed_count = HS_COUNT_OF(attention_timed),
    .declare = declare_forward,
    .prepare = prepare_forward,
    .bound = bound_forward,
    .call = call_forward,
};

enum { B_DOUT, B_QKV, B_OUT, B_LSE, B_DQKV, B_STARTS, B_STEP, B_SINK };

static void declare_backward(HsTrial *trial)
{
    const HsCase *config = trial->config;
    trial->operands[B_DOUT] = hs_input("dout", 1.0, result(trial, config->other));
    trial->operands[B_QKV] = hs_input("qkv", spread_of(trial), projection(trial, config->dtype));
    trial->operands[B_OUT] = hs_filled(hs_input("out", 1.0, result(trial, config->dtype)), HS_FILL_ZERO);
    trial->operands[B_LSE] = hs_filled(hs_input("lse", 1.0, statistics(trial)), HS_FILL_ZERO);
    trial->operands[B_DQKV] = hs_output("dqkv", projection(trial, config->out));
    trial->operands[B_STARTS] = hs_starts_operand(trial, hs_heads_rows(&config->heads));
    trial->operands[B_STEP] = step_operand(trial);
    trial->operands[B_SINK] = sinks_operand(trial); /* of forward, whose results backward reads */
    trial->operands[B_SINK].parameter = true;
    hs_trial_ask_amax(trial, B_DQKV);
}

/* For timing: lse as if every score were 0, so that no exponential overflows or vanishes. */
static void prepare_plausible(HsTrial *trial)
{
    const HsHeads *heads = &trial->config->heads;
    float *lse = trial->operands[B_LSE].image; /* [N,H] */
    for (int64_t i = 0; i < hs_heads_rows(heads) * heads->heads; i++)
        lse[i] = logf((float)(i / heads->heads % heads->sequence_length + 1));
}

/* out and lse must be the forward pass's own, rounded as it stores them, or exp(s - lse) means nothing. */
static HsStatus prepare_backward(HsTrial *trial, HsContext *reference)
{
    if (reference == NULL) {
        prepare_plausible(trial);
        return HS_OK;
    }
    HS_TRY(prepare_starts(trial, B_STARTS));
    HsTensor starts = trial->operands[B_STARTS].tensor;
    starts.data = trial->operands[B_STARTS].image;
    HsTensor qkv = trial->operands[B_QKV].tensor, out = trial->operands[B_OUT].tensor,
             lse = trial->operands[B_LSE].tensor, sinks = trial->operands[B_SINK].tensor;
    sinks.data = trial->operands[B_SINK].image;
    qkv.data = trial->operands[B_QKV].image;
    out.data = trial->operands[B_OUT].image;
    lse.data = trial->operands[B_LSE].image;
    return hs_op_attention_forward(reference, &(HsAttentionArgs){ .heads = trial->config->heads,
                                                                  .rule = rule_of(trial, &starts),
                                                                  .dropout = trial->config->dropout,
                                                                  .rng = rng_of(trial, trial->operands[B_STEP].image),
                                                                  .qkv = qkv,
                                                                  .sinks = sinks,
                                                                  .out = out,
                                                                  .lse = lse });
}

static HsStatus call_backward(HsTrial *trial, HsContext *context, const HsTensor *t)
{
    return hs_op_attention_backward(context, &(HsAttentionBackwardArgs){ .heads = trial->config->heads,
                                                                         .rule = rule_of(trial, &t[B_STARTS]),
                                                                         .dropout = trial->config->dropout,
                                                                         .rng = rng_of(trial, t[B_STEP].data),
                                                                         .dout = t[B_DOUT],
                                                                         .qkv = t[B_QKV],
                                                                         .out = t[B_OUT],
                                                                         .lse = t[B_LSE],
                                                                         .dqkv = t[B_DQKV] });
}

static void bound_backward(HsTrial *trial)
{
    const HsAttentionView view = { .heads = trial->config->heads,
                                   .scale = (double)scale_of(trial),
                                   .window = trial->config->window,
                                   .cap = (double)trial->config->cap,
                                   .dropout = trial->config->dropout,
                                   .rng = rng_of(trial, trial->operands[B_STEP].image),
                                   .starts = starts_of(trial, B_STARTS),
                                   .qkv = hs_initial(trial, B_QKV),
                                   .lse = hs_initial(trial, B_LSE),
                                   .out = hs_initial(trial, B_OUT),
                                   .dout = hs_initial(trial, B_DOUT),
                                   .weights = trial->config->dtype };
    hs_bound_attention_backward(&view, trial->operands[B_DQKV].error);
}

const HsOpTest hs_op_test_attention_backward = {
    .cases = attention_cases,
    .case_count = HS_COUNT_OF(attention_cases),
    .timed = attention_timed,
    .timed_count = HS_COUNT_OF(attention_timed),
    .declare = declare_backward,
    .prepare = prepare_backward,
    .bound = bound_backward,
    .call = call_backward,
};

enum { S_DOUT, S_OUT, S_LSE, S_SINK, S_DSINK };

#define SINK_GRADIENTS(...)                                                                                       \
    { HS_F32, HS_F32, HS_F32, .heads = { __VA_ARGS__ } }, { HS_BF16, HS_F32, HS_BF16, .heads = { __VA_ARGS__ } }, \
        { HS_F16, HS_F32, HS_F16, .heads = { __VA_ARGS__ } },                                                     \
    {                                                                                                             \
        HS_BF16, HS_F32, HS_F32, .heads = { __VA_ARGS__ }                                                         \
    }

/* dtype: of out, other: of dout */
static const HsCase sink_cases[] = {
    SINK_GRADIENTS(1, 1, 1, 1, 8),    SINK_GRADIENTS(2, 17, 8, 1, 24),  SINK_GRADIENTS(1, 513, 3, 1, 64),
    SINK_GRADIENTS(3, 700, 5, 5, 16), SINK_GRADIENTS(1, 150, 1, 1, 17), SINK_GRADIENTS(2, 140, 2, 1, 256),
};

static void declare_sinks(HsTrial *trial)
{
    trial->operands[S_DOUT] = hs_input("dout", 1.0, result(trial, trial->config->other));
    trial->operands[S_OUT] = hs_input("out", 1.0, result(trial, trial->config->dtype));
    trial->operands[S_LSE] = hs_input("lse", 2.0, statistics(trial));
    trial->operands[S_SINK] = hs_input("sinks", 3.0, of_heads(trial));
    trial->operands[S_DSINK] = hs_updated("dsinks", 1.0, of_heads(trial));
}

static HsStatus call_sinks(HsTrial *trial, HsContext *context, const HsTensor *t)
{
    return hs_op_sink_backward(context, &(HsSinkBackwardArgs){ .heads = trial->config->heads,
                                                               .dout = t[S_DOUT],
                                                               .out = t[S_OUT],
                                                               .lse = t[S_LSE],
                                                               .sinks = t[S_SINK],
                                                               .dsinks = t[S_DSINK] });
}

/* Of a row: a product of D terms, the exponential of a difference, and their product; then N rows and the old value. */
static void bound_sinks(HsTrial *trial)
{
    const HsHeads *heads = &trial->config->heads;
    const double *dout = hs_initial(trial, S_DOUT), *out = hs_initial(trial, S_OUT), *lse = hs_initial(trial, S_LSE);
    const double sums = hs_gamma(heads->head_dim + hs_heads_rows(heads) + 6);
    for (int64_t h = 0; h < heads->heads; h++) {
        const double sink = hs_initial(trial, S_SINK)[h];
        double error = hs_gamma(2) * fabs(hs_initial(trial, S_DSINK)[h]);
        for (int64_t n = 0; n < hs_heads_rows(heads); n++) {
            const int64_t at = n * heads->heads + h;
            const double relative =
                expm1(hs_gamma(2) * (fabs(sink) + fabs(lse[at])) + hs_gamma(HS_FUNCTION_ROUNDINGS)) + sums;
            double size = 0.0;
            for (int64_t d = 0; d < heads->head_dim; d++)
                size += fabs(dout[at * heads->head_dim + d] * out[at * heads->head_dim + d]);
            error += exp(sink - lse[at]) * size * relative;
        }
        trial->operands[S_DSINK].error[h] = error;
    }
}

static const HsCase sinks_timed[] = {
    { HS_BF16, HS_F32, HS_BF16, .heads = { 4, 1024, 12, 12, 64 } },
    { HS_F32, HS_F32, HS_F32, .heads = { 4, 1024, 12, 12, 64 } },
    { HS_F16, HS_F32, HS_F16, .heads = { 4, 1024, 12, 12, 64 } },
};

const HsOpTest hs_op_test_sink_backward = {
    .cases = sink_cases,
    .case_count = HS_COUNT_OF(sink_cases),
    .timed = sinks_timed,
    .timed_count = HS_COUNT_OF(sinks_timed),
    .declare = declare_sinks,
    .bound = bound_sinks,
    .call = call_sinks,
};

/* depth: room in the cache; start: rows already there */
#define CACHED(room, begin, ...)                                                                                 \
    { HS_F32, HS_F32, HS_F32, .depth = room, .start = begin, .heads = { __VA_ARGS__ } },                         \
        { HS_BF16, HS_BF16, HS_BF16, .depth = room, .start = begin, .heads = { __VA_ARGS__ } },                  \
        { HS_F16, HS_F16, HS_F16, .depth = room, .start = begin, .heads = { __VA_ARGS__ } },                     \
    {                                                                                                            \
        HS_F32, HS_F32, HS_F32, .depth = room, .start = begin, .heads = { __VA_ARGS__ }, .options = HS_CASE_HUGE \
    }

#define RULED_CACHE(seen, most, room, begin, ...)                                                                    \
    { HS_F32, HS_F32, HS_F32, .depth = room, .start = begin, .heads = { __VA_ARGS__ }, .window = seen },             \
        { HS_BF16, HS_BF16, HS_BF16, .depth = room, .start = begin, .heads = { __VA_ARGS__ }, .cap = most },         \
    {                                                                                                                \
        HS_F16, HS_F16, HS_F16, .depth = room, .start = begin, .heads = { __VA_ARGS__ }, .window = seen, .cap = most \
    }

#define RULED_CACHES                                                                                        \
    RULED_CACHE(1, 1.0f, 17, 0, 2, 7, 4, 2, 16), RULED_CACHE(5, 2.0f, 20, 3, 1, 17, 2, 1, 256),             \
        RULED_CACHE(300, 50.0f, 700, 601, 1, 2, 4, 1, 64), RULED_CACHE(17, 3.0f, 600, 555, 2, 1, 3, 3, 96), \
        RULED_CACHE(600, 2.0f, 700, 601, 1, 90, 2, 1, 17)

/* Ranges of keys that blocks share, and one. */
#define SINK_CACHE(room, begin, ...)                                                                               \
    { HS_F32, HS_F32, HS_F32, .depth = room, .start = begin, .heads = { __VA_ARGS__ }, .options = HS_CASE_SINKS }, \
        { HS_BF16,        HS_BF16,                                                                                 \
          HS_BF16,        .depth = room,                                                                           \
          .start = begin, .heads = { __VA_ARGS__ },                                                                \
          .window = 9,    .options = HS_CASE_SINKS },                                                              \
    {                                                                                                              \
        HS_F16, HS_F16, HS_F16, .depth = room, .start = begin, .heads = { __VA_ARGS__ },                           \
                                .options = HS_CASE_SINKS | HS_CASE_HUGE                                            \
    }

static const HsCase cached_cases[] = {
    CACHED(1, 0, 1, 1, 1, 1, 8),         CACHED(17, 0, 2, 7, 4, 2, 16),
    CACHED(65, 64, 1, 1, 2, 2, 64),      CACHED(140, 127, 1, 3, 8, 1, 32),
    CACHED(70, 63, 2, 2, 3, 3, 128),     CACHED(20, 3, 1, 17, 2, 1, 256),
    CACHED(700, 601, 1, 2, 4, 1, 64),    CACHED(30, 20, 1, 2, 4, 2, 17),
    CACHED(600, 555, 2, 1, 3, 3, 96),    RULED_CACHES,
    SINK_CACHE(17, 0, 2, 7, 4, 2, 16),   SINK_CACHE(700, 601, 1, 2, 4, 1, 64),
    SINK_CACHE(20, 3, 1, 17, 2, 1, 256),
};

enum { C_QKV, C_K_CACHE, C_V_CACHE, C_OUT, C_SINK };

static void declare_cached(HsTrial *trial)
{
    const HsCase *config = trial->config;
    const HsTensor cache = hs_tensor_3d(NULL, config->dtype, config->heads.batch, config->depth,
                                        config->heads.kv_heads * config->heads.head_dim);
    trial->operands[C_QKV] = hs_input("qkv", spread_of(trial), projection(trial, config->dtype));
    trial->operands[C_K_CACHE] = hs_updated("k_cache", spread_of(trial), cache);
    trial->operands[C_V_CACHE] = hs_updated("v_cache", 1.0, cache);
    trial->operands[C_OUT] = hs_output("out", result(trial, config->out));
    trial->operands[C_SINK] = sinks_operand(trial);
    hs_trial_ask_amax(trial, C_OUT);
}

static HsStatus call_cached(HsTrial *trial, HsContext *context, const HsTensor *t)
{
    return hs_op_attention_cached(context, &(HsAttentionCachedArgs){ .heads = trial->config->heads,
                                                                     .rule = rule_of(trial, NULL),
                                                                     .position_start = trial->config->start,
                                                                     .qkv = t[C_QKV],
                                                                     .k_cache = t[C_K_CACHE],
                                                                     .v_cache = t[C_V_CACHE],
                                                                     .sinks = t[C_SINK],
                                                                     .out = t[C_OUT] });
}

static void bound_cached(HsTrial *trial)
{
    const HsAttentionView view = { .heads = trial->config->heads,
                                   .scale = (double)scale_of(trial),
                                   .window = trial->config->window,
                                   .cap = (double)trial->config->cap,
                                   .sinks = hs_case_has(trial, HS_CASE_SINKS) ? hs_initial(trial, C_SINK) : NULL,
                                   .qkv = hs_initial(trial, C_QKV),
                                   .k_cache = hs_exact(trial, C_K_CACHE),
                                   .v_cache = hs_exact(trial, C_V_CACHE),
                                   .room = trial->config->depth,
                                   .start = trial->config->start,
                                   .weights = HS_F32 };
    hs_bound_attention_forward(&view, trial->operands[C_OUT].error, NULL);
}

/* Of the cache, the rows before the new ones that the first of these sees are read, and the new ones written. */
static double bytes_cached(const HsTrial *trial, const HsContext *context)
{
    (void)context;
    const HsCase *config = trial->config;
    const int64_t unseen =
        config->window > 0 && config->start >= config->window ? config->start + 1 - config->window : 0;
    const double rows = (double)(config->heads.batch * (config->start - unseen + config->heads.sequence_length));
    const double row_bytes =
        (double)(config->heads.kv_heads * config->heads.head_dim) * (double)hs_dtype_bytes(config->dtype);
    const double amax =
        hs_operand_present(trial, HS_TRIAL_AMAX) ? hs_operand_bytes(&trial->operands[HS_TRIAL_AMAX]) : 0.0;
    const double sinks = hs_operand_present(trial, C_SINK) ? hs_operand_bytes(&trial->operands[C_SINK]) : 0.0;
    return 2.0 * rows * row_bytes + hs_operand_bytes(&trial->operands[C_QKV]) +
           hs_operand_bytes(&trial->operands[C_OUT]) + sinks + amax;
}

static const HsCase cached_timed[] = {
    { HS_BF16, HS_BF16, HS_BF16, .depth = 1024, .start = 1000, .heads = { 4, 1, 12, 12, 64 } },
    { HS_F32, HS_F32, HS_F32, .depth = 1024, .start = 1000, .heads = { 4, 1, 12, 12, 64 } },
    { HS_F16, HS_F16, HS_F16, .depth = 1024, .start = 1000, .heads = { 4, 1, 12, 12, 64 } },
};

const HsOpTest hs_op_test_attention_cached = {
    .cases = cached_cases,
    .case_count = HS_COUNT_OF(cached_cases),
    .timed = cached_timed,
    .timed_count = HS_COUNT_OF(cached_timed),
    .bytes = bytes_cached,
    .declare = declare_cached,
    .bound = bound_cached,
    .call = call_cached,
};
