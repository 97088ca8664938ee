/* SPDX-License-Identifier: MIT
 *
 * Compressed bytes to plain ones, as they come.  One file for each outside library: unpack_gzip.c (zlib), unpack_zstd.c.
 *
 * Streams that follow one another are one text, as the commands gzip and zstd have it.  One that is cut off or damaged
 * is an error that names the file.
 */
#ifndef HS_RUNTIME_DATA_SOURCE_UNPACK_H
#define HS_RUNTIME_DATA_SOURCE_UNPACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/base/status.h"

typedef struct HsUnpacker HsUnpacker;

typedef struct HsUnpackStep {
    const char *in;
    size_t in_size;
    bool in_ended; /* no more follows */
    char *out;
    size_t out_size; /* at least 1 */
    /* out: */
    size_t taken, made;
} HsUnpackStep;

typedef struct HsUnpackerKind {
    HsStatus (*open)(HsUnpacker *unpacker);
    /* errors: HS_EFORMAT (damaged, cut off), HS_ENOMEM */
    HsStatus (*run)(HsUnpacker *unpacker, HsUnpackStep *step);
    void (*close)(HsUnpacker *unpacker);
} HsUnpackerKind;
extern const HsUnpackerKind hs_unpacker_gzip, hs_unpacker_zstd;

struct HsUnpacker {
    const HsUnpackerKind *kind; /* NULL: not open */
    const char *name;           /* stands for the file in messages; borrowed */
    void *stream;
    size_t taken; /* bytes of all input */
    bool inside;  /* of a stream that has not ended */
};

static inline HsStatus hs_unpacker_open(HsUnpacker *unpacker, const HsUnpackerKind *kind, const char *name)
{
    *unpacker = (HsUnpacker){ .kind = kind, .name = name };
    return kind->open(unpacker);
}

/* Unpacks until `out` is full or `in` is used up.  With in_ended and nothing left, nothing made is the end. */
static inline HsStatus hs_unpacker_run(HsUnpacker *unpacker, HsUnpackStep *step)
{
    step->taken = step->made = 0;
    return unpacker->kind->run(unpacker, step);
}

static inline void hs_unpacker_close(HsUnpacker *unpacker)
{
    if (unpacker->kind)
        unpacker->kind->close(unpacker);
    *unpacker = (HsUnpacker){ 0 };
}

/* The checksum that gzip and others have (CRC-32 of ISO 3309). */
uint32_t hs_unpack_crc32(const char *bytes, size_t size);

#endif
