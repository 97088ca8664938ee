/* SPDX-License-Identifier: MIT
 *
 * The reservoir against algorithm R written again, and its probabilities by Pearson's chi-square test.
 *
 * Significance 1e-6: a correct sampler fails one test in a million choices of seed, and the seeds are fixed.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base/rng.h"
#include "optim/continual/reservoir.h"

/* Quantile of the chi-square distribution (Wilson & Hilferty 1931): its cube root is nearly normal.
 * z = 4.7534 is the normal quantile at 1 - 1e-6. */
static double chi_square_limit(int64_t freedom)
{
    const double spread = 2.0 / (9.0 * (double)freedom), root = 1.0 - spread + 4.7534 * sqrt(spread);
    return (double)freedom * root * root * root;
}

/* sum (observed - expected)^2 / expected over equally likely cells */
static double chi_square(const int64_t *observed, int64_t cells)
{
    double total = 0, statistic = 0;
    for (int64_t i = 0; i < cells; i++)
        total += (double)observed[i];
    const double expected = total / (double)cells;
    for (int64_t i = 0; i < cells; i++)
        statistic += ((double)observed[i] - expected) * ((double)observed[i] - expected) / expected;
    return statistic;
}

/* A sequence of one token, which says which item it is. */
static void offer(HsReservoir *reservoir, int64_t item, int task)
{
    const int32_t token = (int32_t)item, target = (int32_t)item + 1;
    hs_reservoir_add(reservoir, &token, &target, task);
}

static int32_t item_at(const HsReservoir *reservoir, int64_t slot)
{
    int32_t token, target;
    hs_reservoir_read(reservoir, slot, &token, &target);
    cr_assert_eq(target, token + 1);
    return token;
}

/* Item n's slot as algorithm R has it, from the documented draw: 64 bits of Philox, counter {n, 0, site} mod n.  (The
 * rejection of surplus numbers is left out: for these n it comes once in 2^31 draws at most.) */
static uint64_t slot_of(uint64_t seed, uint64_t n, int64_t capacity)
{
    if (n <= (uint64_t)capacity)
        return n - 1;
    const uint32_t counter[4] = { (uint32_t)n, (uint32_t)(n >> 32), 0, 0x52534f46 };
    const HsPhilox draw = hs_philox(seed, counter);
    return (draw.word[0] | (uint64_t)draw.word[1] << 32) % n;
}

Test(reservoir, every_item_is_kept_with_the_same_probability)
{
    enum { CAPACITY = 10, ITEMS = 100, SEEDS = 2000 };
    int64_t kept[ITEMS] = { 0 };
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        HsReservoir reservoir;
        cr_assert_eq(hs_reservoir_init(&reservoir, CAPACITY, 1, 1000, false, seed * 7919), HS_OK);
        for (int64_t i = 0; i < ITEMS; i++)
            offer(&reservoir, i, 0);
        cr_assert_eq(reservoir.seen, ITEMS);
        cr_assert_eq(reservoir.count, CAPACITY);
        for (int64_t slot = 0; slot < CAPACITY; slot++)
            kept[item_at(&reservoir, slot)]++;
        hs_reservoir_deinit(&reservoir);
    }
    /* Inclusions have variance p (1 - p) and covariance -p (1 - p) / (ITEMS - 1) within a seed, p = M / n; dividing the
     * sum of squares by SEEDS p (1 - p) n / (n - 1) makes it chi-square with n - 1 degrees.  chi_square divides by
     * SEEDS p, the rest is this factor. */
    const double p = (double)CAPACITY / ITEMS;
    const double statistic = chi_square(kept, ITEMS) / (1 - p) * (ITEMS - 1) / ITEMS;
    cr_expect_lt(statistic, chi_square_limit(ITEMS - 1));
    /* The other tail: counts that are too even are not random. */
    cr_expect_gt(statistic, 40.0, "below 40 comes less than once in 10^7 times");
}

