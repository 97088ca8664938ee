/* SPDX-License-Identifier: MIT
 *
 * Appending slots, parameters and nodes to a model's table.  Formats of values come from the precision row, here and
 * nowhere else.
 */
#include "runtime/model/builder.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/config/attention_pattern.h"

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

/* A parameter of either rank. */
static int add_param(HsBuilder *builder, const char *prefix, const char *suffix, HsParamRole role, HsParamStart start,
                     int rank, int64_t rows, int64_t columns)
{
    HsModel *model = builder->model;
    HsParam *params =
        room_for_one(builder, model->params, model->param_count, &builder->param_capacity, sizeof *params);
    if (params == NULL)
        return HS_NONE;
    model->params = params;
    HsParam *param = &params[model->param_count++];
    *param = (HsParam){ .role = role, .start = start, .trainable = true, .part_count = 1, .part_rows = { rows } };
    const HsPrecision *precision = &model->precision;
    snprintf(param->name, sizeof param->name, "%s%s", prefix, suffix);
    param->rank = rank;
    param->shape[0] = rows;
    param->shape[1] = columns;
    param->dtype = rank == 2 ? precision->weight : precision->vector;
    HsDtype gradient = rank == 2 ? precision->gradient : precision->vector;
    param->stored.values = (HsTensor){ .dtype = param->dtype, .rank = rank, .shape = { rows, columns, 1, 1 } };
    param->gradient = (HsTensor){ .dtype = gradient, .rank = rank, .shape = { rows, columns, 1, 1 } };
    param->forward = (HsOperand){ .layout = HS_LAYOUT_PACKED, .packed = { NULL, param->dtype, columns, rows } };
    param->backward = (HsOperand){ .layout = HS_LAYOUT_PACKED, .packed = { NULL, param->dtype, rows, columns } };
    return model->param_count - 1;
}

int hs_builder_table(HsBuilder *builder, const char *prefix, const char *suffix, HsParamRole role, HsParamStart start,
                     int64_t rows, int64_t columns)
{
    return add_param(builder, prefix, suffix, role, start, 2, rows, columns);
}

int hs_builder_vector(HsBuilder *builder, const char *prefix, const char *suffix, HsParamStart start, int64_t size)
{
    return add_param(builder, prefix, suffix, HS_PARAM_VECTOR, start, 1, size, 1);
}

void hs_builder_start(HsBuilder *builder, int param, HsParamStart start, double from, double to)
{
    if (param == HS_NONE)
        return;
    HsParam *const changed = &builder->model->params[param];
    changed->start = start;
    changed->start_from = from;
    changed->start_to = to;
}

int hs_builder_token_table(HsBuilder *builder, const char *prefix, const char *suffix)
{
    HsModel *model = builder->model;
    const int table =
        hs_builder_table(builder, prefix, suffix, HS_PARAM_EMBEDDING, HS_START_NORMAL, model->vocabulary, model->width);
    if (table != HS_NONE)
        model->params[table].tied = builder->config->model.tie_head;
    return table;
}

int hs_builder_head_table(HsBuilder *builder, int token_table)
{
    const HsModel *model = builder->model;
    if (builder->config->model.tie_head)
        return token_table;
    return hs_builder_table(builder, "", "lm_head.weight", HS_PARAM_HEAD, HS_START_NORMAL, model->vocabulary,
                            model->width);
}

void hs_builder_stack(HsBuilder *builder, int index, const char *prefix, int count, const HsPart *parts)
{
    if (index == HS_NONE)
        return;
    HsParam *param = &builder->model->params[index];
    param->part_count = count;
    for (int i = 0; i < count; i++) {
        param->part_rows[i] = parts[i].rows;
        if (parts[i].suffix)
            snprintf(param->part_names[i], sizeof param->part_names[i], "%s%s", prefix, parts[i].suffix);
    }
}

void hs_builder_heads(HsBuilder *builder, int index)
{
    if (index != HS_NONE)
        builder->model->params[index].head_rows = builder->model->head_dim;
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
    slot->producer = slot->block = slot->share_of = HS_NONE;
    slot->needs_gradient = needs_gradient;
    return model->slot_count - 1;
}

