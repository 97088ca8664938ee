/* SPDX-License-Identifier: MIT
 *
 * SwiGLU (Shazeer 2020, eq. 6) over the fused projection.
 *   inputs {x [N,2F] = [gate|up]}   outputs {y [N,F] = silu(gate) * up}
 * With s = sigmoid(gate) and silu(gate) = gate s:
 *   dup = dy silu(gate);   dgate = dy up (s + gate s (1 - s)).
 */
#include "runtime/layers/layer.h"

static HsStatus swiglu_forward(const HsRun *run, const HsStep *step)
{
    (void)step;
    HsUnaryArgs args = { .x = run->inputs[0], .y = run->outputs[0] };
    return hs_op_swiglu_forward(run->context, &args);
}

static HsStatus swiglu_backward(const HsRun *run, const HsStep *step)
{
    (void)step;
    HsUnaryBackwardArgs args = { .dy = run->d_outputs[0], .x = run->inputs[0], .dx = run->d_inputs[0] };
    return hs_op_swiglu_backward(run->context, &args);
}

const HsLayer hs_layer_swiglu = {
    .name = "swiglu",
    .forward = swiglu_forward,
    .backward = swiglu_backward,
    .reads_inputs = 1u,
    .passes_gradient = HS_NONE,
};
