/* SPDX-License-Identifier: MIT
 *
 * A row without a target (a prompt, padding) adds 0 to the loss and to every gradient, so the head leaves it out before
 * its product.  Rows with one are gathered chunk by chunk, in their order, and what comes of them goes back to their
 * rows, between zeros:
 *
 *     micro-batch   - - a b - c - - d e - -        - : no target
 *     list          2 3 5 8 9 -1 -1 ...            of the host (runtime/model/target_rows.h), with the batch
 *     chunks of 3   [a b c]  [d e 0]               0 : a row of zeros without a target
 *
 * A gathered chunk's sums are those of all rows with exact zeros left out.  A row of logits, its loss and its dhidden are
 * sums within the row; dw adds other rows up in one product, as with another memory.head_chunk.
 *
 * Plans count on all rows, as any batch may have a target in each.
 */
#include "runtime/model/layers/head_rows.h"

/* Sizes of a last chunk are few, because the scratch of each is planned (head_loss.c). */
int64_t hs_head_rows_step(int64_t chunk)
{
    enum { SIZES = 32 };
    return (chunk + SIZES - 1) / SIZES;
}

int64_t hs_head_rows_padded(int64_t chunk, int64_t count, int64_t room)
{
    const int64_t step = hs_head_rows_step(chunk), padded = (count + step - 1) / step * step;
    return padded < room ? padded : room;
}

/* Predictions are asked for in all rows, and a factor of curvature is one of all hidden rows. */
static bool may_leave_out(const HsLayerCall *call, const HsNode *node)
{
    return node->attributes.leaves_out && call->target_rows.list && !call->context->dry_run && call->predict == 0 &&
           !call->accumulate[0] && !call->factors[0];
}

bool hs_head_leaves_out(const HsLayerCall *call, const HsNode *node)
{
    const int64_t total = call->inputs[0].shape[0], most = node->attributes.head_chunk;
    const int64_t chunk = most < total ? most : total, last = call->target_rows.count % chunk;
    /* Where that leaves none out they stay where they are. */
    return may_leave_out(call, node) &&
           call->target_rows.count - last + hs_head_rows_padded(chunk, last, chunk) < total;
}

/* Without the place of its largest magnitude, for which moving looks at nothing. */
static HsTensor as_matrix(const HsTensor *x)
{
    return hs_tensor_2d(x->data, x->dtype, x->shape[0], x->rank > 1 ? x->shape[1] : 1);
}

HsStatus hs_head_rows_gather(const HsLayerCall *call, HsTensor list, HsTensor x, HsTensor y)
{
    const HsMoveRowsArgs args = { .x = as_matrix(&x), .rows = list, .y = as_matrix(&y) };
    return hs_op_gather_rows(call->context, &args);
}

HsStatus hs_head_rows_scatter(const HsLayerCall *call, HsTensor list, HsTensor x, HsTensor y)
{
    const HsMoveRowsArgs args = { .x = as_matrix(&x), .rows = list, .y = as_matrix(&y) };
    return hs_op_scatter_rows(call->context, &args);
}

HsStatus hs_head_rows_clear(const HsLayerCall *call, HsTensor x)
{
    HsDevice *device = call->context->device;
    return device->fill_zero(device, call->context->stream, x.data, hs_tensor_bytes(&x));
}
