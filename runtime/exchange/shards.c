/* SPDX-License-Identifier: MIT */
#include "runtime/exchange/shards.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/exchange/reduce.h"
#include "runtime/exchange/virtual_ranks.h"

/* A span has at most 1/PARTS of all elements, and at least LEAST_ELEMENTS where it is a part: launches are few, and
 * shares are within 1/PARTS of each other.  GRAIN: of offsets, so that every tensor of a part is aligned. */
enum { PARTS = 128, LEAST_ELEMENTS = 65536, GRAIN = 4096 };

static int64_t part_elements(const HsSpan *whole, int count)
{
    int64_t all = 0;
    for (int i = 0; i < count; i++)
        all += whole[i].count;
    const int64_t part = (all / PARTS + GRAIN - 1) / GRAIN * GRAIN;
    return part > LEAST_ELEMENTS ? part : LEAST_ELEMENTS;
}

static int cut_span(const HsSpan *whole, int64_t most, HsSpan *to)
{
    int count = 0;
    if (whole->count <= most) {
        to[0] = *whole;
        return 1;
    }
    for (int64_t first = 0; first < whole->count; first += most, count++) {
        const int64_t left = whole->count - first;
        to[count] = hs_span_cut(whole, first, left < most ? left : most);
    }
    return count;
}

/* Consecutive spans, each process's as near to its share of the elements as whole spans come. */
static void divide(HsShards *shards, int size)
{
    int64_t all = 0, before = 0;
    for (int i = 0; i < shards->all_count; i++)
        all += shards->all[i].count;
    int process = 0;
    for (int i = 0; i < shards->all_count; i++) {
        const int64_t middle = before + shards->all[i].count / 2;
        while (process + 1 < size && middle >= all / size * (process + 1))
            shards->first[++process] = i;
        before += shards->all[i].count;
    }
    while (process < size)
        shards->first[++process] = shards->all_count;
}

static void find_starts(HsShards *shards, int size)
{
    for (int w = 0; w < shards->whole_count; w++)
        for (int r = 0; r <= size; r++) {
            int64_t *start = &shards->starts[w * (size + 1) + r];
            const HsSpan *at = shards->first[r] < shards->all_count ? &shards->all[shards->first[r]] : NULL;
            const int parameter = shards->whole[w].parameter;
            *start = !at || at->parameter > parameter ? shards->whole[w].count
                     : at->parameter < parameter      ? 0
                                                      : at->first;
        }
}

HsStatus hs_shards_create(HsSpan *whole, int count, bool cuts, bool (*stays)(const HsSpan *span, const void *user),
                          const void *user, bool shared, HsComm *comm, HsShards *shards)
{
    const int size = comm->size;
    const int64_t most = part_elements(whole, count);
    size_t spans = 0;
    for (int i = 0; i < count; i++)
        spans += (size_t)((whole[i].count + most - 1) / most);
    *shards = (HsShards){ .whole = whole, .whole_count = count, .comm = shared && size > 1 ? comm : NULL };
    shards->all = calloc(spans + 1, sizeof *shards->all);
    shards->first = calloc((size_t)size + 1, sizeof *shards->first);
    shards->starts = calloc((size_t)(count + 1) * ((size_t)size + 1), sizeof *shards->starts);
    shards->span_of = calloc((size_t)count + 1, sizeof *shards->span_of);
    shards->room = calloc((size_t)size + 1, sizeof *shards->room);
    if (!shards->all || !shards->first || !shards->starts || !shards->span_of || !shards->room)
        return hs_fail(HS_ENOMEM, "no memory to list %zu spans of parameters", spans);
    for (int i = 0; i < count; i++) {
        const bool whole_it_stays = !cuts || (stays && stays(&whole[i], user));
        shards->all_count += cut_span(&whole[i], whole_it_stays ? INT64_MAX : most, shards->all + shards->all_count);
        shards->span_of[i + 1] = shards->all_count;
    }
    shards->cut = shards->all_count > count;
    divide(shards, size);
    find_starts(shards, size);
    return HS_OK;
}

void hs_shards_destroy(HsShards *shards)
{
    free(shards->whole);
    free(shards->all);
    free(shards->first);
    free(shards->starts);
    free(shards->span_of);
    free(shards->room);
    *shards = (HsShards){ 0 };
}

