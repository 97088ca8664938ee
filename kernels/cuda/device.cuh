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
    int multiprocessors;
    int compute_capability;    /* 80, 86, 89, 90 ... */
    size_t block_shared_bytes; /* most dynamic shared memory of a block, opted in */
    size_t multiprocessor_shared_bytes;
};

const DeviceLimits &limits_of(const HsContext *context);
const HsCudaOptions &options_of(const HsContext *context);

} // namespace HS_CUDA_NAMESPACE

#endif
