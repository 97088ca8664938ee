/* SPDX-License-Identifier: MIT
 *
 * See parquet_values.h.  Each encoding is a function that gives NULL, or what is wrong.
 */
#include "kernels/base/array.h"
#include "runtime/data/source/parquet_values.h"

#include <stdlib.h>
#include <string.h>

typedef const char *Next(HsParquetValues *values, HsParquetValue *value);

static const char ends_early[] = "its values end before as many as it states";
static const char no_memory[] = "no memory";

static size_t width_of(HsParquetType type)
{
    return type == HS_PARQUET_INT64 || type == HS_PARQUET_DOUBLE ? 8 : 4;
}

/* A number of `width` bytes, each `stride` behind the one before. */
static HsParquetValue get_number(HsParquetType type, const char *bytes, size_t stride)
{
    uint64_t bits = 0;
    for (size_t i = 0; i < width_of(type); i++)
        bits |= (uint64_t)(unsigned char)bytes[i * stride] << (8 * i);
    HsParquetValue value = { .integer = type == HS_PARQUET_INT32 ? (int32_t)(uint32_t)bits : (int64_t)bits };
    if (type == HS_PARQUET_DOUBLE)
        memcpy(&value.real, &bits, sizeof value.real);
    if (type == HS_PARQUET_FLOAT) {
        const uint32_t half = (uint32_t)bits;
        float real;
        memcpy(&real, &half, sizeof real);
        value.real = (double)real;
    }
    return value;
}

static const char *next_text(HsParquetValues *values, HsParquetValue *value)
{
    const size_t rest = values->size - values->at;
    if (rest < 4)
        return ends_early;
    const unsigned char *const head = (const unsigned char *)values->bytes + values->at;
    const size_t length = (size_t)head[0] | (size_t)head[1] << 8 | (size_t)head[2] << 16 | (size_t)head[3] << 24;
    if (length > rest - 4)
        return ends_early;
    value->text = (HsParquetSpan){ values->bytes + values->at + 4, length };
    values->at += 4 + length;
    return NULL;
}

static const char *next_number(HsParquetValues *values, HsParquetValue *value)
{
    const size_t width = width_of(values->type);
    if (values->size - values->at < width)
        return ends_early;
    *value = get_number(values->type, values->bytes + values->at, 1);
    values->at += width;
    return NULL;
}

/* at: the bit */
static const char *next_bit(HsParquetValues *values, HsParquetValue *value)
{
    if (values->at / 8 >= values->size)
        return ends_early;
    value->integer = (unsigned char)values->bytes[values->at / 8] >> values->at % 8 & 1;
    values->at++;
    return NULL;
}

static const char *next_of_streams(HsParquetValues *values, HsParquetValue *value)
{
    const size_t count = values->size / width_of(values->type);
    if (values->at >= count)
        return ends_early;
    *value = get_number(values->type, values->bytes + values->at++, count);
    return NULL;
}

static const char *next_of_runs(HsParquetValues *values, HsParquetValue *value)
{
    uint32_t bit;
    if (!hs_runs_next(&values->runs, &bit))
        return ends_early;
    value->integer = bit & 1;
    return NULL;
}

static const char *next_of_dictionary(HsParquetValues *values, HsParquetValue *value)
{
    uint32_t index;
    if (!hs_runs_next(&values->runs, &index))
        return ends_early;
    if (index >= values->dictionary_count)
        return "a value is none of its dictionary";
    *value = values->dictionary[index];
    return NULL;
}

static const char *next_of_differences(HsParquetValues *values, HsParquetValue *value)
{
    if (!hs_differences_next(&values->numbers, &value->integer))
        return ends_early;
    if (values->type == HS_PARQUET_INT32)
        value->integer = (int32_t)(uint32_t)(uint64_t)value->integer;
    return NULL;
}

static const char *next_of_lengths(HsParquetValues *values, HsParquetValue *value)
{
    int64_t length;
    if (!hs_differences_next(&values->numbers, &length) || length < 0 || (uint64_t)length > values->size - values->at)
        return ends_early;
    value->text = (HsParquetSpan){ values->bytes + values->at, (size_t)length };
    values->at += (size_t)length;
    return NULL;
}

