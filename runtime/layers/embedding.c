/* SPDX-License-Identifier: MIT
 *
 * Token and position embedding, then dropout.
 *   inputs {tokens [N] i32}   outputs {y [N,C]}   params {token table [V,C], position table [P,C] optional}
 *
 * y[n] = mask[n] (E[tokens[n]] + P[start + n mod T]) / (1 - p), so each table row's gradient is the sum of the masked
 * dy of the rows that looked it up.  When the head is tied its gradient goes to the same table, which accumulates.
 */
#include "runtime/layers/layer.h"

static HsStatus embedding_forward(const HsRun *run, const HsStep *step)
{
    HsEmbeddingArgs args = {
        .tokens = run->inputs[0],
        .token_table = hs_run_weight(run, 0),
        .position_table = hs_run_weight(run, 1),
        .sequence_length = run->sequence_length,
        .position_start = run->position_start,
        .y = run->outputs[0],
    };
    HS_TRY(hs_op_embedding_forward(run->context, &args));
    float dropout = hs_run_dropout(run, step);
    if (!(dropout > 0.0f))
        return HS_OK;
    HsDropoutArgs mask = { .probability = dropout, .rng = run->rng, .x = run->outputs[0], .y = run->outputs[0] };
    return hs_op_dropout_forward(run->context, &mask);
}

static HsStatus embedding_backward(const HsRun *run, const HsStep *step)
{
    float dropout = hs_run_dropout(run, step);
    if (dropout > 0.0f) {
        /* Nobody reads dy after its producer's backward: mask it where it lies. */
        HsDropoutArgs mask = {
            .probability = dropout, .rng = run->rng, .x = run->d_outputs[0], .y = run->d_outputs[0]
        };
        HS_TRY(hs_op_dropout_backward(run->context, &mask));
    }
    HsEmbeddingBackwardArgs args = {
        .tokens = run->inputs[0],
        .dy = run->d_outputs[0],
        .sequence_length = run->sequence_length,
        .dtoken_table = hs_run_gradient(run, 0),
        .dposition_table = hs_run_gradient(run, 1),
    };
    return hs_op_embedding_backward(run->context, &args);
}

const HsLayer hs_layer_embedding = {
    .name = "embedding",
    .forward = embedding_forward,
    .backward = embedding_backward,
    .reads_inputs = 1u,
    .passes_gradient = HS_NONE,
};
