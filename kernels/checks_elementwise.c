/* SPDX-License-Identifier: MIT
 *
 * Shape and dtype rules of the activations, dropout, the loss, conversions and additions.
 */
#include "kernels/checks.h"

#include <inttypes.h>

HsStatus hs_check_gelu_forward(const HsUnaryArgs *args)
{
    HS_RULE("gelu_forward", x, HS_DTYPES_ACT, 2, 0, 0);
    HS_RULE("gelu_forward", y, HS_DTYPES_ACT, 2, args->x.shape[0], args->x.shape[1]);
    return HS_OK;
}

HsStatus hs_check_gelu_backward(const HsUnaryBackwardArgs *args)
{
    HS_RULE("gelu_backward", x, HS_DTYPES_ACT, 2, 0, 0);
    HS_RULE("gelu_backward", dy, HS_DTYPES_ACT, 2, args->x.shape[0], args->x.shape[1]);
    HS_RULE("gelu_backward", dx, HS_DTYPES_ACT, 2, args->x.shape[0], args->x.shape[1]);
    return HS_OK;
}

HsStatus hs_check_swiglu_forward(const HsUnaryArgs *args)
{
    HS_RULE("swiglu_forward", y, HS_DTYPES_ACT, 2, 0, 0);
    HS_RULE("swiglu_forward", x, HS_DTYPES_ACT, 2, args->y.shape[0], 2 * args->y.shape[1]);
    return HS_OK;
}

HsStatus hs_check_swiglu_backward(const HsUnaryBackwardArgs *args)
{
    HS_RULE("swiglu_backward", dy, HS_DTYPES_ACT, 2, 0, 0);
    HS_RULE("swiglu_backward", x, HS_DTYPES_ACT, 2, args->dy.shape[0], 2 * args->dy.shape[1]);
    HS_RULE("swiglu_backward", dx, HS_DTYPES_ACT, 2, args->dy.shape[0], 2 * args->dy.shape[1]);
    return HS_OK;
}

static HsStatus check_dropout(const char *op, const HsDropoutArgs *args)
{
    HS_TRY(hs_rule_probability(op, args->probability));
    HS_RULE(op, x, HS_DTYPES_ACT, 2, 0, 0);
    HS_RULE(op, y, HS_DTYPES_ACT, 2, args->x.shape[0], args->x.shape[1]);
    return HS_OK;
}

HsStatus hs_check_dropout_forward(const HsDropoutArgs *args)
{
    HS_TRY(check_dropout("dropout_forward", args));
    HS_RULE_OPTIONAL("dropout_forward", residual, HS_DTYPES_ACT, 2, args->x.shape[0], args->x.shape[1]);
    return HS_OK;
}

HsStatus hs_check_dropout_backward(const HsDropoutArgs *args)
{
    HS_TRY(check_dropout("dropout_backward", args));
    if (hs_tensor_present(&args->residual))
        return hs_fail(HS_EINVAL, "dropout_backward: residual is given, but its gradient is dy itself: leave it out");
    return HS_OK;
}

HsStatus hs_check_cross_entropy(const HsCrossEntropyArgs *args)
{
    HS_RULE("cross_entropy", logits, HS_DTYPES_WIDE, 2, 0, 0);
    const int64_t rows = args->logits.shape[0], vocabulary = args->logits.shape[1];
    HS_RULE("cross_entropy", targets, HS_DTYPES_INDEX, 1, rows);
    HS_RULE("cross_entropy", losses, HS_DTYPES_WIDE, 1, rows);
    HS_RULE_OPTIONAL("cross_entropy", dlogits, HS_DTYPES_ACT, 2, rows, vocabulary);
    return HS_OK;
}

HsStatus hs_check_convert(const HsConvertArgs *args)
{
    const int64_t count = hs_tensor_count(&args->x);
    HS_TRY(hs_rule_count("convert", "x", HS_DTYPES_ACT, &args->x, count));
    HS_TRY(hs_rule_count("convert", "y", HS_DTYPES_ACT, &args->y, count));
    if (args->stochastic && (args->x.dtype != HS_F32 || args->y.dtype != HS_BF16))
        return hs_fail(HS_ESHAPE, "convert: stochastic rounding is for f32 to bf16 only (got %s to %s)",
                       hs_dtype_name(args->x.dtype), hs_dtype_name(args->y.dtype));
    return HS_OK;
}

HsStatus hs_check_add(const HsAddArgs *args)
{
    const int64_t count = hs_tensor_count(&args->x);
    HS_TRY(hs_rule_count("add", "x", HS_DTYPES_ACT, &args->x, count));
    return hs_rule_count("add", "y", HS_DTYPES_ACT, &args->y, count);
}
