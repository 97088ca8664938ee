/* SPDX-License-Identifier: MIT
 *
 * Every operation has the same three parts:
 *
 *     post      what this rank brings, in its own place of the group     | wait for all
 *     work      read what the others brought, write what is this rank's  | wait for all
 *     return    buffers are the callers' again
 *
 * In a reduction rank r adds up its own share of the elements along the tree and writes the sum to every rank's buffer:
 * no other rank touches that share, and all ranks hold the same bits.
 *
 * A rank that gives up does so between two operations, so all that came to the first meeting come to the second: only
 * the first can fail, and it fails for every rank or for none.  No buffer is read or written after its owner returned.
 *
 * A rank that waits does so under the group's mutex, which orders what was written before with what is read after.
 */
#include "kernels/base/comm_threads.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/base/comm_call.h"
#include "kernels/base/comm_fold.h"

typedef struct Rank {
    HsComm comm; /* first: an HsComm is its Rank */
    HsCommThreads *group;
    HsCommCall call;
    unsigned char *buffer;
} Rank;

struct HsCommThreads {
    int size;
    pthread_mutex_t mutex;
    pthread_cond_t all_here;
    int waiting;
    uint64_t meeting; /* how many are over */
    bool aborted;
    char reason[512];
    const void **parts; /* [size] a rank: where its share of each buffer is */
    Rank ranks[];
};

/* Waits for all ranks; where one may have given up, not for ever: false when one has. */
static bool meet(HsCommThreads *group, bool can_fail)
{
    pthread_mutex_lock(&group->mutex);
    const uint64_t meeting = group->meeting;
    if (!(can_fail && group->aborted) && ++group->waiting == group->size) {
        group->waiting = 0;
        group->meeting++;
        pthread_cond_broadcast(&group->all_here);
    }
    while (group->meeting == meeting && !(can_fail && group->aborted))
        pthread_cond_wait(&group->all_here, &group->mutex);
    /* A meeting that took place counts, even if a rank gave up right after it. */
    const bool met = group->meeting != meeting;
    pthread_mutex_unlock(&group->mutex);
    return met;
}

static void threads_abort(HsComm *comm, const char *reason)
{
    HsCommThreads *group = ((Rank *)comm)->group;
    pthread_mutex_lock(&group->mutex);
    if (!group->aborted) {
        char member[256], host[64] = "";
        gethostname(host, sizeof host - 1);
        const HsCommPlace place = {
            .rank = comm->rank, .size = comm->size, .host = host, .process = getpid(), .step = comm->step
        };
        hs_comm_describe(&place, member, sizeof member);
        snprintf(group->reason, sizeof group->reason, "%s gave up: %.240s", member, reason);
    }
    group->aborted = true;
    pthread_cond_broadcast(&group->all_here);
    pthread_mutex_unlock(&group->mutex);
}

/* Every rank compares all with rank 0, so that all come to the same end. */
static HsStatus check_calls(const HsCommThreads *group)
{
    for (int r = 1; r < group->size; r++)
        if (!hs_comm_same_call(&group->ranks[0].call, &group->ranks[r].call))
            return hs_comm_fail_calls(&group->ranks[0].call, r, &group->ranks[r].call);
    return HS_OK;
}

static HsStatus begin(HsComm *comm, void *buffer, HsCommCall call)
{
    Rank *rank = (Rank *)comm;
    HsCommThreads *group = rank->group;
    rank->call = call;
    rank->buffer = buffer;
    if (!meet(group, true))
        return hs_fail(HS_EDEVICE, "%s: %s", call.operation, group->reason);
    HsStatus status = check_calls(group);
    if (status != HS_OK)
        meet(group, false); /* no rank posts anew before all have looked */
    return status;
}

static HsStatus end(HsComm *comm)
{
    meet(((Rank *)comm)->group, false);
    return HS_OK;
}

/* The sum of elements [first, last) in this rank's own buffer. */
static void fold_share(HsComm *comm, size_t first, size_t last, HsDtype dtype, HsCommOp op)
{
    HsCommThreads *group = ((Rank *)comm)->group;
    const size_t offset = first * hs_dtype_bytes(dtype);
    const void **parts = group->parts + comm->rank * comm->size;
    if (first == last)
        return;
    for (int r = 0; r < comm->size; r++)
        parts[r] = group->ranks[r].buffer + offset;
    hs_comm_fold(parts, comm->size, last - first, dtype, op, ((Rank *)comm)->buffer + offset);
}

