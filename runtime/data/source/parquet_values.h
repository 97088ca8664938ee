/* SPDX-License-Identifier: MIT
 *
 * The values of a page, one after another, from any encoding that is read.  Private to the parquet*.c files.
 *
 *     PLAIN                    numbers, little-endian; booleans in bits; length and bytes of a text
 *     PLAIN_, RLE_DICTIONARY   a width, then runs of places in the chunk's dictionary
 *     RLE                      booleans in runs
 *     DELTA_BINARY_PACKED      integers by differences
 *     DELTA_LENGTH_BYTE_ARRAY  lengths by differences, then all bytes
 *     DELTA_BYTE_ARRAY         how many bytes each has in common with the one before, by differences; then the others
 *     BYTE_STREAM_SPLIT        first bytes of all numbers, second bytes of all numbers, ...
 */
#ifndef HS_RUNTIME_DATA_SOURCE_PARQUET_VALUES_H
#define HS_RUNTIME_DATA_SOURCE_PARQUET_VALUES_H

#include "runtime/data/source/parquet_pages.h"
#include "runtime/data/source/parquet_runs.h"
#include "runtime/data/tokenizer/bytes.h"

typedef union HsParquetValue {
    HsParquetSpan text;
    int64_t integer; /* also of booleans */
    double real;     /* also of floats */
} HsParquetValue;

typedef struct HsParquetValues {
    HsParquetType type;
    const char *(*next)(struct HsParquetValues *values, HsParquetValue *value);
    const char *bytes;
    size_t size, at;
    HsRuns runs;
    HsDifferences numbers, prefixes;
    HsBytes text; /* the last value of DELTA_BYTE_ARRAY */
    char *dictionary_bytes;
    HsParquetValue *dictionary;
    size_t dictionary_count, dictionary_capacity;
} HsParquetValues;

/* errors: HS_EFORMAT without the file's name, HS_ENOMEM */
HsStatus hs_parquet_values_set_dictionary(HsParquetValues *values, const HsParquetPage *page);
HsStatus hs_parquet_values_begin(HsParquetValues *values, const HsParquetPage *page);
/* A text is valid until the next call of these three.  errors: also where the page has no more values */
HsStatus hs_parquet_values_next(HsParquetValues *values, HsParquetValue *value);
void hs_parquet_values_deinit(HsParquetValues *values);

#endif
