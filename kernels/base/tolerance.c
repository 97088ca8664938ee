/* SPDX-License-Identifier: MIT
 *
 * Rounding-error bounds (Higham 2002, "Accuracy and Stability of Numerical Algorithms", section 3.1).
 */
#include "kernels/base/tolerance.h"

#include <assert.h>
#include <math.h>

double hs_tolerance(int64_t terms, int roundings, HsDtype accumulate, HsDtype out, double magnitude, double value)
{
    const HsDtypeInfo *sum = hs_dtype_info(accumulate);
    const HsDtypeInfo *result = hs_dtype_info(out);
    assert(sum->is_float && result->is_float);
    double unit = sum->epsilon / 2;
    double growth = (double)(terms + roundings) * unit;
    /* Past this point the theorem says nothing, and a test that allows anything tests nothing. */
    assert(growth < 1 && "so long a sum in so coarse a format has no bound");
    double accumulated = growth / (1 - growth) * magnitude;
    return accumulated + result->epsilon / 2 * fabs(value) + result->smallest_subnormal;
}

enum { EXPONENTIAL = 5, RECIPROCAL = 3, ARGUMENT = 4 }; /* errors in units of u; the last one of v itself */

static const double twice_slope = 1.5957691216057308, cubic = 0.044715, flushed = 0x1p-117;

/* `count` errors of u each, of a magnitude. */
static double f32_errors(double count, double magnitude)
{
    const double growth = count * 0x1p-24;
    return growth / (1 - growth) * magnitude;
}

double hs_tolerance_gelu(double x)
{
    const double v = twice_slope * (x + cubic * x * x * x), s = 1.0 / (1.0 + exp(-v)), w = 1.0 / (1.0 + exp(v));
    return f32_errors(w * (EXPONENTIAL + ARGUMENT * fabs(v)) + 1 + RECIPROCAL + 1, fabs(x) * s) + flushed;
}

double hs_tolerance_gelu_derivative(double x)
{
    const double v = twice_slope * (x + cubic * x * x * x), h = fabs(twice_slope * (x + 3.0 * cubic * x * x * x));
    const double s = 1.0 / (1.0 + exp(-v)), w = 1.0 / (1.0 + exp(v)), exponential = EXPONENTIAL + ARGUMENT * fabs(v);
    const double first = w * exponential + 1 + RECIPROCAL + 2;
    const double second = exponential + (1 + RECIPROCAL) + (2 + RECIPROCAL) + 17 + 2;
    return f32_errors(first, s) + f32_errors(second, s * w * h) + flushed;
}
