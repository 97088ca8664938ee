/* SPDX-License-Identifier: MIT
 *
 * The index of each row's largest logit, a block a row.  A thread walks its columns from left to right and keeps the
 * first of its largest; of the threads that hold the row's maximum, the lowest index is the result.  Each logit is read
 * once, neighbouring threads neighbouring ones: memory is the bound.
 */
#include <math.h>

#include "kernels/cuda/toolbox/launch.cuh"
#include "kernels/cuda/toolbox/numeric.cuh"
#include "kernels/cuda/toolbox/reduce.cuh"

namespace HS_CUDA_NAMESPACE
{

namespace
{

enum { MOST_THREADS = 1024 };

__global__ void __launch_bounds__(MOST_THREADS)
    argmax_kernel(const float *logits, int32_t *index, int vocabulary, int count)
{
    HS_SHARED(float, largest, WARP_SIZE);
    HS_SHARED(int, places, WARP_SIZE);
    begin_after_kernel_before();
    const float *row = logits + (int64_t)blockIdx.x * vocabulary;
    float mine = -INFINITY;
    int place = 0;
    for (int v = (int)threadIdx.x; v < count; v += (int)blockDim.x) {
        const float logit = row[v];
        if (logit > mine) { /* NaN is never larger */
            mine = logit;
            place = v;
        }
    }
    const float maximum = block_reduce<Maximum>(mine, -INFINITY, largest);
    /* The lowest place is the largest negative one. */
    const int lowest = block_reduce<Maximum>(mine == maximum ? -place : -count, -count, places);
    if (threadIdx.x == 0)
        index[blockIdx.x] = -lowest;
}

} // namespace

HsStatus op::argmax(HsContext *context, const HsArgmaxArgs *args)
{
    const int64_t rows = args->logits.shape[0], vocabulary = args->logits.shape[1];
    if (vocabulary > INT32_MAX / 2)
        return hs_fail(HS_EUNSUPPORTED, "argmax: a vocabulary of %lld is more than the kernel's %d",
                       (long long)vocabulary, INT32_MAX / 2);
    const unsigned wanted = blocks_for(args->count, 4 * WARP_SIZE) * (unsigned)WARP_SIZE;
    const unsigned threads = wanted < MOST_THREADS ? wanted : (unsigned)MOST_THREADS;
    return hs_launch_after(context, HS_KERNEL(argmax_kernel), (unsigned)rows, threads, 0,
                           (const float *)data_of<float>(args->logits), data_of<int32_t>(args->index), (int)vocabulary,
                           (int)args->count);
}

} // namespace HS_CUDA_NAMESPACE
