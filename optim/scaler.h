/* SPDX-License-Identifier: MIT
 *
 * Dynamic loss scaling (Micikevicius et al. 2018, section 3.2), the full state machine: one update per optimizer step.
 *   overflow:  hysteresis left > 1: use one up;  else scale = max(scale * backoff, min);  tracker = 0
 *   clean:     tracker + 1 == interval: scale = min(scale * growth, max) if finite, tracker = 0, hysteresis refilled
 * In training it is the device that makes the transition (hs_op_prepare_step); both have kernels/ops/step_rule.h's
 * body.
 */
#ifndef HS_OPTIM_SCALER_H
#define HS_OPTIM_SCALER_H

#include "kernels/base/status.h"
#include "kernels/ops/step.h"

typedef enum HsScalerKind { HS_SCALER_NONE, HS_SCALER_STATIC, HS_SCALER_DYNAMIC } HsScalerKind;

typedef struct HsScalerConfig {
    HsScalerKind kind;
    double init_scale, growth_factor, backoff_factor, min_scale, max_scale;
    int64_t growth_interval;
    int64_t hysteresis;
} HsScalerConfig;

/* The first scale, and what counts towards the next one.  errors: HS_ECONFIG (min > max, growth <= 1, backoff >= 1; init
 * outside [min,max] is clamped with a warning) */
HsStatus hs_scaler_init(const HsScalerConfig *config, HsStepCounters *counters);
HsScalerVerdict hs_scaler_update(const HsScalerConfig *config, HsStepCounters *counters, bool found_nonfinite);
/* The rule as operations take it. */
HsLossScaling hs_scaler_rule(const HsScalerConfig *config);

#endif
