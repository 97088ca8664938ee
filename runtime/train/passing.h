/* SPDX-License-Identifier: MIT
 *
 * Gradients that pass (distributed.zero: 2): no process ever has those of the whole model.
 *
 *     backward of block 5 -> its gradients, in memory that block 6's had -> summed to who keeps the states -> block 4
 *
 * A group is the parameters of a block, or a parameter outside blocks; it has memory from the first action of backward
 * that adds to one of them to the last.  Groups whose times do not overlap share it.  What is summed to this process
 * goes to the gradients of its own spans, which stay.
 */
#ifndef HS_RUNTIME_TRAIN_PASSING_H
#define HS_RUNTIME_TRAIN_PASSING_H

#include "runtime/engine/program.h"
#include "runtime/train/shards.h"

typedef struct HsPassingGroup {
    int block;
    HsDtype dtype;
    int parameter; /* outside blocks: which; else -1 */
    int first_action, last_action;
    size_t bytes, offset;
} HsPassingGroup;

typedef struct HsPassing {
    HsModel *model; /* borrowed, as the others */
    const HsShards *shards;
    HsComm *comm;
    const HsSpanShare *share;
    HsPassingGroup *groups;
    int group_count;
    int *group_of;     /* [parameters]; -1: frozen */
    size_t *offset_of; /* [parameters] in its group */
    size_t *starts;    /* [processes + 1]: room */
    HsArena memory;
    HsArena own; /* gradients of the own spans */
    HsProgramExchange exchange;
} HsPassing;

/* For the schedule of `program`; gives the share's own spans their gradients.  The model was committed without any.
 * errors: HS_ENOMEM */
HsStatus hs_passing_create(HsModel *model, const HsProgram *program, const HsShards *shards, const HsSpanShare *share,
                           HsContext *context, HsPassing *passing);
/* Safe on a zeroed one. */
void hs_passing_destroy(HsPassing *passing);

/* For what needs the gradients of all parameters at once (a Fisher, a search for non-finite ones): memory for them, until
 * they are given back; the spans of the share have them.  errors: HS_ENOMEM */
HsStatus hs_passing_lend(HsPassing *passing, HsContext *context, HsArena *gradients);
void hs_passing_take_back(HsPassing *passing, HsArena *gradients);

#endif
