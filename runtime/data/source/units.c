/* SPDX-License-Identifier: MIT
 *
 * Units of sources by several threads; see units.h.
 *
 *     slots    | taken ... | done | at work | filled | free ... |     a ring; unit k lies in slot k mod count
 *
 * The caller's thread reads ahead, takes what is done in its order, and works on units itself while it would wait.
 */
#include "runtime/data/source/units.h"

#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base/array.h"
#include "runtime/data/source/units_read.h"

enum { SLOTS_A_THREAD = 2, SLOTS_MORE = 2 };

typedef struct Pipeline {
    const HsUnitWork *work;
    HsUnitReader reader;
    HsUnit *slots;
    int slot_count;
    int64_t read, taken;
    bool at_end;      /* nothing more to read */
    HsStatus failure; /* of reading, which counts once all in front of it is taken */
    char message[1024];
    pthread_t *threads;
    int thread_count;
    pthread_mutex_t lock;
    pthread_cond_t filled, finished;
    /* under the lock */
    int64_t begun; /* the next unit to work on */
    int64_t there; /* as `read` */
    bool stopping;
} Pipeline;

static void run(const Pipeline *pipeline, int worker, HsUnit *unit)
{
    unit->used = unit->least;
    unit->status = pipeline->work->work(pipeline->work->user, worker, unit);
    if (unit->status != HS_OK)
        snprintf(unit->message, sizeof unit->message, "%s", hs_error_message());
}

static HsUnit *slot_of(const Pipeline *pipeline, int64_t index)
{
    return &pipeline->slots[index % pipeline->slot_count];
}

/* Works on the next unit that nothing works on; false: there is none. */
static bool work_once(Pipeline *pipeline, int worker)
{
    pthread_mutex_lock(&pipeline->lock);
    const bool there = pipeline->begun < pipeline->there;
    HsUnit *unit = there ? slot_of(pipeline, pipeline->begun++) : NULL;
    pthread_mutex_unlock(&pipeline->lock);
    if (!there)
        return false;
    run(pipeline, worker, unit);
    pthread_mutex_lock(&pipeline->lock);
    unit->done = true;
    pthread_cond_signal(&pipeline->finished);
    pthread_mutex_unlock(&pipeline->lock);
    return true;
}

typedef struct Worker {
    Pipeline *pipeline;
    int number;
} Worker;

static void *serve(void *argument)
{
    const Worker worker = *(Worker *)argument;
    Pipeline *pipeline = worker.pipeline;
    free(argument);
    for (;;) {
        pthread_mutex_lock(&pipeline->lock);
        while (pipeline->begun == pipeline->there && !pipeline->stopping)
            pthread_cond_wait(&pipeline->filled, &pipeline->lock);
        const bool stopping = pipeline->stopping;
        pthread_mutex_unlock(&pipeline->lock);
        if (stopping)
            return NULL;
        (void)work_once(pipeline, worker.number);
    }
}

