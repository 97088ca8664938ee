/* SPDX-License-Identifier: MIT
 *
 * The ring of steps under way.  What goes up lies together, and so does what comes back:
 *
 *     slot     | tokens | targets | target rows | the same three of reference rows | input || losses | outcome |
 *     logits   ...  | replayed | kept values | kept indices | input || losses | terms | top values | top indices | ...
 *     device   the same up to the bars for each slot (staging), and once batch and losses at fixed places
 */
#include "runtime/train/step_queue.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT_BYTES = 64 };

typedef struct Layout {
    size_t batch, reference;    /* bytes of tokens alone */
    size_t tokens, marks, kept; /* of arrays where logits are compared; 0 where they are not */
    size_t input, losses, outcome, end;
} Layout;

static size_t aligned(size_t bytes)
{
    return (bytes + ALIGNMENT_BYTES - 1) / ALIGNMENT_BYTES * ALIGNMENT_BYTES;
}

static Layout layout_of(const HsStepShape *shape)
{
    Layout layout;
    layout.batch = aligned((size_t)(shape->rows * shape->length) * sizeof(int32_t));
    layout.reference = aligned((size_t)(shape->reference_rows * shape->length) * sizeof(int32_t));
    const size_t tokens = (size_t)(shape->rows * shape->length);
    layout.tokens = aligned(tokens * hs_dtype_bytes(shape->loss));
    layout.marks = shape->compares ? aligned(tokens * sizeof(int32_t)) : 0;
    layout.kept = aligned(tokens * (size_t)shape->kept * sizeof(float));
    layout.input = 3 * layout.batch + 3 * layout.reference + layout.marks + 2 * layout.kept;
    layout.losses = layout.input + aligned(sizeof(HsStepInput));
    layout.outcome = layout.losses + layout.tokens + (shape->compares ? layout.tokens : 0) + 2 * layout.kept;
    layout.end = layout.outcome + aligned(sizeof(HsStepOutcome));
    return layout;
}

static HsStepBatch batch_at(unsigned char *bytes, const Layout *layout)
{
    unsigned char *const reference = bytes + 3 * layout->batch, *const marks = reference + 3 * layout->reference;
    return (HsStepBatch){
        .tokens = (int32_t *)bytes,
        .targets = (int32_t *)(bytes + layout->batch),
        .target_rows = (int32_t *)(bytes + 2 * layout->batch),
        .reference_tokens = (int32_t *)reference,
        .reference_targets = (int32_t *)(reference + layout->reference),
        .reference_target_rows = (int32_t *)(reference + 2 * layout->reference),
        .replayed = (int32_t *)marks,
        .kept_value = (float *)(marks + layout->marks),
        .kept_index = (int32_t *)(marks + layout->marks + layout->kept),
    };
}

static HsStepLogits logits_at(unsigned char *losses, const Layout *layout)
{
    return (HsStepLogits){
        .terms = losses + layout->tokens,
        .top_value = (float *)(losses + 2 * layout->tokens),
        .top_index = (int32_t *)(losses + 2 * layout->tokens + layout->kept),
    };
}

/* The host's own memory is worked on at once: nothing could run ahead. */
static int capacity_on(const HsDevice *device, const HsStepShape *shape)
{
    return device->host_accessible || shape->kept > 0 ? 1 : HS_STEPS_AHEAD;
}

/* Fixed memory: batch and losses; then the slots' staging. */
size_t hs_step_queue_bytes(const HsDevice *device, const HsStepShape *shape)
{
    const Layout layout = layout_of(shape);
    return layout.input + (layout.outcome - layout.losses) + (size_t)capacity_on(device, shape) * layout.losses;
}

