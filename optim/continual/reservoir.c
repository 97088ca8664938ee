/* SPDX-License-Identifier: MIT
 *
 * Algorithm R (Vitter 1985, "Random sampling with a reservoir", section 2), and uniform draws from what it keeps.
 *
 * After n items every one of them is held with probability M/n: it holds for n = M, and item n+1 enters with
 * probability M/(n+1) while a held one survives with 1 - M/(n+1) 1/M = n/(n+1).
 *
 * Every random number is 64 bits of one Philox call under the run's seed, so nothing but `seen` needs saving:
 *     an offer   counter {n low, n high, attempt, OFFER}            n = age after the offer, counting from 1
 *     a draw     counter {draw low, draw high, age low, DRAW + attempt}
 * The age stands in a draw's counter so that equal draw numbers of different tasks are independent.
 */
#include "optim/continual/reservoir.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base/rng.h"

/* Apart from the sites of other users of the same seed, and far from each other: attempts are added to one. */
static const uint32_t OFFER_SITE = 0x52534f46, DRAW_SITE = 0x52534452;

/* Tries at an eligible slot before all slots are looked at.  With half the items eligible the scan comes once in 2^32
 * draws; with none, it is what says so. */
enum { DRAW_ATTEMPTS = 32 };

/* Bytes of an item in each of the three arrays. */
static size_t token_bytes(int64_t sequence_length, int64_t vocabulary)
{
    return (size_t)(sequence_length + 1) * (vocabulary <= 65536 ? sizeof(uint16_t) : sizeof(int32_t));
}

static int64_t mask_row(int64_t sequence_length)
{
    return (sequence_length + 7) / 8;
}

size_t hs_reservoir_bytes(int64_t capacity, int64_t sequence_length, int64_t vocabulary, bool masked)
{
    size_t item = token_bytes(sequence_length, vocabulary) + sizeof(int32_t), bytes;
    if (masked)
        item += (size_t)mask_row(sequence_length);
    /* A buffer_size that no memory could hold must not wrap round to one that does. */
    return __builtin_mul_overflow((size_t)capacity, item, &bytes) ? SIZE_MAX : bytes;
}

HsStatus hs_reservoir_init(HsReservoir *reservoir, int64_t capacity, int64_t sequence_length, int64_t vocabulary,
                           bool masked, uint64_t seed)
{
    assert(capacity >= 1 && sequence_length >= 1 && vocabulary >= 1);
    *reservoir = (HsReservoir){ .capacity = capacity, .sequence_length = sequence_length, .seed = seed };
    const size_t bytes = hs_reservoir_bytes(capacity, sequence_length, vocabulary, masked);
    const size_t count = (size_t)capacity;
    /* Zeroed: a checkpoint writes unused slots too, and its bytes must not depend on what was in memory. */
    void *tokens = bytes < SIZE_MAX ? calloc(count, token_bytes(sequence_length, vocabulary)) : NULL;
    void *mask = tokens && masked ? calloc(count, (size_t)mask_row(sequence_length)) : NULL;
    void *task = tokens ? calloc(count, sizeof(int32_t)) : NULL;
    if (!tokens || !task || (masked && !mask)) {
        free(tokens);
        free(mask);
        free(task);
        return hs_fail(HS_ENOMEM,
                       "the replay buffer of %lld sequences needs %.0f MiB (%zu bytes) of host memory: lower "
                       "replay.buffer_size (or mer.buffer_size)",
                       (long long)capacity, (double)bytes / 0x1p20, bytes);
    }
    reservoir->tokens = hs_tensor_2d(tokens, vocabulary <= 65536 ? HS_U16 : HS_I32, capacity, sequence_length + 1);
    if (masked)
        reservoir->mask = hs_tensor_2d(mask, HS_U8, capacity, mask_row(sequence_length));
    reservoir->task = hs_tensor_1d(task, HS_I32, capacity);
    return HS_OK;
}

