/* SPDX-License-Identifier: MIT
 *
 * Which characters the sources have: a tokenizer of characters is made from them.
 */
#include <stdlib.h>
#include <string.h>

#include "runtime/data/source/encode.h"
#include "runtime/data/source/progress.h"
#include "runtime/data/source/units.h"
#include "runtime/io/utf8.h"

/* Each worker collects; all are put together at the end. */
typedef struct Collector {
    HsCorpus corpus;
    uint8_t present[HS_CODE_POINTS / 8];
} Collector;

typedef struct Collecting {
    const HsEncoding *encoding;
    Collector *workers;
    HsSourceProgress progress;
} Collecting;

static void collect(const char *text, size_t length, uint8_t *present)
{
    for (size_t at = 0, size; at < length; at += size) {
        uint32_t c = 0;
        size = hs_utf8_decode(text + at, length - at, &c);
        if (size == 0)
            size = 1; /* the readers of sources have refused it */
        else
            present[c / 8] |= (uint8_t)(1u << (c % 8));
    }
}

static HsSourceOptions options_of(const void *user, int source)
{
    const Collecting *collecting = user;
    return collecting->encoding->options(collecting->encoding->user, source);
}

static HsStatus work(void *user, int worker, HsUnit *unit)
{
    const Collecting *collecting = user;
    Collector *own = &collecting->workers[worker];
    const HsSourceOptions options = collecting->encoding->options(collecting->encoding->user, unit->source);
    if (unit->is_part) {
        HsTextPart part;
        size_t mark;
        HS_TRY(hs_unit_open_text(unit, &options, &part, &mark));
        collect(part.text, part.least, own->present);
        return HS_OK;
    }
    HS_TRY(hs_unit_parse(unit, &options, &own->corpus));
    collect(own->corpus.text, own->corpus.text_length, own->present);
    return HS_OK;
}

static HsStatus take(void *user, const HsUnit *unit)
{
    Collecting *collecting = user;
    hs_source_progress_add(&collecting->progress, unit);
    return HS_OK;
}

/* Between any two characters. */
static HsStatus border(void *user, const HsTextPart *part, size_t *at)
{
    (void)user;
    *at = part->least;
    while (*at < part->length && ((unsigned char)part->text[*at] & 0xC0) == 0x80)
        ++*at;
    return HS_OK;
}

HsStatus hs_sources_characters(const HsEncoding *encoding, uint8_t *present)
{
    const int threads = hs_source_threads(encoding->threads);
    Collecting collecting = { .encoding = encoding, .workers = calloc((size_t)threads, sizeof *collecting.workers) };
    if (!collecting.workers)
        return hs_fail(HS_ENOMEM, "no memory to look for characters");
    const HsUnitWork units = { .sources = encoding->sources,
                               .first = encoding->first,
                               .last = encoding->last,
                               .threads = threads,
                               .options = options_of,
                               .border = border,
                               .work = work,
                               .take = take,
                               .user = &collecting };
    hs_source_progress_begin(&collecting.progress, encoding->sources, encoding->first, encoding->last, encoding->what);
    const HsStatus status = hs_units_run(&units);
    hs_source_progress_end(&collecting.progress);
    for (int i = 0; i < threads; i++) {
        for (size_t k = 0; k < HS_CODE_POINTS / 8; k++)
            present[k] |= collecting.workers[i].present[k];
        hs_corpus_deinit(&collecting.workers[i].corpus);
    }
    free(collecting.workers);
    return status;
}
