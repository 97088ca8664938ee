/* SPDX-License-Identifier: MIT
 *
 * Apache Parquet: documents of a file of columns (parquet.apache.org/docs/file-format).
 *
 *     "PAR1" | row group: chunk of column a, of column b, ... | row group ... | footer | its length, 4 bytes | "PAR1"
 *
 *     chunk   = [dictionary page] data page ...        one compression codec
 *     footer  = schema, and for each row group where its chunks are
 *
 * A row is read as the JSON object of its columns would be from a line of JSON Lines: a text, prompt and completion, or
 * a conversation; a null is a member that is not there.  Only the columns that a document is made of are read.  A row
 * group holds whole rows and is read by itself, a page of each column at a time.
 *
 * No byte of a file is trusted: sizes are checked against the file's, and what unpacks to more than any such text does
 * is an error.
 */
#ifndef HS_RUNTIME_DATA_SOURCE_PARQUET_H
#define HS_RUNTIME_DATA_SOURCE_PARQUET_H

#include "runtime/data/source/source.h"

/* Bytes of a file by their place; any thread may read. */
typedef struct HsParquetInput {
    HsStatus (*read)(const void *user, int64_t at, size_t size, char *bytes);
    const void *user;
    int64_t size;
} HsParquetInput;

typedef struct HsParquet HsParquet;

/* Reads the footer, and chooses the columns by the options' fields.  `name` stands for the file in messages; both and
 * what the input's user points to must outlive the file.  errors: HS_EFORMAT for what is damaged, not supported, or has
 * no column of a document; those of reading; HS_ENOMEM */
HsStatus hs_parquet_open(const char *name, const HsParquetInput *input, const HsSourceOptions *options,
                         HsParquet **file);
int64_t hs_parquet_groups(const HsParquet *file);
int64_t hs_parquet_group_rows(const HsParquet *file, int64_t group);
/* Of the columns that are read, unpacked, as the file states it. */
int64_t hs_parquet_group_bytes(const HsParquet *file, int64_t group);
/* Adds the documents of one row group, as a JSON Lines file of the same objects would; a piece's line is its row in the
 * file, from 1.  Threads may read groups of one file at once.  options: with the fields that it was opened with.
 * errors: HS_EFORMAT, those of reading, HS_ENOMEM */
HsStatus hs_parquet_parse_group(const HsParquet *file, int64_t group, const HsSourceOptions *options, HsCorpus *corpus);
void hs_parquet_close(HsParquet *file); /* NULL: nothing */

/* A whole file in memory. */
HsStatus hs_parquet_parse(const HsSourceText *text, const HsSourceOptions *options, HsCorpus *corpus);

#endif
