/* SPDX-License-Identifier: MIT
 *
 * Where each buffer lies.  Packing intervals of time into the least memory is NP-hard (dynamic storage allocation); the
 * usual greedy answer is close to the lower bound for networks: the largest buffer first, each into the smallest gap
 * that fits between the already placed buffers that are alive at the same time (Pisarchyk & Lee 2020, section 5).
 *
 *   Invariant: two buffers that are alive during the same action do not overlap in memory.
 *
 * A segment tree over the actions has the memory that is held during a lifetime: each buffer is entered in O(log n)
 * nodes, and because neighbours in memory become one range, sets stay short.  n buffers take about n log n.
 */
#include <stdlib.h>
#include <string.h>

#include "kernels/base/array.h"
#include "runtime/engine/program_internal.h"

/* Larger first; equal ones in the order of their birth, so that the layout is a function of the table alone. */
static int compare_size(const void *left, const void *right)
{
    const HsBuffer *a = *(const HsBuffer *const *)left, *b = *(const HsBuffer *const *)right;
    if (a->bytes != b->bytes)
        return a->bytes < b->bytes ? 1 : -1;
    return a < b ? -1 : a > b;
}

static size_t aligned(size_t bytes)
{
    return hs_size_align(bytes, HS_ARENA_ALIGNMENT);
}

/* --- sets of occupied memory --- */

typedef struct Range {
    size_t begin, end;
} Range;

/* Apart from each other, and sorted. */
typedef struct Ranges {
    Range *items;
    int count;
    size_t capacity;
} Ranges;

