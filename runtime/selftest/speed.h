/* SPDX-License-Identifier: MIT
 *
 * The timing half of the self-test: a case's time, and its place under the roofline (Williams, Waterman & Patterson
 * 2009).  An operation of F operations and B bytes takes at least max(F / peak operations, B / bandwidth) seconds;
 * whichever is larger binds it.  Both peaks are measured on this machine, in the same run.
 */
#ifndef HS_RUNTIME_SELFTEST_SPEED_H
#define HS_RUNTIME_SELFTEST_SPEED_H

#include "runtime/selftest/trial.h"

/* What this device can do at most. */
typedef struct HsRoofline {
    double flops[HS_DTYPE_COUNT]; /* operations a second in products of a format; 0: unknown */
    double bytes;                 /* a second, read and written, of memory that no cache holds; 0: unknown */
} HsRoofline;

typedef enum HsBound {
    HS_BOUND_MEMORY,
    HS_BOUND_PRODUCTS,
    HS_BOUND_LATENCY, /* the way to the device and back: there is next to nothing to do */
    HS_BOUND_COUNT
} HsBound;

/* How cases are timed. */
typedef struct HsSpeedPlan {
    size_t least_bytes; /* cases bound by memory grow until a call touches as much; 0: none grows */
    int shrink;         /* a power of two by which rows, or batches and sequences, are divided */
    double seconds;     /* for each case */
} HsSpeedPlan;

typedef struct HsOpTiming {
    HsCase config; /* as it was timed */
    double seconds, flops, bytes;
    HsBound bound;
    double rate, limit; /* operations or bytes a second, as `bound` says; limit 0: unknown */
} HsOpTiming;

/* "memory", ... */
const char *hs_bound_name(HsBound bound);

/* Measures the peaks and raises the roofline to them: start from zeros, and measure again where others may have
 * disturbed it.  Takes half a second. */
void hs_roofline_measure(HsContext *context, HsRoofline *roofline);
/* The plan that suits a device: caches must not serve it; the reference is not there to be fast. */
HsSpeedPlan hs_speed_plan(const HsContext *context, bool quick);

/* The case as it is timed: one bound by memory grows, in batches, rows or elements. */
HsStatus hs_speed_case(const HsOpTest *test, const HsCase *config, const HsSpeedPlan *plan, const HsRoofline *roofline,
                       const HsContext *context, HsCase *timed);
/* Fills what the clock and the operands say of a trial made for timing; the context's workspace must be large enough
 * and its flops those of one call.  `timing->config` is the case. */
HsStatus hs_speed_measure(HsTrial *trial, HsContext *context, const HsRoofline *roofline, double seconds,
                          HsOpTiming *timing);
/* Sets bound, rate and limit from the rest and the roofline; what is bound by latency stays so. */
void hs_speed_judge(HsOpTiming *timing, const HsRoofline *roofline);
/* Bytes that one call must move; 0: nothing to do on this backend. */
double hs_speed_bytes(const HsTrial *trial, const HsContext *context);

#endif
