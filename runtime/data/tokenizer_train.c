/* SPDX-License-Identifier: MIT
 *
 * Learning byte-level BPE merges (Sennrich, Haddow & Birch 2016, algorithm 1), incrementally:
 *
 *   sources -> GPT-2's pieces, each distinct one once with its count -> counts of adjacent pairs -> merge the best pair
 *                                                                                 ^---------------- again -------+
 *
 * Each pair knows the words it occurred in, so that a merge touches only those; a heap gives the best pair.  A
 * round pushes what may have grown; what has fallen is found out when it is popped, and pushed back.
 * The order is total (count, then the left token's bytes, then the right one's), so that the result is unique.
 */
#include <stdlib.h>
#include <string.h>

#include "kernels/base/array.h"
#include "kernels/base/log.h"
#include "runtime/data/source/source.h"
#include "runtime/data/tokenizer/bpe_learned.h"
#include "runtime/data/tokenizer/map.h"
#include "runtime/data/tokenizer_train.h"
#include "runtime/data/word_counts.h"
#include "runtime/io/files.h"

enum { BPE_LEAST_VOCABULARY = 257, BPE_LEAST_COUNT = 2 }; /* a pair seen once teaches nothing */

typedef struct Word {
    size_t offset, length; /* its symbols in the pool; merging shortens it in place */
    int64_t count;
} Word;

typedef struct Pair {
    int32_t left, right;
    int64_t count;
    union {
        uint32_t one, *many;
    } words; /* where it may occur, some twice or no longer; most pairs have one, which needs no memory elsewhere */
    size_t word_count, word_capacity; /* capacity 0: one */
    int64_t noted_in;                 /* the round in which it was put on `grown` */
} Pair;

typedef struct Trainer {
    HsMap pieces; /* distinct pieces -> count */
    Word *words;
    int32_t *symbols; /* pool of all words */
    HsBpeLearned learned;
    HsMap pair_ids; /* {left, right} -> index of pairs */
    Pair *pairs;
    size_t pair_count, pair_capacity;
    int64_t round;   /* merges done */
    uint32_t *grown; /* pairs that may have become more frequent in this round */
    size_t grown_count, grown_capacity;
    struct {
        int64_t count;
        uint32_t pair;
    } * heap;
    size_t heap_count, heap_capacity;
} Trainer;

/* What is at the path of a tokenizer to be is replaced only where it is one: with -o a*.json, say, the first of the
 * texts would be. */
static HsStatus check_replaced(const char *path)
{
    static const char key[] = "\"version\""; /* comes first in all of them */
    char start[256];
    const size_t length = hs_read_start(path, start, sizeof start);
    if (length == 0 || (start[0] == '{' && memmem(start, length, key, sizeof key - 1)))
        return HS_OK;
    return hs_fail(HS_ECONFIG, "%s exists, and is not a tokenizer.json: name another file, or remove it", path);
}

static HsStatus count_pieces(const HsTaskConfig *task, const char *output_path, HsMap *pieces)
{
    HsSourceList sources = { 0 };
    HsStatus status = hs_check_output(output_path);
    if (status == HS_OK)
        status = hs_source_list_exclude(&sources, &task->exclude);
    for (int i = 0; status == HS_OK && i < task->train.count; i++)
        status = hs_source_list_add(&sources, task->train.items[i], task->format);
    if (status == HS_OK && hs_source_list_has_tokens(&sources))
        status = hs_fail(HS_ECONFIG, "token files (.bin) hold no text to learn from; leave them out");
    if (status == HS_OK)
        status = hs_source_list_check_output(&sources, output_path);
    if (status == HS_OK)
        status = check_replaced(output_path);
    hs_source_list_warn(&sources);
    if (status == HS_OK)
        status = hs_count_words(&sources, task, pieces);
    hs_source_list_deinit(&sources);
    return status;
}

/* Is pair a to be merged before pair b?  counts as the heap has them. */
static bool goes_first(const Trainer *trainer, int64_t a_count, uint32_t a, int64_t b_count, uint32_t b)
{
    if (a_count != b_count)
        return a_count > b_count;
    const Pair *left = &trainer->pairs[a], *right = &trainer->pairs[b];
    int order = hs_bpe_learned_compare(&trainer->learned, left->left, right->left);
    if (order == 0)
        order = hs_bpe_learned_compare(&trainer->learned, left->right, right->right);
    return order < 0;
}

static HsStatus heap_push(Trainer *trainer, uint32_t pair)
{
    HS_TRY(hs_array_grow(&trainer->heap, sizeof *trainer->heap, trainer->heap_count + 1, &trainer->heap_capacity));
    int64_t count = trainer->pairs[pair].count;
    size_t at = trainer->heap_count++;
    for (size_t parent; at > 0; at = parent) {
        parent = (at - 1) / 2;
        if (!goes_first(trainer, count, pair, trainer->heap[parent].count, trainer->heap[parent].pair))
            break;
        trainer->heap[at] = trainer->heap[parent];
    }
    trainer->heap[at].count = count;
    trainer->heap[at].pair = pair;
    return HS_OK;
}

