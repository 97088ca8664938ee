/* SPDX-License-Identifier: MIT
 *
 * What the files of the plan and its executor share; private to them.
 */
#ifndef HS_RUNTIME_PLAN_INTERNAL_H
#define HS_RUNTIME_PLAN_INTERNAL_H

#include "runtime/layers/layer.h"
#include "runtime/plan.h"

/* plan_schedule.c: fills plan->actions (kind and step only).  *turn: the action at which forward becomes backward. */
HsStatus hs_plan_schedule(HsPlan *plan, HsRecompute policy, int64_t recompute_every, int *turn);
/* The slots that backward of the step reads; returns how many. */
enum { HS_STEP_SLOTS = HS_STEP_INPUTS + HS_STEP_OUTPUTS + HS_STEP_SAVED };
int hs_step_backward_slots(const HsStep *step, int slots[HS_STEP_SLOTS]);

/* plan_offsets.c: offsets in one arena so that buffers alive at once never overlap; sets plan->activation_bytes. */
HsStatus hs_plan_place(HsPlan *plan);

/* execute.c: how one run of actions differs from another. */
typedef struct HsExecution {
    bool training;      /* dropout and z-loss on */
    bool sample_labels; /* the head replaces targets by labels drawn from the model */
    int64_t batch, sequence_length, position_start;
    uint64_t seed;
    uint32_t step;
    int64_t row_offset;
    const uint32_t *step_counter;        /* device memory, added to step; NULL: 0 */
    const float *gradient_scale;         /* device scalar; NULL: the plan's own */
    const HsTensor *k_caches, *v_caches; /* per step of the model; NULL: not decoding */
} HsExecution;

/* While a plan runs, the context's scratch is the plan's: enter returns what it was, leave gives it back. */
typedef struct HsPlanWorkspace {
    void *data;
    size_t bytes;
} HsPlanWorkspace;
HsPlanWorkspace hs_plan_enter(const HsPlan *plan, HsContext *context);
void hs_plan_leave(HsContext *context, HsPlanWorkspace outer);

/* The tensor in a buffer: `rows` may be fewer than planned (decoding). */
HsTensor hs_plan_tensor(const HsPlan *plan, int buffer, int64_t rows);
HsStatus hs_execute_action(const HsPlan *plan, HsContext *context, const HsAction *action,
                           const HsExecution *execution);
/* The same for the layer's forward, whatever the action's kind. */
HsStatus hs_execute_forward(const HsPlan *plan, HsContext *context, const HsAction *action,
                            const HsExecution *execution);
HsStatus hs_plan_load_inputs(const HsPlan *plan, HsContext *context, const int32_t *tokens, const int32_t *targets,
                             int64_t rows);

/* execute_nonfinite.c: zero every parameter's gradient. */
HsStatus hs_plan_clear_gradients(const HsPlan *plan, HsContext *context);

#endif
