/* SPDX-License-Identifier: MIT
 *
 * The list of patterns.  Each is tried at every node in turn, in the order of the table, and changes the table around the
 * node where it matches.
 */
#include "runtime/model/fuse.h"

#include <stdlib.h>
#include <string.h>

/* Of a linear layer. */
enum { BIAS = 1 };

/* Nodes without a layer, which are no slot's producer, out of the table: once a pattern, as it takes time to move nodes. */
static HsStatus close_gaps(HsModel *model)
{
    int *moved = malloc((size_t)model->node_count * sizeof *moved), count = 0;
    if (!moved)
        return hs_fail(HS_ENOMEM, "model: no memory to join %d nodes", model->node_count);
    for (int n = 0; n < model->node_count; n++) {
        moved[n] = count;
        if (!model->nodes[n].layer)
            continue;
        if (count < n)
            model->nodes[count] = model->nodes[n];
        count++;
    }
    for (int slot = 0; slot < model->slot_count; slot++)
        if (model->slots[slot].producer != HS_NONE)
            model->slots[slot].producer = moved[model->slots[slot].producer];
    model->loss_node = moved[model->loss_node];
    model->node_count = count;
    free(moved);
    return HS_OK;
}

/* branch, residual -> sum with dropout -> norm: the norm makes the sum that it reads, and of the sum's gradient, which is
 * whole behind it, the branch's. */
static HsStatus fuse_dropout_norm(HsBuilder *builder, int n)
{
    HsModel *model = builder->model;
    if (n == 0 || model->nodes[n].layer != &hs_layer_norm)
        return HS_OK;
    HsNode *norm = &model->nodes[n];
    HsNode *sum = &model->nodes[n - 1];
    if (sum->layer != &hs_layer_dropout_residual || norm->inputs[0] != sum->outputs[0])
        return HS_OK;
    norm->layer = &hs_layer_dropout_norm;
    norm->outputs[1] = norm->outputs[0];
    norm->outputs[0] = sum->outputs[0];
    memcpy(norm->inputs, sum->inputs, sizeof norm->inputs);
    norm->attributes.dropout = sum->attributes.dropout;
    norm->attributes.site = sum->attributes.site;
    model->slots[norm->outputs[0]].producer = n;
    sum->layer = NULL;
    return HS_OK;
}

/* linear -> sum -> norm: where the norm is the last to add to the sum's gradient, that is the linear layer's dy, which the
 * norm rounds for the products and sums for the bias on its way out. */
static HsStatus fuse_rounding(HsBuilder *builder, int n)
{
    HsModel *model = builder->model;
    const int slot = model->nodes[n].inputs[0], producer = slot == HS_NONE ? HS_NONE : model->slots[slot].producer;
    if (model->nodes[n].layer != &hs_layer_norm || !model->nodes[n].trains || producer == HS_NONE ||
        hs_model_readers(model, slot).node != n)
        return HS_OK;
    HsNode *below = &model->nodes[producer];
    if (!below->trains || !below->attributes.convert_gradient || below->attributes.epilogue != HS_EPILOGUE_NONE)
        return HS_OK; /* with an epilogue dy is that of the value before it */
    const HsSlot copy = {
        .columns = model->slots[slot].columns, .rank = 2, .dtype = below->attributes.operand, .share_of = HS_NONE
    };
    below->taken[HS_MADE_ROUNDED] = hs_builder_made(builder, n, HS_MADE_ROUNDED, ".d_rounded", copy);
    HS_TRY(builder->status);
    model->slots[below->taken[HS_MADE_ROUNDED]].block = below->block;
    const int bias = below->params[BIAS];
    if (bias == HS_NONE || !hs_tensor_present(&model->params[bias].gradient))
        return builder->status;
    const HsSlot sums = {
        .rows = copy.columns, .columns = 1, .rank = 1, .dtype = model->params[bias].gradient.dtype, .share_of = bias
    };
    below->taken[HS_MADE_SUMS] = hs_builder_made(builder, n, HS_MADE_SUMS, ".d_sums", sums);
    return builder->status;
}

static HsStatus (*const patterns[])(HsBuilder *builder, int n) = { fuse_dropout_norm, fuse_rounding };

HsStatus hs_model_fuse(HsBuilder *builder)
{
    for (size_t i = 0; i < sizeof patterns / sizeof patterns[0]; i++) {
        for (int n = 0; n < builder->model->node_count; n++)
            HS_TRY(patterns[i](builder, n));
        HS_TRY(close_gaps(builder->model));
    }
    return HS_OK;
}
