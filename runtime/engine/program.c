/* SPDX-License-Identifier: MIT
 *
 * From schedule to lifetimes: the schedule is walked once with a table "slot -> buffer that holds it now".  Forward and
 * recomputation make new buffers, backward looks the table up, and a buffer lives from its first to its last touch.
 *
 * Gradients: the first backward action that reaches a slot makes the gradient's buffer and writes it, later ones add.
 * The gradient of a sum's residual input is the sum's own, so the table just gets a second name for the buffer.
 * A layer that carries a sum completes the sum's gradient before it hands that on.  What backward makes for a node below
 * is a value like others; a share of a parameter's gradient has a buffer only where gradients pass: these have memory then
 * for the time of the parameter's own node alone.
 */
#include "runtime/engine/program.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/engine/program_internal.h"

typedef struct Walk {
    HsProgram *program;
    int action;    /* now */
    int *value;    /* per slot */
    int *gradient; /* per slot */
    int *readers;  /* per slot: nodes that read it forward; more than one when backward does */
} Walk;

static int new_buffer(Walk *walk, int slot, bool gradient, HsTensor tensor)
{
    HsProgram *program = walk->program;
    program->buffers[program->buffer_count] = (HsBuffer){
        .slot = slot,
        .gradient = gradient,
        .first_action = walk->action,
        .last_action = walk->action,
        .tensor = tensor,
        .bytes = hs_tensor_bytes(&tensor),
    };
    return program->buffer_count++;
}

static int touch(Walk *walk, int buffer)
{
    if (buffer != HS_NONE)
        walk->program->buffers[buffer].last_action = walk->action;
    return buffer;
}

static HsTensor slot_tensor(const HsProgram *program, int slot)
{
    const HsSlot *info = &program->model->slots[slot];
    const int64_t rows = info->rows > 0 ? info->rows : program->batch * program->sequence_length;
    if (hs_format_rounds(info->format)) {
        const HsCodes codes = { info->format, info->granularity, info->columns, rows, NULL, NULL, NULL };
        return hs_tensor_1d(NULL, HS_U8, (int64_t)hs_codes_bytes(&codes));
    }
    return (HsTensor){ .dtype = info->dtype, .rank = info->rank, .shape = { rows, info->columns, 1, 1 } };
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
    walk->value[slot] = new_buffer(walk, slot, false, slot_tensor(walk->program, slot));
    return walk->value[slot];
}

/* Which nodes read each slot: a node's output may overwrite its input only where no other node, forward or backward,
 * reads that. */
static void count_readers(const HsModel *model, int *readers)
{
    memset(readers, 0, (size_t)model->slot_count * sizeof *readers);
    for (int s = 0; s < model->node_count; s++) {
        const HsNode *node = &model->nodes[s];
        int read[HS_NODE_SLOTS];
        for (int i = 0; i < HS_NODE_INPUTS; i++)
            if (node->inputs[i] != HS_NONE)
                readers[node->inputs[i]]++;
        for (int i = 0, count = hs_node_backward_slots(model, node, read); i < count; i++)
            readers[read[i]] += 2;
    }
}

static void bind_results(Walk *walk, HsAction *action)
{
    const HsModel *model = walk->program->model;
    const HsNode *node = &model->nodes[action->node];
    for (int i = 0; i < HS_NODE_OUTPUTS; i++)
        action->outputs[i] = HS_NONE;
    if (node->layer->in_place && walk->readers[node->inputs[0]] == 1) {
        walk->value[node->outputs[0]] = walk->value[node->inputs[0]];
        action->outputs[0] = touch(walk, walk->value[node->inputs[0]]);
    } else {
        for (int i = 0; i < HS_NODE_OUTPUTS; i++)
            action->outputs[i] = i == 0 && action->has_sum        ? read_value(walk, node->outputs[i])
                                 : hs_node_writes(model, node, i) ? write_value(walk, node->outputs[i])
                                                                  : HS_NONE;
    }
    for (int i = 0; i < HS_NODE_SAVED; i++)
        action->saved[i] = hs_node_saves(model, node, i) ? write_value(walk, node->saved[i]) : HS_NONE;
}

static void bind_scratch(Walk *walk, HsAction *action, bool backward)
{
    const HsNode *node = &walk->program->model->nodes[action->node];
    HsTensor scratch[HS_NODE_SCRATCH] = { 0 }, outputs[HS_NODE_OUTPUTS] = { 0 };
    for (int i = 0; i < HS_NODE_OUTPUTS; i++) {
        if (node->outputs[i] != HS_NONE)
            outputs[i] = slot_tensor(walk->program, node->outputs[i]);
    }
    if (node->layer->scratch)
        node->layer->scratch(node, outputs, backward, scratch);
    for (int i = 0; i < HS_NODE_SCRATCH; i++)
        action->scratch[i] = hs_tensor_present(&scratch[i]) ? new_buffer(walk, HS_NONE, false, scratch[i]) : HS_NONE;
}

