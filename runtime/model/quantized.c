/* SPDX-License-Identifier: MIT */
#include "runtime/model/quantized.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

HsStatus hs_model_quantize_base(HsModel *model)
{
    for (int i = 0; i < model->param_count; i++) {
        HsParam *param = &model->params[i];
        if (param->role != HS_PARAM_MATRIX || !param->beside_adapters)
            continue;
        const int64_t columns = param->shape[1];
        int64_t counts[HS_PARAM_MOST_PARTS];
        for (int part = 0; part < hs_param_stored_parts(param); part++)
            counts[part] = hs_param_stored_rows(param, part) * columns;
        param->stored.layout = HS_LAYOUT_NF4;
        param->stored.nf4 = hs_nf4_shape(counts, hs_param_stored_parts(param));
        if (param->stored.nf4.count == 0 || columns % HS_NF4_RUN != 0)
            return hs_fail(
                HS_ECONFIG,
                "adapter.base: nf4 cuts each matrix into blocks of %d elements, and rows into runs of %d; %s "
                "[%" PRId64 ",%" PRId64 "] does not divide: choose model sizes that are multiples of %d",
                HS_NF4_BLOCK, HS_NF4_RUN, param->name, param->shape[0], columns, HS_NF4_BLOCK);
    }
    return HS_OK;
}

static HsStatus move(const HsContext *context, void *to, const void *from, size_t bytes)
{
    if (!context || context->device->host_accessible) {
        memcpy(to, from, bytes);
        return HS_OK;
    }
    HS_TRY(context->device->copy(context->device, context->stream, to, from, bytes));
    return context->device->stream_sync(context->device, context->stream);
}

HsStatus hs_quantized_place(const HsQuantized *to, int64_t first, const HsQuantized *part, const HsContext *context)
{
    const int64_t block = hs_nf4_blocks(first), blocks = hs_nf4_blocks(part->count);
    const int64_t group = block >> to->group_shift, last = (block + blocks - 1) >> to->group_shift;
    const size_t bytes = (size_t)(last - group + 1) * 2 * sizeof(float);
    float *const scales = malloc(bytes);
    if (!scales)
        return hs_fail(HS_ENOMEM, "no memory for the scales of a quantized matrix");
    for (int64_t g = group; g <= last; g++)
        memcpy(scales + 2 * (g - group), part->scales + 2 * (((g << to->group_shift) - block) >> part->group_shift),
               2 * sizeof *scales);
    HsStatus status = move(context, to->codes + first / 2, part->codes, (size_t)part->count / 2);
    if (status == HS_OK)
        status = move(context, to->absmax + block, part->absmax, (size_t)blocks);
    if (status == HS_OK)
        status = move(context, to->scales + 2 * group, scales, bytes);
    free(scales);
    return status;
}

HsStatus hs_quantized_set(const HsQuantized *to, int64_t first, int64_t count, const float *values,
                          const HsContext *context)
{
    if (!context || context->device->host_accessible)
        return hs_nf4_quantize(to, first, count, values);
    HsQuantized part = hs_nf4_shape(&count, 1);
    void *const memory = malloc(hs_nf4_bytes(&part));
    if (!memory)
        return hs_fail(HS_ENOMEM, "no memory for %" PRId64 " elements of a quantized matrix", count);
    hs_nf4_place(&part, memory);
    HsStatus status = hs_nf4_quantize(&part, 0, count, values);
    if (status == HS_OK)
        status = hs_quantized_place(to, first, &part, context);
    free(memory);
    return status;
}

HsStatus hs_quantized_scales(const HsQuantized *from, const HsContext *context, float **scales)
{
    const size_t bytes = (size_t)hs_nf4_groups(from) * 2 * sizeof **scales;
    *scales = malloc(bytes);
    return *scales ? move(context, *scales, from->scales, bytes)
                   : hs_fail(HS_ENOMEM, "no memory for the scales of a quantized matrix");
}

size_t hs_param_weight_bytes(const HsParam *param)
{
    const HsQuantized *const nf4 = hs_nf4_of(&param->stored);
    return nf4 ? hs_nf4_bytes(nf4) : hs_tensor_bytes(&param->stored.values);
}

void *hs_param_weight_memory(const HsParam *param)
{
    const HsQuantized *const nf4 = hs_nf4_of(&param->stored);
    return nf4 ? nf4->codes : param->stored.values.data;
}
