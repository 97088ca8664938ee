/* SPDX-License-Identifier: MIT
 *
 * Rules of attention beyond its operands' rows.
 */
#include "kernels/checks/checks.h"

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
    HS_TRY(hs_rule_probability(op, args->dropout));
    HS_TRY(check_scale(op, args->scale));
    return hs_check_operands(op, &hs_operands.attention_forward, args);
}

HsStatus hs_check_attention_backward(const HsAttentionBackwardArgs *args)
{
    const char *op = "attention_backward";
    HS_TRY(hs_rule_probability(op, args->dropout));
    HS_TRY(check_scale(op, args->scale));
    return hs_check_operands(op, &hs_operands.attention_backward, args);
}

HsStatus hs_check_attention_cached(const HsAttentionCachedArgs *args)
{
    HS_TRY(hs_check_operands("attention_cached", &hs_operands.attention_cached, args));
    const int64_t room = args->k_cache.shape[1], end = args->position_start + args->heads.sequence_length;
    if (args->position_start < 0 || end > room)
        return hs_fail(HS_ESHAPE, "attention_cached: positions %" PRId64 "..%" PRId64 " do not fit a cache of %" PRId64,
                       args->position_start, end - 1, room);
    return HS_OK;
}
