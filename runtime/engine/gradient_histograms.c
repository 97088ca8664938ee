/* SPDX-License-Identifier: MIT
 *
 * The survey looks at gradients after each action of the program.  Gradients of several slots may share one buffer (a
 * sum hands its own gradient on to its residual input, which later actions add to), so that what is complete, and when,
 * is a matter of slots: a slot's gradient is looked at right after the last action that writes it as that slot's.
 */
#include "runtime/engine/gradient_histograms.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/engine/program_internal.h"

typedef struct Walk {
    const HsProgram *program;
    HsContext *context;
    HsSurvey *survey;
    int *row_of_step;  /* [nodes] */
    int *last_writer;  /* [slots]: the last action that writes the slot's gradient; HS_NONE: none does */
    int *row_of_param; /* [params]: of the node that adds last in backward */
    int64_t by_format[HS_DTYPE_COUNT]; /* elements of activation gradients */
} Walk;

/* ---- rows ---- */

/* "block.3.mlp.up" is of "block 3, mlp", "final_norm" of "final norm". */
static void name_row(const HsNode *node, char *name, size_t size)
{
    const char *part = node->name;
    char block[32] = "";
    if (node->block >= 0) {
        part = strchr(strchr(part, '.') + 1, '.') + 1;
        snprintf(block, sizeof block, "block %d, ", node->block);
    }
    snprintf(name, size, "%s%.*s", block, (int)strcspn(part, "."), part);
    for (char *at = name; *at; at++)
        *at = *at == '_' ? ' ' : *at;
}

/* Steps of one row follow each other in the table. */
static HsStatus make_rows(Walk *walk)
{
    const HsModel *model = walk->program->model;
    HsSurvey *survey = walk->survey;
    survey->rows = calloc((size_t)model->node_count, sizeof *survey->rows);
    if (!survey->rows)
        return hs_fail(HS_ENOMEM, "no memory to survey the gradients of %d nodes", model->node_count);
    for (int s = 0; s < model->node_count; s++) {
        char name[sizeof survey->rows->name];
        name_row(&model->nodes[s], name, sizeof name);
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
    const HsProgram *program = walk->program;
    const HsModel *model = program->model;
    for (int slot = 0; slot < model->slot_count; slot++)
        walk->last_writer[slot] = HS_NONE;
    for (int param = 0; param < model->param_count; param++)
        walk->row_of_param[param] = HS_NONE;
    for (int a = 0; a < program->action_count; a++) {
        const HsAction *action = &program->actions[a];
        const HsNode *node = &model->nodes[action->node];
        if (action->kind != HS_ACTION_BACKWARD)
            continue;
        if (node->layer->carries_sum)
            walk->last_writer[node->outputs[0]] = a;
        for (int i = 0; i < HS_NODE_INPUTS; i++)
            if (action->d_inputs[i] != HS_NONE)
                walk->last_writer[node->inputs[i]] = a;
        for (int i = 0; i < HS_NODE_PARAMS; i++) {
            if (node->params[i] != HS_NONE)
                walk->row_of_param[node->params[i]] = walk->row_of_step[action->node];
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

/* A slot's gradient, where action a has completed it. */
static HsStatus count_slot(Walk *walk, int a, int slot, int buffer)
{
    const HsProgram *program = walk->program;
    HsSurveyRow *row = &walk->survey->rows[walk->row_of_step[program->actions[a].node]];
    if (buffer == HS_NONE || walk->last_writer[slot] != a)
        return HS_OK;
    HsTensor tensor = hs_program_tensor(program, buffer, program->batch * program->sequence_length);
    HS_TRY(count_tensor(walk->context, tensor, &row->activations));
    walk->by_format[tensor.dtype] += hs_tensor_count(&tensor);
    return HS_OK;
}

static HsStatus count_activations(Walk *walk, int a)
{
    const HsAction *action = &walk->program->actions[a];
    const HsNode *node = &walk->program->model->nodes[action->node];
    for (int i = 0; i < HS_NODE_INPUTS; i++)
        HS_TRY(count_slot(walk, a, node->inputs[i], action->d_inputs[i]));
    return node->layer->carries_sum ? count_slot(walk, a, node->outputs[0], action->d_outputs[0]) : HS_OK;
}

static HsStatus count_weights(Walk *walk)
{
    const HsModel *model = walk->program->model;
    for (int i = 0; i < model->param_count; i++) {
        if (!model->params[i].trainable)
            continue;
        assert(walk->row_of_param[i] != HS_NONE);
        HsSurveyRow *row = &walk->survey->rows[walk->row_of_param[i]];
        HS_TRY(count_tensor(walk->context, model->params[i].gradient, &row->weights));
    }
    return HS_OK;
}

static HsStatus after_action(void *user, int action, bool *enough)
{
    Walk *walk = user;
    (void)enough;
    return walk->program->actions[action].kind == HS_ACTION_BACKWARD ? count_activations(walk, action) : HS_OK;
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

static HsStatus run(Walk *walk, const int32_t *tokens, const int32_t *targets, HsExecution *execution,
                    float gradient_scale)
{
    const HsProgram *program = walk->program;
    HsContext *context = walk->context;
    HS_TRY(hs_program_clear_gradients(program, context));
    HS_TRY(hs_program_load_training(program, context, tokens, targets, gradient_scale, &execution->target_rows));
    HS_TRY(hs_program_run(program, context, execution, after_action, walk));
    HS_TRY(count_weights(walk));
    return hs_program_clear_gradients(program, context);
}

HsStatus hs_program_gradient_histograms(HsProgram *program, HsContext *context, const int32_t *tokens,
                                        const int32_t *targets, uint64_t seed, uint32_t step, int64_t row_offset,
                                        float gradient_scale, HsSurvey *survey)
{
    assert(program->training);
    const HsModel *model = program->model;
    HsExecution execution = hs_execution_of_training(program, seed, step, row_offset);
    execution.stores_all = true;
    size_t steps = (size_t)model->node_count, slots = (size_t)model->slot_count, params = (size_t)model->param_count;
    *survey = (HsSurvey){ .activation_format = HS_F32 };
    int *tables = malloc((steps + slots + params) * sizeof *tables);
    if (!tables)
        return hs_fail(HS_ENOMEM, "no memory to survey the gradients of %d nodes", model->node_count);
    Walk walk = { .program = program,
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
