/* SPDX-License-Identifier: MIT
 *
 * Attention backward on Hopper (sm_90a): one pass of five products.
 *
 * A block owns 128 keys of one kv head and walks the query heads of the group, in each the query tiles from its
 * diagonal on.  Two consumer warpgroups have 64 keys each.  As in attention_backward_key_value.cu, keys lie down and
 * queries across, so that probabilities and their gradients leave one product as the left operand of another:
 *     S^T = K Q^T        P^T = 2^(c S^T - lse log2(e))             dV += (F P)^T dO
 *     dP^T = V dO^T      dS^T = P^T (F dP^T - delta)               dK += dS^T Q
 *     dQ = dS K          with dS read across the lines of dS^T in shared memory, by both consumers
 * One warpgroup serves them: a thread copies tiles into a ring, another takes dQ away.
 *
 * dQ of a query tile is a sum over blocks of keys.  Each block adds its part to f32 sums in memory (L2), as a copy that
 * reduces, and always in the same order: from the tile's diagonal block down to the first.  A block waits for its turn,
 * a counter for each tile.  Since all start at their diagonal, the next block in order comes to a tile just when the
 * one before has left it, and hardly ever waits.  So the same bits come out every time, without the two further
 * products that a pass of its own for dQ would take.
 *
 * Work goes by ticket: what a block waits for has a smaller one, and so is done or under way, however blocks are
 * scheduled.  A dQ part travels in the order of its registers; the sums are put in order when they are rounded
 * (attention_query_gradient.cu).
 *
 * Two buffers of dS^T make one barrier a step enough: who writes a buffer again has met the other consumer since it was
 * read.
 */
#include "kernels/cuda/attention/attention_backward_hopper.cuh"
#include "kernels/cuda/attention/attention_hopper_softmax.cuh"
#include "kernels/cuda/device/device.cuh"

namespace HS_CUDA_NAMESPACE
{

namespace
{

enum { CONSUMERS_BARRIER = 1, CONSUMER_BARRIER = 2 }; /* the second: one for each */

/* A block of keys, and what it walks over. */
struct GradientWork {
    int sequence, kv_head, key_block, first_tile;

