/* SPDX-License-Identifier: MIT
 *
 * NorMuon's scales of a step's rows, bound by memory: a first kernel reads x and renews the running mean squares, and a
 * second one reads and writes x.  A block a row; each block of the second kernel adds up what all rows have of the whole
 * matrix's size, always in the same order, which spares a third kernel.
 */
#include "kernels/cuda/toolbox/launch.cuh"
#include "kernels/cuda/toolbox/reduce.cuh"
#include "kernels/cuda/toolbox/view.cuh"

namespace HS_CUDA_NAMESPACE
{

namespace
{

enum { THREADS = 256 };

struct Neurons {
    const HsStepScalars *scalars;
    float *second_moment; /* [rows] */
    float *squares;       /* [rows]: |f x|^2 of each */
    int64_t rows, columns;
    float beta2, epsilon, size;
};

template <int width, typename X> __global__ void __launch_bounds__(THREADS) measure_neurons_kernel(Neurons call, X x)
{
    HS_SHARED(float, scratch, THREADS / WARP_SIZE);
    begin_after_kernel_before();
    if (call.scalars->skip)
        return;
    const int64_t row = blockIdx.x;
    float sum = 0.0f;
    for (int64_t i = (int64_t)threadIdx.x * width; i < call.columns; i += THREADS * width) {
        float values[width];
        x.load(row * call.columns + i, values);
#pragma unroll
        for (int j = 0; j < width; j++)
            sum = fmaf(values[j], values[j], sum);
    }
    sum = block_reduce<Sum>(sum, 0.0f, scratch);
    if (threadIdx.x > 0)
        return;
    const float second = fmaf(call.beta2, call.second_moment[row], (1.0f - call.beta2) * (sum / (float)call.columns));
    const float divisor = sqrtf(second) + call.epsilon;
    call.second_moment[row] = second;
    call.squares[row] = sum / divisor / divisor;
}

template <int width, typename X> __global__ void __launch_bounds__(THREADS) scale_neurons_kernel(Neurons call, X x)
{
    HS_SHARED(float, scratch, THREADS / WARP_SIZE);
    begin_after_kernel_before();
    if (call.scalars->skip)
        return;
    float total = 0.0f;
    for (int64_t row = threadIdx.x; row < call.rows; row += THREADS)
        total += call.squares[row];
    total = block_reduce<Sum>(total, 0.0f, scratch);
    const int64_t row = blockIdx.x;
    const float whole = total > 0.0f ? call.size * sqrtf((float)(call.rows * call.columns) / total) : 0.0f;
    const float factor = whole / (sqrtf(call.second_moment[row]) + call.epsilon);
    for (int64_t i = (int64_t)threadIdx.x * width; i < call.columns; i += THREADS * width) {
        float values[width];
        x.load(row * call.columns + i, values);
#pragma unroll
        for (int j = 0; j < width; j++)
            values[j] *= factor;
        x.store(row * call.columns + i, values);
    }
}

template <int width, typename X> HsStatus scale(HsContext *context, const Neurons &call, const X &x)
{
    const unsigned blocks = (unsigned)call.rows;
    HS_TRY(hs_launch_after(context, HS_KERNEL((measure_neurons_kernel<width, X>)), blocks, THREADS, 0, call, x));
    return hs_launch_after(context, HS_KERNEL((scale_neurons_kernel<width, X>)), blocks, THREADS, 0, call, x);
}

} // namespace

HsStatus op::scale_neurons(HsContext *context, const HsScaleNeuronsArgs *args)
{
    const Neurons call = { args->scalars,
                           data_of<float>(args->second_moment),
                           static_cast<float *>(context->workspace),
                           args->x.shape[0],
                           args->x.shape[1],
                           args->beta2,
                           args->epsilon,
                           args->size };
    if (!packs_fit(call.columns, args->x))
        return scale<1>(context, call, any_view_of(args->x));
    return dispatch_act(args->x.dtype, [&](auto element) {
        using T = decltype(element);
        return scale<access_width<T>>(context, call, view_of<T>(args->x));
    });
}

size_t workspace::scale_neurons(const HsContext *, const HsScaleNeuronsArgs *args)
{
    return (size_t)args->x.shape[0] * sizeof(float);
}

} // namespace HS_CUDA_NAMESPACE
