/* SPDX-License-Identifier: MIT
 *
 * The measured peak of products.
 */
#ifndef HS_KERNELS_CUDA_PEAK_CUH
#define HS_KERNELS_CUDA_PEAK_CUH

#include "kernels/cuda/platform.cuh"

namespace HS_CUDA_NAMESPACE
{

/* Operations a second of products of `dtype` (tf32: of f32 operands rounded to it); 0: none, or it failed. */
double peak_flops(const HsContext *context, HsDtype dtype, bool tf32);

} // namespace HS_CUDA_NAMESPACE

#endif
