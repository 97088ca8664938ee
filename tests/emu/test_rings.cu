/* SPDX-License-Identifier: MIT
 *
 * A ring of stages between a producer and a consumer warpgroup, in clusters of two blocks that share B by multicast:
 * the skeleton of a Hopper product, and what happens when one of its waits is missing.
 */
#include "kernels/cuda/toolbox/ptx_tensor_copy.cuh"
#include "kernels/cuda/toolbox/ptx_wgmma.cuh"
#include "tests/emu/harness.h"

namespace hs_emu
{

enum { ROWS = 64, COLUMNS = 128, STEP = 64, STAGES = 3, THREADS = 256, BLOCKS = 2 };
enum { A_BYTES = ROWS * STEP * 2, B_BYTES = COLUMNS * STEP * 2, STAGE_BYTES = A_BYTES + B_BYTES };
enum { DEPTH = 24 * STEP, HEIGHT = 4 * ROWS };

enum Bug { NONE, NO_FULL_WAIT, EARLY_RELEASE, NO_EMPTY_WAIT, WRONG_PARITY, OWN_RELEASE };

/* Each block of a cluster has its own rows of C and brings half of B to both. */
template <Bug bug> static __global__ void ring_kernel(const TensorMap map_a, const TensorMap map_b, float *c, int steps)
{
    HS_DYNAMIC_SHARED(unsigned char, stages);
    HS_SHARED(uint64_t, full, STAGES);
    HS_SHARED(uint64_t, empty, STAGES);
    const uint32_t base = ptx::shared_address(stages);
    const int rank = ptx::cluster_rank(), first_row = (int)blockIdx.x * ROWS;
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < STAGES; stage++) {
            ptx::mbarrier_init(ptx::shared_address(full + stage), 1);
            ptx::mbarrier_init(ptx::shared_address(empty + stage), 4 * BLOCKS); /* a warp an arrival */
        }
        ptx::fence_mbarrier_init();
    }
    ptx::cluster_sync();

    if (threadIdx.x < 128) {
        ptx::fewer_registers<40>();
        for (int step = 0; step < steps && threadIdx.x == 0; step++) {
            const int stage = step % STAGES;
            const unsigned round = (unsigned)(step / STAGES);
            const uint32_t ready = ptx::shared_address(full + stage), a = base + (uint32_t)stage * STAGE_BYTES;
            if (bug != NO_EMPTY_WAIT)
                ptx::mbarrier_wait(ptx::shared_address(empty + stage), (round & 1) ^ (bug == WRONG_PARITY ? 0 : 1));
            ptx::mbarrier_arrive_expect(ready, STAGE_BYTES);
            ptx::load_tile(a, &map_a, ready, step * STEP, first_row);
            ptx::load_tile_multicast(a + A_BYTES + (uint32_t)rank * (B_BYTES / BLOCKS), &map_b, ready, step * STEP,
                                     rank * (COLUMNS / BLOCKS), (1u << BLOCKS) - 1);
        }
    } else {
        ptx::more_registers<232>();
        float sums[COLUMNS / 2];
        for (float &sum : sums)
            sum = 0.0f;
        auto release = [&](int stage) {
            const uint32_t free = ptx::shared_address(empty + stage);
            if (threadIdx.x % 32 != 0)
                return;
            for (int block = 0; block < BLOCKS; block++) {
                if (bug == OWN_RELEASE)
                    ptx::mbarrier_arrive(free);
                else
                    ptx::mbarrier_arrive_cluster(ptx::map_shared(free, block));
            }
        };
        for (int step = 0; step < steps; step++) {
            const int stage = step % STAGES;
            const uint32_t a = base + (uint32_t)stage * STAGE_BYTES;
            if (bug != NO_FULL_WAIT)
                ptx::mbarrier_wait(ptx::shared_address(full + stage), (unsigned)(step / STAGES) & 1);
            const uint64_t a_tile = ptx::wgmma_descriptor(a, 1024, 0);
            const uint64_t b_tile = ptx::wgmma_descriptor(a + A_BYTES, 1024, 0);
            ptx::wgmma_fence();
            for (uint32_t k = 0; k < STEP; k += 16)
                ptx::wgmma<Bf16, false, false>(sums, ptx::advance_descriptor(a_tile, k * 2),
                                               ptx::advance_descriptor(b_tile, k * 2), true);
            ptx::wgmma_commit();
            if (bug == EARLY_RELEASE)
                release(stage);
            ptx::wgmma_wait<0>();
            if (bug != EARLY_RELEASE)
                release(stage);
        }
        const int thread = (int)threadIdx.x - 128;
        for (int e = 0; e < COLUMNS / 2; e++) {
            const int row = first_row + thread / 32 * 16 + thread % 32 / 4 + e / 2 % 2 * 8;
            c[row * COLUMNS + e / 4 * 8 + thread % 4 * 2 + e % 2] = sums[e];
        }
    }
    ptx::cluster_sync(); /* no block leaves while others may still write to it */
}

