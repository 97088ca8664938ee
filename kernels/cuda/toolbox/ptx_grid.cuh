/* SPDX-License-Identifier: MIT
 *
 * PTX wrappers: kernels of one stream that overlap (programmatic dependent launch, compute capability 9.0 and later).
 *
 * A kernel launched by hs_launch_after may begin when every block of the kernel before it has either called
 * let_next_kernel_begin or ended: it is launched, sets up its shared memory and fetches its parameters while the other's
 * last blocks still run.  What it must not do before wait_for_kernel_before returns is touch device memory: neither
 * read what the other writes, nor write what the other reads.  A kernel with no block that waits is an error too, as
 * the kernel after it waits for it alone.  The emulator finds both (kernels/emu/launch.cpp).
 */
#ifndef HS_KERNELS_CUDA_TOOLBOX_PTX_GRID_CUH
#define HS_KERNELS_CUDA_TOOLBOX_PTX_GRID_CUH

#include "kernels/cuda/toolbox/platform.cuh"

namespace HS_CUDA_NAMESPACE
{
namespace ptx
{

/* Until the kernels before have ended and what they wrote is visible; at once, where nothing runs before. */
HS_DEVICE void wait_for_kernel_before()
{
#ifdef HS_EMU
    emulated_wait_for_kernel_before();
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* The kernel after this one may begin, as far as this block is concerned; it sees nothing earlier because of that. */
HS_DEVICE void let_next_kernel_begin()
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

} // namespace ptx

/* What every thread of a kernel launched by hs_launch_after begins with.  The next kernel's blocks take what room the
 * multiprocessors have left only when the last of this one's have begun, so that saying so at once costs nothing. */
HS_DEVICE void begin_after_kernel_before()
{
    ptx::wait_for_kernel_before();
    ptx::let_next_kernel_begin();
}

} // namespace HS_CUDA_NAMESPACE

#endif
