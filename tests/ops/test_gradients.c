/* SPDX-License-Identifier: MIT
 *
 * Every backward operation of the reference against central differences of its forward, both in f64.
 * The loss is L = sum_i r_i y_i with fixed random r, so dy = r; each input element is moved in turn.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "kernels/base/tolerance.h"
#include "kernels/ops/backend.h"
#include "tests/support/differences.h"

static HsContext reference(void)
{
    return (HsContext){ .backend = hs_backend_ref(), .threads = 1 };
}

static HsTensor vector(double *data, int64_t count)
{
    return hs_tensor_1d(data, HS_F64, count);
}

static HsTensor matrix(double *data, int64_t rows, int64_t columns)
{
    return hs_tensor_2d(data, HS_F64, rows, columns);
}

static void fill(double *values, int64_t count, uint32_t site)
{
    const HsRng rng = { .seed = 99, .site = site };
    for (int64_t i = 0; i < count; i++) {
        const HsPhilox draw = hs_rng_draw(&rng, (uint64_t)i);
        double normal[2];
        hs_rng_normal(draw.word[0], draw.word[1], normal);
        values[i] = normal[0];
    }
}

static double dot(const double *a, const double *b, int64_t count)
{
    double sum = 0.0;
    for (int64_t i = 0; i < count; i++)
        sum += a[i] * b[i];
    return sum;
}

#define COUNT(array) ((int64_t)(sizeof(array) / sizeof((array)[0])))
#define RUN(call)    cr_assert_eq((call), HS_OK, "%s", hs_error_message())

/* No loss here takes more than `terms` roundings in double, of numbers that sum to less than `magnitude` in size. */
static double loss_rounding(void)
{
    const int64_t terms = 2000;
    const double magnitude = 1000.0;
    return hs_tolerance(terms, 0, HS_F64, HS_F64, magnitude, 0.0);
}

static void check(const char *name, double (*loss)(void *), void *user, double *x, const double *gradient,
                  int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        const Difference expected = central_difference(loss, user, &x[i], loss_rounding());
        cr_expect(fabs(gradient[i] - expected.derivative) <= expected.tolerance,
                  "%s[%d]: gradient %.12g, difference %.12g +- %.2g", name, (int)i, gradient[i], expected.derivative,
                  expected.tolerance);
    }
}

/* A two-layer block, as the models have it: y = f(x w1^T + b1) w2^T + b2 + x.  A gate takes two of its rows of w1. */
enum { ROWS = 5, WIDTH = 3, HIDDEN = 7, PRE = 2 * HIDDEN };

typedef struct Block {
    HsEpilogue epilogue;
    int64_t rows_of_w1;
    double x[ROWS * WIDTH], w1[PRE * WIDTH], b1[PRE], w2[WIDTH * HIDDEN], b2[WIDTH], r[ROWS * WIDTH];
    double pre[ROWS * PRE], h[ROWS * HIDDEN], y[ROWS * WIDTH];
} Block;

static double block_loss(void *user)
{
    Block *b = user;
    HsContext context = reference();
    RUN(hs_op_matmul(&context, &(HsMatmulArgs){ .a.values = matrix(b->x, ROWS, WIDTH),
                                                .b.values = matrix(b->w1, b->rows_of_w1, WIDTH),
                                                .transpose_b = true,
                                                .bias = vector(b->b1, b->rows_of_w1),
                                                .pre = matrix(b->pre, ROWS, b->rows_of_w1),
                                                .epilogue = b->epilogue,
                                                .alpha = 1.0f,
                                                .c = matrix(b->h, ROWS, HIDDEN) }));
    RUN(hs_op_matmul(&context, &(HsMatmulArgs){ .a.values = matrix(b->h, ROWS, HIDDEN),
                                                .b.values = matrix(b->w2, WIDTH, HIDDEN),
                                                .transpose_b = true,
                                                .bias = vector(b->b2, WIDTH),
                                                .residual = matrix(b->x, ROWS, WIDTH),
                                                .alpha = 1.0f,
                                                .c = matrix(b->y, ROWS, WIDTH) }));
    return dot(b->y, b->r, COUNT(b->y));
}

