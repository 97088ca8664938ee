/* SPDX-License-Identifier: MIT
 *
 * A Parquet file's footer (FileMetaData of parquet.thrift): its schema as a tree, and where the chunks of the columns
 * that are read lie.  Numbers in the switches are the fields' ids there.
 *
 * It is walked twice, for the schema and then for the row groups, as the columns are chosen between.
 */
#include "kernels/base/array.h"
#include "runtime/data/source/parquet_file.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEEPEST = 64, MAGIC_BYTES = 4 };

/* Of a schema's element, by its two kinds of annotations: the older number, and the newer union's field. */
typedef struct Meaning {
    int converted, logical; /* -1: that kind has none */
    HsParquetMeaning meaning;
    const char *refused;
} Meaning;

static const Meaning meanings[] = {
    { 3, 3, HS_PARQUET_LIST, NULL },
    { 1, 2, HS_PARQUET_REFUSED, "MAP" },
    { 2, -1, HS_PARQUET_REFUSED, "MAP" },
    { 5, 5, HS_PARQUET_REFUSED, "DECIMAL" },
    { 20, 13, HS_PARQUET_REFUSED, "BSON" },
    { 21, -1, HS_PARQUET_REFUSED, "INTERVAL" },
    { 11, -1, HS_PARQUET_UNSIGNED, NULL },
    { 12, -1, HS_PARQUET_UNSIGNED, NULL },
    { 13, -1, HS_PARQUET_UNSIGNED, NULL },
    { 14, -1, HS_PARQUET_UNSIGNED, NULL },
    { -1, 14, HS_PARQUET_REFUSED, "UUID" },
    { -1, 15, HS_PARQUET_REFUSED, "FLOAT16" },
    { -1, 16, HS_PARQUET_REFUSED, "VARIANT" },
    { -1, 17, HS_PARQUET_REFUSED, "GEOMETRY" },
    { -1, 18, HS_PARQUET_REFUSED, "GEOGRAPHY" },
};

static void set_meaning(HsParquetField *field, int64_t converted, int64_t logical)
{
    for (size_t i = 0; i < sizeof meanings / sizeof *meanings; i++)
        if ((converted >= 0 && meanings[i].converted == converted) ||
            (logical >= 0 && meanings[i].logical == logical)) {
            field->meaning = meanings[i].meaning;
            field->refused = meanings[i].refused;
        }
}

/* INTEGER of the newer annotations: 1 bits, 2 signed. */
static void read_integer(HsThrift *thrift, int type, HsParquetField *field)
{
    HsThriftField at = { 0 };
    if (!hs_thrift_struct(thrift, type))
        return;
    while (hs_thrift_next(thrift, &at))
        if (at.id == 2 && !hs_thrift_bool(thrift, at.type))
            field->meaning = HS_PARQUET_UNSIGNED;
        else if (at.id != 2)
            hs_thrift_skip(thrift, at.type);
}

static void read_logical(HsThrift *thrift, int type, HsParquetField *field)
{
    enum { INTEGER = 10 };
    HsThriftField at = { 0 };
    if (!hs_thrift_struct(thrift, type))
        return;
    while (hs_thrift_next(thrift, &at)) {
        set_meaning(field, -1, at.id);
        if (at.id == INTEGER)
            read_integer(thrift, at.type, field);
        else
            hs_thrift_skip(thrift, at.type);
    }
}

static HsStatus read_element(HsThrift *thrift, HsParquetField *field)
{
    HsThriftField at = { 0 };
    const char *name = "";
    size_t length = 0;
    int64_t type = HS_PARQUET_GROUP, repetition = HS_PARQUET_REQUIRED;
    *field = (HsParquetField){ .parent = -1, .column = -1 };
    while (hs_thrift_next(thrift, &at))
        switch (at.id) {
        case 1:
            type = hs_thrift_integer(thrift, at.type);
            break;
        case 3:
            repetition = hs_thrift_integer(thrift, at.type);
            break;
        case 4:
            name = hs_thrift_binary(thrift, at.type, &length);
            break;
        case 5:
            field->children = hs_thrift_integer(thrift, at.type);
            break;
        case 6:
            set_meaning(field, hs_thrift_integer(thrift, at.type), -1);
            break;
        case 10:
            read_logical(thrift, at.type, field);
            break;
        default:
            hs_thrift_skip(thrift, at.type);
        }
    if (thrift->wrong)
        return HS_OK; /* the caller says it */
    if (field->children > 0)
        type = HS_PARQUET_GROUP;
    if (type < 0 || type > HS_PARQUET_GROUP || repetition < 0 || repetition > HS_PARQUET_REPEATED)
        return hs_fail(HS_EFORMAT, "a column of the footer has a type that there is not: " HS_PARQUET_DAMAGED);
    field->type = (HsParquetType)type;
    field->repetition = (HsParquetRepetition)repetition;
    field->name = strndup(name, length);
    return field->name ? HS_OK : hs_fail(HS_ENOMEM, "no memory for the names of columns");
}

