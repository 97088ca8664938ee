/* SPDX-License-Identifier: MIT
 *
 * Mixtures of sources: shares, each source's samples in their order and each once, what happens when a source has been
 * read, weights that change; and that a sample is a function of its number alone.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base/rng.h"
#include "runtime/data/mixture.h"

enum { SOURCES = 3, SAMPLES = 10000 };

static HsMixture *make(const int64_t *windows, int phases, const int64_t *steps, const double *weights,
                       HsExhausted exhausted)
{
    HsMixture *mixture;
    const HsMixtureOptions options = { .count = SOURCES,
                                       .windows = windows,
                                       .phases = phases,
                                       .steps = steps,
                                       .weights = weights,
                                       .exhausted = exhausted };
    cr_assert_eq(hs_mixture_create(&options, &mixture), HS_OK, "%s", hs_error_message());
    return mixture;
}

static int source_of(HsMixture *mixture, int64_t index, int64_t *within)
{
    int source;
    cr_assert_eq(hs_mixture_find(mixture, index, &source, within), HS_OK);
    cr_assert(source >= 0 && source < SOURCES);
    return source;
}

static const int64_t many[SOURCES] = { 1000000, 1000000, 1000000 }, zero[1] = { 0 };

Test(mixture, shares_are_kept_to_a_sample_and_each_sample_comes_once)
{
    const double weights[SOURCES] = { 3, 1.5, 0.25 };
    HsMixture *mixture = make(many, 1, zero, weights, HS_EXHAUSTED_REPEAT);
    int64_t taken[SOURCES] = { 0 }, said[SOURCES];
    bool *seen = calloc(SOURCES * SAMPLES, sizeof *seen);
    for (int64_t i = 0; i < SAMPLES; i++) {
        int64_t within;
        const int source = source_of(mixture, i, &within);
        cr_assert(within >= 0 && within < SAMPLES && !seen[source * SAMPLES + within], "sample %d", (int)i);
        seen[source * SAMPLES + within] = true;
        taken[source]++;
        for (int k = 0; k < SOURCES; k++)
            cr_expect_leq(fabs((double)taken[k] - (double)(i + 1) * weights[k] / 4.75), 1.0 + 1e-5, "source %d at %d",
                          k, (int)i);
    }
    cr_assert_eq(hs_mixture_taken(mixture, SAMPLES, said), HS_OK);
    for (int k = 0; k < SOURCES; k++) {
        const double share = weights[k] / 4.75, deviation = sqrt(SAMPLES * share * (1 - share));
        cr_expect_eq(said[k], taken[k]);
        cr_expect_leq(fabs((double)taken[k] - SAMPLES * share), 3 * deviation);
        for (int64_t i = 0; i < taken[k]; i++)
            cr_assert(seen[k * SAMPLES + i], "source %d skips %d", k, (int)i);
    }
    free(seen);
    hs_mixture_destroy(mixture);
}

Test(mixture, a_sample_is_a_function_of_its_number)
{
    const double weights[SOURCES] = { 1, 2, 4 };
    HsMixture *forward = make(many, 1, zero, weights, HS_EXHAUSTED_REPEAT);
    HsMixture *random = make(many, 1, zero, weights, HS_EXHAUSTED_REPEAT);
    for (uint32_t i = 0; i < 2000; i++) { /* far apart, in no order, and over the states that are kept */
        const uint32_t counter[4] = { i, 0, 0, 1 };
        const int64_t index = hs_philox(3, counter).word[0] % 300000;
        int64_t within, again;
        const int source = source_of(random, index, &within);
        cr_expect_eq(source_of(forward, index, &again), source);
        cr_expect_eq(again, within);
        (void)source_of(forward, i, &again); /* the other one is asked for the beginning in between */
    }
    hs_mixture_destroy(forward);
    hs_mixture_destroy(random);
}

