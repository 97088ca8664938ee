/* SPDX-License-Identifier: MIT
 *
 * The model as the means of its parameters have it: moving averages (average.decay), or those that schedule-free AdamW
 * derives from what it trains (optim/schedule_free.c).  This is what is evaluated, sampled and written to
 * model.safetensors.  For an evaluation the weights become the means, rounded, and afterwards the masters, rounded,
 * again; where there is no master, the weights are kept for that time in the gradient's memory, which is as large and of
 * zeros between two steps.  Training sees none of it.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/train/run.h"

static bool averages(const HsTraining *training)
{
    return training->optimizer.config.average_decay > 0;
}

static bool derives(const HsTraining *training, const HsSpan *span)
{
    return hs_optimizer_derives(&training->optimizer.config, span);
}

bool hs_training_shows_means(const HsTraining *training)
{
    bool any = averages(training);
    const HsShards *shards = &training->exchange.shards;
    for (int i = 0; i < shards->whole_count && !any; i++)
        any = derives(training, &shards->whole[i]);
    return any;
}

HsStatus hs_training_create_averages(HsTraining *training)
{
    const size_t count = (size_t)training->span_count;
    if (!averages(training))
        return HS_OK;
    training->averaged = calloc(count + 1, sizeof *training->averaged);
    if (!training->averaged)
        return hs_fail(HS_ENOMEM, "no memory to list %zu averages", count);
    for (size_t i = 0; i < count; i++) {
        training->averaged[i] = training->spans[i];
        training->averaged[i].master = *hs_optimizer_average(&training->optimizer.config, &training->spans[i]);
    }
    return HS_OK;
}

void hs_training_destroy_averages(HsTraining *training)
{
    free(training->averaged);
    training->averaged = NULL;
}

/* Weights without a master go to their gradients' memory, or come back. */
static HsStatus keep_weights(HsTraining *training, bool back)
{
    HsDevice *device = &training->engine.device;
    HsStream *stream = training->engine.context.stream;
    for (int i = 0; i < training->span_count; i++) {
        const HsSpan *span = &training->spans[i];
        const size_t bytes = hs_tensor_bytes(&span->weight);
        void *const weight = span->weight.data, *const gradient = span->gradient.data;
        if (hs_tensor_present(&span->master) || !(averages(training) || derives(training, span)))
            continue;
        assert(hs_tensor_bytes(&span->gradient) >= bytes);
        HS_TRY(device->copy(device, stream, back ? weight : gradient, back ? gradient : weight, bytes));
        if (back)
            HS_TRY(device->fill_zero(device, stream, gradient, bytes));
    }
    return HS_OK;
}

HsStatus hs_training_show_averages(HsTraining *training)
{
    HsContext *context = &training->engine.context;
    if (!hs_training_shows_means(training))
        return HS_OK;
    HS_TRY(keep_weights(training, false));
    if (averages(training))
        return hs_training_ready_weights_of(training, training->averaged);
    HS_TRY(hs_optimizer_show(&training->optimizer, context, training->spans, training->span_count));
    HS_TRY(hs_shards_gather_weights(&training->exchange.shards, context));
    return hs_model_pack(&training->model, context);
}

HsStatus hs_training_hide_averages(HsTraining *training, HsStatus status)
{
    if (!hs_training_shows_means(training) || status != HS_OK) /* an evaluation that failed ends the run */
        return status;
    HS_TRY(keep_weights(training, true));
    return hs_training_ready_weights(training);
}

/* Elements of a whole parameter that this process has, from *first on. */
static int64_t own_elements(const HsSpan *whole, int64_t *first)
{
    *first = 0;
    return whole->share.comm ? hs_tensor_share_of(&whole->share, whole->count, whole->share.comm->rank, first)
                             : whole->count;
}

HsSpan *hs_training_averaged_parameters(const HsTraining *training)
{
    const HsShards *shards = &training->exchange.shards;
    HsSpan *spans = calloc((size_t)shards->whole_count + 1, sizeof *spans);
    if (!spans)
        return NULL;
    memcpy(spans, shards->whole, (size_t)shards->whole_count * sizeof *spans);
    for (int i = 0; i < shards->whole_count; i++) {
        HsSpan *span = &spans[i];
        int64_t first;
        if (averages(training))
            span->master = *hs_optimizer_average(&training->optimizer.config, span);
        if (!derives(training, span) || hs_tensor_present(&span->master))
            continue;
        /* Of a weight that all have, too, each writes the range that it can derive. */
        const bool own = own_elements(span, &first) > 0, all = !training->exchange.shards.streams;
        span->master = span->weight;
        span->master.data =
            !own  ? NULL
            : all ? (unsigned char *)span->weight.data + (size_t)first * hs_dtype_bytes(span->weight.dtype)
                  : span->weight.data;
    }
    return spans;
}

static HsStatus derive_part(const HsNamedTensor *named, int64_t first, int64_t count, void *host)
{
    const HsTraining *training = named->user;
    const HsSpan *whole = &training->exchange.shards.whole[named->index];
    const size_t width = hs_dtype_bytes(named->tensor.dtype), apart = hs_dtype_bytes(whole->state[0].dtype);
    const bool master = hs_tensor_present(&whole->master);
    const HsTensor y =
        hs_tensor_1d((unsigned char *)named->tensor.data + (size_t)first * width, named->tensor.dtype, count);
    const HsTensor z_minus_y = hs_tensor_1d(
        (unsigned char *)whole->state[0].data + (size_t)(named->before + first) * apart, whole->state[0].dtype, count);
    HsContext context = training->engine.context;
    return hs_optimizer_derive(&training->optimizer, &context, &y, master, &z_minus_y, host);
}

void hs_training_derive_items(const HsTraining *training, const HsSpan *spans, HsWeights *weights)
{
    const HsShards *shards = &training->exchange.shards;
    for (int w = 0; w < shards->whole_count; w++) {
        int64_t first;
        const int64_t own = own_elements(&spans[w], &first);
        const unsigned char *const begin = spans[w].master.data;
        const size_t width = hs_dtype_bytes(spans[w].master.dtype);
        if (!derives(training, &spans[w]) || own == 0)
            continue;
        for (int i = 0; i < weights->count; i++) {
            HsNamedTensor *item = &weights->items[i];
            const unsigned char *const data = item->tensor.data;
            if (!data || data < begin || data >= begin + (size_t)own * width)
                continue;
            item->derive = derive_part;
            item->user = training;
            item->index = w;
            item->before = (data - begin) / (int64_t)width;
        }
    }
}
