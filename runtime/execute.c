/* SPDX-License-Identifier: MIT
 *
 * Running a plan: each action's buffers become tensors, its layer is called.  Nothing is allocated here.
 */
#include <assert.h>

#include "runtime/plan_internal.h"

HsTensor hs_plan_tensor(const HsPlan *plan, int buffer, int64_t rows)
{
    if (buffer == HS_NONE)
        return (HsTensor){ 0 };
    HsTensor tensor = plan->buffers[buffer].tensor;
    tensor.data = hs_arena_at(&plan->activations, plan->buffers[buffer].offset);
    if (plan->buffers[buffer].slot != HS_NONE)
        tensor.shape[0] = rows;
    return tensor;
}

static HsRun make_run(const HsPlan *plan, HsContext *context, const HsAction *action, const HsExecution *execution)
{
    const HsModel *model = plan->model;
    const HsStep *step = &model->steps[action->step];
    int64_t rows = execution->batch * execution->sequence_length;
    HsRun run = {
        .context = context,
        .training = execution->training,
        .sample_labels = execution->sample_labels,
        .batch = execution->batch,
        .sequence_length = execution->sequence_length,
        .position_start = execution->position_start,
        .rng = { .seed = execution->seed,
                 .step = execution->step,
                 .site = step->attributes.site,
                 .row_offset = execution->row_offset,
                 .step_counter = execution->step_counter },
        .precision = &model->precision,
        .gradient_scale =
            execution->gradient_scale ? execution->gradient_scale : hs_plan_tensor(plan, plan->scale_buffer, 1).data,
    };
    for (int i = 0; i < HS_STEP_INPUTS; i++) {
        run.inputs[i] = hs_plan_tensor(plan, action->inputs[i], rows);
        run.d_inputs[i] = hs_plan_tensor(plan, action->d_inputs[i], rows);
        run.accumulate[i] = action->accumulate[i];
    }
    for (int i = 0; i < HS_STEP_OUTPUTS; i++) {
        run.outputs[i] = hs_plan_tensor(plan, action->outputs[i], rows);
        run.d_outputs[i] = hs_plan_tensor(plan, action->d_outputs[i], rows);
    }
    for (int i = 0; i < HS_STEP_SAVED; i++)
        run.saved[i] = hs_plan_tensor(plan, action->saved[i], rows);
    for (int i = 0; i < HS_STEP_SCRATCH; i++)
        run.scratch[i] = hs_plan_tensor(plan, action->scratch[i], rows);
    for (int i = 0; i < HS_STEP_PARAMS; i++)
        run.params[i] = step->params[i] == HS_NONE ? NULL : &model->params[step->params[i]];
    if (execution->k_caches) {
        run.k_cache = execution->k_caches[action->step];
        run.v_cache = execution->v_caches[action->step];
    }
    return run;
}

HsStatus hs_execute_action(const HsPlan *plan, HsContext *context, const HsAction *action, const HsExecution *execution)
{
    if (action->kind != HS_ACTION_BACKWARD)
        return hs_execute_forward(plan, context, action, execution);
    const HsStep *step = &plan->model->steps[action->step];
    HsRun run = make_run(plan, context, action, execution);
    return step->layer->backward(&run, step);
}

HsStatus hs_execute_forward(const HsPlan *plan, HsContext *context, const HsAction *action,
                            const HsExecution *execution)
{
    const HsStep *step = &plan->model->steps[action->step];
    HsRun run = make_run(plan, context, action, execution);
    return step->layer->forward(&run, step);
}

HsStatus hs_plan_load_inputs(const HsPlan *plan, HsContext *context, const int32_t *tokens, const int32_t *targets,
                             int64_t rows)
{
    HsDevice *device = context->device;
    HsTensor device_tokens = hs_plan_tensor(plan, plan->tokens_buffer, rows);
    HS_TRY(device->copy(device, context->stream, device_tokens.data, tokens, hs_tensor_bytes(&device_tokens)));
    if (targets == NULL)
        return HS_OK;
    HsTensor device_targets = hs_plan_tensor(plan, plan->targets_buffer, rows);
    return device->copy(device, context->stream, device_targets.data, targets, hs_tensor_bytes(&device_targets));
}

HsPlanWorkspace hs_plan_enter(const HsPlan *plan, HsContext *context)
{
    HsPlanWorkspace outer = { context->workspace, context->workspace_bytes };
    context->workspace = plan->workspace.base;
    context->workspace_bytes = plan->workspace_bytes;
    return outer;
}

void hs_plan_leave(HsContext *context, HsPlanWorkspace outer)
{
    context->workspace = outer.data;
    context->workspace_bytes = outer.bytes;
}

static HsRangeKind range_of(const HsPlan *plan, const HsAction *action)
{
    static const HsRangeKind kinds[] = {
        [HS_ACTION_FORWARD] = HS_RANGE_FORWARD,
        [HS_ACTION_RECOMPUTE] = HS_RANGE_RECOMPUTE,
        [HS_ACTION_BACKWARD] = HS_RANGE_BACKWARD,
    };
    return plan->model->steps[action->step].layer->turns ? HS_RANGE_HEAD : kinds[action->kind];
}

