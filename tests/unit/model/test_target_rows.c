/* SPDX-License-Identifier: MIT
 *
 * Lists of rows with a target, of every pattern of nine, and the few sizes that recorded steps have.
 */
#include <criterion/criterion.h>

#include "runtime/model/target_rows.h"

Test(target_rows, are_listed_in_order_with_none_behind)
{
    enum { ROWS = 9 };
    for (unsigned pattern = 0; pattern < 1u << ROWS; pattern++) {
        int32_t targets[ROWS], list[ROWS];
        for (int row = 0; row < ROWS; row++)
            targets[row] = pattern >> row & 1u ? row % 2 : -1;
        const int64_t count = hs_target_rows_list(targets, ROWS, list);
        cr_assert_eq(count, __builtin_popcount(pattern));
        for (int i = 0; i < ROWS; i++) {
            cr_assert(i < count ? targets[list[i]] >= 0 : list[i] == -1);
            cr_assert(i == 0 || i >= count || list[i - 1] < list[i]);
        }
    }
}

Test(target_rows, have_few_sizes)
{
    static const int64_t totals[] = { 1, 5, 31, 32, 33, 100, 4096, 4097 };
    for (size_t t = 0; t < sizeof totals / sizeof *totals; t++) {
        const int64_t total = totals[t];
        for (int64_t count = 0; count <= total; count++) {
            const int size = hs_target_rows_size(total, count);
            const int64_t rows = hs_target_rows_of_size(total, size);
            cr_assert(size >= 0 && size <= HS_TARGET_ROWS_SIZES);
            cr_assert(rows >= count && rows <= total, "%lld of %lld", (long long)count, (long long)total);
            cr_assert_leq(rows - count, total / HS_TARGET_ROWS_SIZES, "more are added than a part has");
            cr_assert_eq(size == 0, count == 0);
        }
    }
}
