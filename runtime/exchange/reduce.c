/* SPDX-License-Identifier: MIT */
#include "runtime/exchange/reduce.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/io/storage.h"
#include "runtime/exchange/virtual_ranks.h"

enum { PROCESSES_MOST = 1024 };

HsStatus hs_reduce_tensors(HsComm *comm, HsStream *stream, const HsTensor *tensors, int count)
{
    HsTensor runs[64]; /* neighbours in memory at a time; from the last, which backward finished first */
    const int most = (int)(sizeof runs / sizeof runs[0]);
    for (int end = count; comm->size > 1 && end > 0; end -= most) {
        const int first = end > most ? end - most : 0;
        for (int run = hs_tensors_join(tensors + first, end - first, runs) - 1; run >= 0; run--)
            HS_TRY(hs_comm_all_reduce(comm, stream, runs[run].data, (size_t)hs_tensor_count(&runs[run]),
                                      runs[run].dtype, HS_COMM_SUM));
    }
    return HS_OK;
}

HsStatus hs_reduce_gradients(HsComm *comm, HsStream *stream, const HsSpan *spans, int count)
{
    HsTensor gradients[64];
    const int most = (int)(sizeof gradients / sizeof gradients[0]);
    for (int end = count; comm->size > 1 && end > 0; end -= most) {
        const int first = end > most ? end - most : 0;
        for (int i = first; i < end; i++)
            gradients[i - first] = spans[i].gradient;
        HsStatus status = hs_reduce_tensors(comm, stream, gradients, end - first);
        if (status != HS_OK)
            return hs_error_prefix(status, "gradients of %s to %s", spans[first].name, spans[end - 1].name);
    }
    return HS_OK;
}

HsStatus hs_share_entries(HsComm *comm, HsStream *stream, double *entries, size_t count)
{
    return hs_comm_all_reduce(comm, stream, entries, count, HS_F64, HS_COMM_SUM);
}

HsStatus hs_share_rows(HsComm *comm, HsStream *stream, void *rows, int64_t count, size_t row_bytes)
{
    size_t starts[PROCESSES_MOST + 1];
    if (comm->size == 1)
        return HS_OK;
    if (comm->size > PROCESSES_MOST)
        return hs_fail(HS_EUNSUPPORTED, "%d processes are more than the %d that are supported: start fewer", comm->size,
                       PROCESSES_MOST);
    for (int r = 0; r <= comm->size; r++)
        starts[r] = (size_t)r * (size_t)(count / comm->size) * row_bytes;
    return hs_comm_all_gather(comm, stream, rows, starts, HS_U8);
}

HsStatus hs_share_text(HsComm *comm, char **text)
{
    int64_t bytes = *text ? (int64_t)strlen(*text) + 1 : 0;
    if (comm->size == 1)
        return HS_OK;
    HS_TRY(hs_comm_broadcast(comm, NULL, &bytes, 1, HS_I64, 0));
    if (bytes == 0)
        return HS_OK;
    if (comm->rank > 0)
        *text = malloc((size_t)bytes);
    if (!*text)
        return hs_fail(HS_ENOMEM, "no memory for a text of %lld bytes", (long long)bytes);
    return hs_comm_broadcast(comm, NULL, *text, (size_t)bytes, HS_U8, 0);
}

HsStatus hs_check_same(HsComm *comm, const char *text, const char *what)
{
    if (comm->size == 1)
        return HS_OK;
    double *hashes = calloc((size_t)comm->size, sizeof *hashes);
    if (!hashes)
        return hs_fail(HS_ENOMEM, "no memory to compare %d processes", comm->size);
    hashes[comm->rank] = (double)(hs_storage_hash(text, strlen(text)) >> 12); /* what a double holds */
    HsStatus status = hs_share_entries(comm, NULL, hashes, (size_t)comm->size);
    for (int r = 1; r < comm->size && status == HS_OK; r++)
        if (hashes[r] != hashes[0])
            status = hs_fail(HS_ECONFIG, "rank %d has %s other than rank 0's: all hosts need the same", r, what);
    free(hashes);
    return status;
}
