/* SPDX-License-Identifier: MIT
 *
 * Shape and dtype rules of the norms and of the rotary embedding.
 */
#include "kernels/checks.h"

#include <inttypes.h>

HsStatus hs_check_norm_forward(const HsNormArgs *args)
{
    const char *op = "norm_forward";
    HS_RULE(op, x, HS_DTYPES_ACT, 2, 0, 0);
    const int64_t rows = args->x.shape[0], columns = args->x.shape[1];
    HS_RULE(op, weight, HS_DTYPES_WIDE, 1, columns);
    HS_RULE_OPTIONAL(op, bias, HS_DTYPES_WIDE, 1, columns);
    HS_RULE(op, y, HS_DTYPES_ACT, 2, rows, columns);
    if (args->kind == HS_NORM_LAYER)
        HS_RULE(op, mean, HS_DTYPES_WIDE, 1, rows);
    HS_RULE(op, rstd, HS_DTYPES_WIDE, 1, rows);
    return HS_OK;
}

HsStatus hs_check_norm_backward(const HsNormBackwardArgs *args)
{
    const char *op = "norm_backward";
    HS_RULE(op, x, HS_DTYPES_ACT, 2, 0, 0);
    const int64_t rows = args->x.shape[0], columns = args->x.shape[1];
    HS_RULE(op, dy, HS_DTYPES_ACT, 2, rows, columns);
    HS_RULE(op, weight, HS_DTYPES_WIDE, 1, columns);
    if (args->kind == HS_NORM_LAYER)
        HS_RULE(op, mean, HS_DTYPES_WIDE, 1, rows);
    HS_RULE(op, rstd, HS_DTYPES_WIDE, 1, rows);
    HS_RULE(op, dx, HS_DTYPES_ACT, 2, rows, columns);
    HS_RULE(op, dweight, HS_DTYPES_WIDE, 1, columns);
    HS_RULE_OPTIONAL(op, dbias, HS_DTYPES_WIDE, 1, columns);
    return HS_OK;
}

HsStatus hs_check_head_norm_forward(const HsHeadNormArgs *args)
{
    const char *op = "head_norm_forward";
    HS_TRY(hs_rule_heads(op, &args->heads));
    const int64_t rows = hs_heads_rows(&args->heads), columns = hs_heads_columns(&args->heads);
    HS_RULE(op, x, HS_DTYPES_ACT, 2, rows, columns);
    HS_RULE(op, q_weight, HS_DTYPES_WIDE, 1, args->heads.head_dim);
    HS_RULE(op, k_weight, HS_DTYPES_WIDE, 1, args->heads.head_dim);
    HS_RULE(op, y, HS_DTYPES_ACT, 2, rows, columns);
    HS_TRY(hs_rule_same_dtype(op, "y", &args->y, "x", &args->x));
    HS_RULE(op, rstd, HS_DTYPES_WIDE, 2, rows, args->heads.heads + args->heads.kv_heads);
    return HS_OK;
}

HsStatus hs_check_head_norm_backward(const HsHeadNormBackwardArgs *args)
{
    const char *op = "head_norm_backward";
    HS_TRY(hs_rule_heads(op, &args->heads));
    const int64_t rows = hs_heads_rows(&args->heads), columns = hs_heads_columns(&args->heads);
    HS_RULE(op, dy, HS_DTYPES_ACT, 2, rows, columns);
    HS_RULE(op, x, HS_DTYPES_ACT, 2, rows, columns);
    HS_RULE(op, q_weight, HS_DTYPES_WIDE, 1, args->heads.head_dim);
    HS_RULE(op, k_weight, HS_DTYPES_WIDE, 1, args->heads.head_dim);
    HS_RULE(op, rstd, HS_DTYPES_WIDE, 2, rows, args->heads.heads + args->heads.kv_heads);
    HS_RULE(op, dx, HS_DTYPES_ACT, 2, rows, columns);
    HS_RULE(op, dq_weight, HS_DTYPES_WIDE, 1, args->heads.head_dim);
    HS_RULE(op, dk_weight, HS_DTYPES_WIDE, 1, args->heads.head_dim);
    return HS_OK;
}

HsStatus hs_check_rope(const HsRopeArgs *args)
{
    HS_TRY(hs_rule_heads("rope", &args->heads));
    if (args->heads.head_dim % 2 != 0)
        return hs_fail(HS_EINVAL, "rope: head_dim must be even, it is rotated in pairs (got %" PRId64 ")",
                       args->heads.head_dim);
    if (!(args->theta > 0.0))
        return hs_fail(HS_EINVAL, "rope: theta must be positive (got %g)", args->theta);
    if (args->position_start < 0)
        return hs_fail(HS_EINVAL, "rope: position_start must be at least 0 (got %" PRId64 ")", args->position_start);
    const int64_t rows = hs_heads_rows(&args->heads), columns = hs_heads_columns(&args->heads);
    HS_RULE("rope", x, HS_DTYPES_ACT, 2, rows, columns);
    HS_RULE("rope", y, HS_DTYPES_ACT, 2, rows, columns);
    return hs_rule_same_dtype("rope", "y", &args->y, "x", &args->x);
}
