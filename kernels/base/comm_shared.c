/* SPDX-License-Identifier: MIT
 *
 * Every operation moves pieces, one of each rank's range of the buffer, through the ranks' windows.  A piece takes three
 * stages, with a meeting after each, and three pieces are under way at a time, in separate windows:
 *
 *     in     each rank copies what others need of its buffer into its window
 *     work   reductions: each rank adds up its own range along the tree, from the windows and its buffer, into its
 *            buffer, and for all_reduce into its window; gathering: each rank copies the others' ranges out
 *     out    all_reduce: each rank copies the others' sums out
 *
 * The turns of windows continue from operation to operation, so that no meeting is needed at an operation's end: a rank
 * that is a stage ahead writes to windows that no rank reads any more.  The first meeting also shows whether all ranks
 * called the same operation; if not, what has come up to then is discarded.
 *
 * Small sums take one meeting: every rank adds all of it up.
 */
#include "kernels/base/comm_shared.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/base/clock.h"
#include "kernels/base/comm_fold.h"
#include "kernels/base/comm_segment.h"
#include "kernels/base/hash.h"

enum { SMALL_BYTES = 4096 };

typedef struct Transfer {
    HsCommCall call;
    unsigned char *buffer;
    const size_t *starts; /* ranges in elements; NULL: all elements in equal shares */
    HsDtype dtype;
    HsCommOp op;
    bool reduces, gathers;
} Transfer;

/* Piece `piece` of rank r's range: bytes of the buffer, and where it lies in a window. */
typedef struct Piece {
    size_t offset, bytes, place;
} Piece;

static size_t range_start(const HsCommShared *shared, const Transfer *transfer, int rank)
{
    return transfer->starts ? transfer->starts[rank]
                            : hs_comm_share_start((size_t)transfer->call.count, shared->comm.size, rank);
}

/* Bytes of a window that each range's piece may take: all, where a window holds one rank's range only. */
static size_t piece_bytes(const HsCommShared *shared, const Transfer *transfer)
{
    const size_t window = shared->segment->window_bytes, grain = 64;
    return transfer->reduces ? window / (size_t)shared->comm.size / grain * grain : window;
}

static Piece piece_of(const HsCommShared *shared, const Transfer *transfer, int rank, size_t piece)
{
    const size_t bytes = hs_dtype_bytes(transfer->dtype), most = piece_bytes(shared, transfer);
    const size_t first = range_start(shared, transfer, rank) * bytes + piece * most;
    const size_t last = range_start(shared, transfer, rank + 1) * bytes;
    return (Piece){ .offset = first,
                    .bytes = first >= last         ? 0
                             : last - first < most ? last - first
                                                   : most,
                    .place = transfer->reduces ? (size_t)rank * most : 0 };
}

static size_t count_pieces(const HsCommShared *shared, const Transfer *transfer)
{
    size_t longest = 0;
    for (int r = 0; r < shared->comm.size; r++) {
        const size_t length = range_start(shared, transfer, r + 1) - range_start(shared, transfer, r);
        longest = length > longest ? length : longest;
    }
    const size_t most = piece_bytes(shared, transfer);
    const size_t pieces = (longest * hs_dtype_bytes(transfer->dtype) + most - 1) / most;
    return pieces > 0 ? pieces : 1; /* the calls are compared even so */
}

static void copy(void *to, const void *from, size_t bytes)
{
    if (bytes > 0)
        memcpy(to, from, bytes);
}

static void copy_in(const HsCommShared *shared, const Transfer *transfer, size_t piece, uint64_t turn)
{
    unsigned char *window = hs_segment_window(shared->segment, shared->comm.rank, turn);
    for (int r = 0; r < shared->comm.size; r++) {
        const Piece part = piece_of(shared, transfer, r, piece);
        if ((r == shared->comm.rank) != transfer->reduces)
            copy(window + part.place, transfer->buffer + part.offset, part.bytes);
    }
}

static void copy_out(const HsCommShared *shared, const Transfer *transfer, size_t piece, uint64_t turn)
{
    for (int r = 0; r < shared->comm.size; r++) {
        const Piece part = piece_of(shared, transfer, r, piece);
        if (r != shared->comm.rank)
            copy(transfer->buffer + part.offset, hs_segment_window(shared->segment, r, turn) + part.place, part.bytes);
    }
}

