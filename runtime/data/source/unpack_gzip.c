/* SPDX-License-Identifier: MIT
 *
 * gzip (RFC 1952) by zlib, the only file that knows zlib; and the growing output, which unpack_zstd.c shares.
 */
#include "runtime/data/source/unpack.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#define ZLIB_CONST /* input is not written to */
#include <zlib.h>

#define GZIP_MEND "it is damaged; copy it again (gzip -t checks it)"

enum {
    UNPACK_FIRST_BYTES = 65536,
    GZIP_CHUNK_BYTES = 1 << 30, /* zlib counts in 32 bits */
    GZIP_WINDOW = 15 + 16       /* the largest window; gzip's header and checksum */
};

HsStatus hs_unpacked_grow(const char *name, HsUnpacked *unpacked)
{
    /* One byte over the limit distinguishes a text of just that size from a longer one. */
    if (unpacked->size > unpacked->limit)
        return hs_fail(HS_EFORMAT,
                       "%s: unpacks to more than %zu bytes, the most for a compressed file; unpack it and split it",
                       name, unpacked->limit);
    if (unpacked->size < unpacked->capacity)
        return HS_OK;
    size_t capacity = unpacked->capacity > 0 ? unpacked->capacity : UNPACK_FIRST_BYTES;
    capacity = unpacked->capacity > 0 && capacity <= SIZE_MAX / 2 ? 2 * capacity : capacity;
    if (capacity - 1 > unpacked->limit)
        capacity = unpacked->limit + 1;
    char *bytes = realloc(unpacked->bytes, capacity);
    if (!bytes)
        return hs_fail(HS_ENOMEM, "%s: no memory for the %zu bytes that it unpacks to", name, capacity);
    unpacked->bytes = bytes;
    unpacked->capacity = capacity;
    return HS_OK;
}

static unsigned chunk(size_t bytes)
{
    return (unsigned)(bytes < GZIP_CHUNK_BYTES ? bytes : GZIP_CHUNK_BYTES);
}

static HsStatus inflate_all(const char *name, z_stream *stream, size_t size, HsUnpacked *unpacked)
{
    size_t used = 0;
    for (bool ended = false; !ended || used < size;) {
        if (ended && inflateReset(stream) != Z_OK) /* another stream follows */
            return hs_fail(HS_EFORMAT, "%s: byte %zu: " GZIP_MEND, name, used);
        HS_TRY(hs_unpacked_grow(name, unpacked));
        const unsigned in = chunk(size - used), out = chunk(unpacked->capacity - unpacked->size);
        stream->avail_in = in;
        stream->avail_out = out;
        stream->next_out = (unsigned char *)unpacked->bytes + unpacked->size;
        int code = inflate(stream, Z_NO_FLUSH);
        used += in - stream->avail_in;
        unpacked->size += out - stream->avail_out;
        ended = code == Z_STREAM_END;
        if (code == Z_BUF_ERROR && used == size)
            return hs_fail(HS_EFORMAT, "%s: the gzip data ends before its end: the file is cut off; copy it again",
                           name);
        if (code == Z_MEM_ERROR)
            return hs_fail(HS_ENOMEM, "%s: no memory to unpack it", name);
        if (code != Z_OK && code != Z_STREAM_END)
            return hs_fail(HS_EFORMAT, "%s: byte %zu: not gzip data (%s): " GZIP_MEND, name, used,
                           stream->msg ? stream->msg : zError(code));
    }
    return hs_unpacked_grow(name, unpacked); /* the limit, once more */
}

HsStatus hs_unpack_gzip(const char *name, const char *bytes, size_t size, HsUnpacked *unpacked)
{
    z_stream stream;
    memset(&stream, 0, sizeof stream);
    if (inflateInit2(&stream, GZIP_WINDOW) != Z_OK)
        return hs_fail(HS_ENOMEM, "%s: no memory to unpack it", name);
    stream.next_in = (const unsigned char *)bytes;
    HsStatus status = inflate_all(name, &stream, size, unpacked);
    inflateEnd(&stream);
    return status;
}

uint32_t hs_unpack_crc32(const char *bytes, size_t size)
{
    return (uint32_t)crc32_z(crc32_z(0, NULL, 0), (const unsigned char *)bytes, size);
}
