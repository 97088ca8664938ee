/* SPDX-License-Identifier: MIT
 *
 * A row without a target (a prompt, padding) adds 0 to the loss and to every gradient, so the head leaves it out before
 * its product.  Rows with one are gathered chunk by chunk, in their order:
 *
 *     micro-batch   - - a b - c - - d e - -        - : no target
 *     chunks of 3   [a b c]  [d e 0]               0 : a row of zeros without a target
 *
 * What comes of a chunk is written one behind the other into the beginning of the whole (losses, dhidden), and goes to its
 * rows at the end; a row's place is never behind it, so no second copy is needed.
 *
 * A gathered chunk's sums are those of all rows with exact zeros left out.  A row of logits, its loss and its dhidden are
 * sums within the row; dw adds other rows up in one product, as with another memory.head_chunk.
 *
 * Only where the host reads the device's memory: a GPU's steps are recorded once and replayed, with numbers of rows
 * that the host fixed.  Plans count on all rows, as any batch may have a target in each.
 */
#include "runtime/model/layers/head_rows.h"

#include <string.h>

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
    return node->attributes.leaves_out && !call->context->dry_run && call->predict == 0 && !call->accumulate[0] &&
           !call->factors[0];
}

HsHeadRows hs_head_rows(const HsLayerCall *call, const HsNode *node)
{
    const int64_t total = call->inputs[0].shape[0], most = node->attributes.head_chunk;
    const int64_t chunk = most < total ? most : total;
    const HsHeadRows all = { .total = total, .counted = total };
    if (!may_leave_out(call, node))
        return all;
    HsHeadRows rows = { .targets = call->inputs[1].data, .total = total };
    for (int64_t row = 0; row < total; row++)
        rows.counted += rows.targets[row] >= 0;
    const int64_t last = rows.counted % chunk;
    /* Where that leaves none out they stay where they are. */
    return rows.counted - last + hs_head_rows_padded(chunk, last, chunk) < total ? rows : all;
}

bool hs_head_rows_next(const HsHeadRows *rows, int64_t count, HsRowRun *run)
{
    run->place += run->count;
    run->row += run->count;
    run->count = 0;
    if (run->place == count)
        return false;
    while (rows->targets && rows->targets[run->row] < 0)
        run->row++;
    while (run->place + run->count < count && (!rows->targets || rows->targets[run->row + run->count] >= 0))
        run->count++;
    return true;
}

static size_t row_bytes(const HsTensor *x)
{
    return hs_dtype_bytes(x->dtype) * (size_t)(x->rank > 1 ? x->shape[1] : 1);
}

HsRowRun hs_head_rows_gather(const HsHeadRows *rows, HsTensor x, int64_t count, HsRowRun run, int fill,
                             HsTensor gathered)
{
    const size_t bytes = row_bytes(&x);
    unsigned char *const to = gathered.data;
    while (hs_head_rows_next(rows, count, &run))
        memcpy(to + (size_t)run.place * bytes, (unsigned char *)x.data + (size_t)run.row * bytes,
               (size_t)run.count * bytes);
    memset(to + (size_t)count * bytes, fill, (size_t)(gathered.shape[0] - count) * bytes);
    return run;
}

void hs_head_rows_spread(const HsHeadRows *rows, HsTensor x)
{
    const size_t bytes = row_bytes(&x);
    int64_t from = rows->counted;
    for (int64_t row = rows->total - 1; row >= 0; row--) {
        unsigned char *const to = (unsigned char *)x.data + (size_t)row * bytes;
        if (rows->targets[row] < 0)
            memset(to, 0, bytes);
        else if (--from < row)
            memcpy(to, (unsigned char *)x.data + (size_t)from * bytes, bytes);
    }
}
