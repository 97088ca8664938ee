/* SPDX-License-Identifier: MIT
 *
 * Opening what an export reads, and the list of what it writes.
 */
#include "runtime/commands/export_source.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/checkpoint/adapter_file.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/config/model_types.h"
#include "runtime/config/pretrained.h"

static HsStatus open_checkpoint(HsExportSource *source, const char *folder)
{
    HsCheckpoint checkpoint;
    char path[4096];
    HS_TRY(hs_checkpoint_open(folder, false, &checkpoint)); /* verifies */
    snprintf(path, sizeof path, "%s/config.yaml", checkpoint.folder);
    HsStatus status = hs_config_load_saved(&source->config, path, 0, NULL);
    source->has_config = status == HS_OK;
    snprintf(path, sizeof path, "%s/tokenizer.json", checkpoint.folder);
    if (status == HS_OK)
        status = hs_tokenizer_load(path, &source->tokenizer);
    if (status == HS_OK)
        status = hs_carried_load(checkpoint.folder, &source->carried);
    if (status == HS_OK)
        status = hs_pretrained_open(checkpoint.folder, &source->files);
    hs_checkpoint_close(&checkpoint);
    return status;
}

static HsStatus open_folder(HsExportSource *source, const char *folder)
{
    char from[4096];
    const char *const overrides[] = { from };
    snprintf(from, sizeof from, "init_from=%s", folder);
    HS_TRY(hs_config_load(&source->config, NULL, 1, overrides));
    source->has_config = true;
    HS_TRY(hs_tokenizer_load(source->config.tokenizer.path, &source->tokenizer));
    HS_TRY(hs_carried_gather(&source->config, &source->carried));
    return hs_pretrained_open(folder, &source->files);
}

static HsStatus create_model(HsExportSource *source)
{
    HsPrecision precision;
    char why[256];
    static const char *const wide[] = { "precision.mode=fp32", "precision.master_weights=true" };
    for (int i = 0; i < 2; i++)
        HS_TRY(hs_config_override(&source->config, wide[i]));
    HS_TRY(hs_precision_resolve(&source->config, (HsProducts){ 0 }, &precision, why, sizeof why));
    HS_TRY(hs_model_create(&source->config, &precision, hs_tokenizer_vocabulary(source->tokenizer), &source->model));
    source->has_model = true;
    source->views = calloc((size_t)source->model.param_count * HS_PARAM_MOST_PARTS, sizeof *source->views);
    return source->views ? HS_OK
                         : hs_fail(HS_ENOMEM, "no memory for the tensors of %d parameters", source->model.param_count);
}

HsStatus hs_export_source_init(HsExportSource *source, const char *folder)
{
    HsPretrainedKind kind;
    *source = (HsExportSource){ 0 };
    HS_TRY(hs_pretrained_kind(folder, &kind));
    const bool published = kind == HS_PRETRAINED_HUGGINGFACE;
    HS_TRY(published ? open_folder(source, folder) : open_checkpoint(source, folder));
    HS_TRY(hs_tokenizer_settle(source->tokenizer, &source->config));
    HS_TRY(hs_tokenizer_is_qwen(source->tokenizer, &source->qwen_tokenizer));
    HS_TRY(create_model(source));
    source->naming = published ? HS_NAMING_PUBLISHED : HS_NAMING_OWN;
    /* Rows beyond the tokenizer's came with a pretrained model, which has its shape, or are padding of ours. */
    const bool pretrained = source->config.training.init_from[0] != '\0';
    source->vocabulary = pretrained ? source->model.vocabulary : hs_tokenizer_vocabulary(source->tokenizer);
    return HS_OK;
}

void hs_export_source_deinit(HsExportSource *source)
{
    for (int i = 0; source->views && i < source->model.param_count * HS_PARAM_MOST_PARTS; i++)
        free(source->views[i].scales);
    free(source->views);
    if (source->has_model)
        hs_model_destroy(&source->model);
    hs_pretrained_close(&source->files);
    hs_carried_deinit(&source->carried);
    hs_tokenizer_destroy(source->tokenizer);
    if (source->has_config)
        hs_config_deinit(&source->config);
    *source = (HsExportSource){ 0 };
}

int64_t hs_export_source_mlp_width(const HsExportSource *source)
{
    for (int i = 0; i < source->model.param_count; i++)
        if (strstr(source->model.params[i].name, "mlp.down_proj.weight") ||
            strstr(source->model.params[i].name, "mlp.fc2.weight"))
            return source->model.params[i].shape[1];
    return 0;
}

