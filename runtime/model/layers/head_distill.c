/* SPDX-License-Identifier: MIT
 *
 * What strategies ask of the head's chunks in addition to the loss (head_work.h): the largest logits are kept, replayed
 * rows are pulled towards those that were, new or replayed ones towards a teacher's.
 */
#include "runtime/model/layers/head_rows.h"

/* By row of the micro-batch, or of a chunk; those from WRITTEN on are results. */
enum { REPLAYED, KEPT_VALUE, KEPT_INDEX, TEACHER_HIDDEN, TERMS, TOP_VALUE, TOP_INDEX, TABLES, WRITTEN = TERMS };

_Static_assert((int)HS_HEAD_TABLES + (int)TABLES <= (int)HS_NODE_SCRATCH, "each has scratch");

static HsTensor table(const void *data, HsDtype dtype, int64_t rows, int64_t columns)
{
    return hs_tensor_2d((void *)(uintptr_t)data, dtype, rows, columns);
}

static HsTensor list(const void *data, HsDtype dtype, int64_t rows)
{
    return hs_tensor_1d((void *)(uintptr_t)data, dtype, rows);
}

/* Of all rows; what the work does not need is absent. */
static void find_tables(const HsLayerCall *call, HsTensor tables[TABLES])
{
    const HsHeadWork *work = call->head_work;
    const int64_t rows = call->inputs[0].shape[0];
    tables[REPLAYED] = list(work->replayed, HS_I32, rows);
    tables[TEACHER_HIDDEN] = work->teacher_hidden;
    tables[TERMS] = list(work->terms, call->outputs[0].dtype, rows);
    if (work->kept == 0)
        return;
    tables[KEPT_VALUE] = table(work->kept_value, HS_F32, rows, work->kept);
    tables[KEPT_INDEX] = table(work->kept_index, HS_I32, rows, work->kept);
    tables[TOP_VALUE] = table(work->top_value, HS_F32, rows, work->kept);
    tables[TOP_INDEX] = table(work->top_index, HS_I32, rows, work->kept);
}

void hs_head_distill_scratch(const HsNode *node, HsDtype loss, int64_t rows, HsTensor scratch[HS_NODE_SCRATCH])
{
    const HsAttributes *attributes = &node->attributes;
    HsTensor *const tables = scratch + HS_HEAD_TABLES;
    if (!attributes->own_logit_gradient)
        return;
    tables[REPLAYED] = list(NULL, HS_I32, rows);
    tables[TERMS] = list(NULL, loss, rows);
    if (attributes->teacher_logits)
        tables[TEACHER_HIDDEN] = table(NULL, attributes->operand, rows, attributes->inputs);
    if (attributes->kept_logits == 0)
        return;
    tables[KEPT_VALUE] = tables[TOP_VALUE] = table(NULL, HS_F32, rows, attributes->kept_logits);
    tables[KEPT_INDEX] = tables[TOP_INDEX] = table(NULL, HS_I32, rows, attributes->kept_logits);
}

static HsStatus keep_and_match(const HsLayerCall *call, const HsNode *node, const HsHeadChunk *chunk,
                               const HsTensor tables[TABLES])
{
    const float cap = node->attributes.logit_cap;
    const HsTopLogitsArgs top = {
        .logits = chunk->logits, .cap = cap, .value = tables[TOP_VALUE], .index = tables[TOP_INDEX]
    };
    const HsMatchLogitsArgs match = { .logits = chunk->logits,
                                      .cap = cap,
                                      .targets = chunk->targets,
                                      .replayed = tables[REPLAYED],
                                      .value = tables[KEPT_VALUE],
                                      .index = tables[KEPT_INDEX],
                                      .weight = call->head_work->weight,
                                      .target_weight = call->head_work->target_weight,
                                      .gradient_scale = call->gradient_scale,
                                      .losses = tables[TERMS],
                                      .dlogits = chunk->dlogits };
    HS_TRY(hs_op_top_logits(call->context, &top));
    return hs_op_match_logits(call->context, &match);
}

static HsStatus learn_from_teacher(const HsLayerCall *call, const HsNode *node, const HsHeadChunk *chunk,
                                   const HsTensor tables[TABLES])
{
    const HsHeadWork *work = call->head_work;
    const HsAttributes *teacher = work->teacher_attributes;
    const HsDistillArgs args = { .logits = chunk->logits,
                                 .teacher = hs_tensor_rows(call->scratch[HS_HEAD_TEACHER], 0, chunk->size),
                                 .cap = node->attributes.logit_cap,
                                 .teacher_cap = teacher->logit_cap,
                                 .targets = chunk->targets,
                                 .replayed = tables[REPLAYED],
                                 .fresh = work->fresh,
                                 .again = work->again,
                                 .gradient_scale = call->gradient_scale,
                                 .losses = tables[TERMS],
                                 .dlogits = chunk->dlogits };
    HS_TRY(hs_layer_head_logits(call->context, call->precision, work->teacher_head, teacher->logit_factor,
                                tables[TEACHER_HIDDEN], args.teacher));
    return hs_op_distill(call->context, &args);
}

/* The teacher comes last: matching leaves 0 in rows that are not replayed, and where it matches none teaches. */
HsStatus hs_head_distill(const HsLayerCall *call, const HsNode *node, const HsHeadChunk *chunk)
{
    const bool gathered = hs_tensor_present(&chunk->list);
    HsTensor all[TABLES] = { 0 }, tables[TABLES] = { 0 };
    find_tables(call, all);
    for (int t = 0; t < TABLES; t++)
        if (hs_tensor_present(&all[t]))
            tables[t] = gathered ? hs_tensor_rows(call->scratch[HS_HEAD_TABLES + t], 0, chunk->size)
                                 : hs_tensor_rows(all[t], chunk->first, chunk->size);
    for (int t = 0; t < WRITTEN && gathered; t++)
        if (hs_tensor_present(&all[t]))
            HS_TRY(hs_head_rows_gather(call, chunk->list, all[t], tables[t]));
    if (call->head_work->kept > 0)
        HS_TRY(keep_and_match(call, node, chunk, tables));
    if (hs_tensor_present(&call->head_work->teacher_hidden))
        HS_TRY(learn_from_teacher(call, node, chunk, tables));
    for (int t = WRITTEN; t < TABLES && gathered; t++)
        if (hs_tensor_present(&all[t]))
            HS_TRY(hs_head_rows_scatter(call, chunk->list, tables[t], all[t]));
    return HS_OK;
}

HsStatus hs_head_distill_nothing(const HsLayerCall *call)
{
    HsTensor all[TABLES] = { 0 };
    find_tables(call, all);
    for (int t = WRITTEN; t < TABLES; t++)
        if (hs_tensor_present(&all[t]))
            HS_TRY(hs_head_rows_clear(call, all[t]));
    return HS_OK;
}

HsStatus hs_layer_head_logits(HsContext *context, const HsPrecision *precision, const HsParam *weight, float factor,
                              HsTensor hidden, HsTensor logits)
{
    HsMatmulArgs args = {
        .a.values = hidden,
        .b = hs_param_operand(weight, false),
        .transpose_b = true,
        .policy = precision->forward,
        .alpha = factor,
        .c = logits,
    };
    return hs_op_matmul(context, &args);
}
