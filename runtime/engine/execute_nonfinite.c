/* SPDX-License-Identifier: MIT
 *
 * The hunt for the first NaN or infinity: the micro-batch is run again, and every weight before it, then everything
 * each action wrote, is looked at.  Steps are pure, so the second run meets what the first one met.
 */
#include <math.h>
#include <stdio.h>

#include "runtime/engine/program_internal.h"

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
    const HsProgram *program;
    HsContext *context;
    char *where;
    size_t where_size;
    bool found;
} Hunt;

static HsStatus look_at_buffer(Hunt *hunt, const HsAction *action, int slot, int buffer, bool gradient)
{
    if (buffer == HS_NONE || hunt->found)
        return HS_OK;
    const HsModel *model = hunt->program->model;
    if (!gradient && hs_format_rounds(model->slots[slot].format)) /* codes of what was looked at */
        return HS_OK;
    bool finite = true;
    int64_t rows = hunt->program->batch * hunt->program->sequence_length;
    HS_TRY(all_finite(hunt->context, hs_program_tensor(hunt->program, buffer, rows), &finite));
    if (finite)
        return HS_OK;
    hunt->found = true;
    snprintf(hunt->where, hunt->where_size, "%s%s (%s, %s)", gradient ? "gradient of " : "", model->slots[slot].name,
             kind_names[action->kind], model->nodes[action->node].layer->name);
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
    const HsModel *model = hunt->program->model;
    const HsNode *node = &model->nodes[action->node];
    const bool backward = action->kind == HS_ACTION_BACKWARD, sums = node->layer->carries_sum;
    if (sums && !backward)
        HS_TRY(look_at_buffer(hunt, action, node->outputs[0], action->outputs[0], false));
    if (!backward || node->layer->turns) {
        for (int i = 0; i < HS_NODE_SAVED; i++)
            HS_TRY(look_at_buffer(hunt, action, node->saved[i], action->saved[i], false));
        for (int i = HS_NODE_OUTPUTS - 1; i >= 0; i--) /* the value before a GELU comes first */
            HS_TRY(look_at_buffer(hunt, action, node->outputs[i], action->outputs[i], false));
    }
    if (!backward)
        return HS_OK;
    if (sums)
        HS_TRY(look_at_buffer(hunt, action, node->outputs[0], action->d_outputs[0], true));
    for (int i = 0; i < HS_NODE_INPUTS; i++)
        HS_TRY(look_at_buffer(hunt, action, node->inputs[i], action->d_inputs[i], true));
    for (int i = 0; i < HS_NODE_PARAMS; i++) {
        if (node->params[i] == HS_NONE)
            continue;
        const HsParam *param = &model->params[node->params[i]];
        if (hs_tensor_present(&param->gradient))
            HS_TRY(look_at_param(hunt, param, &param->gradient, "gradient of the weight"));
    }
    return HS_OK;
}

HsStatus hs_program_clear_gradients(const HsProgram *program, HsContext *context)
{
    const HsModel *model = program->model;
    for (int i = 0; i < model->param_count; i++) {
        const HsTensor *gradient = &model->params[i].gradient;
        if (hs_tensor_present(gradient))
            HS_TRY(context->device->fill_zero(context->device, context->stream, gradient->data,
                                              hs_tensor_bytes(gradient)));
    }
    return HS_OK;
}

static HsStatus look_at_weights(Hunt *hunt)
{
    const HsModel *model = hunt->program->model;
    for (int i = 0; i < model->param_count; i++)
        if (model->params[i].stored.layout != HS_LAYOUT_NF4) /* four bits hold no such number */
            HS_TRY(look_at_param(hunt, &model->params[i], &model->params[i].stored.values, "weight"));
    return HS_OK;
}

static HsStatus after_action(void *user, int action, bool *enough)
{
    Hunt *hunt = user;
    HS_TRY(look_at_results(hunt, &hunt->program->actions[action]));
    *enough = hunt->found;
    return HS_OK;
}

HsStatus hs_program_find_nonfinite(HsProgram *program, HsContext *context, const int32_t *tokens,
                                   const int32_t *targets, uint64_t seed, uint32_t step, int64_t row_offset,
                                   float gradient_scale, char *where, size_t where_size)
{
    HsExecution execution = hs_execution_of_training(program, seed, step, row_offset);
    execution.stores_all = true;
    Hunt hunt = { .program = program, .context = context, .where = where, .where_size = where_size };
    snprintf(where, where_size, "%s", "");
    HS_TRY(hs_program_clear_gradients(program, context));
    HS_TRY(hs_program_load_training(program, context, tokens, targets, gradient_scale, &execution.target_rows));
    HS_TRY(look_at_weights(&hunt));
    if (!hunt.found)
        HS_TRY(hs_program_run(program, context, &execution, after_action, &hunt));
    return hs_program_clear_gradients(program, context);
}
