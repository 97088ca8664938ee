/* SPDX-License-Identifier: MIT
 *
 * Learning-rate shapes: each maps progress x in [0,1] after the warm-up to a share of (peak - minimum),
 *     rate = minimum + shape(x) (peak - minimum).
 * Nothing is remembered between calls, so a resumed run needs only its count of applied steps.
 */
#include "optim/schedule.h"
#include "optim/kinds.h"

#include <math.h>
#include <string.h>

/* Haegele et al. 2024, section 3. */
static double sqrt_decay(double x)
{
    return 1.0 - sqrt(x);
}

static double linear_decay(double x)
{
    return 1.0 - x;
}

/* Half a cosine wave (Loshchilov & Hutter 2017, eq. 5, without restarts). */
static double cosine_decay(double x)
{
    return 0.5 * (1.0 + cos(3.141592653589793 * x));
}

static double constant_shape(double progress, double wsd_decay_fraction, double (*decay)(double x))
{
    (void)progress;
    (void)wsd_decay_fraction;
    (void)decay;
    return 1.0;
}

static double linear_shape(double progress, double wsd_decay_fraction, double (*decay)(double x))
{
    (void)wsd_decay_fraction;
    (void)decay;
    return linear_decay(progress);
}

static double cosine_shape(double progress, double wsd_decay_fraction, double (*decay)(double x))
{
    (void)wsd_decay_fraction;
    (void)decay;
    return cosine_decay(progress);
}

/* Warm-up, stable, decay: flat, then down over the last part. */
static double wsd_shape(double progress, double wsd_decay_fraction, double (*decay)(double x))
{
    double start = 1.0 - wsd_decay_fraction;
    if (progress <= start && progress < 1.0)
        return 1.0;
    return wsd_decay_fraction > 0 ? decay((progress - start) / wsd_decay_fraction) : 0.0;
}

#define ROW(identifier, word) { word, identifier##_shape },
static const struct {
    const char *kind;
    double (*shape)(double progress, double wsd_decay_fraction, double (*decay)(double x));
} rows[] = { HS_SCHEDULES(ROW) };
#undef ROW

#define ROW(identifier, word) { word, identifier##_decay },
static const struct {
    const char *shape;
    double (*decay)(double x);
} decays[] = { HS_DECAY_SHAPES(ROW) };
#undef ROW

HsStatus hs_schedule_set_decay(HsSchedule *schedule, const char *shape)
{
    for (size_t i = 0; i < sizeof decays / sizeof decays[0]; i++)
        if (strcmp(shape, decays[i].shape) == 0) {
            schedule->decay = decays[i].decay;
            return HS_OK;
        }
    return hs_fail(HS_ECONFIG, "schedule.wsd_shape must be one of %s (got %s)", HS_WORDS_LISTED(HS_DECAY_SHAPES),
                   shape);
}

HsStatus hs_schedule_init(HsSchedule *schedule, const char *kind, double peak, double minimum, int64_t warmup_steps,
                          int64_t decay_steps, double wsd_decay_fraction)
{
    *schedule = (HsSchedule){ .peak = peak,
                              .minimum = minimum,
                              .decay = sqrt_decay,
                              .wsd_decay_fraction = wsd_decay_fraction,
                              .warmup_steps = warmup_steps,
                              .decay_steps = decay_steps };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (strcmp(kind, rows[i].kind) == 0)
            schedule->shape = rows[i].shape;
    if (!schedule->shape)
        return hs_fail(HS_ECONFIG, "schedule.kind must be one of %s (got %s)", HS_WORDS_LISTED(HS_SCHEDULES), kind);
    if (!(minimum >= 0 && minimum <= peak))
        return hs_fail(HS_ECONFIG, "schedule: need 0 <= min_learning_rate <= learning_rate (got %g and %g)", minimum,
                       peak);
    if (warmup_steps < 0 || decay_steps < 0)
        return hs_fail(HS_ECONFIG, "schedule: warmup_steps and decay_steps must not be negative (got %lld and %lld)",
                       (long long)warmup_steps, (long long)decay_steps);
    if (!(wsd_decay_fraction >= 0 && wsd_decay_fraction <= 1))
        return hs_fail(HS_ECONFIG, "schedule.wsd_decay_fraction must lie in [0, 1] (got %g)", wsd_decay_fraction);
    return HS_OK;
}

double hs_schedule_rate(const HsSchedule *schedule, int64_t applied_steps)
{
    if (applied_steps < schedule->warmup_steps)
        return schedule->warmup_start +
               (schedule->peak - schedule->warmup_start) * (double)(applied_steps + 1) / (double)schedule->warmup_steps;

    /* A run that is all warm-up has no decay left: it is at its end as soon as it gets here. */
    double length = (double)(schedule->decay_steps - schedule->warmup_steps);
    double progress = 1.0, fraction = 1.0;
    if (length > 0) {
        progress = fmin((double)(applied_steps - schedule->warmup_steps) / length, 1.0);
        /* The fraction is given of the whole run; the shape wants it of the part after the warm-up. */
        fraction = fmin(schedule->wsd_decay_fraction * (double)schedule->decay_steps / length, 1.0);
    }
    double share = schedule->shape(progress, fraction, schedule->decay);
    return schedule->minimum + share * (schedule->peak - schedule->minimum);
}
