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
 * Prompts are compared by hash.  Synthetic text is made once more for its lines.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base/log.h"
#include "runtime/data/dataset_build.h"
#include "runtime/data/synthetic/synthetic.h"
#include "runtime/io/storage.h"

enum { CANDIDATES = 64 };

typedef struct TextItem {
    uint64_t prompt_hash;
    int64_t order; /* among the range's items */
    bool dropped;
    const HsStreamTokens *stream; /* of a document: where its tokens lie; NULL: a line */
    int64_t start, prompt_tokens, completion_tokens;
    const char *prompt, *completion; /* of a line: its text */
    size_t prompt_length, completion_length;
} TextItem;

/* The texts of synthetic sources that have items: [sources]. */
typedef struct Texts {
    HsSyntheticText *made;
    int count;
} Texts;

/* A walk over the items of a range of documents. */
typedef struct Walk {
    const HsDatasetBuild *building;
    const HsStreamTokens *stream;
    Texts *texts;
    const HsDocumentRange *range;
    int64_t document, order;
    int source; /* of the synthetic document at hand, and the first document of that source */
    int64_t source_first;
    size_t at;        /* within a synthetic document */
    HsStatus failure; /* of making text */
} Walk;

static char separator_of(const HsSource *source)
{
    const HsSynthetic *row = source->kind ? NULL : hs_synthetic_find(source->name + strlen(HS_SYNTHETIC_PREFIX));
    return row ? row->separator : '\0';
}

/* The text of a synthetic document. */
static HsStatus text_of(Walk *walk, const char **text, size_t *length)
{
    HsDocuments *documents = walk->range->documents;
    const int source = hs_document(documents, walk->document).source;
    HsSyntheticText *made = &walk->texts->made[source];
    if (!made->bytes) {
        const HsSourceOptions options = hs_dataset_source_options(&walk->building, source);
        const char *name = walk->building->sources.items[source].name + strlen(HS_SYNTHETIC_PREFIX);
        HS_TRY(hs_synthetic_write(name, options.seed, options.synthetic_bytes, made));
    }
    if (walk->source != source || walk->document < walk->source_first)
        for (walk->source_first = walk->document; walk->source_first > 0;) {
            if (hs_document(documents, walk->source_first - 1).source != source)
                break;
            walk->source_first--;
        }
    walk->source = source;
    const int64_t index = walk->document - walk->source_first;
    const size_t begin = index > 0 ? made->documents[index - 1].end : 0;
    *text = made->bytes + begin;
    *length = made->documents[index].end - begin;
    return HS_OK;
}

/* The next line with a separator, of the document at hand. */
static bool next_line(Walk *walk, char separator, TextItem *item)
{
    const char *text = NULL;
    size_t whole = 0;
    walk->failure = text_of(walk, &text, &whole);
    while (walk->failure == HS_OK && walk->at < whole) {
        const char *line = text + walk->at, *newline = memchr(line, '\n', whole - walk->at);
        const size_t length = newline ? (size_t)(newline + 1 - line) : whole - walk->at;
        const char *cut = memchr(line, separator, length);
        walk->at += length;
        if (!cut || cut + 1 == line + length)
            continue;
        const size_t prompt = (size_t)(cut + 1 - line);
        *item = (TextItem){ .prompt_hash = hs_storage_hash(line, prompt),
                            .order = walk->order++,
                            .prompt = line,
                            .completion = cut + 1,
                            .prompt_length = prompt,
                            .completion_length = length - prompt };
        return true;
    }
    return false;
}

static bool next_item(Walk *walk, TextItem *item)
{
    HsDocuments *documents = walk->range->documents;
    for (; walk->failure == HS_OK && walk->document < walk->range->last; walk->document++, walk->at = 0) {
        const HsEncodedDocument document = hs_document(documents, walk->document);
        const char separator = separator_of(&walk->building->sources.items[document.source]);
        if (separator && next_line(walk, separator, item))
            return true;
        if (document.prompt_hash == 0)
            continue;
        const int64_t start = hs_document_start(documents, walk->document);
        *item = (TextItem){ .prompt_hash = document.prompt_hash,
                            .order = walk->order++,
                            .stream = walk->stream,
                            .start = start - walk->range->offset,
                            .prompt_tokens = document.prompt,
                            .completion_tokens = document.end - start - document.prompt };
        walk->document++;
        walk->at = 0;
        return true;
    }
    return false;
}

static int by_prompt(const void *a, const void *b)
{
    const TextItem *left = a, *right = b;
    if (left->prompt_hash != right->prompt_hash)
        return left->prompt_hash < right->prompt_hash ? -1 : 1;
    return (left->order > right->order) - (left->order < right->order);
}

