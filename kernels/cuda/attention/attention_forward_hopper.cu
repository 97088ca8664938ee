/* SPDX-License-Identifier: MIT
 *
 * Attention forward on Hopper (sm_90a): the mathematics of attention_forward.cu with wgmma, tensor copies, and
 * warpgroups with roles (Shah et al. 2024, "FlashAttention-3").  A tile is 128 queries of one head; 128 keys a step.
 *
 *     producer   one thread asks for a tile's queries, then for keys and values step by step, running ahead
 *     consumers  two warpgroups of 64 queries:
 *                    S_0 = Q K_0^T   softmax of S_0
 *                    each further step j:
 *                        P_(j-1) = S_(j-1) rounded
 *                        issue S_j = Q K_j^T   issue O += P_(j-1) V_(j-1)
 *                        softmax of S_j as soon as it is there, while the second product runs
 *                        O = O 2^(c m - c m')
 *
 * At width 64 a step's exponentials take as long as its products (16 a clock against 2,048 multiply-adds), at 128 half
 * as long, so they have to overlap: within a consumer as above, and between the two, which take turns at issuing (named
 * barriers): while one computes its softmax, the tensor cores work for the other.
 *
 * Keys are walked from the diagonal down, so that only the first step has keys to hide.  Blocks continue from tile to
 * tile: an item of work is a pair of tiles of one head, t from the end and t from the start, so that items cost the
 * same, and block b takes items b, b + blocks, ...  Neighbouring items read the same keys and values, which stay in L2.
 *
 * Shared memory: queries, rings of keys and of values, the results of each consumer on their way out.  The two rings
 * have separate mbarriers: keys are released half a step before values are.
 */
#include "kernels/cuda/attention/attention_hopper.cuh"
#include "kernels/cuda/attention/attention_hopper_softmax.cuh"
#include "kernels/cuda/device/device.cuh"

