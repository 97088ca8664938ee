/* SPDX-License-Identifier: MIT
 *
 * A communicator between GPUs, over NVIDIA's NCCL: what makes one (HsBackendPart, kernels/parts/part.h), and what it
 * promises beyond comm.h.
 *
 *   - Operations are enqueued on `stream`; results are there in stream order.  Calls on several streams run in the
 *     order of the calls.
 *   - A buffer may be the device's, or the host's: then it goes through pinned memory and the call returns with the
 *     result.  That is meant for counters and flags.
 *   - exact: floating-point sums are made by our own kernel along comm.h's tree, after each rank has got the others'
 *     parts of its share: the bits of hs_comm_threads and of hs_comm_shared (but a NaN's payload, which is the GPU's).
 *     It moves as much as a ring does and costs scratch_bytes of device memory and one pass over the share.
 *   - not exact: the library adds up, in an order that depends on its version, the topology, the size and the number of
 *     ranks, and it rounds 16-bit sums at each rank or once.  All ranks still hold the same bits, but another number of
 *     processes gives others, and another run is not guaranteed to give the same.
 *   - Sums of i64 are exact in any order, so the library makes them.  Maxima of floats go along the tree, since the
 *     library's drop NaN for another number.
 *   - The library has no time limit for an operation.  So communicators are not blocking, and every wait for the device
 *     (stream_sync, event_sync, copies from and to pageable memory) checks meanwhile whether the communicator failed,
 *     whether another rank did, and whether `timeout_s` is over; then the operations are aborted and the wait fails
 *     with HS_EDEVICE.
 *   - Nothing here is recorded in a graph: what one rank records all would have to, and operations on host buffers
 *     cannot be.  A call in a recording fails with HS_EUNSUPPORTED; hs_comm_can_be_recorded says so before.
 *   - Ranks that call different operations are not found out by the library: it hangs, or moves the wrong bytes.
 */
#ifndef HS_KERNELS_BASE_COMM_NCCL_H
#define HS_KERNELS_BASE_COMM_NCCL_H

#include "kernels/base/comm.h"

enum { HS_COMM_NCCL_ID_BYTES = 128 };

typedef struct HsCommNcclOptions {
    int rank, size;
    int local_rank, local_size;
    bool exact;
    unsigned char id[HS_COMM_NCCL_ID_BYTES]; /* made by one rank, the same for all; serves one communicator */
    size_t scratch_bytes;                    /* of exact sums; 0: 32 MiB */
    double timeout_s;                        /* for each wait; 0: none */
    /* How this rank's process hears of the others (kernels/parts/comm.h: by the host's communicator); NULL: it does not.
     * others_failed is called while a rank waits, by its own thread and about every 10 ms: true when another rank gave
     * up or died, with its message.  tell_others gets the reason for which this rank gives up, once, in any thread.
     * note_step gets each new step, for others' messages about this rank. */
    bool (*others_failed)(void *host, char *message, size_t bytes);
    void (*tell_others)(void *host, const char *reason);
    void (*note_step)(void *host, int64_t step);
    void *host;
} HsCommNcclOptions;

/* Whether operations of this communicator may be part of a recorded step (kernels.cuda_graph). */
static inline bool hs_comm_can_be_recorded(const HsComm *comm)
{
    return comm->size == 1;
}

#endif
