/* SPDX-License-Identifier: MIT
 *
 * Zstandard (RFC 8878) by libzstd, the only file that knows it.
 */
#include "runtime/data/source/unpack.h"

#include <zstd.h>
#include <zstd_errors.h>

#define ZSTD_MEND "it is damaged; copy it again (zstd -t checks it)"

static HsStatus decompress_all(const char *name, ZSTD_DStream *stream, ZSTD_inBuffer *in, HsUnpacked *unpacked)
{
    size_t left = 1; /* 0 at the end of a frame */
    while (left > 0 || in->pos < in->size) {
        HS_TRY(hs_unpacked_grow(name, unpacked));
        ZSTD_outBuffer out = { unpacked->bytes, unpacked->capacity, unpacked->size };
        left = ZSTD_decompressStream(stream, &out, in);
        if (ZSTD_getErrorCode(left) == ZSTD_error_memory_allocation)
            return hs_fail(HS_ENOMEM, "%s: no memory to unpack it", name);
        if (ZSTD_isError(left))
            return hs_fail(HS_EFORMAT, "%s: byte %zu: not zstd data (%s): " ZSTD_MEND, name, in->pos,
                           ZSTD_getErrorName(left));
        unpacked->size = out.pos;
        if (left > 0 && in->pos == in->size && out.pos < out.size)
            return hs_fail(HS_EFORMAT, "%s: the zstd data ends before its end: the file is cut off; copy it again",
                           name);
    }
    return hs_unpacked_grow(name, unpacked); /* the limit, once more */
}

HsStatus hs_unpack_zstd(const char *name, const char *bytes, size_t size, HsUnpacked *unpacked)
{
    ZSTD_DStream *stream = ZSTD_createDStream();
    if (!stream)
        return hs_fail(HS_ENOMEM, "%s: no memory to unpack it", name);
    ZSTD_inBuffer in = { bytes, size, 0 };
    HsStatus status = decompress_all(name, stream, &in, unpacked);
    ZSTD_freeDStream(stream);
    return status;
}
