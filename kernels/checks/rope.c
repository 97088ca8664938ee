/* SPDX-License-Identifier: MIT
 *
 * Rules of the rotary embedding beyond its operands' rows.
 */
#include "kernels/checks/checks.h"

#include <inttypes.h>

HsStatus hs_check_rope(const HsRopeArgs *args)
{
    if (args->heads.head_dim % 2 != 0)
        return hs_fail(HS_EINVAL, "rope: head_dim must be even, it is rotated in pairs (got %" PRId64 ")",
                       args->heads.head_dim);
    const HsRopeRule *rule = &args->rule;
    if (!(rule->theta > 0.0))
        return hs_fail(HS_EINVAL, "rope: theta must be positive (got %g)", rule->theta);
    if (rule->rotated < 0 || rule->rotated > args->heads.head_dim || rule->rotated % 2 != 0)
        return hs_fail(HS_EINVAL, "rope: of a head's %" PRId64 " features an even number is rotated (got %" PRId64 ")",
                       args->heads.head_dim, rule->rotated);
    if (rule->scaling != HS_ROPE_NONE && !(rule->factor >= 1.0))
        return hs_fail(HS_EINVAL, "rope: factor must be at least 1 (got %g)", rule->factor);
    const bool by_turns = rule->scaling == HS_ROPE_LLAMA3 || rule->scaling == HS_ROPE_YARN;
    if (by_turns && !(rule->original_length > 0.0 && rule->low > 0.0 && rule->high > rule->low))
        return hs_fail(HS_EINVAL, "rope: length %g and bounds %g, %g must be positive and rise", rule->original_length,
                       rule->low, rule->high);
    if (rule->scaling == HS_ROPE_YARN && !(rule->theta > 1.0 && rule->attention_factor >= 0.0))
        return hs_fail(HS_EINVAL, "rope: yarn needs a theta above 1 and no negative attention_factor (got %g, %g)",
                       rule->theta, rule->attention_factor);
    if (rule->scaling == HS_ROPE_LONGROPE &&
        !(rule->divisors && rule->original_length > 1.0 && rule->attention_factor >= 0.0))
        return hs_fail(HS_EINVAL,
                       "rope: longrope needs divisors, a length above 1 and no negative attention_factor "
                       "(got %g, %g)",
                       rule->original_length, rule->attention_factor);
    if (args->position_start < 0)
        return hs_fail(HS_EINVAL, "rope: position_start must be at least 0 (got %" PRId64 ")", args->position_start);
    return hs_check_operands("rope", &hs_operands.rope, args);
}
