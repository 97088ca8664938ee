/* SPDX-License-Identifier: MIT
 *
 * Trainable parameters in groups of tensors that come and go together: those of a block, or one outside blocks; of one
 * format.  A group's tensors lie in the order of parameters, each aligned; each process has one range of them.
 *
 *     visit     the actions of a program from the first to the last in which a group has to be there
 *     place     groups with visits that do not overlap share memory
 */
#ifndef HS_RUNTIME_EXCHANGE_PARAM_GROUPS_H
#define HS_RUNTIME_EXCHANGE_PARAM_GROUPS_H

#include "runtime/engine/program.h"
#include "runtime/exchange/shards.h"

typedef struct HsParamGroup {
    int block, parameter; /* parameter: outside blocks; else -1 */
    HsDtype dtype;
    size_t bytes;
} HsParamGroup;

typedef struct HsParamGroups {
    const HsModel *model; /* borrowed, as shards and comm */
    const HsShards *shards;
    HsComm *comm;
    HsSpanTensor which;
    HsParamGroup *groups;
    int count;
    int *group_of;     /* [parameters]; -1: frozen */
    size_t *offset_of; /* [parameters] in its group, bytes */
    size_t *starts;    /* [processes + 1]: where in a group each process's range begins, elements; room */
} HsParamGroups;

typedef struct HsVisit {
    int group, first_action, last_action;
    int from, to; /* its memory is its own from the first of these actions to the last: as above, or longer */
    size_t offset;
} HsVisit;

/* Where a device exchanges while it computes: a separate stream; NULL: it does not. */
typedef struct HsSideStream {
    HsStream *stream;
    HsEvent *reached; /* of the computing stream */
} HsSideStream;

/* errors: HS_EDEVICE */
HsStatus hs_side_stream_create(HsContext *context, HsSideStream *side);
void hs_side_stream_destroy(HsDevice *device, HsSideStream *side);
/* The stream's context, for what follows all that was enqueued so far. */
HsStatus hs_side_stream_follow(const HsSideStream *side, HsContext *context, HsContext *own);

/* which: gradients or weights.  errors: HS_ENOMEM */
HsStatus hs_param_groups_create(const HsModel *model, const HsShards *shards, HsSpanTensor which,
                                HsParamGroups *groups);
void hs_param_groups_destroy(HsParamGroups *groups);
/* The block of the nodes that read it; -1: outside blocks, or in several. */
int hs_param_block(const HsModel *model, int parameter);
/* Fills starts for a group. */
void hs_param_groups_start(const HsParamGroups *groups, int group);
HsTensor hs_param_groups_tensor(const HsParamGroups *groups, int parameter);

/* In the order of their first actions.  ahead: of neighbours in it, the later one's memory is its own from the earlier one's
 * first action on; behind: the earlier one's up to the later one's last. */
void hs_visits_order(HsVisit *visits, int count, bool ahead, bool behind);
/* Offsets of visits; returns the bytes that all of them need. */
size_t hs_visits_place(const HsParamGroups *groups, HsVisit *visits, int count);

#endif
