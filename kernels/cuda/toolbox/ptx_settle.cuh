/* SPDX-License-Identifier: MIT
 *
 * PTX wrapper: where in a thread a value is computed.
 */
#ifndef HS_KERNELS_CUDA_TOOLBOX_PTX_SETTLE_CUH
#define HS_KERNELS_CUDA_TOOLBOX_PTX_SETTLE_CUH

#include "kernels/cuda/toolbox/platform.cuh"

namespace HS_CUDA_NAMESPACE
{
namespace ptx
{

/* The value is computed before this, and not where it is used.  Compilers move a sum behind a branch that does not read
 * it, and then keep everything that it adds in registers until there. */
HS_DEVICE void settle(float &value)
{
#if defined(HS_EMU) || defined(__HIP__)
    (void)value;
#else
    asm volatile("" : "+f"(value));
#endif
}

} // namespace ptx
} // namespace HS_CUDA_NAMESPACE

#endif
