/* SPDX-License-Identifier: MIT
 *
 * What a front is said to cost before its first run.  Private to compare_front*.c.
 */
#ifndef HS_RUNTIME_STUDY_COMPARE_FRONT_PLAN_H
#define HS_RUNTIME_STUDY_COMPARE_FRONT_PLAN_H

#include "runtime/study/compare_front_figures.h"
#include "runtime/study/compare_runs.h"

/* prices [variants]: what configurations say, and what plans say where they can be made: parameters that are trained,
 * seconds at least.  Nothing is allocated on the device; the plans are made in another process.
 * errors: those of a configuration */
HsStatus hs_front_plan(const HsComparison *comparison, HsFrontPrice *prices, HsFrontText *text);
/* Logs how many runs there are, how many of them are finished, and how long the others take: by the times of those that
 * are finished, else at least, by the plans. */
void hs_front_announce(const HsComparison *comparison, const HsCompareRun *runs, int64_t count, int64_t found,
                       const HsFrontPrice *prices);

#endif