size_t hs_reservoir_mark_bytes(int64_t capacity, int64_t sequence_length)
{
    size_t bytes;
    return __builtin_mul_overflow((size_t)capacity, (size_t)mask_row(sequence_length), &bytes) ? SIZE_MAX : bytes;
}

HsStatus hs_reservoir_keep_marks(HsReservoir *reservoir)
{
    const int64_t row = mask_row(reservoir->sequence_length);
    void *marks = calloc((size_t)reservoir->capacity, (size_t)row);
    if (!marks)
        return hs_fail(HS_ENOMEM,
                       "no memory for the marks of %lld replayed sequences: lower replay.buffer_size (or "
                       "mer.buffer_size)",
                       (long long)reservoir->capacity);
    reservoir->marks = hs_tensor_2d(marks, HS_U8, reservoir->capacity, row);
    return HS_OK;
}

/* One index is set aside for "none". */
static size_t index_bytes(int64_t vocabulary)
{
    return vocabulary < UINT16_MAX ? sizeof(uint16_t) : sizeof(int32_t);
}

size_t hs_reservoir_logit_bytes(int64_t capacity, int64_t sequence_length, int64_t vocabulary, int64_t kept)
{
    const size_t entry = index_bytes(vocabulary) + sizeof(uint16_t);
    size_t bytes;
    if (__builtin_mul_overflow((size_t)capacity, (size_t)(sequence_length * kept) * entry, &bytes))
        return SIZE_MAX;
    return bytes;
}

HsStatus hs_reservoir_keep_logits(HsReservoir *reservoir, int64_t kept, int64_t vocabulary)
{
    const size_t bytes = hs_reservoir_logit_bytes(reservoir->capacity, reservoir->sequence_length, vocabulary, kept);
    const int64_t row = reservoir->sequence_length * kept;
    const size_t entries = bytes / (index_bytes(vocabulary) + sizeof(uint16_t));
    void *index = bytes < SIZE_MAX ? calloc(entries, index_bytes(vocabulary)) : NULL;
    void *value = index ? calloc(entries, sizeof(uint16_t)) : NULL;
    if (!value) {
        free(index);
        return hs_fail(HS_ENOMEM,
                       "%lld logits for each token of %lld sequences need %.0f MiB of host memory: lower der.top_k "
                       "or replay.buffer_size",
                       (long long)kept, (long long)reservoir->capacity, (double)bytes / 0x1p20);
    }
    reservoir->kept = kept;
    reservoir->kept_index = hs_tensor_2d(index, vocabulary < UINT16_MAX ? HS_U16 : HS_I32, reservoir->capacity, row);
    reservoir->kept_value = hs_tensor_2d(value, HS_F16, reservoir->capacity, row);
    return HS_OK;
}

void hs_reservoir_deinit(HsReservoir *reservoir)
{
    free(reservoir->kept_index.data);
    free(reservoir->kept_value.data);
    free(reservoir->tokens.data);
    free(reservoir->mask.data);
    free(reservoir->marks.data);
    free(reservoir->task.data);
    *reservoir = (HsReservoir){ 0 };
}

/* Uniform in [0, count), without bias: 64-bit numbers above the last full multiple of count are drawn again, the
 * attempt going into counter[attempt_word].  One in 2^64 / count is. */
static uint64_t uniform_below(uint64_t seed, uint32_t counter[4], int attempt_word, uint64_t count)
{
    const uint64_t surplus = (UINT64_MAX % count + 1) % count; /* 2^64 mod count */
    for (;;) {
        const HsPhilox draw = hs_philox(seed, counter);
        const uint64_t bits = draw.word[0] | (uint64_t)draw.word[1] << 32;
        if (bits <= UINT64_MAX - surplus)
            return bits % count;
        counter[attempt_word]++;
    }
}

static void store_token(const HsReservoir *reservoir, int64_t index, int32_t token)
{
    if (reservoir->tokens.dtype == HS_U16)
        ((uint16_t *)reservoir->tokens.data)[index] = (uint16_t)token;
    else
        ((int32_t *)reservoir->tokens.data)[index] = token;
}

