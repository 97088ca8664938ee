/* SPDX-License-Identifier: MIT
 *
 * How long a matrix product takes, by a model of the GPU.  Two uses: the clocks choose kernel, tile and slices where
 * nothing was measured (matmul_choice.cu), and the seconds are the predictions that measurements are held against
 * (predicted.cu, trainer selftest --tune).
 *
 * Kernels of mma.sync and FFMA; all parts but the last are in clocks:
 *
 *     multiply = tile's multiply-adds / (peak * rate)           what a block costs a full multiprocessor
 *     fixed    = FIXED_CLOCKS + finish                          filling the pipeline, the epilogue
 *     busiest  = blocks of the multiprocessor that has most of them: whole waves, the last one not full
 *     clocks   = max(one block by itself, busiest * (multiply + fixed / blocks_per_sm)) [+ adding the slices]
 *     seconds  = max((LAUNCH_CLOCKS + clocks) / clock, bytes / bandwidth)
 *
 * since the fixed part hides behind other blocks of the same multiprocessor.  peak is multiply-adds a clock of one
 * multiprocessor (rates_of), rate a kernel's share of it (matmul_tiles.cuh: from what its fragments ask of shared
 * memory; between that of one block and that of all where a multiprocessor has no shared memory for all), bytes are
 * those of operands and results, each once.
 *
 * finish is the epilogue's instructions over the 128 lanes of a multiprocessor.  Instructions for each element, counted
 * in the kernels' code and rounded: each byte stored 2.5, or 8 for all where sums go through shared memory in f32 first;
 * each byte read 1.5; bias 1; GELU and its gradient 16, for their two special functions (16 a clock) hide the other 5 and 10;
 * squared ReLU and its gradient 4; of a gate as GELU, which is half as many for each element of a product that is gated.
 *
 * Hopper's blocks continue from tile to tile, their copies never pause, and epilogues run during the other consumer's
 * products (matmul_hopper.cuh).  A tile of a block has `steps` of 64 k:
 *
 *     step     = max(multiply-adds / (peak * rate), bytes of shared memory / 128)
 *     own      = a consumer's epilogue by itself: its instructions, a warp on each of four schedulers
 *     compute  = steps * step + max(0, 2 own - lag * step)      shared by both consumers: a lag of half a ring hides
 *                                                               lag / 2 steps' time of each one's epilogue
 *              = max(p, (p + own) / 2, own), p = steps * step   consumers in turns
 *     traffic  = bytes of operands and inputs / L2_RATE         what a block asks for; B for half of the cluster
 *     clocks   = FIXED_CLOCKS + busiest * max(compute, traffic) + the last tile's epilogue [+ adding the slices]
 *
 * Joint tiles (matmul_hopper_work.cuh) are whole rounds of tiles and then, of the `rest`, a range for each cluster:
 *
 *     clocks   = FIXED_CLOCKS + NUMBER_CLOCKS + rounds * max(compute, traffic) + the same of a range + its epilogue
 *              + ceil(clusters / rest) * (TURN_CLOCKS + epilogue)         those that end together add one after another
 *
 * Shared memory: wgmma reads (64 + columns) * 128 bytes for each step of 64 rows, copies write the stage; 128 bytes a
 * clock.  Both tiles of 256 columns and the narrow one compare so, in bytes a clock at full rate:
 *
 *     256 x 256: shared 128, L2 32      256 x 128: shared 160, L2 48      128 x 256 in turns: shared 160, L2 48
 *
 * L2_RATE: published microbenchmarks of an H100 read 5.5 to 7 TB/s from L2 (PCIe and SXM cards): 24 to 30 bytes a clock
 * for each of 132 multiprocessors at 1.755 GHz.  The upper end is taken, because products of libraries reach 80% of the
 * peak with tiles of 256 x 256, which is 26 bytes a clock.
 *
 * The model is coarse, but its effects are large: waste in the last wave, small tiles' lower rate, epilogues, and memory
 * where K is short.  It knows nothing of power, which lowers the clock of large GPUs in long products, nor of operands
 * that fall out of L2.
 *
 * FP8: tensor cores multiply two pairs of codes in the time of two 16-bit elements, which are as many bytes, so that all of
 * the above holds with k in pairs, and with the tiles and rates of those kernels.  The same codes decoded to bf16 are one
 * more way: clocks of that product, of decoding, 3 bytes a code, and of finishing c apart, each byte at the workspace's
 * rate and each kernel with its launch.
 *
 * Clocks, and so choices, depend on compute capability and number of multiprocessors only.
 */
#ifndef HS_KERNELS_CUDA_PRODUCT_MATMUL_MODEL_CUH
#define HS_KERNELS_CUDA_PRODUCT_MATMUL_MODEL_CUH

#include "kernels/cuda/device/device.cuh"
#include "kernels/cuda/product/matmul.cuh"

namespace HS_CUDA_NAMESPACE
{

/* Multiply-adds a clock of one multiprocessor. */
struct GpuRates {
    int capability;         /* from this compute capability on */
    double mma[MATMUL_FP8]; /* f32: general cores; tf32 and 16-bit: mma.sync */
    double wgmma;           /* 16-bit; 0: there is none */
};

const GpuRates &rates_of(int compute_capability);

/* Kernels (a tile's row each) that can serve a product: its family's, Hopper's, Hopper's with joint tiles; then, of codes,
 * those of the decoded product. */
int count_kernels(const MatmulShape &shape);
bool is_joint(const MatmulShape &shape, int kernel);
/* The same with joint tiles; where there is none, itself. */
int joint_kernel(const MatmulShape &shape, int kernel);
/* "mma-128x128", "mma-any-128x64" (every layout), "wgmma-256x256", "wgmma-256x256-joint", "ffma-64x64",
 * "wgmma-fp8-256x128", and of decoded codes "bf16-wgmma-256x256". */
void name_kernel(const MatmulShape &shape, int kernel, char *name, size_t bytes);
MatmulChoice choice_of(const MatmulShape &shape, int kernel, int slices);
int kernel_of(const MatmulShape &shape, const MatmulChoice &choice);

/* `wanted` slices cut in whole units: as many as there really are, none of them empty. */
int real_slices(int64_t k, int64_t wanted);
/* Whether one slice more could help: multiprocessors are idle, now or in the last of few waves, and a slice is longer
 * than the pipeline. */
bool worth_cutting(const MatmulShape &shape, const DeviceLimits &limits, int kernel, int slices);

double product_clocks(const MatmulShape &shape, const DeviceLimits &limits, int kernel, int slices);
/* bytes: of operands and results. */
double product_seconds(const MatmulShape &shape, const DeviceLimits &limits, int kernel, int slices, double bytes);

enum { MATMUL_MOST_SLICES = 32 };

} // namespace HS_CUDA_NAMESPACE

#endif
