/* SPDX-License-Identifier: MIT
 *
 * The ring of steps under way, on the host's memory and on a device with its own: batches arrive where steps read them,
 * reports come back in order, and a slot is not written before its step is over.
 */
#include <criterion/criterion.h>
#include <string.h>

#include "runtime/engine/engine.h"
#include "runtime/train/step_queue.h"

enum { ROWS = 3, LENGTH = 7, TOKENS = ROWS * LENGTH, ROUNDS = 25 };

typedef struct Fixture {
    HsEngine engine;
    HsStepQueue queue;
    void *input, *outcome; /* device */
} Fixture;

static void make(Fixture *fixture, const char *device)
{
    const HsEngineOptions options = { .device = device, .threads = 1 };
    const HsStepShape shape = { .rows = ROWS, .reference_rows = 1, .length = LENGTH, .loss = HS_F32 };
    cr_assert_eq(hs_engine_init(&fixture->engine, &options), HS_OK, "%s", hs_error_message());
    HsDevice *own = &fixture->engine.device;
    cr_assert_eq(own->alloc(own, sizeof(HsStepInput), &fixture->input), HS_OK);
    cr_assert_eq(own->alloc(own, sizeof(HsStepOutcome), &fixture->outcome), HS_OK);
    const size_t before = own->current_bytes;
    cr_assert_eq(hs_step_queue_init(&fixture->queue, &fixture->engine.context, &shape), HS_OK);
    cr_expect_eq(own->current_bytes - before, hs_step_queue_bytes(own, &shape));
}

static void unmake(Fixture *fixture)
{
    HsDevice *own = &fixture->engine.device;
    hs_step_queue_deinit(&fixture->queue);
    own->release(own, fixture->input);
    own->release(own, fixture->outcome);
    hs_engine_deinit(&fixture->engine);
}

/* In the place of a step: the tokens come back as losses (the bits of a float), the input's rate as the norm. */
static void start(Fixture *fixture, int round)
{
    int32_t tokens[TOKENS], targets[TOKENS], reference[LENGTH];
    uint8_t replayed[ROWS] = { 0, 1, (uint8_t)(round % 2) };
    for (int i = 0; i < TOKENS; i++) {
        tokens[i] = 1000 * round + i;
        targets[i] = -tokens[i];
    }
    for (int i = 0; i < LENGTH; i++)
        reference[i] = 7 * round + i;
    const HsStreamBatch batch = { .rows = ROWS,
                                  .tokens = tokens,
                                  .targets = targets,
                                  .replayed = replayed,
                                  .counted = round,
                                  .reference_rows = 1,
                                  .reference_tokens = reference,
                                  .reference_targets = reference };
    HsStepQueue *queue = &fixture->queue;
    HsDevice *own = &fixture->engine.device;
    HsStream *stream = fixture->engine.context.stream;
    HsStepSlot *slot = hs_step_queue_fill(queue, &batch, 1);
    cr_assert_eq(queue->target_counts[ROWS], LENGTH, "each reference row has a target");
    for (int i = 0; i < LENGTH; i++)
        cr_assert_eq(slot->batch.reference_target_rows[i], i);
    *slot->input = (HsStepInput){ .learning_rates = { (double)round } };
    cr_assert_eq(hs_step_queue_send(queue, slot, fixture->input), HS_OK);
    cr_assert_eq(own->copy(own, stream, queue->losses, queue->batch.tokens, sizeof tokens), HS_OK);
    cr_assert_eq(own->copy(own, stream, (char *)fixture->outcome + offsetof(HsStepOutcome, gradient_norm),
                           fixture->input, sizeof(double)),
                 HS_OK);
    cr_assert_eq(own->copy(own, stream, (char *)fixture->outcome + offsetof(HsStepOutcome, first_nonfinite),
                           queue->batch.reference_targets + 4, sizeof(int32_t)),
                 HS_OK);
    cr_assert_eq(hs_step_queue_receive(queue, slot, fixture->outcome), HS_OK);
}

static void finish(Fixture *fixture, int round)
{
    HsStepSlot *slot;
    cr_assert_eq(hs_step_queue_wait(&fixture->queue, &slot), HS_OK);
    cr_assert_eq(slot->counted, round);
    cr_assert_eq(slot->replayed[2], round % 2);
    for (int i = 0; i < TOKENS; i++) {
        int32_t loss_bits;
        memcpy(&loss_bits, (const char *)slot->losses + (size_t)i * sizeof loss_bits, sizeof loss_bits);
        cr_assert_eq(loss_bits, 1000 * round + i);
        cr_assert_eq(slot->batch.targets[i], -(1000 * round + i));
    }
    int32_t reference;
    memcpy(&reference, &slot->outcome->first_nonfinite, sizeof reference);
    cr_assert_eq(reference, 7 * round + 4);
    cr_assert_eq(slot->outcome->gradient_norm, (double)round);
}

