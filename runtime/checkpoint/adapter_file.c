/* SPDX-License-Identifier: MIT
 *
 * PEFT itself passes over a tensor with a wrong name, and leaves its B at zero; here that is an error.
 */
#include "runtime/checkpoint/adapter_file.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/checkpoint/checkpoint.h"
#include "runtime/io/storage.h"

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
        status = hs_weights_list(model, spans, span_count, context, HS_NAMING_ADAPTED, &weights);
    if (status == HS_OK)
        status = load(path, &file, &weights);
    hs_weights_deinit(&weights);
    hs_safetensors_close(&file);
    free(path);
    return status;
}