/* Take the top off -> *count (as pushed), *pair. */
static void heap_pop(Trainer *trainer, int64_t *count, uint32_t *pair)
{
    *count = trainer->heap[0].count;
    *pair = trainer->heap[0].pair;
    size_t last = --trainer->heap_count, at = 0;
    int64_t moving_count = trainer->heap[last].count;
    uint32_t moving_pair = trainer->heap[last].pair;
    for (size_t child; (child = 2 * at + 1) < last; at = child) {
        if (child + 1 < last && goes_first(trainer, trainer->heap[child + 1].count, trainer->heap[child + 1].pair,
                                           trainer->heap[child].count, trainer->heap[child].pair))
            child++;
        if (!goes_first(trainer, trainer->heap[child].count, trainer->heap[child].pair, moving_count, moving_pair))
            break;
        trainer->heap[at] = trainer->heap[child];
    }
    trainer->heap[at].count = moving_count;
    trainer->heap[at].pair = moving_pair;
}

static const uint32_t *words_of(const Pair *pair)
{
    return pair->word_capacity > 0 ? pair->words.many : &pair->words.one;
}

static void forget_words(Pair *pair)
{
    if (pair->word_capacity > 0)
        free(pair->words.many);
    pair->words.one = 0;
    pair->word_count = pair->word_capacity = 0;
}

static HsStatus remember_word(Pair *pair, uint32_t word)
{
    if (pair->word_count > 0 && words_of(pair)[pair->word_count - 1] == word)
        return HS_OK;
    if (pair->word_capacity == 0 && pair->word_count == 0) {
        pair->words.one = word;
        pair->word_count = 1;
        return HS_OK;
    }
    if (pair->word_capacity == 0) {
        uint32_t *many = NULL;
        HS_TRY(hs_array_grow(&many, sizeof *many, 2, &pair->word_capacity));
        many[0] = pair->words.one;
        pair->words.many = many;
    }
    HS_TRY(hs_array_grow(&pair->words.many, sizeof *pair->words.many, pair->word_count + 1, &pair->word_capacity));
    pair->words.many[pair->word_count++] = word;
    return HS_OK;
}

/* Add `change` to the count of (left, right); with `remember`, note that it occurs in the word. */
static HsStatus change_pair(Trainer *trainer, int32_t left, int32_t right, int64_t change, bool remember, uint32_t word)
{
    int32_t key[2] = { left, right };
    int64_t index;
    if (!hs_map_get(&trainer->pair_ids, key, sizeof key, &index)) {
        index = (int64_t)trainer->pair_count;
        HS_TRY(
            hs_array_grow(&trainer->pairs, sizeof *trainer->pairs, trainer->pair_count + 1, &trainer->pair_capacity));
        HS_TRY(hs_map_put(&trainer->pair_ids, key, sizeof key, index));
        trainer->pairs[trainer->pair_count++] = (Pair){ .left = left, .right = right };
    }
    Pair *pair = &trainer->pairs[index];
    pair->count += change;
    if (pair->count == 0)
        forget_words(pair); /* it is in none of them; where it comes back it is remembered anew */
    if (!remember)
        return HS_OK;
    if (pair->noted_in != trainer->round) {
        HS_TRY(
            hs_array_grow(&trainer->grown, sizeof *trainer->grown, trainer->grown_count + 1, &trainer->grown_capacity));
        trainer->grown[trainer->grown_count++] = (uint32_t)index;
        pair->noted_in = trainer->round;
    }
    return remember_word(pair, word);
}

/* The end of a round: what may have grown goes to the heap with its new count. */
static HsStatus push_grown(Trainer *trainer)
{
    for (size_t i = 0; i < trainer->grown_count; i++)
        if (trainer->pairs[trainer->grown[i]].count >= BPE_LEAST_COUNT)
            HS_TRY(heap_push(trainer, trainer->grown[i]));
    trainer->grown_count = 0;
    return HS_OK;
}

/* Every adjacent pair of a word. */
static HsStatus count_word(Trainer *trainer, uint32_t index)
{
    const Word *word = &trainer->words[index];
    const int32_t *symbols = trainer->symbols + word->offset;
    for (size_t i = 0; i + 1 < word->length; i++)
        HS_TRY(change_pair(trainer, symbols[i], symbols[i + 1], word->count, true, index));
    return HS_OK;
}

static HsStatus build_words(Trainer *trainer)
{
    const HsMap *pieces = &trainer->pieces;
    const size_t count = pieces->count;
    if (count >= UINT32_MAX)
        return hs_fail(HS_EUNSUPPORTED, "too many distinct words to learn from: give a part of the text");
    size_t symbols = 0;
    for (size_t i = 0; i < count; i++)
        symbols += pieces->entries[i].key_length;
    trainer->words = calloc(count + 1, sizeof *trainer->words);
    trainer->symbols = calloc(symbols + 1, sizeof *trainer->symbols);
    if (!trainer->words || !trainer->symbols)
        return hs_fail(HS_ENOMEM, "out of memory: %zu distinct words", count);
    size_t offset = 0;
    for (size_t i = 0; i < count; i++) {
        size_t length;
        const char *piece = hs_map_key(pieces, i, &length);
        trainer->words[i] = (Word){ offset, length, pieces->entries[i].value };
        for (size_t k = 0; k < length; k++)
            trainer->symbols[offset++] = trainer->learned.byte_ids[(unsigned char)piece[k]];
    }
    hs_map_deinit(&trainer->pieces); /* as large as what follows */
    for (size_t i = 0; i < count; i++)
        HS_TRY(count_word(trainer, (uint32_t)i));
    return push_grown(trainer);
}

