/* SPDX-License-Identifier: MIT
 *
 * Tiles of 16-bit rows in shared memory, and products of them by mma.sync, as all three attention kernels use them.
 *
 * A tile holds rows of `width` elements, in 16-byte chunks.  ldmatrix reads the same chunk of eight neighbouring rows
 * at once; the 32 banks are eight chunks wide, so the eight must differ modulo 8.  Plain rows would all collide (their
 * length is a multiple of 64 bytes); chunk numbers are therefore exclusive-ored with bits of the row number:
 *     whole lines of 128 bytes a row      chunk ^ row % 8
 *     an odd number of half lines a row   chunk ^ row / 2 % 4   (odd rows already begin half a line further)
 * which keeps a row's chunks in their row, and cp.async's 16-byte writes free of conflicts too.
 *
 * Two products cover forward and backward, for a warp that owns 16 `row_tiles` rows:
 *     multiply_rows     sum[rows][columns] += A[rows][width] . B[columns][width]    S = Q K^T, dP = dO V^T
 *     multiply_weights  sum[rows][width]   += W[rows][depth] B[depth][width]        O = P V, dQ = dS K, dV = P^T dO, ..
 * W comes from the first product's accumulators, which already have the layout of an mma's left operand: probabilities
 * never pass through shared memory.
 */
#ifndef HS_KERNELS_CUDA_ATTENTION_ATTENTION_TILE_CUH
#define HS_KERNELS_CUDA_ATTENTION_ATTENTION_TILE_CUH

#include "kernels/cuda/toolbox/numeric.cuh"
#include "kernels/cuda/toolbox/ptx_copy.cuh"
#include "kernels/cuda/toolbox/ptx_mma.cuh"

