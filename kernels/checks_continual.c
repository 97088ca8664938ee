/* SPDX-License-Identifier: MIT
 *
 * Shape and dtype rules of continual learning: importance, anchors, sampled labels, interpolation.
 */
#include "kernels/checks.h"

#include <inttypes.h>
#include <stdio.h>

enum { NAME_BYTES = 32 };

/* A host array of `count` tensors must be there when there are any. */
static HsStatus check_array(const char *op, const char *name, const HsTensor *tensors, int count)
{
    if (count >= 0 && (count == 0 || tensors != NULL))
        return HS_OK;
    return hs_fail(HS_EINVAL, "%s: %s is missing, expected %d of them", op, name, count);
}

/* "x 3": which tensor of an array. */
static const char *numbered(const char *name, int index, char text[NAME_BYTES])
{
    snprintf(text, NAME_BYTES, "%s %d", name, index);
    return text;
}

HsStatus hs_check_combine(const HsCombineArgs *args)
{
    const int64_t count = hs_tensor_count(&args->x);
    HS_TRY(hs_rule_count("combine", "x", HS_DTYPES_ACT, &args->x, count));
    return hs_rule_count("combine", "y", HS_DTYPES_ACT, &args->y, count);
}

HsStatus hs_check_dot(const HsDotArgs *args)
{
    char name[NAME_BYTES];
    HS_TRY(check_array("dot", "x", args->x, args->count));
    HS_TRY(check_array("dot", "y", args->y, args->count));
    for (int i = 0; i < args->count; i++) {
        const int64_t count = hs_tensor_count(&args->x[i]);
        HS_TRY(hs_rule_count("dot", numbered("x", i, name), HS_DTYPES_ACT, &args->x[i], count));
        HS_TRY(hs_rule_count("dot", numbered("y", i, name), HS_DTYPES_ACT, &args->y[i], count));
    }
    return HS_OK;
}

HsStatus hs_check_sample_labels(const HsSampleLabelsArgs *args)
{
    HS_RULE("sample_labels", logits, HS_DTYPES_WIDE, 2, 0, 0);
    HS_RULE("sample_labels", targets, HS_DTYPES_INDEX, 1, args->logits.shape[0]);
    return HS_OK;
}

HsStatus hs_check_square_accumulate(const HsSquareAccumulateArgs *args)
{
    const int64_t count = hs_tensor_count(&args->grad);
    HS_TRY(hs_rule_count("square_accumulate", "grad", HS_DTYPES_ACT, &args->grad, count));
    return hs_rule_count("square_accumulate", "accumulator", HS_DTYPES_WIDE, &args->accumulator, count);
}

HsStatus hs_check_consolidate(const HsConsolidateArgs *args)
{
    const int64_t count = hs_tensor_count(&args->parameter);
    HS_TRY(hs_rule_count("consolidate", "parameter", HS_DTYPES_ACT, &args->parameter, count));
    HS_TRY(hs_rule_count("consolidate", "fresh", HS_DTYPES_WIDE, &args->fresh, count));
    HS_TRY(hs_rule_count("consolidate", "importance", HS_DTYPES_WIDE, &args->importance, count));
    HS_TRY(hs_rule_count("consolidate", "anchor", HS_DTYPES_WIDE, &args->anchor, count));
    if (!args->merge && args->offset != NULL)
        return hs_fail(HS_EINVAL, "consolidate: offset is given, but only merge adds to it");
    /* in a dry run neither has an address */
    if (args->merge && args->fresh.data != NULL && args->fresh.data == args->anchor.data)
        return hs_fail(HS_EINVAL, "consolidate: fresh and anchor share their memory, which merge cannot use");
    if (args->merge && args->anchor.data != NULL && args->offset == NULL)
        return hs_fail(HS_EINVAL, "consolidate: offset is missing, merge adds to it");
    return HS_OK;
}

HsStatus hs_check_consolidate_path(const HsConsolidatePathArgs *args)
{
    const int64_t count = hs_tensor_count(&args->parameter);
    HS_TRY(hs_rule_count("consolidate_path", "parameter", HS_DTYPES_ACT, &args->parameter, count));
    HS_TRY(hs_rule_count("consolidate_path", "path", HS_DTYPES_WIDE, &args->path, count));
    HS_TRY(hs_rule_count("consolidate_path", "importance", HS_DTYPES_WIDE, &args->importance, count));
    HS_TRY(hs_rule_count("consolidate_path", "anchor", HS_DTYPES_WIDE, &args->anchor, count));
    /* written so that NaN fails too; at 0 a parameter that never moved would give 0 / 0 */
    if (!(args->damping > 0.0f))
        return hs_fail(HS_EINVAL, "consolidate_path: damping must be more than 0 (got %g)", (double)args->damping);
    return HS_OK;
}

HsStatus hs_check_importance_stats(const HsImportanceStatsArgs *args)
{
    char name[NAME_BYTES];
    HS_TRY(check_array("importance_stats", "tensors", args->tensors, args->count));
    for (int i = 0; i < args->count; i++)
        HS_TRY(hs_rule_count("importance_stats", numbered("tensor", i, name), HS_DTYPES_WIDE, &args->tensors[i],
                             hs_tensor_count(&args->tensors[i])));
    return HS_OK;
}

HsStatus hs_check_penalty(const HsPenaltyArgs *args)
{
    char name[NAME_BYTES];
    HS_TRY(check_array("penalty", "importance", args->importance, args->count));
    HS_TRY(check_array("penalty", "anchor", args->anchor, args->count));
    HS_TRY(check_array("penalty", "parameter", args->parameter, args->count));
    for (int i = 0; i < args->count; i++) {
        const int64_t count = hs_tensor_count(&args->parameter[i]);
        HS_TRY(hs_rule_count("penalty", numbered("parameter", i, name), HS_DTYPES_ACT, &args->parameter[i], count));
        if (hs_tensor_present(&args->anchor[i]))
            HS_TRY(hs_rule_count("penalty", numbered("anchor", i, name), HS_DTYPES_WIDE, &args->anchor[i], count));
        if (hs_tensor_present(&args->importance[i]))
            HS_TRY(
                hs_rule_count("penalty", numbered("importance", i, name), HS_DTYPES_WIDE, &args->importance[i], count));
    }
    return HS_OK;
}

HsStatus hs_check_interpolate(const HsInterpolateArgs *args)
{
    HS_TRY(hs_rule_parameter("interpolate", &args->master, &args->weight));
    return hs_rule_count("interpolate", "anchor", HS_DTYPES_WIDE, &args->anchor, hs_tensor_count(&args->weight));
}
