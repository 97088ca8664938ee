/* SPDX-License-Identifier: MIT
 *
 * Kernels that begin before the one before them has ended: what touches device memory before griddepcontrol.wait is
 * found, and what never waits.
 */
#include "kernels/cuda/toolbox/ptx_copy.cuh"
#include "kernels/cuda/toolbox/ptx_tensor_copy.cuh"
#include "tests/emu/harness.h"

namespace hs_emu
{

enum { THREADS = 96, COUNT = 4 * THREADS };

enum Mistake {
    NONE,
    READS_BEFORE,    /* its operand */
    WRITES_BEFORE,   /* its result, which the kernel before may still read */
    COPIES_BEFORE,   /* by cp.async */
    ONE_WARP_BEFORE, /* the last warp does not wait, and meets no warp that has */
    NEVER_WAITS,
};

static __global__ void fill_kernel(float *x)
{
    x[blockIdx.x * THREADS + threadIdx.x] = (float)threadIdx.x;
}

/* y = 2 x, by a table in shared memory that needs no device memory. */
template <Mistake mistake> static __global__ void double_kernel(const float *x, float *y)
{
    HS_SHARED(float, factor, 1);
    HS_SHARED(float, landing, THREADS);
    const int i = (int)(blockIdx.x * THREADS + threadIdx.x);
    float early = 0.0f;
    if (threadIdx.x == 0)
        *factor = 2.0f;
    if (mistake == READS_BEFORE)
        early = x[i];
    if (mistake == WRITES_BEFORE)
        y[i] = 0.0f;
    if (mistake == COPIES_BEFORE)
        ptx::copy_async_4(ptx::shared_address(landing + threadIdx.x), x + i, 4);
    const bool waits = mistake == ONE_WARP_BEFORE ? threadIdx.x < 64 : mistake != NEVER_WAITS;
    if (waits)
        begin_after_kernel_before();
    if (mistake == ONE_WARP_BEFORE)
        early = x[i];
    __syncthreads();
    if (mistake == COPIES_BEFORE) {
        ptx::copy_async_commit();
        ptx::copy_async_wait<0>();
        early = landing[threadIdx.x];
    }
    if (mistake != NEVER_WAITS)
        y[i] = *factor * (early != 0.0f ? early : x[i]);
}

/* One warp waits for all: the others touch memory behind a barrier.  Threads without work return at once. */
static __global__ void one_waits_kernel(const float *x, float *y)
{
    const int i = (int)(blockIdx.x * THREADS + threadIdx.x);
    if (threadIdx.x >= THREADS)
        return;
    if (threadIdx.x < WARP_SIZE)
        begin_after_kernel_before();
    ptx::barrier_sync(1, THREADS);
    y[i] = 2.0f * x[i];
}

template <typename Kernel> static bool chain(Kernel *kernel, unsigned threads)
{
    float *x = test::to_device(std::vector<float>(COUNT)), *y = test::to_device(std::vector<float>(COUNT));
    emulate_launch("fill", COUNT / THREADS, THREADS, 0, nullptr, [=] { fill_kernel(x); });
    for (int again = 0; again < 10; again++)
        emulate_launch(
            "double", COUNT / THREADS, threads, 0, nullptr, [=] { kernel(x, y); }, 1, true);
    const std::vector<float> result = test::to_host(y, COUNT);
    for (int i = 0; i < COUNT; i++)
        if (result[(size_t)i] != 2.0f * (float)(i % THREADS))
            return false;
    return true;
}

template <Mistake mistake> static bool doubled()
{
    return chain(double_kernel<mistake>, THREADS);
}

/* A tile asked for by the tensor memory accelerator. */
template <bool waits> static __global__ void tile_kernel(const TensorMap map, float *y)
{
    HS_DYNAMIC_SHARED(float, tile);
    HS_SHARED(uint64_t, mbarrier, 1);
    const uint32_t full = ptx::shared_address(mbarrier);
    if (threadIdx.x == 0) {
        ptx::prefetch_tensor_map(&map);
        ptx::mbarrier_init(full, 1);
        ptx::fence_mbarrier_init();
        if (waits)
            ptx::wait_for_kernel_before();
        ptx::mbarrier_arrive_expect(full, 32 * 4);
        ptx::load_tile(ptx::shared_address(tile), &map, full, 0, 0);
    }
    __syncthreads();
    ptx::mbarrier_wait(full, 0);
    if (!waits)
        ptx::wait_for_kernel_before();
    y[threadIdx.x] = tile[threadIdx.x];
}

template <bool waits, bool encoded> static bool tile_is_copied()
{
    float *x = test::to_device(std::vector<float>(32, 3.0f)), *y = test::to_device(std::vector<float>(32));
    TensorMapShape shape = { x, HS_F32, 2, { 32, 1 }, { 4, 128 }, { 32, 1 }, 0 };
    TensorMap map = {};
    if (encoded && encode_tensor_map(shape, &map) != HS_OK)
        return false;
    emulate_launch(
        "tile", 1, 32, 1024, nullptr, [=] { tile_kernel<waits>(map, y); }, 1, true);
    return test::to_host(y, 32)[31] == 3.0f;
}

} // namespace hs_emu

int main()
{
    using namespace hs_emu;
    const char *early = "before griddepcontrol.wait";
    test::finds("a read before the wait", early, doubled<NONE>, doubled<READS_BEFORE>);
    test::catches("a write before the wait", early, doubled<WRITES_BEFORE>);
    test::catches("cp.async before the wait", "cp.async (", doubled<COPIES_BEFORE>);
    test::catches("a warp that does not wait", early, doubled<ONE_WARP_BEFORE>);
    test::catches("a kernel that does not wait", "no thread of a block waits", doubled<NEVER_WAITS>);
    test::holds("one warp waits for all", [] { return chain(one_waits_kernel, THREADS + WARP_SIZE); });
    test::finds("a tensor load before the wait", "tensor load (", tile_is_copied<true, true>,
                tile_is_copied<false, true>);
    test::catches("a map that is not encoded", "prefetch.tensormap", tile_is_copied<true, false>);
    return test::result();
}
