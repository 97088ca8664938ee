/* SPDX-License-Identifier: MIT */
#include "optim/offload.h"

#include <stdlib.h>

#include "kernels/base/file_memory.h"
#include "optim/rules.h"

/* --- what is there --- */

/* Wide enough for f32, whatever the formats are. */
static int64_t longest_piece(const HsSpan *spans, int count)
{
    int64_t longest = 0;
    for (int i = 0; i < count; i++)
        longest = spans[i].count > longest ? spans[i].count : longest;
    return longest < HS_OFFLOAD_PIECE ? longest : HS_OFFLOAD_PIECE;
}

/* Where all is on the host, the buffers are of nothing, but for the place in which schedule-free makes its pieces. */
static int64_t piece_elements(const HsOptimizerConfig *config, const HsSpan *spans, int count)
{
    int64_t derived = 0;
    for (int i = 0; i < count; i++)
        if (hs_optimizer_derives(config, &spans[i]))
            derived = spans[i].count > derived ? spans[i].count : derived;
    derived = derived < HS_DERIVED_PIECE ? derived : HS_DERIVED_PIECE;
    return config->offload < HS_OFFLOAD_WEIGHTS ? longest_piece(spans, count) : derived;
}

static HsStatus check_rules(const HsOptimizerConfig *config, const HsSpan *spans, int count)
{
    for (int i = 0; i < count; i++) {
        const HsOptimizerKind kind = hs_optimizer_kind_of(config, &spans[i]);
        if (hs_optimizer_kind_needs_whole(kind))
            return hs_fail(HS_ECONFIG,
                           "memory.offload: the host updates element by element, and %s makes the step of %s from the "
                           "whole matrix: set memory.offload to none, or choose another optimizer.kind",
                           hs_optimizer_kind_name(kind), spans[i].name);
    }
    return HS_OK;
}

/* A drafted run's device counts, and has neither streams nor events to give back. */
static HsStatus create_streams(HsOffload *offload)
{
    HsDevice *device = offload->device;
    HS_TRY(device->stream_create(device, &offload->down));
    HS_TRY(device->stream_create(device, &offload->up));
    HS_TRY(device->event_create(device, &offload->decided));
    for (int i = 0; i < HS_OFFLOAD_BUFFERS; i++) {
        HS_TRY(device->event_create(device, &offload->buffers[i].arrived));
        HS_TRY(device->event_create(device, &offload->buffers[i].sent));
    }
    return HS_OK;
}

static HsStatus create_buffers(HsOffload *offload, int64_t elements)
{
    const size_t bytes = (size_t)elements * sizeof(float);
    size_t gradient[HS_OFFLOAD_BUFFERS], weight[HS_OFFLOAD_BUFFERS];
    hs_arena_init_at(&offload->pinned, offload->device, HS_MEMORY_OFFLOADED, true);
    const size_t scalars = hs_arena_reserve(&offload->pinned, sizeof *offload->scalars);
    const size_t state = hs_arena_reserve(&offload->pinned, sizeof *offload->state);
    for (int i = 0; i < HS_OFFLOAD_BUFFERS; i++) {
        gradient[i] = hs_arena_reserve(&offload->pinned, bytes);
        weight[i] = hs_arena_reserve(&offload->pinned, bytes);
    }
    HS_TRY(hs_arena_commit(&offload->pinned));
    offload->scalars = hs_arena_at(&offload->pinned, scalars);
    offload->state = hs_arena_at(&offload->pinned, state);
    for (int i = 0; i < HS_OFFLOAD_BUFFERS; i++) {
        offload->buffers[i].gradient = hs_arena_at(&offload->pinned, gradient[i]);
        offload->buffers[i].weight = hs_arena_at(&offload->pinned, weight[i]);
    }
    return HS_OK;
}

static HsStatus open_host(HsOffload *offload, int threads)
{
    HS_TRY(hs_device_host_init(&offload->memory));
    HS_TRY(hs_backend_cpu(&offload->host.backend));
    offload->host.device = &offload->memory;
    offload->host.threads = threads;
    if (hs_backend_cpu_fuses())
        return HS_OK;
    return hs_fail(HS_EUNSUPPORTED,
                   "memory.offload: the host's instruction set (%s) has no fused multiply-add, and updates would have "
                   "other last bits than on %s: set memory.offload to none",
                   hs_backend_cpu_isa(), offload->device->name);
}

