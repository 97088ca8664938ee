/* SPDX-License-Identifier: MIT
 *
 * Rows of a Parquet file as the lines of JSON Lines that they stand for, which the reader of those takes:
 *
 *     group                an object of the members that are not null
 *     LIST, or repeated    a list; an element that is null stays null, as its place counts
 *     text                 a string; numbers and booleans as they are, NaN and Infinity as Python writes them
 *
 * As text and not as a tree, so that a row passes through the same code as a line, and integers keep their digits.
 *
 * Columns of one list say each for itself how many elements it has: where two differ the file is damaged.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "runtime/data/source/parquet_cursor.h"
#include "runtime/io/utf8.h"

typedef struct Rows {
    const HsParquet *file;
    HsParquetCursor *cursors;
    int64_t row; /* from 1 */
    int64_t most_bytes;
    HsBytes json;
} Rows;

HsStatus hs_parquet_check_text(const HsParquet *file, int64_t row, int field, const char *bytes, size_t length)
{
    const char *const zero = length > 0 ? memchr(bytes, 0, length) : NULL;
    const size_t valid = length > 0 ? hs_utf8_valid_prefix(bytes, length) : 0;
    char path[256];
    if (zero)
        return hs_fail(HS_EFORMAT,
                       "%s:%" PRId64 ": `%s` has a zero byte, which text for training must not have: remove it, or "
                       "leave the row out",
                       file->name, row, hs_parquet_path(file, field, path, sizeof path));
    if (valid < length)
        return hs_fail(
            HS_EFORMAT, "%s:%" PRId64 ": `%s`: byte %zu (0x%02X) is not UTF-8: repair the text, or leave the row out",
            file->name, row, hs_parquet_path(file, field, path, sizeof path), valid, (unsigned char)bytes[valid]);
    return HS_OK;
}

static HsStatus put(Rows *rows, const char *text)
{
    return hs_bytes_append(&rows->json, text, strlen(text));
}

static HsStatus put_string(Rows *rows, const char *bytes, size_t length)
{
    HS_TRY(put(rows, "\""));
    for (size_t at = 0, end; at < length; at = end + 1) {
        char escape[8] = "";
        for (end = at; end < length && (unsigned char)bytes[end] >= 0x20 && bytes[end] != '"' && bytes[end] != '\\';)
            end++;
        HS_TRY(hs_bytes_append(&rows->json, bytes + at, end - at));
        if (end == length)
            break;
        if ((unsigned char)bytes[end] >= 0x20 || bytes[end] == '\n') {
            escape[0] = '\\';
            escape[1] = bytes[end] == '\n' ? 'n' : bytes[end];
        } else
            snprintf(escape, sizeof escape, "\\u%04x", (unsigned char)bytes[end]);
        HS_TRY(put(rows, escape));
    }
    return put(rows, "\"");
}

static HsStatus put_real(Rows *rows, double value)
{
    char text[40];
    if (isnan(value) || isinf(value))
        return put(rows, isnan(value) ? "NaN" : value > 0 ? "Infinity" : "-Infinity");
    snprintf(text, sizeof text, "%.17g", value);
    HS_TRY(put(rows, text));
    return strpbrk(text, ".e") ? HS_OK : put(rows, ".0"); /* to stay no integer */
}

static HsStatus put_value(Rows *rows, int at, const HsParquetValue *value)
{
    const HsParquetField *const field = &rows->file->fields[at];
    char text[24];
    switch (field->type) {
    case HS_PARQUET_BOOLEAN:
        return put(rows, value->integer ? "true" : "false");
    case HS_PARQUET_INT32:
    case HS_PARQUET_INT64:
        if (field->meaning != HS_PARQUET_UNSIGNED)
            snprintf(text, sizeof text, "%" PRId64, value->integer);
        else if (field->type == HS_PARQUET_INT32)
            snprintf(text, sizeof text, "%" PRIu32, (uint32_t)value->integer);
        else
            snprintf(text, sizeof text, "%" PRIu64, (uint64_t)value->integer);
        return put(rows, text);
    case HS_PARQUET_FLOAT:
    case HS_PARQUET_DOUBLE:
        return put_real(rows, value->real);
    default:
        HS_TRY(hs_parquet_check_text(rows->file, rows->row, at, value->text.bytes, value->text.size));
        return put_string(rows, value->text.bytes, value->text.size);
    }
}

