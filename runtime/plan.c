/* SPDX-License-Identifier: MIT
 *
 * From schedule to lifetimes: the schedule is walked once with a table "slot -> buffer that holds it now".  Forward and
 * recomputation make new buffers, backward looks the table up, and a buffer lives from its first to its last touch.
 *
 * Gradients: the first backward action that reaches a slot makes the gradient's buffer and writes it, later ones add.
 * The gradient of a sum's residual input is the sum's own, so the table just gets a second name for the buffer.
 */
#include "runtime/plan.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/plan_internal.h"

typedef struct Walk {
    HsPlan *plan;
    int action;    /* now */
    int *value;    /* per slot */
    int *gradient; /* per slot */
    int *readers;  /* per slot: steps that read it forward; more than one when backward does */
} Walk;

static int new_buffer(Walk *walk, int slot, bool gradient, HsTensor tensor)
{
    HsPlan *plan = walk->plan;
    plan->buffers[plan->buffer_count] = (HsBuffer){
        .slot = slot,
        .gradient = gradient,
        .first_action = walk->action,
        .last_action = walk->action,
        .tensor = tensor,
        .bytes = hs_tensor_bytes(&tensor),
    };
    return plan->buffer_count++;
}

static int touch(Walk *walk, int buffer)
{
    if (buffer != HS_NONE)
        walk->plan->buffers[buffer].last_action = walk->action;
    return buffer;
}

static HsTensor slot_tensor(const HsPlan *plan, int slot)
{
    const HsSlot *info = &plan->model->slots[slot];
    int64_t rows = plan->batch * plan->sequence_length;
    return (HsTensor){ NULL, info->dtype, info->rank, { rows, info->columns, 1, 1 } };
}

static int read_value(Walk *walk, int slot)
{
    if (slot == HS_NONE)
        return HS_NONE;
    assert(walk->value[slot] != HS_NONE);
    return touch(walk, walk->value[slot]);
}

static int write_value(Walk *walk, int slot)
{
    if (slot == HS_NONE)
        return HS_NONE;
    walk->value[slot] = new_buffer(walk, slot, false, slot_tensor(walk->plan, slot));
    return walk->value[slot];
}

/* Who reads each slot: the step's output may overwrite its input only where nobody else, forward or backward, does. */
static void count_readers(const HsModel *model, int *readers)
{
    memset(readers, 0, (size_t)model->slot_count * sizeof *readers);
    for (int s = 0; s < model->step_count; s++) {
        const HsStep *step = &model->steps[s];
        int read[HS_STEP_SLOTS];
        for (int i = 0; i < HS_STEP_INPUTS; i++)
            if (step->inputs[i] != HS_NONE)
                readers[step->inputs[i]]++;
        for (int i = 0, count = hs_step_backward_slots(step, read); i < count; i++)
            readers[read[i]] += 2;
    }
}

static void bind_results(Walk *walk, HsAction *action)
{
    const HsModel *model = walk->plan->model;
    const HsStep *step = &model->steps[action->step];
    for (int i = 0; i < HS_STEP_OUTPUTS; i++)
        action->outputs[i] = HS_NONE;
    if (step->layer->in_place && walk->readers[step->inputs[0]] == 1) {
        walk->value[step->outputs[0]] = walk->value[step->inputs[0]];
        action->outputs[0] = touch(walk, walk->value[step->inputs[0]]);
    } else {
        for (int i = 0; i < HS_STEP_OUTPUTS; i++)
            action->outputs[i] = write_value(walk, step->outputs[i]);
    }
    for (int i = 0; i < HS_STEP_SAVED; i++)
        action->saved[i] = write_value(walk, step->saved[i]);
}

