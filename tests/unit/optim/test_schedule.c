/* SPDX-License-Identifier: MIT
 *
 * Learning-rate schedules at points worked out by hand.
 */
#include <criterion/criterion.h>
#include <math.h>

#include "optim/schedule.h"

static HsSchedule make(const char *kind, int64_t warmup, int64_t decay, double fraction)
{
    HsSchedule schedule;
    cr_assert_eq(hs_schedule_init(&schedule, kind, 1.0, 0.1, warmup, decay, fraction), HS_OK, "%s", hs_error_message());
    return schedule;
}

static void expect_rate(const HsSchedule *schedule, int64_t step, double expected)
{
    double rate = hs_schedule_rate(schedule, step);
    /* A handful of double operations on numbers near 1. */
    cr_expect(fabs(rate - expected) <= 16 * 0x1p-53, "step %lld: %.17g, expected %.17g", (long long)step, rate,
              expected);
}

Test(schedule, warm_up_reaches_the_peak_at_its_last_step)
{
    const char *const kinds[] = { "constant", "linear", "cosine", "wsd" };
    for (int k = 0; k < 4; k++) {
        HsSchedule schedule = make(kinds[k], 10, 110, 0.2);
        expect_rate(&schedule, 0, 0.1);
        expect_rate(&schedule, 4, 0.5);
        expect_rate(&schedule, 9, 1.0);
        expect_rate(&schedule, 10, 1.0);
    }
}

Test(schedule, shapes)
{
    HsSchedule constant = make("constant", 10, 110, 0.2);
    expect_rate(&constant, 1000, 1.0);

    HsSchedule linear = make("linear", 10, 110, 0.2);
    expect_rate(&linear, 60, 0.55);
    expect_rate(&linear, 110, 0.1);
    expect_rate(&linear, 5000, 0.1);

    HsSchedule cosine = make("cosine", 10, 110, 0.2);
    expect_rate(&cosine, 35, 0.1 + 0.9 * 0.5 * (1 + sqrt(0.5)));
    expect_rate(&cosine, 60, 0.55);
    expect_rate(&cosine, 110, 0.1);

    /* The last 20% of 100 steps: flat until 80, 1 - sqrt(1/4) half way of the quarter. */
    HsSchedule wsd = make("wsd", 10, 100, 0.2);
    expect_rate(&wsd, 79, 1.0);
    expect_rate(&wsd, 80, 1.0);
    expect_rate(&wsd, 85, 0.1 + 0.9 * 0.5);
    expect_rate(&wsd, 100, 0.1);
    expect_rate(&wsd, 1000, hs_schedule_rate(&wsd, 100));

    cr_assert_eq(hs_schedule_set_decay(&wsd, "linear"), HS_OK);
    expect_rate(&wsd, 80, 1.0);
    expect_rate(&wsd, 85, 0.1 + 0.9 * 0.75);
    expect_rate(&wsd, 100, 0.1);
    cr_assert_eq(hs_schedule_set_decay(&wsd, "cosine"), HS_OK);
    expect_rate(&wsd, 80, 1.0);
    expect_rate(&wsd, 85, 0.1 + 0.9 * 0.5 * (1 + sqrt(0.5)));
    expect_rate(&wsd, 90, 0.55);
    expect_rate(&wsd, 100, 0.1);
}

Test(schedule, edges)
{
    HsSchedule none = make("cosine", 0, 0, 0.2);
    expect_rate(&none, 0, 0.1);
    HsSchedule all_warm_up = make("cosine", 10, 5, 0.2);
    expect_rate(&all_warm_up, 9, 1.0);
    expect_rate(&all_warm_up, 10, 0.1);
    HsSchedule no_decay_part = make("wsd", 0, 100, 0.0);
    expect_rate(&no_decay_part, 99, 1.0);
    expect_rate(&no_decay_part, 100, 0.1);
    HsSchedule only_decay = make("wsd", 50, 100, 1.0);
    expect_rate(&only_decay, 50, 1.0);
}

Test(schedule, mistakes_are_refused)
{
    HsSchedule schedule;
    cr_expect_eq(hs_schedule_init(&schedule, "cosinus", 1, 0, 0, 1, 0.2), HS_ECONFIG);
    cr_expect_str_eq(hs_error_message(), "schedule.kind must be one of constant, linear, cosine, wsd (got cosinus)");
    cr_expect_eq(hs_schedule_init(&schedule, "linear", 1, 2, 0, 1, 0.2), HS_ECONFIG);
    cr_expect_eq(hs_schedule_init(&schedule, "linear", 1, 0, -1, 1, 0.2), HS_ECONFIG);
    cr_expect_eq(hs_schedule_init(&schedule, "wsd", 1, 0, 0, 1, 1.5), HS_ECONFIG);
    cr_expect_eq(hs_schedule_set_decay(&schedule, "square"), HS_ECONFIG);
    cr_expect_str_eq(hs_error_message(), "schedule.wsd_shape must be one of sqrt, linear, cosine (got square)");
}