static void add_up(const HsCommShared *shared, const Transfer *transfer, size_t piece, uint64_t turn)
{
    const int own = shared->comm.rank;
    const Piece part = piece_of(shared, transfer, own, piece);
    unsigned char *result = transfer->buffer + part.offset;
    if (part.bytes == 0)
        return;
    for (int r = 0; r < shared->comm.size; r++)
        shared->parts[r] = r == own ? result : hs_segment_window(shared->segment, r, turn) + part.place;
    hs_comm_fold(shared->parts, shared->comm.size, part.bytes / hs_dtype_bytes(transfer->dtype), transfer->dtype,
                 transfer->op, result);
    if (transfer->gathers)
        memcpy(hs_segment_window(shared->segment, own, turn) + part.place, result, part.bytes);
}

static void post(HsCommShared *shared, const HsCommCall *call)
{
    HsSegmentMember *member = &shared->segment->members[shared->comm.rank];
    atomic_store(&member->sequence, shared->comm.sequence);
    atomic_store(&member->step, shared->comm.step);
    atomic_store(&member->operation, hs_segment_operation(call->operation));
    member->calls[shared->turn % HS_COMM_SHARED_TURNS] = *call;
}

/* After the first meeting: every rank compares all with rank 0, so that all come to the same end. */
static HsStatus compare(HsCommShared *shared)
{
    const HsSegmentMember *members = shared->segment->members;
    const uint32_t turn = (uint32_t)(shared->turn % HS_COMM_SHARED_TURNS);
    for (int r = 1; r < shared->comm.size; r++)
        if (!hs_comm_same_call(&members[0].calls[turn], &members[r].calls[turn])) {
            shared->turn++;
            return hs_comm_fail_calls(&members[0].calls[turn], r, &members[r].calls[turn]);
        }
    return HS_OK;
}

static HsStatus stages(HsCommShared *shared, const Transfer *transfer)
{
    const size_t pieces = count_pieces(shared, transfer);
    const size_t depth = transfer->reduces && transfer->gathers ? 3 : 2, last = pieces + depth - 2;
    post(shared, &transfer->call);
    for (size_t stage = 0; stage <= last; stage++) {
        const uint64_t turn = shared->turn + stage;
        if (stage < pieces)
            copy_in(shared, transfer, stage, turn);
        if (stage >= 1 && stage <= pieces && transfer->reduces)
            add_up(shared, transfer, stage - 1, turn - 1);
        if (stage >= depth - 1 && transfer->gathers)
            copy_out(shared, transfer, stage - depth + 1, turn - depth + 1);
        if (stage < last)
            HS_TRY(hs_segment_meet(shared));
        if (stage == 0)
            HS_TRY(compare(shared));
    }
    shared->turn += pieces;
    return HS_OK;
}

static HsStatus name_failure(HsStatus status, const char *operation)
{
    return status == HS_OK ? HS_OK : hs_error_prefix(status, "%s", operation);
}

static HsStatus transfer_all(HsComm *comm, const Transfer *transfer)
{
    return name_failure(stages((HsCommShared *)comm, transfer), transfer->call.operation);
}

static HsStatus reduce_small(HsCommShared *shared, void *buffer, size_t count, HsDtype dtype, HsCommOp op)
{
    const HsCommCall call = hs_comm_call("all_reduce", count, dtype, (int)op);
    post(shared, &call);
    for (int r = 0; r < shared->comm.size; r++)
        shared->parts[r] = hs_segment_window(shared->segment, r, shared->turn);
    copy(hs_segment_window(shared->segment, shared->comm.rank, shared->turn), buffer, count * hs_dtype_bytes(dtype));
    HS_TRY(hs_segment_meet(shared));
    HS_TRY(compare(shared));
    hs_comm_fold(shared->parts, shared->comm.size, count, dtype, op, buffer);
    shared->turn++;
    return HS_OK;
}

static HsStatus shared_all_reduce(HsComm *comm, HsStream *stream, void *buffer, size_t count, HsDtype dtype,
                                  HsCommOp op)
{
    (void)stream;
    if (count * hs_dtype_bytes(dtype) <= SMALL_BYTES)
        return name_failure(reduce_small((HsCommShared *)comm, buffer, count, dtype, op), "all_reduce");
    const Transfer transfer = { .call = hs_comm_call("all_reduce", count, dtype, (int)op),
                                .buffer = buffer,
                                .dtype = dtype,
                                .op = op,
                                .reduces = true,
                                .gathers = true };
    return transfer_all(comm, &transfer);
}

