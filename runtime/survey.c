/* SPDX-License-Identifier: MIT
 *
 * The survey walks the plan's actions as execute_nonfinite.c does.  Gradients of several slots may share one buffer (a
 * sum hands its own gradient on to its residual input, which later actions add to), so that what is complete, and when,
 * is a matter of slots: a slot's gradient is looked at right after the last action that writes it as that slot's.
 */
#include "runtime/survey.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/plan_internal.h"

typedef struct Walk {
    const HsPlan *plan;
    HsContext *context;
    HsSurvey *survey;
    int *row_of_step;  /* [steps] */
    int *last_writer;  /* [slots]: the last action that writes the slot's gradient; HS_NONE: none does */
    int *row_of_param; /* [params]: of the step whose backward adds last */
    int64_t by_format[HS_DTYPE_COUNT]; /* elements of activation gradients */
} Walk;

/* ---- rows ---- */

/* "block.3.mlp.up" is of "block 3, mlp", "final_norm" of "final norm". */
static void name_row(const HsStep *step, char *name, size_t size)
{
    const char *part = step->name;
    char block[32] = "";
    if (step->block >= 0) {
        part = strchr(strchr(part, '.') + 1, '.') + 1;
        snprintf(block, sizeof block, "block %d, ", step->block);
    }
    snprintf(name, size, "%s%.*s", block, (int)strcspn(part, "."), part);
    for (char *at = name; *at; at++)
        *at = *at == '_' ? ' ' : *at;
}

/* Steps of one row follow each other in the table. */
static HsStatus make_rows(Walk *walk)
{
    const HsModel *model = walk->plan->model;
    HsSurvey *survey = walk->survey;
    survey->rows = calloc((size_t)model->step_count, sizeof *survey->rows);
    if (!survey->rows)
        return hs_fail(HS_ENOMEM, "no memory to survey the gradients of %d steps", model->step_count);
    for (int s = 0; s < model->step_count; s++) {
        char name[sizeof survey->rows->name];
        name_row(&model->steps[s], name, sizeof name);
        int row = survey->row_count - 1;
        if (row < 0 || strcmp(survey->rows[row].name, name) != 0) {
            row = survey->row_count++;
            memcpy(survey->rows[row].name, name, sizeof name);
        }
        walk->row_of_step[s] = row;
    }
    return HS_OK;
}

static void find_last_writers(Walk *walk)
{
    const HsPlan *plan = walk->plan;
    const HsModel *model = plan->model;
    for (int slot = 0; slot < model->slot_count; slot++)
        walk->last_writer[slot] = HS_NONE;
    for (int param = 0; param < model->param_count; param++)
        walk->row_of_param[param] = HS_NONE;
    for (int a = 0; a < plan->action_count; a++) {
        const HsAction *action = &plan->actions[a];
        const HsStep *step = &model->steps[action->step];
        if (action->kind != HS_ACTION_BACKWARD)
            continue;
        for (int i = 0; i < HS_STEP_INPUTS; i++) {
            if (action->d_inputs[i] != HS_NONE)
                walk->last_writer[step->inputs[i]] = a;
        }
        for (int i = 0; i < HS_STEP_PARAMS; i++) {
            if (step->params[i] != HS_NONE)
                walk->row_of_param[step->params[i]] = walk->row_of_step[action->step];
        }
    }
}

/* ---- counting ---- */

/* The tensor comes to the host in pieces that fit the stack. */
static HsStatus count_tensor(HsContext *context, HsTensor tensor, HsHistogram *histogram)
{
    unsigned char piece[16384];
    size_t item = hs_dtype_bytes(tensor.dtype), bytes = hs_tensor_bytes(&tensor);
    HsDevice *device = context->device;
    for (size_t first = 0; first < bytes; first += sizeof piece) {
        size_t size = bytes - first < sizeof piece ? bytes - first : sizeof piece;
        HS_TRY(device->copy(device, context->stream, piece, (const unsigned char *)tensor.data + first, size));
        HS_TRY(device->stream_sync(device, context->stream));
        hs_histogram_add(histogram, tensor.dtype, piece, (int64_t)(size / item));
    }
    return HS_OK;
}

