/* SPDX-License-Identifier: MIT
 *
 * From the tasks' sources to datasets, one task or all of them.
 *
 *     list sources -> tokenizer -> read, encode and split (dataset_stream.c) -> check
 *
 * Every file is read once, in units of about a megabyte; a char tokenizer must know every task's characters, of training
 * and validation text, so that for it all is read once more before (dataset_tokenizer.c).
 */
#include "runtime/data/dataset_build.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "kernels/base/limits.h"
#include "kernels/base/log.h"
#include "kernels/base/rng.h"
#include "kernels/base/size.h"
#include "runtime/data/mixture.h"
#include "runtime/data/source/chat.h"
#include "runtime/io/storage.h"

/* "10%" -> 10.  Anything else names files, unless it can only have been meant as a share. */
static HsStatus parse_share(const char *text, double *share)
{
    char *end;
    double value = strtod(text, &end);
    *share = 0;
    if (end == text || (*end != '\0' && strcmp(end, "%") != 0))
        return HS_OK;
    if (*end == '\0')
        return hs_fail(HS_ECONFIG, "validation `%s`: a share is written with a percent sign, such as 10%%", text);
    if (!(value > 0 && value < 100))
        return hs_fail(HS_ECONFIG, "validation `%s`: the share must be above 0%% and below 100%%", text);
    *share = value;
    return HS_OK;
}

/* As the sources lie in files, or will be made. */
size_t hs_dataset_source_bytes(const HsDatasetBuild *building)
{
    size_t bytes = 0;
    for (int i = 0; i < building->sources.count; i++) {
        const HsSource *source = &building->sources.items[i];
        struct stat about;
        if (!source->kind)
            bytes = hs_size_add(bytes, (size_t)hs_dataset_synthetic_bytes(building, i));
        else if (stat(source->name, &about) == 0)
            bytes = hs_size_add(bytes, (size_t)about.st_size);
    }
    return bytes;
}

/* Text is written until it is long enough: what no memory holds would take the machine's first. */
HsStatus hs_dataset_check_synthetic(const HsDatasetBuild *building)
{
    const size_t bytes_a_byte = 1 + sizeof(int32_t); /* as text, and as a token */
    HsLimits limits;
    bool made = false;
    for (int i = 0; i < building->sources.count; i++)
        made = made || !building->sources.items[i].kind;
    if (!made)
        return HS_OK;
    hs_limits_read("", &limits);
    const size_t needed = hs_size_multiply(hs_dataset_source_bytes(building), bytes_a_byte);
    if (needed <= limits.memory_bytes)
        return HS_OK;
    return hs_fail(HS_ECONFIG,
                   "task %s: its synthetic text and tokens need %.3g MiB, and this process may have %.0f: lower "
                   "synthetic_tokens (%" PRId64 ")",
                   building->task->name, (double)needed / 0x1p20, (double)limits.memory_bytes / 0x1p20,
                   building->task->synthetic_tokens);
}

HsStatus hs_dataset_list_sources(HsDatasetBuild *building)
{
    const HsTaskConfig *task = building->task;
    HS_TRY(hs_source_list_keep_apart(&building->sources, building->config->training.out_dir));
    HS_TRY(hs_source_list_exclude(&building->sources, &task->exclude));
    for (int i = 0; i < task->train.count; i++) {
        HsStatus status = hs_source_list_add(&building->sources, task->train.items[i], task->format);
        if (status != HS_OK)
            return hs_error_prefix(status, "task %s: train", task->name);
    }
    building->train_sources = building->sources.count;
    HsStatus status = parse_share(task->validation, &building->share);
    if (status != HS_OK)
        return hs_error_prefix(status, "task %s", task->name);
    if (building->share > 0)
        return HS_OK;
    status = hs_source_list_add(&building->sources, task->validation, task->format);
    return status == HS_OK ? HS_OK : hs_error_prefix(status, "task %s: validation", task->name);
}

