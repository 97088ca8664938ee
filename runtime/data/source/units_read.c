/* SPDX-License-Identifier: MIT
 *
 * See units_read.h.
 */
#include "runtime/data/source/units_read.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/base/array.h"
#include "runtime/io/utf8.h"

enum { UNIT_BYTES = 1 << 20, LOOKAHEAD = 1 << 16, LOOK_BACK = 1 << 12 };
/* Of a record, or of a text that cannot be cut: a small compressed file may unpack to any size. */
static const size_t most_bytes = (size_t)16 << 30;

static HsStatus begin_source(HsUnitReader *reader)
{
    const HsSource *source = &reader->work->sources->items[reader->next];
    HS_TRY(hs_input_open(source, &reader->input));
    reader->place = (HsSourceText)HS_SOURCE_WHOLE(hs_source_title(source), NULL, 0);
    reader->ended = false;
    reader->carry_size = 0;
    const HsUnitPlace *from = reader->work->from;
    if (!from || !from->inside || from->source != reader->next)
        return HS_OK;
    reader->place.first = false;
    reader->place.offset = from->offset;
    reader->place.line = from->line;
    reader->place.record = from->record;
    reader->place.line_end = from->line_end;
    return hs_input_skip(reader->input, from->offset);
}

/* Where the next unit begins, once this one has been read. */
static HsUnitPlace next_place(const HsUnitReader *reader, bool ends)
{
    if (ends)
        return (HsUnitPlace){ .source = reader->next };
    return (HsUnitPlace){ .source = reader->next,
                          .inside = true,
                          .line_end = reader->place.line_end,
                          .offset = reader->place.offset,
                          .line = reader->place.line,
                          .record = reader->place.record };
}

static void end_source(HsUnitReader *reader)
{
    hs_input_close(reader->input);
    reader->input = NULL;
    reader->next++;
}

/* Up to `target` bytes in all. */
static HsStatus fill(HsUnitReader *reader, HsUnit *unit, size_t target)
{
    size_t got;
    HS_TRY(hs_array_grow(&unit->bytes, 1, target, &unit->capacity));
    while (unit->text.size < target && !reader->ended) {
        HS_TRY(hs_input_read(reader->input, unit->bytes + unit->text.size, target - unit->text.size, &got));
        reader->ended = got == 0;
        unit->text.size += got;
    }
    unit->text.bytes = unit->bytes;
    return HS_OK;
}

/* The border behind UNIT_BYTES as it looks from a line's beginning in front of it; 0: more has to be seen. */
static HsStatus find_border(const HsUnitReader *reader, const HsUnit *unit, size_t *border)
{
    const char *const bytes = unit->bytes;
    size_t from = UNIT_BYTES - LOOK_BACK, used;
    const char *const line = memchr(bytes + from, '\n', LOOK_BACK - 1);
    from = line ? (size_t)(line - bytes) + 1 : from;
    while (from < UNIT_BYTES && ((unsigned char)bytes[from] & 0xC0) == 0x80)
        from++;
    HsTextPart part = { .text = bytes + from, .length = unit->text.size - from, .least = UNIT_BYTES - from };
    const size_t valid = hs_utf8_valid_prefix(part.text, part.length);
    part.last = reader->ended;
    *border = UNIT_BYTES;
    if (valid + HS_UTF8_MAX_BYTES <= part.length)
        return HS_OK; /* no UTF-8: where that matters the unit is refused */
    part.length = part.last ? part.length : valid;
    HS_TRY(reader->work->border(reader->work->user, &part, &used));
    *border = used > 0 ? from + used : 0;
    return HS_OK;
}

/* How many bytes of what was read are the unit's; 0: more has to be read. */
static HsStatus choose_end(HsUnitReader *reader, HsUnit *unit, HsSourceCut *cut)
{
    const HsSourceKind *kind = unit->from->kind;
    *cut = (HsSourceCut){ 0 };
    if (reader->ended && (!unit->is_part || unit->text.size <= UNIT_BYTES + LOOKAHEAD)) {
        cut->size = unit->text.size;
    } else if (unit->is_part) {
        HS_TRY(find_border(reader, unit, &cut->size));
        if (cut->size == 0 && reader->ended)
            cut->size = unit->text.size;
    } else if (kind->cut) {
        kind->cut(&unit->text, cut);
    }
    return HS_OK;
}

/* What the parser of the rest needs of this unit. */
static HsStatus keep_place(HsUnitReader *reader, HsUnit *unit, const HsSourceCut *cut)
{
    HsSourceText *place = &reader->place;
    if (unit->text.header && unit->text.first) {
        HS_TRY(hs_array_grow(&reader->header, 1, unit->text.header_size, &reader->header_capacity));
        memcpy(reader->header, unit->text.header, unit->text.header_size);
        place->header = reader->header;
        place->header_size = unit->text.header_size;
    }
    place->first = false;
    place->offset += cut->size;
    place->line += cut->lines;
    place->record += cut->records;
    place->line_end = unit->text.line_end;
    return HS_OK;
}

