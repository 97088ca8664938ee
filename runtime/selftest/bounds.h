/* SPDX-License-Identifier: MIT
 *
 * Error bounds that several operations share.  u = 2^-24; all values are exact, all results absolute errors.
 */
#ifndef HS_RUNTIME_SELFTEST_BOUNDS_H
#define HS_RUNTIME_SELFTEST_BOUNDS_H

#include <math.h>

#include "runtime/selftest/trial.h"

/* gelu(x) of an x that is off by `error` and of either sign: |gelu'| <= 1.13 everywhere, and hs_tolerance_gelu rises. */
static inline double hs_bound_gelu(double x, double error)
{
    return 1.13 * error + hs_tolerance_gelu(fabs(x) + error);
}

/* gelu'(x), and the reference's own error in double, where 1 - tanh^2 cancels and 1 + tanh^2 stands in. */
static inline double hs_bound_gelu_derivative(double x)
{
    const double slope = 0.7978845608028654 * (1.0 + 3.0 * 0.044715 * x * x);
    return hs_tolerance_gelu_derivative(x) + 16.0 * 0x1p-53 * (1.0 + fabs(x) * slope);
}

/* Sums of f32 products in double, by the reference and by a backend in another order: each may be off by this bound. */
static inline double hs_bound_double_sum(int64_t terms, double magnitude)
{
    return 2.0 * hs_tolerance(terms, 0, HS_F64, HS_F64, magnitude, 0.0);
}

/* Enters an updated parameter's error where it is stored; a weight with a master has the master's rounding too. */
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
