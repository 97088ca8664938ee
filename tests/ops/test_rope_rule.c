/* SPDX-License-Identifier: MIT
 *
 * The rotary frequencies of scaled models, against those that transformers computes (ROPE_INIT_FUNCTIONS, printed
 * with all their digits).
 */
#include <criterion/criterion.h>
#include <float.h>

#include "kernels/ops/rope_rule.h"

typedef struct Expected {
    const char *name;
    HsRopeRule rule;
    int64_t head_dim;
    double amplitude;
    struct {
        int pair;
        double frequency;
    } pairs[8];
} Expected;

/* 1 + i / 2 */
static const double longrope[48] = { 1,  1.5,  2,  2.5,  3,  3.5,  4,  4.5,  5,  5.5,  6,  6.5,  7,  7.5,  8,  8.5,
                                     9,  9.5,  10, 10.5, 11, 11.5, 12, 12.5, 13, 13.5, 14, 14.5, 15, 15.5, 16, 16.5,
                                     17, 17.5, 18, 18.5, 19, 19.5, 20, 20.5, 21, 21.5, 22, 22.5, 23, 23.5, 24, 24.5 };

static const Expected expected[] = {
    { "linear",
      { .theta = 1e4, .scaling = HS_ROPE_LINEAR, .factor = 4 },
      64,
      1.0,
      { { 0, 0.25 },
        { 1, 0.18747355043888092 },
        { 7, 0.0333380363881588 },
        { 13, 0.0059284339658916 },
        { 20, 0.0007905694656074047 },
        { 25, 0.00018747354624792933 },
        { 28, 7.905694656074047e-05 },
        { 31, 3.333803761051968e-05 } } },
    { "llama3", /* Llama 3.1: pairs below 29 stay, those above 34 are divided */
      { .theta = 5e5, .scaling = HS_ROPE_LLAMA3, .factor = 8, .original_length = 8192, .low = 1, .high = 4 },
      128,
      1.0,
      { { 0, 1.0 },
        { 1, 0.8146172165870667 },
        { 7, 0.2380538135766983 },
        { 20, 0.016560440883040428 },
        { 26, 0.00483942124992609 },
        { 28, 0.0032114461064338684 },
        { 31, 0.0008567514596506953 },
        { 63, 3.068925877869333e-07 } } },
    { "yarn", /* Qwen2.5 made four times longer: the ramp is from pair 23 to 40 */
      { .theta = 1e6, .scaling = HS_ROPE_YARN, .factor = 4, .original_length = 32768, .low = 1, .high = 32 },
      128,
      1.138629436111989,
      { { 0, 1.0 },
        { 1, 0.8058422207832336 },
        { 20, 0.01333521492779255 },
        { 25, 0.004131738096475601 },
        { 26, 0.0031684227287769318 },
        { 28, 0.0018482765881344676 },
        { 31, 0.000802959781140089 },
        { 63, 3.102344408034696e-07 } } },
    { "yarn with its own factor",
      { .theta = 1e4,
        .scaling = HS_ROPE_YARN,
        .factor = 16,
        .original_length = 4096,
        .low = 1,
        .high = 32,
        .attention_factor = 1.5 },
      64,
      1.5,
      { { 0, 1.0 },
        { 1, 0.7498942017555237 },
        { 7, 0.1333521455526352 },
        { 13, 0.018583359196782112 },
        { 20, 0.0008817889611236751 },
        { 25, 4.6868386561982334e-05 },
        { 28, 1.9764236640185118e-05 },
        { 31, 8.33450940262992e-06 } } },
    { "longrope", /* Phi-4-mini's lengths, three quarters of a head */
      { .theta = 1e4,
        .rotated = 96,
        .scaling = HS_ROPE_LONGROPE,
        .factor = 32,
        .original_length = 4096,
        .divisors = longrope },
      128,
      1.1902380714238083,
      { { 0, 1.0 },
        { 1, 0.5502694249153137 },
        { 7, 0.058003492653369904 },
        { 20, 0.0019585771951824427 },
        { 25, 0.0006114106508903205 },
        { 28, 0.0003094392886850983 },
        { 31, 0.000158191382070072 },
        { 47, 4.945010459778132e-06 } } },
};

/* Theirs is computed in f32: the exponent's rounding is multiplied by ln theta, and each of a few operations after it
 * (a reciprocal, turns, a ramp's place, two products, a sum) rounds once; a ramp's place, a quotient of differences,
 * may double what came before. */
Test(rope_rule, frequencies_are_those_of_the_published_code)
{
    for (size_t e = 0; e < sizeof expected / sizeof expected[0]; e++) {
        const Expected *const rule = &expected[e];
        const double tolerance = 2 * (log(rule->rule.theta) + 8) * FLT_EPSILON / 2;
        for (int i = 0; i < 8; i++) {
            const double theirs = rule->pairs[i].frequency;
            const double ours = hs_rope_frequency(&rule->rule, rule->head_dim, rule->pairs[i].pair);
            cr_expect(fabs(ours - theirs) <= tolerance * theirs, "%s, pair %d: %.9g, expected %.9g", rule->name,
                      rule->pairs[i].pair, ours, theirs);
        }
        cr_expect(fabs(hs_rope_amplitude(&rule->rule) - rule->amplitude) <= 1e-12, "%s", rule->name);
    }
}

Test(rope_rule, scaling_by_one_changes_nothing)
{
    const HsRopeScaling kinds[] = { HS_ROPE_LINEAR, HS_ROPE_LLAMA3, HS_ROPE_YARN };
    const HsRopeRule plain = { .theta = 1e4 };
    for (int k = 0; k < 3; k++) {
        const HsRopeRule rule = {
            .theta = 1e4, .scaling = kinds[k], .factor = 1, .original_length = 512, .low = 1, .high = 4
        };
        cr_expect(hs_rope_amplitude(&rule) == 1.0);
        for (int64_t pair = 0; pair < 32; pair++) {
            const double own = hs_rope_frequency(&plain, 64, pair);
            cr_expect(fabs(hs_rope_frequency(&rule, 64, pair) - own) <= 2 * DBL_EPSILON * own);
        }
    }
}