/* What this backward makes for a node below, and what it takes of nodes above. */
static void bind_made(Walk *walk, HsAction *action)
{
    const HsModel *model = walk->program->model;
    const HsNode *node = &model->nodes[action->node];
    for (int i = 0; i < HS_NODE_MADE; i++) {
        const int slot = node->made[i];
        const bool codes = i == HS_MADE_CODES && model->looks_at_inputs; /* dy is read as it is */
        const bool buffered = slot != HS_NONE && !codes && (model->slots[slot].share_of == HS_NONE || model->passing);
        action->made[i] = buffered ? write_value(walk, slot) : HS_NONE;
        action->taken[i] = node->taken[i] == HS_NONE ? HS_NONE : touch(walk, walk->value[node->taken[i]]);
    }
}

static void bind_forward(Walk *walk, HsAction *action)
{
    const HsNode *node = &walk->program->model->nodes[action->node];
    for (int i = 0; i < HS_NODE_INPUTS; i++) {
        const bool left_out = action->has_sum || (i == HS_INPUT_CODES && !node->takes_x_codes);
        action->inputs[i] = left_out ? HS_NONE : read_value(walk, node->inputs[i]);
        action->d_inputs[i] = HS_NONE;
    }
    for (int i = 0; i < HS_NODE_OUTPUTS; i++)
        action->d_outputs[i] = HS_NONE;
    for (int i = 0; i < HS_NODE_MADE; i++)
        action->made[i] = action->taken[i] = HS_NONE;
    bind_results(walk, action);
    bind_scratch(walk, action, false);
}

/* Where the gradient of the node's input i goes; HS_NONE when the layer has nothing to do for it. */
static int bind_input_gradient(Walk *walk, const HsNode *node, int i, bool *accumulate)
{
    const HsModel *model = walk->program->model;
    int slot = node->inputs[i];
    if (slot == HS_NONE || !model->slots[slot].needs_gradient)
        return HS_NONE;
    bool first = walk->gradient[slot] == HS_NONE;
    if (node->layer->passes_gradient == i) {
        /* Step tables are built so that a sum is the last reader of its residual input. */
        assert(first);
        walk->gradient[slot] = walk->gradient[node->outputs[0]];
        return HS_NONE;
    }
    if (first && i == 0 && node->layer->in_place)
        walk->gradient[slot] = touch(walk, walk->gradient[node->outputs[0]]);
    else if (first)
        walk->gradient[slot] = new_buffer(walk, slot, true, slot_tensor(walk->program, slot));
    assert(first || node->layer->accumulates);
    *accumulate = !first;
    return touch(walk, walk->gradient[slot]);
}

/* A carried sum's gradient, which others may have begun. */
static void bind_sum_gradient(Walk *walk, HsAction *action)
{
    const HsNode *node = &walk->program->model->nodes[action->node];
    int *const gradient = &walk->gradient[node->outputs[0]];
    action->accumulate_sum = *gradient != HS_NONE;
    if (*gradient == HS_NONE)
        *gradient = new_buffer(walk, node->outputs[0], true, slot_tensor(walk->program, node->outputs[0]));
}

static void bind_backward(Walk *walk, HsAction *action)
{
    const HsModel *model = walk->program->model;
    const HsNode *node = &model->nodes[action->node];
    const HsLayer *layer = node->layer;
    const unsigned inputs = hs_node_reads_inputs(model, node);
    for (int i = 0; i < HS_NODE_INPUTS; i++)
        action->inputs[i] = inputs >> i & 1u ? read_value(walk, node->inputs[i]) : HS_NONE;
    if (layer->turns) {
        bind_results(walk, action);
    } else {
        for (int i = 0; i < HS_NODE_OUTPUTS; i++)
            action->outputs[i] = layer->reads_outputs >> i & 1u ? read_value(walk, node->outputs[i]) : HS_NONE;
        for (int i = 0; i < HS_NODE_SAVED; i++)
            action->saved[i] = (layer->reads_saved >> i & 1u) && hs_node_saves(model, node, i)
                                   ? read_value(walk, node->saved[i])
                                   : HS_NONE;
    }
    if (layer->carries_sum)
        bind_sum_gradient(walk, action);
    for (int i = 0; i < HS_NODE_OUTPUTS; i++)
        action->d_outputs[i] = node->outputs[i] == HS_NONE ? HS_NONE : touch(walk, walk->gradient[node->outputs[i]]);
    for (int i = 0; i < HS_NODE_INPUTS; i++)
        action->d_inputs[i] = bind_input_gradient(walk, node, i, &action->accumulate[i]);
    bind_made(walk, action);
    bind_scratch(walk, action, true);
}

