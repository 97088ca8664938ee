/* SPDX-License-Identifier: MIT
 *
 * Running a pre-tokenizer's stages; see pretokenize.h.
 */
#include "runtime/data/tokenizer/pretokenize_stage.h"

/* A part of the text.  `matched` is what patterns see: the text, or its stand-ins (unicode.h). */
typedef struct Span {
    const char *text, *matched;
    size_t length;
    bool at_start;
} Span;

/* What one call of split needs. */
typedef struct Split {
    const HsPretokenizer *pretokenizer;
    HsMatcher *matcher;
    HsPieceFunction *take;
    void *context;
} Split;

/* Ranges that may still grow before they are handed on. */
typedef struct Cutter {
    Split *split;
    int stage;
    Span span;
    size_t begin, end; /* pending */
    bool pending, pending_match;
} Cutter;

static HsStatus run_stage(Split *split, int stage, Span span);

static HsStatus hand_on(Cutter *cutter, size_t begin, size_t end)
{
    const Span *span = &cutter->span;
    return run_stage(cutter->split, cutter->stage + 1,
                     (Span){ span->text + begin, span->matched + begin, end - begin, span->at_start && begin == 0 });
}

static HsStatus flush(Cutter *cutter)
{
    bool pending = cutter->pending;
    cutter->pending = false;
    return pending ? hand_on(cutter, cutter->begin, cutter->end) : HS_OK;
}

static HsStatus hold(Cutter *cutter, size_t begin, size_t end, bool is_match)
{
    HS_TRY(flush(cutter));
    cutter->pending = true;
    cutter->pending_match = is_match;
    cutter->begin = begin;
    cutter->end = end;
    return HS_OK;
}

/* The next range.  A match joins a neighbour that is no match, never another match. */
static HsStatus cut(Cutter *cutter, HsSplitBehavior behavior, size_t begin, size_t end, bool is_match)
{
    switch (behavior) {
    case HS_SPLIT_ISOLATED:
        return hand_on(cutter, begin, end);
    case HS_SPLIT_REMOVED:
        return is_match ? HS_OK : hand_on(cutter, begin, end);
    case HS_SPLIT_CONTIGUOUS:
        if (!cutter->pending || cutter->pending_match != is_match)
            return hold(cutter, begin, end, is_match);
        cutter->end = end;
        return HS_OK;
    case HS_SPLIT_WITH_PREVIOUS:
        if (!cutter->pending || cutter->pending_match || !is_match)
            return hold(cutter, begin, end, is_match);
        cutter->end = end;
        cutter->pending_match = true;
        return HS_OK;
    case HS_SPLIT_WITH_NEXT:
        if (is_match || !cutter->pending)
            return is_match ? hold(cutter, begin, end, true) : hand_on(cutter, begin, end);
        cutter->pending = false;
        return hand_on(cutter, cutter->begin, end);
    }
    return HS_OK;
}

/* The match or gap that begins at `from`; PCRE2 is asked where the stage has no faster way. */
static HsStatus next_range(HsMatcher *matcher, const HsStage *stage, const char *text, size_t length, size_t from,
                           size_t *end, bool *is_match)
{
    *end = stage->ascii ? stage->ascii(text, length, from) : 0;
    *is_match = *end > 0;
    return *is_match ? HS_OK : hs_matcher_next(matcher, stage->pattern, text, length, from, end, is_match);
}

static HsStatus next_open_range(HsMatcher *matcher, const HsStage *stage, const char *text, size_t length, size_t from,
                                size_t *end, bool *decided)
{
    *end = stage->ascii ? stage->ascii(text, length, from) : 0;
    *decided = *end > 0;
    return *decided ? HS_OK : hs_matcher_next_open(matcher, stage->pattern, text, length, from, end, decided);
}

