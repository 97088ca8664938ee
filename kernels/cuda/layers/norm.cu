/* SPDX-License-Identifier: MIT
 *
 * Layer norm (Ba, Kiros & Hinton 2016, eq. 4) and root-mean-square norm (Zhang & Sennrich 2019, eq. 4), forward:
 *     y = weight (x - mean) rstd + bias,   rstd = 1 / sqrt(mean((x - mean)^2) + epsilon);   rms: mean = 0
 *
 * Bound by memory: x is read once, y written once.  The row stays in registers between the passes over it, so the
 * variance is taken of centred values at no cost in bytes.  weight and bias come from the L1 cache.
 */
#include "kernels/cuda/layers/norm.cuh"

namespace HS_CUDA_NAMESPACE
{

template <typename X, typename Y> struct NormForward {
    X x;
    Y y;
    View<float> weight, bias; /* bias.data may be NULL */
    float *mean, *rstd;       /* mean: NULL for rms */
    int64_t rows;
    int columns;
    float epsilon;
    bool centre;
};

/* One pack of y from x - mean. */
template <int width, typename Task>
HS_DEVICE void store_normalized(const Task &task, int64_t row, int column, const float (&centred)[width], float rstd)
{
    float weight[width], bias[width] = {}, y[width];
    task.weight.load(column, weight);
    if (task.bias.data)
        task.bias.load(column, bias);
#pragma unroll
    for (int i = 0; i < width; i++)
        y[i] = fmaf(weight[i], centred[i] * rstd, bias[i]);
    task.y.store(row * task.columns + column, y);
}

template <typename Task> HS_DEVICE void store_statistics(const Task &task, int64_t row, float mean, float rstd)
{
    if (threadIdx.x != 0)
        return;
    if (task.mean)
        task.mean[row] = mean;
    task.rstd[row] = rstd;
}

template <int width, int tile, bool one_warp, typename Task>
__global__ void __launch_bounds__(most_threads<one_warp>) norm_forward_kernel(const Task task)
{
    HS_SHARED(float, scratch, NORM_MOST_WARPS);
    begin_after_kernel_before();
    constexpr int packs = tile / width;
    const int64_t row = (int64_t)blockIdx.x * blockDim.y + threadIdx.y;
    /* Threads without a row or a column hold zeros and stay for the barriers. */
    const int columns = row < task.rows ? task.columns : 0;
    float x[packs][width];
    float sum[1] = { 0.0f }, squares[1] = { 0.0f };
#pragma unroll
    for (int pack = 0; pack < packs; pack++) {
        const int column = column_of<width, one_warp>(pack);
        if (column < columns) {
            task.x.load(row * task.columns + column, x[pack]);
        } else {
#pragma unroll
            for (int i = 0; i < width; i++)
                x[pack][i] = 0.0f;
        }
    }
    float mean = 0.0f;
    if (task.centre) {
#pragma unroll
        for (int pack = 0; pack < packs; pack++)
#pragma unroll
            for (int i = 0; i < width; i++)
                sum[0] += x[pack][i];
        row_sums<one_warp>(sum, scratch);
        mean = sum[0] / (float)task.columns;
    }
#pragma unroll
    for (int pack = 0; pack < packs; pack++) {
        const int column = column_of<width, one_warp>(pack);
#pragma unroll
        for (int i = 0; i < width; i++) {
            x[pack][i] = column < columns ? x[pack][i] - mean : 0.0f;
            squares[0] = fmaf(x[pack][i], x[pack][i], squares[0]);
        }
    }
    row_sums<one_warp>(squares, scratch);
    const float rstd = 1.0f / sqrtf(squares[0] / (float)task.columns + task.epsilon);
#pragma unroll
    for (int pack = 0; pack < packs; pack++) {
        const int column = column_of<width, one_warp>(pack);
        if (column < columns)
            store_normalized(task, row, column, x[pack], rstd);
    }
    if (row < task.rows)
        store_statistics(task, row, mean, rstd);
}

/* A row that registers do not hold: one block a row, read three times, the second and third time mostly from L2. */
template <int width, typename Task>
__global__ void __launch_bounds__(NORM_MOST_THREADS) norm_forward_long_kernel(const Task task)
{
    HS_SHARED(float, scratch, NORM_MOST_WARPS);
    begin_after_kernel_before();
    const int64_t row = blockIdx.x;
    const int first = (int)threadIdx.x * width, stride = (int)blockDim.x * width;
    float x[width];
    float sum[1] = { 0.0f }, squares[1] = { 0.0f };
    float mean = 0.0f;
    if (task.centre) {
        for (int column = first; column < task.columns; column += stride) {
            task.x.load(row * task.columns + column, x);
#pragma unroll
            for (int i = 0; i < width; i++)
                sum[0] += x[i];
        }
        row_sums<false>(sum, scratch);
        mean = sum[0] / (float)task.columns;
    }
    for (int column = first; column < task.columns; column += stride) {
        task.x.load(row * task.columns + column, x);
#pragma unroll
        for (int i = 0; i < width; i++)
            squares[0] = fmaf(x[i] - mean, x[i] - mean, squares[0]);
    }
    row_sums<false>(squares, scratch);
    const float rstd = 1.0f / sqrtf(squares[0] / (float)task.columns + task.epsilon);
    for (int column = first; column < task.columns; column += stride) {
        task.x.load(row * task.columns + column, x);
#pragma unroll
        for (int i = 0; i < width; i++)
            x[i] -= mean;
        store_normalized(task, row, column, x, rstd);
    }
    store_statistics(task, row, mean, rstd);
}

template <int width, typename X, typename Y>
static HsStatus launch_forward(const HsContext *context, const HsNormArgs *args, X x, Y y)
{
    using Task = NormForward<X, Y>;
    const Task task = { x,
                        y,
                        view_of<float>(args->weight),
                        view_of<float>(args->bias),
                        data_of<float>(args->mean),
                        data_of<float>(args->rstd),
                        args->x.shape[0],
                        (int)args->x.shape[1],
                        args->epsilon,
                        args->kind == HS_NORM_LAYER };
    const RowLayout layout = row_layout(task.columns, 32);
    const unsigned blocks = blocks_for(task.rows, layout.rows_at_once);
    const dim3 block = layout.block();
    switch (layout.tile) {
    case 8:
        return hs_launch_after(context, HS_KERNEL((norm_forward_kernel<width, 8, true, Task>)), blocks, block, 0, task);
    case 16:
        return hs_launch_after(context, HS_KERNEL((norm_forward_kernel<width, 16, true, Task>)), blocks, block, 0,
                               task);
    case 32:
        if (layout.one_warp())
            return hs_launch_after(context, HS_KERNEL((norm_forward_kernel<width, 32, true, Task>)), blocks, block, 0,
                                   task);
        return hs_launch_after(context, HS_KERNEL((norm_forward_kernel<width, 32, false, Task>)), blocks, block, 0,
                               task);
    default:
        return hs_launch_after(context, HS_KERNEL((norm_forward_long_kernel<width, Task>)), blocks, block, 0, task);
    }
}

HsStatus op::norm_forward(HsContext *context, const HsNormArgs *args)
{
    const bool packed = is_stream_pair(args->y.dtype, args->x.dtype) && packs_fit(args->x.shape[1], args->x, args->y) &&
                        aligned_to(args->weight.data, 16) && aligned_to(args->bias.data, 16);
    if (!packed)
        return launch_forward<1>(context, args, any_view_of(args->x), any_view_of(args->y));
    return dispatch_stream_pair(args->y.dtype, args->x.dtype, [&](auto compute, auto stream) {
        using Compute = decltype(compute);
        using Stream = decltype(stream);
        return launch_forward<access_width<Compute, Stream>>(context, args, view_of<Stream>(args->x),
                                                             view_of<Compute>(args->y));
    });
}

} // namespace HS_CUDA_NAMESPACE
