/* SPDX-License-Identifier: MIT
 *
 * Rows gathered from a matrix, and scattered into one. Each byte is read once and written once: memory is the bound.
 * Bits are moved, whatever they stand for, in the largest units that rows begin at and consist of.
 */
#include "kernels/cuda/toolbox/launch.cuh"
#include "kernels/cuda/toolbox/numeric.cuh"

namespace HS_CUDA_NAMESPACE
{

namespace
{

enum { THREADS = 256 };

/* scatters: row n of x becomes row rows[n] of y, else row rows[n] of x row n of y. fill: of 32 bits, where there is
 * none to gather. */
template <typename Unit, int count, bool scatters>
__global__ void __launch_bounds__(THREADS)
    move_rows_kernel(const int32_t *rows, const Unit *x, Unit *y, int64_t row_count, int64_t units, int fill)
{
    begin_after_kernel_before();
    const int64_t n = (int64_t)blockIdx.x * blockDim.y + threadIdx.y;
    const int64_t unit = (int64_t)blockIdx.y * blockDim.x + threadIdx.x;
    if (n >= row_count || unit >= units)
        return;
    const int64_t row = rows[n];
    if (scatters && row < 0)
        return;
    Pack<Unit, count> pack;
#pragma unroll
    for (int i = 0; i < count; i++)
        pack.value[i] = (Unit)fill;
    if (row >= 0)
        pack = load_pack<Unit, count>(x + ((scatters ? n : row) * units + unit) * count);
    store_pack<Unit, count>(y + ((scatters ? row : n) * units + unit) * count, pack);
}

template <typename Unit, int count, bool scatters> HsStatus move_units(HsContext *context, const HsMoveRowsArgs *args)
{
    const int64_t rows = args->rows.shape[0];
    const int64_t units =
        args->x.shape[1] * (int64_t)hs_dtype_bytes(args->x.dtype) / (int64_t)sizeof(Pack<Unit, count>);
    const unsigned warps = blocks_for(units, WARP_SIZE);
    const unsigned width = warps * WARP_SIZE < THREADS ? warps * WARP_SIZE : (unsigned)THREADS;
    const dim3 block(width, THREADS / width), grid(blocks_for(rows, block.y), blocks_for(units, width));
    return hs_launch_after(context, HS_KERNEL((move_rows_kernel<Unit, count, scatters>)), grid, block, 0,
                           (const int32_t *)data_of<int32_t>(args->rows), (const Unit *)args->x.data,
                           (Unit *)args->y.data, rows, units, args->x.dtype == HS_I32 ? -1 : 0);
}

template <bool scatters> HsStatus move_rows(HsContext *context, const HsMoveRowsArgs *args)
{
    const size_t bytes = (size_t)args->x.shape[1] * hs_dtype_bytes(args->x.dtype);
    const auto consists_of = [&](size_t unit) {
        return bytes % unit == 0 && aligned_to(args->x.data, unit) && aligned_to(args->y.data, unit);
    };
    if (consists_of(16))
        return move_units<uint32_t, 4, scatters>(context, args);
    if (consists_of(4))
        return move_units<uint32_t, 1, scatters>(context, args);
    return move_units<uint16_t, 1, scatters>(context, args);
}

} // namespace

HsStatus op::gather_rows(HsContext *context, const HsMoveRowsArgs *args)
{
    return move_rows<false>(context, args);
}

HsStatus op::scatter_rows(HsContext *context, const HsMoveRowsArgs *args)
{
    return move_rows<true>(context, args);
}

} // namespace HS_CUDA_NAMESPACE
