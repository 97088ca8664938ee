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

/* max(x, 0)^2 of an x that is off by `error`, rounded once.  What is subnormal may be stored as 0 (matmul_store.h). */
static inline double hs_bound_relu2(double x, double error)
{
    const double most = fabs(x) + error;
    return error * (fabs(x) + most) + hs_gamma(1) * most * most + 0x1p-126;
}

/* A gate's function f and its slope f', each computed from an exact gate and multiplied: how large they are, and by how
 * much they and the rounded products are off, as shares of what they are multiplied by. */
typedef struct HsGateBound {
    double value, slope, value_error, slope_error;
} HsGateBound;

/* silu' = s (1 + g (1 - s)): 1 - s cancels for large g, where |g| times a rounding of 1 is what is left.  |silu'| <= 1.1,
 * |gelu(g)| <= |g|, |gelu'| <= 1.13. */
static inline HsGateBound hs_bound_gate(HsActivation f, double gate)
{
    const double size = fabs(gate);
    if (f == HS_ACTIVATION_SILU) {
        const double s = 1.0 / (1.0 + exp(-gate)), unit = hs_gamma(HS_FUNCTION_ROUNDINGS + 8);
        return (HsGateBound){ size * s, 1.1, unit * size * s, unit * s * (1.0 + size * (1.0 + s)) };
    }
    const double value_error = hs_bound_gelu(gate, 0.0), slope_error = hs_bound_gelu_derivative(gate);
    return (HsGateBound){ size, 1.13, value_error + hs_gamma(2) * (size + value_error),
                          slope_error + hs_gamma(2) * (1.13 + slope_error) };
}

/* f(gate) up, each off by its error; of gate, up and the exact result the magnitudes. */
static inline double hs_bound_gated(HsActivation f, double gate, double gate_error, double up, double up_error,
                                    double result)
{
    const bool silu = f == HS_ACTIVATION_SILU;
    const double activated = silu ? 1.1 * gate_error : hs_bound_gelu(gate, gate_error);
    const double passed = activated * (up + up_error) + gate * up_error;
    return passed + hs_gamma(silu ? HS_FUNCTION_ROUNDINGS + 4 : 1) * (result + passed);
}

/* What a cap c makes of a stored x (kernels/ops/logit_cap.h): its logit, and how far off f32 may be, in roundings.
 *   near 0   2 of u = x / c, of which tanh passes on no more, and 3 of the series with its small terms
 *   else     e is off by 4 |u| + 5 (tolerance.h: ex2 and rcp), of which tanh passes on 2 e / (1 - e^2) times as much,
 *            4.7 at most, from |u| = 5/8 on; and 1 - e, 1 + e, the reciprocal and the product add 6
 * Then the product with c. */
enum { HS_CAP_ROUNDINGS = 12 };
static inline double hs_bound_cap(float cap, double x, double *error)
{
    const double logit = cap > 0.0f ? (double)cap * tanh(x / (double)cap) : x;
    *error = cap > 0.0f ? hs_gamma(HS_CAP_ROUNDINGS) * fabs(logit) : 0.0;
    return logit;
}

/* Its derivative 4 e / (1 + e)^2 passes on no more of e; two reciprocals of a rounded sum, and three products, the last
 * of which is with a gradient.  *error is relative, and what is flushed is below 2^-124. */
static inline double hs_bound_cap_slope(float cap, double x, double *error)
{
    if (!(cap > 0.0f)) {
        *error = 0.0;
        return 1.0;
    }
    const double u = fabs(x / (double)cap), secant = 1.0 / cosh(u);
    const double growth = (4.0 * u + 16.0) * 0x1p-24;
    *error = growth / (1.0 - growth);
    return secant * secant;
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
