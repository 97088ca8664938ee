/* SPDX-License-Identifier: MIT
 *
 * Running a program: each action's buffers become tensors, its layer is called.  Nothing is allocated here.
 * hs_program_run is the one walk over the actions: training, probes and evaluation (below), decoding (decode.c), the
 * search for non-finite values (execute_nonfinite.c) and histograms of gradients (gradient_histograms.c).
 */
#include <assert.h>

#include "runtime/engine/program_internal.h"

HsTensor hs_program_tensor(const HsProgram *program, int buffer, int64_t rows)
{
    if (buffer == HS_NONE)
        return (HsTensor){ 0 };
    HsTensor tensor = program->buffers[buffer].tensor;
    tensor.data = hs_arena_at(&program->activations, program->buffers[buffer].offset);
    const int slot = program->buffers[buffer].slot;
    const HsSlot *info = slot == HS_NONE ? NULL : &program->model->slots[slot];
    if (info && info->rows == 0 && (!hs_format_rounds(info->format) || program->buffers[buffer].gradient))
        tensor.shape[0] = rows;
    return tensor;
}

/* A share of a parameter's gradient without a buffer goes there at once. */
static void bind_made(const HsProgram *program, const HsAction *action, int64_t rows, HsLayerCall *call)
{
    const HsModel *model = program->model;
    const HsNode *node = &model->nodes[action->node];
    for (int i = 0; i < HS_NODE_MADE; i++) {
        call->taken[i] = hs_program_tensor(program, action->taken[i], rows);
        call->made[i] = hs_program_tensor(program, action->made[i], rows);
        const int share_of = node->made[i] == HS_NONE ? HS_NONE : model->slots[node->made[i]].share_of;
        if (share_of != HS_NONE && action->kind == HS_ACTION_BACKWARD && action->made[i] == HS_NONE)
            call->made[i] = model->params[share_of].gradient;
    }
}

static void bind_amaxes(const HsModel *model, const int *slots, int count, bool gradient, bool training,
                        HsTensor *tensors)
{
    for (int i = 0; i < count; i++)
        tensors[i].amax = hs_model_amax(model, slots[i], gradient, training);
}

/* Where a node's backward is not the last to add to an input's gradient, it does not look at it. */
static void bind_completed(const HsNode *node, const HsLayerCall *call, HsTensor *d_inputs)
{
    for (int i = 0; i < HS_NODE_INPUTS; i++)
        if (node->layer->finds_gradient_amax >> i & 1u)
            d_inputs[i].amax = hs_model_amax(call->model, node->inputs[i], true, call->training);
}

/* The largest magnitudes that what this action makes is looked at for, and those that are known of what it reads: in
 * backward of gradients alone. */
static void bind_all_amaxes(const HsAction *action, const HsNode *node, HsLayerCall *call)
{
    if (action->kind != HS_ACTION_BACKWARD) {
        bind_amaxes(call->model, node->inputs, HS_NODE_INPUTS, false, call->training, call->inputs);
        bind_amaxes(call->model, node->outputs, HS_NODE_OUTPUTS, false, call->training, call->outputs);
        return;
    }
    bind_amaxes(call->model, node->outputs, HS_NODE_OUTPUTS, true, call->training, call->d_outputs);
    bind_completed(node, call, call->d_inputs);
    bind_amaxes(call->model, node->made, HS_NODE_MADE, false, call->training, call->made);
    bind_amaxes(call->model, node->taken, HS_NODE_MADE, false, call->training, call->taken);
}

