/* SPDX-License-Identifier: MIT
 *
 * The arithmetic of rungs.
 */
#include "runtime/study/halving.h"

#include <math.h>

int hs_halving_rungs(int64_t combinations, int64_t eta, int64_t steps)
{
    int rungs = 1;
    while (rungs < HS_HALVING_DEFAULT_RUNGS && combinations >= eta && steps / eta >= HS_HALVING_LEAST_STEPS) {
        combinations /= eta;
        steps /= eta;
        rungs++;
    }
    return rungs;
}

int64_t hs_halving_divisor(int64_t eta, int rungs, int rung)
{
    int64_t divisor = 1;
    for (int i = rung + 1; i < rungs; i++)
        divisor *= eta;
    return divisor;
}

int64_t hs_halving_keep(int64_t count, int64_t eta)
{
    return count >= eta ? count / eta : 1;
}

/* How many of the losses are below this one: its rank. */
static int64_t rank_of(const double *losses, int64_t count, double loss)
{
    int64_t below = 0;
    for (int64_t i = 0; i < count; i++)
        below += losses[i] < loss;
    return below;
}

int64_t hs_halving_survivors(const double *losses, int64_t count, int64_t eta, bool *survives)
{
    const int64_t keep = hs_halving_keep(count, eta);
    int64_t kept = 0;
    for (int64_t i = 0; i < count; i++) {
        survives[i] = isfinite(losses[i]) && rank_of(losses, count, losses[i]) < keep;
        kept += survives[i];
    }
    return kept;
}
