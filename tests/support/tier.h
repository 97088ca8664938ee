/* SPDX-License-Identifier: MIT
 *
 * How much a test does (tests/run.sh): all combinations in `make nightly`, a pairwise covering of them in `make test`.
 */
#ifndef HS_TESTS_SUPPORT_TIER_H
#define HS_TESTS_SUPPORT_TIER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static inline bool is_nightly(void)
{
    const char *const tier = getenv("TIER");
    return tier && strcmp(tier, "nightly") == 0;
}

/* For loops in loops: of all combinations those with indices that add up to a multiple of `modulus`.  Any two loops
 * have all their pairs, where a third has at least `modulus` values. */
static inline bool is_in_tier(size_t sum, size_t modulus)
{
    return is_nightly() || sum % modulus == 0;
}

#endif
