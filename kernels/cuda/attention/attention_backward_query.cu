/* SPDX-License-Identifier: MIT
 *
 * Attention backward, gradients of queries, on the tensor cores.  A block owns a tile of queries of one head and walks
 * the key tiles up to its diagonal, as forward does:
 *     P = 2^(c Q K^T - lse log2(e))     dP = F (dO V^T)     dS = P (dP - delta)     dQ += dS K
 * with the mask's factors F, and  dq = scale dQ;  dS of capped scores is times 1 - tanh^2, which P still knows.  dS is rounded to the inputs' format for the product with K.  One
 * block writes each dq, after a sum in the order of the keys: no atomics, the same bits every time.
 *
 * dQ, P and dP live in registers; Q and dO stay in shared memory and are read again in every step, since registers are
 * what limits the tile: at width 128 dQ alone takes 128 of them with two row tiles a warp, and P and dP of more than 16
 * keys would spill.
 */
#include "kernels/cuda/attention/attention.cuh"
#include "kernels/cuda/attention/attention_tiles.cuh"

namespace HS_CUDA_NAMESPACE
{

/* Shared memory: queries, output gradients, two buffers of keys, two of values, statistics of the queries. */
template <typename Shape> struct QueryGradientLayout {
    static constexpr int douts = Shape::own_bytes, keys = 2 * Shape::own_bytes;
    static constexpr int values = keys + 2 * Shape::step_bytes, statistics = values + 2 * Shape::step_bytes;
    static constexpr int bytes = statistics + Shape::rows * (int)sizeof(QueryStatistics);
};

template <int width>
constexpr int query_bytes_100 = QueryGradientLayout<AttentionShape<QUERY_KERNEL, ROOM_100, width>>::bytes;
static_assert(query_bytes_100<64> <= TWO_BLOCKS_100 && query_bytes_100<128> <= TWO_BLOCKS_100, "two blocks");
static_assert(query_bytes_100<192> <= MOST_BLOCK_100 && query_bytes_100<256> <= MOST_BLOCK_100, "one block");

/* Scores become probabilities; keys after a query get none.  key_less_query: the tile's first key less the warp's first
 * query; `diagonal`: some pair of the tile is hidden; statistics: of the warp's queries. */
template <int row_tiles, int column_tiles>
HS_DEVICE void row_probabilities(float (&score)[row_tiles][column_tiles][4], const QueryStatistics *statistics,
                                 float scale_log2, bool diagonal, int key_less_query)
{
    const int lane = (int)threadIdx.x % WARP_SIZE, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int m = 0; m < row_tiles; m++) {
        const float lse_log2[2] = { statistics[m * 16 + g].lse_log2, statistics[m * 16 + 8 + g].lse_log2 };
#pragma unroll
        for (int n = 0; n < column_tiles; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float exponent = fmaf(score[m][n][i], scale_log2, -lse_log2[i / 2]);
                const bool hidden = diagonal && key_less_query + n * 8 + 2 * t + i % 2 > m * 16 + i / 2 * 8 + g;
                score[m][n][i] = hidden ? 0.0f : ptx::exp2_approximate(exponent);
            }
    }
}

