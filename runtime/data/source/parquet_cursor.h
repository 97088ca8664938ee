/* SPDX-License-Identifier: MIT
 *
 * The entries of a chunk, one after another (parquet_file.h says what an entry is).  Private to the parquet*.c files.
 *
 *     peek    the next entry's levels, where it was not looked at yet; reads pages as they are needed
 *     take    its value, where it has one
 */
#ifndef HS_RUNTIME_DATA_SOURCE_PARQUET_CURSOR_H
#define HS_RUNTIME_DATA_SOURCE_PARQUET_CURSOR_H

#include "runtime/data/source/parquet_values.h"

struct HsParquetCursor {
    const HsParquetField *field;
    HsParquetPages pages;
    HsParquetValues values;
    HsRuns repetitions, definitions;
    int64_t rest, page_rest; /* entries behind those of this page; of this page */
    bool is_peeked, has_ended;
    int repetition, definition; /* of the next entry; 0 and -1 behind the last one */
    int64_t group, column;
};

void hs_parquet_cursor_init(HsParquetCursor *cursor, const HsParquet *file, int64_t group, int column);
void hs_parquet_cursor_deinit(HsParquetCursor *cursor);
/* errors: HS_EFORMAT, HS_ENOMEM, those of reading; with file, row group and column */
HsStatus hs_parquet_cursor_load(HsParquetCursor *cursor);
static inline HsStatus hs_parquet_cursor_peek(HsParquetCursor *cursor)
{
    return cursor->is_peeked ? HS_OK : hs_parquet_cursor_load(cursor);
}
/* Of the entry that was peeked.  *there: it has a value; a text is valid until the next peek or take.
 * errors: as peek */
HsStatus hs_parquet_cursor_take(HsParquetCursor *cursor, HsParquetValue *value, bool *there);
/* Puts file, row group and column in front of the message. */
HsStatus hs_parquet_cursor_fail(const HsParquetCursor *cursor, HsStatus status);

#endif
