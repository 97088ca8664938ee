/* SPDX-License-Identifier: MIT
 *
 * Which tokens are row `index`: pure functions of the dataset, the seed and the index, so that a resumed run, another
 * number of loader threads or a longer prefetch see the same rows.
 *
 *     stream     |--shift--|---- T ----|---- T ----| ... |---- T ----|-+ one token more, the last target
 *     window i             tokens  [shift + i T, shift + i T + T)
 *                          targets the same, one token later
 */
#include <assert.h>
#include <string.h>

#include "kernels/base/rng.h"
#include "runtime/data/dataset.h"

/* The last counter word keeps the draws of one seed apart by purpose. */
enum { SITE_EPOCH = 0x45504f43, SITE_RANDOM = 0x52414e44 };

static HsPhilox draw(const HsDataset *dataset, int64_t index, uint32_t site)
{
    const uint32_t counter[4] = { (uint32_t)index, (uint32_t)((uint64_t)index >> 32), 0, site };
    return hs_philox(dataset->seed, counter);
}

static uint64_t join(uint32_t low, uint32_t high)
{
    return (uint64_t)high << 32 | low;
}

/* Windows that fit for every shift; where the stream is under two windows long, those that fit for some. */
static int64_t windows_per_epoch(int64_t count, int64_t length)
{
    int64_t windows = (count - length) / length;
    return windows > 0 ? windows : 1;
}

/* Where windows are not cut from the whole. */
static int64_t rows_of(const HsStreamTokens *stream)
{
    return stream->packs ? stream->pack_count : stream->row_count;
}

int64_t hs_dataset_windows(const HsDataset *dataset)
{
    int64_t count = dataset->train.count, length = dataset->sequence_length;
    if (dataset->train.rows)
        return rows_of(&dataset->train);
    return dataset->random_windows ? count / length : windows_per_epoch(count, length);
}

double hs_dataset_empty_share(const HsDataset *dataset)
{
    const HsStreamTokens *stream = &dataset->train;
    const int64_t length = dataset->sequence_length, starts = stream->count - length;
    if (!stream->loss_mask || stream->rows || starts <= 0)
        return 0;
    int64_t empty = 0, ignored = 0; /* targets since the last that counts, the window's T among them */
    for (int64_t target = 1; target < stream->count; target++) {
        ignored = stream->loss_mask[target] ? 0 : ignored + 1;
        empty += ignored >= length;
    }
    return (double)empty / (double)starts;
}

HsStatus hs_stream_read(const HsStreamTokens *stream, int64_t start, int64_t count, int32_t *tokens)
{
    if (!stream->tokens)
        return hs_token_shards_read(stream->shards, stream->shard_start + start, count, tokens);
    memcpy(tokens, stream->tokens + start, (size_t)count * sizeof(int32_t));
    return HS_OK;
}

bool hs_stream_is_masked(const HsStreamTokens *stream)
{
    return stream->loss_mask != NULL;
}

HsStatus hs_stream_read_mask(const HsStreamTokens *stream, int64_t start, int64_t count, uint8_t *mask)
{
    memcpy(mask, stream->loss_mask + start, (size_t)count);
    return HS_OK;
}

/* One row from `start`: start + T + 1 tokens must be there. */
static HsStatus copy_window(const HsStreamTokens *stream, int64_t start, int64_t length, int32_t *tokens,
                            int32_t *targets)
{
    assert(start >= 0 && start + length < stream->count);
    HS_TRY(hs_stream_read(stream, start, length, tokens));
    memcpy(targets, tokens + 1, (size_t)(length - 1) * sizeof(int32_t));
    HS_TRY(hs_stream_read(stream, start + length, 1, targets + length - 1));
    if (!stream->loss_mask)
        return HS_OK;
    for (int64_t t = 0; t < length; t++)
        if (!stream->loss_mask[start + 1 + t])
            targets[t] = -1;
    return HS_OK;
}

/* Several documents, each from its first token, marked but for the row's own; padding, each token by itself. */
static void copy_pack(const HsDataset *dataset, const HsStreamTokens *stream, int64_t index, int32_t *tokens,
                      int32_t *targets)
{
    const HsPack *pack = &stream->packs[index];
    const int32_t end = hs_tokenizer_end_of_text(dataset->tokenizer), padding = end >= 0 ? end : 0;
    const int64_t length = dataset->sequence_length;
    int64_t place = 0;
    for (int64_t i = pack->first; i < pack->first + pack->count; i++)
        for (int64_t t = 0; t < stream->rows[i].count; t++, place++) {
            const int64_t at = stream->rows[i].start + t;
            if (place > 0)
                targets[place - 1] = t > 0 && stream->loss_mask[at] ? stream->tokens[at] : -1;
            if (place < length)
                tokens[place] = t == 0 && place > 0 ? ~stream->tokens[at] : stream->tokens[at];
        }
    for (; place <= length; place++) {
        targets[place - 1] = -1;
        if (place < length)
            tokens[place] = ~padding;
    }
}

