/* SPDX-License-Identifier: MIT
 *
 * From a task's sources to a dataset.
 *
 *     list sources -> read them into one corpus -> tokenizer -> encode and split (dataset_stream.c) -> check lengths
 *
 * Train and validation text share one corpus, because a char tokenizer must know the characters of both.
 */
#include "runtime/data/dataset_build.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base/rng.h"

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

static HsStatus list_sources(HsDatasetBuild *building)
{
    const HsTaskConfig *task = building->task;
    for (int i = 0; i < task->train.count; i++) {
        HsStatus status = hs_source_list_add(&building->sources, task->train.items[i]);
        if (status != HS_OK)
            return hs_error_prefix(status, "task %s: train", task->name);
    }
    building->train_sources = building->sources.count;
    HsStatus status = parse_share(task->validation, &building->share);
    if (status != HS_OK)
        return hs_error_prefix(status, "task %s", task->name);
    if (building->share > 0)
        return HS_OK;
    status = hs_source_list_add(&building->sources, task->validation);
    return status == HS_OK ? HS_OK : hs_error_prefix(status, "task %s: validation", task->name);
}

/* Other tokenizers exist before any text is read; only char is made from it. */
static HsStatus create_tokenizer_early(HsDatasetBuild *building)
{
    const HsConfig *config = building->config;
    if (building->tokenizer)
        return HS_OK;
    if (strcmp(config->tokenizer.kind, "char") != 0) {
        const char *path = config->tokenizer.path[0] ? config->tokenizer.path : NULL;
        return hs_tokenizer_create(config->tokenizer.kind, path, NULL, 0, &building->tokenizer);
    }
    if (hs_source_list_has_tokens(&building->sources))
        return hs_fail(
            HS_ECONFIG,
            "task %s: token files (.bin) need a tokenizer that exists, but tokenizer.kind: char is made from "
            "this task's text; set tokenizer.kind to the one that wrote them, or give text files only",
            building->task->name);
    return HS_OK;
}

/* Sources in a list are different text even if they have the same name: each has its own seed. */
static uint64_t source_seed(const HsDatasetBuild *building, int source)
{
    const uint32_t site = 0x534f5552;
    bool validates = source >= building->train_sources;
    uint32_t index = (uint32_t)(validates ? source - building->train_sources : source);
    const uint32_t counter[4] = { index, validates, 0, site };
    HsPhilox bits = hs_philox((uint64_t)building->config->training.seed, counter);
    return (uint64_t)bits.word[1] << 32 | bits.word[0];
}

static HsStatus read_sources(HsDatasetBuild *building)
{
    const HsTaskConfig *task = building->task;
    HsCorpus *corpus = &building->corpus;
    HsSourceOptions options = {
        .text_field = task->text_field,
        .prompt_field = task->prompt_field,
        .completion_field = task->completion_field,
        .raw16 = strcmp(building->config->data.token_file, "raw16") == 0,
        .vocabulary = building->tokenizer ? hs_tokenizer_vocabulary(building->tokenizer) : 0,
    };
    for (int i = 0; i < building->sources.count; i++) {
        if (i == building->train_sources)
            building->train_pieces = corpus->piece_count;
        corpus->source = i;
        options.seed = source_seed(building, i);
        /* A tenth is enough to measure with, as with the default share. */
        options.synthetic_bytes = i < building->train_sources ? task->synthetic_tokens : task->synthetic_tokens / 10;
        HS_TRY(hs_source_read(&building->sources.items[i], &options, corpus));
    }
    if (building->sources.count == building->train_sources)
        building->train_pieces = corpus->piece_count;
    if (building->train_pieces == 0)
        return hs_fail(HS_ECONFIG, "task %s: train holds no text: every file in it is empty", task->name);
    return HS_OK;
}

static HsStatus create_char_tokenizer(HsDatasetBuild *building)
{
    const HsCorpus *corpus = &building->corpus;
    HsStatus status = hs_tokenizer_create("char", NULL, corpus->text, corpus->text_length, &building->tokenizer);
    if (status != HS_EFORMAT)
        return status;
    /* Some file is not UTF-8.  Its offset in all text together helps nobody: find the piece and its own offset. */
    for (int64_t i = 0; i < corpus->piece_count; i++) {
        const HsPiece *piece = &corpus->pieces[i];
        HsTokenizer *probe = NULL;
        if (piece->length == 0)
            continue;
        if (hs_tokenizer_create("char", NULL, corpus->text + piece->start, piece->length, &probe) != HS_OK)
            return hs_dataset_blame(building, piece, status);
        hs_tokenizer_destroy(probe);
    }
    return status;
}

static bool has_target(const HsStreamTokens *stream)
{
    /* The first token is nobody's target. */
    return !stream->loss_mask || memchr(stream->loss_mask + 1, 1, (size_t)stream->count - 1);
}

static HsStatus check_length(const HsDatasetBuild *building, const HsDataset *dataset, const HsStreamTokens *stream,
                             const char *key)
{
    int64_t length = dataset->sequence_length;
    const char *name = building->task->name;
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
    if (!has_target(stream))
        return hs_fail(HS_ECONFIG, "task %s: %s has no token that the loss counts: every completion is empty", name,
                       key);
    return HS_OK;
}

static HsStatus build(HsDatasetBuild *building, HsDataset *dataset)
{
    HS_TRY(list_sources(building));
    HS_TRY(create_tokenizer_early(building));
    HS_TRY(read_sources(building));
    if (!building->tokenizer)
        HS_TRY(create_char_tokenizer(building));
    HS_TRY(hs_dataset_encode(building, dataset));
    HS_TRY(check_length(building, dataset, &dataset->train, "train"));
    return check_length(building, dataset, &dataset->validation, "validation");
}

HsStatus hs_dataset_create(const HsConfig *config, const HsTaskConfig *task, HsTokenizer *tokenizer, HsDataset *dataset)
{
    HsDatasetBuild building = { .config = config, .task = task, .tokenizer = tokenizer };
    *dataset = (HsDataset){
        .sequence_length = config->training.max_length,
        .random_windows = strcmp(config->data.sampling, "random") == 0,
        .seed = (uint64_t)config->training.seed,
    };
    HsStatus status = build(&building, dataset);
    dataset->tokenizer = building.tokenizer;
    hs_source_list_deinit(&building.sources);
    hs_corpus_deinit(&building.corpus);
    if (status != HS_OK)
        hs_dataset_deinit(dataset);
    return status;
}

void hs_dataset_deinit(HsDataset *dataset)
{
    HsStreamTokens *streams[] = { &dataset->train, &dataset->validation };
    for (int i = 0; i < 2; i++) {
        free(streams[i]->tokens);
        free(streams[i]->loss_mask);
    }
    if (dataset->tokenizer)
        hs_tokenizer_destroy(dataset->tokenizer);
    *dataset = (HsDataset){ 0 };
}
