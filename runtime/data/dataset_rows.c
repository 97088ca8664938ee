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

static HsStatus add_row(HsRowCounts *counts, int64_t first, int64_t length, int64_t most, HsStreamTokens *stream)
{
    const int64_t kept = length < most ? length : most;
    int64_t targets = 0;
    counts->documents++;
    counts->cut += kept < length;
    counts->lost += length - kept;
    HS_TRY(hs_stream_count_targets(stream, first + kept, first + length, &counts->lost_targets));
    if (kept > 1)
        HS_TRY(hs_stream_count_targets(stream, first + 1, first + kept, &targets));
    if (targets > 0)
        stream->rows[stream->row_count++] = (HsRow){ first, kept };
    else
        counts->without_target++;
    return HS_OK;
}

HsStatus hs_dataset_make_rows(HsDatasetBuild *building, const HsDocumentRange *range, HsStreamTokens *stream)
{
    const int64_t most = building->config->training.max_length + 1, count = range->last - range->first;
    HsRowCounts *counts = &building->rows;
    if (!hs_dataset_keeps_documents(building->config))
        return HS_OK;
    stream->rows = malloc((size_t)(count + 1) * sizeof *stream->rows);
    if (!stream->rows)
        return hs_fail(HS_ENOMEM, "no memory for the bounds of %" PRId64 " documents", count);
    stream->entropy_floor = NAN; /* first tokens are no targets */
    int64_t first = hs_document_start(range->documents, range->first) - range->offset;
    for (int64_t i = range->first; i < range->last; i++) {
        const int64_t end = hs_document(range->documents, i).end - range->offset;
        HS_TRY(range->documents->failure);
        HS_TRY(add_row(counts, first, end - first, most, stream));
        first = end;
    }
    if (!hs_is(building->config->data.packing, "documents"))
        return HS_OK;
    HS_TRY(hs_dataset_pack(stream, most));
    counts->packs += stream->pack_count;
    for (int64_t i = 0; i < stream->row_count; i++)
        counts->kept += stream->rows[i].count;
    return HS_OK;
}

static int by_length(const void *a, const void *b)
{
    const HsRow *one = a, *other = b;
    const int64_t difference = one->count != other->count ? one->count - other->count
                                                          : one->start - other->start; /* the same on every machine */
    return (difference > 0) - (difference < 0);
}

void hs_stream_order_by_length(HsStreamTokens *stream)
{
    qsort(stream->rows, (size_t)stream->row_count, sizeof *stream->rows, by_length);
}
