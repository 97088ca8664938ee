/* SPDX-License-Identifier: MIT
 *
 * Products of f32 operands rounded to tf32 (10 bits of mantissa, to nearest) where fragments are read; f32 sums.
 */
#include "kernels/cuda/product/matmul_kernel.cuh"

namespace HS_CUDA_NAMESPACE
{

#define HS_ALIGNED_ROW(...) launch_aligned<Tf32, HS_MATMUL_TILE(__VA_ARGS__)>,
#define HS_ANY_ROW(...)     launch_any<Tf32, HS_MATMUL_TILE(__VA_ARGS__)>

HsStatus launch_matmul_tf32(HsContext *context, MatmulParameters &parameters, const MatmulChoice &choice,
                            bool any_layout)
{
    static const LaunchMatmulTile aligned[] = { HS_MATMUL_TILES_TF32(HS_ALIGNED_ROW) };
    const LaunchMatmulTile any = HS_MATMUL_TILE_ANY_TF32(HS_ANY_ROW);
    return (any_layout ? any : aligned[choice.tile])(context, parameters, choice.slices);
}

} // namespace HS_CUDA_NAMESPACE