static void check_block(HsEpilogue epilogue, HsEpilogue backward)
{
    Block b = { .epilogue = epilogue, .rows_of_w1 = hs_epilogue_gates(epilogue) ? PRE : HIDDEN };
    double dpre[ROWS * PRE], dx[ROWS * WIDTH];
    double dw1[PRE * WIDTH] = { 0 }, dw2[WIDTH * HIDDEN] = { 0 }, db1[PRE] = { 0 }, db2[WIDTH] = { 0 };
    fill(b.x, COUNT(b.x), 0), fill(b.w1, COUNT(b.w1), 1), fill(b.b1, COUNT(b.b1), 2), fill(b.w2, COUNT(b.w2), 3);
    fill(b.b2, COUNT(b.b2), 4), fill(b.r, COUNT(b.r), 5);
    block_loss(&b);

    HsContext context = reference();
    const HsTensor dy = matrix(b.r, ROWS, WIDTH), hidden_gradient = matrix(dpre, ROWS, b.rows_of_w1);
    RUN(hs_op_matmul(&context, &(HsMatmulArgs){ .a.values = dy,
                                                .b.values = matrix(b.w2, WIDTH, HIDDEN),
                                                .pre = matrix(b.pre, ROWS, b.rows_of_w1),
                                                .epilogue = backward,
                                                .alpha = 1.0f,
                                                .c = hidden_gradient }));
    RUN(hs_op_matmul(&context, &(HsMatmulArgs){ .a.values = dy,
                                                .b.values = matrix(b.h, ROWS, HIDDEN),
                                                .transpose_a = true,
                                                .accumulate = true,
                                                .alpha = 1.0f,
                                                .c = matrix(dw2, WIDTH, HIDDEN),
                                                .row_sums = vector(db2, WIDTH) }));
    RUN(hs_op_matmul(&context, &(HsMatmulArgs){ .a.values = hidden_gradient,
                                                .b.values = matrix(b.x, ROWS, WIDTH),
                                                .transpose_a = true,
                                                .accumulate = true,
                                                .alpha = 1.0f,
                                                .c = matrix(dw1, b.rows_of_w1, WIDTH) }));
    RUN(hs_op_bias_backward(&context, &(HsBiasBackwardArgs){ hidden_gradient, vector(db1, b.rows_of_w1) }));
    memcpy(dx, b.r, sizeof dx); /* the residual's share */
    RUN(hs_op_matmul(&context, &(HsMatmulArgs){ .a.values = hidden_gradient,
                                                .b.values = matrix(b.w1, b.rows_of_w1, WIDTH),
                                                .accumulate = true,
                                                .alpha = 1.0f,
                                                .c = matrix(dx, ROWS, WIDTH) }));
    check("x", block_loss, &b, b.x, dx, COUNT(dx));
    check("w1", block_loss, &b, b.w1, dw1, b.rows_of_w1 * WIDTH);
    check("b1", block_loss, &b, b.b1, db1, b.rows_of_w1);
    check("w2", block_loss, &b, b.w2, dw2, COUNT(dw2));
    check("b2", block_loss, &b, b.b2, db2, COUNT(db2));
}

Test(gradients, matmul_with_epilogues)
{
    check_block(HS_EPILOGUE_GELU, HS_EPILOGUE_GELU_BACKWARD);
    check_block(HS_EPILOGUE_RELU2, HS_EPILOGUE_RELU2_BACKWARD);
    check_block(HS_EPILOGUE_SWIGLU, HS_EPILOGUE_SWIGLU_BACKWARD);
    check_block(HS_EPILOGUE_GEGLU, HS_EPILOGUE_GEGLU_BACKWARD);
}

typedef struct Norm {
    HsNormKind kind;
    double x[ROWS * HIDDEN], weight[HIDDEN], bias[HIDDEN], r[ROWS * HIDDEN], y[ROWS * HIDDEN], mean[ROWS], rstd[ROWS];
    double below[HIDDEN]; /* the bias of the layer that made x */
    bool summed;          /* x is made of a branch and x as the residual */
    double branch[ROWS * HIDDEN];
    bool unweighted;
    bool added; /* y is added to a stream */
    double addend[ROWS * HIDDEN];
} Norm;