/* A node with everything absent; valid until the next one is added. */
static HsNode *add_node(HsBuilder *builder, const HsLayer *layer, const char *name, int input)
{
    HsModel *model = builder->model;
    HsNode *nodes = room_for_one(builder, model->nodes, model->node_count, &builder->node_capacity, sizeof *nodes);
    if (nodes == NULL)
        return NULL;
    model->nodes = nodes;
    HsNode *node = &nodes[model->node_count++];
    *node = (HsNode){ 0 };
    node->layer = layer;
    name_in_block(builder, node->name, sizeof node->name, name);
    node->block = builder->block;
    for (int i = 0; i < HS_NODE_INPUTS; i++)
        node->inputs[i] = HS_NONE;
    for (int i = 0; i < HS_NODE_OUTPUTS; i++)
        node->outputs[i] = HS_NONE;
    for (int i = 0; i < HS_NODE_SAVED; i++)
        node->saved[i] = HS_NONE;
    for (int i = 0; i < HS_NODE_MADE; i++)
        node->made[i] = node->taken[i] = HS_NONE;
    for (int i = 0; i < HS_NODE_PARAMS; i++)
        node->params[i] = HS_NONE;
    node->inputs[0] = input;
    node->attributes.heads = (HsHeads){ 0, 0, model->heads, model->kv_heads, model->head_dim };
    node->attributes.epsilon = (float)builder->config->model.norm_epsilon;
    node->attributes.dropout = (float)builder->config->model.dropout;
    node->attributes.factor = 1.0f;
    node->attributes.embedding_factor = node->attributes.logit_factor = 1.0f;
    node->attributes.site = (uint32_t)model->node_count; /* unique: masks of different nodes are independent */
    return node;
}

/* Give a node a slot that it writes. */
static int add_result_of(HsBuilder *builder, int node, unsigned group, int *place, const char *suffix, int rank,
                         int64_t columns, HsDtype dtype, bool needs_gradient)
{
    HsModel *model = builder->model;
    char name[64];
    snprintf(name, sizeof name, "%s%s", model->nodes[node].name, suffix);
    int block = builder->block;
    builder->block = HS_NONE; /* the node's name has the block already */
    *place = add_slot(builder, name, rank, columns, dtype, needs_gradient);
    builder->block = block;
    if (*place == HS_NONE)
        return HS_NONE;
    model->slots[*place].producer = node;
    model->slots[*place].block = model->nodes[node].block;
    model->slots[*place].group = group;
    return *place;
}

/* The same of the latest node. */
static int add_result(HsBuilder *builder, int *place, const char *suffix, int rank, int64_t columns, HsDtype dtype,
                      bool needs_gradient)
{
    return add_result_of(builder, builder->model->node_count - 1, builder->group, place, suffix, rank, columns, dtype,
                         needs_gradient);
}

/* What is dropped with the node's first output. */
static unsigned group_of(const HsModel *model, int node)
{
    return model->slots[model->nodes[node].outputs[0]].group;
}

int hs_builder_saved(HsBuilder *builder, int node, const char *suffix, int64_t columns)
{
    HsModel *model = builder->model;
    return add_result_of(builder, node, group_of(model, node), &model->nodes[node].saved[0], suffix, 2, columns,
                         model->precision.activation, false);
}

void hs_builder_codes(HsBuilder *builder, int node)
{
    HsModel *model = builder->model;
    const HsProductPolicy policy = model->precision.scaling.wgrad;
    const int slot = add_result_of(builder, node, group_of(model, node), &model->nodes[node].saved[HS_SAVED_CODES],
                                   ".x_codes", 2, model->nodes[node].attributes.inputs, HS_U8, false);
    if (slot == HS_NONE)
        return;
    model->slots[slot].format = policy.b;
    model->slots[slot].granularity = policy.granularity;
}

int hs_builder_left_codes(HsBuilder *builder, int node, int value)
{
    HsModel *model = builder->model;
    const HsSlot *const of = &model->slots[value];
    return add_result_of(builder, node, of->group, &model->nodes[node].outputs[HS_OUTPUT_CODES], ".codes", 2,
                         of->columns, HS_U8, false);
}

