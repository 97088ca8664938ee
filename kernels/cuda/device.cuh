/* SPDX-License-Identifier: MIT
 *
 * What the operations may ask about their device.
 */
#ifndef HS_KERNELS_CUDA_DEVICE_CUH
#define HS_KERNELS_CUDA_DEVICE_CUH

#include "kernels/cuda/platform.cuh"

namespace HS_CUDA_NAMESPACE
{

/* Limits of the GPU, read once. */
struct DeviceLimits {
    char name[64];
    double clock_hz, bytes_per_second; /* nominal: of the multiprocessors at their highest clock, of the memory */
    int multiprocessors;
    int compute_capability;    /* 80, 86, 89, 90 ... */
    size_t block_shared_bytes; /* most dynamic shared memory of a block, opted in */
    size_t multiprocessor_shared_bytes;
};

struct MatmulTable;

const DeviceLimits &limits_of(const HsContext *context);
const DeviceLimits &device_limits(const HsDevice *device);
/* Measured choices of products, owned by the device; NULL: none. */
MatmulTable *&device_table(const HsDevice *device);
const HsCudaOptions &options_of(const HsContext *context);

} // namespace HS_CUDA_NAMESPACE

#endif