/* Of the order of windows.  The first task's is the run's own, later ones are drawn from it. */
uint64_t hs_dataset_window_seed(const HsDatasetBuild *building)
{
    const uint32_t counter[4] = { building->task_index, 0, 0, 0x5441534b };
    uint64_t seed = (uint64_t)building->config->training.seed;
    HsPhilox bits = hs_philox(seed, counter);
    return building->task_index == 0 ? seed : (uint64_t)bits.word[1] << 32 | bits.word[0];
}

/* Whether a token counts that is not the first, which is no target. */
static HsStatus find_target(const HsStreamTokens *stream, bool *found)
{
    enum { AT_ONCE = 4096 };
    uint8_t mask[AT_ONCE];
    *found = !hs_stream_is_masked(stream);
    for (int64_t at = 1; !*found && at < stream->count; at += AT_ONCE) {
        const int64_t some = stream->count - at < AT_ONCE ? stream->count - at : AT_ONCE;
        HS_TRY(hs_stream_read_mask(stream, at, some, mask));
        *found = memchr(mask, 1, (size_t)some);
    }
    return HS_OK;
}

static HsStatus check_length(const HsDatasetBuild *building, const HsDataset *dataset, const HsStreamTokens *stream,
                             const char *key)
{
    int64_t length = dataset->sequence_length;
    const char *name = building->task->name;
    bool found;
    if (stream->rows && stream->row_count == 0)
        return hs_fail(HS_ECONFIG,
                       "task %s: no document of %s has a token that the loss counts among its first %" PRId64
                       " (data.packing: %s): raise max_length, or give more data",
                       name, key, length + 1, building->config->data.packing);
    if (stream->rows)
        return HS_OK;
    if (stream->count <= length && stream == &dataset->validation && building->share > 0)
        return hs_fail(HS_ECONFIG,
                       "task %s: validation, %g%% of %" PRId64 " tokens, has %" PRId64
                       ", but one window of max_length %" PRId64 " needs %" PRId64
                       "; raise the share, give more data or lower max_length",
                       name, building->share, dataset->train.count + stream->count, stream->count, length, length + 1);
    if (stream->count <= length)
        return hs_fail(HS_ECONFIG,
                       "task %s: %s has %" PRId64 " tokens, but one window of max_length %" PRId64 " needs %" PRId64
                       "; give more data or lower max_length",
                       name, key, stream->count, length, length + 1);
    HS_TRY(find_target(stream, &found));
    if (!found)
        return hs_fail(HS_ECONFIG, "task %s: %s has no token that the loss counts: every completion is empty", name,
                       key);
    return HS_OK;
}

static void warn_long_chats(const HsDatasetBuild *building)
{
    const HsChatLengths *lengths = &building->chats;
    if (lengths->longer == 0 || hs_dataset_keeps_documents(building->config))
        return;
    hs_warn("task %s: %" PRId64 " of %" PRId64 " conversations are longer than max_length, %" PRId64
            " tokens; the longest has %" PRId64 ". Windows cut them: %" PRId64 " tokens of answers stand beyond the "
            "first %" PRId64 " of their conversation, and are learned without its beginning",
            building->task->name, lengths->longer, lengths->count, building->config->training.max_length,
            lengths->longest, lengths->answers_beyond, building->config->training.max_length);
}

static void warn_chats(const HsDatasetBuild *building)
{
    const char *const name = building->task->name, *const made_by = building->config->tokenizer.chat_template;
    const int64_t unrendered = building->train.unrendered_contents + building->validation.unrendered_contents;
    const int64_t quoted = building->train.quoted_arguments + building->validation.quoted_arguments;
    if (unrendered > 0)
        hs_warn("task %s: %s: %" PRId64 "; the chat template %s leaves the content out, as published", name,
                hs_chat_left_out(hs_chat_template_get(made_by)), unrendered, made_by);
    if (quoted > 0)
        hs_warn("task %s: calls of tools with a string as arguments: %" PRId64
                "; the chat template %s puts it in quotes, as transformers does: write an object if that is not meant",
                name, quoted, made_by);
}

