/* SPDX-License-Identifier: MIT
 *
 * Dropout of attention probabilities: element ((row_offset + n) H + h) T + key of the mask (ops.h), kept when its 24
 * random bits reach the threshold.  A Philox draw serves four neighbouring keys.  Lanes hold keys one or two at a time,
 * so four neighbours are spread over two or four lanes: each lane draws for one row of them, turns its four words into
 * four bits, and the lanes exchange bits.  That is one draw for four elements in every layout, where T is a multiple of
 * 4; at other lengths rows begin inside a draw, and every element draws for itself.
 */
#ifndef HS_KERNELS_CUDA_ATTENTION_ATTENTION_DROPOUT_CUH
#define HS_KERNELS_CUDA_ATTENTION_ATTENTION_DROPOUT_CUH

#include "kernels/cuda/toolbox/rng.cuh"

namespace HS_CUDA_NAMESPACE
{

struct Dropout {
    HsRng rng;
    uint32_t threshold; /* ceil(p 2^24): uniform >= p as integers; 0: nothing is dropped */
    float factor;       /* 1 / (1 - p) */
    bool aligned;       /* T is a multiple of 4 */
};

/* At the start of a kernel: the step is read from memory once, not for every draw. */
HS_DEVICE void fix_step(Dropout &dropout)
{
    if (dropout.threshold != 0 && dropout.rng.step_counter != nullptr)
        dropout.rng.step += *dropout.rng.step_counter;
    dropout.rng.step_counter = nullptr;
}

/* Where one head of one sequence lies in the mask: element (query, key) is first + query * query_stride + key. */
struct DropoutHead {
    uint64_t first, query_stride;

    __device__ __forceinline__ uint64_t element(int query, int key) const
    {
        return first + (uint64_t)query * query_stride + (uint64_t)key;
    }
};

HS_DEVICE DropoutHead dropout_head(const Dropout &dropout, int64_t first_row, int heads, int head, int length)
{
    const uint64_t row = (uint64_t)(dropout.rng.row_offset + first_row);
    return { (row * (uint64_t)heads + (uint64_t)head) * (uint64_t)length, (uint64_t)heads * (uint64_t)length };
}

/* One element by itself. */
HS_DEVICE uint32_t keep_bit(const Dropout &dropout, uint64_t element)
{
    const uint32_t word = rng_word(rng_draw(dropout.rng, element / 4), (int)(element % 4));
    return word >> 8 >= dropout.threshold ? 1u : 0u;
}

/* Bits of four neighbours from `element` on, a multiple of 4. */
HS_DEVICE uint32_t keep_four(const Dropout &dropout, uint64_t element)
{
    const uint4 draw = rng_draw(dropout.rng, element / 4);
    return (draw.x >> 8 >= dropout.threshold ? 1u : 0u) | (draw.y >> 8 >= dropout.threshold ? 2u : 0u) |
           (draw.z >> 8 >= dropout.threshold ? 4u : 0u) | (draw.w >> 8 >= dropout.threshold ? 8u : 0u);
}

/* Four lanes `stride` apart, of rank 0 to 3, hold key `rank` of four neighbours in up to four rows.  Each calls with
 * the first neighbour's element in row `rank`; all receive bit 4 row + key. */
template <int stride> HS_DEVICE uint32_t keep_square(const Dropout &dropout, uint64_t element, int rank)
{
    uint32_t bits = keep_four(dropout, element) << (4 * rank);
    bits |= __shfl_xor_sync(FULL_WARP, bits, stride);
    return bits | __shfl_xor_sync(FULL_WARP, bits, 2 * stride);
}

/* Accumulators of a 16 x 8 `tiles` product with queries down and keys across (ptx_mma.cuh): bit 4 tile + i says whether
 * d[i] of that tile is kept.  query: the row of d[0]; key: the first of the tile row. */
template <int tiles>
HS_DEVICE uint32_t keep_query_rows(const Dropout &dropout, const DropoutHead &head, int query, int key)
{
    static_assert(tiles <= 8, "four bits a tile");
    const int lane = (int)threadIdx.x % WARP_SIZE, t = lane % 4, odd = t % 2;
    uint32_t bits = 0;
    if (!dropout.aligned) {
#pragma unroll 1
        for (int i = 0; i < 4 * tiles; i++)
            bits |= keep_bit(dropout, head.element(query + i / 2 % 2 * 8, key + i / 4 * 8 + 2 * t + i % 2)) << i;
        return bits;
    }
    /* An even lane draws for the upper row, its odd neighbour for the lower; both for the four keys that they share. */
#pragma unroll 1
    for (int tile = 0; tile < tiles; tile++)
        bits |= keep_four(dropout, head.element(query + odd * 8, key + tile * 8 + t / 2 * 4)) << (4 * tile);
    const uint32_t other = __shfl_xor_sync(FULL_WARP, bits, 1);
    const uint32_t low = 0x33333333u, high = 0xccccccccu;
    return odd ? (other >> 2 & low) | (bits & high) : (bits & low) | (other << 2 & high);
}

/* The same with keys down and queries across: query: the first of the tile row; key: the first of the 16. */
template <int tiles>
HS_DEVICE uint32_t keep_key_rows(const Dropout &dropout, const DropoutHead &head, int query, int key)
{
    static_assert(tiles <= 8, "four bits a tile");
    const int lane = ptx::thread_anew() % WARP_SIZE, g = lane / 4, t = lane % 4, rank = g % 4;
    uint32_t bits = 0;
    if (!dropout.aligned) {
#pragma unroll 1
        for (int i = 0; i < 4 * tiles; i++)
            bits |= keep_bit(dropout, head.element(query + i / 4 * 8 + 2 * t + i % 2, key + g + i / 2 % 2 * 8)) << i;
        return bits;
    }
    /* The lanes of keys 4a..4a+3 draw for (query, key half) = (2t, 0), (2t+1, 0), (2t, 8), (2t+1, 8): d[rank]. */
#pragma unroll 1
    for (int tile = 0; tile < tiles; tile++) {
        const uint64_t element = head.element(query + tile * 8 + 2 * t + rank % 2, key + rank / 2 * 8 + g / 4 * 4);
        const uint32_t square = keep_square<4>(dropout, element, rank) >> rank;
        bits |= ((square & 1u) | (square >> 3 & 2u) | (square >> 6 & 4u) | (square >> 9 & 8u)) << (4 * tile);
    }
    return bits;
}

} // namespace HS_CUDA_NAMESPACE

#endif