static void bind_scratch(Walk *walk, HsAction *action, bool backward)
{
    const HsStep *step = &walk->plan->model->steps[action->step];
    HsTensor scratch[HS_STEP_SCRATCH] = { 0 }, outputs[HS_STEP_OUTPUTS] = { 0 };
    for (int i = 0; i < HS_STEP_OUTPUTS; i++) {
        if (step->outputs[i] != HS_NONE)
            outputs[i] = slot_tensor(walk->plan, step->outputs[i]);
    }
    if (step->layer->scratch)
        step->layer->scratch(step, outputs, backward, scratch);
    for (int i = 0; i < HS_STEP_SCRATCH; i++)
        action->scratch[i] = hs_tensor_present(&scratch[i]) ? new_buffer(walk, HS_NONE, false, scratch[i]) : HS_NONE;
}

static void bind_forward(Walk *walk, HsAction *action)
{
    const HsStep *step = &walk->plan->model->steps[action->step];
    for (int i = 0; i < HS_STEP_INPUTS; i++) {
        action->inputs[i] = read_value(walk, step->inputs[i]);
        action->d_inputs[i] = HS_NONE;
    }
    for (int i = 0; i < HS_STEP_OUTPUTS; i++)
        action->d_outputs[i] = HS_NONE;
    bind_results(walk, action);
    bind_scratch(walk, action, false);
}

/* Where the gradient of input i goes; HS_NONE when the layer has nothing to do for it. */
static int bind_input_gradient(Walk *walk, HsAction *action, int i)
{
    const HsModel *model = walk->plan->model;
    const HsStep *step = &model->steps[action->step];
    int slot = step->inputs[i];
    if (slot == HS_NONE || !model->slots[slot].needs_gradient)
        return HS_NONE;
    bool first = walk->gradient[slot] == HS_NONE;
    if (step->layer->passes_gradient == i) {
        /* Step tables are built so that a sum is the last reader of its residual input. */
        assert(first);
        walk->gradient[slot] = walk->gradient[step->outputs[0]];
        return HS_NONE;
    }
    if (first && step->layer->in_place)
        walk->gradient[slot] = touch(walk, walk->gradient[step->outputs[0]]);
    else if (first)
        walk->gradient[slot] = new_buffer(walk, slot, true, slot_tensor(walk->plan, slot));
    assert(first || step->layer->accumulates);
    action->accumulate[i] = !first;
    return touch(walk, walk->gradient[slot]);
}

static void bind_backward(Walk *walk, HsAction *action)
{
    const HsStep *step = &walk->plan->model->steps[action->step];
    const HsLayer *layer = step->layer;
    for (int i = 0; i < HS_STEP_INPUTS; i++)
        action->inputs[i] = layer->reads_inputs >> i & 1u ? read_value(walk, step->inputs[i]) : HS_NONE;
    if (layer->turns) {
        bind_results(walk, action);
    } else {
        for (int i = 0; i < HS_STEP_OUTPUTS; i++)
            action->outputs[i] = layer->reads_outputs >> i & 1u ? read_value(walk, step->outputs[i]) : HS_NONE;
        for (int i = 0; i < HS_STEP_SAVED; i++)
            action->saved[i] = layer->reads_saved >> i & 1u ? read_value(walk, step->saved[i]) : HS_NONE;
    }
    for (int i = 0; i < HS_STEP_OUTPUTS; i++)
        action->d_outputs[i] = step->outputs[i] == HS_NONE ? HS_NONE : touch(walk, walk->gradient[step->outputs[i]]);
    for (int i = 0; i < HS_STEP_INPUTS; i++)
        action->d_inputs[i] = bind_input_gradient(walk, action, i);
    bind_scratch(walk, action, true);
}

