/* SPDX-License-Identifier: MIT
 *
 * A ring of effective batches that worker threads fill ahead of the training loop.
 *
 *     slot      0        1        2        3          batch k lies in slot k mod slots
 *             [taken ] [ready ] [filling] [free]
 *              ^ the consumer's   ^ a worker's
 *
 * A worker takes the next batch number as its ticket when that number's slot is free, fills the slot without the lock,
 * then marks it ready.  What a batch holds depends on its number only, so workers may finish in any order.
 * Invariant, under the lock:  taken <= next_ticket <= taken + slots;  a slot is written by one worker, between its
 * ticket and its mark, and read by the consumer, between the mark and the next call.
 */
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/data/dataset.h"

typedef struct Slot {
    HsBatch batch;
    bool ready;
    HsStatus status; /* of filling it, with its message, which is another thread's */
    char error[512];
} Slot;

struct HsLoader {
    HsSampler sampler;
    int64_t rows, first_index;
    Slot *slots;
    int64_t slot_count;
    pthread_t *threads;
    int64_t thread_count; /* that were started */
    pthread_mutex_t lock;
    pthread_cond_t slot_freed, slot_ready;
    /* under the lock */
    int64_t next_ticket; /* first batch that no worker has taken */
    int64_t taken;       /* first batch with a slot that may not be reused: the consumer's, or the next it will take */
    bool consumer_holds; /* batch `taken` is in the consumer's hands */
    bool stopping;
};

static HsStatus fill(const HsLoader *loader, int64_t number, HsBatch *batch)
{
    const HsSampler *sampler = &loader->sampler;
    int64_t length = sampler->sequence_length;
    batch->first_index = loader->first_index + number * loader->rows;
    batch->counted = 0;
    for (int64_t row = 0; row < loader->rows; row++) {
        int32_t *targets = batch->targets + row * length;
        HS_TRY(sampler->sample(sampler->user, batch->first_index + row, batch->tokens + row * length, targets));
        for (int64_t t = 0; t < length; t++)
            batch->counted += targets[t] >= 0;
    }
    return HS_OK;
}

static void *work(void *argument)
{
    HsLoader *loader = argument;
    pthread_mutex_lock(&loader->lock);
    for (;;) {
        while (!loader->stopping && loader->next_ticket >= loader->taken + loader->slot_count)
            pthread_cond_wait(&loader->slot_freed, &loader->lock);
        if (loader->stopping)
            break;
        int64_t number = loader->next_ticket++;
        Slot *slot = &loader->slots[number % loader->slot_count];
        pthread_mutex_unlock(&loader->lock);
        slot->status = fill(loader, number, &slot->batch);
        snprintf(slot->error, sizeof slot->error, "%s", slot->status == HS_OK ? "" : hs_error_message());
        pthread_mutex_lock(&loader->lock);
        slot->ready = true;
        pthread_cond_signal(&loader->slot_ready);
    }
    pthread_mutex_unlock(&loader->lock);
    return NULL;
}

static HsStatus allocate_slots(HsLoader *loader)
{
    int64_t length = loader->sampler.sequence_length;
    loader->slots = calloc((size_t)loader->slot_count, sizeof *loader->slots);
    if (!loader->slots)
        return hs_fail(HS_ENOMEM, "no memory for %" PRId64 " prefetched batches; lower data.prefetch",
                       loader->slot_count);
    /* Bounds of the keys keep rows * length well below 2^62. */
    size_t elements = (size_t)loader->rows * (size_t)length;
    for (int64_t i = 0; i < loader->slot_count; i++) {
        HsBatch *batch = &loader->slots[i].batch;
        batch->rows = loader->rows;
        batch->tokens = calloc(elements, sizeof(int32_t));
        batch->targets = calloc(elements, sizeof(int32_t));
        if (!batch->tokens || !batch->targets)
            return hs_fail(HS_ENOMEM,
                           "no memory for %" PRId64 " prefetched batches of %" PRId64 " x %" PRId64
                           " tokens; lower data.prefetch or batch_size",
                           loader->slot_count, loader->rows, length);
    }
    return HS_OK;
}

