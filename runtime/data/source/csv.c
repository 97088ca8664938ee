/* SPDX-License-Identifier: MIT
 *
 * Comma-separated values (RFC 4180), and the same with tabs: a header line that names the columns, then one document a
 * row.  What is read is what Python's csv module reads (its dialects excel and excel-tab).
 *
 *     record = field *("," field) (LF | CRLF | CR)      field = *byte | <"> *(byte | <"><">) <">
 *
 * A field in quotes may hold commas, line ends and, doubled, quotes; a quote inside a field without quotes is one of
 * its bytes.  Columns are named like the fields of JSON Lines; other columns are passed over.  What is not clearly one
 * reading is an error with the line, where Python takes a guess: something behind a closing quote, a quote that is not
 * closed, a row with another number of fields than the header.  Empty lines are passed over.
 */
#include "kernels/base/array.h"
#include "runtime/data/source/source.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/data/tokenizer/map.h"
#include "runtime/io/utf8.h"

typedef struct Reader {
    const char *name, *bytes;
    char separator;
    size_t size, at;
    int64_t line;     /* of `at`, from 1 */
    int64_t row_line; /* where the row began */
    char *pool;       /* the row's fields, one behind the other */
    size_t pool_used, pool_capacity;
    size_t *ends; /* where each ends in the pool */
    size_t count, capacity;
} Reader;

/* The columns that are read; -1: not there. */
typedef struct Columns {
    int64_t count, text, prompt, completion;
} Columns;

static HsStatus put(Reader *reader, const char *bytes, size_t length)
{
    HS_TRY(hs_array_grow(&reader->pool, 1, reader->pool_used + length + 1, &reader->pool_capacity));
    if (length > 0)
        memcpy(reader->pool + reader->pool_used, bytes, length);
    reader->pool_used += length;
    return HS_OK;
}

static bool ends_row(const Reader *reader)
{
    char byte = reader->at < reader->size ? reader->bytes[reader->at] : '\n';
    return byte == '\n' || byte == '\r';
}

static bool is_crlf(const Reader *reader)
{
    return reader->at + 1 < reader->size && reader->bytes[reader->at] == '\r' && reader->bytes[reader->at + 1] == '\n';
}

/* From the opening quote to past the closing one. */
static HsStatus read_quoted(Reader *reader)
{
    int64_t opened = reader->line;
    for (reader->at++;;) {
        const char *start = reader->bytes + reader->at;
        const char *quote = memchr(start, '"', reader->size - reader->at);
        if (!quote)
            return hs_fail(HS_EFORMAT,
                           "%s:%" PRId64 ": the quoted field that begins here does not end; close it, and double the "
                           "quotes inside",
                           reader->name, opened);
        size_t length = (size_t)(quote - start);
        for (size_t i = 0; i < length; i++) /* start[length] is the quote */
            reader->line += start[i] == '\n' || (start[i] == '\r' && start[i + 1] != '\n');
        HS_TRY(put(reader, start, length));
        reader->at += length + 1;
        if (reader->at == reader->size || reader->bytes[reader->at] != '"')
            break;
        HS_TRY(put(reader, "\"", 1));
        reader->at++;
    }
    if (!ends_row(reader) && reader->bytes[reader->at] != reader->separator)
        return hs_fail(HS_EFORMAT,
                       "%s:%" PRId64 ": a quoted field continues behind its closing quote; double the quotes inside a "
                       "field",
                       reader->name, reader->line);
    return HS_OK;
}

static HsStatus read_plain(Reader *reader)
{
    const size_t start = reader->at;
    while (!ends_row(reader) && reader->bytes[reader->at] != reader->separator)
        reader->at++;
    return put(reader, reader->bytes + start, reader->at - start);
}