static int by_order(const void *a, const void *b)
{
    const TextItem *left = a, *right = b;
    return (left->order > right->order) - (left->order < right->order);
}

static int find_prompt(const void *a, const void *b)
{
    const TextItem *left = a, *right = b;
    return (left->prompt_hash > right->prompt_hash) - (left->prompt_hash < right->prompt_hash);
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
    HS_TRY(counting.failure);
    const int64_t wanted = there < most ? there : most;
    if (wanted == 0)
        return HS_OK;
    *list = malloc((size_t)wanted * sizeof **list);
    if (!*list)
        return hs_fail(HS_ENOMEM, "no memory to choose from %" PRId64 " prompts", wanted);
    while (next_item(&taking, &item))
        if (chosen(item.order, there, wanted) && *count < wanted)
            (*list)[(*count)++] = item;
    return taking.failure;
}

/* Each prompt once; none that `known` has (NULL: all stay).  Left in the text's order. */
static int64_t drop_repeated(TextItem *list, int64_t count, const Walk *known)
{
    int64_t left = 0;
    qsort(list, (size_t)count, sizeof *list, by_prompt);
    for (int64_t i = 0; i < count; i++)
        if (left == 0 || list[left - 1].prompt_hash != list[i].prompt_hash)
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

/* A document's tokens as they lie in the stream, the end-of-text token among them: where the completion stops is part of
 * it. */
static HsStatus copy_document(const TextItem *text, HsTokens *tokens)
{
    const int64_t count = text->prompt_tokens + text->completion_tokens;
    HS_TRY(hs_tokens_reserve(tokens, count));
    HS_TRY(hs_stream_read(text->stream, text->start, count, tokens->items + tokens->count));
    tokens->count += count;
    return HS_OK;
}

/* One item's tokens to the set; *fits says whether they are few enough. */
static HsStatus encode_item(const HsTokenizer *tokenizer, const TextItem *text, int64_t most, HsItemSet *set,
                            bool *fits)
{
    HsTokens *tokens = &set->tokens;
    HsItem item = { .start = tokens->count, .prompt = text->prompt_tokens };
    if (text->stream) {
        HS_TRY(copy_document(text, tokens));
    } else {
        HS_TRY(hs_tokenizer_encode(tokenizer, text->prompt, text->prompt_length, tokens));
        item.prompt = tokens->count - item.start;
        HS_TRY(hs_tokenizer_encode(tokenizer, text->completion, text->completion_length, tokens));
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

static HsStatus collect_both(const HsDatasetBuild *building, Texts *texts, HsDataset *dataset)
{
    const HsDocumentRange *trained = &building->trained, *validated = &building->validated;
    const Walk train = { .building = building,
                         .stream = &dataset->train,
                         .texts = texts,
                         .range = trained,
                         .source = -1,
                         .document = trained->first };
    const Walk validation = { .building = building,
                              .stream = &dataset->validation,
                              .texts = texts,
                              .range = validated,
                              .source = -1,
                              .document = validated->first };
    const int64_t most = dataset->sequence_length + 1; /* the last one is a target alone */
    HS_TRY(collect(building, &train, NULL, most, &dataset->items[HS_ITEMS_SEEN]));
    return collect(building, &validation, &train, most, &dataset->items[HS_ITEMS_UNSEEN]);
}

/* Lists of documents, which may lie in files, are walked only where there is something to find. */
static bool has_items(const HsDatasetBuild *building)
{
    bool some = building->train.pairs > 0 || building->validation.pairs > 0;
    for (int i = 0; !some && i < building->sources.count; i++)
        some = separator_of(&building->sources.items[i]);
    return some;
}

HsStatus hs_dataset_collect_items(HsDatasetBuild *building, HsDataset *dataset)
{
    if (building->config->evaluation.items == 0 || !has_items(building))
        return HS_OK;
    Texts texts = { .count = building->sources.count };
    texts.made = calloc((size_t)texts.count + 1, sizeof *texts.made);
    if (!texts.made)
        return hs_fail(HS_ENOMEM, "no memory to choose prompts");
    const HsStatus status = collect_both(building, &texts, dataset);
    for (int i = 0; i < texts.count; i++)
        hs_synthetic_text_deinit(&texts.made[i]);
    free(texts.made);
    return status;
}

void hs_item_set_deinit(HsItemSet *set)
{
    hs_tokens_deinit(&set->tokens);
    free(set->items);
    *set = (HsItemSet){ 0 };
}
