/* SPDX-License-Identifier: MIT
 *
 * See word_counts.h.  Each unit is counted by itself, and added to the whole when its turn comes.
 */
#include "runtime/data/word_counts.h"

#include <stdlib.h>

#include "runtime/data/source/progress.h"
#include "runtime/data/source/units.h"
#include "runtime/data/tokenizer/pretokenize.h"

/* A thread's scratch. */
typedef struct Counter {
    HsCorpus corpus;
    HsMatcher *matcher;
} Counter;

typedef struct Counting {
    const HsPretokenizer *pretokenizer;
    HsPatternBudget *budget;
    HsSourceOptions options;
    Counter *counters; /* one more than there are threads: the last finds borders */
    int threads;
    HsMap *pieces; /* of all units that were taken */
    HsSourceProgress progress;
} Counting;

static HsStatus count_piece(void *context, const char *piece, size_t length)
{
    return hs_map_add(context, piece, length, 1);
}

/* Records' texts one by one, as they are tokenized: no word straddles two of them. */
static HsStatus count_records(const Counting *counting, Counter *counter, const HsUnit *unit, HsMap *pieces)
{
    HsSourceOptions options = counting->options;
    HsCorpus *corpus = &counter->corpus;
    options.seed = (uint64_t)unit->source; /* of generated text */
    HS_TRY(hs_unit_parse(unit, &options, corpus));
    hs_matcher_begin(counter->matcher, corpus->text_length);
    for (int64_t i = 0; i < corpus->piece_count; i++) {
        const HsPiece *piece = &corpus->pieces[i];
        if (piece->length > 0)
            HS_TRY(hs_pretokenizer_split(counting->pretokenizer, counter->matcher, corpus->text + piece->start,
                                         piece->length, true, count_piece, pieces));
    }
    return HS_OK;
}

/* A part of a text that is being counted. */
typedef struct Part {
    HsMap *pieces; /* NULL: only the border is wanted */
    size_t least, used;
} Part;

static HsStatus count_part_piece(void *context, const char *piece, size_t length)
{
    return count_piece(((Part *)context)->pieces, piece, length);
}

static bool stops(void *context, size_t at)
{
    Part *part = context;
    part->used = at >= part->least ? at : 0;
    return part->used > 0;
}

static HsStatus split_part(const Counting *counting, Counter *counter, const HsTextPart *text, HsMap *pieces,
                           size_t *used)
{
    Part part = { .pieces = pieces, .least = text->least };
    const HsPartSplit split = { .text = text->text,
                                .length = text->length,
                                .at_start = text->first,
                                .open = !text->last,
                                .take = pieces ? count_part_piece : NULL,
                                .stops = stops,
                                .context = &part };
    hs_matcher_begin(counter->matcher, text->length);
    HS_TRY(hs_pretokenizer_split_part(counting->pretokenizer, counter->matcher, &split));
    *used = part.used > 0 ? part.used : text->last ? text->length : 0;
    return HS_OK;
}

static HsStatus count_text(const Counting *counting, Counter *counter, HsUnit *unit, HsMap *pieces)
{
    HsTextPart part;
    size_t mark, used = 0;
    HS_TRY(hs_unit_open_text(unit, &counting->options, &part, &mark));
    if (part.least > 0)
        HS_TRY(split_part(counting, counter, &part, pieces, &used));
    if (!unit->ends)
        unit->used = used > 0 ? used + mark : 0;
    return HS_OK;
}

static HsSourceOptions options_of(const void *user, int source)
{
    (void)source;
    return ((const Counting *)user)->options;
}

static HsStatus count_unit(void *user, int worker, HsUnit *unit)
{
    const Counting *counting = user;
    Counter *counter = &counting->counters[worker];
    HsMap *pieces = unit->result;
    hs_map_clear(pieces);
    const HsStatus status =
        unit->is_part ? count_text(counting, counter, unit, pieces) : count_records(counting, counter, unit, pieces);
    /* Errors of sources name them; those of expressions do not. */
    return status == HS_EUNSUPPORTED ? hs_error_prefix(status, "%s", hs_source_title(unit->from)) : status;
}

static HsStatus find_border(void *user, const HsTextPart *part, size_t *at)
{
    const Counting *counting = user;
    return split_part(counting, &counting->counters[counting->threads], part, NULL, at);
}

static HsStatus add_counts(void *user, const HsUnit *unit)
{
    Counting *counting = user;
    hs_source_progress_add(&counting->progress, unit);
    return hs_map_add_all(counting->pieces, unit->result);
}

static void free_counts(void *result)
{
    hs_map_deinit(result);
}

static HsStatus count_all(Counting *counting, const HsSourceList *sources)
{
    const HsUnitWork units = { .sources = sources,
                               .last = sources->count,
                               .threads = counting->threads,
                               .options = options_of,
                               .border = find_border,
                               .work = count_unit,
                               .take = add_counts,
                               .clear = free_counts,
                               .user = counting,
                               .result_bytes = sizeof(HsMap) };
    HsStatus status = hs_pattern_budget_create("the texts", &counting->budget);
    for (int i = 0; status == HS_OK && i <= counting->threads; i++)
        status = hs_matcher_create(counting->budget, 0, &counting->counters[i].matcher);
    hs_source_progress_begin(&counting->progress, sources, 0, sources->count, "counting words");
    if (status == HS_OK)
        status = hs_units_run(&units);
    hs_source_progress_end(&counting->progress);
    for (int i = 0; i <= counting->threads; i++) {
        hs_matcher_destroy(counting->counters[i].matcher);
        hs_corpus_deinit(&counting->counters[i].corpus);
    }
    hs_pattern_budget_destroy(counting->budget);
    return status;
}

HsStatus hs_count_words(const HsSourceList *sources, const HsTaskConfig *task, HsMap *pieces)
{
    HsPretokenizer *pretokenizer;
    HS_TRY(hs_pretokenizer_create_gpt2(&pretokenizer));
    const int threads = hs_source_threads(0);
    Counting counting = { .pretokenizer = pretokenizer,
                          .options = hs_source_options(task),
                          .counters = calloc((size_t)threads + 1, sizeof *counting.counters),
                          .threads = threads,
                          .pieces = pieces };
    counting.options.needs_utf8 = counting.options.contents_only = true;
    HsStatus status = counting.counters ? count_all(&counting, sources) : hs_fail(HS_ENOMEM, "no memory to read text");
    free(counting.counters);
    hs_pretokenizer_destroy(pretokenizer);
    if (status == HS_OK && pieces->count == 0)
        status = hs_fail(HS_ECONFIG, "there is no text to learn from: every file is empty");
    return status;
}
