/* SPDX-License-Identifier: MIT
 *
 * See parquet.h: opens files, and adds the documents of row groups.  Columns of texts go into the corpus from their
 * pages, all else as JSON (parquet_row.c).
 */
#include "runtime/data/source/parquet.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/data/source/parquet_cursor.h"
#include "runtime/io/files.h"

enum { MAGIC_BYTES = 4, TAIL_BYTES = 8, LEAST_BYTES = 12 };

/* Nulls and texts of a dictionary take less than a bit each, but not all of a file's columns are made of these. */
static int64_t most_values(int64_t size)
{
    enum { OF_A_BYTE = 256, OF_ANY_FILE = 1 << 20 };
    return OF_ANY_FILE + (size < INT64_MAX / 1024 ? OF_A_BYTE * size : size);
}

static bool is_magic(const char *bytes, const char *magic)
{
    return memcmp(bytes, magic, MAGIC_BYTES) == 0;
}

static HsStatus refuse_bytes(const HsParquet *file, const char *head, size_t size)
{
    HS_TRY(hs_check_fetched(file->name, head, size));
    if (size >= MAGIC_BYTES && is_magic(head, "PAR1"))
        return hs_fail(HS_EFORMAT, "%s: begins as a Parquet file and does not end as one: it is cut off; copy it again",
                       file->name);
    return hs_fail(HS_EFORMAT, "%s: is not Parquet, as its name or the task's format says; rename it or copy it again",
                   file->name);
}

/* The bytes at both ends, and where the footer lies. */
static HsStatus read_ends(HsParquet *file)
{
    enum { HEAD_BYTES = 1024 };
    char head[HEAD_BYTES] = "", tail[TAIL_BYTES] = "";
    const int64_t size = file->input.size;
    const size_t head_size = size < HEAD_BYTES ? (size_t)size : HEAD_BYTES;
    int64_t footer = 0;
    if (size > 0)
        HS_TRY(file->input.read(file->input.user, 0, head_size, head));
    if (size >= LEAST_BYTES)
        HS_TRY(file->input.read(file->input.user, size - TAIL_BYTES, TAIL_BYTES, tail));
    if (size >= LEAST_BYTES && (is_magic(head, "PARE") || is_magic(tail + MAGIC_BYTES, "PARE")))
        return hs_fail(HS_EFORMAT, "%s: is encrypted, which is not read: decrypt it", file->name);
    if (size < LEAST_BYTES || !is_magic(head, "PAR1") || !is_magic(tail + MAGIC_BYTES, "PAR1"))
        return refuse_bytes(file, head, head_size);
    for (int i = 0; i < MAGIC_BYTES; i++)
        footer |= (int64_t)(unsigned char)tail[i] << (8 * i);
    if (footer > size - LEAST_BYTES)
        return hs_fail(HS_EFORMAT,
                       "%s: its footer of %" PRId64 " bytes would begin in front of it: " HS_PARQUET_DAMAGED,
                       file->name, footer);
    file->footer_bytes = footer;
    file->footer_start = size - TAIL_BYTES - footer;
    return HS_OK;
}

static HsStatus read_footer(HsParquet *file, const HsSourceOptions *options)
{
    HS_TRY(read_ends(file));
    char *const footer = malloc((size_t)file->footer_bytes + 1);
    if (!footer)
        return hs_fail(HS_ENOMEM, "%s: no memory for its footer of %" PRId64 " bytes", file->name, file->footer_bytes);
    HsStatus status = file->input.read(file->input.user, file->footer_start, (size_t)file->footer_bytes, footer);
    if (status == HS_OK)
        status = hs_parquet_read_schema(file, footer);
    if (status == HS_OK)
        status = hs_parquet_choose_columns(file, options);
    if (status == HS_OK)
        status = hs_parquet_read_groups(file, footer);
    free(footer);
    return status;
}

HsStatus hs_parquet_open(const char *name, const HsParquetInput *input, const HsSourceOptions *options,
                         HsParquet **file)
{
    *file = calloc(1, sizeof **file);
    if (!*file)
        return hs_fail(HS_ENOMEM, "%s: no memory to read it", name);
    (*file)->name = name;
    (*file)->input = *input;
    (*file)->most_values = most_values(input->size);
    const HsStatus status = read_footer(*file, options);
    if (status != HS_OK) {
        hs_parquet_close(*file);
        *file = NULL;
    }
    return status;
}

int64_t hs_parquet_groups(const HsParquet *file)
{
    return file->group_count;
}

int64_t hs_parquet_group_rows(const HsParquet *file, int64_t group)
{
    return file->groups[group].rows;
}

int64_t hs_parquet_group_bytes(const HsParquet *file, int64_t group)
{
    int64_t bytes = 0;
    for (int i = 0; i < file->column_count; i++) {
        const int64_t more = file->chunks[group * file->column_count + i].unpacked_bytes;
        bytes = more > INT64_MAX - bytes ? INT64_MAX : bytes + more;
    }
    return bytes;
}

