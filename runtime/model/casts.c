/* SPDX-License-Identifier: MIT */
#include "runtime/model/casts.h"

/* Of a linear layer. */
enum { INPUT_PRE = 2, OUTPUT_PRE = 1, BIAS = 1 };

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

/* Node n reads what the product of another one makes with an activation, and no other node does. */
static void mark_x(HsBuilder *builder, int n)
{
    HsModel *const model = builder->model;
    const HsNode *const node = &model->nodes[n];
    const int x = node->inputs[0], below = model->slots[x].producer, scaling = node->attributes.scaling;
    if (below == HS_NONE || !is_coded_linear(&model->nodes[below]) || model->nodes[below].outputs[0] != x ||
        model->nodes[below].attributes.epilogue == HS_EPILOGUE_NONE || hs_model_readers(model, x).count != 1)
        return;
    const int slot = hs_builder_left_codes(builder, below, model->slots[x].columns);
    model->nodes[n].inputs[HS_INPUT_CODES] = slot;
    set_codes(builder, slot, model->precision.scaling.forward.a, scaling + HS_SCALING_X);
}

/* Node n's backward product makes the gradient of what the layer below has before its activation, which no other node reads;
 * that layer reads it for its two products alone, and for no bias or adapter. */
static void mark_dy(HsBuilder *builder, int n)
{
    HsModel *const model = builder->model;
    const HsNode *const node = &model->nodes[n];
    const int pre = node->inputs[INPUT_PRE], below = pre == HS_NONE ? HS_NONE : model->slots[pre].producer;
    if (below == HS_NONE || !node->trains || node->attributes.backward_epilogue == HS_EPILOGUE_NONE ||
        hs_model_readers(model, pre).count != 1)
        return;
    const HsNode *const reader = &model->nodes[below];
    const HsParam *const w = &model->params[reader->params[0]];
    const int bias = reader->params[BIAS];
    if (!is_coded_linear(reader) || !reader->trains || reader->outputs[OUTPUT_PRE] != pre ||
        !(w->trainable || w->passes_gradient) || reader->attributes.adapter.rank > 0 ||
        (bias != HS_NONE && model->params[bias].trainable))
        return;
    const HsSlot shape = { .columns = model->slots[pre].columns, .rank = 2, .dtype = HS_U8, .share_of = HS_NONE };
    const int scaling = reader->attributes.scaling;
    const int slot = hs_builder_made(builder, n, HS_MADE_CODES, ".d_codes", shape);
    model->nodes[below].taken[HS_MADE_CODES] = slot;
    set_codes(builder, slot, model->precision.scaling.dgrad.a, scaling + HS_SCALING_DY);
}

HsStatus hs_model_mark_casts(HsBuilder *builder)
{
    HsModel *const model = builder->model;
    if (!model->precision.scaling.delayed || !model->precision.scaling.turns_codes)
        return HS_OK;
    for (int n = 0; n < model->node_count && builder->status == HS_OK; n++) {
        if (!is_coded_linear(&model->nodes[n]))
            continue;
        mark_x(builder, n);
        if (builder->status == HS_OK)
            mark_dy(builder, n);
    }
    return builder->status;
}
