/* SPDX-License-Identifier: MIT
 *
 * A star of TCP connections.  Every operation begins with the ranks' calls, which rank 0 compares; its verdict goes to
 * all.  Data follow in pieces, so that what rank 0 keeps of all others is small:
 *
 *     all_reduce        all send a piece to rank 0, which adds up along the tree and sends the sum to all
 *     reduce_scatter    the same, range by range; the sum goes to the range's rank
 *     all_gather        range by range: its rank to rank 0, rank 0 to the others
 *
 * Waiting ranks look after the guard ten times a second.
 */
#include "runtime/launch/comm_hub.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "kernels/base/clock.h"
#include "kernels/base/comm_call.h"
#include "kernels/base/comm_fold.h"
#include "runtime/launch/hub_internal.h"

enum { PIECE_BYTES = 256 << 10 };

typedef struct Star {
    HsComm comm; /* first */
    HsHub *links;
    HsCommGuard guard;
    bool failed; /* for good */
    char reason[1024];
    unsigned char *scratch; /* [size * PIECE_BYTES] */
    const void **parts;     /* [size] */
} Star;

static HsStatus fail_for_good(Star *star, HsStatus status)
{
    if (!star->failed)
        snprintf(star->reason, sizeof star->reason, "%s", hs_error_message());
    star->failed = true;
    return status;
}

static HsStatus check_guard(const Star *star, double waited_s)
{
    HS_TRY(star->guard.check(star->guard.user));
    if (star->guard.timeout_s <= 0 || waited_s <= star->guard.timeout_s)
        return HS_OK;
    star->guard.late(star->guard.user, waited_s);
    return star->guard.check(star->guard.user);
}

/* A connection that closes belongs to a rank that died, or failed and left: the guard knows soon. */
static HsStatus fail_closed(const Star *star)
{
    const struct timespec nap = { .tv_nsec = 100000000 };
    for (int i = 0; i < 20; i++) {
        HS_TRY(star->guard.check(star->guard.user));
        nanosleep(&nap, NULL);
    }
    return hs_fail(HS_EDEVICE,
                   "a connection between ranks was closed: another rank has ended, and its own messages say why");
}

/* All of the bytes, one way. */
static HsStatus move(Star *star, int rank, void *bytes, size_t count, bool out)
{
    const int socket = star->links->links[rank].socket;
    unsigned char *at = bytes;
    const double start_s = hs_clock_s();
    while (count > 0) {
        const ssize_t moved = out ? send(socket, at, count, MSG_NOSIGNAL) : recv(socket, at, count, 0);
        if (moved > 0) {
            at += moved;
            count -= (size_t)moved;
            continue;
        }
        if (moved == 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR))
            return fail_for_good(star, fail_closed(star));
        struct pollfd one = { .fd = socket, .events = out ? POLLOUT : POLLIN };
        if (poll(&one, 1, 100) > 0)
            continue;
        const HsStatus status = check_guard(star, hs_clock_s() - start_s);
        if (status != HS_OK)
            return fail_for_good(star, status);
    }
    return HS_OK;
}

static HsStatus send_to(Star *star, int rank, const void *bytes, size_t count)
{
    return move(star, rank, (void *)bytes, count, true);
}

typedef struct Verdict {
    HsCommCall first, other;
    int32_t rank, unused; /* 0: all call the same */
} Verdict;

/* All ranks report the same two calls that differ. */
static HsStatus begin(Star *star, const HsCommCall *call)
{
    Verdict verdict = { .first = *call };
    if (star->failed)
        return hs_fail(HS_EDEVICE, "%s", star->reason);
    for (int r = 1; star->comm.rank == 0 && r < star->comm.size; r++) {
        HsCommCall other;
        HS_TRY(move(star, r, &other, sizeof other, false));
        other.operation[sizeof other.operation - 1] = '\0';
        if (verdict.rank == 0 && !hs_comm_same_call(call, &other)) {
            verdict.rank = r;
            verdict.other = other;
        }
    }
    for (int r = 1; star->comm.rank == 0 && r < star->comm.size; r++)
        HS_TRY(send_to(star, r, &verdict, sizeof verdict));
    if (star->comm.rank != 0) {
        HS_TRY(send_to(star, 0, call, sizeof *call));
        HS_TRY(move(star, 0, &verdict, sizeof verdict, false));
    }
    return verdict.rank == 0 ? HS_OK : hs_comm_fail_calls(&verdict.first, verdict.rank, &verdict.other);
}

/* Elements at `at`, at most a piece of them, added up; to `owner` alone, -1: to all. */
static HsStatus add_piece(Star *star, unsigned char *at, size_t bytes, HsDtype dtype, HsCommOp op, int owner)
{
    const int size = star->comm.size, own = star->comm.rank;
    if (own != 0) {
        HS_TRY(send_to(star, 0, at, bytes));
        return owner == -1 || owner == own ? move(star, 0, at, bytes, false) : HS_OK;
    }
    star->parts[0] = at;
    for (int r = 1; r < size; r++) {
        star->parts[r] = star->scratch + (size_t)r * PIECE_BYTES;
        HS_TRY(move(star, r, star->scratch + (size_t)r * PIECE_BYTES, bytes, false));
    }
    unsigned char *sum = owner > 0 ? star->scratch : at;
    hs_comm_fold(star->parts, size, bytes / hs_dtype_bytes(dtype), dtype, op, sum);
    for (int r = 1; r < size; r++)
        if (owner == -1 || owner == r)
            HS_TRY(send_to(star, r, sum, bytes));
    return HS_OK;
}

