/* SPDX-License-Identifier: MIT
 *
 * What an optimizer step needs besides tensors: records in device memory, so that nothing in a step waits for the host.
 *
 *     host --HsStepInput--> begin_step -> gradient scale -> forward, backward -> grad_stats
 *                           prepare_step: HsStepState -> HsStepScalars -> update rules
 *     host <--HsStepOutcome--
 *
 * A host may run up to HS_STEPS_AHEAD steps ahead of what it knows: whether a step was applied or skipped is decided
 * here, by kernels/ops/step_rule.h.
 */
#ifndef HS_KERNELS_OPS_STEP_H
#define HS_KERNELS_OPS_STEP_H

#include <stdbool.h>
#include <stdint.h>

/* What becomes of a step. */
typedef enum HsScalerVerdict {
    HS_SCALER_APPLY,   /* gradients finite: the step is applied */
    HS_SCALER_SKIP,    /* overflow: skipped, the scale may have fallen */
    HS_SCALER_HOPELESS /* non-finite at the minimum scale, with a static scale, or without scaling */
} HsScalerVerdict;

/* Dynamic loss scaling's rule (optim/scaler.h has the transitions); not dynamic: the scale stays. */
typedef struct HsLossScaling {
    bool dynamic;
    double growth_factor, backoff_factor, min_scale, max_scale;
    int64_t growth_interval, hysteresis;
} HsLossScaling;

/* What optimizer steps count, and the loss scale.  The optimizer has it, a step's state on the device begins with it, a
 * checkpoint holds it. */
typedef struct HsStepCounters {
    int64_t applied_steps, skipped_steps;
    int64_t schedule_steps;                    /* applied since the schedule began: the learning rate's argument */
    int64_t moment_steps;                      /* applied since the moments were zero: AdamW's t is this + 1 */
    int64_t scaler_tracker, scaler_hysteresis; /* steps without overflow; overflows left before the scale falls */
    float loss_scale;                          /* of the next step's gradients; 1 without scaling */
    /* of the steps since moment_steps was 0, with the rates of schedule-free AdamW: the largest, and the sum over steps
     * of the square of the largest up to there */
    double largest_rate, rate_squares;
} HsStepCounters;

/* What one step hands to the next.  Written by prepare_step, and by the host when no step is under way. */
typedef struct HsStepState {
    HsStepCounters counters;
    int32_t halted;       /* a hopeless step came: later ones change nothing and count as skipped */
    uint32_t attempt;     /* low bits of applied + skipped: the next step's random numbers (HsRng.step_counter) */
    uint32_t update_step; /* low bits of applied before the latest step: stochastic rounding's random numbers */
} HsStepState;

/* Steps that the host may start before it hears of the first one's outcome. */
enum { HS_STEPS_AHEAD = 4 };

/* Rows of a step with separate gradient scales, as each kind is divided by its own counted targets. */
typedef enum HsStepRows {
    HS_ROWS_TRAINED,   /* the batch: the step lowers its loss */
    HS_ROWS_REFERENCE, /* further rows: the batch's gradient is compared with theirs; a step may have none */
    HS_STEP_ROWS
} HsStepRows;

/* What the host says about a step before it starts. */
typedef struct HsStepInput {
    /* At schedule steps first_schedule_step, + 1, ...: which of them it is, is known on the device only. */
    double learning_rates[HS_STEPS_AHEAD];
    double momenta[HS_STEPS_AHEAD]; /* of rules that begin with `momentum`, at the same steps */
    int64_t first_schedule_step;
    float counted[HS_STEP_ROWS]; /* targets that count, at least 1 */
} HsStepInput;

/* What the host hears about a step afterwards. */
typedef struct HsStepOutcome {
    HsStepState state;    /* after it */
    double gradient_norm; /* unscaled, before clipping; infinite when an element is not finite */
    double clip_coefficient;
    double learning_rate;
    int64_t nonfinite_elements;
    int64_t first_nonfinite; /* index of the first tensor with one, -1: none */
    int32_t verdict;         /* HsScalerVerdict */
    float loss_scale;        /* that its gradients were made with */
} HsStepOutcome;

#endif