static HsStatus threads_all_reduce(HsComm *comm, HsStream *stream, void *buffer, size_t count, HsDtype dtype,
                                   HsCommOp op)
{
    (void)stream;
    const HsCommThreads *group = ((Rank *)comm)->group;
    const size_t bytes = hs_dtype_bytes(dtype);
    HS_TRY(begin(comm, buffer, hs_comm_call("all_reduce", count, dtype, (int)op)));
    const size_t first = hs_comm_share_start(count, comm->size, comm->rank);
    const size_t last = hs_comm_share_start(count, comm->size, comm->rank + 1);
    fold_share(comm, first, last, dtype, op);
    for (int r = 0; r < group->size; r++)
        if (r != comm->rank && last > first)
            memcpy(group->ranks[r].buffer + first * bytes, (unsigned char *)buffer + first * bytes,
                   (last - first) * bytes);
    return end(comm);
}

static HsStatus threads_reduce_scatter(HsComm *comm, HsStream *stream, void *buffer, const size_t *starts,
                                       HsDtype dtype)
{
    (void)stream;
    HS_TRY(begin(comm, buffer, hs_comm_call_ranges("reduce_scatter", starts, comm->size, dtype)));
    fold_share(comm, starts[comm->rank], starts[comm->rank + 1], dtype, HS_COMM_SUM);
    return end(comm);
}

static HsStatus threads_all_gather(HsComm *comm, HsStream *stream, void *buffer, const size_t *starts, HsDtype dtype)
{
    (void)stream;
    const HsCommThreads *group = ((Rank *)comm)->group;
    const size_t bytes = hs_dtype_bytes(dtype);
    HS_TRY(begin(comm, buffer, hs_comm_call_ranges("all_gather", starts, comm->size, dtype)));
    for (int r = 0; r < group->size; r++)
        if (r != comm->rank && starts[r + 1] > starts[r])
            memcpy((unsigned char *)buffer + starts[r] * bytes, group->ranks[r].buffer + starts[r] * bytes,
                   (starts[r + 1] - starts[r]) * bytes);
    return end(comm);
}

static HsStatus threads_broadcast(HsComm *comm, HsStream *stream, void *buffer, size_t count, HsDtype dtype, int root)
{
    (void)stream;
    const HsCommThreads *group = ((Rank *)comm)->group;
    HS_TRY(begin(comm, buffer, hs_comm_call("broadcast", count, dtype, root)));
    if (comm->rank != root && count > 0)
        memcpy(buffer, group->ranks[root].buffer, count * hs_dtype_bytes(dtype));
    return end(comm);
}

static HsStatus threads_barrier(HsComm *comm)
{
    HS_TRY(begin(comm, NULL, hs_comm_call("barrier", 0, HS_U8, 0)));
    return end(comm);
}

static HsStatus threads_check(HsComm *comm)
{
    HsCommThreads *group = ((Rank *)comm)->group;
    pthread_mutex_lock(&group->mutex);
    const HsStatus status = group->aborted ? hs_fail(HS_EDEVICE, "%s", group->reason) : HS_OK;
    pthread_mutex_unlock(&group->mutex);
    return status;
}

static const HsCommOperations threads = {
    .name = "threads",
    .all_reduce = threads_all_reduce,
    .reduce_scatter = threads_reduce_scatter,
    .all_gather = threads_all_gather,
    .broadcast = threads_broadcast,
    .barrier = threads_barrier,
    .abort = threads_abort,
    .check = threads_check,
};

HsStatus hs_comm_threads_create(int size, HsCommThreads **created)
{
    *created = NULL;
    HsCommThreads *group = calloc(1, sizeof *group + (size_t)size * sizeof group->ranks[0]);
    const void **parts = calloc((size_t)size * (size_t)size, sizeof *parts);
    if (!group || !parts) {
        free(group);
        free(parts);
        return hs_fail(HS_ENOMEM, "no memory for %d ranks", size);
    }
    group->size = size;
    group->parts = parts;
    for (int r = 0; r < size; r++) {
        group->ranks[r].comm = (HsComm){ .rank = r,
                                         .size = size,
                                         .local_rank = r,
                                         .local_size = size,
                                         .core_rank = r,
                                         .core_size = size,
                                         .exact = true,
                                         .step = -1,
                                         .operations = &threads };
        group->ranks[r].group = group;
    }
    /* With default attributes these take nothing that could be missing. */
    pthread_mutex_init(&group->mutex, NULL);
    pthread_cond_init(&group->all_here, NULL);
    *created = group;
    return HS_OK;
}

void hs_comm_threads_destroy(HsCommThreads *group)
{
    if (!group)
        return;
    pthread_cond_destroy(&group->all_here);
    pthread_mutex_destroy(&group->mutex);
    free(group->parts);
    free(group);
}

HsComm *hs_comm_threads_rank(HsCommThreads *group, int rank)
{
    return &group->ranks[rank].comm;
}
