/* SPDX-License-Identifier: MIT
 *
 * The linear layer, with what surrounds it fused into its products.
 *   inputs {x [N,in], residual [N,out] or absent, pre [N,in] (a gate: [N,2 in]) or absent, x in codes or absent}
 *   outputs {y [N,out] (a gate: [N,out/2]), pre [N,out] with an activation, y in codes or absent}
 *   params {w [out,in], bias [out] or absent}
 *
 *   forward   y = epilogue(x w^T + bias) + residual
 *   backward  dx = dy w;   dw += dy^T x;   dbias += sum over rows of dy
 *             dresidual = dy (the program passes the buffer on)
 *
 * An activation f (GELU, RELU2, SwiGLU, GEGLU) between two linear layers costs no separate pass over memory.  The first writes both
 * pre = x w^T + bias and y = f(pre), and is given dpre.  The second takes x = f(pre) together with pre, and writes
 * dpre = f'(pre) applied to dy w from its product's epilogue, so that dx itself never exists.
 *
 * dy of a sum into the residual stream has the stream's wider format; the products want their operand's, so dy is
 * rounded once: by the norm above, which is the last to add to the stream's gradient, or into scratch.  The
 * bias sums the unrounded dy: that norm does, or, where nothing is rounded, the product that makes dw.
 *
 * With an adapter (adapter.c) both products have its branch as their addend.
 *
 * In codes (precision.mode: fp8; kernels/ops/codes.h) x, w and dy are cast first, and each product reads two of them: x and
 * w, dy and w's transpose, the transposes of dy and x.  Where the device reads codes across (HsScalingRecipe.turns_codes)
 * one cast serves as both; else there is one for the transpose, too.  The weight's are made once a step.  What another layer
 * reads in codes alone is cast by the product or norm that makes it (runtime/model/casts.h).
 */
#include "runtime/model/layers/adapter.h"
#include "runtime/model/layers/coded.h"

enum { INPUT_X = 0, INPUT_RESIDUAL = 1, INPUT_PRE = 2, OUTPUT_Y = 0, OUTPUT_PRE = 1, PARAM_BIAS = 1 };

static void linear_scratch(const HsNode *node, const HsTensor *outputs, bool backward,
                           HsTensor scratch[HS_NODE_SCRATCH])
{
    const HsAttributes *attributes = &node->attributes;
    const int64_t rows = outputs[0].shape[0];
    if (backward && attributes->convert_gradient && node->taken[HS_MADE_ROUNDED] == HS_NONE)
        scratch[HS_SCRATCH_DY] = hs_tensor_2d(NULL, attributes->operand, rows, outputs[0].shape[1]);
    if (attributes->adapter.rank > 0)
        hs_adapter_scratch(node, rows, attributes->operand, backward, scratch);
    if (hs_node_coded(node))
        hs_coded_scratch(node, rows, outputs[0].shape[1] * (hs_epilogue_gates(attributes->epilogue) ? 2 : 1), backward,
                         scratch);
}

static HsStatus linear_forward(const HsLayerCall *call, const HsNode *node)
{
    HsTensor branch = { 0 };
    if (node->attributes.adapter.rank > 0)
        HS_TRY(hs_adapter_forward(call, node, &branch));
    HsMatmulArgs args = {
        .a.values = call->inputs[INPUT_X],
        .b = hs_param_operand(call->params[0], false),
        .transpose_b = true,
        .addend = branch,
        .bias = hs_call_weight(call, 1),
        .residual = call->inputs[INPUT_RESIDUAL],
        .pre = call->outputs[OUTPUT_PRE],
        .epilogue = node->attributes.epilogue,
        .policy = call->precision->forward,
        .alpha = node->attributes.factor,
        .c = call->outputs[OUTPUT_Y],
    };
    if (hs_node_coded(node))
        HS_TRY(hs_coded_forward(call, node, &args));
    args.cast = hs_coded_result(call, node, false, &args.c);
    return hs_op_matmul(call->context, &args);
}

