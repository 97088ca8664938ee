/* SPDX-License-Identifier: MIT
 *
 * 16-bit products on Hopper (sm_90a): tensor copies, wgmma, warpgroups with roles.
 *
 * A block has three warpgroups.  One thread of the first, the producer, copies steps of k (64 elements) of A and B into
 * a ring of stages; the other two, the consumers, multiply 64 rows each and finish what they multiplied.  They meet at
 * no barrier: a stage is `full` when its bytes have come, and `empty` when every warp that reads it has done with it.
 *
 *     producer:  wait empty[s]   expect the bytes   ask for A and B of the step            next stage
 *     consumer:  wait full[s]    four wgmma         wait for the step before, release it   next stage
 *
 * So one step's products are always under way while the next one's are issued, and the ring runs on across tiles: the
 * next tile's first stages fill while the consumers finish this one (matmul_hopper_epilogue.cuh), and its last stores
 * run during the next one's products.
 *
 * The tensor cores should multiply for one consumer while the other finishes its part.  There are two ways, a tile's
 * rows say which:
 *
 * 128 rows, shared: both consumers work on one tile, and the second runs `lag` steps behind the first.  It begins a
 * tile when the first has issued `lag` steps of it (a named barrier at which the first only arrives).  What that needs:
 *     - lag < stages: the first must get through `lag` steps while the second has released none of this tile's stages.
 *     - at least `stages` steps in the tile.  The first can be ahead by the ring's stages, so with fewer steps it could
 *       arrive for the next tile before the second has waited for this one.  No consumer waits in such a tile.
 * Half of the ring stays for copies on their way.
 *
 * 64 rows, in turns: the block's tiles go to the consumers alternately, and a stage belongs to one of them.  Stages are
 * filled in the order of tiles.  A consumer begins when the other has seen all stages of the tile before full (a named
 * barrier for each): it could not distinguish a stage's next round from the one before the last, both having the same
 * parity.  So each tile's epilogue has the time of the other's products.  But B is read for half as many rows: 24 KiB
 * from L2 for each 512 clocks of products, where shared tiles take 32 for 1,024.
 *
 * Blocks work in clusters of two on neighbouring rows of tiles, which need the same part of B: each brings half of it
 * to both (multicast), which halves B's traffic from L2.  A stage may therefore be overwritten only when the consumers
 * of both blocks have released it.  As many clusters as the GPU has room for continue from tile to tile.
 *
 * Both orders of both operands are read as they are stored: with k contiguous in lines along k, else in lines along
 * rows of A or columns of B, 64 of them a box.  Elements outside a matrix come as zeros, so that M, N and K may be any
 * numbers; what is stored has rows of multiples of 16 bytes.
 */
#ifndef HS_KERNELS_CUDA_PRODUCT_MATMUL_HOPPER_CUH
#define HS_KERNELS_CUDA_PRODUCT_MATMUL_HOPPER_CUH

#include "kernels/cuda/product/matmul_hopper_epilogue.cuh"
#include "kernels/cuda/product/matmul_hopper_work.cuh"