HsStatus hs_offload_create(HsDevice *device, const HsOptimizerConfig *config, const HsSpan *spans, int count,
                           HsOffload **offload)
{
    *offload = NULL;
    HS_TRY(check_rules(config, spans, count));
    HsOffload *made = calloc(1, sizeof *made);
    if (!made)
        return hs_fail(HS_ENOMEM, "no memory for %zu bytes", sizeof *made);
    made->device = device;
    made->level = config->offload;
    HsStatus status = open_host(made, config->host_threads);
    if (status == HS_OK)
        status = create_buffers(made, piece_elements(config, spans, count));
    if (status == HS_OK)
        status = create_streams(made);
    if (status == HS_OK)
        *offload = made;
    else
        hs_offload_destroy(made);
    return status;
}

void hs_offload_destroy(HsOffload *offload)
{
    if (!offload)
        return;
    HsDevice *device = offload->device;
    for (int i = 0; i < HS_OFFLOAD_BUFFERS; i++) {
        device->event_destroy(device, offload->buffers[i].arrived);
        device->event_destroy(device, offload->buffers[i].sent);
    }
    device->event_destroy(device, offload->decided);
    device->stream_destroy(device, offload->down);
    device->stream_destroy(device, offload->up);
    if (offload->pinned.device)
        hs_arena_deinit(&offload->pinned);
    hs_device_deinit(&offload->memory);
    free(offload);
}

/* --- pieces --- */

typedef struct Pieces {
    const HsSpan *spans;
    int count, span;
    int64_t first;
    int taken;
    bool stepping_back; /* of a skipped step: of what a strategy steps back alone */
} Pieces;

typedef struct Piece {
    HsSpan span;
    int buffer;
    bool there;
} Piece;

static bool is_followed(const HsSpan *span)
{
    return span->epilogue.back_count + span->epilogue.snapshot_count > 0;
}

static Piece next_piece(Pieces *pieces)
{
    while (pieces->stepping_back && pieces->span < pieces->count && !is_followed(&pieces->spans[pieces->span]))
        pieces->span++;
    if (pieces->span == pieces->count)
        return (Piece){ .there = false };
    const HsSpan *span = &pieces->spans[pieces->span];
    const int64_t left = span->count - pieces->first, count = left < HS_OFFLOAD_PIECE ? left : HS_OFFLOAD_PIECE;
    const Piece piece = { .span = hs_span_cut(span, pieces->first, count),
                          .buffer = pieces->taken++ % HS_OFFLOAD_BUFFERS,
                          .there = true };
    pieces->first += count;
    if (pieces->first == span->count) {
        pieces->span++;
        pieces->first = 0;
    }
    return piece;
}

static HsTensor at(const HsTensor *tensor, void *data)
{
    HsTensor moved = *tensor;
    moved.data = data;
    return moved;
}

/* A weight without a master is what the rule starts from.  Its buffer still goes up with an earlier piece. */
static HsStatus fetch(HsOffload *offload, const Piece *piece)
{
    HsDevice *device = offload->device;
    HsOffloadBuffer *buffer = &offload->buffers[piece->buffer];
    const HsSpan *span = &piece->span;
    if (offload->level >= HS_OFFLOAD_WEIGHTS)
        return HS_OK;
    if (buffer->in_use)
        HS_TRY(device->stream_wait(device, offload->down, buffer->sent));
    if (offload->level < HS_OFFLOAD_GRADIENTS)
        HS_TRY(device->copy(device, offload->down, buffer->gradient, span->gradient.data,
                            hs_tensor_bytes(&span->gradient)));
    if (!hs_tensor_present(&span->master))
        HS_TRY(device->copy(device, offload->down, buffer->weight, span->weight.data, hs_tensor_bytes(&span->weight)));
    return device->event_record(device, buffer->arrived, offload->down);
}

static HsStatus send(HsOffload *offload, const Piece *piece)
{
    HsDevice *device = offload->device;
    HsOffloadBuffer *buffer = &offload->buffers[piece->buffer];
    if (offload->level >= HS_OFFLOAD_WEIGHTS)
        return HS_OK;
    HS_TRY(device->copy(device, offload->up, piece->span.weight.data, buffer->weight,
                        hs_tensor_bytes(&piece->span.weight)));
    HS_TRY(device->event_record(device, buffer->sent, offload->up));
    buffer->in_use = true;
    return HS_OK;
}

