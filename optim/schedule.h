/* SPDX-License-Identifier: MIT
 *
 * Learning rate as a pure function of the number of applied optimizer steps.
 *   warm-up: start + (peak - start) * (step + 1) / warmup;  then constant | linear | cosine | wsd
 *   (wsd: min + (1 - sqrt(x)) (peak - min) over the last wsd_decay_fraction; Haegele et al. 2024).
 */
#ifndef HS_OPTIM_SCHEDULE_H
#define HS_OPTIM_SCHEDULE_H

#include <stdint.h>

#include "kernels/base/status.h"

typedef struct HsSchedule {
    double (*shape)(double progress, double wsd_decay_fraction); /* share of (peak - min); NULL-free row of the table */
    double peak, minimum, wsd_decay_fraction;
    double warmup_start;               /* the warm-up begins above this rate; 0 unless the caller says otherwise */
    int64_t warmup_steps, decay_steps; /* decay_steps counts from step 0, warm-up included */
} HsSchedule;

/* kind: "constant" | "linear" | "cosine" | "wsd"; errors: HS_ECONFIG */
HsStatus hs_schedule_init(HsSchedule *schedule, const char *kind, double peak, double minimum, int64_t warmup_steps,
                          int64_t decay_steps, double wsd_decay_fraction);
double hs_schedule_rate(const HsSchedule *schedule, int64_t applied_steps);

#endif
