/* SPDX-License-Identifier: MIT
 *
 * Philox 4x32-10 and what is drawn from it.
 *
 * One round, with (L, R) the counter's halves and multiplication 32 x 32 -> 64 bits:
 *     c0' = high(M1 c2) ^ c1 ^ k0      c1' = low(M1 c2)
 *     c2' = high(M0 c0) ^ c3 ^ k1      c3' = low(M0 c0)
 * and the key is bumped by the Weyl constants between rounds (Salmon et al. 2011, section 3.3).
 */
#include "kernels/base/rng.h"

#include <assert.h>
#include <math.h>

static const uint32_t multiplier0 = 0xD2511F53u;
static const uint32_t multiplier1 = 0xCD9E8D57u;
static const uint32_t weyl0 = 0x9E3779B9u; /* golden ratio */
static const uint32_t weyl1 = 0xBB67AE85u; /* sqrt(3) - 1 */

HsPhilox hs_philox(uint64_t key, const uint32_t counter[4])
{
    uint32_t key0 = (uint32_t)key, key1 = (uint32_t)(key >> 32);
    HsPhilox state = { { counter[0], counter[1], counter[2], counter[3] } };
    for (int round = 0; round < 10; round++) {
        uint64_t product0 = (uint64_t)multiplier0 * state.word[0];
        uint64_t product1 = (uint64_t)multiplier1 * state.word[2];
        uint32_t next0 = (uint32_t)(product1 >> 32) ^ state.word[1] ^ key0;
        uint32_t next2 = (uint32_t)(product0 >> 32) ^ state.word[3] ^ key1;
        state = (HsPhilox){ { next0, (uint32_t)product1, next2, (uint32_t)product0 } };
        key0 += weyl0;
        key1 += weyl1;
    }
    return state;
}

HsPhilox hs_rng_draw(const HsRng *rng, uint64_t index)
{
    const uint32_t counter[4] = { (uint32_t)index, (uint32_t)(index >> 32), rng->site, hs_rng_step(rng) };
    return hs_philox(rng->seed, counter);
}

void hs_rng_normal(uint32_t a, uint32_t b, double out[2])
{
    /* (0, 1] rather than [0, 1): the logarithm must not meet zero. */
    double uniform = ((double)a + 1.0) * 0x1p-32;
    double angle = 6.283185307179586 * ((double)b * 0x1p-32);
    double radius = sqrt(-2.0 * log(uniform));
    out[0] = radius * cos(angle);
    out[1] = radius * sin(angle);
}

/* Philox as a Feistel round function: `half` bits in, 32 bits out. */
static uint64_t feistel_round(uint64_t key, uint32_t round, uint64_t half)
{
    const uint32_t counter[4] = { (uint32_t)half, round, 0xFE157E1Eu, 0xFFFFFFFFu };
    return hs_philox(key, counter).word[0];
}

int64_t hs_rng_permute(uint64_t key, int64_t index, int64_t count)
{
    assert(index >= 0 && index < count);
    /* The network permutes [0, 2^(2 half_bits)), the smallest such range that holds `count`. */
    int half_bits = 1;
    while (half_bits < 32 && ((uint64_t)1 << (2 * half_bits)) < (uint64_t)count)
        half_bits++;
    uint64_t mask = ((uint64_t)1 << half_bits) - 1;
    uint64_t value = (uint64_t)index;
    /* Cycle walking: applying a permutation again and again from inside [0, count) must come back inside, and doing so
     * is itself a permutation of [0, count).  The range is under 4 count, so fewer than 4 rounds are expected. */
    do {
        uint64_t left = value >> half_bits, right = value & mask;
        for (uint32_t round = 0; round < 4; round++) {
            uint64_t mixed = left ^ (feistel_round(key, round, right) & mask);
            left = right;
            right = mixed;
        }
        value = (left << half_bits) | right;
    } while (value >= (uint64_t)count);
    return (int64_t)value;
}
