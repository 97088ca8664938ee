/* SPDX-License-Identifier: MIT
 *
 * A part of a text to tokens, up to a border that what follows cannot move.
 *
 *     part     |.......................least........border ............|  the rest belongs to the next part
 *     runs     | run     | <added> | run ...                    limit |   an added token may begin behind the limit
 *     pieces   |   |  |    |          | |  |         |   ?            |   what reaches the end is held back
 *
 * Borders lie between pieces, and around added tokens.  PCRE2's partial matching says which pieces are decided: those
 * of which no match looked at the end of what is there.  Under NFC positions in the normalized text are found again by
 * lines that it leaves alone.
 */
#include <stdlib.h>
#include <string.h>

#include "kernels/base/array.h"
#include "runtime/data/tokenizer/bpe_encoder.h"

/* A line of a run, and where it stands once it is normalized. */
typedef struct Line {
    size_t given, normalized;
    bool same; /* it is as it was given */
} Line;

typedef struct Parting {
    HsBpeEncoder *encoder;
    const HsTextPart *part;
    size_t used;  /* the border; 0: not there yet */
    size_t limit; /* of the part: no run ends there */
    /* The run at hand: */
    const char *text; /* normalized */
    size_t given;     /* where it begins in the part */
    size_t inner;     /* where what is between two added tokens of normalized text begins in it */
    size_t inner_limit;
    bool open;
    Line *lines;                            /* none: it is as it was given */
    size_t line_count, line_capacity, line; /* line: the last one that was looked up */
} Parting;

bool hs_bpe_takes_parts(const HsTokenizer *tokenizer)
{
    const HsBpe *bpe = tokenizer->state;
    for (size_t i = 0; i < bpe->added_count; i++)
        if (bpe->added[i].single_word || bpe->added[i].lstrip || bpe->added[i].rstrip)
            return false; /* they look at what stands next to them */
    return hs_bpe_cuts_at_joints(bpe) || (hs_pretokenizer_takes_parts(bpe->pretokenizer) &&
                                          (!bpe->normalizer || hs_normalizer_keeps_lines(bpe->normalizer)));
}

static bool take_border(Parting *parting, size_t at)
{
    if (parting->used == 0 && at > 0 && at >= parting->part->least)
        parting->used = at;
    return parting->used > 0;
}

/* HsPartSplit's stops: `at` counts in the inner run of normalized text. */
static bool stops(void *context, size_t at)
{
    Parting *parting = context;
    const size_t place = parting->inner + at;
    if (parting->line_count == 0)
        return take_border(parting, parting->given + place);
    while (parting->line + 1 < parting->line_count && parting->lines[parting->line + 1].normalized <= place)
        parting->line++;
    const Line *line = &parting->lines[parting->line];
    return line->same && take_border(parting, parting->given + line->given + (place - line->normalized));
}

static HsStatus take_piece(void *context, const char *piece, size_t length)
{
    return hs_bpe_encode_piece(((Parting *)context)->encoder, piece, length);
}

/* HsBpePartFunction on normalized text. */
static HsStatus take_normalized(void *context, const HsBpeAdded *added, size_t begin, size_t end)
{
    Parting *parting = context;
    HsBpeEncoder *encoder = parting->encoder;
    if (parting->used > 0)
        return HS_OK;
    parting->inner = begin;
    if (added) {
        if (begin > 0 && stops(parting, 0))
            return HS_OK;
        HS_TRY(encoder->tokens ? hs_bpe_emit(encoder, added) : HS_OK);
        (void)stops(parting, end - begin);
        return HS_OK;
    }
    const HsPartSplit split = { .text = parting->text + begin,
                                .length = end - begin,
                                .at_start = parting->part->first && parting->given == 0 && begin == 0,
                                .open = parting->open && end == parting->inner_limit,
                                .take = encoder->tokens ? take_piece : NULL,
                                .stops = stops,
                                .context = parting };
    /* Bytes that are no characters: only in texts that nothing has looked through. */
    if (hs_utf8_valid_prefix(split.text, split.length) < split.length)
        return hs_fail(HS_EFORMAT, "a byte that is not UTF-8");
    return hs_pretokenizer_split_part(encoder->bpe->pretokenizer, encoder->matcher, &split);
}

