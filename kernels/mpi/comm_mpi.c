/* SPDX-License-Identifier: MIT
 *
 * Ranks over MPI (MPI 3.0: non-blocking collectives).  Libraries add up in their own order, which depends on the number
 * of ranks and of elements; so here they only move bytes:
 *
 *     all_reduce        all-to-all of shares, hs_comm_fold of the own one, all-gather of the sums
 *     reduce_scatter    all-to-all of ranges, hs_comm_fold
 *     all_gather, broadcast    as they are
 *
 * in pieces of fixed size, so that scratch memory and counts (which are ints) stay small.  Before each operation ranks
 * show each other what they call.  A wait polls: it sees that another process has failed (HsCommGuard), and gives up.
 */
#include <mpi.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "kernels/base/clock.h"
#include "kernels/base/comm_call.h"
#include "kernels/base/comm_fold.h"
#include "kernels/parts/mpi.h"

enum { PIECE_BYTES = 1 << 20, SMALL_BYTES = 2048 };

typedef struct Ranks {
    HsComm comm; /* first */
    MPI_Comm world;
    HsCommGuard guard;
    HsStatus failed; /* for good; HS_OK: not */
    char reason[768];
    HsCommCall *calls;      /* [size] */
    unsigned char *scratch; /* [size * most bytes of a rank's piece] */
    const void **parts;     /* [size] */
} Ranks;

static HsStatus fail_for_good(Ranks *ranks, HsStatus status)
{
    if (ranks->failed == HS_OK) {
        ranks->failed = status;
        snprintf(ranks->reason, sizeof ranks->reason, "%s", hs_error_message());
    }
    return status;
}

static HsStatus check_guard(Ranks *ranks, double waited_s)
{
    const HsCommGuard *guard = &ranks->guard;
    if (guard->check)
        HS_TRY(guard->check(guard->user));
    if (!(guard->timeout_s > 0 && waited_s > guard->timeout_s))
        return HS_OK;
    guard->late(guard->user, waited_s);
    return guard->check(guard->user);
}

/* Polls.  Cores may be fewer than ranks: after some rounds others get to run, then this thread sleeps a little. */
static HsStatus finish(Ranks *ranks, int error, MPI_Request *request)
{
    const struct timespec nap = { .tv_nsec = 50000 };
    const double start_s = hs_clock_s();
    double next_s = start_s + 0.01;
    int done = 0;
    for (int round = 0; error == MPI_SUCCESS; round++) {
        error = MPI_Test(request, &done, MPI_STATUS_IGNORE);
        if (error != MPI_SUCCESS || done)
            break;
        if (round > 2000)
            nanosleep(&nap, NULL);
        else if (round > 50)
            sched_yield();
        const double now_s = hs_clock_s();
        if (now_s < next_s)
            continue;
        next_s = now_s + 0.01;
        const HsStatus status = check_guard(ranks, now_s - start_s);
        if (status != HS_OK)
            return fail_for_good(ranks, status);
    }
    if (error == MPI_SUCCESS)
        return HS_OK;
    char text[MPI_MAX_ERROR_STRING] = "";
    int length;
    MPI_Error_string(error, text, &length);
    return fail_for_good(ranks, hs_fail(HS_EDEVICE, "MPI: %s", text));
}

/* What all ranks call, side by side. */
static HsStatus begin(Ranks *ranks, const HsCommCall *call)
{
    MPI_Request request;
    if (ranks->failed != HS_OK)
        return hs_fail(ranks->failed, "%s", ranks->reason);
    const int error = MPI_Iallgather(call, (int)sizeof *call, MPI_BYTE, ranks->calls, (int)sizeof *call, MPI_BYTE,
                                     ranks->world, &request);
    HS_TRY(finish(ranks, error, &request));
    for (int r = 1; r < ranks->comm.size; r++)
        if (!hs_comm_same_call(&ranks->calls[0], &ranks->calls[r]))
            return hs_comm_fail_calls(&ranks->calls[0], r, &ranks->calls[r]);
    return HS_OK;
}

typedef struct Transfer {
    unsigned char *buffer;
    const size_t *starts; /* NULL: count in equal shares */
    size_t count;
    HsDtype dtype;
    HsCommOp op;
} Transfer;

