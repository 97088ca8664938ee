/* SPDX-License-Identifier: MIT
 *
 * Schedule-free AdamW (Defazio et al. 2024, "The Road Less Scheduled"): what a parameter is outside of a step.
 *
 *     y   trained: gradients are taken there; the span's weight and master
 *     z   where AdamW without momentum would be; z - y is kept, and v
 *     x   the mean of all z so far, what the method's result is:  y = (1 - beta1) z + beta1 x,  so
 *         x = y + (1 - 1 / beta1) (z - y)
 *
 * x is nowhere in memory: it is made here, a piece at a time, by the same operations for whatever wants it, so that what
 * is evaluated and what is saved have the same bits.  As a weight is y, a strategy that moves it moves z and x as far.
 */
#include "optim/offload.h"
#include "optim/rules.h"

/* Where pieces are made: the context that reaches masters and states, f32 of a piece, and as much for its copy in the
 * weight's format. */
typedef struct Bench {
    const HsOptimizer *optimizer;
    HsContext *context, *outer; /* the same without an offload */
    void *x, *rounded;
} Bench;

static bool derives_any(const HsOptimizer *optimizer, const HsSpan *spans, int count)
{
    bool any = false;
    for (int i = 0; i < count; i++)
        any = any || hs_optimizer_derives(&optimizer->config, &spans[i]);
    return any;
}

static HsStatus open_bench(const HsOptimizer *optimizer, HsContext *context, Bench *bench)
{
    const size_t bytes = HS_DERIVED_PIECE * sizeof(float);
    *bench = (Bench){ .optimizer = optimizer, .context = context, .outer = context };
    if (optimizer->offload)
        return hs_offload_lend(optimizer->offload, context, &bench->context, &bench->x, &bench->rounded);
    if (context->workspace_bytes < 2 * bytes)
        return hs_fail(HS_ENOMEM, "schedule-free: needs %zu bytes of workspace, there are %zu: plan with a dry run",
                       2 * bytes, context->workspace_bytes);
    bench->x = context->workspace;
    bench->rounded = (unsigned char *)context->workspace + bytes;
    return HS_OK;
}

static HsTensor flat(const HsTensor *tensor, void *data, int64_t count)
{
    return hs_tensor_1d(data, tensor->dtype, count);
}

static HsTensor piece_of(const HsTensor *tensor, int64_t first, int64_t count)
{
    return flat(tensor, (unsigned char *)tensor->data + (size_t)first * hs_dtype_bytes(tensor->dtype), count);
}

/* What the bench's context does not reach: with an offload, weights that are the device's. */
static bool is_far(const Bench *bench, bool master)
{
    return bench->context != bench->outer && !master && bench->optimizer->offload->level < HS_OFFLOAD_WEIGHTS;
}

static HsStatus move(const Bench *bench, void *to, const void *from, size_t bytes)
{
    HsDevice *device = bench->optimizer->device;
    HS_TRY(device->copy(device, bench->outer->stream, to, from, bytes));
    return device->stream_sync(device, bench->outer->stream);
}

/* bench->x = y + (1 - 1 / beta1) (z - y) */
static HsStatus derive(const Bench *bench, const HsTensor *y, bool master, const HsTensor *z_minus_y)
{
    const int64_t count = hs_tensor_count(y);
    const HsTensor x = hs_tensor_1d(bench->x, HS_F32, count);
    HsTensor near = *y;
    if (is_far(bench, master)) {
        near.data = bench->rounded;
        HS_TRY(move(bench, near.data, y->data, hs_tensor_bytes(y)));
    }
    const float rate = (float)(1.0 - 1.0 / bench->optimizer->config.beta1);
    HS_TRY(hs_op_convert(bench->context, &(HsConvertArgs){ .x = near, .y = x }));
    return hs_op_combine(bench->context, &(HsCombineArgs){ .x = *z_minus_y, .y = x, .alpha = rate, .beta = 1 });
}

