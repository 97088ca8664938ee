/* SPDX-License-Identifier: MIT
 *
 * Attention forward on the tensor cores.  Tiles with the online softmax (Dao 2023, algorithm 1; Milakov &
 * Gimelshein 2018).  A block owns a tile of queries of one head and walks the key tiles up to its diagonal; per tile
 *     S = Q K^T     m' = max(m, max S)     P = 2^(c S - c m')     l = l 2^(c m - c m') + sum P
 *     O = O 2^(c m - c m') + dropout(P) V            at the end  out = O / l,  lse = scale m + log l
 * P is rounded to the inputs' format for the product with V; sums and l are f32 and see P unrounded.
 *
 * Work of a block: 2 rows T D multiply-adds for 4 T D bytes of keys and values from L2, so 128 rows keep L2 far from
 * its limit.  What limits the inner loop, besides the tensor cores, is shared memory (128 bytes a clock): with two row
 * tiles a warp, every fragment of K and V serves two mmas, and up to width 64 Q stays in registers.  From width 192 on
 * the accumulators leave room for one row tile only.
 *
 * Keys and values of the next tile are copied (cp.async) while this one is worked on: two buffers, one barrier a tile.
 */
#include "kernels/cuda/attention/attention.cuh"
#include "kernels/cuda/attention/attention_tiles.cuh"
#include "kernels/cuda/toolbox/ptx_settle.cuh"