/* A document from its first token, and padding. */
static void copy_row(const HsDataset *dataset, const HsStreamTokens *stream, int64_t row, int32_t *tokens,
                     int32_t *targets)
{
    if (stream->packs) {
        copy_pack(dataset, stream, row, tokens, targets);
        return;
    }
    const HsRow *place = &stream->rows[row];
    const int32_t *from = stream->tokens + place->start, end = hs_tokenizer_end_of_text(dataset->tokenizer);
    for (int64_t t = 0; t < dataset->sequence_length; t++) {
        const bool there = t + 1 < place->count;
        tokens[t] = there ? from[t] : end >= 0 ? end : 0;
        targets[t] = there && stream->loss_mask[place->start + t + 1] ? from[t + 1] : -1;
    }
}

/* Which row is sample `index`. */
static int64_t row_of(const HsDataset *dataset, int64_t index)
{
    const int64_t count = rows_of(&dataset->train);
    if (dataset->random_windows) {
        HsPhilox bits = draw(dataset, index, SITE_RANDOM);
        return (int64_t)(join(bits.word[0], bits.word[1]) % (uint64_t)count);
    }
    HsPhilox bits = draw(dataset, index / count, SITE_EPOCH);
    return hs_rng_permute(join(bits.word[0], bits.word[1]), index % count, count);
}

static int64_t epoch_start(const HsDataset *dataset, int64_t index)
{
    int64_t count = dataset->train.count, length = dataset->sequence_length;
    int64_t windows = windows_per_epoch(count, length);
    HsPhilox bits = draw(dataset, index / windows, SITE_EPOCH);
    int64_t window = hs_rng_permute(join(bits.word[0], bits.word[1]), index % windows, windows);
    /* `room`: how far the last window can be moved.  Taking the remainder favours small shifts by less than 2^-40. */
    int64_t room = count - 1 - windows * length;
    int64_t shifts = room + 1 < length ? room + 1 : length;
    int64_t shift = (int64_t)(join(bits.word[2], bits.word[3]) % (uint64_t)shifts);
    return shift + window * length;
}

static int64_t random_start(const HsDataset *dataset, int64_t index)
{
    HsPhilox bits = draw(dataset, index, SITE_RANDOM);
    uint64_t starts = (uint64_t)(dataset->train.count - dataset->sequence_length);
    return (int64_t)(join(bits.word[0], bits.word[1]) % starts);
}

HsStatus hs_dataset_sample(const HsDataset *dataset, int64_t index, int32_t *tokens, int32_t *targets)
{
    if (dataset->train.rows) {
        copy_row(dataset, &dataset->train, row_of(dataset, index), tokens, targets);
        return HS_OK;
    }
    int64_t start = dataset->random_windows ? random_start(dataset, index) : epoch_start(dataset, index);
    return copy_window(&dataset->train, start, dataset->sequence_length, tokens, targets);
}

static HsStatus sample_dataset(const void *user, int64_t index, int32_t *tokens, int32_t *targets)
{
    return hs_dataset_sample(user, index, tokens, targets);
}

HsSampler hs_dataset_sampler(const HsDataset *dataset)
{
    return (HsSampler){ sample_dataset, dataset, dataset->sequence_length };
}

int64_t hs_dataset_validation_windows(const HsDataset *dataset)
{
    const HsStreamTokens *stream = &dataset->validation;
    return stream->rows ? rows_of(stream) : (stream->count - 1) / dataset->sequence_length;
}

HsStatus hs_dataset_validation_sample(const HsDataset *dataset, int64_t index, int64_t of, int32_t *tokens,
                                      int32_t *targets)
{
    int64_t windows = hs_dataset_validation_windows(dataset), length = dataset->sequence_length;
    assert(index >= 0 && index < of && of <= windows);
    /* index * windows / of without overflow: whole steps, then the rest. */
    int64_t window = index * (windows / of) + index * (windows % of) / of;
    if (dataset->validation.rows) {
        copy_row(dataset, &dataset->validation, window, tokens, targets);
        return HS_OK;
    }
    return copy_window(&dataset->validation, window * length, length, tokens, targets);
}
