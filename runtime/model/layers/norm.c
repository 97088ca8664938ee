/* SPDX-License-Identifier: MIT
 *
 * Layer norm (Ba, Kiros & Hinton 2016, eq. 4) and root-mean-square norm (Zhang & Sennrich 2019, eq. 4).
 *   inputs {x [N,C]}   outputs {y [N,C]}   saved {rstd [N], mean [N] (layer norm only)}   params {gain [C], bias [C]}
 *
 * With xhat = (x - mean) rstd and g = gain * dy, the mean and the variance depend on every x of the row, hence
 *   dx = rstd (g - mean(g) - xhat mean(g xhat))      (rms: without mean(g), and xhat = x rstd)
 *   dgain += sum over rows of dy xhat;  dbias += sum over rows of dy.
 * x is the residual stream, which the sum after the branch reads, too: dx adds to what that one left.  Whole by
 * now, it is the dy of the linear layer that made x, and goes there rounded to the products' format, too, and summed.
 *
 * dropout_norm makes x itself, as dropout_residual.c does, and the branch's gradient in the same pass:
 *   inputs {branch [N,C], residual [N,C]}   outputs {x [N,C], y [N,C]}   the rest as above
 *
 * Both may leave y in codes, and norm the rounded dx (runtime/model/casts.h).
 */
#include "runtime/model/layers/coded.h"

static HsNormArgs forward_of(const HsLayerCall *call, const HsNode *node, HsTensor x, HsTensor y)
{
    return (HsNormArgs){
        .kind = node->attributes.norm,
        .epsilon = node->attributes.epsilon,
        .x = x,
        .weight = hs_call_weight(call, 0),
        .bias = hs_call_weight(call, 1),
        .y = y,
        .rstd = call->saved[0],
        .mean = call->saved[1],
        .cast = hs_coded_result(call, node, false, &y),
    };
}

static HsNormBackwardArgs backward_of(const HsLayerCall *call, const HsNode *node, HsTensor x, HsTensor dy)
{
    return (HsNormBackwardArgs){
        .kind = node->attributes.norm,
        .dy = dy,
        .x = x,
        .weight = hs_call_weight(call, 0),
        .rstd = call->saved[0],
        .mean = call->saved[1],
        .dweight = hs_call_gradient(call, 0),
        .dbias = hs_call_gradient(call, 1),
    };
}

static HsStatus norm_forward(const HsLayerCall *call, const HsNode *node)
{
    const HsNormArgs args = forward_of(call, node, call->inputs[0], call->outputs[0]);
    return hs_op_norm_forward(call->context, &args);
}

static HsStatus norm_backward(const HsLayerCall *call, const HsNode *node)
{
    HsNormBackwardArgs args = backward_of(call, node, call->inputs[0], call->d_outputs[0]);
    args.accumulate = call->accumulate[0];
    args.dx = call->d_inputs[0];
    args.dx_rounded = call->made[HS_MADE_ROUNDED];
    args.dx_sums = call->made[HS_MADE_SUMS];
    args.cast = hs_coded_result(call, node, true, &args.dx_rounded);
    return hs_op_norm_backward(call->context, &args);
}

/* A norm behind a branch: inputs {branch [N,C], residual [N,C]}, outputs {residual + norm(branch)}. */
static HsStatus norm_sum_forward(const HsLayerCall *call, const HsNode *node)
{
    HsNormArgs args = forward_of(call, node, call->inputs[0], call->outputs[0]);
    args.addend = call->inputs[1];
    return hs_op_norm_forward(call->context, &args);
}

static HsStatus norm_sum_backward(const HsLayerCall *call, const HsNode *node)
{
    HsNormBackwardArgs args = backward_of(call, node, call->inputs[0], call->d_outputs[0]);
    args.dx = call->d_inputs[0];
    return hs_op_norm_backward(call->context, &args);
}

const HsLayer hs_layer_norm_sum = {
    .name = "norm_sum",
    .forward = norm_sum_forward,
    .backward = norm_sum_backward,
    .reads_inputs = 1u,
    .reads_saved = 3u,
    .passes_gradient = 1,
    .finds_amax = 1u,
    .finds_gradient_amax = 1u,
    .joint = true,
};

const HsLayer hs_layer_norm = {
    .name = "norm",
    .forward = norm_forward,
    .backward = norm_backward,
    .reads_inputs = 1u,
    .reads_saved = 3u,
    .passes_gradient = HS_NONE,
    .accumulates = true,
    .finds_amax = 1u,
    .finds_gradient_amax = 1u,
    .joint = true,
};

enum { OUTPUT_X, OUTPUT_Y };

static HsStatus dropout_norm_forward(const HsLayerCall *call, const HsNode *node)
{
    HsNormArgs args = forward_of(call, node, call->outputs[OUTPUT_X], call->outputs[OUTPUT_Y]);
    args.branch = call->inputs[0]; /* absent: x is there */
    args.residual = call->inputs[1];
    args.probability = hs_call_dropout(call, node);
    args.rng = call->rng;
    return hs_op_norm_forward(call->context, &args);
}

static HsStatus dropout_norm_backward(const HsLayerCall *call, const HsNode *node)
{
    HsNormBackwardArgs args = backward_of(call, node, call->outputs[OUTPUT_X], call->d_outputs[OUTPUT_Y]);
    args.accumulate = call->accumulate_sum;
    args.dx = call->d_outputs[OUTPUT_X];
    args.dx_masked = call->d_inputs[0];
    args.probability = hs_call_dropout(call, node);
    args.rng = call->rng;
    return hs_op_norm_backward(call->context, &args);
}

const HsLayer hs_layer_dropout_norm = {
    .name = "dropout_norm",
    .forward = dropout_norm_forward,
    .backward = dropout_norm_backward,
    .reads_outputs = 1u << OUTPUT_X,
    .reads_saved = 3u,
    .passes_gradient = 1,
    .finds_amax = 1u << OUTPUT_Y,
    .finds_gradient_amax = 1u,
    .carries_sum = true,
};
