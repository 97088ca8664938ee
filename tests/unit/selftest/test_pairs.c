/* SPDX-License-Identifier: MIT
 *
 * A covering has every pair of choices that all cases have: counted here by another way, over every two words of a case and
 * every two bits of its options.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/selftest/pairs.h"
#include "runtime/selftest/selftest.h"

#define ROW(name, Args, formula) { #name, &hs_op_test_##name },
static const struct {
    const char *name;
    const HsOpTest *test;
} rows[] = { HS_OPS(ROW) };

enum { WORDS = sizeof(HsCase) / sizeof(uint32_t), OPTIONS = offsetof(HsCase, options) / sizeof(uint32_t) };

static void words_of(const HsCase *config, uint32_t words[WORDS])
{
    memcpy(words, config, sizeof *config);
}

/* Whether one of those kept has these words as `config` has them, of the options only bits of the masks. */
static bool is_covered(const HsOpTest *test, const bool *keep, const HsCase *config, int a, int b, uint32_t mask_a,
                       uint32_t mask_b)
{
    uint32_t wanted[WORDS], words[WORDS];
    words_of(config, wanted);
    for (int i = 0; i < test->case_count; i++) {
        words_of(&test->cases[i], words);
        if (keep[i] && ((words[a] ^ wanted[a]) & mask_a) == 0 && ((words[b] ^ wanted[b]) & mask_b) == 0)
            return true;
    }
    return false;
}

static void expect_covered(const char *name, const HsOpTest *test, const bool *wanted, const bool *keep)
{
    const uint32_t all = UINT32_MAX;
    for (int i = 0; i < test->case_count; i++) {
        for (int a = 0; wanted[i] && a < WORDS; a++) {
            for (int b = 0; b < WORDS; b++) {
                if (a == OPTIONS || b == OPTIONS)
                    continue;
                cr_assert(is_covered(test, keep, &test->cases[i], a, b, all, all), "%s: case %d, words %d and %d", name,
                          i, a, b);
            }
            for (int bit = 0; bit < 32; bit++)
                cr_assert(is_covered(test, keep, &test->cases[i], a, OPTIONS, a == OPTIONS ? 1 : all, 1u << bit),
                          "%s: case %d, word %d and option %d", name, i, a, bit);
        }
    }
}

Test(pairs, every_pair_of_choices_is_kept)
{
    for (int op = 0; op < HS_COUNT_OF(rows); op++) {
        const HsOpTest *const test = rows[op].test;
        bool *const wanted = malloc((size_t)test->case_count), *const keep = malloc((size_t)test->case_count);
        /* all, and every other one */
        for (int step = 1; step <= 2; step++) {
            for (int i = 0; i < test->case_count; i++)
                keep[i] = wanted[i] = i % step == 0;
            cr_assert_eq(hs_pairs_cover(test->cases, test->case_count, keep), HS_OK, "%s", hs_error_message());
            for (int i = 0; i < test->case_count; i++)
                cr_assert(wanted[i] || !keep[i], "%s: case %d was not asked for", rows[op].name, i);
            expect_covered(rows[op].name, test, wanted, keep);
        }
        free(wanted);
        free(keep);
    }
}

static int kept(const HsCase *cases, int count)
{
    bool keep[16];
    int total = 0;
    memset(keep, true, sizeof keep);
    cr_assert_eq(hs_pairs_cover(cases, count, keep), HS_OK);
    for (int i = 0; i < count; i++)
        total += keep[i];
    return total;
}

/* Three choices of two: no fewer than the four of eight cases that an orthogonal array has, and little more.  One choice
 * alone needs each of its values. */
Test(pairs, about_as_few_as_an_orthogonal_array)
{
    static HsCase cases[8], alike[3], one[3];
    for (int i = 0; i < 8; i++)
        cases[i] = (HsCase){ .rows = i & 1, .columns = i >> 1 & 1, .options = i & 4 ? HS_CASE_BIAS : 0 };
    for (int i = 0; i < 3; i++)
        one[i].rows = i;
    cr_expect(kept(cases, 8) >= 4 && kept(cases, 8) <= 6, "%d", kept(cases, 8));
    cr_expect_eq(kept(alike, 3), 1);
    cr_expect_eq(kept(one, 3), 3);
    cr_expect_eq(kept(one, 0), 0);
}
