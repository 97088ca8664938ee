/* SPDX-License-Identifier: MIT
 *
 * Attention forward in f32 multiply-adds: attention_forward.cu's walk and mathematics with attention_exact.cuh's tiles.
 * A thread's scores of a row are spread over eight neighbouring lanes, its output columns too.
 */
#include "kernels/cuda/attention/attention_exact.cuh"

namespace HS_CUDA_NAMESPACE
{

template <int width> struct ExactForwardShape;
template <> struct ExactForwardShape<64> : ExactShape<64, 64, 32> {
};
template <> struct ExactForwardShape<128> : ExactShape<128, 64, 32> {
};
template <> struct ExactForwardShape<256> : ExactShape<256, 32, 16> {
};

template <typename Rule> HS_DEVICE float reduce_across(float value)
{
#pragma unroll
    for (int offset = EXACT_ACROSS / 2; offset > 0; offset /= 2)
        value = Rule::combine(value, __shfl_xor_sync(FULL_WARP, value, offset));
    return value;
}

struct LargerOf {
    static __device__ __forceinline__ float combine(float a, float b)
    {
        return fmaxf(a, b);
    }
};
struct SumOf {
    static __device__ __forceinline__ float combine(float a, float b)
    {
        return a + b;
    }
};

template <typename Shape, bool ruled>
__global__ void __launch_bounds__(EXACT_THREADS, 2)
    attention_exact_fwd_kernel(Attention attention, ExactSource qkv, ExactResult out, float *lse)
{
    begin_after_kernel_before();
    constexpr int rows = Shape::row_count, columns = Shape::column_count;
    HS_DYNAMIC_SHARED(float, queries);
    float *const keys = queries + Shape::own_floats, *const values = keys + Shape::step_floats;
    float *const weights = values + Shape::step_floats;

    fix_step(attention.dropout);
    fix_rule<ruled>(attention);
    const int head = (int)blockIdx.x % attention.heads, sequence = (int)blockIdx.x / attention.heads;
    const int first_query = (int)(gridDim.y - 1 - blockIdx.y) * Shape::rows;
    const int kv_head = head / (attention.heads / attention.kv_heads), length = attention.length;
    const int64_t first_row = (int64_t)sequence * length;
    const DropoutHead mask = dropout_head(attention.dropout, first_row, attention.heads, head, length);

    load_tile_exact<Shape::width, Shape::rows>(queries, qkv, first_row + first_query, query_column(attention, head),
                                               length - first_query, attention.head_dim);

    ExactSum<Shape> output;
    set_zero(output);
    float maximum[rows], total[rows];
#pragma unroll
    for (int i = 0; i < rows; i++) {
        maximum[i] = NO_MAXIMUM;
        total[i] = 0.0f;
    }
    const int end = min(first_query + Shape::rows, length);
    const int first_key = first_key_tile(attention, first_row, first_query, Shape::step);
    for (int key = first_key; key < end; key += Shape::step) {
        __syncthreads(); /* the last tile has been read */
        load_tile_exact<Shape::width, Shape::step>(keys, qkv, first_row + key, key_column(attention, kv_head),
                                                   length - key, attention.head_dim);
        load_tile_exact<Shape::width, Shape::step>(values, qkv, first_row + key, value_column(attention, kv_head),
                                                   length - key, attention.head_dim);
        finish_tiles();

        float score[rows][columns];
        multiply_rows_exact<Shape>(score, queries, keys, attention.head_dim);
        if (attention.cap_exponent != 0.0f)
            cap_scores_exact<Shape>(score, attention);
        if (attention.hides)
            hide_unseen_exact<Shape>(score, attention, first_row, first_query, key);
#pragma unroll
        for (int i = 0; i < rows; i++) {
            const int query = first_query + exact_down() + i * EXACT_DOWN;
            float largest = -INFINITY;
#pragma unroll
            for (int j = 0; j < columns; j++) {
                if (key + exact_across() + j * EXACT_ACROSS > query)
                    score[i][j] = -INFINITY;
                largest = fmaxf(largest, score[i][j]);
            }
            const float before = maximum[i];
            maximum[i] = fmaxf(before, reduce_across<LargerOf>(largest) * attention.scale_log2);
            const float shrink = ptx::exp2_approximate(before - maximum[i]);
            float sum = 0.0f;
#pragma unroll
            for (int j = 0; j < columns; j++) {
                score[i][j] = ptx::exp2_approximate(fmaf(score[i][j], attention.scale_log2, -maximum[i]));
                sum += score[i][j];
            }
            total[i] = fmaf(total[i], shrink, sum);
#pragma unroll
            for (int c = 0; c < ExactSum<Shape>::groups; c++)
#pragma unroll
                for (int e = 0; e < 4; e++)
                    output.value[i][c][e] *= shrink;
        }
        if (attention.dropout.threshold != 0) {
            const uint32_t kept = keep_rows_exact<Shape>(attention.dropout, mask, first_query, key);
#pragma unroll
            for (int i = 0; i < rows; i++)
#pragma unroll
                for (int j = 0; j < columns; j++)
                    if ((kept >> (columns * i + j) & 1u) == 0)
                        score[i][j] = 0.0f;
        }
        share_weights<Shape>(weights, score);
        multiply_weights_exact(output, weights, values, attention.head_dim);
    }

    float factor[rows];
#pragma unroll
    for (int i = 0; i < rows; i++) {
        const int query = first_query + exact_down() + i * EXACT_DOWN;
        float sum = reduce_across<SumOf>(total[i]);
        const float shrink = add_sink(attention.sinks, head, maximum[i], sum);
        factor[i] = attention.dropout.factor * shrink / sum;
        if (exact_across() == 0 && query < length)
            lse[(first_row + query) * attention.heads + head] = maximum[i] * (1.0f / LOG2_E) + logf(sum);
    }
    store_rows_exact(output, factor, out, first_row + first_query, query_column(attention, head), length - first_query,
                     attention.head_dim);
}

HsStatus attention_forward_exact(HsContext *context, const Attention &attention, const HsAttentionArgs *args)
{
    return dispatch_exact_dim(attention.head_dim, [&](auto dim) {
        using Shape = ExactForwardShape<decltype(dim)::width>;
        const dim3 grid((unsigned)(attention.batch * attention.heads), blocks_for(attention.length, Shape::rows));
        constexpr int floats = Shape::own_floats + 2 * Shape::step_floats + Shape::weight_floats;
        return dispatch_rule(attention.ruled(), [&](auto kind) {
            return hs_launch_after(context, HS_KERNEL((attention_exact_fwd_kernel<Shape, decltype(kind)::ruled>)), grid,
                                   EXACT_THREADS, floats * sizeof(float), attention, exact_source(args->qkv, attention),
                                   exact_tensor(args->out, attention), data_of<float>(args->lse));
        });
    });
}

} // namespace HS_CUDA_NAMESPACE