/* Signals are for the main thread.  Where no thread can be had, there are fewer: the caller's works too. */
static void start_threads(Pipeline *pipeline)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (int i = 1; i < pipeline->work->threads; i++) {
        Worker *worker = malloc(sizeof *worker);
        if (!worker)
            break;
        *worker = (Worker){ pipeline, i };
        if (pthread_create(&pipeline->threads[pipeline->thread_count], NULL, serve, worker) != 0) {
            free(worker);
            break;
        }
        pipeline->thread_count++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void read_ahead(Pipeline *pipeline)
{
    bool there = true;
    while (!pipeline->at_end && pipeline->read - pipeline->taken < pipeline->slot_count) {
        pipeline->failure = hs_unit_reader_next(&pipeline->reader, slot_of(pipeline, pipeline->read), &there);
        if (pipeline->failure != HS_OK)
            snprintf(pipeline->message, sizeof pipeline->message, "%s", hs_error_message());
        pipeline->at_end = !there || pipeline->failure != HS_OK;
        if (pipeline->at_end)
            return;
        if (++pipeline->read == 2) /* one alone needs no threads */
            start_threads(pipeline);
        pthread_mutex_lock(&pipeline->lock);
        pipeline->there = pipeline->read;
        pthread_cond_signal(&pipeline->filled);
        pthread_mutex_unlock(&pipeline->lock);
    }
}

static void wait_for(Pipeline *pipeline, HsUnit *unit)
{
    bool done = false;
    while (!done) {
        pthread_mutex_lock(&pipeline->lock);
        done = unit->done;
        pthread_mutex_unlock(&pipeline->lock);
        if (done || work_once(pipeline, 0))
            continue;
        pthread_mutex_lock(&pipeline->lock);
        while (!unit->done)
            pthread_cond_wait(&pipeline->finished, &pipeline->lock);
        pthread_mutex_unlock(&pipeline->lock);
    }
}

/* The unit is all that is known of its text so far: its bytes go in front of the next one's. */
static HsStatus join(HsUnit *unit, HsUnit *next)
{
    const size_t more = unit->least;
    HS_TRY(hs_array_grow(&next->bytes, 1, more + next->text.size, &next->capacity));
    const size_t at = next->text.bytes ? (size_t)(next->text.bytes - next->bytes) : 0;
    memmove(next->bytes + more, next->bytes + at, next->text.size);
    memcpy(next->bytes, unit->text.bytes, more);
    next->text.bytes = next->bytes;
    next->text.size += more;
    next->text.offset = unit->text.offset;
    next->text.first = unit->text.first;
    next->least += more;
    next->begins = unit->begins;
    unit->dropped = true;
    return HS_OK;
}

/* A part that ended elsewhere than the next one begins: that one is worked on again. */
static HsStatus mend_border(Pipeline *pipeline, HsUnit *unit)
{
    if (!unit->is_part || unit->ends || unit->used == unit->least)
        return HS_OK;
    read_ahead(pipeline);
    if (pipeline->read == pipeline->taken + 1) { /* the rest of the text cannot be read: that is the error */
        unit->dropped = true;
        return HS_OK;
    }
    HsUnit *next = slot_of(pipeline, pipeline->taken + 1);
    wait_for(pipeline, next);
    const size_t beyond = unit->used > unit->least ? unit->used - unit->least : 0;
    if (unit->used == 0 || beyond >= next->least) {
        HS_TRY(join(unit, next));
    } else {
        next->text.bytes += beyond;
        next->text.offset += beyond;
        next->text.size -= beyond;
        next->least -= beyond;
    }
    run(pipeline, 0, next);
    return HS_OK;
}

static HsStatus take(Pipeline *pipeline, HsUnit *unit)
{
    wait_for(pipeline, unit);
    if (unit->status != HS_OK)
        return hs_fail(unit->status, "%s", unit->message);
    HS_TRY(mend_border(pipeline, unit));
    return unit->dropped ? HS_OK : pipeline->work->take(pipeline->work->user, unit);
}

/* Whether what follows the unit can be read by itself: rows of CSV need the first one. */
static bool may_stop(const HsUnit *unit)
{
    return !unit->dropped &&
           (!unit->next.inside || (unit->from->kind->cut != hs_csv_cut && unit->from->kind->cut != hs_tsv_cut));
}

static HsUnitPlace place_behind(const HsUnit *unit)
{
    HsUnitPlace place = unit->next;
    if (unit->is_part && !unit->ends) /* where it really ended */
        place.offset = unit->text.offset + unit->used;
    return place;
}

static void close_pipeline(Pipeline *pipeline)
{
    pthread_mutex_lock(&pipeline->lock);
    pipeline->stopping = true;
    pthread_cond_broadcast(&pipeline->filled);
    pthread_mutex_unlock(&pipeline->lock);
    for (int i = 0; i < pipeline->thread_count; i++)
        pthread_join(pipeline->threads[i], NULL);
    for (int i = 0; pipeline->slots && i < pipeline->slot_count; i++) {
        HsUnit *unit = &pipeline->slots[i];
        if (unit->result && pipeline->work->clear)
            pipeline->work->clear(unit->result);
        hs_unit_groups_release(unit->groups);
        free(unit->result);
        free(unit->bytes);
        free(unit->header);
    }
    free(pipeline->slots);
    free(pipeline->threads);
    hs_unit_reader_deinit(&pipeline->reader);
    pthread_mutex_destroy(&pipeline->lock);
    pthread_cond_destroy(&pipeline->filled);
    pthread_cond_destroy(&pipeline->finished);
}

static HsStatus open_slots(Pipeline *pipeline)
{
    const HsUnitWork *work = pipeline->work;
    pipeline->slot_count = SLOTS_A_THREAD * work->threads + SLOTS_MORE;
    pipeline->slots = calloc((size_t)pipeline->slot_count, sizeof *pipeline->slots);
    pipeline->threads = calloc((size_t)work->threads, sizeof *pipeline->threads);
    for (int i = 0; pipeline->slots && i < pipeline->slot_count; i++) {
        pipeline->slots[i].result = calloc(1, work->result_bytes + 1);
        if (!pipeline->slots[i].result)
            return hs_fail(HS_ENOMEM, "no memory to read the sources");
    }
    return pipeline->slots && pipeline->threads ? HS_OK : hs_fail(HS_ENOMEM, "no memory to read the sources");
}

HsStatus hs_units_run(const HsUnitWork *work)
{
    Pipeline pipeline = { .work = work,
                          .reader = { .work = work, .next = work->from ? work->from->source : work->first } };
    HsUnitPlace reached = { .source = work->last };
    int64_t weight = 0;
    pthread_mutex_init(&pipeline.lock, NULL);
    pthread_cond_init(&pipeline.filled, NULL);
    pthread_cond_init(&pipeline.finished, NULL);
    HsStatus status = open_slots(&pipeline);
    while (status == HS_OK) {
        read_ahead(&pipeline);
        if (pipeline.taken == pipeline.read)
            break;
        HsUnit *unit = slot_of(&pipeline, pipeline.taken);
        status = take(&pipeline, unit);
        pipeline.taken++;
        weight += unit->dropped ? 0 : unit->weight;
        if (status == HS_OK && work->most > 0 && weight >= work->most && may_stop(unit)) {
            reached = place_behind(unit);
            pipeline.failure = HS_OK; /* what was read ahead is not asked for */
            break;
        }
    }
    close_pipeline(&pipeline);
    if (status == HS_OK && pipeline.failure != HS_OK)
        status = hs_fail(pipeline.failure, "%s", pipeline.message);
    if (work->reached)
        *work->reached = reached;
    return status;
}