static HsLayerCall make_call(const HsProgram *program, HsContext *context, const HsAction *action,
                             const HsExecution *execution)
{
    const HsModel *model = program->model;
    const HsNode *node = &model->nodes[action->node];
    int64_t rows = execution->batch * execution->sequence_length;
    HsLayerCall call = {
        .context = context,
        .training = execution->training,
        .sample_labels = execution->sample_labels,
        .predict = execution->predict,
        .batch = execution->batch,
        .sequence_length = execution->sequence_length,
        .position_start = execution->position_start,
        .rng = { .seed = execution->seed,
                 .step = execution->step,
                 .site = node->attributes.site,
                 .row_offset = execution->row_offset,
                 .step_counter = execution->step_counter },
        .precision = &model->precision,
        .model = model,
        .again = action->kind == HS_ACTION_RECOMPUTE,
        .stores_all = execution->stores_all,
        .head_work = execution->head_work,
        .target_rows = execution->target_rows,
        .gradient_scale = execution->gradient_scale ? execution->gradient_scale
                                                    : hs_program_tensor(program, program->scale_buffer, 1).data,
    };
    for (int i = 0; i < HS_NODE_INPUTS; i++) {
        call.inputs[i] = hs_program_tensor(program, action->inputs[i], rows);
        call.d_inputs[i] = hs_program_tensor(program, action->d_inputs[i], rows);
        call.accumulate[i] = action->accumulate[i];
    }
    call.accumulate_sum = action->accumulate_sum;
    for (int i = 0; i < HS_NODE_OUTPUTS; i++) {
        call.outputs[i] = hs_program_tensor(program, action->outputs[i], rows);
        call.d_outputs[i] = hs_program_tensor(program, action->d_outputs[i], rows);
    }
    for (int i = 0; i < HS_NODE_SAVED; i++)
        call.saved[i] = hs_program_tensor(program, action->saved[i], rows);
    for (int i = 0; i < HS_NODE_SCRATCH; i++)
        call.scratch[i] = hs_program_tensor(program, action->scratch[i], rows);
    if (program->starts_buffer != HS_NONE && !execution->caches) { /* a decoder continues one document */
        call.starts = hs_program_tensor(program, program->starts_buffer, rows);
        call.starts.shape[0] = rows;
    }
    bind_made(program, action, rows, &call);
    bind_all_amaxes(action, node, &call);
    call.pass = program->factors;
    for (int i = 0; i < HS_NODE_PARAMS; i++) {
        const int param = node->params[i];
        call.params[i] = param == HS_NONE ? NULL : &model->params[param];
        call.factors[i] = program->factors && param != HS_NONE ? program->factors->params[param] : NULL;
    }
    if (execution->caches && hs_tensor_present(&execution->caches[action->node].keys))
        call.cache = &execution->caches[action->node];
    return call;
}

/* A share in a buffer begins with nothing. */
static HsStatus clear_shares(const HsProgram *program, HsContext *context, const HsAction *action,
                             const HsLayerCall *call)
{
    for (int i = 0; i < HS_NODE_MADE && !context->dry_run; i++)
        if (action->made[i] != HS_NONE &&
            program->model->slots[program->buffers[action->made[i]].slot].share_of != HS_NONE)
            HS_TRY(context->device->fill_zero(context->device, context->stream, call->made[i].data,
                                              hs_tensor_bytes(&call->made[i])));
    return HS_OK;
}

HsStatus hs_execute_action(const HsProgram *program, HsContext *context, const HsAction *action,
                           const HsExecution *execution)
{
    if (action->kind != HS_ACTION_BACKWARD)
        return hs_execute_forward(program, context, action, execution);
    const HsNode *node = &program->model->nodes[action->node];
    HsLayerCall call = make_call(program, context, action, execution);
    HS_TRY(clear_shares(program, context, action, &call));
    return node->layer->backward(&call, node);
}

HsStatus hs_execute_forward(const HsProgram *program, HsContext *context, const HsAction *action,
                            const HsExecution *execution)
{
    const HsNode *node = &program->model->nodes[action->node];
    HsLayerCall call = make_call(program, context, action, execution);
    return node->layer->forward(&call, node);
}

HsStatus hs_program_load_inputs(const HsProgram *program, HsContext *context, const int32_t *tokens,
                                const int32_t *targets, int64_t rows)
{
    HsDevice *device = context->device;
    HsTensor device_tokens = hs_program_tensor(program, program->tokens_buffer, rows);
    HS_TRY(device->copy(device, context->stream, device_tokens.data, tokens, hs_tensor_bytes(&device_tokens)));
    if (targets == NULL)
        return HS_OK;
    HsTensor device_targets = hs_program_tensor(program, program->targets_buffer, rows);
    return device->copy(device, context->stream, device_targets.data, targets, hs_tensor_bytes(&device_targets));
}

static HsStatus mark_starts(const HsProgram *program, HsContext *context, int64_t batch, int64_t length)
{
    const int64_t rows = batch * length;
    if (program->starts_buffer == HS_NONE)
        return HS_OK;
    HsDocumentStartsArgs args = {
        .tokens = hs_program_tensor(program, program->tokens_buffer, rows),
        .sequence_length = length,
        .starts = hs_program_tensor(program, program->starts_buffer, rows),
    };
    args.starts.shape[0] = rows;
    return hs_op_document_starts(context, &args);
}