/* The columns in a field. */
static HsParquetCursor *first_in(const Rows *rows, const HsParquetField *field)
{
    return &rows->cursors[field->column];
}

/* An entry of each column, of something that is not there. */
static HsStatus pass(Rows *rows, const HsParquetField *field)
{
    for (int i = 0; i < field->columns; i++) {
        HsParquetCursor *const cursor = first_in(rows, field) + i;
        HsParquetValue value;
        bool there;
        HS_TRY(hs_parquet_cursor_peek(cursor));
        HS_TRY(hs_parquet_cursor_take(cursor, &value, &there));
    }
    return HS_OK;
}

static HsStatus fail_lists(const HsParquetCursor *cursor)
{
    return hs_parquet_cursor_fail(
        cursor, hs_fail(HS_EFORMAT, "it has other lists than the columns next to it: " HS_PARQUET_DAMAGED));
}

/* Does another element of the list follow, in all of its columns? */
static HsStatus follows(Rows *rows, const HsParquetField *list, bool *another)
{
    for (int i = 0; i < list->columns; i++) {
        HsParquetCursor *const cursor = first_in(rows, list) + i;
        HS_TRY(hs_parquet_cursor_peek(cursor));
        const bool here = cursor->repetition == list->max_repetition;
        if (cursor->repetition > list->max_repetition || (i > 0 && here != *another))
            return fail_lists(cursor);
        *another = here;
    }
    return HS_OK;
}

static HsStatus put_field(Rows *rows, int at, bool *there);
static HsStatus put_there(Rows *rows, int at);

/* Elements of the repeated field `at`: what is in it, or (of a LIST of today) the one field in that. */
static HsStatus put_list(Rows *rows, int at, int element)
{
    const HsParquetField *const list = &rows->file->fields[at];
    HsParquetCursor *const first = first_in(rows, list);
    HS_TRY(put(rows, "["));
    HS_TRY(hs_parquet_cursor_peek(first));
    if (first->definition < list->max_definition) {
        HS_TRY(pass(rows, list));
        return put(rows, "]");
    }
    for (bool another = true; another;) {
        bool there = true;
        HS_TRY(element == at ? put_there(rows, at) : put_field(rows, element, &there));
        if (!there)
            HS_TRY(put(rows, "null"));
        if (rows->json.count > (size_t)rows->most_bytes)
            return hs_fail(HS_EFORMAT, "%s:%" PRId64 ": the row unpacks to more than %" PRId64 " bytes: split it",
                           rows->file->name, rows->row, rows->most_bytes);
        HS_TRY(follows(rows, list, &another));
        if (another)
            HS_TRY(put(rows, ", "));
    }
    return put(rows, "]");
}

/* How older writers have lists without a field for the element, by the rules of the format's page on logical types. */
static int find_element(const HsParquet *file, int list, int repeated)
{
    const HsParquetField *const field = &file->fields[repeated];
    const size_t length = strlen(file->fields[list].name);
    const bool is_tuple =
        strncmp(field->name, file->fields[list].name, length) == 0 && strcmp(field->name + length, "_tuple") == 0;
    const bool is_element = field->type != HS_PARQUET_GROUP || field->children != 1 || is_tuple ||
                            strcmp(field->name, "array") == 0 ||
                            file->fields[repeated + 1].repetition == HS_PARQUET_REPEATED;
    return is_element ? repeated : repeated + 1;
}