static const float dropped = 0.4f;
static const HsRng norm_rng = { .seed = 6, .step = 2, .site = 3, .row_offset = 5 };

static double norm_loss(void *user)
{
    Norm *n = user;
    HsContext context = reference();
    const bool layer = n->kind == HS_NORM_LAYER, biased = layer && !n->unweighted;
    const HsTensor absent = { 0 };
    double x[ROWS * HIDDEN];
    for (int64_t i = 0; i < COUNT(x); i++)
        x[i] = n->x[i] + n->below[i % HIDDEN];
    RUN(hs_op_norm_forward(&context, &(HsNormArgs){ .kind = n->kind,
                                                    .epsilon = 1e-3f,
                                                    .x = matrix(x, ROWS, HIDDEN),
                                                    .weight = n->unweighted ? absent : vector(n->weight, HIDDEN),
                                                    .bias = biased ? vector(n->bias, HIDDEN) : absent,
                                                    .addend = n->added ? matrix(n->addend, ROWS, HIDDEN) : absent,
                                                    .y = matrix(n->y, ROWS, HIDDEN),
                                                    .mean = layer ? vector(n->mean, ROWS) : absent,
                                                    .rstd = vector(n->rstd, ROWS),
                                                    .branch = n->summed ? matrix(n->branch, ROWS, HIDDEN) : absent,
                                                    .residual = n->summed ? matrix(x, ROWS, HIDDEN) : absent,
                                                    .probability = dropped,
                                                    .rng = norm_rng }));
    return dot(n->y, n->r, COUNT(n->y));
}

static void check_norm(HsNormKind kind, bool unweighted)
{
    Norm n = { .kind = kind, .unweighted = unweighted, .added = true };
    double dx[ROWS * HIDDEN] = { 0 }, dweight[HIDDEN] = { 0 }, dbias[HIDDEN] = { 0 };
    double dbelow[HIDDEN] = { 0 }, copy[ROWS * HIDDEN];
    fill(n.addend, COUNT(n.addend), 5);
    fill(n.x, COUNT(n.x), 0), fill(n.weight, COUNT(n.weight), 1), fill(n.bias, COUNT(n.bias), 2);
    fill(n.r, COUNT(n.r), 3);
    norm_loss(&n);
    HsContext context = reference();
    const bool layer = kind == HS_NORM_LAYER, biased = layer && !unweighted;
    const HsTensor absent = { 0 };
    /* dx starts at 0 and is accumulated twice by halves of dy: accumulation is checked on the way.  The whole is copied
     * and summed. */
    for (int64_t i = 0; i < COUNT(n.r); i++)
        n.r[i] /= 2.0;
    for (int half = 0; half < 2; half++)
        RUN(hs_op_norm_backward(&context,
                                &(HsNormBackwardArgs){ .kind = kind,
                                                       .dy = matrix(n.r, ROWS, HIDDEN),
                                                       .x = matrix(n.x, ROWS, HIDDEN),
                                                       .weight = unweighted ? absent : vector(n.weight, HIDDEN),
                                                       .mean = layer ? vector(n.mean, ROWS) : absent,
                                                       .rstd = vector(n.rstd, ROWS),
                                                       .accumulate = true,
                                                       .dx = matrix(dx, ROWS, HIDDEN),
                                                       .dweight = unweighted ? absent : vector(dweight, HIDDEN),
                                                       .dbias = biased ? vector(dbias, HIDDEN) : absent,
                                                       .dx_rounded = half ? matrix(copy, ROWS, HIDDEN) : absent,
                                                       .dx_sums = half ? vector(dbelow, HIDDEN) : absent }));
    for (int64_t i = 0; i < COUNT(n.r); i++)
        n.r[i] *= 2.0;
    check("x", norm_loss, &n, n.x, dx, COUNT(dx));
    check("a copy for x", norm_loss, &n, n.x, copy, COUNT(copy));
    check("the bias below", norm_loss, &n, n.below, dbelow, COUNT(dbelow));
    check("addend", norm_loss, &n, n.addend, n.r, COUNT(n.addend));
    if (!unweighted)
        check("weight", norm_loss, &n, n.weight, dweight, COUNT(dweight));
    if (biased)
        check("bias", norm_loss, &n, n.bias, dbias, COUNT(dbias));
}

