/* SPDX-License-Identifier: MIT
 *
 * A chart of how numbers spread over binary exponents, with the ranges of the 16-bit formats and of FP8 drawn in.
 *
 *     hs_html_exponent_chart(stream, "Gradients of activations",
 *                            (HsExponentSeries[]){ { .name = "fp32", .histogram = &first },
 *                                                  { .name = "fp16", .histogram = &second, .shift = -16 } }, 2);
 */
#ifndef HS_RUNTIME_PAGES_HTML_EXPONENTS_H
#define HS_RUNTIME_PAGES_HTML_EXPONENTS_H

#include <stdio.h>

#include "runtime/engine/histogram.h"

typedef struct HsExponentSeries {
    const char *name;
    const HsHistogram *histogram;
    int shift; /* drawn as if multiplied by 2^shift: minus the loss scale's exponent shows gradients as they would be
                  without it; 0: as they are */
} HsExponentSeries;

/* For each series a line of steps: the share of all its elements (zeros and those that are not finite too) in each
 * binade.  Zeros have no exponent: the legend names their share.  Up to 8 series keep colours of their own. */
void hs_html_exponent_chart(FILE *stream, const char *title, const HsExponentSeries *series, int count);

#endif