/* Lifetimes of everything, by walking the schedule. */
static HsStatus bind_all(HsPlan *plan)
{
    const HsModel *model = plan->model;
    size_t slots = (size_t)model->slot_count;
    const size_t most =
        (size_t)plan->action_count * (HS_STEP_INPUTS + HS_STEP_OUTPUTS + HS_STEP_SAVED + HS_STEP_SCRATCH) + 3;
    int *tables = malloc(3 * slots * sizeof *tables);
    plan->buffers = calloc(most, sizeof *plan->buffers);
    if (tables == NULL || plan->buffers == NULL) {
        free(tables);
        return hs_fail(HS_ENOMEM, "plan: no memory for %zu buffers", most);
    }
    for (size_t i = 0; i < 2 * slots; i++)
        tables[i] = HS_NONE;
    Walk walk = { .plan = plan, .value = tables, .gradient = tables + slots, .readers = tables + 2 * slots };
    count_readers(model, walk.readers);
    /* Inputs are there before the first action. */
    plan->tokens_buffer = write_value(&walk, model->tokens_slot);
    plan->targets_buffer = write_value(&walk, model->targets_slot);
    plan->scale_buffer = new_buffer(&walk, HS_NONE, false, hs_tensor_1d(NULL, HS_F32, 1));
    for (; walk.action < plan->action_count; walk.action++) {
        HsAction *action = &plan->actions[walk.action];
        if (action->kind == HS_ACTION_BACKWARD)
            bind_backward(&walk, action);
        else
            bind_forward(&walk, action);
    }
    /* Losses are read, and the scale must stay, until the end. */
    walk.action = plan->action_count - 1;
    plan->losses_buffer = touch(&walk, walk.value[model->steps[model->loss_step].outputs[0]]);
    touch(&walk, plan->scale_buffer);
    free(tables);
    return HS_OK;
}

static void measure(HsPlan *plan, int turn)
{
    for (int i = 0; i < plan->buffer_count; i++) {
        const HsBuffer *buffer = &plan->buffers[i];
        if (plan->training && buffer->first_action < turn && buffer->last_action > turn)
            plan->kept_bytes += buffer->bytes;
    }
    for (int a = 0; a < plan->action_count; a++) {
        const HsAction *action = &plan->actions[a];
        for (int i = 0; i < HS_STEP_SCRATCH && action->step == plan->model->loss_step; i++) {
            if (action->scratch[i] != HS_NONE)
                plan->head_bytes += plan->buffers[action->scratch[i]].bytes;
        }
    }
}

/* Every action without data: shape errors surface, scratch and flops are counted. */
static HsStatus dry_run(HsPlan *plan, const HsContext *context)
{
    HsContext dry = *context;
    dry.dry_run = true;
    dry.workspace_needed = 0;
    /* Drawing labels is counted too: a probe runs in the same scratch. */
    HsExecution execution = { .training = plan->training,
                              .sample_labels = plan->training,
                              .batch = plan->batch,
                              .sequence_length = plan->sequence_length };
    double *sums[] = { [HS_ACTION_FORWARD] = &plan->forward_flops,
                       [HS_ACTION_RECOMPUTE] = &plan->recompute_flops,
                       [HS_ACTION_BACKWARD] = &plan->backward_flops };
    for (int a = 0; a < plan->action_count; a++) {
        HsAction *action = &plan->actions[a];
        const HsStep *step = &plan->model->steps[action->step];
        dry.flops = 0;
        HsStatus status = hs_execute_action(plan, &dry, action, &execution);
        if (status != HS_OK)
            return hs_error_prefix(status, "plan: %s", step->name);
        action->flops = dry.flops;
        *sums[action->kind] += action->flops;
        if (action->kind == HS_ACTION_BACKWARD && step->layer->turns) {
            /* The head's one action does forward's work too: count that share where it belongs. */
            dry.flops = 0;
            HS_TRY(hs_execute_forward(plan, &dry, action, &execution));
            plan->forward_flops += dry.flops;
            plan->backward_flops -= dry.flops;
        }
    }
    plan->workspace_bytes = dry.workspace_needed;
    return HS_OK;
}

/* Every value and its gradient, some of them made again, and what the largest operations add: sums below this bound fit
 * in their types. */
