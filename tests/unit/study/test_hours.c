/* SPDX-License-Identifier: MIT
 *
 * What a time trains at a rate (runtime/study/planner_hours.c): over rates from a core's to many GPUs' the tokens a
 * parameter stay near the rules', although shapes come in steps, and a higher rate never trains a smaller model.
 */
#include <criterion/criterion.h>
#include <math.h>

#include "runtime/study/planner.h"

enum { RATES_A_DECADE = 200, DECADES = 7 };

static HsRecipe of(double flops, double most)
{
    return hs_planner_recipe_of_time(&(HsPlannedTime){ 3600, flops, 257, most });
}

/* Neighbouring shapes' operations differ by a factor of up to 1.54, whose root is the most that the nearer is off. */
Test(hours, has_ten_tokens_a_parameter_at_every_rate)
{
    double last_size = 0;
    for (int i = 0; i < RATES_A_DECADE * DECADES; i++) {
        const double flops = 2e9 * pow(10, (double)i / RATES_A_DECADE);
        const HsRecipe recipe = of(flops, INFINITY);
        const double each = recipe.tokens / recipe.size;
        cr_assert(each > 8 && each < 12.5, "%.3g operations a second: %.3g tokens for each of %.3g", flops, each,
                  recipe.size);
        cr_assert_geq(recipe.size * (1 + 1e-9), last_size, "%.3g operations a second", flops);
        last_size = recipe.size;
    }
}

Test(hours, takes_no_more_tokens_than_a_text_is_worth)
{
    for (double flops = 2e9; flops < 1e15; flops *= 1.1) {
        const HsRecipe recipe = of(flops, 1e6);
        cr_assert_leq(recipe.tokens, 1e6);
        cr_assert_geq(recipe.tokens / recipe.size, HS_RECIPE_LEAST_TOKENS_A_SIZE * 0.99);
    }
}