static int32_t load_token(const HsReservoir *reservoir, int64_t index)
{
    if (reservoir->tokens.dtype == HS_U16)
        return ((const uint16_t *)reservoir->tokens.data)[index];
    return ((const int32_t *)reservoir->tokens.data)[index];
}

static uint8_t *marks_of(const HsReservoir *reservoir, int64_t slot)
{
    return (uint8_t *)reservoir->marks.data + slot * mask_row(reservoir->sequence_length);
}

static uint8_t *mask_of(const HsReservoir *reservoir, int64_t slot)
{
    return (uint8_t *)reservoir->mask.data + slot * mask_row(reservoir->sequence_length);
}

void hs_reservoir_count_all(HsReservoir *reservoir)
{
    assert(hs_tensor_present(&reservoir->mask));
    for (int64_t slot = 0; slot < reservoir->count; slot++)
        for (int64_t t = 0; t < reservoir->sequence_length; t++)
            mask_of(reservoir, slot)[t / 8] |= (uint8_t)(1u << (t % 8));
}

/* An item's logits come later: until then it has none. */
static void forget_logits(HsReservoir *reservoir, int64_t slot)
{
    const size_t entries = (size_t)(reservoir->sequence_length * reservoir->kept);
    const size_t bytes = entries * hs_dtype_bytes(reservoir->kept_index.dtype);
    memset((unsigned char *)reservoir->kept_index.data + (size_t)slot * bytes, 0xff, bytes);
    memset((uint16_t *)reservoir->kept_value.data + (size_t)slot * entries, 0, entries * sizeof(uint16_t));
}

static void write_slot(HsReservoir *reservoir, int64_t slot, const int32_t *tokens, const int32_t *targets, int task)
{
    const int64_t length = reservoir->sequence_length, first = slot * (length + 1);
    const bool masked = hs_tensor_present(&reservoir->mask);
    const int32_t last = targets[length - 1];
    assert(masked || last >= 0);
    const bool marked = hs_tensor_present(&reservoir->marks);
    if (marked)
        memset(marks_of(reservoir, slot), 0, (size_t)mask_row(length));
    for (int64_t t = 0; t < length; t++) {
        assert(tokens[t] >= 0 || marked);
        if (tokens[t] < 0)
            marks_of(reservoir, slot)[t / 8] |= (uint8_t)(1u << (t % 8));
        store_token(reservoir, first + t, tokens[t] < 0 ? ~tokens[t] : tokens[t]);
    }
    /* Where the last target is ignored its token is unknown, and never read. */
    store_token(reservoir, first + length, last >= 0 ? last : 0);
    if (masked)
        memset(mask_of(reservoir, slot), 0, (size_t)mask_row(length));
    for (int64_t t = 0; t < length; t++) {
        /* What makes T+1 tokens enough: a target that counts is the next token. */
        assert(targets[t] < 0 ? masked : t + 1 == length || targets[t] == tokens[t + 1]);
        if (masked && targets[t] >= 0)
            mask_of(reservoir, slot)[t / 8] |= (uint8_t)(1u << (t % 8));
    }
    ((int32_t *)reservoir->task.data)[slot] = task;
    if (reservoir->kept > 0)
        forget_logits(reservoir, slot);
}

void hs_reservoir_clear(HsReservoir *reservoir)
{
    reservoir->seen = reservoir->count = 0;
}

int64_t hs_reservoir_add(HsReservoir *reservoir, const int32_t *tokens, const int32_t *targets, int task)
{
    const uint64_t n = (uint64_t)++reservoir->seen;
    int64_t slot = reservoir->seen - 1;
    if (reservoir->count == reservoir->capacity) {
        uint32_t counter[4] = { (uint32_t)n, (uint32_t)(n >> 32), 0, OFFER_SITE };
        slot = (int64_t)uniform_below(reservoir->seed, counter, 2, n);
    } else {
        reservoir->count++;
    }
    if (slot >= reservoir->capacity)
        return -1;
    write_slot(reservoir, slot, tokens, targets, task);
    return slot;
}