/* What of a piece is in files: its states, and its master. */
static void advise(const HsOptimizer *optimizer, const HsSpan *span, void (*advice)(void *pointer, size_t bytes))
{
    for (int s = 0; optimizer->config.disk && s < HS_SPAN_STATES; s++)
        if (hs_tensor_present(&span->state[s]))
            advice(span->state[s].data, hs_tensor_bytes(&span->state[s]));
    if (optimizer->config.masters_on_disk && hs_tensor_present(&span->master))
        advice(span->master.data, hs_tensor_bytes(&span->master));
}

static HsStatus update_piece(HsOffload *offload, const HsOptimizer *optimizer, const Piece *piece)
{
    const HsOffloadBuffer *buffer = &offload->buffers[piece->buffer];
    HsSpan span = piece->span;
    if (offload->level < HS_OFFLOAD_GRADIENTS)
        span.gradient = at(&span.gradient, buffer->gradient);
    if (offload->level < HS_OFFLOAD_WEIGHTS)
        span.weight = at(&span.weight, buffer->weight);
    HsUpdateArgs update = hs_rule_update(optimizer, &span);
    update.scalars = offload->scalars;
    update.rng.step_counter = &offload->state->update_step;
    const HsStatus status = hs_rule_apply(optimizer, &offload->host, &span, &update);
    return status == HS_OK ? HS_OK : hs_error_prefix(status, "optimizer, tensor %s, on the host", span.name);
}

/* What comes later on the context's stream finds the weights. */
static HsStatus join(HsOffload *offload, HsContext *context)
{
    HsDevice *device = offload->device;
    for (int i = 0; i < HS_OFFLOAD_BUFFERS; i++)
        if (offload->buffers[i].in_use)
            HS_TRY(device->stream_wait(device, context->stream, offload->buffers[i].sent));
    return HS_OK;
}

/* Buffers that the last update sent may still be read. */
static HsStatus begin(HsOffload *offload)
{
    HsDevice *device = offload->device;
    for (int i = 0; i < HS_OFFLOAD_BUFFERS; i++) {
        if (offload->buffers[i].in_use)
            HS_TRY(device->event_sync(device, offload->buffers[i].sent));
        offload->buffers[i].in_use = false;
    }
    return HS_OK;
}

static HsStatus move_pieces(HsOffload *offload, const HsOptimizer *optimizer, const HsSpan *spans, int count)
{
    HsDevice *device = offload->device;
    Pieces pieces = { .spans = spans, .count = count, .stepping_back = offload->scalars->skip };
    Piece now = next_piece(&pieces), next;
    if (now.there)
        HS_TRY(fetch(offload, &now));
    for (; now.there; now = next) {
        next = next_piece(&pieces);
        if (next.there)
            HS_TRY(fetch(offload, &next));
        if (offload->level < HS_OFFLOAD_WEIGHTS)
            HS_TRY(device->event_sync(device, offload->buffers[now.buffer].arrived));
        if (next.there)
            advise(optimizer, &next.span, hs_file_memory_ahead);
        HS_TRY(update_piece(offload, optimizer, &now));
        advise(optimizer, &now.span, hs_file_memory_behind);
        HS_TRY(send(offload, &now));
    }
    return HS_OK;
}

/* --- a step --- */

static HsStatus hear_decision(HsOffload *offload, const HsOptimizer *optimizer, const HsContext *context)
{
    HsDevice *device = offload->device;
    HS_TRY(device->copy(device, context->stream, offload->scalars, optimizer->scalars, sizeof *offload->scalars));
    HS_TRY(device->copy(device, context->stream, offload->state, optimizer->state, sizeof *offload->state));
    HS_TRY(device->event_record(device, offload->decided, context->stream));
    return device->event_sync(device, offload->decided);
}