/* x = residual + mask(branch) / (1 - p): the residual's gradient is dx, the branch's comes next to it. */
static void check_summed_norm(HsNormKind kind, bool unweighted)
{
    Norm n = { .kind = kind, .unweighted = unweighted, .summed = true };
    double dx[ROWS * HIDDEN], dbranch[ROWS * HIDDEN], x[ROWS * HIDDEN];
    fill(n.x, COUNT(n.x), 0), fill(n.weight, COUNT(n.weight), 1), fill(n.bias, COUNT(n.bias), 2);
    fill(n.r, COUNT(n.r), 3), fill(n.branch, COUNT(n.branch), 4);
    norm_loss(&n);
    HsContext context = reference();
    const bool layer = kind == HS_NORM_LAYER;
    const HsTensor absent = { 0 };
    RUN(hs_op_dropout_forward(&context, &(HsDropoutArgs){ .probability = dropped,
                                                          .rng = norm_rng,
                                                          .x = matrix(n.branch, ROWS, HIDDEN),
                                                          .residual = matrix(n.x, ROWS, HIDDEN),
                                                          .y = matrix(x, ROWS, HIDDEN) }));
    RUN(hs_op_norm_backward(&context, &(HsNormBackwardArgs){ .kind = kind,
                                                             .dy = matrix(n.r, ROWS, HIDDEN),
                                                             .x = matrix(x, ROWS, HIDDEN),
                                                             .weight = unweighted ? absent : vector(n.weight, HIDDEN),
                                                             .mean = layer ? vector(n.mean, ROWS) : absent,
                                                             .rstd = vector(n.rstd, ROWS),
                                                             .dx = matrix(dx, ROWS, HIDDEN),
                                                             .dx_masked = matrix(dbranch, ROWS, HIDDEN),
                                                             .probability = dropped,
                                                             .rng = norm_rng }));
    check("the residual", norm_loss, &n, n.x, dx, COUNT(dx));
    check("the branch", norm_loss, &n, n.branch, dbranch, COUNT(dbranch));
}

Test(gradients, layer_norm)
{
    check_norm(HS_NORM_LAYER, false);
    check_summed_norm(HS_NORM_LAYER, false);
}

Test(gradients, rms_norm)
{
    check_norm(HS_NORM_RMS, false);
    check_summed_norm(HS_NORM_RMS, false);
}

Test(gradients, norms_without_weights)
{
    check_norm(HS_NORM_LAYER, true);
    check_summed_norm(HS_NORM_LAYER, true);
    check_norm(HS_NORM_RMS, true);
    check_summed_norm(HS_NORM_RMS, true);
}

/* Packed projections: two sequences of four, four query heads on two kv heads of four. */
#define HEADS                                                                      \
    {                                                                              \
        .batch = 2, .sequence_length = 4, .heads = 4, .kv_heads = 2, .head_dim = 4 \
    }
enum { TOKENS = 8, HEAD_DIM = 4, NORMED = 6, PROJECTION = 8 * HEAD_DIM, RESULT = 4 * HEAD_DIM };
static const HsHeads heads = HEADS;

typedef struct HeadNorm {
    bool whole, unweighted;
    double x[TOKENS * PROJECTION], q_weight[RESULT], k_weight[RESULT], r[TOKENS * PROJECTION];
    double y[TOKENS * PROJECTION], rstd[TOKENS * NORMED];
} HeadNorm;

/* Whole: 4 heads of queries, 2 of keys. */
static HsTensor head_weight(const HeadNorm *n, double *data, int64_t count)
{
    return n->unweighted ? (HsTensor){ 0 } : vector(data, n->whole ? count * HEAD_DIM : HEAD_DIM);
}

