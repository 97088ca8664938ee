/* SPDX-License-Identifier: MIT
 *
 * The residual stream as a sum of two of its states, by learned numbers (nanochat).
 *   inputs {x [N,C], z [N,C]}   outputs {y [N,C] = a x + sign b z}   params {a [L] optional: 1, b [L]; element blend_at}
 *
 * dx = a dy;  dz = sign b dy;  da = sum of dy x;  db = sign sum of dy z.
 */
#include "runtime/model/layer.h"

static HsStatus blend_forward(const HsLayerCall *call, const HsNode *node)
{
    const HsBlendArgs args = {
        .at = node->attributes.blend_at,
        .sign = node->attributes.blend_sign,
        .a = hs_call_weight(call, 0),
        .b = hs_call_weight(call, 1),
        .x = call->inputs[0],
        .z = call->inputs[1],
        .y = call->outputs[0],
    };
    return hs_op_blend_forward(call->context, &args);
}

static HsStatus blend_backward(const HsLayerCall *call, const HsNode *node)
{
    const HsTensor da = hs_call_gradient(call, 0), db = hs_call_gradient(call, 1), none = { 0 };
    HsBlendBackwardArgs args = {
        .at = node->attributes.blend_at,
        .sign = node->attributes.blend_sign,
        .a = hs_call_weight(call, 0),
        .b = hs_call_weight(call, 1),
        .dy = call->d_outputs[0],
        .x = hs_tensor_present(&da) ? call->inputs[0] : none,
        .z = hs_tensor_present(&db) ? call->inputs[1] : none,
        .accumulate_x = call->accumulate[0],
        .accumulate_z = call->accumulate[1],
        .dx = call->d_inputs[0],
        .dz = call->d_inputs[1],
        .da = da,
        .db = db,
    };
    if (node->inputs[0] != node->inputs[1])
        return hs_op_blend_backward(call->context, &args);
    /* A state mixed with itself has one gradient: z's part comes second. */
    HsBlendBackwardArgs second = args;
    args.dz = args.z = args.db = none;
    second.dx = second.x = second.da = none;
    if (hs_tensor_present(&args.dx) || hs_tensor_present(&args.da))
        HS_TRY(hs_op_blend_backward(call->context, &args));
    return hs_tensor_present(&second.dz) || hs_tensor_present(&second.db) ? hs_op_blend_backward(call->context, &second)
                                                                          : HS_OK;
}

const HsLayer hs_layer_blend = {
    .name = "blend",
    .forward = blend_forward,
    .backward = blend_backward,
    .reads_inputs = 3u,
    .reads_for_weight = 3u,
    .weights = 3u,
    .passes_gradient = HS_NONE,
    .accumulates = true,
};
