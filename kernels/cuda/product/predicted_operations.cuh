/* SPDX-License-Identifier: MIT
 *
 * The models of matmul_model.cuh and predicted.cuh as they answer for a call: HsBackend.seconds.
 */
#ifndef HS_KERNELS_CUDA_PRODUCT_PREDICTED_OPERATIONS_CUH
#define HS_KERNELS_CUDA_PRODUCT_PREDICTED_OPERATIONS_CUH

#include "kernels/cuda/product/predicted.cuh"

namespace HS_CUDA_NAMESPACE
{

namespace predicted
{
double matmul(const HsContext *context, const HsMatmulArgs *args);
double attention_forward(const HsContext *context, const HsAttentionArgs *args);
double attention_backward(const HsContext *context, const HsAttentionBackwardArgs *args);
} // namespace predicted

} // namespace HS_CUDA_NAMESPACE

#endif
