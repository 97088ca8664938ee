/* SPDX-License-Identifier: MIT
 *
 * What stream.c (threads), mix.c (what a batch holds) and joint.c (all tasks as one) share.  Internal to
 * runtime/data and its tests.
 */
#ifndef HS_RUNTIME_DATA_STREAM_INTERNAL_H
#define HS_RUNTIME_DATA_STREAM_INTERNAL_H

#include "runtime/data/stream/stream.h"

/* All tasks as one stream of samples, in exact proportions: joint.c says which sample is where. */
typedef struct HsJoint {
    const HsTaskData *data;
    int64_t *weights; /* [data->count] samples of each task in a block */
    int64_t total;    /* samples of a block */
} HsJoint;

/* errors: HS_EINVAL a share that is not positive, HS_ENOMEM */
HsStatus hs_joint_init(HsJoint *joint, const HsTaskData *data, const double *shares);
void hs_joint_deinit(HsJoint *joint);
/* Where sample `index` of the joint stream comes from: a task, and one of its samples. */
void hs_joint_locate(const HsJoint *joint, int64_t index, int *task, int64_t *sample);
HsSampler hs_joint_sampler(const HsJoint *joint);

/* The tasks' samples one after another as one stream (sequence.c). */
typedef struct HsSequence {
    const HsTaskData *data;
    int64_t *ends; /* [data->count] samples up to a task's end; the last task has no end */
} HsSequence;

/* errors: HS_ENOMEM */
HsStatus hs_sequence_init(HsSequence *sequence, const HsTaskData *data, const int64_t *ends);
void hs_sequence_deinit(HsSequence *sequence);
HsSampler hs_sequence_sampler(const HsSequence *sequence);

/* A batch in the making. */
typedef struct HsStreamSlot {
    HsStreamBatch batch;
    uint8_t *replayed; /* batch.replayed, */
    int64_t *slots;    /* and batch.slots */
} HsStreamSlot;

/* Makes batches one after another.  Not thread-safe: it belongs to the thread that mixes.
 * Invariant between calls: the window buffer holds the window of the batch that was made last. */
typedef struct HsMixer {
    HsReplayPlan plan;      /* of the task */
    HsReservoir *reservoir; /* NULL: none */
    bool rehearses;
    bool forgets;   /* the task is not to be retained: nothing of it enters the reservoir */
    bool unmarked;  /* what is referred to is all that was seen: there are no earlier tasks */
    int64_t length; /* T */
    int task;
    HsLoader *loader; /* of the new sequences, from position.window_first on */
    const HsBatch *loaded;
    int64_t loaded_used;               /* rows of `loaded` that were taken */
    HsStreamPosition next;             /* the step that is mixed next */
    int32_t *tokens, *targets;         /* [hs_replay_window_rows_most, T] the window's new sequences */
    int64_t window_rows;               /* how many the window has */
    int64_t *taken, taken_count;       /* slots of the latest window that entered the reservoir */
    bool window_open, empty_reservoir; /* the latter: at the window's start, and so for all of it */
} HsMixer;

HsStatus hs_mixer_init(HsMixer *mixer, const HsReplayPlan *plan, HsReservoir *reservoir, int64_t length);
void hs_mixer_deinit(HsMixer *mixer);
HsStatus hs_mixer_slot_init(const HsMixer *mixer, HsStreamSlot *slot);
void hs_mixer_slot_deinit(HsStreamSlot *slot);

/* The loader must begin at position->window_first; it is borrowed until hs_mixer_end. */
/* plan: of this task. */
void hs_mixer_begin(HsMixer *mixer, int task, const HsReplayPlan *plan, HsLoader *loader,
                    const HsStreamPosition *position);
/* The next batch.  To be called when the one before has been handed out: a window that ended with it enters the
 * reservoir here.  Allocates nothing. */
HsStatus hs_mixer_mix(HsMixer *mixer, HsStreamSlot *slot);
/* `position`: what was handed out.  New sequences of the window in the buffer that were handed out enter the
 * reservoir. */
void hs_mixer_end(HsMixer *mixer, const HsStreamPosition *position);

#endif
