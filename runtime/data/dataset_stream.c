/* SPDX-License-Identifier: MIT
 *
 * From the sources to token streams: encoded unit by unit, split, and counted.
 *
 *     documents   | doc 0 | prompt completion | doc 2 ...
 *     tokens      [ ..  end  ..  ..  ..      end   .. ...     documents[i].end: behind the last token of document i
 *     mask        [ 1 .. 1 1  0 .. 0  1 .. 1  1    1 ...
 */
#include "runtime/data/dataset_build.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base/array.h"

/* A stream that is being read. */
typedef struct Filling {
    HsDatasetBuild *building; /* first: hs_dataset_source_options and hs_dataset_look_for_needles find it */
    HsDocuments *documents;
    HsTokens tokens;
    uint8_t *mask;
    size_t mask_capacity;
} Filling;

static HsStatus fail_memory(HsStatus status)
{
    return status == HS_OK ? HS_OK : hs_error_prefix(status, "the training data does not fit into memory");
}

/* What is masked in the unit, and in all before it where it is the first that has something. */
static HsStatus add_mask(Filling *filling, const HsEncodedUnit *unit)
{
    const size_t before = (size_t)filling->tokens.count, count = (size_t)unit->count;
    if (!unit->mask && !filling->mask)
        return HS_OK;
    const bool first = !filling->mask;
    HS_TRY(fail_memory(hs_array_grow(&filling->mask, 1, before + count + 1, &filling->mask_capacity)));
    if (first)
        memset(filling->mask, 1, before);
    if (unit->mask)
        memcpy(filling->mask + before, unit->mask, count);
    else
        memset(filling->mask + before, 1, count);
    return HS_OK;
}

static HsStatus add_unit(void *user, const HsEncodedUnit *unit)
{
    Filling *filling = user;
    HsDocuments *documents = filling->documents;
    const int64_t before = filling->tokens.count;
    HS_TRY(add_mask(filling, unit));
    HS_TRY(fail_memory(hs_tokens_reserve(&filling->tokens, unit->count)));
    if (unit->count > 0)
        memcpy(filling->tokens.items + before, unit->tokens, (size_t)unit->count * sizeof(int32_t));
    filling->tokens.count += unit->count;
    for (int64_t i = 0; i < unit->document_count; i++)
        if (unit->documents[i].is_tokens)
            HS_TRY(hs_dataset_refuse_tokens(filling->building, unit->from));
    return fail_memory(hs_documents_add_unit(documents, unit, before));
}

/* Of a stream's conversations, which are longer than a window, and what of their answers lies beyond one. */
static HsStatus measure_chats(HsDatasetBuild *building, HsDocuments *documents, const HsStreamTokens *stream)
{
    HsChatLengths *lengths = &building->chats;
    const int64_t most = building->config->training.max_length;
    int64_t first = 0;
    for (int64_t i = 0; documents->chats > 0 && i < documents->count; i++) {
        const HsEncodedDocument document = hs_document(documents, i);
        const int64_t begin = first, length = document.end - first;
        first = document.end;
        if (!document.is_chat)
            continue;
        lengths->count++;
        if (length <= most)
            continue;
        lengths->longer++;
        lengths->longest = length > lengths->longest ? length : lengths->longest;
        HS_TRY(hs_stream_count_targets(stream, begin + most, document.end, &lengths->answers_beyond));
    }
    return documents->failure;
}

/* Sources [first, last) in memory. */
static HsStatus encode_in_memory(HsDatasetBuild *building, int first, int last, HsDocuments *documents,
                                 HsStreamTokens *stream)
{
    Filling filling = { .building = building, .documents = documents };
    const HsEncoding encoding = { .sources = &building->sources,
                                  .first = first,
                                  .last = last,
                                  .tokenizer = building->tokenizer,
                                  .options = hs_dataset_source_options,
                                  .with_ends = true,
                                  .threads = (int)building->config->training.threads,
                                  .take = add_unit,
                                  .look = building->needle_count > 0 ? hs_dataset_look_for_needles : NULL,
                                  .user = &filling,
                                  .what = "tokenizing" };
    const HsStatus status = hs_sources_encode(&encoding);
    if (status != HS_OK) {
        hs_tokens_deinit(&filling.tokens);
        free(filling.mask);
        return status;
    }
    stream->count = filling.tokens.count;
    stream->tokens = filling.tokens.items; /* the stream owns them now */
    stream->loss_mask = filling.mask;
    return HS_OK;
}

/* The same to one stream, in memory or as parts of the cache, which become `shards`. */
static HsStatus encode(HsDatasetBuild *building, int first, int last, HsDocuments *documents, HsTokenShards *shards,
                       HsStreamTokens *stream)
{
    if (building->cache) {
        HS_TRY(hs_dataset_encode_cached(building, first, last, documents, shards));
        stream->shards = shards;
        stream->count = shards->tokens;
    } else {
        HS_TRY(encode_in_memory(building, first, last, documents, stream));
    }
    return measure_chats(building, documents, stream);
}