static size_t range_start(const Ranks *ranks, const Transfer *transfer, int rank)
{
    return transfer->starts ? transfer->starts[rank] : hs_comm_share_start(transfer->count, ranks->comm.size, rank);
}

/* Piece `piece` of rank r's range, in bytes. */
static size_t piece_of(const Ranks *ranks, const Transfer *transfer, int rank, size_t piece, size_t *offset)
{
    const size_t bytes = hs_dtype_bytes(transfer->dtype);
    const size_t first = range_start(ranks, transfer, rank) * bytes + piece * PIECE_BYTES;
    const size_t last = range_start(ranks, transfer, rank + 1) * bytes;
    *offset = first < last ? first : 0;
    return first >= last ? 0 : last - first < PIECE_BYTES ? last - first : PIECE_BYTES;
}

static size_t count_pieces(const Ranks *ranks, const Transfer *transfer)
{
    size_t longest = 0;
    for (int r = 0; r < ranks->comm.size; r++) {
        const size_t length = range_start(ranks, transfer, r + 1) - range_start(ranks, transfer, r);
        longest = length > longest ? length : longest;
    }
    return (longest * hs_dtype_bytes(transfer->dtype) + PIECE_BYTES - 1) / PIECE_BYTES;
}

/* To the rank after this one, from the rank before it, and so on: every rank sends and receives at every shift. */
static HsStatus exchange(Ranks *ranks, const Transfer *transfer, size_t piece)
{
    const int size = ranks->comm.size, own = ranks->comm.rank;
    size_t offset, own_offset;
    const size_t own_bytes = piece_of(ranks, transfer, own, piece, &own_offset);
    for (int shift = 1; shift < size; shift++) {
        const int to = (own + shift) % size, from = (own + size - shift) % size;
        const size_t bytes = piece_of(ranks, transfer, to, piece, &offset);
        MPI_Request received = MPI_REQUEST_NULL, sent = MPI_REQUEST_NULL;
        int error = MPI_SUCCESS;
        if (own_bytes > 0)
            error = MPI_Irecv(ranks->scratch + (size_t)from * PIECE_BYTES, (int)own_bytes, MPI_BYTE, from, 1,
                              ranks->world, &received);
        if (error == MPI_SUCCESS && bytes > 0)
            error = MPI_Isend(transfer->buffer + offset, (int)bytes, MPI_BYTE, to, 1, ranks->world, &sent);
        HS_TRY(finish(ranks, error, &received));
        HS_TRY(finish(ranks, error, &sent));
    }
    if (own_bytes == 0)
        return HS_OK;
    for (int r = 0; r < size; r++)
        ranks->parts[r] = r == own ? transfer->buffer + own_offset : ranks->scratch + (size_t)r * PIECE_BYTES;
    hs_comm_fold(ranks->parts, size, own_bytes / hs_dtype_bytes(transfer->dtype), transfer->dtype, transfer->op,
                 transfer->buffer + own_offset);
    return HS_OK;
}

static HsStatus spread(Ranks *ranks, const Transfer *transfer, size_t piece)
{
    const int size = ranks->comm.size, own = ranks->comm.rank;
    size_t offset, own_offset;
    const size_t own_bytes = piece_of(ranks, transfer, own, piece, &own_offset);
    for (int shift = 1; shift < size; shift++) {
        const int to = (own + shift) % size, from = (own + size - shift) % size;
        const size_t bytes = piece_of(ranks, transfer, from, piece, &offset);
        MPI_Request received = MPI_REQUEST_NULL, sent = MPI_REQUEST_NULL;
        int error = MPI_SUCCESS;
        if (bytes > 0)
            error = MPI_Irecv(transfer->buffer + offset, (int)bytes, MPI_BYTE, from, 2, ranks->world, &received);
        if (error == MPI_SUCCESS && own_bytes > 0)
            error = MPI_Isend(transfer->buffer + own_offset, (int)own_bytes, MPI_BYTE, to, 2, ranks->world, &sent);
        HS_TRY(finish(ranks, error, &received));
        HS_TRY(finish(ranks, error, &sent));
    }
    return HS_OK;
}