Test(reservoir, holds_what_algorithm_r_holds)
{
    enum { CAPACITY = 37, ITEMS = 5000 };
    int32_t plain[CAPACITY];
    HsReservoir reservoir;
    cr_assert_eq(hs_reservoir_init(&reservoir, CAPACITY, 1, 6000, false, 42), HS_OK);
    for (int64_t i = 0; i < ITEMS; i++) {
        offer(&reservoir, i, 0);
        const uint64_t slot = slot_of(42, (uint64_t)i + 1, CAPACITY);
        if (slot < CAPACITY)
            plain[slot] = (int32_t)i;
        cr_assert_eq(reservoir.count, i < CAPACITY ? i + 1 : CAPACITY);
    }
    for (int64_t slot = 0; slot < CAPACITY; slot++)
        cr_expect_eq(item_at(&reservoir, slot), plain[slot], "slot %lld", (long long)slot);
    hs_reservoir_deinit(&reservoir);
}

Test(reservoir, an_age_beyond_32_bits_counts)
{
    enum { CAPACITY = 100000, ITEMS = 500000 };
    const int64_t age = ((int64_t)1 << 32) - 1000;
    static int32_t plain[CAPACITY];
    HsReservoir reservoir;
    cr_assert_eq(hs_reservoir_init(&reservoir, CAPACITY, 1, 1 << 24, false, 3), HS_OK);
    for (int64_t i = 0; i < CAPACITY; i++) {
        offer(&reservoir, i, 0);
        plain[i] = (int32_t)i;
    }
    reservoir.seen = age;
    int64_t replaced = 0;
    for (int64_t i = 0; i < ITEMS; i++) {
        offer(&reservoir, CAPACITY + i, 0);
        const uint64_t slot = slot_of(3, (uint64_t)(age + i + 1), CAPACITY);
        if (slot < CAPACITY) {
            plain[slot] = (int32_t)(CAPACITY + i);
            replaced++;
        }
    }
    /* 500000 * 100000 / 2^32 = 11.6 are expected; an age cut to 32 bits would replace nearly all 100000 slots. */
    cr_expect(replaced > 0 && replaced < 40, "%lld", (long long)replaced);
    cr_expect_eq(reservoir.seen, age + ITEMS);
    for (int64_t slot = 0; slot < CAPACITY; slot++)
        cr_assert_eq(item_at(&reservoir, slot), plain[slot]);
    hs_reservoir_deinit(&reservoir);
}

/* Sequences come back as they went in; vocabulary decides the storage. */
static void check_storage(int64_t vocabulary, HsDtype dtype, bool masked)
{
    enum { LENGTH = 19, CAPACITY = 4 };
    HsReservoir reservoir;
    cr_assert_eq(hs_reservoir_init(&reservoir, CAPACITY, LENGTH, vocabulary, masked, 1), HS_OK);
    cr_expect_eq(reservoir.tokens.dtype, dtype);
    cr_expect_eq(hs_tensor_present(&reservoir.mask), masked);
    cr_expect_eq(hs_reservoir_bytes(CAPACITY, LENGTH, vocabulary, masked),
                 hs_tensor_bytes(&reservoir.tokens) + hs_tensor_bytes(&reservoir.task) +
                     (masked ? hs_tensor_bytes(&reservoir.mask) : 0));
    int32_t tokens[CAPACITY][LENGTH], targets[CAPACITY][LENGTH];
    for (int item = 0; item < CAPACITY; item++) {
        for (int t = 0; t <= LENGTH; t++) {
            /* Both ends of the vocabulary occur. */
            const int32_t token = (int32_t)(t == item ? vocabulary - 1 : (vocabulary - 1) * t / (LENGTH + item));
            if (t < LENGTH)
                tokens[item][t] = token;
            if (t > 0)
                targets[item][t - 1] = token;
        }
        /* Item 1: every third target ignored; 2: the last one; 3: all. */
        for (int t = 0; t < LENGTH && masked; t++)
            if ((item == 1 && t % 3 == 0) || (item == 2 && t == LENGTH - 1) || item == 3)
                targets[item][t] = -1;
        hs_reservoir_add(&reservoir, tokens[item], targets[item], item);
    }
    for (int item = 0; item < CAPACITY; item++) {
        int32_t x[LENGTH], y[LENGTH];
        hs_reservoir_read(&reservoir, item, x, y);
        cr_expect_arr_eq(x, tokens[item], sizeof x, "item %d", item);
        cr_expect_arr_eq(y, targets[item], sizeof y, "item %d", item);
        cr_expect_eq(((const int32_t *)reservoir.task.data)[item], item);
    }
    /* A replaced slot keeps nothing of what it held, no mask bit either: offers continue until each slot gets one. */
    enum { LATER = 1 };
    for (int64_t left = 4000; left > 0; left--)
        hs_reservoir_add(&reservoir, tokens[LATER], targets[LATER], 9);
    for (int slot = 0; slot < CAPACITY; slot++) {
        int32_t x[LENGTH], y[LENGTH];
        hs_reservoir_read(&reservoir, slot, x, y);
        cr_expect_arr_eq(x, tokens[LATER], sizeof x);
        cr_expect_arr_eq(y, targets[LATER], sizeof y);
        cr_expect_eq(((const int32_t *)reservoir.task.data)[slot], 9);
    }
    hs_reservoir_deinit(&reservoir);
    cr_expect_null(reservoir.tokens.data);
}

