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
    if (!(args->theta > 0.0))
        return hs_fail(HS_EINVAL, "rope: theta must be positive (got %g)", args->theta);
    if (args->position_start < 0)
        return hs_fail(HS_EINVAL, "rope: position_start must be at least 0 (got %" PRId64 ")", args->position_start);
    return hs_check_operands("rope", &hs_operands.rope, args);
}
