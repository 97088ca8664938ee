/* SPDX-License-Identifier: MIT
 *
 * The head and its loss, a few rows at a time: logits [N,V] never exist whole.
 *   inputs {hidden [N,C], targets [N] i32}   outputs {losses [N]}   params {w [V,C]}
 *
 * For each chunk of rows, of those that have a target where that leaves some out (head_rows.c):
 *     logits = f hidden w^T      losses = lse - logits[target]
 *   and in training at once
 *     dlogits = gs ((1 + 2 z lse) softmax - onehot)        dhidden = f dlogits w      dw += f dlogits^T hidden
 * f is logit_factor; where there is a logit_cap, what reads logits reads them capped (kernels/ops/ops.h).
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
#include "runtime/model/layers/head_rows.h"

/* Apart from every node's own site, which are small numbers. */
enum { SITE_LABELS = 0x4c41424c };

static int64_t chunk_rows(const HsNode *node, int64_t rows)
{
    return node->attributes.head_chunk < rows ? node->attributes.head_chunk : rows;
}

static void head_loss_scratch(const HsNode *node, const HsTensor *outputs, bool backward,
                              HsTensor scratch[HS_NODE_SCRATCH])
{
    const HsAttributes *attributes = &node->attributes;
    const int64_t rows = chunk_rows(node, outputs[0].shape[0]);
    const HsDtype logit = backward ? attributes->trained_logit : attributes->logit;
    scratch[HS_HEAD_LOGITS] = hs_tensor_2d(NULL, logit, rows, attributes->vocabulary);
    if (backward && (attributes->logit_gradient != logit || attributes->own_logit_gradient))
        scratch[HS_HEAD_DLOGITS] = hs_tensor_2d(NULL, attributes->logit_gradient, rows, attributes->vocabulary);
    if (backward && attributes->teacher_logits)
        scratch[HS_HEAD_TEACHER] = hs_tensor_2d(NULL, attributes->logit, rows, attributes->vocabulary);
    if (!attributes->leaves_out)
        return;
    scratch[HS_HEAD_HIDDEN] = hs_tensor_2d(NULL, attributes->operand, rows, attributes->inputs);
    scratch[HS_HEAD_TARGETS] = hs_tensor_1d(NULL, HS_I32, rows);
    scratch[HS_HEAD_LOSSES] = hs_tensor_1d(NULL, outputs[0].dtype, rows);
    if (backward)
        hs_head_distill_scratch(node, outputs[0].dtype, rows, scratch);
}

/* Both gradients of one chunk's product, that of hidden last: it may take hidden's memory. */
static HsStatus chunk_backward(const HsLayerCall *call, const HsNode *node, const HsHeadChunk *chunk)
{
    const float factor = node->attributes.logit_factor;
    const HsParam *weight = call->params[0];
    HsMatmulArgs weight_gradient = {
        .a.values = chunk->dlogits,
        .b.values = chunk->hidden,
        .transpose_a = true,
        .accumulate = true,
        .policy = call->precision->wgrad,
        .alpha = factor,
        .c = weight->gradient,
    };
    if (hs_tensor_present(&weight->gradient))
        HS_TRY(hs_op_matmul(call->context, &weight_gradient));
    HsMatmulArgs data_gradient = {
        .a.values = chunk->dlogits,
        .b = hs_param_operand(weight, true),
        .accumulate = call->accumulate[0],
        .policy = call->precision->dgrad,
        .alpha = factor,
        .c = chunk->dhidden,
    };
    if (hs_tensor_present(&chunk->dhidden))
        HS_TRY(hs_op_matmul(call->context, &data_gradient));
    if (!call->factors[0])
        return HS_OK;
    const HsFactorPair *pair = &call->factors[0]->use[HS_FACTOR_PRODUCT];
    HS_TRY(hs_layer_add_moment(call, &pair->right, 1.0f, chunk->hidden));
    return hs_layer_add_moment(call, &pair->left, factor, chunk->dlogits); /* the last that reads them */
}

/* Draws are numbered by row, so they do not depend on where chunks begin, nor on rows that were left out. */
static HsStatus draw_targets(const HsLayerCall *call, const HsNode *node, const HsHeadChunk *chunk)
{
    HsSampleLabelsArgs args = { .rng = call->rng,
                                .logits = chunk->logits,
                                .cap = node->attributes.logit_cap,
                                .targets = chunk->targets,
                                .rows = chunk->list };
    args.rng.site = SITE_LABELS;
    if (!hs_tensor_present(&chunk->list))
        args.rng.row_offset += chunk->first;
    return hs_op_sample_labels(call->context, &args);
}

static HsStatus run_chunk(const HsLayerCall *call, const HsNode *node, bool backward, const HsHeadChunk *chunk)
{
    HS_TRY(hs_layer_head_logits(call->context, call->precision, call->params[0], node->attributes.logit_factor,
                                chunk->hidden, chunk->logits));
    if (call->sample_labels)
        HS_TRY(draw_targets(call, node, chunk));
    HsCrossEntropyArgs loss = {
        .logits = chunk->logits,
        .cap = node->attributes.logit_cap,
        .targets = chunk->targets,
        .z_loss = hs_call_z_loss(call, node),
        .gradient_scale = call->gradient_scale,
        .losses = chunk->losses,
        .dlogits = chunk->dlogits,
    };
    HS_TRY(hs_op_cross_entropy(call->context, &loss));
    if (backward && call->head_work)
        HS_TRY(hs_head_distill(call, node, chunk));
    if (call->predict > 0) /* a cap leaves the likeliest one the likeliest */
        HS_TRY(
            hs_op_argmax(call->context,
                         &(HsArgmaxArgs){ .logits = chunk->logits, .count = call->predict, .index = chunk->targets }));
    return backward ? chunk_backward(call, node, chunk) : HS_OK;
}

