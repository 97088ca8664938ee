/* SPDX-License-Identifier: MIT
 *
 * Attention backward in f32 multiply-adds: the walks and the mathematics of attention_backward_query.cu and
 * attention_backward_key_value.cu with attention_exact.cuh's tiles.
 */
#include "kernels/cuda/attention/attention_exact.cuh"

namespace HS_CUDA_NAMESPACE
{

template <int width> struct ExactBackwardShape;
template <> struct ExactBackwardShape<64> : ExactShape<64, 64, 32> {
};
template <> struct ExactBackwardShape<128> : ExactShape<128, 32, 32> {
};
template <> struct ExactBackwardShape<256> : ExactShape<256, 32, 8> {
};

/* Shared memory: two tiles of the block's own rows, two of the other side, weights. */
template <typename Shape> constexpr int exact_backward_shared_bytes()
{
    return (2 * Shape::own_floats + 2 * Shape::step_floats + Shape::weight_floats) * (int)sizeof(float);
}

/* p of a pair, and ds = p (f dp - delta) of it. */
HS_DEVICE float pair_probability(const Attention &attention, const QueryStatistics &query, float score, bool hidden)
{
    return hidden ? 0.0f : ptx::exp2_approximate(fmaf(score, attention.scale_log2, -query.lse_log2));
}

template <typename Shape, bool ruled>
__global__ void __launch_bounds__(EXACT_THREADS, 2)
    attention_exact_query_bwd_kernel(Attention attention, ExactSource dout, ExactSource qkv,
                                     const QueryStatistics *statistics, ExactResult dqkv)
{
    begin_after_kernel_before();
    constexpr int rows = Shape::row_count, columns = Shape::column_count;
    HS_DYNAMIC_SHARED(float, queries);
    float *const douts = queries + Shape::own_floats, *const keys = douts + Shape::own_floats;
    float *const values = keys + Shape::step_floats, *const weights = values + Shape::step_floats;

    fix_step(attention.dropout);
    fix_rule<ruled>(attention);
    const int head = (int)blockIdx.x % attention.heads, sequence = (int)blockIdx.x / attention.heads;
    const int first_query = (int)(gridDim.y - 1 - blockIdx.y) * Shape::rows, head_dim = attention.head_dim;
    const int kv_head = head / (attention.heads / attention.kv_heads), length = attention.length;
    const int64_t first_row = (int64_t)sequence * length;
    const uint32_t column = query_column(attention, head);
    const QueryStatistics *const query_statistics =
        statistics + (int64_t)blockIdx.x * statistics_length(length) + first_query + exact_down();
    load_tile_exact<Shape::width, Shape::rows>(queries, qkv, first_row + first_query, column, length - first_query,
                                               head_dim);
    load_tile_exact<Shape::width, Shape::rows>(douts, dout, first_row + first_query, column, length - first_query,
                                               head_dim);

    ExactSum<Shape> dquery;
    set_zero(dquery);
    const int end = min(first_query + Shape::rows, length);
    const int first_key = first_key_tile(attention, first_row, first_query, Shape::step);
    for (int key = first_key; key < end; key += Shape::step) {
        __syncthreads(); /* the last tile has been read */
        load_tile_exact<Shape::width, Shape::step>(keys, qkv, first_row + key, key_column(attention, kv_head),
                                                   length - key, head_dim);
        load_tile_exact<Shape::width, Shape::step>(values, qkv, first_row + key, value_column(attention, kv_head),
                                                   length - key, head_dim);
        finish_tiles();

        float score[rows][columns], gradient[rows][columns];
        multiply_rows_exact<Shape>(score, queries, keys, head_dim);
        if (attention.cap_exponent != 0.0f)
            cap_scores_exact<Shape>(score, attention);
        if (attention.hides)
            hide_unseen_exact<Shape>(score, attention, first_row, first_query, key);
        multiply_rows_exact<Shape>(gradient, douts, values, head_dim);
        uint32_t kept = 0xffffffffu;
        if (attention.dropout.threshold != 0)
            kept = keep_rows_exact<Shape>(attention.dropout,
                                          dropout_head(attention.dropout, first_row, attention.heads, head, length),
                                          first_query, key);
#pragma unroll
        for (int i = 0; i < rows; i++) {
            const QueryStatistics query = query_statistics[i * EXACT_DOWN];
            const int position = first_query + exact_down() + i * EXACT_DOWN;
#pragma unroll
            for (int j = 0; j < columns; j++) {
                const bool hidden = key + exact_across() + j * EXACT_ACROSS > position;
                const float p = pair_probability(attention, query, score[i][j], hidden);
                const float factor = (kept >> (columns * i + j) & 1u) != 0 ? attention.dropout.factor : 0.0f;
                gradient[i][j] = p * fmaf(gradient[i][j], factor, -query.delta);
                if (attention.cap_exponent != 0.0f && p > 0.0f)
                    gradient[i][j] *= cap_slope(attention, score[i][j]);
            }
        }
        share_weights<Shape>(weights, gradient);
        multiply_weights_exact(dquery, weights, keys, head_dim);
    }

    float factor[rows];
#pragma unroll
    for (int i = 0; i < rows; i++)
        factor[i] = attention.scale;
    store_rows_exact(dquery, factor, dqkv, first_row + first_query, column, length - first_query, head_dim);
}

template <typename Shape, bool ruled>
__global__ void __launch_bounds__(EXACT_THREADS, 2)
    attention_exact_key_value_bwd_kernel(Attention attention, ExactSource dout, ExactSource qkv,
                                         const QueryStatistics *statistics, ExactResult dqkv)
{
    begin_after_kernel_before();
    constexpr int rows = Shape::row_count, columns = Shape::column_count;
    HS_DYNAMIC_SHARED(float, keys);
    float *const values = keys + Shape::own_floats, *const queries = values + Shape::own_floats;
    float *const douts = queries + Shape::step_floats, *const weights = douts + Shape::step_floats;

    fix_step(attention.dropout);
    fix_rule<ruled>(attention);
    const int kv_head = (int)blockIdx.x % attention.kv_heads, sequence = (int)blockIdx.x / attention.kv_heads;
    const int first_key = (int)blockIdx.y * Shape::rows, head_dim = attention.head_dim;
    const int group = attention.heads / attention.kv_heads, length = attention.length;
    const int64_t first_row = (int64_t)sequence * length;
    load_tile_exact<Shape::width, Shape::rows>(keys, qkv, first_row + first_key, key_column(attention, kv_head),
                                               length - first_key, head_dim);
    load_tile_exact<Shape::width, Shape::rows>(values, qkv, first_row + first_key, value_column(attention, kv_head),
                                               length - first_key, head_dim);

    const int end = last_query_end(attention, first_row, first_key + Shape::rows - 1);
    ExactSum<Shape> dkey, dvalue;
    set_zero(dkey);
    set_zero(dvalue);
    for (int head = kv_head * group; head < (kv_head + 1) * group; head++) {
        const uint32_t column = query_column(attention, head);
        const QueryStatistics *const query_statistics =
            statistics + (int64_t)(sequence * attention.heads + head) * statistics_length(length) + exact_across();
        for (int query = first_key; query < end; query += Shape::step) {
            __syncthreads(); /* the last tile has been read */
            load_tile_exact<Shape::width, Shape::step>(queries, qkv, first_row + query, column, length - query,
                                                       head_dim);
            load_tile_exact<Shape::width, Shape::step>(douts, dout, first_row + query, column, length - query,
                                                       head_dim);
            finish_tiles();

            float score[rows][columns], gradient[rows][columns];
            multiply_rows_exact<Shape>(score, keys, queries, head_dim);
            if (attention.cap_exponent != 0.0f)
                cap_scores_exact<Shape>(score, attention);
            multiply_rows_exact<Shape>(gradient, values, douts, head_dim);
            uint32_t kept = 0xffffffffu;
            if (attention.dropout.threshold != 0)
                kept = keep_columns_exact<Shape>(
                    attention.dropout, dropout_head(attention.dropout, first_row, attention.heads, head, length), query,
                    first_key);
#pragma unroll
            for (int j = 0; j < columns; j++) {
                const QueryStatistics here = query_statistics[query + j * EXACT_ACROSS];
                const int position = query + exact_across() + j * EXACT_ACROSS;
                const int start = attention.hides ? first_seen(attention, first_row, position) : 0;
#pragma unroll
                for (int i = 0; i < rows; i++) {
                    const int key = first_key + exact_down() + i * EXACT_DOWN;
                    const bool hidden = key > position || key < start;
                    const float p = pair_probability(attention, here, score[i][j], hidden);
                    const float factor = (kept >> (columns * i + j) & 1u) != 0 ? attention.dropout.factor : 0.0f;
                    gradient[i][j] = p * fmaf(gradient[i][j], factor, -here.delta);
                    if (attention.cap_exponent != 0.0f && p > 0.0f)
                        gradient[i][j] *= cap_slope(attention, score[i][j]);
                    score[i][j] = p * factor;
                }
            }
            share_weights<Shape>(weights, score);
            multiply_weights_exact(dvalue, weights, douts, head_dim);
            share_weights<Shape>(weights, gradient);
            multiply_weights_exact(dkey, weights, queries, head_dim);
        }
    }

    float factor[rows];
#pragma unroll
    for (int i = 0; i < rows; i++)
        factor[i] = 1.0f;
    store_rows_exact(dvalue, factor, dqkv, first_row + first_key, value_column(attention, kv_head), length - first_key,
                     head_dim);
#pragma unroll
    for (int i = 0; i < rows; i++)
        factor[i] = attention.scale;
    store_rows_exact(dkey, factor, dqkv, first_row + first_key, key_column(attention, kv_head), length - first_key,
                     head_dim);
}

HsStatus attention_backward_query_exact(HsContext *context, const Attention &attention, const BackwardTensors &tensors)
{
    return dispatch_exact_dim(attention.head_dim, [&](auto dim) {
        using Shape = ExactBackwardShape<decltype(dim)::width>;
        const dim3 grid((unsigned)(attention.batch * attention.heads), blocks_for(attention.length, Shape::rows));
        return dispatch_rule(attention.ruled(), [&](auto kind) {
            return hs_launch_after(context, HS_KERNEL((attention_exact_query_bwd_kernel<Shape, decltype(kind)::ruled>)),
                                   grid, EXACT_THREADS, exact_backward_shared_bytes<Shape>(), attention,
                                   exact_source(tensors.dout, attention), exact_source(tensors.qkv, attention),
                                   tensors.statistics, exact_tensor(tensors.dqkv, attention));
        });
    });
}

HsStatus attention_backward_key_value_exact(HsContext *context, const Attention &attention,
                                            const BackwardTensors &tensors)
{
    return dispatch_exact_dim(attention.head_dim, [&](auto dim) {
        using Shape = ExactBackwardShape<decltype(dim)::width>;
        const dim3 grid((unsigned)(attention.batch * attention.kv_heads), blocks_for(attention.length, Shape::rows));
        return dispatch_rule(attention.ruled(), [&](auto kind) {
            return hs_launch_after(
                context, HS_KERNEL((attention_exact_key_value_bwd_kernel<Shape, decltype(kind)::ruled>)), grid,
                EXACT_THREADS, exact_backward_shared_bytes<Shape>(), attention, exact_source(tensors.dout, attention),
                exact_source(tensors.qkv, attention), tensors.statistics, exact_tensor(tensors.dqkv, attention));
        });
    });
}

} // namespace HS_CUDA_NAMESPACE