static double head_norm_loss(void *user)
{
    HeadNorm *n = user;
    HsContext context = reference();
    RUN(hs_op_head_norm_forward(&context, &(HsHeadNormArgs){ .heads = heads,
                                                             .whole = n->whole,
                                                             .epsilon = 1e-3f,
                                                             .x = matrix(n->x, TOKENS, PROJECTION),
                                                             .q_weight = head_weight(n, n->q_weight, 4),
                                                             .k_weight = head_weight(n, n->k_weight, 2),
                                                             .y = matrix(n->y, TOKENS, PROJECTION),
                                                             .rstd = matrix(n->rstd, TOKENS, n->whole ? 2 : NORMED) }));
    return dot(n->y, n->r, COUNT(n->y));
}

static void check_head_norm(bool whole, bool unweighted)
{
    HeadNorm n = { .whole = whole, .unweighted = unweighted };
    double dx[TOKENS * PROJECTION], dq[RESULT] = { 0 }, dk[RESULT] = { 0 };
    fill(n.x, COUNT(n.x), 0), fill(n.q_weight, RESULT, 1), fill(n.k_weight, RESULT, 2), fill(n.r, COUNT(n.r), 3);
    head_norm_loss(&n);
    HsContext context = reference();
    const HsTensor dq_weight = head_weight(&n, dq, 4), dk_weight = head_weight(&n, dk, 2);
    RUN(hs_op_head_norm_backward(&context,
                                 &(HsHeadNormBackwardArgs){ .heads = heads,
                                                            .whole = whole,
                                                            .dy = matrix(n.r, TOKENS, PROJECTION),
                                                            .x = matrix(n.x, TOKENS, PROJECTION),
                                                            .q_weight = head_weight(&n, n.q_weight, 4),
                                                            .k_weight = head_weight(&n, n.k_weight, 2),
                                                            .rstd = matrix(n.rstd, TOKENS, whole ? 2 : NORMED),
                                                            .dx = matrix(dx, TOKENS, PROJECTION),
                                                            .dq_weight = dq_weight,
                                                            .dk_weight = dk_weight }));
    check("x", head_norm_loss, &n, n.x, dx, COUNT(dx));
    if (unweighted)
        return;
    check("q_weight", head_norm_loss, &n, n.q_weight, dq, hs_tensor_count(&dq_weight));
    check("k_weight", head_norm_loss, &n, n.k_weight, dk, hs_tensor_count(&dk_weight));
}

Test(gradients, head_norm)
{
    check_head_norm(false, false);
    check_head_norm(false, true);
}

Test(gradients, head_norm_of_all_heads_at_once)
{
    check_head_norm(true, false);
    check_head_norm(true, true);
}

typedef struct Rope {
    double x[TOKENS * PROJECTION], r[TOKENS * PROJECTION], y[TOKENS * PROJECTION];
} Rope;

static double rope_loss(void *user)
{
    Rope *p = user;
    HsContext context = reference();
    RUN(hs_op_rope(&context, &(HsRopeArgs){ .heads = heads,
                                            .rule.theta = 100.0,
                                            .position_start = 2,
                                            .x = matrix(p->x, TOKENS, PROJECTION),
                                            .y = matrix(p->y, TOKENS, PROJECTION) }));
    return dot(p->y, p->r, COUNT(p->y));
}

Test(gradients, rope)
{
    static Rope p;
    static double dx[TOKENS * PROJECTION];
    fill(p.x, COUNT(p.x), 0), fill(p.r, COUNT(p.r), 1);
    HsContext context = reference();
    RUN(hs_op_rope(&context, &(HsRopeArgs){ .heads = heads,
                                            .rule.theta = 100.0,
                                            .position_start = 2,
                                            .inverse = true,
                                            .x = matrix(p.r, TOKENS, PROJECTION),
                                            .y = matrix(dx, TOKENS, PROJECTION) }));
    check("x", rope_loss, &p, p.x, dx, COUNT(dx));
}

typedef struct Attention {
    HsScoreRule rule;
    float dropout;
    bool sinks;
    double qkv[TOKENS * PROJECTION], r[TOKENS * RESULT], out[TOKENS * RESULT], lse[TOKENS * 4], sink[4];
} Attention;

