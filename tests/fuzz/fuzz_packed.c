/* SPDX-License-Identifier: MIT
 *
 * Compressed streams, with a limit that most inputs stay below.
 */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>

#include "runtime/data/source/unpack.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    enum { LIMIT = 1 << 20 };
    HsStatus (*const unpack[])(const char *, const char *, size_t, HsUnpacked *) = { hs_unpack_gzip, hs_unpack_zstd };
    for (int i = 0; i < 2; i++) {
        HsUnpacked unpacked = { .limit = LIMIT };
        HsStatus status = unpack[i]("fuzz", (const char *)bytes, size, &unpacked);
        assert(status != HS_OK || unpacked.size <= LIMIT);
        assert(unpacked.size <= unpacked.capacity);
        free(unpacked.bytes);
    }
    return 0;
}
