/* SPDX-License-Identifier: MIT
 *
 * Successive halving (Jamieson & Talwalkar 2016, "Non-stochastic best arm identification and hyperparameter
 * optimization"), with 1/eta in place of a half (Li et al. 2018, "Hyperband", section 3): rungs of ever longer runs, of
 * which each trains what the one before left over.
 *
 *     rung k of K, from 0      runs of 1/eta^(K-1-k) of the full length
 *     survivors of m           those with a loss of at most the max(1, floor(m/eta))-th smallest: ties stay together
 *
 * So 12 combinations with eta 3 and 3 rungs cost 12/9 + 4/3 + 1 = 3.67 full runs, the grid 12.  What diverged (a loss
 * that is not finite) never survives.
 */
#ifndef HS_RUNTIME_STUDY_HALVING_H
#define HS_RUNTIME_STUDY_HALVING_H

#include <stdbool.h>
#include <stdint.h>

/* A run of a dozen steps says little about one of a hundred, above all about learning rates: in a search on the benchmark
 * of continual learning, rungs of 13 steps a task led to a wrong combination, rungs of 40 to the full grid's. */
enum { HS_HALVING_RUNGS = 10, HS_HALVING_DEFAULT_RUNGS = 3, HS_HALVING_ETA = 3, HS_HALVING_LEAST_STEPS = 40 };

/* As many rungs as leave one combination for the last, at most HS_HALVING_DEFAULT_RUNGS, and the first not shorter than
 * HS_HALVING_LEAST_STEPS.  steps: of the shortest task at full length; INT64_MAX: not known. */
int hs_halving_rungs(int64_t combinations, int64_t eta, int64_t steps);
/* eta^(rungs-1-rung): what the full length is divided by. */
int64_t hs_halving_divisor(int64_t eta, int rungs, int rung);
/* Of `count`, how many stay when no losses are equal. */
int64_t hs_halving_keep(int64_t count, int64_t eta);
/* Marks those that continue; returns how many.  losses [count]; survives [count] */
int64_t hs_halving_survivors(const double *losses, int64_t count, int64_t eta, bool *survives);

#endif
