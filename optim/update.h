/* SPDX-License-Identifier: MIT
 *
 * One optimizer step over parameter spans, in the fixed order
 *     (gradients accumulated and reduced by the caller) -> unscale -> check -> clip -> step or skip -> scaler update.
 * The caller cannot reorder it.  Sees spans, not models.
 *
 * The decisions are made on the device (kernels/step.h), so a caller may start steps before it knows the outcome of
 * earlier ones; HsOptimizer's counters and loss scale are then those of the latest step collected:
 *
 *     announce -> { input to the device -> begin -> gradients -> update -> outcome from the device } -> collect
 *
 * What stands in braces only enqueues work, always the same: it can be recorded and replayed.
 */
#ifndef HS_OPTIM_UPDATE_H
#define HS_OPTIM_UPDATE_H

#include <stdbool.h>

#include "kernels/backend.h"
#include "optim/scaler.h"
#include "optim/schedule.h"

/* One parameter tensor as the optimizer sees it.  Tensors hold device pointers; absent ones have rank 0. */
typedef struct HsSpan {
    const char *name;
    bool decay;                /* weight decay applies */
    float learning_rate_scale; /* 1 by default */
    HsTensor weight;           /* what forward reads: f32 or 16-bit */
    HsTensor master;           /* f32, absent when weight is f32 or trained by stochastic rounding */
    HsTensor gradient;         /* f32 or 16-bit, scaled; cleared by the step */
    HsTensor state[2];         /* AdamW: m, v; SGD: momentum buffer, absent */
    bool excluded;             /* from penalties */
    HsProtection protection;   /* set by the continual strategies; all absent: none */
    HsUpdateTail tail;         /* packed layouts are the model's, the rest is set by the continual strategies */
} HsSpan;

typedef enum HsOptimizerKind { HS_OPTIMIZER_ADAMW, HS_OPTIMIZER_SGD } HsOptimizerKind;

typedef struct HsOptimizerConfig {
    HsOptimizerKind kind;
    double beta1, beta2, epsilon, momentum, weight_decay, clip_norm; /* clip_norm 0: none */
    bool nesterov;
    uint64_t seed; /* stochastic rounding */
} HsOptimizerConfig;

typedef struct HsOptimizer {
    HsOptimizerConfig config;
    HsSchedule schedule;
    HsScaler scaler;
    int64_t applied_steps;
    int64_t skipped_steps;
    int64_t schedule_steps;     /* applied steps since the schedule began: the rate's argument */
    int64_t moment_steps;       /* applied steps since the moments were zero: AdamW's t */
    double learning_rate_scale; /* of the next step; 1 unless a strategy says otherwise */
    /* device records at fixed addresses: the caller copies input and outcome, and reads the others' addresses */
    HsStepInput *input;
    HsStepOutcome *outcome;
    HsStepState *state;
    float *gradient_scales; /* [2], see HsBeginStepArgs */
    /* private: device scalars and per-span statistics, allocated once by init */
    HsStepScalars *scalars;
    size_t block_bytes;
    double *sum_squares;
    int64_t *nonfinite;
    HsTensor *gradients;
    int span_count;
    int in_flight; /* announced and not collected */
    HsDevice *device;
} HsOptimizer;

typedef struct HsStepReport {
    HsScalerVerdict verdict;
    double gradient_norm; /* unscaled, before clipping; non-finite when found */
    double clip_coefficient;
    double learning_rate;
    float loss_scale;    /* the one this step's gradients were made with */
    int first_nonfinite; /* index of the first span with non-finite elements, -1 if none */
    int64_t nonfinite_elements;
} HsStepReport;

/* How many state tensors of f32 each parameter needs (0, 1 or 2). */
int hs_optimizer_state_count(const HsOptimizerConfig *config);
const char *hs_optimizer_state_name(const HsOptimizerConfig *config, int index); /* "m", "v", "momentum" */

HsStatus hs_optimizer_init(HsOptimizer *optimizer, HsDevice *device, const HsOptimizerConfig *config,
                           const HsSchedule *schedule, const HsScalerConfig *scaler, int span_count);
void hs_optimizer_deinit(HsOptimizer *optimizer);

/* Zero moments or momentum, as at the start; the next step is AdamW's first again. */
HsStatus hs_optimizer_reset_state(HsOptimizer *optimizer, HsContext *context, const HsSpan *spans, int count);

/* Allocates nothing.  HS_OK also for skipped steps: look at the report.  coef = min(1, clip / (norm + 1e-6)). */
HsStatus hs_optimizer_step(HsOptimizer *optimizer, HsContext *context, const HsSpan *spans, int count,
                           HsStepReport *report);

/* --- the same in parts, for steps that run ahead --- */

/* A step will start, the (in_flight + 1)-th that is under way, at most HS_STEPS_AHEAD: fills the record that the caller
 * brings to optimizer->input.  counted, reference_counted: targets that count in the batch and in a-gem's reference.
 * The first one under way takes the counters and the loss scale from the host's struct to the device. */
HsStatus hs_optimizer_announce(HsOptimizer *optimizer, HsContext *context, int64_t counted, int64_t reference_counted,
                               HsStepInput *input);
/* Gradient scales, from the loss scale that the step before left. */
HsStatus hs_optimizer_begin(HsOptimizer *optimizer, HsContext *context);
/* Statistics, decisions, update of every span; leaves optimizer->outcome. */
HsStatus hs_optimizer_update(HsOptimizer *optimizer, HsContext *context, const HsSpan *spans, int count);
/* The oldest step under way is over, and its outcome has reached the host. */
void hs_optimizer_collect(HsOptimizer *optimizer, const HsStepOutcome *outcome, HsStepReport *report);

#endif
