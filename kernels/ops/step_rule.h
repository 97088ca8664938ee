/* SPDX-License-Identifier: MIT
 *
 * The decisions of an optimizer step, in the order  check -> loss scale -> clip -> step or skip -> count.  One body for
 * every backend and for optim/scaler.c: they are a handful of scalars, and all must agree on them to the last bit.
 *
 * Gradients arrive multiplied by the loss scale S and are never rewritten to take it out: the update rules multiply
 * each element once by  gradient_multiplier = clip coefficient / S.  Arithmetic is in double; S is a power of two in
 * practice, so the division is exact.
 */
#ifndef HS_KERNELS_OPS_STEP_RULE_H
#define HS_KERNELS_OPS_STEP_RULE_H

#include <float.h>
#include <math.h>

#include "kernels/ops/ops.h"

#if defined(__CUDACC__) || defined(__HIP__)
#define HS_STEP_FUNCTION static __device__ __forceinline__
#else
#define HS_STEP_FUNCTION static inline
#endif

/* Gradients of all tensors together. */
typedef struct HsStepGradients {
    double sum_squares; /* of finite elements, summed in the tensors' order */
    int64_t nonfinite;
    int64_t first_nonfinite; /* index of a tensor, -1: none */
} HsStepGradients;

/* One more tensor. */
HS_STEP_FUNCTION void hs_step_add_tensor(HsStepGradients *gradients, int64_t index, double sum_squares,
                                         int64_t nonfinite)
{
    gradients->sum_squares += sum_squares;
    gradients->nonfinite += nonfinite;
    if (nonfinite > 0 && gradients->first_nonfinite < 0)
        gradients->first_nonfinite = index;
}

/* Hysteresis lets a single bad batch pass without lowering the scale: only the last allowed overflow since the scale
 * grew lowers it, and from then on every overflow does, until it grows again. */
HS_STEP_FUNCTION HsScalerVerdict hs_step_back_off(const HsLossScaling *rule, HsStepCounters *counters)
{
    counters->scaler_tracker = 0;
    if (counters->scaler_hysteresis > 1) {
        counters->scaler_hysteresis--;
        return HS_SCALER_SKIP;
    }
    /* At the floor there is nothing left to lower: the gradients themselves are broken, not their scale. */
    if ((double)counters->loss_scale <= rule->min_scale)
        return HS_SCALER_HOPELESS;
    counters->loss_scale = (float)fmax((double)counters->loss_scale * rule->backoff_factor, rule->min_scale);
    return HS_SCALER_SKIP;
}

HS_STEP_FUNCTION HsScalerVerdict hs_step_update_scale(const HsLossScaling *rule, HsStepCounters *counters,
                                                      bool nonfinite)
{
    if (!rule->dynamic)
        return nonfinite ? HS_SCALER_HOPELESS : HS_SCALER_APPLY;
    if (nonfinite)
        return hs_step_back_off(rule, counters);
    counters->scaler_tracker++;
    if (counters->scaler_tracker == rule->growth_interval) {
        /* The factor is a double, the scale a float: rounded once, and kept when it would leave float's range. */
        const double grown = fmin((double)counters->loss_scale * rule->growth_factor, rule->max_scale);
        if ((float)grown <= FLT_MAX)
            counters->loss_scale = (float)grown;
        counters->scaler_tracker = 0;
        counters->scaler_hysteresis = rule->hysteresis;
    }
    return HS_SCALER_APPLY;
}

/* Which of the host's rates and momenta: it gives enough for every step that it runs ahead. */
HS_STEP_FUNCTION int64_t hs_step_index(const HsStepInput *input, int64_t schedule_steps)
{
    const int64_t index = schedule_steps - input->first_schedule_step;
    if (index < 0)
        return 0;
    return index < HS_STEPS_AHEAD ? index : HS_STEPS_AHEAD - 1;
}

