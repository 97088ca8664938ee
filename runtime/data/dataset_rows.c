/* SPDX-License-Identifier: MIT
 *
 * data.packing: none, documents: which documents have their own rows, and how much of each.
 *
 *     stream   | doc 0 | doc 1 ................... | d | doc 3 ....|
 *     rows     | doc 0 | doc 1: its first T + 1    | - | doc 3 ....|     d: nothing of it would be a target
 *
 * A row begins at its document's first token, so that positions count from there and nothing else is in sight; the first
 * token is no target.  Behind the last one is padding, which no target is and, attention being causal, no target sees.
 * data.packing: documents puts such rows together (dataset_packs.c).
 */
#include "runtime/data/dataset_build.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Tokens [first, last) that the loss counts. */
static int64_t count_targets(const HsStreamTokens *stream, int64_t first, int64_t last)
{
    int64_t targets = 0;
    for (int64_t t = first; t < last; t++)
        targets += stream->loss_mask[t];
    return targets;
}

/* Padding is ignored by way of the mask: there is always one. */
static HsStatus need_mask(HsStreamTokens *stream)
{
    if (stream->loss_mask)
        return HS_OK;
    stream->loss_mask = malloc((size_t)stream->count + 1);
    if (!stream->loss_mask)
        return hs_fail(HS_ENOMEM, "no memory for the loss mask of %" PRId64 " tokens", stream->count);
    memset(stream->loss_mask, 1, (size_t)stream->count + 1);
    return HS_OK;
}

bool hs_dataset_keeps_documents(const HsConfig *config)
{
    return !hs_is(config->data.packing, "stream");
}

HsStatus hs_dataset_make_rows(HsDatasetBuild *building, const HsDocumentRange *range, HsStreamTokens *stream)
{
    const int64_t most = building->config->training.max_length + 1, count = range->last - range->first;
    HsRowCounts *counts = &building->rows;
    if (!hs_dataset_keeps_documents(building->config))
        return HS_OK;
    HS_TRY(need_mask(stream));
    stream->rows = malloc((size_t)(count + 1) * sizeof *stream->rows);
    if (!stream->rows)
        return hs_fail(HS_ENOMEM, "no memory for the bounds of %" PRId64 " documents", count);
    stream->entropy_floor = NAN; /* first tokens are no targets */
    for (int64_t i = range->first; i < range->last; i++) {
        const int64_t first = hs_document_start(range->documents, i) - range->offset;
        const int64_t length = range->documents->items[i].end - range->offset - first;
        const int64_t kept = length < most ? length : most;
        counts->documents++;
        counts->cut += kept < length;
        counts->lost += length - kept;
        counts->lost_targets += count_targets(stream, first + kept, first + length);
        if (kept > 1 && count_targets(stream, first + 1, first + kept) > 0)
            stream->rows[stream->row_count++] = (HsRow){ first, kept };
        else
            counts->without_target++;
    }
    if (!hs_is(building->config->data.packing, "documents"))
        return HS_OK;
    HS_TRY(hs_dataset_pack(stream, most));
    counts->packs += stream->pack_count;
    for (int64_t i = 0; i < stream->row_count; i++)
        counts->kept += stream->rows[i].count;
    return HS_OK;
}
