/* SPDX-License-Identifier: MIT
 *
 * Error bounds that several operations share.  u = 2^-24; all values are exact, all results absolute errors.
 */
#ifndef HS_RUNTIME_SELFTEST_BOUNDS_H
#define HS_RUNTIME_SELFTEST_BOUNDS_H

#include <math.h>

#include "runtime/selftest/trial.h"

/* gelu(x) = x/2 (1 + tanh v) computed in f32 from an x that is off by `error`.
 *   passed on: |gelu'| <= 1.13 everywhere;
 *   made here: 1 + tanh cancels where tanh nears -1, so its error is of the size of 1, times |x|; the argument v takes
 *   five roundings, and |v| tanh'(v) < 1/2, so they count at most once each. */
static inline double hs_bound_gelu(double x, double error)
{
    return 1.13 * error + hs_gamma(HS_FUNCTION_ROUNDINGS + 8) * (fabs(x) + error);
}

/* What each rounding in gelu'(x) = (1 + t)/2 + x/2 (1 - t^2) v' scales with: 1 - t^2 cancels, so 1 + t^2 stands in. */
static inline double hs_bound_gelu_derivative(double x)
{
    const double slope = 0.7978845608028654 * (1.0 + 3.0 * 0.044715 * x * x);
    return hs_gamma(HS_FUNCTION_ROUNDINGS + 12) * (1.0 + fabs(x) * slope);
}

/* Sums of f32 products in double, by the reference and by a backend in another order: each may be off by this bound. */
static inline double hs_bound_double_sum(int64_t terms, double magnitude)
{
    return 2.0 * hs_tolerance(terms, 0, HS_F64, HS_F64, magnitude, 0.0);
}

/* An updated parameter's error goes to where it lives; a weight beside a master sees the master's rounding too. */
static inline void hs_bound_parameter(HsTrial *trial, int weight, int master, int64_t i, double error)
{
    if (!hs_operand_present(trial, master)) {
        trial->operands[weight].error[i] = error;
        return;
    }
    trial->operands[master].error[i] = error;
    const double p = fabs(hs_exact(trial, master)[i]);
    trial->operands[weight].error[i] = error + hs_tolerance(0, 0, HS_F32, HS_F32, 0.0, p + error);
}

#endif
