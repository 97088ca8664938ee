/* SPDX-License-Identifier: MIT
 *
 * The timing half of the self-test.
 */
#ifndef HS_RUNTIME_SELFTEST_SPEED_H
#define HS_RUNTIME_SELFTEST_SPEED_H

#include "runtime/selftest/trial.h"

/* What this device can do at most; measured when first asked for.  Start from zeros. */
typedef struct HsSpeedLimits {
    double flops[HS_DTYPE_COUNT]; /* operations a second in products; 0: unknown */
    bool knows_flops[HS_DTYPE_COUNT];
    double bytes; /* a second, read and written, in a copy */
} HsSpeedLimits;

/* The case that is timed on this device. */
HsCase hs_speed_case(const HsOpTest *test, const HsDevice *device);
/* Seconds of one run, the shortest of many; the context's workspace must be large enough. */
HsStatus hs_speed_measure(HsTrial *trial, HsContext *context, double *seconds);
/* arithmetic: of products of `dtype`, else of memory; *rate is 0 where nobody knows. */
HsStatus hs_speed_limit(HsSpeedLimits *limits, HsContext *context, bool arithmetic, HsDtype dtype, double *rate);

#endif