HsSpanShare hs_shards_share(const HsShards *shards, const HsComm *comm)
{
    HsSpanShare share = { .all = shards->all, .all_count = shards->all_count, .count = shards->all_count };
    if (shards->comm) {
        share.first = shards->first[comm->rank];
        share.count = shards->first[comm->rank + 1] - share.first;
        share.comm = shards->comm;
    }
    return share;
}

/* --- exchange --- */

static HsTensor tensor_of(const HsSpan *span, HsSpanTensor which)
{
    return which == HS_SPAN_GRADIENT ? span->gradient : span->weight;
}

/* Calls `exchange` with each stretch of memory in which tensors of spans [first, last) follow each other, and where in it
 * each process's begin. */
static HsStatus each_run(const HsShards *shards, HsSpanTensor which, int from, int last,
                         HsStatus (*exchange)(const HsShards *shards, HsContext *context, const HsTensor *run,
                                              const size_t *starts),
                         HsContext *context)
{
    for (int i = from, end; i < last; i = end) {
        HsTensor pair[2], run = tensor_of(&shards->all[i], which);
        run = hs_tensor_1d(run.data, run.dtype, hs_tensor_count(&run));
        for (end = i + 1; end < last; end++) {
            pair[0] = run;
            pair[1] = tensor_of(&shards->all[end], which);
            if (hs_tensors_join(pair, 2, pair) > 1)
                break;
            run = pair[0];
        }
        for (int r = 0; r <= shards->comm->size; r++) {
            const int first = shards->first[r];
            const HsTensor at = tensor_of(&shards->all[first < end ? (first > i ? first : i) : i], which);
            shards->room[r] = first >= end ? (size_t)run.shape[0]
                                           : (size_t)((unsigned char *)at.data - (unsigned char *)run.data) /
                                                 hs_dtype_bytes(run.dtype);
        }
        HS_TRY(exchange(shards, context, &run, shards->room));
    }
    return HS_OK;
}

static HsStatus scatter(const HsShards *shards, HsContext *context, const HsTensor *run, const size_t *starts)
{
    HsDevice *device = context->device;
    const int rank = shards->comm->rank;
    const size_t bytes = hs_dtype_bytes(run->dtype), from = starts[rank] * bytes, to = starts[rank + 1] * bytes;
    unsigned char *data = run->data;
    HS_TRY(hs_comm_reduce_scatter(shards->comm, context->stream, data, starts, run->dtype));
    if (from > 0)
        HS_TRY(device->fill_zero(device, context->stream, data, from));
    if (to < hs_tensor_bytes(run))
        HS_TRY(device->fill_zero(device, context->stream, data + to, hs_tensor_bytes(run) - to));
    return HS_OK;
}

HsStatus hs_shards_reduce(const HsShards *shards, HsComm *comm, HsContext *context, int first, int count)
{
    if (shards->comm)
        return each_run(shards, HS_SPAN_GRADIENT, shards->span_of[first], shards->span_of[first + count], scatter,
                        context);
    return hs_reduce_gradients(comm, context->stream, shards->whole + first, count);
}

static HsStatus gather(const HsShards *shards, HsContext *context, const HsTensor *run, const size_t *starts)
{
    return hs_comm_all_gather(shards->comm, context->stream, run->data, starts, run->dtype);
}

HsStatus hs_shards_gather_weights(const HsShards *shards, HsContext *context)
{
    return shards->comm && !shards->streams ? each_run(shards, HS_SPAN_WEIGHT, 0, shards->all_count, gather, context)
                                            : HS_OK;
}

/* --- checkpoints --- */

HsTensorShare hs_shards_share_of(const HsShards *shards, int whole, int64_t elements)
{
    if (!shards->comm)
        return (HsTensorShare){ 0 };
    return (HsTensorShare){ .comm = shards->comm,
                            .starts = &shards->starts[whole * (shards->comm->size + 1)],
                            .elements = elements };
}

int hs_shards_find(const HsShards *shards, const char *name)
{
    for (int w = 0; w < shards->whole_count; w++)
        if (strcmp(shards->whole[w].name, name) == 0)
            return w;
    return -1;
}
