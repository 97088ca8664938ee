/* SPDX-License-Identifier: MIT
 *
 * Causal attention with grouped queries over the packed projection.
 *   inputs {qkv [N,(H+2G)D]}   outputs {out [N,HD]}   saved {lse [N,H], the logarithm of each softmax's denominator}
 *
 * With p = exp(scale q k^T - lse), out = p v, and delta = rowsum(dout * out) (Dao 2023, section 3.1):
 *   dv = p^T dout;   ds = p * (dout v^T - delta);   dq = scale ds k;   dk = scale ds^T q.
 * p is made again by tiles from q, k and lse, so only out and lse are kept.  Dropout masks p; its mask is a function of
 * the RNG key and is made again too.
 *
 * While decoding, new keys and values are appended to the step's cache and all of it is attended to.
 */
#include "runtime/layers/layer.h"

static HsStatus attention_cached(const HsRun *run, const HsStep *step)
{
    HsAttentionCachedArgs args = {
        .heads = hs_run_heads(run, step),
        .scale = step->attributes.scale,
        .position_start = run->position_start,
        .qkv = run->inputs[0],
        .k_cache = run->k_cache,
        .v_cache = run->v_cache,
        .out = run->outputs[0],
    };
    return hs_op_attention_cached(run->context, &args);
}

static HsStatus attention_forward(const HsRun *run, const HsStep *step)
{
    if (hs_tensor_present(&run->k_cache))
        return attention_cached(run, step);
    HsAttentionArgs args = {
        .heads = hs_run_heads(run, step),
        .scale = step->attributes.scale,
        .dropout = hs_run_dropout(run, step),
        .rng = run->rng,
        .qkv = run->inputs[0],
        .out = run->outputs[0],
        .lse = run->saved[0],
    };
    return hs_op_attention_forward(run->context, &args);
}

static HsStatus attention_backward(const HsRun *run, const HsStep *step)
{
    HsAttentionBackwardArgs args = {
        .heads = hs_run_heads(run, step),
        .scale = step->attributes.scale,
        .dropout = hs_run_dropout(run, step),
        .rng = run->rng,
        .dout = run->d_outputs[0],
        .qkv = run->inputs[0],
        .out = run->outputs[0],
        .lse = run->saved[0],
        .dqkv = run->d_inputs[0],
    };
    return hs_op_attention_backward(run->context, &args);
}

const HsLayer hs_layer_attention = {
    .name = "attention",
    .forward = attention_forward,
    .backward = attention_backward,
    .reads_inputs = 1u,
    .reads_outputs = 1u,
    .reads_saved = 1u,
    .passes_gradient = HS_NONE,
};
