/* SPDX-License-Identifier: MIT */
#include "runtime/model/casts.h"

/* Of a linear layer; and of a norm that makes the sum it reads. */
enum { INPUT_PRE = 2, OUTPUT_PRE = 1, BIAS = 1, NORMED = 1 };

static bool is_coded_linear(const HsNode *node)
{
    return node->layer == &hs_layer_linear && hs_node_coded(node);
}

static void set_codes(HsBuilder *builder, int slot, HsDtype format, int scaling)
{
    if (slot == HS_NONE)
        return;
    HsSlot *const codes = &builder->model->slots[slot];
    codes->format = format;
    codes->granularity = HS_SCALE_TENSOR;
    codes->scaling = scaling;
}

/* Whether node can make x in codes: a product with an activation, or a norm of the branch that begins with it. */
static bool casts_value(const HsNode *node, int x)
{
    return (is_coded_linear(node) && node->attributes.epilogue != HS_EPILOGUE_NONE && node->outputs[0] == x) ||
           (node->layer == &hs_layer_norm && node->outputs[0] == x) ||
           (node->layer == &hs_layer_dropout_norm && node->outputs[NORMED] == x);
}

/* Node n, and no other one, reads what the one below can cast. */
static void mark_x(HsBuilder *builder, int n)
{
    HsModel *const model = builder->model;
    const HsNode *const node = &model->nodes[n];
    const int x = node->inputs[0], below = model->slots[x].producer, scaling = node->attributes.scaling;
    if (below == HS_NONE || !casts_value(&model->nodes[below], x) || hs_model_readers(model, x).count != 1)
        return;
    const int slot = hs_builder_left_codes(builder, below, x);
    model->nodes[n].inputs[HS_INPUT_CODES] = slot;
    set_codes(builder, slot, model->precision.scaling.forward.a, scaling + HS_SCALING_X);
}

/* Node `below` reads its gradient for its two products alone, and for no adapter: node n leaves it in codes, of as many columns
 * as slot `like`. */
static void leave_gradient(HsBuilder *builder, int n, int below, int like)
{
    HsModel *const model = builder->model;
    const HsNode *const reader = &model->nodes[below];
    if (!is_coded_linear(reader) || !reader->trains || reader->attributes.adapter.rank > 0)
        return;
    const HsParam *const w = &model->params[reader->params[0]];
    if (!w->trainable && !w->passes_gradient)
        return;
    const HsSlot shape = { .columns = model->slots[like].columns, .rank = 2, .dtype = HS_U8, .share_of = HS_NONE };
    const int scaling = reader->attributes.scaling, block = reader->block;
    const int slot = hs_builder_made(builder, n, HS_MADE_CODES, ".d_codes", shape);
    if (slot == HS_NONE)
        return;
    model->slots[slot].block = block;
    model->nodes[below].taken[HS_MADE_CODES] = slot;
    set_codes(builder, slot, model->precision.scaling.dgrad.a, scaling + HS_SCALING_DY);
}

/* Node n's backward product makes the gradient of what the layer below has before its activation, which no other node reads,
 * and which has no bias to add up. */
static void mark_dpre(HsBuilder *builder, int n)
{
    const HsModel *const model = builder->model;
    const HsNode *const node = &model->nodes[n];
    const int pre = node->inputs[INPUT_PRE], below = pre == HS_NONE ? HS_NONE : model->slots[pre].producer;
    if (below == HS_NONE || !node->trains || node->attributes.backward_epilogue == HS_EPILOGUE_NONE ||
        hs_model_readers(model, pre).count != 1 || model->nodes[below].outputs[OUTPUT_PRE] != pre)
        return;
    const int bias = model->nodes[below].params[BIAS];
    if (bias == HS_NONE || !model->params[bias].trainable)
        leave_gradient(builder, n, below, pre);
}

/* Norm n rounds the gradient of what the layer below made, and has added up its bias (fuse.c). */
static void mark_rounded(HsBuilder *builder, int n)
{
    const HsModel *const model = builder->model;
    const HsNode *const node = &model->nodes[n];
    const int rounded = node->made[HS_MADE_ROUNDED];
    const int below = rounded == HS_NONE ? HS_NONE : model->slots[node->inputs[0]].producer;
    if (below != HS_NONE && model->nodes[below].taken[HS_MADE_ROUNDED] == rounded)
        leave_gradient(builder, n, below, rounded);
}

HsStatus hs_model_mark_casts(HsBuilder *builder)
{
    HsModel *const model = builder->model;
    if (!model->precision.scaling.delayed || !model->precision.scaling.turns_codes)
        return HS_OK;
    for (int n = 0; n < model->node_count && builder->status == HS_OK; n++) {
        if (model->nodes[n].layer == &hs_layer_norm)
            mark_rounded(builder, n);
        if (!is_coded_linear(&model->nodes[n]))
            continue;
        mark_x(builder, n);
        if (builder->status == HS_OK)
            mark_dpre(builder, n);
    }
    return builder->status;
}
