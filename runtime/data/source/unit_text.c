/* SPDX-License-Identifier: MIT
 *
 * What those that work on units (units.h) make of one: a text, or pieces.
 */
#include "runtime/data/source/unit_groups.h"
#include "runtime/data/source/units.h"
#include "runtime/io/utf8.h"

bool hs_unit_is_text(const HsUnit *unit)
{
    return unit->from->kind && unit->from->kind->parse == hs_text_parse;
}

HsStatus hs_unit_open_text(const HsUnit *unit, const HsSourceOptions *options, HsTextPart *part, size_t *mark)
{
    HsSourceText own = unit->text;
    own.size = unit->least;
    HS_TRY(hs_text_check(&own, options));
    *mark = unit->begins ? hs_utf8_mark_bytes(own.bytes, own.size) : 0;
    *part = (HsTextPart){ .text = own.bytes + *mark,
                          .length = unit->text.size - *mark,
                          .least = unit->least - *mark,
                          .first = unit->begins,
                          .last = unit->text.last,
                          .offset = own.offset + *mark };
    if (options->needs_utf8 && !part->last)
        part->length = hs_utf8_valid_prefix(part->text, part->length);
    return HS_OK;
}

HsStatus hs_unit_parse(const HsUnit *unit, const HsSourceOptions *options, HsCorpus *corpus)
{
    hs_corpus_clear(corpus);
    corpus->source = unit->source;
    if (unit->groups)
        return hs_unit_groups_parse(unit->groups, unit->text.record - 1, options, corpus);
    return unit->from->kind ? unit->from->kind->parse(&unit->text, options, corpus)
                            : hs_source_read(unit->from, options, corpus);
}