    __device__ __forceinline__ GradientWork(const GradientParameters &parameters, int ticket, int step)
    {
        const int head = ticket / parameters.key_blocks;
        key_block = parameters.key_blocks - 1 - ticket % parameters.key_blocks;
        sequence = head / parameters.attention.kv_heads;
        kv_head = head % parameters.attention.kv_heads;
        first_tile = key_block * GRADIENT_KEYS / step;
    }
};

/* Body(head, query tile) for all of a block's steps. */
template <typename Body>
HS_DEVICE void for_each_step(const GradientParameters &parameters, const GradientWork &work, Body &&body)
{
    const int group = parameters.attention.heads / parameters.attention.kv_heads;
#pragma unroll 1
    for (int member = 0; member < group; member++)
#pragma unroll 1
        for (int tile = work.first_tile; tile < parameters.query_tiles; tile++)
            body(work.kv_head * group + member, tile);
}

/* The thread that fills the ring. */
template <typename Shape>
HS_DEVICE void load_gradient_tiles(const GradientParameters &parameters, unsigned char *shared)
{
    typedef typename Shape::KeyTile KeyTile;
    typedef typename Shape::QueryTile QueryTile;
    const Attention &attention = parameters.attention;
    const uint32_t base = ptx::shared_address(shared);
    const int tickets = attention.batch * attention.kv_heads * parameters.key_blocks;
    RingPlace<GRADIENT_STAGES> place;
    for (unsigned round = 0;; round ^= 1) {
        const int ticket = (int)atomicAdd(parameters.ticket, 1u);
        ptx::mbarrier_wait(base + Shape::keys_empty, round ^ 1);
        *reinterpret_cast<int *>(shared + Shape::ticket) = ticket < tickets ? ticket : -1;
        if (ticket >= tickets) {
            ptx::mbarrier_arrive(base + Shape::keys_full);
            return;
        }
        const GradientWork work(parameters, ticket, Shape::step);
        const int first_key = work.key_block * GRADIENT_KEYS;
        ptx::mbarrier_arrive_expect(base + Shape::keys_full, 2 * KeyTile::bytes);
        load_head<KeyTile>(base, &parameters.keys, base + Shape::keys_full, attention.heads + work.kv_head, first_key,
                           work.sequence);
        load_head<KeyTile>(base + Shape::values, &parameters.keys, base + Shape::keys_full,
                           attention.heads + attention.kv_heads + work.kv_head, first_key, work.sequence);
        for_each_step(parameters, work, [&](int head, int tile) {
            const uint32_t full = base + Shape::full + 8 * place.stage;
            const uint32_t queries = base + Shape::stages + place.stage * Shape::stage_bytes;
            ptx::mbarrier_wait(base + Shape::empty + 8 * place.stage, place.parity ^ 1);
            ptx::mbarrier_arrive_expect(full, Shape::stage_bytes + Shape::statistics_bytes);
            load_head<QueryTile>(queries, &parameters.queries, full, head, tile * Shape::step, work.sequence);
            load_head<QueryTile>(queries + QueryTile::bytes, &parameters.douts, full, head, tile * Shape::step,
                                 work.sequence);
            ptx::load_tile(base + Shape::statistics + place.stage * Shape::statistics_bytes, &parameters.statistics,
                           full, 2 * tile * Shape::step, work.sequence * attention.heads + head);
            place.next();
        });
    }
}

/* The thread that adds parts of dQ to the sums, each at its turn. */
template <typename Shape> HS_DEVICE void add_query_parts(const GradientParameters &parameters, unsigned char *shared)
{
    const Attention &attention = parameters.attention;
    const uint32_t base = ptx::shared_address(shared);
    unsigned parity = 0;
    for (unsigned round = 0;; round ^= 1) {
        ptx::mbarrier_wait(base + Shape::keys_full, round);
        const int ticket = *reinterpret_cast<const int *>(shared + Shape::ticket);
        ptx::mbarrier_arrive(base + Shape::keys_empty);
        if (ticket < 0)
            return;
        const GradientWork work(parameters, ticket, Shape::step);
        for_each_step(parameters, work, [&](int head, int tile) {
            const int index = (work.sequence * attention.heads + head) * parameters.query_tiles + tile;
            const unsigned turn = (unsigned)(tile * Shape::step / GRADIENT_KEYS - work.key_block);
            ptx::mbarrier_wait(base + Shape::parts_full, parity);
            parity ^= 1;
            while (ptx::load_acquire(parameters.turns + index) != turn) {
            }
            ptx::fence_global_to_async();
            if (turn == 0)
                ptx::store_tile(base + Shape::parts, &parameters.dquery, 0, index * GRADIENT_PART_LINES);
            else
                ptx::add_tile(base + Shape::parts, &parameters.dquery, 0, index * GRADIENT_PART_LINES);
            ptx::store_tile_commit();
            ptx::store_tile_wait<0>();
            ptx::mbarrier_arrive(base + Shape::parts_empty);
            ptx::store_tile_wait_written<0>();
            ptx::store_release(parameters.turns + index, turn + 1);
        });
    }
}

/* Statistics of a lane's two queries, 8 j + 2 (lane % 4) and the next: lse, delta, lse, delta. */
HS_DEVICE Pack<float, 4> statistics_of(const unsigned char *statistics, int j)
{
    return load_pack<float, 4>(reinterpret_cast<const float *>(statistics) + 16 * j + (int)threadIdx.x % 4 * 4);
}

/* Scores become probabilities; queries before a key get none.  query_less_key: the tile's first query less this
 * thread's first key; `diagonal`: some pair of the tile is hidden. */
template <int count>
HS_DEVICE void transposed_probabilities(float (&score)[count], const unsigned char *statistics, float scale_log2,
                                        bool diagonal, int query_less_key)
{
#pragma unroll
    for (int j = 0; j < count / 4; j++) {
        const Pack<float, 4> query = statistics_of(statistics, j);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float exponent = fmaf(score[4 * j + i], scale_log2, -query.value[i % 2 * 2]);
            score[4 * j + i] = ptx::exp2_approximate(exponent);
        }
    }
    if (diagonal) {
#pragma unroll
        for (int j = 0; j < count / 4; j++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                if (query_less_key + 8 * j + (int)threadIdx.x % 4 * 2 + i % 2 < i / 2 * 8)
                    score[4 * j + i] = 0.0f;
    }
}

/* Dropped probabilities get a minus sign, which remembers the mask until dS^T wants it.  key: the warp's first. */
template <int count>
HS_DEVICE void mark_dropped(float (&probability)[count], const Dropout &dropout, const DropoutHead &head, int query,
                            int key)
{
#pragma unroll
    for (int part = 0; part < count / 32; part++) {
        const uint32_t kept = keep_key_rows<8>(dropout, head, query + part * 64, key);
#pragma unroll
        for (int i = 0; i < 32; i++)
            if ((kept >> i & 1u) == 0)
                probability[32 * part + i] = -probability[32 * part + i];
    }
}

/* dP^T becomes dS^T. */
template <int count>
HS_DEVICE void score_gradients(float (&gradient)[count], const float (&probability)[count],
                               const unsigned char *statistics, const Dropout &dropout)
{
    if (dropout.threshold != 0) {
#pragma unroll
        for (int i = 0; i < count; i++)
            gradient[i] = probability[i] < 0.0f ? 0.0f : gradient[i] * dropout.factor;
    }
#pragma unroll
    for (int j = 0; j < count / 4; j++) {
        const Pack<float, 4> query = statistics_of(statistics, j);
#pragma unroll
        for (int i = 0; i < 4; i++)
            gradient[4 * j + i] = fabsf(probability[4 * j + i]) * (gradient[4 * j + i] - query.value[i % 2 * 2 + 1]);
    }
}

/* (F P)^T without the factor 1 / (1 - p), rounded. */
template <typename T, int count>
HS_DEVICE void round_kept(uint32_t (&weights)[count / 8][4], const float (&probability)[count])
{
#pragma unroll
    for (int k = 0; k < count / 8; k++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            weights[k][i] =
                pack_pair<T>(fmaxf(probability[8 * k + 2 * i], 0.0f), fmaxf(probability[8 * k + 2 * i + 1], 0.0f));
}

/* A warp's 16 keys of dS^T to shared memory: boxes of 64 queries, a line for each key, swizzled as tensor copies do.
 * Eight lines and four words of a piece cover all banks once.  line: the warp's first. */
template <int pairs>
HS_DEVICE void store_scores(const uint32_t (&weights)[pairs][4], unsigned char *scores, int box_bytes, int line)
{
    const int lane = ptx::thread_anew() % WARP_SIZE, g = lane / 4, t = lane % 4;
    unsigned char *const mine = scores + (line + g) * HEAD_LINE + t * 4;
#pragma unroll
    for (int k = 0; k < pairs; k++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int piece = (2 * k + i / 2) % 8 ^ g;
            *reinterpret_cast<uint32_t *>(mine + k / 4 * box_bytes + i % 2 * 8 * HEAD_LINE + piece * 16) =
                weights[k][i];
        }
}

/* This consumer's 64 x 64 of dQ = dS K: a half of the queries, or of the columns. */
template <typename T, typename Shape>
HS_DEVICE void begin_query_part(float (&part)[32], uint32_t scores, uint32_t keys, int consumer)
{
    const bool halves_of_queries = Shape::step == 128;
    const uint64_t a = ptx::wgmma_descriptor(scores + (halves_of_queries ? consumer * Shape::score_box : 0), 1024, 16);
    const uint64_t b =
        ptx::wgmma_descriptor(keys + (halves_of_queries ? 0 : consumer * Shape::KeyTile::box_bytes), 1024, 16);
#pragma unroll
    for (int k = 0; k < GRADIENT_KEYS; k += 16)
        ptx::wgmma<T, true, true>(part, ptx::advance_descriptor(a, (uint32_t)(k * HEAD_LINE)),
                                  ptx::advance_descriptor(b, (uint32_t)(k * HEAD_LINE)), k > 0);
}

/* 64 rows, times a factor and rounded, to a head of dqkv by way of shared memory. */
template <typename T, int width>
HS_DEVICE void store_result(const float (&sum)[width / 2], float factor, unsigned char *staging, const TensorMap *map,
                            int head, int token, int sequence, int barrier)
{
    const int thread = ptx::thread_anew() % 128;
    const float factors[2] = { factor, factor };
    stage_results<T, HeadTile<width, 64>>(sum, factors, staging, thread / WARP_SIZE * 16 + thread % WARP_SIZE / 4);
    ptx::fence_shared_to_async();
    ptx::barrier_sync(barrier, 128);
    if (thread == 0) {
        for (int box = 0; box < width / HEAD_BOX; box++)
            ptx::store_tile(ptx::shared_address(staging) + (uint32_t)(box * 64 * HEAD_LINE), map, box * HEAD_BOX, head,
                            token, sequence);
        ptx::store_tile_commit();
        ptx::store_tile_wait<0>();
    }
    ptx::barrier_sync(barrier, 128); /* staging may be written again */
}

/* A warpgroup of consumers. */
template <typename T, typename Shape>
HS_DEVICE void consume_gradient_tiles(const GradientParameters &parameters, unsigned char *shared)
{
    typedef typename Shape::KeyTile KeyTile;
    typedef typename Shape::QueryTile QueryTile;
    constexpr int width = Shape::width, step = Shape::step;
    const Attention &attention = parameters.attention;
    Dropout dropout = attention.dropout;
    fix_step(dropout);
    const uint32_t base = ptx::shared_address(shared);
    RingPlace<GRADIENT_STAGES> place;
    unsigned parts_parity = 1, buffer = 0;
    const auto arrive = [&](uint32_t mbarrier) {
        __syncwarp();
        if (threadIdx.x % WARP_SIZE == 0)
            ptx::mbarrier_arrive(mbarrier);
    };
    for (unsigned round = 0;; round ^= 1) {
        ptx::mbarrier_wait(base + Shape::keys_full, round);
        const int ticket = *reinterpret_cast<const int *>(shared + Shape::ticket);
        if (ticket < 0)
            return;
        const GradientWork work(parameters, ticket, step);
        const int first_key = work.key_block * GRADIENT_KEYS;
        float dkey[width / 2], dvalue[width / 2];
#pragma unroll
        for (int i = 0; i < width / 2; i++)
            dkey[i] = dvalue[i] = 0.0f;
        for_each_step(parameters, work, [&](int head, int tile) {
            const uint32_t queries = base + Shape::stages + place.stage * Shape::stage_bytes;
            const uint32_t douts = queries + QueryTile::bytes;
            const unsigned char *const statistics = shared + Shape::statistics + place.stage * Shape::statistics_bytes;
            const int query = tile * step, thread = ptx::thread_anew();
            const int lane = thread % WARP_SIZE, warp = thread % 128 / WARP_SIZE, consumer = thread / 128 - 1;
            const int warp_line = consumer * 64 + warp * 16; /* of the block's keys */

            ptx::mbarrier_wait(base + Shape::full + 8 * place.stage, place.parity);
            float probability[step / 2], gradient[step / 2];
            ptx::wgmma_fence();
            begin_rows<T, KeyTile, QueryTile>(probability, base, consumer * 64, queries);
            ptx::wgmma_commit();
            begin_rows<T, KeyTile, QueryTile>(gradient, base + Shape::values, consumer * 64, douts);
            ptx::wgmma_commit();
            ptx::wgmma_wait<1>();
            ptx::wgmma_settle(probability);
            transposed_probabilities(probability, statistics, attention.scale_log2,
                                     query < first_key + consumer * 64 + 63, query - first_key - warp_line - lane / 4);
            if (dropout.threshold != 0)
                mark_dropped(probability, dropout,
                             dropout_head(dropout, (int64_t)work.sequence * attention.length, attention.heads, head,
                                          attention.length),
                             query, first_key + warp_line);
            ptx::wgmma_wait<0>();
            ptx::wgmma_settle(gradient);
            score_gradients(gradient, probability, statistics, dropout);
            uint32_t kept[step / 16][4], rounded[step / 16][4]; /* in place of the floats: not earlier */
            round_kept<T>(kept, probability);
            round_sums<T>(rounded, gradient);
            unsigned char *const scores = shared + Shape::scores + buffer * Shape::score_bytes;
            store_scores(rounded, scores, Shape::score_box, warp_line);
            ptx::fence_shared_to_async();

            ptx::wgmma_fence();
            begin_weights<T, QueryTile>(dvalue, kept, douts, true);
            ptx::wgmma_commit();
            ptx::barrier_sync(CONSUMERS_BARRIER, 128 * GRADIENT_CONSUMERS); /* all of dS^T is there */
            float part[32];
            ptx::wgmma_fence();
            begin_query_part<T, Shape>(part, ptx::shared_address(scores), base, consumer);
            ptx::wgmma_commit();
            begin_weights<T, QueryTile>(dkey, rounded, queries, true);
            ptx::wgmma_commit();
            ptx::wgmma_wait<1>();
            ptx::wgmma_settle(part);

            /* dQ's part, in the order of its registers: no two lanes of a store share a bank. */
            ptx::mbarrier_wait(base + Shape::parts_empty, parts_parity);
            float *const mine =
                reinterpret_cast<float *>(shared + Shape::parts + consumer * GRADIENT_PART_BYTES) + warp * 1024;
#pragma unroll
            for (int j = 0; j < 8; j++)
                store_pack<float, 4>(mine + (j * WARP_SIZE + lane) * 4,
                                     { { part[4 * j], part[4 * j + 1], part[4 * j + 2], part[4 * j + 3] } });
            ptx::fence_shared_to_async();
            arrive(base + Shape::parts_full);
            parts_parity ^= 1;

            ptx::wgmma_wait<0>();
            ptx::wgmma_settle(dkey);
            ptx::wgmma_settle(dvalue);
            arrive(base + Shape::empty + 8 * place.stage);
            place.next();
            buffer ^= 1;
        });
        arrive(base + Shape::keys_empty);

        /* Nobody reads dS^T any more: results leave by its buffers. */
        ptx::barrier_sync(CONSUMERS_BARRIER, 128 * GRADIENT_CONSUMERS);
        const int consumer = ptx::thread_anew() / 128 - 1;
        unsigned char *const staging = shared + Shape::scores + consumer * Shape::result_bytes;
        const int token = first_key + consumer * 64, barrier = CONSUMER_BARRIER + consumer;
        store_result<T, width>(dvalue, dropout.factor, staging, &parameters.dqkv,
                               attention.heads + attention.kv_heads + work.kv_head, token, work.sequence, barrier);
        store_result<T, width>(dkey, attention.scale, staging, &parameters.dqkv, attention.heads + work.kv_head, token,
                               work.sequence, barrier);
        ptx::barrier_sync(CONSUMERS_BARRIER, 128 * GRADIENT_CONSUMERS);
    }
}

template <typename T, typename Shape>
__global__ void __launch_bounds__(GRADIENT_THREADS, 1)
    attention_backward_hopper_kernel(const __grid_constant__ GradientParameters parameters)
{
    HS_DYNAMIC_SHARED(unsigned char, shared);
    const uint32_t base = ptx::shared_address(shared);
    const int warpgroup = (int)threadIdx.x / 128;
    if (threadIdx.x == 0) {
        const int consumer_warps = 4 * GRADIENT_CONSUMERS;
        ptx::prefetch_tensor_map(&parameters.keys);
        ptx::prefetch_tensor_map(&parameters.queries);
        ptx::prefetch_tensor_map(&parameters.douts);
        ptx::prefetch_tensor_map(&parameters.statistics);
        ptx::mbarrier_init(base + Shape::keys_full, 1);
        ptx::mbarrier_init(base + Shape::keys_empty, consumer_warps + 1);
        ptx::mbarrier_init(base + Shape::parts_full, consumer_warps);
        ptx::mbarrier_init(base + Shape::parts_empty, 1);
        for (int stage = 0; stage < GRADIENT_STAGES; stage++) {
            ptx::mbarrier_init(base + Shape::full + 8 * stage, 1);
            ptx::mbarrier_init(base + Shape::empty + 8 * stage, consumer_warps);
        }
        ptx::fence_mbarrier_init();
    }
    __syncthreads();
    begin_after_kernel_before();
    if (warpgroup == 0) {
        ptx::fewer_registers<GRADIENT_PRODUCER_REGISTERS>();
        if (threadIdx.x == 0)
            load_gradient_tiles<Shape>(parameters, shared);
        else if (threadIdx.x == WARP_SIZE)
            add_query_parts<Shape>(parameters, shared);
    } else {
        ptx::more_registers<GRADIENT_CONSUMER_REGISTERS>();
        consume_gradient_tiles<T, Shape>(parameters, shared);
    }
}

template <typename T, int width>
HsStatus launch(HsContext *context, const Attention &attention, const BackwardTensors &tensors)
{
    typedef GradientShape<width> Shape;
    const HsDtype dtype = tensors.qkv.dtype;
    const GradientWorkspace workspace =
        gradient_workspace(attention.batch, attention.heads, attention.length, attention.head_dim);
    char *const sums = static_cast<char *>(context->workspace) + workspace.statistics_bytes;
    const int64_t heads = (int64_t)attention.batch * attention.heads, statistics = statistics_length(attention.length);
    const int heads_in_row = attention.heads + 2 * attention.kv_heads;
    GradientParameters parameters;
    HS_TRY(map_heads(tensors.qkv.data, dtype, attention, heads_in_row, Shape::KeyTile::rows, &parameters.keys));
    HS_TRY(map_heads(tensors.qkv.data, dtype, attention, heads_in_row, Shape::step, &parameters.queries));
    HS_TRY(map_heads(tensors.dout.data, dtype, attention, attention.heads, Shape::step, &parameters.douts));
    HS_TRY(map_heads(tensors.dqkv.data, dtype, attention, heads_in_row, 64, &parameters.dqkv));
    const TensorMapShape statistics_shape = { context->workspace,
                                              HS_F32,
                                              2,
                                              { 2 * statistics, heads },
                                              { 4, statistics * (int64_t)sizeof(QueryStatistics) },
                                              { 2 * Shape::step, 1 },
                                              0 };
    HS_TRY(encode_tensor_map(statistics_shape, &parameters.statistics));
    const TensorMapShape sums_shape = { sums,
                                        HS_F32,
                                        2,
                                        { GRADIENT_PART_LINE, heads * workspace.query_tiles * GRADIENT_PART_LINES },
                                        { 4, GRADIENT_PART_LINE * 4 },
                                        { GRADIENT_PART_LINE, GRADIENT_PART_LINES },
                                        0 };
    HS_TRY(encode_tensor_map(sums_shape, &parameters.dquery));
    parameters.attention = attention;
    parameters.key_blocks = (int)blocks_for(attention.length, GRADIENT_KEYS);
    parameters.query_tiles = (int)workspace.query_tiles;
    parameters.turns = reinterpret_cast<unsigned *>(sums + workspace.sums_bytes);
    parameters.ticket = parameters.turns + workspace.counters - 1;
    const int works = attention.batch * attention.kv_heads * parameters.key_blocks;
    const int most = limits_of(context).multiprocessors;
    HS_TRY(hs_launch_after(context, HS_KERNEL((attention_backward_hopper_kernel<T, Shape>)), dim3(min(works, most)),
                           dim3(GRADIENT_THREADS), (size_t)Shape::shared_bytes, parameters));
    return attention_backward_finish_queries(context, attention, tensors.dqkv, reinterpret_cast<const float *>(sums),
                                             workspace.query_tiles);
}

} // namespace

HsStatus attention_backward_hopper(HsContext *context, const Attention &attention, const BackwardTensors &tensors)
{
    const bool narrow = attention.head_dim <= 64;
    if (tensors.qkv.dtype == HS_BF16)
        return narrow ? launch<Bf16, 64>(context, attention, tensors) : launch<Bf16, 128>(context, attention, tensors);
    return narrow ? launch<F16, 64>(context, attention, tensors) : launch<F16, 128>(context, attention, tensors);
}

} // namespace HS_CUDA_NAMESPACE
