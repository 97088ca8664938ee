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
