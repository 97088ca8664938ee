/* SPDX-License-Identifier: MIT
 *
 * Tiles of attention's mma.sync kernels, by the shared memory of a multiprocessor and the width of a head.
 *
 * Registers let two blocks of 128 threads share a multiprocessor: one has products while the other waits for a barrier
 * or has exponentials.  They need room for both, with 1 KiB a block for the system:
 *     164 KiB and more    compute capability 8.0, 8.7, 9.0, 10.0     81 KiB a block
 *     100 KiB             8.6, 8.9, 12.0                             49 KiB, and no block may have more than 99
 * Bytes of a block are those of its rows and of two buffers of its steps (forward_shared_bytes, KeyValueLayout,
 * QueryGradientLayout).  Smaller steps have more barriers, and with one row tile a warp a fragment serves one mma, not
 * two; tensor cores of 100 KiB have 8 clocks an mma and do not starve.  At width 192 and 256 one block has to do.
 */
#ifndef HS_KERNELS_CUDA_ATTENTION_ATTENTION_TILES_CUH
#define HS_KERNELS_CUDA_ATTENTION_ATTENTION_TILES_CUH

#include "kernels/cuda/attention/attention_tile.cuh"
#include "kernels/cuda/device/device.cuh"

namespace HS_CUDA_NAMESPACE
{

enum SharedRoom { ROOM_164, ROOM_100, ROOMS }; /* KiB a multiprocessor */
enum AttentionKernel { FORWARD_KERNEL, KEY_VALUE_KERNEL, QUERY_KERNEL, ATTENTION_KERNELS };
enum { TWO_BLOCKS_100 = 49 * 1024, MOST_BLOCK_100 = 99 * 1024 }; /* bytes a block, with 100 KiB */

struct AttentionTile {
    int warps, row_tiles, step;
};
struct AttentionTileRow {
    int width;
    AttentionTile tile[ATTENTION_KERNELS][ROOMS];
};
constexpr AttentionTileRow attention_tiles[] = {
    /* width      forward                    keys and values            queries */
    { 32, { { { 4, 2, 64 }, { 4, 2, 64 } }, { { 4, 2, 32 }, { 4, 2, 32 } }, { { 4, 2, 32 }, { 4, 2, 32 } } } },
    { 64, { { { 4, 2, 64 }, { 4, 2, 64 } }, { { 4, 2, 32 }, { 4, 2, 32 } }, { { 4, 2, 32 }, { 4, 2, 32 } } } },
    { 96, { { { 4, 2, 64 }, { 4, 2, 32 } }, { { 4, 1, 32 }, { 4, 1, 32 } }, { { 4, 2, 32 }, { 4, 1, 32 } } } },
    { 128, { { { 4, 2, 32 }, { 4, 2, 16 } }, { { 4, 1, 32 }, { 4, 1, 16 } }, { { 4, 2, 16 }, { 4, 1, 16 } } } },
    { 192, { { { 4, 1, 32 }, { 4, 1, 32 } }, { { 4, 1, 32 }, { 4, 1, 32 } }, { { 4, 1, 32 }, { 4, 1, 32 } } } },
    { 256, { { { 4, 1, 32 }, { 4, 1, 32 } }, { { 4, 1, 16 }, { 4, 1, 16 } }, { { 4, 1, 16 }, { 4, 1, 16 } } } },
};

constexpr AttentionTile attention_tile(AttentionKernel kernel, SharedRoom room, int width)
{
    int row = 0;
    while (attention_tiles[row].width < width)
        row++;
    return attention_tiles[row].tile[kernel][room];
}

template <AttentionKernel kernel, SharedRoom room, int width>
using AttentionShape =
    TileShape<width, attention_tile(kernel, room, width).warps, attention_tile(kernel, room, width).row_tiles,
              attention_tile(kernel, room, width).step>;

/* Calls body(a TileShape) with the tile of a kernel for heads on the context's GPU. */
template <AttentionKernel kernel, typename Body>
HsStatus dispatch_attention_tile(const HsContext *context, int head_dim, Body &&body)
{
    const bool small = limits_of(context).multiprocessor_shared_bytes < 164 * 1024;
    return dispatch_head_dim(head_dim, [&](auto dim) {
        constexpr int width = decltype(dim)::width;
        return small ? body(AttentionShape<kernel, ROOM_100, width>{})
                     : body(AttentionShape<kernel, ROOM_164, width>{});
    });
}

} // namespace HS_CUDA_NAMESPACE

#endif
