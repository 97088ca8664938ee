/* SPDX-License-Identifier: MIT
 *
 * SwiGLU's kernels, for the product that they follow (product/matmul.cu): they find the largest magnitude of what they
 * store, y or dx, on the way.  amax: absent where nobody asks.
 */
#ifndef HS_KERNELS_CUDA_LAYERS_SWIGLU_CUH
#define HS_KERNELS_CUDA_LAYERS_SWIGLU_CUH

#include "kernels/cuda/toolbox/platform.cuh"
#include "kernels/ops/ops.h"

namespace HS_CUDA_NAMESPACE
{

HsStatus swiglu_forward_with_amax(HsContext *context, const HsUnaryArgs *args, const HsTensor &amax);
HsStatus swiglu_backward_with_amax(HsContext *context, const HsUnaryBackwardArgs *args, const HsTensor &amax);

} // namespace HS_CUDA_NAMESPACE

#endif