/* The next row's fields.  *there: false at the end of the file. */
static HsStatus read_row(Reader *reader, bool *there)
{
    reader->pool_used = reader->count = 0;
    while (reader->at < reader->size && ends_row(reader)) { /* empty lines */
        reader->at += is_crlf(reader) ? 2 : 1;
        reader->line++;
    }
    reader->row_line = reader->line;
    *there = reader->at < reader->size;
    for (bool more = *there; more;) {
        bool quoted = reader->at < reader->size && reader->bytes[reader->at] == '"';
        HS_TRY(quoted ? read_quoted(reader) : read_plain(reader));
        HS_TRY(hs_array_grow(&reader->ends, sizeof *reader->ends, reader->count + 1, &reader->capacity));
        reader->ends[reader->count++] = reader->pool_used;
        more = !ends_row(reader);
        reader->at += more; /* the separator */
    }
    return HS_OK;
}

/* Field `index` of the row; valid until the next row. */
static HsField get_field(const Reader *reader, int64_t index)
{
    if (index < 0)
        return (HsField){ 0 };
    size_t start = index > 0 ? reader->ends[index - 1] : 0;
    return (HsField){ reader->pool + start, reader->ends[index] - start };
}

static HsStatus find_column(const Reader *reader, const char *name, int64_t *column)
{
    *column = -1;
    for (int64_t i = 0; i < (int64_t)reader->count; i++) {
        HsField field = get_field(reader, i);
        if (field.length != strlen(name) || memcmp(field.bytes, name, field.length) != 0)
            continue;
        if (*column >= 0)
            return hs_fail(HS_EFORMAT, "%s:%" PRId64 ": the header has the column `%s` twice; rename one", reader->name,
                           reader->row_line, name);
        *column = i;
    }
    return HS_OK;
}

/* A header that is one field because the fields of this file are separated by something else. */
static HsStatus check_separator(const Reader *reader)
{
    static const char others[] = ";\t|,";
    const HsField field = get_field(reader, 0);
    for (const char *other = others; reader->count == 1 && *other; other++)
        if (*other != reader->separator && memchr(field.bytes, *other, field.length))
            return hs_fail(HS_EFORMAT,
                           "%s:%" PRId64 ": the header is one field, which holds %s: fields are separated by commas in "
                           ".csv, by tabs in .tsv; convert the file, or set the task's format to csv or tsv",
                           reader->name, reader->row_line,
                           *other == '\t'  ? "tabs"
                           : *other == ',' ? "commas"
                           : *other == '|' ? "bars (|)"
                                           : "semicolons");
    return HS_OK;
}

static HsStatus read_header(const Reader *reader, const HsSourceOptions *options, Columns *columns)
{
    char place[512];
    columns->count = (int64_t)reader->count;
    HS_TRY(find_column(reader, options->text_field, &columns->text));
    HS_TRY(find_column(reader, options->prompt_field, &columns->prompt));
    HS_TRY(find_column(reader, options->completion_field, &columns->completion));
    if (columns->text < 0)
        HS_TRY(check_separator(reader));
    snprintf(place, sizeof place, "%s:%" PRId64 ": the header", reader->name, reader->row_line);
    return hs_document_check_fields(place, columns->text >= 0, columns->prompt >= 0, columns->completion >= 0, options);
}

static Reader reader_of(const HsSourceText *text, char separator)
{
    return (Reader){ .name = text->name,
                     .bytes = text->bytes,
                     .separator = separator,
                     .size = text->size,
                     .at = text->first ? hs_utf8_mark_bytes(text->bytes, text->size) : 0,
                     .line = text->line };
}

static void close_reader(Reader *reader)
{
    free(reader->pool);
    free(reader->ends);
}

/* From the first row, which the text has or brings with it.  *there: false for an empty file. */
static HsStatus read_columns(const HsSourceText *text, Reader *reader, const HsSourceOptions *options, Columns *columns,
                             bool *there)
{
    const HsSourceText row = HS_SOURCE_WHOLE(text->name, text->header, text->header_size);
    Reader header = reader_of(&row, reader->separator);
    Reader *const from = text->first ? reader : &header;
    HsStatus status = read_row(from, there);
    if (status == HS_OK && *there)
        status = read_header(from, options, columns);
    close_reader(&header);
    return status;
}

