/* SPDX-License-Identifier: MIT
 *
 * The rows of a batch ordered by token, and rows of one token in their own order: a stable radix sort, least
 * significant digit first, of row indices keyed by tokens[row].  Two small kernels a digit of eight bits:
 *
 *     counts    [block][digit]   how many rows of each stretch of 2048 have the digit
 *     position  = rows anywhere with a smaller digit + rows of earlier blocks, warps and lanes with the same one
 *
 * The second kernel adds the counts up itself: 256 threads read them a digit each, neighbours side by side.  A
 * vocabulary of 150,000 takes three digits; integer atomics count, and what they count does not depend on their order.
 */
#ifndef HS_KERNELS_CUDA_LAYERS_TOKEN_ORDER_CUH
#define HS_KERNELS_CUDA_LAYERS_TOKEN_ORDER_CUH

#include "kernels/cuda/toolbox/launch.cuh"

namespace HS_CUDA_NAMESPACE
{

enum {
    DIGIT_BITS = 8,
    DIGITS = 1 << DIGIT_BITS,
    ORDER_THREADS = DIGITS, /* a thread a digit where counts are added up */
    ORDER_WARPS = ORDER_THREADS / WARP_SIZE,
    WARP_ROUNDS = 8, /* rows of a stretch that each lane places */
    WARP_ROWS = WARP_ROUNDS * WARP_SIZE,
    STRETCH = ORDER_WARPS * WARP_ROWS
};

/* The row at place i of the order so far; null: none yet. */
HS_DEVICE int32_t row_in_order(const int32_t *order, int64_t i)
{
    return order != nullptr ? order[i] : (int32_t)i;
}

HS_DEVICE int digit_of(int32_t token, int shift)
{
    return (int)((uint32_t)token >> shift) & (DIGITS - 1);
}

static __global__ void __launch_bounds__(ORDER_THREADS)
    token_count_kernel(const int32_t *tokens, const int32_t *order, int64_t rows, int shift, int32_t *counts)
{
    HS_SHARED(int32_t, count, DIGITS);
    begin_after_kernel_before();
    count[threadIdx.x] = 0;
    __syncthreads();
    const int64_t begin = (int64_t)blockIdx.x * STRETCH;
    const int64_t end = begin + STRETCH < rows ? begin + STRETCH : rows;
    for (int64_t i = begin + threadIdx.x; i < end; i += ORDER_THREADS)
        atomicAdd(&count[digit_of(tokens[row_in_order(order, i)], shift)], 1);
    __syncthreads();
    counts[(int64_t)blockIdx.x * DIGITS + threadIdx.x] = count[threadIdx.x];
}

/* Where the first row with digit threadIdx.x of this block goes. */
HS_DEVICE int32_t digit_start(const int32_t *counts, int32_t *scratch)
{
    const int lane = (int)threadIdx.x % WARP_SIZE, warp = (int)threadIdx.x / WARP_SIZE;
    int32_t earlier = 0, all = 0;
    for (unsigned block = 0; block < gridDim.x; block++) {
        const int32_t count = counts[(int64_t)block * DIGITS + threadIdx.x];
        earlier += block < blockIdx.x ? count : 0;
        all += count;
    }
    /* rows with a smaller digit: the exclusive sum of `all` over the threads */
    int32_t sum = all;
    for (int distance = 1; distance < WARP_SIZE; distance *= 2) {
        const int32_t before = __shfl_up_sync(FULL_WARP, sum, (unsigned)distance);
        sum += lane >= distance ? before : 0;
    }
    if (lane == WARP_SIZE - 1)
        scratch[warp] = sum;
    __syncthreads();
    for (int w = 0; w < warp; w++)
        sum += scratch[w];
    return sum - all + earlier;
}

/* The lanes with this lane's digit; `there`: the lane has a row. */
HS_DEVICE unsigned lanes_with(int digit, bool there)
{
    unsigned lanes = __ballot_sync(FULL_WARP, there);
#pragma unroll
    for (int bit = 0; bit < DIGIT_BITS; bit++) {
        const unsigned set = __ballot_sync(FULL_WARP, digit >> bit & 1);
        lanes &= digit >> bit & 1 ? set : ~set;
    }
    return lanes;
}

static __global__ void __launch_bounds__(ORDER_THREADS)
    token_place_kernel(const int32_t *tokens, const int32_t *order, int64_t rows, int shift, const int32_t *counts,
                       int32_t *new_order)
{
    HS_SHARED(int32_t, scratch, ORDER_WARPS);
    HS_SHARED(int32_t, next, ORDER_WARPS * DIGITS); /* of each warp: where its next row with a digit goes */
    begin_after_kernel_before();
    const int lane = (int)threadIdx.x % WARP_SIZE, warp = (int)threadIdx.x / WARP_SIZE;
    const int64_t begin = (int64_t)blockIdx.x * STRETCH + warp * WARP_ROWS;
    for (int w = 0; w < ORDER_WARPS; w++)
        next[w * DIGITS + threadIdx.x] = 0;
    __syncthreads();

    /* each warp counts its own rows */
    int32_t row[WARP_ROUNDS];
    int digit[WARP_ROUNDS];
#pragma unroll
    for (int round = 0; round < WARP_ROUNDS; round++) {
        const int64_t i = begin + round * WARP_SIZE + lane;
        row[round] = i < rows ? row_in_order(order, i) : -1;
        digit[round] = row[round] >= 0 ? digit_of(tokens[row[round]], shift) : 0;
        if (row[round] >= 0)
            atomicAdd(&next[warp * DIGITS + digit[round]], 1);
    }
    const int32_t start = digit_start(counts, scratch); /* passes a barrier: all have counted */
    int32_t position = start;
    for (int w = 0; w < ORDER_WARPS; w++) {
        const int32_t count = next[w * DIGITS + threadIdx.x];
        next[w * DIGITS + threadIdx.x] = position;
        position += count;
    }
    __syncthreads();

    /* rows in order: round by round, within a round by lane */
#pragma unroll
    for (int round = 0; round < WARP_ROUNDS; round++) {
        const unsigned lanes = lanes_with(digit[round], row[round] >= 0);
        const int32_t first = next[warp * DIGITS + digit[round]];
        const int rank = __popc(lanes & ((1u << lane) - 1u));
        if (row[round] >= 0)
            new_order[first + rank] = row[round];
        __syncwarp(); /* all have read `first` */
        if (row[round] >= 0 && rank == 0)
            next[warp * DIGITS + digit[round]] = first + __popc(lanes);
        __syncwarp();
    }
}

static inline int digits_of(int64_t vocabulary)
{
    int digits = 1;
    while (digits * DIGIT_BITS < 31 && (int64_t)1 << digits * DIGIT_BITS < vocabulary)
        digits++;
    return digits;
}

/* Storage for order_tokens, in int32: two orders and the counts. */
static inline int64_t token_order_elements(int64_t rows)
{
    return 2 * rows + (int64_t)blocks_for(rows, STRETCH) * DIGITS;
}

/* *order: rows ordered by token, within `storage`. */
static inline HsStatus order_tokens(const HsContext *context, const int32_t *tokens, int64_t rows, int64_t vocabulary,
                                    int32_t *storage, const int32_t **order)
{
    const unsigned blocks = blocks_for(rows, STRETCH);
    int32_t *orders[2] = { storage, storage + rows }, *counts = storage + 2 * rows;
    *order = nullptr;
    for (int digit = 0; digit < digits_of(vocabulary); digit++) {
        const int shift = digit * DIGIT_BITS;
        int32_t *const new_order = orders[digit % 2];
        HS_TRY(hs_launch_after(context, HS_KERNEL(token_count_kernel), blocks, ORDER_THREADS, 0, tokens, *order, rows,
                               shift, counts));
        HS_TRY(hs_launch_after(context, HS_KERNEL(token_place_kernel), blocks, ORDER_THREADS, 0, tokens, *order, rows,
                               shift, (const int32_t *)counts, new_order));
        *order = new_order;
    }
    return HS_OK;
}

} // namespace HS_CUDA_NAMESPACE

#endif