static HsStatus transfer_all(Ranks *ranks, const Transfer *transfer, bool reduces, bool gathers)
{
    const size_t pieces = count_pieces(ranks, transfer);
    for (size_t piece = 0; piece < pieces; piece++) {
        if (reduces)
            HS_TRY(exchange(ranks, transfer, piece));
        if (gathers)
            HS_TRY(spread(ranks, transfer, piece));
    }
    return HS_OK;
}

/* Every rank gets everything and adds it up: one exchange. */
static HsStatus reduce_small(Ranks *ranks, void *buffer, size_t count, HsDtype dtype, HsCommOp op)
{
    const size_t bytes = count * hs_dtype_bytes(dtype);
    MPI_Request request;
    const int error =
        MPI_Iallgather(buffer, (int)bytes, MPI_BYTE, ranks->scratch, (int)bytes, MPI_BYTE, ranks->world, &request);
    HS_TRY(finish(ranks, error, &request));
    for (int r = 0; r < ranks->comm.size; r++)
        ranks->parts[r] = ranks->scratch + (size_t)r * bytes;
    hs_comm_fold(ranks->parts, ranks->comm.size, count, dtype, op, buffer);
    return HS_OK;
}

static HsStatus name_failure(HsStatus status, const char *operation)
{
    return status == HS_OK ? HS_OK : hs_error_prefix(status, "%s", operation);
}

static HsStatus mpi_all_reduce(HsComm *comm, HsStream *stream, void *buffer, size_t count, HsDtype dtype, HsCommOp op)
{
    (void)stream;
    Ranks *ranks = (Ranks *)comm;
    const HsCommCall call = hs_comm_call("all_reduce", count, dtype, (int)op);
    const Transfer transfer = { .buffer = buffer, .count = count, .dtype = dtype, .op = op };
    HsStatus status = begin(ranks, &call);
    if (status == HS_OK && count * hs_dtype_bytes(dtype) <= SMALL_BYTES)
        status = reduce_small(ranks, buffer, count, dtype, op);
    else if (status == HS_OK)
        status = transfer_all(ranks, &transfer, true, true);
    return name_failure(status, "all_reduce");
}

static HsStatus mpi_reduce_scatter(HsComm *comm, HsStream *stream, void *buffer, const size_t *starts, HsDtype dtype)
{
    (void)stream;
    Ranks *ranks = (Ranks *)comm;
    const HsCommCall call = hs_comm_call_ranges("reduce_scatter", starts, comm->size, dtype);
    const Transfer transfer = { .buffer = buffer, .starts = starts, .dtype = dtype, .op = HS_COMM_SUM };
    HsStatus status = begin(ranks, &call);
    if (status == HS_OK)
        status = transfer_all(ranks, &transfer, true, false);
    return name_failure(status, "reduce_scatter");
}

static HsStatus mpi_all_gather(HsComm *comm, HsStream *stream, void *buffer, const size_t *starts, HsDtype dtype)
{
    (void)stream;
    Ranks *ranks = (Ranks *)comm;
    const HsCommCall call = hs_comm_call_ranges("all_gather", starts, comm->size, dtype);
    const Transfer transfer = { .buffer = buffer, .starts = starts, .dtype = dtype };
    HsStatus status = begin(ranks, &call);
    if (status == HS_OK)
        status = transfer_all(ranks, &transfer, false, true);
    return name_failure(status, "all_gather");
}

static HsStatus mpi_broadcast(HsComm *comm, HsStream *stream, void *buffer, size_t count, HsDtype dtype, int root)
{
    (void)stream;
    Ranks *ranks = (Ranks *)comm;
    const HsCommCall call = hs_comm_call("broadcast", count, dtype, root);
    const size_t bytes = count * hs_dtype_bytes(dtype);
    HsStatus status = begin(ranks, &call);
    for (size_t first = 0; status == HS_OK && first < bytes; first += PIECE_BYTES) {
        MPI_Request request;
        const size_t part = bytes - first < PIECE_BYTES ? bytes - first : PIECE_BYTES;
        const int error =
            MPI_Ibcast((unsigned char *)buffer + first, (int)part, MPI_BYTE, root, ranks->world, &request);
        status = finish(ranks, error, &request);
    }
    return name_failure(status, "broadcast");
}