namespace HS_CUDA_NAMESPACE
{

enum {
    STEP_KEYS = 128,
    CONSUMERS = 2,
    CONSUMER_ROWS = 64,
    TILE_QUERIES = CONSUMERS * CONSUMER_ROWS,
    WARPGROUP_THREADS = 128,
    FORWARD_THREADS = WARPGROUP_THREADS * (1 + CONSUMERS),
    PRODUCER_REGISTERS = 24,
    CONSUMER_REGISTERS = 240,
    /* Names of barriers; those of consumer c are c further on. */
    TURN_BARRIER = 1,
    RESULT_BARRIER = TURN_BARRIER + CONSUMERS
};
static_assert(STEP_KEYS == TILE_QUERIES, "a tile of queries has one step on the diagonal, its first");

struct ForwardHopperParameters {
    TensorMap qkv, out; /* heads of the projection in tiles of 128 tokens, of the results in tiles of 64 */
    Attention attention;
    float *lse;
};

/* `stages` tiles, each `full` when its bytes have come and `empty` when every consumer warp has released it.  Uses are
 * counted over the kernel's life: use n is in stage n % stages. */
template <int stages, int bytes> struct TileRing {
    uint32_t tiles, barriers;
    static constexpr int barrier_bytes = stages * 16;

    __device__ __forceinline__ uint32_t tile(unsigned use) const
    {
        return tiles + use % stages * bytes;
    }
    __device__ __forceinline__ uint32_t full(unsigned use) const
    {
        return barriers + use % stages * 16;
    }
    __device__ __forceinline__ uint32_t empty(unsigned use) const
    {
        return full(use) + 8;
    }
    __device__ __forceinline__ void init() const
    {
        for (unsigned stage = 0; stage < stages; stage++) {
            ptx::mbarrier_init(full(stage), 1);
            ptx::mbarrier_init(empty(stage), CONSUMERS * WARPGROUP_THREADS / WARP_SIZE);
        }
    }
    __device__ __forceinline__ void wait_full(unsigned use) const
    {
        ptx::mbarrier_wait(full(use), use / stages & 1);
    }
    __device__ __forceinline__ void release(unsigned use) const
    {
        if (threadIdx.x % WARP_SIZE == 0)
            ptx::mbarrier_arrive(empty(use));
    }
    /* The producer's part. */
    template <typename Tile>
    __device__ __forceinline__ void fill(unsigned use, const TensorMap *map, int head, int token, int sequence) const
    {
        static_assert(Tile::bytes == bytes, "the ring's tiles");
        ptx::mbarrier_wait(empty(use), (use / stages & 1) ^ 1);
        ptx::mbarrier_arrive_expect(full(use), bytes);
        load_head<Tile>(tile(use), map, full(use), head, token, sequence);
    }
};

template <int width_, int stages_> struct ForwardHopperShape {
    static constexpr int width = width_, stages = stages_;
    typedef HeadTile<width_, STEP_KEYS> Tile;
    typedef HeadTile<width_, CONSUMER_ROWS> Result;
    typedef TileRing<1, Tile::bytes> QueryRing;
    typedef TileRing<stages_, Tile::bytes> StepRing;
    static constexpr int keys = Tile::bytes, values = keys + stages_ * Tile::bytes;
    static constexpr int results = values + stages_ * Tile::bytes;
    static constexpr int barriers = results + CONSUMERS * Result::bytes;
    static constexpr int dropout = barriers + QueryRing::barrier_bytes + 2 * StepRing::barrier_bytes;
    static constexpr int shared_bytes = dropout + (int)sizeof(Dropout);
    static_assert(shared_bytes <= 227 * 1024, "what a block may have");
};

template <typename Shape> struct ForwardRings {
    typename Shape::QueryRing queries;
    typename Shape::StepRing keys, values;

    __device__ __forceinline__ explicit ForwardRings(uint32_t base)
        : queries{ base, base + Shape::barriers }, keys{ base + Shape::keys,
                                                         queries.barriers + Shape::QueryRing::barrier_bytes },
          values{ base + Shape::values, keys.barriers + Shape::StepRing::barrier_bytes }
    {
    }
};

/* Calls body(sequence, head, tile) for each of this block's tiles. */
template <typename Body> HS_DEVICE void for_each_query_tile(const Attention &attention, Body &&body)
{
    const int tiles = (attention.length + TILE_QUERIES - 1) / TILE_QUERIES, pairs = (tiles + 1) / 2;
    const int items = attention.batch * attention.heads * pairs;
#pragma unroll 1
    for (int item = (int)blockIdx.x; item < items; item += (int)gridDim.x) {
        const int row_of_heads = item / pairs, early = item % pairs, late = tiles - 1 - early;
        const int sequence = row_of_heads / attention.heads, head = row_of_heads % attention.heads;
#pragma unroll 1
        for (int tile = late;; tile = early) {
            body(sequence, head, tile);
            if (tile == early)
                break;
        }
    }
}

template <typename Shape>
HS_DEVICE void forward_produce(const ForwardHopperParameters &parameters, const ForwardRings<Shape> &rings)
{
    typedef typename Shape::Tile Tile;
    const Attention &attention = parameters.attention;
    unsigned tiles = 0, keys = 0, values = 0; /* uses of the rings */
    for_each_query_tile(attention, [&](int sequence, int head, int tile) {
        const int key_head = attention.heads + head / (attention.heads / attention.kv_heads);
        const int value_head = key_head + attention.kv_heads;
        rings.queries.template fill<Tile>(tiles++, &parameters.qkv, head, tile * TILE_QUERIES, sequence);
        /* In the order in which they are used: values a step behind keys. */
#pragma unroll 1
        for (int step = tile; step >= -1; step--) {
            if (step >= 0)
                rings.keys.template fill<Tile>(keys++, &parameters.qkv, key_head, step * STEP_KEYS, sequence);
            if (step < tile)
                rings.values.template fill<Tile>(values++, &parameters.qkv, value_head, (step + 1) * STEP_KEYS,
                                                 sequence);
        }
    });
}

/* The probabilities of a tile's first step, on the diagonal, of 64 queries and the keys that any of them may see: all of
 * them for the second consumer, half of them (count 32) for the first. */
template <typename T, typename Tile, typename Rings, int count>
HS_DEVICE void first_scores(float (&score)[count], RunningSoftmax &rows, uint32_t queries, const Rings &rings,
                            unsigned use, int row, float scale_log2)
{
    float shrink[2];
    ptx::wgmma_fence();
    begin_rows<T, Tile, Tile>(score, queries, 0, rings.keys.tile(use));
    ptx::wgmma_commit();
    ptx::wgmma_wait<0>();
    ptx::wgmma_settle(score);
    rings.keys.release(use);
    hide_later_columns(score, row);
    softmax_step(score, rows, shrink, scale_log2);
}

template <typename T, typename Shape, bool dropped>
HS_DEVICE void forward_consume(const ForwardHopperParameters &parameters, const ForwardRings<Shape> &rings,
                               unsigned char *shared)
{
    typedef typename Shape::Tile Tile;
    typedef typename Shape::Result Result;
    const Attention &attention = parameters.attention;
    const int consumer = (int)threadIdx.x / WARPGROUP_THREADS - 1, thread = (int)threadIdx.x % WARPGROUP_THREADS;
    const int own_row = thread / WARP_SIZE * 16 + thread % WARP_SIZE / 4, row = consumer * CONSUMER_ROWS + own_row;
    const int turn = TURN_BARRIER + consumer, other_turn = TURN_BARRIER + (CONSUMERS - 1 - consumer);
    unsigned char *const result = shared + Shape::results + consumer * Result::bytes;
    const uint32_t result_address = ptx::shared_address(result);
    const Dropout *const dropout = reinterpret_cast<const Dropout *>(shared + Shape::dropout);

    unsigned tiles = 0, use = 0; /* of the ring of queries; of those of keys and values */
    if (consumer == 1)
        ptx::barrier_arrive(other_turn, CONSUMERS * WARPGROUP_THREADS); /* the first turn is consumer 0's */
    for_each_query_tile(attention, [&](int sequence, int head, int tile) {
        const int64_t first_token = (int64_t)sequence * attention.length;
        const int query = tile * TILE_QUERIES + row;
        float score[STEP_KEYS / 2], output[Shape::width / 2], shrink[2];
        uint32_t weights[STEP_KEYS / 16][4], keep[STEP_KEYS / 64];
        RunningSoftmax rows = { { -INFINITY, -INFINITY }, { 0.0f, 0.0f } };
        const uint32_t queries = rings.queries.tile(tiles);

        if (dropped)
            draw_mask(keep, dropout, attention, sequence, head, query, tile * STEP_KEYS);
        rings.queries.wait_full(tiles);
        rings.keys.wait_full(use);
        if (consumer == 0) {
            first_scores<T, Tile>(reinterpret_cast<float(&)[STEP_KEYS / 4]>(score), rows, queries, rings, use, row,
                                  attention.scale_log2);
#pragma unroll
            for (int i = STEP_KEYS / 4; i < STEP_KEYS / 2; i++)
                score[i] = 0.0f;
        } else {
            first_scores<T, Tile>(score, rows, queries + CONSUMER_ROWS * HEAD_LINE, rings, use, row,
                                  attention.scale_log2);
        }
        if (dropped)
            drop_columns(score, keep);

        /* The product of the step before has to be done before its weights' registers are written again. */
        bool grown = false;
        const auto finish_step = [&](int step) {
            ptx::wgmma_wait<0>();
            ptx::wgmma_settle(output);
            if (step < tile)
                rings.values.release(use - 1);
            /* Once the first keys have been seen the maximum seldom grows. */
            if (grown)
#pragma unroll
                for (int i = 0; i < Shape::width / 2; i++)
                    output[i] *= shrink[i / 2 % 2];
            round_sums<T>(weights, score);
        };
        const auto begin_values = [&](int step) {
            rings.values.wait_full(use);
            ptx::wgmma_fence();
            begin_weights<T, Tile>(output, weights, rings.values.tile(use), step < tile);
            ptx::wgmma_commit();
        };
        /* `score` holds the probabilities of `step`.  The wait for its product is at the loop's begin and not at its
         * end: ptxas would move it up before the softmax, but not into another iteration. */
#pragma unroll 1
        for (int step = tile; step > 0; step--, use++) {
            finish_step(step);
            if (dropped)
                draw_mask(keep, dropout, attention, sequence, head, query, (step - 1) * STEP_KEYS);
            rings.keys.wait_full(use + 1);
            ptx::barrier_sync(turn, CONSUMERS * WARPGROUP_THREADS);
            ptx::wgmma_fence();
            begin_rows<T, Tile, Tile>(score, queries, consumer * CONSUMER_ROWS, rings.keys.tile(use + 1));
            ptx::wgmma_commit();
            begin_values(step);
            ptx::barrier_arrive(other_turn, CONSUMERS * WARPGROUP_THREADS);
            ptx::wgmma_wait<1>();
            ptx::wgmma_settle(score);
            rings.keys.release(use + 1);
            grown = softmax_step(score, rows, shrink, attention.scale_log2);
            if (dropped)
                drop_columns(score, keep);
        }
        rings.queries.release(tiles++);
        finish_step(0);
        begin_values(0);
        ptx::wgmma_wait<0>();
        ptx::wgmma_settle(output);
        rings.values.release(use++);

        float factors[2];
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const float total = quad_sum(rows.total[half]);
            factors[half] = attention.dropout.factor / total;
            if (thread % 4 == 0 && query + 8 * half < attention.length)
                parameters.lse[(first_token + query + 8 * half) * attention.heads + head] =
                    rows.maximum[half] * (1.0f / LOG2_E) + logf(total);
        }
        if (thread == 0)
            ptx::store_tile_wait<0>(); /* the tile before has left */
        ptx::barrier_sync(RESULT_BARRIER + consumer, WARPGROUP_THREADS);
        stage_results<T, Result>(output, factors, result, own_row);
        leave_amax_of_results<T, Result>(attention.amax, result, own_row, attention.length - (query - own_row));
        ptx::fence_shared_to_async();
        ptx::barrier_sync(RESULT_BARRIER + consumer, WARPGROUP_THREADS);
        if (thread == 0) {
#pragma unroll
            for (int box = 0; box < Result::boxes; box++)
                ptx::store_tile(result_address + (uint32_t)(box * Result::box_bytes), &parameters.out, box * HEAD_BOX,
                                head, tile * TILE_QUERIES + consumer * CONSUMER_ROWS, sequence);
            ptx::store_tile_commit();
        }
    });
    if (thread == 0)
        ptx::store_tile_wait<0>(); /* the block's shared memory stays until then */
    if (consumer == 0)
        ptx::barrier_sync(turn, CONSUMERS * WARPGROUP_THREADS); /* the turn that no consumer takes */
}

