/* SPDX-License-Identifier: MIT
 *
 * Fowler, Noll and Vo's hash FNV-1a of 64 bits: for a few bytes, where no one means harm.  Files have XXH3.
 */
#ifndef HS_KERNELS_BASE_HASH_H
#define HS_KERNELS_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

#define HS_HASH_START UINT64_C(0xcbf29ce484222325)

static inline uint64_t hs_hash_number(uint64_t hash, uint64_t number)
{
    return (hash ^ number) * UINT64_C(0x100000001b3);
}

static inline uint64_t hs_hash_bytes(uint64_t hash, const void *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        hash = hs_hash_number(hash, ((const unsigned char *)bytes)[i]);
    return hash;
}

#endif