Test(reservoir, reads_back_what_was_offered)
{
    check_storage(65536, HS_U16, false);
    check_storage(65536, HS_U16, true);
    check_storage(65537, HS_I32, false);
    check_storage(1 << 24, HS_I32, true);
}

/* First tokens of documents come back as complements, and a replaced slot keeps no mark. */
Test(reservoir, keeps_where_documents_begin)
{
    enum { LENGTH = 19, CAPACITY = 3 };
    int32_t tokens[CAPACITY][LENGTH], targets[CAPACITY][LENGTH], x[LENGTH], y[LENGTH];
    HsReservoir reservoir;
    cr_assert_eq(hs_reservoir_init(&reservoir, CAPACITY, LENGTH, 500, true, 1), HS_OK);
    cr_assert_eq(hs_reservoir_keep_marks(&reservoir), HS_OK);
    cr_expect_eq(hs_reservoir_mark_bytes(CAPACITY, LENGTH), hs_tensor_bytes(&reservoir.marks));
    for (int item = 0; item < CAPACITY; item++) {
        for (int t = 0; t < LENGTH; t++) {
            const bool first = item > 0 && t > 0 && t % (3 * item) == 0;
            tokens[item][t] = first ? ~(100 * item + t) : 100 * item + t;
            targets[item][t] = item > 0 && (t + 1) % (3 * item) == 0 ? -1 : 100 * item + t + 1;
        }
        hs_reservoir_add(&reservoir, tokens[item], targets[item], item);
    }
    for (int item = 0; item < CAPACITY; item++) {
        hs_reservoir_read(&reservoir, item, x, y);
        cr_expect_arr_eq(x, tokens[item], sizeof x, "item %d", item);
        cr_expect_arr_eq(y, targets[item], sizeof y, "item %d", item);
    }
    for (int64_t left = 4000; left > 0; left--)
        hs_reservoir_add(&reservoir, tokens[0], targets[0], 9);
    for (int slot = 0; slot < CAPACITY; slot++) {
        hs_reservoir_read(&reservoir, slot, x, y);
        cr_expect_arr_eq(x, tokens[0], sizeof x);
    }
    hs_reservoir_deinit(&reservoir);
    cr_expect_null(reservoir.marks.data);
}

/* `slots` items, those below `earlier` from tasks 0 and 1, the rest from task 2. */
static void fill(HsReservoir *reservoir, int64_t slots, int64_t earlier)
{
    cr_assert_eq(hs_reservoir_init(reservoir, slots, 1, 65536, false, 11), HS_OK);
    for (int64_t i = 0; i < slots; i++)
        offer(reservoir, i, i >= earlier ? 2 : (int)(i % 2));
}