/* One range for each run of actions of a kind, and in it one for each step. */
static HsStatus run_ranged(const HsPlan *plan, HsContext *context, int a, const HsExecution *execution)
{
    static const char *const names[] = {
        [HS_RANGE_FORWARD] = "forward",
        [HS_RANGE_HEAD] = "head and loss",
        [HS_RANGE_RECOMPUTE] = "recompute",
        [HS_RANGE_BACKWARD] = "backward",
    };
    const HsAction *action = &plan->actions[a];
    const HsRangeKind kind = range_of(plan, action);
    const bool first = a == 0 || range_of(plan, action - 1) != kind;
    const bool last = a + 1 == plan->action_count || range_of(plan, action + 1) != kind;
    if (first)
        hs_range_begin(context, kind, names[kind]);
    hs_range_begin(context, HS_RANGE_LAYER, plan->model->steps[action->step].name);
    HsStatus status = hs_execute_action(plan, context, action, execution);
    hs_range_end(context);
    if (last || status != HS_OK)
        hs_range_end(context);
    return status;
}

static HsStatus run_all(const HsPlan *plan, HsContext *context, const HsExecution *execution)
{
    HsPlanWorkspace outer = hs_plan_enter(plan, context);
    HsStatus status = HS_OK;
    for (int a = 0; a < plan->action_count && status == HS_OK; a++)
        status = context->stop_asked && context->stop_asked() ? hs_fail(HS_EINTERRUPTED, "a pass was given up")
                                                              : run_ranged(plan, context, a, execution);
    hs_plan_leave(context, outer);
    return status;
}

/* Row order, in double: the sum depends on nothing but the losses. */
static HsStatus fetch_losses(const HsPlan *plan, HsContext *context, double *loss_sum, float *row_losses)
{
    HsDevice *device = context->device;
    int64_t rows = plan->batch * plan->sequence_length;
    HsTensor losses = hs_plan_tensor(plan, plan->losses_buffer, rows);
    HS_TRY(device->copy(device, context->stream, plan->host_losses, losses.data, hs_tensor_bytes(&losses)));
    HS_TRY(device->stream_sync(device, context->stream));
    double sum = 0;
    for (int64_t row = 0; row < rows; row++) {
        double loss = hs_dtype_load(losses.dtype, plan->host_losses, row);
        sum += loss;
        if (row_losses)
            row_losses[row] = (float)loss;
    }
    *loss_sum = sum;
    return HS_OK;
}

/* Forward and backward of one micro-batch, as `execution` says. */
static HsStatus run_both_ways(HsPlan *plan, HsContext *context, const HsExecution *execution, const int32_t *tokens,
                              const int32_t *targets, float gradient_scale, double *loss_sum, float *row_losses)
{
    assert(plan->training);
    HsDevice *device = context->device;
    HsTensor scale = hs_plan_tensor(plan, plan->scale_buffer, 1);
    HS_TRY(hs_plan_load_inputs(plan, context, tokens, targets, plan->batch * plan->sequence_length));
    HS_TRY(device->copy(device, context->stream, scale.data, &gradient_scale, sizeof gradient_scale));
    HS_TRY(run_all(plan, context, execution));
    return fetch_losses(plan, context, loss_sum, row_losses);
}

HsStatus hs_plan_train(HsPlan *plan, HsContext *context, const int32_t *tokens, const int32_t *targets, uint64_t seed,
                       uint32_t step, int64_t row_offset, float gradient_scale, double *loss_sum)
{
    HsExecution execution = { .training = true,
                              .batch = plan->batch,
                              .sequence_length = plan->sequence_length,
                              .seed = seed,
                              .step = step,
                              .row_offset = row_offset };
    return run_both_ways(plan, context, &execution, tokens, targets, gradient_scale, loss_sum, NULL);
}

HsStatus hs_plan_train_queued(HsPlan *plan, HsContext *context, const HsPlanFeed *feed)
{
    assert(plan->training);
    HsDevice *device = context->device;
    int64_t rows = plan->batch * plan->sequence_length;
    HsExecution execution = { .training = true,
                              .batch = plan->batch,
                              .sequence_length = plan->sequence_length,
                              .seed = feed->seed,
                              .row_offset = feed->row_offset,
                              .step_counter = feed->step_counter,
                              .gradient_scale = feed->gradient_scale };
    HS_TRY(hs_plan_load_inputs(plan, context, feed->tokens, feed->targets, rows));
    HS_TRY(run_all(plan, context, &execution));
    if (!feed->losses)
        return HS_OK;
    HsTensor losses = hs_plan_tensor(plan, plan->losses_buffer, rows);
    return device->copy(device, context->stream, feed->losses, losses.data, hs_tensor_bytes(&losses));
}

HsStatus hs_plan_probe(HsPlan *plan, HsContext *context, const int32_t *tokens, const int32_t *targets,
                       bool sample_labels, uint64_t seed, uint32_t step, int64_t row_offset, float gradient_scale,
                       double *loss_sum, float *row_losses)
{
    HsExecution execution = { .sample_labels = sample_labels,
                              .batch = plan->batch,
                              .sequence_length = plan->sequence_length,
                              .seed = seed,
                              .step = step,
                              .row_offset = row_offset };
    return run_both_ways(plan, context, &execution, tokens, targets, gradient_scale, loss_sum, row_losses);
}

HsStatus hs_plan_evaluate(HsPlan *plan, HsContext *context, const int32_t *tokens, const int32_t *targets,
                          double *loss_sum, float *row_losses)
{
    assert(!plan->training);
    HsExecution execution = { .batch = plan->batch, .sequence_length = plan->sequence_length };
    HS_TRY(hs_plan_load_inputs(plan, context, tokens, targets, plan->batch * plan->sequence_length));
    HS_TRY(run_all(plan, context, &execution));
    return fetch_losses(plan, context, loss_sum, row_losses);
}

double hs_plan_row_loss(const HsPlan *plan, int64_t row)
{
    assert(row >= 0 && row < plan->batch * plan->sequence_length);
    return hs_dtype_load(plan->buffers[plan->losses_buffer].tensor.dtype, plan->host_losses, row);
}