/* to = round(bench->x) */
static HsStatus store(const Bench *bench, const HsTensor *to, bool master)
{
    const int64_t count = hs_tensor_count(to);
    const HsTensor x = hs_tensor_1d(bench->x, HS_F32, count);
    HsTensor near = *to;
    if (is_far(bench, master))
        near.data = bench->rounded;
    HS_TRY(hs_op_convert(bench->context, &(HsConvertArgs){ .x = x, .y = near }));
    return near.data == to->data ? HS_OK : move(bench, to->data, near.data, hs_tensor_bytes(to));
}

/* Every piece of a span's x, rounded to `to`, its weight or its master. */
static HsStatus derive_span(const Bench *bench, const HsSpan *span, const HsTensor *to)
{
    const bool master = hs_tensor_present(&span->master);
    const HsTensor *y = master ? &span->master : &span->weight;
    for (int64_t first = 0; first < span->count; first += HS_DERIVED_PIECE) {
        const int64_t left = span->count - first, count = left < HS_DERIVED_PIECE ? left : HS_DERIVED_PIECE;
        const HsTensor trained = piece_of(y, first, count), apart = piece_of(&span->state[0], first, count);
        const HsTensor stored = piece_of(to, first, count);
        HS_TRY(derive(bench, &trained, master, &apart));
        HS_TRY(store(bench, &stored, to == &span->master));
    }
    return HS_OK;
}

static HsStatus derive_spans(const HsOptimizer *optimizer, HsContext *context, const HsSpan *spans, int count,
                             bool trained)
{
    Bench bench;
    if (!derives_any(optimizer, spans, count))
        return HS_OK;
    if (context->dry_run) {
        const size_t bytes = optimizer->offload ? 0 : 2 * HS_DERIVED_PIECE * sizeof(float);
        context->workspace_needed = bytes > context->workspace_needed ? bytes : context->workspace_needed;
        return HS_OK;
    }
    HS_TRY(open_bench(optimizer, context, &bench));
    for (int i = 0; i < count; i++) {
        const bool master = trained && hs_tensor_present(&spans[i].master);
        if (hs_optimizer_derives(&optimizer->config, &spans[i]))
            HS_TRY(derive_span(&bench, &spans[i], master ? &spans[i].master : &spans[i].weight));
    }
    return HS_OK;
}

HsStatus hs_optimizer_show(const HsOptimizer *optimizer, HsContext *context, const HsSpan *spans, int count)
{
    return derive_spans(optimizer, context, spans, count, false);
}

HsStatus hs_schedule_free_settle(const HsOptimizer *optimizer, HsContext *context, const HsSpan *spans, int count)
{
    return derive_spans(optimizer, context, spans, count, true);
}

HsStatus hs_optimizer_derive(const HsOptimizer *optimizer, HsContext *context, const HsTensor *y, bool master,
                             const HsTensor *z_minus_y, void *host)
{
    Bench bench;
    HS_TRY(open_bench(optimizer, context, &bench));
    for (int64_t first = 0; first < hs_tensor_count(y); first += HS_DERIVED_PIECE) {
        const int64_t left = hs_tensor_count(y) - first, count = left < HS_DERIVED_PIECE ? left : HS_DERIVED_PIECE;
        const HsTensor trained = piece_of(y, first, count), apart = piece_of(z_minus_y, first, count);
        const HsTensor x = hs_tensor_1d(bench.x, HS_F32, count), rounded = flat(y, bench.rounded, count);
        HS_TRY(derive(&bench, &trained, master, &apart));
        HS_TRY(hs_op_convert(bench.context, &(HsConvertArgs){ .x = x, .y = rounded }));
        HS_TRY(move(&bench, (unsigned char *)host + (size_t)first * hs_dtype_bytes(y->dtype), rounded.data,
                    hs_tensor_bytes(&rounded)));
    }
    return HS_OK;
}
