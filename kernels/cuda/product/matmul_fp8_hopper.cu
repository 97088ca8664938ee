/* SPDX-License-Identifier: MIT
 *
 * Launches of the products of FP8 codes for sm_90a (matmul_fp8_hopper.cuh).
 */
#include "kernels/cuda/product/matmul_fp8_hopper.cuh"

#include "kernels/cuda/product/matmul_hopper_launch.cuh"
#include "kernels/cuda/product/matmul_tiles.cuh"

namespace HS_CUDA_NAMESPACE
{

namespace
{

/* Copies take pairs of codes for elements of 16 bits. */
template <typename A, typename Tile, Fp8Sum sum>
HsStatus launch_tile(HsContext *context, const MatmulParameters &given, const Fp8Scales &scales, int slices)
{
    Fp8HopperParameters parameters = {};
    HopperParameters &product = parameters.product;
    parameters.scales = scales;
    HS_TRY(map_operand(given.a, HS_BF16, given.depth, Tile::rows, &product.a));
    HS_TRY(map_operand(given.b, HS_BF16, given.depth, Tile::columns / HOPPER_CLUSTER, &product.b));
    const DeviceLimits &limits = limits_of(context);
    HS_TRY(describe_output(limits, given, slices, Tile::rows, Tile::input_lines, &product.output));
    const int most = clusters_at_once(limits.multiprocessors);
    const int clusters = deal_tiles(given, Tile::rows, Tile::columns, slices, most, &product);
    return hs_launch_clusters_after(context, HS_KERNEL((matmul_fp8_hopper_kernel<A, Tile, sum>)), HOPPER_CLUSTER,
                                    dim3((unsigned)(clusters * HOPPER_CLUSTER)), dim3(HOPPER_THREADS),
                                    (size_t)Fp8Tile<Tile>::shared_bytes(sum), parameters);
}

/* A sum in two sets of registers has no room for more than 128 columns. */
template <typename Tile>
HsStatus launch_sum(HsContext *context, const MatmulParameters &given, const Fp8Product &product, int slices)
{
    if (product.sum == FP8_STRAIGHT && !product.a_e5m2)
        return launch_tile<E4m3, Tile, FP8_STRAIGHT>(context, given, product.scales, slices);
    if constexpr (Tile::columns <= 128) {
        if (product.sum == FP8_BLOCKS)
            return product.a_e5m2 ? launch_tile<E5m2, Tile, FP8_BLOCKS>(context, given, product.scales, slices)
                                  : launch_tile<E4m3, Tile, FP8_BLOCKS>(context, given, product.scales, slices);
        return product.a_e5m2 ? launch_tile<E5m2, Tile, FP8_PROMOTED>(context, given, product.scales, slices)
                              : launch_tile<E4m3, Tile, FP8_PROMOTED>(context, given, product.scales, slices);
    }
    return hs_fail(HS_EUNSUPPORTED, "matmul: promoted sums of %d columns", (int)Tile::columns);
}

} // namespace

HsStatus launch_matmul_fp8_hopper(HsContext *context, const MatmulParameters &parameters, const Fp8Product &product,
                                  const MatmulChoice &choice)
{
#define HS_ROW(rows, columns, stages, ...) launch_sum<HopperTile<(rows) / 2, columns, stages>>,
    static HsStatus (*const launches[])(HsContext *, const MatmulParameters &, const Fp8Product &,
                                        int) = { HS_MATMUL_TILES_FP8_HOPPER(HS_ROW) };
#undef HS_ROW
    return launches[choice.tile](context, parameters, product, choice.slices);
}

} // namespace HS_CUDA_NAMESPACE
