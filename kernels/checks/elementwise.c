/* SPDX-License-Identifier: MIT
 *
 * Rules of gates, dropout and conversions beyond their operands' rows.
 */
#include "kernels/checks/checks.h"

static HsStatus check_gate(const char *op, HsActivation gate)
{
    if (gate == HS_ACTIVATION_SILU || gate == HS_ACTIVATION_GELU)
        return HS_OK;
    return hs_fail(HS_EINVAL, "%s: the gate's function is silu or gelu (got %d)", op, (int)gate);
}

HsStatus hs_check_swiglu_forward(const HsUnaryArgs *args)
{
    HS_TRY(check_gate("swiglu_forward", args->gate));
    return hs_check_operands("swiglu_forward", &hs_operands.swiglu_forward, args);
}

HsStatus hs_check_swiglu_backward(const HsUnaryBackwardArgs *args)
{
    HS_TRY(check_gate("swiglu_backward", args->gate));
    return hs_check_operands("swiglu_backward", &hs_operands.swiglu_backward, args);
}

HsStatus hs_check_dropout_forward(const HsDropoutArgs *args)
{
    HS_TRY(hs_rule_probability("dropout_forward", args->probability));
    return hs_check_operands("dropout_forward", &hs_operands.dropout_forward, args);
}

HsStatus hs_check_dropout_backward(const HsDropoutArgs *args)
{
    HS_TRY(hs_rule_probability("dropout_backward", args->probability));
    HS_TRY(hs_check_operands("dropout_backward", &hs_operands.dropout_backward, args));
    if (hs_tensor_present(&args->residual))
        return hs_fail(HS_EINVAL, "dropout_backward: residual is given, but its gradient is dy itself: leave it out");
    return HS_OK;
}

HsStatus hs_check_convert(const HsConvertArgs *args)
{
    HS_TRY(hs_check_operands("convert", &hs_operands.convert, args));
    if (args->stochastic && (args->x.dtype != HS_F32 || args->y.dtype != HS_BF16))
        return hs_fail(HS_ESHAPE, "convert: stochastic rounding is for f32 to bf16 only (got %s to %s)",
                       hs_dtype_name(args->x.dtype), hs_dtype_name(args->y.dtype));
    return HS_OK;
}
