/* SPDX-License-Identifier: MIT
 *
 * Causal attention with grouped queries over the packed projection.
 *   inputs {qkv [N,(H+2G)D]}   outputs {out [N,HD]}   saved {lse [N,H], the logarithm of each softmax's denominator}
 *   params {sinks [H] optional}
 *
 * With p = exp(scale q k^T - lse), out = p v, and delta = rowsum(dout * out) (Dao 2023, section 3.1):
 *   dv = p^T dout;   ds = p * (dout v^T - delta);   dq = scale ds k;   dk = scale ds^T q.
 * p is made again by tiles from q, k and lse, so only out and lse are kept.  Dropout masks p; its mask is a function of
 * the RNG key and is made again too.
 *
 * While decoding, new keys and values are appended to the node's cache and all of it is attended to; rows before its
 * first one are outside the window (runtime/engine/decode.c).
 */
#include "runtime/model/layer.h"

/* The node's rule, where this call's documents begin. */
static HsScoreRule rule_of(const HsLayerCall *call, const HsNode *node)
{
    HsScoreRule rule = node->attributes.score;
    rule.starts = call->starts;
    return rule;
}

static HsStatus attention_cached(const HsLayerCall *call, const HsNode *node)
{
    HsAttentionCachedArgs args = {
        .heads = hs_call_heads(call, node),
        .rule = rule_of(call, node),
        .position_start = call->position_start - call->cache->first,
        .qkv = call->inputs[0],
        .k_cache = call->cache->keys,
        .v_cache = call->cache->values,
        .sinks = hs_call_weight(call, 0),
        .out = call->outputs[0],
    };
    return hs_op_attention_cached(call->context, &args);
}

static HsStatus attention_forward(const HsLayerCall *call, const HsNode *node)
{
    if (call->cache)
        return attention_cached(call, node);
    HsAttentionArgs args = {
        .heads = hs_call_heads(call, node),
        .rule = rule_of(call, node),
        .dropout = hs_call_dropout(call, node),
        .rng = call->rng,
        .qkv = call->inputs[0],
        .sinks = hs_call_weight(call, 0),
        .out = call->outputs[0],
        .lse = call->saved[0],
    };
    return hs_op_attention_forward(call->context, &args);
}

static HsStatus sinks_backward(const HsLayerCall *call, const HsNode *node)
{
    const HsSinkBackwardArgs args = {
        .heads = hs_call_heads(call, node),
        .dout = call->d_outputs[0],
        .out = call->outputs[0],
        .lse = call->saved[0],
        .sinks = hs_call_weight(call, 0),
        .dsinks = hs_call_gradient(call, 0),
    };
    return hs_tensor_present(&args.dsinks) ? hs_op_sink_backward(call->context, &args) : HS_OK;
}

static HsStatus attention_backward(const HsLayerCall *call, const HsNode *node)
{
    HS_TRY(sinks_backward(call, node));
    if (!hs_tensor_present(&call->d_inputs[0]))
        return HS_OK;
    HsAttentionBackwardArgs args = {
        .heads = hs_call_heads(call, node),
        .rule = rule_of(call, node),
        .dropout = hs_call_dropout(call, node),
        .rng = call->rng,
        .dout = call->d_outputs[0],
        .qkv = call->inputs[0],
        .out = call->outputs[0],
        .lse = call->saved[0],
        .dqkv = call->d_inputs[0],
    };
    return hs_op_attention_backward(call->context, &args);
}

const HsLayer hs_layer_attention = {
    .name = "attention",
    .forward = attention_forward,
    .backward = attention_backward,
    .reads_inputs = 1u,
    .reads_outputs = 1u,
    .reads_saved = 1u,
    .passes_gradient = HS_NONE,
    .finds_amax = 1u,
    .finds_gradient_amax = 1u,
};
