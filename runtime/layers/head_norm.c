/* SPDX-License-Identifier: MIT
 *
 * QK-norm (Qwen3; Henry et al. 2020 argue for normalised queries and keys): an RMS norm of every query and key head
 * before the rotation, which bounds attention logits.  Value heads pass through.
 *   inputs {qkv [N,(H+2G)D]}   outputs {the same shape}   saved {rstd [N,H+G]}   params {q gain [D], k gain [D]}
 * Backward is norm.c's, head by head.
 */
#include "runtime/layers/layer.h"

static HsStatus head_norm_forward(const HsRun *run, const HsStep *step)
{
    HsHeadNormArgs args = {
        .heads = hs_run_heads(run, step),
        .epsilon = step->attributes.epsilon,
        .x = run->inputs[0],
        .q_weight = hs_run_weight(run, 0),
        .k_weight = hs_run_weight(run, 1),
        .y = run->outputs[0],
        .rstd = run->saved[0],
    };
    return hs_op_head_norm_forward(run->context, &args);
}

static HsStatus head_norm_backward(const HsRun *run, const HsStep *step)
{
    HsHeadNormBackwardArgs args = {
        .heads = hs_run_heads(run, step),
        .dy = run->d_outputs[0],
        .x = run->inputs[0],
        .q_weight = hs_run_weight(run, 0),
        .k_weight = hs_run_weight(run, 1),
        .rstd = run->saved[0],
        .dx = run->d_inputs[0],
        .dq_weight = hs_run_gradient(run, 0),
        .dk_weight = hs_run_gradient(run, 1),
    };
    return hs_op_head_norm_backward(run->context, &args);
}

const HsLayer hs_layer_head_norm = {
    .name = "head_norm",
    .forward = head_norm_forward,
    .backward = head_norm_backward,
    .reads_inputs = 1u,
    .reads_saved = 1u,
    .passes_gradient = HS_NONE,
};
