/* SPDX-License-Identifier: MIT
 *
 * Attention in f32 multiply-adds, for f32 tensors and for every shape and mixture of dtypes that the tensor cores do
 * not take.  The same three walks over tiles as there, with one pair of products for a block of 128 threads (16 down, 8
 * across), f32 rows in shared memory:
 *     multiply_rows_exact     sum[i][j] += A[row i] . B[row j]     a thread: rows y + 16 i and x + 8 j
 *     multiply_weights_exact  sum[i][c] += W[row i] B[.][c]        a thread: rows y + 16 i, columns 4 x + 32 c to +3
 * Rows lie `width` + 4 floats apart: eight neighbouring rows, read four floats at a time, then cover all 32 banks once.
 * W passes through shared memory, but its rows belong to one warp (y), so a warp's barrier is enough.
 */
#ifndef HS_KERNELS_CUDA_ATTENTION_ATTENTION_EXACT_CUH
#define HS_KERNELS_CUDA_ATTENTION_ATTENTION_EXACT_CUH

#include "kernels/cuda/attention/attention.cuh"
#include "kernels/cuda/attention/attention_element.cuh"
#include "kernels/cuda/toolbox/ptx_copy.cuh"

namespace HS_CUDA_NAMESPACE
{

enum { EXACT_DOWN = 16, EXACT_ACROSS = 8, EXACT_THREADS = EXACT_DOWN * EXACT_ACROSS };

/* A block owns `rows` rows and steps through the other side `step` rows at a time. */
template <int width_, int rows_, int step_> struct ExactShape {
    static constexpr int width = width_, rows = rows_, step = step_;
    static constexpr int pitch = width + 4, weight_pitch = step + 4;
    static constexpr int row_count = rows / EXACT_DOWN, column_count = step / EXACT_ACROSS; /* of a thread */
    static constexpr int own_floats = rows * pitch, step_floats = step * pitch, weight_floats = rows * weight_pitch;
};

/* Rows of a tensor, and how to move them. */
template <typename Pointer> struct ExactTensor {
    Pointer data;
    HsDtype dtype;
    bool chunks;     /* rows are f32 in whole aligned 16-byte chunks, and are moved as such */
    uint32_t stride; /* elements from row to row */
};
using ExactSource = ExactTensor<const void *>;
using ExactResult = ExactTensor<void *>;

static inline ExactResult exact_tensor(const HsTensor &tensor, const Attention &attention)
{
    const bool chunks = tensor.dtype == HS_F32 && attention.head_dim % 4 == 0 && aligned_to(tensor.data, 16);
    return { tensor.data, tensor.dtype, chunks, (uint32_t)tensor.shape[1] };
}

static inline ExactSource exact_source(const HsTensor &tensor, const Attention &attention)
{
    const ExactResult result = exact_tensor(tensor, attention);
    return { result.data, result.dtype, result.chunks, result.stride };
}

/* Fill a tile from row `first_row`, column `first_column` on; rows from `valid_rows` and columns from `columns` on are
 * zeros.  Ends with copies in flight. */
template <int width, int rows>
HS_DEVICE void load_tile_exact(float *tile, const ExactSource &source, int64_t first_row, uint32_t first_column,
                               int valid_rows, int columns)
{
    constexpr int chunks = width / 4;
    for (int index = (int)threadIdx.x; index < rows * chunks; index += EXACT_THREADS) {
        const int row = index / chunks, column = index % chunks * 4;
        const int64_t at = (first_row + row) * source.stride + first_column + column;
        float *const destination = tile + row * (width + 4) + column;
        const bool inside = row < valid_rows && column < columns;
        if (source.chunks) {
            const float *const elements = static_cast<const float *>(source.data);
            ptx::copy_async_16(ptx::shared_address(destination), inside ? elements + at : elements, inside ? 16 : 0);
            continue;
        }
        for (int i = 0; i < 4; i++)
            destination[i] = inside && column + i < columns ? load_any(source.data, source.dtype, at + i) : 0.0f;
    }
    ptx::copy_async_commit();
}

/* Every copy and every store of tiles is visible to the block. */
HS_DEVICE void finish_tiles()
{
    ptx::copy_async_wait<0>();
    __syncthreads();
}

HS_DEVICE int exact_down()
{
    return (int)threadIdx.x / EXACT_ACROSS;
}

HS_DEVICE int exact_across()
{
    return (int)threadIdx.x % EXACT_ACROSS;
}

template <typename Shape>
HS_DEVICE void multiply_rows_exact(float (&sum)[Shape::row_count][Shape::column_count], const float *a, const float *b,
                                   int columns)
{
    constexpr int pitch = Shape::pitch;
#pragma unroll
    for (int i = 0; i < Shape::row_count; i++)
#pragma unroll
        for (int j = 0; j < Shape::column_count; j++)
            sum[i][j] = 0.0f;
#pragma unroll 2
    for (int d = 0; d < columns; d += 4) {
        Pack<float, 4> left[Shape::row_count], right[Shape::column_count];
#pragma unroll
        for (int i = 0; i < Shape::row_count; i++)
            left[i] = load_pack<float, 4>(a + (exact_down() + i * EXACT_DOWN) * pitch + d);
#pragma unroll
        for (int j = 0; j < Shape::column_count; j++)
            right[j] = load_pack<float, 4>(b + (exact_across() + j * EXACT_ACROSS) * pitch + d);
#pragma unroll
        for (int i = 0; i < Shape::row_count; i++)
#pragma unroll
            for (int j = 0; j < Shape::column_count; j++)
#pragma unroll
                for (int k = 0; k < 4; k++)
                    sum[i][j] = fmaf(left[i].value[k], right[j].value[k], sum[i][j]);
    }
}

/* Scores of keys that their queries do not see. */
template <typename Shape>
HS_DEVICE void hide_unseen_exact(float (&score)[Shape::row_count][Shape::column_count], const Attention &attention,
                                 int64_t first_row, int first_query, int key)
{
#pragma unroll
    for (int i = 0; i < Shape::row_count; i++) {
        const int start = first_seen(attention, first_row, first_query + exact_down() + i * EXACT_DOWN);
#pragma unroll
        for (int j = 0; j < Shape::column_count; j++)
            if (key + exact_across() + j * EXACT_ACROSS < start)
                score[i][j] = -INFINITY;
    }
}

/* Products become capped scores. */
template <typename Shape>
HS_DEVICE void cap_scores_exact(float (&score)[Shape::row_count][Shape::column_count], const Attention &attention)
{
#pragma unroll
    for (int i = 0; i < Shape::row_count; i++)
#pragma unroll
        for (int j = 0; j < Shape::column_count; j++)
            score[i][j] = capped(attention, score[i][j]);
}

/* The block's weights, to be read along their rows. */
template <typename Shape>
HS_DEVICE void share_weights(float *weights, const float (&value)[Shape::row_count][Shape::column_count])
{
    __syncwarp(); /* whatever stood there has been read */
#pragma unroll
    for (int i = 0; i < Shape::row_count; i++)
#pragma unroll
        for (int j = 0; j < Shape::column_count; j++)
            weights[(exact_down() + i * EXACT_DOWN) * Shape::weight_pitch + exact_across() + j * EXACT_ACROSS] =
                value[i][j];
    __syncwarp();
}

/* A thread's part of rows x width: 4 columns for each 32. */
template <typename Shape> struct ExactSum {
    static constexpr int groups = Shape::width / 32;
    float value[Shape::row_count][groups][4];
};

template <typename Shape>
HS_DEVICE void multiply_weights_exact(ExactSum<Shape> &sum, const float *weights, const float *b, int columns)
{
#pragma unroll 1
    for (int k = 0; k < Shape::step; k += 4) {
        Pack<float, 4> left[Shape::row_count];
#pragma unroll
        for (int i = 0; i < Shape::row_count; i++)
            left[i] = load_pack<float, 4>(weights + (exact_down() + i * EXACT_DOWN) * Shape::weight_pitch + k);
#pragma unroll
        for (int c = 0; c < ExactSum<Shape>::groups; c++) {
            if (c * 32 >= columns)
                break;
#pragma unroll
            for (int depth = 0; depth < 4; depth++) {
                const Pack<float, 4> right =
                    load_pack<float, 4>(b + (k + depth) * Shape::pitch + c * 32 + exact_across() * 4);
#pragma unroll
                for (int i = 0; i < Shape::row_count; i++)
#pragma unroll
                    for (int e = 0; e < 4; e++)
                        sum.value[i][c][e] = fmaf(left[i].value[depth], right.value[e], sum.value[i][c][e]);
            }
        }
    }
}

template <typename Shape> HS_DEVICE void set_zero(ExactSum<Shape> &sum)
{
#pragma unroll
    for (int i = 0; i < Shape::row_count; i++)
#pragma unroll
        for (int c = 0; c < ExactSum<Shape>::groups; c++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                sum.value[i][c][e] = 0.0f;
}

template <typename Shape>
HS_DEVICE void store_rows_exact(const ExactSum<Shape> &sum, const float (&factor)[Shape::row_count],
                                const ExactResult &result, int64_t first_row, uint32_t first_column, int valid_rows,
                                int columns)
{
#pragma unroll
    for (int i = 0; i < Shape::row_count; i++)
#pragma unroll
        for (int c = 0; c < ExactSum<Shape>::groups; c++) {
            const int row = exact_down() + i * EXACT_DOWN, column = c * 32 + exact_across() * 4;
            if (row >= valid_rows || column >= columns)
                continue;
            const int64_t at = (first_row + row) * result.stride + first_column + column;
            Pack<float, 4> values;
#pragma unroll
            for (int e = 0; e < 4; e++)
                values.value[e] = sum.value[i][c][e] * factor[i];
            if (result.chunks)
                store_pack(static_cast<float *>(result.data) + at, values);
            else
#pragma unroll
                for (int e = 0; e < 4; e++)
                    if (column + e < columns)
                        store_any(result.data, result.dtype, at + e, values.value[e]);
        }
}

/* Which pairs dropout keeps, with queries down and keys across: bit column_count * i + j for the thread's pair (i, j).
 * Threads side by side hold neighbouring keys; four of them share draws (attention_dropout.cuh). */
template <typename Shape>
HS_DEVICE uint32_t keep_rows_exact(const Dropout &dropout, const DropoutHead &head, int first_query, int first_key)
{
    constexpr int rows = Shape::row_count, columns = Shape::column_count;
    static_assert(rows <= 4 && rows * columns <= 32, "a square has four rows, the mask 32 bits");
    const int x = exact_across(), rank = x % 4;
    uint32_t bits = 0;
#pragma unroll 1
    for (int j = 0; j < columns; j++) {
        const int key = first_key + x + j * EXACT_ACROSS;
        if (dropout.aligned) {
            const int query = first_query + exact_down() + rank * EXACT_DOWN;
            const uint32_t square = keep_square<1>(dropout, head.element(query, key - rank), rank) >> rank;
            for (int i = 0; i < rows; i++)
                bits |= (square >> (4 * i) & 1u) << (columns * i + j);
        } else {
            for (int i = 0; i < rows; i++)
                bits |= keep_bit(dropout, head.element(first_query + exact_down() + i * EXACT_DOWN, key))
                        << (columns * i + j);
        }
    }
    return bits;
}

/* The same with keys down and queries across. */
template <typename Shape>
HS_DEVICE uint32_t keep_columns_exact(const Dropout &dropout, const DropoutHead &head, int first_query, int first_key)
{
    constexpr int rows = Shape::row_count, columns = Shape::column_count;
    static_assert(columns <= 4 && rows * columns <= 32, "a square has four rows, the mask 32 bits");
    const int y = exact_down(), rank = y % 4;
    uint32_t bits = 0;
#pragma unroll 1
    for (int i = 0; i < rows; i++) {
        const int key = first_key + y + i * EXACT_DOWN;
        if (dropout.aligned) {
            const int query = first_query + exact_across() + rank * EXACT_ACROSS;
            const uint32_t square = keep_square<8>(dropout, head.element(query, key - rank), rank) >> rank;
            for (int j = 0; j < columns; j++)
                bits |= (square >> (4 * j) & 1u) << (columns * i + j);
        } else {
            for (int j = 0; j < columns; j++)
                bits |= keep_bit(dropout, head.element(first_query + exact_across() + j * EXACT_ACROSS, key))
                        << (columns * i + j);
        }
    }
    return bits;
}

/* Calls body(ExactDim<w>{}) with the smallest width that holds a head. */
template <int width_> struct ExactDim {
    static constexpr int width = width_;
};
template <typename Body> HsStatus dispatch_exact_dim(int head_dim, Body &&body)
{
    if (head_dim <= 64)
        return body(ExactDim<64>{});
    if (head_dim <= 128)
        return body(ExactDim<128>{});
    return body(ExactDim<256>{});
}

} // namespace HS_CUDA_NAMESPACE

#endif
