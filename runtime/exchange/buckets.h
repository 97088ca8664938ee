/* SPDX-License-Identifier: MIT
 *
 * Gradients are summed while backward continues (Li et al. 2020, "PyTorch Distributed", section 3.2.3; here a bucket is
 * a block, so that what is summed together does not depend on sizes):
 *
 *     compute stream   block 5 | block 4    | block 3 ...              | norm, verdict, update
 *     sums' stream             | sum of 5   | sum of 4 ...    last sum |
 *
 * Only in the last micro-batch of a process's last virtual rank: nothing is summed before.  On the host's own memory both
 * streams are one, and sums are made between blocks.
 */
#ifndef HS_RUNTIME_EXCHANGE_BUCKETS_H
#define HS_RUNTIME_EXCHANGE_BUCKETS_H

#include "runtime/exchange/param_groups.h"
#include "runtime/exchange/virtual_ranks.h"

typedef struct HsBucket {
    int first, count; /* of shards->whole */
    int ready;        /* the action after which all of its gradients are there */
} HsBucket;

typedef struct HsBuckets {
    const HsShards *shards; /* borrowed, as sums and comm */
    HsPartialSums *sums;
    HsComm *comm;
    HsBucket *items;
    int count;
    HsSideStream side;
    HsEvent *done;
    HsDevice *device;
    bool open; /* the pass under way is the last of its step */
} HsBuckets;

/* errors: HS_ENOMEM, HS_EDEVICE */
HsStatus hs_buckets_create(const HsProgram *program, const HsShards *shards, HsPartialSums *sums, HsComm *comm,
                           HsContext *context, HsBuckets *buckets);
/* Safe on zeroed ones. */
void hs_buckets_destroy(HsBuckets *buckets);

/* After an action of backward: sums what is ready, where the pass is the last. */
HsStatus hs_buckets_after(const HsBuckets *buckets, HsContext *context, int action);
/* What is enqueued from now on finds all sums. */
HsStatus hs_buckets_join(HsBuckets *buckets, HsContext *context);

#endif
