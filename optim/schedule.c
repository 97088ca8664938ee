/* SPDX-License-Identifier: MIT
 *
 * Learning rates: each kind comes down by a function of x in [0,1] over its decay, which is all that follows the
 * warm-up, or of wsd the last part,
 *     rate = minimum + decay(x) (peak - minimum).
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

static double constant_decay(double x)
{
    (void)x;
    return 1.0;
}

#define wsd_decay             sqrt_decay /* unless hs_schedule_set_decay says otherwise */
#define ROW(identifier, word) { word, identifier##_decay },
typedef struct Row {
    const char *word;
    double (*decay)(double x);
} Row;
static const Row kinds[] = { HS_SCHEDULES(ROW) }, shapes[] = { HS_DECAY_SHAPES(ROW) };
#undef ROW
#undef wsd_decay

HsStatus hs_schedule_set_decay(HsSchedule *schedule, const char *shape)
{
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        if (strcmp(shape, shapes[i].word) == 0) {
            if (schedule->is_wsd)
                schedule->decay = shapes[i].decay;
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
                              .is_wsd = strcmp(kind, "wsd") == 0,
                              .wsd_decay_fraction = wsd_decay_fraction,
                              .warmup_steps = warmup_steps,
                              .decay_steps = decay_steps };
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (strcmp(kind, kinds[i].word) == 0)
            schedule->decay = kinds[i].decay;
    if (!schedule->decay)
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

double hs_schedule_share(const HsSchedule *schedule, int64_t applied_steps)
{
    if (applied_steps < schedule->warmup_steps)
        return 1.0;
    /* A run that is all warm-up has no decay left: it is at its end as soon as it gets here. */
    double length = (double)(schedule->decay_steps - schedule->warmup_steps);
    double progress = 1.0, fraction = 1.0;
    if (length > 0) {
        progress = fmin((double)(applied_steps - schedule->warmup_steps) / length, 1.0);
        /* The fraction is given of the whole run, and wanted of the part after the warm-up. */
        if (schedule->is_wsd)
            fraction = fmin(schedule->wsd_decay_fraction * (double)schedule->decay_steps / length, 1.0);
    }
    const double start = 1.0 - fraction;
    if (progress > start)
        return schedule->decay((progress - start) / fraction);
    /* no part to come down in: at once */
    return progress == 1.0 ? schedule->decay(1.0) : 1.0;
}

double hs_schedule_rate(const HsSchedule *schedule, int64_t applied_steps)
{
    if (applied_steps < schedule->warmup_steps)
        return schedule->warmup_start +
               (schedule->peak - schedule->warmup_start) * (double)(applied_steps + 1) / (double)schedule->warmup_steps;
    return schedule->minimum + hs_schedule_share(schedule, applied_steps) * (schedule->peak - schedule->minimum);
}
