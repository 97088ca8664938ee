/* SPDX-License-Identifier: MIT */
#include "runtime/exchange/virtual_ranks.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* Parts of each of `size` processes; 0: they cannot be divided so. */
static int64_t parts_of_each(int64_t count, int64_t size)
{
    const int64_t own = count / size;
    const bool subtree = size == 1 || (own & (own - 1)) == 0;
    return count % size == 0 && subtree ? own : 0;
}

HsStatus hs_virtual_ranks_divide(int64_t count, const HsComm *comm, HsVirtualRanks *ranks)
{
    const int64_t parts = count > 0 ? count : comm->size, own = parts_of_each(parts, comm->size);
    if (own > 0) {
        *ranks = (HsVirtualRanks){ .count = parts, .first = comm->rank * own, .own = own };
        return HS_OK;
    }
    char fitting[128] = "";
    size_t used = 0;
    for (int64_t size = 1; size <= parts && used < sizeof fitting; size++)
        if (parts_of_each(parts, size) > 0)
            used += (size_t)snprintf(fitting + used, sizeof fitting - used, "%s%" PRId64, used > 0 ? ", " : "", size);
    return hs_fail(HS_ECONFIG,
                   "distributed.virtual_ranks: %" PRId64
                   " parts of a batch cannot be divided among %d processes so that "
                   "sums keep their order: start %s of them, or set it to %d times a power of two",
                   parts, comm->size, fitting, comm->size);
}

int hs_tensors_join(const HsTensor *tensors, int count, HsTensor *runs)
{
    int joined = 0;
    for (int i = 0; i < count; i++) {
        if (!hs_tensor_present(&tensors[i]))
            continue;
        const HsTensor flat = hs_tensor_1d(tensors[i].data, tensors[i].dtype, hs_tensor_count(&tensors[i]));
        HsTensor *const run = joined > 0 ? &runs[joined - 1] : NULL;
        unsigned char *const next = flat.data;
        /* Without memory (a plan) offsets are not known: their sum is what counts there. */
        const size_t end = run ? hs_size_align(hs_tensor_bytes(run), HS_ARENA_ALIGNMENT) : 0;
        if (run && run->dtype == flat.dtype && next && next == (unsigned char *)run->data + end)
            run->shape[0] = (int64_t)(end / hs_dtype_bytes(run->dtype)) + flat.shape[0];
        else
            runs[joined++] = flat;
    }
    return joined;
}

static int levels_of(int64_t parts)
{
    int levels = 0;
    while ((parts - 1) >> levels > 0)
        levels++;
    return levels;
}

/* As if nothing were joined: a plan, which has no addresses, takes the same. */
static size_t level_bytes(const HsTensor *tensors, int count)
{
    size_t bytes = 0;
    for (int i = 0; i < count; i++)
        if (hs_tensor_present(&tensors[i]))
            bytes += hs_size_align(hs_tensor_bytes(&tensors[i]), HS_ARENA_ALIGNMENT);
    return bytes;
}

size_t hs_partial_sums_bytes(const HsTensor *tensors, int count, int64_t parts)
{
    return parts > 1 ? (size_t)levels_of(parts) * level_bytes(tensors, count) : 0;
}

HsStatus hs_partial_sums_init(HsPartialSums *sums, HsDevice *device, HsMemoryCategory category, bool on_host,
                              const HsTensor *tensors, int count, int64_t parts)
{
    *sums = (HsPartialSums){ .parts = parts };
    if (parts == 1)
        return HS_OK;
    sums->tensors = calloc((size_t)count + 1, sizeof *sums->tensors);
    sums->offsets = calloc((size_t)count + 1, sizeof *sums->offsets);
    if (!sums->tensors || !sums->offsets)
        return hs_fail(HS_ENOMEM, "no memory to list %d tensors of partial sums", count);
    sums->count = count;
    for (int i = 0; i < count; i++) {
        sums->tensors[i] = tensors[i];
        sums->offsets[i] = sums->level_bytes;
        if (hs_tensor_present(&tensors[i]))
            sums->level_bytes += hs_size_align(hs_tensor_bytes(&tensors[i]), HS_ARENA_ALIGNMENT);
    }
    hs_arena_init_at(&sums->arena, device, category, on_host);
    hs_arena_reserve(&sums->arena, hs_partial_sums_bytes(tensors, count, parts));
    return hs_arena_commit(&sums->arena);
}

void hs_partial_sums_deinit(HsPartialSums *sums)
{
    if (sums->arena.device)
        hs_arena_deinit(&sums->arena);
    free(sums->tensors);
    free(sums->offsets);
    *sums = (HsPartialSums){ 0 };
}

/* Tensors from `first` on, before `end`, that lie one behind the other, as one, and where it is kept; the next tensor. */
static int next_run(const HsPartialSums *sums, int level, int first, int end, HsTensor *run, HsTensor *kept)
{
    HsTensor pair[2];
    int next = first + 1;
    *run = hs_tensor_1d(sums->tensors[first].data, sums->tensors[first].dtype, hs_tensor_count(&sums->tensors[first]));
    for (; next < end; next++) {
        pair[0] = *run;
        pair[1] = sums->tensors[next];
        if (hs_tensors_join(pair, 2, pair) > 1)
            break;
        *run = pair[0];
    }
    *kept = *run;
    kept->data = hs_arena_at(&sums->arena, (size_t)level * sums->level_bytes + sums->offsets[first]);
    return next;
}

/* kept + tensors, rounded once: both factors are 1. */
static HsStatus merge(const HsPartialSums *sums, HsContext *context, int level, int first, int end)
{
    while (first < end) {
        HsTensor run, kept;
        first = next_run(sums, level, first, end, &run, &kept);
        const HsCombineArgs args = { .x = kept, .y = run, .alpha = 1, .beta = 1 };
        HS_TRY(hs_op_combine(context, &args));
    }
    return HS_OK;
}

static HsStatus keep(const HsPartialSums *sums, HsContext *context, int level, int first, int end)
{
    HsDevice *device = context->device;
    while (first < end) {
        HsTensor run, kept;
        first = next_run(sums, level, first, end, &run, &kept);
        HS_TRY(device->copy(device, context->stream, kept.data, run.data, hs_tensor_bytes(&run)));
        HS_TRY(device->fill_zero(device, context->stream, run.data, hs_tensor_bytes(&run)));
    }
    return HS_OK;
}

/* Levels in use before part p are the bits of p that are set. */
HsStatus hs_partial_sums_add_some(const HsPartialSums *sums, HsContext *context, int64_t part, int first, int count)
{
    const bool last = part == sums->parts - 1;
    int level = 0;
    for (; part >> level > 0; level++) {
        if (part >> level & 1)
            HS_TRY(merge(sums, context, level, first, first + count));
        else if (!last)
            break;
    }
    return last ? HS_OK : keep(sums, context, level, first, first + count);
}

HsStatus hs_partial_sums_add(HsPartialSums *sums, HsContext *context, int64_t part)
{
    return hs_partial_sums_add_some(sums, context, part, 0, sums->count);
}

HsStatus hs_partial_sums_dry_run(HsPartialSums *sums, HsContext *dry)
{
    return sums->parts > 1 ? merge(sums, dry, 0, 0, sums->count) : HS_OK;
}
