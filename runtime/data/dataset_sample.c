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
#include "runtime/data/length_groups.h"
#include "runtime/data/mixture.h"

/* The last counter word keeps the draws of one seed apart by purpose. */
enum { MASK_AT_ONCE = 1024 };
enum { SITE_EPOCH = 0x45504f43, SITE_RANDOM = 0x52414e44, SITE_GROUPS = 0x47525053 };

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
    if (dataset->parts)
        return dataset->train_windows;
    int64_t count = dataset->train.count, length = dataset->sequence_length;
    if (dataset->train.rows)
        return rows_of(&dataset->train);
    return dataset->random_windows ? count / length : windows_per_epoch(count, length);
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
    return stream->loss_mask || stream->rows || (stream->shards && stream->shards->masked); /* rows: padding is none */
}

HsStatus hs_stream_read_mask(const HsStreamTokens *stream, int64_t start, int64_t count, uint8_t *mask)
{
    if (stream->loss_mask)
        memcpy(mask, stream->loss_mask + start, (size_t)count);
    else if (stream->shards)
        return hs_token_shards_read_mask(stream->shards, stream->shard_start + start, count, mask);
    else
        memset(mask, 1, (size_t)count);
    return HS_OK;
}

HsStatus hs_stream_count_targets(const HsStreamTokens *stream, int64_t first, int64_t last, int64_t *targets)
{
    uint8_t mask[MASK_AT_ONCE];
    for (int64_t at = first; at < last; at += MASK_AT_ONCE) {
        const int64_t some = last - at < MASK_AT_ONCE ? last - at : MASK_AT_ONCE;
        HS_TRY(hs_stream_read_mask(stream, at, some, mask));
        for (int64_t t = 0; t < some; t++)
            *targets += mask[t];
    }
    return HS_OK;
}

HsStatus hs_dataset_empty_share(const HsDataset *dataset, double *share)
{
    const HsStreamTokens *stream = &dataset->train;
    const int64_t length = dataset->sequence_length, starts = stream->count - length;
    uint8_t mask[MASK_AT_ONCE];
    int64_t empty = 0, ignored = 0; /* targets since the last that counts, the window's T among them */
    *share = 0;
    for (int i = 0; i < dataset->part_count; i++) { /* the worst of them */
        double own;
        HS_TRY(hs_dataset_empty_share(&dataset->parts[i], &own));
        *share = own > *share ? own : *share;
    }
    if (dataset->parts || !hs_stream_is_masked(stream) || stream->rows || starts <= 0)
        return HS_OK;
    for (int64_t target = 1; target < stream->count; target++) {
        const int64_t at = (target - 1) % MASK_AT_ONCE, left = stream->count - target;
        if (at == 0)
            HS_TRY(hs_stream_read_mask(stream, target, left < MASK_AT_ONCE ? left : MASK_AT_ONCE, mask));
        ignored = mask[at] ? 0 : ignored + 1;
        empty += ignored >= length;
    }
    *share = (double)empty / (double)starts;
    return HS_OK;
}

/* Targets that do not count, of those that lie at [start, start + count), become -1. */
static HsStatus hide_uncounted(const HsStreamTokens *stream, int64_t start, int64_t count, int32_t *targets)
{
    uint8_t mask[MASK_AT_ONCE];
    for (int64_t at = 0; hs_stream_is_masked(stream) && at < count; at += MASK_AT_ONCE) {
        const int64_t some = count - at < MASK_AT_ONCE ? count - at : MASK_AT_ONCE;
        HS_TRY(hs_stream_read_mask(stream, start + at, some, mask));
        for (int64_t t = 0; t < some; t++)
            if (!mask[t])
                targets[at + t] = -1;
    }
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
    return hide_uncounted(stream, start + 1, length, targets);
}

/* A document from its first token, `count` of its tokens: into tokens and targets from `place` on, where there is room for
 * its tokens, and for one target fewer. */
