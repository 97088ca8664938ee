/* SPDX-License-Identifier: MIT
 *
 * For tests and measurements only: which kernel serves a product is decided by its shape, so that small shapes would
 * never reach the large tiles.
 */
#ifndef HS_KERNELS_CUDA_MATMUL_CHOICE_H
#define HS_KERNELS_CUDA_MATMUL_CHOICE_H

#ifdef __cplusplus
extern "C" {
#endif

/* From now on every product takes row `tile` of its family's table (matmul_tiles.cuh; modulo the table's length) and
 * `slices` slices of k (as many as k allows).  -1 and 0: chosen by shape again.  Not while products are under way. */
void hs_cuda_matmul_force(int tile, int slices);
void hs_emu_matmul_force(int tile, int slices);

#ifdef __cplusplus
}
#endif

#endif
