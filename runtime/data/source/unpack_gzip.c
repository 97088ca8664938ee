/* SPDX-License-Identifier: MIT
 *
 * gzip (RFC 1952) by zlib, the only file that knows zlib.
 */
#include "runtime/data/source/unpack.h"

#include <stdlib.h>
#define ZLIB_CONST /* input is not written to */
#include <zlib.h>

#define GZIP_MEND "it is damaged; copy it again (gzip -t checks it)"

enum {
    GZIP_CHUNK_BYTES = 1 << 30, /* zlib counts in 32 bits */
    GZIP_WINDOW = 15 + 16       /* the largest window; gzip's header and checksum */
};

static HsStatus gzip_open(HsUnpacker *unpacker)
{
    z_stream *stream = unpacker->stream = calloc(1, sizeof *stream);
    if (stream && inflateInit2(stream, GZIP_WINDOW) == Z_OK)
        return HS_OK;
    free(stream);
    unpacker->stream = NULL;
    return hs_fail(HS_ENOMEM, "%s: no memory to unpack it", unpacker->name);
}

static unsigned chunk(size_t bytes)
{
    return (unsigned)(bytes < GZIP_CHUNK_BYTES ? bytes : GZIP_CHUNK_BYTES);
}

static HsStatus gzip_run(HsUnpacker *unpacker, HsUnpackStep *step)
{
    z_stream *stream = unpacker->stream;
    const char *const name = unpacker->name;
    while (step->made < step->out_size && (unpacker->inside || step->taken < step->in_size)) {
        const unsigned in = chunk(step->in_size - step->taken), out = chunk(step->out_size - step->made);
        if (!unpacker->inside && inflateReset(stream) != Z_OK) /* another stream follows */
            return hs_fail(HS_EFORMAT, "%s: byte %zu: " GZIP_MEND, name, unpacker->taken);
        unpacker->inside = true;
        stream->next_in = (const unsigned char *)step->in + step->taken;
        stream->avail_in = in;
        stream->next_out = (unsigned char *)step->out + step->made;
        stream->avail_out = out;
        const int code = inflate(stream, Z_NO_FLUSH);
        step->taken += in - stream->avail_in;
        unpacker->taken += in - stream->avail_in;
        step->made += out - stream->avail_out;
        unpacker->inside = code != Z_STREAM_END;
        if (code == Z_BUF_ERROR && step->taken == step->in_size) {
            if (!step->in_ended)
                return HS_OK; /* it waits for more */
            return hs_fail(HS_EFORMAT, "%s: the gzip data ends before its end: the file is cut off; copy it again",
                           name);
        }
        if (code == Z_MEM_ERROR)
            return hs_fail(HS_ENOMEM, "%s: no memory to unpack it", name);
        if (code != Z_OK && code != Z_STREAM_END)
            return hs_fail(HS_EFORMAT, "%s: byte %zu: not gzip data (%s): " GZIP_MEND, name, unpacker->taken,
                           stream->msg ? stream->msg : zError(code));
    }
    return HS_OK;
}

static void gzip_close(HsUnpacker *unpacker)
{
    if (unpacker->stream)
        inflateEnd(unpacker->stream);
    free(unpacker->stream);
}

const HsUnpackerKind hs_unpacker_gzip = { gzip_open, gzip_run, gzip_close };

uint32_t hs_unpack_crc32(const char *bytes, size_t size)
{
    return (uint32_t)crc32_z(crc32_z(0, NULL, 0), (const unsigned char *)bytes, size);
}
