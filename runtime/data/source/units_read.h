/* SPDX-License-Identifier: MIT
 *
 * Reading units (units.h), one after another.  Private to units*.c.
 */
#ifndef HS_RUNTIME_DATA_SOURCE_UNITS_READ_H
#define HS_RUNTIME_DATA_SOURCE_UNITS_READ_H

#include "runtime/data/source/input.h"
#include "runtime/data/source/unit_groups.h"
#include "runtime/data/source/units.h"

typedef struct HsUnitReader {
    const HsUnitWork *work;
    int next;             /* source */
    HsInput *input;       /* NULL: between two sources */
    HsUnitGroups *groups; /* of the Parquet file at hand; NULL: it is none */
    HsSourceText place;   /* of what is carried, and what is known for the rest of the source */
    bool ended;           /* nothing more to read of this source */
    char *carry;          /* read, and not handed out */
    size_t carry_size, carry_capacity;
    char *header; /* CSV */
    size_t header_capacity;
} HsUnitReader;

/* *there: false behind the last. */
HsStatus hs_unit_reader_next(HsUnitReader *reader, HsUnit *unit, bool *there);
void hs_unit_reader_deinit(HsUnitReader *reader);

#endif
