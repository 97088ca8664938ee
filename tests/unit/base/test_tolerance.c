/* SPDX-License-Identifier: MIT
 *
 * The rounding-error bound: its closed form at chosen points, and that real float sums stay below it while a sum with
 * one wrong term does not.
 */
#include <criterion/criterion.h>
#include <math.h>

#include "kernels/base/rng.h"
#include "kernels/base/tolerance.h"

Test(tolerance, closed_form)
{
    /* No terms: only the one rounding of the result, plus the spacing near zero. */
    cr_expect_eq(hs_tolerance(0, 0, HS_F32, HS_BF16, 5.0, 2.0), 0x1p-8 * 2.0 + 0x1p-133);
    cr_expect_eq(hs_tolerance(0, 0, HS_F32, HS_F16, 5.0, -1.0), 0x1p-11 + 0x1p-24);
    /* gamma_n = n u / (1 - n u) with n u = 1/4: a third. */
    cr_expect_eq(hs_tolerance((int64_t)1 << 22, 0, HS_F32, HS_F64, 3.0, 0.0), 1.0 + 0x1p-1074);
    cr_expect_eq(hs_tolerance(1, 1, HS_BF16, HS_F64, 126.0, 0.0), hs_tolerance(2, 0, HS_BF16, HS_F64, 126.0, 0.0));
}

Test(tolerance, float_sums_stay_within_and_errors_do_not)
{
    const HsRng rng = { .seed = 3 };
    for (int trial = 0; trial < 100; trial++) {
        float sum = 0, largest = 0;
        double exact = 0, magnitude = 0;
        const int terms = 10 + 37 * trial;
        for (int i = 0; i < terms; i++) {
            HsPhilox draw = hs_rng_draw(&rng, (uint64_t)(trial * 10000 + i));
            float a = hs_rng_uniform(draw.word[0]) - 0.5f, b = hs_rng_uniform(draw.word[1]) - 0.5f;
            float product = a * b;
            sum += product;
            largest = fmaxf(largest, fabsf(product));
            exact += (double)a * (double)b;
            magnitude += fabs((double)a * (double)b);
        }
        /* Each product is rounded once before it is added. */
        double bound = hs_tolerance(terms, 1, HS_F32, HS_F32, magnitude, exact);
        cr_expect_leq(fabs((double)sum - exact), bound);
        cr_expect_gt((double)largest, bound, "the bound would not notice a missing term");
    }
}

/* What the selftest relies on: x that is known by size only, or too large, has the larger bound. */
Test(tolerance, gelu_rises_with_the_size_of_x)
{
    double before = 0.0, largest = 0.0;
    for (int i = 1; i <= 4000; i++) {
        const double x = i / 200.0, bound = hs_tolerance_gelu(x);
        cr_assert_gt(bound, before);
        cr_assert_leq(hs_tolerance_gelu(-x), bound);
        largest = fmax(largest, bound / x);
        before = bound;
    }
    cr_expect(largest > 5.7 * 0x1p-24 && largest < 5.8 * 0x1p-24, "%g", largest * 0x1p24);
    cr_expect_lt(hs_tolerance_gelu(1e6), 5.01e6 * 0x1p-24);
    largest = 0.0;
    for (int i = -4000; i <= 4000; i++)
        largest = fmax(largest, hs_tolerance_gelu_derivative(i / 200.0));
    cr_expect(largest > 16.3 * 0x1p-24 && largest < 16.4 * 0x1p-24, "%g", largest * 0x1p24);
}
