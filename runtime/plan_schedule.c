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

static int append_read(const int *places, int count, unsigned read, int *slots, int used)
{
    for (int i = 0; i < count; i++)
        if ((read >> i & 1u) && places[i] != HS_NONE)
            slots[used++] = places[i];
    return used;
}

int hs_step_backward_slots(const HsStep *step, int slots[HS_STEP_SLOTS])
{
    const HsLayer *layer = step->layer;
    int used = append_read(step->inputs, HS_STEP_INPUTS, layer->reads_inputs, slots, 0);
    used = append_read(step->outputs, HS_STEP_OUTPUTS, layer->reads_outputs, slots, used);
    return append_read(step->saved, HS_STEP_SAVED, layer->reads_saved, slots, used);
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
    for (int s = 0; s < model->step_count; s++) {
        int read[HS_STEP_SLOTS];
        for (int i = 0, count = hs_step_backward_slots(&model->steps[s], read); i < count; i++)
            schedule->needed[read[i]] = schedule->needed[read[i]] || schedule->dropped[read[i]];
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
    int read[HS_STEP_SLOTS];
    for (int i = 0, count = hs_step_backward_slots(step, read); i < count; i++)
        if (schedule->needed[read[i]])
            return true;
    return false;
}

/* A block's steps stand together: `step` is one of them. */
static void append_again(Schedule *schedule, int step)
{
    const HsModel *model = schedule->plan->model;
    const int block = model->steps[step].block;
    int first = step;
    while (first > 0 && model->steps[first - 1].block == block)
        first--;
    for (int s = first; s < model->step_count && model->steps[s].block == block; s++)
        if (schedule->again[s])
            append(schedule->plan, HS_ACTION_RECOMPUTE, s);
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
            append_again(schedule, s);
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
