/* SPDX-License-Identifier: MIT
 *
 * PEFT itself passes over a tensor with a wrong name, and leaves its B at zero; here that is an error.
 */
#include "runtime/checkpoint/adapter_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/checkpoint/checkpoint.h"
#include "runtime/io/json.h"
#include "runtime/io/storage.h"

static const char head_tensor[] = HS_PEFT_PREFIX HS_HEAD_MODULE ".weight";
enum { CONFIG_BYTES = 1 << 22 };

/* The table that is embedding and head in one, where it is trained; NULL: none. */
static const HsParam *trained_tie(const HsModel *model)
{
    for (int i = 0; i < model->param_count; i++)
        if (model->params[i].tied && !model->params[i].beside_adapters)
            return &model->params[i];
    return NULL;
}

/* Whether PEFT keeps the two one: it is asked to, and knows the embedding by this name. */
static HsStatus read_tying(const char *folder, const HsParam *table, bool *one)
{
    char *path = NULL;
    HsJson *root = NULL;
    HS_TRY(hs_storage_join(folder, "adapter_config.json", &path));
    const HsStatus status = hs_json_read_python(path, CONFIG_BYTES, &root);
    const HsJson *ensured = status == HS_OK ? hs_json_get(root, "ensure_weight_tying") : NULL;
    *one = ensured && hs_json_is_true(ensured) && strstr(table->name, "embed_tokens");
    hs_json_destroy(root);
    free(path);
    return status;
}

/* PEFT trains a table of the embedding's and leaves the head the base's, unless both are stored, or kept one. */
static HsStatus check_tie(const char *folder, const char *path, const HsSafetensors *file, const HsParam *table)
{
    char name[sizeof file->tensors[0].name];
    bool one = false;
    snprintf(name, sizeof name, HS_PEFT_PREFIX "%s", table->name);
    const HsNamedTensor *embedding = hs_safetensors_find(file, name), *head = hs_safetensors_find(file, head_tensor);
    if (!embedding)
        return HS_OK; /* said where it is loaded */
    if (!head)
        HS_TRY(read_tying(folder, table, &one));
    if (!head && one)
        return HS_OK;
    const size_t bytes = hs_tensor_bytes(&embedding->tensor);
    if (head && head->tensor.dtype == embedding->tensor.dtype && hs_tensor_bytes(&head->tensor) == bytes &&
        memcmp(head->tensor.data, embedding->tensor.data, bytes) == 0)
        return HS_OK;
    return hs_fail(
        HS_EUNSUPPORTED,
        "%s: `%s` is trained and %s: with PEFT the head is another table then, and this model ties the two. "
        "Merge them with PEFT (merge_and_unload) and start from what it saves with tie_word_embeddings false, or "
        "train both as one there (ensure_weight_tying)",
        path, name, head ? "`lm_head` differs from it" : "`lm_head` is not stored");
}

static HsStatus load(const char *path, const HsSafetensors *file, const HsWeights *weights, bool tied)
{
    for (int i = 0; i < file->count; i++) {
        const char *const name = file->tensors[i].name;
        bool known = tied && strcmp(name, head_tensor) == 0;
        for (int k = 0; k < weights->count && !known; k++)
            known = strcmp(weights->items[k].name, name) == 0;
        const bool table = strstr(name, ".embed_tokens.") || strstr(name, ".lm_head.") || strstr(name, ".wte.");
        if (!known)
            return hs_fail(
                HS_EFORMAT, "%s: tensor `%s` belongs to nothing that adapter_config.json and the model describe%s",
                path, name,
                table ? "; where it is the base model's own, save anew with save_embedding_layers=False" : "");
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
    const HsParam *table = trained_tie(model);
    if (status == HS_OK && table)
        status = check_tie(folder, path, &file, table);
    if (status == HS_OK)
        status = load(path, &file, &weights, table != NULL);
    hs_weights_deinit(&weights);
    hs_safetensors_close(&file);
    free(path);
    return status;
}
