/* SPDX-License-Identifier: MIT
 *
 * Rules of attention beyond its operands' rows.
 */
#include "kernels/checks/checks.h"

#include <inttypes.h>
#include <math.h>

/* Kernels take the scale out of the maximum, which turns hidden scores around where it is not positive. */
static HsStatus check_rule(const char *op, const HsScoreRule *rule)
{
    if (!(rule->scale > 0.0f) || !isfinite(rule->scale))
        return hs_fail(HS_EINVAL, "%s: the scale is %g; it must be positive and finite", op, (double)rule->scale);
    HS_TRY(hs_rule_cap(op, "the cap", rule->cap));
    if (rule->window < 0)
        return hs_fail(HS_EINVAL, "%s: the window is %" PRId64 "; it must be positive, or 0 for none", op,
                       rule->window);
    return HS_OK;
}

HsStatus hs_check_attention_forward(const HsAttentionArgs *args)
{
    const char *op = "attention_forward";
    HS_TRY(hs_rule_probability(op, args->dropout));
    HS_TRY(check_rule(op, &args->rule));
    return hs_check_operands(op, &hs_operands.attention_forward, args);
}

HsStatus hs_check_attention_backward(const HsAttentionBackwardArgs *args)
{
    const char *op = "attention_backward";
    HS_TRY(hs_rule_probability(op, args->dropout));
    HS_TRY(check_rule(op, &args->rule));
    return hs_check_operands(op, &hs_operands.attention_backward, args);
}

HsStatus hs_check_sink_backward(const HsSinkBackwardArgs *args)
{
    return hs_check_operands("sink_backward", &hs_operands.sink_backward, args);
}

HsStatus hs_check_attention_cached(const HsAttentionCachedArgs *args)
{
    HS_TRY(check_rule("attention_cached", &args->rule));
    if (hs_tensor_present(&args->rule.starts))
        return hs_fail(HS_EINVAL, "attention_cached: a cache has one document, and starts are given");
    HS_TRY(hs_check_operands("attention_cached", &hs_operands.attention_cached, args));
    const int64_t room = args->k_cache.shape[1], end = args->position_start + args->heads.sequence_length;
    if (args->position_start < 0 || end > room)
        return hs_fail(HS_ESHAPE, "attention_cached: positions %" PRId64 "..%" PRId64 " do not fit a cache of %" PRId64,
                       args->position_start, end - 1, room);
    return HS_OK;
}
