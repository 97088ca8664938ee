/* SPDX-License-Identifier: MIT
 *
 * Launches of the 16-bit products for sm_90a (matmul_hopper.cuh).
 */
#include "kernels/cuda/product/matmul_hopper_launch.cuh"
#include "kernels/cuda/product/matmul_tiles.cuh"

namespace HS_CUDA_NAMESPACE
{

namespace
{

template <typename Element, typename Tile>
HsStatus launch_tile(HsContext *context, const MatmulParameters &given, HsDtype dtype, int slices)
{
    HopperParameters parameters = {};
    HS_TRY(map_operand(given.a, dtype, given.depth, Tile::rows, &parameters.a));
    HS_TRY(map_operand(given.b, dtype, given.depth, Tile::columns / HOPPER_CLUSTER, &parameters.b));
    const DeviceLimits &limits = limits_of(context);
    HS_TRY(describe_output(limits, given, slices, Tile::rows, Tile::input_lines, &parameters.output));
    const int most = clusters_at_once(limits.multiprocessors);
    const int clusters = deal_tiles(given, Tile::rows, Tile::columns, slices, most, &parameters);
    const dim3 grid((unsigned)(clusters * HOPPER_CLUSTER));
#define HS_LAUNCH(a_contiguous, b_contiguous)                                                                       \
    hs_launch_clusters_after(context, HS_KERNEL((matmul_hopper_kernel<Element, Tile, a_contiguous, b_contiguous>)), \
                             HOPPER_CLUSTER, grid, dim3(HOPPER_THREADS), (size_t)Tile::shared_bytes, parameters)
    if (given.a.k_contiguous)
        return given.b.k_contiguous ? HS_LAUNCH(true, true) : HS_LAUNCH(true, false);
    return given.b.k_contiguous ? HS_LAUNCH(false, true) : HS_LAUNCH(false, false);
#undef HS_LAUNCH
}

} // namespace

HsStatus launch_matmul_hopper(HsContext *context, const MatmulParameters &parameters, HsDtype dtype,
                              const MatmulChoice &choice)
{
#define HS_BF16_ROW(rows, columns, stages, ...) launch_tile<Bf16, HopperTile<(rows) / 2, columns, stages>>,
#define HS_F16_ROW(rows, columns, stages, ...)  launch_tile<F16, HopperTile<(rows) / 2, columns, stages>>,
    static HsStatus (*const bf16[])(HsContext *, const MatmulParameters &, HsDtype,
                                    int) = { HS_MATMUL_TILES_HOPPER(HS_BF16_ROW) };
    static HsStatus (*const f16[])(HsContext *, const MatmulParameters &, HsDtype,
                                   int) = { HS_MATMUL_TILES_HOPPER(HS_F16_ROW) };
    return (dtype == HS_BF16 ? bf16 : f16)[choice.tile](context, parameters, dtype, choice.slices);
}

} // namespace HS_CUDA_NAMESPACE
