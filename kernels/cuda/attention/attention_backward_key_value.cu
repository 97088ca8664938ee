/* SPDX-License-Identifier: MIT
 *
 * Attention backward, gradients of keys and values, on the tensor cores.  A block owns a tile of keys of one kv head;
 * it walks the query heads of the group, and in each the query tiles from its diagonal on.  Everything is kept
 * transposed, keys down and queries across, so that probabilities leave one product as the left operand of the next:
 *     P^T = 2^(c K Q^T - lse log2(e))       dV += (F P)^T dO
 *     dP^T = F (V dO^T)                     dS^T = P^T (dP^T - delta)           dK += dS^T Q
 * with the mask's factors F, and  dv = dV,  dk = scale dK.  (F P)^T and dS^T are rounded to the inputs' format for the
 * second products.  One block sums over the whole group in a fixed order: no atomics, the same bits every time.
 *
 * dK and dV of 16 keys take width registers a thread.  Up to width 64 a warp holds 32 keys, up to 128 it holds 16;
 * above, one launch makes dK and another dV, and the scores are computed in both: five products instead of four.
 */
#include "kernels/cuda/attention/attention.cuh"
#include "kernels/cuda/attention/attention_tiles.cuh"

namespace HS_CUDA_NAMESPACE
{

/* What a launch computes. */
enum GradientPart { KEYS_AND_VALUES, KEYS_ALONE, VALUES_ALONE };

/* Shared memory: keys, values, then two buffers each of queries, output gradients and statistics. */
template <typename Shape> struct KeyValueLayout {
    static constexpr int values = Shape::own_bytes, queries = 2 * Shape::own_bytes;
    static constexpr int douts = queries + 2 * Shape::step_bytes, statistics = douts + 2 * Shape::step_bytes;
    static constexpr int statistics_bytes = Shape::step * (int)sizeof(QueryStatistics);
    static constexpr int bytes = statistics + 2 * statistics_bytes;
};

template <int width>
constexpr int key_value_bytes_100 = KeyValueLayout<AttentionShape<KEY_VALUE_KERNEL, ROOM_100, width>>::bytes;
static_assert(key_value_bytes_100<64> <= TWO_BLOCKS_100 && key_value_bytes_100<128> <= TWO_BLOCKS_100, "two blocks");
static_assert(key_value_bytes_100<192> <= MOST_BLOCK_100 && key_value_bytes_100<256> <= MOST_BLOCK_100, "one block");

/* Statistics of a lane's two queries, 2t and 2t + 1 of a column tile. */
HS_DEVICE void load_pair(QueryStatistics (&pair)[2], const QueryStatistics *statistics, int column_tile)
{
    const int t = (int)threadIdx.x % 4;
    const Pack<float, 4> four =
        load_pack<float, 4>(reinterpret_cast<const float *>(statistics + column_tile * 8 + 2 * t));
    pair[0] = { four.value[0], four.value[1] };
    pair[1] = { four.value[2], four.value[3] };
}

/* Scores become probabilities; queries before a key get none.  query_less_key: the tile's first query less the warp's
 * first key; `diagonal`: some pair of the tile is hidden. */
template <int row_tiles, int column_tiles>
HS_DEVICE void column_probabilities(float (&score)[row_tiles][column_tiles][4], const QueryStatistics *statistics,
                                    float scale_log2, bool diagonal, int query_less_key)
{
    const int lane = (int)threadIdx.x % WARP_SIZE, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int n = 0; n < column_tiles; n++) {
        QueryStatistics query[2];
        load_pair(query, statistics, n);
#pragma unroll
        for (int m = 0; m < row_tiles; m++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float exponent = fmaf(score[m][n][i], scale_log2, -query[i % 2].lse_log2);
                const bool hidden = diagonal && query_less_key + n * 8 + 2 * t + i % 2 < m * 16 + i / 2 * 8 + g;
                score[m][n][i] = hidden ? 0.0f : ptx::exp2_approximate(exponent);
            }
    }
}

