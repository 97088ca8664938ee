/* SPDX-License-Identifier: MIT
 *
 * The stream's threads: a consumer, and a mixing thread that is one batch ahead of it.
 *
 *     consumer   peek: waits until the thread rests, and reads the finished slot
 *                accept: takes it, and asks for the other one to be mixed
 *     thread     waits until asked, mixes into the slot that is not in the consumer's hands, rests
 *
 * Invariant: while `mixing` is true the thread owns the mixer, the reservoir and slots[mixed]; otherwise the consumer
 * does.  `mixing` changes under the lock, which is all the synchronisation that is needed.
 */
#include <assert.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/data/stream/internal.h"

struct HsDataStream {
    HsStreamOptions options;
    HsJoint joint;
    HsSequence sequence;
    HsMixer mixer;
    HsLoader *loader; /* of the task at hand; NULL: none */
    HsStreamSlot slots[2];
    int mixed;                 /* the slot that is mixed, or will be next */
    HsStreamPosition position; /* after what was accepted */
    pthread_t thread;
    bool running; /* the thread was started */
    pthread_mutex_t lock;
    pthread_cond_t asked, rested;
    /* under the lock */
    bool mixing, stopping;
    HsStatus failure; /* of the mixing thread, with its message: messages belong to the thread that fails */
    char message[512];
};

static void *mix(void *argument)
{
    HsDataStream *stream = argument;
    pthread_mutex_lock(&stream->lock);
    for (;;) {
        while (!stream->mixing && !stream->stopping)
            pthread_cond_wait(&stream->asked, &stream->lock);
        if (stream->stopping)
            break;
        pthread_mutex_unlock(&stream->lock);
        HsStatus status = hs_mixer_mix(&stream->mixer, &stream->slots[stream->mixed]);
        pthread_mutex_lock(&stream->lock);
        if (status != HS_OK) {
            stream->failure = status;
            snprintf(stream->message, sizeof stream->message, "%s", hs_error_message());
        }
        stream->mixing = false;
        pthread_cond_signal(&stream->rested);
    }
    pthread_mutex_unlock(&stream->lock);
    return NULL;
}

HsStatus hs_stream_create(const HsStreamOptions *options, HsDataStream **result)
{
    HsStatus status = HS_OK;
    HsDataStream *stream = calloc(1, sizeof *stream);
    if (!stream)
        return hs_fail(HS_ENOMEM, "no memory for a stream of batches");
    stream->options = *options;
    stream->options.weights = NULL; /* the caller's; the joint stream has its own */
    pthread_mutex_init(&stream->lock, NULL);
    pthread_cond_init(&stream->asked, NULL);
    pthread_cond_init(&stream->rested, NULL);
    if (options->joint)
        HS_TRY_GOTO(status, hs_joint_init(&stream->joint, options->data, options->weights), clean_up);
    if (options->ends)
        HS_TRY_GOTO(status, hs_sequence_init(&stream->sequence, options->data, options->ends), clean_up);
    stream->options.ends = stream->sequence.ends;
    HS_TRY_GOTO(
        status,
        hs_mixer_init(&stream->mixer, &options->plan, options->reservoir, options->data->tasks[0].sequence_length),
        clean_up);
    stream->mixer.rehearses = options->rehearses;
    stream->mixer.unmarked = options->ends != NULL;
    for (int i = 0; i < 2; i++)
        HS_TRY_GOTO(status, hs_mixer_slot_init(&stream->mixer, &stream->slots[i]), clean_up);
    *result = stream;
    return HS_OK;
clean_up:
    hs_stream_destroy(stream);
    return status;
}

/* Stops the threads; the reservoir stays as it is. */
static void stop(HsDataStream *stream)
{
    if (stream->running) {
        pthread_mutex_lock(&stream->lock);
        stream->stopping = true;
        pthread_cond_signal(&stream->asked);
        pthread_mutex_unlock(&stream->lock);
        pthread_join(stream->thread, NULL);
        stream->running = false;
    }
    hs_loader_destroy(stream->loader);
    stream->loader = NULL;
}

