/* SPDX-License-Identifier: MIT
 *
 * A communicator: what the ranks of one training exchange.  Rank r of `size` calls the same operations in the same
 * order as all others; each returns when this rank's part of the result is there (on a device: is enqueued on
 * `stream`).  Every rank ends with the same bits.
 *
 *     alone           one rank: every operation is the identity, touches no memory and costs one comparison
 *     threads         ranks are threads of one process (comm_threads.h; for tests)
 *     shared memory   ranks are processes of one host (comm_shared.h)
 *
 * Sums of floating point run along one tree over the ranks, that of a binary counter: the sum of ranks [a, b) is
 *
 *     (sum of [a, a + p)) + (sum of [a + p, b)),   p the largest power of two below b - a,
 *
 * each addition rounded to the type.  So 2^k equal consecutive parts a rank, added up in the same way within the rank,
 * give the bits of one rank that adds up all parts.  A NaN or an infinity of one rank reaches every rank through a sum,
 * never through a maximum: flags are counts, and are summed.
 *
 * A rank that fails calls hs_comm_abort: a rank that waits for it, now or later, gets an error that names it.
 * That may be in an operation which the failed rank itself has completed.
 */
#ifndef HS_KERNELS_BASE_COMM_H
#define HS_KERNELS_BASE_COMM_H

#include "kernels/base/device.h"
#include "kernels/base/dtype.h"
#include "kernels/base/status.h"

typedef enum HsCommOp { HS_COMM_SUM, HS_COMM_MAX } HsCommOp;

typedef struct HsComm HsComm;

/* Counts are of elements.  Types: f32, f64, i64, bf16, f16; all_gather and broadcast, which move bytes, u8 too.
 * starts [size + 1], non-decreasing, the same on every rank: range r of a buffer is [starts[r], starts[r + 1]). */
typedef struct HsCommOperations {
    const char *name; /* "shared memory" */
    /* buffer [count], in place */
    HsStatus (*all_reduce)(HsComm *comm, HsStream *stream, void *buffer, size_t count, HsDtype dtype, HsCommOp op);
    /* in place: range `rank` of the buffer becomes the sum, the rest stays as it was */
    HsStatus (*reduce_scatter)(HsComm *comm, HsStream *stream, void *buffer, const size_t *starts, HsDtype dtype);
    /* in place: range r of the buffer becomes what it is on rank r; what no range holds stays as it was */
    HsStatus (*all_gather)(HsComm *comm, HsStream *stream, void *buffer, const size_t *starts, HsDtype dtype);
    /* buffer [count] of rank `root` to all */
    HsStatus (*broadcast)(HsComm *comm, HsStream *stream, void *buffer, size_t count, HsDtype dtype, int root);
    HsStatus (*barrier)(HsComm *comm);
    void (*abort)(HsComm *comm, const char *reason);
    /* HS_OK, or the failure that every operation would have from now on; never waits */
    HsStatus (*check)(HsComm *comm);
    void (*note_step)(HsComm *comm); /* comm->step has changed; NULL: others learn it with the next operation */
    void (*destroy)(HsComm *comm);   /* NULL where its owner destroys it in another way */
} HsCommOperations;

struct HsComm {
    int rank, size;
    int local_rank, local_size; /* among the processes of this host */
    int core_rank, core_size;   /* among those of them that may run on the same cores as this one */
    bool exact;                 /* communicators of devices: sums along the tree; else in the library's own order */
    /* Written by the rank's own thread, read by its heartbeat: with __atomic builtins, relaxed. */
    uint64_t sequence;     /* operations begun */
    int64_t step;          /* hs_comm_note_step; -1: not known */
    const char *operation; /* the one under way or done last; NULL: none yet */
    /* What this rank's transport has moved out, by the theory of each operation, S bytes and N ranks: all_reduce
     * 2 S (N - 1) / N; reduce_scatter S less its own range; all_gather its own range (N - 1) times; broadcast S of the
     * root; barrier 0. */
    uint64_t sent_bytes;
    double
        exchange_s; /* of this thread in operations: waiting for others, and moving and adding; on a device, enqueueing */
    const HsCommOperations *operations; /* NULL: alone */
};

/* A tensor split over several processes: each has one range of the elements, to which the tensor's data points. */
typedef struct HsTensorShare {
    HsComm *comm;          /* NULL: this process has all of it */
    const int64_t *starts; /* [processes + 1]: where in the parameter each one's begins; borrowed */
    int64_t elements;      /* of the parameter, that one of the tensor stands for */
    int64_t offset;        /* of the tensor in the parameter, in elements of the parameter */
} HsTensorShare;

/* The communicator of a run in one process.  Shared, and nothing in it changes. */
HsComm *hs_comm_alone(void);
/* "alone", "threads", "shared memory", ... */
const char *hs_comm_name(const HsComm *comm);

/* The checked entry points.
 * errors: HS_EDEVICE when another rank aborted, died, or called something else; HS_EUNSUPPORTED: the type;
 *         HS_EINVAL: starts that decrease */
HsStatus hs_comm_all_reduce(HsComm *comm, HsStream *stream, void *buffer, size_t count, HsDtype dtype, HsCommOp op);
HsStatus hs_comm_reduce_scatter(HsComm *comm, HsStream *stream, void *buffer, const size_t *starts, HsDtype dtype);
HsStatus hs_comm_all_gather(HsComm *comm, HsStream *stream, void *buffer, const size_t *starts, HsDtype dtype);
HsStatus hs_comm_broadcast(HsComm *comm, HsStream *stream, void *buffer, size_t count, HsDtype dtype, int root);
HsStatus hs_comm_barrier(HsComm *comm);

/* Whether a rank has failed, for callers that wait elsewhere: HS_OK or the error of later operations.  Never waits. */
HsStatus hs_comm_check(HsComm *comm);

/* This rank cannot continue, and why.  No rank's later operation succeeds; the first reason reaches all of them.  This
 * thread's error message stays. */
void hs_comm_abort(HsComm *comm, const char *reason);
/* The optimizer step that this rank is in, for messages of the others. */
void hs_comm_note_step(HsComm *comm, int64_t step);
/* Leaves; the others' waits for this rank end with an error.  NULL and the communicator of a run alone are allowed. */
void hs_comm_destroy(HsComm *comm);

/* A rank as messages describe it: "rank 1 of 4 (host a, process 12, step 17, all_reduce 80)"; what is not known, NULL
 * or negative, is left out. */
typedef struct HsCommPlace {
    int rank, size;
    const char *host;
    int64_t process, step;
    const char *operation;
    uint64_t sequence;
} HsCommPlace;
void hs_comm_describe(const HsCommPlace *place, char *text, size_t bytes);

/* Range r of count elements in equal parts, the first count % size of them one element longer. */
size_t hs_comm_share_start(size_t count, int size, int rank);

#endif
