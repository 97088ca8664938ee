/* SPDX-License-Identifier: MIT
 *
 * See parquet_pages.h.
 */
#include "kernels/base/array.h"
#include "runtime/data/source/parquet_pages.h"

#include <inttypes.h>
#include <stdlib.h>

#include "runtime/data/source/parquet_unpack.h"
#include "runtime/data/source/unpack.h"

enum { READ_BYTES = 256 * 1024, LENGTH_BYTES = 4, PAGE_MOST_BYTES = 1 << 30 };
enum { DATA_PAGE = 0, INDEX_PAGE = 1, DICTIONARY_PAGE = 2, DATA_PAGE_2 = 3 };

typedef struct Header {
    int64_t type, unpacked, packed, crc, entries, encoding, repetition_encoding, definition_encoding;
    int64_t repetition_bytes, definition_bytes; /* version 2 */
    bool has_crc, is_packed, has_page;
    size_t size;
} Header;

/* DataPageHeader, DictionaryPageHeader and DataPageHeaderV2 by the fields' ids. */
static void read_page_header(HsThrift *thrift, int type, int64_t *const numbers[], int count, bool *is_packed)
{
    enum { IS_COMPRESSED = 7 };
    HsThriftField at = { 0 };
    if (!hs_thrift_struct(thrift, type))
        return;
    while (hs_thrift_next(thrift, &at))
        if (at.id > 0 && at.id < count && numbers[at.id])
            *numbers[at.id] = hs_thrift_integer(thrift, at.type);
        else if (is_packed && at.id == IS_COMPRESSED)
            *is_packed = hs_thrift_bool(thrift, at.type);
        else
            hs_thrift_skip(thrift, at.type);
}

static void read_header(HsThrift *thrift, Header *header)
{
    int64_t *const version_1[] = { NULL, &header->entries, &header->encoding, &header->definition_encoding,
                                   &header->repetition_encoding };
    int64_t *const dictionary[] = { NULL, &header->entries, &header->encoding };
    int64_t *const version_2[] = {
        NULL, &header->entries, NULL, NULL, &header->encoding, &header->definition_bytes, &header->repetition_bytes
    };
    HsThriftField at = { 0 };
    *header = (Header){ .type = -1, .entries = -1, .unpacked = -1, .packed = -1, .is_packed = true };
    header->repetition_encoding = header->definition_encoding = HS_PARQUET_BY_RUNS;
    while (hs_thrift_next(thrift, &at))
        if (at.id >= 1 && at.id <= 4) {
            int64_t *const numbers[] = { &header->type, &header->unpacked, &header->packed, &header->crc };
            *numbers[at.id - 1] = hs_thrift_integer(thrift, at.type);
            header->has_crc |= at.id == 4;
        } else if (at.id == 5)
            read_page_header(thrift, at.type, version_1, 5, NULL);
        else if (at.id == 7)
            read_page_header(thrift, at.type, dictionary, 3, NULL);
        else if (at.id == 8)
            read_page_header(thrift, at.type, version_2, 7, &header->is_packed);
        else
            hs_thrift_skip(thrift, at.type);
    header->size = thrift->at;
}

static int64_t chunk_end(const HsParquetPages *pages)
{
    return pages->chunk->start + pages->chunk->size;
}

/* `size` bytes of the file at `at`, all of the chunk: more of it are read in one go, for what comes next. */
static HsStatus get_bytes(HsParquetPages *pages, int64_t at, size_t size, const char **bytes)
{
    const int64_t skipped = at - pages->read_start, rest = chunk_end(pages) - at;
    if (!pages->read || skipped < 0 || (size_t)skipped > pages->read_size ||
        size > pages->read_size - (size_t)skipped) {
        size_t count = size > READ_BYTES ? size : READ_BYTES;
        count = (int64_t)count > rest ? (size_t)rest : count;
        pages->read_size = 0;
        HS_TRY(hs_array_grow(&pages->read, 1, count + 1, &pages->read_capacity));
        HS_TRY(pages->file->input.read(pages->file->input.user, at, count, pages->read));
        pages->read_start = at;
        pages->read_size = count;
    }
    *bytes = pages->read + (at - pages->read_start);
    return HS_OK;
}

/* A header says nowhere how long it is: statistics in it may be longer than any usual one. */
static HsStatus get_header(HsParquetPages *pages, Header *header)
{
    enum { USUAL_BYTES = 4096 };
    const size_t rest = (size_t)(chunk_end(pages) - pages->at);
    for (size_t size = USUAL_BYTES;; size *= 4) {
        HsThrift thrift = { .size = size < rest ? size : rest };
        HS_TRY(get_bytes(pages, pages->at, thrift.size, &thrift.bytes));
        read_header(&thrift, header);
        if (!thrift.wrong)
            break;
        if (!thrift.cut_off || thrift.size == rest)
            return hs_fail(HS_EFORMAT,
                           "byte %" PRId64 ": the head of a page cannot be read, as %s: " HS_PARQUET_DAMAGED, pages->at,
                           thrift.wrong);
    }
    const int64_t most = pages->most_bytes < PAGE_MOST_BYTES ? pages->most_bytes : PAGE_MOST_BYTES;
    if (header->packed < 0 || header->unpacked < 0 || (size_t)header->packed > rest - header->size)
        return hs_fail(HS_EFORMAT, "byte %" PRId64 ": a page does not end within its column: " HS_PARQUET_DAMAGED,
                       pages->at);
    if (header->unpacked > most)
        return hs_fail(HS_EFORMAT,
                       "byte %" PRId64 ": a page unpacks to %" PRId64 " bytes, and the most here are %" PRId64
                       ": " HS_PARQUET_REWRITE,
                       pages->at, header->unpacked, most);
    return HS_OK;
}