/* Of schedule-free AdamW; t counts from 1.  A rate of 0, with which a schedule may begin, has no weight. */
HS_STEP_FUNCTION void hs_step_weigh(const HsPrepareStepArgs *args, double learning_rate, double t, bool apply)
{
    HsStepCounters *const counters = &args->state->counters;
    const double rate = learning_rate * sqrt(1.0 - pow(args->beta2, t));
    const double largest = fmax(counters->largest_rate, rate), squares = counters->rate_squares + largest * largest;
    args->scalars->free_rate = (float)rate;
    args->scalars->free_weight = squares > 0.0 ? (float)(largest * largest / squares) : 0.0f;
    counters->largest_rate = apply ? largest : counters->largest_rate;
    counters->rate_squares = apply ? squares : counters->rate_squares;
}

/* Everything but the sums: state becomes the next step's. */
HS_STEP_FUNCTION void hs_step_prepare(const HsStepGradients *gradients, const HsPrepareStepArgs *args)
{
    const HsStepInput *const input = args->input;
    const double clip_norm = args->clip_norm;
    HsStepState *const state = args->state;
    HsStepScalars *const scalars = args->scalars;
    HsStepOutcome *const outcome = args->outcome;
    const double scale = (double)state->counters.loss_scale;
    const bool broken = gradients->nonfinite > 0;
    outcome->loss_scale = state->counters.loss_scale;
    outcome->nonfinite_elements = gradients->nonfinite;
    outcome->first_nonfinite = gradients->first_nonfinite;
    outcome->gradient_norm = broken ? (double)INFINITY : sqrt(gradients->sum_squares) / scale;
    const int64_t index = hs_step_index(input, state->counters.schedule_steps);
    outcome->learning_rate = input->learning_rates[index];
    const HsScalerVerdict verdict =
        state->halted ? HS_SCALER_SKIP : hs_step_update_scale(&args->scaling, &state->counters, broken);
    const bool apply = verdict == HS_SCALER_APPLY;
    /* The norm is that of the true gradients, so the limit means the same at every loss scale. */
    outcome->clip_coefficient = clip_norm > 0 && apply ? fmin(1.0, clip_norm / (outcome->gradient_norm + 1e-6)) : 1.0;
    outcome->verdict = (int32_t)verdict;

    const double t = (double)(state->counters.moment_steps + 1);
    scalars->learning_rate = (float)outcome->learning_rate;
    scalars->momentum = (float)input->momenta[index];
    scalars->gradient_multiplier = (float)(outcome->clip_coefficient / scale);
    scalars->bias_correction1 = (float)(1.0 - pow(args->beta1, t));
    scalars->bias_correction2 = (float)(1.0 - pow(args->beta2, t));
    /* A plain mean until it is as long as the average remembers: no start to be corrected for. */
    scalars->average_rate = apply && args->average_decay > 0 ? (float)fmax(1.0 - args->average_decay, 1.0 / t) : 0.0f;
    scalars->unscale = (float)(1.0 / scale);
    hs_step_weigh(args, outcome->learning_rate, t, apply);
    scalars->skip = !apply;

    /* A skipped step advances neither the schedule nor the bias correction. */
    state->update_step = (uint32_t)state->counters.applied_steps;
    state->counters.applied_steps += apply;
    state->counters.schedule_steps += apply;
    state->counters.moment_steps += apply;
    state->counters.skipped_steps += !apply;
    state->attempt = (uint32_t)(state->counters.applied_steps + state->counters.skipped_steps);
    state->halted = state->halted || verdict == HS_SCALER_HOPELESS;
    outcome->state = *state;
}

/* The whole operation, where one thread does it. */
HS_STEP_FUNCTION void hs_step_prepare_all(const HsPrepareStepArgs *args)
{
    HsStepGradients gradients = { 0.0, 0, -1 };
    for (int i = 0; i < args->count; i++)
        hs_step_add_tensor(&gradients, i, args->sum_squares[i], args->nonfinite[i]);
    hs_step_prepare(&gradients, args);
}

HS_STEP_FUNCTION void hs_step_begin(const HsBeginStepArgs *args)
{
    for (int rows = 0; rows < HS_STEP_ROWS; rows++)
        args->gradient_scales[rows] = args->state->counters.loss_scale / args->input->counted[rows];
}

#endif
