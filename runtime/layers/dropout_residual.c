/* SPDX-License-Identifier: MIT
 *
 * Dropout on a branch (Srivastava et al. 2014, inverted form) and the sum into the residual stream.
 *   inputs {branch [N,C], residual [N,C]}   outputs {y [N,C] = residual + mask(branch) / (1 - p)}
 * dbranch = mask(dy) / (1 - p), with the mask drawn again from its key;  dresidual = dy (the plan passes the buffer
 * on).
 */
#include "runtime/layers/layer.h"

static HsStatus dropout_residual_forward(const HsRun *run, const HsStep *step)
{
    HsDropoutArgs args = {
        .probability = hs_run_dropout(run, step),
        .rng = run->rng,
        .x = run->inputs[0],
        .residual = run->inputs[1],
        .y = run->outputs[0],
    };
    return hs_op_dropout_forward(run->context, &args);
}

static HsStatus dropout_residual_backward(const HsRun *run, const HsStep *step)
{
    HsDropoutArgs args = {
        .probability = hs_run_dropout(run, step),
        .rng = run->rng,
        .x = run->d_outputs[0],
        .y = run->d_inputs[0],
    };
    return hs_op_dropout_backward(run->context, &args);
}

const HsLayer hs_layer_dropout_residual = {
    .name = "dropout_residual",
    .forward = dropout_residual_forward,
    .backward = dropout_residual_backward,
    .passes_gradient = 1,
};
