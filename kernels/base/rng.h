/* SPDX-License-Identifier: MIT
 *
 * Philox 4x32-10 (Salmon, Moraes, Dror & Shaw 2011, "Parallel random numbers: as easy as 1, 2, 3").
 * Counter-based: a draw is a pure function of (key, counter), so that dropout masks, initial weights, shuffles and
 * replay draws need no stored state, do not depend on thread counts, and repeat exactly under recomputation.
 */
#ifndef HS_KERNELS_BASE_RNG_H
#define HS_KERNELS_BASE_RNG_H

#include <stddef.h>
#include <stdint.h>

typedef struct HsPhilox {
    uint32_t word[4];
} HsPhilox;

/* The raw generator: ten rounds over `counter` under the 64-bit `key`. */
HsPhilox hs_philox(uint64_t key, const uint32_t counter[4]);

/* One stream of an operation: draw `index` of site `site` at optimizer step `step`.
 * Counter words: {index low, index high, site, step}; key = seed. */
typedef struct HsRng {
    uint64_t seed;
    uint32_t step;
    uint32_t site;      /* unique in a model: which layer's which mask */
    int64_t row_offset; /* first row of this micro-batch within the effective batch, or first element of this part of
                           a parameter: random bits do not depend on how the whole is split */
    const uint32_t *step_counter; /* memory of the device that draws: added to `step`; NULL: 0 */
} HsRng;

/* The optimizer step that draws belong to. */
static inline uint32_t hs_rng_step(const HsRng *rng)
{
    return rng->step + (rng->step_counter ? *rng->step_counter : 0u);
}

HsPhilox hs_rng_draw(const HsRng *rng, uint64_t index);

/* Bits to a uniform float in [0,1): the upper 24 bits times 2^-24. */
static inline float hs_rng_uniform(uint32_t bits)
{
    return (float)(bits >> 8) * 0x1p-24f;
}

/* Dropout's rule, the same on every backend: element e (row-major index within the effective batch) is kept when
 * uniform(word[e % 4] of draw e / 4) >= probability. */

/* Two standard normal numbers from two words (Box & Muller 1958, in double). */
void hs_rng_normal(uint32_t a, uint32_t b, double out[2]);

/* A pseudo-random permutation of [0, count): where `index` goes.  Four-round Feistel network with cycle walking:
 * O(1) memory, a pure function of (key, index). */
int64_t hs_rng_permute(uint64_t key, int64_t index, int64_t count);

#endif