static HsStatus check_crc(const HsParquetPages *pages, const Header *header, const char *bytes)
{
    const uint32_t sum = header->has_crc ? hs_unpack_crc32(bytes, (size_t)header->packed) : 0;
    if (header->has_crc && sum != (uint32_t)header->crc)
        return hs_fail(HS_EFORMAT, "byte %" PRId64 ": a page's checksum is not that of its bytes: " HS_PARQUET_DAMAGED,
                       pages->at);
    return HS_OK;
}

static HsStatus fail_levels(void)
{
    return hs_fail(HS_EFORMAT, "a page's levels do not end within it: " HS_PARQUET_DAMAGED);
}

/* What begins `values`, with its length in front. */
static HsStatus cut_levels(HsParquetSpan *values, int64_t encoding, HsParquetSpan *levels)
{
    uint32_t size = 0;
    if (encoding != HS_PARQUET_BY_RUNS)
        return hs_fail(HS_EFORMAT, "its levels are encoded by %s, which is not read: " HS_PARQUET_REWRITE,
                       encoding == HS_PARQUET_BY_BITS ? "BIT_PACKED" : "no encoding that levels have");
    if (values->size < LENGTH_BYTES)
        return fail_levels();
    for (int i = 0; i < LENGTH_BYTES; i++)
        size |= (uint32_t)(unsigned char)values->bytes[i] << (8 * i);
    if (size > values->size - LENGTH_BYTES)
        return fail_levels();
    *levels = (HsParquetSpan){ values->bytes + LENGTH_BYTES, size };
    *values = (HsParquetSpan){ levels->bytes + size, values->size - LENGTH_BYTES - size };
    return HS_OK;
}

static HsStatus unpack(HsParquetPages *pages, const char *bytes, int64_t packed, int64_t unpacked,
                       HsParquetSpan *values)
{
    *values = (HsParquetSpan){ bytes, (size_t)packed };
    if (pages->chunk->codec == HS_PARQUET_UNCOMPRESSED && packed != unpacked)
        return hs_fail(HS_EFORMAT, "a page has another size than it states: " HS_PARQUET_DAMAGED);
    if (pages->chunk->codec == HS_PARQUET_UNCOMPRESSED || (packed == 0 && unpacked == 0))
        return HS_OK;
    HS_TRY(hs_parquet_unpack(pages->chunk->codec, bytes, (size_t)packed, (size_t)unpacked, &pages->unpacked,
                             &pages->unpacked_capacity));
    *values = (HsParquetSpan){ pages->unpacked, (size_t)unpacked };
    return HS_OK;
}

static HsStatus cut_version_1(HsParquetPages *pages, const Header *header, const char *bytes, HsParquetPage *page)
{
    HS_TRY(unpack(pages, bytes, header->packed, header->unpacked, &page->values));
    if (header->type == DATA_PAGE && pages->field->max_repetition > 0)
        HS_TRY(cut_levels(&page->values, header->repetition_encoding, &page->repetitions));
    if (header->type == DATA_PAGE && pages->field->max_definition > 0)
        HS_TRY(cut_levels(&page->values, header->definition_encoding, &page->definitions));
    return HS_OK;
}

static HsStatus cut_version_2(HsParquetPages *pages, const Header *header, const char *bytes, HsParquetPage *page)
{
    const int64_t repetitions = header->repetition_bytes, definitions = header->definition_bytes;
    if (repetitions < 0 || definitions < 0 || repetitions > header->packed ||
        definitions > header->packed - repetitions || repetitions + definitions > header->unpacked)
        return fail_levels();
    const int64_t levels = repetitions + definitions, packed = header->packed - levels;
    page->repetitions = (HsParquetSpan){ bytes, (size_t)repetitions };
    page->definitions = (HsParquetSpan){ bytes + repetitions, (size_t)definitions };
    page->values = (HsParquetSpan){ bytes + levels, (size_t)packed };
    /* Without a value there may be nothing to unpack. */
    return header->is_packed && packed > 0
               ? unpack(pages, bytes + levels, packed, header->unpacked - levels, &page->values)
               : HS_OK;
}

HsStatus hs_parquet_pages_next(HsParquetPages *pages, HsParquetPage *page, bool *there)
{
    Header header;
    const char *bytes;
    for (;;) {
        *there = pages->at < chunk_end(pages);
        if (!*there)
            return HS_OK;
        HS_TRY(get_header(pages, &header));
        HS_TRY(get_bytes(pages, pages->at + (int64_t)header.size, (size_t)header.packed, &bytes));
        HS_TRY(check_crc(pages, &header, bytes));
        pages->at += (int64_t)header.size + header.packed;
        if (header.type == DATA_PAGE || header.type == DICTIONARY_PAGE || header.type == DATA_PAGE_2)
            break; /* others are no part of the values */
    }
    if (header.entries < 0)
        return hs_fail(HS_EFORMAT, "a page does not state how many values it has: " HS_PARQUET_DAMAGED);
    *page = (HsParquetPage){ .is_dictionary = header.type == DICTIONARY_PAGE,
                             .encoding = header.encoding,
                             .entries = header.entries };
    return header.type == DATA_PAGE_2 ? cut_version_2(pages, &header, bytes, page)
                                      : cut_version_1(pages, &header, bytes, page);
}

void hs_parquet_pages_deinit(HsParquetPages *pages)
{
    free(pages->read);
    free(pages->unpacked);
}
