/* SPDX-License-Identifier: MIT
 *
 * Appending slots, parameters and steps to a model's table.  Formats of values come from the precision row, here and
 * nowhere else.
 */
#include "runtime/model_builder.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* The table with room for one more item, perhaps moved; NULL (and nothing changed) after a failure. */
static void *room_for_one(HsBuilder *builder, void *items, int count, int *capacity, size_t item_bytes)
{
    if (builder->status != HS_OK)
        return NULL;
    if (count < *capacity)
        return items;
    int larger = *capacity ? 2 * *capacity : 32;
    void *moved = realloc(items, (size_t)larger * item_bytes);
    if (moved == NULL) {
        builder->status = hs_fail(HS_ENOMEM, "model: no memory for a table of %d entries", larger);
        return NULL;
    }
    *capacity = larger;
    return moved;
}

static void name_in_block(const HsBuilder *builder, char *target, size_t size, const char *name)
{
    if (builder->block == HS_NONE)
        snprintf(target, size, "%s", name);
    else
        snprintf(target, size, "block.%d.%s", builder->block, name);
}

int hs_builder_param(HsBuilder *builder, const char *prefix, const char *suffix, unsigned flags, int rank, int64_t rows,
                     int64_t columns)
{
    HsModel *model = builder->model;
    HsParam *params =
        room_for_one(builder, model->params, model->param_count, &builder->param_capacity, sizeof *params);
    if (params == NULL)
        return HS_NONE;
    model->params = params;
    HsParam *param = &params[model->param_count++];
    *param = (HsParam){ 0 };
    const HsPrecision *precision = &model->precision;
    snprintf(param->name, sizeof param->name, "%s%s", prefix, suffix);
    param->rank = rank;
    param->shape[0] = rows;
    param->shape[1] = columns;
    /* Decay on tensors of two dimensions only: gains and biases are not shrunk (GPT-2's recipe). */
    param->flags = flags | HS_PARAM_TRAINABLE | (rank == 2 ? (unsigned)HS_PARAM_DECAY : 0u);
    param->dtype = rank == 2 ? precision->weight : precision->vector;
    HsDtype gradient = rank == 2 ? precision->gradient : precision->vector;
    param->weight = (HsTensor){ NULL, param->dtype, rank, { rows, columns, 1, 1 } };
    param->gradient = (HsTensor){ NULL, gradient, rank, { rows, columns, 1, 1 } };
    if (hs_dtype_bytes(precision->master) > hs_dtype_bytes(param->dtype))
        param->master = (HsTensor){ NULL, precision->master, rank, { rows, columns, 1, 1 } };
    param->packed_forward = (HsPacked){ NULL, param->dtype, columns, rows };
    param->packed_backward = (HsPacked){ NULL, param->dtype, rows, columns };
    return model->param_count - 1;
}

static int add_slot(HsBuilder *builder, const char *name, int rank, int64_t columns, HsDtype dtype, bool needs_gradient)
{
    HsModel *model = builder->model;
    HsSlot *slots = room_for_one(builder, model->slots, model->slot_count, &builder->slot_capacity, sizeof *slots);
    if (slots == NULL)
        return HS_NONE;
    model->slots = slots;
    HsSlot *slot = &slots[model->slot_count++];
    *slot = (HsSlot){ 0 };
    name_in_block(builder, slot->name, sizeof slot->name, name);
    slot->rank = rank;
    slot->columns = columns;
    slot->dtype = dtype;
    slot->producer = HS_NONE;
    slot->needs_gradient = needs_gradient;
    return model->slot_count - 1;
}