int hs_builder_made(HsBuilder *builder, int node, int index, const char *suffix, HsSlot shape)
{
    HsModel *model = builder->model;
    const int slot = add_result_of(builder, node, 0, &model->nodes[node].made[index], suffix, shape.rank, shape.columns,
                                   shape.dtype, false);
    if (slot == HS_NONE)
        return HS_NONE;
    model->slots[slot].rows = shape.rows;
    model->slots[slot].share_of = shape.share_of;
    return slot;
}

int hs_builder_inputs(HsBuilder *builder)
{
    HsModel *model = builder->model;
    model->tokens_slot = add_slot(builder, "tokens", 1, 1, HS_I32, false);
    model->targets_slot = add_slot(builder, "targets", 1, 1, HS_I32, false);
    return model->tokens_slot;
}

/* In the weights' format, as Gemma's models have it. */
static float embedding_factor(const HsBuilder *builder)
{
    const double given = builder->config->model.embedding_factor;
    const HsDtype dtype = builder->model->precision.weight;
    _Alignas(8) unsigned char stored[8];
    hs_dtype_store(dtype, stored, 0, given > 0 ? given : sqrt((double)builder->model->width));
    return (float)hs_dtype_load(dtype, stored, 0);
}

int hs_builder_embedding(HsBuilder *builder, int tokens, int token_table, int position_table)
{
    HsModel *model = builder->model;
    HsNode *node = add_node(builder, &hs_layer_embedding, "embedding", tokens);
    if (node == NULL)
        return HS_NONE;
    node->params[0] = token_table;
    node->params[1] = position_table;
    node->attributes.embedding_factor = embedding_factor(builder);
    return add_result(builder, &node->outputs[0], ".out", 2, model->width, model->precision.residual, true);
}

int hs_builder_norm(HsBuilder *builder, const HsNormSpec *spec)
{
    const HsPrecision *precision = &builder->model->precision;
    const bool sums = spec->residual != HS_NONE;
    HsNode *node = add_node(builder, sums ? &hs_layer_norm_sum : &hs_layer_norm, spec->name, spec->input);
    if (node == NULL)
        return HS_NONE;
    node->inputs[1] = spec->residual;
    node->attributes.norm = spec->kind;
    node->params[0] = spec->weight;
    node->params[1] = spec->bias;
    add_result(builder, &node->saved[0], ".rstd", 1, 1, precision->statistic, false);
    if (spec->kind == HS_NORM_LAYER)
        add_result(builder, &node->saved[1], ".mean", 1, 1, precision->statistic, false);
    return add_result(builder, &node->outputs[0], ".out", 2, builder->model->width,
                      sums || spec->stream ? precision->residual : precision->activation, true);
}

int hs_builder_round(HsBuilder *builder, const char *name, int stream)
{
    const HsPrecision *precision = &builder->model->precision;
    if (stream == HS_NONE || builder->model->slots[stream].dtype == precision->activation)
        return stream;
    HsNode *node = add_node(builder, &hs_layer_round, name, stream);
    if (node == NULL)
        return HS_NONE;
    return add_result(builder, &node->outputs[0], ".out", 2, builder->model->width, precision->activation, true);
}

int hs_builder_linear(HsBuilder *builder, const HsLinearSpec *spec, int *pre)
{
    const HsPrecision *precision = &builder->model->precision;
    HsNode *node = add_node(builder, &hs_layer_linear, spec->name, spec->input);
    if (node == NULL)
        return HS_NONE;
    HsDtype result = spec->residual == HS_NONE ? precision->activation : precision->residual;
    node->inputs[1] = spec->residual;
    node->inputs[2] = spec->input_pre;
    node->params[0] = spec->weight;
    node->params[1] = spec->bias;
    node->attributes.epilogue = spec->activation;
    node->attributes.factor = spec->factor > 0 ? spec->factor : 1.0f;
    node->attributes.backward_epilogue =
        spec->input_pre == HS_NONE ? HS_EPILOGUE_NONE : hs_epilogue_gradient(spec->input_activation);
    node->attributes.operand = precision->weight;
    node->attributes.inputs = builder->model->slots[spec->input].columns;
    node->attributes.convert_gradient = result != precision->weight;
    /* Through a fused activation the gradient belongs to the value before it; the value after has none (linear.c). */
    const bool activated = spec->activation != HS_EPILOGUE_NONE;
    const int64_t columns = hs_epilogue_gates(spec->activation) ? spec->outputs / 2 : spec->outputs;
    int y = add_result(builder, &node->outputs[0], ".out", 2, columns, result, !activated);
    if (activated)
        *pre = add_result(builder, &node->outputs[1], ".pre", 2, spec->outputs, precision->activation, true);
    return y;
}