static void check_draws(int64_t slots, int64_t earlier, int before_task, int64_t eligible)
{
    enum { DRAWS = 20000 };
    HsReservoir reservoir;
    fill(&reservoir, slots, earlier);
    int64_t *drawn = calloc((size_t)slots, sizeof *drawn);
    cr_assert_not_null(drawn);
    for (uint64_t draw = 0; draw < DRAWS; draw++) {
        const int64_t slot = hs_reservoir_draw(&reservoir, draw, before_task);
        cr_assert(slot >= 0 && slot < eligible, "draw of slot %lld, %lld are eligible", (long long)slot,
                  (long long)eligible);
        drawn[slot]++;
    }
    cr_expect_lt(chi_square(drawn, eligible), chi_square_limit(eligible - 1), "%lld of %lld", (long long)eligible,
                 (long long)slots);
    free(drawn);
    hs_reservoir_deinit(&reservoir);
}

Test(reservoir, draws_are_uniform_over_the_eligible_items)
{
    check_draws(64, 24, HS_RESERVOIR_ANY_TASK, 64);
    check_draws(64, 24, 3, 64);
    check_draws(64, 24, 2, 24); /* mostly by rejection */
    check_draws(1000, 4, 2, 4); /* mostly by rank: 32 tries all miss with probability 0.996^32 = 0.88 */
    check_draws(100, 7, 2, 7);  /* by both: 0.93^32 = 0.1 */
}

Test(reservoir, draws_without_an_eligible_item_end)
{
    HsReservoir reservoir;
    fill(&reservoir, 50, 0);
    for (uint64_t draw = 0; draw < 100; draw++)
        cr_expect_eq(hs_reservoir_draw(&reservoir, draw, 2), -1);
    /* A single one among many is always found. */
    ((int32_t *)reservoir.task.data)[31] = 1;
    for (uint64_t draw = 0; draw < 100; draw++)
        cr_expect_eq(hs_reservoir_draw(&reservoir, draw, 2), 31);
    hs_reservoir_deinit(&reservoir);

    cr_assert_eq(hs_reservoir_init(&reservoir, 5, 1, 10, false, 1), HS_OK);
    cr_expect_eq(hs_reservoir_draw(&reservoir, 0, HS_RESERVOIR_ANY_TASK), -1);
    offer(&reservoir, 0, 0);
    cr_expect_eq(hs_reservoir_draw(&reservoir, 0, HS_RESERVOIR_ANY_TASK), 0, "only filled slots are drawn");
    hs_reservoir_deinit(&reservoir);
}

Test(reservoir, draws_follow_from_number_and_age_alone)
{
    HsReservoir reservoir;
    fill(&reservoir, 64, 24);
    int same = 0;
    for (uint64_t draw = 0; draw < 6400; draw++) {
        const int64_t slot = hs_reservoir_draw(&reservoir, draw, HS_RESERVOIR_ANY_TASK);
        cr_assert_eq(hs_reservoir_draw(&reservoir, draw, HS_RESERVOIR_ANY_TASK), slot);
        reservoir.seen++;
        same += hs_reservoir_draw(&reservoir, draw, HS_RESERVOIR_ANY_TASK) == slot;
        reservoir.seen--;
    }
    /* Independent draws agree once in 64 times: 100 +- 5 standard deviations of 9.9. */
    cr_expect(same > 50 && same < 150, "%d", same);
    hs_reservoir_deinit(&reservoir);
}

Test(reservoir, a_buffer_larger_than_memory_is_refused)
{
    HsReservoir reservoir;
    const int64_t sizes[] = { (int64_t)1 << 50, (int64_t)9e15 };
    for (int i = 0; i < 2; i++) {
        cr_expect_eq(hs_reservoir_init(&reservoir, sizes[i], 1048576, 1 << 24, true, 1), HS_ENOMEM);
        cr_expect_not_null(strstr(hs_error_message(), "replay.buffer_size"), "%s", hs_error_message());
        cr_expect_null(reservoir.tokens.data);
    }
    cr_expect_eq(hs_reservoir_bytes(5120, 2048, 50257, false), 5120u * (2049 * 2 + 4));
}

