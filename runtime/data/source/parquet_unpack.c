/* SPDX-License-Identifier: MIT
 *
 * See parquet_unpack.h.  Snappy by libsnappy, of which this is the only file; gzip and zstd as whole files have them.
 */
#include "runtime/data/source/parquet_unpack.h"

#include <snappy-c.h>
#include <stdbool.h>

#include "kernels/base/array.h"
#include "runtime/data/source/parquet_file.h"
#include "runtime/data/source/unpack.h"

/* true: *unpacked bytes, of at most `most`, lie in `buffer`, which has room for one more. */
typedef HsStatus Unpack(const char *bytes, size_t size, char *buffer, size_t most, size_t *unpacked);

static HsStatus unpack_snappy(const char *bytes, size_t size, char *buffer, size_t most, size_t *unpacked)
{
    size_t length = 0;
    if (snappy_uncompressed_length(bytes, size, &length) != SNAPPY_OK || length > most ||
        snappy_uncompress(bytes, size, buffer, &length) != SNAPPY_OK)
        return HS_EFORMAT;
    *unpacked = length;
    return HS_OK;
}

/* As the buffer holds one byte more than the limit, neither of these two replaces it. */
static HsStatus unpack_gzip(const char *bytes, size_t size, char *buffer, size_t most, size_t *unpacked)
{
    HsUnpacked into = { .bytes = buffer, .capacity = most + 1, .limit = most };
    const HsStatus status = hs_unpack_gzip("a page", bytes, size, &into);
    *unpacked = into.size;
    return status;
}

static HsStatus unpack_zstd(const char *bytes, size_t size, char *buffer, size_t most, size_t *unpacked)
{
    HsUnpacked into = { .bytes = buffer, .capacity = most + 1, .limit = most };
    const HsStatus status = hs_unpack_zstd("a page", bytes, size, &into);
    *unpacked = into.size;
    return status;
}

/* By CompressionCodec of parquet.thrift. */
static const struct {
    const char *name;
    Unpack *unpack; /* NULL: not read */
} codecs[] = {
    { "UNCOMPRESSED", NULL }, { "SNAPPY", unpack_snappy }, { "GZIP", unpack_gzip }, { "LZO", NULL }, { "BROTLI", NULL },
    { "LZ4", NULL },          { "ZSTD", unpack_zstd },     { "LZ4_RAW", NULL },
};

HsStatus hs_parquet_unpack(int codec, const char *bytes, size_t size, size_t expected, char **buffer, size_t *capacity)
{
    const bool known = codec >= 0 && codec < (int)(sizeof codecs / sizeof *codecs);
    size_t unpacked = 0;
    if (!known)
        return hs_fail(HS_EFORMAT, "it is compressed by codec %d, which there is not: " HS_PARQUET_DAMAGED, codec);
    if (!codecs[codec].unpack)
        return hs_fail(HS_EFORMAT,
                       "it is compressed by %s, which is not read: write the file anew with snappy, zstd or gzip",
                       codecs[codec].name);
    HS_TRY(hs_array_grow(buffer, 1, expected + 1, capacity));
    const HsStatus status = codecs[codec].unpack(bytes, size, *buffer, expected, &unpacked);
    if (status == HS_ENOMEM)
        return status;
    if (status != HS_OK || unpacked != expected)
        return hs_fail(HS_EFORMAT, "a page is not %s data of %zu bytes: " HS_PARQUET_DAMAGED, codecs[codec].name,
                       expected);
    return HS_OK;
}
