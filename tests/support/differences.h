/* SPDX-License-Identifier: MIT
 *
 * Central differences with their own error bound.
 *
 *   D(h) = (L(x + h) - L(x - h)) / 2h = L' + h^2 L'''/6 + O(h^4)
 * Richardson's (4 D(h/2) - D(h)) / 3 removes the h^2 term, and |D(h) - D(h/2)| = h^2 |L'''| / 8 + O(h^4) bounds what is
 * left for small h.  Rounding adds at most 2 E / h, where E bounds the rounding of one L.
 * The tolerance is the sum of both: computed from the function at hand, never typed in.
 */
#ifndef HS_TESTS_SUPPORT_DIFFERENCES_H
#define HS_TESTS_SUPPORT_DIFFERENCES_H

#include <math.h>

typedef struct Difference {
    double derivative;
    double tolerance;
} Difference;

/* `rounding`: a bound on the rounding error of one evaluation. */
static inline Difference central_difference(double (*loss)(void *), void *user, double *x, double rounding)
{
    const double h = 0x1p-9, original = *x;
    double estimate[2];
    for (int i = 0; i < 2; i++) {
        double step = i == 0 ? h : h / 2;
        *x = original + step;
        double above = loss(user);
        *x = original - step;
        double below = loss(user);
        estimate[i] = (above - below) / (2 * step);
    }
    *x = original;
    return (Difference){ .derivative = (4 * estimate[1] - estimate[0]) / 3,
                         .tolerance = fabs(estimate[1] - estimate[0]) + 4 * rounding / h };
}

#endif