/* Queries that do not see a key get none: columns from `query` on, the warp's keys from `key` on. */
template <int row_tiles, int column_tiles>
HS_DEVICE void hide_from_later(float (&probability)[row_tiles][column_tiles][4], const Attention &attention,
                               int64_t first_row, int query, int key)
{
    const int lane = (int)threadIdx.x % WARP_SIZE, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int n = 0; n < column_tiles; n++)
#pragma unroll
        for (int odd = 0; odd < 2; odd++) {
            const int start = first_seen(attention, first_row, query + n * 8 + 2 * t + odd) - key;
#pragma unroll
            for (int m = 0; m < row_tiles; m++)
#pragma unroll
                for (int half = 0; half < 2; half++)
                    if (m * 16 + half * 8 + g < start)
                        probability[m][n][2 * half + odd] = 0.0f;
        }
}

/* Dropped probabilities get a minus sign: that remembers the mask at no cost until dS^T wants it. */
template <int row_tiles, int column_tiles>
HS_DEVICE void mark_dropped(float (&probability)[row_tiles][column_tiles][4], const Dropout &dropout,
                            const DropoutHead &head, int query, int key)
{
#pragma unroll
    for (int m = 0; m < row_tiles; m++) {
        const uint32_t kept = keep_key_rows<column_tiles>(dropout, head, query, key + m * 16);
#pragma unroll
        for (int n = 0; n < column_tiles; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                if ((kept >> (4 * n + i) & 1u) == 0)
                    probability[m][n][i] = -probability[m][n][i];
    }
}

/* (F P)^T without the factor 1 / (1 - p), rounded as a left operand. */
template <typename T, int row_tiles, int column_tiles>
HS_DEVICE void round_kept(uint32_t (&weights)[row_tiles][column_tiles / 2][4],
                          const float (&probability)[row_tiles][column_tiles][4])
{
#pragma unroll
    for (int m = 0; m < row_tiles; m++) {
        float kept[column_tiles][4];
#pragma unroll
        for (int n = 0; n < column_tiles; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                kept[n][i] = probability[m][n][i] < 0.0f ? 0.0f : probability[m][n][i];
        round_weights<T>(weights[m], kept);
    }
}

/* dS^T = P^T (F dP^T - delta), of capped scores times 1 - tanh^2 */
template <int row_tiles, int column_tiles>
HS_DEVICE void score_gradients(float (&gradient)[row_tiles][column_tiles][4],
                               const float (&probability)[row_tiles][column_tiles][4],
                               const QueryStatistics *statistics, const Attention &attention)
{
#pragma unroll
    for (int n = 0; n < column_tiles; n++) {
        QueryStatistics query[2];
        load_pair(query, statistics, n);
#pragma unroll
        for (int m = 0; m < row_tiles; m++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float p = probability[m][n][i];
                const float passed = p < 0.0f ? 0.0f : gradient[m][n][i] * attention.dropout.factor;
                gradient[m][n][i] = fabsf(p) * (passed - query[i % 2].delta);
                if (attention.cap_exponent != 0.0f)
                    gradient[m][n][i] *= cap_slope_of_probability(attention, fabsf(p), query[i % 2].lse_log2);
            }
    }
}

template <typename T, typename Shape, GradientPart part, bool ruled>
__global__ void __launch_bounds__(Shape::threads, 2)
    attention_key_value_bwd_kernel(Attention attention, const T *dout, const T *qkv, const QueryStatistics *statistics,
                                   T *dqkv)
{
    begin_after_kernel_before();
    constexpr int width = Shape::width, step = Shape::step, row_tiles = Shape::row_tiles;
    constexpr bool want_keys = part != VALUES_ALONE, want_values = part != KEYS_ALONE;
    using Layout = KeyValueLayout<Shape>;
    HS_DYNAMIC_SHARED(unsigned char, shared);
    const uint32_t keys = ptx::shared_address(shared), values = keys + Layout::values;

    fix_step(attention.dropout);
    fix_rule<ruled>(attention);
    const int kv_head = (int)blockIdx.x % attention.kv_heads, sequence = (int)blockIdx.x / attention.kv_heads;
    const int group = attention.heads / attention.kv_heads, length = attention.length;
    const int first_key = (int)blockIdx.y * Shape::rows; /* the first tiles are seen by the most queries */
    const uint32_t stride = projection_columns(attention), out_stride = result_columns(attention);
    const int64_t first_row = (int64_t)sequence * length;
    const T *const base = qkv + first_row * stride;

    const auto load_step = [&](int head, int query, int buffer) {
        load_tile<width, step, Shape::threads>(keys + (uint32_t)(Layout::queries + buffer * Shape::step_bytes),
                                               base + ((uint32_t)query * stride + query_column(attention, head)),
                                               stride, length - query, attention.head_dim);
        load_tile<width, step, Shape::threads>(keys + (uint32_t)(Layout::douts + buffer * Shape::step_bytes),
                                               dout + (first_row + query) * out_stride + query_column(attention, head),
                                               out_stride, length - query, attention.head_dim);
        /* 16 bytes are two queries; statistics continue behind the last token. */
        if ((int)threadIdx.x < step / 2)
            ptx::copy_async_16(
                keys + (uint32_t)(Layout::statistics + buffer * Layout::statistics_bytes + (int)threadIdx.x * 16),
                statistics + (int64_t)(sequence * attention.heads + head) * statistics_length(length) + query +
                    (int)threadIdx.x * 2,
                16);
        ptx::copy_async_commit();
    };
    load_tile<width, Shape::rows, Shape::threads>(
        keys, base + ((uint32_t)first_key * stride + key_column(attention, kv_head)), stride, length - first_key,
        attention.head_dim);
    if constexpr (want_keys)
        load_tile<width, Shape::rows, Shape::threads>(
            values, base + ((uint32_t)first_key * stride + value_column(attention, kv_head)), stride,
            length - first_key, attention.head_dim);
    load_step(kv_head * group, first_key, 0);

    const int warp = (int)threadIdx.x / WARP_SIZE, warp_key = first_key + warp * Shape::warp_rows;
    const uint32_t warp_bytes = (uint32_t)(warp * Shape::warp_rows * width * 2);
    const uint32_t key_lane = row_lane<width>(keys + warp_bytes);
    const auto key_left = [&](uint32_t(&a)[4], int m, int k) { load_left<width>(a, key_lane, 0, m, k); };
    const auto value_left = [&](uint32_t(&a)[4], int m, int k) { load_left<width>(a, key_lane, Layout::values, m, k); };

    float dkey[want_keys ? row_tiles : 1][width / 8][4], dvalue[want_values ? row_tiles : 1][width / 8][4];
    set_zero(dkey);
    set_zero(dvalue);
    const int end = last_query_end(attention, first_row, first_key + Shape::rows - 1);
    int query = first_key, buffer = 0;
    for (int member = 0; member < group; buffer ^= 1) {
        const int head = kv_head * group + member, here = query;
        query += step;
        if (query >= end) {
            query = first_key;
            member++;
        }
        ptx::copy_async_wait<0>();
        __syncthreads(); /* this tile is there, and no thread reads the other buffer any more */
        if (member < group)
            load_step(kv_head * group + member, query, buffer ^ 1);
        if (here + step <= warp_key || warp_key >= length ||
            hidden_by_rule(attention, first_row, here, warp_key + Shape::warp_rows - 1))
            continue; /* no query of the tile sees a key of this warp */

        const uint32_t query_tile = keys + (uint32_t)(Layout::queries + buffer * Shape::step_bytes);
        const uint32_t column = column_lane<width>(query_tile), row = row_lane<width>(query_tile);
        constexpr int dout_displacement = Layout::douts - Layout::queries;
        const QueryStatistics *const queries =
            reinterpret_cast<const QueryStatistics *>(shared + Layout::statistics + buffer * Layout::statistics_bytes);
        float probability[row_tiles][Shape::step_tiles][4];
        set_zero(probability);
        multiply_rows<T, width, 2>(probability, key_left, column, 0);
        if (attention.cap_exponent != 0.0f)
            cap_scores(probability, attention);
        column_probabilities(probability, queries, attention.scale_log2, here < warp_key + Shape::warp_rows - 1,
                             here - warp_key);
        if (cut_by_rule(attention, first_row, here + step - 1, warp_key))
            hide_from_later(probability, attention, first_row, here, warp_key);

        if (attention.dropout.threshold != 0)
            mark_dropped(probability, attention.dropout,
                         dropout_head(attention.dropout, first_row, attention.heads, head, length), here, warp_key);
        if constexpr (want_values) {
            uint32_t weights[row_tiles][step / 16][4];
            round_kept<T>(weights, probability);
            multiply_weights<T, width>(dvalue, weights, row, dout_displacement);
        }
        if constexpr (want_keys) {
            float gradient[row_tiles][Shape::step_tiles][4];
            set_zero(gradient);
            multiply_rows<T, width, 2>(gradient, value_left, column, dout_displacement);
            score_gradients(gradient, probability, queries, attention);
            uint32_t weights[row_tiles][step / 16][4];
#pragma unroll
            for (int m = 0; m < row_tiles; m++)
                round_weights<T>(weights[m], gradient[m]);
            multiply_weights<T, width>(dkey, weights, row, 0);
        }
    }

    T *const destination = dqkv + (first_row + warp_key) * stride;
    float factors[row_tiles][2];
    if constexpr (want_values) {
#pragma unroll
        for (int m = 0; m < row_tiles; m++)
            factors[m][0] = factors[m][1] = attention.dropout.factor;
        store_rows<T, width>(dvalue, factors, shared + warp_bytes, destination + value_column(attention, kv_head),
                             stride, length - warp_key, attention.head_dim, attention.amax);
    }
    if constexpr (want_keys) {
#pragma unroll
        for (int m = 0; m < row_tiles; m++)
            factors[m][0] = factors[m][1] = attention.scale;
        store_rows<T, width>(dkey, factors, shared + Layout::values + warp_bytes,
                             destination + key_column(attention, kv_head), stride, length - warp_key,
                             attention.head_dim, attention.amax);
    }
}

template <typename T, typename Shape, GradientPart part>
static HsStatus launch(HsContext *context, const Attention &attention, const BackwardTensors &tensors)
{
    const dim3 grid((unsigned)(attention.batch * attention.kv_heads), blocks_for(attention.length, Shape::rows));
    return dispatch_rule(attention.ruled(), [&](auto kind) {
        return hs_launch_after(context,
                               HS_KERNEL((attention_key_value_bwd_kernel<T, Shape, part, decltype(kind)::ruled>)), grid,
                               Shape::threads, KeyValueLayout<Shape>::bytes, attention, data_of<const T>(tensors.dout),
                               data_of<const T>(tensors.qkv), tensors.statistics, data_of<T>(tensors.dqkv));
    });
}

HsStatus attention_backward_key_value_mma(HsContext *context, const Attention &attention,
                                          const BackwardTensors &tensors)
{
    return dispatch_16_bit(tensors.qkv.dtype, [&](auto element) {
        return dispatch_attention_tile<KEY_VALUE_KERNEL>(context, attention.head_dim, [&](auto shape) {
            using T = decltype(element);
            using Shape = decltype(shape);
            if constexpr (Shape::width > 128) {
                HS_TRY((launch<T, Shape, KEYS_ALONE>(context, attention, tensors)));
                return launch<T, Shape, VALUES_ALONE>(context, attention, tensors);
            } else {
                return launch<T, Shape, KEYS_AND_VALUES>(context, attention, tensors);
            }
        });
    });
}

} // namespace HS_CUDA_NAMESPACE
