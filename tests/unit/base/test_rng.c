/* SPDX-License-Identifier: MIT
 *
 * Philox against the known answers published with it (Salmon et al. 2011, the kat_vectors of Random123), and the
 * properties of what is drawn from it.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

#include "kernels/base/rng.h"

Test(rng, philox_known_answers)
{
    static const struct {
        uint64_t key;
        uint32_t counter[4], expected[4];
    } cases[] = {
        { 0, { 0, 0, 0, 0 }, { 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8 } },
        { UINT64_MAX,
          { UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX },
          { 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd } },
        /* digits of pi: key words a4093822 299f31d0, low word first */
        { 0x299f31d0a4093822,
          { 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344 },
          { 0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1 } },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        HsPhilox result = hs_philox(cases[i].key, cases[i].counter);
        for (int w = 0; w < 4; w++)
            cr_expect_eq(result.word[w], cases[i].expected[w], "case %zu word %d", i, w);
    }
}

Test(rng, draw_uses_the_documented_counter)
{
    const HsRng rng = { .seed = 0x299f31d0a4093822, .site = 0x13198a2e, .step = 0x03707344 };
    HsPhilox result = hs_rng_draw(&rng, 0x85a308d3243f6a88);
    cr_expect_eq(result.word[0], 0xd16cfe09u);
    cr_expect_eq(result.word[3], 0x24126ea1u);
}

Test(rng, uniform_lies_in_the_half_open_interval)
{
    cr_expect_eq(hs_rng_uniform(0), 0.0f);
    cr_expect_lt(hs_rng_uniform(UINT32_MAX), 1.0f);
    cr_expect_eq(hs_rng_uniform(0x80000000u), 0.5f);
}

Test(rng, normal_is_finite_at_the_extremes_and_has_unit_moments)
{
    double pair[2];
    hs_rng_normal(0, 0, pair);
    cr_expect(isfinite(pair[0]) && isfinite(pair[1]));
    hs_rng_normal(UINT32_MAX, 0, pair);
    cr_expect_eq(pair[0], 0.0);

    /* Mean within 5 standard errors, 1/sqrt(n); variance within 5 of its errors, sqrt(2/n).  The draws are fixed. */
    const HsRng rng = { .seed = 7 };
    enum { PAIRS = 50000 };
    double sum = 0, squares = 0;
    for (uint64_t i = 0; i < PAIRS; i++) {
        HsPhilox draw = hs_rng_draw(&rng, i);
        hs_rng_normal(draw.word[0], draw.word[1], pair);
        sum += pair[0] + pair[1];
        squares += pair[0] * pair[0] + pair[1] * pair[1];
    }
    const double n = 2.0 * PAIRS;
    cr_expect_lt(fabs(sum / n), 5 / sqrt(n));
    cr_expect_lt(fabs(squares / n - 1), 5 * sqrt(2 / n));
}

Test(rng, permutation_is_a_bijection)
{
    static const int64_t counts[] = { 1, 2, 3, 4, 5, 15, 16, 17, 1000, 4096, 4097 };
    for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
        int64_t count = counts[c];
        char *seen = calloc((size_t)count, 1);
        cr_assert_not_null(seen);
        int64_t twice = 0, fixed = 0;
        for (int64_t i = 0; i < count; i++) {
            int64_t where = hs_rng_permute(42, i, count);
            cr_assert(where >= 0 && where < count);
            twice += seen[where]++ != 0;
            fixed += where == i;
        }
        cr_expect_eq(twice, 0, "count %lld", (long long)count);
        if (count >= 1000) /* a random permutation has one fixed point on average */
            cr_expect_lt(fixed, 10);
        free(seen);
    }
}

Test(rng, permutations_depend_on_the_key_and_reach_beyond_32_bits)
{
    int same = 0;
    for (int64_t i = 0; i < 1000; i++)
        same += hs_rng_permute(1, i, 1000) == hs_rng_permute(2, i, 1000);
    cr_expect_lt(same, 20);
    const int64_t huge = (int64_t)1 << 40;
    int64_t where = hs_rng_permute(1, huge - 1, huge);
    cr_expect(where >= 0 && where < huge);
}