/* dy in the products' format, and the bias's gradient.  *row_sums: what is left of that to the product that makes dw. */
static HsStatus take_gradient(const HsLayerCall *call, bool weighted, HsTensor *dy, HsTensor *row_sums)
{
    const HsTensor whole = *dy, dbias = hs_call_gradient(call, PARAM_BIAS);
    const bool biased = hs_tensor_present(&dbias);
    *row_sums = (HsTensor){ 0 };
    if (hs_tensor_present(&call->taken[HS_MADE_ROUNDED])) {
        const HsCombineArgs add = { .x = call->taken[HS_MADE_SUMS], .y = dbias, .alpha = 1.0f, .beta = 1.0f };
        *dy = call->taken[HS_MADE_ROUNDED];
        return hs_tensor_present(&add.x) ? hs_op_combine(call->context, &add) : HS_OK;
    }
    const HsTensor converted = call->scratch[HS_SCRATCH_DY];
    const HsBiasBackwardArgs bias = { .dy = whole, .dbias = dbias };
    if (!hs_tensor_present(&converted) && weighted)
        *row_sums = dbias;
    else if (biased)
        HS_TRY(hs_op_bias_backward(call->context, &bias));
    if (!hs_tensor_present(&converted))
        return HS_OK;
    const HsConvertArgs convert = { .x = whole, .y = converted };
    *dy = converted;
    return hs_op_convert(call->context, &convert);
}

static HsStatus linear_backward(const HsLayerCall *call, const HsNode *node)
{
    HsTensor dy = call->d_outputs[node->attributes.epilogue != HS_EPILOGUE_NONE ? OUTPUT_PRE : OUTPUT_Y];
    const HsTensor dw = hs_call_gradient(call, 0);
    HsTensor row_sums;
    const bool coded = hs_node_coded(node);
    HS_TRY(take_gradient(call, hs_tensor_present(&dw) && !coded, &dy, &row_sums));
    if (call->factors[0]) {
        const HsFactorPair *pair = &call->factors[0]->use[HS_FACTOR_PRODUCT];
        HS_TRY(hs_layer_add_moment(call, &pair->left, node->attributes.factor, dy));
        HS_TRY(hs_layer_add_moment(call, &pair->right, 1.0f, call->inputs[INPUT_X]));
    }
    HsMatmulArgs weight_gradient = {
        .a.values = dy,
        .b.values = call->inputs[INPUT_X],
        .transpose_a = true,
        .accumulate = true,
        .policy = call->precision->wgrad,
        .alpha = node->attributes.factor,
        .c = dw,
        .row_sums = row_sums,
    };
    HsCodedGradient codes;
    const int target = node->attributes.backward_epilogue != HS_EPILOGUE_NONE ? INPUT_PRE : INPUT_X;
    const bool wanted = hs_tensor_present(&call->d_inputs[target]);
    if (coded)
        HS_TRY(hs_coded_backward(call, node, dy, wanted, hs_tensor_present(&dw), &codes));
    if (coded && hs_tensor_present(&dw))
        hs_coded_weight_gradient(call, &codes, &weight_gradient);
    if (hs_tensor_present(&dw))
        HS_TRY(hs_op_matmul(call->context, &weight_gradient));

    HsTensor branch = { 0 };
    if (node->attributes.adapter.rank > 0)
        HS_TRY(hs_adapter_backward(call, node, dy, wanted, &branch));
    HsMatmulArgs data_gradient = {
        .a.values = dy,
        .b = hs_param_operand(call->params[0], true),
        .addend = branch,
        .pre = call->inputs[INPUT_PRE],
        .epilogue = node->attributes.backward_epilogue,
        .accumulate = call->accumulate[target],
        .policy = call->precision->dgrad,
        .alpha = node->attributes.factor,
        .c = call->d_inputs[target],
    };
    if (coded)
        hs_coded_data_gradient(call, &codes, &data_gradient);
    data_gradient.cast = hs_coded_result(call, node, true, &data_gradient.c);
    return wanted ? hs_op_matmul(call->context, &data_gradient) : HS_OK;
}

const HsLayer hs_layer_linear = {
    .name = "linear",
    .forward = linear_forward,
    .backward = linear_backward,
    .scratch = linear_scratch,
    .reads_inputs = 1u << INPUT_X | 1u << INPUT_PRE | 1u << HS_INPUT_CODES,
    .reads_saved = 1u << 0 | 1u << HS_SAVED_CODES,
    .reads_for_weight = 1u << INPUT_X,
    .weights = 1u << 0 | 1u << 2,
    .passes_gradient = INPUT_RESIDUAL,
    .finds_amax = 1u << OUTPUT_Y,
    .finds_gradient_amax = 1u << INPUT_PRE,
    .accumulates = true,
};
