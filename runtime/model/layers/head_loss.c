/* SPDX-License-Identifier: MIT
 *
 * The head and its loss, a few rows at a time: logits [N,V] never exist whole.
 *   inputs {hidden [N,C], targets [N] i32}   outputs {losses [N]}   params {w [V,C]}
 *
 * For each chunk of rows, of those that have a target where that leaves some out (head_rows.c):
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
    const HsTensor hidden = hs_tensor_2d(NULL, attributes->operand, rows, attributes->inputs);
    scratch[HS_HEAD_HIDDEN] = hidden;
    scratch[HS_HEAD_TARGETS] = hs_tensor_1d(NULL, HS_I32, rows);
    if (backward && attributes->teacher_logits)
        scratch[HS_HEAD_TEACHER_HIDDEN] = hidden;
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

/* A chunk: what its rows are read from and written to.  Where rows are gathered `hidden` and `targets` are scratch. */
typedef struct Chunk {
    const HsHeadRows *rows;
    HsRowRun begin; /* of its rows in the micro-batch */
    int64_t count;  /* without those that were added to make a planned number */
    HsTensor hidden, targets, logits, dlogits, dhidden, losses;
} Chunk;

/* Draws are numbered by row, so they do not depend on where chunks begin, nor on rows that were left out. */
static HsStatus draw_targets(const HsLayerCall *call, const Chunk *chunk)
{
    HsRowRun run = chunk->begin;
    while (hs_head_rows_next(chunk->rows, chunk->count, &run)) {
        HsSampleLabelsArgs args = { .rng = call->rng,
                                    .logits = hs_tensor_rows(chunk->logits, run.place, run.count),
                                    .targets = hs_tensor_rows(call->inputs[1], run.row, run.count) };
        args.rng.site = SITE_LABELS;
        args.rng.row_offset += run.row;
        HS_TRY(hs_op_sample_labels(call->context, &args));
    }
    return HS_OK;
}

static HsStatus distill(const HsLayerCall *call, const Chunk *chunk)
{
    HsRowRun run = chunk->begin;
    if (hs_tensor_present(&call->head_work->teacher_hidden))
        HS_TRY(hs_head_teach(call, chunk->rows, chunk->count, run, chunk->logits.shape[0]));
    while (hs_head_rows_next(chunk->rows, chunk->count, &run))
        HS_TRY(hs_head_distill(call, hs_tensor_rows(chunk->logits, run.place, run.count),
                               hs_tensor_rows(call->inputs[1], run.row, run.count),
                               hs_tensor_rows(chunk->dlogits, run.place, run.count), &run));
    return HS_OK;
}

static HsStatus run_chunk(const HsLayerCall *call, const HsNode *node, bool backward, const Chunk *chunk)
{
    HS_TRY(hs_layer_head_logits(call->context, call->precision, call->params[0], chunk->hidden, chunk->logits));
    if (call->sample_labels)
        HS_TRY(draw_targets(call, chunk));
    if (chunk->rows->targets)
        (void)hs_head_rows_gather(chunk->rows, call->inputs[1], chunk->count, chunk->begin, 0xff, chunk->targets);
    HsCrossEntropyArgs loss = {
        .logits = chunk->logits,
        .targets = chunk->targets,
        .z_loss = hs_call_z_loss(call, node),
        .gradient_scale = call->gradient_scale,
        .losses = chunk->losses,
        .dlogits = chunk->dlogits,
    };
    HS_TRY(hs_op_cross_entropy(call->context, &loss));
    if (backward && call->head_work)
        HS_TRY(distill(call, chunk));
    if (call->predict > 0)
        HS_TRY(
            hs_op_argmax(call->context,
                         &(HsArgmaxArgs){ .logits = chunk->logits, .count = call->predict, .index = chunk->targets }));
    return backward ? chunk_backward(call, chunk->hidden, chunk->dlogits, chunk->dhidden) : HS_OK;
}