static const char *next_of_prefixes(HsParquetValues *values, HsParquetValue *value)
{
    int64_t prefix;
    HsParquetValue rest;
    if (!hs_differences_next(&values->prefixes, &prefix))
        return ends_early;
    if (prefix < 0 || (uint64_t)prefix > values->text.count)
        return "a value begins with more of the one before than that has";
    const char *const wrong = next_of_lengths(values, &rest);
    if (wrong)
        return wrong;
    values->text.count = (size_t)prefix;
    if (hs_bytes_append(&values->text, rest.text.bytes, rest.text.size) != HS_OK)
        return no_memory;
    value->text = (HsParquetSpan){ values->text.items, values->text.count };
    return NULL;
}

/* ---- how a page begins ---- */

static const char bad_head[] = "the head of its values cannot be read";

static const char *begin_runs(HsParquetValues *values)
{
    enum { LENGTH_BYTES = 4 };
    if (values->size < LENGTH_BYTES)
        return values->size == 0 ? NULL : bad_head;
    values->runs = (HsRuns){ .bytes = values->bytes + LENGTH_BYTES, .size = values->size - LENGTH_BYTES, .width = 1 };
    return NULL;
}

static const char *begin_dictionary(HsParquetValues *values)
{
    const unsigned width = values->size > 0 ? (unsigned char)values->bytes[0] : 0;
    if (!values->dictionary_bytes)
        return "it has no dictionary, and its values are of one";
    if (width > 32)
        return bad_head;
    if (values->size > 0)
        values->runs = (HsRuns){ .bytes = values->bytes + 1, .size = values->size - 1, .width = width };
    return NULL;
}

static const char *begin_differences(HsParquetValues *values)
{
    return values->size == 0 || hs_differences_init(&values->numbers, values->bytes, values->size) ? NULL : bad_head;
}

static const char *begin_lengths(HsParquetValues *values)
{
    if (values->size == values->at)
        return NULL;
    const size_t start = values->at;
    size_t end;
    if (!hs_differences_init(&values->numbers, values->bytes + start, values->size - start) ||
        !hs_differences_end(&values->numbers, &end))
        return bad_head;
    values->at = start + end;
    return NULL;
}

static const char *begin_prefixes(HsParquetValues *values)
{
    values->text.count = 0;
    if (values->size == 0)
        return NULL;
    if (!hs_differences_init(&values->prefixes, values->bytes, values->size) ||
        !hs_differences_end(&values->prefixes, &values->at))
        return bad_head;
    return begin_lengths(values);
}

enum { TEXTS = 1 << HS_PARQUET_BYTE_ARRAY, BITS = 1 << HS_PARQUET_BOOLEAN };
enum { INTEGERS = 1 << HS_PARQUET_INT32 | 1 << HS_PARQUET_INT64 };
enum { NUMBERS = INTEGERS | 1 << HS_PARQUET_FLOAT | 1 << HS_PARQUET_DOUBLE };

static const struct Encoding {
    HsParquetEncoding encoding;
    const char *name;
    int types; /* 1 << type, of those that it may have */
    const char *(*begin)(HsParquetValues *values);
    Next *next;
} encodings[] = {
    { HS_PARQUET_BY_VALUE, "PLAIN", TEXTS, NULL, next_text },
    { HS_PARQUET_BY_VALUE, "PLAIN", NUMBERS, NULL, next_number },
    { HS_PARQUET_BY_VALUE, "PLAIN", BITS, NULL, next_bit },
    { HS_PARQUET_BY_OLD_DICTIONARY, "PLAIN_DICTIONARY", TEXTS | NUMBERS, begin_dictionary, next_of_dictionary },
    { HS_PARQUET_BY_DICTIONARY, "RLE_DICTIONARY", TEXTS | NUMBERS, begin_dictionary, next_of_dictionary },
    { HS_PARQUET_BY_RUNS, "RLE", BITS, begin_runs, next_of_runs },
    { HS_PARQUET_BY_BITS, "BIT_PACKED", 0, NULL, NULL },
    { HS_PARQUET_BY_DIFFERENCES, "DELTA_BINARY_PACKED", INTEGERS, begin_differences, next_of_differences },
    { HS_PARQUET_BY_LENGTHS, "DELTA_LENGTH_BYTE_ARRAY", TEXTS, begin_lengths, next_of_lengths },
    { HS_PARQUET_BY_PREFIXES, "DELTA_BYTE_ARRAY", TEXTS, begin_prefixes, next_of_prefixes },
    { HS_PARQUET_BY_STREAMS, "BYTE_STREAM_SPLIT", NUMBERS, NULL, next_of_streams },
};

