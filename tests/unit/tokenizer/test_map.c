/* SPDX-License-Identifier: MIT
 *
 * The map against counts kept in an array: keys of every length around those that an entry holds, zeros in them too.
 */
#include <criterion/criterion.h>
#include <string.h>

#include "kernels/base/rng.h"
#include "runtime/data/tokenizer/map.h"

enum { LENGTHS = 40, KINDS = 60, KEYS = LENGTHS * KINDS };

/* Key k: its length is k % LENGTHS; few bytes differ, so that keys of one length are alike. */
static size_t make_key(int k, char key[LENGTHS])
{
    const size_t length = (size_t)(k % LENGTHS);
    memset(key, 0, LENGTHS);
    for (size_t i = 0; i < length; i++)
        key[i] = (char)(i + 1 == length ? k / LENGTHS : 0);
    return length;
}

/* A map of the keys [first, last), each as often as `counts` says, in a random order. */
static void fill(HsMap *map, int first, int last, int64_t counts[KEYS], uint64_t seed)
{
    for (uint32_t i = 0; i < 20 * KEYS; i++) {
        char key[LENGTHS];
        const uint32_t counter[4] = { i, 0, 0, 5 };
        const int k = first + (int)(hs_philox(seed, counter).word[0] % (uint32_t)(last - first));
        const size_t length = make_key(k, key);
        cr_assert_eq(hs_map_add(map, key, length, 3), HS_OK);
        counts[length > 0 ? k : 0] += 3; /* there is one empty key */
    }
}

static void expect_counts(const HsMap *map, const int64_t counts[KEYS])
{
    size_t there = 0;
    for (int k = 0; k < KEYS; k++) {
        char key[LENGTHS];
        int64_t value = 0;
        const size_t length = make_key(k, key);
        if (length == 0 && k > 0)
            continue;
        there += counts[k] > 0;
        cr_expect_eq(hs_map_get(map, key, length, &value), counts[k] > 0);
        cr_expect_eq(value, counts[k]);
    }
    cr_expect_eq(map->count, there);
}

Test(map, counts_keys_of_any_length)
{
    static int64_t counts[KEYS];
    HsMap map = { 0 }, other = { 0 };
    fill(&map, 0, KEYS * 2 / 3, counts, 1);
    expect_counts(&map, counts);
    fill(&other, KEYS / 3, KEYS, counts, 2);
    cr_assert_eq(hs_map_add_all(&map, &other), HS_OK);
    expect_counts(&map, counts);
    hs_map_deinit(&other);
    cr_assert_eq(hs_map_add_all(&other, &map), HS_OK); /* into an empty one, in the same order */
    for (size_t i = 0; i < map.count; i++) {
        size_t length, same;
        const char *const key = hs_map_key(&map, i, &length), *const copy = hs_map_key(&other, i, &same);
        cr_expect(length == same && memcmp(key, copy, length) == 0);
    }
    hs_map_clear(&map);
    cr_expect_not(hs_map_get(&map, "", 0, &(int64_t){ 0 }));
    cr_assert_eq(hs_map_put(&map, "", 0, 7), HS_OK);
    int64_t value;
    cr_expect(hs_map_get(&map, "", 0, &value) && value == 7);
    hs_map_deinit(&map);
    hs_map_deinit(&other);
}
