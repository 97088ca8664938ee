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

/* Where rows begin and their statistics lie: whole rows, one behind the other; or stretches of wider rows, two of each,
 * with their statistics in pairs (head_norm.cu). */
struct WholeRows {
    HS_MEMBER int64_t begin(int64_t row, int columns) const
    {
        return row * columns;
    }
    HS_MEMBER int64_t statistic(int64_t row) const
    {
        return row;
    }
};
struct Stretches {
    int64_t stride;

    HS_MEMBER int64_t begin(int64_t row, int) const
    {
        return row * stride;
    }
    HS_MEMBER int64_t statistic(int64_t row) const
    {
        return 2 * row;
    }
};

/* A weight's neighbours; of a norm without a weight, ones. */
template <bool has_weight, int width>
HS_DEVICE void load_known_weight(const View<float> &weight, int column, float (&values)[width])
{
    if constexpr (has_weight) {
        weight.load(column, values);
    } else {
#pragma unroll
        for (int i = 0; i < width; i++)
            values[i] = 1.0f;
    }
}
template <int width> HS_DEVICE void load_weight(const View<float> &weight, int column, float (&values)[width])
{
    if (weight.data)
        load_known_weight<true>(weight, column, values);
    else
        load_known_weight<false>(weight, column, values);
}

/* Neighbours as they lie in memory, so that they take few registers while they wait.  Words, as compilers may keep two
 * 16-bit elements in two registers. */
template <int width, typename T> using Words = Pack<uint32_t, width *(int)sizeof(T) / 4>;

template <int width, typename T> HS_DEVICE Words<width, T> fetch(const View<T> &view, int64_t index)
{
    return load_pack<uint32_t, width *(int)sizeof(T) / 4>(reinterpret_cast<const uint32_t *>(view.data + index));
}
template <int width> HS_DEVICE Pack<float, 1> fetch(const AnyView &view, int64_t index)
{
    float value[1];
    view.load(index, value);
    return { { value[0] } };
}

template <typename T, int width>
HS_DEVICE void unpack(const View<T> &, const Words<width, T> &words, float (&values)[width])
{
    Pack<T, width> pack;
    memcpy(&pack, &words, sizeof pack);
#pragma unroll
    for (int i = 0; i < width; i++)
        values[i] = to_float(pack.value[i]);
}
HS_DEVICE void unpack(const AnyView &, const Pack<float, 1> &pack, float (&values)[1])
{
    values[0] = pack.value[0];
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

/* Where the sums of each array go; without data: nowhere. */
struct PartialTotals {
    AnyView to[3];
    int count;
};

/* to[a][c] += sum over blocks of partials[block][a][c], rounded once.  Defined in norm_backward.cu. */
HsStatus add_partial_sums(HsContext *context, PartialSums sums, const PartialTotals &totals, int64_t columns);

/* The rms norm of stretches: x and y, dy and dx begin at a stretch's first column, with as many columns as it has, in rows
 * of `stride` elements; rstd at the first of its pair.  No other operand but the weight, which may be absent, and dweight.
 * Defined in norm.cu and norm_backward.cu. */
HsStatus norm_stretches(HsContext *context, const HsNormArgs *args, int64_t stride);
HsStatus norm_stretches_backward(HsContext *context, const HsNormBackwardArgs *args, int64_t stride);
size_t norm_stretches_workspace(int64_t rows, int64_t columns);

} // namespace HS_CUDA_NAMESPACE

#endif
