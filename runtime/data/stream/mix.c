/* SPDX-License-Identifier: MIT
 *
 * What a batch holds: new sequences of the window, replayed ones, and a-gem's reference.
 *
 *     loader   ... [ window w: rows that hs_replay_window_rows says ][ window w+1 ...
 *                         | copied, because the groups of a window use them again
 *     window buffer       v                                 reservoir
 *     batch    [ new rows, in order | replayed rows, in the order of their draws ]
 *
 * The reservoir does not change within a window, so that "empty at the window's start" and all draws of the window
 * can be found again by a run that resumes inside it.
 */
#include "runtime/data/stream/internal.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* A draw's number has the task in its upper bits, the plan's number below: unique over the whole run. */
enum { DRAW_BITS = 40 };

static HsStatus allocate_rows(int64_t rows, int64_t length, int32_t **tokens, int32_t **targets)
{
    /* Bounds of the keys keep rows * length well below 2^62. */
    size_t elements = (size_t)rows * (size_t)length;
    *tokens = calloc(elements, sizeof(int32_t));
    *targets = calloc(elements, sizeof(int32_t));
    if (!*tokens || !*targets)
        return hs_fail(HS_ENOMEM, "no memory for %" PRId64 " sequences of %" PRId64 " tokens; lower batch_size", rows,
                       length);
    return HS_OK;
}

HsStatus hs_mixer_init(HsMixer *mixer, const HsReplayPlan *plan, HsReservoir *reservoir, int64_t length)
{
    *mixer = (HsMixer){ .plan = *plan, .reservoir = reservoir, .length = length };
    mixer->taken = calloc((size_t)hs_replay_window_rows_most(plan), sizeof *mixer->taken);
    if (!mixer->taken)
        return hs_fail(HS_ENOMEM, "no memory for a window of %" PRId64 " sequences; lower batch_size",
                       hs_replay_window_rows_most(plan));
    return allocate_rows(hs_replay_window_rows_most(plan), length, &mixer->tokens, &mixer->targets);
}

void hs_mixer_deinit(HsMixer *mixer)
{
    free(mixer->tokens);
    free(mixer->targets);
    free(mixer->taken);
    *mixer = (HsMixer){ 0 };
}

HsStatus hs_mixer_slot_init(const HsMixer *mixer, HsStreamSlot *slot)
{
    HsStreamBatch *batch = &slot->batch;
    batch->rows = mixer->plan.rows;
    HS_TRY(allocate_rows(batch->rows, mixer->length, &batch->tokens, &batch->targets));
    if (mixer->plan.reference_rows > 0)
        HS_TRY(allocate_rows(mixer->plan.reference_rows, mixer->length, &batch->reference_tokens,
                             &batch->reference_targets));
    slot->replayed = calloc((size_t)batch->rows, 1);
    slot->slots = calloc((size_t)batch->rows, sizeof *slot->slots);
    batch->replayed = slot->replayed;
    batch->slots = slot->slots;
    return slot->replayed && slot->slots ? HS_OK
                                         : hs_fail(HS_ENOMEM, "no memory for a batch of %" PRId64 " rows", batch->rows);
}

void hs_mixer_slot_deinit(HsStreamSlot *slot)
{
    free(slot->batch.tokens);
    free(slot->batch.targets);
    free(slot->batch.reference_tokens);
    free(slot->batch.reference_targets);
    free(slot->replayed);
    free(slot->slots);
    *slot = (HsStreamSlot){ 0 };
}

void hs_mixer_begin(HsMixer *mixer, int task, const HsReplayPlan *plan, HsLoader *loader,
                    const HsStreamPosition *position)
{
    mixer->plan = *plan;
    mixer->task = task;
    mixer->loader = loader;
    mixer->loaded = NULL;
    mixer->loaded_used = 0;
    mixer->next = *position;
    mixer->window_open = false;
}

/* Offers the first `rows` sequences of the window buffer to the reservoir; those of a task that is not to be retained are
 * never offered, so that the others stay a uniform sample of what is. */
static void remember(HsMixer *mixer, int64_t rows)
{
    mixer->taken_count = mixer->reservoir && !mixer->rehearses ? rows : 0;
    for (int64_t row = 0; row < mixer->taken_count; row++)
        mixer->taken[row] = mixer->forgets ? -1
                                           : hs_reservoir_add(mixer->reservoir, mixer->tokens + row * mixer->length,
                                                              mixer->targets + row * mixer->length, mixer->task);
}

/* Which of the reservoir's sequences a task replays: those of earlier tasks, or any. */
static int drawn_before(const HsMixer *mixer)
{
    return mixer->plan.choice == HS_REPLAY_EARLIER ? mixer->task : HS_RESERVOIR_ANY_TASK;
}

