/* SPDX-License-Identifier: MIT
 *
 * PEFT itself passes over a tensor with a wrong name, and leaves its B at zero; here that is an error.
 */
#include "runtime/checkpoint/adapter_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/checkpoint/checkpoint.h"
#include "runtime/io/storage.h"

static const HsParam *param_of(const HsModel *model, const char *name)
{
    for (int i = 0; i < model->param_count; i++) {
        const HsParam *param = &model->params[i];
        if (param->part_names[0][0] == '\0' && strcmp(param->name, name) == 0)
            return param;
        for (int part = 0; param->part_names[0][0] != '\0' && part < param->part_count; part++)
            if (strcmp(param->part_names[part], name) == 0)
                return param;
    }
    return NULL;
}

HsStatus hs_adapter_weights(const HsModel *model, const HsSpan *spans, int span_count, HsContext *context,
                            HsWeights *weights)
{
    HS_TRY(hs_weights_list(model, spans, span_count, context, HS_NAMING_ADAPTED, weights));
    int kept = 0;
    for (int i = 0; i < weights->count; i++) {
        HsNamedTensor item = weights->items[i];
        const HsParam *param = param_of(model, item.name);
        char name[sizeof item.name];
        if (param->beside_adapters)
            continue;
        snprintf(name, sizeof name, HS_PEFT_PREFIX "%.*s", (int)(sizeof name - sizeof HS_PEFT_PREFIX), item.name);
        memcpy(item.name, name, sizeof name);
        weights->items[kept++] = item;
    }
    weights->count = kept;
    return HS_OK;
}

static HsStatus load(const char *path, const HsSafetensors *file, const HsWeights *weights)
{
    for (int i = 0; i < file->count; i++) {
        bool known = false;
        for (int k = 0; k < weights->count && !known; k++)
            known = strcmp(weights->items[k].name, file->tensors[i].name) == 0;
        if (!known)
            return hs_fail(HS_EFORMAT,
                           "%s: tensor `%s` belongs to nothing that adapter_config.json and the model describe", path,
                           file->tensors[i].name);
    }
    return hs_checkpoint_restore(path, file, weights->items, weights->count);
}

HsStatus hs_adapter_load(const char *folder, const HsModel *model, const HsSpan *spans, int span_count,
                         HsContext *context)
{
    char *path = NULL;
    HsSafetensors file = { 0 };
    HsWeights weights = { 0 };
    bool there = false;
    HS_TRY(hs_storage_has(folder, "adapter_model.safetensors", &there));
    if (!there)
        return hs_fail(HS_EFORMAT,
                       "%s has no adapter_model.safetensors; where it has an adapter_model.bin, write it anew with "
                       "PEFT's save_pretrained(FOLDER, safe_serialization=True)",
                       folder);
    HS_TRY(hs_storage_join(folder, "adapter_model.safetensors", &path));
    HsStatus status = hs_safetensors_open(path, &file);
    if (status == HS_OK)
        status = hs_adapter_weights(model, spans, span_count, context, &weights);
    if (status == HS_OK)
        status = load(path, &file, &weights);
    hs_weights_deinit(&weights);
    hs_safetensors_close(&file);
    free(path);
    return status;
}
