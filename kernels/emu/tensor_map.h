/* SPDX-License-Identifier: MIT
 *
 * The emulator's own form of a tensor map, which on a GPU is opaque (CUtensorMap).
 */
#ifndef HS_KERNELS_EMU_TENSOR_MAP_H
#define HS_KERNELS_EMU_TENSOR_MAP_H

#include <stddef.h>
#include <stdint.h>

namespace hs_emu
{

enum { TENSOR_MAP_RANKS = 5 };

struct alignas(128) TensorMap {
    char *data;
    uint64_t extents[TENSOR_MAP_RANKS]; /* elements; the first one's neighbours are contiguous */
    uint64_t strides[TENSOR_MAP_RANKS]; /* bytes; the first is an element's */
    uint16_t box[TENSOR_MAP_RANKS];     /* elements of a tile */
    uint8_t rank;                       /* 1 to 5; 0: not encoded */
    uint8_t element_bytes;
    uint8_t swizzle_bytes; /* 0, 32, 64, 128 */
};
static_assert(sizeof(TensorMap) == 128, "as large as a CUtensorMap");

/* A shared address as a swizzle permutes it: of the 16-byte pieces of a line of `swizzle_bytes`, the p-th goes to place
 * p xor the line's number. */
static inline uint32_t swizzled(uint32_t address, int swizzle_bytes)
{
    return swizzle_bytes == 0 ? address : address ^ (address >> 3 & (uint32_t)(swizzle_bytes - 16));
}

} // namespace hs_emu

#endif