static void describe_packs(const HsDatasetBuild *building)
{
    const HsRowCounts *rows = &building->rows;
    const double places = (double)rows->packs * (double)(building->config->training.max_length + 1);
    if (rows->packs > 0)
        hs_info("task %s: %" PRId64 " documents share %" PRId64 " rows, %.1f%% of which is padding",
                building->task->name, rows->documents - rows->without_target, rows->packs,
                100.0 * (1.0 - (double)rows->kept / places));
}

static void warn_cut_rows(const HsDatasetBuild *building)
{
    const HsRowCounts *rows = &building->rows;
    const char *const name = building->task->name;
    if (rows->cut > 0)
        hs_warn("task %s: %" PRId64 " of %" PRId64 " documents are cut at max_length: %" PRId64
                " tokens at their ends are lost, %" PRId64 " of which the loss would count",
                name, rows->cut, rows->documents, rows->lost, rows->lost_targets);
    if (rows->without_target > 0)
        hs_warn("task %s: %" PRId64 " of %" PRId64
                " documents are left out: they have no token that the loss counts, or none before max_length",
                name, rows->without_target, rows->documents);
}

/* Once for all tasks. */
static void warn_joined(const HsDatasetBuild *buildings, int count, const HsTokenizer *tokenizer)
{
    const bool joined = !hs_dataset_keeps_documents(buildings->config);
    for (int i = 0; joined && i < count && hs_tokenizer_end_of_text(tokenizer) < 0; i++) {
        const int64_t train = buildings[i].train.joined, validation = buildings[i].validation.joined;
        if (train <= 1 && validation <= 1)
            continue;
        hs_warn("task %s: no end-of-text token is known: its %" PRId64 " documents run together without a border; set "
                "tokenizer.end_of_text to the token that ends a document",
                buildings[i].task->name, train > validation ? train : validation);
        return;
    }
}

/* Reads and encodes a task's sources. */
static HsStatus finish(HsDatasetBuild *building, HsTokenizer *tokenizer, HsDataset *dataset)
{
    building->tokenizer = dataset->tokenizer = tokenizer;
    HsStatus status = hs_dataset_encode(building, dataset);
    if (status == HS_EFORMAT)
        status = hs_dataset_explain_characters(building, status);
    HS_TRY(hs_dataset_blame_task(building, status));
    HS_TRY(hs_dataset_require_text(building, building->train.count > 0));
    warn_long_chats(building);
    warn_chats(building);
    warn_cut_rows(building);
    describe_packs(building);
    HS_TRY(hs_dataset_count_shared(building, &dataset->apart));
    hs_documents_deinit(&building->train);
    hs_documents_deinit(&building->validation);
    if (dataset->group > 0)
        hs_stream_order_by_length(&dataset->train);
    HS_TRY(check_length(building, dataset, &dataset->train, "train"));
    return check_length(building, dataset, &dataset->validation, "validation");
}

/* The same of token files, which are not read. */
static HsStatus open_files(HsDatasetBuild *building, HsTokenizer *tokenizer, HsDataset *dataset)
{
    dataset->tokenizer = tokenizer;
    HS_TRY(hs_dataset_blame_task(building, hs_dataset_open_files(building, dataset)));
    HS_TRY(hs_dataset_require_text(building, dataset->shards[0].tokens > 0));
    HS_TRY(check_length(building, dataset, &dataset->train, "train"));
    return check_length(building, dataset, &dataset->validation, "validation");
}

static HsStatus settle(const HsDatasetBuild *buildings, HsTokenizer *tokenizer)
{
    return hs_tokenizer_settle(tokenizer, buildings->config);
}

