/* SPDX-License-Identifier: MIT
 *
 * Sums and maxima over a warp and over a block, always in the same order: results depend on the launch's shape alone.
 * Every thread of the warp or block must call, and every thread receives the result.
 */
#ifndef HS_KERNELS_CUDA_TOOLBOX_REDUCE_CUH
#define HS_KERNELS_CUDA_TOOLBOX_REDUCE_CUH

#include "kernels/cuda/toolbox/platform.cuh"

namespace HS_CUDA_NAMESPACE
{

struct Sum {
    template <typename T> static __device__ __forceinline__ T combine(T a, T b)
    {
        return a + b;
    }
};
struct Maximum {
    template <typename T> static __device__ __forceinline__ T combine(T a, T b)
    {
        return a > b ? a : b;
    }
};

template <typename Rule, typename T> HS_DEVICE T warp_reduce(T value)
{
#pragma unroll
    for (int offset = WARP_SIZE / 2; offset > 0; offset /= 2)
        value = Rule::combine(value, __shfl_xor_sync(FULL_WARP, value, offset));
    return value;
}

/* scratch: shared memory, one T a warp (at most 32).  May be used again at once: it ends with a barrier.  The block is
 * one-dimensional, whole warps.  `identity` is the rule's neutral element. */
template <typename Rule, typename T> HS_DEVICE T block_reduce(T value, T identity, T *scratch)
{
    const int lane = (int)threadIdx.x % WARP_SIZE, warp = (int)threadIdx.x / WARP_SIZE;
    const int warps = (int)blockDim.x / WARP_SIZE;
    value = warp_reduce<Rule>(value);
    if (lane == 0)
        scratch[warp] = value;
    __syncthreads();
    value = warp_reduce<Rule>(lane < warps ? scratch[lane] : identity);
    __syncthreads();
    return value;
}

} // namespace HS_CUDA_NAMESPACE

#endif
