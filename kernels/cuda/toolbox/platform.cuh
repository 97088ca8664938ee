/* SPDX-License-Identifier: MIT
 *
 * What every source of kernels/cuda includes first: CUDA itself, or the emulation of it.
 *
 * Rules that keep the sources fit for both compilers:
 *   - All PTX is in ptx_*.cuh, each wrapper's device body next to its emulated one.
 *   - Shared memory is declared by HS_SHARED (a fixed count) or HS_DYNAMIC_SHARED (the launch's bytes), at the top of a
 *     kernel, by every thread of the block alike.  The emulator fills it with NaN and checks its bounds.
 *   - Kernels are launched by hs_launch (launch.cuh), which checks the error and knows the kernel's name.
 *   - Number formats are the structs of numeric.cuh, not CUDA's own.
 */
#ifndef HS_KERNELS_CUDA_TOOLBOX_PLATFORM_CUH
#define HS_KERNELS_CUDA_TOOLBOX_PLATFORM_CUH

#include <stddef.h>
#include <stdint.h>

#ifdef HS_EMU
#include "kernels/emu/emu.h"
#define HS_CUDA_NAMESPACE hs_emu
#else
#ifdef __HIP__
#include "kernels/cuda/toolbox/hip_names.cuh"
#define HS_CUDA_NAMESPACE hs_hip
#else
#include <cuda_runtime.h>
#define HS_CUDA_NAMESPACE hs_cuda
#endif
/* name: pointer to `count` elements of shared memory. */
#define HS_SHARED(type, name, count)                     \
    __shared__ __align__(16) type name##_storage[count]; \
    type *const name = name##_storage
/* name: pointer to the launch's shared bytes, 1024-byte aligned. */
#define HS_DYNAMIC_SHARED(type, name)                                          \
    extern __shared__ __align__(1024) unsigned char hs_dynamic_shared_bytes[]; \
    type *const name = reinterpret_cast<type *>(hs_dynamic_shared_bytes)
#endif

extern "C" {
#include "kernels/ops/backend.h"
}

#define HS_DEVICE static __device__ __forceinline__

namespace HS_CUDA_NAMESPACE
{

enum { WARP_SIZE = 32 };
static constexpr unsigned FULL_WARP = 0xffffffffu;

namespace ptx
{

/* threadIdx.x, found out anew at every call: the compiler keeps nothing that follows from it in registers from one turn
 * of a long loop to the next. */
HS_DEVICE int thread_anew()
{
#if defined(HS_EMU) || defined(__HIP__)
    return (int)threadIdx.x;
#else
    uint32_t thread;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
    return (int)(thread % 1024); /* which says that it is small */
#endif
}

} // namespace ptx

/* Every operation of ops.h, implemented by this backend: HsStatus matmul(HsContext *, const HsMatmulArgs *), ... */
namespace op
{
#define HS_CUDA_OP_PROTOTYPE(name, Args, formula) HsStatus name(HsContext *context, const Args *args);
HS_OPS(HS_CUDA_OP_PROTOTYPE)
#undef HS_CUDA_OP_PROTOTYPE
} // namespace op

/* Scratch bytes of an operation, for those that need any; the others have no definition. */
namespace workspace
{
#define HS_CUDA_WORKSPACE_PROTOTYPE(name, Args, formula) \
    __attribute__((weak)) size_t name(const HsContext *context, const Args *args);
HS_OPS(HS_CUDA_WORKSPACE_PROTOTYPE)
#undef HS_CUDA_WORKSPACE_PROTOTYPE
} // namespace workspace

} // namespace HS_CUDA_NAMESPACE

#endif
