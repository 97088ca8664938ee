/* SPDX-License-Identifier: MIT
 *
 * Which tile, and in how many slices of k: the pair that a simple model of the GPU finds fastest.
 *
 * A product whose tiles of c do not fill the multiprocessors (weight gradients: a small c, a long k) is cut along k:
 * each slice's sums go to the workspace, and a second kernel adds them in order.  All numbers are clocks:
 *
 *     multiply = tile's multiply-adds / (peak * rate)           what a block costs a full multiprocessor
 *     fixed    = FIXED_CLOCKS + tile's elements / STORE_RATE    filling the pipeline, writing the tile
 *     busiest  = blocks of the multiprocessor that has most of them
 *     time     = max(one block by itself, busiest * (multiply + fixed / blocks_per_sm)) [+ adding the slices]
 *
 * since the fixed part hides behind other blocks of the same multiprocessor.  The model is coarse, but its two effects
 * are large: waste in the last wave of blocks, and small tiles' lower rate.  The constants are round figures of the
 * architecture, the same for every device, so that results depend on the number of multiprocessors only.
 */
#include "kernels/cuda/matmul_choice.h"

#include "kernels/cuda/matmul.cuh"
#include "kernels/cuda/matmul_tiles.cuh"

namespace HS_CUDA_NAMESPACE
{

namespace
{

struct TileRow {
    int rows, columns, blocks_per_sm, rate, rate_alone;
};

#define TENSOR_ROW(rows, columns, warp_rows, warp_columns, stages, blocks, rate, rate_alone) \
    { rows, columns, blocks, rate, rate_alone },
#define F32_ROW(side, thread_rows, thread_columns, blocks, rate, rate_alone) { side, side, blocks, rate, rate_alone },

const TileRow tiles_f32[] = { HS_MATMUL_TILES_F32(F32_ROW) };
const TileRow tiles_tf32[] = { HS_MATMUL_TILES_TF32(TENSOR_ROW) };
const TileRow tiles_16bit[] = { HS_MATMUL_TILES_16BIT(TENSOR_ROW) };
const TileRow any_tf32[] = { HS_MATMUL_TILE_ANY_TF32(TENSOR_ROW) };
const TileRow any_16bit[] = { HS_MATMUL_TILE_ANY_16BIT(TENSOR_ROW) };

/* A cluster counts as one multiprocessor of twice the rate. */
#define HOPPER_ROW(columns, stages, rate, rate_alone) { 256, columns, 1, rate, rate_alone },
const TileRow tiles_hopper[] = { HS_MATMUL_TILES_HOPPER(HOPPER_ROW) };
const int HOPPER_TILES = sizeof tiles_hopper / sizeof *tiles_hopper;
/* Multiply-adds a clock of one of Hopper's multiprocessors: by wgmma, and what mma.sync can issue of it. */
const double WGMMA_PEAK = 2048.0, HOPPER_MMA_PEAK = 1331.0;

#define ROWS_OF(table) table, (int)(sizeof(table) / sizeof((table)[0]))

/* By family; `any` is the kernel of every layout, which exact f32 has no need of.  peak: multiply-adds a clock of one
 * multiprocessor. */
const struct Family {
    const TileRow *tiles;
    int tile_count;
    const TileRow *any;
    int any_count;
    double peak;
} families[MATMUL_FAMILIES] = {
    { ROWS_OF(tiles_f32), ROWS_OF(tiles_f32), 128.0 },
    { ROWS_OF(tiles_tf32), ROWS_OF(any_tf32), 512.0 },
    { ROWS_OF(tiles_16bit), ROWS_OF(any_16bit), 1024.0 },
};

const double FIXED_CLOCKS = 1000.0, STORE_RATE = 16.0;
/* The second kernel's start, and the bytes a clock that one multiprocessor moves to and from the workspace. */
const double LAUNCH_CLOCKS = 3000.0, WORKSPACE_RATE = 16.0;
enum { MOST_SLICES = 32, LEAST_SLICE_UNITS = 4 };

int forced_tile = -1, forced_slices = 0;

int64_t divided(int64_t count, int64_t size)
{
    return (count + size - 1) / size;
}

/* `wanted` slices cut in whole units: as many as there really are, none of them empty. */
int real_slices(int64_t k, int64_t wanted)
{
    const int64_t units = divided(k, MATMUL_SLICE_UNIT);
    return (int)divided(units, divided(units, wanted < units ? wanted : units));
}

double estimated_clocks(const MatmulShape &shape, const TileRow &tile, double peak, int slices, int multiprocessors)
{
    const double blocks = (double)(divided(shape.m, tile.rows) * divided(shape.n, tile.columns)) * (double)slices;
    const double busiest = (double)divided((int64_t)blocks, multiprocessors);
    const double area = (double)tile.rows * tile.columns;
    const double work = area * (double)divided(shape.k, slices);
    const double multiply = work / (peak * 0.01 * tile.rate), alone = work / (peak * 0.01 * tile.rate_alone);
    const double fixed = FIXED_CLOCKS + area / STORE_RATE;
    const double together = busiest * (multiply + fixed / tile.blocks_per_sm);
    const double clocks = alone + fixed > together ? alone + fixed : together;
    if (slices == 1)
        return clocks;
    const double moved = 4.0 * (2.0 * slices) * (double)shape.m * (double)shape.n;
    return clocks + LAUNCH_CLOCKS + moved / (WORKSPACE_RATE * multiprocessors);
}

} // namespace

MatmulChoice choose_matmul(const MatmulShape &shape, int multiprocessors)
{
    const Family &family = families[shape.family];
    const TileRow *const tiles = shape.any_layout ? family.any : family.tiles;
    const int count = shape.any_layout ? family.any_count : family.tile_count;
    const int total = shape.hopper ? count + HOPPER_TILES : count;
    MatmulChoice best = { false, 0, 1 };
    double best_clocks = 0.0;
    for (int candidate = 0; candidate < total; candidate++) {
        if (forced_tile >= 0 && candidate != forced_tile % total)
            continue;
        const bool hopper = candidate >= count;
        const TileRow &tile = hopper ? tiles_hopper[candidate - count] : tiles[candidate];
        const double peak = hopper ? 2 * WGMMA_PEAK : shape.hopper ? HOPPER_MMA_PEAK : family.peak;
        const int processors = hopper ? (multiprocessors + 1) / 2 : multiprocessors;
        const int64_t blocks = divided(shape.m, tile.rows) * divided(shape.n, tile.columns);
        for (int wanted = 1; wanted <= MOST_SLICES; wanted++) {
            const int slices = real_slices(shape.k, forced_slices > 0 ? forced_slices : wanted);
            const double clocks = estimated_clocks(shape, tile, peak, slices, processors);
            if (best_clocks == 0.0 || clocks < best_clocks) {
                best = { hopper, hopper ? candidate - count : candidate, slices };
                best_clocks = clocks;
            }
            /* More slices only help while multiprocessors are idle, and while a slice is longer than the pipeline. */
            const bool full = blocks * slices >= (int64_t)processors * tile.blocks_per_sm;
            if (forced_slices > 0 || full || shape.k < (int64_t)(wanted + 1) * LEAST_SLICE_UNITS * MATMUL_SLICE_UNIT)
                break;
        }
    }
    return best;
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
