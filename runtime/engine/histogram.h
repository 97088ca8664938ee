/* SPDX-License-Identifier: MIT
 *
 * How the magnitudes of numbers spread over binary exponents, and what a narrower format would make of them.
 *
 * Group e counts the binade 2^e <= |x| < 2^(e+1), and apart those of them that are exactly 2^e.  A format's limits are
 * powers of two, but they are not on one side of their binade: 2^-14 is normal in fp16 and what is below is not, while
 * 2^-25, half of the smallest subnormal, is a tie that rounds to zero and what is above rounds away from it:
 *
 *     fp16    ... 2^-25]  (2^-25 .. 2^-14)  [2^-14 ......... 2^16)  [2^16 ...
 *               zero          subnormal            normal           overflow
 *
 * With the powers known all these are exact but one: fp16 rounds [65520, 65536) to infinity too, the top half unit of
 * the last binade, which no count of binades sees.  No number of fp16 or bf16, multiplied by 2^shift, lies there.  (Of
 * FP8's last binade e5m2 loses what is above 61440; e4m3, with NaN as its last code, what is above 464.)
 */
#ifndef HS_RUNTIME_ENGINE_HISTOGRAM_H
#define HS_RUNTIME_ENGINE_HISTOGRAM_H

#include <stdint.h>

#include "kernels/base/dtype.h"

enum {
    /* f32's numbers, 2^-149 to below 2^128, and a pair of binades at either end for what only f64 holds: the first
     * group gathers all that is below 2^-151 (zero in f32), the last all from 2^129 on. */
    HS_HISTOGRAM_LOWEST = -152,
    HS_HISTOGRAM_HIGHEST = 129,
    HS_HISTOGRAM_BINADES = 1, /* of a group */
    HS_HISTOGRAM_GROUPS = (HS_HISTOGRAM_HIGHEST - HS_HISTOGRAM_LOWEST + 1) / HS_HISTOGRAM_BINADES
};

typedef struct HsHistogram {
    int64_t elements, zeros, nonfinite;
    int64_t groups[HS_HISTOGRAM_GROUPS]; /* of the finite ones that are not zero */
    int64_t powers[HS_HISTOGRAM_GROUPS]; /* those of groups[] that are a power of two, the group's lowest number */
} HsHistogram;

void hs_histogram_add_value(HsHistogram *histogram, double value);
/* `count` elements at `data` (host). */
void hs_histogram_add(HsHistogram *histogram, HsDtype dtype, const void *data, int64_t count);
void hs_histogram_merge(HsHistogram *into, const HsHistogram *from);

/* The exponent of a group. */
static inline int hs_histogram_exponent(int group)
{
    return HS_HISTOGRAM_LOWEST + group * HS_HISTOGRAM_BINADES;
}

/* Shares of all elements (0 to 1) in a floating-point format, had they been multiplied by 2^shift before.  What only
 * f64 holds (the groups at the ends) must not be shifted into the format's range. */
typedef struct HsFormatLoss {
    double zero;      /* zero already */
    double vanished;  /* at most half of the smallest subnormal: rounds to zero */
    double subnormal; /* above that, below the smallest normal number: keeps fewer bits than the format has */
    double overflow;  /* above the largest finite number's binade, or not finite already */
} HsFormatLoss;
HsFormatLoss hs_histogram_loss(const HsHistogram *histogram, HsDtype format, int shift);

#endif
