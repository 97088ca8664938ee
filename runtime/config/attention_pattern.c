/* SPDX-License-Identifier: MIT
 *
 * See attention_pattern.h.  An entry is a count ("5x") or "last", then words of a kind.
 */
#include "runtime/config/attention_pattern.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "runtime/config/table.h"

enum { WORD_BYTES = 32 };

typedef struct Entry {
    int64_t count; /* layers; 0: the last one */
    HsAttentionKind kind;
} Entry;

static const char words[] =
    "full, window N, nope, theta X, unscaled, sink, values; before them a count such as 5x, or last";

/* The next word of *text -> word; false at the end. */
static bool next_word(const char **text, char word[WORD_BYTES])
{
    int used = 0;
    if (sscanf(*text, " %31s%n", word, &used) != 1)
        return false;
    *text += used;
    return true;
}

/* A number behind a word; `least` and more. */
static bool next_number(const char **text, double least, bool whole, double *number)
{
    char word[WORD_BYTES], *end;
    if (!next_word(text, word))
        return false;
    *number = strtod(word, &end);
    return end > word && *end == '\0' && isfinite(*number) && *number >= least && *number <= HS_NO_BOUND &&
           (!whole || floor(*number) == *number);
}

/* "5x" */
static bool is_count(const char *word, int64_t *count)
{
    char *end;
    const long long number = strtoll(word, &end, 10);
    if (end == word || strcmp(end, "x") != 0 || number < 1 || number > 1024)
        return false;
    *count = number;
    return true;
}

/* Each word once, and none that another one excludes. */
static bool read_kind(const char *text, HsAttentionKind *kind)
{
    char word[WORD_BYTES];
    bool full = false, any = false;
    for (double number; next_word(&text, word); any = true) {
        if (hs_is(word, "full") && !full && kind->window == 0)
            full = true;
        else if (hs_is(word, "nope") && !kind->nope)
            kind->nope = true;
        else if (hs_is(word, "unscaled") && !kind->unscaled)
            kind->unscaled = true;
        else if (hs_is(word, "sink") && !kind->sink)
            kind->sink = true;
        else if (hs_is(word, "values") && !kind->values)
            kind->values = true;
        else if (hs_is(word, "window") && !full && kind->window == 0 && next_number(&text, 1, true, &number))
            kind->window = (int64_t)number;
        else if (hs_is(word, "theta") && kind->theta == 0 && next_number(&text, 1, false, &number))
            kind->theta = number;
        else
            return false;
    }
    return any && !(kind->nope && (kind->theta > 0 || kind->unscaled));
}

static HsStatus read_entry(const char *text, Entry *entry)
{
    const char *rest = text;
    char word[WORD_BYTES];
    *entry = (Entry){ .count = 1 };
    if (next_word(&rest, word) && (hs_is(word, "last") || is_count(word, &entry->count)))
        entry->count = hs_is(word, "last") ? 0 : entry->count;
    else
        rest = text;
    if (!read_kind(rest, &entry->kind))
        return hs_fail(HS_ECONFIG, "model.attention: \"%.60s\" is not understood; words are %s", text, words);
    return HS_OK;
}

HsStatus hs_attention_kinds(const HsConfig *config, HsAttentionKind *kinds)
{
    const HsStringList *pattern = &config->model.attention;
    const int64_t layers = config->model.layers;
    int64_t period = 0;
    bool last = false;
    Entry entry;
    for (int64_t layer = 0; layer < layers; layer++)
        kinds[layer] = (HsAttentionKind){ 0 };
    for (int i = 0; i < pattern->count; i++) {
        HS_TRY(read_entry(pattern->items[i], &entry));
        if (last)
            return hs_fail(HS_ECONFIG, "model.attention: \"%.60s\" stands behind the entry of the last layer",
                           pattern->items[i]);
        last = entry.count == 0;
        for (int64_t k = 0; k < entry.count; k++, period++)
            if (period < layers)
                kinds[period] = entry.kind;
    }
    for (int64_t layer = period; period > 0 && layer < layers; layer++)
        kinds[layer] = kinds[layer - period];
    if (last)
        kinds[layers - 1] = entry.kind;
    return HS_OK;
}

HsAttentionKind hs_attention_kind(const HsConfig *config, int64_t layer)
{
    HsAttentionKind kinds[HS_MOST_LAYERS];
    return hs_attention_kinds(config, kinds) == HS_OK ? kinds[layer] : (HsAttentionKind){ 0 };
}

/* --- as text --- */

static bool are_same(const HsAttentionKind *a, const HsAttentionKind *b)
{
    return a->window == b->window && a->theta == b->theta && a->nope == b->nope && a->unscaled == b->unscaled &&
           a->sink == b->sink && a->values == b->values;
}

/* The least number of layers after which the kinds of `layers` repeat. */
static int64_t period_of(const HsAttentionKind *kinds, int64_t layers)
{
    for (int64_t period = 1; period < layers; period++) {
        int64_t layer = period;
        while (layer < layers && are_same(&kinds[layer], &kinds[layer - period]))
            layer++;
        if (layer == layers)
            return period;
    }
    return layers;
}

static void write_kind(FILE *stream, const HsAttentionKind *kind)
{
    char number[32];
    if (kind->window > 0)
        fprintf(stream, "window %lld", (long long)kind->window);
    else if (!kind->nope)
        fprintf(stream, "full");
    if (kind->nope)
        fprintf(stream, "%snope", kind->window > 0 ? " " : "");
    if (kind->theta > 0)
        fprintf(stream, " theta %s", hs_config_real_text(kind->theta, number));
    if (kind->unscaled)
        fprintf(stream, " unscaled");
    if (kind->sink)
        fprintf(stream, " sink");
    if (kind->values)
        fprintf(stream, " values");
}

/* Runs of the same kind. */
static void write_period(FILE *stream, const HsAttentionKind *kinds, int64_t period)
{
    for (int64_t first = 0, end; first < period; first = end) {
        for (end = first + 1; end < period && are_same(&kinds[end], &kinds[first]);)
            end++;
        fprintf(stream, "%s\"", first > 0 ? ", " : "");
        if (end - first > 1)
            fprintf(stream, "%lldx ", (long long)(end - first));
        write_kind(stream, &kinds[first]);
        fprintf(stream, "\"");
    }
}

HsStatus hs_attention_pattern_text(const HsAttentionKind *kinds, int64_t layers, char **text)
{
    static const HsAttentionKind plain = { 0 };
    size_t size;
    FILE *stream = open_memstream(text, &size);
    if (!stream)
        return hs_fail(HS_ENOMEM, "no memory for a pattern of attention");
    const int64_t whole = period_of(kinds, layers), before = layers > 1 ? period_of(kinds, layers - 1) : whole;
    if (whole > 1 || !are_same(&kinds[0], &plain)) {
        /* The last layer alone breaks what repeats. */
        const bool differs = whole == layers && before < layers - 1;
        fprintf(stream, "[");
        write_period(stream, kinds, differs ? before : whole);
        if (differs) {
            fprintf(stream, ", \"last ");
            write_kind(stream, &kinds[layers - 1]);
            fprintf(stream, "\"");
        }
        fprintf(stream, "]");
    }
    if (fclose(stream) == 0)
        return HS_OK;
    free(*text);
    *text = NULL;
    return hs_fail(HS_ENOMEM, "no memory for a pattern of attention");
}
