/* SPDX-License-Identifier: MIT
 *
 * The memory that ranks of one host share, and how they meet in it.  Private to comm_shared.c, comm_segment.c and
 * comm_watch.c.
 *
 *     | header | member 0 | ... | member size - 1 | windows of rank 0: turn 0, 1, 2 | windows of rank 1 | ...
 *
 * A meeting is a counter of the ranks that came and the meeting's number: the last to come raises the number and wakes
 * the others.  Everything written before a meeting is seen by all after it.
 */
#ifndef HS_KERNELS_BASE_COMM_SEGMENT_H
#define HS_KERNELS_BASE_COMM_SEGMENT_H

#include <pthread.h>
#include <stdatomic.h>

#include "kernels/base/comm_call.h"
#include "kernels/base/comm_shared.h"

enum { HS_SEGMENT_REASON = 768, HS_SEGMENT_RANKS_MOST = 1024 };

/* Of one rank; only that rank writes it. */
typedef struct HsSegmentMember {
    _Alignas(64) _Atomic uint32_t joined;
    _Atomic uint32_t left;
    _Atomic int64_t process, step;
    _Atomic uint64_t beat, meetings, sequence;
    _Atomic uint32_t operation; /* hs_segment_operations */
    /* written before `joined` */
    char host[64];
    uint64_t cores; /* hash of the set of cores that the process may run on */
    HsCommCall calls[HS_COMM_SHARED_TURNS];
} HsSegmentMember;

struct HsCommSegment {
    uint64_t magic, bytes;
    uint32_t size, window_bytes;
    /* meetings */
    _Alignas(64) _Atomic uint32_t here;
    _Alignas(64) _Atomic uint32_t meeting;
    /* the end: 0 none, 1 being written, 2 there */
    _Alignas(64) _Atomic uint32_t aborted;
    char reason[HS_SEGMENT_REASON];
    HsSegmentMember members[];
};

typedef struct HsCommShared {
    HsComm comm; /* first */
    HsCommSegment *segment;
    HsCommSharedOptions options;
    uint64_t turn;      /* of the next window; the same on all ranks */
    bool spins;         /* there is a core for every rank */
    const void **parts; /* [size] */
    /* the watch */
    pthread_t watcher;
    bool watched;
    _Atomic uint32_t stop;
    int *processes; /* [size] pidfds; -1: none */
} HsCommShared;

extern const char *const hs_segment_operations[];
uint32_t hs_segment_operation(const char *name);

/* errors: HS_EFORMAT, HS_ENOMEM */
HsStatus hs_segment_map(int descriptor, HsCommSegment **segment);
void hs_segment_unmap(HsCommSegment *segment);
unsigned char *hs_segment_window(const HsCommSegment *segment, int rank, uint64_t turn);

/* All ranks, or an error: HS_EDEVICE with the reason. */
HsStatus hs_segment_meet(HsCommShared *shared);
HsStatus hs_segment_fail(const HsCommSegment *segment);
/* The first reason stays; all ranks wake up. */
void hs_segment_abort(HsCommSegment *segment, const char *reason);
void hs_segment_describe(const HsCommSegment *segment, int rank, char *text, size_t bytes);
/* Sleeps while *word is `value`, at most so long, and maybe shorter. */
void hs_futex_wait(_Atomic uint32_t *word, uint32_t value, double seconds);
void hs_futex_wake(_Atomic uint32_t *word);

/* The rank's own thread of heartbeats.  errors: HS_ENOMEM */
HsStatus hs_watch_start(HsCommShared *shared);
void hs_watch_stop(HsCommShared *shared);

#endif