HsStatus hs_program_load_sequences(const HsProgram *program, HsContext *context, const int32_t *tokens,
                                   const int32_t *targets, int64_t batch, int64_t length)
{
    HS_TRY(hs_program_load_inputs(program, context, tokens, targets, batch * length));
    return mark_starts(program, context, batch, length);
}

/* The same of the first `length` tokens of each of the program's sequences. */
static HsStatus load_beginnings(const HsProgram *program, HsContext *context, const int32_t *tokens,
                                const int32_t *targets, int64_t length)
{
    const int64_t rows = program->batch * length, most = program->sequence_length;
    HS_TRY(
        hs_sequences_load(context, hs_program_tensor(program, program->targets_buffer, rows), targets, length, most));
    HS_TRY(hs_sequences_load(context, hs_program_tensor(program, program->tokens_buffer, rows), tokens, length, most));
    return mark_starts(program, context, program->batch, length);
}

HsStatus hs_program_list_targets(const HsProgram *program, HsContext *context, const int32_t *targets, int64_t length,
                                 HsTargetRows *rows)
{
    const int64_t total = program->batch * length;
    const HsTensor list = hs_program_tensor(program, program->rows_buffer, total);
    /* Only where the host reads what was loaded does a pass end earlier. */
    const int32_t *loaded = hs_program_tensor(program, program->targets_buffer, total).data;
    rows->count = hs_target_rows_list(length < program->sequence_length ? loaded : targets, total, program->host_rows);
    rows->list = list.data;
    return context->device->copy(context->device, context->stream, list.data, program->host_rows,
                                 (size_t)total * sizeof *rows->list);
}

HsStatus hs_program_load_training(const HsProgram *program, HsContext *context, const int32_t *tokens,
                                  const int32_t *targets, float gradient_scale, HsTargetRows *rows)
{
    const HsTensor scale = hs_program_tensor(program, program->scale_buffer, 1);
    HS_TRY(hs_program_load_sequences(program, context, tokens, targets, program->batch, program->sequence_length));
    HS_TRY(hs_program_list_targets(program, context, targets, program->sequence_length, rows));
    return context->device->copy(context->device, context->stream, scale.data, &gradient_scale, sizeof gradient_scale);
}

HsProgramWorkspace hs_program_enter(const HsProgram *program, HsContext *context)
{
    HsProgramWorkspace outer = { context->workspace, context->workspace_bytes };
    context->workspace = program->workspace.base;
    context->workspace_bytes = program->workspace_bytes;
    return outer;
}

void hs_program_leave(HsContext *context, HsProgramWorkspace outer)
{
    context->workspace = outer.data;
    context->workspace_bytes = outer.bytes;
}

static HsRangeKind range_of(const HsProgram *program, const HsAction *action)
{
    static const HsRangeKind kinds[] = {
        [HS_ACTION_FORWARD] = HS_RANGE_FORWARD,
        [HS_ACTION_RECOMPUTE] = HS_RANGE_RECOMPUTE,
        [HS_ACTION_BACKWARD] = HS_RANGE_BACKWARD,
    };
    return program->model->nodes[action->node].layer->turns ? HS_RANGE_HEAD : kinds[action->kind];
}

/* A range for each node, in that of its kind (hs_program_run). */
static HsStatus run_ranged(const HsProgram *program, HsContext *context, int a, const HsExecution *execution)
{
    const HsAction *action = &program->actions[a];
    hs_range_begin(context, HS_RANGE_LAYER, program->model->nodes[action->node].name);
    const HsStatus status = hs_execute_action(program, context, action, execution);
    hs_range_end(context);
    return status;
}

static HsStatus run_exchanged(const HsProgram *program, HsContext *context, int a, const HsExecution *execution)
{
    const HsProgramExchange *exchange = context->dry_run ? NULL : program->exchange;
    if (exchange)
        HS_TRY(exchange->before(exchange->user, context, a));
    HS_TRY(run_ranged(program, context, a, execution));
    return exchange ? exchange->after(exchange->user, context, a) : HS_OK;
}

/* One range for each run of actions of a kind; `open`: the one that there is, HS_RANGE_STEP for none. */
static HsRangeKind change_range(HsContext *context, HsRangeKind open, HsRangeKind next)
{
    static const char *const names[] = {
        [HS_RANGE_FORWARD] = "forward",
        [HS_RANGE_HEAD] = "head and loss",
        [HS_RANGE_RECOMPUTE] = "recompute",
        [HS_RANGE_BACKWARD] = "backward",
    };
    if (open == next)
        return open;
    if (open != HS_RANGE_STEP)
        hs_range_end(context);
    if (next != HS_RANGE_STEP)
        hs_range_begin(context, next, names[next]);
    return next;
}

