/* SPDX-License-Identifier: MIT
 *
 * Counting binades.  frexp gives x = f 2^n with f in [1/2, 1): the binade's exponent is n - 1, and f is 1/2 exactly for
 * a power of two, for subnormal numbers too.
 */
#include "runtime/engine/histogram.h"

#include <assert.h>
#include <math.h>

void hs_histogram_add_value(HsHistogram *histogram, double value)
{
    histogram->elements++;
    if (!isfinite(value)) {
        histogram->nonfinite++;
        return;
    }
    if (value == 0) {
        histogram->zeros++;
        return;
    }
    int exponent;
    bool power = frexp(fabs(value), &exponent) == 0.5;
    exponent--;
    if (exponent < HS_HISTOGRAM_LOWEST || exponent > HS_HISTOGRAM_HIGHEST) { /* only f64: the ends gather it */
        exponent = exponent < 0 ? HS_HISTOGRAM_LOWEST : HS_HISTOGRAM_HIGHEST;
        power = false; /* not of that group */
    }
    int group = (exponent - HS_HISTOGRAM_LOWEST) / HS_HISTOGRAM_BINADES;
    histogram->groups[group]++;
    histogram->powers[group] += power;
}

void hs_histogram_add(HsHistogram *histogram, HsDtype dtype, const void *data, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        hs_histogram_add_value(histogram, hs_dtype_load(dtype, data, i));
}

void hs_histogram_merge(HsHistogram *into, const HsHistogram *from)
{
    into->elements += from->elements;
    into->zeros += from->zeros;
    into->nonfinite += from->nonfinite;
    for (int group = 0; group < HS_HISTOGRAM_GROUPS; group++) {
        into->groups[group] += from->groups[group];
        into->powers[group] += from->powers[group];
    }
}

HsFormatLoss hs_histogram_loss(const HsHistogram *histogram, HsDtype format, int shift)
{
    const HsDtypeInfo *info = hs_dtype_info(format);
    assert(info->is_float);
    if (histogram->elements == 0)
        return (HsFormatLoss){ 0 };
    const int half_smallest = ilogb(info->smallest_subnormal) - 1;
    const int smallest_normal = ilogb(info->smallest_normal), largest = ilogb(info->max);
    int64_t vanished = 0, subnormal = 0, overflow = histogram->nonfinite;
    for (int group = 0; group < HS_HISTOGRAM_GROUPS; group++) {
        const int exponent = hs_histogram_exponent(group) + shift;
        /* At half of the smallest subnormal the power itself is a tie and rounds to the even neighbour, zero. */
        int64_t to_zero = exponent < half_smallest    ? histogram->groups[group]
                          : exponent == half_smallest ? histogram->powers[group]
                                                      : 0;
        vanished += to_zero;
        if (exponent < smallest_normal)
            subnormal += histogram->groups[group] - to_zero;
        else if (exponent > largest)
            overflow += histogram->groups[group];
    }
    double all = (double)histogram->elements;
    return (HsFormatLoss){ .zero = (double)histogram->zeros / all,
                           .vanished = (double)vanished / all,
                           .subnormal = (double)subnormal / all,
                           .overflow = (double)overflow / all };
}
