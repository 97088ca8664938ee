/* SPDX-License-Identifier: MIT
 *
 * The end of attention's backward on Hopper: the f32 sums of dQ, which lie in the order of wgmma's registers, scaled,
 * rounded and put in rows.  The bound is memory: sums are read once, dq is written once.
 *
 * Sums of a query tile are two parts of 64 x 64, halves of its queries (width 64) or of its columns (width 128).  In a
 * part, four floats of a lane are neighbours, then its warp's lanes, then columns by eight, then warps:
 *     [warp][j][lane = 4 g + t]:  rows 16 warp + g and + 8, columns 8 j + 2 t and + 1
 * A thread takes 8 columns of the two rows: four neighbouring lanes, 64 bytes.
 */
#include <type_traits>

#include "kernels/cuda/attention/attention_backward_hopper.cuh"

namespace HS_CUDA_NAMESPACE
{

enum { FINISH_THREADS = 256 };

template <typename T, int width>
__global__ void attention_query_gradient_kernel(Attention attention, const float *sums, int query_tiles, T *dqkv)
{
    begin_after_kernel_before();
    constexpr int step = gradient_step(width), chunks = width / 8;
    const int64_t index = (int64_t)blockIdx.x * FINISH_THREADS + threadIdx.x;
    const int chunk = (int)(index % chunks), g = (int)(index / chunks % 8);
    const int64_t rows = index / chunks / 8; /* sixteen of them */
    const int sixteens = query_tiles * (step / 16), head_index = (int)(rows / sixteens);
    const bool inside =
        head_index < attention.batch * attention.heads; /* else the thread is there for the others' sake */
    const int sequence = head_index / attention.heads, head = head_index % attention.heads;
    const int sixteen = (int)(rows % sixteens), tile = sixteen / (step / 16), of_tile = sixteen % (step / 16);
    const int part = width == 64 ? of_tile / 4 : chunk / 8;
    const float *const source = sums + ((int64_t)head_index * query_tiles + tile) * (GRADIENT_PARTS_BYTES / 4) +
                                part * (GRADIENT_PART_BYTES / 4) + ((of_tile % 4 * 8 + chunk % 8) * 8 + g) * 16;
    Pack<float, 16> lanes = {};
#pragma unroll
    for (int i = 0; i < 4 && inside; i++) {
        const Pack<float, 4> four = load_pack<float, 4>(source + 4 * i);
        for (int k = 0; k < 4; k++)
            lanes.value[4 * i + k] = four.value[k];
    }
    uint32_t most = 0;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int query = sixteen * 16 + half * 8 + g;
        Pack<T, 8> row;
        if (!inside || query >= attention.length || chunk * 8 >= attention.head_dim)
            continue;
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const float value = lanes.value[i / 2 * 4 + half * 2 + i % 2] * attention.scale;
            round_to(row.value[i], value);
            most = larger(most, magnitude_of(value));
        }
        store_pack(dqkv + ((int64_t)sequence * attention.length + query) * projection_columns(attention) +
                       query_column(attention, head) + (uint32_t)chunk * 8,
                   row);
    }
    leave_amax(attention.amax, most);
}

HsStatus attention_backward_finish_queries(HsContext *context, const Attention &attention, const HsTensor &dqkv,
                                           const float *sums, int64_t query_tiles)
{
    const auto launch = [&](auto element, auto width) {
        using T = decltype(element);
        constexpr int columns = decltype(width)::value;
        const int64_t threads =
            (int64_t)attention.batch * attention.heads * query_tiles * gradient_step(columns) / 2 * (columns / 8);
        return hs_launch_after(context, HS_KERNEL((attention_query_gradient_kernel<T, columns>)),
                               blocks_for(threads, FINISH_THREADS), FINISH_THREADS, 0, attention, sums,
                               (int)query_tiles, data_of<T>(dqkv));
    };
    const std::integral_constant<int, 64> half_width;
    const std::integral_constant<int, 128> full_width;
    const bool narrow = attention.head_dim <= 64;
    if (dqkv.dtype == HS_BF16)
        return narrow ? launch(Bf16{}, half_width) : launch(Bf16{}, full_width);
    return narrow ? launch(F16{}, half_width) : launch(F16{}, full_width);
}

} // namespace HS_CUDA_NAMESPACE
