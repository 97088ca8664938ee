/* SPDX-License-Identifier: MIT
 *
 * The bias's gradient, dbias[c] += sum over n of dy[n,c], in two passes:
 *     1. each block sums a stripe of rows over a group of columns, into partials [stripes, C] in the workspace;
 *     2. the stripes are added in order.
 * Bound by memory: dy is read once, 16 bytes a lane; enough stripes for several blocks on each multiprocessor.
 */
#include "kernels/cuda/device/device.cuh"
#include "kernels/cuda/toolbox/launch.cuh"
#include "kernels/cuda/toolbox/numeric.cuh"

namespace HS_CUDA_NAMESPACE
{

namespace
{

enum {
    WARPS = 8,
    BLOCKS_PER_MULTIPROCESSOR = 4,
    LEAST_STRIPE_ROWS = 8 * WARPS, /* several loads in flight for each warp */
    MOST_STRIPES = 256
};

/* Row `warp` of `warps` x columns of lanes' sums becomes one row, in order of the warps. */
template <int width> HS_DEVICE void add_warps(float (&sums)[width], float *scratch)
{
    const int lane = (int)threadIdx.x % WARP_SIZE, warp = (int)threadIdx.x / WARP_SIZE;
#pragma unroll
    for (int i = 0; i < width; i++)
        scratch[(warp * width + i) * WARP_SIZE + lane] = sums[i];
    __syncthreads();
    if (warp != 0)
        return;
#pragma unroll
    for (int i = 0; i < width; i++) {
        sums[i] = 0.0f;
        for (int other = 0; other < WARPS; other++)
            sums[i] += scratch[(other * width + i) * WARP_SIZE + lane];
    }
}

/* Lane l takes `width` neighbouring columns; warp w rows w, w + WARPS, ... of the stripe. */
template <typename T, int width>
__global__ void __launch_bounds__(WARPS *WARP_SIZE)
    bias_bwd_stripe_kernel(const T *dy, int64_t rows, int64_t columns, int64_t stripe_rows, float *partials)
{
    HS_SHARED(float, scratch, WARPS *width *WARP_SIZE);
    begin_after_kernel_before();
    const int lane = (int)threadIdx.x % WARP_SIZE, warp = (int)threadIdx.x / WARP_SIZE;
    const int64_t column = ((int64_t)blockIdx.x * WARP_SIZE + lane) * width;
    const int64_t begin = (int64_t)blockIdx.y * stripe_rows, end = min(rows, begin + stripe_rows);
    float sums[width] = {};
    if (column < columns) {
#pragma unroll 4
        for (int64_t row = begin + warp; row < end; row += WARPS) {
            const Pack<T, width> pack = load_pack<T, width>(dy + row * columns + column);
#pragma unroll
            for (int i = 0; i < width; i++)
                sums[i] += to_float(pack.value[i]);
        }
    }
    add_warps(sums, scratch);
    if (warp != 0 || column >= columns)
        return;
#pragma unroll
    for (int i = 0; i < width; i++)
        partials[(int64_t)blockIdx.y * columns + column + i] = sums[i];
}

/* A lane a column; warp w adds stripes w, w + WARPS, ... */
__global__ void __launch_bounds__(WARPS *WARP_SIZE)
    bias_bwd_kernel(const float *partials, int stripes, int64_t columns, float *dbias)
{
    HS_SHARED(float, scratch, WARPS *WARP_SIZE);
    begin_after_kernel_before();
    const int lane = (int)threadIdx.x % WARP_SIZE, warp = (int)threadIdx.x / WARP_SIZE;
    const int64_t column = (int64_t)blockIdx.x * WARP_SIZE + lane;
    float sums[1] = {};
    if (column < columns) {
#pragma unroll 4
        for (int stripe = warp; stripe < stripes; stripe += WARPS)
            sums[0] += partials[stripe * columns + column];
    }
    add_warps(sums, scratch);
    if (warp == 0 && column < columns)
        dbias[column] += sums[0];
}

struct Stripes {
    int count;
    int64_t rows;
};

/* By shape and device only; the width of a load does not matter. */
Stripes stripes_of(const HsContext *context, const HsBiasBackwardArgs *args)
{
    const int64_t rows = args->dy.shape[0], columns = args->dy.shape[1];
    const int64_t across = (columns + 255) / 256;
    int64_t wanted = ((int64_t)limits_of(context).multiprocessors * BLOCKS_PER_MULTIPROCESSOR + across - 1) / across;
    wanted = wanted < MOST_STRIPES ? wanted : (int64_t)MOST_STRIPES;
    int64_t stripe_rows = (rows + wanted - 1) / wanted;
    stripe_rows = stripe_rows > LEAST_STRIPE_ROWS ? stripe_rows : (int64_t)LEAST_STRIPE_ROWS;
    return { (int)((rows + stripe_rows - 1) / stripe_rows), stripe_rows };
}

template <typename T, int width>
HsStatus launch_stripes(HsContext *context, const HsBiasBackwardArgs *args, const Stripes &stripes, float *partials)
{
    const int64_t rows = args->dy.shape[0], columns = args->dy.shape[1];
    const dim3 grid(blocks_for(columns, WARP_SIZE * width), (unsigned)stripes.count);
    return hs_launch_after(context, HS_KERNEL((bias_bwd_stripe_kernel<T, width>)), grid, dim3(WARPS * WARP_SIZE), 0,
                           data_of<T>(args->dy), rows, columns, stripes.rows, partials);
}

} // namespace

size_t workspace::bias_backward(const HsContext *context, const HsBiasBackwardArgs *args)
{
    return (size_t)stripes_of(context, args).count * (size_t)args->dy.shape[1] * sizeof(float);
}

HsStatus op::bias_backward(HsContext *context, const HsBiasBackwardArgs *args)
{
    const Stripes stripes = stripes_of(context, args);
    const int64_t columns = args->dy.shape[1];
    float *const partials = static_cast<float *>(context->workspace);
    HS_TRY(dispatch_act(args->dy.dtype, [&](auto element) {
        using T = decltype(element);
        constexpr int width = PackWidth<T>::value;
        const bool packed = columns % width == 0 && aligned_to(args->dy.data, 16);
        return packed ? launch_stripes<T, width>(context, args, stripes, partials)
                      : launch_stripes<T, 1>(context, args, stripes, partials);
    }));
    return hs_launch_after(context, HS_KERNEL(bias_bwd_kernel), dim3(blocks_for(columns, WARP_SIZE)),
                           dim3(WARPS * WARP_SIZE), 0, partials, stripes.count, columns, data_of<float>(args->dbias));
}

} // namespace HS_CUDA_NAMESPACE
