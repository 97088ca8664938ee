/* SPDX-License-Identifier: MIT
 *
 * Learning rate as a pure function of the number of applied optimizer steps.
 *   warm-up: start + (peak - start) * (step + 1) / warmup;  then constant | linear | cosine | wsd
 *   (wsd: flat, then down over the last wsd_decay_fraction, by 1 - sqrt(x), Haegele et al. 2024, a line or half a
 *   cosine).
 */
#ifndef HS_OPTIM_SCHEDULE_H
#define HS_OPTIM_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/base/status.h"

typedef struct HsSchedule {
    double (*decay)(double x); /* share of (peak - min) at x of the decay; a row of a table */
    bool is_wsd;               /* it decays over the last wsd_decay_fraction only */
    double peak, minimum, wsd_decay_fraction;
    double warmup_start;               /* the warm-up begins above this rate; 0 unless the caller says otherwise */
    int64_t warmup_steps, decay_steps; /* decay_steps counts from step 0, warm-up included */
} HsSchedule;

/* kind: "constant" | "linear" | "cosine" | "wsd"; errors: HS_ECONFIG */
HsStatus hs_schedule_init(HsSchedule *schedule, const char *kind, double peak, double minimum, int64_t warmup_steps,
                          int64_t decay_steps, double wsd_decay_fraction);
/* How wsd comes down: "sqrt" (as hs_schedule_init has it) | "linear" | "cosine"; other kinds stay as they are.
 * errors: HS_ECONFIG */
HsStatus hs_schedule_set_decay(HsSchedule *schedule, const char *shape);
/* What is left of peak - minimum: 1 up to the decay, warm-up included. */
double hs_schedule_share(const HsSchedule *schedule, int64_t applied_steps);
double hs_schedule_rate(const HsSchedule *schedule, int64_t applied_steps);

#endif
