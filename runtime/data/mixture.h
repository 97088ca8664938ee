/* SPDX-License-Identifier: MIT
 *
 * Which source a sample of a mixture comes from: a function of the sample's number alone.
 *
 *     weights 3, 1   a a b a | a a b a | ...      each source's samples follow each other in its own order
 *
 * After any number of samples each source has had its share of them to within two (in whole numbers: the same on every
 * machine), where the binomial distribution of single draws would be off by the square root of their number.
 */
#ifndef HS_RUNTIME_DATA_MIXTURE_H
#define HS_RUNTIME_DATA_MIXTURE_H

#include <stdint.h>

#include "kernels/base/status.h"
#include "runtime/config/mixture.h"

typedef enum HsExhausted { HS_EXHAUSTED_REPEAT, HS_EXHAUSTED_DROP, HS_EXHAUSTED_STOP } HsExhausted;

typedef struct HsMixtureOptions {
    int count;              /* sources */
    const int64_t *windows; /* [count] samples until a source has been read once, at least 1 */
    int phases;             /* at least 1 */
    const int64_t *steps;   /* [phases] the optimizer step from which on a phase's weights hold; the first is 0 */
    const double *weights;  /* [phases, count] of samples; each phase has one above 0 */
    HsExhausted exhausted;
} HsMixtureOptions;

typedef struct HsMixture HsMixture;

/* Copies what the options point to.  errors: HS_ENOMEM */
HsStatus hs_mixture_create(const HsMixtureOptions *options, HsMixture **mixture);
void hs_mixture_destroy(HsMixture *mixture);
/* How many samples a step takes (1 to begin with): phases begin with their step's first. */
void hs_mixture_set_rows(HsMixture *mixture, double rows);
/* Sample `index` is sample *within of source *source.  Any thread may.  errors: HS_ENOMEM */
HsStatus hs_mixture_find(HsMixture *mixture, int64_t index, int *source, int64_t *within);
/* Samples of each source among the first `index` -> taken[count].  errors: HS_ENOMEM */
HsStatus hs_mixture_taken(HsMixture *mixture, int64_t index, int64_t *taken);
/* Samples of an epoch: all windows of all sources, or, where the first that has been read once ends it, up to there. */
HsStatus hs_mixture_epoch(HsMixture *mixture, int64_t *samples);

#endif
