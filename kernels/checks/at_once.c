/* SPDX-License-Identifier: MIT
 *
 * Pieces of work that do not depend on each other, and are too small for many threads: one thread for each.
 */
#include <stdio.h>

#include "kernels/base/size.h"
#include "kernels/ops/backend.h"

/* Above this a piece leaves the second-level cache of a core, and products are large enough for all threads. */
#define MOST_SCRATCH ((size_t)1 << 20)
enum { ALIGNMENT = 64 };

typedef struct Batch {
    const HsContext *context;
    HsWork *work;
    void *data;
    size_t scratch_bytes, slot_bytes;
    HsStatus status; /* the first that failed, and its message */
    char message[512];
} Batch;

static HsContext inner_context(const HsContext *context, bool alone)
{
    HsContext inner = *context;
    inner.workspace_needed = 0;
    inner.flops = 0;
    if (alone)
        inner.threads = 1;
    return inner;
}

static void run_piece(void *data, int index, int slot)
{
    Batch *batch = data;
    HsContext inner = inner_context(batch->context, true);
    unsigned char *memory = (unsigned char *)batch->context->workspace + (size_t)slot * batch->slot_bytes;
    inner.observer = NULL;
    inner.workspace = memory + batch->scratch_bytes;
    inner.workspace_bytes = batch->slot_bytes - batch->scratch_bytes;
    const HsStatus status = batch->work(batch->data, &inner, memory, index);
    HsStatus none = HS_OK; /* messages belong to threads */
    if (status != HS_OK &&
        __atomic_compare_exchange_n(&batch->status, &none, status, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        snprintf(batch->message, sizeof batch->message, "%s", hs_error_message());
}

/* --- the cost of all of them, as an operation's --- */

typedef struct Sum {
    HsObserver observer; /* first: contexts hold its address */
    HsOpCost cost;
} Sum;

static void add_cost(HsObserver *observer, HsContext *context, HsRangeKind kind, const char *name, const HsOpCost *cost)
{
    Sum *sum = (Sum *)observer;
    (void)context;
    (void)name;
    if (kind != HS_RANGE_OPERATION)
        return;
    if (cost->flops > 0 && sum->cost.flops == 0) {
        sum->cost.dtype = cost->dtype;
        sum->cost.policy = cost->policy;
    }
    sum->cost.flops += cost->flops;
    sum->cost.bytes += cost->bytes;
}

static void add_nothing(HsObserver *observer, HsContext *context)
{
    (void)observer;
    (void)context;
}

static HsStatus sum_costs(const HsContext *context, int count, HsWork *work, void *data, HsOpCost *cost)
{
    Sum sum = { .observer = { add_cost, add_nothing } };
    HsContext dry = inner_context(context, true);
    dry.dry_run = true;
    dry.observer = &sum.observer;
    for (int i = 0; i < count; i++)
        HS_TRY(work(data, &dry, NULL, i));
    *cost = sum.cost;
    return HS_OK;
}

/* --- one after the other, with all threads --- */

static HsStatus require_scratch(const char *name, size_t needed, size_t there)
{
    if (needed <= there)
        return HS_OK;
    return hs_fail(HS_ENOMEM, "%s: needs %zu bytes of workspace for itself, there are %zu: plan with a dry run", name,
                   needed, there);
}

static HsStatus run_in_turn(HsContext *context, const char *name, int count, size_t scratch_bytes, HsWork *work,
                            void *data)
{
    unsigned char *const memory = context->workspace;
    HsStatus status = HS_OK;
    HS_TRY(require_scratch(name, scratch_bytes, context->workspace_bytes));
    context->workspace = memory + scratch_bytes;
    context->workspace_bytes -= scratch_bytes;
    for (int i = 0; i < count && status == HS_OK; i++)
        status = work(data, context, memory, i);
    context->workspace = memory;
    context->workspace_bytes += scratch_bytes;
    return status;
}

static HsStatus plan(HsContext *context, int count, size_t scratch_bytes, int slots, HsWork *work, void *data)
{
    HsContext inner = inner_context(context, slots > 1);
    for (int i = 0; i < count; i++)
        HS_TRY(work(data, &inner, NULL, i));
    const size_t needed = (size_t)slots * (scratch_bytes + hs_size_align(inner.workspace_needed, ALIGNMENT));
    context->flops += inner.flops;
    if (needed > context->workspace_needed)
        context->workspace_needed = needed;
    return HS_OK;
}

static HsStatus run_side_by_side(HsContext *context, const char *name, int count, int slots, Batch *batch)
{
    HsOpCost cost = { 0 };
    if (context->observer) {
        HS_TRY(sum_costs(context, count, batch->work, batch->data, &cost));
        context->observer->begin(context->observer, context, HS_RANGE_OPERATION, name, &cost);
    }
    context->backend->share_out(slots, count, run_piece, batch);
    if (context->observer)
        context->observer->end(context->observer, context);
    return batch->status == HS_OK ? HS_OK : hs_fail(batch->status, "%s", batch->message);
}

HsStatus hs_at_once(HsContext *context, const char *name, int count, size_t scratch_bytes, HsWork *work, void *data)
{
    const HsBackend *backend = context->backend;
    const bool small = backend->share_out && scratch_bytes <= MOST_SCRATCH;
    const int slots = !small || count <= 1 ? 1 : context->threads < count ? context->threads : count;
    scratch_bytes = hs_size_align(scratch_bytes, ALIGNMENT);
    if (context->dry_run)
        return plan(context, count, scratch_bytes, slots < 1 ? 1 : slots, work, data);
    if (slots <= 1)
        return run_in_turn(context, name, count, scratch_bytes, work, data);
    Batch batch = { .context = context,
                    .work = work,
                    .data = data,
                    .scratch_bytes = scratch_bytes,
                    .slot_bytes = context->workspace_bytes / (size_t)slots / ALIGNMENT * ALIGNMENT };
    HS_TRY(require_scratch(name, scratch_bytes, batch.slot_bytes));
    return run_side_by_side(context, name, count, slots, &batch);
}
