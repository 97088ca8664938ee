/* SPDX-License-Identifier: MIT
 *
 * Compressed streams, with a limit that most inputs stay below.
 */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>

#include "runtime/data/source/unpack.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

/* In steps of a few bytes, to at most LIMIT bytes. */
static void unpack(const HsUnpackerKind *kind, const char *bytes, size_t size, size_t in_step, size_t out_step)
{
    enum { LIMIT = 1 << 20 };
    static char out[4096];
    HsUnpacker unpacker;
    size_t at = 0, made = 0;
    HsStatus status = hs_unpacker_open(&unpacker, kind, "fuzz");
    for (bool more = true; status == HS_OK && more && made < LIMIT;) {
        const size_t left = size - at, in = left < in_step ? left : in_step;
        HsUnpackStep step = {
            .in = bytes + at, .in_size = in, .in_ended = in == left, .out = out, .out_size = out_step
        };
        status = hs_unpacker_run(&unpacker, &step);
        assert(status != HS_OK || (step.taken <= in && step.made <= out_step));
        at += step.taken;
        made += step.made;
        more = step.made > 0 || at < size;
    }
    hs_unpacker_close(&unpacker);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    const HsUnpackerKind *const kinds[] = { &hs_unpacker_gzip, &hs_unpacker_zstd };
    for (int i = 0; i < 2; i++) {
        unpack(kinds[i], (const char *)bytes, size, size + 1, 4096);
        unpack(kinds[i], (const char *)bytes, size, 7, 13);
    }
    return 0;
}
