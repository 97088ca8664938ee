/* SPDX-License-Identifier: MIT
 *
 * Products of FP8 codes on Hopper (sm_90a): the kernel of matmul_hopper.cuh, its ring, roles, tiles and epilogue, with
 * steps of 128 codes for steps of 64 elements.  What is different is how a consumer sums:
 *
 * Straight: as there.
 *
 * Promoted: a consumer multiplies a step into separate registers (`part`), waits for it, and adds it to its sums.
 * Meanwhile the tensor cores work for the other consumer, so that the addition is hidden while it takes less than the
 * other's step: 64 additions a thread, or 64 multiplications and 64 FFMA with 34 scales, against at least 256 clocks.
 * Part and sums are as many registers as tiles of 128 columns can have.
 *
 * Blocks: besides, a stage has the scales of its step, a float for each row of A and column of B.  Two warps of the
 * producer's warpgroup read their bytes, which lie a row apart in memory, as no tensor copy could; they fill
 * a stage together with the producer, when all consumers have released it:
 *
 *     warps 1 and 2:  load the step's scales of A, or B    wait empty[s]   write them   arrive at full[s]   next stage
 *
 * 128 columns: shared memory is asked for 640 clocks' bytes for 512 clocks of products (matmul_model.cuh), so that 80% of
 * the tensor cores' rate is what can be reached.
 */
#ifndef HS_KERNELS_CUDA_PRODUCT_MATMUL_FP8_HOPPER_CUH
#define HS_KERNELS_CUDA_PRODUCT_MATMUL_FP8_HOPPER_CUH

#include "kernels/cuda/product/matmul_fp8.cuh"
#include "kernels/cuda/product/matmul_hopper.cuh"

