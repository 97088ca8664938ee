/* SPDX-License-Identifier: MIT
 *
 * A kernel with a mistake that check_kernels.sh must find in its machine code: it reads what the kernel before it may be
 * writing, and waits then.
 */
#include "kernels/cuda/toolbox/ptx_grid.cuh"

namespace hs_cuda
{

__global__ void early_kernel(const float *x, float *y)
{
    const float before = x[threadIdx.x];
    begin_after_kernel_before();
    y[threadIdx.x] = before;
}

} // namespace hs_cuda
