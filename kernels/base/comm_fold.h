/* SPDX-License-Identifier: MIT
 *
 * The tree of sums over ranks (comm.h), for arrays that lie side by side in one memory.
 */
#ifndef HS_KERNELS_BASE_COMM_FOLD_H
#define HS_KERNELS_BASE_COMM_FOLD_H

#include "kernels/base/comm.h"

/* out [elements] = parts[0] (+) ... (+) parts[count - 1] along the tree, each addition rounded to the type; maxima by
 * the same tree.  parts [count] of arrays [elements] of f32, f64, i64, bf16 or f16, aligned to their type; out may be
 * one of them.  count: 1 to 2^20. */
void hs_comm_fold(const void *const *parts, int count, size_t elements, HsDtype dtype, HsCommOp op, void *out);

#endif
