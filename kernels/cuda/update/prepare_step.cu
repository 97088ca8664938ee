/* SPDX-License-Identifier: MIT
 *
 * The scalars of an optimizer step on the device: whether it is applied, its loss scale, clip coefficient and bias
 * corrections (kernels/ops/step_rule.h).  The work is that of one thread; what costs is latency, a few microseconds a
 * step instead of a wait for the host.
 *
 * Reading the statistics of some hundred tensors one after the other would be as many trips to memory: the block loads
 * them together, and one thread adds them in their order, so that the norm has the bits that every backend computes.
 */
#include "kernels/cuda/toolbox/launch.cuh"

#include "kernels/ops/step_rule.h"

namespace HS_CUDA_NAMESPACE
{

namespace
{

enum { THREADS = 256 };

__global__ void begin_step_kernel(HsBeginStepArgs args)
{
    begin_after_kernel_before();
    hs_step_begin(&args);
}

__global__ void prepare_step_kernel(HsPrepareStepArgs args)
{
    HS_SHARED(double, sum_squares, THREADS);
    HS_SHARED(int64_t, nonfinite, THREADS);
    begin_after_kernel_before();
    HsStepGradients gradients = { 0.0, 0, -1 };
    for (int first = 0; first < args.count; first += THREADS) {
        const int mine = first + (int)threadIdx.x;
        const int count = args.count - first < THREADS ? args.count - first : THREADS;
        if (mine < args.count) {
            sum_squares[threadIdx.x] = args.sum_squares[mine];
            nonfinite[threadIdx.x] = args.nonfinite[mine];
        }
        __syncthreads();
        for (int i = 0; threadIdx.x == 0 && i < count; i++)
            hs_step_add_tensor(&gradients, first + i, sum_squares[i], nonfinite[i]);
        __syncthreads();
    }
    if (threadIdx.x == 0)
        hs_step_prepare(&gradients, &args);
}

} // namespace

HsStatus op::begin_step(HsContext *context, const HsBeginStepArgs *args)
{
    return hs_launch_after(context, HS_KERNEL(begin_step_kernel), dim3(1), dim3(1), 0, *args);
}

HsStatus op::prepare_step(HsContext *context, const HsPrepareStepArgs *args)
{
    return hs_launch_after(context, HS_KERNEL(prepare_step_kernel), dim3(1), dim3(THREADS), 0, *args);
}

} // namespace HS_CUDA_NAMESPACE