static HsStatus read_elements(HsParquet *file, HsThrift *thrift, int type)
{
    for (int64_t count = hs_thrift_structs(thrift, type); count > 0 && !thrift->wrong; count--) {
        if (file->field_count >= INT32_MAX / 2)
            return hs_fail(HS_EFORMAT, "the footer has too many columns: " HS_PARQUET_DAMAGED);
        HS_TRY(
            hs_array_grow(&file->fields, sizeof *file->fields, (size_t)file->field_count + 1, &file->field_capacity));
        HS_TRY(read_element(thrift, &file->fields[file->field_count++]));
    }
    return HS_OK;
}

/* Field `at`, which lies in `parent`, and all in it; *next behind. */
static HsStatus settle(HsParquet *file, int at, int parent, int depth, int64_t *leaves, int *next)
{
    HsParquetField *const field = &file->fields[at];
    const HsParquetField *const above = parent >= 0 ? &file->fields[parent] : NULL;
    if (depth > DEEPEST)
        return hs_fail(HS_EFORMAT, "its columns are nested more than %d deep: " HS_PARQUET_REWRITE, DEEPEST);
    field->parent = parent;
    field->leaf = *leaves;
    if (above) {
        field->max_definition = above->max_definition + (field->repetition != HS_PARQUET_REQUIRED);
        field->max_repetition = above->max_repetition + (field->repetition == HS_PARQUET_REPEATED);
    }
    *next = at + 1;
    for (int64_t i = 0; i < field->children; i++) {
        if (*next >= file->field_count)
            return hs_fail(HS_EFORMAT, "the footer's tree of columns lacks some: " HS_PARQUET_DAMAGED);
        HS_TRY(settle(file, *next, at, depth + 1, leaves, next));
    }
    field->end = *next;
    *leaves += field->type != HS_PARQUET_GROUP;
    return HS_OK;
}

static HsStatus explain(const HsParquet *file, const HsThrift *thrift)
{
    return thrift->wrong ? hs_fail(HS_EFORMAT, "%s: the footer cannot be read, as %s: " HS_PARQUET_DAMAGED, file->name,
                                   thrift->wrong)
                         : HS_OK;
}

HsStatus hs_parquet_read_schema(HsParquet *file, const char *footer)
{
    HsThrift thrift = { .bytes = footer, .size = (size_t)file->footer_bytes };
    HsThriftField at = { 0 };
    HsStatus status = HS_OK;
    int64_t leaves = 0;
    int next = 0;
    while (status == HS_OK && hs_thrift_next(&thrift, &at))
        switch (at.id) {
        case 2:
            status = read_elements(file, &thrift, at.type);
            break;
        case 8:
            status = hs_fail(HS_EFORMAT, "is encrypted, which is not read: decrypt it");
            break;
        default:
            hs_thrift_skip(&thrift, at.type);
        }
    HS_TRY(status == HS_OK ? explain(file, &thrift) : HS_OK);
    if (status == HS_OK && (file->field_count == 0 || file->fields[0].type != HS_PARQUET_GROUP))
        status = hs_fail(HS_EFORMAT, "the footer has no columns: " HS_PARQUET_DAMAGED);
    if (status == HS_OK)
        status = settle(file, 0, -1, 0, &leaves, &next);
    if (status == HS_OK && next != file->field_count)
        status = hs_fail(HS_EFORMAT, "the footer's tree of columns has some too many: " HS_PARQUET_DAMAGED);
    return status == HS_OK ? HS_OK : hs_error_prefix(status, "%s", file->name);
}

const char *hs_parquet_path(const HsParquet *file, int field, char *path, size_t size)
{
    int up[DEEPEST + 1], count = 0;
    size_t used = 0;
    path[0] = '\0';
    for (int at = field; at > 0 && count <= DEEPEST; at = file->fields[at].parent)
        up[count++] = at;
    while (count-- > 0 && used < size) {
        const int written =
            snprintf(path + used, size - used, "%s%.80s", used ? "." : "", file->fields[up[count]].name);
        used += written > 0 ? (size_t)written : 0;
    }
    return path;
}