static bool stop_asked(const HsContext *context)
{
    return context->stop_asked && context->stop_asked();
}

HsStatus hs_program_run(const HsProgram *program, HsContext *context, const HsExecution *execution,
                        HsAfterAction after_action, void *user)
{
    const int count = program->action_count - (execution->without_head ? 1 : 0);
    HsProgramWorkspace outer = hs_program_enter(program, context);
    HsStatus status = hs_model_cast(program->model, context, execution->training);
    if (status == HS_OK)
        status = hs_model_forget_amax(program->model, context, execution->training);
    HsRangeKind open = HS_RANGE_STEP;
    bool enough = false;
    for (int a = 0; a < count && status == HS_OK && !enough; a++) {
        open = change_range(context, open, range_of(program, &program->actions[a]));
        status = stop_asked(context) ? hs_fail(HS_EINTERRUPTED, "stopped in the middle of a pass")
                                     : run_exchanged(program, context, a, execution);
        if (status == HS_OK && after_action)
            status = after_action(user, a, &enough);
    }
    change_range(context, open, HS_RANGE_STEP);
    hs_program_leave(context, outer);
    return status;
}

/* Row order, in double: the sum depends on nothing but the losses. */
static HsStatus fetch_losses(const HsProgram *program, HsContext *context, int64_t length, double *loss_sum,
                             float *row_losses)
{
    const HsTensor losses = hs_program_tensor(program, program->losses_buffer, program->batch * length);
    HS_TRY(hs_sequences_take(context, losses, program->host_losses, length, program->sequence_length));
    HS_TRY(context->device->stream_sync(context->device, context->stream));
    double sum = 0;
    for (int64_t row = 0; row < program->batch * program->sequence_length; row++) {
        const double loss = hs_program_row_loss(program, row);
        sum += loss;
        if (row_losses)
            row_losses[row] = (float)loss;
    }
    *loss_sum = sum;
    return HS_OK;
}

/* Forward and backward of one micro-batch, as `execution` says. */
static HsStatus run_both_ways(HsProgram *program, HsContext *context, HsExecution *execution, const int32_t *tokens,
                              const int32_t *targets, float gradient_scale, double *loss_sum, float *row_losses)
{
    assert(program->training);
    HS_TRY(hs_program_load_training(program, context, tokens, targets, gradient_scale, &execution->target_rows));
    HS_TRY(hs_program_run(program, context, execution, NULL, NULL));
    return fetch_losses(program, context, program->sequence_length, loss_sum, row_losses);
}

HsStatus hs_program_train(HsProgram *program, HsContext *context, const int32_t *tokens, const int32_t *targets,
                          uint64_t seed, uint32_t step, int64_t row_offset, float gradient_scale, double *loss_sum)
{
    HsExecution execution = hs_execution_of_training(program, seed, step, row_offset);
    return run_both_ways(program, context, &execution, tokens, targets, gradient_scale, loss_sum, NULL);
}

HsStatus hs_program_train_queued(HsProgram *program, HsContext *context, const HsProgramFeed *feed)
{
    assert(program->training);
    /* Work on logits takes rows of T. */
    const int64_t most = program->sequence_length,
                  length = feed->head_work ? most : hs_program_needed_length(program, feed->targets);
    HsExecution execution = { .training = true,
                              .batch = program->batch,
                              .sequence_length = length,
                              .seed = feed->seed,
                              .row_offset = feed->row_offset,
                              .step_counter = feed->step_counter,
                              .gradient_scale = feed->gradient_scale,
                              .head_work = feed->head_work,
                              .target_rows = feed->target_rows };
    HS_TRY(load_beginnings(program, context, feed->tokens, feed->targets, length));
    if (length < most) /* the feed's list has the numbers of whole sequences' rows */
        HS_TRY(hs_program_list_targets(program, context, feed->targets, length, &execution.target_rows));
    HS_TRY(hs_program_run(program, context, &execution, NULL, NULL));
    if (feed->left_out)
        *feed->left_out += program->batch * (most - length);
    const HsTensor losses = hs_program_tensor(program, program->losses_buffer, program->batch * length);
    return feed->losses ? hs_sequences_take(context, losses, feed->losses, length, most) : HS_OK;
}

