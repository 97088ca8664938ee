/* SPDX-License-Identifier: MIT
 *
 * The GPU's own peaks, against which operations are measured.
 *
 * Products: chains of the instruction that carries them, in registers, on every multiprocessor at once.  On Hopper that
 * is the peak of mma.sync, which lies well below that of wgmma.  Eight independent chains a warp and eight warps a
 * block hide the instruction's latency several times over.
 *
 * Memory: the driver's copy from device to device.  A kernel that only reads can be a little faster.
 */
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/peak.cuh"
#include "kernels/cuda/ptx_mma.cuh"

namespace HS_CUDA_NAMESPACE
{

namespace
{

enum { CHAINS = 8, PROBE_THREADS = 256, BLOCKS_A_MULTIPROCESSOR = 4, REPEATS = 3 };
#ifdef HS_EMU
enum { PROBE_STEPS = 2, COPIES = 1 }; /* an emulation has no peak: the work is done, and nothing claimed */
const size_t copied_bytes = 1 << 12;
#else
enum { PROBE_STEPS = 4096, COPIES = 4 };
const size_t copied_bytes = (size_t)1 << 29; /* ten times a large GPU's cache */
#endif

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

/* Seconds of the fastest of several launches; the first brings the clocks up. */
template <typename Step>
HsStatus time_probe(const HsContext *context, unsigned blocks, float *result, HsEvent *start, HsEvent *stop,
                    double *milliseconds)
{
    HsDevice *device = context->device;
    *milliseconds = 0.0;
    for (int repeat = 0; repeat <= REPEATS; repeat++) {
        double elapsed;
        HS_TRY(device->event_record(device, start, context->stream));
        HS_TRY(hs_launch(context, HS_KERNEL(peak_kernel<Step>), dim3(blocks), dim3(PROBE_THREADS), 0, 0x3f803f80u,
                         PROBE_STEPS, result));
        HS_TRY(device->event_record(device, stop, context->stream));
        HS_TRY(device->event_elapsed_ms(device, start, stop, &elapsed));
        if (repeat == 1 || (repeat > 1 && elapsed < *milliseconds))
            *milliseconds = elapsed;
    }
    return HS_OK;
}

template <typename Step> double probe(const HsContext *context)
{
    HsDevice *device = context->device;
    const unsigned blocks = (unsigned)(limits_of(context).multiprocessors * BLOCKS_A_MULTIPROCESSOR);
    void *result = nullptr;
    HsEvent *start = nullptr, *stop = nullptr;
    double milliseconds = 0.0;
    HsStatus status = device->alloc(device, (size_t)blocks * PROBE_THREADS * sizeof(float), &result);
    if (status == HS_OK)
        status = device->event_create(device, &start);
    if (status == HS_OK)
        status = device->event_create(device, &stop);
    if (status == HS_OK)
        status = time_probe<Step>(context, blocks, static_cast<float *>(result), start, stop, &milliseconds);
    device->event_destroy(device, start);
    device->event_destroy(device, stop);
    if (result != nullptr)
        device->release(device, result);
#ifdef HS_EMU
    return 0.0;
#else
    if (status != HS_OK || milliseconds <= 0.0)
        return 0.0;
    return Step::operations * CHAINS * PROBE_STEPS * (PROBE_THREADS / WARP_SIZE) * blocks / (1e-3 * milliseconds);
#endif
}

/* Milliseconds of the fastest of several rounds of COPIES copies each; of zeros: what costs least is the limit. */
HsStatus time_copies(const HsContext *context, unsigned char *source, HsEvent *start, HsEvent *stop,
                     double *milliseconds)
{
    HsDevice *device = context->device;
    *milliseconds = 0.0;
    HS_TRY(device->fill_zero(device, context->stream, source, 2 * copied_bytes));
    for (int repeat = 0; repeat <= REPEATS; repeat++) {
        double elapsed;
        HS_TRY(device->event_record(device, start, context->stream));
        for (int i = 0; i < COPIES; i++)
            HS_TRY(device->copy(device, context->stream, source + copied_bytes, source, copied_bytes));
        HS_TRY(device->event_record(device, stop, context->stream));
        HS_TRY(device->event_elapsed_ms(device, start, stop, &elapsed));
        if (repeat == 1 || (repeat > 1 && elapsed < *milliseconds))
            *milliseconds = elapsed;
    }
    return HS_OK;
}

} // namespace

double peak_flops(const HsContext *context, HsDtype dtype, bool tf32)
{
    switch (dtype) {
    case HS_BF16:
        return probe<Bf16Step>(context);
    case HS_F16:
        return probe<F16Step>(context);
    case HS_F32:
        return tf32 ? probe<Tf32Step>(context) : probe<F32Step>(context);
    default:
        return 0.0;
    }
}

double peak_bytes(const HsContext *context)
{
    HsDevice *device = context->device;
    const size_t peak_before = device->peak_bytes;
    void *block = nullptr;
    HsEvent *start = nullptr, *stop = nullptr;
    double milliseconds = 0.0;
    HsStatus status = device->alloc(device, 2 * copied_bytes, &block);
    if (status == HS_OK)
        status = device->event_create(device, &start);
    if (status == HS_OK)
        status = device->event_create(device, &stop);
    if (status == HS_OK)
        status = time_copies(context, static_cast<unsigned char *>(block), start, stop, &milliseconds);
    device->event_destroy(device, start);
    device->event_destroy(device, stop);
    if (block != nullptr)
        device->release(device, block);
    device->peak_bytes = peak_before; /* what the probe took for a moment is nobody's peak */
#ifdef HS_EMU
    return 0.0;
#else
    if (status != HS_OK || milliseconds <= 0.0)
        return 0.0;
    return 2.0 * (double)copied_bytes * COPIES / (1e-3 * milliseconds);
#endif
}

} // namespace HS_CUDA_NAMESPACE
