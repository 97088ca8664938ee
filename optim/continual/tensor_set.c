/* SPDX-License-Identifier: MIT
 *
 * Tensor sets: one f32 tensor a parameter (an anchor, an importance, a snapshot ...), all of one set in one block.
 *
 *     block  | span 0 | pad to 64 | span 2 | pad | ...      an excludable set skips the spans marked excluded
 */
#include "optim/continual/internal.h"

#include <stdlib.h>

enum { ALIGNMENT_BYTES = 64 }; /* as alloc's own: vector kernels see every tensor aligned alike */

HsTensor hs_span_parameter(const HsSpan *span)
{
    return hs_tensor_present(&span->master) ? span->master : span->weight;
}

HsTensor hs_span_wide(const HsSpan *span)
{
    HsTensor wide = span->weight;
    wide.dtype = HS_F32;
    return wide;
}

size_t hs_tensor_set_span_bytes(const HsSpan *span)
{
    const size_t bytes = (size_t)hs_tensor_count(&span->weight) * sizeof(float);
    return (bytes + ALIGNMENT_BYTES - 1) / ALIGNMENT_BYTES * ALIGNMENT_BYTES;
}

static bool has_tensor(const HsSpan *span, bool excludable, bool (*has)(const HsSpan *span))
{
    return !(excludable && span->excluded) && (!has || has(span));
}

static size_t bytes_for(const HsSpan *spans, int count, bool excludable, bool (*has)(const HsSpan *span))
{
    size_t bytes = 0;
    for (int i = 0; i < count; i++)
        bytes += has_tensor(&spans[i], excludable, has) ? hs_tensor_set_span_bytes(&spans[i]) : 0;
    return bytes;
}

size_t hs_tensor_set_bytes(const HsSpan *spans, int count, bool excludable)
{
    return bytes_for(spans, count, excludable, NULL);
}

HsStatus hs_tensor_set_create(HsContinual *continual, HsMemoryCategory category, const char *what, HsTensorSet *set)
{
    return hs_tensor_set_create_for(continual, category, what, NULL, set);
}

HsStatus hs_tensor_set_create_for(HsContinual *continual, HsMemoryCategory category, const char *what,
                                  bool (*has)(const HsSpan *span), HsTensorSet *set)
{
    return hs_tensor_set_create_over(continual, continual->spans, continual->span_count, category, what, has, set);
}

HsStatus hs_tensor_set_create_over(HsContinual *continual, const HsSpan *spans, int count, HsMemoryCategory category,
                                   const char *what, bool (*has)(const HsSpan *span), HsTensorSet *set)
{
    HsDevice *device = continual->device;
    const bool excludable = category == HS_MEMORY_PENALTY;
    const size_t bytes = bytes_for(spans, count, excludable, has);
    *set = (HsTensorSet){ .category = continual->share.on_host ? HS_MEMORY_OFFLOADED : category,
                          .excludable = excludable,
                          .bytes = bytes,
                          .has = has };
    set->tensors = calloc((size_t)count + 1, sizeof *set->tensors);
    if (!set->tensors)
        return hs_fail(HS_ENOMEM, "%s: no memory for the list of %d tensors", what, count);
    HsStatus status = continual->share.on_host ? hs_memory_host_alloc(device, set->category, bytes, &set->block)
                                               : hs_memory_alloc(device, set->category, bytes, &set->block);
    if (status != HS_OK) {
        hs_tensor_set_destroy(continual, set);
        return hs_error_prefix(status, "%s, one f32 a parameter", what);
    }
    /* Before the first task's end these zeros are the state: no importance, no path. */
    HS_TRY_GOTO(status, device->fill_zero(device, NULL, set->block, bytes), failed);
    HS_TRY_GOTO(status, device->stream_sync(device, NULL), failed);

    unsigned char *next = set->block;
    for (int i = 0; i < count; i++) {
        const HsSpan *span = &spans[i];
        if (!has_tensor(span, excludable, has))
            continue;
        set->tensors[i] = hs_span_wide(span);
        set->tensors[i].data = next;
        next += hs_tensor_set_span_bytes(span);
    }
    return HS_OK;
failed:
    hs_tensor_set_destroy(continual, set);
    return status;
}

void hs_tensor_set_destroy(HsContinual *continual, HsTensorSet *set)
{
    if (continual->share.on_host)
        hs_memory_host_release(continual->device, set->category, set->bytes, set->block);
    else
        hs_memory_release(continual->device, set->category, set->bytes, set->block);
    free(set->tensors);
    *set = (HsTensorSet){ 0 };
}