namespace HS_CUDA_NAMESPACE
{

static_assert((int)FP8_PART_PAIRS == (int)HOPPER_STEP, "a step is a part");

struct Fp8HopperParameters {
    HopperParameters product;
    Fp8Scales scales;
};

/* A ring's tile with the scales of its stages behind everything else. */
template <typename Tile> struct Fp8Tile {
    static constexpr int stage_floats = Tile::rows + Tile::columns; /* A's, then B's */
    /* Tiles of 128 columns leave the producer's warpgroup more, where two more warps work. */
    static constexpr int producer_registers = Tile::columns <= 128 ? 56 : (int)HOPPER_PRODUCER_REGISTERS;
    static constexpr int consumer_registers = Tile::columns <= 128 ? 224 : (int)HOPPER_CONSUMER_REGISTERS;
    static constexpr int scale_offset = (Tile::shared_bytes + 15) / 16 * 16;

    static __host__ __device__ constexpr int shared_bytes(Fp8Sum sum)
    {
        return sum == FP8_BLOCKS ? scale_offset + Tile::stages * stage_floats * 4 : Tile::shared_bytes;
    }
    static __device__ __forceinline__ float *scales(unsigned char *shared, int stage)
    {
        return reinterpret_cast<float *>(shared + scale_offset) + stage * stage_floats;
    }
};

/* HopperMultiply of codes. */
template <typename A, typename Tile> struct Fp8Multiply {
    static __device__ __forceinline__ void issue(const HopperRing<Tile> &ring, int stage, int box,
                                                 float (&sums)[Tile::columns / 2], bool add)
    {
        const uint64_t a = ptx::wgmma_descriptor(ring.a(stage) + (uint32_t)(box * HOPPER_BOX), 1024, HOPPER_BOX);
        const uint64_t b = ptx::wgmma_descriptor(ring.b(stage), 1024, HOPPER_BOX);
        ptx::wgmma_fence();
#pragma unroll
        for (int byte = 0; byte < HOPPER_LINE; byte += 32)
            ptx::wgmma_fp8<A, E4m3>(sums, ptx::advance_descriptor(a, (uint32_t)byte),
                                    ptx::advance_descriptor(b, (uint32_t)byte), add || byte > 0);
        ptx::wgmma_commit();
    }
};

template <int count> HS_DEVICE void fp8_apply_factor(float (&sums)[count], float factor)
{
#pragma unroll
    for (int i = 0; i < count; i++)
        sums[i] *= factor;
}

template <typename A, typename Tile> struct Fp8Straight {
    HopperProducts<Fp8Multiply<A, Tile>, Tile> products;
    const Fp8Scales &scales;

    template <typename Release, typename Lead>
    __device__ __forceinline__ void run(const HopperWork &work, RingPlace<Tile::stages> &place, int box,
                                        float (&sums)[Tile::columns / 2], const Release &release, const Lead &lead)
    {
        products.run(work, place, box, sums, release, lead);
    }
    template <typename Release>
    __device__ __forceinline__ void finish(float (&sums)[Tile::columns / 2], const Release &release)
    {
        products.finish(sums, release);
        fp8_apply_factor(sums, fp8_factor(scales));
    }
};

template <typename A, typename Tile, bool blocks> struct Fp8Promoted {
    HopperRing<Tile> ring;
    unsigned char *shared;
    const Fp8Scales &scales;

    /* A consumer's 64 rows and all columns; registers as ptx_wgmma.cuh has them. */
    __device__ __forceinline__ void add(const float (&part)[Tile::columns / 2], int stage, int box,
                                        float (&sums)[Tile::columns / 2]) const
    {
        if (!blocks) {
#pragma unroll
            for (int i = 0; i < Tile::columns / 2; i++)
                sums[i] += part[i];
            return;
        }
        const int thread = ptx::thread_anew() % 128, lane = thread % WARP_SIZE;
        const float *const values = Fp8Tile<Tile>::scales(shared, stage);
        const float *const rows = values + box * 64 + thread / WARP_SIZE * 16 + lane / 4;
        const float *const columns = values + Tile::rows + lane % 4 * 2;
        const float upper = rows[0], lower = rows[8];
#pragma unroll
        for (int j = 0; j < Tile::columns / 8; j++) {
            const Pack<float, 2> pair = load_pack<float, 2>(columns + j * 8);
#pragma unroll
            for (int i = 0; i < 4; i++)
                sums[j * 4 + i] = fmaf(part[j * 4 + i] * (i < 2 ? upper : lower), pair.value[i % 2], sums[j * 4 + i]);
        }
    }

    template <typename Release, typename Lead>
    __device__ __forceinline__ void run(const HopperWork &work, RingPlace<Tile::stages> &place, int box,
                                        float (&sums)[Tile::columns / 2], const Release &release, const Lead &lead)
    {
#pragma unroll
        for (int i = 0; i < Tile::columns / 2; i++)
            sums[i] = 0.0f;
        for (int step = 0; step < work.steps; step++, place.next()) {
            float part[Tile::columns / 2];
            lead(step);
            ptx::mbarrier_wait(ring.full(place.stage), place.parity);
            Fp8Multiply<A, Tile>::issue(ring, place.stage, box, part, false);
            ptx::wgmma_wait<0>();
            ptx::wgmma_settle(part);
            if (!blocks)
                release(place.stage);
            add(part, place.stage, box, sums);
            if (blocks) {
                __syncwarp(); /* all lanes have read the scales */
                release(place.stage);
            }
        }
    }
    template <typename Release>
    __device__ __forceinline__ void finish(float (&sums)[Tile::columns / 2], const Release &)
    {
        fp8_apply_factor(sums, fp8_factor(scales));
    }
};

template <typename A, typename Tile, Fp8Sum sum> struct Fp8Products {
    typedef Fp8Promoted<A, Tile, sum == FP8_BLOCKS> Type;

    static __device__ __forceinline__ Type make(const HopperRing<Tile> &ring, unsigned char *shared,
                                                const Fp8Scales &scales)
    {
        return Type{ ring, shared, scales };
    }
};
template <typename A, typename Tile> struct Fp8Products<A, Tile, FP8_STRAIGHT> {
    typedef Fp8Straight<A, Tile> Type;

    static __device__ __forceinline__ Type make(const HopperRing<Tile> &ring, unsigned char *, const Fp8Scales &scales)
    {
        return Type{ { ring, 0 }, scales };
    }
};

/* Warp 1 of the block brings the scales of A's rows, warp 2 those of B's columns, for every stage that the producer fills.
 * Neighbouring steps read neighbouring bytes. */
template <typename Tile>
HS_DEVICE void fp8_fill_scales(const Fp8HopperParameters &parameters, const HopperRing<Tile> &ring,
                               unsigned char *shared, int rank)
{
    const HopperParameters &product = parameters.product;
    const bool of_a = (int)threadIdx.x / WARP_SIZE == 1;
    const int lane = (int)threadIdx.x % WARP_SIZE;
    const int rows = of_a ? product.output.matmul.rows : product.output.matmul.columns;
    const unsigned char *const scales = of_a ? parameters.scales.a_blocks : parameters.scales.b_blocks;
    auto number = [&] { return hopper_number(product.deal, shared + Tile::number_offset); };
    constexpr int each = Tile::rows / WARP_SIZE;
    static_assert(Tile::rows == Tile::columns, "both warps do the same");
    RingPlace<Tile::stages> place;
    for (int item = 0; item < hopper_count(product.deal, number()); item++) {
        const HopperWork work = hopper_work(product.deal, number(), item);
        const int steps = work.steps + hopper_input_stages<Tile>(product.output, work);
        const int first = lane + (of_a ? (work.position.row * HOPPER_CLUSTER + rank) * Tile::rows
                                       : work.position.column * product.deal.columns);
        const int second = of_a ? Tile::rows / 2 : product.second; /* from the first half's columns to the second's */
        for (int step = 0; step < steps; step++, place.next()) {
            float values[each];
            const int block = work.k_of(step) / HOPPER_STEP;
#pragma unroll
            for (int i = 0; i < each; i++)
                values[i] =
                    step < work.steps
                        ? fp8_block_scale(scales, parameters.scales.blocks,
                                          first + i / (each / 2) * second + i % (each / 2) * WARP_SIZE, rows, block)
                        : 0.0f;
            ptx::mbarrier_wait(ring.empty(place.stage), place.parity ^ 1);
            float *const stage = Fp8Tile<Tile>::scales(shared, place.stage) + (of_a ? 0 : Tile::rows) + lane;
#pragma unroll
            for (int i = 0; i < each; i++)
                stage[i * WARP_SIZE] = values[i];
            __syncwarp(); /* all lanes have written */
            if (lane == 0)
                ptx::mbarrier_arrive(ring.full(place.stage));
        }
    }
}

template <typename A, typename Tile, Fp8Sum sum>
__global__ void __launch_bounds__(HOPPER_THREADS, 1)
    matmul_fp8_hopper_kernel(const __grid_constant__ Fp8HopperParameters parameters)
{
    HS_DYNAMIC_SHARED(unsigned char, shared);
    const HopperRing<Tile> ring = { ptx::shared_address(shared) };
    const HopperParameters &product = parameters.product;
    const int rank = ptx::cluster_rank(), warpgroup = (int)threadIdx.x / 128;
    if (threadIdx.x == 0)
        hopper_begin(product, ring, sum == FP8_BLOCKS ? 3 : 1, 0);
    ptx::cluster_meet(); /* the fence behind its mbarriers releases them */
    begin_after_kernel_before();
    hopper_draw_number(product.deal, shared + Tile::number_offset, rank);

    if (warpgroup == 0) {
        ptx::fewer_registers<Fp8Tile<Tile>::producer_registers>();
        if (threadIdx.x == 0)
            hopper_fill<Tile, true, true>(product, ring, rank,
                                          hopper_number(product.deal, shared + Tile::number_offset));
        if constexpr (sum == FP8_BLOCKS)
            if ((int)threadIdx.x / WARP_SIZE == 1 || (int)threadIdx.x / WARP_SIZE == 2)
                fp8_fill_scales<Tile>(parameters, ring, shared, rank);
    } else {
        ptx::more_registers<Fp8Tile<Tile>::consumer_registers>();
        hopper_consume<Tile, Bf16, true>(product, ring, shared, warpgroup - 1,
                                         Fp8Products<A, Tile, sum>::make(ring, shared, parameters.scales));
    }
    ptx::cluster_sync(); /* no block leaves before others' arrivals have come to its mbarriers */
}

} // namespace HS_CUDA_NAMESPACE

#endif
