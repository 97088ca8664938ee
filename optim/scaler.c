/* SPDX-License-Identifier: MIT
 *
 * The loss scale's settings and state; the table of transitions is in scaler.h, their body in kernels/ops/step_rule.h.
 */
#include "optim/scaler.h"

#include <math.h>

#include "kernels/base/log.h"
#include "kernels/ops/step_rule.h"

static HsStatus check_dynamic(const HsScalerConfig *config)
{
    if (!(config->min_scale > 0) || config->min_scale > config->max_scale)
        return hs_fail(HS_ECONFIG, "loss scale: need 0 < min_scale <= max_scale (got %g and %g)", config->min_scale,
                       config->max_scale);
    if (!(config->growth_factor > 1))
        return hs_fail(HS_ECONFIG, "loss scale: growth_factor must be greater than 1 (got %g)", config->growth_factor);
    if (!(config->backoff_factor > 0 && config->backoff_factor < 1))
        return hs_fail(HS_ECONFIG, "loss scale: backoff_factor must lie between 0 and 1 (got %g)",
                       config->backoff_factor);
    if (config->growth_interval < 1)
        return hs_fail(HS_ECONFIG, "loss scale: growth_interval must be at least 1 step (got %lld)",
                       (long long)config->growth_interval);
    if (config->hysteresis < 1)
        return hs_fail(HS_ECONFIG, "loss scale: hysteresis must be at least 1 overflow (got %lld)",
                       (long long)config->hysteresis);
    return HS_OK;
}

HsStatus hs_scaler_init(const HsScalerConfig *config, HsStepCounters *counters)
{
    counters->loss_scale = 1.0f;
    counters->scaler_tracker = counters->scaler_hysteresis = 0;
    if (config->kind == HS_SCALER_NONE)
        return HS_OK;
    if (!(config->init_scale > 0) || !isfinite((float)config->init_scale))
        return hs_fail(HS_ECONFIG, "loss scale: init_scale must be positive and finite in f32 (got %g)",
                       config->init_scale);
    counters->loss_scale = (float)config->init_scale;
    if (config->kind == HS_SCALER_STATIC)
        return HS_OK;

    HS_TRY(check_dynamic(config));
    double clamped = fmin(fmax(config->init_scale, config->min_scale), config->max_scale);
    if (clamped != config->init_scale)
        hs_warn("precision.init_scale %g lies outside [%g, %g], from min_scale to max_scale: starting at %g",
                config->init_scale, config->min_scale, config->max_scale, clamped);
    counters->loss_scale = (float)clamped;
    counters->scaler_hysteresis = config->hysteresis;
    return HS_OK;
}

HsLossScaling hs_scaler_rule(const HsScalerConfig *config)
{
    return (HsLossScaling){
        .dynamic = config->kind == HS_SCALER_DYNAMIC,
        .growth_factor = config->growth_factor,
        .backoff_factor = config->backoff_factor,
        .min_scale = config->min_scale,
        .max_scale = config->max_scale,
        .growth_interval = config->growth_interval,
        .hysteresis = config->hysteresis,
    };
}

HsScalerVerdict hs_scaler_update(const HsScalerConfig *config, HsStepCounters *counters, bool found_nonfinite)
{
    const HsLossScaling rule = hs_scaler_rule(config);
    return hs_step_update_scale(&rule, counters, found_nonfinite);
}
