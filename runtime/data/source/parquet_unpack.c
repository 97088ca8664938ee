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

/* The buffer's one byte more shows what unpacks to too much. */
static HsStatus unpack_stream(const HsUnpackerKind *kind, const char *bytes, size_t size, char *buffer, size_t most,
                              size_t *unpacked)
{
    HsUnpacker unpacker;
    size_t at = 0;
    *unpacked = 0;
    HsStatus status = hs_unpacker_open(&unpacker, kind, "a page");
    for (bool more = true; status == HS_OK && more && *unpacked <= most;) {
        HsUnpackStep step = { .in = bytes + at,
                              .in_size = size - at,
                              .in_ended = true,
                              .out = buffer + *unpacked,
                              .out_size = most + 1 - *unpacked };
        status = hs_unpacker_run(&unpacker, &step);
        at += step.taken;
        *unpacked += step.made;
        more = step.made > 0;
    }
    hs_unpacker_close(&unpacker);
    return status == HS_OK && at < size ? HS_EFORMAT : status;
}

static HsStatus unpack_gzip(const char *bytes, size_t size, char *buffer, size_t most, size_t *unpacked)
{
    return unpack_stream(&hs_unpacker_gzip, bytes, size, buffer, most, unpacked);
}

static HsStatus unpack_zstd(const char *bytes, size_t size, char *buffer, size_t most, size_t *unpacked)
{
    return unpack_stream(&hs_unpacker_zstd, bytes, size, buffer, most, unpacked);
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