/* The file's tensor `name`, `rows` rows of a parameter, as [out, in] or transposed, checked. */
static HsStatus find_part(const HsExportSource *source, const HsParam *param, const char *name, int64_t rows,
                          HsTensor *view, bool *transposed)
{
    const char *path = source->files.folder;
    const HsNamedTensor *found = hs_pretrained_find(&source->files, name, &path);
    if (!found && param->tied)
        found = hs_pretrained_find(&source->files, "lm_head.weight", &path);
    if (!found)
        return hs_fail(HS_EFORMAT, "%s: tensor `%s` is missing", path, name);
    *transposed = source->naming == HS_NAMING_PUBLISHED && param->published_transposed;
    *view = found->tensor;
    const int64_t columns = param->rank == 2 ? param->shape[1] : 1;
    const int64_t has_rows = view->shape[*transposed ? 1 : 0];
    const int64_t has_columns = param->rank == 2 ? view->shape[*transposed ? 0 : 1] : 1;
    if (view->rank != param->rank || has_rows != rows || has_columns != columns)
        return hs_fail(HS_ESHAPE, "%s: tensor `%s` has another shape than the model's %lld x %lld", path, found->name,
                       (long long)rows, (long long)columns);
    if (!hs_dtype_info(view->dtype)->is_float)
        return hs_fail(HS_EFORMAT, "%s: tensor `%s` is %s, not a floating-point format", path, found->name,
                       hs_dtype_name(view->dtype));
    return HS_OK;
}

/* A part in four bits, to be decoded as the products of the run that it comes from did. */
static HsStatus find_quantized(const HsExportSource *source, const HsParam *param, int part, HsNamedTensor *item)
{
    const HsTensorSource files = hs_pretrained_source(&source->files);
    HsQuantized *const view = &source->views[(param - source->model.params) * HS_PARAM_MOST_PARTS + part];
    const int64_t rows = hs_param_stored_rows(param, part), columns = param->shape[1];
    HsDtype dtype;
    free(view->scales);
    *view = (HsQuantized){ 0 };
    HS_TRY(hs_nf4_open(&files, item->name, rows, columns, view, &dtype));
    item->tensor = hs_tensor_2d(NULL, dtype, rows, columns);
    item->quantized = view;
    return HS_OK;
}

/* Of the first embedding, and of the head, only the tokenizer's rows. */
static int64_t rows_written(const HsExportSource *source, const HsParam *param, int64_t rows)
{
    const bool by_token = param == &source->model.params[0] || param->role == HS_PARAM_HEAD;
    return by_token && rows > source->vocabulary ? source->vocabulary : rows;
}

/* The adapter's factors for rows [first, first + rows) of a matrix; none where these have none. */
static HsStatus find_change(const HsExportSource *source, const HsParam *param, int64_t first, int64_t rows,
                            HsLowRank *change)
{
    const HsModel *model = &source->model;
    *change = (HsLowRank){ 0 };
    for (int n = 0; n < model->node_count; n++) {
        const HsNode *node = &model->nodes[n];
        const HsAdapterShape *shape = &node->attributes.adapter;
        if (shape->rank == 0 || &model->params[node->params[0]] != param)
            continue;
        for (int block = 0; block < shape->blocks; block++) {
            const HsParam *a = &model->params[node->params[2]], *b = &model->params[node->params[3]];
            bool transposed;
            if (shape->first_row[block] != first || shape->rows[block] != rows)
                continue;
            HS_TRY(find_part(source, a, hs_param_stored_name(a, block), shape->rank, &change->a, &transposed));
            HS_TRY(find_part(source, b, hs_param_stored_name(b, block), rows, &change->b, &transposed));
            change->scale = (double)shape->scale;
        }
    }
    return HS_OK;
}

/* From the source's numbers to those of the target. */
static double shift_of(const HsExportSource *source, const HsParam *param, HsNaming naming)
{
    return ((naming == HS_NAMING_PUBLISHED) - (source->naming == HS_NAMING_PUBLISHED)) * param->published_shift;
}