/* Signals are for the main thread, which knows what to save: workers start with all of them blocked. */
static HsStatus start_workers(HsLoader *loader, int64_t workers)
{
    sigset_t all, before;
    loader->threads = calloc((size_t)workers, sizeof *loader->threads);
    if (!loader->threads)
        return hs_fail(HS_ENOMEM, "no memory for %" PRId64 " loader threads", workers);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int code = 0;
    while (code == 0 && loader->thread_count < workers) {
        code = pthread_create(&loader->threads[loader->thread_count], NULL, work, loader);
        loader->thread_count += code == 0;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (code != 0)
        return hs_fail(HS_ENOMEM,
                       "loader thread %" PRId64 " of %" PRId64
                       " cannot be started, as memory or threads ran out: %s; lower data.workers",
                       loader->thread_count + 1, workers, strerror(code));
    return HS_OK;
}

HsStatus hs_loader_create(const HsSampler *sampler, int64_t rows, int64_t first_index, int64_t prefetch,
                          int64_t workers, HsLoader **result)
{
    if (rows < 1 || first_index < 0 || prefetch < 1 || workers < 1)
        return hs_fail(
            HS_EINVAL,
            "a loader needs rows, prefetch and workers of at least 1 and an index of at least 0 (got %" PRId64
            ", %" PRId64 ", %" PRId64 ", %" PRId64 ")",
            rows, prefetch, workers, first_index);
    HsLoader *loader = calloc(1, sizeof *loader);
    if (!loader)
        return hs_fail(HS_ENOMEM, "no memory for a loader");
    loader->sampler = *sampler;
    loader->rows = rows;
    loader->first_index = first_index;
    loader->slot_count = prefetch + 1; /* one is in the consumer's hands */
    pthread_mutex_init(&loader->lock, NULL);
    pthread_cond_init(&loader->slot_freed, NULL);
    pthread_cond_init(&loader->slot_ready, NULL);
    HsStatus status = allocate_slots(loader);
    if (status == HS_OK)
        status = start_workers(loader, workers);
    if (status != HS_OK) {
        hs_loader_destroy(loader);
        return status;
    }
    *result = loader;
    return HS_OK;
}

HsStatus hs_loader_next(HsLoader *loader, const HsBatch **batch)
{
    pthread_mutex_lock(&loader->lock);
    if (loader->consumer_holds) {
        loader->slots[loader->taken % loader->slot_count].ready = false;
        loader->taken++;
        pthread_cond_signal(&loader->slot_freed);
    }
    Slot *slot = &loader->slots[loader->taken % loader->slot_count];
    while (!slot->ready)
        pthread_cond_wait(&loader->slot_ready, &loader->lock);
    loader->consumer_holds = true;
    pthread_mutex_unlock(&loader->lock);
    *batch = &slot->batch;
    return slot->status == HS_OK ? HS_OK : hs_fail(slot->status, "%s", slot->error);
}

void hs_loader_destroy(HsLoader *loader)
{
    if (!loader)
        return;
    pthread_mutex_lock(&loader->lock);
    loader->stopping = true;
    pthread_cond_broadcast(&loader->slot_freed);
    pthread_mutex_unlock(&loader->lock);
    for (int64_t i = 0; i < loader->thread_count; i++)
        pthread_join(loader->threads[i], NULL);
    pthread_mutex_destroy(&loader->lock);
    pthread_cond_destroy(&loader->slot_freed);
    pthread_cond_destroy(&loader->slot_ready);
    for (int64_t i = 0; loader->slots && i < loader->slot_count; i++) {
        free(loader->slots[i].batch.tokens);
        free(loader->slots[i].batch.targets);
    }
    free(loader->slots);
    free(loader->threads);
    free(loader);
}
