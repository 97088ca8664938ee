/* SPDX-License-Identifier: MIT */
#include "runtime/selftest/pairs.h"

#include <stdlib.h>
#include <string.h>

/* A choice is a word of the case, whatever member it is of, so that no list of members can lack one; of `options` each bit.
 * (Cases lie in static storage, where bytes between members are zero.) */
enum { WORDS = sizeof(HsCase) / sizeof(uint32_t), OPTIONS = 32, CHOICES = WORDS + OPTIONS };

typedef struct Cover {
    const HsCase *cases;
    int count;
    int16_t *taken; /* [count][CHOICES]: the number of (choice, what is chosen); -1: all cases choose the same */
    int numbers;
    bool *have; /* [numbers][numbers]: pairs of the covering */
} Cover;

static uint32_t chosen(const HsCase *config, int choice)
{
    uint32_t words[WORDS];
    memcpy(words, config, sizeof words);
    if (choice >= WORDS)
        return config->options >> (choice - WORDS) & 1;
    return choice == offsetof(HsCase, options) / sizeof(uint32_t) ? 0 : words[choice];
}

/* What is chosen gets its number at the first case that chooses it. */
static void number_choice(Cover *cover, const bool *wanted, int choice)
{
    const int first = cover->numbers;
    for (int i = 0; i < cover->count; i++) {
        int16_t *const number = &cover->taken[i * CHOICES + choice];
        if (!wanted[i])
            continue;
        *number = (int16_t)cover->numbers;
        for (int j = 0; j < i; j++) {
            if (wanted[j] && chosen(&cover->cases[j], choice) == chosen(&cover->cases[i], choice)) {
                *number = cover->taken[j * CHOICES + choice];
                break;
            }
        }
        cover->numbers += *number == cover->numbers;
    }
    if (cover->numbers > first + 1)
        return;
    cover->numbers = first;
    for (int i = 0; i < cover->count; i++)
        cover->taken[i * CHOICES + choice] = -1;
}

/* Pairs of a case that the covering has not; with `take` it has them afterwards. */
static int missing_pairs(Cover *cover, int index, bool take)
{
    const int16_t *const numbers = &cover->taken[index * CHOICES];
    int missing = 0;
    for (int a = 0; a < CHOICES; a++) {
        for (int b = a; b < CHOICES && numbers[a] >= 0; b++) {
            if (numbers[b] < 0)
                continue;
            bool *const have = &cover->have[numbers[a] * cover->numbers + numbers[b]];
            missing += !*have;
            *have |= take;
        }
    }
    return missing;
}

static void cover_greedily(Cover *cover, const bool *wanted, bool *keep)
{
    for (;;) {
        int best = -1, most = 0;
        for (int i = 0; i < cover->count; i++) {
            const int missing = wanted[i] && !keep[i] ? missing_pairs(cover, i, false) : 0;
            if (missing > most) {
                best = i;
                most = missing;
            }
        }
        if (best < 0)
            return;
        keep[best] = true;
        missing_pairs(cover, best, true);
    }
}

HsStatus hs_pairs_cover(const HsCase *cases, int count, bool *keep)
{
    Cover cover = { .cases = cases, .count = count };
    bool *const wanted = malloc((size_t)count + 1);
    cover.taken = malloc(((size_t)count + 1) * CHOICES * sizeof *cover.taken);
    HsStatus status = HS_ENOMEM;
    if (wanted && cover.taken) {
        memcpy(wanted, keep, (size_t)count);
        for (int choice = 0; choice < CHOICES; choice++)
            number_choice(&cover, wanted, choice);
        cover.have = calloc((size_t)cover.numbers + 1, (size_t)cover.numbers + 1);
    }
    if (cover.have) {
        /* Where all cases are alike the first says everything. */
        for (int i = 0, alike = cover.numbers == 0; i < count; i++) {
            keep[i] = alike && wanted[i];
            alike &= !wanted[i];
        }
        cover_greedily(&cover, wanted, keep);
        status = HS_OK;
    }
    free(wanted);
    free(cover.taken);
    free(cover.have);
    return status == HS_OK ? HS_OK : hs_fail(HS_ENOMEM, "selftest: no memory to choose among %d cases", count);
}
