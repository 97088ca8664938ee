/* SPDX-License-Identifier: MIT
 *
 * A pairwise covering of an operation's cases: few of them, in which any two choices that are made together in some case
 * are made together still.  What a mistake in a kernel needs is mostly one choice or two, such as a dtype and a
 * transposed operand (Kuhn, Wallace and Gallo, Software Fault Interactions, 2004).
 */
#ifndef HS_RUNTIME_SELFTEST_PAIRS_H
#define HS_RUNTIME_SELFTEST_PAIRS_H

#include "runtime/selftest/trial.h"

/* keep [count]: which cases to run.  On entry those to choose among, on return those of the covering, found greedily (the
 * case with the most pairs that are missing, the first of equals), so that it is the same every time.  HS_ENOMEM. */
HsStatus hs_pairs_cover(const HsCase *cases, int count, bool *keep);

#endif
