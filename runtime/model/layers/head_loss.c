/* SPDX-License-Identifier: MIT
 *
 * The head and its loss, a few rows at a time: logits [N,V] never exist whole.
 *   inputs {hidden [N,C], targets [N] i32}   outputs {losses [N]}   params {w [V,C]}
 *
 * For each chunk of rows:
 *     logits = hidden w^T        losses = lse - logits[target]
 *   and in training at once
 *     dlogits = gs ((1 + 2 z lse) softmax - onehot)        dhidden = dlogits w        dw += dlogits^T hidden
 * The loss is a sum over rows, so the chunks are independent, and the gradient needs nothing but the chunk's logits:
 * training does forward and backward in one call (`turns`).  With precision.logits: compute its logits are rounded to the
 * gradient's format, and 10 bytes that move for each of them (4 written, 4 read, 2 written) become 6; without a gradient
 * they are f32 always.  dlogits takes the logits' memory when the formats agree and nothing
 * else reads them (head_work.h).
 *
 * A probe may draw the targets from the model instead of reading them: label n ~ softmax(logits[n]), written over the
 * target.  This is the only place where logits exist.  The head runs once a pass under every recomputation policy, so
 * the label that makes the loss is the one that makes the gradient.
 *
 * An evaluation may ask for predictions: after the losses, the likeliest token of each row is written over its target,
 * which nothing reads any more.
 */
#include "runtime/model/layer.h"

/* Apart from every node's own site, which are small numbers. */
enum { SITE_LABELS = 0x4c41424c };

static int64_t chunk_rows(const HsNode *node, int64_t rows)
{
    return node->attributes.head_chunk < rows ? node->attributes.head_chunk : rows;
}

/* scratch {logits, dlogits where they cannot take the logits' memory, a teacher's logits}. */
static void head_loss_scratch(const HsNode *node, const HsTensor *outputs, bool backward,
                              HsTensor scratch[HS_NODE_SCRATCH])
{
    const HsAttributes *attributes = &node->attributes;
    const int64_t rows = chunk_rows(node, outputs[0].shape[0]);
    const HsDtype logit = backward ? attributes->trained_logit : attributes->logit;
    scratch[0] = hs_tensor_2d(NULL, logit, rows, attributes->vocabulary);
    if (backward && (attributes->logit_gradient != logit || attributes->own_logit_gradient))
        scratch[1] = hs_tensor_2d(NULL, attributes->logit_gradient, rows, attributes->vocabulary);
    if (backward && attributes->teacher_logits)
        scratch[2] = hs_tensor_2d(NULL, attributes->logit, rows, attributes->vocabulary);
}

/* Both gradients of one chunk's product. */
static HsStatus chunk_backward(const HsLayerCall *call, HsTensor hidden, HsTensor dlogits, HsTensor dhidden)
{
    const HsParam *weight = call->params[0];
    HsMatmulArgs data_gradient = {
        .a.values = dlogits,
        .b = hs_param_operand(weight, true),
        .accumulate = call->accumulate[0],
        .policy = call->precision->dgrad,
        .alpha = 1.0f,
        .c = dhidden,
    };
    if (hs_tensor_present(&dhidden))
        HS_TRY(hs_op_matmul(call->context, &data_gradient));
    HsMatmulArgs weight_gradient = {
        .a.values = dlogits,
        .b.values = hidden,
        .transpose_a = true,
        .accumulate = true,
        .policy = call->precision->wgrad,
        .alpha = 1.0f,
        .c = weight->gradient,
    };
    if (hs_tensor_present(&weight->gradient))
        HS_TRY(hs_op_matmul(call->context, &weight_gradient));
    if (!call->factors[0])
        return HS_OK;
    const HsFactorPair *pair = &call->factors[0]->use[HS_FACTOR_PRODUCT];
    HS_TRY(hs_layer_add_moment(call, &pair->right, hidden));
    return hs_layer_add_moment(call, &pair->left, dlogits); /* the last that reads them */
}

/* Draws are numbered by row, so they do not depend on where chunks begin. */
static HsStatus draw_targets(const HsLayerCall *call, HsTensor logits, HsTensor targets, int64_t first)
{
    HsSampleLabelsArgs args = { .rng = call->rng, .logits = logits, .targets = targets };
    args.rng.site = SITE_LABELS;
    args.rng.row_offset += first;
    return hs_op_sample_labels(call->context, &args);
}

static HsStatus run_chunk(const HsLayerCall *call, const HsNode *node, bool backward, int64_t first, int64_t count)
{
    HsTensor hidden = hs_tensor_rows(call->inputs[0], first, count);
    HsTensor logits = hs_tensor_rows(call->scratch[0], 0, count);
    HsTensor targets = hs_tensor_rows(call->inputs[1], first, count);
    HsTensor dlogits = { 0 }, dhidden = { 0 };
    if (backward && hs_tensor_present(&call->d_inputs[0]))
        dhidden = hs_tensor_rows(call->d_inputs[0], first, count);
    if (backward)
        dlogits = hs_tensor_present(&call->scratch[1]) ? hs_tensor_rows(call->scratch[1], 0, count) : logits;
    HS_TRY(hs_layer_head_logits(call->context, call->precision, call->params[0], hidden, logits));
    if (call->sample_labels)
        HS_TRY(draw_targets(call, logits, targets, first));
    HsCrossEntropyArgs loss = {
        .logits = logits,
        .targets = targets,
        .z_loss = hs_call_z_loss(call, node),
        .gradient_scale = call->gradient_scale,
        .losses = hs_tensor_rows(call->outputs[0], first, count),
        .dlogits = dlogits,
    };
    HS_TRY(hs_op_cross_entropy(call->context, &loss));
    if (backward && call->head_work)
        HS_TRY(hs_layer_head_distill(call, logits, targets, dlogits, first));
    if (call->predict > 0)
        HS_TRY(
            hs_op_argmax(call->context, &(HsArgmaxArgs){ .logits = logits, .count = call->predict, .index = targets }));
    return backward ? chunk_backward(call, hidden, dlogits, dhidden) : HS_OK;
}

/* In a dry run, whole chunks differ in nothing that counts: one stands for all, however many a program has. */
static HsStatus run_chunks(const HsLayerCall *call, const HsNode *node, bool backward)
{
    HsContext *context = call->context;
    const int64_t rows = call->inputs[0].shape[0], chunk = chunk_rows(node, rows), whole = rows / chunk;
    const double flops_before = context->flops;
    for (int64_t i = 0; i < (context->dry_run ? 1 : whole); i++)
        HS_TRY(run_chunk(call, node, backward, i * chunk, chunk));
    if (context->dry_run)
        context->flops = flops_before + (double)whole * (context->flops - flops_before);
    return rows % chunk > 0 ? run_chunk(call, node, backward, whole * chunk, rows % chunk) : HS_OK;
}

static HsStatus head_loss_forward(const HsLayerCall *call, const HsNode *node)
{
    return run_chunks(call, node, false);
}

static HsStatus head_loss_backward(const HsLayerCall *call, const HsNode *node)
{
    return run_chunks(call, node, true);
}

const HsLayer hs_layer_head_loss = {
    .name = "head_loss",
    .forward = head_loss_forward,
    .backward = head_loss_backward,
    .scratch = head_loss_scratch,
    .reads_inputs = 3u,
    .passes_gradient = HS_NONE,
    .accumulates = true,
    .turns = true,
};