static HsStatus check_size(const HsPlan *plan)
{
    const HsModel *model = plan->model;
    double columns = 0;
    for (int i = 0; i < model->slot_count; i++)
        columns += (double)model->slots[i].columns;
    const double bytes = 4 * sizeof(float) * columns * (double)plan->batch * (double)plan->sequence_length;
    if (bytes <= (double)HS_SIZE_MOST)
        return HS_OK;
    return hs_fail(HS_ECONFIG,
                   "%lld sequences at a time (memory.micro_batch, else batch_size) of %lld tokens (max_length) need up "
                   "to %.3g GiB for this model's activations, more than can be planned: lower them, or model.layers "
                   "and model.width",
                   (long long)plan->batch, (long long)plan->sequence_length, bytes / 0x1p30);
}

HsStatus hs_plan_create(HsModel *model, HsContext *context, int64_t batch, int64_t sequence_length, bool training,
                        HsRecompute policy, int64_t recompute_every, HsPlan *plan)
{
    *plan = (HsPlan){ .model = model, .batch = batch, .sequence_length = sequence_length, .training = training };
    HsStatus status = HS_OK;
    int turn = 0;
    HS_TRY(check_size(plan));
    HS_TRY_GOTO(status, hs_plan_schedule(plan, policy, recompute_every, &turn), failed);
    HS_TRY_GOTO(status, bind_all(plan), failed);
    measure(plan, turn);
    HS_TRY_GOTO(status, dry_run(plan, context), failed);
    HS_TRY_GOTO(status, hs_plan_place(plan), failed);
    return HS_OK;
failed:
    hs_plan_destroy(plan);
    return status;
}

/* A plan on paper is never run. */
static HsStatus make_host_losses(HsPlan *plan, const HsContext *context)
{
    if (context->dry_run)
        return HS_OK;
    const HsTensor *losses = &plan->buffers[plan->losses_buffer].tensor;
    plan->host_losses = malloc(hs_tensor_bytes(losses));
    if (plan->host_losses == NULL)
        return hs_fail(HS_ENOMEM, "plan: no memory for %zu bytes of losses", hs_tensor_bytes(losses));
    return HS_OK;
}

HsStatus hs_plan_commit(HsPlan *plan, HsContext *context)
{
    HS_TRY(make_host_losses(plan, context));
    hs_arena_init(&plan->activations, context->device, HS_MEMORY_ACTIVATIONS);
    hs_arena_init(&plan->workspace, context->device, HS_MEMORY_WORKSPACE);
    hs_arena_reserve(&plan->activations, plan->activation_bytes);
    HS_TRY(hs_arena_commit(&plan->activations));
    if (plan->workspace_bytes == 0)
        return HS_OK;
    hs_arena_reserve(&plan->workspace, plan->workspace_bytes);
    return hs_arena_commit(&plan->workspace);
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

void hs_plan_make_room(HsPlan *plan, const HsPlan *guest)
{
    plan->activation_bytes = larger(plan->activation_bytes, guest->activation_bytes);
    plan->workspace_bytes = larger(plan->workspace_bytes, guest->workspace_bytes);
}

HsStatus hs_plan_commit_in(HsPlan *guest, const HsContext *context, const HsPlan *plan)
{
    assert(plan->activation_bytes >= guest->activation_bytes && plan->workspace_bytes >= guest->workspace_bytes);
    guest->activations = plan->activations;
    guest->workspace = plan->workspace;
    guest->guest = true;
    return make_host_losses(guest, context);
}

void hs_plan_destroy(HsPlan *plan)
{
    if (plan->activations.device && !plan->guest)
        hs_arena_deinit(&plan->activations);
    if (plan->workspace.device && !plan->guest)
        hs_arena_deinit(&plan->workspace);
    free(plan->host_losses);
    free(plan->actions);
    free(plan->buffers);
    *plan = (HsPlan){ 0 };
}