template <typename T, typename Shape, bool dropped>
__global__ void __launch_bounds__(FORWARD_THREADS, 1)
    attention_forward_hopper_kernel(const __grid_constant__ ForwardHopperParameters parameters)
{
    HS_DYNAMIC_SHARED(unsigned char, shared);
    const ForwardRings<Shape> rings(ptx::shared_address(shared));
    if (threadIdx.x == 0) {
        ptx::prefetch_tensor_map(&parameters.qkv);
        ptx::prefetch_tensor_map(&parameters.out);
        rings.queries.init();
        rings.keys.init();
        rings.values.init();
        if (dropped) {
            ptx::wait_for_kernel_before(); /* the step's number is in device memory */
            Dropout *const dropout = reinterpret_cast<Dropout *>(shared + Shape::dropout);
            *dropout = parameters.attention.dropout;
            fix_step(*dropout);
        }
        ptx::fence_mbarrier_init();
    }
    __syncthreads();
    begin_after_kernel_before();
    if (threadIdx.x < WARPGROUP_THREADS) {
        ptx::fewer_registers<PRODUCER_REGISTERS>();
        if (threadIdx.x == 0)
            forward_produce<Shape>(parameters, rings);
    } else {
        ptx::more_registers<CONSUMER_REGISTERS>();
        forward_consume<T, Shape, dropped>(parameters, rings, shared);
    }
}

