/* SPDX-License-Identifier: MIT
 *
 * How long a matrix product takes, by a model of the GPU.  Two uses: the clocks choose kernel, tile and slices where
 * nothing was measured (matmul_choice.cu), and the seconds are the predictions that measurements are held against
 * (predicted.cu, trainer selftest --tune).
 *
 * All parts but the last are in clocks:
 *
 *     multiply = tile's multiply-adds / (peak * rate)           what a block costs a full multiprocessor
 *     fixed    = FIXED_CLOCKS + tile's elements / STORE_RATE    filling the pipeline, writing the tile
 *     busiest  = blocks of the multiprocessor that has most of them: whole waves, the last one not full
 *     clocks   = max(one block by itself, busiest * (multiply + fixed / blocks_per_sm)) [+ adding the slices]
 *     seconds  = max((LAUNCH_CLOCKS + clocks) / clock, bytes / bandwidth)
 *
 * since the fixed part hides behind other blocks of the same multiprocessor.  peak is multiply-adds a clock of one
 * multiprocessor (rates_of), rate a kernel's share of it (matmul_tiles.cuh: from what its fragments ask of shared
 * memory; between that of one block and that of all where a multiprocessor has no shared memory for all), bytes are
 * those of operands and results, each once.  The model is coarse, but its effects are large: waste
 * in the last wave, small tiles' lower rate, and memory where K is short.  It knows nothing of power, which lowers the
 * clock of large GPUs in long products, nor of operands that fall out of L2.
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
    int capability;              /* from this compute capability on */
    double mma[MATMUL_FAMILIES]; /* f32: general cores; tf32 and 16-bit: mma.sync */
    double wgmma;                /* 16-bit; 0: there is none */
    int shared_kib;              /* shared memory of a multiprocessor, for all its blocks */
};

const GpuRates &rates_of(int compute_capability);

/* Kernels (a tile's row each) that can serve a product: its family's, then Hopper's. */
int count_kernels(const MatmulShape &shape);
/* "mma-128x128", "mma-any-128x64" (every layout), "wgmma-256x256", "ffma-64x64". */
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
