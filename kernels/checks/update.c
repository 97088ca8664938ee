/* SPDX-License-Identifier: MIT
 *
 * Rules of the update rules and of a step's scalars.
 */
#include "kernels/checks/checks.h"

#include <inttypes.h>

/* All optional; an importance without an anchor would silently protect nothing. */
static HsStatus check_protection(const char *op, const HsProtection *protection, int64_t count)
{
    const bool anchored = hs_tensor_present(&protection->anchor);
    if (hs_tensor_present(&protection->path))
        HS_TRY(hs_rule_count(op, "path", HS_DTYPES_WIDE, &protection->path, count));
    if (hs_tensor_present(&protection->pull))
        HS_TRY(hs_rule_count(op, "pull", HS_DTYPES_WIDE, &protection->pull, count));
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

static HsStatus check_epilogue(const char *op, const HsTensor *weight, const HsUpdateEpilogue *epilogue)
{
    const int64_t count = hs_tensor_count(weight);
    if (epilogue->back_count < 0 || epilogue->back_count > HS_MOST_STEPS_BACK || epilogue->snapshot_count < 0 ||
        epilogue->snapshot_count > HS_MOST_STEPS_BACK)
        return hs_fail(HS_EINVAL, "%s: %d steps back and %d snapshots, expected 0 to %d of each", op,
                       epilogue->back_count, epilogue->snapshot_count, HS_MOST_STEPS_BACK);
    for (int i = 0; i < epilogue->back_count; i++)
        HS_TRY(hs_rule_count(op, "anchor of a step back", HS_DTYPES_WIDE, &epilogue->back[i].anchor, count));
    if (hs_tensor_present(&epilogue->average))
        HS_TRY(hs_rule_count(op, "average", HS_DTYPES_WIDE, &epilogue->average, count));
    for (int i = 0; i < epilogue->snapshot_count; i++)
        HS_TRY(hs_rule_count(op, "snapshot", HS_DTYPES_WIDE, &epilogue->snapshots[i], count));
    HS_TRY(check_packed(op, weight, epilogue->packed_transposed, true));
    return check_packed(op, weight, epilogue->packed, false);
}

static HsStatus check_update(const char *op, const HsUpdateArgs *update)
{
    const int64_t count = hs_tensor_count(&update->weight);
    HS_TRY(hs_rule_parameter(op, &update->master, &update->weight));
    HS_TRY(hs_rule_count(op, "grad", HS_DTYPES_ACT, &update->grad, count));
    /* written so that NaN fails too */
    if (!(update->protection.strength >= 0.0f))
        return hs_fail(HS_EINVAL, "%s: the penalty's strength must be at least 0 (got %g)", op,
                       (double)update->protection.strength);
    if (update->rng.row_offset % HS_SPAN_GRAIN != 0)
        return hs_fail(HS_EINVAL, "%s: a part of a parameter begins at element %lld, expected a multiple of %d", op,
                       (long long)update->rng.row_offset, HS_SPAN_GRAIN);
    HS_TRY(check_epilogue(op, &update->weight, &update->epilogue));
    return check_protection(op, &update->protection, count);
}

HsStatus hs_check_adamw(const HsAdamWArgs *args)
{
    const int64_t count = hs_tensor_count(&args->update.weight);
    HS_TRY(check_update("adamw", &args->update));
    if (args->schedule_free && !(args->beta1 > 0.0f && args->beta1 < 1.0f))
        return hs_fail(HS_EINVAL, "adamw: without a schedule beta1 must be above 0 and below 1 (got %g)",
                       (double)args->beta1);
    HS_TRY(hs_rule_count("adamw", "m", HS_DTYPES_WIDE | HS_DTYPE_BIT(HS_BF16), &args->m, count));
    HS_TRY(hs_rule_count("adamw", "v", HS_DTYPES_WIDE | HS_DTYPE_BIT(HS_BF16), &args->v, count));
    return hs_rule_same_dtype("adamw", "v", &args->v, "m", &args->m);
}

HsStatus hs_check_adamw8bit(const HsAdamW8bitArgs *args)
{
    const int64_t count = hs_tensor_count(&args->update.weight), blocks = hs_dynamic_blocks(count);
    HS_TRY(check_update("adamw8bit", &args->update));
    if ((unsigned)args->map >= HS_MOMENT_MAPS)
        return hs_fail(HS_EINVAL, "adamw8bit: there is no map %d of moments", (int)args->map);
    HS_TRY(hs_rule_count("adamw8bit", "m", HS_DTYPE_BIT(HS_U8), &args->m, count));
    HS_TRY(hs_rule_count("adamw8bit", "v", HS_DTYPE_BIT(HS_U8), &args->v, count));
    HS_TRY(hs_rule_count("adamw8bit", "m_absmax", HS_DTYPES_WIDE, &args->m_absmax, blocks));
    return hs_rule_count("adamw8bit", "v_absmax", HS_DTYPES_WIDE, &args->v_absmax, blocks);
}

HsStatus hs_check_sgd(const HsSgdArgs *args)
{
    HS_TRY(check_update("sgd", &args->update));
    if (args->momentum != 0.0f || hs_tensor_present(&args->buffer))
        return hs_rule_count("sgd", "buffer", HS_DTYPES_WIDE, &args->buffer, hs_tensor_count(&args->update.weight));
    return HS_OK;
}

static HsStatus name_tensor(HsStatus status, int index)
{
    return status == HS_OK ? HS_OK : hs_error_prefix(status, "update_list, tensor %d", index);
}

/* A refused tensor is named by its place in its rule's array. */
HsStatus hs_check_update_list(const HsUpdateListArgs *args)
{
    for (int i = 0; i < args->adamw_count; i++)
        HS_TRY(name_tensor(hs_check_adamw(&args->adamw[i]), i));
    for (int i = 0; i < args->adamw8bit_count; i++)
        HS_TRY(name_tensor(hs_check_adamw8bit(&args->adamw8bit[i]), i));
    for (int i = 0; i < args->sgd_count; i++)
        HS_TRY(name_tensor(hs_check_sgd(&args->sgd[i]), i));
    return HS_OK;
}

HsStatus hs_check_momentum(const HsMomentumArgs *args)
{
    const int64_t count = hs_tensor_count(&args->update.weight);
    HS_TRY(check_update("momentum", &args->update));
    if (hs_tensor_present(&args->m))
        HS_TRY(hs_rule_count("momentum", "m", HS_DTYPES_WIDE, &args->m, count));
    return hs_rule_count("momentum", "direction", HS_DTYPES_WIDE, &args->direction, count);
}

HsStatus hs_check_normalize(const HsNormalizeArgs *args)
{
    if (!(args->epsilon > 0.0f))
        return hs_fail(HS_EINVAL, "normalize: epsilon must be above 0 (got %g)", (double)args->epsilon);
    return hs_check_operands("normalize", &hs_operands.normalize, args);
}

HsStatus hs_check_scale_neurons(const HsScaleNeuronsArgs *args)
{
    if (!(args->beta2 >= 0.0f && args->beta2 < 1.0f) || !(args->epsilon > 0.0f))
        return hs_fail(HS_EINVAL, "scale_neurons: need 0 <= beta2 < 1 and epsilon above 0 (got %g and %g)",
                       (double)args->beta2, (double)args->epsilon);
    return hs_check_operands("scale_neurons", &hs_operands.scale_neurons, args);
}

HsStatus hs_check_random_matrix(const HsRandomMatrixArgs *args)
{
    if (args->interval < 1)
        return hs_fail(HS_EINVAL, "random_matrix: interval must be at least 1");
    return hs_check_operands("random_matrix", &hs_operands.random_matrix, args);
}

HsStatus hs_check_channel_factors(const HsChannelFactorsArgs *args)
{
    const char *op = "channel_factors";
    const bool limited = hs_tensor_present(&args->g);
    if (!(args->beta1 >= 0.0f && args->beta1 < 1.0f) || !(args->beta2 >= 0.0f && args->beta2 < 1.0f))
        return hs_fail(HS_EINVAL, "%s: need 0 <= beta1 < 1 and 0 <= beta2 < 1 (got %g and %g)", op, (double)args->beta1,
                       (double)args->beta2);
    if (!(args->scale > 0.0f))
        return hs_fail(HS_EINVAL, "%s: scale must be above 0 (got %g)", op, (double)args->scale);
    if (limited != hs_tensor_present(&args->norm))
        return hs_fail(HS_EINVAL, "%s: %s is given without %s", op, limited ? "g" : "norm", limited ? "norm" : "g");
    if (limited && !(args->growth >= 1.0f))
        return hs_fail(HS_EINVAL, "%s: growth must be at least 1 (got %g)", op, (double)args->growth);
    HS_TRY(hs_check_operands(op, &hs_operands.channel_factors, args));
    const int64_t channels = args->factors.shape[0];
    if (limited && args->g.shape[args->of_columns ? 1 : 0] != channels)
        return hs_fail(HS_ESHAPE, "%s: g is [%" PRId64 ",%" PRId64 "], expected %" PRId64 " %s", op, args->g.shape[0],
                       args->g.shape[1], channels, args->of_columns ? "columns" : "rows");
    return HS_OK;
}

static HsStatus check_factors(const HsDescendArgs *args)
{
    const HsTensor *const direction = &args->direction;
    if (!hs_tensor_present(&args->factors))
        return HS_OK;
    if (direction->rank != 2)
        return hs_fail(HS_ESHAPE, "descend: factors are of a direction's rows or columns, and it has rank %d",
                       direction->rank);
    HS_TRY(hs_rule_count("descend", "direction with factors", HS_DTYPES_WIDE, direction, hs_tensor_count(direction)));
    return hs_rule_count("descend", "factors", HS_DTYPES_WIDE, &args->factors, direction->shape[args->of_columns]);
}

HsStatus hs_check_descend(const HsDescendArgs *args)
{
    HS_TRY(check_update("descend", &args->update));
    HS_TRY(
        hs_rule_count("descend", "direction", HS_DTYPES_ACT, &args->direction, hs_tensor_count(&args->update.weight)));
    return check_factors(args);
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