/* All phases; `*tokenizer` may be given, and is made otherwise. */
HsStatus hs_dataset_build(HsDatasetBuild *buildings, int count, HsTokenizer **tokenizer, HsDataset *datasets)
{
    for (int i = 0; i < count; i++) {
        HS_TRY(hs_dataset_list_sources(&buildings[i]));
        HS_TRY(hs_dataset_leave_out(&buildings[i], &datasets[i].apart));
        if (!hs_dataset_uses_cache(&buildings[i], buildings[i].cache))
            buildings[i].cache = NULL;
        hs_source_list_warn(&buildings[i].sources);
        HS_TRY(hs_dataset_check_synthetic(&buildings[i]));
    }
    if (!*tokenizer)
        HS_TRY(hs_dataset_tokenizer_early(buildings, count, tokenizer));
    bool early = *tokenizer != NULL;
    if (early)
        HS_TRY(settle(buildings, *tokenizer));
    for (int i = 0; i < count; i++) {
        buildings[i].tokenizer = *tokenizer;
        if (early && hs_dataset_stays_in_files(&buildings[i])) {
            HS_TRY(open_files(&buildings[i], *tokenizer, &datasets[i]));
            continue;
        }
        if (early)
            HS_TRY(finish(&buildings[i], *tokenizer, &datasets[i]));
    }
    if (!early) {
        HS_TRY(hs_dataset_tokenizer_from_text(buildings, count, tokenizer));
        HS_TRY(settle(buildings, *tokenizer));
        for (int i = 0; i < count; i++)
            HS_TRY(finish(&buildings[i], *tokenizer, &datasets[i]));
    }
    warn_joined(buildings, count, *tokenizer);
    return HS_OK;
}

/* A task's place in the list; a task from elsewhere counts as the first. */
static uint32_t index_of_task(const HsConfig *config, const HsTaskConfig *task)
{
    for (int i = 0; i < config->task_count; i++)
        if (&config->tasks[i] == task)
            return (uint32_t)i;
    return 0;
}

void hs_dataset_begin(const HsConfig *config, const HsTaskConfig *task, HsDatasetBuild *building, HsDataset *dataset)
{
    *building = (HsDatasetBuild){ .config = config, .task = task, .task_index = index_of_task(config, task) };
    *dataset = (HsDataset){
        .sequence_length = config->training.max_length,
        .random_windows = hs_is(config->data.sampling, "random"),
        .group = config->data.group_by_length ? config->training.batch_size : 0,
        .seed = hs_dataset_window_seed(building),
    };
}

void hs_dataset_end(HsDatasetBuild *building)
{
    hs_source_list_deinit(&building->sources);
    hs_dataset_close_needles(building);
    hs_documents_deinit(&building->train);
    hs_documents_deinit(&building->validation);
}

HsStatus hs_dataset_create(const HsConfig *config, const HsTaskConfig *task, HsTokenizer *tokenizer, HsDataset *dataset)
{
    HsDatasetBuild building;
    hs_dataset_begin(config, task, &building, dataset);
    HsStatus status = hs_dataset_build(&building, 1, &tokenizer, dataset);
    dataset->tokenizer = tokenizer;
    dataset->owns_tokenizer = true;
    hs_dataset_end(&building);
    if (status != HS_OK)
        hs_dataset_deinit(dataset);
    return status;
}

void hs_dataset_deinit(HsDataset *dataset)
{
    HsStreamTokens *streams[] = { &dataset->train, &dataset->validation };
    for (int i = 0; i < 2; i++) {
        hs_token_shards_deinit(&dataset->shards[i]);
        free(streams[i]->tokens);
        free(streams[i]->loss_mask);
        free(streams[i]->rows);
        free(streams[i]->packs);
    }
    for (int i = 0; i < HS_ITEM_SET_COUNT; i++)
        hs_item_set_deinit(&dataset->items[i]);
    for (int i = 0; i < dataset->part_count; i++)
        hs_dataset_deinit(&dataset->parts[i]);
    free(dataset->parts);
    hs_mixture_destroy(dataset->mixture);
    hs_dataset_apart_deinit(&dataset->apart);
    if (dataset->owns_tokenizer)
        hs_tokenizer_destroy(dataset->tokenizer);
    *dataset = (HsDataset){ 0 };
}
