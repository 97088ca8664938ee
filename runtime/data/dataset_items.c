/* SPDX-License-Identifier: MIT
 *
 * Prompts and completions of a task, for exact-match accuracy.
 *
 *     documents of two pieces | lines of a synthetic source up to its separator
 *       -> candidates, evenly spread: CANDIDATES for each item that is wanted
 *       -> sorted by prompt: of equal ones the first stays; of validation those go that the training text has
 *       -> in the text's order again: the wanted number, evenly spread -> tokens
 *
 * Candidates are few, so that memory does not grow with the text; every training prompt is looked up among them.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base/log.h"
#include "runtime/data/dataset_build.h"
#include "runtime/data/synthetic/synthetic.h"

enum { CANDIDATES = 64 };

typedef struct TextItem {
    const char *prompt, *completion; /* in the corpus */
    size_t prompt_length, completion_length;
    int64_t order; /* among the range's items */
    bool ends_document, dropped;
} TextItem;

/* A walk over the items of pieces [piece, last). */
typedef struct Walk {
    const HsDatasetBuild *building;
    int64_t piece, last, order;
    size_t at; /* within a synthetic piece */
} Walk;

static char separator_of(const HsDatasetBuild *building, const HsPiece *piece)
{
    const HsSource *source = &building->sources.items[piece->source];
    const HsSynthetic *row = source->kind ? NULL : hs_synthetic_find(source->name + strlen(HS_SYNTHETIC_PREFIX));
    return row ? row->separator : '\0';
}

/* The next line with a separator, of the piece at hand. */
static bool next_line(Walk *walk, const HsPiece *piece, char separator, TextItem *item)
{
    const char *text = walk->building->corpus.text + piece->start;
    while (walk->at < piece->length) {
        const char *line = text + walk->at, *newline = memchr(line, '\n', piece->length - walk->at);
        const size_t length = newline ? (size_t)(newline + 1 - line) : piece->length - walk->at;
        const char *cut = memchr(line, separator, length);
        walk->at += length;
        if (!cut || cut + 1 == line + length)
            continue;
        const size_t prompt = (size_t)(cut + 1 - line);
        *item = (TextItem){ line, cut + 1, prompt, length - prompt, walk->order++, false, false };
        return true;
    }
    return false;
}

/* A document of two pieces, of which the second alone counts. */
static bool is_pair(const HsPiece *piece, bool followed)
{
    return followed && !piece[0].chat && !piece[0].counted && !piece[0].is_tokens && piece[1].counted &&
           !piece[1].is_tokens && !piece[0].ends_document && piece[0].length > 0 && piece[1].length > 0;
}

static bool next_item(Walk *walk, TextItem *item)
{
    const HsCorpus *corpus = &walk->building->corpus;
    for (; walk->piece < walk->last; walk->piece++, walk->at = 0) {
        const HsPiece *piece = &corpus->pieces[walk->piece];
        const char separator = separator_of(walk->building, piece);
        if (separator && next_line(walk, piece, separator, item))
            return true;
        if (!is_pair(piece, walk->piece + 1 < walk->last))
            continue;
        *item = (TextItem){ corpus->text + piece[0].start,
                            corpus->text + piece[1].start,
                            piece[0].length,
                            piece[1].length,
                            walk->order++,
                            piece[1].ends_document,
                            false };
        walk->piece += 2;
        return true;
    }
    return false;
}

static int compare_prompts(const TextItem *a, const TextItem *b)
{
    const size_t both = a->prompt_length < b->prompt_length ? a->prompt_length : b->prompt_length;
    const int order = memcmp(a->prompt, b->prompt, both);
    return order ? order : (a->prompt_length > b->prompt_length) - (a->prompt_length < b->prompt_length);
}

static int by_prompt(const void *a, const void *b)
{
    const TextItem *left = a, *right = b;
    const int order = compare_prompts(left, right);
    return order ? order : (left->order > right->order) - (left->order < right->order);
}

static int by_order(const void *a, const void *b)
{
    const TextItem *left = a, *right = b;
    return (left->order > right->order) - (left->order < right->order);
}

static int find_prompt(const void *a, const void *b)
{
    return compare_prompts(a, b);
}

/* Is number `index` of `count` one of `wanted` that are spread evenly?  wanted <= count */
static bool chosen(int64_t index, int64_t count, int64_t wanted)
{
    return (int64_t)((double)(index + 1) * (double)wanted / (double)count) >
           (int64_t)((double)index * (double)wanted / (double)count);
}

