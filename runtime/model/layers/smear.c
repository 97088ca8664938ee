/* SPDX-License-Identifier: MIT
 *
 * The stream of the token before, mixed in behind the embedding (nanochat), within documents.
 *   inputs {x [N,C]}   outputs {y [N,C]}   saved {gate [N,1]}   params {w [1,K], strength [1]}
 *
 * gate[n] = sigmoid(w.x[n,:K]);  y[n] = x[n] + strength gate[n] x[n - 1].
 * While decoding, x is kept in the node's cache, from which the row before the first new one is taken.
 */
#include "runtime/model/layer.h"

enum { SCRATCH_BEFORE = 0, SCRATCH_GATE_GRADIENT = 0 };

/* Row `row` of each sequence of the cache <-> that of `rows` [batch * length, C]. */
static HsStatus move(const HsLayerCall *call, HsTensor rows, int64_t length, int64_t from, int64_t row, int64_t count,
                     bool out)
{
    HsContext *context = call->context;
    HsDevice *device = context->device;
    const HsTensor *cache = &call->cache->keys;
    const size_t bytes = (size_t)cache->shape[2] * hs_dtype_bytes(cache->dtype);
    for (int64_t b = 0; b < call->batch && !context->dry_run; b++) {
        unsigned char *kept = (unsigned char *)cache->data + (size_t)(b * cache->shape[1] + row) * bytes;
        unsigned char *own = (unsigned char *)rows.data + (size_t)(b * length + from) * bytes;
        HS_TRY(device->copy(device, context->stream, out ? own : kept, out ? kept : own, (size_t)count * bytes));
    }
    return HS_OK;
}

/* The row before the first of each sequence -> *before; absent at a sequence's begin. */
static HsStatus take_before(const HsLayerCall *call, HsTensor *before)
{
    *before = (HsTensor){ 0 };
    if (!call->cache)
        return HS_OK;
    const int64_t at = call->position_start - call->cache->first, length = call->sequence_length;
    HS_TRY(move(call, call->inputs[0], length, 0, at, length, false));
    if (at == 0)
        return HS_OK;
    *before = hs_tensor_rows(call->scratch[SCRATCH_BEFORE], 0, call->batch);
    return move(call, *before, 1, 0, at - 1, 1, true);
}

static HsStatus smear_forward(const HsLayerCall *call, const HsNode *node)
{
    const HsGateArgs gate = { .factor = node->attributes.gate_factor,
                              .x = call->inputs[0],
                              .w = hs_call_weight(call, 0),
                              .gate = call->saved[0] };
    HsSmearArgs args = {
        .sequence_length = call->sequence_length,
        .starts = call->starts,
        .x = call->inputs[0],
        .gate = call->saved[0],
        .strength = hs_call_weight(call, 1),
        .y = call->outputs[0],
    };
    HS_TRY(take_before(call, &args.before));
    HS_TRY(hs_op_gate_forward(call->context, &gate));
    return hs_op_smear_forward(call->context, &args);
}

static HsStatus smear_backward(const HsLayerCall *call, const HsNode *node)
{
    const HsSmearBackwardArgs args = {
        .sequence_length = call->sequence_length,
        .starts = call->starts,
        .dy = call->d_outputs[0],
        .x = call->inputs[0],
        .gate = call->saved[0],
        .strength = hs_call_weight(call, 1),
        .dx = call->d_inputs[0],
        .dgate = call->scratch[SCRATCH_GATE_GRADIENT],
        .dstrength = hs_call_gradient(call, 1),
    };
    const HsGateBackwardArgs gate = {
        .factor = node->attributes.gate_factor,
        .dgate = args.dgate,
        .gate = call->saved[0],
        .x = call->inputs[0],
        .w = hs_call_weight(call, 0),
        .accumulate = true,
        .dx = call->d_inputs[0],
        .dw = hs_call_gradient(call, 0),
    };
    HS_TRY(hs_op_smear_backward(call->context, &args));
    return hs_op_gate_backward(call->context, &gate);
}

/* Forward: a row a sequence, of which there are no more than rows. */
static void smear_scratch(const HsNode *node, const HsTensor *outputs, bool backward, HsTensor scratch[HS_NODE_SCRATCH])
{
    (void)node;
    scratch[0] = backward ? hs_tensor_2d(NULL, hs_wide_with(outputs[0].dtype), outputs[0].shape[0], 1) : outputs[0];
}

const HsLayer hs_layer_smear = {
    .name = "smear",
    .forward = smear_forward,
    .backward = smear_backward,
    .scratch = smear_scratch,
    .reads_inputs = 1u,
    .reads_saved = 1u,
    .passes_gradient = HS_NONE,
    .joint = true,
};
