/* SPDX-License-Identifier: MIT
 *
 * The loss scaler's transitions, against vectors worked out by hand and those of the well-known implementations.
 */
#include <criterion/criterion.h>
#include <math.h>

#include "kernels/base/log.h"
#include "optim/scaler.h"

static const HsScalerConfig common = {
    .kind = HS_SCALER_DYNAMIC,
    .init_scale = 4,
    .growth_factor = 2,
    .backoff_factor = 0.25,
    .min_scale = 1e-6,
    .max_scale = INFINITY,
    .growth_interval = 2,
    .hysteresis = 1,
};

typedef struct Scaler {
    HsScalerConfig config;
    HsStepCounters counters;
} Scaler;

static Scaler make(HsScalerConfig config)
{
    Scaler scaler = { .config = config };
    cr_assert_eq(hs_scaler_init(&config, &scaler.counters), HS_OK, "%s", hs_error_message());
    return scaler;
}

static HsScalerVerdict update(Scaler *scaler, bool found_nonfinite)
{
    return hs_scaler_update(&scaler->config, &scaler->counters, found_nonfinite);
}

Test(scaler, grows_after_the_interval_and_backs_off)
{
    Scaler scaler = make(common);
    cr_expect_eq(update(&scaler, false), HS_SCALER_APPLY);
    cr_expect(scaler.counters.loss_scale == 4 && scaler.counters.scaler_tracker == 1);
    cr_expect_eq(update(&scaler, false), HS_SCALER_APPLY);
    cr_expect(scaler.counters.loss_scale == 8 && scaler.counters.scaler_tracker == 0);
    cr_expect_eq(update(&scaler, true), HS_SCALER_SKIP);
    cr_expect(scaler.counters.loss_scale == 2 && scaler.counters.scaler_tracker == 0);
}

Test(scaler, an_overflow_restarts_the_interval)
{
    Scaler scaler = make(common);
    update(&scaler, false);
    update(&scaler, true);
    update(&scaler, false);
    cr_expect(scaler.counters.loss_scale == 1 && scaler.counters.scaler_tracker == 1);
}

Test(scaler, four_batches_with_one_overflow)
{
    HsScalerConfig config = common;
    config.init_scale = 128;
    config.growth_interval = 1;
    config.backoff_factor = 0.5;
    Scaler scaler = make(config);
    for (int batch = 0; batch < 4; batch++)
        update(&scaler, batch == 2);
    cr_expect_eq(scaler.counters.loss_scale, 512.0f, "128 * 2^3 / 2");
}

Test(scaler, never_grows_to_infinity_nor_above_the_maximum)
{
    HsScalerConfig config = common;
    config.init_scale = 1e38;
    config.growth_factor = 16;
    config.growth_interval = 1;
    Scaler scaler = make(config);
    update(&scaler, false);
    cr_expect_eq(scaler.counters.loss_scale, 1e38f);
    cr_expect_eq(scaler.counters.scaler_tracker, 0);

    config.init_scale = 8;
    config.max_scale = 100;
    scaler = make(config);
    update(&scaler, false);
    cr_expect_eq(scaler.counters.loss_scale, 100.0f);
}

Test(scaler, stops_at_the_minimum)
{
    HsScalerConfig config = common;
    config.min_scale = 3;
    Scaler scaler = make(config);
    cr_expect_eq(update(&scaler, true), HS_SCALER_SKIP);
    cr_expect_eq(scaler.counters.loss_scale, 3.0f, "clamped, not a quarter");
    cr_expect_eq(update(&scaler, true), HS_SCALER_HOPELESS);
    cr_expect_eq(scaler.counters.loss_scale, 3.0f);
}

Test(scaler, hysteresis_is_used_up_once_and_refilled_by_growth)
{
    HsScalerConfig config = common;
    config.hysteresis = 2;
    config.backoff_factor = 0.5;
    Scaler scaler = make(config);
    cr_expect_eq(update(&scaler, true), HS_SCALER_SKIP);
    cr_expect_eq(scaler.counters.loss_scale, 4.0f, "the first overflow is forgiven");
    update(&scaler, true);
    cr_expect_eq(scaler.counters.loss_scale, 2.0f);
    update(&scaler, false);
    update(&scaler, true);
    cr_expect_eq(scaler.counters.loss_scale, 1.0f, "a clean step alone does not refill it");
    update(&scaler, false);
    update(&scaler, false);
    cr_expect_eq(scaler.counters.loss_scale, 2.0f);
    update(&scaler, true);
    cr_expect_eq(scaler.counters.loss_scale, 2.0f, "growth refills it");
}

Test(scaler, without_dynamic_scaling_an_overflow_is_hopeless)
{
    HsScalerConfig config = common;
    config.kind = HS_SCALER_NONE;
    Scaler scaler = make(config);
    cr_expect_eq(scaler.counters.loss_scale, 1.0f);
    cr_expect_eq(update(&scaler, false), HS_SCALER_APPLY);
    cr_expect_eq(update(&scaler, true), HS_SCALER_HOPELESS);

    config.kind = HS_SCALER_STATIC;
    config.init_scale = 1024;
    scaler = make(config);
    for (int i = 0; i < 5; i++)
        cr_expect_eq(update(&scaler, false), HS_SCALER_APPLY);
    cr_expect_eq(scaler.counters.loss_scale, 1024.0f);
    cr_expect_eq(update(&scaler, true), HS_SCALER_HOPELESS);
}

Test(scaler, bad_configurations_are_refused)
{
    HsScalerConfig cases[7];
    for (int i = 0; i < 7; i++)
        cases[i] = common;
    cases[0].growth_factor = 1;
    cases[1].backoff_factor = 1;
    cases[2].min_scale = 10, cases[2].max_scale = 5;
    cases[3].min_scale = 0;
    cases[4].growth_interval = 0;
    cases[5].hysteresis = 0;
    cases[6].init_scale = -1;
    for (int i = 0; i < 7; i++) {
        HsStepCounters counters;
        cr_expect_eq(hs_scaler_init(&cases[i], &counters), HS_ECONFIG, "case %d", i);
    }
}

Test(scaler, an_initial_scale_outside_the_bounds_is_clamped)
{
    hs_log_set_level(HS_LOG_ERROR); /* the warning is not this test's business */
    HsScalerConfig config = common;
    config.max_scale = 2;
    cr_expect_eq(make(config).counters.loss_scale, 2.0f);
    config = common;
    config.min_scale = 16;
    cr_expect_eq(make(config).counters.loss_scale, 16.0f);
}
