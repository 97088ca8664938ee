/* SPDX-License-Identifier: MIT
 *
 * The steps under way between the host and its device: a ring of slots that batches go up in and reports come back in.
 *
 *     host   pinned slot: batch, input --copies stream--> staging --+     slot: losses, outcome <-- event
 *     device                                     event, then        +--> fixed memory -> the step --^
 *
 * A step itself reads and writes the same device memory every time, whichever slot it came from, so that it can be
 * recorded once and replayed; the batch of the next one is on its way meanwhile.  On the host's own memory the ring has
 * one slot, copies are memcpy, and all is as if it were not there.
 */
#ifndef HS_RUNTIME_TRAIN_STEP_QUEUE_H
#define HS_RUNTIME_TRAIN_STEP_QUEUE_H

#include "optim/update.h"
#include "runtime/data/stream/stream.h"
#include "runtime/model/target_rows.h"

/* Tokens and targets of a whole optimizer step, on the host or on the device. */
typedef struct HsStepBatch {
    int32_t *tokens, *targets;                     /* [rows, T] */
    int32_t *reference_tokens, *reference_targets; /* [reference rows, T] */
    /* The same shapes, of each micro-batch the rows that have a target (runtime/model/target_rows.h). */
    int32_t *target_rows, *reference_target_rows;
    /* Where logits are compared (runtime/model/head_work.h): */
    int32_t *replayed;   /* [rows, T] */
    float *kept_value;   /* [rows, T, K] */
    int32_t *kept_index; /* [rows, T, K] */
} HsStepBatch;

/* What a step leaves in addition to the losses, where logits are compared. */
typedef struct HsStepLogits {
    void *terms; /* [rows, T] of the losses' dtype */
    float *top_value;
    int32_t *top_index; /* [rows, T, K] */
} HsStepLogits;

/* What the host keeps of a step until it is over: pinned memory, and what it knew when the step started. */
typedef struct HsStepSlot {
    HsStepBatch batch;
    HsStepInput *input;
    void *losses; /* [rows, T] */
    HsStepLogits logits;
    HsStepOutcome *outcome;
    uint8_t *replayed; /* [rows] */
    int64_t counted, reference_counted;
    int64_t reference_rows; /* in use: 0 or all */
    HsReplayStep step;
    uint32_t attempt;
    HsEvent *loaded, *done;
    unsigned char *staging; /* device */
} HsStepSlot;

typedef struct HsStepShape {
    int64_t rows, reference_rows, length;
    HsDtype loss;
    bool compares; /* logits with others: of `kept` entries a token (K, may be 0), or a teacher's */
    int64_t kept;  /* above 0: the next step needs what this one leaves, and one is under way at a time */
} HsStepShape;

typedef struct HsStepQueue {
    HsContext *context; /* borrowed */
    HsStepShape shape;
    HsStepSlot slots[HS_STEPS_AHEAD];
    int capacity, first, count; /* slots in use: first, first + 1, ... */
    HsStream *copies;
    HsStepBatch batch; /* device: what the step reads, */
    void *losses;      /* and where it leaves the losses of its rows */
    HsStepLogits logits;
    /* Of the step that was filled in last, on the host: by the first sequence of a micro-batch, and behind those of the
     * batch by that of a micro-batch of reference rows, how many rows the head takes; NULL in a dry run.  Where steps are
     * recorded it is the same number for all, which target_size says. */
    int64_t *target_counts;
    int target_size;
    /* private */
    unsigned char *device_block, *host_block;
} HsStepQueue;

/* The caller owns the storage; deinit is safe on a zeroed queue.  errors: HS_ENOMEM, HS_EDEVICE */
HsStatus hs_step_queue_init(HsStepQueue *queue, HsContext *context, const HsStepShape *shape);
void hs_step_queue_deinit(HsStepQueue *queue);
/* Device memory that init takes. */
size_t hs_step_queue_bytes(const HsDevice *device, const HsStepShape *shape);

static inline bool hs_step_queue_full(const HsStepQueue *queue)
{
    return queue->count == queue->capacity;
}

/* The next free slot, with a copy of the batch in it.  micro_batch: how many of its sequences run at a time */
HsStepSlot *hs_step_queue_fill(HsStepQueue *queue, const HsStreamBatch *batch, int64_t micro_batch);
/* The slot's batch and input are on their way to the step's memory, ahead of what is enqueued from now on. */
HsStatus hs_step_queue_send(HsStepQueue *queue, HsStepSlot *slot, HsStepInput *device_input);
/* Everything of the step is enqueued: its losses and outcome come back behind it.  The slot is in use from now on. */
HsStatus hs_step_queue_receive(HsStepQueue *queue, HsStepSlot *slot, const HsStepOutcome *device_outcome);
/* Waits for the oldest step and frees its slot, which stays readable until the next fill. */
HsStatus hs_step_queue_wait(HsStepQueue *queue, HsStepSlot **slot);
/* The slot that was waited for last. */
static inline const HsStepSlot *hs_step_queue_latest(const HsStepQueue *queue)
{
    return &queue->slots[(queue->first + queue->capacity - 1) % queue->capacity];
}

#endif