/* dP of dropped pairs is zero, of others 1 / (1 - p) times larger. */
template <int row_tiles, int column_tiles>
HS_DEVICE void drop_row_gradients(float (&gradient)[row_tiles][column_tiles][4], const Dropout &dropout,
                                  const DropoutHead &head, int query, int key)
{
    const int g = (int)threadIdx.x % WARP_SIZE / 4;
#pragma unroll
    for (int m = 0; m < row_tiles; m++) {
        const uint32_t keep = keep_query_rows<column_tiles>(dropout, head, query + m * 16 + g, key);
#pragma unroll
        for (int n = 0; n < column_tiles; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                gradient[m][n][i] = (keep >> (4 * n + i) & 1u) != 0 ? gradient[m][n][i] * dropout.factor : 0.0f;
    }
}

template <typename T, typename Shape, bool ruled>
__global__ void __launch_bounds__(Shape::threads, 2)
    attention_query_bwd_kernel(Attention attention, const T *dout, const T *qkv, const QueryStatistics *statistics,
                               T *dqkv)
{
    begin_after_kernel_before();
    constexpr int width = Shape::width, step = Shape::step, row_tiles = Shape::row_tiles;
    HS_DYNAMIC_SHARED(unsigned char, shared);
    using Layout = QueryGradientLayout<Shape>;
    const uint32_t queries = ptx::shared_address(shared), douts = queries + Layout::douts;
    const uint32_t keys = queries + Layout::keys, values = queries + Layout::values;

    fix_step(attention.dropout);
    fix_rule<ruled>(attention);
    const int head = (int)blockIdx.x % attention.heads, sequence = (int)blockIdx.x / attention.heads;
    const int first_query = (int)(gridDim.y - 1 - blockIdx.y) * Shape::rows;
    const int kv_head = head / (attention.heads / attention.kv_heads), length = attention.length;
    const uint32_t stride = projection_columns(attention), out_stride = result_columns(attention);
    const int64_t first_row = (int64_t)sequence * length;
    const T *const base = qkv + first_row * stride;
    const T *const key_base = base + key_column(attention, kv_head);
    const T *const value_base = base + value_column(attention, kv_head);

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
    load_tile<width, Shape::rows, Shape::threads>(
        douts, dout + (first_row + first_query) * out_stride + query_column(attention, head), out_stride,
        length - first_query, attention.head_dim);
    /* 16 bytes are two queries; statistics continue behind the last token. */
    if ((int)threadIdx.x < Shape::rows / 2)
        ptx::copy_async_16(
            queries + (uint32_t)(Layout::statistics + (int)threadIdx.x * 16),
            statistics + (int64_t)blockIdx.x * statistics_length(length) + first_query + (int)threadIdx.x * 2, 16);
    const int first_key = first_key_tile(attention, first_row, first_query, step);
    load_step(first_key, 0);

    const int warp = (int)threadIdx.x / WARP_SIZE, warp_query = first_query + warp * Shape::warp_rows;
    const uint32_t warp_bytes = (uint32_t)(warp * Shape::warp_rows * width * 2);
    const uint32_t query_lane = row_lane<width>(queries + warp_bytes);
    const auto query_left = [&](uint32_t(&a)[4], int m, int k) { load_left<width>(a, query_lane, 0, m, k); };
    const auto dout_left = [&](uint32_t(&a)[4], int m, int k) { load_left<width>(a, query_lane, Layout::douts, m, k); };
    const DropoutHead mask = dropout_head(attention.dropout, first_row, attention.heads, head, length);
    const QueryStatistics *const rows =
        reinterpret_cast<const QueryStatistics *>(shared + Layout::statistics) + warp * Shape::warp_rows;

    float dquery[row_tiles][width / 8][4];
    set_zero(dquery);
    const int end = min(first_query + Shape::rows, length);
    for (int key = first_key, buffer = 0; key < end; key += step, buffer ^= 1) {
        ptx::copy_async_wait<0>();
        __syncthreads(); /* this tile is there, and no thread reads the other buffer any more */
        if (key + step < end)
            load_step(key + step, buffer ^ 1);
        if (key >= warp_query + Shape::warp_rows || warp_query >= length ||
            hidden_by_rule(attention, first_row, warp_query, key + step - 1))
            continue;

        const uint32_t key_tile = keys + (uint32_t)(buffer * Shape::step_bytes);
        const uint32_t key_lane = column_lane<width>(key_tile);
        float probability[row_tiles][Shape::step_tiles][4], gradient[row_tiles][Shape::step_tiles][4];
        set_zero(probability);
        multiply_rows<T, width, 2>(probability, query_left, key_lane, 0);
        if (attention.cap_exponent != 0.0f)
            cap_scores(probability, attention);
        row_probabilities(probability, rows, attention.scale_log2, key + step - 1 > warp_query, key - warp_query);
        if (cut_by_rule(attention, first_row, warp_query + Shape::warp_rows - 1, key))
            hide_unseen(probability, attention, first_row, warp_query, key, 0.0f);
        set_zero(gradient);
        multiply_rows<T, width, 2>(gradient, dout_left, key_lane, Layout::values - Layout::keys);
        if (attention.dropout.threshold != 0)
            drop_row_gradients(gradient, attention.dropout, mask, warp_query, key);

        uint32_t weights[row_tiles][step / 16][4];
#pragma unroll
        for (int m = 0; m < row_tiles; m++) {
            const int g = (int)threadIdx.x % WARP_SIZE / 4;
            const float delta[2] = { rows[m * 16 + g].delta, rows[m * 16 + 8 + g].delta };
            if (attention.cap_exponent != 0.0f) {
#pragma unroll
                for (int n = 0; n < Shape::step_tiles; n++)
#pragma unroll
                    for (int i = 0; i < 4; i++)
                        probability[m][n][i] *= cap_slope_of_probability(attention, probability[m][n][i],
                                                                         rows[m * 16 + i / 2 * 8 + g].lse_log2);
            }
#pragma unroll
            for (int n = 0; n < Shape::step_tiles; n++)
#pragma unroll
                for (int i = 0; i < 4; i++)
                    probability[m][n][i] *= gradient[m][n][i] - delta[i / 2];
            round_weights<T>(weights[m], probability[m]);
        }
        multiply_weights<T, width>(dquery, weights, row_lane<width>(key_tile), 0);
    }

    float factors[row_tiles][2];
#pragma unroll
    for (int m = 0; m < row_tiles; m++)
        factors[m][0] = factors[m][1] = attention.scale;
    store_rows<T, width>(dquery, factors, shared + warp_bytes,
                         dqkv + (first_row + warp_query) * stride + query_column(attention, head), stride,
                         length - warp_query, attention.head_dim, attention.amax);
}

HsStatus attention_backward_query_mma(HsContext *context, const Attention &attention, const BackwardTensors &tensors)
{
    return dispatch_16_bit(tensors.qkv.dtype, [&](auto element) {
        return dispatch_attention_tile<QUERY_KERNEL>(context, attention.head_dim, [&](auto shape) {
            using T = decltype(element);
            using Shape = decltype(shape);
            const dim3 grid((unsigned)(attention.batch * attention.heads), blocks_for(attention.length, Shape::rows));
            return dispatch_rule(attention.ruled(), [&](auto kind) {
                return hs_launch_after(
                    context, HS_KERNEL((attention_query_bwd_kernel<T, Shape, decltype(kind)::ruled>)), grid,
                    Shape::threads, QueryGradientLayout<Shape>::bytes, attention, data_of<const T>(tensors.dout),
                    data_of<const T>(tensors.qkv), tensors.statistics, data_of<T>(tensors.dqkv));
            });
        });
    });
}

} // namespace HS_CUDA_NAMESPACE
