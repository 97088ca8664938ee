/* SPDX-License-Identifier: MIT
 *
 * How far two correct implementations of one operation may differ: computed, never typed in.
 */
#ifndef HS_KERNELS_BASE_TOLERANCE_H
#define HS_KERNELS_BASE_TOLERANCE_H

#include "kernels/base/dtype.h"

/* Bound on |computed - exact| of a sum of `terms` products, each rounded at most `roundings` times in `accumulate`,
 * with absolute values that sum to `magnitude`, rounded once to `out` at a result of size `value`
 * (Higham 2002, theorem 3.1: gamma_n = n u / (1 - n u), u = epsilon / 2):
 *     gamma(terms + roundings) * magnitude + u_out * |value| + smallest_subnormal_out. */
double hs_tolerance(int64_t terms, int roundings, HsDtype accumulate, HsDtype out, double magnitude, double value);

/* Bounds on |computed - exact| of the tanh form of GELU at an exact x, in f32 (u = 2^-24), by
 *     gelu = x s,  gelu' = s + s w h;   v = 2 sqrt(2/pi) (x + 0.044715 x^3),  s = 1 / (1 + exp(-v)),  w = 1 - s,
 *     h = x v' = 2 sqrt(2/pi) (x + 3 * 0.044715 x^3)
 * from an exponential that is 5 u off (PTX ISA, ex2.approx: 2 units in the last place from the correctly rounded value)
 * and a reciprocal that is 3 u off (rcp.approx: 1 unit), to first order:
 *   v    takes two rounded constants, a square, a multiply-add and a product, all of one sign: 4 u |v|
 *   exp  so 5 u + 4 u |v|;  1 + exp is off by w of that, and u
 *   s    by e_s = w (5 + 4 |v|) + 1 + 3;   w, as exp s, by e_w = s (5 + 4 |v|) + 1 + 3 + 1
 *   h    may be made of v, as 3 v less the linear part twice, both at most |h|: 3 * 4 + 2 + 1 = 15, and a constant, 2
 * gelu   |x| s (e_s + 1);   rises with |x|, and more for x > 0; 5.8 u |x| at most, 5 u |x| for large x
 * gelu'  its last two operations round once each:  s (e_s + 2) + s w |h| (e_s + e_w + 17 + 2), where the linear terms of
 *        e_s and e_w sum to 5 + 4 |v|;  16.3 u at most, near x = 1, and 6 u for large x
 * What is flushed, or beyond the arguments at which a derivative stops, is at most 2^-117. */
double hs_tolerance_gelu(double x);
double hs_tolerance_gelu_derivative(double x);

#endif