int64_t hs_reservoir_draw(const HsReservoir *reservoir, uint64_t draw, int before_task)
{
    if (reservoir->count == 0)
        return -1;
    const int32_t *task = reservoir->task.data;
    uint32_t counter[4] = { (uint32_t)draw, (uint32_t)(draw >> 32), (uint32_t)reservoir->seen, DRAW_SITE };
    for (int attempt = 0; attempt < DRAW_ATTEMPTS; attempt++, counter[3]++) {
        const int64_t slot = (int64_t)uniform_below(reservoir->seed, counter, 3, (uint64_t)reservoir->count);
        if (before_task == HS_RESERVOIR_ANY_TASK || task[slot] < before_task)
            return slot;
    }
    /* Few items are eligible, or none: choose by rank among them, which is as uniform as the rejection was. */
    int64_t eligible = 0;
    for (int64_t slot = 0; slot < reservoir->count; slot++)
        eligible += task[slot] < before_task;
    if (eligible == 0)
        return -1;
    int64_t rank = (int64_t)uniform_below(reservoir->seed, counter, 3, (uint64_t)eligible);
    for (int64_t slot = 0;; slot++)
        if (task[slot] < before_task && rank-- == 0)
            return slot;
}

void hs_reservoir_read(const HsReservoir *reservoir, int64_t slot, int32_t *tokens, int32_t *targets)
{
    assert(slot >= 0 && slot < reservoir->count);
    const int64_t length = reservoir->sequence_length, first = slot * (length + 1);
    const uint8_t *mask = hs_tensor_present(&reservoir->mask) ? mask_of(reservoir, slot) : NULL;
    const uint8_t *marks = hs_tensor_present(&reservoir->marks) ? marks_of(reservoir, slot) : NULL;
    for (int64_t t = 0; t < length; t++) {
        const int32_t token = load_token(reservoir, first + t);
        tokens[t] = marks && (marks[t / 8] >> (t % 8) & 1) ? ~token : token;
        const bool counts = !mask || (mask[t / 8] >> (t % 8) & 1);
        targets[t] = counts ? load_token(reservoir, first + t + 1) : -1;
    }
}

void hs_reservoir_write_logits(HsReservoir *reservoir, int64_t slot, const float *value, const int32_t *index)
{
    const float most = 65504.0f; /* f16's largest */
    const int64_t entries = reservoir->sequence_length * reservoir->kept, first = slot * entries;
    assert(slot >= 0 && slot < reservoir->count);
    for (int64_t i = 0; i < entries; i++) {
        const bool there = index[i] >= 0 && isfinite(value[i]);
        const float cut = fminf(fmaxf(there ? value[i] : 0.0f, -most), most);
        hs_dtype_store(HS_F16, reservoir->kept_value.data, first + i, (double)cut);
        if (reservoir->kept_index.dtype == HS_U16)
            ((uint16_t *)reservoir->kept_index.data)[first + i] = there ? (uint16_t)index[i] : UINT16_MAX;
        else
            ((int32_t *)reservoir->kept_index.data)[first + i] = there ? index[i] : -1;
    }
}

void hs_reservoir_read_logits(const HsReservoir *reservoir, int64_t slot, float *value, int32_t *index)
{
    const int64_t entries = reservoir->sequence_length * reservoir->kept, first = slot * entries;
    assert(slot >= 0 && slot < reservoir->count);
    for (int64_t i = 0; i < entries; i++) {
        value[i] = (float)hs_dtype_load(HS_F16, reservoir->kept_value.data, first + i);
        if (reservoir->kept_index.dtype == HS_I32)
            index[i] = ((const int32_t *)reservoir->kept_index.data)[first + i];
        else
            index[i] = ((const uint16_t *)reservoir->kept_index.data)[first + i];
        if (reservoir->kept_index.dtype == HS_U16 && index[i] == UINT16_MAX)
            index[i] = -1;
    }
}