namespace HS_CUDA_NAMESPACE
{

struct HopperParameters {
    TensorMap a, b;
    HopperOutput output; /* with slices: the plain f32 sums' buffer [slices, M, N] */
    HopperDeal deal;
    int second; /* columns of op(b) from the cluster's first block's half of a tile to the second's */
};

enum {
    HOPPER_LINE = 128,     /* bytes; the swizzle's */
    HOPPER_BOX = 64 * 128, /* bytes of 64 lines */
    HOPPER_CONSUMERS = 2,  /* warpgroups of 64 rows */
    HOPPER_THREADS = 128 * (1 + HOPPER_CONSUMERS),
    HOPPER_LAG_BARRIER = 1,  /* 0 is the block's */
    HOPPER_TURN_BARRIER = 2, /* and 3: one for each consumer */
    HOPPER_PRODUCER_REGISTERS = 40,
    HOPPER_CONSUMER_REGISTERS = 232
};

/* Of a block: 128 rows are shared by its consumers, 64 are the one's or the other's. */
template <int rows_, int columns_, int stages_> struct HopperTile {
    static constexpr int rows = rows_, columns = columns_, stages = stages_;
    static constexpr bool shared = rows_ == 64 * HOPPER_CONSUMERS;
    static constexpr int readers = shared ? HOPPER_CONSUMERS : 1; /* consumers of a stage */
    static constexpr int lag = stages_ / 2;                       /* steps that the second consumer is behind */
    static constexpr int a_bytes = rows_ * HOPPER_LINE, b_bytes = columns_ * HOPPER_LINE;
    static constexpr int stage_bytes = a_bytes + b_bytes;
    static constexpr int line_bytes = rows_ * HOPPER_LINE; /* a line of each row, of an input */
    static constexpr int input_lines = stage_bytes / line_bytes < 4 ? 2 : 4;
    /* of four sums that a lane finishes at once: with 128 registers of sums there is room for few */
    static constexpr int groups = columns_ <= 128 ? 8 : 1;
    static constexpr int staging_offset = stages_ * stage_bytes;
    static constexpr int barrier_offset = staging_offset + HopperStaging::all_bytes;
    static constexpr int number_offset = barrier_offset + 2 * stages_ * 8;
    static constexpr int shared_bytes = number_offset + 8;
    static_assert(shared_bytes <= 227 * 1024, "what a block may have");
    static_assert(shared || rows_ == 64, "a consumer multiplies 64 rows");
    static_assert(columns_ % 128 == 0, "each block of a cluster brings whole boxes of B");
};

template <typename Tile> struct HopperRing {
    uint32_t base; /* shared address of the first stage */

    __device__ __forceinline__ uint32_t a(int stage) const
    {
        return base + (uint32_t)(stage * Tile::stage_bytes);
    }
    __device__ __forceinline__ uint32_t b(int stage) const
    {
        return a(stage) + Tile::a_bytes;
    }
    __device__ __forceinline__ uint32_t full(int stage) const
    {
        return base + (uint32_t)(Tile::barrier_offset + stage * 8);
    }
    __device__ __forceinline__ uint32_t empty(int stage) const
    {
        return full(stage) + Tile::stages * 8;
    }
};

/* One step's copies into a stage.  `rank`: which half of B this block brings, `column`: where the first begins. */
template <typename Tile, bool a_contiguous, bool b_contiguous>
HS_DEVICE void hopper_copy(const HopperParameters &parameters, const HopperRing<Tile> &ring, int stage, int rank,
                           int row, int column, int k)
{
    constexpr unsigned all = (1u << HOPPER_CLUSTER) - 1;
    constexpr int own_columns = Tile::columns / HOPPER_CLUSTER;
    const uint32_t full = ring.full(stage), a = ring.a(stage);
    const uint32_t b = ring.b(stage) + (uint32_t)(rank * own_columns * HOPPER_LINE);
    const int first = column + rank * parameters.second;
    ptx::mbarrier_arrive_expect(full, Tile::stage_bytes);
    if (a_contiguous) {
        ptx::load_tile(a, &parameters.a, full, k, row);
    } else {
#pragma unroll
        for (int box = 0; box < Tile::rows / 64; box++)
            ptx::load_tile(a + box * HOPPER_BOX, &parameters.a, full, row + box * 64, k);
    }
    if (b_contiguous) {
        ptx::load_tile_multicast(b, &parameters.b, full, k, first, all);
    } else {
#pragma unroll
        for (int box = 0; box < own_columns / 64; box++)
            ptx::load_tile_multicast(b + box * HOPPER_BOX, &parameters.b, full, first + box * 64, k, all);
    }
}

/* The epilogue's inputs of a tile, in as many stages as they take.  Returns the place behind them. */
template <typename Tile>
HS_DEVICE RingPlace<Tile::stages> hopper_copy_inputs(const HopperOutput &output, const HopperRing<Tile> &ring,
                                                     RingPlace<Tile::stages> place, int row, int column)
{
    const int parts = hopper_parts<Tile::columns>(output, column);
    for (int part = 0; part < parts; part += output.stage_parts)
        for (int input = 0; input < output.input_count; input++, place.next()) {
            const int size = output.input_dtypes[input] == HS_F32 ? 4 : 2;
            const int lines = min(parts - part, output.stage_parts) * (size / 2);
            const uint32_t full = ring.full(place.stage);
            ptx::mbarrier_wait(ring.empty(place.stage), place.parity ^ 1);
            ptx::mbarrier_arrive_expect(full, lines * Tile::line_bytes);
            for (int line = 0; line < lines; line++)
                ptx::load_tile(ring.a(place.stage) + (uint32_t)(line * Tile::line_bytes), &output.inputs[input], full,
                               column + part * HopperStaging::columns + line * (HOPPER_LINE / size), row, 0);
        }
    return place;
}

/* Stages that the inputs of a tile take. */
template <typename Tile> HS_DEVICE int hopper_input_stages(const HopperOutput &output, const HopperWork &work)
{
    if (output.input_count == 0)
        return 0;
    const int parts = hopper_parts<Tile::columns>(output, work.position.column * Tile::columns);
    return (parts + output.stage_parts - 1) / output.stage_parts * output.input_count;
}

/* The products of one step: 64 rows of A, `box` boxes behind the stage's first. */
template <typename Element, typename Tile, bool a_contiguous, bool b_contiguous> struct HopperMultiply {
    static __device__ __forceinline__ void issue(const HopperRing<Tile> &ring, int stage, int box,
                                                 float (&sums)[Tile::columns / 2], bool add)
    {
        const uint64_t a = ptx::wgmma_descriptor(ring.a(stage) + (uint32_t)(box * HOPPER_BOX), 1024, HOPPER_BOX);
        const uint64_t b = ptx::wgmma_descriptor(ring.b(stage), 1024, HOPPER_BOX);
        ptx::wgmma_fence();
#pragma unroll
        for (int k = 0; k < HOPPER_STEP; k += 16) {
            const uint32_t along = (uint32_t)k * 2, across = (uint32_t)(k * HOPPER_LINE);
            ptx::wgmma<Element, !a_contiguous, !b_contiguous>(
                sums, ptx::advance_descriptor(a, a_contiguous ? along : across),
                ptx::advance_descriptor(b, b_contiguous ? along : across), add || k > 0);
        }
        ptx::wgmma_commit();
    }
};

/* A consumer's products of a tile.  A step is issued before the one before it is waited for and its stage released;
 * finish() does both for the last one.  lead(step) comes before each step. */
template <typename Multiply, typename Tile> struct HopperProducts {
    HopperRing<Tile> ring;
    int before;

    template <typename Release, typename Lead>
    __device__ __forceinline__ void run(const HopperWork &work, RingPlace<Tile::stages> &place, int box,
                                        float (&sums)[Tile::columns / 2], const Release &release, const Lead &lead)
    {
        /* The first by itself: that it adds to nothing has to be seen, or the last tile's sums stay in their registers. */
        lead(0);
        ptx::mbarrier_wait(ring.full(place.stage), place.parity);
        Multiply::issue(ring, place.stage, box, sums, false);
        before = place.stage;
        place.next();
        for (int step = 1; step < work.steps; step++, place.next()) {
            lead(step);
            ptx::mbarrier_wait(ring.full(place.stage), place.parity);
            Multiply::issue(ring, place.stage, box, sums, true);
            ptx::wgmma_wait<1>();
            release(before);
            before = place.stage;
        }
    }

    template <typename Release>
    __device__ __forceinline__ void finish(float (&sums)[Tile::columns / 2], const Release &release)
    {
        ptx::wgmma_wait<0>();
        ptx::wgmma_settle(sums);
        release(before);
    }
};

/* The producer: every step of every tile of this block, as stages become empty. */
template <typename Tile, bool a_contiguous, bool b_contiguous>
HS_DEVICE void hopper_fill(const HopperParameters &parameters, const HopperRing<Tile> &ring, int rank, int number)
{
    const int count = hopper_count(parameters.deal, number);
    RingPlace<Tile::stages> place;
    for (int i = 0; i < count; i++) {
        const HopperWork work = hopper_work(parameters.deal, number, i);
        const int row = (work.position.row * HOPPER_CLUSTER + rank) * Tile::rows;
        const int column = work.position.column * parameters.deal.columns;
        for (int step = 0; step < work.steps; step++, place.next()) {
            ptx::mbarrier_wait(ring.empty(place.stage), place.parity ^ 1);
            hopper_copy<Tile, a_contiguous, b_contiguous>(parameters, ring, place.stage, rank, row, column,
                                                          work.k_of(step));
        }
        if (parameters.output.input_count > 0)
            place = hopper_copy_inputs(parameters.output, ring, place, row, column);
    }
}

/* A summing warp's two rows a lane, at its turn. */
template <typename Tile>
HS_DEVICE void hopper_add_row_sums(const HopperParameters &parameters, const HopperWork &work, const float (&sums)[2],
                                   int rank, int box, int lane)
{
    const MatmulOutput &output = parameters.output.matmul;
    const HopperTurn turn = hopper_turn(parameters.deal, work, HOPPER_ROW_TURNS + rank * (Tile::rows / 64) + box);
    turn.wait(lane);
    for (int i = 0; i < 2; i++) {
        const int row = (work.position.row * HOPPER_CLUSTER + rank) * Tile::rows + box * 64 + lane * 2 + i;
        if (row >= output.rows)
            continue;
        if (parameters.deal.slices > 1)
            output.row_sums[(int64_t)work.slice * output.rows + row] = sums[i];
        else
            output.row_sums[row] += sums[i];
    }
    __syncwarp(); /* all lanes have added */
    turn.pass(lane);
}

/* Row sums of A, stored with k across (the bias's gradient, made with a weight's), by warps of the producer's warpgroup
 * that have nothing else to do.  A warp reads one box of each stage, a lane two neighbouring rows of it: 64 loads of 4
 * bytes, of which each takes all banks once, and 128 additions in the order of k, while the tensor cores take 512
 * clocks and more for the step.  Such a warp is a reader of every stage of its block; it sums in tiles of column 0.
 */
template <typename Element, typename Tile>
HS_DEVICE void hopper_sum_rows(const HopperParameters &parameters, const HopperRing<Tile> &ring, unsigned char *shared,
                               int rank)
{
    const int lane = (int)threadIdx.x % WARP_SIZE, box = (int)threadIdx.x / WARP_SIZE - 1;
    /* Reckoned anew after a tile's steps: the producer's warps have few registers. */
    auto number = [&] { return hopper_number(parameters.deal, shared + Tile::number_offset); };
    RingPlace<Tile::stages> place;
    for (int item = 0; item < hopper_count(parameters.deal, number()); item++) {
        const HopperWork work = hopper_work(parameters.deal, number(), item);
        const int steps = work.steps + hopper_input_stages<Tile>(parameters.output, work);
        const int summed = work.position.column == 0 ? work.steps : 0;
        float sums[2] = { 0.0f, 0.0f };
        for (int step = 0; step < steps; step++, place.next()) {
            ptx::mbarrier_wait(ring.full(place.stage), place.parity);
            const unsigned char *const lines = shared + place.stage * Tile::stage_bytes + box * HOPPER_BOX;
#pragma unroll 8
            for (int k = 0; k < (step < summed ? (int)HOPPER_STEP : 0); k++) {
                const int piece = lane / 4 ^ k % 8; /* the tensor map's swizzle */
                const Pack<Element, 2> pair = load_pack<Element, 2>(
                    reinterpret_cast<const Element *>(lines + k * HOPPER_LINE + piece * 16 + lane % 4 * 4));
                sums[0] += to_float(pair.value[0]);
                sums[1] += to_float(pair.value[1]);
            }
            __syncwarp(); /* all lanes have read */
            if (lane == 0)
                ptx::mbarrier_arrive(ring.empty(place.stage));
        }
        if (summed > 0)
            hopper_add_row_sums<Tile>(parameters, hopper_work(parameters.deal, number(), item), sums, rank, box, lane);
    }
}

/* By one thread: what the ring needs before it is used.  filling: arrivals that fill a stage, besides its bytes;
 * more_readers: warps of this block that release a stage besides the consumers'. */
template <typename Tile>
HS_DEVICE void hopper_begin(const HopperParameters &parameters, const HopperRing<Tile> &ring, int filling,
                            int more_readers)
{
    ptx::prefetch_tensor_map(&parameters.a);
    ptx::prefetch_tensor_map(&parameters.b);
    for (int stage = 0; stage < Tile::stages; stage++) {
        ptx::mbarrier_init(ring.full(stage), filling);
        ptx::mbarrier_init(ring.empty(stage), 4 * Tile::readers * HOPPER_CLUSTER + more_readers);
    }
    ptx::fence_mbarrier_init();
}

/* A consumer: all its tiles, from full stages to c.  Products: HopperProducts, or what takes its place.  may_gate: c
 * may be what a gate makes, of this element: of products whose a has k along its rows. */
template <typename Tile, typename Element, bool may_gate, typename Products>
HS_DEVICE void hopper_consume(const HopperParameters &parameters, const HopperRing<Tile> &ring, unsigned char *shared,
                              int consumer, Products products)
{
    const int box = Tile::shared ? consumer : 0;
    const HopperOutput &output = parameters.output;
    HopperStaging staging = { shared + Tile::staging_offset, 0 };
    if (ptx::thread_anew() % WARP_SIZE == 0)
        *staging.sent() = 0;
    RingPlace<Tile::stages> place;
    auto release = [&](int stage) {
        const int block = ptx::thread_anew() % WARP_SIZE;
        if (block < HOPPER_CLUSTER)
            ptx::mbarrier_arrive_cluster(ptx::map_shared(ring.empty(stage), block));
    };
    auto wait_input = [&] {
        const int first = (ptx::thread_anew() / WARP_SIZE - 4) % (Tile::rows / 16) * HopperStaging::rows;
        ptx::mbarrier_wait(ring.full(place.stage), place.parity);
        return shared + place.stage * Tile::stage_bytes + first * HOPPER_LINE;
    };
    auto input_done = [&] {
        __syncwarp(); /* all lanes have read */
        release(place.stage);
        place.next();
    };
    auto number = [&] { return hopper_number(parameters.deal, shared + Tile::number_offset); };
    /* Where the tile's stages have all been full. */
    auto pass_turn = [&](int item) {
        if (!Tile::shared && item + 1 < hopper_count(parameters.deal, number()))
            ptx::barrier_arrive(HOPPER_TURN_BARRIER + 1 - consumer, 128 * HOPPER_CONSUMERS);
    };
    /* What only a tile's end needs is read or reckoned anew then. */
    for (int item = 0; item < hopper_count(parameters.deal, number()); item++) {
        const HopperWork work = hopper_work(parameters.deal, number(), item);
        const int inputs = hopper_input_stages<Tile>(output, work);
        if (!Tile::shared && item % 2 != consumer) {
            place.skip(work.steps + inputs);
            continue;
        }
        if (!Tile::shared && item > 0)
            ptx::barrier_sync(HOPPER_TURN_BARRIER + consumer, 128 * HOPPER_CONSUMERS);
        const int warp = ptx::thread_anew() / WARP_SIZE % 4, rank = ptx::cluster_rank();
        const int row = (work.position.row * HOPPER_CLUSTER + rank) * Tile::rows + box * 64 + warp * 16;
        staging.note(hopper_turn(parameters.deal, work, rank * (Tile::rows / 16) + box * 4 + warp));
        const HopperPlace origin = { work.position.column * parameters.deal.columns, row, work.slice };
        if (!output.by_lines || output.input_count > 0)
            prefetch_inputs(output.matmul, origin, Tile::columns);
        if (Tile::shared && work.steps >= Tile::stages && consumer == 1)
            ptx::barrier_sync(HOPPER_LAG_BARRIER, 128 * HOPPER_CONSUMERS);
        float sums[Tile::columns / 2];
        products.run(work, place, box, sums, release, [&](int step) {
            if (Tile::shared && step == Tile::lag && work.steps >= Tile::stages && ptx::thread_anew() / 128 == 1)
                ptx::barrier_arrive(HOPPER_LAG_BARRIER, 128 * HOPPER_CONSUMERS);
        });
        if (inputs == 0)
            pass_turn(item);
        HopperBias bias = {};
        if (output.by_lines)
            bias.load(output.matmul, origin.column);
        products.finish(sums, release);
        if (!Tile::shared && inputs > 0 && inputs <= Tile::stages) {
            RingPlace<Tile::stages> ahead = place;
            for (int input = 0; input < inputs; input++, ahead.next())
                ptx::mbarrier_wait(ring.full(ahead.stage), ahead.parity);
            pass_turn(item);
        }
        if (may_gate && hs_epilogue_reshapes(output.matmul.epilogue))
            store_gates<Tile::columns, Element>(output.matmul, sums, bias, staging, origin, wait_input, input_done);
        else if (output.by_lines)
            store_sums<Tile::columns>(output, sums, bias, staging, origin, Tile::line_bytes, wait_input, input_done);
        else if (parameters.deal.slices > 1)
            write_sums<Tile::columns>(output.matmul, sums, origin);
        else
            finish_sums<Tile::columns, Tile::groups>(output.matmul, sums, staging, origin);
        if (inputs > Tile::stages)
            pass_turn(item);
    }
    if (ptx::thread_anew() % WARP_SIZE == 0)
        ptx::store_tile_wait<0>(); /* shared memory is theirs to read until then */
}

template <typename Element, typename Tile, bool a_contiguous, bool b_contiguous>
__global__ void __launch_bounds__(HOPPER_THREADS, 1)
    matmul_hopper_kernel(const __grid_constant__ HopperParameters parameters)
{
    HS_DYNAMIC_SHARED(unsigned char, shared);
    const HopperRing<Tile> ring = { ptx::shared_address(shared) };
    const int rank = ptx::cluster_rank(), warpgroup = (int)threadIdx.x / 128;
    const int summing_warps = !a_contiguous && parameters.output.matmul.row_sums != NULL ? Tile::rows / 64 : 0;
    if (threadIdx.x == 0)
        hopper_begin(parameters, ring, 1, summing_warps);
    ptx::cluster_meet(); /* the fence behind its mbarriers releases them */
    begin_after_kernel_before();
    unsigned char *const number_place = shared + Tile::number_offset;
    hopper_draw_number(parameters.deal, number_place, rank);

    if (warpgroup == 0) {
        ptx::fewer_registers<HOPPER_PRODUCER_REGISTERS>();
        if (threadIdx.x == 0)
            hopper_fill<Tile, a_contiguous, b_contiguous>(parameters, ring, rank,
                                                          hopper_number(parameters.deal, number_place));
        else if ((int)threadIdx.x / WARP_SIZE > 0 && (int)threadIdx.x / WARP_SIZE <= summing_warps)
            hopper_sum_rows<Element, Tile>(parameters, ring, shared, rank);
    } else {
        ptx::more_registers<HOPPER_CONSUMER_REGISTERS>();
        typedef HopperMultiply<Element, Tile, a_contiguous, b_contiguous> Multiply;
        hopper_consume<Tile, Element, a_contiguous>(parameters, ring, shared, warpgroup - 1,
                                                    HopperProducts<Multiply, Tile>{ ring, 0 });
    }
    ptx::cluster_sync(); /* no block leaves before others' arrivals have come to its mbarriers */
}

} // namespace HS_CUDA_NAMESPACE

#endif