/* The window's new sequences, out of as many of the loader's batches as they lie in. */
static HsStatus open_window(HsMixer *mixer)
{
    int64_t length = mixer->length;
    size_t row_bytes = (size_t)length * sizeof(int32_t);
    mixer->empty_reservoir = !mixer->reservoir || hs_reservoir_draw(mixer->reservoir, 0, drawn_before(mixer)) < 0;
    mixer->window_rows = hs_replay_window_rows(&mixer->plan, mixer->next.window, mixer->empty_reservoir);
    for (int64_t row = 0; row < mixer->window_rows;) {
        if (!mixer->loaded || mixer->loaded_used == mixer->loaded->rows) {
            HS_TRY(hs_loader_next(mixer->loader, &mixer->loaded));
            mixer->loaded_used = 0;
        }
        int64_t left = mixer->loaded->rows - mixer->loaded_used, wanted = mixer->window_rows - row;
        int64_t count = left < wanted ? left : wanted, from = mixer->loaded_used * length;
        memcpy(mixer->tokens + row * length, mixer->loaded->tokens + from, (size_t)count * row_bytes);
        memcpy(mixer->targets + row * length, mixer->loaded->targets + from, (size_t)count * row_bytes);
        mixer->loaded_used += count;
        row += count;
    }
    mixer->window_open = true;
    return HS_OK;
}

/* Draws `rows` sequences, the first of them with draw number `first`.  Returns how many there were: all or none.
 * slots: [rows], may be NULL. */
static int64_t replay(const HsMixer *mixer, int64_t rows, int64_t first, int before_task, int32_t *tokens,
                      int32_t *targets, int64_t *slots)
{
    assert(first + rows <= (int64_t)1 << DRAW_BITS);
    for (int64_t row = 0; row < rows; row++) {
        uint64_t draw = (uint64_t)mixer->task << DRAW_BITS | (uint64_t)(first + row);
        int64_t slot = hs_reservoir_draw(mixer->reservoir, draw, before_task);
        if (slot < 0)
            return 0;
        if (slots)
            slots[row] = slot;
        hs_reservoir_read(mixer->reservoir, slot, tokens + row * mixer->length, targets + row * mixer->length);
    }
    return rows;
}

static int64_t count_targets(const int32_t *targets, int64_t elements)
{
    int64_t counted = 0;
    for (int64_t i = 0; i < elements; i++)
        counted += targets[i] >= 0;
    return counted;
}

static void fill(const HsMixer *mixer, HsStreamSlot *slot)
{
    HsStreamBatch *batch = &slot->batch;
    const HsReplayPlan *plan = &mixer->plan;
    int64_t length = mixer->length, new_first = batch->step.new_first, new_rows = batch->step.new_rows;
    size_t new_bytes = (size_t)(new_rows * length) * sizeof(int32_t);
    memcpy(batch->tokens, mixer->tokens + new_first * length, new_bytes);
    memcpy(batch->targets, mixer->targets + new_first * length, new_bytes);
    memset(slot->replayed, 0, (size_t)new_rows);
    memset(slot->slots, 0xff, (size_t)new_rows * sizeof *slot->slots);
    memset(slot->replayed + new_rows, 1, (size_t)batch->step.replay_rows);
    int64_t drawn =
        replay(mixer, batch->step.replay_rows, batch->step.replay_first_draw, drawn_before(mixer),
               batch->tokens + new_rows * length, batch->targets + new_rows * length, slot->slots + new_rows);
    /* The plan replays nothing where the window began with nothing to draw, and until it closes nothing changes. */
    assert(drawn == batch->step.replay_rows);
    (void)drawn;
    batch->counted = count_targets(batch->targets, batch->rows * length);
    /* The plan sets the numbers after the batch's own R aside for the reference.  In the first task there is nothing to
     * refer to. */
    batch->reference_rows = 0;
    batch->reference_counted = 0;
    if (plan->reference_rows > 0 && (mixer->task > 0 || mixer->unmarked) && !mixer->empty_reservoir)
        batch->reference_rows = replay(mixer, plan->reference_rows, batch->step.replay_first_draw + plan->rows,
                                       mixer->unmarked ? HS_RESERVOIR_ANY_TASK : mixer->task, batch->reference_tokens,
                                       batch->reference_targets, NULL);
    batch->reference_counted = count_targets(batch->reference_targets, batch->reference_rows * length);
}

HsStatus hs_mixer_mix(HsMixer *mixer, HsStreamSlot *slot)
{
    HsStreamPosition *next = &mixer->next;
    if (mixer->window_open && next->window_step == 0) {
        remember(mixer, mixer->window_rows);
        mixer->window_open = false;
    }
    if (!mixer->window_open)
        HS_TRY(open_window(mixer));
    slot->batch.step = hs_replay_step(&mixer->plan, next->window, next->window_step, mixer->empty_reservoir);
    fill(mixer, slot);
    next->window_step++;
    if (slot->batch.step.closes_window) {
        next->window++;
        next->window_step = 0;
        next->window_first += mixer->window_rows;
    }
    return HS_OK;
}

void hs_mixer_end(HsMixer *mixer, const HsStreamPosition *position)
{
    int64_t seen = 0;
    /* Later groups use the same sequences again: what counts is how far the window was read. */
    for (int64_t k = 0; mixer->window_open && k < position->window_step; k++) {
        HsReplayStep step = hs_replay_step(&mixer->plan, position->window, k, mixer->empty_reservoir);
        int64_t end = step.new_first + step.new_rows;
        seen = end > seen ? end : seen;
    }
    remember(mixer, seen);
    mixer->window_open = false;
    mixer->loader = NULL;
    mixer->loaded = NULL;
}
