/* SPDX-License-Identifier: MIT
 *
 * The loss scale's state machine; the table of transitions is in scaler.h.
 *
 * Hysteresis lets a single bad batch pass without halving the scale: only the last allowed overflow since the scale
 * grew lowers it, and from then on every overflow does, until it grows again.
 */
#include "optim/scaler.h"

#include <math.h>

#include "kernels/base/log.h"

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

HsStatus hs_scaler_init(HsScaler *scaler, const HsScalerConfig *config)
{
    *scaler = (HsScaler){ .config = *config, .scale = 1.0f };
    if (config->kind == HS_SCALER_NONE)
        return HS_OK;
    if (!(config->init_scale > 0) || !isfinite((float)config->init_scale))
        return hs_fail(HS_ECONFIG, "loss scale: init_scale must be positive and finite in f32 (got %g)",
                       config->init_scale);
    scaler->scale = (float)config->init_scale;
    if (config->kind == HS_SCALER_STATIC)
        return HS_OK;

    HS_TRY(check_dynamic(config));
    double clamped = fmin(fmax(config->init_scale, config->min_scale), config->max_scale);
    if (clamped != config->init_scale)
        hs_warn("loss scale: init_scale %g lies outside [%g, %g], starting at %g", config->init_scale,
                config->min_scale, config->max_scale, clamped);
    scaler->scale = (float)clamped;
    scaler->hysteresis_left = config->hysteresis;
    return HS_OK;
}

static HsScalerVerdict back_off(HsScaler *scaler)
{
    const HsScalerConfig *config = &scaler->config;
    scaler->tracker = 0;
    if (scaler->hysteresis_left > 1) {
        scaler->hysteresis_left--;
        return HS_SCALER_SKIP;
    }
    /* At the floor there is nothing left to lower: the gradients themselves are broken, not their scale. */
    if ((double)scaler->scale <= config->min_scale)
        return HS_SCALER_HOPELESS;
    scaler->scale = (float)fmax((double)scaler->scale * config->backoff_factor, config->min_scale);
    return HS_SCALER_SKIP;
}

HsScalerVerdict hs_scaler_update(HsScaler *scaler, bool found_nonfinite)
{
    const HsScalerConfig *config = &scaler->config;
    if (config->kind != HS_SCALER_DYNAMIC)
        return found_nonfinite ? HS_SCALER_HOPELESS : HS_SCALER_APPLY;
    if (found_nonfinite)
        return back_off(scaler);

    scaler->tracker++;
    if (scaler->tracker == config->growth_interval) {
        /* The factor is a double, the scale a float: rounded once, and kept when it would leave float's range. */
        float grown = (float)fmin((double)scaler->scale * config->growth_factor, config->max_scale);
        if (isfinite(grown))
            scaler->scale = grown;
        scaler->tracker = 0;
        scaler->hysteresis_left = config->hysteresis;
    }
    return HS_SCALER_APPLY;
}
