/* SPDX-License-Identifier: MIT
 *
 * Tensor-core products with a right operand in four bits, and the absmaxes of its blocks.
 */
#include "kernels/cuda/product/matmul_kernel.cuh"

namespace HS_CUDA_NAMESPACE
{

namespace
{

enum { THREADS = 256 };

/* absmax [blocks] f32.  Each step is rounded, as hs_nf4_absmax does. */
__global__ void __launch_bounds__(THREADS)
    nf4_absmax_kernel(const unsigned char *codes, const float *scales, int group_shift, int64_t blocks, float *absmax)
{
    begin_after_kernel_before();
    const int64_t block = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (block >= blocks)
        return;
    const float *const scale = scales + 2 * (block >> group_shift);
    absmax[block] = __fadd_rn(__fmul_rn(hs_dynamic_value(true, codes[block]), scale[0]), scale[1]);
}

template <typename Element, typename Tile, bool aligned>
HsStatus launch_nf4(HsContext *context, MatmulParameters &parameters, int slices)
{
    const int shared_bytes = Tile::shared_bytes + NF4_LEVEL_BYTES;
    if (parameters.b.k_contiguous)
        return launch_tile(context, parameters, slices,
                           HS_KERNEL((matmul_kernel<Element, Tile, true, true, aligned, true>)), Tile::rows,
                           Tile::columns, Tile::threads, shared_bytes);
    return launch_tile(context, parameters, slices,
                       HS_KERNEL((matmul_kernel<Element, Tile, true, false, aligned, true>)), Tile::rows, Tile::columns,
                       Tile::threads, shared_bytes);
}

#define HS_ALIGNED_ROW(...) launch_nf4<Element, HS_MATMUL_TILE(__VA_ARGS__), true>,
#define HS_ANY_ROW(...)     launch_nf4<Element, HS_MATMUL_TILE(__VA_ARGS__), false>

template <typename Element>
HsStatus launch_16bit(HsContext *context, MatmulParameters &parameters, const MatmulChoice &choice, bool any_layout)
{
    static const LaunchMatmulTile aligned[] = { HS_MATMUL_TILES_16BIT(HS_ALIGNED_ROW) };
    const LaunchMatmulTile any = HS_MATMUL_TILE_ANY_16BIT(HS_ANY_ROW);
    return (any_layout ? any : aligned[choice.tile])(context, parameters, choice.slices);
}

template <typename Element>
HsStatus launch_32bit(HsContext *context, MatmulParameters &parameters, const MatmulChoice &choice, bool any_layout)
{
    static const LaunchMatmulTile aligned[] = { HS_MATMUL_TILES_TF32(HS_ALIGNED_ROW) };
    const LaunchMatmulTile any = HS_MATMUL_TILE_ANY_TF32(HS_ANY_ROW);
    return (any_layout ? any : aligned[choice.tile])(context, parameters, choice.slices);
}

} // namespace

HsStatus launch_nf4_absmax(HsContext *context, const HsQuantized &matrix, float *absmax)
{
    const int64_t blocks = hs_nf4_blocks(matrix.count);
    return hs_launch_after(context, HS_KERNEL(nf4_absmax_kernel), dim3(blocks_for(blocks, THREADS)), dim3(THREADS), 0,
                           matrix.absmax, matrix.scales, matrix.group_shift, blocks, absmax);
}

HsStatus launch_matmul_nf4(HsContext *context, MatmulParameters &parameters, HsDtype dtype, const MatmulChoice &choice,
                           bool any_layout)
{
    if (dtype == HS_BF16)
        return launch_16bit<Bf16>(context, parameters, choice, any_layout);
    if (dtype == HS_F16)
        return launch_16bit<F16>(context, parameters, choice, any_layout);
    return launch_32bit<Tf32>(context, parameters, choice, any_layout);
}

} // namespace HS_CUDA_NAMESPACE