int hs_builder_branch_end(HsBuilder *builder, HsLinearSpec spec, int residual)
{
    if (!(builder->config->model.dropout > 0)) {
        spec.residual = residual;
        return hs_builder_linear(builder, &spec, NULL);
    }
    return hs_builder_dropout_sum(builder, spec.name, hs_builder_linear(builder, &spec, NULL), residual);
}

int hs_builder_dropout_sum(HsBuilder *builder, const char *branch_name, int branch, int residual)
{
    HsModel *model = builder->model;
    char name[48];
    snprintf(name, sizeof name, "%s.dropout", branch_name);
    HsNode *node = add_node(builder, &hs_layer_dropout_residual, name, branch);
    if (node == NULL)
        return HS_NONE;
    node->inputs[1] = residual;
    return add_result(builder, &node->outputs[0], ".out", 2, model->width, model->precision.residual, true);
}

int hs_builder_head_norm(HsBuilder *builder, int qkv, int q_weight, int k_weight)
{
    HsModel *model = builder->model;
    HsNode *node = add_node(builder, &hs_layer_head_norm, "attention.head_norm", qkv);
    if (node == NULL)
        return HS_NONE;
    node->params[0] = q_weight;
    node->params[1] = k_weight;
    node->attributes.whole = hs_is(builder->config->model.qk_norm_span, "projection");
    add_result(builder, &node->saved[0], ".rstd", 2, node->attributes.whole ? 2 : model->heads + model->kv_heads,
               model->precision.statistic, false);
    return add_result(builder, &node->outputs[0], ".out", 2, model->slots[qkv].columns, model->precision.activation,
                      true);
}

static HsRopeRule rope_rule(const HsModel *model, const HsConfig *config, const HsAttentionKind *kind)
{
    static const char *const names[] = HS_WORD_ARRAY(HS_ROPE_SCALINGS);
    HsRopeRule rule = { .theta = kind->theta > 0 ? kind->theta : config->model.rope_theta, .rotated = model->rotated };
    if (kind->unscaled)
        return rule;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(names[i], config->model.rope_scaling) == 0)
            rule.scaling = (HsRopeScaling)i;
    const bool yarn = rule.scaling == HS_ROPE_YARN;
    rule.factor = config->model.rope_factor;
    rule.original_length = (double)config->model.rope_original_positions;
    rule.low = yarn ? config->model.rope_beta_slow : config->model.rope_low_freq_factor;
    rule.high = yarn ? config->model.rope_beta_fast : config->model.rope_high_freq_factor;
    rule.attention_factor = config->model.rope_attention_factor;
    rule.divisors = model->rope_divisors;
    return rule;
}

int hs_builder_rope(HsBuilder *builder, int qkv)
{
    HsModel *model = builder->model;
    const HsAttentionKind kind = hs_attention_kind(builder->config, builder->block);
    if (kind.nope)
        return qkv;
    HsNode *node = add_node(builder, &hs_layer_rope, "attention.rope", qkv);
    if (node == NULL)
        return HS_NONE;
    node->attributes.rope = rope_rule(model, builder->config, &kind);
    node->attributes.reversed = builder->config->model.rope_reversed;
    return add_result(builder, &node->outputs[0], ".out", 2, model->slots[qkv].columns, model->precision.activation,
                      true);
}

