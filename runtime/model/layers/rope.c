/* SPDX-License-Identifier: MIT
 *
 * Rotary position embedding (Su et al. 2021, eq. 34): the pair (i, i + R/2) of every query and key head is rotated by
 * position * w_i, with the frequencies of kernels/ops/rope_rule.h.  Under longrope they depend on how long sequences are.
 *   inputs {qkv [N,(H+2G)D]}   outputs {the same shape, in the same memory where the program can}
 * A rotation's transpose is the rotation by the negative angle: dx = R(-angle) dy, which needs neither x nor y.
 */
#include "runtime/model/layer.h"

/* The node's rule, where sequences are as long as this call's. */
static HsRopeRule rule_of(const HsLayerCall *call, const HsNode *node, const HsHeads *heads)
{
    HsRopeRule rule = node->attributes.rope;
    if (rule.divisors && (double)(call->position_start + heads->sequence_length) > rule.original_length)
        rule.divisors += hs_rope_rotated(&rule, heads->head_dim) / 2;
    return rule;
}

static HsStatus rotate(const HsLayerCall *call, const HsNode *node, bool inverse, HsTensor x, HsTensor y)
{
    const HsHeads heads = hs_call_heads(call, node);
    HsRopeArgs args = {
        .heads = heads,
        .rule = rule_of(call, node, &heads),
        .position_start = call->position_start,
        .inverse = inverse != node->attributes.reversed,
        .starts = call->starts,
        .x = x,
        .y = y,
    };
    return hs_op_rope(call->context, &args);
}

static HsStatus rope_forward(const HsLayerCall *call, const HsNode *node)
{
    return rotate(call, node, false, call->inputs[0], call->outputs[0]);
}

static HsStatus rope_backward(const HsLayerCall *call, const HsNode *node)
{
    return rotate(call, node, true, call->d_outputs[0], call->d_inputs[0]);
}

const HsLayer hs_layer_rope = {
    .name = "rope",
    .forward = rope_forward,
    .backward = rope_backward,
    .passes_gradient = HS_NONE,
    .in_place = true,
    .finds_gradient_amax = 1u,
};
