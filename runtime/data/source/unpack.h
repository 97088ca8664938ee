/* SPDX-License-Identifier: MIT
 *
 * Compressed bytes in memory to plain ones.  One file for each outside library: unpack_gzip.c (zlib), unpack_zstd.c.
 *
 * A stream that is cut off or damaged is an error that names the file: what was unpacked up to there is never used.
 */
#ifndef HS_RUNTIME_DATA_SOURCE_UNPACK_H
#define HS_RUNTIME_DATA_SOURCE_UNPACK_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/base/status.h"

/* All zero but for `limit` to begin with; the caller frees `bytes`, also after a failure. */
typedef struct HsUnpacked {
    char *bytes;
    size_t size, capacity;
    size_t limit; /* more bytes than this are refused: a small file may unpack to any size */
} HsUnpacked;

/* Streams that follow one another are one text, as the commands gzip and zstd have it.  `name` stands for the file in
 * messages.  errors: HS_EFORMAT (damaged, cut off, over the limit), HS_ENOMEM */
HsStatus hs_unpack_gzip(const char *name, const char *bytes, size_t size, HsUnpacked *unpacked);
HsStatus hs_unpack_zstd(const char *name, const char *bytes, size_t size, HsUnpacked *unpacked);

/* The checksum that gzip and others have (CRC-32 of ISO 3309). */
uint32_t hs_unpack_crc32(const char *bytes, size_t size);

/* Makes room for one byte at least behind `size`: what the two above share. */
HsStatus hs_unpacked_grow(const char *name, HsUnpacked *unpacked);

#endif