static HsStatus carry(HsUnitReader *reader, const HsUnit *unit, size_t from)
{
    reader->carry_size = unit->text.size - from;
    HS_TRY(hs_array_grow(&reader->carry, 1, reader->carry_size + 1, &reader->carry_capacity));
    memcpy(reader->carry, unit->bytes + from, reader->carry_size);
    return HS_OK;
}

static HsStatus read_unit(HsUnitReader *reader, HsUnit *unit)
{
    size_t target = UNIT_BYTES + (hs_unit_is_text(unit) ? LOOKAHEAD : 0);
    HsSourceCut cut = { 0 };
    unit->is_part = hs_unit_is_text(unit) && reader->work->border;
    unit->text = reader->place;
    unit->text.size = reader->carry_size;
    target = target < reader->carry_size ? reader->carry_size : target;
    HS_TRY(hs_array_grow(&unit->bytes, 1, target, &unit->capacity));
    if (reader->carry_size > 0) /* memcpy takes no NULL, not even for nothing */
        memcpy(unit->bytes, reader->carry, reader->carry_size);
    for (;; target *= 2) {
        HS_TRY(fill(reader, unit, target));
        HS_TRY(choose_end(reader, unit, &cut));
        if (cut.size > 0 || reader->ended)
            break;
        if (target > most_bytes)
            return hs_fail(HS_EFORMAT,
                           "%s: byte %zu: what begins here has more than %zu bytes without an end; split it",
                           reader->place.name, reader->place.offset, most_bytes);
    }
    const bool last = reader->ended && cut.size == unit->text.size;
    unit->least = cut.size;
    unit->begins = unit->text.first;
    unit->ends = last;
    if (!unit->text.first && unit->text.header) { /* the reader's changes with the next source */
        HS_TRY(hs_array_grow(&unit->header, 1, unit->text.header_size, &unit->header_capacity));
        memcpy(unit->header, unit->text.header, unit->text.header_size);
        unit->text.header = unit->header;
    }
    HS_TRY(carry(reader, unit, cut.size));
    HS_TRY(keep_place(reader, unit, &cut));
    if (!unit->is_part)
        unit->text.size = cut.size;
    unit->text.last = unit->is_part ? reader->ended : last;
    if (last)
        end_source(reader);
    unit->next = next_place(reader, last);
    return HS_OK;
}

/* The next row group; *there: false behind the last, and no source is at hand then. */
static HsStatus read_group(HsUnitReader *reader, HsUnit *unit, bool *there)
{
    const HsSource *source = &reader->work->sources->items[reader->next];
    if (!reader->groups) {
        const HsSourceOptions options = reader->work->options(reader->work->user, reader->next);
        HS_TRY(hs_unit_groups_open(source, &options, &reader->groups));
        reader->place = (HsSourceText)HS_SOURCE_WHOLE(hs_source_title(source), NULL, 0);
        const HsUnitPlace *from = reader->work->from;
        if (from && from->inside && from->source == reader->next)
            reader->place.record = from->record;
    }
    *there = reader->place.record <= hs_unit_groups_count(reader->groups);
    if (*there) {
        unit->text = reader->place;
        unit->groups = hs_unit_groups_hold(reader->groups);
        reader->place.record++;
        unit->next = next_place(reader, false);
        return HS_OK;
    }
    hs_unit_groups_release(reader->groups);
    reader->groups = NULL;
    reader->next++;
    return HS_OK;
}

static void clear_unit(const HsUnitReader *reader, HsUnit *unit)
{
    hs_unit_groups_release(unit->groups);
    unit->groups = NULL;
    unit->source = reader->next;
    unit->from = &reader->work->sources->items[reader->next];
    unit->dropped = unit->done = unit->is_part = false;
    unit->status = HS_OK;
    unit->text = (HsSourceText){ .name = unit->from->name };
    unit->begins = unit->ends = true;
    unit->least = unit->used = 0;
    unit->weight = 0;
    unit->next = (HsUnitPlace){ .source = reader->next + 1 };
}

HsStatus hs_unit_reader_next(HsUnitReader *reader, HsUnit *unit, bool *there)
{
    for (*there = false; reader->next < reader->work->last && !*there;) {
        clear_unit(reader, unit);
        if (!unit->from->kind) { /* generated by `work` */
            reader->next++;
            *there = true;
        } else if (hs_unit_groups_apply(unit->from)) {
            HS_TRY(read_group(reader, unit, there));
        } else {
            if (!reader->input)
                HS_TRY(begin_source(reader));
            *there = true;
            return read_unit(reader, unit);
        }
    }
    return HS_OK;
}

void hs_unit_reader_deinit(HsUnitReader *reader)
{
    hs_input_close(reader->input);
    hs_unit_groups_release(reader->groups);
    free(reader->carry);
    free(reader->header);
}
