/* SPDX-License-Identifier: MIT
 *
 * The pages of a chunk, read from the file and unpacked.  Private to the parquet*.c files.
 *
 *     page      = header (PageHeader of parquet.thrift), bytes
 *     version 1   packed: [length, repetition levels] [length, definition levels] values
 *     version 2   [repetition levels] [definition levels] packed: values
 *
 * Levels are there where a column has any.
 */
#ifndef HS_RUNTIME_DATA_SOURCE_PARQUET_PAGES_H
#define HS_RUNTIME_DATA_SOURCE_PARQUET_PAGES_H

#include "runtime/data/source/parquet_file.h"

/* By Encoding of parquet.thrift. */
typedef enum HsParquetEncoding {
    HS_PARQUET_BY_VALUE = 0,
    HS_PARQUET_BY_OLD_DICTIONARY = 2,
    HS_PARQUET_BY_RUNS = 3,
    HS_PARQUET_BY_BITS = 4,
    HS_PARQUET_BY_DIFFERENCES = 5,
    HS_PARQUET_BY_LENGTHS = 6,
    HS_PARQUET_BY_PREFIXES = 7,
    HS_PARQUET_BY_DICTIONARY = 8,
    HS_PARQUET_BY_STREAMS = 9
} HsParquetEncoding;

typedef struct HsParquetSpan {
    const char *bytes;
    size_t size;
} HsParquetSpan;

typedef struct HsParquetPages {
    const HsParquet *file;
    const HsParquetField *field;
    const HsParquetChunk *chunk;
    int64_t most_bytes; /* that a page may unpack to */
    int64_t at;         /* of the next page, in the file */
    char *read;         /* bytes of the file from read_start on */
    int64_t read_start;
    size_t read_size, read_capacity;
    char *unpacked;
    size_t unpacked_capacity;
} HsParquetPages;

typedef struct HsParquetPage {
    bool is_dictionary;
    int64_t encoding, entries;
    HsParquetSpan repetitions, definitions, values;
} HsParquetPage;

/* The next page of values or of a dictionary, valid until the next call.  *there: false behind the last one.
 * errors: HS_EFORMAT without the file's name, those of reading, HS_ENOMEM */
HsStatus hs_parquet_pages_next(HsParquetPages *pages, HsParquetPage *page, bool *there);
void hs_parquet_pages_deinit(HsParquetPages *pages);

#endif