static HsStatus shared_reduce_scatter(HsComm *comm, HsStream *stream, void *buffer, const size_t *starts, HsDtype dtype)
{
    (void)stream;
    const Transfer transfer = { .call = hs_comm_call_ranges("reduce_scatter", starts, comm->size, dtype),
                                .buffer = buffer,
                                .starts = starts,
                                .dtype = dtype,
                                .op = HS_COMM_SUM,
                                .reduces = true };
    return transfer_all(comm, &transfer);
}

static HsStatus shared_all_gather(HsComm *comm, HsStream *stream, void *buffer, const size_t *starts, HsDtype dtype)
{
    (void)stream;
    const Transfer transfer = { .call = hs_comm_call_ranges("all_gather", starts, comm->size, dtype),
                                .buffer = buffer,
                                .starts = starts,
                                .dtype = dtype,
                                .gathers = true };
    return transfer_all(comm, &transfer);
}

/* Gathering where the root's range is everything. */
static HsStatus shared_broadcast(HsComm *comm, HsStream *stream, void *buffer, size_t count, HsDtype dtype, int root)
{
    (void)stream;
    size_t starts[HS_SEGMENT_RANKS_MOST + 1];
    for (int r = 0; r <= comm->size; r++)
        starts[r] = r <= root ? 0 : count;
    const Transfer transfer = { .call = hs_comm_call("broadcast", count, dtype, root),
                                .buffer = buffer,
                                .starts = starts,
                                .dtype = dtype,
                                .gathers = true };
    return transfer_all(comm, &transfer);
}

static HsStatus shared_barrier(HsComm *comm)
{
    HsCommShared *shared = (HsCommShared *)comm;
    const HsCommCall call = hs_comm_call("barrier", 0, HS_U8, 0);
    post(shared, &call);
    HsStatus status = hs_segment_meet(shared);
    if (status == HS_OK)
        status = compare(shared);
    if (status == HS_OK)
        shared->turn++;
    return name_failure(status, "barrier");
}

static void shared_abort(HsComm *comm, const char *reason)
{
    HsCommShared *shared = (HsCommShared *)comm;
    char member[256], text[HS_SEGMENT_REASON];
    atomic_store(&shared->segment->members[comm->rank].step, comm->step);
    hs_segment_describe(shared->segment, comm->rank, member, sizeof member);
    snprintf(text, sizeof text, "%s gave up: %.480s", member, reason);
    hs_segment_abort(shared->segment, text);
}

static void shared_note_step(HsComm *comm)
{
    atomic_store(&((HsCommShared *)comm)->segment->members[comm->rank].step, comm->step);
}

static HsStatus shared_check(HsComm *comm)
{
    const HsCommSegment *segment = ((HsCommShared *)comm)->segment;
    return atomic_load(&segment->aborted) ? hs_segment_fail(segment) : HS_OK;
}

static void shared_destroy(HsComm *comm)
{
    HsCommShared *shared = (HsCommShared *)comm;
    atomic_store(&shared->segment->members[comm->rank].left, 1);
    hs_watch_stop(shared);
    hs_segment_unmap(shared->segment);
    free(shared->parts);
    free(shared->processes);
    free(shared);
}

static const HsCommOperations shared_memory = {
    .name = "shared memory",
    .all_reduce = shared_all_reduce,
    .reduce_scatter = shared_reduce_scatter,
    .all_gather = shared_all_gather,
    .broadcast = shared_broadcast,
    .barrier = shared_barrier,
    .abort = shared_abort,
    .check = shared_check,
    .note_step = shared_note_step,
    .destroy = shared_destroy,
};

static HsStatus fail_absent(const HsCommSegment *segment, double waited_s)
{
    char list[256] = "";
    size_t used = 0;
    for (int r = 0; r < (int)segment->size && used < sizeof list - 8; r++)
        if (!atomic_load(&segment->members[r].joined))
            used += (size_t)snprintf(list + used, sizeof list - used, "%s%d", used > 0 ? ", " : "", r);
    return hs_fail(HS_EDEVICE,
                   "after %.0f s these ranks of %u are still absent: %s; see their output, or raise distributed.join",
                   waited_s, segment->size, list);
}

