/* SPDX-License-Identifier: MIT
 *
 * A communicator: what the ranks of one training exchange.  Rank r of `size` calls the same operations in the same
 * order as all others; each returns when this rank's part of the result is there (on a device: is enqueued on
 * `stream`).  Every rank ends with the same bits.
 *
 *     alone     one rank: every operation is the identity, touches no memory and costs one comparison
 *     threads   ranks are threads of one process, memory is the host's (comm_threads.h; for tests)
 *
 * A rank that fails calls hs_comm_abort: whoever waits for it, now or later, gets an error instead.
 *
 * Sums of floating point are left folds in the order of ranks, ((x0 + x1) + x2) + ..., rounded to the type after each
 * addition: they repeat their bits, and depend on the number of ranks as they do on that of micro-batches.  A NaN or an
 * infinity of one rank reaches every rank through a sum, never through a maximum: flags are counts, and are summed.
 */
#ifndef HS_KERNELS_BASE_COMM_H
#define HS_KERNELS_BASE_COMM_H

#include "kernels/base/device.h"
#include "kernels/base/dtype.h"
#include "kernels/base/status.h"

typedef enum HsCommOp { HS_COMM_SUM, HS_COMM_MAX } HsCommOp;

typedef struct HsComm HsComm;

/* Counts are of elements.  Types: f32, f64, i64; 16-bit floats where gradients are stored so. */
typedef struct HsCommOperations {
    const char *name;
    /* buffer [count], in place */
    HsStatus (*all_reduce)(HsComm *comm, HsStream *stream, void *buffer, size_t count, HsDtype dtype, HsCommOp op);
    /* send [size * count] -> receive [count]: the sum's part `rank`; receive may be that part of send */
    HsStatus (*reduce_scatter)(HsComm *comm, HsStream *stream, const void *send, void *receive, size_t count,
                               HsDtype dtype);
    /* send [count] -> receive [size * count], by rank; send may be its own part of receive */
    HsStatus (*all_gather)(HsComm *comm, HsStream *stream, const void *send, void *receive, size_t count,
                           HsDtype dtype);
    /* buffer [count] of rank `root` to all */
    HsStatus (*broadcast)(HsComm *comm, HsStream *stream, void *buffer, size_t count, HsDtype dtype, int root);
    HsStatus (*barrier)(HsComm *comm);
    void (*abort)(HsComm *comm);
} HsCommOperations;

struct HsComm {
    int rank, size;
    const HsCommOperations *operations; /* NULL: alone */
};

/* The communicator of a run in one process.  Shared and unchanging. */
HsComm *hs_comm_alone(void);

/* The checked entry points.  errors: HS_EDEVICE when another rank aborted, or called something else */
HsStatus hs_comm_all_reduce(HsComm *comm, HsStream *stream, void *buffer, size_t count, HsDtype dtype, HsCommOp op);
HsStatus hs_comm_reduce_scatter(HsComm *comm, HsStream *stream, const void *send, void *receive, size_t count,
                                HsDtype dtype);
HsStatus hs_comm_all_gather(HsComm *comm, HsStream *stream, const void *send, void *receive, size_t count,
                            HsDtype dtype);
HsStatus hs_comm_broadcast(HsComm *comm, HsStream *stream, void *buffer, size_t count, HsDtype dtype, int root);
HsStatus hs_comm_barrier(HsComm *comm);
/* This rank cannot go on.  No rank's later operation succeeds. */
void hs_comm_abort(HsComm *comm);

#endif