static HsStatus cut_all(Split *split, int index, Span span)
{
    const HsStage *stage = &split->pretokenizer->stages[index];
    if (!stage->pattern)
        return run_stage(split, index + 1, span);
    Cutter cutter = { .split = split, .stage = index, .span = span };
    const char *matched = hs_pattern_takes_stand_ins(stage->pattern) ? span.matched : span.text;
    for (size_t at = 0, end = 0; at < span.length; at = end) {
        bool is_match = false;
        HS_TRY(next_range(split->matcher, stage, matched, span.length, at, &end, &is_match));
        HS_TRY(cut(&cutter, stage->behavior, at, end, is_match != stage->invert));
    }
    return flush(&cutter);
}

/* The text with its spaces rewritten and one in front, where the stage asks for it. */
static HsStatus rewrite(const HsStage *stage, Span span, bool prefix, HsBytes *out)
{
    size_t space = strlen(stage->space);
    if (prefix)
        HS_TRY(hs_bytes_append(out, stage->space, space));
    if (!stage->replace_spaces)
        return hs_bytes_append(out, span.text, span.length);
    for (size_t at = 0; at < span.length;) {
        const char *found = memchr(span.text + at, ' ', span.length - at);
        size_t end = found ? (size_t)(found - span.text) : span.length;
        HS_TRY(hs_bytes_append(out, span.text + at, end - at));
        if (found)
            HS_TRY(hs_bytes_append(out, stage->space, space));
        at = end + 1;
    }
    return HS_OK;
}

static HsStatus run_rewritten(Split *split, int index, Span span, bool prefix)
{
    HsBytes bytes = { 0 };
    char *stand_ins = NULL;
    HsStatus status = rewrite(&split->pretokenizer->stages[index], span, prefix, &bytes);
    if (status == HS_OK && span.matched != span.text)
        status = hs_unicode_stand_ins(bytes.items, bytes.count, &stand_ins);
    if (status == HS_OK)
        status = cut_all(split, index,
                         (Span){ bytes.items, stand_ins ? stand_ins : bytes.items, bytes.count, span.at_start });
    free(stand_ins);
    hs_bytes_deinit(&bytes);
    return status;
}

static HsStatus run_stage(Split *split, int index, Span span)
{
    if (span.length == 0)
        return HS_OK;
    if (index == split->pretokenizer->stage_count)
        return split->take(split->context, span.text, span.length);
    const HsStage *stage = &split->pretokenizer->stages[index];
    size_t space = strlen(stage->space);
    bool asked = stage->prefix == HS_PREFIX_ALWAYS || (stage->prefix == HS_PREFIX_FIRST && span.at_start);
    bool begins = span.length >= space && memcmp(span.text, stage->space, space) == 0;
    begins |= stage->replace_spaces && span.text[0] == ' '; /* which is about to become one */
    if ((asked && !begins) || stage->replace_spaces)
        return run_rewritten(split, index, span, asked && !begins);
    return cut_all(split, index, span);
}

static HsStatus split_run(Split *split, const char *text, size_t length, bool at_start)
{
    char *stand_ins;
    HS_TRY(hs_unicode_stand_ins(text, length, &stand_ins));
    HsStatus status = run_stage(split, 0, (Span){ text, stand_ins ? stand_ins : text, length, at_start });
    free(stand_ins);
    return status;
}

HsStatus hs_pretokenizer_split(const HsPretokenizer *pretokenizer, HsMatcher *matcher, const char *text, size_t length,
                               bool at_start, HsPieceFunction *take, void *context)
{
    Split split = { pretokenizer, matcher, take, context };
    for (size_t at = 0; at < length;) {
        size_t valid = hs_utf8_valid_prefix(text + at, length - at);
        HS_TRY(split_run(&split, text + at, valid, at_start && at == 0));
        at += valid;
        size_t other = 0;
        while (at + other < length && hs_utf8_decode(text + at + other, length - at - other, NULL) == 0)
            other++;
        if (other > 0)
            HS_TRY(take(context, text + at, other));
        at += other;
    }
    return HS_OK;
}

static bool only_cuts(const HsStage *stage)
{
    return stage->prefix == HS_PREFIX_NEVER && !stage->replace_spaces &&
           (!stage->pattern || (stage->behavior == HS_SPLIT_ISOLATED && !hs_pattern_looks_back(stage->pattern)));
}