/* Its logits; the rest is the caller's. */
static HsHeadChunk make_chunk(const HsLayerCall *call, bool backward, int64_t first, int64_t size)
{
    HsHeadChunk chunk = { .logits = hs_tensor_rows(call->scratch[HS_HEAD_LOGITS], 0, size),
                          .first = first,
                          .size = size };
    if (backward)
        chunk.dlogits = hs_tensor_present(&call->scratch[HS_HEAD_DLOGITS])
                            ? hs_tensor_rows(call->scratch[HS_HEAD_DLOGITS], 0, size)
                            : chunk.logits;
    return chunk;
}

static bool wants_dhidden(const HsLayerCall *call, bool backward)
{
    return backward && hs_tensor_present(&call->d_inputs[0]);
}

static HsStatus run_rows_in_place(const HsLayerCall *call, const HsNode *node, bool backward, int64_t first,
                                  int64_t size)
{
    HsHeadChunk chunk = make_chunk(call, backward, first, size);
    chunk.hidden = hs_tensor_rows(call->inputs[0], first, size);
    chunk.targets = hs_tensor_rows(call->inputs[1], first, size);
    chunk.losses = hs_tensor_rows(call->outputs[0], first, size);
    if (wants_dhidden(call, backward))
        chunk.dhidden = hs_tensor_rows(call->d_inputs[0], first, size);
    return run_chunk(call, node, backward, &chunk);
}

/* A last chunk may have any of a few numbers of rows, and an operation's scratch need not grow with them. */
static HsStatus plan_sizes(const HsLayerCall *call, const HsNode *node, bool backward, int64_t most)
{
    HsContext context = *call->context;
    HsLayerCall each = *call;
    each.context = &context;
    context.rare = true;
    for (int64_t size = hs_head_rows_step(most); size < most; size += hs_head_rows_step(most))
        HS_TRY(run_rows_in_place(&each, node, backward, 0, size));
    call->context->workspace_needed = context.workspace_needed;
    return HS_OK;
}

/* In a dry run, whole chunks differ in nothing that counts: one stands for all, however many a program has. */
static HsStatus run_all_rows(const HsLayerCall *call, const HsNode *node, bool backward)
{
    HsContext *context = call->context;
    const int64_t total = call->inputs[0].shape[0], chunk = chunk_rows(node, total);
    const int64_t whole = total / chunk, rest = total % chunk;
    const double flops_before = context->flops;
    for (int64_t i = 0; i < (context->dry_run ? 1 : whole); i++)
        HS_TRY(run_rows_in_place(call, node, backward, i * chunk, chunk));
    if (context->dry_run)
        context->flops = flops_before + (double)whole * (context->flops - flops_before);
    if (context->dry_run && node->attributes.leaves_out)
        HS_TRY(plan_sizes(call, node, backward, chunk));
    return rest > 0 ? run_rows_in_place(call, node, backward, whole * chunk, rest) : HS_OK;
}

static HsStatus run_gathered_chunk(const HsLayerCall *call, const HsNode *node, bool backward, int64_t first,
                                   int64_t size)
{
    const int64_t total = call->inputs[0].shape[0];
    const HsTensor list = hs_tensor_1d((void *)(uintptr_t)call->target_rows.list, HS_I32, total);
    HsHeadChunk chunk = make_chunk(call, backward, first, size);
    chunk.list = hs_tensor_rows(list, first, size);
    chunk.hidden = hs_tensor_rows(call->scratch[HS_HEAD_HIDDEN], 0, size);
    chunk.hidden.amax = call->inputs[0].amax; /* of all rows, as where none is left out */
    chunk.targets = hs_tensor_rows(call->scratch[HS_HEAD_TARGETS], 0, size);
    chunk.losses = hs_tensor_rows(call->scratch[HS_HEAD_LOSSES], 0, size);
    if (wants_dhidden(call, backward))
        chunk.dhidden = hs_tensor_rows(call->scratch[HS_HEAD_HIDDEN], 0, size);
    HS_TRY(hs_head_rows_gather(call, chunk.list, call->inputs[0], chunk.hidden));
    HS_TRY(hs_head_rows_gather(call, chunk.list, call->inputs[1], chunk.targets));
    HS_TRY(run_chunk(call, node, backward, &chunk));
    HS_TRY(hs_head_rows_scatter(call, chunk.list, chunk.losses, call->outputs[0]));
    return wants_dhidden(call, backward) ? hs_head_rows_scatter(call, chunk.list, chunk.dhidden, call->d_inputs[0])
                                         : HS_OK;
}

/* Rows without a target have no loss, no gradient and nothing that is kept of them. */
static HsStatus run_gathered_rows(const HsLayerCall *call, const HsNode *node, bool backward)
{
    const int64_t total = call->inputs[0].shape[0], most = chunk_rows(node, total);
    HS_TRY(hs_head_rows_clear(call, call->outputs[0]));
    if (wants_dhidden(call, backward))
        HS_TRY(hs_head_rows_clear(call, call->d_inputs[0]));
    if (backward && call->head_work)
        HS_TRY(hs_head_distill_nothing(call));
    for (int64_t first = 0; first < call->target_rows.count; first += most) {
        const int64_t left = call->target_rows.count - first, room = total - first;
        const int64_t size = hs_head_rows_padded(most, left < most ? left : most, most < room ? most : room);
        HS_TRY(run_gathered_chunk(call, node, backward, first, size));
    }
    return HS_OK;
}

static HsStatus run_chunks(const HsLayerCall *call, const HsNode *node, bool backward)
{
    return hs_head_leaves_out(call, node) ? run_gathered_rows(call, node, backward)
                                          : run_all_rows(call, node, backward);
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
