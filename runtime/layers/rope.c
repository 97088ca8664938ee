/* SPDX-License-Identifier: MIT
 *
 * Rotary position embedding (Su et al. 2021, eq. 34): the pair (i, i + D/2) of every query and key head is rotated by
 * position * theta^(-2i/D).
 *   inputs {qkv [N,(H+2G)D]}   outputs {the same shape, in the same memory where the plan can}
 * A rotation's transpose is the rotation by the negative angle: dx = R(-angle) dy, which needs neither x nor y.
 */
#include "runtime/layers/layer.h"

static HsStatus rotate(const HsRun *run, const HsStep *step, bool inverse, HsTensor x, HsTensor y)
{
    HsRopeArgs args = {
        .heads = hs_run_heads(run, step),
        .theta = step->attributes.rope_theta,
        .position_start = run->position_start,
        .inverse = inverse,
        .x = x,
        .y = y,
    };
    return hs_op_rope(run->context, &args);
}

static HsStatus rope_forward(const HsRun *run, const HsStep *step)
{
    return rotate(run, step, false, run->inputs[0], run->outputs[0]);
}

static HsStatus rope_backward(const HsRun *run, const HsStep *step)
{
    return rotate(run, step, true, run->d_outputs[0], run->d_inputs[0]);
}

const HsLayer hs_layer_rope = {
    .name = "rope",
    .forward = rope_forward,
    .backward = rope_backward,
    .passes_gradient = HS_NONE,
    .in_place = true,
};
