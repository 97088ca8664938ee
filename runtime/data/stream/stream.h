/* SPDX-License-Identifier: MIT
 *
 * What the training loop reads, task after task: batches of new sequences (loader) mixed with replayed ones
 * (reservoir), as optim/continual/replay.h plans them.
 *
 *     loader threads -> new sequences, in order -> window's new sequences -> mixing thread -> batch for step n+1
 *                                                                       <- reservoir takes a closed window's
 *
 * The mixing thread makes one batch ahead while the device works on the last; draws read the reservoir, and a window's
 * new sequences enter it only when the step after the window is mixed.  Invariant: once hs_stream_settle returns, the
 * reservoir and hs_stream_position are exactly what the batches accepted so far imply.
 */
#ifndef HS_RUNTIME_DATA_STREAM_STREAM_H
#define HS_RUNTIME_DATA_STREAM_STREAM_H

#include "optim/continual/continual.h"
#include "optim/continual/replay.h"
#include "optim/continual/reservoir.h"
#include "runtime/data/dataset.h"

typedef struct HsDataStream HsDataStream;

typedef struct HsStreamBatch {
    int64_t rows;              /* R */
    int32_t *tokens, *targets; /* [R, T] */
    const uint8_t *replayed;   /* [R]: 1: from the reservoir */
    const int64_t *slots;      /* [R]: which of its slots; -1: a new sequence */
    int64_t counted;           /* targets that are not -1 */
    HsReplayStep step;
    int64_t reference_rows; /* drawn from earlier tasks, in addition to the batch; 0: none */
    int32_t *reference_tokens, *reference_targets;
    int64_t reference_counted;
} HsStreamBatch;

/* Where a task's stream stands; all 0 at a task's beginning. */
typedef struct HsStreamPosition {
    int64_t window, window_step; /* the next step to hand out */
    int64_t window_first;        /* sample index of the window's first new sequence */
} HsStreamPosition;

typedef struct HsStreamOptions {
    const HsTaskData *data;
    bool joint;            /* one stream over all tasks; then task is 0 */
    const double *weights; /* joint: [data->count] shares of the tasks, in proportion to their lengths */
    const int64_t *ends;   /* unmarked: [data->count] how many samples of the stream there are up to a task's end: one
                              stream of all in their order, with task 0; NULL: not so */
    HsReplayPlan plan;
    const int64_t *steps;   /* borrowed: of each task, as begin_task counts them; NULL: not known */
    HsReservoir *reservoir; /* borrowed; NULL: nothing is replayed */
    bool rehearses;         /* what it holds was put there before the task: new sequences do not enter it */
    /* borrowed: says which tasks are to be retained, others never enter the reservoir; NULL: all are */
    const HsContinualConfig *continual;
    int64_t prefetch, workers;
} HsStreamOptions;

HsStatus hs_stream_create(const HsStreamOptions *options, HsDataStream **stream);
void hs_stream_destroy(HsDataStream *stream);
/* Starts (or, with a position, continues with) a task.  errors: HS_ENOMEM */
HsStatus hs_stream_begin_task(HsDataStream *stream, int task, const HsStreamPosition *position);
/* Blocks until the next batch is mixed.  It stays the next one, and valid, until it is accepted; then it counts as
 * handed out, and the batch behind it is begun.  Giving a batch up in between changes nothing. */
HsStatus hs_stream_peek(HsDataStream *stream, const HsStreamBatch **batch);
void hs_stream_accept(HsDataStream *stream);
/* Where the new sequences of `task` come from. */
HsSampler hs_stream_sampler(const HsDataStream *stream, int task);
/* Between begin_task and end_task. */
bool hs_stream_is_running(const HsDataStream *stream);
/* Waits until the mixing thread rests. */
void hs_stream_settle(HsDataStream *stream);
HsStreamPosition hs_stream_position(const HsDataStream *stream);
/* The slots of the reservoir that the latest closed window's new sequences took, in their order; -1: none.  While the
 * mixing thread rests. */
const int64_t *hs_stream_taken(const HsDataStream *stream, int64_t *count);
/* The task is over: new sequences that were handed out in a window still open enter the reservoir, threads stop. */
void hs_stream_end_task(HsDataStream *stream);

#endif
