/* SPDX-License-Identifier: MIT
 *
 * What the norms share: how a row is laid out over threads, sums over a row, and the parameter gradients' partial sums.
 *
 * A row belongs to whole warps of one block, blockDim = (threads of a row, rows at a time).  Thread t holds packs
 * t, t + threads, t + 2 threads, ... of `width` neighbours in registers, `tile` elements in all: every access of a warp
 * is one contiguous piece, and x is read from memory once.  Rows up to 32 tiles need one warp and no barrier; kernels
 * know that case at compile time (`one_warp`), which turns their addresses into one base and constants.
 */
#ifndef HS_KERNELS_CUDA_LAYERS_NORM_CUH
#define HS_KERNELS_CUDA_LAYERS_NORM_CUH

#include "kernels/cuda/toolbox/amax.cuh"
#include "kernels/cuda/toolbox/launch.cuh"
#include "kernels/cuda/toolbox/view.cuh"

namespace HS_CUDA_NAMESPACE
{

enum { NORM_BLOCK_WARPS = 8, NORM_MOST_WARPS = 16, NORM_MOST_THREADS = NORM_MOST_WARPS * WARP_SIZE };

/* tile 0: the row is longer than the registers of NORM_MOST_WARPS warps hold, and is read again for each pass. */
struct RowLayout {
    int tile;
    int row_threads;
    int rows_at_once;

    bool one_warp() const
    {
        return row_threads == WARP_SIZE;
    }
    dim3 block() const
    {
        return dim3((unsigned)row_threads, (unsigned)rows_at_once);
    }
};

/* Tiles of 8, 16, ... largest elements a thread; the smallest that lets one warp hold the row, else more warps. */
static inline RowLayout row_layout(int64_t columns, int largest)
{
    int tile = 8;
    while (tile < largest && (int64_t)tile * WARP_SIZE < columns)
        tile *= 2;
    const int64_t warps = (columns + tile * WARP_SIZE - 1) / (tile * WARP_SIZE);
    if (warps > NORM_MOST_WARPS)
        return { 0, NORM_MOST_THREADS, 1 };
    return { tile, (int)warps * WARP_SIZE, warps < NORM_BLOCK_WARPS ? NORM_BLOCK_WARPS / (int)warps : 1 };
}

/* Threads of the largest block: with one warp to a row, always NORM_BLOCK_WARPS rows. */
template <bool one_warp>
static constexpr int most_threads = (one_warp ? NORM_BLOCK_WARPS : NORM_MOST_WARPS) * WARP_SIZE;

template <bool one_warp> HS_DEVICE int row_threads()
{
    return one_warp ? (int)WARP_SIZE : (int)blockDim.x;
}

/* The first column of this thread's pack number `pack`. */
template <int width, bool one_warp> HS_DEVICE int column_of(int pack)
{
    return (pack * row_threads<one_warp>() + (int)threadIdx.x) * width;
}

/* Sums over the threads of each row, several at a time so that they share the barriers; scratch holds count floats for
 * each of NORM_MOST_WARPS warps.  All threads of the block call.  (No block has more warps: rows_at_once sees to it.)
 */
template <bool one_warp, int count> HS_DEVICE void row_sums(float (&values)[count], float *scratch)
{
#pragma unroll
    for (int i = 0; i < count; i++)
        values[i] = warp_reduce<Sum>(values[i]);
    if (one_warp)
        return;
    const int warps = (int)blockDim.x / WARP_SIZE, lane = (int)threadIdx.x % WARP_SIZE;
    float *row = scratch + (int)threadIdx.y * warps * count;
    if (lane == 0) {
#pragma unroll
        for (int i = 0; i < count; i++)
            row[((int)threadIdx.x / WARP_SIZE) * count + i] = values[i];
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < count; i++)
        values[i] = warp_reduce<Sum>(lane < warps ? row[lane * count + i] : 0.0f);
    __syncthreads();
}

/* Whether kernels that store to such a view look for the largest magnitude (toolbox/amax.cuh): casts follow 16 bits alone,
 * and single elements' addresses leave no registers.  For the others a pass finds what is asked for. */
template <typename Y> static constexpr bool looks_at = false;
template <> inline constexpr bool looks_at<View<Bf16>> = true;
template <> inline constexpr bool looks_at<View<F16>> = true;

/* Gradients of weights and biases are sums over all rows.  Block b adds up its own `rows` rows and leaves them in
 * workspace[b][array][column]; partial_sums_kernel then adds up the blocks.  The partition follows from the shape
 * alone, never from the GPU, so that every GPU gives the same bits. */
struct PartialSums {
    int64_t rows; /* of a block */
    int blocks;

    size_t bytes(int64_t columns, int arrays) const
    {
        return (size_t)blocks * (size_t)arrays * (size_t)columns * sizeof(float);
    }
};

/* At most 512 blocks: enough for two or more on each multiprocessor of today's GPUs.  At least 16 rows each, so that
 * the partial sums stay a small part of the traffic. */
static inline PartialSums partial_sums(int64_t rows, int rows_at_once)
{
    enum { MOST_BLOCKS = 512, FEWEST_ROWS = 16 };
    int64_t per_block = (rows + MOST_BLOCKS - 1) / MOST_BLOCKS;
    if (per_block < FEWEST_ROWS)
        per_block = FEWEST_ROWS;
    per_block = (per_block + rows_at_once - 1) / rows_at_once * rows_at_once;
    return { per_block, (int)((rows + per_block - 1) / per_block) };
}

/* Where the sums of each array go; NULL: nowhere. */
struct PartialTotals {
    float *to[3];
    int count;
};

/* to[a][c] += sum over blocks of partials[block][a][c].  Defined in norm_backward.cu. */
HsStatus add_partial_sums(HsContext *context, PartialSums sums, const PartialTotals &totals, int64_t columns);

} // namespace HS_CUDA_NAMESPACE

#endif
