/* SPDX-License-Identifier: MIT
 *
 * bf16 products with f32 sums.
 */
#include "kernels/cuda/product/matmul_kernel.cuh"

namespace HS_CUDA_NAMESPACE
{

#define HS_ALIGNED_ROW(...) launch_aligned<Bf16, HS_MATMUL_TILE(__VA_ARGS__)>,
#define HS_ANY_ROW(...)     launch_any<Bf16, HS_MATMUL_TILE(__VA_ARGS__)>

HsStatus launch_matmul_bf16(HsContext *context, MatmulParameters &parameters, const MatmulChoice &choice,
                            bool any_layout)
{
    static const LaunchMatmulTile aligned[] = { HS_MATMUL_TILES_16BIT(HS_ALIGNED_ROW) };
    const LaunchMatmulTile any = HS_MATMUL_TILE_ANY_16BIT(HS_ANY_ROW);
    return (any_layout ? any : aligned[choice.tile])(context, parameters, choice.slices);
}

} // namespace HS_CUDA_NAMESPACE