void hs_parquet_close(HsParquet *file)
{
    if (!file)
        return;
    for (int i = 0; i < file->field_count; i++)
        free(file->fields[i].name);
    free(file->fields);
    free(file->columns);
    free(file->groups);
    free(file->chunks);
    free(file);
}

/* ---- texts ---- */

/* The column's text in this row; no bytes where it is null or there is no such column. */
static HsStatus read_text(const HsParquet *file, HsParquetCursor *cursors, int column, int64_t row, HsField *text)
{
    HsParquetValue value;
    bool there;
    *text = (HsField){ 0 };
    if (column < 0)
        return HS_OK;
    HsParquetCursor *const cursor = &cursors[column];
    HS_TRY(hs_parquet_cursor_peek(cursor));
    HS_TRY(hs_parquet_cursor_take(cursor, &value, &there));
    if (!there)
        return HS_OK;
    HS_TRY(hs_parquet_check_text(file, row, file->columns[column], value.text.bytes, value.text.size));
    *text = (HsField){ value.text.bytes ? value.text.bytes : "", value.text.size };
    return HS_OK;
}

/* A row that is no document: where that is because of a null, the message says so. */
static HsStatus check_document(const HsParquet *file, int64_t row, const HsDocument *document,
                               const HsSourceOptions *options)
{
    const bool text = document->text.bytes, prompt = document->prompt.bytes, completion = document->completion.bytes;
    char place[512];
    if (text != (prompt && completion))
        return HS_OK;
    snprintf(place, sizeof place, "%s:%" PRId64, file->name, row);
    if (text)
        return hs_document_check_fields(place, text, prompt, completion, options);
    const char *const field = file->text >= 0 ? options->text_field
                              : !prompt       ? options->prompt_field
                                              : options->completion_field;
    return hs_fail(HS_EFORMAT, "%s: `%s` is null, so the row is no document: leave it out", place, field);
}

static HsStatus add_texts(const HsParquet *file, int64_t group, HsParquetCursor *cursors,
                          const HsSourceOptions *options, HsCorpus *corpus)
{
    const HsParquetGroup *const rows = &file->groups[group];
    const int64_t most = hs_parquet_most_bytes(file, group);
    const size_t start = corpus->text_length;
    for (int64_t row = rows->first_row + 1; row <= rows->first_row + rows->rows; row++) {
        HsDocument document;
        HS_TRY(read_text(file, cursors, file->text, row, &document.text));
        HS_TRY(read_text(file, cursors, file->prompt, row, &document.prompt));
        HS_TRY(read_text(file, cursors, file->completion, row, &document.completion));
        HS_TRY(check_document(file, row, &document, options));
        HS_TRY(hs_document_add(&document, row, corpus));
        if (corpus->text_length - start > (size_t)most)
            return hs_fail(HS_EFORMAT,
                           "%s:%" PRId64 ": its row group unpacks to more than %" PRId64 " bytes: " HS_PARQUET_REWRITE,
                           file->name, row, most);
    }
    return HS_OK;
}

HsStatus hs_parquet_parse_group(const HsParquet *file, int64_t group, const HsSourceOptions *options, HsCorpus *corpus)
{
    HsParquetCursor *const cursors = calloc((size_t)file->column_count, sizeof *cursors);
    bool texts = !file->has_form;
    if (!cursors)
        return hs_fail(HS_ENOMEM, "%s: no memory for %d columns", file->name, file->column_count);
    for (int i = 0; i < file->column_count; i++) {
        hs_parquet_cursor_init(&cursors[i], file, group, i);
        texts = texts && hs_parquet_is_text(cursors[i].field);
    }
    const HsStatus status = texts ? add_texts(file, group, cursors, options, corpus)
                                  : hs_parquet_add_rows(file, group, cursors, options, corpus);
    for (int i = 0; i < file->column_count; i++)
        hs_parquet_cursor_deinit(&cursors[i]);
    free(cursors);
    return status;
}

/* ---- a file in memory ---- */

static HsStatus read_memory(const void *user, int64_t at, size_t size, char *bytes)
{
    if (size > 0)
        memcpy(bytes, (const char *)user + at, size);
    return HS_OK;
}

HsStatus hs_parquet_parse(const HsSourceText *text, const HsSourceOptions *options, HsCorpus *corpus)
{
    const HsParquetInput input = { read_memory, text->bytes, (int64_t)text->size };
    HsParquet *file;
    HS_TRY(hs_parquet_open(text->name, &input, options, &file));
    HsStatus status = HS_OK;
    for (int64_t group = 0; status == HS_OK && group < file->group_count; group++)
        status = hs_parquet_parse_group(file, group, options, corpus);
    hs_parquet_close(file);
    return status;
}