/* Sums stay below 2^24 quarters: exact. */
static float element(int row, int column)
{
    return (float)((row * 5 + column * 3 + row * column % 11) % 9 - 4) * 0.5f;
}

static std::vector<uint16_t> operand(int outer, int seed)
{
    std::vector<uint16_t> values((size_t)(outer * DEPTH));
    for (int o = 0; o < outer; o++)
        for (int k = 0; k < DEPTH; k++)
            values[(size_t)(o * DEPTH + k)] = hs_bf16_encode(element(o + seed, k));
    return values;
}

static TensorMap map_of(uint16_t *device, int outer, int box, int swizzle)
{
    const TensorMapShape shape = { device, HS_BF16, 2, { DEPTH, outer }, { 2, DEPTH * 2 }, { STEP, box }, swizzle };
    TensorMap map;
    if (encode_tensor_map(shape, &map) != HS_OK)
        abort();
    return map;
}

template <Bug bug> static bool product(int b_swizzle = 128)
{
    uint16_t *a = test::to_device(operand(HEIGHT, 0)), *b = test::to_device(operand(COLUMNS, 300));
    float *c = test::to_device(std::vector<float>(HEIGHT * COLUMNS));
    test::launch_clusters(ring_kernel<bug>, BLOCKS, HEIGHT / ROWS, THREADS, (size_t)(STAGES * STAGE_BYTES),
                          map_of(a, HEIGHT, ROWS, 128), map_of(b, COLUMNS, COLUMNS / BLOCKS, b_swizzle), c,
                          (int)(DEPTH / STEP));
    const std::vector<float> sums = test::to_host(c, HEIGHT * COLUMNS);
    for (int row = 0; row < HEIGHT; row++)
        for (int column = 0; column < COLUMNS; column++) {
            float expected = 0.0f;
            for (int k = 0; k < DEPTH; k++)
                expected += element(row, k) * element(column + 300, k);
            if (sums[(size_t)(row * COLUMNS + column)] != expected)
                return false;
        }
    return true;
}

} // namespace hs_emu

using namespace hs_emu;

int main()
{
    const auto correct = [] { return product<NONE>(); };
    const auto missed = [](bool (*wrong)(int)) { return [wrong] { return wrong(128); }; };
    test::holds("a ring of three stages in clusters of two", correct);
    test::catches("no wait for a full stage", "", missed(product<NO_FULL_WAIT>));
    test::catches("a stage released before its products are done", nullptr, missed(product<EARLY_RELEASE>));
    test::catches("no wait for an empty stage", "", missed(product<NO_EMPTY_WAIT>));
    test::catches("the other parity", "deadlock", missed(product<WRONG_PARITY>));
    test::catches("a stage released in its own block alone", "", missed(product<OWN_RELEASE>));
    test::catches("another swizzle than the products'", nullptr, [] { return product<NONE>(0); });
    return test::result();
}