/* A step with everything absent; valid until the next one is added. */
static HsStep *add_step(HsBuilder *builder, const HsLayer *layer, const char *name, int input)
{
    HsModel *model = builder->model;
    HsStep *steps = room_for_one(builder, model->steps, model->step_count, &builder->step_capacity, sizeof *steps);
    if (steps == NULL)
        return NULL;
    model->steps = steps;
    HsStep *step = &steps[model->step_count++];
    *step = (HsStep){ 0 };
    step->layer = layer;
    name_in_block(builder, step->name, sizeof step->name, name);
    step->block = builder->block;
    step->recompute_group = builder->group;
    for (int i = 0; i < HS_STEP_INPUTS; i++)
        step->inputs[i] = HS_NONE;
    for (int i = 0; i < HS_STEP_OUTPUTS; i++)
        step->outputs[i] = HS_NONE;
    for (int i = 0; i < HS_STEP_SAVED; i++)
        step->saved[i] = HS_NONE;
    for (int i = 0; i < HS_STEP_PARAMS; i++)
        step->params[i] = HS_NONE;
    step->inputs[0] = input;
    step->attributes.heads = (HsHeads){ 0, 0, model->heads, model->kv_heads, model->head_dim };
    step->attributes.epsilon = (float)builder->config->model.norm_epsilon;
    step->attributes.dropout = (float)builder->config->model.dropout;
    step->attributes.site = (uint32_t)model->step_count; /* unique: masks of different steps are independent */
    return step;
}

/* Give the latest step an output or a saved slot. */
static int add_result(HsBuilder *builder, int *place, const char *suffix, int rank, int64_t columns, HsDtype dtype,
                      bool needs_gradient)
{
    HsModel *model = builder->model;
    char name[64];
    snprintf(name, sizeof name, "%s%s", model->steps[model->step_count - 1].name, suffix);
    int block = builder->block;
    builder->block = HS_NONE; /* the step's name has the block already */
    *place = add_slot(builder, name, rank, columns, dtype, needs_gradient);
    builder->block = block;
    if (*place != HS_NONE)
        model->slots[*place].producer = model->step_count - 1;
    return *place;
}

int hs_builder_inputs(HsBuilder *builder)
{
    HsModel *model = builder->model;
    model->tokens_slot = add_slot(builder, "tokens", 1, 1, HS_I32, false);
    model->targets_slot = add_slot(builder, "targets", 1, 1, HS_I32, false);
    return model->tokens_slot;
}

int hs_builder_embedding(HsBuilder *builder, int tokens, int token_table, int position_table)
{
    HsModel *model = builder->model;
    HsStep *step = add_step(builder, &hs_layer_embedding, "embedding", tokens);
    if (step == NULL)
        return HS_NONE;
    step->params[0] = token_table;
    step->params[1] = position_table;
    return add_result(builder, &step->outputs[0], ".out", 2, model->width, model->precision.residual, true);
}

int hs_builder_norm(HsBuilder *builder, const char *name, HsNormKind kind, int input, int weight, int bias)
{
    const HsPrecision *precision = &builder->model->precision;
    HsStep *step = add_step(builder, &hs_layer_norm, name, input);
    if (step == NULL)
        return HS_NONE;
    step->attributes.norm = kind;
    step->params[0] = weight;
    step->params[1] = bias;
    add_result(builder, &step->saved[0], ".rstd", 1, 1, precision->statistic, false);
    if (kind == HS_NORM_LAYER)
        add_result(builder, &step->saved[1], ".mean", 1, 1, precision->statistic, false);
    return add_result(builder, &step->outputs[0], ".out", 2, builder->model->width, precision->activation, true);
}