static HsStatus mpi_barrier(HsComm *comm)
{
    const HsCommCall call = hs_comm_call("barrier", 0, HS_U8, 0);
    return name_failure(begin((Ranks *)comm, &call), "barrier");
}

static void mpi_abort(HsComm *comm, const char *reason)
{
    Ranks *ranks = (Ranks *)comm;
    HsStatus status = HS_OK;
    if (ranks->guard.abort) {
        ranks->guard.abort(ranks->guard.user, reason);
        status = ranks->guard.check(ranks->guard.user);
    }
    fail_for_good(ranks, status != HS_OK ? status : hs_fail(HS_EDEVICE, "%s", reason));
}

static HsStatus mpi_check(HsComm *comm)
{
    Ranks *ranks = (Ranks *)comm;
    if (ranks->failed != HS_OK)
        return hs_fail(ranks->failed, "%s", ranks->reason);
    return ranks->guard.check ? ranks->guard.check(ranks->guard.user) : HS_OK;
}

/* After a failure there are no ranks to finalize with: mpirun sees that in the exit code. */
static void mpi_destroy(HsComm *comm)
{
    Ranks *ranks = (Ranks *)comm;
    if (ranks->failed == HS_OK)
        MPI_Finalize();
    free(ranks->calls);
    free(ranks->scratch);
    free(ranks->parts);
    free(ranks);
}

static const HsCommOperations operations = {
    .name = "MPI",
    .all_reduce = mpi_all_reduce,
    .reduce_scatter = mpi_reduce_scatter,
    .all_gather = mpi_all_gather,
    .broadcast = mpi_broadcast,
    .barrier = mpi_barrier,
    .abort = mpi_abort,
    .check = mpi_check,
    .destroy = mpi_destroy,
};

static HsStatus start(void)
{
    int provided = -1, begun = 0;
    MPI_Initialized(&begun);
    if (begun)
        return hs_fail(HS_EUNSUPPORTED, "MPI was started in this process already");
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided) != MPI_SUCCESS)
        return hs_fail(HS_EDEVICE, "MPI_Init_thread failed");
    if (provided >= MPI_THREAD_FUNNELED)
        return HS_OK;
    MPI_Finalize();
    return hs_fail(HS_EUNSUPPORTED,
                   "this MPI allows no threads (MPI_THREAD_FUNNELED is %d, it provides %d): start the processes by "
                   "torchrun or --processes",
                   MPI_THREAD_FUNNELED, provided);
}

static HsStatus mpi_init(HsComm **comm)
{
    *comm = NULL;
    HS_TRY(start());
    Ranks *ranks = calloc(1, sizeof *ranks);
    if (!ranks)
        return hs_fail(HS_ENOMEM, "no memory for MPI's ranks");
    ranks->comm = (HsComm){ .exact = true, .step = -1, .operations = &operations, .local_size = 1, .core_size = 1 };
    MPI_Comm_dup(MPI_COMM_WORLD, &ranks->world);
    MPI_Comm_set_errhandler(ranks->world, MPI_ERRORS_RETURN);
    MPI_Comm_rank(ranks->world, &ranks->comm.rank);
    MPI_Comm_size(ranks->world, &ranks->comm.size);
    const size_t size = (size_t)ranks->comm.size;
    ranks->calls = calloc(size, sizeof *ranks->calls);
    ranks->scratch = malloc(size * PIECE_BYTES);
    ranks->parts = calloc(size, sizeof *ranks->parts);
    *comm = &ranks->comm;
    if (ranks->calls && ranks->scratch && ranks->parts)
        return HS_OK;
    mpi_destroy(&ranks->comm);
    *comm = NULL;
    return hs_fail(HS_ENOMEM, "no memory to exchange with %zu ranks", size);
}

static void mpi_set_guard(HsComm *comm, const HsCommGuard *guard)
{
    ((Ranks *)comm)->guard = *guard;
}

__attribute__((visibility("default"))) const HsMpiPart *hs_mpi_part(void)
{
    static HsMpiPart part = { .init = mpi_init, .set_guard = mpi_set_guard };
    static char library[MPI_MAX_LIBRARY_VERSION_STRING];
    int length;
    MPI_Get_library_version(library, &length);
    part.layout = hs_mpi_part_layout();
    part.library = library;
    return &part;
}
