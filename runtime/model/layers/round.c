/* SPDX-License-Identifier: MIT
 *
 * The residual stream in the format of products, where no norm stands between it and them (model.norms: after).
 *   inputs {x [N,C]}   outputs {y [N,C] = x rounded}
 * dx += dy: the sum behind the branch has begun the stream's gradient.
 */
#include "runtime/model/layer.h"

static HsStatus round_forward(const HsLayerCall *call, const HsNode *node)
{
    (void)node;
    const HsConvertArgs args = { .x = call->inputs[0], .y = call->outputs[0] };
    return hs_op_convert(call->context, &args);
}

static HsStatus round_backward(const HsLayerCall *call, const HsNode *node)
{
    (void)node;
    const HsConvertArgs whole = { .x = call->d_outputs[0], .y = call->d_inputs[0] };
    const HsCombineArgs sum = { .x = call->d_outputs[0], .y = call->d_inputs[0], .alpha = 1.0f, .beta = 1.0f };
    return call->accumulate[0] ? hs_op_combine(call->context, &sum) : hs_op_convert(call->context, &whole);
}

const HsLayer hs_layer_round = {
    .name = "round",
    .forward = round_forward,
    .backward = round_backward,
    .passes_gradient = HS_NONE,
    .accumulates = true,
};
