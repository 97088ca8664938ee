/* SPDX-License-Identifier: MIT
 *
 * Sums over ranks along the tree of kernels/base/comm.h.
 */
#ifndef HS_KERNELS_CUDA_COMM_FOLD_CUH
#define HS_KERNELS_CUDA_COMM_FOLD_CUH

#include "kernels/cuda/toolbox/platform.cuh"

extern "C" {
#include "kernels/base/comm.h"
}

namespace HS_CUDA_NAMESPACE
{

enum { FOLD_RANKS_MOST = 1024 };

/* own [count] becomes the sum of all ranks' parts, along the tree, each addition rounded to the type; or their maximum.
 *   others: the parts of ranks 0, 1, ... without `rank`, each `stride` elements after the one before
 *   dtype f32, f64, bf16 or f16;  size 2 to FOLD_RANKS_MOST */
HsStatus launch_fold(const HsContext *context, void *own, const void *others, size_t stride, size_t count, int rank,
                     int size, HsDtype dtype, HsCommOp op);

} // namespace HS_CUDA_NAMESPACE

#endif