bool hs_pretokenizer_takes_parts(const HsPretokenizer *pretokenizer)
{
    for (int i = 0; i < pretokenizer->stage_count && only_cuts(&pretokenizer->stages[i]); i++)
        if (pretokenizer->stages[i].pattern && !pretokenizer->stages[i].one_character)
            return true;
    return false;
}

bool hs_pretokenizer_only_rewrites(const HsPretokenizer *pretokenizer, bool spaces)
{
    for (int i = 0; i < pretokenizer->stage_count; i++) {
        const HsStage *stage = &pretokenizer->stages[i];
        const char *literal = stage->pattern ? hs_pattern_literal(stage->pattern) : NULL;
        const bool idle = !stage->pattern || (literal && strcmp(literal, " ") == 0 && !spaces && !stage->invert);
        if (!idle || stage->prefix == HS_PREFIX_ALWAYS || (stage->pattern && stage->replace_spaces))
            return false;
        spaces = spaces && !stage->replace_spaces;
    }
    return true;
}

const char *hs_pretokenizer_space(const HsPretokenizer *pretokenizer)
{
    for (int i = 0; i < pretokenizer->stage_count; i++)
        if (pretokenizer->stages[i].replace_spaces)
            return pretokenizer->stages[i].space;
    return NULL;
}

/* A part that is being split: the stages that cut the text itself, one inside the other. */
typedef struct Parting {
    Split split;
    const HsPartSplit *part;
    bool stopped;
} Parting;

/* What stages behind `stage` make of a piece. */
static HsStatus take_piece(Parting *parting, int stage, Span span)
{
    return parting->part->take ? run_stage(&parting->split, stage + 1, span) : HS_OK;
}

/* open: the span's end is not one of the text that it is part of. */
static HsStatus cut_part(Parting *parting, int index, Span span, bool open)
{
    const HsStage *stage = &parting->split.pretokenizer->stages[index];
    const size_t base = (size_t)(span.text - parting->part->text);
    if (!stage->pattern)
        return cut_part(parting, index + 1, span, open);
    const char *matched = hs_pattern_takes_stand_ins(stage->pattern) ? span.matched : span.text;
    for (size_t at = 0, end = 0; at < span.length && !parting->stopped; at = end) {
        bool is_match = false, decided = true;
        if (open && !stage->one_character)
            HS_TRY(next_open_range(parting->split.matcher, stage, matched, span.length, at, &end, &decided));
        else
            HS_TRY(next_range(parting->split.matcher, stage, matched, span.length, at, &end, &is_match));
        if (!decided)
            return HS_OK;
        const bool tail = open && end == span.length && !is_match;
        const Span piece = { span.text + at, span.matched + at, end - at, span.at_start && at == 0 };
        /* Between single characters the next stage cuts: there its borders are the text's. */
        if (stage->one_character && !is_match)
            HS_TRY(cut_part(parting, index + 1, piece, tail));
        else
            HS_TRY(take_piece(parting, index, piece));
        if (!parting->stopped && !(stage->one_character && tail))
            parting->stopped = parting->part->stops(parting->part->context, base + end);
    }
    return HS_OK;
}

HsStatus hs_pretokenizer_split_part(const HsPretokenizer *pretokenizer, HsMatcher *matcher, const HsPartSplit *part)
{
    Parting parting = { .split = { pretokenizer, matcher, part->take, part->context }, .part = part };
    char *stand_ins;
    HS_TRY(hs_unicode_stand_ins(part->text, part->length, &stand_ins));
    const Span span = { part->text, stand_ins ? stand_ins : part->text, part->length, part->at_start };
    HsStatus status = cut_part(&parting, 0, span, part->open);
    free(stand_ins);
    return status;
}

bool hs_pretokenizer_is_byte_level(const HsPretokenizer *pretokenizer)
{
    return pretokenizer->byte_level;
}

void hs_pretokenizer_destroy(HsPretokenizer *pretokenizer)
{
    if (!pretokenizer)
        return;
    for (int i = 0; i < pretokenizer->stage_count; i++)
        hs_pattern_destroy(pretokenizer->stages[i].pattern);
    free(pretokenizer);
}
