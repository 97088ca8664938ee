/* SPDX-License-Identifier: MIT
 *
 * The measured peaks: of products, and of moving memory.
 */
#ifndef HS_KERNELS_CUDA_DEVICE_PEAK_CUH
#define HS_KERNELS_CUDA_DEVICE_PEAK_CUH

#include "kernels/cuda/toolbox/platform.cuh"

namespace HS_CUDA_NAMESPACE
{

/* Operations a second of products of `dtype`, rounded as the policy says; 0: none, or it failed. */
double peak_flops(const HsContext *context, HsDtype dtype, HsProductPolicy policy);

/* The same of 16-bit products by wgmma, on compute capability 9.0. */
double peak_hopper_flops(const HsContext *context, HsDtype dtype);

/* Bytes a second, read and written, of the device's own copy of what its caches cannot hold; 0: none, or it failed. */
double peak_bytes(const HsContext *context, size_t most_bytes);

} // namespace HS_CUDA_NAMESPACE

#endif