namespace HS_CUDA_NAMESPACE
{

/* How a block divides its work: `warps` warps own `row_tiles` x 16 rows each, and step through the other side `step`
 * rows at a time. */
template <int width_, int warps_, int row_tiles_, int step_> struct TileShape {
    static constexpr int width = width_, warps = warps_, row_tiles = row_tiles_, step = step_;
    static constexpr int threads = warps * WARP_SIZE;
    static constexpr int warp_rows = 16 * row_tiles, rows = warps * warp_rows;
    static constexpr int step_tiles = step / 8; /* accumulator tiles across a step */
    static constexpr int own_bytes = rows * width * 2, step_bytes = step * width * 2;
};

/* The 16-bit formats. */
template <typename T> struct TensorCore;
template <> struct TensorCore<Bf16> {
    static __device__ __forceinline__ void multiply(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
    {
        ptx::mma_bf16(d, a, b);
    }
    static __device__ __forceinline__ uint32_t pack(float low, float high)
    {
        return ptx::pack_bf16(low, high);
    }
};
template <> struct TensorCore<F16> {
    static __device__ __forceinline__ void multiply(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
    {
        ptx::mma_f16(d, a, b);
    }
    static __device__ __forceinline__ uint32_t pack(float low, float high)
    {
        return ptx::pack_f16(low, high);
    }
};

/* Rows of a tile; chunk numbers are permuted within aligned groups. */
template <int width> struct TileRow {
    static constexpr int chunks = width / 8, bytes = width * 2;
    static constexpr int permuted = chunks % 8 == 0 ? 8 : 4;
    static_assert(chunks % permuted == 0, "rows are whole half lines");
};

/* Bytes from a tile's start to a chunk.  Adding a multiple of 8 rows does not change the permutation. */
template <int width> HS_DEVICE uint32_t chunk_offset(int row, int chunk)
{
    const int flip = TileRow<width>::permuted == 8 ? row % 8 : row / 2 % 4;
    return (uint32_t)(row * TileRow<width>::bytes + (chunk ^ flip) * 16);
}

/* From the address of chunk 0 or 1 of a row to that of chunk `more` (even) further on.  Tiles begin at multiples of a
 * line, so that the bits of the permuted group can be flipped in the address itself: a few registers hold all addresses
 * of a row, where computed offsets would need one each. */
template <int width> HS_DEVICE uint32_t chunk_address(uint32_t first, int more)
{
    constexpr int group = TileRow<width>::permuted;
    return (first ^ (uint32_t)(more % group * 16)) + (uint32_t)(more / group * group * 16);
}

/* Start copying `rows` rows into a tile; rows from `valid_rows` and columns from `columns` (a multiple of 8) on are
 * zeros.  A thread copies every (threads / group)th row, so its offsets in the tile are constants apart.  Elements of a
 * sequence are counted in 32 bits (describe_attention). */
template <int width, int rows, int threads, typename T>
HS_DEVICE void load_tile(uint32_t tile, const T *source, uint32_t stride, int valid_rows, int columns)
{
    constexpr int group = TileRow<width>::permuted, at_once = threads / group;
    static_assert(rows % at_once == 0 && at_once % 8 == 0, "every thread copies as many rows");
    const int first_row = (int)threadIdx.x / group, first_chunk = (int)threadIdx.x % group;
    const uint32_t first = tile + chunk_offset<width>(first_row, first_chunk);
    const uint32_t first_element = (uint32_t)first_row * stride + (uint32_t)first_chunk * 8;
#pragma unroll
    for (int row = 0; row < rows; row += at_once) {
#pragma unroll
        for (int chunk = 0; chunk < TileRow<width>::chunks; chunk += group) {
            const bool valid = first_row + row < valid_rows && (first_chunk + chunk) * 8 < columns;
            const uint32_t element = first_element + (uint32_t)row * stride + (uint32_t)chunk * 8;
            ptx::copy_async_16(first + (uint32_t)(row * TileRow<width>::bytes + chunk * 16),
                               source + (valid ? element : 0), valid ? 16 : 0);
        }
    }
}

/* The number of this warp in its block.  Compilers know that a shuffle from one lane gives all lanes the same: what
 * follows from it takes uniform registers, which are not scarce. */
HS_DEVICE int warp_number()
{
    return __shfl_sync(FULL_WARP, (int)threadIdx.x / WARP_SIZE, 0);
}

/* Where a lane's addresses for ldmatrix begin: 16 x 16 elements as a left operand, or as a transposed right one ...  A
 * second tile of the same width that lies a constant number of bytes further on is reached from the same addresses:
 * that constant, `displacement` below, is part of the instruction and costs no register. */
template <int width> HS_DEVICE uint32_t row_lane(uint32_t tile)
{
    const int lane = (int)threadIdx.x % WARP_SIZE;
    return tile + chunk_offset<width>(lane % 16, lane / 16);
}

/* ... and as a right operand with the tile's rows as columns. */
template <int width> HS_DEVICE uint32_t column_lane(uint32_t tile)
{
    const int lane = (int)threadIdx.x % WARP_SIZE;
    return tile + chunk_offset<width>(lane / 16 * 8 + lane % 8, lane / 8 % 2);
}

/* Left operand: rows 16 row_tile.. of the tile, columns 16 k.. */
template <int width>
HS_DEVICE void load_left(uint32_t (&a)[4], uint32_t row_lane, int displacement, int row_tile, int k)
{
    const int bytes = displacement + row_tile * 16 * TileRow<width>::bytes;
    ptx::load_matrix_x4(a, chunk_address<width>(row_lane, 2 * k) + (uint32_t)bytes);
}

/* sum[m][n] += A B^T; `left(a, m, k)` brings A's fragments, from shared memory or registers.  Each of B's fragments is
 * loaded once for all row tiles: with two of them, 128 bytes of shared memory an mma.  unrolled: steps of k that the
 * compiler may overlap; all of them where A is in registers, two where many would take registers that are not there. */
template <typename T, int width, int unrolled, int row_tiles, int column_tiles, typename Left>
HS_DEVICE void multiply_rows(float (&sum)[row_tiles][column_tiles][4], Left &&left, uint32_t column_lane,
                             int displacement)
{
    static_assert(column_tiles % 2 == 0, "fragments are loaded for two column tiles at once");
#pragma unroll(unrolled)
    for (int k = 0; k < width / 16; k++) {
        uint32_t a[row_tiles][4];
#pragma unroll
        for (int m = 0; m < row_tiles; m++)
            left(a[m], m, k);
#pragma unroll
        for (int n = 0; n < column_tiles; n += 2) {
            uint32_t b[4];
            const int bytes = displacement + n * 8 * TileRow<width>::bytes;
            ptx::load_matrix_x4(b, chunk_address<width>(column_lane, 2 * k) + (uint32_t)bytes);
            const uint32_t first[2] = { b[0], b[1] }, second[2] = { b[2], b[3] };
#pragma unroll
            for (int m = 0; m < row_tiles; m++) {
                TensorCore<T>::multiply(sum[m][n], a[m], first);
                TensorCore<T>::multiply(sum[m][n + 1], a[m], second);
            }
        }
    }
}

/* sum[m][d] += W B, B read through ldmatrix's transposition. */
template <typename T, int width, int row_tiles, int depth_tiles>
HS_DEVICE void multiply_weights(float (&sum)[row_tiles][width / 8][4],
                                const uint32_t (&weights)[row_tiles][depth_tiles][4], uint32_t row_lane,
                                int displacement)
{
#pragma unroll
    for (int k = 0; k < depth_tiles; k++) {
#pragma unroll
        for (int n = 0; n < width / 8; n += 2) {
            uint32_t b[4];
            const int bytes = displacement + k * 16 * TileRow<width>::bytes;
            ptx::load_matrix_x4_transposed(b, chunk_address<width>(row_lane, n) + (uint32_t)bytes);
            const uint32_t first[2] = { b[0], b[1] }, second[2] = { b[2], b[3] };
#pragma unroll
            for (int m = 0; m < row_tiles; m++) {
                TensorCore<T>::multiply(sum[m][n], weights[m][k], first);
                TensorCore<T>::multiply(sum[m][n + 1], weights[m][k], second);
            }
        }
    }
}

/* Accumulators of one row of column tiles, rounded to T, as left operands. */
template <typename T, int column_tiles>
HS_DEVICE void round_weights(uint32_t (&weights)[column_tiles / 2][4], const float (&values)[column_tiles][4])
{
#pragma unroll
    for (int n = 0; n < column_tiles; n++) {
        weights[n / 2][n % 2 * 2] = TensorCore<T>::pack(values[n][0], values[n][1]);
        weights[n / 2][n % 2 * 2 + 1] = TensorCore<T>::pack(values[n][2], values[n][3]);
    }
}

template <int row_tiles, int column_tiles> HS_DEVICE void set_zero(float (&sum)[row_tiles][column_tiles][4])
{
#pragma unroll
    for (int m = 0; m < row_tiles; m++)
#pragma unroll
        for (int n = 0; n < column_tiles; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                sum[m][n][i] = 0.0f;
}

/* Over the four lanes that share a row of sums. */
HS_DEVICE float quad_maximum(float value)
{
    value = fmaxf(value, __shfl_xor_sync(FULL_WARP, value, 1));
    return fmaxf(value, __shfl_xor_sync(FULL_WARP, value, 2));
}

HS_DEVICE float quad_sum(float value)
{
    value += __shfl_xor_sync(FULL_WARP, value, 1);
    return value + __shfl_xor_sync(FULL_WARP, value, 2);
}

/* Store a warp's rows, times a factor for each: rounded into the warp's own rows of a tile that is not read any more
 * (`tile`: the address, `rows`: the memory), then copied out 16 bytes a lane, whole rows.  factors[m][half]: of row
 * 16 m + 8 half + lane / 4. */
template <typename T, int width, int row_tiles>
HS_DEVICE void store_rows(const float (&sum)[row_tiles][width / 8][4], const float (&factors)[row_tiles][2],
                          unsigned char *tile, T *destination, uint32_t stride, int valid_rows, int columns,
                          const AmaxOut &amax)
{
    constexpr int chunks = width / 8;
    const int lane = (int)threadIdx.x % WARP_SIZE, g = lane / 4, t = lane % 4;
    __syncwarp();
#pragma unroll
    for (int m = 0; m < row_tiles; m++)
#pragma unroll
        for (int half = 0; half < 2; half++)
#pragma unroll
            for (int n = 0; n < chunks; n++) {
                const float factor = factors[m][half];
                const uint32_t offset = chunk_offset<width>(m * 16 + half * 8 + g, n) + (uint32_t)t * 4;
                *reinterpret_cast<uint32_t *>(tile + offset) =
                    TensorCore<T>::pack(sum[m][n][2 * half] * factor, sum[m][n][2 * half + 1] * factor);
            }
    __syncwarp();
    uint32_t most = 0;
#pragma unroll 4
    for (int index = lane; index < 16 * row_tiles * chunks; index += WARP_SIZE) {
        const int row = index / chunks, chunk = index % chunks;
        if (row >= valid_rows || chunk * 8 >= columns)
            continue;
        const Pack<T, 8> eight = load_pack<T, 8>(reinterpret_cast<const T *>(tile + chunk_offset<width>(row, chunk)));
        store_pack(destination + ((uint32_t)row * stride + (uint32_t)chunk * 8), eight);
        if (amax.to != nullptr)
#pragma unroll
            for (int i = 0; i < 8; i++)
                most = larger(most, magnitude_of(to_float(eight.value[i])));
    }
    leave_amax(amax, most);
}

/* Calls body(HeadDim<w>{}) with the smallest width that holds a head: further columns are zeros. */
template <int width_> struct HeadDim {
    static constexpr int width = width_;
};

template <typename Body> HsStatus dispatch_head_dim(int head_dim, Body &&body)
{
    if (head_dim <= 32)
        return body(HeadDim<32>{});
    if (head_dim <= 64)
        return body(HeadDim<64>{});
    if (head_dim <= 96)
        return body(HeadDim<96>{});
    if (head_dim <= 128)
        return body(HeadDim<128>{});
    if (head_dim <= 192)
        return body(HeadDim<192>{});
    return body(HeadDim<256>{});
}

/* The two formats that tensor cores take here (fits_mma). */
template <typename Body> HsStatus dispatch_16_bit(HsDtype dtype, Body &&body)
{
    return dtype == HS_BF16 ? body(Bf16{}) : body(F16{});
}

/* Keys that their queries do not see: those of a tile with queries down.  query: the warp's first; key: the tile's. */
template <int row_tiles, int column_tiles>
HS_DEVICE void hide_unseen(float (&value)[row_tiles][column_tiles][4], const Attention &attention, int64_t first_row,
                           int query, int key, float with)
{
    const int lane = ptx::thread_anew() % WARP_SIZE, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int m = 0; m < row_tiles; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int start = first_seen(attention, first_row, query + m * 16 + half * 8 + g) - key;
#pragma unroll
            for (int n = 0; n < column_tiles; n++)
#pragma unroll
                for (int i = 2 * half; i < 2 * half + 2; i++)
                    if (n * 8 + 2 * t + i % 2 < start)
                        value[m][n][i] = with;
        }
}

/* Whether some of the warp's queries do not see the tile's first key, and whether none sees its last. */
HS_DEVICE bool cut_by_rule(const Attention &attention, int64_t first_row, int last_query, int key)
{
    return attention.hides && first_seen(attention, first_row, last_query) > key;
}
HS_DEVICE bool hidden_by_rule(const Attention &attention, int64_t first_row, int first_query, int last_key)
{
    return attention.hides && first_seen(attention, first_row, first_query) > last_key;
}

/* Products become capped scores. */
template <int row_tiles, int column_tiles>
HS_DEVICE void cap_scores(float (&score)[row_tiles][column_tiles][4], const Attention &attention)
{
#pragma unroll
    for (int m = 0; m < row_tiles; m++)
#pragma unroll
        for (int n = 0; n < column_tiles; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                score[m][n][i] = capped(attention, score[m][n][i]);
}

} // namespace HS_CUDA_NAMESPACE

#endif