static HsStatus init_slot(HsStepQueue *queue, const Layout *layout, int index)
{
    HsStepSlot *slot = &queue->slots[index];
    HsDevice *device = queue->context->device;
    unsigned char *host = queue->host_block + (size_t)index * layout->end;
    slot->batch = batch_at(host, layout);
    slot->input = (HsStepInput *)(host + layout->input);
    slot->losses = host + layout->losses;
    slot->logits = logits_at(host + layout->losses, layout);
    slot->outcome = (HsStepOutcome *)(host + layout->outcome);
    slot->staging =
        queue->device_block + layout->input + (layout->outcome - layout->losses) + (size_t)index * layout->losses;
    if (!queue->context->dry_run)
        slot->replayed = malloc((size_t)queue->shape.rows);
    if (!slot->replayed && !queue->context->dry_run)
        return hs_fail(HS_ENOMEM, "no memory for the marks of %lld sequences", (long long)queue->shape.rows);
    HS_TRY(device->event_create(device, &slot->loaded));
    return device->event_create(device, &slot->done);
}

HsStatus hs_step_queue_init(HsStepQueue *queue, HsContext *context, const HsStepShape *shape)
{
    const Layout layout = layout_of(shape);
    HsDevice *device = context->device;
    HsStatus status = HS_OK;
    void *block = NULL;
    *queue = (HsStepQueue){ .context = context, .shape = *shape, .capacity = capacity_on(device, shape) };
    HS_TRY_GOTO(status, hs_memory_alloc(device, HS_MEMORY_BATCHES, hs_step_queue_bytes(device, shape), &block), failed);
    queue->device_block = block;
    queue->batch = batch_at(queue->device_block, &layout);
    queue->losses = queue->device_block + layout.input;
    queue->logits = logits_at(queue->device_block + layout.input, &layout);
    HS_TRY_GOTO(status, device->host_alloc(device, (size_t)queue->capacity * layout.end, &block), failed);
    queue->host_block = block;
    if (!context->dry_run) {
        memset(queue->host_block, 0, (size_t)queue->capacity * layout.end);
        queue->target_counts = calloc((size_t)(shape->rows + shape->reference_rows), sizeof *queue->target_counts);
        if (!queue->target_counts)
            HS_TRY_GOTO(status, hs_fail(HS_ENOMEM, "no memory for the counts of targets"), failed);
    }
    HS_TRY_GOTO(status, device->stream_create(device, &queue->copies), failed);
    for (int i = 0; i < queue->capacity; i++)
        HS_TRY_GOTO(status, init_slot(queue, &layout, i), failed);
    return HS_OK;
failed:
    hs_step_queue_deinit(queue);
    return hs_error_prefix(status, "batches of %lld sequences", (long long)shape->rows);
}

void hs_step_queue_deinit(HsStepQueue *queue)
{
    if (!queue->context)
        return;
    HsDevice *device = queue->context->device;
    /* After a failure work may still be under way that uses this memory. */
    (void)device->stream_sync(device, queue->context->stream);
    (void)device->stream_sync(device, queue->copies);
    for (int i = 0; i < queue->capacity; i++) {
        HsStepSlot *slot = &queue->slots[i];
        if (slot->loaded)
            device->event_destroy(device, slot->loaded);
        if (slot->done)
            device->event_destroy(device, slot->done);
        free(slot->replayed);
    }
    free(queue->target_counts);
    if (queue->copies)
        device->stream_destroy(device, queue->copies);
    if (queue->host_block)
        device->host_release(device, queue->host_block);
    hs_memory_release(device, HS_MEMORY_BATCHES, hs_step_queue_bytes(device, &queue->shape), queue->device_block);
    *queue = (HsStepQueue){ 0 };
}

/* Of some sequences, micro-batch by micro-batch; returns the most that one has. */
static int64_t list_targets(const HsStepQueue *queue, const int32_t *targets, int64_t rows, int64_t micro_batch,
                            int32_t *list, int64_t *counts)
{
    const int64_t length = queue->shape.length;
    int64_t most = 0;
    for (int64_t row = 0; row < rows; row += micro_batch) {
        const int64_t sequences = rows - row < micro_batch ? rows - row : micro_batch;
        counts[row] = hs_target_rows_list(targets + row * length, sequences * length, list + row * length);
        most = counts[row] > most ? counts[row] : most;
    }
    return most;
}

/* A recorded step has as many rows in each micro-batch, the most that one of them has.  Not of this process's alone: so
 * the bits do not depend on how many processes there are. */
