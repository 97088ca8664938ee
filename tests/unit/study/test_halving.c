/* SPDX-License-Identifier: MIT
 *
 * Successive halving: rungs and lengths by hand, and which runs continue, with ties and with runs that diverged.
 */
#include <criterion/criterion.h>

#include <math.h>

#include "runtime/study/halving.h"

Test(halving, rungs_leave_one_and_are_three_at_most)
{
    static const struct {
        int64_t combinations, eta;
        int rungs;
    } cases[] = { { 1, 3, 1 }, { 2, 3, 1 }, { 3, 3, 2 }, { 8, 3, 2 }, { 9, 3, 3 },    { 27, 3, 3 },   { 4096, 3, 3 },
                  { 1, 2, 1 }, { 2, 2, 2 }, { 3, 2, 2 }, { 4, 2, 3 }, { 99, 100, 1 }, { 100, 100, 2 } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        cr_expect_eq(hs_halving_rungs(cases[i].combinations, cases[i].eta, INT64_MAX), cases[i].rungs,
                     "%lld by %lld: %d", (long long)cases[i].combinations, (long long)cases[i].eta,
                     hs_halving_rungs(cases[i].combinations, cases[i].eta, INT64_MAX));
}

Test(halving, no_rung_has_fewer_than_forty_steps)
{
    cr_expect_eq(hs_halving_rungs(27, 3, 360), 3);
    cr_expect_eq(hs_halving_rungs(27, 3, 359), 2);
    cr_expect_eq(hs_halving_rungs(27, 3, 120), 2);
    cr_expect_eq(hs_halving_rungs(27, 3, 119), 1);
    cr_expect_eq(hs_halving_rungs(27, 3, 1), 1);
}

Test(halving, lengths_are_powers_and_the_last_is_full)
{
    cr_expect_eq(hs_halving_divisor(3, 3, 0), 9);
    cr_expect_eq(hs_halving_divisor(3, 3, 1), 3);
    cr_expect_eq(hs_halving_divisor(3, 3, 2), 1);
    cr_expect_eq(hs_halving_divisor(2, 10, 0), 512);
    cr_expect_eq(hs_halving_divisor(7, 1, 0), 1);
    cr_expect_eq(hs_halving_divisor(7, 0, 0), 1);
    cr_expect_eq(hs_halving_divisor(100, 10, 0), 1000000000000000000);
}

Test(halving, a_part_is_kept_rounded_down_but_one_at_least)
{
    cr_expect_eq(hs_halving_keep(12, 3), 4);
    cr_expect_eq(hs_halving_keep(11, 3), 3);
    cr_expect_eq(hs_halving_keep(3, 3), 1);
    cr_expect_eq(hs_halving_keep(2, 3), 1);
    cr_expect_eq(hs_halving_keep(1, 3), 1);
}

/* survivors "x..x" of `count` losses */
static void expect_survivors(const double *losses, int count, int64_t eta, const char *expected)
{
    bool survives[16];
    int64_t kept = 0;
    cr_assert_leq(count, 16);
    for (int i = 0; i < count; i++)
        kept += expected[i] == 'x';
    cr_expect_eq(hs_halving_survivors(losses, count, eta, survives), kept, "%s", expected);
    for (int i = 0; i < count; i++)
        cr_expect_eq(survives[i], expected[i] == 'x', "%s: %d", expected, i);
}

Test(halving, the_lowest_losses_continue)
{
    expect_survivors((double[]){ 5, 1, 4, 2, 3, 6 }, 6, 3, ".x.x..");
    expect_survivors((double[]){ 5, 1, 4, 2, 3, 6 }, 6, 2, ".x.xx.");
    expect_survivors((double[]){ 5, 1 }, 2, 3, ".x");
    expect_survivors((double[]){ 5 }, 1, 3, "x");
}

Test(halving, ties_stay_together)
{
    expect_survivors((double[]){ 2, 1, 2, 2, 3, 6 }, 6, 3, "xxxx..");
    expect_survivors((double[]){ 2, 2, 2 }, 3, 3, "xxx");
    expect_survivors((double[]){ 1, 2, 2 }, 3, 3, "x..");
}

Test(halving, what_diverged_never_continues)
{
    expect_survivors((double[]){ INFINITY, 1, INFINITY, INFINITY, INFINITY, INFINITY }, 6, 3, ".x....");
    expect_survivors((double[]){ INFINITY, INFINITY, INFINITY }, 3, 3, "...");
    expect_survivors((double[]){ NAN, 3, 2, -INFINITY, 1, 4 }, 6, 3, "....x.");
}
