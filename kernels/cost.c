/* SPDX-License-Identifier: MIT
 *
 * hs_cost_<name> for every row of HS_OPS: the flops that hs_flops_table counts, and the bytes of bytes_of_<name>.  A
 * new row does not compile without its bytes.
 */
#include "kernels/cost.h"

#include "kernels/checks.h"

/* --- floating-point operations of what is worth counting: products and attention --- */

static double flops_of_matmul(const HsMatmulArgs *args)
{
    const int64_t k = args->a.shape[args->transpose_a ? 0 : 1];
    return 2.0 * (double)args->a.shape[args->transpose_a ? 1 : 0] * (double)args->b.shape[args->transpose_b ? 0 : 1] *
           (double)k;
}

/* Two products of T x T x D per head, half of each masked away: 2 * 2 N T H D / 2. */
static double flops_of_causal_heads(const HsHeads *heads)
{
    return 2.0 * (double)hs_heads_rows(heads) * (double)heads->sequence_length *
           (double)(heads->heads * heads->head_dim);
}

static double flops_of_attention_forward(const HsAttentionArgs *args)
{
    return flops_of_causal_heads(&args->heads);
}

/* Five products where forward has two: scores again, dv, dp, dq, dk. */
static double flops_of_attention_backward(const HsAttentionBackwardArgs *args)
{
    return 2.5 * flops_of_causal_heads(&args->heads);
}

/* Each new row attends to all rows before it and to itself. */
static double flops_of_attention_cached(const HsAttentionCachedArgs *args)
{
    const double rows = (double)args->heads.sequence_length;
    const double keys = rows * (double)args->position_start + rows * (rows + 1.0) / 2.0;
    return 4.0 * (double)args->heads.batch * keys * (double)(args->heads.heads * args->heads.head_dim);
}

const HsFlopsTable hs_flops_table = {
    .matmul = flops_of_matmul,
    .attention_forward = flops_of_attention_forward,
    .attention_backward = flops_of_attention_backward,
    .attention_cached = flops_of_attention_cached,
};

/* --- bytes --- */

/* Read once, or written once; an absent tensor is none. */
static double once(const HsTensor *tensor)
{
    return hs_tensor_present(tensor) ? (double)hs_tensor_bytes(tensor) : 0.0;
}

static double twice(const HsTensor *tensor)
{
    return 2.0 * once(tensor);
}

static double once_each(const HsTensor *tensors, int count)
{
    double bytes = 0.0;
    for (int i = 0; i < count; i++)
        bytes += once(&tensors[i]);
    return bytes;
}

/* pre is one of the results of a product that an activation follows, and an operand where it is gone back through. */
static double bytes_of_matmul(const HsMatmulArgs *args)
{
    return once(&args->a) + once(&args->b) + once(&args->bias) + once(&args->residual) + once(&args->pre) +
           (args->accumulate ? twice(&args->c) : once(&args->c));
}

static double bytes_of_pack_weight(const HsPackWeightArgs *args)
{
    return twice(&args->w); /* the weight, and its packed copy */
}

static double bytes_of_bias_backward(const HsBiasBackwardArgs *args)
{
    return once(&args->dy) + twice(&args->dbias);
}

