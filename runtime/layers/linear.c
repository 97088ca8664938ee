/* SPDX-License-Identifier: MIT
 *
 * The linear layer, with what surrounds it fused into its products.
 *   inputs {x [N,in], residual [N,out] or absent, pre [N,in] (SwiGLU: [N,2 in]) or absent}
 *   outputs {y [N,out] (SwiGLU: [N,out/2]), pre [N,out] with an activation}   params {w [out,in], bias [out] or absent}
 *
 *   forward  y = epilogue(x w^T + bias) + residual
 *   backward dx = dy w;   dw += dy^T x;   dbias += sum over rows of dy;   dresidual = dy (the plan passes the buffer
 * on)
 *
 * An activation f (GELU, SwiGLU) between two linear layers costs no pass over memory of its own.  The first writes both
 * pre = x w^T + bias and y = f(pre), and is given dpre.  The second takes x = f(pre) together with pre, and writes
 * dpre = f'(pre) applied to dy w from its product's epilogue, so that dx itself never exists.
 *
 * dy of a sum into the residual stream has the stream's wider format; the products want their operand's, so dy is
 * rounded once into scratch.  The bias sums the unrounded dy.
 */
#include "runtime/layers/layer.h"

enum { INPUT_X = 0, INPUT_RESIDUAL = 1, INPUT_PRE = 2, OUTPUT_Y = 0, OUTPUT_PRE = 1 };

/* The backend's own layout of the weight, when there is one. */
static const HsPacked *packed_or_null(const HsPacked *packed)
{
    return packed->data ? packed : NULL;
}

static void linear_scratch(const HsStep *step, const HsTensor *outputs, bool backward,
                           HsTensor scratch[HS_STEP_SCRATCH])
{
    if (backward && step->attributes.convert_gradient)
        scratch[0] = hs_tensor_2d(NULL, step->attributes.operand, outputs[0].shape[0], outputs[0].shape[1]);
}

static HsStatus linear_forward(const HsRun *run, const HsStep *step)
{
    HsMatmulArgs args = {
        .a = run->inputs[INPUT_X],
        .b = hs_run_weight(run, 0),
        .transpose_b = true,
        .b_packed = packed_or_null(&run->params[0]->packed_forward),
        .bias = hs_run_weight(run, 1),
        .residual = run->inputs[INPUT_RESIDUAL],
        .pre = run->outputs[OUTPUT_PRE],
        .epilogue = step->attributes.epilogue,
        .tf32 = run->precision->forward.tf32,
        .c = run->outputs[OUTPUT_Y],
    };
    return hs_op_matmul(run->context, &args);
}

static HsStatus linear_backward(const HsRun *run, const HsStep *step)
{
    HsTensor dy = run->d_outputs[step->attributes.epilogue != HS_EPILOGUE_NONE ? OUTPUT_PRE : OUTPUT_Y];
    if (run->params[1]) {
        HsBiasBackwardArgs bias = { .dy = dy, .dbias = hs_run_gradient(run, 1) };
        HS_TRY(hs_op_bias_backward(run->context, &bias));
    }
    if (hs_tensor_present(&run->scratch[0])) {
        HsConvertArgs convert = { .x = dy, .y = run->scratch[0] };
        HS_TRY(hs_op_convert(run->context, &convert));
        dy = run->scratch[0];
    }
    HsMatmulArgs weight_gradient = {
        .a = dy,
        .b = run->inputs[INPUT_X],
        .transpose_a = true,
        .accumulate = true,
        .tf32 = run->precision->wgrad.tf32,
        .c = hs_run_gradient(run, 0),
    };
    HS_TRY(hs_op_matmul(run->context, &weight_gradient));

    int target = step->attributes.backward_epilogue != HS_EPILOGUE_NONE ? INPUT_PRE : INPUT_X;
    HsMatmulArgs data_gradient = {
        .a = dy,
        .b = hs_run_weight(run, 0),
        .b_packed = packed_or_null(&run->params[0]->packed_backward),
        .pre = run->inputs[INPUT_PRE],
        .epilogue = step->attributes.backward_epilogue,
        .accumulate = run->accumulate[target],
        .tf32 = run->precision->dgrad.tf32,
        .c = run->d_inputs[target],
    };
    return hs_op_matmul(run->context, &data_gradient);
}

const HsLayer hs_layer_linear = {
    .name = "linear",
    .forward = linear_forward,
    .backward = linear_backward,
    .scratch = linear_scratch,
    .reads_inputs = 1u << INPUT_X | 1u << INPUT_PRE,
    .passes_gradient = INPUT_RESIDUAL,
    .accumulates = true,
};
