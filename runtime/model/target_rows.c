/* SPDX-License-Identifier: MIT
 *
 * Listing the rows that have a target (target_rows.h).
 */
#include "runtime/model/target_rows.h"

int64_t hs_target_rows_list(const int32_t *targets, int64_t total, int32_t *list)
{
    int64_t count = 0;
    for (int64_t row = 0; row < total; row++)
        if (targets[row] >= 0)
            list[count++] = (int32_t)row;
    for (int64_t i = count; i < total; i++)
        list[i] = -1;
    return count;
}

static int64_t part_of(int64_t total)
{
    return (total + HS_TARGET_ROWS_SIZES - 1) / HS_TARGET_ROWS_SIZES;
}

int hs_target_rows_size(int64_t total, int64_t count)
{
    return (int)((count + part_of(total) - 1) / part_of(total));
}

int64_t hs_target_rows_of_size(int64_t total, int size)
{
    const int64_t rows = size * part_of(total);
    return rows < total ? rows : total;
}