HsStatus hs_parquet_values_begin(HsParquetValues *values, const HsParquetPage *page)
{
    const char *name = "an encoding that there is not", *wrong = NULL;
    values->bytes = page->values.bytes;
    values->size = page->values.size;
    values->at = 0;
    values->runs = (HsRuns){ 0 };
    values->numbers = values->prefixes = (HsDifferences){ 0 };
    for (size_t i = 0; i < sizeof encodings / sizeof *encodings; i++) {
        const struct Encoding *const row = &encodings[i];
        if ((int64_t)row->encoding != page->encoding)
            continue;
        name = row->name;
        if (!(row->types >> values->type & 1))
            continue;
        values->next = row->next;
        wrong = row->begin ? row->begin(values) : NULL;
        return wrong ? hs_fail(HS_EFORMAT, "a page cannot be read, as %s: " HS_PARQUET_DAMAGED, wrong) : HS_OK;
    }
    return hs_fail(HS_EFORMAT, "its values are encoded by %s, which is not read for its type: " HS_PARQUET_REWRITE,
                   name);
}

HsStatus hs_parquet_values_next(HsParquetValues *values, HsParquetValue *value)
{
    const char *const wrong = values->next(values, value);
    if (wrong == no_memory)
        return hs_fail(HS_ENOMEM, "no memory for a value");
    return wrong ? hs_fail(HS_EFORMAT, "a page cannot be read, as %s: " HS_PARQUET_DAMAGED, wrong) : HS_OK;
}

HsStatus hs_parquet_values_set_dictionary(HsParquetValues *values, const HsParquetPage *page)
{
    HsParquetPage kept = *page;
    if (values->dictionary_bytes)
        return hs_fail(HS_EFORMAT, "it has two dictionaries: " HS_PARQUET_DAMAGED);
    if ((page->encoding != HS_PARQUET_BY_VALUE && page->encoding != HS_PARQUET_BY_OLD_DICTIONARY) ||
        values->type == HS_PARQUET_BOOLEAN)
        return hs_fail(HS_EFORMAT, "its dictionary is encoded by encoding %d, which is not read: " HS_PARQUET_REWRITE,
                       (int)page->encoding);
    values->dictionary_bytes = malloc(page->values.size + 1);
    if (!values->dictionary_bytes)
        return hs_fail(HS_ENOMEM, "no memory for a dictionary of %zu bytes", page->values.size);
    if (page->values.size > 0)
        memcpy(values->dictionary_bytes, page->values.bytes, page->values.size);
    kept.values.bytes = values->dictionary_bytes;
    kept.encoding = HS_PARQUET_BY_VALUE;
    HS_TRY(hs_parquet_values_begin(values, &kept));
    for (int64_t i = 0; i < page->entries; i++) { /* each has bytes: no more than the page has */
        HsParquetValue value;
        HS_TRY(hs_parquet_values_next(values, &value));
        HS_TRY(hs_array_grow(&values->dictionary, sizeof *values->dictionary, values->dictionary_count + 1,
                             &values->dictionary_capacity));
        values->dictionary[values->dictionary_count++] = value;
    }
    return HS_OK;
}

void hs_parquet_values_deinit(HsParquetValues *values)
{
    free(values->dictionary_bytes);
    free(values->dictionary);
    hs_bytes_deinit(&values->text);
}
