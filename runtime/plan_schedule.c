/* SPDX-License-Identifier: MIT
 *
 * The order of actions.  Without recomputation: forward 0..n-1, then backward n-1..0, with the head's step once, at the
 * turn.  A policy drops the outputs of marked steps in every N-th block.  Just before the first backward action that
 * reads a dropped value of a block, those of the block's marked steps are run again whose outputs backward, or another
 * step that is run again, will read.  Steps are pure, so what they make again is what was dropped, bit for bit
 * (Chen et al. 2016 chose segments of the same kind).
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/plan_internal.h"

/* One row per policy; its index is HsRecompute. */
static const struct {
    const char *name;
    unsigned group;
} policies[] = {
    [HS_RECOMPUTE_NONE] = { "none", 0 },
    [HS_RECOMPUTE_ATTENTION] = { "attention", HS_GROUP_ATTENTION },
    [HS_RECOMPUTE_MLP] = { "mlp", HS_GROUP_MLP },
    [HS_RECOMPUTE_BLOCK] = { "block", HS_GROUP_BLOCK },
};

HsStatus hs_recompute_find(const char *name, HsRecompute *policy)
{
    for (size_t i = 0; i < sizeof policies / sizeof policies[0]; i++) {
        if (strcmp(policies[i].name, name) == 0) {
            *policy = (HsRecompute)i;
            return HS_OK;
        }
    }
    return hs_fail(HS_ECONFIG, "memory.recompute: there is no policy %s; take none, attention, mlp or block", name);
}

bool hs_step_backward_reads(const HsStep *step, int slot)
{
    const HsLayer *layer = step->layer;
    for (int i = 0; i < HS_STEP_INPUTS; i++) {
        if ((layer->reads_inputs >> i & 1u) && step->inputs[i] == slot)
            return true;
    }
    for (int i = 0; i < HS_STEP_OUTPUTS; i++) {
        if ((layer->reads_outputs >> i & 1u) && step->outputs[i] == slot)
            return true;
    }
    for (int i = 0; i < HS_STEP_SAVED; i++) {
        if ((layer->reads_saved >> i & 1u) && step->saved[i] == slot)
            return true;
    }
    return false;
}

static bool step_makes(const HsStep *step, const bool *wanted)
{
    bool makes = false;
    for (int i = 0; i < HS_STEP_OUTPUTS; i++)
        makes = makes || (step->outputs[i] != HS_NONE && wanted[step->outputs[i]]);
    for (int i = 0; i < HS_STEP_SAVED; i++)
        makes = makes || (step->saved[i] != HS_NONE && wanted[step->saved[i]]);
    return makes;
}

typedef struct Schedule {
    HsPlan *plan;
    bool *dropped; /* per slot: thrown away after forward */
    bool *needed;  /* per slot: dropped, and must be made again */
    bool *again;   /* per step: run again */
} Schedule;

static void append(HsPlan *plan, HsActionKind kind, int step)
{
    plan->actions[plan->action_count++] = (HsAction){ .kind = kind, .step = step };
}

static void mark_dropped(Schedule *schedule, unsigned group, int64_t every)
{
    const HsModel *model = schedule->plan->model;
    for (int slot = 0; slot < model->slot_count; slot++) {
        int producer = model->slots[slot].producer;
        if (producer == HS_NONE)
            continue;
        const HsStep *step = &model->steps[producer];
        schedule->dropped[slot] = (step->recompute_group & group) && step->block >= 0 && step->block % every == 0;
    }
}

/* Backward's reads, closed under the inputs of the steps that make them. */
static void mark_needed(Schedule *schedule)
{
    const HsModel *model = schedule->plan->model;
    for (int slot = 0; slot < model->slot_count; slot++) {
        for (int s = 0; s < model->step_count && schedule->dropped[slot]; s++)
            schedule->needed[slot] = schedule->needed[slot] || hs_step_backward_reads(&model->steps[s], slot);
    }
    for (int s = model->step_count - 1; s >= 0; s--) {
        const HsStep *step = &model->steps[s];
        schedule->again[s] = step_makes(step, schedule->needed);
        for (int i = 0; schedule->again[s] && i < HS_STEP_INPUTS; i++) {
            if (step->inputs[i] != HS_NONE && schedule->dropped[step->inputs[i]])
                schedule->needed[step->inputs[i]] = true;
        }
    }
}

/* Does backward of this step read something that is to be made again? */
static bool reads_needed(const Schedule *schedule, const HsStep *step)
{
    for (int slot = 0; slot < schedule->plan->model->slot_count; slot++) {
        if (schedule->needed[slot] && hs_step_backward_reads(step, slot))
            return true;
    }
    return false;
}

static void append_backward(Schedule *schedule)
{
    HsPlan *plan = schedule->plan;
    const HsModel *model = plan->model;
    int remade_block = HS_NONE;
    for (int s = model->step_count - 1; s >= 0; s--) {
        const HsStep *step = &model->steps[s];
        if (step->block >= 0 && step->block != remade_block && reads_needed(schedule, step)) {
            remade_block = step->block;
            for (int t = 0; t < model->step_count; t++) {
                if (schedule->again[t] && model->steps[t].block == remade_block)
                    append(plan, HS_ACTION_RECOMPUTE, t);
            }
        }
        append(plan, HS_ACTION_BACKWARD, s);
    }
}

HsStatus hs_plan_schedule(HsPlan *plan, HsRecompute policy, int64_t recompute_every, int *turn)
{
    const HsModel *model = plan->model;
    size_t steps = (size_t)model->step_count, slots = (size_t)model->slot_count;
    assert(model->loss_step == model->step_count - 1);
    bool *marks = calloc(2 * slots + steps, sizeof *marks);
    plan->actions = calloc(3 * steps, sizeof *plan->actions);
    if (marks == NULL || plan->actions == NULL) {
        free(marks);
        return hs_fail(HS_ENOMEM, "plan: no memory for a schedule of %zu steps", steps);
    }
    Schedule schedule = { .plan = plan, .dropped = marks, .needed = marks + slots, .again = marks + 2 * slots };
    for (int s = 0; s < model->step_count; s++) {
        if (!plan->training || !model->steps[s].layer->turns)
            append(plan, HS_ACTION_FORWARD, s);
    }
    *turn = plan->action_count;
    if (plan->training) {
        mark_dropped(&schedule, policies[policy].group, recompute_every);
        mark_needed(&schedule);
        append_backward(&schedule);
    }
    free(marks);
    return HS_OK;
}
