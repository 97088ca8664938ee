/* SPDX-License-Identifier: MIT
 *
 * Gradients that pass (distributed.zero: 2): no process ever has those of the whole model.
 *
 *     backward of block 5 -> its gradients, in memory that block 6's had -> summed to the states' rank -> block 4
 *
 * On a device a group is summed during the next one's backward, which therefore has other memory.
 *
 * A group (param_groups.h) has memory from the first action of backward that adds to one of its gradients to the last.
 * What is summed to this process goes to its own spans' gradients, which stay: on the device, or with
 * memory.offload: gradients in the host's memory, to which the device adds.
 */
#ifndef HS_RUNTIME_EXCHANGE_PASSING_H
#define HS_RUNTIME_EXCHANGE_PASSING_H

#include "runtime/exchange/param_groups.h"

typedef struct HsPassing {
    HsModel *model; /* borrowed, as the share */
    const HsSpanShare *share;
    HsParamGroups groups;
    HsVisit *visits; /* one a group */
    int visit_count;
    const HsSideStream *side; /* borrowed */
    HsEvent **summed;         /* [visits]: the group's sum is made, and its memory free */
    HsDevice *device;
    HsArena memory;
    HsArena own; /* gradients of the own spans */
    bool on_host;
} HsPassing;

/* For the schedule of `program`; gives the share's own spans their gradients, on_host: in pinned memory of the host.
 * The model was committed without any.
 * errors: HS_ENOMEM */
HsStatus hs_passing_create(HsModel *model, const HsProgram *program, const HsShards *shards, const HsSpanShare *share,
                           const HsSideStream *side, bool on_host, HsContext *context, HsPassing *passing);
/* Safe on a zeroed one. */
void hs_passing_destroy(HsPassing *passing);

/* Around an action of a training pass. */
HsStatus hs_passing_before(const HsPassing *passing, HsContext *context, int action);
HsStatus hs_passing_after(const HsPassing *passing, HsContext *context, int action);
/* What is enqueued after a pass finds its sums. */
HsStatus hs_passing_join(const HsPassing *passing, HsContext *context);

/* For what needs the gradients of all parameters at once (a Fisher, a search for non-finite ones): memory for them, until
 * they are given back; the spans of the share have them.  errors: HS_ENOMEM */
HsStatus hs_passing_lend(HsPassing *passing, HsContext *context, HsArena *gradients);
void hs_passing_take_back(HsPassing *passing, HsArena *gradients);

#endif