/* Replace (left, right) by `fresh` in one word, from the left, and bring the counts of the pairs that this breaks up and
 * makes up to date. */
static HsStatus merge_in_word(Trainer *trainer, uint32_t index, int32_t left, int32_t right, int32_t fresh)
{
    Word *word = &trainer->words[index];
    int32_t *symbols = trainer->symbols + word->offset;
    const int64_t count = word->count;
    size_t kept = 0;
    int32_t before = -1; /* the symbol in front as it was */
    bool merged = false; /* it has just become part of `fresh` */
    for (size_t i = 0; i < word->length; kept++) {
        const int32_t symbol = symbols[i];
        const bool here = i + 1 < word->length && symbol == left && symbols[i + 1] == right;
        if (here)
            HS_TRY(change_pair(trainer, left, right, -count, false, index));
        if (i > 0 && (here || merged)) {
            HS_TRY(change_pair(trainer, before, symbol, -count, false, index));
            HS_TRY(change_pair(trainer, symbols[kept - 1], here ? fresh : symbol, count, true, index));
        }
        before = here ? right : symbol;
        merged = here;
        symbols[kept] = here ? fresh : symbol;
        i += here ? 2 : 1;
    }
    word->length = kept;
    return HS_OK;
}

static HsStatus merge_pair(Trainer *trainer, uint32_t index)
{
    Pair pair = trainer->pairs[index]; /* a copy: the array may move */
    trainer->pairs[index].word_count = trainer->pairs[index].word_capacity = 0;
    int32_t fresh = -1;
    HsStatus status = hs_bpe_learned_add(&trainer->learned, pair.left, pair.right, &fresh);
    trainer->round++;
    for (size_t i = 0; i < pair.word_count && status == HS_OK; i++)
        status = merge_in_word(trainer, words_of(&pair)[i], pair.left, pair.right, fresh);
    forget_words(&pair);
    return status == HS_OK ? push_grown(trainer) : status;
}

static HsStatus learn(Trainer *trainer, int64_t vocabulary)
{
    /* One id is the end-of-text token's, the last ones the special tokens'. */
    const int others = 1 + trainer->learned.special_count;
    while (hs_bpe_learned_count(&trainer->learned) + others < vocabulary && trainer->heap_count > 0) {
        int64_t count;
        uint32_t pair;
        heap_pop(trainer, &count, &pair);
        if (trainer->pairs[pair].count < BPE_LEAST_COUNT)
            continue;
        HS_TRY(trainer->pairs[pair].count == count ? merge_pair(trainer, pair) : heap_push(trainer, pair));
    }
    if (hs_bpe_learned_count(&trainer->learned) + others < vocabulary)
        hs_warn("no further pair of tokens occurs twice: the vocabulary has %d tokens instead of %lld; more text gives "
                "more",
                hs_bpe_learned_count(&trainer->learned) + others, (long long)vocabulary);
    return HS_OK;
}

HsStatus hs_tokenizer_train(const HsTaskConfig *task, int64_t vocabulary, const char *const *special, int special_count,
                            const char *output_path)
{
    const int least = BPE_LEAST_VOCABULARY + special_count;
    if (vocabulary < least || vocabulary > 1 << 24)
        return hs_fail(HS_EINVAL, "--vocabulary must be %d to %d, special tokens included (got %lld)", least, 1 << 24,
                       (long long)vocabulary);
    Trainer trainer = { .round = 1 };
    HsStatus status = hs_bpe_learned_init(&trainer.learned);
    trainer.learned.special = special;
    trainer.learned.special_count = special_count;
    if (status == HS_OK) /* before text is read, and again when it is known which words are tokens */
        status = hs_bpe_learned_check_special(&trainer.learned);
    if (status == HS_OK)
        status = count_pieces(task, output_path, &trainer.pieces);
    if (status == HS_OK)
        status = build_words(&trainer);
    if (status == HS_OK)
        status = learn(&trainer, vocabulary);
    if (status == HS_OK)
        status = hs_bpe_learned_check_special(&trainer.learned);
    if (status == HS_OK)
        status = hs_bpe_learned_write(&trainer.learned, output_path);
    for (size_t i = 0; i < trainer.pair_count; i++)
        forget_words(&trainer.pairs[i]);
    free(trainer.pairs);
    free(trainer.grown);
    free(trainer.heap);
    free(trainer.words);
    free(trainer.symbols);
    hs_map_deinit(&trainer.pieces);
    hs_map_deinit(&trainer.pair_ids);
    hs_bpe_learned_deinit(&trainer.learned);
    return status;
}