/* At most `most` items of a walk; the caller frees. */
static HsStatus list_candidates(const Walk *walk, int64_t most, TextItem **list, int64_t *count)
{
    Walk counting = *walk, taking = *walk;
    TextItem item;
    int64_t there = 0;
    *count = 0;
    *list = NULL;
    while (next_item(&counting, &item))
        there++;
    const int64_t wanted = there < most ? there : most;
    if (wanted == 0)
        return HS_OK;
    *list = malloc((size_t)wanted * sizeof **list);
    if (!*list)
        return hs_fail(HS_ENOMEM, "no memory to choose from %" PRId64 " prompts", wanted);
    while (next_item(&taking, &item))
        if (chosen(item.order, there, wanted) && *count < wanted)
            (*list)[(*count)++] = item;
    return HS_OK;
}

/* Each prompt once; none that `known` has (NULL: all stay).  Left in the text's order. */
static int64_t drop_repeated(TextItem *list, int64_t count, const Walk *known)
{
    int64_t left = 0;
    qsort(list, (size_t)count, sizeof *list, by_prompt);
    for (int64_t i = 0; i < count; i++)
        if (left == 0 || compare_prompts(&list[left - 1], &list[i]) != 0)
            list[left++] = list[i];
    count = left;
    Walk walk = known ? *known : (Walk){ 0 };
    TextItem item;
    while (known && next_item(&walk, &item)) {
        TextItem *same = bsearch(&item, list, (size_t)count, sizeof *list, find_prompt);
        if (same)
            same->dropped = true;
    }
    left = 0;
    for (int64_t i = 0; i < count; i++)
        if (!list[i].dropped)
            list[left++] = list[i];
    qsort(list, (size_t)left, sizeof *list, by_order);
    return left;
}

/* One item's tokens to the set; *fits says whether they are few enough. */
static HsStatus encode_item(const HsTokenizer *tokenizer, const TextItem *text, int64_t most, HsItemSet *set,
                            bool *fits)
{
    HsTokens *tokens = &set->tokens;
    HsItem item = { .start = tokens->count };
    const int32_t end = hs_tokenizer_end_of_text(tokenizer);
    HS_TRY(hs_tokenizer_encode(tokenizer, text->prompt, text->prompt_length, tokens));
    item.prompt = tokens->count - item.start;
    HS_TRY(hs_tokenizer_encode(tokenizer, text->completion, text->completion_length, tokens));
    if (text->ends_document && end >= 0) { /* where the completion stops is part of it */
        HS_TRY(hs_tokens_reserve(tokens, 1));
        tokens->items[tokens->count++] = end;
    }
    item.completion = tokens->count - item.start - item.prompt;
    *fits = item.prompt > 0 && item.completion > 0 && item.prompt + item.completion <= most;
    if (*fits)
        set->items[set->count++] = item;
    else
        tokens->count = item.start;
    return HS_OK;
}

static HsStatus collect(const HsDatasetBuild *building, const Walk *walk, const Walk *known, int64_t most_tokens,
                        HsItemSet *set)
{
    const int64_t wanted = building->config->evaluation.items;
    TextItem *list = NULL;
    int64_t count = 0, left_out = 0;
    HsStatus status = list_candidates(walk, CANDIDATES * wanted, &list, &count);
    if (status == HS_OK && count > 0)
        count = drop_repeated(list, count, known);
    const int64_t taken = count < wanted ? count : wanted;
    if (status == HS_OK && taken > 0) {
        set->items = malloc((size_t)taken * sizeof *set->items);
        if (!set->items)
            status = hs_fail(HS_ENOMEM, "no memory for %" PRId64 " prompts and completions", taken);
    }
    for (int64_t i = 0; status == HS_OK && i < count; i++) {
        bool fits = true;
        if (chosen(i, count, taken) && set->count < taken)
            status = encode_item(building->tokenizer, &list[i], most_tokens, set, &fits);
        left_out += !fits;
    }
    free(list);
    if (left_out > 0)
        hs_warn("task %s: %" PRId64 " of %" PRId64 " prompts with their completions are longer than max_length, and "
                "left out of its accuracy",
                building->task->name, left_out, taken);
    return status;
}

HsStatus hs_dataset_collect_items(const HsDatasetBuild *building, int64_t train_end, int64_t validation_begin,
                                  HsDataset *dataset)
{
    const Walk train = { .building = building, .last = train_end };
    const Walk validation = { .building = building, .piece = validation_begin, .last = building->corpus.piece_count };
    const int64_t most = dataset->sequence_length + 1; /* the last one is a target alone */
    if (building->config->evaluation.items == 0)
        return HS_OK;
    HS_TRY(collect(building, &train, NULL, most, &dataset->items[HS_ITEMS_SEEN]));
    return collect(building, &validation, &train, most, &dataset->items[HS_ITEMS_UNSEEN]);
}

void hs_item_set_deinit(HsItemSet *set)
{
    hs_tokens_deinit(&set->tokens);
    free(set->items);
    *set = (HsItemSet){ 0 };
}
