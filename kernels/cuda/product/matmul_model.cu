/* SPDX-License-Identifier: MIT
 *
 * The model of matmul_model.cuh, and its figures.
 */
#include "kernels/cuda/product/matmul_model.cuh"

#include <stdio.h>

#include "kernels/cuda/product/matmul_tiles.cuh"

namespace HS_CUDA_NAMESPACE
{

namespace
{

struct TileRow {
    int rows, columns, blocks_per_sm, rate, rate_alone, stages; /* stages: Hopper's */
    int shared_bytes;                                           /* of a block; 0 where they bound nothing */
};

#define TENSOR_ROW(rows, columns, warp_rows, warp_columns, stages, blocks, rate, rate_alone) \
    { rows, columns, blocks, rate, rate_alone, stages, stages * (rows + columns) * 64 },
#define F32_ROW(side, thread_rows, thread_columns, blocks, rate, rate_alone) \
    { side, side, blocks, rate, rate_alone, 0, 0 },
/* A cluster counts as one multiprocessor. */
#define HOPPER_ROW(rows, columns, stages, rate) { rows, columns, 1, rate, rate, stages, 0 },

/* What the smallest devices give a block. */
#define FITS_EVERYWHERE(rows, columns, warp_rows, warp_columns, stages, blocks, rate, rate_alone) \
    static_assert(stages * (rows + columns) * 64 <= 99 * 1024, "a block's shared memory");
HS_MATMUL_TILES_TF32(FITS_EVERYWHERE)
HS_MATMUL_TILES_16BIT(FITS_EVERYWHERE)
HS_MATMUL_TILES_FP8(FITS_EVERYWHERE)
HS_MATMUL_TILE_ANY_TF32(FITS_EVERYWHERE)
HS_MATMUL_TILE_ANY_16BIT(FITS_EVERYWHERE)

const TileRow tiles_f32[] = { HS_MATMUL_TILES_F32(F32_ROW) };
const TileRow tiles_tf32[] = { HS_MATMUL_TILES_TF32(TENSOR_ROW) };
const TileRow tiles_16bit[] = { HS_MATMUL_TILES_16BIT(TENSOR_ROW) };
const TileRow tiles_fp8[] = { HS_MATMUL_TILES_FP8(TENSOR_ROW) };
const TileRow any_tf32[] = { HS_MATMUL_TILE_ANY_TF32(TENSOR_ROW) };
const TileRow any_16bit[] = { HS_MATMUL_TILE_ANY_16BIT(TENSOR_ROW) };
const TileRow tiles_hopper[] = { HS_MATMUL_TILES_HOPPER(HOPPER_ROW) };
const TileRow tiles_fp8_hopper[] = { HS_MATMUL_TILES_FP8_HOPPER(HOPPER_ROW) };

#define ROWS_OF(table) table, (int)(sizeof(table) / sizeof((table)[0]))

/* By family; `any` is the kernel of every layout, which exact f32 has no need of. */
const struct Family {
    const char *name, *any_name;
    const TileRow *tiles;
    int tile_count;
    const TileRow *any;
    int any_count;
} families[MATMUL_FAMILIES] = {
    { "ffma", "ffma", ROWS_OF(tiles_f32), ROWS_OF(tiles_f32) },
    { "mma", "mma-any", ROWS_OF(tiles_tf32), ROWS_OF(any_tf32) },
    { "mma", "mma-any", ROWS_OF(tiles_16bit), ROWS_OF(any_16bit) },
    { "mma-fp8", "mma-fp8", ROWS_OF(tiles_fp8), ROWS_OF(tiles_fp8) },
};

/* Hopper's for a product. */
struct TileRows {
    const TileRow *rows;
    int count;
};

TileRows hopper_tiles(const MatmulShape &shape)
{
    if (shape.family != MATMUL_FP8)
        return { ROWS_OF(tiles_hopper) };
    TileRows all = { ROWS_OF(tiles_fp8_hopper) };
    all.count = shape.promoted ? (int)MATMUL_FP8_PROMOTED_TILES : all.count;
    return all;
}

/* From the manufacturer's datasheets: dense operations a second / (2 * multiprocessors * boost clock), for 16 bits with
 * f32 sums.  A100 312 TFLOP/s, 108 multiprocessors, 1.41 GHz; RTX 3060 25.5, 28, 1.777; RTX 4090 165, 128, 2.52; H100
 * SXM 989, 132, 1.83.  On Hopper mma.sync issues about 65% of what wgmma does. */
const GpuRates all_rates[] = {
    { 80, { 64.0, 512.0, 1024.0 }, 0.0 },     { 86, { 128.0, 128.0, 256.0 }, 0.0 },
    { 90, { 128.0, 666.0, 1331.0 }, 2048.0 }, { 100, { 128.0, 512.0, 1024.0 }, 0.0 },
    { 120, { 128.0, 128.0, 256.0 }, 0.0 },
};

const double FIXED_CLOCKS = 1000.0, LANES = 128.0;
/* Instructions for each element of an epilogue. */
const double STORE_BYTE = 2.5, STAGED = 8.0, READ_BYTE = 1.5, BIAS = 1.0, GELU = 16.0, RELU2 = 4.0;
/* Bytes a clock of one multiprocessor. */
const double L2_RATE = 30.0, SHARED_RATE = 128.0;
/* A kernel's start, and the bytes a clock that one multiprocessor moves to and from the workspace. */
const double LAUNCH_CLOCKS = 3000.0, WORKSPACE_RATE = 16.0;
/* Of a joint tile's turn, besides a warp's stores: they have to be written before the next warp sees that it may
 * continue, two ways through L2 of some 600 clocks and two of its answers.  And for a cluster's number. */
const double TURN_CLOCKS = 2500.0, NUMBER_CLOCKS = 1500.0;
enum { HOPPER_STEP_DEPTH = 64 }; /* k of a step (matmul_hopper_work.cuh) */
/* Finer slices fill the last wave better, but only few waves make it worth the workspace. */
enum { LEAST_SLICE_UNITS = 4, MOST_WAVES = 4 };

int64_t divided(int64_t count, int64_t size)
{
    return (count + size - 1) / size;
}

int own_kernels(const MatmulShape &shape)
{
    if (shape.family == MATMUL_FP8 && shape.hopper) /* 9.0 multiplies FP8 by wgmma alone */
        return 0;
    const Family &family = families[shape.family];
    return shape.any_layout ? family.any_count : family.tile_count;
}

bool is_hopper(const MatmulShape &shape, int kernel)
{
    return kernel >= own_kernels(shape);
}

const TileRow &tile_of(const MatmulShape &shape, int kernel)
{
    const Family &family = families[shape.family];
    if (is_hopper(shape, kernel))
        return hopper_tiles(shape).rows[(kernel - own_kernels(shape)) % hopper_tiles(shape).count];
    return (shape.any_layout ? family.any : family.tiles)[kernel];
}

/* Blocks of a tile that are on a multiprocessor at a time; the driver keeps 1 KiB more for each. */
int resident_blocks(const TileRow &tile, const GpuRates &rates)
{
    const int room = (hs_card_shared_kib(rates.capability) + 1) * 1024 / (tile.shared_bytes + 1024);
    return room < tile.blocks_per_sm ? room : tile.blocks_per_sm;
}

double rate_of(const TileRow &tile, int resident)
{
    if (resident == tile.blocks_per_sm)
        return tile.rate;
    return tile.rate_alone + (double)(tile.rate - tile.rate_alone) * (resident - 1) / (tile.blocks_per_sm - 1);
}

/* Of the family and of Hopper: without those of decoded operands. */
int tile_kernels(const MatmulShape &shape)
{
    const int tiles = hopper_tiles(shape).count;
    return own_kernels(shape) + (shape.hopper ? tiles : 0) + (shape.joint ? tiles : 0);
}

/* Whether a kernel multiplies decoded operands; those come last. */
bool is_decoded(const MatmulShape &shape, int kernel)
{
    return shape.family == MATMUL_FP8 && kernel >= tile_kernels(shape);
}

/* Multiprocessors, or clusters of two. */
int processors_of(const MatmulShape &shape, const DeviceLimits &limits, int kernel)
{
    if (!is_hopper(shape, kernel))
        return limits.multiprocessors;
    return clusters_at_once(limits.multiprocessors);
}

} // namespace

const GpuRates &rates_of(int compute_capability)
{
    const int count = sizeof all_rates / sizeof *all_rates;
    int row = 0;
    while (row + 1 < count && all_rates[row + 1].capability <= compute_capability)
        row++;
    return all_rates[row];
}

bool is_joint(const MatmulShape &shape, int kernel)
{
    if (is_decoded(shape, kernel))
        return is_joint(decoded_shape(shape), kernel - tile_kernels(shape));
    return kernel >= own_kernels(shape) + hopper_tiles(shape).count;
}

int joint_kernel(const MatmulShape &shape, int kernel)
{
    if (is_decoded(shape, kernel))
        return tile_kernels(shape) + joint_kernel(decoded_shape(shape), kernel - tile_kernels(shape));
    return shape.joint && is_hopper(shape, kernel) ? kernel + hopper_tiles(shape).count : kernel;
}

int count_kernels(const MatmulShape &shape)
{
    return tile_kernels(shape) + (shape.family == MATMUL_FP8 ? tile_kernels(decoded_shape(shape)) : 0);
}

void name_kernel(const MatmulShape &shape, int kernel, char *name, size_t bytes)
{
    if (is_decoded(shape, kernel)) {
        char own[HS_TUNING_KERNEL];
        name_kernel(decoded_shape(shape), kernel - tile_kernels(shape), own, sizeof own);
        snprintf(name, bytes, "bf16-%.22s", own);
        return;
    }
    const Family &family = families[shape.family];
    const TileRow &tile = tile_of(shape, kernel);
    const char *const wgmma = shape.family == MATMUL_FP8 ? "wgmma-fp8" : "wgmma";
    const char *const what = is_hopper(shape, kernel) ? wgmma : shape.any_layout ? family.any_name : family.name;
    snprintf(name, bytes, "%s-%dx%d%s", what, tile.rows, tile.columns, is_joint(shape, kernel) ? "-joint" : "");
}

MatmulChoice choice_of(const MatmulShape &shape, int kernel, int slices)
{
    if (is_decoded(shape, kernel)) {
        MatmulChoice choice = choice_of(decoded_shape(shape), kernel - tile_kernels(shape), slices);
        choice.decoded = true;
        return choice;
    }
    const bool hopper = is_hopper(shape, kernel), joint = is_joint(shape, kernel);
    const int tile = hopper ? (kernel - own_kernels(shape)) % hopper_tiles(shape).count : kernel;
    return MatmulChoice{ hopper, tile, joint ? 1 : slices, joint, false };
}

int kernel_of(const MatmulShape &shape, const MatmulChoice &choice)
{
    if (choice.decoded && shape.family == MATMUL_FP8)
        return tile_kernels(shape) + kernel_of(decoded_shape(shape), choice);
    return choice.tile + (choice.hopper ? own_kernels(shape) : 0) + (choice.joint ? hopper_tiles(shape).count : 0);
}

int real_slices(int64_t k, int64_t wanted)
{
    const int64_t units = divided(k, MATMUL_SLICE_UNIT);
    return (int)divided(units, divided(units, wanted < units ? wanted : units));
}

bool worth_cutting(const MatmulShape &shape, const DeviceLimits &limits, int kernel, int slices)
{
    if (is_decoded(shape, kernel))
        return worth_cutting(decoded_shape(shape), limits, kernel - tile_kernels(shape), slices);
    if (is_joint(shape, kernel))
        return false;
    const TileRow &tile = tile_of(shape, kernel);
    const int64_t blocks = divided(shape.m, tile.rows) * divided(shape.n, tile.columns);
    const int64_t room =
        (int64_t)processors_of(shape, limits, kernel) * resident_blocks(tile, rates_of(limits.compute_capability));
    const bool full = blocks * slices >= MOST_WAVES * room;
    return !full && shape.k >= (int64_t)(slices + 1) * LEAST_SLICE_UNITS * MATMUL_SLICE_UNIT;
}

static double larger(double a, double b)
{
    return a > b ? a : b;
}

static double instructions_of(HsEpilogue function)
{
    const HsActivation f = hs_epilogue_activation(function);
    const double each = f == HS_ACTIVATION_NONE ? 0.0 : f == HS_ACTIVATION_RELU2 ? RELU2 : GELU;
    return hs_epilogue_gates(function) ? each / 2.0 : each;
}

/* sums: plain f32 ones of slices; their epilogue comes later. */
static double instructions_of(const MatmulWork &work, bool hopper, bool sums)
{
    if (sums)
        return hopper ? STORE_BYTE * 4.0 : STAGED;
    const double store = hopper ? STORE_BYTE * work.written : STAGED;
    return store + READ_BYTE * work.read + (work.bias ? BIAS : 0.0) + instructions_of(work.function);
}

/* A tile of a cluster, of which a block has half of the rows, for given steps of k. */
struct HopperClocks {
    double tile, last; /* with its epilogue during other tiles' products; what the epilogue of the last one takes */
};

static HopperClocks hopper_clocks(const MatmulShape &shape, const GpuRates &rates, const TileRow &tile, double steps,
                                  bool sums)
{
    enum { CONSUMER_ROWS = 64 };
    const double rows = tile.rows / 2, columns = tile.columns, line = 2.0 * HOPPER_STEP_DEPTH;
    const double issue = rows * columns * HOPPER_STEP_DEPTH / (rates.wgmma * 0.01 * tile.rate);
    const double moved = (rows / CONSUMER_ROWS * (HOPPER_STEP_DEPTH + columns) + rows + columns) * line;
    const double step = larger(issue, moved / SHARED_RATE), products = steps * step;
    const double own = CONSUMER_ROWS * columns * instructions_of(shape.work, true, sums) / LANES;
    const bool shared = tile.rows / 2 > CONSUMER_ROWS;
    const double hidden = shared && steps >= tile.stages ? tile.stages / 2 * step : 0.0;
    const double compute =
        shared ? products + larger(0.0, 2.0 * own - hidden) : larger(larger(products, (products + own) / 2.0), own);
    const double read = sums ? 0.0 : shape.work.read;
    const double traffic = (steps * (rows + columns / 2.0) * line + rows * columns * read) / L2_RATE;
    return { larger(compute, traffic), shared && own > hidden / 2.0 ? hidden / 2.0 : own };
}

static double whole_clocks(const MatmulShape &shape, const GpuRates &rates, const TileRow &tile, double busiest,
                           int slices)
{
    const double steps = (double)divided(divided(shape.k, slices), HOPPER_STEP_DEPTH);
    const HopperClocks clocks = hopper_clocks(shape, rates, tile, steps, slices > 1);
    return FIXED_CLOCKS + busiest * clocks.tile + clocks.last;
}

/* Whole rounds, then a range each of the tiles that are left, and the turns of those that end together. */
static double joint_clocks(const MatmulShape &shape, const GpuRates &rates, const TileRow &tile, int64_t tiles,
                           int clusters)
{
    const int64_t rest = tiles % clusters, steps = divided(shape.k, HOPPER_STEP_DEPTH);
    const HopperClocks whole = hopper_clocks(shape, rates, tile, (double)steps, false);
    const double rounds = (double)(tiles / clusters) * whole.tile;
    if (rest == 0)
        return FIXED_CLOCKS + rounds + whole.last;
    const HopperClocks range = hopper_clocks(shape, rates, tile, (double)divided(rest * steps, clusters), false);
    const double turns = (double)divided(clusters, rest) * (TURN_CLOCKS + range.last);
    return FIXED_CLOCKS + NUMBER_CLOCKS + rounds + range.tile + range.last + turns;
}

/* busiest: blocks of the multiprocessor that has most. */
static double block_clocks(const MatmulShape &shape, const GpuRates &rates, const TileRow &tile, double busiest,
                           int slices)
{
    const double peak = rates.mma[shape.family == MATMUL_FP8 ? MATMUL_16BIT : shape.family],
                 area = (double)tile.rows * tile.columns;
    const double work = area * (double)divided(shape.k, slices);
    const int resident = resident_blocks(tile, rates);
    const double multiply = work / (peak * 0.01 * rate_of(tile, resident));
    const double alone = work / (peak * 0.01 * tile.rate_alone);
    const double fixed = FIXED_CLOCKS + area * instructions_of(shape.work, false, slices > 1) / LANES;
    return larger(alone + fixed, busiest * (multiply + fixed / resident));
}

/* Each code is read and written as bf16; c is finished by a separate kernel also where k is whole. */
static double decoded_clocks(const MatmulShape &shape, const DeviceLimits &limits, int kernel, int slices)
{
    const double multiply = product_clocks(decoded_shape(shape), limits, kernel - tile_kernels(shape), slices);
    const double decoded = 3.0 * (double)shape.key.k * (double)(shape.m + shape.n);
    const double finished = (double)shape.m * (double)shape.n * (4.0 + shape.work.read + shape.work.written);
    const double moved = decoded + (slices == 1 ? finished : 0.0), launches = slices == 1 ? 3.0 : 2.0;
    return multiply + launches * LAUNCH_CLOCKS + moved / (WORKSPACE_RATE * limits.multiprocessors);
}

double product_clocks(const MatmulShape &shape, const DeviceLimits &limits, int kernel, int slices)
{
    if (is_decoded(shape, kernel))
        return decoded_clocks(shape, limits, kernel, slices);
    const TileRow &tile = tile_of(shape, kernel);
    const GpuRates &rates = rates_of(limits.compute_capability);
    const int64_t tiles = divided(shape.m, tile.rows) * divided(shape.n, tile.columns);
    const int processors = processors_of(shape, limits, kernel);
    if (is_joint(shape, kernel))
        return joint_clocks(shape, rates, tile, tiles, processors);
    const double busiest = (double)divided(tiles * slices, processors);
    const double clocks = is_hopper(shape, kernel) ? whole_clocks(shape, rates, tile, busiest, slices)
                                                   : block_clocks(shape, rates, tile, busiest, slices);
    if (slices == 1)
        return clocks;
    const double moved = 4.0 * (2.0 * slices) * (double)shape.m * (double)shape.n;
    return clocks + LAUNCH_CLOCKS + moved / (WORKSPACE_RATE * limits.multiprocessors);
}

double product_seconds(const MatmulShape &shape, const DeviceLimits &limits, int kernel, int slices, double bytes)
{
    const double clocks = LAUNCH_CLOCKS + product_clocks(shape, limits, kernel, slices);
    const double busy = clocks / limits.clock_hz;
    /* Some drivers do not tell the memory's clock. */
    const double moving = limits.bytes_per_second > 0.0 ? bytes / limits.bytes_per_second : 0.0;
    return busy > moving ? busy : moving;
}

} // namespace HS_CUDA_NAMESPACE
