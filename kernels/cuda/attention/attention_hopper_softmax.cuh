/* SPDX-License-Identifier: MIT
 *
 * What a consumer of the Hopper forward does with its registers, between two products of a warpgroup: the mask, the
 * online softmax, dropout, and the way out.  Sums are in wgmma's layout (ptx_wgmma.cuh): register i of a thread is in
 * row 8 (i / 2 % 2) + lane / 4 of its warp's 16 and column 8 (i / 4) + 2 (lane % 4) + i % 2.
 */
#ifndef HS_KERNELS_CUDA_ATTENTION_ATTENTION_HOPPER_SOFTMAX_CUH
#define HS_KERNELS_CUDA_ATTENTION_ATTENTION_HOPPER_SOFTMAX_CUH

#include "kernels/cuda/attention/attention_hopper.cuh"
#include "kernels/cuda/attention/attention_tile.cuh"

namespace HS_CUDA_NAMESPACE
{

/* The running softmax of a thread's rows, 8 half + lane / 4 of its warp's 16: c times the maximum, the same in the four
 * lanes of a row, and the sum over this lane's own columns. */
struct RunningSoftmax {
    float maximum[2], total[2];
};

/* On the diagonal: keys after a query are hidden.  row: of the tile, of the thread's first half. */
template <int count> HS_DEVICE void hide_later_columns(float (&score)[count], int row)
{
    const int p = (int)threadIdx.x % 4;
#pragma unroll
    for (int i = 0; i < count; i++)
        if (i / 4 * 8 + 2 * p + i % 2 > row + i / 2 % 2 * 8)
            score[i] = -INFINITY;
}

/* Scores become probabilities under the new maximum, shrink = 2^(c m - c m').  Returns whether a row of this warp needs
 * it.  A scheduler has two such warps, too few to hide latency: four chains a row for maximum and sum. */
template <int count>
HS_DEVICE bool softmax_step(float (&score)[count], RunningSoftmax &rows, float (&shrink)[2], float scale_log2)
{
    constexpr int chains = 4;
    bool grown = false;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float largest[chains], total[chains];
#pragma unroll
        for (int n = 0; n < count / 4; n++) {
            const float pair = fmaxf(score[4 * n + 2 * half], score[4 * n + 2 * half + 1]);
            largest[n % chains] = n < chains ? pair : fmaxf(largest[n % chains], pair);
        }
        const float own = fmaxf(fmaxf(largest[0], largest[1]), fmaxf(largest[2], largest[3]));
        const float before = rows.maximum[half], maximum = fmaxf(before, quad_maximum(own) * scale_log2);
        grown = grown || maximum > before;
        shrink[half] = ptx::exp2_approximate(before - maximum);
        rows.maximum[half] = maximum;
#pragma unroll
        for (int n = 0; n < count / 4; n++) {
            float *const pair = score + 4 * n + 2 * half;
            pair[0] = ptx::exp2_approximate(fmaf(pair[0], scale_log2, -maximum));
            pair[1] = ptx::exp2_approximate(fmaf(pair[1], scale_log2, -maximum));
            total[n % chains] = n < chains ? pair[0] + pair[1] : total[n % chains] + (pair[0] + pair[1]);
        }
        rows.total[half] = fmaf(rows.total[half], shrink[half], (total[0] + total[1]) + (total[2] + total[3]));
    }
    return __any_sync(FULL_WARP, grown);
}

/* Which of a thread's probabilities are kept, a bit each; query: of the thread's first half.  Drawn before the products
 * are issued, when no scores are in the way of the generator's registers.  `dropout` is in shared memory, where it is
 * read anew for every step: kept in registers, it and the round keys made of it would be spilt. */
template <int count>
HS_DEVICE void draw_mask(uint32_t (&keep)[count], const Dropout *dropout, const Attention &attention, int sequence,
                         int head, int query, int key)
{
    const Dropout own = *dropout;
    const DropoutHead mask =
        dropout_head(own, (int64_t)sequence * attention.length, attention.heads, head, attention.length);
#pragma unroll
    for (int i = 0; i < count; i++)
        keep[i] = keep_query_rows<8>(own, mask, query, key + i * 64);
}

/* Dropped probabilities become zero; the factor 1 / (1 - p) waits for the end. */
template <int count> HS_DEVICE void drop_columns(float (&score)[count], const uint32_t (&keep)[count / 32])
{
#pragma unroll
    for (int i = 0; i < count; i++)
        if ((keep[i / 32] >> i % 32 & 1u) == 0)
            score[i] = 0.0f;
}

/* 64 rows, each times its factor, rounded into lines that a tensor copy with the 128-byte swizzle takes away.  row: of
 * the thread's first half. */
template <typename T, typename Result>
HS_DEVICE void stage_results(const float (&sum)[Result::width / 2], const float (&factors)[2], unsigned char *result,
                             int row)
{
    const int p = (int)threadIdx.x % 4;
#pragma unroll
    for (int n = 0; n < Result::width / 8; n++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            /* row % 8 is the same in both halves */
            const int offset =
                n / 8 * Result::box_bytes + (row + 8 * half) * HEAD_LINE + (n % 8 ^ row % 8) * 16 + p * 4;
            *reinterpret_cast<uint32_t *>(result + offset) =
                pack_pair<T>(sum[4 * n + 2 * half] * factors[half], sum[4 * n + 2 * half + 1] * factors[half]);
        }
}

/* Of what the warp has staged so: each lane reads its own again, as registers are for products.  rows: of the tensor, from
 * the first of `result`. */
template <typename T, typename Result>
HS_DEVICE void leave_amax_of_results(const AmaxOut &amax, const unsigned char *result, int row, int rows)
{
    if (amax.to == nullptr)
        return;
    const int p = (int)threadIdx.x % 4;
    uint32_t most = 0;
#pragma unroll 2
    for (int n = 0; n < Result::width / 8; n++)
        for (int half = 0; half < 2; half++) {
            const int offset =
                n / 8 * Result::box_bytes + (row + 8 * half) * HEAD_LINE + (n % 8 ^ row % 8) * 16 + p * 4;
            const Pack<T, 2> pair = load_pack<T, 2>(reinterpret_cast<const T *>(result + offset));
            if (row + 8 * half < rows)
                most =
                    larger(most, larger(magnitude_of(to_float(pair.value[0])), magnitude_of(to_float(pair.value[1]))));
        }
    leave_amax(amax, most);
}

} // namespace HS_CUDA_NAMESPACE

#endif