static HsStatus add_param(const HsExportSource *source, const HsParam *param, HsNaming naming, HsNamedTensor *items,
                          int *count)
{
    int64_t first = 0;
    for (int part = 0; part < hs_param_stored_parts(param); part++) {
        const int64_t rows = hs_param_stored_rows(param, part);
        HsNamedTensor *item = &items[*count];
        bool transposed = false;
        snprintf(item->name, sizeof item->name, "%s", hs_param_stored_name(param, part));
        const HsTensorSource files = hs_pretrained_source(&source->files);
        if (param->rank == 2 && hs_nf4_is_stored(&files, item->name))
            HS_TRY(find_quantized(source, param, part, item));
        else
            HS_TRY(find_part(source, param, item->name, rows, &item->tensor, &transposed));
        item->transposed = transposed != param->published_transposed;
        item->shift = shift_of(source, param, naming);
        HS_TRY(find_change(source, param, first, rows, &item->change));
        if (!transposed)
            item->tensor.shape[0] = rows_written(source, param, rows);
        first += rows;
        *count += 1;
    }
    return HS_OK;
}

/* A tied table that is trained is stored twice, as PEFT has one for the embedding and one for the head. */
static void add_tied_head(const HsParam *param, HsNamedTensor *items, int *count)
{
    if (!param->tied)
        return;
    items[*count] = items[*count - 1];
    snprintf(items[*count].name, sizeof items[0].name, HS_PEFT_PREFIX HS_HEAD_MODULE ".weight");
    *count += 1;
}

HsStatus hs_export_source_adapters(const HsExportSource *source, HsNamedTensor **items, int *count)
{
    const HsModel *model = &source->model;
    *count = 0;
    *items = calloc((size_t)model->param_count * HS_PARAM_MOST_PARTS + 1, sizeof **items);
    if (!*items)
        return hs_fail(HS_ENOMEM, "no memory to list the tensors of %d parameters", model->param_count);
    for (int i = 0; i < model->param_count; i++) {
        const int first = *count;
        if (model->params[i].beside_adapters)
            continue;
        HS_TRY(add_param(source, &model->params[i], HS_NAMING_PUBLISHED, *items, count));
        for (int item = first; item < *count; item++) {
            char name[sizeof(*items)->name];
            snprintf(name, sizeof name, HS_PEFT_PREFIX "%.*s", (int)(sizeof name - sizeof HS_PEFT_PREFIX),
                     (*items)[item].name);
            snprintf((*items)[item].name, sizeof name, "%s", name);
        }
        add_tied_head(&model->params[i], *items, count);
    }
    return HS_OK;
}

/* GPT-2's biases where the model has none. */
static void add_zero_bias(const HsParam *param, HsNamedTensor *items, int *count)
{
    const size_t length = strlen(param->name);
    const bool gain = param->role == HS_PARAM_VECTOR, matrix = param->role == HS_PARAM_MATRIX;
    if ((!gain && !matrix) || length < 6 || strcmp(param->name + length - 6, "weight") != 0)
        return;
    HsNamedTensor *item = &items[(*count)++];
    snprintf(item->name, sizeof item->name, "%.*sbias", (int)length - 6, param->name);
    item->tensor = hs_tensor_1d(NULL, HS_F32, param->shape[0]);
}

/* The bias of o_proj, which a Llama with biases has and ours has not. */
static void add_zero_output_bias(const HsParam *param, HsNamedTensor *items, int *count)
{
    const char *const ending = "self_attn.o_proj.weight";
    const size_t length = strlen(param->name), tail = strlen(ending);
    if (length >= tail && strcmp(param->name + length - tail, ending) == 0)
        add_zero_bias(param, items, count);
}

HsStatus hs_export_source_tensors(const HsExportSource *source, HsNaming naming, HsNamedTensor **items, int *count)
{
    const HsModel *model = &source->model;
    const bool biases = hs_family_files(&source->config)->biases && !source->config.model.bias;
    *count = 0;
    *items = calloc((size_t)model->param_count * (HS_PARAM_MOST_PARTS + 1), sizeof **items);
    if (!*items)
        return hs_fail(HS_ENOMEM, "no memory to list the tensors of %d parameters", model->param_count);
    for (int i = 0; i < model->param_count; i++) {
        if (model->params[i].role == HS_PARAM_ADAPTER)
            continue;
        HS_TRY(add_param(source, &model->params[i], naming, *items, count));
        if (biases)
            add_zero_bias(&model->params[i], *items, count);
        else if (source->config.model.qkv_bias && !source->qwen_tokenizer)
            add_zero_output_bias(&model->params[i], *items, count);
    }
    return HS_OK;
}
