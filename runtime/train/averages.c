/* SPDX-License-Identifier: MIT
 *
 * The model as the moving averages of its parameters have it (average.decay): what is evaluated, sampled and written to
 * model.safetensors.  For an evaluation the weights become the averages, rounded, and afterwards the masters, rounded,
 * again; where there is no master, a copy of the weights is kept for that time.  Training sees none of it.
 */
#include <stdlib.h>
#include <string.h>

#include "runtime/train/run.h"

static bool averages(const HsTraining *training)
{
    return training->optimizer.config.average_decay > 0;
}

HsStatus hs_training_create_averages(HsTraining *training)
{
    HsAveraging *averaging = &training->averaging;
    const size_t count = (size_t)training->span_count;
    if (!averages(training))
        return HS_OK;
    averaging->shown = calloc(count + 1, sizeof *averaging->shown);
    averaging->kept = calloc(count + 1, sizeof *averaging->kept);
    if (!averaging->shown || !averaging->kept)
        return hs_fail(HS_ENOMEM, "no memory to list %zu averages", count);
    hs_arena_init(&averaging->memory, &training->engine.device, HS_MEMORY_MASTERS);
    for (size_t i = 0; i < count; i++) {
        const HsSpan *span = &training->spans[i];
        averaging->shown[i] = *span;
        averaging->shown[i].master = *hs_optimizer_average(&training->optimizer.config, span);
        if (hs_tensor_present(&span->master))
            continue;
        averaging->kept[i] = span->weight;
        averaging->kept[i].data =
            (void *)(uintptr_t)hs_arena_reserve(&averaging->memory, hs_tensor_bytes(&span->weight));
    }
    if (averaging->memory.used > 0)
        HS_TRY(hs_arena_commit(&averaging->memory));
    for (size_t i = 0; i < count; i++)
        if (hs_tensor_present(&averaging->kept[i]))
            averaging->kept[i].data = hs_arena_at(&averaging->memory, (size_t)(uintptr_t)averaging->kept[i].data);
    return HS_OK;
}

void hs_training_destroy_averages(HsTraining *training)
{
    HsAveraging *averaging = &training->averaging;
    if (averaging->memory.device)
        hs_arena_deinit(&averaging->memory);
    free(averaging->shown);
    free(averaging->kept);
    *averaging = (HsAveraging){ 0 };
}

static HsStatus copy_weights(HsTraining *training, bool back)
{
    HsDevice *device = &training->engine.device;
    const HsTensor *kept = training->averaging.kept;
    for (int i = 0; i < training->span_count; i++) {
        void *weight = training->spans[i].weight.data;
        if (hs_tensor_present(&kept[i]))
            HS_TRY(device->copy(device, training->engine.context.stream, back ? weight : kept[i].data,
                                back ? kept[i].data : weight, hs_tensor_bytes(&kept[i])));
    }
    return HS_OK;
}

HsStatus hs_training_show_averages(HsTraining *training)
{
    if (!averages(training))
        return HS_OK;
    HS_TRY(copy_weights(training, false));
    return hs_training_ready_weights_of(training, training->averaging.shown);
}

HsStatus hs_training_hide_averages(HsTraining *training, HsStatus status)
{
    if (!averages(training) || status != HS_OK) /* an evaluation that failed ends the run */
        return status;
    HS_TRY(copy_weights(training, true));
    return hs_training_ready_weights(training);
}

HsSpan *hs_training_averaged_parameters(const HsTraining *training)
{
    const HsShards *shards = &training->exchange.shards;
    HsSpan *spans = calloc((size_t)shards->whole_count + 1, sizeof *spans);
    if (!spans)
        return NULL;
    memcpy(spans, shards->whole, (size_t)shards->whole_count * sizeof *spans);
    for (int i = 0; averages(training) && i < shards->whole_count; i++)
        spans[i].master = *hs_optimizer_average(&training->optimizer.config, &spans[i]);
    return spans;
}
