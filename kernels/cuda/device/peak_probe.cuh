/* SPDX-License-Identifier: MIT
 *
 * How a probe of the peak is timed (peak.cu, peak_hopper.cu).
 */
#ifndef HS_KERNELS_CUDA_DEVICE_PEAK_PROBE_CUH
#define HS_KERNELS_CUDA_DEVICE_PEAK_PROBE_CUH

#include "kernels/cuda/device/device.cuh"
#include "kernels/cuda/toolbox/launch.cuh"

namespace HS_CUDA_NAMESPACE
{

enum { PROBE_REPEATS = 3 };
#ifdef HS_EMU
enum { PROBE_STEPS = 2 }; /* an emulation has no peak: the work is done, and nothing claimed */
#else
enum { PROBE_STEPS = 4096 };
#endif

/* Milliseconds of the fastest of several runs of `work`; the first brings the clocks up. */
template <typename Work>
HsStatus time_fastest(const HsContext *context, HsEvent *start, HsEvent *stop, double *milliseconds, Work work)
{
    HsDevice *device = context->device;
    *milliseconds = 0.0;
    for (int repeat = 0; repeat <= PROBE_REPEATS; repeat++) {
        double elapsed;
        HS_TRY(device->event_record(device, start, context->stream));
        HS_TRY(work());
        HS_TRY(device->event_record(device, stop, context->stream));
        HS_TRY(device->event_elapsed_ms(device, start, stop, &elapsed));
        if (repeat == 1 || (repeat > 1 && elapsed < *milliseconds))
            *milliseconds = elapsed;
    }
    return HS_OK;
}

/* `amount` (operations, bytes) a second of work(memory), which may use `bytes` of device memory; 0: it failed, or this
 * is an emulation. */
template <typename Work> double fastest_rate(const HsContext *context, size_t bytes, double amount, Work work)
{
    HsDevice *device = context->device;
    const size_t peak_before = device->peak_bytes;
    void *memory = nullptr;
    HsEvent *start = nullptr, *stop = nullptr;
    double milliseconds = 0.0;
    HsStatus status = device->alloc(device, bytes, &memory);
    if (status == HS_OK)
        status = device->event_create(device, &start);
    if (status == HS_OK)
        status = device->event_create(device, &stop);
    if (status == HS_OK)
        status = time_fastest(context, start, stop, &milliseconds, [&] { return work(memory); });
    device->event_destroy(device, start);
    device->event_destroy(device, stop);
    if (memory != nullptr)
        device->release(device, memory);
    device->peak_bytes = peak_before; /* what the probe took for a moment does not count */
#ifdef HS_EMU
    (void)amount;
    return 0.0;
#else
    return status != HS_OK || milliseconds <= 0.0 ? 0.0 : amount / (1e-3 * milliseconds);
#endif
}

} // namespace HS_CUDA_NAMESPACE

#endif
