/* SPDX-License-Identifier: MIT
 *
 * Rules of continual learning beyond its operands' rows: ranges of columns, the end of a task, interpolation.
 */
#include "kernels/checks/checks.h"

HsStatus hs_check_copy_columns(const HsCopyColumnsArgs *args)
{
    HS_TRY(hs_check_operands("copy_columns", &hs_operands.copy_columns, args));
    if (args->columns < 1 || args->from < 0 || args->from > args->x.shape[1] - args->columns)
        return hs_fail(HS_ESHAPE, "copy_columns: %lld columns from %lld on, x has %lld", (long long)args->columns,
                       (long long)args->from, (long long)args->x.shape[1]);
    if (args->to < 0 || args->to > args->y.shape[1] - args->columns)
        return hs_fail(HS_ESHAPE, "copy_columns: %lld columns to %lld on, y has %lld", (long long)args->columns,
                       (long long)args->to, (long long)args->y.shape[1]);
    return HS_OK;
}

HsStatus hs_check_consolidate(const HsConsolidateArgs *args)
{
    HS_TRY(hs_check_operands("consolidate", &hs_operands.consolidate, args));
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
    HS_TRY(hs_check_operands("consolidate_path", &hs_operands.consolidate_path, args));
    /* written so that NaN fails too; at 0 a parameter that never moved would give 0 / 0 */
    if (!(args->damping > 0.0f))
        return hs_fail(HS_EINVAL, "consolidate_path: damping must be more than 0 (got %g)", (double)args->damping);
    return HS_OK;
}

HsStatus hs_check_interpolate(const HsInterpolateArgs *args)
{
    HS_TRY(hs_check_operands("interpolate", &hs_operands.interpolate, args));
    return hs_rule_parameter("interpolate", &args->master, &args->weight);
}
