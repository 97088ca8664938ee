/* SPDX-License-Identifier: MIT
 *
 * Shape and dtype rules of attention.
 */
#include "kernels/checks.h"

#include <inttypes.h>
#include <math.h>

/* Kernels take the scale out of the maximum, which turns hidden scores around where it is not positive. */
static HsStatus check_scale(const char *op, float scale)
{
    if (scale > 0.0f && isfinite(scale))
        return HS_OK;
    return hs_fail(HS_EINVAL, "%s: the scale is %g; it must be positive and finite", op, (double)scale);
}

HsStatus hs_check_attention_forward(const HsAttentionArgs *args)
{
    const char *op = "attention_forward";
    HS_TRY(hs_rule_heads(op, &args->heads));
    HS_TRY(hs_rule_probability(op, args->dropout));
    HS_TRY(check_scale(op, args->scale));
    const int64_t rows = hs_heads_rows(&args->heads);
    HS_RULE(op, qkv, HS_DTYPES_ACT, 2, rows, hs_heads_columns(&args->heads));
    HS_RULE(op, out, HS_DTYPES_ACT, 2, rows, args->heads.heads * args->heads.head_dim);
    HS_RULE(op, lse, HS_DTYPES_WIDE, 2, rows, args->heads.heads);
    return HS_OK;
}

HsStatus hs_check_attention_backward(const HsAttentionBackwardArgs *args)
{
    const char *op = "attention_backward";
    HS_TRY(hs_rule_heads(op, &args->heads));
    HS_TRY(hs_rule_probability(op, args->dropout));
    HS_TRY(check_scale(op, args->scale));
    const int64_t rows = hs_heads_rows(&args->heads), columns = hs_heads_columns(&args->heads);
    const int64_t width = args->heads.heads * args->heads.head_dim;
    HS_RULE(op, dout, HS_DTYPES_ACT, 2, rows, width);
    HS_RULE(op, qkv, HS_DTYPES_ACT, 2, rows, columns);
    HS_RULE(op, out, HS_DTYPES_ACT, 2, rows, width);
    HS_RULE(op, lse, HS_DTYPES_WIDE, 2, rows, args->heads.heads);
    HS_RULE(op, dqkv, HS_DTYPES_ACT, 2, rows, columns);
    return HS_OK;
}

HsStatus hs_check_attention_cached(const HsAttentionCachedArgs *args)
{
    const char *op = "attention_cached";
    HS_TRY(hs_rule_heads(op, &args->heads));
    const HsHeads *heads = &args->heads;
    const int64_t rows = hs_heads_rows(heads), kv_width = heads->kv_heads * heads->head_dim;
    HS_RULE(op, qkv, HS_DTYPES_ACT, 2, rows, hs_heads_columns(heads));
    HS_RULE(op, k_cache, HS_DTYPES_ACT, 3, heads->batch, 0, kv_width);
    HS_RULE(op, v_cache, HS_DTYPES_ACT, 3, heads->batch, args->k_cache.shape[1], kv_width);
    HS_TRY(hs_rule_same_dtype(op, "k_cache", &args->k_cache, "qkv", &args->qkv));
    HS_TRY(hs_rule_same_dtype(op, "v_cache", &args->v_cache, "qkv", &args->qkv));
    HS_RULE(op, out, HS_DTYPES_ACT, 2, rows, heads->heads * heads->head_dim);
    const int64_t room = args->k_cache.shape[1], end = args->position_start + heads->sequence_length;
    if (args->position_start < 0 || end > room)
        return hs_fail(HS_ESHAPE, "attention_cached: positions %" PRId64 "..%" PRId64 " do not fit a cache of %" PRId64,
                       args->position_start, end - 1, room);
    return HS_OK;
}
