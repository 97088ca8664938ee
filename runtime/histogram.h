/* SPDX-License-Identifier: MIT
 *
 * How the magnitudes of numbers spread over binary exponents, and what a narrower format would make of them.
 *
 * Exponents floor(log2 |x|) are counted in groups of two binades that start at even exponents.  fp16's limits (2^-24,
 * 2^-14, 2^16) and bf16's (2^-126) are even, so that no group lies on both sides of a limit.
 */
#ifndef HS_RUNTIME_HISTOGRAM_H
#define HS_RUNTIME_HISTOGRAM_H

#include <stdint.h>

#include "kernels/base/dtype.h"

enum {
    HS_HISTOGRAM_LOWEST = -150, /* f32's smallest subnormal is 2^-149 */
    HS_HISTOGRAM_HIGHEST = 129,
    HS_HISTOGRAM_BINADES = 2, /* of a group */
    HS_HISTOGRAM_GROUPS = (HS_HISTOGRAM_HIGHEST - HS_HISTOGRAM_LOWEST + 1) / HS_HISTOGRAM_BINADES
};

typedef struct HsHistogram {
    int64_t elements, zeros, nonfinite;
    int64_t groups[HS_HISTOGRAM_GROUPS]; /* of the finite ones that are not zero */
} HsHistogram;

void hs_histogram_add_value(HsHistogram *histogram, double value);
/* `count` elements at `data` (host). */
void hs_histogram_add(HsHistogram *histogram, HsDtype dtype, const void *data, int64_t count);
void hs_histogram_merge(HsHistogram *into, const HsHistogram *from);

/* The lowest exponent of a group. */
static inline int hs_histogram_exponent(int group)
{
    return HS_HISTOGRAM_LOWEST + group * HS_HISTOGRAM_BINADES;
}

/* Shares of all elements (0 to 1) in a format, had they been multiplied by 2^shift (even) before: */
typedef struct HsFormatLoss {
    double zero;      /* zero already */
    double vanished;  /* below half of the smallest subnormal's binade: rounds to zero */
    double subnormal; /* keeps fewer bits than the format has */
    double overflow;  /* above the largest finite number's binade, or not finite already */
} HsFormatLoss;
HsFormatLoss hs_histogram_loss(const HsHistogram *histogram, HsDtype format, int shift);

#endif