int hs_builder_attention(HsBuilder *builder, int qkv, int sinks)
{
    HsModel *model = builder->model;
    HsNode *node = add_node(builder, &hs_layer_attention, "attention", qkv);
    if (node == NULL)
        return HS_NONE;
    const HsConfig *config = builder->config;
    const double scale =
        config->model.score_scale > 0 ? config->model.score_scale : 1.0 / sqrt((double)model->head_dim);
    node->attributes.score = (HsScoreRule){ .scale = (float)scale,
                                            .cap = (float)config->model.score_cap,
                                            .window = hs_attention_kind(config, builder->block).window };
    node->params[0] = sinks;
    add_result(builder, &node->saved[0], ".lse", 2, model->heads, model->precision.statistic, false);
    return add_result(builder, &node->outputs[0], ".out", 2, model->heads * model->head_dim,
                      model->precision.activation, true);
}

int hs_builder_blend(HsBuilder *builder, const HsBlendSpec *spec)
{
    HsModel *model = builder->model;
    HsNode *node = add_node(builder, &hs_layer_blend, spec->name, spec->x);
    if (node == NULL)
        return HS_NONE;
    node->inputs[1] = spec->z;
    node->params[0] = spec->a;
    node->params[1] = spec->b;
    node->attributes.blend_at = spec->at;
    node->attributes.blend_sign = spec->sign;
    return add_result(builder, &node->outputs[0], ".out", 2, model->width, model->precision.residual, true);
}

int hs_builder_smear(HsBuilder *builder, int x, int gate, int strength)
{
    HsModel *model = builder->model;
    HsNode *node = add_node(builder, &hs_layer_smear, "smear", x);
    if (node == NULL)
        return HS_NONE;
    node->params[0] = gate;
    node->params[1] = strength;
    node->attributes.gate_factor = 1.0f;
    add_result(builder, &node->saved[0], ".gate", 2, 1, model->precision.statistic, false);
    return add_result(builder, &node->outputs[0], ".out", 2, model->width, model->precision.residual, true);
}

int hs_builder_values(HsBuilder *builder, int qkv, int x, int table, int gate)
{
    HsModel *model = builder->model;
    HsNode *node = add_node(builder, &hs_layer_values, "attention.values", qkv);
    if (node == NULL)
        return HS_NONE;
    node->inputs[1] = x;
    node->inputs[2] = model->tokens_slot;
    node->params[0] = table;
    node->params[1] = gate;
    node->attributes.gate_factor = 3.0f;
    add_result(builder, &node->saved[0], ".gate", 2, model->kv_heads, model->precision.statistic, false);
    return add_result(builder, &node->outputs[0], ".out", 2, model->slots[qkv].columns, model->precision.activation,
                      true);
}

void hs_builder_head(HsBuilder *builder, int hidden, int weight)
{
    HsModel *model = builder->model;
    HsNode *node = add_node(builder, &hs_layer_head_loss, "head", hidden);
    if (node == NULL)
        return;
    node->inputs[1] = model->targets_slot;
    node->params[0] = weight;
    node->attributes.operand = model->slots[hidden].dtype;
    node->attributes.inputs = model->slots[hidden].columns;
    node->attributes.vocabulary = model->vocabulary;
    node->attributes.head_chunk =
        builder->config->memory.head_chunk > 0 ? builder->config->memory.head_chunk : HS_LEAST_HEAD_CHUNK;
    node->attributes.leaves_out = true;
    node->attributes.z_loss = (float)builder->config->model.z_loss;
    node->attributes.logit_factor = (float)builder->config->model.logit_factor;
    node->attributes.logit_cap = (float)builder->config->model.logit_cap;
    node->attributes.logit = model->precision.statistic;
    node->attributes.trained_logit = model->precision.logit;
    node->attributes.logit_gradient = model->precision.logit_gradient;
    model->hidden_slot = hidden;
    model->loss_node = model->node_count - 1;
    add_result(builder, &node->outputs[0], ".losses", 1, 1, model->precision.statistic, false);
}

HsReaders hs_model_readers(const HsModel *model, int slot)
{
    HsReaders readers = { .node = HS_NONE };
    for (int n = 0; n < model->node_count; n++)
        for (int i = 0; i < HS_NODE_INPUTS; i++)
            if (model->nodes[n].inputs[i] == slot && readers.count++ == 0) {
                readers.node = n;
                readers.input = i;
            }
    return readers;
}