static HsStatus copy_document(const HsStreamTokens *stream, const HsRow *row, int32_t *tokens, int32_t *targets)
{
    HS_TRY(hs_stream_read(stream, row->start, row->count - 1, tokens));
    memcpy(targets, tokens + 1, (size_t)(row->count - 2) * sizeof *targets);
    HS_TRY(hs_stream_read(stream, row->start + row->count - 1, 1, targets + row->count - 2));
    return hide_uncounted(stream, row->start + 1, row->count - 1, targets);
}

/* Several documents, each from its first token, marked but for the row's own; padding, each token by itself.  A row has
 * a token more than it has places: the last document's last one is a target alone. */
static HsStatus copy_pack(const HsStreamTokens *stream, int64_t index, int64_t length, int32_t padding, int32_t *tokens,
                          int32_t *targets)
{
    const HsPack *pack = &stream->packs[index];
    int64_t place = 0;
    for (int64_t i = pack->first; i < pack->first + pack->count; i++) {
        const HsRow *row = &stream->rows[i];
        HS_TRY(copy_document(stream, row, tokens + place, targets + place));
        if (place > 0) {
            tokens[place] = ~tokens[place];
            targets[place - 1] = -1;
        }
        place += row->count;
        if (place <= length)
            HS_TRY(hs_stream_read(stream, row->start + row->count - 1, 1, tokens + place - 1));
    }
    for (; place <= length; place++) {
        targets[place - 1] = -1;
        if (place < length)
            tokens[place] = ~padding;
    }
    return HS_OK;
}

/* A document from its first token, and padding. */
static HsStatus copy_row(const HsDataset *dataset, const HsStreamTokens *stream, int64_t row, int32_t *tokens,
                         int32_t *targets)
{
    const int32_t end = hs_tokenizer_end_of_text(dataset->tokenizer), padding = end >= 0 ? end : 0;
    const int64_t length = dataset->sequence_length;
    if (stream->packs)
        return copy_pack(stream, row, length, padding, tokens, targets);
    HS_TRY(copy_document(stream, &stream->rows[row], tokens, targets));
    for (int64_t t = stream->rows[row].count - 1; t < length; t++) {
        tokens[t] = padding;
        targets[t] = -1;
    }
    return HS_OK;
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
    const uint64_t key = join(bits.word[0], bits.word[1]);
    if (dataset->group == 0)
        return hs_rng_permute(key, index % count, count);
    HsPhilox more = draw(dataset, index / count, SITE_GROUPS);
    const HsLengthGroups groups = { count,
                                    dataset->group,
                                    { key, join(more.word[0], more.word[1]), join(more.word[2], more.word[3]) } };
    return hs_length_groups_rank(&groups, index);
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
    if (dataset->parts) {
        int source;
        int64_t within;
        HS_TRY(hs_mixture_find(dataset->mixture, index, &source, &within));
        return hs_dataset_sample(&dataset->parts[source], within, tokens, targets);
    }
    if (dataset->train.rows)
        return copy_row(dataset, &dataset->train, row_of(dataset, index), tokens, targets);
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
    int64_t all = 0;
    for (int i = 0; i < dataset->part_count; i++)
        all += hs_dataset_validation_windows(&dataset->parts[i]);
    if (dataset->parts)
        return all;
    return stream->rows ? rows_of(stream) : (stream->count - 1) / dataset->sequence_length;
}

HsStatus hs_dataset_validation_sample(const HsDataset *dataset, int64_t index, int64_t of, int32_t *tokens,
                                      int32_t *targets)
{
    int64_t windows = hs_dataset_validation_windows(dataset), length = dataset->sequence_length;
    assert(index >= 0 && index < of && of <= windows);
    /* index * windows / of without overflow: whole steps, then the rest. */
    int64_t window = index * (windows / of) + index * (windows % of) / of;
    for (int i = 0; i < dataset->part_count; i++) { /* one source behind the other */
        const int64_t own = hs_dataset_validation_windows(&dataset->parts[i]);
        if (window < own)
            return hs_dataset_validation_sample(&dataset->parts[i], window, own, tokens, targets);
        window -= own;
    }
    if (dataset->validation.rows)
        return copy_row(dataset, &dataset->validation, window, tokens, targets);
    return copy_window(&dataset->validation, window * length, length, tokens, targets);
}
