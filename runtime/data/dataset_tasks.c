/* SPDX-License-Identifier: MIT
 *
 * The datasets of all tasks: what is read apart, each task and each source of one that is mixed, and put together.
 */
#include "runtime/data/dataset_build.h"
#include "runtime/data/mixture.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base/size.h"
#include "runtime/io/storage.h"

/* By default next to the run, so that all runs of a folder have it. */
HsStatus hs_task_data_cache_folder(const HsConfig *config, char **folder)
{
    char *parent = NULL;
    *folder = NULL;
    if (hs_is(config->data.cache, "off"))
        return HS_OK;
    if (!hs_is(config->data.cache, "auto")) {
        *folder = strdup(config->data.cache);
        return *folder ? HS_OK : hs_fail(HS_ENOMEM, "no memory for a path");
    }
    HS_TRY(hs_storage_folder(config->training.out_dir, &parent));
    const HsStatus status = hs_storage_join(parent, HS_TOKENS_FOLDER, folder);
    free(parent);
    return status;
}

static HsStatus open_cache(const HsConfig *config, HsTokenCache **cache)
{
    const int64_t worth_it = (int64_t)32 << 20;
    char *folder;
    *cache = NULL;
    HS_TRY(hs_task_data_cache_folder(config, &folder));
    if (!folder)
        return HS_OK;
    HsStatus status = hs_token_cache_open(folder, cache);
    free(folder);
    HS_TRY(status);
    (*cache)->limit = config->data.cache_limit;
    (*cache)->least_text = hs_is(config->data.cache, "auto") ? worth_it : 0;
    (*cache)->verify = hs_is(config->data.verify, "full");
    return HS_OK;
}

/* What is read apart: each task, and each source of one that is mixed. */
typedef struct Parts {
    int count;
    HsTaskConfig *tasks; /* [count] copies: with one source alone */
    char **names;        /* [count] TASK, or TASK/SOURCE */
    HsDatasetBuild *buildings;
    HsDataset *datasets;
} Parts;

static void free_parts(Parts *parts)
{
    for (int i = 0; i < parts->count && parts->buildings; i++)
        hs_dataset_end(&parts->buildings[i]);
    for (int i = 0; i < parts->count && parts->datasets; i++)
        hs_dataset_deinit(&parts->datasets[i]);
    for (int i = 0; i < parts->count && parts->names; i++)
        free(parts->names[i]);
    free(parts->tasks);
    free(parts->names);
    free(parts->buildings);
    free(parts->datasets);
}

/* Source `source` of a mixture, as a task. */
static HsStatus begin_source(const HsConfig *config, int task, int source, Parts *parts, int at)
{
    const HsTaskConfig *whole = &config->tasks[task];
    HsTaskConfig *own = &parts->tasks[at];
    HsDatasetBuild *building = &parts->buildings[at];
    *own = *whole;
    own->train = (HsStringList){ .count = 1, .items = &whole->train.items[source] };
    if (source < whole->source_validation.count)
        own->validation = whole->source_validation.items[source];
    if (asprintf(&parts->names[at], "%s/%s", whole->name, hs_task_source_name(whole, source)) < 0) {
        parts->names[at] = NULL;
        return hs_fail(HS_ENOMEM, "no memory for the names of sources");
    }
    own->name = parts->names[at];
    hs_dataset_begin(config, own, building, &parts->datasets[at]);
    /* Other text, and another order, than of any other source or task. */
    building->task_index = (uint32_t)task | (uint32_t)(source + 1) << 16;
    parts->datasets[at].seed = hs_dataset_window_seed(building);
    return HS_OK;
}

static HsStatus begin_parts(const HsConfig *config, bool keeps_validation, HsTokenCache *cache, Parts *parts)
{
    for (int i = 0; i < config->task_count; i++)
        parts->count += hs_task_is_mixed(&config->tasks[i]) ? config->tasks[i].train.count : 1;
    const size_t count = (size_t)parts->count;
    parts->tasks = calloc(count, sizeof *parts->tasks);
    parts->names = calloc(count, sizeof *parts->names);
    parts->buildings = calloc(count, sizeof *parts->buildings);
    parts->datasets = calloc(count, sizeof *parts->datasets);
    if (!parts->tasks || !parts->names || !parts->buildings || !parts->datasets)
        return hs_fail(HS_ENOMEM, "no memory for the data of %d tasks", config->task_count);
    for (int i = 0, at = 0; i < config->task_count; i++) {
        const HsTaskConfig *task = &config->tasks[i];
        if (!hs_task_is_mixed(task))
            hs_dataset_begin(config, task, &parts->buildings[at], &parts->datasets[at]);
        for (int source = 0; hs_task_is_mixed(task) && source < task->train.count; source++)
            HS_TRY(begin_source(config, i, source, parts, at + source));
        at += hs_task_is_mixed(task) ? task->train.count : 1;
    }
    for (int i = 0; i < parts->count; i++) {
        parts->buildings[i].keeps_validation = keeps_validation;
        parts->buildings[i].cache = cache;
    }
    return HS_OK;
}