int hs_builder_linear(HsBuilder *builder, const HsLinearSpec *spec, int *pre)
{
    const HsPrecision *precision = &builder->model->precision;
    HsStep *step = add_step(builder, &hs_layer_linear, spec->name, spec->input);
    if (step == NULL)
        return HS_NONE;
    HsDtype result = spec->residual == HS_NONE ? precision->activation : precision->residual;
    step->inputs[1] = spec->residual;
    step->inputs[2] = spec->input_pre;
    step->params[0] = spec->weight;
    step->params[1] = spec->bias;
    step->attributes.epilogue = spec->activation;
    step->attributes.backward_epilogue = spec->input_pre == HS_NONE                   ? HS_EPILOGUE_NONE
                                         : spec->input_activation == HS_EPILOGUE_GELU ? HS_EPILOGUE_GELU_BACKWARD
                                                                                      : HS_EPILOGUE_SWIGLU_BACKWARD;
    step->attributes.operand = precision->dgrad.a;
    step->attributes.convert_gradient = result != precision->dgrad.a;
    /* Through a fused activation the gradient belongs to the value before it; the value after has none (linear.c). */
    const bool activated = spec->activation != HS_EPILOGUE_NONE;
    const int64_t columns = spec->activation == HS_EPILOGUE_SWIGLU ? spec->outputs / 2 : spec->outputs;
    int y = add_result(builder, &step->outputs[0], ".out", 2, columns, result, !activated);
    if (activated)
        *pre = add_result(builder, &step->outputs[1], ".pre", 2, spec->outputs, precision->activation, true);
    return y;
}

int hs_builder_branch_end(HsBuilder *builder, HsLinearSpec spec, int residual)
{
    HsModel *model = builder->model;
    if (!(builder->config->model.dropout > 0)) {
        spec.residual = residual;
        return hs_builder_linear(builder, &spec, NULL);
    }
    int branch = hs_builder_linear(builder, &spec, NULL);
    char name[48];
    snprintf(name, sizeof name, "%s.dropout", spec.name);
    HsStep *step = add_step(builder, &hs_layer_dropout_residual, name, branch);
    if (step == NULL)
        return HS_NONE;
    step->inputs[1] = residual;
    return add_result(builder, &step->outputs[0], ".out", 2, model->width, model->precision.residual, true);
}

int hs_builder_head_norm(HsBuilder *builder, int qkv, int q_weight, int k_weight)
{
    HsModel *model = builder->model;
    HsStep *step = add_step(builder, &hs_layer_head_norm, "attention.head_norm", qkv);
    if (step == NULL)
        return HS_NONE;
    step->params[0] = q_weight;
    step->params[1] = k_weight;
    add_result(builder, &step->saved[0], ".rstd", 2, model->heads + model->kv_heads, model->precision.statistic, false);
    return add_result(builder, &step->outputs[0], ".out", 2, model->slots[qkv].columns, model->precision.activation,
                      true);
}

int hs_builder_rope(HsBuilder *builder, int qkv)
{
    HsModel *model = builder->model;
    HsStep *step = add_step(builder, &hs_layer_rope, "attention.rope", qkv);
    if (step == NULL)
        return HS_NONE;
    step->attributes.rope_theta = builder->config->model.rope_theta;
    return add_result(builder, &step->outputs[0], ".out", 2, model->slots[qkv].columns, model->precision.activation,
                      true);
}

int hs_builder_attention(HsBuilder *builder, int qkv)
{
    HsModel *model = builder->model;
    HsStep *step = add_step(builder, &hs_layer_attention, "attention", qkv);
    if (step == NULL)
        return HS_NONE;
    step->attributes.scale = (float)(1.0 / sqrt((double)model->head_dim));
    add_result(builder, &step->saved[0], ".lse", 2, model->heads, model->precision.statistic, false);
    return add_result(builder, &step->outputs[0], ".out", 2, model->heads * model->head_dim,
                      model->precision.activation, true);
}

void hs_builder_head(HsBuilder *builder, int hidden, int weight)
{
    HsModel *model = builder->model;
    HsStep *step = add_step(builder, &hs_layer_head_loss, "head", hidden);
    if (step == NULL)
        return;
    step->inputs[1] = model->targets_slot;
    step->params[0] = weight;
    step->attributes.vocabulary = model->vocabulary;
    step->attributes.head_chunk = builder->config->memory.head_chunk;
    step->attributes.z_loss = (float)builder->config->model.z_loss;
    step->attributes.logit = model->precision.statistic;
    step->attributes.logit_gradient = model->precision.logit_gradient;
    model->hidden_slot = hidden;
    model->loss_step = model->step_count - 1;
    add_result(builder, &step->outputs[0], ".losses", 1, 1, model->precision.statistic, false);
}