static int usable_cores(void)
{
    cpu_set_t cores;
    return sched_getaffinity(0, sizeof cores, &cores) == 0 ? CPU_COUNT(&cores) : 1;
}

static uint64_t own_cores(void)
{
    cpu_set_t cores;
    uint64_t hash = HS_HASH_START;
    if (sched_getaffinity(0, sizeof cores, &cores) != 0)
        return 0;
    for (size_t i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &cores))
            hash = hs_hash_number(hash, i);
    return hash;
}

/* Each rank enters its process, host and cores before it waits. */
static HsStatus enter(HsCommShared *shared)
{
    HsSegmentMember *own = &shared->segment->members[shared->comm.rank];
    uint32_t vacant = 0;
    int64_t none = 0;
    if (!atomic_compare_exchange_strong(&own->process, &none, (int64_t)getpid()))
        return hs_fail(HS_EINVAL, "rank %d of %d is process %lld already: give each process its own rank",
                       shared->comm.rank, shared->comm.size, (long long)none);
    gethostname(own->host, sizeof own->host - 1);
    own->cores = own_cores();
    atomic_compare_exchange_strong(&own->joined, &vacant, 1);
    const double start_s = hs_clock_s();
    for (int r = 0; r < shared->comm.size; r++) {
        HsSegmentMember *member = &shared->segment->members[r];
        while (!atomic_load(&member->joined)) {
            if (atomic_load(&shared->segment->aborted))
                return hs_segment_fail(shared->segment);
            hs_futex_wait(&member->joined, 0, 0.02);
            if (shared->options.join_s > 0 && hs_clock_s() - start_s > shared->options.join_s)
                return fail_absent(shared->segment, hs_clock_s() - start_s);
        }
    }
    return HS_OK;
}

static void count_neighbours(HsCommShared *shared)
{
    const HsSegmentMember *members = shared->segment->members;
    const int own = shared->comm.rank;
    for (int r = 0; r < shared->comm.size; r++) {
        shared->comm.core_size += members[r].cores == members[own].cores;
        shared->comm.core_rank += r < own && members[r].cores == members[own].cores;
    }
}

static HsStatus allocate(int size, HsCommShared **allocated)
{
    HsCommShared *shared = calloc(1, sizeof *shared);
    *allocated = shared;
    if (shared) {
        shared->parts = calloc((size_t)size, sizeof *shared->parts);
        shared->processes = calloc((size_t)size, sizeof *shared->processes);
    }
    if (!shared || !shared->parts || !shared->processes)
        return hs_fail(HS_ENOMEM, "no memory for %d ranks", size);
    for (int r = 0; r < size; r++)
        shared->processes[r] = -1;
    return HS_OK;
}

HsStatus hs_comm_shared_join(int descriptor, int rank, const HsCommSharedOptions *options, HsComm **comm)
{
    HsCommSegment *segment;
    HsCommShared *shared = NULL;
    *comm = NULL;
    HS_TRY(hs_segment_map(descriptor, &segment));
    const int size = (int)segment->size;
    HsStatus status = rank >= 0 && rank < size
                          ? allocate(size, &shared)
                          : hs_fail(HS_EINVAL, "rank %d of %d: there are ranks 0 to %d", rank, size, size - 1);
    if (status == HS_OK) {
        shared->comm = (HsComm){ .rank = rank,
                                 .size = size,
                                 .local_rank = rank,
                                 .local_size = size,
                                 .exact = true,
                                 .step = -1,
                                 .operations = &shared_memory };
        shared->segment = segment;
        shared->options = *options;
        shared->options.silence_s = options->silence_s > 0 ? options->silence_s : 6;
        shared->spins = usable_cores() >= size;
        status = enter(shared);
    }
    if (status == HS_OK)
        count_neighbours(shared);
    if (status == HS_OK)
        status = hs_watch_start(shared);
    if (status == HS_OK) {
        *comm = &shared->comm;
        return HS_OK;
    }
    if (shared) {
        hs_watch_stop(shared);
        free(shared->parts);
        free(shared->processes);
        free(shared);
    }
    hs_segment_unmap(segment);
    return status;
}
