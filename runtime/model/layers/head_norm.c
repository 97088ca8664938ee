/* SPDX-License-Identifier: MIT
 *
 * QK-norm (Qwen3; Henry et al. 2020 argue for normalised queries and keys): an RMS norm of every query and key head,
 * which bounds attention logits.  Value heads pass through.
 *   inputs {qkv [N,(H+2G)D]}   outputs {the same shape}   saved {rstd [N,H+G]}   params {q gain [D], k gain [D]}
 * Of the whole projection (OLMo 2) it is one norm of all queries' features and one of all keys': saved {rstd [N,2]},
 * params {q gain [HD], k gain [GD]}.  Gains may be absent.  Backward is norm.c's, head by head.
 */
#include "runtime/model/layer.h"

static HsStatus head_norm_forward(const HsLayerCall *call, const HsNode *node)
{
    HsHeadNormArgs args = {
        .heads = hs_call_heads(call, node),
        .whole = node->attributes.whole,
        .epsilon = node->attributes.epsilon,
        .x = call->inputs[0],
        .q_weight = hs_call_weight(call, 0),
        .k_weight = hs_call_weight(call, 1),
        .y = call->outputs[0],
        .rstd = call->saved[0],
    };
    return hs_op_head_norm_forward(call->context, &args);
}

static HsStatus head_norm_backward(const HsLayerCall *call, const HsNode *node)
{
    HsHeadNormBackwardArgs args = {
        .heads = hs_call_heads(call, node),
        .whole = node->attributes.whole,
        .dy = call->d_outputs[0],
        .x = call->inputs[0],
        .q_weight = hs_call_weight(call, 0),
        .k_weight = hs_call_weight(call, 1),
        .rstd = call->saved[0],
        .dx = call->d_inputs[0],
        .dq_weight = hs_call_gradient(call, 0),
        .dk_weight = hs_call_gradient(call, 1),
    };
    return hs_op_head_norm_backward(call->context, &args);
}

const HsLayer hs_layer_head_norm = {
    .name = "head_norm",
    .forward = head_norm_forward,
    .backward = head_norm_backward,
    .reads_inputs = 1u,
    .reads_saved = 1u,
    .passes_gradient = HS_NONE,
    .finds_gradient_amax = 1u,
    .joint = true,
};
