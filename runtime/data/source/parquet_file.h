/* SPDX-License-Identifier: MIT
 *
 * A Parquet file's footer, and the reader of one chunk of a column.  Private to the parquet*.c files.
 *
 *     parquet.c          opens a file, reads groups: texts as they are, all else by ...
 *     parquet_row.c      rows as JSON
 *     parquet_columns.c  which columns are read
 *     parquet_footer.c   schema and row groups
 *     parquet_cursor.c   a chunk's entries one after another: levels and values
 *     parquet_pages.c    its pages in the file
 *     parquet_unpack.c   their codecs
 *     parquet_values.c   their encodings
 *     parquet_runs.c     runs and differences of packed integers
 *     parquet_thrift.c   the structs of footers and page headers
 *
 * An entry of a column is a value, or where one is not there.  Two small numbers say its place (Dremel, Melnik et al.
 * 2010): its repetition level is that of the list in which it begins another element (0: another row), its definition
 * level how many of the optional and repeated fields on its path are there, all for a value.
 */
#ifndef HS_RUNTIME_DATA_SOURCE_PARQUET_FILE_H
#define HS_RUNTIME_DATA_SOURCE_PARQUET_FILE_H

#include "runtime/data/source/parquet.h"
#include "runtime/data/source/parquet_thrift.h"

#define HS_PARQUET_DAMAGED "the file is damaged: copy it again"
#define HS_PARQUET_REWRITE "write the file anew with the defaults of pyarrow, or leave it out"

typedef enum HsParquetType {
    HS_PARQUET_BOOLEAN,
    HS_PARQUET_INT32,
    HS_PARQUET_INT64,
    HS_PARQUET_INT96,
    HS_PARQUET_FLOAT,
    HS_PARQUET_DOUBLE,
    HS_PARQUET_BYTE_ARRAY,
    HS_PARQUET_FIXED,
    HS_PARQUET_TYPES,
    HS_PARQUET_GROUP = HS_PARQUET_TYPES
} HsParquetType;

typedef enum HsParquetMeaning {
    HS_PARQUET_PLAIN, /* what the type says; a byte array is text */
    HS_PARQUET_LIST,
    HS_PARQUET_UNSIGNED,
    HS_PARQUET_REFUSED
} HsParquetMeaning;

typedef enum HsParquetRepetition { HS_PARQUET_REQUIRED, HS_PARQUET_OPTIONAL, HS_PARQUET_REPEATED } HsParquetRepetition;

/* One field of the schema.  Fields lie in an array in the order of the tree: a group, then what is in it. */
typedef struct HsParquetField {
    char *name;
    HsParquetType type;
    HsParquetRepetition repetition;
    HsParquetMeaning meaning;
    const char *refused; /* what is not read about it */
    int64_t children;    /* as stated */
    int parent, end;     /* `end`: the field behind what is in it */
    int max_definition, max_repetition;
    int64_t leaf;        /* its column's number in the file, or of the first column in it */
    int column, columns; /* of the columns that are read, the first in it, and how many */
} HsParquetField;

/* A column of a row group. */
typedef struct HsParquetChunk {
    int64_t start, size, unpacked_bytes, values;
    int codec;
} HsParquetChunk;

typedef struct HsParquetGroup {
    int64_t rows, first_row;
    int64_t bytes; /* of the chunks that are read, in the file */
} HsParquetGroup;

struct HsParquet {
    const char *name;
    HsParquetInput input;
    int64_t footer_start, footer_bytes;
    int64_t most_values;               /* that all chunks may have */
    int64_t chunk_bytes, chunk_values; /* of those that are read */
    HsParquetField *fields;            /* the first is the root */
    int field_count;
    size_t field_capacity;
    int *columns; /* fields */
    int column_count;
    int text, prompt, completion; /* columns of texts; -1: not there */
    bool has_form;                /* rows may be conversations */
    HsParquetGroup *groups;
    int64_t group_count;
    size_t group_capacity;
    HsParquetChunk *chunks; /* [group][column] */
    size_t chunk_capacity;
};

/* parquet_footer.c.  The schema, and behind hs_parquet_choose_columns the groups.  errors: HS_EFORMAT with the name */
HsStatus hs_parquet_read_schema(HsParquet *file, const char *footer);
HsStatus hs_parquet_read_groups(HsParquet *file, const char *footer);
/* a.b.c; returns path */
const char *hs_parquet_path(const HsParquet *file, int field, char *path, size_t size);

/* To how many bytes a group may unpack: its own may repeat in a dictionary or by a codec. */
int64_t hs_parquet_most_bytes(const HsParquet *file, int64_t group);

/* parquet_columns.c */
HsStatus hs_parquet_choose_columns(HsParquet *file, const HsSourceOptions *options);
/* A column that holds a text in each row, or null. */
bool hs_parquet_is_text(const HsParquetField *field);

/* parquet_row.c.  Rows of cursors, each at its first entry, as JSON. */
typedef struct HsParquetCursor HsParquetCursor;
HsStatus hs_parquet_add_rows(const HsParquet *file, int64_t group, HsParquetCursor *cursors,
                             const HsSourceOptions *options, HsCorpus *corpus);
/* No zero byte, and UTF-8.  row: from 1 */
HsStatus hs_parquet_check_text(const HsParquet *file, int64_t row, int field, const char *bytes, size_t length);

#endif
