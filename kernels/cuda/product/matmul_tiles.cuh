/* SPDX-License-Identifier: MIT
 *
 * The table of tiles: from one row come the kernel's template, its launch and the numbers that choose between rows.
 *
 * A block computes rows x columns of c with warp_rows x warp_columns warps, and keeps `stages` steps of k in shared
 * memory (a step is 64 bytes of k: 32 elements of 16 bits, 16 of tf32): stages * (rows + columns) * 64 bytes.
 *
 * What a step costs: each warp reads (wm + wn) * 64 bytes of fragments for wm * wn * step multiply-adds, so large warp
 * tiles put less load on shared memory: 64 x 64 has half the traffic of 32 x 32.  The accumulators bound it from
 * above: 64 x 64 takes 128 of a thread's 255 registers.  All rows fit in the 99 KiB that the smallest of the devices
 * we target (8.6, 8.9, 12.0) give a block.  Of the 100 KiB that their multiprocessors have, with 1 KiB more a block, the
 * two large tiles leave nothing unused (97 and 2 x 49 KiB); of 128 x 64 two of three blocks fit there, of 64 x 64 three
 * of four, and the model counts with those.
 *
 * rate: expected share (percent) of the tensor cores' rate with blocks_per_sm blocks on a multiprocessor, from the
 * shared-memory traffic above; rate_alone: with one block only, with few warps that can't hide every latency.  Only
 * their ratios count (matmul_choice.cu).
 */
#ifndef HS_KERNELS_CUDA_PRODUCT_MATMUL_TILES_CUH
#define HS_KERNELS_CUDA_PRODUCT_MATMUL_TILES_CUH

/* rows, columns, warp_rows, warp_columns, stages, blocks_per_sm, rate, rate_alone */
#define HS_MATMUL_TILES_16BIT(X)      \
    X(128, 256, 2, 4, 4, 1, 100, 100) \
    X(128, 128, 2, 2, 3, 2, 95, 65)   \
    X(128, 64, 2, 2, 3, 3, 75, 45)    \
    X(64, 64, 2, 2, 4, 4, 60, 25)

#define HS_MATMUL_TILES_TF32(X)     \
    X(128, 128, 2, 2, 3, 2, 95, 65) \
    X(64, 64, 2, 2, 4, 4, 60, 25)

/* Any layout, any alignment: one shape, since no product of a well-formed model needs it (pad odd vocabularies). */
#define HS_MATMUL_TILE_ANY_16BIT(X) X(128, 64, 2, 2, 3, 3, 40, 25)
#define HS_MATMUL_TILE_ANY_TF32(X)  X(64, 64, 2, 2, 4, 4, 40, 20)

/* sm_90a (matmul_hopper.cuh): a cluster of two blocks computes rows x columns of c, each block half of the rows with a
 * ring of `stages` stages: as many as there is room for besides 32 KiB for the epilogue.  256 rows: a block's two
 * consumers share its 128; 128: they take turns with tiles of 64.  rate: share of the tensor cores' rate by wgmma that
 * is left after what the model counts by itself (matmul_model.cuh); on Hopper that rate is half as much again as
 * mma.sync's.
 *
 * rows, columns, stages, rate */
#define HS_MATMUL_TILES_HOPPER(X) \
    X(256, 256, 4, 90)            \
    X(256, 128, 6, 90)            \
    X(128, 256, 4, 90)

/* FP8 codes: a step is 64 codes by mma.sync (matmul_fp8.cu), which add to two sets of sums, and so in eight warps.  Hopper
 * (matmul_fp8_hopper.cuh): first what every product can have, with room for blocks' scales, then what straight sums
 * can.  A promoted sum's rate is guessed: a consumer multiplies nothing while it adds. */
#define HS_MATMUL_TILES_FP8(X) X(128, 128, 2, 4, 4, 1, 65, 65)
#define HS_MATMUL_TILES_FP8_HOPPER(X) \
    X(256, 128, 5, 75)                \
    X(256, 256, 4, 90)
enum { MATMUL_FP8_PROMOTED_TILES = 1 };

/* Exact f32 runs on the general cores: side x side tiles of c, 2 * side threads, each thread_rows x thread_columns.
 * side, thread_rows, thread_columns, blocks_per_sm, rate, rate_alone */
#define HS_MATMUL_TILES_F32(X) \
    X(128, 8, 8, 2, 100, 70)   \
    X(64, 8, 4, 4, 75, 30)

#endif
