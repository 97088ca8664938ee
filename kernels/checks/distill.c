/* SPDX-License-Identifier: MIT
 *
 * Rules of distillation beyond its operands' rows.
 */
#include "kernels/checks/checks.h"

static HsStatus check_kept(const char *op, const HsTensor *logits, const HsTensor *index)
{
    const int64_t kept = index->shape[1], vocabulary = logits->shape[1];
    if (kept > vocabulary || kept > HS_MOST_KEPT_LOGITS)
        return hs_fail(HS_ESHAPE, "%s: %lld logits of a row are more than its %lld, or than %d", op, (long long)kept,
                       (long long)vocabulary, HS_MOST_KEPT_LOGITS);
    return HS_OK;
}

static HsStatus check_own_gradient(const char *op, const HsTensor *logits, const HsTensor *dlogits)
{
    if (logits->data != NULL && logits->data == dlogits->data)
        return hs_fail(HS_EINVAL, "%s: dlogits and logits share their memory, and both are read", op);
    return HS_OK;
}

HsStatus hs_check_top_logits(const HsTopLogitsArgs *args)
{
    HS_TRY(hs_check_operands("top_logits", &hs_operands.top_logits, args));
    HS_TRY(hs_rule_cap("top_logits", "the cap", args->cap));
    return check_kept("top_logits", &args->logits, &args->index);
}

HsStatus hs_check_match_logits(const HsMatchLogitsArgs *args)
{
    HS_TRY(hs_check_operands("match_logits", &hs_operands.match_logits, args));
    HS_TRY(hs_rule_cap("match_logits", "the cap", args->cap));
    HS_TRY(check_kept("match_logits", &args->logits, &args->index));
    return check_own_gradient("match_logits", &args->logits, &args->dlogits);
}

HsStatus hs_check_distill(const HsDistillArgs *args)
{
    HS_TRY(hs_check_operands("distill", &hs_operands.distill, args));
    HS_TRY(hs_rule_cap("distill", "the cap", args->cap));
    HS_TRY(hs_rule_cap("distill", "the teacher's cap", args->teacher_cap));
    const HsTeaching *const rules[] = { &args->fresh, &args->again };
    for (int i = 0; i < 2; i++)
        if (rules[i]->weight != 0.0f && !(rules[i]->temperature > 0.0f))
            return hs_fail(HS_EINVAL, "distill: temperature must be more than 0 (got %g)",
                           (double)rules[i]->temperature);
    return check_own_gradient("distill", &args->logits, &args->dlogits);
}
