/* SPDX-License-Identifier: MIT
 *
 * Layer norm (Ba, Kiros & Hinton 2016, eq. 4) and root-mean-square norm (Zhang & Sennrich 2019, eq. 4).
 *   inputs {x [N,C]}   outputs {y [N,C]}   saved {rstd [N], mean [N] (layer norm only)}   params {gain [C], bias [C]}
 *
 * With xhat = (x - mean) rstd and g = gain * dy, the mean and the variance depend on every x of the row, hence
 *   dx = rstd (g - mean(g) - xhat mean(g xhat))      (rms: without mean(g), and xhat = x rstd)
 *   dgain += sum over rows of dy xhat;  dbias += sum over rows of dy.
 * x is the residual stream, whose other consumer is the sum after the branch: dx adds to what that one left.  Whole by
 * now, it is the dy of the linear layer that made x, and goes there rounded to the products' format, too, and summed.
 * Where dropout made x (dropout_residual.c), its work is done here both ways: x is made on the way in, dbranch of dx.
 */
#include "runtime/model/layer.h"

/* The random numbers of the joined sum with dropout (dropout_residual.c). */
static HsRng joined_rng(const HsLayerCall *call)
{
    HsRng rng = call->rng;
    rng.site = call->joined->attributes.site;
    return rng;
}

static HsStatus norm_forward(const HsLayerCall *call, const HsNode *node)
{
    HsNormArgs args = {
        .kind = node->attributes.norm,
        .epsilon = node->attributes.epsilon,
        .x = call->inputs[0],
        .weight = hs_run_weight(call, 0),
        .bias = hs_run_weight(call, 1),
        .y = call->outputs[0],
        .rstd = call->saved[0],
        .mean = call->saved[1],
    };
    if (call->joined) { /* x is made first */
        args.branch = call->joined_inputs[0];
        args.residual = call->joined_inputs[1];
        args.probability = hs_run_dropout(call, call->joined);
        args.rng = joined_rng(call);
    }
    return hs_op_norm_forward(call->context, &args);
}

static HsStatus norm_backward(const HsLayerCall *call, const HsNode *node)
{
    HsContext *context = call->context;
    HsDevice *device = context->device;
    if (call->sums_apart && hs_tensor_present(&call->d_sums) && !context->dry_run)
        HS_TRY(device->fill_zero(device, context->stream, call->d_sums.data, hs_tensor_bytes(&call->d_sums)));
    HsNormBackwardArgs args = {
        .kind = node->attributes.norm,
        .dy = call->d_outputs[0],
        .x = call->inputs[0],
        .weight = hs_run_weight(call, 0),
        .rstd = call->saved[0],
        .mean = call->saved[1],
        .accumulate = call->accumulate[0],
        .dx = call->d_inputs[0],
        .dweight = hs_run_gradient(call, 0),
        .dbias = hs_run_gradient(call, 1),
        .dx_rounded = call->d_rounded,
        .dx_sums = call->d_sums,
    };
    if (call->joined) { /* dx, whole by now, goes on to the branch */
        args.dx_masked = call->joined_d_inputs[0];
        args.probability = hs_run_dropout(call, call->joined);
        args.rng = joined_rng(call);
    }
    return hs_op_norm_backward(context, &args);
}

const HsLayer hs_layer_norm = {
    .name = "norm",
    .forward = norm_forward,
    .backward = norm_backward,
    .reads_inputs = 1u,
    .reads_saved = 3u,
    .passes_gradient = HS_NONE,
    .accumulates = true,
    .rounds_gradient = true,
    .finds_amax = true,
    .finds_gradient_amax = 1u,
    .joins_sum = true,
    .joint = true,
};