static HsTensor sinks_of(Attention *a)
{
    return a->sinks ? hs_tensor_1d(a->sink, HS_F64, 4) : (HsTensor){ 0 };
}

static const HsRng mask_rng = { .seed = 4, .step = 9, .site = 2, .row_offset = 8 };

static double attention_loss(void *user)
{
    Attention *a = user;
    HsContext context = reference();
    RUN(hs_op_attention_forward(&context, &(HsAttentionArgs){ .heads = heads,
                                                              .rule = a->rule,
                                                              .dropout = a->dropout,
                                                              .rng = mask_rng,
                                                              .qkv = matrix(a->qkv, TOKENS, PROJECTION),
                                                              .sinks = sinks_of(a),
                                                              .out = matrix(a->out, TOKENS, RESULT),
                                                              .lse = matrix(a->lse, TOKENS, 4) }));
    return dot(a->out, a->r, COUNT(a->out));
}

static void check_sinks(Attention *a)
{
    static double dsinks[4];
    HsContext context = reference();
    memset(dsinks, 0, sizeof dsinks);
    RUN(hs_op_sink_backward(&context, &(HsSinkBackwardArgs){ .heads = heads,
                                                             .dout = matrix(a->r, TOKENS, RESULT),
                                                             .out = matrix(a->out, TOKENS, RESULT),
                                                             .lse = matrix(a->lse, TOKENS, 4),
                                                             .sinks = sinks_of(a),
                                                             .dsinks = hs_tensor_1d(dsinks, HS_F64, 4) }));
    check("sinks", attention_loss, a, a->sink, dsinks, COUNT(dsinks));
}

static void check_attention_with(HsScoreRule rule, float dropout, bool sinks)
{
    static Attention a;
    static double dqkv[TOKENS * PROJECTION];
    a.rule = rule;
    a.dropout = dropout;
    a.sinks = sinks;
    fill(a.qkv, COUNT(a.qkv), 0), fill(a.r, COUNT(a.r), 1), fill(a.sink, COUNT(a.sink), 2);
    attention_loss(&a);
    HsContext context = reference();
    RUN(hs_op_attention_backward(&context, &(HsAttentionBackwardArgs){ .heads = heads,
                                                                       .rule = rule,
                                                                       .dropout = dropout,
                                                                       .rng = mask_rng,
                                                                       .dout = matrix(a.r, TOKENS, RESULT),
                                                                       .qkv = matrix(a.qkv, TOKENS, PROJECTION),
                                                                       .out = matrix(a.out, TOKENS, RESULT),
                                                                       .lse = matrix(a.lse, TOKENS, 4),
                                                                       .dqkv = matrix(dqkv, TOKENS, PROJECTION) }));
    check("qkv", attention_loss, &a, a.qkv, dqkv, COUNT(dqkv));
    if (!sinks)
        return;
    attention_loss(&a); /* out and lse of unchanged operands */
    check_sinks(&a);
}

static void check_attention(HsScoreRule rule, float dropout)
{
    check_attention_with(rule, dropout, false);
}

Test(gradients, attention_with_sinks)
{
    check_attention_with((HsScoreRule){ .scale = 0.5f }, 0.0f, true);
    check_attention_with((HsScoreRule){ .scale = 2.0f, .cap = 1.5f, .window = 3 }, 0.3f, true);
}

Test(gradients, attention_with_a_window_and_capped_scores)
{
    check_attention((HsScoreRule){ .scale = 0.5f, .window = 2 }, 0.0f);
    check_attention((HsScoreRule){ .scale = 0.5f, .cap = 0.3f }, 0.0f);
    check_attention((HsScoreRule){ .scale = 2.0f, .cap = 1.5f, .window = 3 }, 0.3f);
}

Test(gradients, attention_with_grouped_queries)
{
    check_attention((HsScoreRule){ .scale = 0.5f }, 0.0f);
}

Test(gradients, attention_with_dropout)
{
    check_attention((HsScoreRule){ .scale = 0.5f }, 0.3f);
}
