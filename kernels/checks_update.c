/* SPDX-License-Identifier: MIT
 *
 * Rules of the gradient statistics, of the update rules and of a step's scalars.
 */
#include "kernels/checks.h"

#include <inttypes.h>
#include <stdio.h>

HsStatus hs_check_grad_stats(const HsGradStatsArgs *args)
{
    if (args->count < 0 || (args->count > 0 && args->tensors == NULL))
        return hs_fail(HS_EINVAL, "grad_stats: tensors is missing, expected %d of them", args->count);
    for (int i = 0; i < args->count; i++) {
        char name[32];
        snprintf(name, sizeof name, "tensor %d", i);
        HS_TRY(hs_rule_count("grad_stats", name, HS_DTYPES_ACT, &args->tensors[i], hs_tensor_count(&args->tensors[i])));
    }
    return HS_OK;
}

/* All optional; an importance without an anchor would silently protect nothing. */
static HsStatus check_protection(const char *op, const HsProtection *protection, int64_t count)
{
    const bool anchored = hs_tensor_present(&protection->anchor);
    if (hs_tensor_present(&protection->path))
        HS_TRY(hs_rule_count(op, "path", HS_DTYPES_WIDE, &protection->path, count));
    if (anchored)
        HS_TRY(hs_rule_count(op, "anchor", HS_DTYPES_WIDE, &protection->anchor, count));
    if (!hs_tensor_present(&protection->importance))
        return HS_OK;
    if (!anchored)
        return hs_fail(HS_EINVAL, "%s: importance is given without an anchor", op);
    return hs_rule_count(op, "importance", HS_DTYPES_WIDE, &protection->importance, count);
}

static HsStatus check_packed(const char *op, const HsTensor *weight, HsPacked *packed, bool transposed)
{
    if (packed == NULL || packed->data == NULL)
        return HS_OK;
    const HsPackWeightArgs args = { .w = *weight, .transposed = transposed, .packed = packed };
    return hs_error_prefix(hs_check_pack_weight(&args), "%s", op);
}

static HsStatus check_tail(const char *op, const HsTensor *weight, const HsUpdateTail *tail)
{
    const int64_t count = hs_tensor_count(weight);
    if (tail->back_count < 0 || tail->back_count > HS_MOST_STEPS_BACK || tail->snapshot_count < 0 ||
        tail->snapshot_count > HS_MOST_STEPS_BACK)
        return hs_fail(HS_EINVAL, "%s: %d steps back and %d snapshots, expected 0 to %d of each", op, tail->back_count,
                       tail->snapshot_count, HS_MOST_STEPS_BACK);
    for (int i = 0; i < tail->back_count; i++)
        HS_TRY(hs_rule_count(op, "anchor of a step back", HS_DTYPES_WIDE, &tail->back[i].anchor, count));
    for (int i = 0; i < tail->snapshot_count; i++)
        HS_TRY(hs_rule_count(op, "snapshot", HS_DTYPES_WIDE, &tail->snapshots[i], count));
    HS_TRY(check_packed(op, weight, tail->packed_transposed, true));
    return check_packed(op, weight, tail->packed, false);
}

static HsStatus check_update(const char *op, const HsTensor *grad, const HsTensor *master, const HsTensor *weight,
                             const HsProtection *protection, const HsUpdateTail *tail)
{
    const int64_t count = hs_tensor_count(weight);
    HS_TRY(hs_rule_parameter(op, master, weight));
    HS_TRY(hs_rule_count(op, "grad", HS_DTYPES_ACT, grad, count));
    /* written so that NaN fails too */
    if (!(protection->strength >= 0.0f))
        return hs_fail(HS_EINVAL, "%s: the penalty's strength must be at least 0 (got %g)", op,
                       (double)protection->strength);
    HS_TRY(check_tail(op, weight, tail));
    return check_protection(op, protection, count);
}

HsStatus hs_check_adamw(const HsAdamWArgs *args)
{
    HS_TRY(check_update("adamw", &args->grad, &args->master, &args->weight, &args->protection, &args->tail));
    HS_TRY(hs_rule_count("adamw", "m", HS_DTYPES_WIDE, &args->m, hs_tensor_count(&args->weight)));
    return hs_rule_count("adamw", "v", HS_DTYPES_WIDE, &args->v, hs_tensor_count(&args->weight));
}

HsStatus hs_check_sgd(const HsSgdArgs *args)
{
    HS_TRY(check_update("sgd", &args->grad, &args->master, &args->weight, &args->protection, &args->tail));
    if (args->momentum != 0.0f || hs_tensor_present(&args->buffer))
        return hs_rule_count("sgd", "buffer", HS_DTYPES_WIDE, &args->buffer, hs_tensor_count(&args->weight));
    return HS_OK;
}

HsStatus hs_check_begin_step(const HsBeginStepArgs *args)
{
    if (args->input == NULL || args->state == NULL || args->gradient_scales == NULL)
        return hs_fail(HS_EINVAL, "begin_step: input, state or gradient_scales is missing");
    return HS_OK;
}

HsStatus hs_check_prepare_step(const HsPrepareStepArgs *args)
{
    if (args->count < 0 || (args->count > 0 && (args->sum_squares == NULL || args->nonfinite == NULL)))
        return hs_fail(HS_EINVAL, "prepare_step: the statistics of %d tensors are missing", args->count);
    if (args->input == NULL || args->state == NULL || args->scalars == NULL || args->outcome == NULL)
        return hs_fail(HS_EINVAL, "prepare_step: input, state, scalars or outcome is missing");
    return HS_OK;
}
