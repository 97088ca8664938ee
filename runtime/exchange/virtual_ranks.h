/* SPDX-License-Identifier: MIT
 *
 * Sums that do not depend on how many processes make them.
 *
 * An effective batch is cut into G equal parts of consecutive sequences, its virtual ranks; G belongs to the run, and
 * any number N of processes with G/N a power of two trains it, each on G/N consecutive parts.  A part's gradients are
 * added up from zero, micro-batch after micro-batch.  Parts are added along one tree (kernels/base/comm.h):
 *
 *     sum [a, b) = sum [a, a + p) + sum [a + p, b),   p the largest power of two below b - a
 *
 *     G = 8    ((0+1) + (2+3)) + ((4+5) + (6+7))      N = 2: a process each of the outermost two; N = 4: a pair each
 *
 * A process's parts are a subtree, and what the processes exchange continues it, so the bits are those of one process
 * with all G.  It holds the partial sums of a binary counter meanwhile: log2(G/N) copies of what is summed (one more
 * where G of a single process is no power of two).
 */
#ifndef HS_RUNTIME_EXCHANGE_VIRTUAL_RANKS_H
#define HS_RUNTIME_EXCHANGE_VIRTUAL_RANKS_H

#include "kernels/base/arena.h"
#include "kernels/base/comm.h"
#include "kernels/ops/backend.h"

typedef struct HsVirtualRanks {
    int64_t count;      /* G; 1: the batch is one */
    int64_t asked;      /* what the configuration said; 0: nothing */
    int64_t first, own; /* this process's parts */
} HsVirtualRanks;

/* count: what the configuration says, 0: one a process.  errors: HS_ECONFIG where it cannot be divided so among the
 * processes, naming the counts that can */
HsStatus hs_virtual_ranks_divide(int64_t count, const HsComm *comm, HsVirtualRanks *ranks);

/* Tensors that follow each other in memory, but for the padding of an arena, as one: `runs` [count] may be `tensors`.
 * Returns how many there are.  Absent tensors are left out. */
int hs_tensors_join(const HsTensor *tensors, int count, HsTensor *runs);

typedef struct HsPartialSums {
    HsTensor *tensors; /* what is summed */
    int count;
    size_t *offsets; /* [count] of each in a level */
    int64_t parts;
    size_t level_bytes;
    HsArena arena; /* level after level */
} HsPartialSums;

/* Device memory that init takes. */
size_t hs_partial_sums_bytes(const HsTensor *tensors, int count, int64_t parts);
/* tensors: what a part leaves its sum in; borrowed memory.  One part needs no memory.  errors: HS_ENOMEM */
HsStatus hs_partial_sums_init(HsPartialSums *sums, HsDevice *device, HsMemoryCategory category, bool on_host,
                              const HsTensor *tensors, int count, int64_t parts);
/* Safe on a zeroed one. */
void hs_partial_sums_deinit(HsPartialSums *sums);
/* The tensors hold the sum of this process's part `part` (0, 1, ...).  Before the last part: it is kept, and they are
 * cleared for the next one; after it they hold the sum of all. */
HsStatus hs_partial_sums_add(HsPartialSums *sums, HsContext *context, int64_t part);
/* The same of `count` tensors from `first` on alone. */
HsStatus hs_partial_sums_add_some(const HsPartialSums *sums, HsContext *context, int64_t part, int first, int count);
/* What the operations of the sums need of a workspace; a dry context. */
HsStatus hs_partial_sums_dry_run(HsPartialSums *sums, HsContext *dry);

#endif
