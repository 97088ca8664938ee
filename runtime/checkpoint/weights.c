/* SPDX-License-Identifier: MIT
 *
 * Parameters -> named tensors.
 */
#include "runtime/checkpoint/weights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/checkpoint/checkpoint.h"
#include "runtime/model/layer.h"

/* Where this process's range of a part lies in its range of the whole. */
static void *own_part(const HsTensor *part, const HsTensorShare *share, void *own)
{
    int64_t first;
    if (hs_tensor_share_of(share, hs_tensor_count(part), share->comm->rank, &first) == 0 || !own)
        return NULL;
    const int64_t before = share->offset + first - share->starts[share->comm->rank];
    return (unsigned char *)own + (size_t)before * hs_dtype_bytes(part->dtype);
}

static void add_parts(const HsParam *param, HsTensor tensor, const HsTensorShare *share, HsContext *context,
                      HsNaming naming, HsWeights *weights)
{
    const bool quantized = param->stored.layout == HS_LAYOUT_NF4;
    int64_t first = 0;
    for (int part = 0; part < hs_param_stored_parts(param); part++) {
        const int64_t rows = hs_param_stored_rows(param, part);
        HsNamedTensor *item = &weights->items[weights->count++];
        snprintf(item->name, sizeof item->name, "%s%s", naming == HS_NAMING_ADAPTED ? HS_PEFT_PREFIX : "",
                 hs_param_stored_name(param, part));
        item->tensor = hs_tensor_rows(tensor, first, rows);
        if (share && share->comm) {
            item->share = *share;
            item->share.offset = first * param->shape[1];
            item->tensor.data = own_part(&item->tensor, &item->share, tensor.data);
        }
        item->context = context;
        item->quantized = quantized ? &param->stored.nf4 : NULL;
        item->first = quantized ? first * param->shape[1] : 0;
        item->transposed = naming >= HS_NAMING_PUBLISHED && param->published_transposed;
        item->shift = naming >= HS_NAMING_PUBLISHED ? param->published_shift : 0;
        first += rows;
    }
}

HsStatus hs_weights_list(const HsModel *model, const HsSpan *spans, int span_count, HsContext *context, HsNaming naming,
                         HsWeights *weights)
{
    *weights = (HsWeights){ .items = calloc((size_t)model->param_count * HS_PARAM_MOST_PARTS, sizeof *weights->items) };
    if (!weights->items)
        return hs_fail(HS_ENOMEM, "no memory to list the tensors of %d parameters", model->param_count);
    for (int i = 0, span = 0; i < model->param_count; i++) {
        if (naming == HS_NAMING_PUBLISHED && model->params[i].role == HS_PARAM_ADAPTER)
            continue; /* they have separate files */
        if (naming == HS_NAMING_ADAPTED && model->params[i].beside_adapters)
            continue;
        while (span < span_count && spans[span].parameter < i)
            span++;
        const bool mastered = span < span_count && spans[span].parameter == i && hs_tensor_present(&spans[span].master);
        const bool streamed = model->streams && span < span_count && spans[span].parameter == i;
        add_parts(&model->params[i],
                  mastered   ? spans[span].master
                  : streamed ? spans[span].weight
                             : model->params[i].stored.values,
                  mastered || streamed ? &spans[span].share : NULL, context, naming, weights);
    }
    return HS_OK;
}

HsStatus hs_weights_spell_out(HsWeights *weights)
{
    int quantized = 0;
    for (int i = 0; i < weights->count; i++)
        quantized += weights->items[i].quantized != NULL;
    if (quantized == 0)
        return HS_OK;
    HsNamedTensor *const all = calloc((size_t)(weights->count + quantized * HS_NF4_TENSORS), sizeof *all);
    weights->owned = calloc((size_t)quantized, sizeof *weights->owned);
    HsStatus status = all && weights->owned ? HS_OK : hs_fail(HS_ENOMEM, "no memory to list quantized matrices");
    int count = 0;
    for (int i = 0; i < weights->count && status == HS_OK; i++) {
        const HsNamedTensor *item = &weights->items[i];
        if (!item->quantized) {
            all[count++] = *item;
            continue;
        }
        status = hs_nf4_tensors(item->name, item->quantized, item->first, &item->tensor, item->context, all + count,
                                &weights->owned[weights->owned_count++]);
        count += HS_NF4_TENSORS;
    }
    if (status != HS_OK) {
        free(all);
        return status;
    }
    free(weights->items);
    weights->items = all;
    weights->count = count;
    return HS_OK;
}

void hs_weights_deinit(HsWeights *weights)
{
    for (int i = 0; i < weights->owned_count; i++)
        free(weights->owned[i]);
    free(weights->owned);
    free(weights->items);
    *weights = (HsWeights){ 0 };
}

bool hs_weights_have_adapters(const HsSafetensors *file)
{
    for (int i = 0; i < file->count; i++)
        if (strstr(file->tensors[i].name, ".lora_A."))
            return true;
    return false;
}

/* Where the file has no adapters, the model's keep what they were drawn with. */
static void drop_adapters(HsWeights *weights)
{
    int kept = 0;
    for (int i = 0; i < weights->count; i++)
        if (!strstr(weights->items[i].name, ".lora_"))
            weights->items[kept++] = weights->items[i];
    weights->count = kept;
}

HsStatus hs_weights_restore(const char *file_name, const HsSafetensors *file, const HsModel *model, const HsSpan *spans,
                            int span_count, HsContext *context)
{
    HsWeights weights;
    bool wanted = false;
    for (int i = 0; i < model->param_count; i++)
        wanted = wanted || model->params[i].role == HS_PARAM_ADAPTER;
    const bool there = hs_weights_have_adapters(file);
    if (there && !wanted)
        return hs_fail(HS_ECONFIG,
                       "%s has adapters and this configuration has none: give it the section adapter of that run, or "
                       "start from what `trainer export --merge` writes",
                       file_name);
    HsStatus status = hs_weights_list(model, spans, span_count, context, HS_NAMING_OWN, &weights);
    if (status == HS_OK && wanted && !there)
        drop_adapters(&weights);
    if (status == HS_OK)
        status = hs_checkpoint_restore(file_name, file, weights.items, weights.count);
    hs_weights_deinit(&weights);
    return status;
}