/* What came from a reservoir without a mask reads back whole in one that has a mask. */
Test(reservoir, items_without_a_mask_count_every_target)
{
    enum { LENGTH = 11, ITEMS = 3 };
    HsReservoir plain, masked;
    int32_t tokens[LENGTH], targets[LENGTH], expected[LENGTH];
    cr_assert_eq(hs_reservoir_init(&plain, ITEMS, LENGTH, 300, false, 7), HS_OK);
    cr_assert_eq(hs_reservoir_init(&masked, ITEMS, LENGTH, 300, true, 7), HS_OK);
    for (int item = 0; item < ITEMS; item++) {
        for (int t = 0; t < LENGTH; t++) {
            tokens[t] = 20 * item + t;
            targets[t] = 20 * item + t + 1;
        }
        hs_reservoir_add(&plain, tokens, targets, 0);
        hs_reservoir_add(&masked, tokens, targets, 0);
    }
    const size_t bytes = hs_tensor_bytes(&masked.mask);
    uint8_t *offered = malloc(bytes);
    cr_assert_not_null(offered);
    memcpy(offered, masked.mask.data, bytes);
    memset(masked.mask.data, 0, bytes);
    hs_reservoir_count_all(&masked);
    cr_expect_arr_eq(masked.mask.data, offered, bytes);
    for (int64_t slot = 0; slot < ITEMS; slot++) {
        hs_reservoir_read(&plain, slot, tokens, expected);
        hs_reservoir_read(&masked, slot, tokens, targets);
        cr_expect_arr_eq(targets, expected, sizeof expected);
    }
    free(offered);
    hs_reservoir_deinit(&masked);
    hs_reservoir_deinit(&plain);
}

/* Logits belong to the item in their slot: a new item has none, whatever the one before had. */
static void check_logits(int64_t vocabulary, HsDtype dtype)
{
    enum { LENGTH = 3, CAPACITY = 2, KEPT = 2, ENTRIES = LENGTH * KEPT };
    HsReservoir reservoir;
    const int32_t tokens[LENGTH] = { 1, 2, 3 }, targets[LENGTH] = { 2, 3, 4 };
    const float value[ENTRIES] = { 1.5f, -2.25f, 1e6f, -1e6f, (float)NAN, 3.0f };
    const int32_t index[ENTRIES] = { 0, (int32_t)vocabulary - 1, 7, 8, 9, -1 };
    const float expected[ENTRIES] = { 1.5f, -2.25f, 65504.0f, -65504.0f, 0, 0 };
    const int32_t expected_index[ENTRIES] = { 0, (int32_t)vocabulary - 1, 7, 8, -1, -1 };
    float found[ENTRIES];
    int32_t found_index[ENTRIES];
    cr_assert_eq(hs_reservoir_init(&reservoir, CAPACITY, LENGTH, vocabulary, false, 1), HS_OK);
    cr_assert_eq(hs_reservoir_keep_logits(&reservoir, KEPT, vocabulary), HS_OK);
    cr_expect_eq(reservoir.kept_index.dtype, dtype);
    cr_expect_eq(hs_reservoir_logit_bytes(CAPACITY, LENGTH, vocabulary, KEPT),
                 CAPACITY * ENTRIES * (hs_dtype_bytes(dtype) + 2));
    for (int64_t slot = 0; slot < CAPACITY; slot++) {
        cr_assert_eq(hs_reservoir_add(&reservoir, tokens, targets, 0), slot);
        hs_reservoir_write_logits(&reservoir, slot, value, index);
    }
    for (int64_t slot = 0; slot < CAPACITY; slot++) {
        hs_reservoir_read_logits(&reservoir, slot, found, found_index);
        cr_expect_arr_eq(found, expected, sizeof found);
        cr_expect_arr_eq(found_index, expected_index, sizeof found_index);
    }
    int64_t slot;
    while ((slot = hs_reservoir_add(&reservoir, tokens, targets, 0)) < 0)
        ;
    hs_reservoir_read_logits(&reservoir, slot, found, found_index);
    for (int i = 0; i < ENTRIES; i++)
        cr_expect(found_index[i] == -1 && found[i] == 0);
    hs_reservoir_read_logits(&reservoir, 1 - slot, found, found_index);
    cr_expect_arr_eq(found, expected, sizeof found);
    hs_reservoir_deinit(&reservoir);
}

Test(reservoir, logits)
{
    check_logits(300, HS_U16);
    check_logits(65534, HS_U16);
    check_logits(65535, HS_I32);
}
