/* SPDX-License-Identifier: MIT
 *
 * What strategies ask of the head's chunks in addition to the loss (head_work.h): the largest logits are kept, replayed
 * rows are pulled towards those that were, new or replayed ones towards a teacher's.
 */
#include "runtime/model/layers/head_rows.h"

#include <string.h>

/* Rows of a table [N,columns] in device memory. */
static HsTensor rows_of(const void *table, HsDtype dtype, int64_t columns, int64_t first, int64_t count)
{
    return hs_tensor_rows(hs_tensor_2d((void *)(uintptr_t)table, dtype, first + count, columns), first, count);
}

static HsTensor list_of(const void *list, HsDtype dtype, int64_t first, int64_t count)
{
    return hs_tensor_rows(hs_tensor_1d((void *)(uintptr_t)list, dtype, first + count), first, count);
}

static HsStatus keep_and_match(const HsLayerCall *call, HsTensor logits, HsTensor targets, HsTensor dlogits,
                               int64_t first)
{
    const HsHeadWork *work = call->head_work;
    const int64_t count = logits.shape[0], kept = work->kept;
    const HsTopLogitsArgs top = { .logits = logits,
                                  .value = rows_of(work->top_value, HS_F32, kept, first, count),
                                  .index = rows_of(work->top_index, HS_I32, kept, first, count) };
    const HsMatchLogitsArgs match = { .logits = logits,
                                      .targets = targets,
                                      .replayed = list_of(work->replayed, HS_I32, first, count),
                                      .value = rows_of(work->kept_value, HS_F32, kept, first, count),
                                      .index = rows_of(work->kept_index, HS_I32, kept, first, count),
                                      .weight = work->weight,
                                      .target_weight = work->target_weight,
                                      .gradient_scale = call->gradient_scale,
                                      .losses = list_of(work->terms, call->outputs[0].dtype, first, count),
                                      .dlogits = dlogits };
    HS_TRY(hs_op_top_logits(call->context, &top));
    return hs_op_match_logits(call->context, &match);
}

HsStatus hs_head_teach(const HsLayerCall *call, const HsHeadRows *rows, int64_t count, HsRowRun begin, int64_t size)
{
    const HsHeadWork *work = call->head_work;
    HsTensor hidden = hs_tensor_rows(work->teacher_hidden, begin.row, size);
    if (rows->targets) {
        hidden = hs_tensor_rows(call->scratch[HS_HEAD_TEACHER_HIDDEN], 0, size);
        (void)hs_head_rows_gather(rows, work->teacher_hidden, count, begin, 0, hidden);
    }
    return hs_layer_head_logits(call->context, call->precision, work->teacher_head, hidden,
                                hs_tensor_rows(call->scratch[HS_HEAD_TEACHER], 0, size));
}

static HsStatus learn_from_teacher(const HsLayerCall *call, HsTensor logits, HsTensor targets, HsTensor dlogits,
                                   const HsRowRun *run)
{
    const HsHeadWork *work = call->head_work;
    const HsDistillArgs args = { .logits = logits,
                                 .teacher = hs_tensor_rows(call->scratch[HS_HEAD_TEACHER], run->place, run->count),
                                 .targets = targets,
                                 .replayed = list_of(work->replayed, HS_I32, run->row, run->count),
                                 .fresh = work->fresh,
                                 .again = work->again,
                                 .gradient_scale = call->gradient_scale,
                                 .losses = list_of(work->terms, call->outputs[0].dtype, run->row, run->count),
                                 .dlogits = dlogits };
    return hs_op_distill(call->context, &args);
}

/* The teacher comes last: matching leaves 0 in rows that are not replayed, and where it matches none teaches. */
HsStatus hs_head_distill(const HsLayerCall *call, HsTensor logits, HsTensor targets, HsTensor dlogits,
                         const HsRowRun *run)
{
    if (call->head_work->kept > 0)
        HS_TRY(keep_and_match(call, logits, targets, dlogits, run->row));
    if (hs_tensor_present(&call->head_work->teacher_hidden))
        HS_TRY(learn_from_teacher(call, logits, targets, dlogits, run));
    return HS_OK;
}

void hs_head_distill_nothing(const HsLayerCall *call, int64_t rows)
{
    const HsHeadWork *work = call->head_work;
    const size_t kept = (size_t)(rows * work->kept);
    memset(work->terms, 0, (size_t)rows * hs_dtype_bytes(call->outputs[0].dtype));
    if (kept == 0)
        return;
    memset(work->top_value, 0, kept * sizeof *work->top_value);
    memset(work->top_index, 0xff, kept * sizeof *work->top_index); /* -1: none */
}

HsStatus hs_layer_head_logits(HsContext *context, const HsPrecision *precision, const HsParam *weight, HsTensor hidden,
                              HsTensor logits)
{
    HsMatmulArgs args = {
        .a.values = hidden,
        .b = hs_param_operand(weight, false),
        .transpose_b = true,
        .policy = precision->forward,
        .alpha = 1.0f,
        .c = logits,
    };
    return hs_op_matmul(context, &args);
}