/* The first range that ends at or behind `begin`. */
static int find_range(const Ranges *ranges, size_t begin)
{
    int low = 0, high = ranges->count;
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (ranges->items[middle].end < begin)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* What touches or overlaps the new range becomes one with it. */
static HsStatus add_range(Ranges *ranges, Range range)
{
    const int first = find_range(ranges, range.begin);
    int last = first;
    for (; last < ranges->count && ranges->items[last].begin <= range.end; last++) {
        const Range *other = &ranges->items[last];
        range.begin = other->begin < range.begin ? other->begin : range.begin;
        range.end = other->end > range.end ? other->end : range.end;
    }
    HS_TRY(hs_array_grow(&ranges->items, sizeof *ranges->items, (size_t)(ranges->count + 1 - (last - first)),
                         &ranges->capacity));
    memmove(ranges->items + first + 1, ranges->items + last, (size_t)(ranges->count - last) * sizeof range);
    ranges->items[first] = range;
    ranges->count += 1 - (last - first);
    return HS_OK;
}

static HsStatus add_ranges(Ranges *ranges, const Ranges *others)
{
    for (int i = 0; i < others->count; i++)
        HS_TRY(add_range(ranges, others->items[i]));
    return HS_OK;
}

/* --- occupied memory by time: a segment tree over the actions --- */

/* A node stands for a span of actions.  A buffer's lifetime is cut into the fewest whole nodes. */
typedef struct Node {
    Ranges whole; /* buffers with this node as a piece of their lifetime */
    Ranges any;   /* those, and all that are pieces of nodes below */
} Node;

typedef struct Occupation {
    Node *nodes; /* children of node n: 2n + 1, 2n + 2 */
    size_t node_count;
    int actions;
    Ranges found; /* of the question being answered */
} Occupation;

static HsStatus occupation_init(Occupation *occupation, int actions)
{
    size_t leaves = 1;
    while (leaves < (size_t)actions)
        leaves *= 2;
    *occupation = (Occupation){ .node_count = 2 * leaves - 1, .actions = actions };
    occupation->nodes = calloc(occupation->node_count, sizeof *occupation->nodes);
    if (!occupation->nodes)
        return hs_fail(HS_ENOMEM, "program: no memory to place the buffers of %d actions", actions);
    return HS_OK;
}

static void occupation_deinit(Occupation *occupation)
{
    for (size_t n = 0; occupation->nodes && n < occupation->node_count; n++) {
        free(occupation->nodes[n].whole.items);
        free(occupation->nodes[n].any.items);
    }
    free(occupation->nodes);
    free(occupation->found.items);
}

/* The buffer holds `range` during its lifetime.  The node spans the actions [first, last]. */
static HsStatus occupy(Occupation *occupation, const HsBuffer *buffer, Range range, size_t node, int first, int last)
{
    Node *own = &occupation->nodes[node];
    HS_TRY(add_range(&own->any, range));
    if (buffer->first_action <= first && last <= buffer->last_action)
        return add_range(&own->whole, range);
    const int middle = first + (last - first) / 2;
    if (buffer->first_action <= middle)
        HS_TRY(occupy(occupation, buffer, range, 2 * node + 1, first, middle));
    return buffer->last_action > middle ? occupy(occupation, buffer, range, 2 * node + 2, middle + 1, last) : HS_OK;
}

/* Adds to occupation->found what is held at any time of the buffer's lifetime. */
static HsStatus find_occupied(Occupation *occupation, const HsBuffer *buffer, size_t node, int first, int last)
{
    const Node *own = &occupation->nodes[node];
    if (buffer->first_action <= first && last <= buffer->last_action)
        return add_ranges(&occupation->found, &own->any);
    HS_TRY(add_ranges(&occupation->found, &own->whole));
    const int middle = first + (last - first) / 2;
    if (buffer->first_action <= middle)
        HS_TRY(find_occupied(occupation, buffer, 2 * node + 1, first, middle));
    return buffer->last_action > middle ? find_occupied(occupation, buffer, 2 * node + 2, middle + 1, last) : HS_OK;
}

/* The smallest gap that is large enough, the lowest of equal ones; else behind everything. */
static size_t best_offset(const Ranges *occupied, size_t bytes)
{
    size_t best = SIZE_MAX, best_gap = SIZE_MAX, end = 0;
    for (int i = 0; i < occupied->count; i++) {
        const size_t gap = occupied->items[i].begin - end;
        if (gap >= bytes && gap < best_gap) {
            best_gap = gap;
            best = end;
        }
        end = occupied->items[i].end;
    }
    return best != SIZE_MAX ? best : end;
}

static HsStatus place(Occupation *occupation, HsBuffer *buffer)
{
    const int last = occupation->actions - 1;
    const size_t bytes = aligned(buffer->bytes);
    occupation->found.count = 0;
    HS_TRY(find_occupied(occupation, buffer, 0, 0, last));
    buffer->offset = best_offset(&occupation->found, bytes);
    return occupy(occupation, buffer, (Range){ buffer->offset, buffer->offset + bytes }, 0, 0, last);
}

HsStatus hs_program_place(HsProgram *program)
{
    const size_t count = (size_t)program->buffer_count;
    Occupation occupation;
    HsStatus status = occupation_init(&occupation, program->action_count);
    HsBuffer **order = calloc(count, sizeof *order);
    if (status == HS_OK && !order)
        status = hs_fail(HS_ENOMEM, "program: no memory to place %zu buffers", count);
    for (size_t i = 0; status == HS_OK && i < count; i++)
        order[i] = &program->buffers[i];
    if (status == HS_OK)
        qsort(order, count, sizeof *order, compare_size);
    program->activation_bytes = 0;
    for (size_t i = 0; status == HS_OK && i < count; i++) {
        status = place(&occupation, order[i]);
        const size_t end = order[i]->offset + aligned(order[i]->bytes);
        program->activation_bytes = end > program->activation_bytes ? end : program->activation_bytes;
    }
    free(order);
    occupation_deinit(&occupation);
    return status;
}

/* Buffers are born and die: differences first, then their running sum. */
void hs_program_live_bytes(const HsProgram *program, size_t *live_bytes)
{
    memset(live_bytes, 0, (size_t)program->action_count * sizeof *live_bytes);
    for (int i = 0; i < program->buffer_count; i++) {
        const HsBuffer *buffer = &program->buffers[i];
        live_bytes[buffer->first_action] += buffer->bytes;
        if (buffer->last_action + 1 < program->action_count)
            live_bytes[buffer->last_action + 1] -= buffer->bytes; /* wraps around, and back in the sum */
    }
    for (int a = 1; a < program->action_count; a++)
        live_bytes[a] += live_bytes[a - 1];
}
