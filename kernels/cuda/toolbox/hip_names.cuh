/* SPDX-License-Identifier: MIT
 *
 * HIP under CUDA's names, as far as kernels without tensor cores use them (`make hip`).  Compiled for gfx90a and never
 * run: no such GPU was at hand.
 *
 * A wavefront of gfx90a has 64 lanes, and these kernels are written for warps of 32: a warp is half a wavefront here.
 * Shuffles stay inside of 32 lanes, votes are the half's bits, and since both halves go in step a warp's barrier orders
 * memory alone.
 */
#ifndef HS_KERNELS_CUDA_TOOLBOX_HIP_NAMES_CUH
#define HS_KERNELS_CUDA_TOOLBOX_HIP_NAMES_CUH

#include <hip/hip_runtime.h>

#define __grid_constant__

#define cudaError_t                                 hipError_t
#define cudaStream_t                                hipStream_t
#define cudaSuccess                                 hipSuccess
#define cudaGetLastError                            hipGetLastError
#define cudaFuncSetAttribute                        hipFuncSetAttribute
#define cudaFuncAttributeMaxDynamicSharedMemorySize hipFuncAttributeMaxDynamicSharedMemorySize

namespace hs_hip
{

enum { HIP_WARP = 32 };

template <typename T> static __device__ __forceinline__ T __shfl_sync(unsigned, T value, int lane)
{
    return __shfl(value, lane, HIP_WARP);
}
template <typename T> static __device__ __forceinline__ T __shfl_up_sync(unsigned, T value, unsigned distance)
{
    return __shfl_up(value, distance, HIP_WARP);
}
template <typename T> static __device__ __forceinline__ T __shfl_xor_sync(unsigned, T value, int lanes)
{
    return __shfl_xor(value, lanes, HIP_WARP);
}
static __device__ __forceinline__ unsigned __ballot_sync(unsigned, int predicate)
{
    return (unsigned)(__ballot(predicate) >> (__lane_id() & HIP_WARP));
}
static __device__ __forceinline__ void __syncwarp()
{
    __builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "wavefront");
    __builtin_amdgcn_wave_barrier();
}

} // namespace hs_hip

#endif
