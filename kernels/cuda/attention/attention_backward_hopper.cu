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
 * One warpgroup serves them: a thread copies tiles into rings, another takes dQ and the results away.
 *
 * dQ of a query tile is a sum over blocks of keys.  Each block adds its part to f32 sums in memory (L2), as a copy that
 * reduces, and always in the same order.  A block waits for its turn, a counter for each tile.  So the same bits come
 * out every time, without the two further products that a separate pass for dQ would take.  Where bits may vary
 * (HsCudaOptions.unordered), the first of a tile's parts is stored as ever, and the others are added as they come.
 *
 * Work goes by ticket, a block of keys each, and a tile's turns are in the order of its tickets.  Heads have one of two
 * orders (work_of):
 *     early heads, one after the other      from the last block of keys to the first.  All start at their diagonal, so
 *                                           the next in order comes to a tile just when the one before has left it,
 *                                           and hardly ever waits; a head's tiles are read by all while they are in L2.
 *     late heads, interleaved               from the first block of keys, which has the most steps, to the last: the
 *                                           kernel ends with its shortest tickets, and multiprocessors end together.
 *                                           In a head by itself each block would wait for the one before; but the next
 *                                           ticket of a head comes `late` tickets later, when its tiles are summed.
 *
 * No block waits for ever, however blocks are scheduled.  Tickets are drawn in order, and a block works on its tickets
 * in order.  Consider the smallest ticket that is not done.  It has been drawn, or will be by the next block that is
 * done with its own; that block works on it, since what it drew before is smaller and done.  It waits only for parts of
 * smaller tickets: in both orders a tile's turn counts the tickets of its head that see the tile and are smaller.
 * Those are done, so it gets on.
 *
 * A dQ part travels in the order of its registers; the sums are put in order when they are rounded
 * (attention_query_gradient.cu).
 *
 * A consumer's step j, and what the tensor cores have to do meanwhile:
 *     issue S_j, dP_j
 *     P_j                                  dP_j
 *     issue dV_j += P_j dO, by 64 queries
 *     dS_j, also to shared memory          dV_j
 *     issue dQ_(j-1) = dS_(j-1) K, a step late, and dK_j += dS_j Q
 *     dQ_(j-1) on its way                  dK_j
 * Since dQ comes a step late, and dS^T has two buffers with mbarriers, no consumer waits for the other's dS^T of this
 * step: they may be a step apart.  They take turns at issuing S and dP (named barriers, as in the forward pass), so that
 * one has its exponentials while the other's products run.
 *
 * Keys and values of the next ticket are loaded while this one's steps run; at width 128, where values have one buffer,
 * they come as soon as both consumers have the last dP.  dV and dK leave by the place of dQ's parts.
 */
#include "kernels/cuda/attention/attention_backward_hopper.cuh"
#include "kernels/cuda/attention/attention_hopper_softmax.cuh"
#include "kernels/cuda/device/device.cuh"

namespace HS_CUDA_NAMESPACE
{

namespace
{

enum { TURN_BARRIER = 1 }; /* one for each consumer */

/* A ticket: a block of keys, of a head early or late in the order of tickets.  One lies next to each buffer of keys in
 * shared memory, written by the thread that loads them. */
struct GradientWork {
    int sequence, kv_head, key_block, late; /* key_block < 0: no more tickets */