static void count_targets(HsStepQueue *queue, const HsStepSlot *slot, int64_t micro_batch)
{
    const HsStepBatch *batch = &slot->batch;
    const int64_t rows = queue->shape.rows, tokens = micro_batch * queue->shape.length;
    int64_t *const counts = queue->target_counts;
    const int64_t most = list_targets(queue, batch->targets, rows, micro_batch, batch->target_rows, counts);
    list_targets(queue, batch->reference_targets, slot->reference_rows, micro_batch, batch->reference_target_rows,
                 counts + rows);
    queue->target_size = hs_target_rows_size(tokens, most);
    for (int64_t row = 0; row < rows && queue->context->device->graph_begin; row++)
        counts[row] = hs_target_rows_of_size(tokens, queue->target_size);
}

HsStepSlot *hs_step_queue_fill(HsStepQueue *queue, const HsStreamBatch *batch, int64_t micro_batch)
{
    assert(!hs_step_queue_full(queue));
    assert(batch->rows == queue->shape.rows);
    assert(batch->reference_rows == 0 || batch->reference_rows == queue->shape.reference_rows);
    HsStepSlot *slot = &queue->slots[(queue->first + queue->count) % queue->capacity];
    const size_t bytes = (size_t)(batch->rows * queue->shape.length) * sizeof(int32_t);
    const size_t reference_bytes = (size_t)(batch->reference_rows * queue->shape.length) * sizeof(int32_t);
    memcpy(slot->batch.tokens, batch->tokens, bytes);
    memcpy(slot->batch.targets, batch->targets, bytes);
    if (reference_bytes > 0) {
        memcpy(slot->batch.reference_tokens, batch->reference_tokens, reference_bytes);
        memcpy(slot->batch.reference_targets, batch->reference_targets, reference_bytes);
    }
    memcpy(slot->replayed, batch->replayed, (size_t)batch->rows);
    for (int64_t i = 0; queue->shape.compares && i < batch->rows * queue->shape.length; i++)
        slot->batch.replayed[i] = batch->replayed[i / queue->shape.length];
    slot->counted = batch->counted;
    slot->reference_counted = batch->reference_counted;
    slot->reference_rows = batch->reference_rows;
    slot->step = batch->step;
    count_targets(queue, slot, micro_batch);
    return slot;
}

HsStatus hs_step_queue_send(HsStepQueue *queue, HsStepSlot *slot, HsStepInput *device_input)
{
    const Layout layout = layout_of(&queue->shape);
    HsDevice *device = queue->context->device;
    HsStream *stream = queue->context->stream;
    HS_TRY(device->copy(device, queue->copies, slot->staging, slot->batch.tokens, layout.losses));
    HS_TRY(device->event_record(device, slot->loaded, queue->copies));
    HS_TRY(device->stream_wait(device, stream, slot->loaded));
    /* Behind the step before, which still reads its own. */
    HS_TRY(device->copy(device, stream, queue->batch.tokens, slot->staging, layout.input));
    return device->copy(device, stream, device_input, slot->staging + layout.input, sizeof *device_input);
}

HsStatus hs_step_queue_receive(HsStepQueue *queue, HsStepSlot *slot, const HsStepOutcome *device_outcome)
{
    const Layout layout = layout_of(&queue->shape);
    HsDevice *device = queue->context->device;
    HsStream *stream = queue->context->stream;
    HS_TRY(device->copy(device, stream, slot->losses, queue->losses, layout.outcome - layout.losses));
    HS_TRY(device->copy(device, stream, slot->outcome, device_outcome, sizeof *device_outcome));
    HS_TRY(device->event_record(device, slot->done, stream));
    queue->count++;
    return HS_OK;
}

HsStatus hs_step_queue_wait(HsStepQueue *queue, HsStepSlot **slot)
{
    assert(queue->count > 0);
    *slot = &queue->slots[queue->first];
    HS_TRY(queue->context->device->event_sync(queue->context->device, (*slot)->done));
    queue->first = (queue->first + 1) % queue->capacity;
    queue->count--;
    return HS_OK;
}
