/* SPDX-License-Identifier: MIT
 *
 * Every operation of a backend against the reference, case by case, within derived tolerances, and its speed against
 * what the machine can do at most; no test framework needed.  Measuring fills an HsOpReport; printing is the caller's
 * (hs_selftest_run prints lines, bench/ops.c tables).
 */
#ifndef HS_RUNTIME_SELFTEST_SELFTEST_H
#define HS_RUNTIME_SELFTEST_SELFTEST_H

#include <stdio.h>

#include "kernels/tuning/tuning.h"
#include "runtime/selftest/speed.h"

enum { HS_COMPLAINT_BYTES = 256, HS_COMPLAINTS_KEPT = 3, HS_OP_TIMINGS = 8, HS_MOST_FORCED = 32 };

/* A case that failed, and how. */
typedef struct HsComplaint {
    const HsCase *config;
    char text[HS_COMPLAINT_BYTES];
} HsComplaint;

/* What was found out about one operation on one backend. */
typedef struct HsOpReport {
    const char *name;
    int cases, failures;
    uint64_t hash; /* of everything that the cases wrote, in order: equal where the bits are */
    double worst;  /* error as a fraction of its tolerance, over all cases; infinite where one was refused */
    HsComplaint complaints[HS_COMPLAINTS_KEPT]; /* the first failures */
    HsOpTiming timings[HS_OP_TIMINGS];
    int timing_count;
} HsOpReport;

/* Which of an operation's cases: those that are wanted and have `match` in their description (NULL: all), and of these,
 * with `pairs`, a pairwise covering (pairs.h). */
typedef struct HsCaseChoice {
    bool pairs;
    bool (*wanted)(const HsCase *config);
    const char *match;
    /* Called before context number `index` takes a case (NULL: nothing is), with `arguments`; its error ends the run. */
    HsStatus (*prepare)(const void *arguments, HsContext *context, int index);
    const void *arguments;
} HsCaseChoice;

/* Operations, in the order of kernels/ops/ops.h. */
int hs_selftest_count(void);
const char *hs_selftest_name(int op);
/* HS_EINVAL names an operation that there is not. */
HsStatus hs_selftest_find(const char *name, int *op);

/* Starts a report: cases run and compared.  context->threads > 1: each case also runs with one thread and must give the
 * same bits.  On several backends of one device, reports [count]: what a case expects, which takes longer than most
 * operations, is found once.  Errors are about the run itself: HS_ENOMEM. */
HsStatus hs_selftest_check_all(HsContext *contexts, int count, int op, HsCaseChoice choice, HsOpReport *reports);
/* Adds timings: of at most `most` of the operation's timed cases. */
HsStatus hs_selftest_time(HsContext *context, int op, const HsRoofline *roofline, const HsSpeedPlan *plan, int most,
                          HsOpReport *report);

/* What HsTuner.force is given: names with commas (NULL: the choice is free), and slices of k (0: likewise). */
typedef struct HsForcedKernels {
    const char *kernels;
    int slices;
} HsForcedKernels;

typedef struct HsSelftestOptions {
    const char *op, *match; /* the cases of one operation, those with `match` in their description; NULL: all */
    /* Products by each of these choices in turn, a line each; what a case expects is found once.  forced_count 0: as
     * they are chosen without. */
    const HsForcedKernels *forced;
    int forced_count; /* at most HS_MOST_FORCED */
    const HsTuner *tuner;
    bool pairs;  /* of the cases a pairwise covering */
    bool hashes; /* a hash of what was written in each line */
    bool with_speed;
} HsSelftestOptions;

/* Run cases on context's backend and print one line per operation that has some to `out`: number of cases, worst error as a
 * fraction of its tolerance, and, with_speed, the rate of one larger case and its share of the limit it is bound by.
 * Lines below it describe the first failures.  *failures counts the cases out of tolerance or refused; errors: HS_EINVAL
 * for an unknown operation, or a text that no case has, HS_ECONFIG for a kernel that there is not, HS_ENOMEM. */
HsStatus hs_selftest_run(HsContext *context, const HsSelftestOptions *options, FILE *out, int *failures);

#endif