static double bytes_of_rows(const HsTensor *table, int64_t rows)
{
    return hs_tensor_present(table) ? (double)rows * (double)table->shape[1] * (double)hs_dtype_bytes(table->dtype) : 0;
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static double bytes_of_embedding_forward(const HsEmbeddingArgs *args)
{
    const int64_t named = smaller(args->tokens.shape[0], args->token_table.shape[0]);
    return once(&args->tokens) + bytes_of_rows(&args->token_table, named) +
           bytes_of_rows(&args->position_table, args->sequence_length) + once(&args->y);
}

static double bytes_of_embedding_backward(const HsEmbeddingBackwardArgs *args)
{
    const int64_t named = smaller(args->tokens.shape[0], args->dtoken_table.shape[0]);
    return once(&args->tokens) + once(&args->dy) + 2.0 * bytes_of_rows(&args->dtoken_table, named) +
           2.0 * bytes_of_rows(&args->dposition_table, args->sequence_length);
}

static double bytes_of_norm_forward(const HsNormArgs *args)
{
    return once(&args->x) + once(&args->weight) + once(&args->bias) + once(&args->y) + once(&args->mean) +
           once(&args->rstd);
}

static double bytes_of_norm_backward(const HsNormBackwardArgs *args)
{
    return once(&args->dy) + once(&args->x) + once(&args->weight) + once(&args->mean) + once(&args->rstd) +
           (args->accumulate ? twice(&args->dx) : once(&args->dx)) + twice(&args->dweight) + twice(&args->dbias);
}

static double bytes_of_head_norm_forward(const HsHeadNormArgs *args)
{
    return once(&args->x) + once(&args->q_weight) + once(&args->k_weight) + once(&args->y) + once(&args->rstd);
}

static double bytes_of_head_norm_backward(const HsHeadNormBackwardArgs *args)
{
    return once(&args->dy) + once(&args->x) + once(&args->q_weight) + once(&args->k_weight) + once(&args->rstd) +
           once(&args->dx) + twice(&args->dq_weight) + twice(&args->dk_weight);
}

/* In place the value heads stay where they are. */
static double bytes_of_rope(const HsRopeArgs *args)
{
    const HsHeads *heads = &args->heads;
    const double turned = (double)(heads->heads + heads->kv_heads), all = turned + (double)heads->kv_heads;
    const double share = args->x.data && args->x.data == args->y.data ? turned / all : 1.0;
    return share * (once(&args->x) + once(&args->y));
}

static double bytes_of_attention_forward(const HsAttentionArgs *args)
{
    return once(&args->qkv) + once(&args->out) + once(&args->lse);
}

static double bytes_of_attention_backward(const HsAttentionBackwardArgs *args)
{
    return once(&args->dout) + once(&args->qkv) + once(&args->out) + once(&args->lse) + once(&args->dqkv);
}

/* Earlier rows of both caches are read; new ones come from qkv and are written. */
static double bytes_of_attention_cached(const HsAttentionCachedArgs *args)
{
    const HsHeads *heads = &args->heads;
    const double rows = (double)heads->batch * (double)(args->position_start + heads->sequence_length);
    const double row_bytes = (double)(heads->kv_heads * heads->head_dim) * (double)hs_dtype_bytes(args->k_cache.dtype);
    return 2.0 * rows * row_bytes + once(&args->qkv) + once(&args->out);
}

static double bytes_of_unary(const HsUnaryArgs *args)
{
    return once(&args->x) + once(&args->y);
}

static double bytes_of_unary_backward(const HsUnaryBackwardArgs *args)
{
    return once(&args->dy) + once(&args->x) + once(&args->dx);
}

#define bytes_of_gelu_forward    bytes_of_unary
#define bytes_of_gelu_backward   bytes_of_unary_backward
#define bytes_of_swiglu_forward  bytes_of_unary
#define bytes_of_swiglu_backward bytes_of_unary_backward

static double bytes_of_dropout_forward(const HsDropoutArgs *args)
{
    return once(&args->x) + once(&args->residual) + once(&args->y);
}

static double bytes_of_dropout_backward(const HsDropoutArgs *args)
{
    return once(&args->x) + once(&args->y);
}

static double bytes_of_cross_entropy(const HsCrossEntropyArgs *args)
{
    return once(&args->logits) + once(&args->targets) + once(&args->losses) + once(&args->dlogits) +
           (double)sizeof *args->gradient_scale;
}

static double bytes_of_grad_stats(const HsGradStatsArgs *args)
{
    return once_each(args->tensors, args->count) +
           (double)args->count * (double)(sizeof *args->sum_squares + sizeof *args->nonfinite);
}

static double bytes_of_protection(const HsProtection *protection)
{
    return once(&protection->importance) + once(&protection->anchor) + twice(&protection->path);
}

/* p is the master where there is one; then the weight is written only. */
static double bytes_of_parameter(const HsTensor *master, const HsTensor *weight)
{
    return hs_tensor_present(master) ? twice(master) + once(weight) : twice(weight);
}

/* The parameter stays in a cache between the rule and what follows it. */
static double bytes_of_tail(const HsTensor *weight, const HsUpdateTail *tail)
{
    double bytes = 0.0;
    for (int i = 0; i < tail->back_count; i++)
        bytes += once(&tail->back[i].anchor);
    for (int i = 0; i < tail->snapshot_count; i++)
        bytes += once(&tail->snapshots[i]);
    if (tail->packed_transposed && tail->packed_transposed->data)
        bytes += once(weight);
    if (tail->packed && tail->packed->data)
        bytes += once(weight);
    return bytes;
}

/* The gradient is read, and set to zero. */
static double bytes_of_adamw(const HsAdamWArgs *args)
{
    return twice(&args->grad) + twice(&args->m) + twice(&args->v) + bytes_of_parameter(&args->master, &args->weight) +
           bytes_of_protection(&args->protection) + bytes_of_tail(&args->weight, &args->tail) +
           (double)sizeof *args->scalars;
}

static double bytes_of_sgd(const HsSgdArgs *args)
{
    return twice(&args->grad) + twice(&args->buffer) + bytes_of_parameter(&args->master, &args->weight) +
           bytes_of_protection(&args->protection) + bytes_of_tail(&args->weight, &args->tail) +
           (double)sizeof *args->scalars;
}

static double bytes_of_convert(const HsConvertArgs *args)
{
    return once(&args->x) + once(&args->y);
}

static double bytes_of_add(const HsAddArgs *args)
{
    return once(&args->x) + twice(&args->y);
}

static double bytes_of_combine(const HsCombineArgs *args)
{
    return once(&args->x) + (args->beta == 0.0F ? once(&args->y) : twice(&args->y));
}

static double bytes_of_dot(const HsDotArgs *args)
{
    return once_each(args->x, args->count) + once_each(args->y, args->count) +
           (double)args->count * (double)sizeof *args->values;
}

static double bytes_of_sample_labels(const HsSampleLabelsArgs *args)
{
    return once(&args->logits) + twice(&args->targets);
}

static double bytes_of_square_accumulate(const HsSquareAccumulateArgs *args)
{
    return twice(&args->grad) + twice(&args->accumulator);
}

/* fresh is set to zero where it is memory of its own: else anchor alone is what is written there. */
static double bytes_of_consolidate(const HsConsolidateArgs *args)
{
    const bool shared = args->fresh.data && args->fresh.data == args->anchor.data;
    const double anchor = args->merge ? twice(&args->anchor) : once(&args->anchor);
    const double offset = args->merge ? 2.0 * (double)sizeof *args->offset : 0.0;
    return (shared ? once(&args->fresh) : twice(&args->fresh)) + twice(&args->importance) + anchor +
           once(&args->parameter) + offset;
}

static double bytes_of_consolidate_path(const HsConsolidatePathArgs *args)
{
    return twice(&args->path) + twice(&args->importance) + twice(&args->anchor) + once(&args->parameter);
}

static double bytes_of_importance_stats(const HsImportanceStatsArgs *args)
{
    return once_each(args->tensors, args->count) + 3.0 * (double)args->count * (double)sizeof *args->sum;
}

/* A tensor without an anchor costs nothing but its zero. */
static double bytes_of_penalty(const HsPenaltyArgs *args)
{
    double bytes = (double)args->count * (double)sizeof *args->values;
    for (int i = 0; i < args->count; i++)
        if (hs_tensor_present(&args->anchor[i]))
            bytes += once(&args->importance[i]) + once(&args->anchor[i]) + once(&args->parameter[i]);
    return bytes;
}

static double bytes_of_interpolate(const HsInterpolateArgs *args)
{
    return once(&args->anchor) + bytes_of_parameter(&args->master, &args->weight);
}

static double bytes_of_begin_step(const HsBeginStepArgs *args)
{
    return (double)(sizeof *args->input + sizeof *args->state + 2 * sizeof *args->gradient_scales);
}

static double bytes_of_prepare_step(const HsPrepareStepArgs *args)
{
    return (double)args->count * (double)(sizeof *args->sum_squares + sizeof *args->nonfinite) +
           (double)(sizeof *args->input + 2 * sizeof *args->state + sizeof *args->scalars + sizeof *args->outcome);
}

/* --- the format of the products --- */

static void describe_matmul(const HsMatmulArgs *args, HsOpCost *cost)
{
    static const char *const transposes[2][2] = { { "nn", "nt" }, { "tn", "tt" } };
    cost->dtype = args->a.dtype;
    cost->tf32 = args->tf32 && args->a.dtype == HS_F32;
    cost->transposes = transposes[args->transpose_a][args->transpose_b];
}

static void describe_attention_forward(const HsAttentionArgs *args, HsOpCost *cost)
{
    cost->dtype = args->qkv.dtype;
}

static void describe_attention_backward(const HsAttentionBackwardArgs *args, HsOpCost *cost)
{
    cost->dtype = args->qkv.dtype;
}

static void describe_attention_cached(const HsAttentionCachedArgs *args, HsOpCost *cost)
{
    cost->dtype = args->qkv.dtype;
}

#define DESCRIBE_MEMBER(name, Args, formula) void (*name)(const Args *args, HsOpCost *cost);
static const struct {
    HS_OPS(DESCRIBE_MEMBER)
} describe = {
    .matmul = describe_matmul,
    .attention_forward = describe_attention_forward,
    .attention_backward = describe_attention_backward,
    .attention_cached = describe_attention_cached,
};

#define COST(op, Args, formula)                                            \
    HsOpCost hs_cost_##op(const Args *args)                                \
    {                                                                      \
        HsOpCost cost = { .bytes = bytes_of_##op(args), .dtype = HS_F32 }; \
        cost.flops = hs_flops_table.op ? hs_flops_table.op(args) : 0.0;    \
        if (describe.op)                                                   \
            describe.op(args, &cost);                                      \
        return cost;                                                       \
    }
HS_OPS(COST)