/* Lifetimes of everything, by walking the schedule. */
static HsStatus bind_all(HsProgram *program)
{
    const HsModel *model = program->model;
    size_t slots = (size_t)model->slot_count;
    const size_t most = (size_t)program->action_count *
                            (HS_NODE_INPUTS + HS_NODE_OUTPUTS + HS_NODE_SAVED + HS_NODE_SCRATCH + HS_NODE_MADE) +
                        5;
    int *tables = malloc(3 * slots * sizeof *tables);
    program->buffers = calloc(most, sizeof *program->buffers);
    if (tables == NULL || program->buffers == NULL) {
        free(tables);
        return hs_fail(HS_ENOMEM, "program: no memory for %zu buffers", most);
    }
    for (size_t i = 0; i < 2 * slots; i++)
        tables[i] = HS_NONE;
    Walk walk = { .program = program, .value = tables, .gradient = tables + slots, .readers = tables + 2 * slots };
    count_readers(model, walk.readers);
    /* Inputs are there before the first action. */
    program->tokens_buffer = write_value(&walk, model->tokens_slot);
    program->targets_buffer = write_value(&walk, model->targets_slot);
    program->starts_buffer =
        model->documents ? new_buffer(&walk, HS_NONE, false, slot_tensor(program, model->tokens_slot)) : HS_NONE;
    program->rows_buffer = new_buffer(&walk, HS_NONE, false, slot_tensor(program, model->targets_slot));
    program->scale_buffer = new_buffer(&walk, HS_NONE, false, hs_tensor_1d(NULL, HS_F32, 1));
    for (; walk.action < program->action_count; walk.action++) {
        HsAction *action = &program->actions[walk.action];
        if (action->kind == HS_ACTION_BACKWARD)
            bind_backward(&walk, action);
        else
            bind_forward(&walk, action);
        if (action->node == model->loss_node)
            touch(&walk, program->rows_buffer);
    }
    /* Losses are read, and the scale and the documents' starts must stay, until the end. */
    walk.action = program->action_count - 1;
    program->losses_buffer = touch(&walk, walk.value[model->nodes[model->loss_node].outputs[0]]);
    touch(&walk, program->scale_buffer);
    touch(&walk, program->starts_buffer);
    free(tables);
    return HS_OK;
}

static void measure(HsProgram *program, int turn)
{
    for (int i = 0; i < program->buffer_count; i++) {
        const HsBuffer *buffer = &program->buffers[i];
        if (program->training && buffer->first_action < turn && buffer->last_action > turn)
            program->kept_bytes += buffer->bytes;
    }
    for (int a = 0; a < program->action_count; a++) {
        const HsAction *action = &program->actions[a];
        for (int i = 0; i < HS_NODE_SCRATCH && action->node == program->model->loss_node; i++) {
            if (action->scratch[i] != HS_NONE)
                program->head_bytes += program->buffers[action->scratch[i]].bytes;
        }
    }
}

/* The scratch of passes that end earlier. */
static HsStatus plan_lengths(const HsProgram *program, HsContext *dry, HsExecution execution)
{
    const int64_t grain = program->length_grain;
    for (int64_t length = grain; length > 0 && length < program->sequence_length; length += grain) {
        execution.sequence_length = length;
        for (int a = 0; a < program->action_count; a++)
            HS_TRY(hs_execute_action(program, dry, &program->actions[a], &execution));
    }
    return HS_OK;
}

/* Every action without data: shape errors surface, scratch and flops are counted. */
static HsStatus dry_run(HsProgram *program, const HsContext *context)
{
    HsContext dry = *context;
    dry.dry_run = true;
    dry.observer = NULL;
    dry.workspace_needed = 0;
    HS_TRY(hs_model_cast(program->model, &dry, program->training));
    /* Drawing labels is counted too: a probe runs in the same scratch. */
    HsExecution execution = { .training = program->training,
                              .sample_labels = program->training,
                              .batch = program->batch,
                              .sequence_length = program->sequence_length };
    double *sums[] = { [HS_ACTION_FORWARD] = &program->forward_flops,
                       [HS_ACTION_RECOMPUTE] = &program->recompute_flops,
                       [HS_ACTION_BACKWARD] = &program->backward_flops };
    for (int a = 0; a < program->action_count; a++) {
        HsAction *action = &program->actions[a];
        const HsNode *node = &program->model->nodes[action->node];
        dry.flops = 0;
        HsStatus status = hs_execute_action(program, &dry, action, &execution);
        if (status != HS_OK)
            return hs_error_prefix(status, "program: %s", node->name);
        action->flops = dry.flops;
        *sums[action->kind] += action->flops;
        if (action->kind == HS_ACTION_BACKWARD && node->layer->turns) {
            /* The head's one action does forward's work too: count that share where it belongs. */
            dry.flops = 0;
            HS_TRY(hs_execute_forward(program, &dry, action, &execution));
            program->forward_flops += dry.flops;
            program->backward_flops -= dry.flops;
        }
    }
    HS_TRY(plan_lengths(program, &dry, execution));
    program->workspace_bytes = dry.workspace_needed;
    return HS_OK;
}

