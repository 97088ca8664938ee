/* SPDX-License-Identifier: MIT
 *
 * The rival: NVIDIA's cuBLASLt, for `kernels.matmul: cublaslt`.  Opened at run time, never needed.
 */
#ifndef HS_KERNELS_CUDA_PRODUCT_CUBLASLT_CUH
#define HS_KERNELS_CUDA_PRODUCT_CUBLASLT_CUH

#include "kernels/cuda/toolbox/platform.cuh"

namespace HS_CUDA_NAMESPACE
{

/* Opens the library for the current GPU; again: nothing.  Errors: HS_EUNSUPPORTED (no library, or the emulator). */
HsStatus cublaslt_open();

/* op::matmul and its workspace by the library. */
size_t cublaslt_workspace(const HsMatmulArgs *args);
HsStatus cublaslt_matmul(HsContext *context, const HsMatmulArgs *args);

} // namespace HS_CUDA_NAMESPACE

#endif