void hs_stream_destroy(HsDataStream *stream)
{
    if (!stream)
        return;
    stop(stream);
    for (int i = 0; i < 2; i++)
        hs_mixer_slot_deinit(&stream->slots[i]);
    hs_mixer_deinit(&stream->mixer);
    hs_joint_deinit(&stream->joint);
    hs_sequence_deinit(&stream->sequence);
    pthread_mutex_destroy(&stream->lock);
    pthread_cond_destroy(&stream->asked);
    pthread_cond_destroy(&stream->rested);
    free(stream);
}

/* Signals are for the main thread, which knows what to save: this one starts with all of them blocked. */
static HsStatus start_thread(HsDataStream *stream)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int code = pthread_create(&stream->thread, NULL, mix, stream);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (code != 0)
        return hs_fail(HS_ENOMEM, "the thread that mixes batches cannot be started, as memory or threads ran out: %s",
                       strerror(code));
    stream->running = true;
    return HS_OK;
}

HsSampler hs_stream_sampler(const HsDataStream *stream, int task)
{
    const HsStreamOptions *options = &stream->options;
    if (options->joint)
        return hs_joint_sampler(&stream->joint);
    return options->ends ? hs_sequence_sampler(&stream->sequence) : hs_dataset_sampler(&options->data->tasks[task]);
}

HsStatus hs_stream_begin_task(HsDataStream *stream, int task, const HsStreamPosition *position)
{
    static const HsStreamPosition beginning = { 0 };
    const HsStreamOptions *options = &stream->options;
    assert(!stream->running && task >= 0 && task < (options->joint || options->ends ? 1 : options->data->count));
    const HsSampler sampler = hs_stream_sampler(stream, task);
    stream->position = position ? *position : beginning;
    HS_TRY(hs_loader_create(&sampler, options->plan.rows, stream->position.window_first, options->prefetch,
                            options->workers, &stream->loader));
    const HsReplayPlan plan = hs_replay_plan_of_task(&options->plan, task, options->steps ? options->steps[task] : 0);
    stream->mixer.forgets = options->continual && !hs_continual_retains(options->continual, task);
    hs_mixer_begin(&stream->mixer, task, &plan, stream->loader, &stream->position);
    stream->mixed = 0;
    stream->stopping = false;
    stream->failure = HS_OK;
    stream->mixing = true; /* the first batch is requested before it is needed */
    HsStatus status = start_thread(stream);
    if (status != HS_OK)
        stop(stream);
    return status;
}

void hs_stream_settle(HsDataStream *stream)
{
    pthread_mutex_lock(&stream->lock);
    while (stream->running && stream->mixing)
        pthread_cond_wait(&stream->rested, &stream->lock);
    pthread_mutex_unlock(&stream->lock);
}

HsStatus hs_stream_peek(HsDataStream *stream, const HsStreamBatch **batch)
{
    assert(stream->running);
    hs_stream_settle(stream);
    if (stream->failure != HS_OK)
        return hs_fail(stream->failure, "%s", stream->message);
    *batch = &stream->slots[stream->mixed].batch;
    return HS_OK;
}

void hs_stream_accept(HsDataStream *stream)
{
    pthread_mutex_lock(&stream->lock);
    assert(!stream->mixing);
    stream->position = stream->mixer.next; /* where the mixer stands before it goes ahead again */
    stream->mixed = 1 - stream->mixed;
    stream->mixing = true;
    pthread_cond_signal(&stream->asked);
    pthread_mutex_unlock(&stream->lock);
}

bool hs_stream_is_running(const HsDataStream *stream)
{
    return stream->running;
}

HsStreamPosition hs_stream_position(const HsDataStream *stream)
{
    return stream->position;
}

const int64_t *hs_stream_taken(const HsDataStream *stream, int64_t *count)
{
    *count = stream->mixer.taken_count;
    return stream->mixer.taken;
}

void hs_stream_end_task(HsDataStream *stream)
{
    hs_stream_settle(stream);
    hs_mixer_end(&stream->mixer, &stream->position);
    stop(stream);
}
