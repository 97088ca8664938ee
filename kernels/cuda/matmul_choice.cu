/* SPDX-License-Identifier: MIT
 *
 * Which kernel, which tile, and in how many slices of k: as the device's table of measured choices says
 * (matmul_table.cuh), else the pair that the model of the GPU finds fastest (matmul_model.cuh).
 *
 * A product whose tiles of c do not fill the multiprocessors (weight gradients: a small c, a long k) is cut along k:
 * each slice's sums go to the workspace, and a second kernel adds them in order.
 */
#include "kernels/cuda/matmul_choice.h"

#include "kernels/cuda/matmul_model.cuh"
#include "kernels/cuda/matmul_table.cuh"

namespace HS_CUDA_NAMESPACE
{

namespace
{

int forced_tile = -1, forced_slices = 0;

} // namespace

MatmulShape matmul_shape(const HsProductKey &key, int compute_capability)
{
    MatmulShape shape;
    shape.key = key;
    shape.family = key.format == HS_PRODUCT_16BIT  ? MATMUL_16BIT
                   : key.format == HS_PRODUCT_TF32 ? MATMUL_TF32
                                                   : MATMUL_F32;
    shape.m = key.m;
    shape.n = key.n;
    shape.k = key.k;
    const int64_t element = shape.family == MATMUL_16BIT ? 2 : 4;
    const int64_t row_a = key.transpose_a ? key.m : key.k, row_b = key.transpose_b ? key.k : key.n;
    const bool aligned = row_a * element % 16 == 0 && row_b * element % 16 == 0;
    shape.any_layout = (key.transpose_a && key.transpose_b) || !aligned;
    shape.hopper = shape.family == MATMUL_16BIT && aligned && compute_capability == 90;
    return shape;
}

MatmulChoice choose_by_model(const MatmulShape &shape, const DeviceLimits &limits)
{
    const int total = count_kernels(shape);
    MatmulChoice best = { false, 0, 1 };
    double best_clocks = 0.0;
    for (int kernel = 0; kernel < total; kernel++) {
        if (forced_tile >= 0 && kernel != forced_tile % total)
            continue;
        for (int wanted = 1; wanted <= MATMUL_MOST_SLICES; wanted++) {
            const int slices = real_slices(shape.k, forced_slices > 0 ? forced_slices : wanted);
            const double clocks = product_clocks(shape, limits, kernel, slices);
            if (best_clocks == 0.0 || clocks < best_clocks) {
                best = choice_of(shape, kernel, slices);
                best_clocks = clocks;
            }
            if (forced_slices > 0 || !worth_cutting(shape, limits, kernel, wanted))
                break;
        }
    }
    return best;
}

MatmulChoice choose_matmul(const MatmulShape &shape, const DeviceLimits &limits, const MatmulTable *table)
{
    if (table != nullptr && forced_tile < 0)
        if (const MatmulChoice *measured = find_choice(*table, shape.key))
            return *measured;
    return choose_by_model(shape, limits);
}

} // namespace HS_CUDA_NAMESPACE

#ifdef HS_EMU
void hs_emu_matmul_force(int tile, int slices)
{
    hs_emu::forced_tile = tile;
    hs_emu::forced_slices = slices;
}
#else
void hs_cuda_matmul_force(int tile, int slices)
{
    hs_cuda::forced_tile = tile;
    hs_cuda::forced_slices = slices;
}
#endif
