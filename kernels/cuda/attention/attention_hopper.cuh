/* SPDX-License-Identifier: MIT
 *
 * Tiles of heads for attention on Hopper (sm_90a): what its kernels have in common.
 *
 * A tile is `rows` tokens of one head, copied by the tensor memory accelerator in boxes of 64 columns: lines of 128
 * bytes with the 128-byte swizzle, box after box.  A head narrower than its boxes, and tokens behind the sequence's
 * end, come as zeros, since heads and sequences are dimensions of the tensor map; on the way out they are left alone.
 *
 * Two products cover forward and backward, each for the 64 rows of a warpgroup, and asynchronous as wgmma is:
 *     begin_rows      sum[64][columns] (+)= A[64][width] . B[columns][width]      S = Q K^T, dP^T = V dO^T
 *     begin_weights   sum[64][width]    += W[64][depth] B[depth][width]           O = P V, dK = dS^T Q
 * B of the second is read across its lines (outer-major); W comes in registers: the sums of the first product, rounded,
 * have the layout of wgmma's left operand.
 */
#ifndef HS_KERNELS_CUDA_ATTENTION_ATTENTION_HOPPER_CUH
#define HS_KERNELS_CUDA_ATTENTION_ATTENTION_HOPPER_CUH

#include "kernels/cuda/attention/attention.cuh"
#include "kernels/cuda/toolbox/ptx_convert.cuh"
#include "kernels/cuda/toolbox/ptx_tensor_copy.cuh"
#include "kernels/cuda/toolbox/ptx_wgmma.cuh"

namespace HS_CUDA_NAMESPACE
{

enum { HEAD_LINE = 128, HEAD_BOX = 64, HOPPER_HEAD_DIM = 128 }; /* bytes and elements of a line; the widest head */

template <int width_, int rows_> struct HeadTile {
    static_assert(width_ % HEAD_BOX == 0 && rows_ % 8 == 0 && rows_ <= 256, "whole boxes");
    static constexpr int width = width_, rows = rows_;
    static constexpr int boxes = width_ / HEAD_BOX, box_bytes = rows_ * HEAD_LINE, bytes = boxes * box_bytes;
};

/* `rows_of_heads` heads in a row of [batch length, rows_of_heads head_dim], in tiles of `rows` tokens: coordinates are
 * (column in the head, head, token, sequence). */
static inline HsStatus map_heads(void *data, HsDtype dtype, const Attention &attention, int heads_in_row, int rows,
                                 TensorMap *map)
{
    const int64_t head_bytes = 2 * (int64_t)attention.head_dim, row_bytes = head_bytes * heads_in_row;
    const TensorMapShape shape = { data,
                                   dtype,
                                   4,
                                   { attention.head_dim, heads_in_row, attention.length, attention.batch },
                                   { 2, head_bytes, row_bytes, row_bytes * attention.length },
                                   { HEAD_BOX, 1, rows, 1 },
                                   HEAD_LINE };
    return encode_tensor_map(shape, map);
}

/* One thread: ask for a tile; its Tile::bytes are counted at `full`. */
template <typename Tile>
HS_DEVICE void load_head(uint32_t tile, const TensorMap *map, uint32_t full, int head, int token, int sequence)
{
#pragma unroll
    for (int box = 0; box < Tile::boxes; box++)
        ptx::load_tile(tile + (uint32_t)(box * Tile::box_bytes), map, full, box * HEAD_BOX, head, token, sequence);
}

/* sum (+)= A B^T over the width: 64 rows of A from `first_row` on; the first 2 count rows of B, all or half of them. */
template <typename T, typename ATile, typename BTile, int count>
HS_DEVICE void begin_rows(float (&sum)[count], uint32_t a, int first_row, uint32_t b)
{
    static_assert(ATile::width == BTile::width && 2 * count <= BTile::rows, "the products' depth, and rows");
#pragma unroll
    for (int k = 0; k < ATile::width; k += 16) {
        const uint32_t box = (uint32_t)(k / HEAD_BOX), along = (uint32_t)(k % HEAD_BOX * 2);
        const uint32_t a_box = a + box * ATile::box_bytes + (uint32_t)(first_row * HEAD_LINE);
        const uint32_t b_box = b + box * BTile::box_bytes;
        ptx::wgmma<T, false, false>(sum, ptx::advance_descriptor(ptx::wgmma_descriptor(a_box, 1024, 16), along),
                                    ptx::advance_descriptor(ptx::wgmma_descriptor(b_box, 1024, 16), along), k > 0);
    }
}

/* sum += W B, or = where not `add`: W's fragments for every 16 rows of B. */
template <typename T, typename BTile>
HS_DEVICE void begin_weights(float (&sum)[BTile::width / 2], const uint32_t (&weights)[BTile::rows / 16][4], uint32_t b,
                             bool add)
{
    const uint64_t descriptor = ptx::wgmma_descriptor(b, 1024, BTile::box_bytes);
#pragma unroll
    for (int k = 0; k < BTile::rows / 16; k++)
        ptx::wgmma<T, true>(sum, weights[k], ptx::advance_descriptor(descriptor, (uint32_t)(k * 16 * HEAD_LINE)),
                            add || k > 0);
}

/* Sums of a 64 x columns product, rounded to T, as W. */
template <typename T, int count> HS_DEVICE void round_sums(uint32_t (&weights)[count / 8][4], const float (&sum)[count])
{
#pragma unroll
    for (int k = 0; k < count / 8; k++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            weights[k][i] = pack_pair<T>(sum[8 * k + 2 * i], sum[8 * k + 2 * i + 1]);
}

/* What the kernels here serve, in addition to fits_mma: heads of up to 128 columns on a GPU of compute capability 9.0,
 * unless kernels.hopper keeps them away. */
bool fits_hopper(const HsContext *context, int64_t head_dim);

HsStatus attention_forward_hopper(HsContext *context, const Attention &attention, const HsAttentionArgs *args);

} // namespace HS_CUDA_NAMESPACE

#endif
