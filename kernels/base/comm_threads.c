/* SPDX-License-Identifier: MIT
 *
 * Every operation has the same three parts:
 *
 *     post      what this rank brings, in its own place of the group     | wait for all
 *     work      read what the others brought, write what is this rank's  | wait for all
 *     return    buffers are the callers' again
 *
 * In a reduction rank r adds up its own share of the elements, over the ranks in their order, and writes the sum to
 * every rank's buffer: nobody else touches that share, no scratch is needed, and all ranks hold the same bits.
 *
 * A rank that gives up does so between two operations, so whoever came to the first meeting comes to the second: only
 * the first can fail, and it fails for every rank or for none.  No buffer is read or written after its owner returned.
 *
 * A rank that waits does so under the group's mutex, which orders what was written before with what is read after.
 */
#include "kernels/base/comm_threads.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct Post {
    const char *operation;
    const void *send;
    void *receive;
    size_t count;
    HsDtype dtype;
    int attribute; /* the op, or the root */
} Post;

typedef struct Rank {
    HsComm comm; /* first: an HsComm is its Rank */
    HsCommThreads *group;
    Post post;
} Rank;

struct HsCommThreads {
    int size;
    pthread_mutex_t mutex;
    pthread_cond_t all_here;
    int waiting;
    uint64_t meeting; /* how many are over */
    int aborted_by;   /* rank; -1: none */
    Rank ranks[];
};

/* Waits for all ranks; where somebody may have given up, not for ever: false when one has. */
static bool meet(HsCommThreads *group, bool can_fail)
{
    pthread_mutex_lock(&group->mutex);
    const uint64_t meeting = group->meeting;
    if (!(can_fail && group->aborted_by >= 0) && ++group->waiting == group->size) {
        group->waiting = 0;
        group->meeting++;
        pthread_cond_broadcast(&group->all_here);
    }
    while (group->meeting == meeting && !(can_fail && group->aborted_by >= 0))
        pthread_cond_wait(&group->all_here, &group->mutex);
    /* A meeting that took place counts, even if somebody gave up right after it. */
    const bool met = group->meeting != meeting;
    pthread_mutex_unlock(&group->mutex);
    return met;
}

static void threads_abort(HsComm *comm)
{
    HsCommThreads *group = ((Rank *)comm)->group;
    pthread_mutex_lock(&group->mutex);
    if (group->aborted_by < 0)
        group->aborted_by = comm->rank;
    pthread_cond_broadcast(&group->all_here);
    pthread_mutex_unlock(&group->mutex);
}

static bool same_call(const Post *a, const Post *b)
{
    return strcmp(a->operation, b->operation) == 0 && a->count == b->count && a->dtype == b->dtype &&
           a->attribute == b->attribute;
}

/* Every rank compares all with rank 0, so that all come to the same end. */
static HsStatus check_calls(const HsCommThreads *group)
{
    const Post *first = &group->ranks[0].post;
    for (int r = 1; r < group->size; r++) {
        const Post *post = &group->ranks[r].post;
        if (!same_call(first, post))
            return hs_fail(HS_EDEVICE, "ranks do different things: rank 0 %s of %zu %s (%d), rank %d %s of %zu %s (%d)",
                           first->operation, first->count, hs_dtype_name(first->dtype), first->attribute, r,
                           post->operation, post->count, hs_dtype_name(post->dtype), post->attribute);
    }
    return HS_OK;
}

static HsStatus begin(HsComm *comm, Post post)
{
    Rank *rank = (Rank *)comm;
    HsCommThreads *group = rank->group;
    rank->post = post;
    if (!meet(group, true))
        return hs_fail(HS_EDEVICE, "%s: rank %d of %d gave up: its own message says why", post.operation,
                       group->aborted_by, group->size);
    HsStatus status = check_calls(group);
    if (status != HS_OK)
        meet(group, false); /* nobody posts anew before all have looked */
    return status;
}

static HsStatus end(HsComm *comm)
{
    meet(((Rank *)comm)->group, false);
    return HS_OK;
}

/* Elements [first, first + count) that rank r adds up. */
static void share_of(const HsComm *comm, size_t count, size_t *first, size_t *share)
{
    const size_t size = (size_t)comm->size, rank = (size_t)comm->rank;
    const size_t base = count / size, extra = count % size;
    *first = rank * base + (rank < extra ? rank : extra);
    *share = base + (rank < extra);
}

static void fold_f32(const Rank *ranks, int size, size_t i, HsCommOp op, float *result)
{
    float value = ((const float *)ranks[0].post.send)[i];
    for (int r = 1; r < size; r++) {
        const float next = ((const float *)ranks[r].post.send)[i];
        value = op == HS_COMM_SUM ? value + next : next > value ? next : value;
    }
    *result = value;
}

static void fold_f64(const Rank *ranks, int size, size_t i, HsCommOp op, double *result)
{
    double value = ((const double *)ranks[0].post.send)[i];
    for (int r = 1; r < size; r++) {
        const double next = ((const double *)ranks[r].post.send)[i];
        value = op == HS_COMM_SUM ? value + next : next > value ? next : value;
    }
    *result = value;
}

