/* SPDX-License-Identifier: MIT
 *
 * The head and its loss, a few rows at a time: logits [N,V] never exist whole.
 *   inputs {hidden [N,C], targets [N] i32}   outputs {losses [N]}   params {w [V,C]}
 *
 * For each chunk of rows:  logits = hidden w^T;  losses = lse - logits[target];
 *   and in training at once  dlogits = gs ((1 + 2 z lse) softmax - onehot);  dhidden = dlogits w;  dw += dlogits^T
 * hidden. The loss is a sum over rows, so the chunks are independent, and the gradient needs nothing but the chunk's
 * logits: training does forward and backward in one call (`turns`).  dlogits takes the logits' memory when the formats
 * agree.
 *
 * A probe may draw the targets from the model instead of reading them: label n ~ softmax(logits[n]), written over the
 * target.  This is the only place where logits exist.  The head runs once a pass under every recomputation policy, so
 * the label that makes the loss is the one that makes the gradient.
 */
#include "runtime/layers/layer.h"

/* Apart from every step's own site, which are small numbers. */
enum { SITE_LABELS = 0x4c41424c };

static int64_t chunk_rows(const HsStep *step, int64_t rows)
{
    return step->attributes.head_chunk < rows ? step->attributes.head_chunk : rows;
}

/* scratch {logits, dlogits when its format is another}. */
static void head_loss_scratch(const HsStep *step, const HsTensor *outputs, bool backward,
                              HsTensor scratch[HS_STEP_SCRATCH])
{
    const HsAttributes *attributes = &step->attributes;
    int64_t rows = chunk_rows(step, outputs[0].shape[0]);
    scratch[0] = hs_tensor_2d(NULL, attributes->logit, rows, attributes->vocabulary);
    if (backward && attributes->logit_gradient != attributes->logit)
        scratch[1] = hs_tensor_2d(NULL, attributes->logit_gradient, rows, attributes->vocabulary);
}

HsStatus hs_layer_head_logits(HsContext *context, const HsPrecision *precision, const HsParam *weight, HsTensor hidden,
                              HsTensor logits)
{
    HsMatmulArgs args = {
        .a = hidden,
        .b = weight->weight,
        .transpose_b = true,
        .b_packed = weight->packed_forward.data ? &weight->packed_forward : NULL,
        .tf32 = precision->forward.tf32,
        .c = logits,
    };
    return hs_op_matmul(context, &args);
}

/* Both gradients of one chunk's product. */
static HsStatus chunk_backward(const HsRun *run, HsTensor hidden, HsTensor dlogits, HsTensor dhidden)
{
    const HsParam *weight = run->params[0];
    HsMatmulArgs data_gradient = {
        .a = dlogits,
        .b = weight->weight,
        .b_packed = weight->packed_backward.data ? &weight->packed_backward : NULL,
        .accumulate = run->accumulate[0],
        .tf32 = run->precision->dgrad.tf32,
        .c = dhidden,
    };
    HS_TRY(hs_op_matmul(run->context, &data_gradient));
    HsMatmulArgs weight_gradient = {
        .a = dlogits,
        .b = hidden,
        .transpose_a = true,
        .accumulate = true,
        .tf32 = run->precision->wgrad.tf32,
        .c = weight->gradient,
    };
    return hs_op_matmul(run->context, &weight_gradient);
}

/* Draws are numbered by row, so they do not depend on where chunks begin. */
static HsStatus draw_targets(const HsRun *run, HsTensor logits, HsTensor targets, int64_t first)
{
    HsSampleLabelsArgs args = { .rng = run->rng, .logits = logits, .targets = targets };
    args.rng.site = SITE_LABELS;
    args.rng.row_offset += first;
    return hs_op_sample_labels(run->context, &args);
}

static HsStatus run_chunk(const HsRun *run, const HsStep *step, bool backward, int64_t first, int64_t count)
{
    HsTensor hidden = hs_tensor_rows(run->inputs[0], first, count);
    HsTensor logits = hs_tensor_rows(run->scratch[0], 0, count);
    HsTensor targets = hs_tensor_rows(run->inputs[1], first, count);
    HsTensor dlogits = { 0 };
    if (backward)
        dlogits = hs_tensor_present(&run->scratch[1]) ? hs_tensor_rows(run->scratch[1], 0, count) : logits;
    HS_TRY(hs_layer_head_logits(run->context, run->precision, run->params[0], hidden, logits));
    if (run->sample_labels)
        HS_TRY(draw_targets(run, logits, targets, first));
    HsCrossEntropyArgs loss = {
        .logits = logits,
        .targets = targets,
        .z_loss = hs_run_z_loss(run, step),
        .gradient_scale = run->gradient_scale,
        .losses = hs_tensor_rows(run->outputs[0], first, count),
        .dlogits = dlogits,
    };
    HS_TRY(hs_op_cross_entropy(run->context, &loss));
    return backward ? chunk_backward(run, hidden, dlogits, hs_tensor_rows(run->d_inputs[0], first, count)) : HS_OK;
}

/* In a dry run, whole chunks differ in nothing that counts: one stands for all, however many a plan has. */
static HsStatus run_chunks(const HsRun *run, const HsStep *step, bool backward)
{
    HsContext *context = run->context;
    const int64_t rows = run->inputs[0].shape[0], chunk = chunk_rows(step, rows), whole = rows / chunk;
    const double flops_before = context->flops;
    for (int64_t i = 0; i < (context->dry_run ? 1 : whole); i++)
        HS_TRY(run_chunk(run, step, backward, i * chunk, chunk));
    if (context->dry_run)
        context->flops = flops_before + (double)whole * (context->flops - flops_before);
    return rows % chunk > 0 ? run_chunk(run, step, backward, whole * chunk, rows % chunk) : HS_OK;
}

static HsStatus head_loss_forward(const HsRun *run, const HsStep *step)
{
    return run_chunks(run, step, false);
}

static HsStatus head_loss_backward(const HsRun *run, const HsStep *step)
{
    return run_chunks(run, step, true);
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