template <typename T, typename Shape>
static HsStatus launch_forward(HsContext *context, const Attention &attention, const HsAttentionArgs *args)
{
    ForwardHopperParameters parameters;
    const HsDtype dtype = args->qkv.dtype;
    HS_TRY(map_heads(args->qkv.data, dtype, attention, attention.heads + 2 * attention.kv_heads, Shape::Tile::rows,
                     &parameters.qkv));
    HS_TRY(map_heads(args->out.data, dtype, attention, attention.heads, Shape::Result::rows, &parameters.out));
    parameters.attention = attention;
    parameters.lse = data_of<float>(args->lse);
    const int64_t pairs = blocks_for(blocks_for(attention.length, TILE_QUERIES), 2);
    const int64_t items = (int64_t)attention.batch * attention.heads * pairs;
    const int64_t blocks = items < limits_of(context).multiprocessors ? items : limits_of(context).multiprocessors;
    if (attention.dropout.threshold != 0)
        return hs_launch_after(context, HS_KERNEL((attention_forward_hopper_kernel<T, Shape, true>)), (unsigned)blocks,
                               FORWARD_THREADS, (size_t)Shape::shared_bytes, parameters);
    return hs_launch_after(context, HS_KERNEL((attention_forward_hopper_kernel<T, Shape, false>)), (unsigned)blocks,
                           FORWARD_THREADS, (size_t)Shape::shared_bytes, parameters);
}

HsStatus attention_forward_hopper(HsContext *context, const Attention &attention, const HsAttentionArgs *args)
{
    return dispatch_16_bit(args->qkv.dtype, [&](auto element) {
        using T = decltype(element);
        if (attention.head_dim <= 64)
            return launch_forward<T, ForwardHopperShape<64, 4>>(context, attention, args);
        return launch_forward<T, ForwardHopperShape<128, 2>>(context, attention, args);
    });
}

} // namespace HS_CUDA_NAMESPACE