static HsStatus spread_piece(Star *star, unsigned char *at, size_t bytes, int owner)
{
    if (star->comm.rank == 0) {
        if (owner != 0)
            HS_TRY(move(star, owner, at, bytes, false));
        for (int r = 1; r < star->comm.size; r++)
            if (r != owner)
                HS_TRY(send_to(star, r, at, bytes));
        return HS_OK;
    }
    return star->comm.rank == owner ? send_to(star, 0, at, bytes) : move(star, 0, at, bytes, false);
}

/* [first, last) in bytes, piece by piece. */
static HsStatus add_range(Star *star, void *buffer, size_t first, size_t last, HsDtype dtype, HsCommOp op, int owner)
{
    for (; first < last; first += PIECE_BYTES)
        HS_TRY(add_piece(star, (unsigned char *)buffer + first, last - first < PIECE_BYTES ? last - first : PIECE_BYTES,
                         dtype, op, owner));
    return HS_OK;
}

static HsStatus spread_range(Star *star, void *buffer, size_t first, size_t last, int owner)
{
    for (; first < last; first += PIECE_BYTES)
        HS_TRY(spread_piece(star, (unsigned char *)buffer + first,
                            last - first < PIECE_BYTES ? last - first : PIECE_BYTES, owner));
    return HS_OK;
}

static HsStatus name_failure(HsStatus status, const char *operation)
{
    return status == HS_OK ? HS_OK : hs_error_prefix(status, "%s", operation);
}

static HsStatus star_all_reduce(HsComm *comm, HsStream *stream, void *buffer, size_t count, HsDtype dtype, HsCommOp op)
{
    (void)stream;
    const HsCommCall call = hs_comm_call("all_reduce", count, dtype, (int)op);
    HsStatus status = begin((Star *)comm, &call);
    if (status == HS_OK)
        status = add_range((Star *)comm, buffer, 0, count * hs_dtype_bytes(dtype), dtype, op, -1);
    return name_failure(status, "all_reduce");
}

static HsStatus star_reduce_scatter(HsComm *comm, HsStream *stream, void *buffer, const size_t *starts, HsDtype dtype)
{
    (void)stream;
    const HsCommCall call = hs_comm_call_ranges("reduce_scatter", starts, comm->size, dtype);
    const size_t bytes = hs_dtype_bytes(dtype);
    HsStatus status = begin((Star *)comm, &call);
    for (int r = 0; status == HS_OK && r < comm->size; r++)
        status = add_range((Star *)comm, buffer, starts[r] * bytes, starts[r + 1] * bytes, dtype, HS_COMM_SUM, r);
    return name_failure(status, "reduce_scatter");
}

static HsStatus star_all_gather(HsComm *comm, HsStream *stream, void *buffer, const size_t *starts, HsDtype dtype)
{
    (void)stream;
    const HsCommCall call = hs_comm_call_ranges("all_gather", starts, comm->size, dtype);
    const size_t bytes = hs_dtype_bytes(dtype);
    HsStatus status = begin((Star *)comm, &call);
    for (int r = 0; status == HS_OK && r < comm->size; r++)
        status = spread_range((Star *)comm, buffer, starts[r] * bytes, starts[r + 1] * bytes, r);
    return name_failure(status, "all_gather");
}

static HsStatus star_broadcast(HsComm *comm, HsStream *stream, void *buffer, size_t count, HsDtype dtype, int root)
{
    (void)stream;
    const HsCommCall call = hs_comm_call("broadcast", count, dtype, root);
    HsStatus status = begin((Star *)comm, &call);
    if (status == HS_OK)
        status = spread_range((Star *)comm, buffer, 0, count * hs_dtype_bytes(dtype), root);
    return name_failure(status, "broadcast");
}

static HsStatus star_barrier(HsComm *comm)
{
    const HsCommCall call = hs_comm_call("barrier", 0, HS_U8, 0);
    return name_failure(begin((Star *)comm, &call), "barrier");
}

static void star_abort(HsComm *comm, const char *reason)
{
    Star *star = (Star *)comm;
    star->guard.abort(star->guard.user, reason);
    fail_for_good(star, star->guard.check(star->guard.user));
}

static HsStatus star_check(HsComm *comm)
{
    Star *star = (Star *)comm;
    return star->failed ? hs_fail(HS_EDEVICE, "%s", star->reason) : star->guard.check(star->guard.user);
}

static void star_destroy(HsComm *comm)
{
    Star *star = (Star *)comm;
    hs_hub_destroy(star->links);
    free(star->scratch);
    free(star->parts);
    free(star);
}

static const HsCommOperations operations = {
    .name = "TCP through rank 0",
    .all_reduce = star_all_reduce,
    .reduce_scatter = star_reduce_scatter,
    .all_gather = star_all_gather,
    .broadcast = star_broadcast,
    .barrier = star_barrier,
    .abort = star_abort,
    .check = star_check,
    .destroy = star_destroy,
};

HsStatus hs_comm_hub_create(HsHub *links, const HsCommGuard *guard, HsComm **comm)
{
    Star *star = calloc(1, sizeof *star);
    *comm = NULL;
    if (star) {
        star->links = links;
        star->parts = calloc((size_t)links->size, sizeof *star->parts);
        star->scratch = links->rank == 0 ? malloc((size_t)links->size * PIECE_BYTES) : NULL;
    }
    if (!star || !star->parts || (links->rank == 0 && !star->scratch)) {
        if (star)
            star_destroy(&star->comm);
        else
            hs_hub_destroy(links);
        return hs_fail(HS_ENOMEM, "no memory to exchange with other ranks");
    }
    star->comm = (HsComm){ .rank = links->rank,
                           .size = links->size,
                           .local_size = 1,
                           .core_size = 1,
                           .exact = true,
                           .step = -1,
                           .operations = &operations };
    star->guard = *guard;
    *comm = &star->comm;
    return HS_OK;
}
