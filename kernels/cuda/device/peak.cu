/* SPDX-License-Identifier: MIT
 *
 * The GPU's own peaks, against which operations are measured.
 *
 * Products: chains of the instruction that carries them, in registers, on every multiprocessor at once.  Eight
 * independent chains a warp and eight warps a block hide the instruction's latency several times over.  16-bit products
 * on Hopper are wgmma's (peak_hopper.cu): mma.sync reaches about two thirds of it there.
 *
 * Memory: the driver's copy from device to device.  A kernel that only reads can be a little faster.
 */
#include "kernels/cuda/device/peak.cuh"
#include "kernels/cuda/device/peak_probe.cuh"
#include "kernels/cuda/toolbox/ptx_mma.cuh"

namespace HS_CUDA_NAMESPACE
{

namespace
{

enum { CHAINS = 8, PROBE_THREADS = 256, BLOCKS_A_MULTIPROCESSOR = 4 };
#ifdef HS_EMU
enum { COPIES = 1 };
const size_t copied_bytes = 1 << 12;
#else
enum { COPIES = 4 };
const size_t copied_bytes = (size_t)1 << 29; /* ten times a large GPU's cache */
#endif
const size_t least_copied_bytes = 1 << 12;

/* One multiply-add of a chain, and the operations in it for a whole warp. */
struct Bf16Step {
    static constexpr double operations = 2.0 * 16 * 8 * 16;
    static __device__ __forceinline__ void run(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
    {
        ptx::mma_bf16(d, a, b);
    }
};
struct F16Step {
    static constexpr double operations = 2.0 * 16 * 8 * 16;
    static __device__ __forceinline__ void run(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
    {
        ptx::mma_f16(d, a, b);
    }
};
struct Tf32Step {
    static constexpr double operations = 2.0 * 16 * 8 * 8;
    static __device__ __forceinline__ void run(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
    {
        ptx::mma_tf32(d, a, b);
    }
};
struct F32Step {
    static constexpr double operations = 2.0 * 4 * WARP_SIZE;
    static __device__ __forceinline__ void run(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
    {
#pragma unroll
        for (int i = 0; i < 4; i++)
            d[i] = fmaf(__uint_as_float(a[i]), __uint_as_float(b[i % 2]), d[i]);
    }
};

/* `bits` is what every operand holds: unknown to the compiler, so that nothing is computed ahead.  Not zero: a GPU that
 * multiplies zeros needs less power and runs faster than on real data. */
template <typename Step>
__global__ void __launch_bounds__(PROBE_THREADS) peak_kernel(uint32_t bits, int steps, float *result)
{
    const uint32_t a[4] = { bits, bits, bits, bits }, b[2] = { bits, bits };
    float sums[CHAINS][4]; /* of different values: equal chains would be computed once */
#pragma unroll
    for (int i = 0; i < CHAINS * 4; i++)
        sums[i / 4][i % 4] = (float)i;
    for (int step = 0; step < steps; step++) {
#pragma unroll
        for (int chain = 0; chain < CHAINS; chain++)
            Step::run(sums[chain], a, b);
    }
    float total = 0.0f;
#pragma unroll
    for (int chain = 0; chain < CHAINS; chain++)
        total += sums[chain][0] + sums[chain][1] + sums[chain][2] + sums[chain][3];
    result[(int64_t)blockIdx.x * PROBE_THREADS + threadIdx.x] = total;
}

template <typename Step> double probe(const HsContext *context)
{
    const unsigned blocks = (unsigned)(limits_of(context).multiprocessors * BLOCKS_A_MULTIPROCESSOR);
    const double operations = Step::operations * CHAINS * PROBE_STEPS * (PROBE_THREADS / WARP_SIZE) * blocks;
    return fastest_rate(context, (size_t)blocks * PROBE_THREADS * sizeof(float), operations, [&](void *result) {
        return hs_launch(context, HS_KERNEL(peak_kernel<Step>), dim3(blocks), dim3(PROBE_THREADS), 0, 0x3f803f80u,
                         PROBE_STEPS, static_cast<float *>(result));
    });
}

/* COPIES copies; of zeros: what costs least is the limit. */
HsStatus copy_repeatedly(const HsContext *context, unsigned char *source, size_t bytes)
{
    HsDevice *device = context->device;
    for (int i = 0; i < COPIES; i++)
        HS_TRY(device->copy(device, context->stream, source + bytes, source, bytes));
    return HS_OK;
}

} // namespace

double peak_flops(const HsContext *context, HsDtype dtype, HsProductPolicy policy)
{
    if (limits_of(context).compute_capability == 90 && (dtype == HS_BF16 || dtype == HS_F16))
        return peak_hopper_flops(context, dtype);
    switch (dtype) {
    case HS_BF16:
        return probe<Bf16Step>(context);
    case HS_F16:
        return probe<F16Step>(context);
    case HS_F32:
        return hs_policy_is_tf32(policy) ? probe<Tf32Step>(context) : probe<F32Step>(context);
    default:
        return 0.0;
    }
}

double peak_bytes(const HsContext *context, size_t most_bytes)
{
    HsDevice *device = context->device;
    const size_t wanted = most_bytes / 2 / least_copied_bytes * least_copied_bytes;
    const size_t bytes = wanted > copied_bytes         ? copied_bytes
                         : wanted < least_copied_bytes ? least_copied_bytes
                                                       : wanted;
    bool zeroed = false;
    return fastest_rate(context, 2 * bytes, 2.0 * (double)bytes * COPIES, [&](void *memory) {
        if (!zeroed)
            HS_TRY(device->fill_zero(device, context->stream, memory, 2 * bytes));
        zeroed = true;
        return copy_repeatedly(context, static_cast<unsigned char *>(memory), bytes);
    });
}

} // namespace HS_CUDA_NAMESPACE
