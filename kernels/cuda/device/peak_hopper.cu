/* SPDX-License-Identifier: MIT
 *
 * The peak of 16-bit products on Hopper: wgmma from shared memory, with nothing to copy and nothing to store.
 *
 * Two warpgroups a multiprocessor, as the products' consumers, each multiply 64 x 64 by 64 x 256 over and over into the
 * same sums.  Both read one B: 10 KiB of shared memory for the 128 clocks of an instruction, which leaves the shared
 * memory a third of its time.  Operands are random, +-[1/2, 1): what they hold decides how much power a product needs.
 */
#include "kernels/cuda/device/peak.cuh"
#include "kernels/cuda/device/peak_probe.cuh"
#include "kernels/cuda/toolbox/ptx_wgmma.cuh"

namespace HS_CUDA_NAMESPACE
{

namespace
{

enum {
    PEAK_WARPGROUPS = 2,
    PEAK_THREADS = 128 * PEAK_WARPGROUPS,
    PEAK_ROWS = 64,
    PEAK_COLUMNS = 256,
    PEAK_DEPTH = 64,
    PEAK_LINE = 2 * PEAK_DEPTH, /* bytes */
    PEAK_A_BYTES = PEAK_ROWS * PEAK_LINE,
    PEAK_SHARED_BYTES = PEAK_WARPGROUPS * PEAK_A_BYTES + PEAK_COLUMNS * PEAK_LINE
};

template <typename T> constexpr uint32_t mantissas = ptx::is_f16<T> ? 0x83ff83ffu : 0x807f807fu;
template <typename T> constexpr uint32_t halves = ptx::is_f16<T> ? 0x38003800u : 0x3f003f00u;

template <typename T> __global__ void __launch_bounds__(PEAK_THREADS, 1) peak_wgmma_kernel(int steps, float *result)
{
    HS_DYNAMIC_SHARED(unsigned char, shared);
    uint32_t *const words = reinterpret_cast<uint32_t *>(shared);
    for (int i = (int)threadIdx.x; i < PEAK_SHARED_BYTES / 4; i += PEAK_THREADS)
        words[i] = ((uint32_t)i * 2654435761u & mantissas<T>) | halves<T>; /* Knuth's multiplicative hash */
    ptx::fence_shared_to_async();
    __syncthreads();
    const uint32_t base = ptx::shared_address(shared);
    const uint64_t a = ptx::wgmma_descriptor(base + threadIdx.x / 128 * PEAK_A_BYTES, 8 * PEAK_LINE, 0);
    const uint64_t b = ptx::wgmma_descriptor(base + PEAK_WARPGROUPS * PEAK_A_BYTES, 8 * PEAK_LINE, 0);
    float sums[PEAK_COLUMNS / 2];
#pragma unroll
    for (int i = 0; i < PEAK_COLUMNS / 2; i++)
        sums[i] = 0.0f;
    ptx::wgmma_fence();
    for (int step = 0; step < steps; step++) {
#pragma unroll
        for (int k = 0; k < PEAK_DEPTH; k += 16)
            ptx::wgmma<T, false, false>(sums, ptx::advance_descriptor(a, (uint32_t)k * 2),
                                        ptx::advance_descriptor(b, (uint32_t)k * 2), true);
        ptx::wgmma_commit();
        ptx::wgmma_wait<1>();
    }
    ptx::wgmma_wait<0>();
    ptx::wgmma_settle(sums);
    float total = 0.0f;
#pragma unroll
    for (int i = 0; i < PEAK_COLUMNS / 2; i++)
        total += sums[i];
    result[(int64_t)blockIdx.x * PEAK_THREADS + threadIdx.x] = total;
}

template <typename T> double probe(const HsContext *context)
{
    const unsigned blocks = (unsigned)limits_of(context).multiprocessors;
    const double operations =
        2.0 * PEAK_ROWS * PEAK_COLUMNS * PEAK_DEPTH * PROBE_STEPS * PEAK_WARPGROUPS * (double)blocks;
    return fastest_rate(context, (size_t)blocks * PEAK_THREADS * sizeof(float), operations, [&](void *result) {
        return hs_launch(context, HS_KERNEL(peak_wgmma_kernel<T>), dim3(blocks), dim3(PEAK_THREADS), PEAK_SHARED_BYTES,
                         PROBE_STEPS, static_cast<float *>(result));
    });
}

} // namespace

double peak_hopper_flops(const HsContext *context, HsDtype dtype)
{
    return dtype == HS_BF16 ? probe<Bf16>(context) : probe<F16>(context);
}

} // namespace HS_CUDA_NAMESPACE
