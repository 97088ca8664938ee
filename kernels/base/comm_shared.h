/* SPDX-License-Identifier: MIT
 *
 * Ranks as processes of one host, which share a segment of memory: an anonymous file, known by a descriptor that
 * children inherit, or by /proc/PROCESS/fd/DESCRIPTOR for others.  It holds the processes and states of the ranks, and
 * HS_COMM_SHARED_TURNS windows a rank, through which buffers of any size pass piece by piece: memory is the host's,
 * `stream` is not looked at, and the segment's size does not depend on what is exchanged.
 *
 * Each rank has a thread that counts a heartbeat up and looks after the others.  A rank that died, was stopped or hangs
 * is named by all others within seconds, and their operations fail.  While a rank waits it sleeps on a futex.
 */
#ifndef HS_KERNELS_BASE_COMM_SHARED_H
#define HS_KERNELS_BASE_COMM_SHARED_H

#include "kernels/base/comm.h"

enum { HS_COMM_SHARED_TURNS = 3 };

typedef struct HsCommSegment HsCommSegment;

typedef struct HsCommSharedOptions {
    double join_s;       /* how long to wait for ranks that have not joined yet */
    double timeout_s;    /* how long an operation may wait for a rank that is alive; 0: for ever */
    double silence_s;    /* a process without a heartbeat for so long counts as lost; 0: 6 */
    size_t window_bytes; /* read by hs_comm_shared_make; 0: 512 KiB */
} HsCommSharedOptions;

/* A segment for `size` ranks, without members yet; the descriptor is closed on exec.
 * errors: HS_ENOMEM, HS_EIO */
HsStatus hs_comm_shared_make(int size, const HsCommSharedOptions *options, int *descriptor);

/* Becomes rank `rank` of the segment, waits for all others to come; closes nothing.  hs_comm_destroy leaves.
 * errors: HS_EFORMAT where the descriptor is not such a segment, or another build's; HS_EINVAL for a rank that it does
 * not have, or that is taken; HS_EDEVICE with the names of the ranks that did not come, or of one that failed */
HsStatus hs_comm_shared_join(int descriptor, int rank, const HsCommSharedOptions *options, HsComm **comm);

/* For the process that started the ranks: reports to them that one is lost.  The first reason stays.
 * errors: those of the segment */
HsStatus hs_comm_shared_report(int descriptor, int rank, const char *what);
/* Why the ranks' operations fail; "" where they do not.  errors: those of the segment */
HsStatus hs_comm_shared_reason(int descriptor, char *reason, size_t bytes);

#endif
