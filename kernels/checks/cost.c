/* SPDX-License-Identifier: MIT
 *
 * hs_cost_<name> for every row of HS_OPS: the flops that hs_flops_table counts, and the bytes of the operation's operands
 * (kernels/ops/operands.h) and of what else it moves.
 */
#include "kernels/ops/cost.h"

#include "kernels/checks/checks.h"
#include "kernels/ops/operands.h"

/* --- floating-point operations of what is worth counting: products and attention --- */

static double flops_of_matmul(const HsMatmulArgs *args)
{
    const int64_t k = args->a.values.shape[args->transpose_a ? 0 : 1];
    return 2.0 * (double)args->a.values.shape[args->transpose_a ? 1 : 0] *
           (double)args->b.values.shape[args->transpose_b ? 0 : 1] * (double)k;
}

/* Two products of T x T x D per head, half of each masked away: 2 * 2 N T H D / 2; with a window of W, T W - W^2 / 2 of
 * the T^2.  So it is with several documents in a sequence too: where they begin is known on the device alone. */
static double flops_of_causal_heads(const HsHeads *heads, const HsScoreRule *rule)
{
    const double length = (double)heads->sequence_length;
    const double window = rule->window > 0 && (double)rule->window < length ? (double)rule->window : length;
    return 4.0 * (double)hs_heads_rows(heads) * (window - window * window / (2.0 * length)) *
           (double)(heads->heads * heads->head_dim);
}

static double flops_of_attention_forward(const HsAttentionArgs *args)
{
    return flops_of_causal_heads(&args->heads, &args->rule);
}

/* Five products where forward has two: scores again, dv, dp, dq, dk. */
static double flops_of_attention_backward(const HsAttentionBackwardArgs *args)
{
    return 2.5 * flops_of_causal_heads(&args->heads, &args->rule);
}