bool hs_tensor_set_has(const HsTensorSet *set, const HsSpan *span)
{
    return has_tensor(span, set->excludable, set->has);
}

HsStatus hs_tensor_set_visit(HsContinual *continual, HsTensorSet *set, const char *name, const HsStateVisitor *visitor)
{
    const HsSpanShare *share = &continual->share;
    for (int i = 0; set->tensors && i < share->all_count; i++) {
        const HsSpan *span = &share->all[i];
        const bool own = i >= share->first && i < share->first + share->count;
        HsTensor elsewhere = hs_span_wide(span), *tensor = own ? &set->tensors[i - share->first] : &elsewhere;
        elsewhere.data = NULL;
        if (hs_tensor_set_has(set, span))
            HS_TRY(visitor->tensor(visitor->user, name, span->name, tensor));
    }
    return HS_OK;
}

HsStatus hs_continual_dry_statistics(HsContinual *continual, HsContext *dry)
{
    const HsSpanShare *share = &continual->share;
    const HsGradStatsArgs args = { .tensors = continual->arguments,
                                   .count = share->all_count,
                                   .sum_squares = continual->device_values,
                                   .nonfinite = (int64_t *)(void *)continual->device_values };
    for (int i = 0; i < share->all_count; i++)
        continual->arguments[i] = share->all[i].gradient;
    return hs_op_grad_stats(dry, &args);
}

HsStatus hs_continual_fetch_values(HsContinual *continual, HsContext *context, const HsTensor *tensors, int kinds)
{
    HsDevice *device = continual->device;
    const HsSpanShare *share = &continual->share;
    const size_t all = (size_t)share->all_count, own = (size_t)continual->span_count;
    double *host = continual->host_values;
    size_t there = 0;
    for (size_t i = 0; i < own; i++)
        there += !tensors || hs_tensor_present(&tensors[i]);
    HS_TRY(device->copy(device, context->stream, host, continual->device_values, (size_t)kinds * there * sizeof *host));
    HS_TRY(device->stream_sync(device, context->stream));
    /* To their places, from the last on: each moves up. */
    for (int kind = kinds - 1; kind >= 0; kind--) {
        size_t at = (size_t)(kind + 1) * there;
        double *row = host + (size_t)kind * all;
        for (size_t i = all; i-- > 0;) {
            const bool mine = i >= (size_t)share->first && i < (size_t)share->first + own;
            const bool has = mine && (!tensors || hs_tensor_present(&tensors[i - (size_t)share->first]));
            row[i] = has ? host[--at] : 0.0;
        }
    }
    return hs_span_share_values(share, context->stream, host, kinds);
}

HsStatus hs_tensor_set_copy_parameters(HsContinual *continual, HsContext *context, HsTensorSet *set)
{
    for (int i = 0; i < continual->span_count; i++) {
        if (!hs_tensor_present(&set->tensors[i]))
            continue;
        const HsConvertArgs args = { .x = hs_span_parameter(&continual->spans[i]), .y = set->tensors[i] };
        HsStatus status = hs_op_convert(context, &args); /* exact: f32 holds every 16-bit value */
        if (status != HS_OK)
            return hs_error_prefix(status, "copy of %s", continual->spans[i].name);
    }
    return HS_OK;
}

HsRng hs_span_draws(const HsContinual *continual, int span, uint32_t site, uint32_t step)
{
    return (HsRng){ .seed = continual->config.seed,
                    .step = step,
                    .site = site + (uint32_t)continual->spans[span].parameter,
                    .row_offset = continual->spans[span].first };
}

HsStatus hs_tensor_set_interpolate(HsContinual *continual, HsContext *context, const HsTensorSet *set, int span,
                                   double rate, HsRng rng)
{
    const HsSpan *at = &continual->spans[span];
    const HsInterpolateArgs args = {
        .anchor = set->tensors[span], .master = at->master, .weight = at->weight, .rate = (float)rate, .rng = rng
    };
    return hs_op_interpolate(context, &args);
}

HsStatus hs_tensor_set_dry_interpolate(HsContinual *continual, HsContext *dry)
{
    for (int i = 0; i < continual->span_count; i++) {
        const HsSpan *span = &continual->spans[i];
        const HsTensor wide = hs_span_wide(span);
        const HsInterpolateArgs interpolate = { .anchor = wide, .master = span->master, .weight = span->weight };
        const HsConvertArgs copy = { .x = hs_span_parameter(span), .y = wide };
        HS_TRY(hs_op_interpolate(dry, &interpolate));
        HS_TRY(hs_op_convert(dry, &copy));
    }
    return HS_OK;
}