/* From what was read to the tasks. */
static HsStatus join_parts(const HsConfig *config, Parts *parts, HsTaskData *data)
{
    for (int i = 0, at = 0; i < config->task_count; i++) {
        const HsTaskConfig *task = &config->tasks[i];
        HsDatasetBuild unused;
        hs_dataset_begin(config, task, &unused, &data->tasks[i]);
        if (hs_task_is_mixed(task)) {
            HS_TRY(hs_dataset_mix(config, task, &parts->datasets[at], task->train.count, &data->tasks[i]));
            at += task->train.count;
            continue;
        }
        HsDataset *own = &data->tasks[i];
        *own = parts->datasets[at];
        memset(&parts->datasets[at], 0, sizeof parts->datasets[at]);
        if (own->train.shards)
            own->train.shards = &own->shards[0];
        if (own->validation.shards)
            own->validation.shards = own->shards[1].count > 0 ? &own->shards[1] : &own->shards[0];
        at++;
    }
    return HS_OK;
}

static HsStatus create_tasks(const HsConfig *config, HsTokenizer *tokenizer, bool keeps_validation, HsTaskData *data)
{
    const int count = config->task_count;
    Parts parts = { 0 };
    assert(count > 0);
    *data = (HsTaskData){ .tokenizer = tokenizer };
    data->tasks = calloc((size_t)count, sizeof *data->tasks);
    HsStatus status = data->tasks ? HS_OK : hs_fail(HS_ENOMEM, "no memory for the data of %d tasks", count);
    data->count = data->tasks ? count : 0;
    if (status == HS_OK)
        status = open_cache(config, &data->cache);
    if (status == HS_OK)
        status = begin_parts(config, keeps_validation, data->cache, &parts);
    if (status == HS_OK)
        status = hs_dataset_build(parts.buildings, parts.count, &data->tokenizer, parts.datasets);
    if (status == HS_OK)
        status = join_parts(config, &parts, data);
    free_parts(&parts);
    if (status != HS_OK)
        hs_task_data_deinit(data);
    return status;
}

static HsStatus add_bytes(Parts *parts, const HsTokenizer *tokenizer, size_t *bytes)
{
    for (int i = 0; i < parts->count; i++) {
        HsDatasetBuild *building = &parts->buildings[i];
        building->tokenizer = (HsTokenizer *)(uintptr_t)tokenizer; /* read only */
        if (!hs_dataset_stays_in_files(building) && !(tokenizer && hs_dataset_is_cached(building)))
            *bytes = hs_size_add(*bytes, hs_dataset_source_bytes(building));
    }
    return HS_OK;
}

HsStatus hs_task_data_bytes(const HsConfig *config, size_t *bytes)
{
    Parts parts = { 0 };
    HsTokenCache *cache = NULL;
    HsTokenizer *tokenizer = NULL;
    *bytes = 0;
    HsStatus status = open_cache(config, &cache);
    if (status == HS_OK)
        status = begin_parts(config, false, cache, &parts);
    for (int i = 0; status == HS_OK && i < parts.count; i++) {
        status = hs_dataset_list_sources(&parts.buildings[i]);
        if (status == HS_OK)
            status = hs_dataset_leave_out(&parts.buildings[i], &parts.datasets[i].apart);
        if (status == HS_OK)
            status = hs_dataset_check_synthetic(&parts.buildings[i]);
    }
    /* What is wrong with a tokenizer is said where it is used. */
    if (status == HS_OK && hs_dataset_tokenizer_early(parts.buildings, parts.count, &tokenizer) == HS_OK && tokenizer &&
        hs_tokenizer_settle(tokenizer, config) != HS_OK) {
        hs_tokenizer_destroy(tokenizer);
        tokenizer = NULL;
    }
    if (status == HS_OK)
        status = add_bytes(&parts, tokenizer, bytes);
    hs_tokenizer_destroy(tokenizer);
    free_parts(&parts);
    hs_token_cache_close(cache);
    return status;
}

HsStatus hs_task_data_create(const HsConfig *config, HsTokenizer *tokenizer, HsTaskData *data)
{
    return create_tasks(config, tokenizer, false, data);
}

HsStatus hs_task_data_create_whole(const HsConfig *config, HsTokenizer *tokenizer, HsTaskData *data)
{
    return create_tasks(config, tokenizer, true, data);
}

void hs_task_data_deinit(HsTaskData *data)
{
    for (int i = 0; i < data->count; i++)
        hs_dataset_deinit(&data->tasks[i]);
    free(data->tasks);
    hs_tokenizer_destroy(data->tokenizer);
    hs_token_cache_close(data->cache);
    *data = (HsTaskData){ 0 };
}

static size_t stream_memory(const HsStreamTokens *stream)
{
    const size_t tokens = (size_t)stream->count;
    return (stream->tokens ? tokens * sizeof *stream->tokens : 0) + (stream->loss_mask ? tokens : 0) +
           (size_t)stream->row_count * sizeof *stream->rows + (size_t)stream->pack_count * sizeof *stream->packs;
}

static size_t dataset_memory(const HsDataset *dataset)
{
    size_t bytes = stream_memory(&dataset->train) + stream_memory(&dataset->validation);
    for (int i = 0; i < dataset->part_count; i++)
        bytes += dataset_memory(&dataset->parts[i]);
    return bytes;
}

size_t hs_task_data_memory(const HsTaskData *data)
{
    size_t bytes = 0;
    for (int i = 0; i < data->count; i++)
        bytes += dataset_memory(&data->tasks[i]);
    return bytes;
}

bool hs_task_data_masked(const HsTaskData *data)
{
    bool masked = false;
    for (int i = 0; i < data->count; i++)
        masked |= hs_dataset_is_masked(&data->tasks[i]);
    return masked;
}