HsStatus hs_offload_update(HsOffload *offload, const HsOptimizer *optimizer, HsContext *context, const HsSpan *spans,
                           int count)
{
    HsDevice *device = offload->device;
    if (context->dry_run)
        return HS_OK;
    HS_TRY(begin(offload));
    HS_TRY(hear_decision(offload, optimizer, context));
    HS_TRY(move_pieces(offload, optimizer, spans, count));
    HS_TRY(join(offload, context));
    if (offload->level >= HS_OFFLOAD_GRADIENTS && !offload->scalars->skip)
        return HS_OK;               /* the rule cleared them */
    for (int i = 0; i < count; i++) /* all have come down */
        HS_TRY(device->fill_zero(device, context->stream, spans[i].gradient.data, hs_tensor_bytes(&spans[i].gradient)));
    return HS_OK;
}

HsStatus hs_offload_round_weights(HsOffload *offload, HsContext *context, const HsSpan *spans, int count)
{
    HsDevice *device = offload->device;
    Pieces pieces = { .spans = spans, .count = count };
    if (context->dry_run)
        return HS_OK;
    HS_TRY(device->stream_sync(device, context->stream)); /* masters have come, and nothing reads the weights */
    HS_TRY(begin(offload));
    for (Piece piece = next_piece(&pieces); piece.there; piece = next_piece(&pieces)) {
        HsOffloadBuffer *buffer = &offload->buffers[piece.buffer];
        if (!hs_tensor_present(&piece.span.master))
            continue;
        if (buffer->in_use)
            HS_TRY(device->event_sync(device, buffer->sent));
        const bool here = offload->level >= HS_OFFLOAD_WEIGHTS;
        const HsConvertArgs convert = { .x = piece.span.master,
                                        .y = here ? piece.span.weight : at(&piece.span.weight, buffer->weight) };
        HS_TRY(hs_op_convert(&offload->host, &convert));
        HS_TRY(send(offload, &piece));
    }
    return join(offload, context);
}

HsStatus hs_offload_lend(HsOffload *offload, HsContext *context, HsContext **host, void **wide, void **weight)
{
    HsDevice *device = offload->device;
    HS_TRY(device->stream_sync(device, context->stream));
    HS_TRY(begin(offload));
    *host = &offload->host;
    *wide = offload->buffers[0].gradient;
    *weight = offload->buffers[0].weight;
    return HS_OK;
}

/* --- in a plan --- */

HsOffloadTraffic hs_offload_traffic(HsOffloadLevel level, const HsSpan *spans, int count)
{
    HsOffloadTraffic traffic = { 0 };
    const bool gradients = level >= HS_OFFLOAD_GRADIENTS, weights = level >= HS_OFFLOAD_WEIGHTS;
    for (int i = 0; i < count; i++) {
        const HsSpan *span = &spans[i];
        const double gradient = (double)hs_tensor_bytes(&span->gradient),
                     weight = (double)hs_tensor_bytes(&span->weight);
        const bool mastered = hs_tensor_present(&span->master);
        double kept = mastered ? (double)hs_tensor_bytes(&span->master) : weight;
        for (int s = 0; s < HS_SPAN_STATES; s++)
            kept += hs_tensor_present(&span->state[s]) ? (double)hs_tensor_bytes(&span->state[s]) : 0;
        const double comes = (gradients ? 0 : gradient) + (mastered || weights ? 0 : weight);
        const double goes = weights ? 0 : weight;
        const double norm = gradients ? gradient : 0; /* the device reads them there */
        traffic.down += comes;
        traffic.up += goes + norm;
        /* the copies' own accesses counted in: they share the host's memory */
        traffic.host += 2 * kept + 2 * gradient + (mastered ? weight : 0) + comes + goes + norm;
    }
    return traffic;
}

HsOffloadTraffic hs_offload_pass_traffic(HsOffloadLevel level, const HsSpan *spans, int count, double passes,
                                         double parts, double weight_bytes)
{
    double gradients = 0, added = 0;
    for (int i = 0; level >= HS_OFFLOAD_GRADIENTS && i < count; i++)
        gradients += (double)hs_tensor_bytes(&spans[i].gradient);
    /* each pass adds to the sum; all but the last part of it are kept, or added to what was, along the tree */
    added = gradients * (passes + 2 * (parts - 1));
    const double weights = level >= HS_OFFLOAD_WEIGHTS ? passes * weight_bytes : 0;
    return (HsOffloadTraffic){ .down = added, .up = added + weights, .host = 2 * added + weights };
}