namespace HS_CUDA_NAMESPACE
{

/* Shared memory: queries, then two buffers of keys, then two of values. */
template <typename Shape> constexpr int forward_shared_bytes()
{
    return Shape::own_bytes + 4 * Shape::step_bytes;
}
template <int width>
constexpr int forward_bytes_100 = forward_shared_bytes<AttentionShape<FORWARD_KERNEL, ROOM_100, width>>();
static_assert(forward_bytes_100<64> <= TWO_BLOCKS_100 && forward_bytes_100<128> <= TWO_BLOCKS_100, "two blocks");
static_assert(forward_bytes_100<192> <= MOST_BLOCK_100 && forward_bytes_100<256> <= MOST_BLOCK_100, "one block");

/* The running softmax of a thread's rows, 16 m + 8 half + lane / 4 of the warp: c times the maximum, the same in the
 * four lanes of a row, and the sum over this lane's own columns. */
template <int row_tiles> struct OnlineSoftmax {
    float maximum[row_tiles][2], total[row_tiles][2];
};

/* Keys after a query are hidden.  key_of_first: the tile's first key less the warp's first query. */
template <int row_tiles, int column_tiles>
HS_DEVICE void hide_later_keys(float (&score)[row_tiles][column_tiles][4], int key_less_query)
{
    const int lane = ptx::thread_anew() % WARP_SIZE, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int m = 0; m < row_tiles; m++)
#pragma unroll
        for (int n = 0; n < column_tiles; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                if (key_less_query + n * 8 + 2 * t + i % 2 > m * 16 + i / 2 * 8 + g)
                    score[m][n][i] = -INFINITY;
}

/* Scores become probabilities under the new maximum.  Once the first keys have been seen the maximum seldom grows: the
 * output is rescaled only when some row of the warp needs it. */
template <int row_tiles, int column_tiles, int output_tiles>
HS_DEVICE void softmax_step(float (&score)[row_tiles][column_tiles][4], OnlineSoftmax<row_tiles> &softmax,
                            float (&output)[row_tiles][output_tiles][4], float scale_log2)
{
    float shrink[row_tiles][2];
    bool grown = false;
#pragma unroll
    for (int m = 0; m < row_tiles; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float largest = score[m][0][2 * half];
#pragma unroll
            for (int n = 0; n < column_tiles; n++)
                largest = fmaxf(largest, fmaxf(score[m][n][2 * half], score[m][n][2 * half + 1]));
            const float before = softmax.maximum[m][half];
            const float maximum = fmaxf(before, quad_maximum(largest) * scale_log2);
            grown = grown || maximum > before;
            shrink[m][half] = ptx::exp2_approximate(before - maximum);
            softmax.maximum[m][half] = maximum;
            float total = 0.0f;
#pragma unroll
            for (int n = 0; n < column_tiles; n++)
#pragma unroll
                for (int i = 2 * half; i < 2 * half + 2; i++) {
                    score[m][n][i] = ptx::exp2_approximate(fmaf(score[m][n][i], scale_log2, -maximum));
                    total += score[m][n][i];
                }
            softmax.total[m][half] = fmaf(softmax.total[m][half], shrink[m][half], total);
            ptx::settle(softmax.total[m][half]); /* else all scores stay, unrounded, during the product with V */
        }
    if (!__any_sync(FULL_WARP, grown))
        return;
#pragma unroll
    for (int m = 0; m < row_tiles; m++)
#pragma unroll
        for (int d = 0; d < output_tiles; d++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                output[m][d][i] *= shrink[m][i / 2];
}

/* Dropped probabilities become zero; the factor 1 / (1 - p) waits for the end. */
template <int row_tiles, int column_tiles>
HS_DEVICE void drop(float (&score)[row_tiles][column_tiles][4], const Dropout &dropout, const DropoutHead &head,
                    int query, int key)
{
#pragma unroll
    for (int m = 0; m < row_tiles; m++) {
        const int g = ptx::thread_anew() % WARP_SIZE / 4;
        const uint32_t keep = keep_query_rows<column_tiles>(dropout, head, query + m * 16 + g, key);
#pragma unroll
        for (int n = 0; n < column_tiles; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                if ((keep >> (4 * n + i) & 1u) == 0)
                    score[m][n][i] = 0.0f;
    }
}

template <typename T, typename Shape, bool ruled>
__global__ void __launch_bounds__(Shape::threads, 2)
    attention_forward_kernel(Attention attention, const T *qkv, T *out, float *lse)
{
    begin_after_kernel_before();
    constexpr int width = Shape::width, step = Shape::step, row_tiles = Shape::row_tiles;
    constexpr bool resident = width <= 64;
    HS_DYNAMIC_SHARED(unsigned char, shared);
    const uint32_t queries = ptx::shared_address(shared), keys = queries + Shape::own_bytes;
    const uint32_t values = keys + 2 * Shape::step_bytes;

    /* The last tiles see the most keys: they start first, so that blocks finish together. */
    fix_step(attention.dropout);
    fix_rule<ruled>(attention);
    const int head = (int)blockIdx.x % attention.heads, sequence = (int)blockIdx.x / attention.heads;
    const int first_query = (int)(gridDim.y - 1 - blockIdx.y) * Shape::rows;
    const int kv_head = head / (attention.heads / attention.kv_heads), length = attention.length;
    const uint32_t stride = projection_columns(attention);
    const int64_t first_row = (int64_t)sequence * length;
    const T *const base = qkv + first_row * stride;
    const T *const key_base = base + key_column(attention, kv_head), *const value_base =
                                                                         base + value_column(attention, kv_head);

    const auto load_step = [&](int key, int buffer) {
        load_tile<width, step, Shape::threads>(keys + (uint32_t)(buffer * Shape::step_bytes),
                                               key_base + (uint32_t)key * stride, stride, length - key,
                                               attention.head_dim);
        load_tile<width, step, Shape::threads>(values + (uint32_t)(buffer * Shape::step_bytes),
                                               value_base + (uint32_t)key * stride, stride, length - key,
                                               attention.head_dim);
        ptx::copy_async_commit();
    };
    load_tile<width, Shape::rows, Shape::threads>(
        queries, base + ((uint32_t)first_query * stride + query_column(attention, head)), stride, length - first_query,
        attention.head_dim);
    if constexpr (resident)
        ptx::copy_async_commit(); /* a separate group: they are waited for alone */
    const int first_key = first_key_tile(attention, first_row, first_query, step);
    load_step(first_key, 0);

    const int warp = warp_number();
    const int warp_query = first_query + warp * Shape::warp_rows;
    const uint32_t query_lane = row_lane<width>(queries + (uint32_t)(warp * Shape::warp_rows * width * 2));
    const DropoutHead mask = dropout_head(attention.dropout, first_row, attention.heads, head, length);

    uint32_t query_fragments[resident ? row_tiles : 1][resident ? width / 16 : 1][4];
    if constexpr (resident) { /* while the first keys are on their way */
        ptx::copy_async_wait<1>();
        __syncthreads();
#pragma unroll
        for (int m = 0; m < row_tiles; m++)
#pragma unroll
            for (int k = 0; k < width / 16; k++)
                load_left<width>(query_fragments[m][k], query_lane, 0, m, k);
    }
    const auto left = [&](uint32_t(&a)[4], int m, int k) {
        if constexpr (resident)
            for (int i = 0; i < 4; i++)
                a[i] = query_fragments[m][k][i];
        else
            load_left<width>(a, query_lane, 0, m, k);
    };

    float output[row_tiles][width / 8][4];
    set_zero(output);
    OnlineSoftmax<row_tiles> softmax;
#pragma unroll
    for (int m = 0; m < row_tiles; m++)
        for (int half = 0; half < 2; half++) {
            softmax.maximum[m][half] = NO_MAXIMUM;
            softmax.total[m][half] = 0.0f;
        }

    const int end = min(first_query + Shape::rows, length); /* keys that any query of the block sees */
    for (int key = first_key, buffer = 0; key < end; key += step, buffer ^= 1) {
        ptx::copy_async_wait<0>();
        __syncthreads(); /* this tile is there, and no thread reads the other buffer any more */
        if (key + step < end)
            load_step(key + step, buffer ^ 1);
        if (key >= warp_query + Shape::warp_rows || warp_query >= length ||
            hidden_by_rule(attention, first_row, warp_query, key + step - 1))
            continue; /* nothing here that this warp's queries see */

        float score[row_tiles][Shape::step_tiles][4];
        set_zero(score);
        multiply_rows<T, width, resident ? width / 16 : 2>(
            score, left, column_lane<width>(keys + (uint32_t)(buffer * Shape::step_bytes)), 0);
        if (attention.cap_exponent != 0.0f)
            cap_scores(score, attention);
        if (key + step - 1 > warp_query)
            hide_later_keys(score, key - warp_query);
        if (cut_by_rule(attention, first_row, warp_query + Shape::warp_rows - 1, key))
            hide_unseen(score, attention, first_row, warp_query, key, -INFINITY);
        softmax_step(score, softmax, output, attention.scale_log2);
        if (attention.dropout.threshold != 0)
            drop(score, attention.dropout, mask, warp_query, key);
        uint32_t weights[row_tiles][step / 16][4];
#pragma unroll
        for (int m = 0; m < row_tiles; m++)
            round_weights<T>(weights[m], score[m]);
        multiply_weights<T, width>(output, weights, row_lane<width>(values + (uint32_t)(buffer * Shape::step_bytes)),
                                   0);
    }

    const int lane = ptx::thread_anew() % WARP_SIZE;
    float factors[row_tiles][2];
#pragma unroll
    for (int m = 0; m < row_tiles; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float total = quad_sum(softmax.total[m][half]);
            const int query = warp_query + m * 16 + half * 8 + lane / 4;
            const float shrink = add_sink(attention.sinks, head, softmax.maximum[m][half], total);
            factors[m][half] = attention.dropout.factor * shrink / total;
            if (lane % 4 == 0 && query < length)
                lse[(first_row + query) * attention.heads + head] =
                    softmax.maximum[m][half] * (1.0f / LOG2_E) + logf(total);
        }
    /* The warp's own queries have been read: its results take their place on the way out. */
    const uint32_t out_stride = result_columns(attention);
    store_rows<T, width>(output, factors, shared + warp * Shape::warp_rows * width * 2,
                         out + (first_row + warp_query) * out_stride + query_column(attention, head), out_stride,
                         length - warp_query, attention.head_dim, attention.amax);
}

HsStatus attention_forward_mma(HsContext *context, const Attention &attention, const HsAttentionArgs *args)
{
    return dispatch_16_bit(args->qkv.dtype, [&](auto element) {
        return dispatch_attention_tile<FORWARD_KERNEL>(context, attention.head_dim, [&](auto shape) {
            using T = decltype(element);
            using Shape = decltype(shape);
            const dim3 grid((unsigned)(attention.batch * attention.heads), blocks_for(attention.length, Shape::rows));
            return dispatch_rule(attention.ruled(), [&](auto kind) {
                return hs_launch_after(context, HS_KERNEL((attention_forward_kernel<T, Shape, decltype(kind)::ruled>)),
                                       grid, Shape::threads, forward_shared_bytes<Shape>(), attention,
                                       data_of<const T>(args->qkv), data_of<T>(args->out), data_of<float>(args->lse));
            });
        });
    });
}

} // namespace HS_CUDA_NAMESPACE