/* The floor: the documents' information content over the tokens.  Tokens and text determine each other, so it holds for
 * any tokenizer; an end-of-text token follows from the text before it and costs nothing.  NAN as soon as one document's
 * content is unknown, or one is not whole. */
static void describe(const HsDocumentRange *range, bool whole, HsStreamTokens *stream)
{
    const bool known = whole && range->documents->known >= range->last - range->first;
    double nats = known ? 0 : (double)NAN;
    for (int64_t i = range->first; known && i < range->last; i++)
        nats += hs_document(range->documents, i).nats;
    stream->documents = range->last - range->first;
    stream->entropy_floor = stream->count > 0 ? nats / (double)stream->count : (double)NAN;
}

/* Moves the tail of the train stream, from token `cut` on, to the validation stream. */
static HsStatus move_tail(HsDataset *dataset, int64_t cut)
{
    HsStreamTokens *train = &dataset->train, *validation = &dataset->validation;
    size_t count = (size_t)(train->count - cut);
    if (train->shards) {
        *validation = (HsStreamTokens){ .count = (int64_t)count,
                                        .shards = train->shards,
                                        .shard_start = train->shard_start + cut };
        train->count = cut;
        return HS_OK;
    }
    validation->tokens = malloc((count + 1) * sizeof(int32_t));
    validation->loss_mask = train->loss_mask ? malloc(count + 1) : NULL;
    if (!validation->tokens || (train->loss_mask && !validation->loss_mask))
        return hs_fail(HS_ENOMEM, "no memory for %zu validation tokens", count);
    if (count > 0)
        memcpy(validation->tokens, train->tokens + cut, count * sizeof(int32_t));
    if (train->loss_mask)
        memcpy(validation->loss_mask, train->loss_mask + cut, count);
    validation->count = (int64_t)count;
    train->count = cut;
    return HS_OK;
}

/* The document that token `cut` lies in: the last that begins at or before it. */
static int64_t find_document(HsDocuments *documents, int64_t cut)
{
    int64_t low = 0, high = documents->count - 1;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (hs_document(documents, middle).end <= cut)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Cuts the share off the end.  train keeps floor(count * (100 - share) / 100) tokens: of characters, nanoGPT's split.
 * Conversations, and documents with their own rows, stay whole: the nearer end is taken, but not the very first or last;
 * synthetic text is cut at the nearer end too, as a part's information content is not known. */
static HsStatus split(HsDatasetBuild *building, HsDataset *dataset)
{
    HsDocuments *documents = &building->train;
    int64_t cut = (int64_t)floor((double)dataset->train.count * (100 - building->share) / 100);
    int64_t index = find_document(documents, cut);
    const HsEncodedDocument document = hs_document(documents, index);
    int64_t start = hs_document_start(documents, index);
    const int64_t before = cut - start, behind = document.end - cut;
    if (document.is_chat || hs_dataset_keeps_documents(building->config)) {
        index += index == 0 || (index + 1 < documents->count && before > behind);
        cut = start = hs_document_start(documents, index);
    } else if (!isnan(document.nats)) {
        index += before > behind;
        cut = start = hs_document_start(documents, index);
    }
    const bool inside = cut > start;
    HS_TRY(move_tail(dataset, cut));
    building->trained = (HsDocumentRange){ documents, 0, index, 0 };
    building->validated = (HsDocumentRange){ documents, index + inside, documents->count, cut };
    describe(&building->trained, !inside, &dataset->train);
    describe(&building->validated, !inside, &dataset->validation);
    /* A document that is cut in two is counted once: with train, but where not even its prompt is there whole. */
    if (inside && cut > start + document.prompt)
        dataset->train.documents++;
    else if (inside)
        dataset->validation.documents++;
    return HS_OK;
}

HsStatus hs_dataset_encode(HsDatasetBuild *building, HsDataset *dataset)
{
    const int train = building->train_sources;
    if (building->share == 0)
        HS_TRY(hs_dataset_open_needles(building));
    HS_TRY(encode(building, 0, train, &building->train, &dataset->shards[0], &dataset->train));
    if (building->train.count == 0)
        return HS_OK; /* the caller says so */
    if (building->share > 0) {
        HS_TRY(split(building, dataset));
    } else {
        building->trained = (HsDocumentRange){ &building->train, 0, building->train.count, 0 };
        describe(&building->trained, true, &dataset->train);
        HS_TRY(encode(building, train, building->sources.count, &building->validation, &dataset->shards[1],
                      &dataset->validation));
        building->validated = (HsDocumentRange){ &building->validation, 0, building->validation.count, 0 };
        describe(&building->validated, true, &dataset->validation);
    }
    HS_TRY(hs_dataset_make_rows(building, &building->trained, &dataset->train));
    HS_TRY(hs_dataset_make_rows(building, &building->validated, &dataset->validation));
    HS_TRY(hs_dataset_collect_items(building, dataset));
    HS_TRY(building->train.failure);
    return building->validation.failure;
}
