/* SPDX-License-Identifier: MIT
 *
 * Token and position embedding, then dropout.
 *   inputs {tokens [N] i32}   outputs {y [N,C]}   params {token table [V,C], position table [P,C] optional}
 *
 * y[n] = mask[n] (s E[tokens[n]] + P[position of n]) / (1 - p), so each table row's gradient is the sum of the masked
 * dy of the rows that looked it up, in the token table times s, embedding_factor.  When the head is tied its gradient goes to the same table, which accumulates.
 */
#include "runtime/model/layer.h"

static HsStatus embedding_forward(const HsLayerCall *call, const HsNode *node)
{
    HsEmbeddingArgs args = {
        .tokens = call->inputs[0],
        .token_table = hs_call_weight(call, 0),
        .position_table = hs_call_weight(call, 1),
        .starts = call->starts,
        .sequence_length = call->sequence_length,
        .position_start = call->position_start,
        .factor = node->attributes.embedding_factor,
        .y = call->outputs[0],
    };
    HS_TRY(hs_op_embedding_forward(call->context, &args));
    float dropout = hs_call_dropout(call, node);
    if (!(dropout > 0.0f))
        return HS_OK;
    HsDropoutArgs mask = { .probability = dropout, .rng = call->rng, .x = call->outputs[0], .y = call->outputs[0] };
    return hs_op_dropout_forward(call->context, &mask);
}

static HsStatus embedding_backward(const HsLayerCall *call, const HsNode *node)
{
    float dropout = hs_call_dropout(call, node);
    if (dropout > 0.0f) {
        /* Nothing reads dy after its producer's backward: mask it in place. */
        HsDropoutArgs mask = {
            .probability = dropout, .rng = call->rng, .x = call->d_outputs[0], .y = call->d_outputs[0]
        };
        HS_TRY(hs_op_dropout_backward(call->context, &mask));
    }
    if (call->pass)
        HS_TRY(hs_layer_add_lookups(call, node->attributes.embedding_factor, call->inputs[0], call->d_outputs[0]));
    HsEmbeddingBackwardArgs args = {
        .tokens = call->inputs[0],
        .dy = call->d_outputs[0],
        .starts = call->starts,
        .sequence_length = call->sequence_length,
        .factor = node->attributes.embedding_factor,
        .dtoken_table = hs_call_gradient(call, 0),
        .dposition_table = hs_call_gradient(call, 1),
    };
    return hs_op_embedding_backward(call->context, &args);
}

const HsLayer hs_layer_embedding = {
    .name = "embedding",
    .forward = embedding_forward,
    .backward = embedding_backward,
    .reads_inputs = 1u,
    .passes_gradient = HS_NONE,
};
