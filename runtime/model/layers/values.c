/* SPDX-License-Identifier: MIT
 *
 * Values of tokens by themselves, added to those that attention reads (Zhou et al. 2024; nanochat).
 *   inputs {qkv [N,(H+2G)D], x [N,C], tokens [N] i32}   outputs {as qkv}   saved {gate [N,G]}
 *   params {table [V,GD], w [G,K]}
 *
 * gate[n,g] = factor sigmoid(w[g].x[n,:K]);  v[n,g] += gate[n,g] table[tokens[n],g].
 * The gradient of qkv is the output's.
 */
#include "runtime/model/layer.h"

enum { INPUT_QKV, INPUT_X, INPUT_TOKENS };
enum { SCRATCH_GATE_GRADIENT, SCRATCH_ROWS };

static HsStatus values_forward(const HsLayerCall *call, const HsNode *node)
{
    const HsGateArgs gate = { .factor = node->attributes.gate_factor,
                              .x = call->inputs[INPUT_X],
                              .w = hs_call_weight(call, 1),
                              .gate = call->saved[0] };
    const HsAddValuesArgs args = {
        .heads = hs_call_heads(call, node),
        .tokens = call->inputs[INPUT_TOKENS],
        .table = hs_call_weight(call, 0),
        .gate = call->saved[0],
        .x = call->inputs[INPUT_QKV],
        .y = call->outputs[0],
    };
    HS_TRY(hs_op_gate_forward(call->context, &gate));
    return hs_op_add_values_forward(call->context, &args);
}

/* The table's gradient from that of its rows. */
static HsStatus table_backward(const HsLayerCall *call, HsTensor rows)
{
    const HsEmbeddingBackwardArgs args = {
        .tokens = call->inputs[INPUT_TOKENS],
        .dy = rows,
        .sequence_length = call->sequence_length,
        .factor = 1.0f,
        .dtoken_table = hs_call_gradient(call, 0),
    };
    if (call->pass)
        HS_TRY(hs_layer_add_lookups(call, 1.0f, args.tokens, rows));
    return hs_tensor_present(&args.dtoken_table) ? hs_op_embedding_backward(call->context, &args) : HS_OK;
}

static HsStatus values_backward(const HsLayerCall *call, const HsNode *node)
{
    const HsAddValuesBackwardArgs args = {
        .heads = hs_call_heads(call, node),
        .tokens = call->inputs[INPUT_TOKENS],
        .table = hs_call_weight(call, 0),
        .gate = call->saved[0],
        .dy = call->d_outputs[0],
        .drows = call->scratch[SCRATCH_ROWS],
        .dgate = call->scratch[SCRATCH_GATE_GRADIENT],
    };
    const HsTensor dw = hs_call_gradient(call, 1), none = { 0 };
    const HsGateBackwardArgs gate = {
        .factor = node->attributes.gate_factor,
        .dgate = args.dgate,
        .gate = call->saved[0],
        .x = hs_tensor_present(&dw) ? call->inputs[INPUT_X] : none,
        .w = hs_call_weight(call, 1),
        .accumulate = call->accumulate[INPUT_X],
        .dx = call->d_inputs[INPUT_X],
        .dw = dw,
    };
    HS_TRY(hs_op_add_values_backward(call->context, &args));
    HS_TRY(table_backward(call, args.drows));
    const bool any = hs_tensor_present(&dw) || hs_tensor_present(&gate.dx);
    return any ? hs_op_gate_backward(call->context, &gate) : HS_OK;
}

static void values_scratch(const HsNode *node, const HsTensor *outputs, bool backward,
                           HsTensor scratch[HS_NODE_SCRATCH])
{
    const HsHeads *heads = &node->attributes.heads;
    if (!backward)
        return;
    scratch[SCRATCH_GATE_GRADIENT] =
        hs_tensor_2d(NULL, hs_wide_with(outputs[0].dtype), outputs[0].shape[0], heads->kv_heads);
    scratch[SCRATCH_ROWS] =
        hs_tensor_2d(NULL, outputs[0].dtype, outputs[0].shape[0], heads->kv_heads * heads->head_dim);
}

const HsLayer hs_layer_values = {
    .name = "values",
    .forward = values_forward,
    .backward = values_backward,
    .scratch = values_scratch,
    .reads_inputs = 1u << INPUT_X | 1u << INPUT_TOKENS,
    .reads_for_weight = 1u << INPUT_X,
    .weights = 1u << 1,
    .reads_saved = 1u,
    .passes_gradient = INPUT_QKV,
    .in_place = true,
    .accumulates = true,
};