static void fold_i64(const Rank *ranks, int size, size_t i, HsCommOp op, int64_t *result)
{
    int64_t value = ((const int64_t *)ranks[0].post.send)[i];
    for (int r = 1; r < size; r++) {
        const int64_t next = ((const int64_t *)ranks[r].post.send)[i];
        value = op == HS_COMM_SUM ? value + next : next > value ? next : value;
    }
    *result = value;
}

/* Exact sums of two, each rounded to the format. */
static void fold_small(const Rank *ranks, int size, size_t i, HsDtype dtype, HsCommOp op, void *result)
{
    hs_dtype_store(dtype, result, 0, hs_dtype_load(dtype, ranks[0].post.send, (int64_t)i));
    for (int r = 1; r < size; r++) {
        const double value = hs_dtype_load(dtype, result, 0);
        const double next = hs_dtype_load(dtype, ranks[r].post.send, (int64_t)i);
        hs_dtype_store(dtype, result, 0, op == HS_COMM_SUM ? value + next : next > value ? next : value);
    }
}

/* Over the ranks in their order. */
static void fold(const HsCommThreads *group, size_t i, HsDtype dtype, HsCommOp op, void *result)
{
    if (dtype == HS_F32)
        fold_f32(group->ranks, group->size, i, op, result);
    else if (dtype == HS_F64)
        fold_f64(group->ranks, group->size, i, op, result);
    else if (dtype == HS_I64)
        fold_i64(group->ranks, group->size, i, op, result);
    else
        fold_small(group->ranks, group->size, i, dtype, op, result);
}

static unsigned char *element(void *array, size_t i, size_t bytes)
{
    return (unsigned char *)array + i * bytes;
}

static HsStatus threads_all_reduce(HsComm *comm, HsStream *stream, void *buffer, size_t count, HsDtype dtype,
                                   HsCommOp op)
{
    (void)stream;
    HsCommThreads *group = ((Rank *)comm)->group;
    const size_t bytes = hs_dtype_bytes(dtype);
    size_t first, share;
    HS_TRY(begin(comm, (Post){ "all_reduce", buffer, buffer, count, dtype, (int)op }));
    share_of(comm, count, &first, &share);
    for (size_t i = first; i < first + share; i++) {
        double result; /* room for any type, aligned */
        fold(group, i, dtype, op, &result);
        for (int r = 0; r < group->size; r++)
            memcpy(element(group->ranks[r].post.receive, i, bytes), &result, bytes);
    }
    return end(comm);
}

static HsStatus threads_reduce_scatter(HsComm *comm, HsStream *stream, const void *send, void *receive, size_t count,
                                       HsDtype dtype)
{
    (void)stream;
    HsCommThreads *group = ((Rank *)comm)->group;
    const size_t bytes = hs_dtype_bytes(dtype);
    HS_TRY(begin(comm, (Post){ "reduce_scatter", send, receive, count, dtype, 0 }));
    for (size_t i = 0; i < count; i++) {
        double result;
        fold(group, (size_t)comm->rank * count + i, dtype, HS_COMM_SUM, &result);
        memcpy(element(receive, i, bytes), &result, bytes);
    }
    return end(comm);
}

static HsStatus threads_all_gather(HsComm *comm, HsStream *stream, const void *send, void *receive, size_t count,
                                   HsDtype dtype)
{
    (void)stream;
    HsCommThreads *group = ((Rank *)comm)->group;
    const size_t bytes = hs_dtype_bytes(dtype);
    HS_TRY(begin(comm, (Post){ "all_gather", send, receive, count, dtype, 0 }));
    for (int r = 0; r < group->size; r++) {
        unsigned char *part = element(receive, (size_t)r * count, bytes);
        if (count > 0 && part != group->ranks[r].post.send)
            memcpy(part, group->ranks[r].post.send, count * bytes);
    }
    return end(comm);
}

static HsStatus threads_broadcast(HsComm *comm, HsStream *stream, void *buffer, size_t count, HsDtype dtype, int root)
{
    (void)stream;
    HsCommThreads *group = ((Rank *)comm)->group;
    HS_TRY(begin(comm, (Post){ "broadcast", buffer, buffer, count, dtype, root }));
    if (comm->rank != root && count > 0)
        memcpy(buffer, group->ranks[root].post.send, count * hs_dtype_bytes(dtype));
    return end(comm);
}

static HsStatus threads_barrier(HsComm *comm)
{
    HS_TRY(begin(comm, (Post){ .operation = "barrier" }));
    return end(comm);
}

static const HsCommOperations threads = {
    .name = "threads",
    .all_reduce = threads_all_reduce,
    .reduce_scatter = threads_reduce_scatter,
    .all_gather = threads_all_gather,
    .broadcast = threads_broadcast,
    .barrier = threads_barrier,
    .abort = threads_abort,
};

HsStatus hs_comm_threads_create(int size, HsCommThreads **created)
{
    *created = NULL;
    HsCommThreads *group = calloc(1, sizeof *group + (size_t)size * sizeof group->ranks[0]);
    if (!group)
        return hs_fail(HS_ENOMEM, "no memory for %d ranks", size);
    group->size = size;
    group->aborted_by = -1;
    for (int r = 0; r < size; r++) {
        group->ranks[r].comm = (HsComm){ .rank = r, .size = size, .operations = &threads };
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
    free(group);
}

HsComm *hs_comm_threads_rank(HsCommThreads *group, int rank)
{
    return &group->ranks[rank].comm;
}