Test(mixture, what_has_been_read_is_dropped_until_all_has)
{
    const int64_t windows[SOURCES] = { 50, 400, 1 };
    const double weights[SOURCES] = { 2, 1, 1 };
    HsMixture *mixture = make(windows, 1, zero, weights, HS_EXHAUSTED_DROP);
    int64_t epoch, taken[SOURCES];
    cr_assert_eq(hs_mixture_epoch(mixture, &epoch), HS_OK);
    cr_expect_eq(epoch, 451);
    for (int pass = 1; pass <= 3; pass++) {
        cr_assert_eq(hs_mixture_taken(mixture, pass * epoch, taken), HS_OK);
        for (int k = 0; k < SOURCES; k++)
            cr_expect_eq(taken[k], pass * windows[k], "source %d in pass %d", k, pass);
    }
    /* The two that are left share as their weights say. */
    cr_assert_eq(hs_mixture_taken(mixture, 64, taken), HS_OK);
    cr_expect_eq(taken[2], 1);
    cr_expect(taken[0] >= 41 && taken[0] <= 43, "%d", (int)taken[0]);
    hs_mixture_destroy(mixture);
}

Test(mixture, an_epoch_may_end_with_the_first_source)
{
    const int64_t windows[SOURCES] = { 100, 400, 400 };
    const double weights[SOURCES] = { 2, 1, 1 };
    HsMixture *mixture = make(windows, 1, zero, weights, HS_EXHAUSTED_STOP);
    int64_t epoch, within;
    cr_assert_eq(hs_mixture_epoch(mixture, &epoch), HS_OK);
    cr_expect(epoch >= 199 && epoch <= 202, "%d", (int)epoch);
    for (int64_t i = 0; i < epoch; i++) {
        const int source = source_of(mixture, i, &within);
        cr_expect_lt(within, windows[source]);
    }
    cr_expect_geq(source_of(mixture, epoch, &within) == 0 ? within : 100, 100);
    hs_mixture_destroy(mixture);
}

Test(mixture, weights_change_at_steps)
{
    const int64_t steps[2] = { 0, 100 };
    const double weights[2 * SOURCES] = { 1, 1, 0, 0, 1, 3 };
    HsMixture *mixture = make(many, 2, steps, weights, HS_EXHAUSTED_REPEAT);
    int64_t before[SOURCES], after[SOURCES];
    hs_mixture_set_rows(mixture, 32);
    cr_assert_eq(hs_mixture_taken(mixture, 3200, before), HS_OK);
    cr_assert_eq(hs_mixture_taken(mixture, 6400, after), HS_OK);
    cr_expect(before[0] == 1600 && before[1] == 1600 && before[2] == 0);
    cr_expect(after[0] == 1600 && labs(after[1] - 2400) <= 1 && labs(after[2] - 2400) <= 1, "%d %d %d", (int)after[0],
              (int)after[1], (int)after[2]);
    hs_mixture_destroy(mixture);
}

/* As many as are possible, of shares from a hundredth of a percent to some percent. */
Test(mixture, of_many_sources_keeps_shares_to_two_samples)
{
    enum { MANY = HS_MIXTURE_MOST };
    double weights[MANY], all = 0;
    int64_t windows[MANY], taken[MANY] = { 0 };
    HsMixture *mixture;
    for (int i = 0; i < MANY; i++) {
        const uint32_t counter[4] = { (uint32_t)i, 0, 0, 9 };
        weights[i] = exp(5 * (double)hs_philox(1, counter).word[0] / 0x1p32);
        all += weights[i];
        windows[i] = 1000000;
    }
    const HsMixtureOptions options = {
        .count = MANY, .windows = windows, .phases = 1, .steps = zero, .weights = weights
    };
    cr_assert_eq(hs_mixture_create(&options, &mixture), HS_OK);
    for (int64_t i = 0; i < SAMPLES; i++) {
        int64_t within;
        int source;
        cr_assert_eq(hs_mixture_find(mixture, i, &source, &within), HS_OK);
        cr_assert_eq(within, taken[source]++);
        for (int k = 0; k < MANY; k++)
            cr_assert_leq(fabs((double)taken[k] - (double)(i + 1) * weights[k] / all), 2.0, "source %d at %d", k,
                          (int)i);
    }
    hs_mixture_destroy(mixture);
}