/* ---- row groups ---- */

/* As much as 16 GiB of a compressed text may (bytes.c), but of a small group less, so that all together stay within a
 * few thousand times the file. */
int64_t hs_parquet_most_bytes(const HsParquet *file, int64_t group)
{
    enum { OF_A_BYTE = 4096 };
    const int64_t most = INT64_C(16) << 30, of_any_file = 64 << 20, bytes = file->groups[group].bytes;
    return bytes > most / OF_A_BYTE ? most + bytes : of_any_file / file->group_count + OF_A_BYTE * bytes;
}

/* ColumnMetaData */
static void read_chunk_data(HsThrift *thrift, int type, HsParquetChunk *chunk, int64_t *value_type)
{
    HsThriftField at = { 0 };
    int64_t dictionary = 0;
    if (!hs_thrift_struct(thrift, type))
        return;
    while (hs_thrift_next(thrift, &at))
        switch (at.id) {
        case 1:
            *value_type = hs_thrift_integer(thrift, at.type);
            break;
        case 4:
            chunk->codec = (int)hs_thrift_integer(thrift, at.type);
            break;
        case 5:
            chunk->values = hs_thrift_integer(thrift, at.type);
            break;
        case 6:
            chunk->unpacked_bytes = hs_thrift_integer(thrift, at.type);
            break;
        case 7:
            chunk->size = hs_thrift_integer(thrift, at.type);
            break;
        case 9:
            chunk->start = hs_thrift_integer(thrift, at.type);
            break;
        case 11:
            dictionary = hs_thrift_integer(thrift, at.type);
            break;
        default:
            hs_thrift_skip(thrift, at.type);
        }
    /* Some writers say 0 where there is none. */
    if (dictionary >= MAGIC_BYTES && dictionary < chunk->start)
        chunk->start = dictionary;
}

static HsStatus check_chunk(const HsParquet *file, const HsParquetField *field, HsParquetChunk *chunk,
                            int64_t value_type, int64_t rows)
{
    if (value_type != (int64_t)field->type)
        return hs_fail(HS_EFORMAT, "it has another type than the schema says: " HS_PARQUET_DAMAGED);
    if (chunk->values < 0 || chunk->values > file->most_values || rows > chunk->values ||
        (field->max_repetition == 0 && chunk->values != rows))
        return hs_fail(HS_EFORMAT,
                       "it states %" PRId64 " values, which %" PRId64 " rows in %" PRId64
                       " bytes cannot have: " HS_PARQUET_DAMAGED,
                       chunk->values, rows, file->input.size);
    if (chunk->values == 0) { /* without pages, wherever these would be */
        chunk->start = MAGIC_BYTES;
        chunk->size = 0;
    }
    if (chunk->start < MAGIC_BYTES || chunk->size < 0 || chunk->unpacked_bytes < 0 ||
        chunk->start > file->footer_start || chunk->size > file->footer_start - chunk->start)
        return hs_fail(HS_EFORMAT, "its bytes would lie outside of the file: " HS_PARQUET_DAMAGED);
    return HS_OK;
}

/* ColumnChunk.  column < 0: it is not read */
static HsStatus read_chunk(const HsParquet *file, HsThrift *thrift, HsParquetChunk *chunk, int column, int64_t rows)
{
    HsThriftField at = { 0 };
    int64_t value_type = -1;
    bool elsewhere = false, encrypted = false;
    *chunk = (HsParquetChunk){ 0 };
    while (hs_thrift_next(thrift, &at)) {
        elsewhere |= at.id == 1;
        encrypted |= at.id == 8 || at.id == 9;
        if (at.id == 3 && column >= 0)
            read_chunk_data(thrift, at.type, chunk, &value_type);
        else
            hs_thrift_skip(thrift, at.type);
    }
    if (column < 0 || thrift->wrong)
        return HS_OK;
    char path[256];
    const int field = file->columns[column];
    HsStatus status = HS_OK;
    if (elsewhere)
        status = hs_fail(HS_EFORMAT, "its bytes lie in another file: name that file");
    else if (encrypted)
        status = hs_fail(HS_EFORMAT, "it is encrypted, which is not read: decrypt it");
    else
        status = check_chunk(file, &file->fields[field], chunk, value_type, rows);
    return status == HS_OK ? HS_OK
                           : hs_error_prefix(status, "%s: row group %" PRId64 ": column `%s`", file->name,
                                             file->group_count + 1, hs_parquet_path(file, field, path, sizeof path));
}

