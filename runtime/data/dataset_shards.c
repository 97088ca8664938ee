/* SPDX-License-Identifier: MIT
 *
 * Datasets of token files, which stay in their files: a task with sources that are all token files, none compressed, and
 * windows cut from the whole (data.packing: stream).  What it samples is what it would sample with all tokens in memory.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "runtime/data/dataset_build.h"

bool hs_dataset_stays_in_files(const HsDatasetBuild *building)
{
    bool stays = building->sources.count > 0 && !hs_dataset_keeps_documents(building->config);
    for (int i = 0; stays && i < building->sources.count; i++)
        stays = hs_source_stays_in_file(&building->sources.items[i]);
    return stays;
}

static void describe(const HsTokenShards *shards, int64_t start, int64_t count, HsStreamTokens *stream)
{
    *stream = (HsStreamTokens){ .count = count, .shards = shards, .shard_start = start, .entropy_floor = (double)NAN };
    for (int i = 0; i < shards->count; i++) {
        const HsTokenShard *shard = &shards->items[i];
        /* A file that is cut in two is counted once, with train. */
        stream->documents += shard->first >= start && shard->first < start + count;
    }
}

enum { CHUNK = 4096 };

/* Whether two files hold the same tokens: read until they differ. */
static HsStatus compare(const HsTokenShards *left, const HsTokenShard *a, const HsTokenShards *right,
                        const HsTokenShard *b, bool *equal)
{
    int32_t from_a[CHUNK], from_b[CHUNK];
    *equal = a->count == b->count;
    for (int64_t at = 0; *equal && at < a->count; at += CHUNK) {
        const int64_t part = a->count - at < CHUNK ? a->count - at : CHUNK;
        HS_TRY(hs_token_shards_read(left, a->first + at, part, from_a));
        HS_TRY(hs_token_shards_read(right, b->first + at, part, from_b));
        *equal = memcmp(from_a, from_b, (size_t)part * sizeof *from_a) == 0;
    }
    return HS_OK;
}

static HsStatus text_bytes(const HsTokenizer *tokenizer, const HsTokenShards *shards, const HsTokenShard *shard,
                           int64_t *bytes)
{
    int32_t tokens[CHUNK];
    for (int64_t at = 0; at < shard->count; at += CHUNK) {
        const int64_t part = shard->count - at < CHUNK ? shard->count - at : CHUNK;
        HS_TRY(hs_token_shards_read(shards, shard->first + at, part, tokens));
        for (int64_t i = 0; i < part; i++) {
            size_t size;
            (void)hs_tokenizer_bytes(tokenizer, tokens[i], &size);
            *bytes += (int64_t)size;
        }
    }
    return HS_OK;
}

/* As hs_dataset_count_shared: a file is a document.  Bytes are counted where one is shared, as that reads them all. */
static HsStatus count_shared(const HsDatasetBuild *building, HsDataset *dataset)
{
    const HsTokenShards *train = &dataset->shards[0], *validation = &dataset->shards[1];
    HsDatasetApart *apart = &dataset->apart;
    int64_t shared_bytes = 0;
    for (int v = 0; v < validation->count; v++) {
        bool shared = false;
        for (int t = 0; !shared && t < train->count; t++)
            HS_TRY(compare(validation, &validation->items[v], train, &train->items[t], &shared));
        if (shared)
            HS_TRY(text_bytes(building->tokenizer, validation, &validation->items[v], &shared_bytes));
        apart->documents++;
        apart->shared_documents += shared;
    }
    apart->shared_bytes = shared_bytes;
    for (int v = 0; shared_bytes > 0 && v < validation->count; v++)
        HS_TRY(text_bytes(building->tokenizer, validation, &validation->items[v], &apart->bytes));
    return HS_OK;
}

HsStatus hs_dataset_open_files(const HsDatasetBuild *building, HsDataset *dataset)
{
    const bool raw16 = hs_is(building->config->data.token_file, "raw16");
    for (int i = 0; i < 2; i++)
        dataset->shards[i].vocabulary = hs_tokenizer_vocabulary(building->tokenizer);
    for (int i = 0; i < building->sources.count; i++)
        HS_TRY(hs_token_shards_add(&dataset->shards[i >= building->train_sources], building->sources.items[i].name,
                                   raw16));
    const HsTokenShards *train = &dataset->shards[0], *validation = &dataset->shards[1];
    int64_t cut = train->tokens;
    if (building->share > 0) {
        cut = (int64_t)floor((double)train->tokens * (100 - building->share) / 100);
        validation = train;
    }
    describe(train, 0, cut, &dataset->train);
    if (building->share > 0)
        describe(train, cut, train->tokens - cut, &dataset->validation);
    else
        describe(validation, 0, validation->tokens, &dataset->validation);
    return building->share > 0 ? HS_OK : count_shared(building, dataset);
}