static HsStatus read_rows(const HsSourceText *text, Reader *reader, const HsSourceOptions *options, HsCorpus *corpus)
{
    Columns columns = { 0 };
    bool there;
    HS_TRY(read_columns(text, reader, options, &columns, &there));
    while (there) {
        HS_TRY(read_row(reader, &there));
        if (!there)
            break;
        if ((int64_t)reader->count != columns.count)
            return hs_fail(HS_EFORMAT,
                           "%s:%" PRId64 ": %zu fields, but the header has %" PRId64 "; put fields that hold %s or "
                           "line ends into quotes",
                           reader->name, reader->row_line, reader->count, columns.count,
                           reader->separator == '\t' ? "tabs" : "commas");
        HsDocument document = { .text = get_field(reader, columns.text) };
        if (columns.text < 0) {
            document.prompt = get_field(reader, columns.prompt);
            document.completion = get_field(reader, columns.completion);
        }
        HS_TRY(hs_document_add(&document, reader->row_line, corpus));
    }
    return HS_OK;
}

static HsStatus parse(const HsSourceText *text, char separator, const HsSourceOptions *options, HsCorpus *corpus)
{
    HS_TRY(hs_text_check(text, options));
    Reader reader = reader_of(text, separator);
    HsStatus status = read_rows(text, &reader, options, corpus);
    close_reader(&reader);
    return status;
}

/* Past a field in quotes, which `at` is the first of; the size where it does not end. */
static size_t skip_quoted(const HsSourceText *text, size_t at, int64_t *lines)
{
    for (at++; at < text->size; at++) {
        const char byte = text->bytes[at];
        *lines += byte == '\n' || (byte == '\r' && at + 1 < text->size && text->bytes[at + 1] != '\n');
        if (byte != '"')
            continue;
        if (at + 1 == text->size || text->bytes[at + 1] != '"')
            return at + 1;
        at++; /* a quote that is doubled */
    }
    return at;
}

/* Behind the last row end that is seen to be one.  A CR at the end may be half of one. */
static void cut_rows(HsSourceText *text, char separator, HsSourceCut *cut)
{
    const Reader reader = reader_of(text, separator);
    bool begins = true; /* a field */
    int64_t lines = 0;
    size_t header = 0; /* bytes up to the first row's end */
    for (size_t at = reader.at, row = at; at < text->size;) {
        const char byte = text->bytes[at];
        if (byte == '"' && begins) {
            at = skip_quoted(text, at, &lines);
            begins = false;
            continue;
        }
        const bool empty = at == row;
        begins = byte == separator || byte == '\n' || byte == '\r';
        at++;
        if (byte != '\n' && byte != '\r')
            continue;
        if (byte == '\r' && at == text->size)
            break;
        at += byte == '\r' && text->bytes[at] == '\n';
        lines++;
        if (header == 0 && !empty)
            header = at;
        row = at;
        *cut = (HsSourceCut){ .size = at, .lines = lines };
    }
    if (text->first && header == 0)
        *cut = (HsSourceCut){ 0 }; /* empty lines may stand in front of it */
    if (text->first) {
        text->header = text->bytes;
        text->header_size = header;
    }
}

HsStatus hs_csv_parse(const HsSourceText *text, const HsSourceOptions *options, HsCorpus *corpus)
{
    return parse(text, ',', options, corpus);
}

HsStatus hs_tsv_parse(const HsSourceText *text, const HsSourceOptions *options, HsCorpus *corpus)
{
    return parse(text, '\t', options, corpus);
}

void hs_csv_cut(HsSourceText *text, HsSourceCut *cut)
{
    cut_rows(text, ',', cut);
}

void hs_tsv_cut(HsSourceText *text, HsSourceCut *cut)
{
    cut_rows(text, '\t', cut);
}
