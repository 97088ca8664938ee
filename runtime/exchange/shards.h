/* SPDX-License-Identifier: MIT
 *
 * Which rank stores which part of a model's states (Rajbhandari et al. 2020, "ZeRO", stages 1 to 3).
 *
 * The trainable parameters are cut into spans that depend on nothing but the model: whole ones, and of large ones parts.
 * What is summed over parameters (norms, penalties, importances) is summed span by span first, so it has the same bits
 * in any division; a run of one virtual rank cuts nothing.  Each process keeps masters, moments and strategies'
 * tensors of consecutive spans, about 1/N of all elements: of any one parameter one range, in one piece of memory.
 *
 *     zero: 0   all ranks keep all states; gradients are summed to all
 *     zero: 1   gradients are summed to the states' rank, which updates its part of the weights; then all get them
 *     zero: 2   the same, block by block: no rank has all gradients (passing.h)
 *     zero: 3   weights, too, are where the states are, and come when they are needed (weight_stream.h)
 */
#ifndef HS_RUNTIME_EXCHANGE_SHARDS_H
#define HS_RUNTIME_EXCHANGE_SHARDS_H

#include "optim/update.h"

/* Which of a span's tensors. */
typedef enum HsSpanTensor { HS_SPAN_GRADIENT, HS_SPAN_WEIGHT } HsSpanTensor;

typedef struct HsShards {
    HsSpan *whole; /* every trainable parameter, without master and states */
    int whole_count;
    HsSpan *all; /* the same, cut */
    int all_count;
    int *first;      /* [processes + 1]: the first span of each in `all` */
    int *span_of;    /* [whole_count + 1]: the first span of each parameter */
    size_t *room;    /* [processes + 1] */
    int64_t *starts; /* [whole_count, processes + 1]: the first element of each in every parameter */
    HsComm *comm;    /* of those that share; NULL: every process keeps all */
    bool cut;        /* some parameter is more than one span */
    bool streams;    /* no rank has all weights */
} HsShards;

/* Takes `whole` over.  cuts: parameters of many elements become several spans, but for those that `stays` (NULL: none)
 * says are updated as a whole; shared: the states are divided among comm's processes.  errors: HS_ENOMEM */
HsStatus hs_shards_create(HsSpan *whole, int count, bool cuts, bool (*stays)(const HsSpan *span, const void *user),
                          const void *user, bool shared, HsComm *comm, HsShards *shards);
/* Safe on zeroed ones. */
void hs_shards_destroy(HsShards *shards);
/* What an optimizer and strategies are given. */
HsSpanShare hs_shards_share(const HsShards *shards, const HsComm *comm);

/* Sums gradients of `count` whole parameters from `first` on: to all ranks, or each to its states' rank, else 0. */
HsStatus hs_shards_reduce(const HsShards *shards, HsComm *comm, HsContext *context, int first, int count);
/* After the weights of the own spans changed: all ranks get all, where weights are not streamed. */
HsStatus hs_shards_gather_weights(const HsShards *shards, HsContext *context);

/* Which rank has which range of parameter `whole`, for a tensor of which one element stands for `elements` of it. */
HsTensorShare hs_shards_share_of(const HsShards *shards, int whole, int64_t elements);
/* The parameter of that name; -1: none. */
int hs_shards_find(const HsShards *shards, const char *name);

#endif