/* Each new row attends to all rows before it, or those in its window, and to itself. */
static double flops_of_attention_cached(const HsAttentionCachedArgs *args)
{
    double keys = 0.0;
    for (int64_t t = args->position_start; t < args->position_start + args->heads.sequence_length; t++)
        keys += (double)(t + 1 - hs_first_seen(&args->rule, 0, t));
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

/* What is no tensor, or not in the rows: scalars on the device, and all of the update rules. */

static double bytes_of_protection(const HsProtection *protection)
{
    return once(&protection->importance) + once(&protection->anchor) + once(&protection->pull) +
           twice(&protection->path);
}

/* p is the master where there is one; then the weight is written only. */
static double bytes_of_parameter(const HsTensor *master, const HsTensor *weight)
{
    return hs_tensor_present(master) ? twice(master) + once(weight) : twice(weight);
}

/* The parameter stays in a cache between the rule and what follows it. */
static double bytes_of_epilogue(const HsTensor *weight, const HsUpdateEpilogue *epilogue)
{
    double bytes = 0.0;
    for (int i = 0; i < epilogue->back_count; i++)
        bytes += once(&epilogue->back[i].anchor);
    for (int i = 0; i < epilogue->snapshot_count; i++)
        bytes += once(&epilogue->snapshots[i]);
    bytes += twice(&epilogue->average);
    if (epilogue->packed_transposed && epilogue->packed_transposed->data)
        bytes += once(weight);
    if (epilogue->packed && epilogue->packed->data)
        bytes += once(weight);
    return bytes;
}

/* The gradient is read, and set to zero. */
static double bytes_of_update(const HsUpdateArgs *update)
{
    return twice(&update->grad) + bytes_of_parameter(&update->master, &update->weight) +
           bytes_of_protection(&update->protection) + bytes_of_epilogue(&update->weight, &update->epilogue) +
           (double)sizeof *update->scalars;
}

static double more_of_adamw(const HsAdamWArgs *args)
{
    return bytes_of_update(&args->update) + twice(&args->m) + twice(&args->v);
}

static double more_of_adamw8bit(const HsAdamW8bitArgs *args)
{
    return bytes_of_update(&args->update) + twice(&args->m) + twice(&args->v) + twice(&args->m_absmax) +
           twice(&args->v_absmax);
}

static double more_of_sgd(const HsSgdArgs *args)
{
    return bytes_of_update(&args->update) + twice(&args->buffer);
}

/* The scalars are one record for all. */
static double more_of_update_list(const HsUpdateListArgs *args)
{
    const int count = args->adamw_count + args->adamw8bit_count + args->sgd_count;
    double bytes = count > 0 ? (1.0 - count) * (double)sizeof(HsStepScalars) : 0.0;
    for (int i = 0; i < args->adamw_count; i++)
        bytes += more_of_adamw(&args->adamw[i]);
    for (int i = 0; i < args->adamw8bit_count; i++)
        bytes += more_of_adamw8bit(&args->adamw8bit[i]);
    for (int i = 0; i < args->sgd_count; i++)
        bytes += more_of_sgd(&args->sgd[i]);
    return bytes;
}

/* Where a penalty acts on the gradient, the parameter is read. */
static double more_of_momentum(const HsMomentumArgs *args)
{
    const HsUpdateArgs *update = &args->update;
    const HsProtection *protection = &update->protection;
    double bytes = once(&update->grad) + twice(&args->m) + once(&args->direction) + once(&protection->pull) +
                   (double)sizeof *update->scalars;
    if (!protection->proximal && hs_tensor_present(&protection->anchor))
        bytes += once(&protection->anchor) + once(&protection->importance) +
                 once(hs_tensor_present(&update->master) ? &update->master : &update->weight);
    return bytes;
}

static double more_of_normalize(const HsNormalizeArgs *args)
{
    return (double)sizeof *args->sum_squares;
}

static double more_of_scale_neurons(const HsScaleNeuronsArgs *args)
{
    return (double)sizeof *args->scalars;
}

static double more_of_channel_factors(const HsChannelFactorsArgs *args)
{
    return (double)sizeof *args->scalars;
}

static double more_of_average(const HsAverageArgs *args)
{
    return (double)sizeof *args->rate;
}

static double more_of_descend(const HsDescendArgs *args)
{
    return bytes_of_update(&args->update) + once(&args->direction) + once(&args->factors);
}

static double more_of_cross_entropy(const HsCrossEntropyArgs *args)
{
    return (double)sizeof *args->gradient_scale;
}

static double more_of_match_logits(const HsMatchLogitsArgs *args)
{
    return (double)sizeof *args->gradient_scale;
}

static double more_of_distill(const HsDistillArgs *args)
{
    return (double)sizeof *args->gradient_scale;
}

static double more_of_grad_stats(const HsGradStatsArgs *args)
{
    return (double)args->count * (double)(sizeof *args->sum_squares + sizeof *args->nonfinite);
}

static double more_of_dot(const HsDotArgs *args)
{
    return (double)args->count * (double)sizeof *args->values;
}

static double more_of_consolidate(const HsConsolidateArgs *args)
{
    return args->merge ? 2.0 * (double)sizeof *args->offset : 0.0;
}

static double more_of_importance_stats(const HsImportanceStatsArgs *args)
{
    return 3.0 * (double)args->count * (double)sizeof *args->sum;
}

static double more_of_penalty(const HsPenaltyArgs *args)
{
    return (double)args->count * (double)sizeof *args->values;
}

/* Every scaling is read and set back, and written to the report. */
static double more_of_roll_scales(const HsRollScalesArgs *args)
{
    return (args->report ? 3.0 : 2.0) * (double)args->count * (double)sizeof *args->scalings;
}

static double more_of_begin_step(const HsBeginStepArgs *args)
{
    return (double)(sizeof *args->input + sizeof *args->state + HS_STEP_ROWS * sizeof *args->gradient_scales);
}

static double more_of_prepare_step(const HsPrepareStepArgs *args)
{
    return (double)args->count * (double)(sizeof *args->sum_squares + sizeof *args->nonfinite) +
           (double)(sizeof *args->input + 2 * sizeof *args->state + sizeof *args->scalars + sizeof *args->outcome);
}

/* A NULL member: the rows are all. */
#define MORE_MEMBER(name, Args, formula) double (*name)(const Args *args);
static const struct {
    HS_OPS(MORE_MEMBER)
} more = {
    .adamw = more_of_adamw,
    .adamw8bit = more_of_adamw8bit,
    .sgd = more_of_sgd,
    .update_list = more_of_update_list,
    .momentum = more_of_momentum,
    .normalize = more_of_normalize,
    .scale_neurons = more_of_scale_neurons,
    .channel_factors = more_of_channel_factors,
    .descend = more_of_descend,
    .average = more_of_average,
    .cross_entropy = more_of_cross_entropy,
    .match_logits = more_of_match_logits,
    .distill = more_of_distill,
    .grad_stats = more_of_grad_stats,
    .dot = more_of_dot,
    .consolidate = more_of_consolidate,
    .importance_stats = more_of_importance_stats,
    .penalty = more_of_penalty,
    .roll_scales = more_of_roll_scales,
    .begin_step = more_of_begin_step,
    .prepare_step = more_of_prepare_step,
};

/* Of the operation's rows (operands.h). */
static double bytes_of_operands(const HsOperandTable *table, const void *args)
{
    const int count = hs_operand_count(table, args);
    double bytes = 0.0;
    for (const HsOperandRow *given = table->rows; given->name; given++) {
        HsOperandRow row = *given;
        if (row.adapt)
            row.adapt(args, &row);
        for (int i = 0; i < count; i++) {
            const HsTensor *tensor = hs_operand_of(table, given, args, i);
            if (!hs_tensor_present(tensor))
                continue;
            bytes += row.bytes ? row.bytes(args, tensor) : row.use == HS_UPDATED ? twice(tensor) : once(tensor);
            bytes += row.use != HS_READ && tensor->amax ? 2.0 * sizeof *tensor->amax : 0.0;
        }
    }
    return bytes;
}

/* --- the format of the products --- */

static void describe_matmul(const HsMatmulArgs *args, HsOpCost *cost)
{
    static const char *const transposes[2][2] = { { "nn", "nt" }, { "tn", "tt" } };
    cost->dtype = args->a.values.dtype;
    cost->policy = args->policy;
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

#define COST(op, Args, formula)                                                                 \
    HsOpCost hs_cost_##op(const Args *args)                                                     \
    {                                                                                           \
        HsOpCost cost = { .bytes = bytes_of_operands(&hs_operands.op, args), .dtype = HS_F32 }; \
        cost.bytes += more.op ? more.op(args) : 0.0;                                            \
        cost.flops = hs_flops_table.op ? hs_flops_table.op(args) : 0.0;                         \
        if (describe.op)                                                                        \
            describe.op(args, &cost);                                                           \
        return cost;                                                                            \
    }
HS_OPS(COST)
