/* SPDX-License-Identifier: MIT
 *
 * Token and position embeddings (Radford et al. 2019: both learned, added):
 *     y[n,c] = factor token_table[tokens[n],c] + position_table[start + n mod T - starts[n], c]
 * Bound by memory: a table row read, a position row from L2 (sequences share it), a row written.  A thread makes the
 * same four columns of several rows: reading the token and then its table row are two waits, which the rows share.
 */
#include "kernels/cuda/toolbox/documents.cuh"
#include "kernels/cuda/toolbox/quad.cuh"

namespace HS_CUDA_NAMESPACE
{

namespace
{

enum { ROWS_PER_THREAD = 4 };

/* Columns column .. column + 3 of rows n .. n + count - 1. */
template <bool whole, typename Table, typename Position, typename Y>
HS_DEVICE void embed_quads(const int32_t *tokens, const Table *token_table, float factor,
                           const Position *position_table, const int32_t *starts, uint32_t sequence_length,
                           int64_t position_start, Y *y, int64_t n, int count, int64_t columns, int64_t column,
                           int left)
{
    Pack<Table, QUAD> token[ROWS_PER_THREAD];
    Pack<Position, QUAD> position[ROWS_PER_THREAD] = {};
    int64_t token_row[ROWS_PER_THREAD] = {};
#pragma unroll
    for (int r = 0; r < ROWS_PER_THREAD; r++)
        if (r < count)
            token_row[r] = tokens[n + r];
#pragma unroll
    for (int r = 0; r < ROWS_PER_THREAD; r++) {
        token[r] = load_quad<whole>(token_table + token_row[r] * columns, column, left);
        const int64_t row = n + (r < count ? r : 0);
        const int64_t position_row =
            position_start + (uint32_t)row % sequence_length - (starts != nullptr ? starts[row] : 0);
        if (position_table != nullptr)
            position[r] = load_quad<whole>(position_table + position_row * columns, column, left);
    }
#pragma unroll
    for (int r = 0; r < ROWS_PER_THREAD; r++) {
        Pack<Y, QUAD> sum;
#pragma unroll
        for (int j = 0; j < QUAD; j++) {
            const float value = to_float(token[r].value[j]);
            round_to(sum.value[j],
                     position_table != nullptr ? fmaf(factor, value, to_float(position[r].value[j])) : factor * value);
        }
        if (r < count)
            store_quad<whole>(y + (n + r) * columns, column, left, sum);
    }
}

/* aligned: all rows begin at whole quads; documents: there are starts. */
template <typename Table, typename Position, typename Y, bool documents>
__global__ void __launch_bounds__(QUAD_THREADS)
    embedding_fwd_kernel(const int32_t *tokens, const Table *token_table, float factor, const Position *position_table,
                         const int32_t *starts, uint32_t sequence_length, int64_t position_start, Y *y, int64_t rows,
                         int64_t columns, bool aligned)
{
    begin_after_kernel_before();
    const int64_t n = row_index() * ROWS_PER_THREAD, column = row_column(), left = columns - column;
    const int count = rows - n < ROWS_PER_THREAD ? (int)(rows - n) : (int)ROWS_PER_THREAD;
    if (count <= 0 || left <= 0)
        return;
    if (!documents)
        starts = nullptr; /* known when compiling */
    if (aligned)
        embed_quads<true>(tokens, token_table, factor, position_table, starts, sequence_length, position_start, y, n,
                          count, columns, column, QUAD);
    else
        embed_quads<false>(tokens, token_table, factor, position_table, starts, sequence_length, position_start, y, n,
                           count, columns, column, left < QUAD ? (int)left : (int)QUAD);
}

} // namespace

HsStatus op::embedding_forward(HsContext *context, const HsEmbeddingArgs *args)
{
    const int64_t rows = args->y.shape[0], columns = args->y.shape[1];
    const bool aligned = columns % QUAD == 0 && quad_aligned(args->token_table) && quad_aligned(args->position_table) &&
                         quad_aligned(args->y);
    const RowBlocks blocks = row_blocks((rows + ROWS_PER_THREAD - 1) / ROWS_PER_THREAD, columns);
    if (rows > INT32_MAX)
        return hs_fail(HS_EUNSUPPORTED, "embedding_forward: %lld rows are more than an int32 counts", (long long)rows);
    /* without positions their type is of no matter */
    const HsDtype position_dtype =
        hs_tensor_present(&args->position_table) ? args->position_table.dtype : args->token_table.dtype;
    return dispatch_act(args->token_table.dtype, [&](auto token_element) {
        return dispatch_act(position_dtype, [&](auto position_element) {
            return dispatch_act(args->y.dtype, [&](auto out_element) {
                using Table = decltype(token_element);
                using Position = decltype(position_element);
                using Y = decltype(out_element);
                return dispatch_documents(hs_tensor_present(&args->starts), [&](auto kind) {
                    return hs_launch_after(
                        context, HS_KERNEL((embedding_fwd_kernel<Table, Position, Y, decltype(kind)::documents>)),
                        blocks.grid, blocks.block, 0, (const int32_t *)data_of<int32_t>(args->tokens),
                        (const Table *)data_of<Table>(args->token_table), args->factor,
                        (const Position *)optional_data<Position>(args->position_table),
                        (const int32_t *)optional_data<int32_t>(args->starts), (uint32_t)args->sequence_length,
                        args->position_start, data_of<Y>(args->y), rows, columns, aligned);
                });
            });
        });
    });
}

} // namespace HS_CUDA_NAMESPACE