static HsStatus put_object(Rows *rows, int at)
{
    const HsParquet *const file = rows->file;
    bool any = false;
    HS_TRY(put(rows, "{"));
    for (int member = at + 1; member < file->fields[at].end; member = file->fields[member].end) {
        const HsParquetField *const field = &file->fields[member];
        const size_t before = rows->json.count;
        bool there;
        if (field->columns == 0)
            continue; /* of the root: it is not read */
        HS_TRY(put(rows, any ? ", " : ""));
        HS_TRY(put_string(rows, field->name, strlen(field->name)));
        HS_TRY(put(rows, ": "));
        HS_TRY(put_field(rows, member, &there));
        any |= there;
        if (!there)
            rows->json.count = before;
    }
    return put(rows, "}");
}

/* A field that is there, or an element of one that is repeated. */
static HsStatus put_there(Rows *rows, int at)
{
    const HsParquet *const file = rows->file;
    const HsParquetField *const field = &file->fields[at];
    if (field->type != HS_PARQUET_GROUP) {
        HsParquetCursor *const cursor = first_in(rows, field);
        HsParquetValue value;
        bool there;
        HS_TRY(hs_parquet_cursor_peek(cursor));
        HS_TRY(hs_parquet_cursor_take(cursor, &value, &there));
        return there ? put_value(rows, at, &value) : put(rows, "null");
    }
    if (field->meaning == HS_PARQUET_LIST && field->children == 1 &&
        file->fields[at + 1].repetition == HS_PARQUET_REPEATED)
        return put_list(rows, at + 1, find_element(file, at, at + 1));
    return put_object(rows, at);
}

static HsStatus put_field(Rows *rows, int at, bool *there)
{
    const HsParquetField *const field = &rows->file->fields[at];
    HsParquetCursor *const first = first_in(rows, field);
    *there = true;
    if (field->repetition == HS_PARQUET_REPEATED)
        return put_list(rows, at, at);
    HS_TRY(hs_parquet_cursor_peek(first));
    *there = first->definition >= field->max_definition;
    return *there ? put_there(rows, at) : pass(rows, field);
}

static HsStatus add_rows(Rows *rows, int64_t count, const HsSourceOptions *options, HsCorpus *corpus)
{
    const HsParquet *const file = rows->file;
    const size_t start = corpus->text_length;
    const int64_t last = rows->row + count;
    char place[512];
    while (rows->row < last) {
        rows->row++;
        for (int i = 0; i < file->column_count; i++) {
            HS_TRY(hs_parquet_cursor_peek(&rows->cursors[i]));
            if (rows->cursors[i].has_ended || rows->cursors[i].repetition != 0)
                return fail_lists(&rows->cursors[i]);
        }
        rows->json.count = 0;
        HS_TRY(put_object(rows, 0));
        snprintf(place, sizeof place, "%s:%" PRId64, file->name, rows->row);
        HS_TRY(hs_document_parse_json(place, rows->json.items, rows->json.count, rows->row, "a row", false, options,
                                      corpus));
        if (corpus->text_length - start > (size_t)rows->most_bytes)
            return hs_fail(HS_EFORMAT, "%s: its row group unpacks to more than %" PRId64 " bytes: " HS_PARQUET_REWRITE,
                           place, rows->most_bytes);
    }
    for (int i = 0; i < file->column_count; i++) {
        HS_TRY(hs_parquet_cursor_peek(&rows->cursors[i]));
        if (!rows->cursors[i].has_ended)
            return fail_lists(&rows->cursors[i]);
    }
    return HS_OK;
}

HsStatus hs_parquet_add_rows(const HsParquet *file, int64_t group, HsParquetCursor *cursors,
                             const HsSourceOptions *options, HsCorpus *corpus)
{
    Rows rows = { .file = file,
                  .cursors = cursors,
                  .row = file->groups[group].first_row,
                  .most_bytes = hs_parquet_most_bytes(file, group) };
    const HsStatus status = add_rows(&rows, file->groups[group].rows, options, corpus);
    hs_bytes_deinit(&rows.json);
    return status;
}
