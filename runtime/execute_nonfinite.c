/* SPDX-License-Identifier: MIT
 *
 * The hunt for the first NaN or infinity: the micro-batch is run again, and every weight before it, then everything
 * each action wrote, is looked at.  Steps are pure, so the second run meets what the first one met.
 */
#include <math.h>
#include <stdio.h>

#include "runtime/plan_internal.h"

static const char *const kind_names[] = {
    [HS_ACTION_FORWARD] = "forward",
    [HS_ACTION_RECOMPUTE] = "recomputation",
    [HS_ACTION_BACKWARD] = "backward",
};

/* The tensor comes to the host in pieces that fit the stack. */
static HsStatus all_finite(HsContext *context, HsTensor tensor, bool *finite)
{
    unsigned char piece[4096];
    size_t item = hs_dtype_bytes(tensor.dtype), bytes = hs_tensor_bytes(&tensor);
    for (size_t first = 0; first < bytes && *finite; first += sizeof piece) {
        size_t size = bytes - first < sizeof piece ? bytes - first : sizeof piece;
        HsDevice *device = context->device;
        HS_TRY(device->copy(device, context->stream, piece, (const unsigned char *)tensor.data + first, size));
        HS_TRY(device->stream_sync(device, context->stream));
        for (size_t i = 0; i < size / item; i++)
            *finite = *finite && isfinite(hs_dtype_load(tensor.dtype, piece, (int64_t)i));
    }
    return HS_OK;
}

typedef struct Hunt {
    const HsPlan *plan;
    HsContext *context;
    char *where;
    size_t where_size;
    bool found;
} Hunt;

static HsStatus look_at_buffer(Hunt *hunt, const HsAction *action, int slot, int buffer, bool gradient)
{
    if (buffer == HS_NONE || hunt->found)
        return HS_OK;
    const HsModel *model = hunt->plan->model;
    bool finite = true;
    int64_t rows = hunt->plan->batch * hunt->plan->sequence_length;
    HS_TRY(all_finite(hunt->context, hs_plan_tensor(hunt->plan, buffer, rows), &finite));
    if (finite)
        return HS_OK;
    hunt->found = true;
    snprintf(hunt->where, hunt->where_size, "%s%s (%s, %s)", gradient ? "gradient of " : "", model->slots[slot].name,
             kind_names[action->kind], model->steps[action->step].layer->name);
    return HS_OK;
}

static HsStatus look_at_param(Hunt *hunt, const HsParam *param, const HsTensor *tensor, const char *role)
{
    if (hunt->found)
        return HS_OK;
    bool finite = true;
    HS_TRY(all_finite(hunt->context, *tensor, &finite));
    hunt->found = !finite;
    if (hunt->found)
        snprintf(hunt->where, hunt->where_size, "%s (%s)", param->name, role);
    return HS_OK;
}

static HsStatus look_at_results(Hunt *hunt, const HsAction *action)
{
    const HsModel *model = hunt->plan->model;
    const HsStep *step = &model->steps[action->step];
    if (action->kind != HS_ACTION_BACKWARD || step->layer->turns) {
        for (int i = 0; i < HS_STEP_SAVED; i++)
            HS_TRY(look_at_buffer(hunt, action, step->saved[i], action->saved[i], false));
        for (int i = HS_STEP_OUTPUTS - 1; i >= 0; i--) /* the value before a GELU comes first */
            HS_TRY(look_at_buffer(hunt, action, step->outputs[i], action->outputs[i], false));
    }
    if (action->kind != HS_ACTION_BACKWARD)
        return HS_OK;
    for (int i = 0; i < HS_STEP_INPUTS; i++)
        HS_TRY(look_at_buffer(hunt, action, step->inputs[i], action->d_inputs[i], true));
    for (int i = 0; i < HS_STEP_PARAMS; i++) {
        if (step->params[i] == HS_NONE)
            continue;
        const HsParam *param = &model->params[step->params[i]];
        HS_TRY(look_at_param(hunt, param, &param->gradient, "gradient of the weight"));
    }
    return HS_OK;
}

HsStatus hs_plan_clear_gradients(const HsPlan *plan, HsContext *context)
{
    const HsModel *model = plan->model;
    for (int i = 0; i < model->param_count; i++) {
        const HsTensor *gradient = &model->params[i].gradient;
        HS_TRY(context->device->fill_zero(context->device, context->stream, gradient->data, hs_tensor_bytes(gradient)));
    }
    return HS_OK;
}

static HsStatus hunt_all(Hunt *hunt, const HsExecution *execution)
{
    const HsPlan *plan = hunt->plan;
    for (int i = 0; i < plan->model->param_count; i++)
        HS_TRY(look_at_param(hunt, &plan->model->params[i], &plan->model->params[i].weight, "weight"));
    for (int a = 0; a < plan->action_count && !hunt->found; a++) {
        HS_TRY(hs_execute_action(plan, hunt->context, &plan->actions[a], execution));
        HS_TRY(look_at_results(hunt, &plan->actions[a]));
    }
    return HS_OK;
}

HsStatus hs_plan_find_nonfinite(HsPlan *plan, HsContext *context, const int32_t *tokens, const int32_t *targets,
                                uint64_t seed, uint32_t step, int64_t row_offset, float gradient_scale, char *where,
                                size_t where_size)
{
    HsExecution execution = { .training = true,
                              .batch = plan->batch,
                              .sequence_length = plan->sequence_length,
                              .seed = seed,
                              .step = step,
                              .row_offset = row_offset };
    Hunt hunt = { .plan = plan, .context = context, .where = where, .where_size = where_size };
    snprintf(where, where_size, "%s", "");
    HsTensor scale = hs_plan_tensor(plan, plan->scale_buffer, 1);
    HS_TRY(hs_plan_clear_gradients(plan, context));
    HS_TRY(hs_plan_load_inputs(plan, context, tokens, targets, plan->batch * plan->sequence_length));
    HS_TRY(context->device->copy(context->device, context->stream, scale.data, &gradient_scale, sizeof gradient_scale));

    HsPlanWorkspace outer = hs_plan_enter(plan, context);
    HsStatus status = hunt_all(&hunt, &execution);
    hs_plan_leave(context, outer);
    HS_TRY(status);
    return hs_plan_clear_gradients(plan, context);
}