    template <typename Shape> __device__ __forceinline__ int first_tile() const
    {
        return key_block * (GRADIENT_KEYS / Shape::step);
    }
    /* How many smaller tickets add to the tile. */
    template <typename Shape> __device__ __forceinline__ unsigned turn(int tile) const
    {
        return (unsigned)(late ? key_block : tile * Shape::step / GRADIENT_KEYS - key_block);
    }
};

HS_DEVICE GradientWork work_of(const GradientParameters &parameters, int ticket)
{
    const int blocks = parameters.key_blocks, kv_heads = parameters.attention.kv_heads;
    const int of_late = ticket - parameters.early_heads * blocks;
    if (of_late < 0) {
        const int head = ticket / blocks;
        return { head / kv_heads, head % kv_heads, blocks - 1 - ticket % blocks, 0 };
    }
    const int head = parameters.early_heads + of_late % parameters.late_heads;
    return { head / kv_heads, head % kv_heads, of_late / parameters.late_heads, 1 };
}

/* The steps of a ticket: in each query head of the group, the query tiles from the diagonal on. */
template <typename Shape> struct GradientSteps {
    int tile, head, left; /* left: this one included */

    __device__ __forceinline__ GradientSteps(const GradientParameters &parameters, const GradientWork &work)
    {
        const int group = parameters.attention.heads / parameters.attention.kv_heads;
        tile = work.template first_tile<Shape>();
        head = work.kv_head * group;
        left = group * (parameters.query_tiles - work.template first_tile<Shape>());
    }
    __device__ __forceinline__ void next(const GradientParameters &parameters, const GradientWork &work)
    {
        left--;
        if (++tile == parameters.query_tiles) {
            tile = work.template first_tile<Shape>();
            head++;
        }
    }
};

/* Use n of a ring of `count` is in stage n % count and in phase n / count of its mbarriers. */
template <int count> HS_DEVICE uint32_t stage_of(unsigned use)
{
    return use % count;
}
template <int count> HS_DEVICE unsigned parity_of(unsigned use)
{
    return use / count & 1;
}
template <int count> HS_DEVICE uint32_t mbarrier_of(uint32_t barriers, unsigned use)
{
    return barriers + 8 * stage_of<count>(use);
}
/* Until use n is full; until it is empty again after use n - count. */
template <int count> HS_DEVICE void wait_full(uint32_t barriers, unsigned use)
{
    ptx::mbarrier_wait(mbarrier_of<count>(barriers, use), parity_of<count>(use));
}
template <int count> HS_DEVICE void wait_empty(uint32_t barriers, unsigned use)
{
    ptx::mbarrier_wait(mbarrier_of<count>(barriers, use), parity_of<count>(use) ^ 1);
}

/* The thread that fills the rings. */
template <typename Shape>
HS_DEVICE void load_gradient_tiles(const GradientParameters &parameters, unsigned char *shared)
{
    typedef typename Shape::KeyTile KeyTile;
    typedef typename Shape::QueryTile QueryTile;
    const Attention &attention = parameters.attention;
    const uint32_t base = ptx::shared_address(shared);
    const int tickets = attention.batch * attention.kv_heads * parameters.key_blocks;
    unsigned step = 0;
    for (unsigned n = 0;; n++) {
        const int ticket = (int)atomicAdd(parameters.ticket, 1u);
        const uint32_t keys_full = mbarrier_of<GRADIENT_BUFFERS>(base + Shape::keys_full, n);
        wait_empty<GRADIENT_BUFFERS>(base + Shape::keys_empty, n);
        GradientWork work = { 0, 0, -1, 0 };
        if (ticket < tickets)
            work = work_of(parameters, ticket);
        reinterpret_cast<GradientWork *>(shared + Shape::works)[stage_of<GRADIENT_BUFFERS>(n)] = work;
        if (work.key_block < 0) {
            ptx::mbarrier_arrive(keys_full);
            return;
        }
        const int first_key = work.key_block * GRADIENT_KEYS, key_head = attention.heads + work.kv_head;
        ptx::mbarrier_arrive_expect(keys_full, KeyTile::bytes);
        load_head<KeyTile>(base + stage_of<GRADIENT_BUFFERS>(n) * KeyTile::bytes, &parameters.keys, keys_full, key_head,
                           first_key, work.sequence);
        const uint32_t values_full = mbarrier_of<Shape::value_buffers>(base + Shape::values_full, n);
        wait_empty<Shape::value_buffers>(base + Shape::values_empty, n);
        ptx::mbarrier_arrive_expect(values_full, KeyTile::bytes);
        load_head<KeyTile>(base + Shape::values + stage_of<Shape::value_buffers>(n) * KeyTile::bytes, &parameters.keys,
                           values_full, key_head + attention.kv_heads, first_key, work.sequence);
#pragma unroll 1
        for (GradientSteps<Shape> at(parameters, work); at.left > 0; at.next(parameters, work), step++) {
            const uint32_t full = mbarrier_of<GRADIENT_STAGES>(base + Shape::full, step);
            const uint32_t stage = stage_of<GRADIENT_STAGES>(step);
            const uint32_t queries = base + Shape::stages + stage * Shape::stage_bytes;
            wait_empty<GRADIENT_STAGES>(base + Shape::empty, step);
            ptx::mbarrier_arrive_expect(full, Shape::stage_bytes + Shape::statistics_bytes);
            load_head<QueryTile>(queries, &parameters.queries, full, at.head, at.tile * Shape::step, work.sequence);
            load_head<QueryTile>(queries + QueryTile::bytes, &parameters.douts, full, at.head, at.tile * Shape::step,
                                 work.sequence);
            ptx::load_tile(base + Shape::statistics + stage * Shape::statistics_bytes, &parameters.statistics, full,
                           2 * at.tile * Shape::step, work.sequence * attention.heads + at.head);
        }
    }
}

/* A ticket's dV and dK, from the consumers' places of parts to rows of dqkv. */
template <typename Shape>
HS_DEVICE void store_results(const GradientParameters &parameters, const GradientWork &work, uint32_t base,
                             unsigned &parity)
{
    typedef typename Shape::Result Result;
    const Attention &attention = parameters.attention;
    const int key_head = attention.heads + work.kv_head;
#pragma unroll
    for (int result = 0; result < 2; result += Shape::results_at_once) {
        ptx::mbarrier_wait(base + Shape::parts_full, parity);
#pragma unroll
        for (int tile = 0; tile < GRADIENT_CONSUMERS * Shape::results_at_once; tile++) {
            const int consumer = tile % GRADIENT_CONSUMERS, place = tile / GRADIENT_CONSUMERS;
            const uint32_t source = base + Shape::parts + consumer * GRADIENT_PART_BYTES + place * Result::bytes;
            for (int box = 0; box < Result::boxes; box++)
                ptx::store_tile(source + box * Result::box_bytes, &parameters.dqkv, box * HEAD_BOX,
                                result + place == 0 ? key_head + attention.kv_heads : key_head,
                                work.key_block * GRADIENT_KEYS + consumer * 64, work.sequence);
        }
        ptx::store_tile_commit();
        ptx::store_tile_wait<0>();
        ptx::mbarrier_arrive(base + Shape::parts_empty);
        parity ^= 1;
    }
}

/* The thread that takes results away: adds parts of dQ to the sums, each at its turn, and stores dV and dK. */
template <typename Shape> HS_DEVICE void take_results(const GradientParameters &parameters, unsigned char *shared)
{
    const Attention &attention = parameters.attention;
    const uint32_t base = ptx::shared_address(shared);
    unsigned parity = 0;
    for (unsigned n = 0;; n++) {
        wait_full<GRADIENT_BUFFERS>(base + Shape::keys_full, n);
        const GradientWork work =
            reinterpret_cast<const GradientWork *>(shared + Shape::works)[stage_of<GRADIENT_BUFFERS>(n)];
        ptx::mbarrier_arrive(mbarrier_of<GRADIENT_BUFFERS>(base + Shape::keys_empty, n));
        if (work.key_block < 0)
            return;
#pragma unroll 1
        for (GradientSteps<Shape> at(parameters, work); at.left > 0; at.next(parameters, work)) {
            const int index = (work.sequence * attention.heads + at.head) * parameters.query_tiles + at.tile;
            const unsigned turn = work.template turn<Shape>(at.tile);
            ptx::mbarrier_wait(base + Shape::parts_full, parity);
            parity ^= 1;
            /* As many as have to be added before: all before it, or the one that is stored. */
            for (const unsigned before = parameters.unordered ? min(turn, 1u) : turn;
                 ptx::load_acquire(parameters.turns + index) != before;) {
            }
            ptx::fence_global_to_async();
            if (turn == 0)
                ptx::store_tile(base + Shape::parts, &parameters.dquery, 0, index * GRADIENT_PART_LINES);
            else
                ptx::add_tile(base + Shape::parts, &parameters.dquery, 0, index * GRADIENT_PART_LINES);
            ptx::store_tile_commit();
            ptx::store_tile_wait<0>();
            ptx::mbarrier_arrive(base + Shape::parts_empty);
            if (parameters.unordered && turn > 0)
                continue;
            ptx::store_tile_wait_written<0>();
            ptx::store_release(parameters.turns + index, turn + 1);
        }
        store_results<Shape>(parameters, work, base, parity);
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

/* dP^T of 64 queries becomes dS^T. */
template <bool drops>
HS_DEVICE void score_gradients(float *gradient, const float *probability, const unsigned char *statistics,
                               const Dropout &dropout)
{
    if constexpr (drops) {
#pragma unroll
        for (int i = 0; i < 32; i++)
            gradient[i] = probability[i] < 0.0f ? 0.0f : gradient[i] * dropout.factor;
    }
#pragma unroll
    for (int j = 0; j < 8; j++) {
        const Pack<float, 4> query = statistics_of(statistics, j);
#pragma unroll
        for (int i = 0; i < 4; i++)
            gradient[4 * j + i] = (drops ? fabsf(probability[4 * j + i]) : probability[4 * j + i]) *
                                  (gradient[4 * j + i] - query.value[i % 2 * 2 + 1]);
    }
}

/* (F P)^T of 64 queries without the factor 1 / (1 - p), rounded. */
template <typename T, bool drops> HS_DEVICE void round_kept(uint32_t (&weights)[4][4], const float *probability)
{
#pragma unroll
    for (int k = 0; k < 4; k++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float low = probability[8 * k + 2 * i], high = probability[8 * k + 2 * i + 1];
            weights[k][i] = drops ? pack_pair<T>(fmaxf(low, 0.0f), fmaxf(high, 0.0f)) : pack_pair<T>(low, high);
        }
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

/* A warp says that it is through. */
HS_DEVICE void arrive_warp(uint32_t mbarrier)
{
    __syncwarp();
    if (threadIdx.x % WARP_SIZE == 0)
        ptx::mbarrier_arrive(mbarrier);
}

/* How far a consumer is.  A step's part of dQ and a ticket's results go by one place, one after the other. */
template <typename Shape> struct ConsumerCount {
    unsigned steps, tickets; /* done */

    __device__ __forceinline__ unsigned sent() const
    {
        return steps + tickets * (2 / Shape::results_at_once);
    }
};

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

/* The same for a step of a ticket, once both consumers have written its dS^T. */
template <typename T, typename Shape>
HS_DEVICE void begin_query_part_of(float (&part)[32], unsigned step, unsigned ticket, uint32_t base)
{
    wait_full<GRADIENT_BUFFERS>(base + Shape::scores_full, step);
    ptx::wgmma_fence();
    begin_query_part<T, Shape>(part, base + Shape::scores + stage_of<GRADIENT_BUFFERS>(step) * Shape::score_bytes,
                               base + stage_of<GRADIENT_BUFFERS>(ticket) * Shape::KeyTile::bytes,
                               ptx::thread_anew() / 128 - 1);
    ptx::wgmma_commit();
}

/* dQ's part of a step, with its product done, in the order of its registers: no two lanes of a store share a bank. */
template <typename Shape>
HS_DEVICE void send_query_part(const float (&part)[32], unsigned step, unsigned sent, unsigned char *shared)
{
    const uint32_t base = ptx::shared_address(shared);
    arrive_warp(mbarrier_of<GRADIENT_BUFFERS>(base + Shape::scores_empty, step));
    const int thread = ptx::thread_anew() - 128; /* a part is 4,096 floats: 1,024 a warp */
    float *const mine =
        reinterpret_cast<float *>(shared + Shape::parts) + (thread / WARP_SIZE * 256 + thread % WARP_SIZE) * 4;
    wait_empty<1>(base + Shape::parts_empty, sent);
#pragma unroll
    for (int j = 0; j < 8; j++)
        store_pack<float, 4>(mine + j * WARP_SIZE * 4,
                             { { part[4 * j], part[4 * j + 1], part[4 * j + 2], part[4 * j + 3] } });
    ptx::fence_shared_to_async();
    arrive_warp(base + Shape::parts_full);
}

/* This consumer's 64 keys of dV and dK, each times its factor, by the places of parts of dQ.  keys: of the sequence, from
 * the block's first. */
template <typename T, typename Shape>
HS_DEVICE void send_results(const float (&dvalue)[Shape::width / 2], const float (&dkey)[Shape::width / 2],
                            const Attention &attention, int keys, unsigned sent, unsigned char *shared)
{
    typedef typename Shape::Result Result;
    const uint32_t base = ptx::shared_address(shared);
    const int thread = ptx::thread_anew(), row = thread % 128 / WARP_SIZE * 16 + thread % WARP_SIZE / 4;
    unsigned char *const mine = shared + Shape::parts + (thread / 128 - 1) * GRADIENT_PART_BYTES;
    unsigned char *const behind = mine + (Shape::results_at_once - 1) * Result::bytes;
    const float value_factors[2] = { attention.dropout.factor, attention.dropout.factor };
    const float key_factors[2] = { attention.scale, attention.scale };
    const int rows = keys - (thread / 128 - 1) * 64;
    const auto send = [&] {
        ptx::fence_shared_to_async();
        arrive_warp(base + Shape::parts_full);
        sent++;
    };
    wait_empty<1>(base + Shape::parts_empty, sent);
    stage_results<T, Result>(dvalue, value_factors, mine, row);
    leave_amax_of_results<T, Result>(attention.amax, mine, row, rows);
    if (Shape::results_at_once == 1) {
        send();
        wait_empty<1>(base + Shape::parts_empty, sent);
    }
    stage_results<T, Result>(dkey, key_factors, behind, row);
    leave_amax_of_results<T, Result>(attention.amax, behind, row, rows);
    send();
}

/* P^T of a step, from S^T.  The state of dropout is read anew each time: registers are for products. */
template <typename Shape, bool drops>
HS_DEVICE void step_probabilities(float (&probability)[Shape::step / 2], const Attention &attention,
                                  const GradientWork &work, const GradientSteps<Shape> &at,
                                  const unsigned char *statistics, const unsigned char *shared)
{
    const int thread = ptx::thread_anew(), query = at.tile * Shape::step, first_key = work.key_block * GRADIENT_KEYS;
    const int consumer_key = first_key + thread / 128 * 64 - 64,
              warp_key = consumer_key + thread % 128 / WARP_SIZE * 16;
    transposed_probabilities(probability, statistics, attention.scale_log2, query < consumer_key + 63,
                             query - warp_key - thread % WARP_SIZE / 4);
    if constexpr (drops) {
        const Dropout dropout = *reinterpret_cast<const Dropout *>(shared + Shape::dropout);
        mark_dropped(probability, dropout,
                     dropout_head(dropout, (int64_t)work.sequence * attention.length, attention.heads, at.head,
                                  attention.length),
                     query, warp_key);
    }
}

/* A step of a consumer.  first: of a ticket, without a part of dQ from the step before. */
template <typename T, typename Shape, bool drops, bool first>
HS_DEVICE void gradient_step(float (&dkey)[Shape::width / 2], float (&dvalue)[Shape::width / 2],
                             const Attention &attention, const GradientWork &work, const GradientSteps<Shape> &at,
                             ConsumerCount<Shape> &count, unsigned char *shared)
{
    typedef typename Shape::KeyTile KeyTile;
    typedef typename Shape::QueryTile QueryTile;
    constexpr int step = Shape::step;
    const int consumer = ptx::thread_anew() / 128 - 1;
    const uint32_t base = ptx::shared_address(shared), stage = stage_of<GRADIENT_STAGES>(count.steps);
    const uint32_t queries = base + Shape::stages + stage * Shape::stage_bytes, douts = queries + QueryTile::bytes;
    const unsigned char *const statistics = shared + Shape::statistics + stage * Shape::statistics_bytes;

    wait_full<GRADIENT_STAGES>(base + Shape::full, count.steps);
    ptx::barrier_sync(TURN_BARRIER + consumer, 128 * GRADIENT_CONSUMERS);
    float probability[step / 2], gradient[step / 2];
    ptx::wgmma_fence();
    begin_rows<T, KeyTile, QueryTile>(probability, base + stage_of<GRADIENT_BUFFERS>(count.tickets) * KeyTile::bytes,
                                      consumer * 64, queries);
    ptx::wgmma_commit();
    begin_rows<T, KeyTile, QueryTile>(
        gradient, base + Shape::values + stage_of<Shape::value_buffers>(count.tickets) * KeyTile::bytes, consumer * 64,
        douts);
    ptx::wgmma_commit();
    ptx::barrier_arrive(TURN_BARRIER + 1 - consumer, 128 * GRADIENT_CONSUMERS);
    ptx::wgmma_wait<1>();
    ptx::wgmma_settle(probability);
    step_probabilities<Shape, drops>(probability, attention, work, at, statistics, shared);
    /* By 64 queries: rounded probabilities of all of them, with what dS^T is made of, would be too many registers. */
    uint32_t kept[step / 64][4][4], rounded[step / 16][4];
#pragma unroll
    for (int part = 0; part < step / 64; part++) {
        if (part > 0) {
            ptx::wgmma_wait<0>(); /* two such products at once, ptxas finds, are too many registers as well */
            ptx::wgmma_settle(dvalue);
        }
        round_kept<T, drops>(kept[part], probability + 32 * part);
        ptx::wgmma_fence();
        begin_weights<T, HeadTile<Shape::width, 64>>(dvalue, kept[part], douts + part * 64 * HEAD_LINE, true);
        ptx::wgmma_commit();
        if (part == 0) {
            ptx::wgmma_wait<1>(); /* for dP^T */
            ptx::wgmma_settle(gradient);
        }
        score_gradients<drops>(gradient + 32 * part, probability + 32 * part,
                               statistics + part * 64 * (int)sizeof(QueryStatistics), attention.dropout);
    }
    round_sums<T>(rounded, gradient); /* in place of the floats */
    if (at.left == 1)
        arrive_warp(mbarrier_of<Shape::value_buffers>(base + Shape::values_empty, count.tickets));
    wait_empty<GRADIENT_BUFFERS>(base + Shape::scores_empty, count.steps);
    store_scores(rounded, shared + Shape::scores + stage_of<GRADIENT_BUFFERS>(count.steps) * Shape::score_bytes,
                 Shape::score_box, (ptx::thread_anew() / WARP_SIZE - 4) * 16);
    ptx::fence_shared_to_async();
    arrive_warp(mbarrier_of<GRADIENT_BUFFERS>(base + Shape::scores_full, count.steps));

    float part[32];
    if constexpr (!first)
        begin_query_part_of<T, Shape>(part, count.steps - 1, count.tickets, base);
    ptx::wgmma_fence();
    begin_weights<T, QueryTile>(dkey, rounded, queries, true);
    ptx::wgmma_commit();
    if constexpr (!first) {
        ptx::wgmma_wait<1>();
        ptx::wgmma_settle(part);
        send_query_part<Shape>(part, count.steps - 1, count.sent() - 1, shared);
    }
    ptx::wgmma_wait<0>();
    ptx::wgmma_settle(dkey);
    ptx::wgmma_settle(dvalue);
    arrive_warp(mbarrier_of<GRADIENT_STAGES>(base + Shape::empty, count.steps));
    count.steps++;
}

/* A warpgroup of consumers. */
template <typename T, typename Shape, bool drops>
HS_DEVICE void consume_gradient_tiles(const GradientParameters &parameters, unsigned char *shared)
{
    constexpr int width = Shape::width;
    const Attention &attention = parameters.attention;
    const uint32_t base = ptx::shared_address(shared);
    ConsumerCount<Shape> count = { 0, 0 };
    if (threadIdx.x >= 256)
        ptx::barrier_arrive(TURN_BARRIER, 128 * GRADIENT_CONSUMERS); /* the first turn is consumer 0's */
    for (;; count.tickets++) {
        wait_full<GRADIENT_BUFFERS>(base + Shape::keys_full, count.tickets);
        const GradientWork work =
            reinterpret_cast<const GradientWork *>(shared + Shape::works)[stage_of<GRADIENT_BUFFERS>(count.tickets)];
        if (work.key_block < 0)
            break;
        float dkey[width / 2], dvalue[width / 2];
#pragma unroll
        for (int i = 0; i < width / 2; i++)
            dkey[i] = dvalue[i] = 0.0f;
        wait_full<Shape::value_buffers>(base + Shape::values_full, count.tickets);
        GradientSteps<Shape> at(parameters, work);
        gradient_step<T, Shape, drops, true>(dkey, dvalue, attention, work, at, count, shared);
#pragma unroll 1
        for (at.next(parameters, work); at.left > 0; at.next(parameters, work))
            gradient_step<T, Shape, drops, false>(dkey, dvalue, attention, work, at, count, shared);

        float part[32];
        begin_query_part_of<T, Shape>(part, count.steps - 1, count.tickets, base);
        ptx::wgmma_wait<0>();
        ptx::wgmma_settle(part);
        arrive_warp(mbarrier_of<GRADIENT_BUFFERS>(base + Shape::keys_empty, count.tickets));
        send_query_part<Shape>(part, count.steps - 1, count.sent() - 1, shared);
        send_results<T, Shape>(dvalue, dkey, attention, attention.length - work.key_block * GRADIENT_KEYS, count.sent(),
                               shared);
    }
    if (threadIdx.x < 256)
        ptx::barrier_sync(TURN_BARRIER, 128 * GRADIENT_CONSUMERS); /* the turn that no consumer takes */
}

template <typename T, typename Shape, bool drops>
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
        for (int buffer = 0; buffer < GRADIENT_BUFFERS; buffer++) {
            ptx::mbarrier_init(base + Shape::keys_full + 8 * buffer, 1);
            ptx::mbarrier_init(base + Shape::keys_empty + 8 * buffer, consumer_warps + 1);
            ptx::mbarrier_init(base + Shape::values_full + 8 * buffer, 1);
            ptx::mbarrier_init(base + Shape::values_empty + 8 * buffer, consumer_warps);
            ptx::mbarrier_init(base + Shape::scores_full + 8 * buffer, consumer_warps);
            ptx::mbarrier_init(base + Shape::scores_empty + 8 * buffer, consumer_warps);
        }
        for (int stage = 0; stage < GRADIENT_STAGES; stage++) {
            ptx::mbarrier_init(base + Shape::full + 8 * stage, 1);
            ptx::mbarrier_init(base + Shape::empty + 8 * stage, consumer_warps);
        }
        ptx::mbarrier_init(base + Shape::parts_full, consumer_warps);
        ptx::mbarrier_init(base + Shape::parts_empty, 1);
        if constexpr (drops) {
            Dropout *const dropout = reinterpret_cast<Dropout *>(shared + Shape::dropout);
            *dropout = parameters.attention.dropout;
            ptx::wait_for_kernel_before(); /* the step's number is in device memory */
            fix_step(*dropout);
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
            take_results<Shape>(parameters, shared);
    } else {
        ptx::more_registers<GRADIENT_CONSUMER_REGISTERS>();
        consume_gradient_tiles<T, Shape, drops>(parameters, shared);
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
    parameters.unordered = options_of(context).unordered;
    const int works = attention.batch * attention.kv_heads * parameters.key_blocks;
    const int most = limits_of(context).multiprocessors;
    parameters.late_heads = late_heads(attention.batch * attention.kv_heads, parameters.key_blocks, most);
    parameters.early_heads = attention.batch * attention.kv_heads - parameters.late_heads;
    const dim3 grid(min(works, most)), block(GRADIENT_THREADS);
    if (attention.dropout.threshold != 0)
        HS_TRY(hs_launch_after(context, HS_KERNEL((attention_backward_hopper_kernel<T, Shape, true>)), grid, block,
                               (size_t)Shape::shared_bytes, parameters));
    else
        HS_TRY(hs_launch_after(context, HS_KERNEL((attention_backward_hopper_kernel<T, Shape, false>)), grid, block,
                               (size_t)Shape::shared_bytes, parameters));
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
