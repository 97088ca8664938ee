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
    int multiprocessors;               /* that work is laid out for: the GPU's own, or HALFSTEP_MULTIPROCESSORS */
    int compute_capability;            /* 80, 86, 89, 90 ... */
    size_t block_shared_bytes;         /* most dynamic shared memory of a block, opted in */
    size_t multiprocessor_shared_bytes;
    bool hopper_products, hopper_attention; /* the kernels for sm_90a serve these */
};

struct MatmulTable;
struct MatmulForce;

const DeviceLimits &limits_of(const HsContext *context);
const DeviceLimits &device_limits(const HsDevice *device);
/* Measured choices of products, owned by the device; NULL: none. */
MatmulTable *&device_table(const HsDevice *device);
/* What tests and measurements prescribe for products; empty unless they do. */
MatmulForce &device_force(const HsDevice *device);
const HsCudaOptions &options_of(const HsContext *context);

} // namespace HS_CUDA_NAMESPACE

#endif
