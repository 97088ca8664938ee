/* SPDX-License-Identifier: MIT
 *
 * See parquet_cursor.h.
 */
#include "runtime/data/source/parquet_cursor.h"

#include <inttypes.h>

void hs_parquet_cursor_init(HsParquetCursor *cursor, const HsParquet *file, int64_t group, int column)
{
    const HsParquetField *const field = &file->fields[file->columns[column]];
    const HsParquetChunk *const chunk = &file->chunks[group * file->column_count + column];
    *cursor = (HsParquetCursor){
        .field = field,
        .pages = { .file = file,
                   .field = field,
                   .chunk = chunk,
                   .most_bytes = hs_parquet_most_bytes(file, group),
                   .at = chunk->start },
        .values = { .type = field->type },
        .rest = chunk->values,
        .group = group,
        .column = column,
    };
}

void hs_parquet_cursor_deinit(HsParquetCursor *cursor)
{
    hs_parquet_pages_deinit(&cursor->pages);
    hs_parquet_values_deinit(&cursor->values);
}

HsStatus hs_parquet_cursor_fail(const HsParquetCursor *cursor, HsStatus status)
{
    const HsParquet *const file = cursor->pages.file;
    char path[256];
    return hs_error_prefix(status, "%s: row group %" PRId64 ": column `%s`", file->name, cursor->group + 1,
                           hs_parquet_path(file, file->columns[cursor->column], path, sizeof path));
}

/* The next page of values; a dictionary may come in front of it. */
static HsStatus load_page(HsParquetCursor *cursor)
{
    HsParquetPage page;
    bool there;
    for (;;) {
        HS_TRY(hs_parquet_pages_next(&cursor->pages, &page, &there));
        if (!there)
            return hs_fail(HS_EFORMAT, "its pages end %" PRId64 " values too early: " HS_PARQUET_DAMAGED, cursor->rest);
        if (!page.is_dictionary)
            break;
        HS_TRY(hs_parquet_values_set_dictionary(&cursor->values, &page));
    }
    if (page.entries > cursor->rest)
        return hs_fail(HS_EFORMAT,
                       "its pages have more values than the %" PRId64 " that it states: " HS_PARQUET_DAMAGED,
                       cursor->pages.chunk->values);
    cursor->rest -= page.entries;
    cursor->page_rest = page.entries;
    cursor->repetitions = (HsRuns){ .bytes = page.repetitions.bytes,
                                    .size = page.repetitions.size,
                                    .width = hs_runs_width((unsigned)cursor->field->max_repetition) };
    cursor->definitions = (HsRuns){ .bytes = page.definitions.bytes,
                                    .size = page.definitions.size,
                                    .width = hs_runs_width((unsigned)cursor->field->max_definition) };
    return hs_parquet_values_begin(&cursor->values, &page);
}

static HsStatus load_level(HsRuns *runs, int most, int *level)
{
    uint32_t value = 0;
    if (most > 0 && (!hs_runs_next(runs, &value) || value > (uint32_t)most))
        return hs_fail(HS_EFORMAT,
                       "a page's levels end too early, or are none that the column has: " HS_PARQUET_DAMAGED);
    *level = (int)value;
    return HS_OK;
}

static HsStatus load_entry(HsParquetCursor *cursor)
{
    while (cursor->page_rest == 0 && cursor->rest > 0)
        HS_TRY(load_page(cursor));
    cursor->has_ended = cursor->page_rest == 0;
    cursor->repetition = 0;
    cursor->definition = -1;
    if (!cursor->has_ended) {
        HS_TRY(load_level(&cursor->repetitions, cursor->field->max_repetition, &cursor->repetition));
        HS_TRY(load_level(&cursor->definitions, cursor->field->max_definition, &cursor->definition));
        cursor->page_rest--;
    }
    cursor->is_peeked = true;
    return HS_OK;
}

HsStatus hs_parquet_cursor_load(HsParquetCursor *cursor)
{
    const HsStatus status = load_entry(cursor);
    return status == HS_OK ? HS_OK : hs_parquet_cursor_fail(cursor, status);
}

HsStatus hs_parquet_cursor_take(HsParquetCursor *cursor, HsParquetValue *value, bool *there)
{
    *there = cursor->definition == cursor->field->max_definition;
    cursor->is_peeked = cursor->has_ended;
    const HsStatus status = *there ? hs_parquet_values_next(&cursor->values, value) : HS_OK;
    return status == HS_OK ? HS_OK : hs_parquet_cursor_fail(cursor, status);
}