/* Chunks may lie anywhere, and a small file could state the same bytes as many of them. */
static HsStatus count_chunk(HsParquet *file, const HsParquetChunk *chunk)
{
    file->chunk_bytes += chunk->size;
    file->chunk_values += chunk->values;
    file->groups[file->group_count].bytes += chunk->size;
    return file->chunk_bytes <= file->footer_start && file->chunk_values <= file->most_values
               ? HS_OK
               : hs_fail(HS_EFORMAT,
                         "%s: row group %" PRId64 ": all columns up to here have more bytes or values than a file of "
                         "%" PRId64 " bytes can have: " HS_PARQUET_DAMAGED,
                         file->name, file->group_count + 1, file->input.size);
}

/* The columns of a row group of `rows` rows. */
static HsStatus read_chunks(HsParquet *file, HsThrift *thrift, int type, int64_t rows)
{
    const int64_t count = hs_thrift_structs(thrift, type);
    const size_t first = (size_t)file->group_count * (size_t)file->column_count;
    HsParquetChunk chunk;
    int column = 0;
    HS_TRY(
        hs_array_grow(&file->chunks, sizeof *file->chunks, first + (size_t)file->column_count, &file->chunk_capacity));
    for (int64_t leaf = 0; leaf < count && !thrift->wrong; leaf++) {
        const bool is_read = column < file->column_count && file->fields[file->columns[column]].leaf == leaf;
        HS_TRY(read_chunk(file, thrift, &chunk, is_read ? column : -1, rows));
        if (is_read) {
            file->chunks[first + (size_t)column++] = chunk;
            HS_TRY(count_chunk(file, &chunk));
        }
    }
    if (!thrift->wrong && column < file->column_count)
        return hs_fail(HS_EFORMAT, "%s: row group %" PRId64 " lacks columns: " HS_PARQUET_DAMAGED, file->name,
                       file->group_count + 1);
    return HS_OK;
}

/* RowGroup: how many rows it has stands behind its columns, so these are walked again. */
static HsStatus read_group(HsParquet *file, HsThrift *thrift)
{
    HsThrift columns = *thrift;
    HsThriftField at = { 0 };
    int columns_type = 0;
    int64_t rows = -1;
    while (hs_thrift_next(thrift, &at)) {
        if (at.id == 1) {
            columns = *thrift;
            columns_type = at.type;
        }
        if (at.id == 3)
            rows = hs_thrift_integer(thrift, at.type);
        else
            hs_thrift_skip(thrift, at.type);
    }
    if (thrift->wrong)
        return HS_OK;
    const HsParquetGroup *const last = file->group_count > 0 ? &file->groups[file->group_count - 1] : NULL;
    const int64_t first_row = last ? last->first_row + last->rows : 0;
    if (columns_type == 0 || rows < 0 || rows > file->most_values - first_row)
        return hs_fail(HS_EFORMAT,
                       "%s: row group %" PRId64 " states no rows, or more than there can be: " HS_PARQUET_DAMAGED,
                       file->name, file->group_count + 1);
    HS_TRY(hs_array_grow(&file->groups, sizeof *file->groups, (size_t)file->group_count + 1, &file->group_capacity));
    file->groups[file->group_count] = (HsParquetGroup){ rows, first_row, 0 };
    HS_TRY(read_chunks(file, &columns, columns_type, rows));
    if (columns.wrong)
        *thrift = columns;
    file->group_count++;
    return HS_OK;
}

HsStatus hs_parquet_read_groups(HsParquet *file, const char *footer)
{
    HsThrift thrift = { .bytes = footer, .size = (size_t)file->footer_bytes };
    HsThriftField at = { 0 };
    int64_t rows = -1, found = 0;
    while (hs_thrift_next(&thrift, &at))
        if (at.id == 3)
            rows = hs_thrift_integer(&thrift, at.type);
        else if (at.id == 4)
            for (int64_t count = hs_thrift_structs(&thrift, at.type); count > 0 && !thrift.wrong; count--)
                HS_TRY(read_group(file, &thrift));
        else
            hs_thrift_skip(&thrift, at.type);
    HS_TRY(explain(file, &thrift));
    for (int64_t i = 0; i < file->group_count; i++)
        found += file->groups[i].rows;
    if (rows != found)
        return hs_fail(HS_EFORMAT,
                       "%s: the footer states %" PRId64 " rows, but its row groups have %" PRId64
                       ": " HS_PARQUET_DAMAGED,
                       file->name, rows, found);
    return HS_OK;
}
