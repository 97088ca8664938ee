/* SPDX-License-Identifier: MIT
 *
 * Four neighbouring elements of each stream a thread: how operations on whole parameters move memory.
 *
 * A quad is 16 bytes of f32 and 8 of a 16-bit format, so a warp's access is one contiguous piece of every stream, and
 * an update with its four to seven streams has more than enough bytes in flight.  It is one draw of Philox, too.
 * Where a stream's address does not allow packs, and at the end of a tensor, the same code moves single elements:
 * the kernels call their body as body<true> or body<false>, so that no test stands between the loads.
 */
#ifndef HS_KERNELS_CUDA_TOOLBOX_QUAD_CUH
#define HS_KERNELS_CUDA_TOOLBOX_QUAD_CUH

#include "kernels/cuda/toolbox/launch.cuh"
#include "kernels/cuda/toolbox/numeric.cuh"

namespace HS_CUDA_NAMESPACE
{

enum { QUAD = 4, QUAD_THREADS = 256, QUAD_BLOCK_ELEMENTS = QUAD * QUAD_THREADS };

/* Blocks of QUAD_THREADS that give each quad of `count` elements a thread. */
static inline unsigned quad_blocks(int64_t count)
{
    return blocks_for(count, QUAD_BLOCK_ELEMENTS);
}

/* Whether packs of four elements of this tensor are aligned; an absent tensor is no obstacle. */
static inline bool quad_aligned(const HsTensor &tensor)
{
    return !hs_tensor_present(&tensor) || aligned_to(tensor.data, QUAD * hs_dtype_bytes(tensor.dtype));
}

/* A matrix by quads: threads along x walk a row, so that nothing has to be divided by the width of a row. */
struct RowBlocks {
    dim3 grid, block;
};

static inline RowBlocks row_blocks(int64_t rows, int64_t columns)
{
    const unsigned row_quads = blocks_for(columns, QUAD), warps = blocks_for(row_quads, WARP_SIZE);
    const unsigned width = warps * WARP_SIZE < QUAD_THREADS ? warps * WARP_SIZE : (unsigned)QUAD_THREADS;
    const unsigned height = QUAD_THREADS / width;
    return RowBlocks{ dim3(blocks_for(rows, height), blocks_for(row_quads, width)), dim3(width, height) };
}

/* This thread's first column, and its row. */
HS_DEVICE int64_t row_column()
{
    return ((int64_t)blockIdx.y * blockDim.x + threadIdx.x) * QUAD;
}

HS_DEVICE int64_t row_index()
{
    return (int64_t)blockIdx.x * blockDim.y + threadIdx.y;
}

/* Null where the tensor is absent. */
template <typename T> T *optional_data(const HsTensor &tensor)
{
    return hs_tensor_present(&tensor) ? data_of<T>(tensor) : nullptr;
}

/* The first element of this thread's quad. */
HS_DEVICE int64_t quad_index()
{
    return ((int64_t)blockIdx.x * QUAD_THREADS + threadIdx.x) * QUAD;
}

/* Elements i .. i+3; not whole: only the first `left` of them, the others are zero. */
template <bool whole, typename T> HS_DEVICE Pack<T, QUAD> load_quad(const T *source, int64_t i, int left)
{
    if constexpr (whole) {
        return load_pack<T, QUAD>(source + i);
    } else {
        Pack<T, QUAD> quad = {};
#pragma unroll
        for (int j = 0; j < QUAD; j++)
            if (j < left)
                quad.value[j] = source[i + j];
        return quad;
    }
}

template <bool whole, typename T> HS_DEVICE void store_quad(T *destination, int64_t i, int left, Pack<T, QUAD> quad)
{
    if constexpr (whole) {
        store_pack<T, QUAD>(destination + i, quad);
    } else {
#pragma unroll
        for (int j = 0; j < QUAD; j++)
            if (j < left)
                destination[i + j] = quad.value[j];
    }
}

template <typename T> HS_DEVICE void widen(const Pack<T, QUAD> &quad, float (&value)[QUAD])
{
#pragma unroll
    for (int j = 0; j < QUAD; j++)
        value[j] = to_float(quad.value[j]);
}

/* Four zeros of any format: all bits clear. */
template <bool whole, typename T> HS_DEVICE void clear_quad(T *destination, int64_t i, int left)
{
    store_quad<whole>(destination, i, left, Pack<T, QUAD>{});
}

} // namespace HS_CUDA_NAMESPACE

#endif
