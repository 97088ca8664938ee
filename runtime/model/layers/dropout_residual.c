/* SPDX-License-Identifier: MIT
 *
 * Dropout on a branch (Srivastava et al. 2014, inverted form) and the sum into the residual stream.
 *   inputs {branch [N,C], residual [N,C]}   outputs {y [N,C] = residual + mask(branch) / (1 - p)}
 * dbranch = mask(dy) / (1 - p), with the mask drawn again from its key
 * dresidual = dy (the program passes the buffer on)
 * Where a norm of y follows, both become one node (runtime/model/fuse.c; dropout_norm in norm.c).
 */
#include "runtime/model/layer.h"

static HsStatus dropout_residual_forward(const HsLayerCall *call, const HsNode *node)
{
    HsDropoutArgs args = {
        .probability = hs_call_dropout(call, node),
        .rng = call->rng,
        .x = call->inputs[0],
        .residual = call->inputs[1],
        .y = call->outputs[0],
    };
    return hs_op_dropout_forward(call->context, &args);
}

static HsStatus dropout_residual_backward(const HsLayerCall *call, const HsNode *node)
{
    HsDropoutArgs args = {
        .probability = hs_call_dropout(call, node),
        .rng = call->rng,
        .x = call->d_outputs[0],
        .y = call->d_inputs[0],
    };
    return hs_op_dropout_backward(call->context, &args);
}

const HsLayer hs_layer_dropout_residual = {
    .name = "dropout_residual",
    .forward = dropout_residual_forward,
    .backward = dropout_residual_backward,
    .passes_gradient = 1,
    .finds_gradient_amax = 1u,
};