HsStatus hs_program_probe(HsProgram *program, HsContext *context, const int32_t *tokens, const int32_t *targets,
                          bool sample_labels, uint64_t seed, uint32_t step, int64_t row_offset, float gradient_scale,
                          double *loss_sum, float *row_losses)
{
    HsExecution execution = { .sample_labels = sample_labels,
                              .batch = program->batch,
                              .sequence_length = program->sequence_length,
                              .seed = seed,
                              .step = step,
                              .row_offset = row_offset };
    return run_both_ways(program, context, &execution, tokens, targets, gradient_scale, loss_sum, row_losses);
}

HsStatus hs_program_encode(const HsProgram *program, HsContext *context, const int32_t *tokens, HsTensor hidden)
{
    assert(!program->training);
    const int64_t rows = program->batch * program->sequence_length;
    const HsExecution execution = { .batch = program->batch,
                                    .sequence_length = program->sequence_length,
                                    .without_head = true };
    HS_TRY(hs_program_load_sequences(program, context, tokens, NULL, program->batch, program->sequence_length));
    HS_TRY(hs_program_run(program, context, &execution, NULL, NULL));
    const HsAction *head = &program->actions[program->action_count - 1];
    const HsTensor last = hs_program_tensor(program, head->inputs[0], rows);
    assert(last.dtype == hidden.dtype && hs_tensor_count(&last) == hs_tensor_count(&hidden));
    return context->device->copy(context->device, context->stream, hidden.data, last.data, hs_tensor_bytes(&last));
}

HsStatus hs_program_probe_workspace(const HsProgram *program, const HsContext *context, size_t *bytes)
{
    HsContext dry = *context;
    HsExecution execution = { .sample_labels = true,
                              .batch = program->batch,
                              .sequence_length = program->sequence_length };
    dry.dry_run = true;
    dry.workspace_needed = 0;
    dry.observer = NULL;
    HsStatus status = hs_program_run(program, &dry, &execution, NULL, NULL);
    *bytes = dry.workspace_needed;
    return status;
}

HsStatus hs_program_evaluate(HsProgram *program, HsContext *context, const int32_t *tokens, const int32_t *targets,
                             double *loss_sum, float *row_losses)
{
    assert(!program->training);
    const int64_t length = hs_program_needed_length(program, targets);
    HsExecution execution = { .batch = program->batch, .sequence_length = length };
    HS_TRY(load_beginnings(program, context, tokens, targets, length));
    HS_TRY(hs_program_list_targets(program, context, targets, length, &execution.target_rows));
    HS_TRY(hs_program_run(program, context, &execution, NULL, NULL));
    return fetch_losses(program, context, length, loss_sum, row_losses);
}

/* Every action without data: do the checks pass, and the scratch? */
bool hs_program_fits(const HsProgram *program, const HsContext *context, int64_t batch, int64_t length)
{
    const HsExecution execution = { .batch = batch, .sequence_length = length, .predict = 1 };
    HsContext dry = *context;
    dry.dry_run = true;
    dry.observer = NULL;
    dry.workspace_needed = 0;
    bool fits = length <= program->sequence_length && batch * length <= program->batch * program->sequence_length;
    for (int a = 0; a < program->action_count && fits; a++)
        fits = hs_execute_action(program, &dry, &program->actions[a], &execution) == HS_OK;
    return fits && dry.workspace_needed <= program->workspace_bytes;
}

HsStatus hs_program_predict(HsProgram *program, HsContext *context, int64_t batch, int64_t length, int64_t vocabulary,
                            const int32_t *tokens, int32_t *predicted)
{
    assert(!program->training && batch * length <= program->batch * program->sequence_length);
    HsDevice *device = context->device;
    const HsExecution execution = { .batch = batch, .sequence_length = length, .predict = vocabulary };
    const int64_t rows = batch * length;
    for (int64_t row = 0; row < rows; row++) /* no loss is asked for */
        predicted[row] = -1;
    HS_TRY(hs_program_load_sequences(program, context, tokens, predicted, batch, length));
    HS_TRY(hs_program_run(program, context, &execution, NULL, NULL));
    const HsTensor targets = hs_program_tensor(program, program->targets_buffer, rows);
    HS_TRY(device->copy(device, context->stream, predicted, targets.data, hs_tensor_bytes(&targets)));
    return device->stream_sync(device, context->stream);
}

double hs_program_row_loss(const HsProgram *program, int64_t row)
{
    assert(row >= 0 && row < program->batch * program->sequence_length);
    return hs_dtype_load(program->buffers[program->losses_buffer].tensor.dtype, program->host_losses, row);
}
