/* SPDX-License-Identifier: MIT
 *
 * Weights that come when they are needed (distributed.zero: 3): each process keeps the same part of them as of the
 * states, with memory.offload: weights in the host's memory.
 *
 *     before block 5's first action: own range -> its place in the group's memory -> gathered from all -> block 5
 *
 * On a device the next group comes while one is worked with.
 *
 * A group (param_groups.h) has memory from the first action that reads one of its weights to the last, once on the way
 * forward and once on the way back.  Processes run the same actions at the same time.
 */
#ifndef HS_RUNTIME_EXCHANGE_WEIGHT_STREAM_H
#define HS_RUNTIME_EXCHANGE_WEIGHT_STREAM_H

#include "runtime/exchange/param_groups.h"

typedef struct HsWeightStream {
    HsModel *model; /* borrowed, as the share */
    const HsSpanShare *share;
    HsParamGroups groups;
    const HsSideStream *side; /* borrowed */
    HsArena own;              /* weights of the own spans; they may be on the host */
    HsArena memory;           /* of the groups that are there */
} HsWeightStream;

/* Of one program and its actions. */
typedef struct HsWeightVisits {
    const HsWeightStream *stream;
    HsVisit *items; /* in the order of their first actions */
    int count;
    HsEvent **there; /* [count], on a device: the weights have come */
    int asked;       /* of a pass: how many are on their way or there */
} HsWeightVisits;

/* Gives the share's own spans their weights, on_host: in pinned memory of the host.  The model was committed without
 * those that are trained.
 * errors: HS_ENOMEM */
HsStatus hs_weight_stream_create(HsModel *model, const HsShards *shards, const HsSpanShare *share,
                                 const HsSideStream *side, bool on_host, HsContext *context, HsWeightStream *stream);
/* Memory for the visits of all programs that use it. */
HsStatus hs_weight_stream_commit(HsWeightStream *stream, size_t bytes);
/* Safe on a zeroed one. */
void hs_weight_stream_destroy(HsWeightStream *stream);

HsStatus hs_weight_visits_find(const HsWeightStream *stream, const HsProgram *program, const HsContext *context,
                               HsWeightVisits *visits, size_t *bytes);
HsStatus hs_weight_visits_before(HsWeightVisits *visits, HsContext *context, int action);
void hs_weight_visits_destroy(HsWeightVisits *visits);

/* All weights at once, for what does not go from action to action in step with the others: where one process has them
 * on the host, from there. */
HsStatus hs_weight_stream_lend(HsWeightStream *stream, HsContext *context, HsArena *weights);
void hs_weight_stream_take_back(HsWeightStream *stream, HsArena *weights);

#endif
