/* SPDX-License-Identifier: MIT
 *
 * Where each buffer lies.  Packing intervals of time into the least memory is NP-hard (dynamic storage allocation); the
 * usual greedy answer is close to the lower bound for networks: the largest buffer first, each into the smallest gap
 * that fits between the already placed buffers that are alive at the same time (Pisarchyk & Lee 2020, section 5).
 *
 *   Invariant: two buffers whose lifetimes meet do not overlap in memory.
 */
#include <stdlib.h>
#include <string.h>

#include "runtime/plan_internal.h"

/* Larger first; equal ones in the order of their birth, so that the layout is a function of the table alone. */
static int compare_size(const void *left, const void *right)
{
    const HsBuffer *a = *(const HsBuffer *const *)left, *b = *(const HsBuffer *const *)right;
    if (a->bytes != b->bytes)
        return a->bytes < b->bytes ? 1 : -1;
    return a < b ? -1 : a > b;
}

static bool alive_together(const HsBuffer *a, const HsBuffer *b)
{
    return a->first_action <= b->last_action && b->first_action <= a->last_action;
}

static size_t aligned(size_t bytes)
{
    return (bytes + HS_ARENA_ALIGNMENT - 1) / HS_ARENA_ALIGNMENT * HS_ARENA_ALIGNMENT;
}

/* `placed` is sorted by offset. */
static size_t best_offset(const HsBuffer *buffer, HsBuffer *const *placed, int placed_count)
{
    size_t best = SIZE_MAX, best_gap = SIZE_MAX, end = 0;
    for (int i = 0; i < placed_count; i++) {
        if (!alive_together(buffer, placed[i]))
            continue;
        size_t gap = placed[i]->offset > end ? placed[i]->offset - end : 0;
        if (gap >= aligned(buffer->bytes) && gap < best_gap) {
            best_gap = gap;
            best = end;
        }
        size_t after = placed[i]->offset + aligned(placed[i]->bytes);
        end = after > end ? after : end;
    }
    return best != SIZE_MAX ? best : end;
}

static void insert_sorted(HsBuffer **placed, int count, HsBuffer *buffer)
{
    int place = count;
    while (place > 0 && placed[place - 1]->offset > buffer->offset) {
        placed[place] = placed[place - 1];
        place--;
    }
    placed[place] = buffer;
}

HsStatus hs_plan_place(HsPlan *plan)
{
    size_t count = (size_t)plan->buffer_count;
    HsBuffer **order = calloc(2 * count, sizeof *order);
    if (order == NULL)
        return hs_fail(HS_ENOMEM, "plan: no memory to place %zu buffers", count);
    HsBuffer **placed = order + count;
    for (size_t i = 0; i < count; i++)
        order[i] = &plan->buffers[i];
    qsort(order, count, sizeof *order, compare_size);
    plan->activation_bytes = 0;
    for (int i = 0; i < plan->buffer_count; i++) {
        HsBuffer *buffer = order[i];
        buffer->offset = best_offset(buffer, placed, i);
        insert_sorted(placed, i, buffer);
        size_t end = buffer->offset + aligned(buffer->bytes);
        plan->activation_bytes = end > plan->activation_bytes ? end : plan->activation_bytes;
    }
    free(order);
    return HS_OK;
}

/* Buffers are born and die: differences first, then their running sum. */
void hs_plan_live_bytes(const HsPlan *plan, size_t *live_bytes)
{
    memset(live_bytes, 0, (size_t)plan->action_count * sizeof *live_bytes);
    for (int i = 0; i < plan->buffer_count; i++) {
        const HsBuffer *buffer = &plan->buffers[i];
        live_bytes[buffer->first_action] += buffer->bytes;
        if (buffer->last_action + 1 < plan->action_count)
            live_bytes[buffer->last_action + 1] -= buffer->bytes; /* wraps around, and back in the sum */
    }
    for (int a = 1; a < plan->action_count; a++)
        live_bytes[a] += live_bytes[a - 1];
}
