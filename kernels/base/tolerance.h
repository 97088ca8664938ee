/* SPDX-License-Identifier: MIT
 *
 * How far two correct implementations of one operation may differ: computed, never typed in.
 */
#ifndef HS_KERNELS_BASE_TOLERANCE_H
#define HS_KERNELS_BASE_TOLERANCE_H

#include "kernels/base/dtype.h"

/* Bound on |computed - exact| of a sum of `terms` products, each rounded at most `roundings` times in `accumulate`,
 * whose absolute values sum to `magnitude`, rounded once to `out` at a result of size `value`
 * (Higham 2002, theorem 3.1: gamma_n = n u / (1 - n u), u = epsilon / 2):
 *     gamma(terms + roundings) * magnitude + u_out * |value| + smallest_subnormal_out. */
double hs_tolerance(int64_t terms, int roundings, HsDtype accumulate, HsDtype out, double magnitude, double value);

#endif