static void run_rounds(const char *device, int capacity)
{
    Fixture fixture = { 0 };
    make(&fixture, device);
    cr_expect_eq(fixture.queue.capacity, capacity);
    int started = 0, finished = 0;
    /* Full, then one out and one in, then by turns fuller and emptier. */
    while (finished < ROUNDS) {
        while (started < ROUNDS && !hs_step_queue_full(&fixture.queue) && (started % 5 != 4 || fixture.queue.count < 2))
            start(&fixture, started++);
        finish(&fixture, finished++);
    }
    cr_expect_eq(fixture.queue.count, 0);
    unmake(&fixture);
}

Test(step_queue, the_host_has_one_step_at_a_time)
{
    run_rounds("cpu", 1);
}

Test(step_queue, a_separate_device_runs_behind)
{
    run_rounds("emu", HS_STEPS_AHEAD);
}

/* Logits go up with the tokens and come back with the losses; one step is under way at a time. */
Test(step_queue, logits)
{
    enum { KEPT = 2, ENTRIES = TOKENS * KEPT };
    Fixture fixture = { 0 };
    const HsStepShape shape = { .rows = ROWS, .length = LENGTH, .loss = HS_F32, .compares = true, .kept = KEPT };
    make(&fixture, "emu");
    hs_step_queue_deinit(&fixture.queue);
    HsStepQueue *queue = &fixture.queue;
    HsDevice *own = &fixture.engine.device;
    HsStream *stream = fixture.engine.context.stream;
    const size_t before = own->current_bytes;
    cr_assert_eq(hs_step_queue_init(queue, &fixture.engine.context, &shape), HS_OK);
    cr_expect_eq(own->current_bytes - before, hs_step_queue_bytes(own, &shape));
    cr_expect_eq(queue->capacity, 1);
    int32_t tokens[TOKENS] = { 0 };
    uint8_t replayed[ROWS] = { 0, 1, 0 };
    const HsStreamBatch batch = { .rows = ROWS, .tokens = tokens, .targets = tokens, .replayed = replayed };
    for (int round = 0; round < 3; round++) {
        HsStepSlot *slot = hs_step_queue_fill(queue, &batch, 1);
        for (int i = 0; i < ENTRIES; i++) {
            slot->batch.kept_value[i] = (float)(100 * round + i);
            slot->batch.kept_index[i] = 1000 * round + i;
        }
        cr_assert_eq(hs_step_queue_send(queue, slot, fixture.input), HS_OK);
        const size_t bytes = ENTRIES * sizeof(float);
        cr_assert_eq(own->copy(own, stream, queue->logits.top_value, queue->batch.kept_value, bytes), HS_OK);
        cr_assert_eq(own->copy(own, stream, queue->logits.top_index, queue->batch.kept_index, bytes), HS_OK);
        cr_assert_eq(own->copy(own, stream, queue->logits.terms, queue->batch.replayed, TOKENS * sizeof(int32_t)),
                     HS_OK);
        cr_assert_eq(hs_step_queue_receive(queue, slot, fixture.outcome), HS_OK);
        cr_assert_eq(hs_step_queue_wait(queue, &slot), HS_OK);
        for (int i = 0; i < ENTRIES; i++) {
            cr_assert_eq(slot->logits.top_value[i], (float)(100 * round + i));
            cr_assert_eq(slot->logits.top_index[i], 1000 * round + i);
        }
        int32_t marks[TOKENS];
        memcpy(marks, slot->logits.terms, sizeof marks);
        for (int i = 0; i < TOKENS; i++)
            cr_assert_eq(marks[i], i / LENGTH == 1);
    }
    unmake(&fixture);
}

Test(step_queue, deinit_is_safe_on_zeros_and_with_steps_under_way)
{
    HsStepQueue empty = { 0 };
    hs_step_queue_deinit(&empty);
    Fixture fixture = { 0 };
    make(&fixture, "emu");
    start(&fixture, 0);
    start(&fixture, 1);
    unmake(&fixture);
}