static HsStatus normalize_line(Parting *parting, const char *text, size_t from, size_t to, HsBytes *line, HsBytes *all)
{
    const HsBpe *bpe = parting->encoder->bpe;
    HS_TRY(hs_array_grow(&parting->lines, sizeof *parting->lines, parting->line_count + 1, &parting->line_capacity));
    HS_TRY(hs_normalizer_apply(bpe->normalizer, parting->encoder->matcher, text + from, to - from, true, line));
    const bool same = line->count == to - from && memcmp(line->items, text + from, line->count) == 0;
    parting->lines[parting->line_count++] = (Line){ from, all->count, same };
    return hs_bytes_append(all, line->items, line->count);
}

/* The run normalized, and its lines where that changes it. */
static HsStatus normalize(Parting *parting, const char *text, size_t length, size_t *normalized)
{
    HsBpeEncoder *encoder = parting->encoder;
    HsBytes *all = &encoder->normalized, line = { 0 };
    parting->line_count = parting->line = 0;
    parting->text = text;
    *normalized = length;
    if (!encoder->bpe->normalizer)
        return HS_OK;
    HS_TRY(hs_normalizer_apply(encoder->bpe->normalizer, encoder->matcher, text, length, true, all));
    if (all->count == length && memcmp(all->items, text, length) == 0)
        return HS_OK;
    HsStatus status = HS_OK;
    all->count = 0;
    for (size_t from = 0, to; status == HS_OK && from < length; from = to) {
        const char *end = memchr(text + from, '\n', length - from);
        to = end ? (size_t)(end - text) + 1 : length;
        status = normalize_line(parting, text, from, to, &line, all);
    }
    hs_bytes_deinit(&line);
    parting->text = all->items;
    *normalized = all->count;
    return status;
}

/* HsBpePartFunction on the text as given. */
static HsStatus take_given(void *context, const HsBpeAdded *added, size_t begin, size_t end)
{
    Parting *parting = context;
    HsBpeEncoder *encoder = parting->encoder;
    const HsBpe *bpe = encoder->bpe;
    const HsTextPart *part = parting->part;
    size_t length;
    if (parting->used > 0)
        return HS_OK;
    if (added) {
        if (take_border(parting, begin))
            return HS_OK;
        HS_TRY(encoder->tokens ? hs_bpe_emit(encoder, added) : HS_OK);
        (void)take_border(parting, end);
        return HS_OK;
    }
    parting->open = !part->last && end == parting->limit;
    parting->given = begin;
    if (end < part->least && !parting->open)
        return encoder->tokens
                   ? hs_bpe_encode_run(encoder, part->text + begin, end - begin, part->first && begin == 0, true)
                   : HS_OK;
    HS_TRY(normalize(parting, part->text + begin, end - begin, &length));
    const char *const text = parting->text;
    parting->inner_limit = hs_bpe_limit(&bpe->tries[true], text, length, parting->open);
    HS_TRY(hs_bpe_cut_added(bpe, true, encoder->matcher, text, length, parting->inner_limit, take_normalized, parting));
    if (!parting->open)
        (void)take_border(parting, end);
    return HS_OK;
}

HsStatus hs_bpe_encode_part(void *scratch, const HsTextPart *part, HsTokens *tokens, size_t *used)
{
    HsBpeEncoder *encoder = scratch;
    const HsBpe *bpe = encoder->bpe;
    const int64_t before = tokens ? tokens->count : 0;
    Parting parting = { .encoder = encoder,
                        .part = part,
                        .limit = hs_bpe_limit(&bpe->tries[false], part->text, part->length, !part->last) };
    encoder->tokens = tokens;
    hs_matcher_begin(encoder->matcher, part->length);
    HsStatus status = hs_bpe_cuts_at_joints(bpe) ? hs_bpe_encode_joint_part(encoder, part, &parting.used)
                                                 : hs_bpe_cut_added(bpe, false, encoder->matcher, part->text,
                                                                    part->length, parting.limit, take_given, &parting);
    free(parting.lines);
    *used = parting.used > 0 ? parting.used : part->last ? part->length : 0;
    if (tokens && (status != HS_OK || *used == 0))
        tokens->count = before; /* all or nothing */
    return status;
}
