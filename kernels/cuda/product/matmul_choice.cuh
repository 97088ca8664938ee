/* SPDX-License-Identifier: MIT
 *
 * What tests and measurements prescribe instead of a choice.  A product's shape decides which kernel serves it, so that
 * small products would never reach the large tiles.
 */
#ifndef HS_KERNELS_CUDA_PRODUCT_MATMUL_CHOICE_CUH
#define HS_KERNELS_CUDA_PRODUCT_MATMUL_CHOICE_CUH

#include "kernels/cuda/product/matmul.cuh"

namespace HS_CUDA_NAMESPACE
{

/* All zeros: nothing is prescribed. */
struct MatmulForce {
    char kernels[HS_TUNING_FORCED]; /* "wgmma-256x256,mma-128x128": the first that can serve a product does; where none
                                     * can, the choice is free */
    int slices;                     /* of k, as many as there can be; 0: free */
};

/* HsTuner.force */
HsStatus force_matmul(HsDevice *device, const char *kernels, int slices);

} // namespace HS_CUDA_NAMESPACE

#endif