/* `size` rows, from place `first` on of those that the head runs on; `rows`, hidden and targets are the caller's. */
static Chunk make_chunk(const HsLayerCall *call, bool backward, int64_t first, int64_t size)
{
    Chunk chunk = { .logits = hs_tensor_rows(call->scratch[HS_HEAD_LOGITS], 0, size),
                    .losses = hs_tensor_rows(call->outputs[0], first, size),
                    .count = size,
                    .begin = { .row = first } };
    if (backward && hs_tensor_present(&call->d_inputs[0]))
        chunk.dhidden = hs_tensor_rows(call->d_inputs[0], first, size);
    if (backward)
        chunk.dlogits = hs_tensor_present(&call->scratch[HS_HEAD_DLOGITS])
                            ? hs_tensor_rows(call->scratch[HS_HEAD_DLOGITS], 0, size)
                            : chunk.logits;
    return chunk;
}

static HsStatus run_rows_in_place(const HsLayerCall *call, const HsNode *node, bool backward, const HsHeadRows *rows,
                                  int64_t first, int64_t count)
{
    Chunk chunk = make_chunk(call, backward, first, count);
    chunk.rows = rows;
    chunk.hidden = hs_tensor_rows(call->inputs[0], first, count);
    chunk.targets = hs_tensor_rows(call->inputs[1], first, count);
    return run_chunk(call, node, backward, &chunk);
}

/* A last chunk may have any of a few numbers of rows, and an operation's scratch need not grow with them. */
static HsStatus plan_sizes(const HsLayerCall *call, const HsNode *node, bool backward, const HsHeadRows *rows,
                           int64_t most)
{
    HsContext context = *call->context;
    HsLayerCall each = *call;
    each.context = &context;
    for (int64_t size = hs_head_rows_step(most); size < most; size += hs_head_rows_step(most))
        HS_TRY(run_rows_in_place(&each, node, backward, rows, 0, size));
    call->context->workspace_needed = context.workspace_needed;
    return HS_OK;
}

/* In a dry run, whole chunks differ in nothing that counts: one stands for all, however many a program has. */
static HsStatus run_all_rows(const HsLayerCall *call, const HsNode *node, bool backward, const HsHeadRows *rows)
{
    HsContext *context = call->context;
    const int64_t chunk = chunk_rows(node, rows->total), whole = rows->total / chunk, rest = rows->total % chunk;
    const double flops_before = context->flops;
    for (int64_t i = 0; i < (context->dry_run ? 1 : whole); i++)
        HS_TRY(run_rows_in_place(call, node, backward, rows, i * chunk, chunk));
    if (context->dry_run)
        context->flops = flops_before + (double)whole * (context->flops - flops_before);
    if (context->dry_run && node->attributes.leaves_out)
        HS_TRY(plan_sizes(call, node, backward, rows, chunk));
    return rest > 0 ? run_rows_in_place(call, node, backward, rows, whole * chunk, rest) : HS_OK;
}

/* Rows without a target have no loss, no gradient and nothing that is kept of them. */
static HsStatus run_gathered_rows(const HsLayerCall *call, const HsNode *node, bool backward, const HsHeadRows *rows)
{
    const int64_t most = chunk_rows(node, rows->total);
    HsRowRun next = { 0 };
    if (backward && call->head_work)
        hs_head_distill_nothing(call, rows->total);
    for (int64_t first = 0; first < rows->counted; first += most) {
        const int64_t left = rows->counted - first, count = left < most ? left : most, room = rows->total - first;
        const int64_t size = hs_head_rows_padded(most, count, most < room ? most : room);
        Chunk chunk = make_chunk(call, backward, first, size);
        chunk.rows = rows;
        chunk.begin = (HsRowRun){ .row = next.row };
        chunk.count = count;
        chunk.hidden = hs_tensor_rows(call->scratch[HS_HEAD_HIDDEN], 0, size);
        chunk.hidden.amax = call->inputs[0].amax; /* of all rows, as where none is left out */
        chunk.targets = hs_tensor_rows(call->scratch[HS_HEAD_TARGETS], 0, size);
        next = hs_head_rows_gather(rows, call->inputs[0], count, chunk.begin, 0, chunk.hidden);
        HS_TRY(run_chunk(call, node, backward, &chunk));
    }
    hs_head_rows_spread(rows, call->outputs[0]);
    if (backward && hs_tensor_present(&call->d_inputs[0]))
        hs_head_rows_spread(rows, call->d_inputs[0]);
    return HS_OK;
}

static HsStatus run_chunks(const HsLayerCall *call, const HsNode *node, bool backward)
{
    const HsHeadRows rows = hs_head_rows(call, node);
    return rows.targets ? run_gathered_rows(call, node, backward, &rows) : run_all_rows(call, node, backward, &rows);
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
