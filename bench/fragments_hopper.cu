/* SPDX-License-Identifier: MIT
 *
 * The experiments of fragments.h that need sm_90a: copies of tiles, mbarriers, clusters, wgmma, each used the way the
 * kernels do.  What wgmma reads is shared memory as it was given, by no tensor copy, so that neither can hide a mistake
 * about the other.
 */
#include "kernels/cuda/device/device.cuh"
#include "kernels/cuda/toolbox/launch.cuh"
#include "kernels/cuda/toolbox/ptx_tensor_copy.cuh"
#include "kernels/cuda/toolbox/ptx_wgmma.cuh"

extern "C" {
#include "bench/fragments.h"
}

namespace HS_CUDA_NAMESPACE
{

namespace
{

enum { MOST_PLACES = 5, LINE = 128, BLOCK_LINES = 8 * LINE };

/* What a kernel gets in addition to its words; `map` and `places` are empty for those that copy no tiles. */
struct FragmentParameters {
    TensorMap map;
    int rank, tile_bytes, shared_words, place_count;
    int places[MOST_PLACES][4];
    const uint32_t *inputs;
    uint32_t *outputs;
};

/* One thread's mbarriers, known to all of the block, or of the cluster. */
HS_DEVICE void prepare_mbarriers(uint64_t *mbarriers, int count, int arrivals)
{
    if (threadIdx.x == 0) {
        for (int i = 0; i < count; i++)
            ptx::mbarrier_init(ptx::shared_address(mbarriers + i), arrivals);
        ptx::fence_mbarrier_init();
    }
    ptx::cluster_sync();
}

HS_DEVICE void fill_unwritten(uint32_t *words, int count)
{
    for (int i = (int)threadIdx.x; i < count; i += (int)blockDim.x)
        words[i] = FRAGMENT_UNWRITTEN;
    ptx::fence_shared_to_async();
    __syncthreads();
}

/* Tile after tile to the same place in shared memory; all of that is output, what follows the tile too. */
__global__ void load_fragment_kernel(const __grid_constant__ FragmentParameters parameters)
{
    HS_DYNAMIC_SHARED(uint32_t, image);
    HS_SHARED(uint64_t, full, 1);
    const uint32_t barrier = ptx::shared_address(full), tile = ptx::shared_address(image);
    const int words = parameters.shared_words;
    prepare_mbarriers(full, 1, 1);
    for (int p = 0; p < parameters.place_count; p++) {
        const int *at = parameters.places[p];
        fill_unwritten(image, words);
        if (threadIdx.x == 0) {
            ptx::mbarrier_arrive_expect(barrier, parameters.tile_bytes);
            if (parameters.rank == 2)
                ptx::load_tile(tile, &parameters.map, barrier, at[0], at[1]);
            else if (parameters.rank == 3)
                ptx::load_tile(tile, &parameters.map, barrier, at[0], at[1], at[2]);
            else
                ptx::load_tile(tile, &parameters.map, barrier, at[0], at[1], at[2], at[3]);
        }
        ptx::mbarrier_wait(barrier, (unsigned)p & 1);
        for (int i = (int)threadIdx.x; i < words; i += (int)blockDim.x)
            parameters.outputs[p * words + i] = image[i];
        __syncthreads();
    }
}

template <bool add> __global__ void store_fragment_kernel(const __grid_constant__ FragmentParameters parameters)
{
    HS_DYNAMIC_SHARED(uint32_t, image);
    const uint32_t tile = ptx::shared_address(image);
    for (int p = 0; p < parameters.place_count; p++) {
        const int *at = parameters.places[p];
        for (int i = (int)threadIdx.x; i < parameters.shared_words; i += (int)blockDim.x)
            image[i] = parameters.inputs[p * parameters.shared_words + i];
        ptx::fence_shared_to_async();
        __syncthreads();
        if (threadIdx.x == 0) {
            if (add && parameters.rank == 2)
                ptx::add_tile(tile, &parameters.map, at[0], at[1]);
            else if (add)
                ptx::add_tile(tile, &parameters.map, at[0], at[1], at[2]);
            else if (parameters.rank == 2)
                ptx::store_tile(tile, &parameters.map, at[0], at[1]);
            else if (parameters.rank == 3)
                ptx::store_tile(tile, &parameters.map, at[0], at[1], at[2]);
            else
                ptx::store_tile(tile, &parameters.map, at[0], at[1], at[2], at[3]);
            ptx::store_tile_commit();
            ptx::store_tile_wait<0>();
            if (add)
                ptx::store_tile_wait_written<0>(); /* tiles overlap: an order for what rounds or becomes zero */
        }
        __syncthreads();
    }
    if (threadIdx.x == 0)
        ptx::store_tile_wait_written<0>();
}

/* Two blocks add to the same numbers, the second one first: the order shows in how they round.  A turn of the joint
 * products (matmul_hopper_work.cuh). */
__global__ void turn_fragment_kernel(const __grid_constant__ FragmentParameters parameters)
{
    HS_DYNAMIC_SHARED(uint32_t, image);
    const int rank = ptx::cluster_rank(), words = parameters.shared_words;
    unsigned *const turn = reinterpret_cast<unsigned *>(parameters.outputs) + 396;
    for (int i = (int)threadIdx.x; i < words; i += (int)blockDim.x)
        image[i] = parameters.inputs[rank * words + i];
    ptx::fence_shared_to_async();
    __syncthreads();
    if (threadIdx.x == 0) {
        while (rank == 0 && ptx::load_acquire(turn) != 1) {
        }
        ptx::fence_global_to_async();
        ptx::add_tile(ptx::shared_address(image), &parameters.map, 8, 1);
        ptx::store_tile_commit();
        ptx::store_tile_wait_written<0>();
        ptx::fence_global_to_async();
        if (rank == 1)
            ptx::store_release(turn, 1);
    }
    ptx::cluster_sync();
}

/* Each of two blocks brings a half for both, and a third tile for the other one alone. */
__global__ void multicast_fragment_kernel(const __grid_constant__ FragmentParameters parameters)
{
    HS_DYNAMIC_SHARED(uint32_t, image);
    HS_SHARED(uint64_t, full, 1);
    const uint32_t barrier = ptx::shared_address(full), base = ptx::shared_address(image);
    const int rank = ptx::cluster_rank(), words = parameters.shared_words;
    const uint32_t bytes = (uint32_t)parameters.tile_bytes;
    fill_unwritten(image, words);
    prepare_mbarriers(full, 1, 1);
    if (threadIdx.x == 0) {
        ptx::mbarrier_arrive_expect(barrier, 3 * parameters.tile_bytes);
        ptx::load_tile_multicast(base + (uint32_t)rank * bytes, &parameters.map, barrier, 8 * rank, 3 * rank, 3u);
        ptx::load_tile_multicast(base + 2 * bytes, &parameters.map, barrier, 16, 5 + 11 * rank, 2u >> rank);
    }
    ptx::mbarrier_wait(barrier, 0);
    for (int i = (int)threadIdx.x; i < words; i += (int)blockDim.x)
        parameters.outputs[rank * words + i] = image[i];
    ptx::cluster_sync();
}

/* The ring of the products on a small scale: a producer thread, a consumer warp, stages that are full when both blocks'
 * halves have come and empty when both blocks' consumers have arrived. */
__global__ void ring_fragment_kernel(const __grid_constant__ FragmentParameters parameters)
{
    enum { STAGES = 3, STEPS = 14, STAGE_WORDS = 512 };
    HS_DYNAMIC_SHARED(uint32_t, stages);
    HS_SHARED(uint64_t, full, STAGES);
    HS_SHARED(uint64_t, empty, STAGES);
    const int rank = ptx::cluster_rank(), lane = (int)threadIdx.x % WARP_SIZE;
    prepare_mbarriers(full, STAGES, 1);
    prepare_mbarriers(empty, STAGES, 2);
    if (threadIdx.x == 0) {
        for (int step = 0; step < STEPS; step++) {
            const int stage = step % STAGES;
            const uint32_t barrier = ptx::shared_address(full + stage);
            const uint32_t tile = ptx::shared_address(stages + stage * STAGE_WORDS) + (uint32_t)(rank * BLOCK_LINES);
            ptx::mbarrier_wait(ptx::shared_address(empty + stage), (unsigned)(step / STAGES & 1) ^ 1);
            ptx::mbarrier_arrive_expect(barrier, 2 * parameters.tile_bytes);
            ptx::load_tile_multicast(tile, &parameters.map, barrier, 0, 16 * step + 8 * rank, 3u);
        }
    } else if (threadIdx.x >= WARP_SIZE) {
        for (int step = 0; step < STEPS; step++) {
            const int stage = step % STAGES;
            ptx::mbarrier_wait(ptx::shared_address(full + stage), (unsigned)(step / STAGES & 1));
            uint32_t mixed = 0;
            for (int i = lane; i < STAGE_WORDS; i += WARP_SIZE)
                mixed = mixed * 31u + stages[stage * STAGE_WORDS + i];
            parameters.outputs[(rank * STEPS + step) * WARP_SIZE + lane] = mixed;
            __syncwarp();
            if (lane < 2)
                ptx::mbarrier_arrive_cluster(ptx::map_shared(ptx::shared_address(empty + stage), lane));
        }
    }
    ptx::cluster_sync();
}

/* Every thread arrives and waits, phase after phase, and reads its neighbour's word. */
__global__ void parity_fragment_kernel(const __grid_constant__ FragmentParameters parameters)
{
    enum { THREADS = 128, ROUNDS = 8 };
    HS_SHARED(uint32_t, slots, 2 * THREADS);
    HS_SHARED(uint64_t, met, 1);
    const uint32_t barrier = ptx::shared_address(met);
    const int thread = (int)threadIdx.x;
    prepare_mbarriers(met, 1, THREADS);
    ptx::mbarrier_wait(barrier, 1); /* a fresh one: at once */
    for (int round = 0; round < ROUNDS; round++) {
        uint32_t *const side = slots + round % 2 * THREADS;
        side[thread] = parameters.inputs[thread] + (uint32_t)round;
        ptx::mbarrier_arrive(barrier);
        ptx::mbarrier_wait(barrier, (unsigned)round & 1);
        parameters.outputs[round * THREADS + thread] = side[(thread + 1 + 37 * round) % THREADS];
    }
}

/* An address in another block, which has to have begun, differs from that block's base as it does here. */
__global__ void map_offsets_fragment_kernel(const __grid_constant__ FragmentParameters parameters)
{
    HS_DYNAMIC_SHARED(uint32_t, words);
    const int lane = (int)threadIdx.x, rank = ptx::cluster_rank();
    const uint32_t base = ptx::shared_address(words), place = parameters.inputs[lane] % 256;
    ptx::cluster_sync();
    for (int block = 0; block < 2; block++)
        parameters.outputs[(rank * 2 + block) * WARP_SIZE + lane] =
            ptx::map_shared(base + 4 * place, block) - ptx::map_shared(base, block);
    ptx::cluster_sync();
}

__global__ void map_blocks_fragment_kernel(const __grid_constant__ FragmentParameters parameters)
{
    HS_DYNAMIC_SHARED(uint32_t, words);
    const uint32_t base = ptx::shared_address(words);
    ptx::cluster_sync();
    if (threadIdx.x == 0)
        parameters.outputs[ptx::cluster_rank()] = ptx::map_shared(base, 1) - ptx::map_shared(base, 0);
    ptx::cluster_sync();
}

/* Each lane puts its word into the other block, at another place. */
__global__ void store_cluster_fragment_kernel(const __grid_constant__ FragmentParameters parameters)
{
    HS_DYNAMIC_SHARED(uint32_t, words);
    const int lane = (int)threadIdx.x, rank = ptx::cluster_rank();
    ptx::cluster_sync();
    ptx::store_shared_cluster(ptx::map_shared(ptx::shared_address(words + lane * 7 % WARP_SIZE), 1 - rank),
                              parameters.inputs[rank * WARP_SIZE + lane]);
    ptx::cluster_sync();
    parameters.outputs[rank * WARP_SIZE + lane] = words[lane];
}

/* A warpgroup gives registers to two others, as in the products; numbers that were in registers before stay. */
__global__ void __launch_bounds__(384, 1)
    registers_fragment_kernel(const __grid_constant__ FragmentParameters parameters)
{
    const int thread = (int)threadIdx.x;
    uint32_t value = parameters.inputs[thread];
    if (thread < 128) {
        ptx::fewer_registers<40>();
        value = ~value;
    } else {
        ptx::more_registers<232>();
        uint32_t many[128];
#pragma unroll
        for (int i = 0; i < 128; i++)
            many[i] = value * (uint32_t)(2 * i + 1);
#pragma unroll
        for (int i = 1; i < 128; i++)
            many[i] ^= many[i - 1] >> 3;
        value += many[127];
    }
    parameters.outputs[thread] = value;
}

/* The first takes its time; the second, which may begin at once, has to see its numbers. */
__global__ void slow_fragment_kernel(const __grid_constant__ FragmentParameters parameters)
{
    begin_after_kernel_before();
    uint32_t value = parameters.inputs[threadIdx.x];
    for (int i = 0; i < 20000; i++)
        value = value * 1664525u + 1013904223u;
    parameters.outputs[threadIdx.x] = value;
}

__global__ void second_fragment_kernel(const __grid_constant__ FragmentParameters parameters)
{
    begin_after_kernel_before();
    parameters.outputs[threadIdx.x] = parameters.outputs[threadIdx.x] * 3 + parameters.inputs[63 - threadIdx.x];
}

/* Where the left operand is, and along what its lines run: k, or rows. */
enum Left { ALONG, ACROSS, REGISTERS };

/* D[64, columns] = A[64, depth] B[depth, columns], += where `add`.  Shared memory: `left_rows` rows of A, of which
 * those from first_row on are taken, then B.  Lines along k: boxes of 64 k by all rows or columns; across: boxes of 64
 * rows or columns by all k. */
template <typename Element, int columns, Left left, bool right_across, int depth, int left_rows, int first_row,
          bool add>
__global__ void __launch_bounds__(128) wgmma_fragment_kernel(const __grid_constant__ FragmentParameters parameters)
{
    HS_DYNAMIC_SHARED(uint32_t, image);
    for (int i = (int)threadIdx.x; i < parameters.shared_words; i += (int)blockDim.x)
        image[i] = parameters.inputs[i];
    ptx::fence_shared_to_async();
    __syncthreads();

    constexpr int across_box = depth * LINE, steps = depth / 16;
    const uint32_t a =
        ptx::shared_address(image) + (uint32_t)(left == ACROSS ? first_row / 64 * across_box : first_row * LINE);
    const uint32_t b = ptx::shared_address(image) + (left == REGISTERS ? 0 : left_rows * depth * 2);
    float sums[columns / 2];
#pragma unroll
    for (int e = 0; e < columns / 2; e++)
        sums[e] = (float)((int)threadIdx.x % 7 - 3 + e % 5);
    uint32_t registers[left == REGISTERS ? steps : 1][4] = {};
    if (left == REGISTERS) {
#pragma unroll
        for (int i = 0; i < steps * 4; i++)
            registers[i / 4][i % 4] = parameters.inputs[parameters.shared_words + i * 128 + (int)threadIdx.x];
    }
    ptx::wgmma_fence();
#pragma unroll
    for (int step = 0; step < steps; step++) {
        const int k = step * 16, box = k / 64;
        const uint32_t along = (uint32_t)(k % 64 * 2), across = (uint32_t)(k * LINE);
        const uint64_t right = ptx::advance_descriptor(
            ptx::wgmma_descriptor(b + (uint32_t)(right_across ? 0 : box * columns * LINE), BLOCK_LINES, across_box),
            right_across ? across : along);
        if constexpr (left == REGISTERS)
            ptx::wgmma<Element, right_across>(sums, registers[step], right, add || step > 0);
        else
            ptx::wgmma<Element, left == ACROSS, right_across>(
                sums,
                ptx::advance_descriptor(
                    ptx::wgmma_descriptor(a + (uint32_t)(left == ALONG ? box * left_rows * LINE : 0), BLOCK_LINES,
                                          across_box),
                    left == ALONG ? along : across),
                right, add || step > 0);
    }
    ptx::wgmma_commit();
    ptx::wgmma_wait<0>();
#pragma unroll
    for (int e = 0; e < columns / 2; e++)
        parameters.outputs[(int)threadIdx.x * (columns / 2) + e] = __float_as_uint(sums[e]);
}

/* D[64, columns] = A[64, 128] B[128, columns] of codes, both in lines of 128 bytes along k. */
template <typename A, int columns>
__global__ void __launch_bounds__(128) codes_fragment_kernel(const __grid_constant__ FragmentParameters parameters)
{
    HS_DYNAMIC_SHARED(uint32_t, image);
    for (int i = (int)threadIdx.x; i < parameters.shared_words; i += (int)blockDim.x)
        image[i] = parameters.inputs[i];
    ptx::fence_shared_to_async();
    __syncthreads();
    const uint32_t a = ptx::shared_address(image), b = a + 64 * LINE;
    float sums[columns / 2];
#pragma unroll
    for (int e = 0; e < columns / 2; e++)
        sums[e] = (float)((int)threadIdx.x % 7 - 3 + e % 5);
    ptx::wgmma_fence();
#pragma unroll
    for (uint32_t step = 0; step < 4; step++)
        ptx::wgmma_fp8<A, E4m3>(sums, ptx::advance_descriptor(ptx::wgmma_descriptor(a, BLOCK_LINES, 0), 32 * step),
                                ptx::advance_descriptor(ptx::wgmma_descriptor(b, BLOCK_LINES, 0), 32 * step), true);
    ptx::wgmma_commit();
    ptx::wgmma_wait<0>();
#pragma unroll
    for (int e = 0; e < columns / 2; e++)
        parameters.outputs[(int)threadIdx.x * (columns / 2) + e] = __float_as_uint(sums[e]);
}

typedef void (*Kernel)(const FragmentParameters);

/* A tensor with rows `pitch` elements apart, tiles of it, and where they begin; `stored`: it is the outputs. */
struct Tiles {
    HsDtype dtype;
    int rank, extents[4], pitch, box[4], swizzle;
    bool stored;
    int place_count, places[MOST_PLACES][4];
};

/* As the kernels copy: lines begin at multiples of 16 bytes, and no tile begins before the tensor. */
constexpr int inside_and_beyond[MOST_PLACES][4] = { { 0, 0 }, { 8, 5 }, { 40, 8 }, { 64, 15 }, { 8, 24 } };
constexpr int before[MOST_PLACES][4] = { { -8, -3 }, { -64, 0 }, { 0, -16 }, { -8, 0 }, { 0, -3 } };
constexpr int unaligned[MOST_PLACES][4] = { { 9, 5 }, { 1, 0 }, { -5, -3 }, { 67, 15 }, { -80, 30 } };

constexpr Tiles loaded_matrix(int columns, int lines, int swizzle, const int (&places)[MOST_PLACES][4])
{
    Tiles tiles = { HS_BF16, 2, { 70, 21 }, 72, { columns, lines }, swizzle, false, MOST_PLACES, {} };
    for (int p = 0; p < MOST_PLACES; p++)
        for (int d = 0; d < 2; d++)
            tiles.places[p][d] = places[p][d];
    return tiles;
}

struct Row {
    Kernel kernel;
    Tiles tiles;
};

/* In the order of the enum, from its first of Hopper on.  Tiles lie inside, across the edges, and outside. */
const Row rows[] = {
    { load_fragment_kernel, loaded_matrix(32, 16, 0, inside_and_beyond) },
    { load_fragment_kernel, loaded_matrix(16, 16, 32, inside_and_beyond) },
    { load_fragment_kernel, loaded_matrix(32, 16, 64, inside_and_beyond) },
    { load_fragment_kernel, loaded_matrix(64, 16, 128, inside_and_beyond) },
    { load_fragment_kernel,
      { HS_BF16,
        3,
        { 40, 12, 10 },
        40,
        { 32, 6, 8 },
        64,
        false,
        5,
        { { 0, 0, 0 }, { 8, 3, 2 }, { 16, 8, 4 }, { 32, 9, 6 }, { 8, 4, 11 } } } },
    { load_fragment_kernel,
      { HS_BF16,
        4,
        { 48, 3, 20, 2 },
        48,
        { 64, 1, 16, 1 },
        128,
        false,
        5,
        { { 0, 1, 0, 0 }, { 0, 2, 8, 1 }, { 16, 0, 5, 1 }, { 40, 2, 15, 0 }, { 0, 3, 4, 0 } } } },
    { load_fragment_kernel, loaded_matrix(64, 16, 128, before) },
    { load_fragment_kernel, loaded_matrix(64, 16, 128, unaligned) },
    { store_fragment_kernel<false>,
      { HS_F32, 2, { 44, 9 }, 44, { 16, 8 }, 0, true, 4, { { 0, 0 }, { 16, 2 }, { 40, 5 }, { 0, 8 } } } },
    { store_fragment_kernel<false>,
      { HS_BF16, 2, { 70, 21 }, 72, { 64, 16 }, 128, true, 4, { { 0, 0 }, { 64, 3 }, { 0, 18 }, { 72, 3 } } } },
    { store_fragment_kernel<false>,
      { HS_BF16,
        4,
        { 48, 3, 20, 2 },
        48,
        { 64, 1, 16, 1 },
        128,
        true,
        4,
        { { 0, 0, 0, 0 }, { 0, 2, 8, 1 }, { 16, 1, 4, 0 }, { 0, 3, 0, 1 } } } },
    { store_fragment_kernel<false>,
      { HS_BF16,
        3,
        { 40, 12, 10 },
        40,
        { 64, 2, 8 },
        128,
        true,
        4,
        { { 0, 0, 0 }, { 8, 3, 2 }, { 32, 11, 5 }, { 0, 12, 4 } } } },
    { store_fragment_kernel<true>,
      { HS_F32, 2, { 44, 9 }, 44, { 16, 8 }, 0, true, 4, { { 0, 0 }, { 8, 2 }, { 40, 5 }, { 4, 5 } } } },
    { store_fragment_kernel<true>,
      { HS_F32,
        3,
        { 44, 5, 4 },
        44,
        { 16, 2, 4 },
        0,
        true,
        4,
        { { 0, 0, 0 }, { 8, 1, 1 }, { 40, 4, 2 }, { 4, 0, 3 } } } },
    { turn_fragment_kernel, { HS_F32, 2, { 44, 9 }, 44, { 16, 8 }, 0, true, 0, {} } },
    { multicast_fragment_kernel, { HS_BF16, 2, { 70, 21 }, 72, { 64, 8 }, 128, false, 0, {} } },
    { ring_fragment_kernel, { HS_BF16, 2, { 64, 224 }, 64, { 64, 8 }, 128, false, 0, {} } },
    { parity_fragment_kernel, {} },
    { map_offsets_fragment_kernel, {} },
    { map_blocks_fragment_kernel, {} },
    { store_cluster_fragment_kernel, {} },
    { registers_fragment_kernel, {} },
    { slow_fragment_kernel, {} },
    { wgmma_fragment_kernel<Bf16, 64, ALONG, false, 64, 64, 0, false>, {} },
    { wgmma_fragment_kernel<F16, 64, ALONG, false, 64, 64, 0, false>, {} },
    { wgmma_fragment_kernel<Bf16, 128, ALONG, false, 64, 128, 64, true>, {} },
    { wgmma_fragment_kernel<Bf16, 256, ALONG, false, 64, 128, 64, false>, {} },
    { wgmma_fragment_kernel<Bf16, 256, ALONG, true, 64, 128, 64, true>, {} },
    { wgmma_fragment_kernel<Bf16, 256, ACROSS, true, 64, 128, 64, true>, {} },
    { wgmma_fragment_kernel<F16, 128, ACROSS, false, 64, 128, 64, false>, {} },
    { wgmma_fragment_kernel<F16, 128, ALONG, false, 128, 64, 0, false>, {} },
    { wgmma_fragment_kernel<Bf16, 64, REGISTERS, true, 128, 0, 0, true>, {} },
    { wgmma_fragment_kernel<F16, 128, REGISTERS, true, 128, 0, 0, false>, {} },
    { wgmma_fragment_kernel<Bf16, 128, REGISTERS, false, 64, 0, 0, false>, {} },
    { wgmma_fragment_kernel<Bf16, 64, ACROSS, true, 64, 64, 0, true>, {} },
    { codes_fragment_kernel<E4m3, 128>, {} },
    { codes_fragment_kernel<E5m2, 256>, {} },
};
static_assert(sizeof rows / sizeof *rows == FRAGMENT_KERNEL_COUNT - FRAGMENT_FIRST_HOPPER, "a row for every kernel");

HsStatus map_tiles(const Tiles &tiles, void *data, FragmentParameters *parameters)
{
    const int64_t size = (int64_t)hs_dtype_bytes(tiles.dtype);
    TensorMapShape shape = { data, tiles.dtype, tiles.rank, {}, {}, {}, tiles.swizzle };
    parameters->rank = tiles.rank;
    parameters->tile_bytes = (int)size;
    for (int d = 0; d < tiles.rank; d++) {
        shape.extents[d] = tiles.extents[d];
        shape.strides[d] = d == 0 ? size : d == 1 ? tiles.pitch * size : shape.strides[d - 1] * tiles.extents[d - 1];
        shape.box[d] = tiles.box[d];
        parameters->tile_bytes *= tiles.box[d];
    }
    parameters->place_count = tiles.place_count;
    memcpy(parameters->places, tiles.places, sizeof tiles.places);
    return encode_tensor_map(shape, &parameters->map);
}

HsStatus run(HsContext *context, FragmentKernel kernel, uint32_t *inputs, uint32_t *outputs)
{
    const FragmentShape *shape = fragment_shape(kernel);
    const Row &row = rows[kernel - FRAGMENT_FIRST_HOPPER];
    if (limits_of(context).compute_capability != 90)
        return HS_EUNSUPPORTED;
    FragmentParameters parameters = {};
    if (row.tiles.rank > 0)
        HS_TRY(map_tiles(row.tiles, row.tiles.stored ? outputs : inputs, &parameters));
    parameters.shared_words = shape->shared_bytes / 4;
    parameters.inputs = inputs;
    parameters.outputs = outputs;
    if (kernel == FRAGMENT_DEPENDENT) {
        HS_TRY(hs_launch_after(context, "fragment", row.kernel, 1, (unsigned)shape->threads, 0, parameters));
        return hs_launch_after(context, "second fragment", second_fragment_kernel, 1, (unsigned)shape->threads, 0,
                               parameters);
    }
    return hs_launch_clusters(context, "fragment", row.kernel, (unsigned)shape->cluster, dim3((unsigned)shape->cluster),
                              dim3((unsigned)shape->threads), (size_t)shape->shared_bytes, parameters);
}

} // namespace

} // namespace HS_CUDA_NAMESPACE

HsStatus fragments_hopper_run(HsContext *context, FragmentKernel kernel, uint32_t *inputs, uint32_t *outputs)
{
    return HS_CUDA_NAMESPACE::run(context, kernel, inputs, outputs);
}