static HsStatus count_activations(Walk *walk, int a)
{
    const HsPlan *plan = walk->plan;
    const HsAction *action = &plan->actions[a];
    const HsStep *step = &plan->model->steps[action->step];
    HsSurveyRow *row = &walk->survey->rows[walk->row_of_step[action->step]];
    for (int i = 0; i < HS_STEP_INPUTS; i++) {
        if (action->d_inputs[i] == HS_NONE || walk->last_writer[step->inputs[i]] != a)
            continue;
        HsTensor tensor = hs_plan_tensor(plan, action->d_inputs[i], plan->batch * plan->sequence_length);
        HS_TRY(count_tensor(walk->context, tensor, &row->activations));
        walk->by_format[tensor.dtype] += hs_tensor_count(&tensor);
    }
    return HS_OK;
}

static HsStatus count_weights(Walk *walk)
{
    const HsModel *model = walk->plan->model;
    for (int i = 0; i < model->param_count; i++) {
        assert(walk->row_of_param[i] != HS_NONE);
        HsSurveyRow *row = &walk->survey->rows[walk->row_of_param[i]];
        HS_TRY(count_tensor(walk->context, model->params[i].gradient, &row->weights));
    }
    return HS_OK;
}

static HsStatus walk_actions(Walk *walk, const HsExecution *execution)
{
    const HsPlan *plan = walk->plan;
    for (int a = 0; a < plan->action_count; a++) {
        HS_TRY(hs_execute_action(plan, walk->context, &plan->actions[a], execution));
        if (plan->actions[a].kind == HS_ACTION_BACKWARD)
            HS_TRY(count_activations(walk, a));
    }
    return count_weights(walk);
}

static void sum_up(Walk *walk)
{
    HsSurvey *survey = walk->survey;
    for (int i = 0; i < survey->row_count; i++) {
        hs_histogram_merge(&survey->activations, &survey->rows[i].activations);
        hs_histogram_merge(&survey->weights, &survey->rows[i].weights);
    }
    for (int dtype = 0; dtype < HS_DTYPE_COUNT; dtype++) {
        if (walk->by_format[dtype] > walk->by_format[survey->activation_format])
            survey->activation_format = (HsDtype)dtype;
    }
}

static HsStatus run(Walk *walk, const int32_t *tokens, const int32_t *targets, const HsExecution *execution,
                    float gradient_scale)
{
    const HsPlan *plan = walk->plan;
    HsContext *context = walk->context;
    HsDevice *device = context->device;
    HsTensor scale = hs_plan_tensor(plan, plan->scale_buffer, 1);
    HS_TRY(hs_plan_clear_gradients(plan, context));
    HS_TRY(hs_plan_load_inputs(plan, context, tokens, targets, plan->batch * plan->sequence_length));
    HS_TRY(device->copy(device, context->stream, scale.data, &gradient_scale, sizeof gradient_scale));
    HsPlanWorkspace outer = hs_plan_enter(plan, context);
    HsStatus status = walk_actions(walk, execution);
    hs_plan_leave(context, outer);
    HS_TRY(status);
    return hs_plan_clear_gradients(plan, context);
}

HsStatus hs_plan_survey(HsPlan *plan, HsContext *context, const int32_t *tokens, const int32_t *targets, uint64_t seed,
                        uint32_t step, int64_t row_offset, float gradient_scale, HsSurvey *survey)
{
    assert(plan->training);
    const HsModel *model = plan->model;
    const HsExecution execution = { .training = true,
                                    .batch = plan->batch,
                                    .sequence_length = plan->sequence_length,
                                    .seed = seed,
                                    .step = step,
                                    .row_offset = row_offset };
    size_t steps = (size_t)model->step_count, slots = (size_t)model->slot_count, params = (size_t)model->param_count;
    *survey = (HsSurvey){ .activation_format = HS_F32 };
    int *tables = malloc((steps + slots + params) * sizeof *tables);
    if (!tables)
        return hs_fail(HS_ENOMEM, "no memory to survey the gradients of %d steps", model->step_count);
    Walk walk = { .plan = plan,
                  .context = context,
                  .survey = survey,
                  .row_of_step = tables,
                  .last_writer = tables + steps,
                  .row_of_param = tables + steps + slots };
    HsStatus status = HS_OK;
    HS_TRY_GOTO(status, make_rows(&walk), done);
    find_last_writers(&walk);
    HS_TRY_GOTO(status, run(&walk, tokens, targets, &execution, gradient_scale), done);
    sum_up(&walk);
done:
    free(tables);
    if (status != HS_OK)
        hs_survey_deinit(survey);
    return status;
}

void hs_survey_deinit(HsSurvey *survey)
{
    free(survey->rows);
    *survey = (HsSurvey){ 0 };
}