/* Every value and its gradient, some of them made again, and what the largest operations add: sums below this bound fit
 * in their types. */
static HsStatus check_size(const HsProgram *program)
{
    const HsModel *model = program->model;
    double columns = 0;
    for (int i = 0; i < model->slot_count; i++)
        columns += (double)model->slots[i].columns;
    const double bytes = 4 * sizeof(float) * columns * (double)program->batch * (double)program->sequence_length;
    if (bytes <= (double)HS_SIZE_MOST)
        return HS_OK;
    return hs_fail(HS_ECONFIG,
                   "%lld sequences at a time (memory.micro_batch, else batch_size) of %lld tokens (max_length) need up "
                   "to %.3g GiB for this model's activations, more than can be planned: lower them, or model.layers "
                   "and model.width",
                   (long long)program->batch, (long long)program->sequence_length, bytes / 0x1p30);
}

HsStatus hs_program_create(HsModel *model, HsContext *context, int64_t batch, int64_t sequence_length, bool training,
                           HsRecompute policy, int64_t recompute_every, HsProgram *program)
{
    *program = (HsProgram){ .model = model, .batch = batch, .sequence_length = sequence_length, .training = training };
    HsStatus status = HS_OK;
    int turn = 0;
    HS_TRY(check_size(program));
    program->length_grain = hs_program_length_grain(model, context->device, sequence_length);
    HS_TRY_GOTO(status, hs_program_schedule(program, policy, recompute_every, &turn), failed);
    HS_TRY_GOTO(status, bind_all(program), failed);
    measure(program, turn);
    HS_TRY_GOTO(status, dry_run(program, context), failed);
    HS_TRY_GOTO(status, hs_program_place(program), failed);
    return HS_OK;
failed:
    hs_program_destroy(program);
    return status;
}

/* A program of a dry run is never executed. */
static HsStatus make_host_memory(HsProgram *program, const HsContext *context)
{
    if (context->dry_run)
        return HS_OK;
    const size_t losses = hs_tensor_bytes(&program->buffers[program->losses_buffer].tensor);
    const size_t rows = hs_tensor_bytes(&program->buffers[program->rows_buffer].tensor);
    program->host_losses = malloc(losses);
    program->host_rows = malloc(rows);
    if (program->host_losses == NULL || program->host_rows == NULL)
        return hs_fail(HS_ENOMEM, "program: no memory for %zu bytes of losses and %zu of rows", losses, rows);
    return HS_OK;
}

HsStatus hs_program_commit(HsProgram *program, HsContext *context)
{
    HS_TRY(make_host_memory(program, context));
    hs_arena_init(&program->activations, context->device, HS_MEMORY_ACTIVATIONS);
    hs_arena_init(&program->workspace, context->device, HS_MEMORY_WORKSPACE);
    hs_arena_reserve(&program->activations, program->activation_bytes);
    HS_TRY(hs_arena_commit(&program->activations));
    if (program->workspace_bytes == 0)
        return HS_OK;
    hs_arena_reserve(&program->workspace, program->workspace_bytes);
    return hs_arena_commit(&program->workspace);
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

void hs_program_make_room(HsProgram *program, const HsProgram *guest)
{
    program->activation_bytes = larger(program->activation_bytes, guest->activation_bytes);
    program->workspace_bytes = larger(program->workspace_bytes, guest->workspace_bytes);
}

HsStatus hs_program_commit_in(HsProgram *guest, const HsContext *context, const HsProgram *program)
{
    assert(program->activation_bytes >= guest->activation_bytes && program->workspace_bytes >= guest->workspace_bytes);
    guest->activations = program->activations;
    guest->workspace = program->workspace;
    guest->guest = true;
    return make_host_memory(guest, context);
}

void hs_program_destroy(HsProgram *program)
{
    if (program->activations.device && !program->guest)
        hs_arena_deinit(&program->activations);
    if (program->workspace.device && !program->guest)
        hs_arena_deinit(&program->workspace);
    free(program->host_losses);
    free(program->host_rows);
    free(program->actions);
    free(program->buffers);
    *program = (HsProgram){ 0 };
}
