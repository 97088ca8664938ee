/* SPDX-License-Identifier: MIT
 *
 * Sources as units of about a megabyte, worked on by several threads and handed out in order, so that memory does not
 * depend on how large they are.  Internal to runtime/data, its tests and fuzzers.
 *
 *     records    |{...}\n{...}\n{...}\n|{...}\n ...      a unit is whole records (HsSourceKind.cut)
 *     Parquet    | row group | row group | ...           a unit is a row group, which its worker reads
 *     a text     |............border|lookahead|          a unit is a part of it (HsTextPart), and some bytes behind it
 *                                   |............ ...    the next one begins at the border
 *
 * Where a text's border lies is found by looking at the text around it, and proved when the unit in front of it is worked
 * on: where that one ends elsewhere, the next one is worked on again from there.
 */
#ifndef HS_RUNTIME_DATA_SOURCE_UNITS_H
#define HS_RUNTIME_DATA_SOURCE_UNITS_H

#include "runtime/data/source/source.h"

typedef struct HsUnitGroups HsUnitGroups;

typedef struct HsUnit {
    const HsSource *from;
    int source;           /* number in the list */
    HsSourceText text;    /* nothing of a synthetic source */
    bool is_part;         /* of a text: */
    size_t least;         /* where it ends, at most text.size: behind it is what the next unit has too */
    bool begins, ends;    /* the text does, with it */
    size_t used;          /* set by `work`: where it ended */
    int64_t weight;       /* set by `work`: bytes of text */
    HsUnitPlace next;     /* where the unit behind it begins, if it ends where it should */
    bool dropped;         /* it belongs to the next one now */
    HsUnitGroups *groups; /* of a Parquet file, which it is group number text.record - 1 of; NULL: it is none */
    void *result;         /* of result_bytes, zero at first; kept from unit to unit */
    char *bytes;          /* private from here on */
    size_t capacity;
    char *header;
    size_t header_capacity;
    bool done;
    HsStatus status;
    char message[1024];
} HsUnit;

typedef struct HsUnitWork {
    const HsSourceList *sources;
    int first, last;         /* sources [first, last) */
    const HsUnitPlace *from; /* where to begin; NULL: at the first source's beginning */
    int64_t most; /* ends where this many bytes of text were taken, if work may begin again there; 0: no limit */
    HsUnitPlace *reached; /* where it ended; source is `last` behind all.  NULL: not asked for */
    int threads;          /* workers, the caller's thread among them; at least 1 */
    /* How a source is read: its fields alone count here. */
    HsSourceOptions (*options)(const void *user, int source);
    /* Where a part of a text could end (HsTextPart).  NULL: texts are units, however long they are. */
    HsStatus (*border)(void *user, const HsTextPart *part, size_t *at);
    /* By any thread, worker 0 to threads - 1, which works on one unit at a time. */
    HsStatus (*work)(void *user, int worker, HsUnit *unit);
    /* In the sources' order, by the caller's thread. */
    HsStatus (*take)(void *user, const HsUnit *unit);
    void (*clear)(void *result); /* frees what a result holds; NULL: nothing */
    void *user;
    size_t result_bytes;
} HsUnitWork;

/* errors: the first in the sources' order: of reading, of `border`, `work` and `take` */
HsStatus hs_units_run(const HsUnitWork *work);

/* A text, or a part of one, as the tokenizer takes it: looked through (hs_text_check), without the mark in front that
 * says how it is encoded, of *mark bytes, and its lookahead up to the last whole character.  errors: HS_EFORMAT */
HsStatus hs_unit_open_text(const HsUnit *unit, const HsSourceOptions *options, HsTextPart *part, size_t *mark);
bool hs_unit_is_text(const HsUnit *unit);
/* The pieces of a unit of records, into an empty corpus. */
HsStatus hs_unit_parse(const HsUnit *unit, const HsSourceOptions *options, HsCorpus *corpus);

#endif
