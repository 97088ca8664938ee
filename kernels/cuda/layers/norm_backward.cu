/* SPDX-License-Identifier: MIT
 *
 * Norms, backward (derivation in kernels/ref/norm.c).  With g = weight dy and xhat = (x - mean) rstd
 *     dx [+]= rstd (g - mean(g) - xhat mean(g xhat)),   dweight += sum_n dy xhat,   dbias += sum_n dy
 * where rms lacks the mean(g) term.
 *
 * Bound by memory: dy and x are read once, dx written once (and read once when it accumulates).  A block walks over its
 * rows and keeps the sums of its columns in registers; PartialSums (norm.cuh) says how the blocks' sums come together.
 * A tile of 16 elements takes four arrays of 16 registers: that is what bounds the occupancy, and each thread still has
 * 100 to 160 bytes in flight.
 */
#include "kernels/cuda/layers/norm.cuh"

namespace HS_CUDA_NAMESPACE
{

template <typename Gradient, typename Stream> struct NormBackward {
    Gradient dy;
    Stream x, dx;
    View<float> weight;
    const float *mean, *rstd; /* mean: NULL for rms */
    float *partials;
    int64_t rows, block_rows;
    int columns, arrays; /* arrays 1: no dbias */
    bool accumulate;
};

/* A pack of dx from g and xhat; `means` of g and of g xhat. */
template <int width, typename Task>
HS_DEVICE void store_gradient(const Task &task, int64_t at, const float (&g)[width], const float (&xhat)[width],
                              float rstd, const float (&means)[2])
{
    float dx[width], previous[width] = {};
    if (task.accumulate)
        task.dx.load(at, previous);
#pragma unroll
    for (int i = 0; i < width; i++)
        dx[i] = fmaf(rstd, g[i] - means[0] - xhat[i] * means[1], previous[i]);
    task.dx.store(at, dx);
}

/* The block's sums of one array: those of its row slots, added in the order of the slots. */
template <bool one_warp, int width, int packs>
HS_DEVICE void store_partials(const float (&sums)[packs][width], int columns, float *slots, float *destination)
{
#pragma unroll
    for (int pack = 0; pack < packs; pack++) {
        const int column = column_of<width, one_warp>(pack);
        if (column < columns)
            View<float>{ slots }.store((int)threadIdx.y * columns + column, sums[pack]);
    }
    __syncthreads();
    const int thread = (int)(threadIdx.y * blockDim.x + threadIdx.x), threads = (int)(blockDim.x * blockDim.y);
    for (int column = thread; column < columns; column += threads) {
        float sum = 0.0f;
        for (int slot = 0; slot < (int)blockDim.y; slot++)
            sum += slots[slot * columns + column];
        destination[column] = sum;
    }
    __syncthreads();
}

template <int width, int tile, bool one_warp, typename Task>
__global__ void __launch_bounds__(most_threads<one_warp>) norm_backward_kernel(const Task task)
{
    HS_SHARED(float, scratch, 2 * NORM_MOST_WARPS);
    HS_DYNAMIC_SHARED(float, slots); /* [rows at once][columns] */
    begin_after_kernel_before();
    constexpr int packs = tile / width;
    float dweight[packs][width] = {}, dbias[packs][width] = {};
    const int64_t first = (int64_t)blockIdx.x * task.block_rows;
    const int64_t end = first + task.block_rows < task.rows ? first + task.block_rows : task.rows;
    for (int64_t slot_row = first; slot_row < end; slot_row += blockDim.y) {
        const int64_t row = slot_row + threadIdx.y;
        const int columns = row < end ? task.columns : 0;
        float g[packs][width], xhat[packs][width];
        /* All loads of the row before the first use. */
#pragma unroll
        for (int pack = 0; pack < packs; pack++) {
            const int column = column_of<width, one_warp>(pack);
            if (column < columns) {
                task.dy.load(row * task.columns + column, g[pack]);
                task.x.load(row * task.columns + column, xhat[pack]);
            } else {
#pragma unroll
                for (int i = 0; i < width; i++)
                    g[pack][i] = xhat[pack][i] = 0.0f;
            }
        }
        const float mean = task.mean && row < end ? task.mean[row] : 0.0f;
        const float rstd = row < end ? task.rstd[row] : 0.0f;
        float sums[2] = { 0.0f, 0.0f };
#pragma unroll
        for (int pack = 0; pack < packs; pack++) {
            const int column = column_of<width, one_warp>(pack);
            float weight[width] = {};
            if (column < columns)
                task.weight.load(column, weight);
#pragma unroll
            for (int i = 0; i < width; i++) {
                xhat[pack][i] = (xhat[pack][i] - mean) * rstd; /* outside the row: g is 0 */
                dweight[pack][i] = fmaf(g[pack][i], xhat[pack][i], dweight[pack][i]);
                dbias[pack][i] += g[pack][i];
                g[pack][i] *= weight[i];
                sums[0] += g[pack][i];
                sums[1] = fmaf(g[pack][i], xhat[pack][i], sums[1]);
            }
        }
        row_sums<one_warp>(sums, scratch);
        const float means[2] = { task.mean ? sums[0] / (float)task.columns : 0.0f, sums[1] / (float)task.columns };
#pragma unroll
        for (int pack = 0; pack < packs; pack++) {
            const int column = column_of<width, one_warp>(pack);
            if (column < columns)
                store_gradient(task, row * task.columns + column, g[pack], xhat[pack], rstd, means);
        }
    }
    float *destination = task.partials + (int64_t)blockIdx.x * task.arrays * task.columns;
    store_partials<one_warp>(dweight, task.columns, slots, destination);
    if (task.arrays == 2)
        store_partials<one_warp>(dbias, task.columns, slots, destination + task.columns);
}

/* Rows that registers do not hold: read twice, the second time mostly from L2; the sums live in the workspace, each
 * column always with the same thread. */
template <int width, typename Task>
__global__ void __launch_bounds__(NORM_MOST_THREADS) norm_backward_long_kernel(const Task task)
{
    HS_SHARED(float, scratch, 2 * NORM_MOST_WARPS);
    begin_after_kernel_before();
    const View<float> dweight = { task.partials + (int64_t)blockIdx.x * task.arrays * task.columns };
    const View<float> dbias = { dweight.data + task.columns };
    const int start = (int)threadIdx.x * width, stride = (int)blockDim.x * width;
    const int64_t first = (int64_t)blockIdx.x * task.block_rows;
    const int64_t end = first + task.block_rows < task.rows ? first + task.block_rows : task.rows;
    for (int64_t row = first; row < end; row++) {
        const float mean = task.mean ? task.mean[row] : 0.0f, rstd = task.rstd[row];
        float sums[2] = { 0.0f, 0.0f };
        float g[width], xhat[width], weight[width];
        for (int column = start; column < task.columns; column += stride) {
            float dweight_sum[width] = {}, dbias_sum[width] = {};
            task.dy.load(row * task.columns + column, g);
            task.x.load(row * task.columns + column, xhat);
            task.weight.load(column, weight);
            if (row > first) {
                dweight.load(column, dweight_sum);
                if (task.arrays == 2)
                    dbias.load(column, dbias_sum);
            }
#pragma unroll
            for (int i = 0; i < width; i++) {
                xhat[i] = (xhat[i] - mean) * rstd;
                dweight_sum[i] = fmaf(g[i], xhat[i], dweight_sum[i]);
                dbias_sum[i] += g[i];
                g[i] *= weight[i];
                sums[0] += g[i];
                sums[1] = fmaf(g[i], xhat[i], sums[1]);
            }
            dweight.store(column, dweight_sum);
            if (task.arrays == 2)
                dbias.store(column, dbias_sum);
        }
        row_sums<false>(sums, scratch);
        const float means[2] = { task.mean ? sums[0] / (float)task.columns : 0.0f, sums[1] / (float)task.columns };
        for (int column = start; column < task.columns; column += stride) {
            task.dy.load(row * task.columns + column, g);
            task.x.load(row * task.columns + column, xhat);
            task.weight.load(column, weight);
#pragma unroll
            for (int i = 0; i < width; i++) {
                xhat[i] = (xhat[i] - mean) * rstd;
                g[i] *= weight[i];
            }
            store_gradient(task, row * task.columns + column, g, xhat, rstd, means);
        }
    }
}

/* A warp's lanes read 32 neighbouring columns of one block's sums; warp w takes blocks w, w + 32, ...; the 32 results
 * of a column are added in order. */
__global__ void __launch_bounds__(WARP_SIZE *WARP_SIZE)
    partial_sums_kernel(const float *partials, int blocks, int arrays, int64_t columns, float *first, float *second)
{
    HS_SHARED(float, sums, WARP_SIZE *WARP_SIZE);
    begin_after_kernel_before();
    const int64_t total = arrays * columns, column = (int64_t)blockIdx.x * WARP_SIZE + threadIdx.x;
    float sum = 0.0f;
    if (column < total) {
        for (int block = (int)threadIdx.y; block < blocks; block += WARP_SIZE)
            sum += partials[block * total + column];
    }
    sums[threadIdx.y * WARP_SIZE + threadIdx.x] = sum;
    __syncthreads();
    float *const destination = column < columns ? first + column : second + (column - columns);
    const bool wanted = column < columns ? first != nullptr : second != nullptr;
    if (threadIdx.y != 0 || column >= total || !wanted)
        return;
    sum = 0.0f;
    for (int warp = 0; warp < WARP_SIZE; warp++)
        sum += sums[warp * WARP_SIZE + (int)threadIdx.x];
    *destination += sum;
}

HsStatus add_partial_sums(HsContext *context, PartialSums sums, int arrays, int64_t columns, float *first,
                          float *second)
{
    return hs_launch_after(context, HS_KERNEL(partial_sums_kernel), blocks_for(arrays * columns, WARP_SIZE),
                           dim3(WARP_SIZE, WARP_SIZE), 0, static_cast<const float *>(context->workspace), sums.blocks,
                           arrays, columns, first, second);
}

/* Layout and partition follow from the shape alone: the dry run must find the same as the run. */
static RowLayout backward_layout(const HsNormBackwardArgs *args)
{
    return row_layout(args->x.shape[1], 16);
}

static int array_count(const HsNormBackwardArgs *args)
{
    return hs_tensor_present(&args->dbias) ? 2 : 1;
}

size_t workspace::norm_backward(const HsContext *, const HsNormBackwardArgs *args)
{
    return partial_sums(args->x.shape[0], backward_layout(args).rows_at_once)
        .bytes(args->x.shape[1], array_count(args));
}

template <int width, typename Gradient, typename Stream>
static HsStatus launch_backward(const HsContext *context, const HsNormBackwardArgs *args, Gradient dy, Stream x,
                                Stream dx)
{
    using Task = NormBackward<Gradient, Stream>;
    const RowLayout layout = backward_layout(args);
    const PartialSums sums = partial_sums(args->x.shape[0], layout.rows_at_once);
    const Task task = { dy,
                        x,
                        dx,
                        view_of<float>(args->weight),
                        args->kind == HS_NORM_LAYER ? data_of<float>(args->mean) : nullptr,
                        data_of<float>(args->rstd),
                        static_cast<float *>(context->workspace),
                        args->x.shape[0],
                        sums.rows,
                        (int)args->x.shape[1],
                        array_count(args),
                        args->accumulate };
    const dim3 blocks((unsigned)sums.blocks), block = layout.block();
    const size_t shared_bytes = (size_t)layout.rows_at_once * (size_t)task.columns * sizeof(float);
    if (layout.tile == 8)
        return hs_launch_after(context, HS_KERNEL((norm_backward_kernel<width, 8, true, Task>)), blocks, block,
                               shared_bytes, task);
    /* Single elements' addresses leave no registers for 16 of them. */
    if constexpr (width > 1) {
        if (layout.tile == 16 && layout.one_warp())
            return hs_launch_after(context, HS_KERNEL((norm_backward_kernel<width, 16, true, Task>)), blocks, block,
                                   shared_bytes, task);
        if (layout.tile == 16)
            return hs_launch_after(context, HS_KERNEL((norm_backward_kernel<width, 16, false, Task>)), blocks, block,
                                   shared_bytes, task);
    }
    return hs_launch_after(context, HS_KERNEL((norm_backward_long_kernel<width, Task>)), blocks,
                           dim3(NORM_MOST_THREADS), 0, task);
}

static HsStatus launch_backward_by_dtype(const HsContext *context, const HsNormBackwardArgs *args)
{
    const bool packed = args->x.dtype == args->dx.dtype && is_stream_pair(args->dy.dtype, args->x.dtype) &&
                        packs_fit(args->x.shape[1], args->dy, args->x, args->dx) && aligned_to(args->weight.data, 16);
    if (!packed)
        return launch_backward<1>(context, args, any_view_of(args->dy), any_view_of(args->x), any_view_of(args->dx));
    return dispatch_stream_pair(args->dy.dtype, args->x.dtype, [&](auto compute, auto stream) {
        using Compute = decltype(compute);
        using Stream = decltype(stream);
        return launch_backward<access_width<Compute, Stream>>(context, args, view_of<Compute>(args->dy),
                                                              view_of<Stream>(args->x), view_of<Stream>(args->dx));
    });
}

HsStatus op::norm_backward(HsContext *context, const HsNormBackwardArgs *args)
{
    HS_TRY(launch_backward_by_dtype(context, args));
    const PartialSums sums = partial_sums(args->x.shape[0], backward_layout(args).rows_at_once);
    return add_partial_sums(context, sums, array_count(args), args->x.shape[1], data_of<float>(args->dweight),
                            data_of<float>(args->dbias));
}

} // namespace HS_CUDA_NAMESPACE
