/* SPDX-License-Identifier: MIT
 *
 * Zstandard (RFC 8878) by libzstd, the only file that knows it.
 */
#include "runtime/data/source/unpack.h"

#include <zstd.h>
#include <zstd_errors.h>

#define ZSTD_MEND "it is damaged; copy it again (zstd -t checks it)"

static HsStatus zstd_open(HsUnpacker *unpacker)
{
    unpacker->stream = ZSTD_createDStream();
    return unpacker->stream ? HS_OK : hs_fail(HS_ENOMEM, "%s: no memory to unpack it", unpacker->name);
}

static HsStatus zstd_run(HsUnpacker *unpacker, HsUnpackStep *step)
{
    const char *const name = unpacker->name;
    while (step->made < step->out_size && (unpacker->inside || step->taken < step->in_size)) {
        ZSTD_inBuffer in = { step->in, step->in_size, step->taken };
        ZSTD_outBuffer out = { step->out, step->out_size, step->made };
        const size_t left = ZSTD_decompressStream(unpacker->stream, &out, &in); /* 0 at the end of a frame */
        if (ZSTD_getErrorCode(left) == ZSTD_error_memory_allocation)
            return hs_fail(HS_ENOMEM, "%s: no memory to unpack it", name);
        if (ZSTD_isError(left))
            return hs_fail(HS_EFORMAT, "%s: byte %zu: not zstd data (%s): " ZSTD_MEND, name,
                           unpacker->taken + in.pos - step->taken, ZSTD_getErrorName(left));
        unpacker->taken += in.pos - step->taken;
        step->taken = in.pos;
        step->made = out.pos;
        unpacker->inside = left > 0;
        if (left > 0 && in.pos == in.size && out.pos < out.size) {
            if (!step->in_ended)
                return HS_OK; /* it waits for more */
            return hs_fail(HS_EFORMAT, "%s: the zstd data ends before its end: the file is cut off; copy it again",
                           name);
        }
    }
    return HS_OK;
}

static void zstd_close(HsUnpacker *unpacker)
{
    ZSTD_freeDStream(unpacker->stream);
}

const HsUnpackerKind hs_unpacker_zstd = { zstd_open, zstd_run, zstd_close };
