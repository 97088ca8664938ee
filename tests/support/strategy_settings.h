/* SPDX-License-Identifier: MIT
 *
 * Settings of strategies for tests: every one that a strategy reads, harmless, to be set otherwise where it matters;
 * and the numbers of a strategy's state, which only its own file can reach.
 */
#ifndef HS_TESTS_SUPPORT_STRATEGY_SETTINGS_H
#define HS_TESTS_SUPPORT_STRATEGY_SETTINGS_H

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "optim/continual/continual.h"

static inline void set_number(HsContinualConfig *config, const char *section, const char *name, double number)
{
    hs_continual_set(config, (HsSetting){ .section = section, .name = name, .number = number });
}

static inline void set_word(HsContinualConfig *config, const char *section, const char *name, const char *word)
{
    hs_continual_set(config, (HsSetting){ .section = section, .name = name, .word = word });
}

/* second: NULL: only one */
static inline HsContinualConfig strategies_of(const char *first, const char *second)
{
    return (HsContinualConfig){
        .strategies = { first, second },
        .strategy_count = second ? 2 : 1,
        .batch_rows = 1,
        .accumulation = 1,
        .settings = { { "replay", "fraction", .number = 0 },
                      { "replay", "late_part", .number = 0 },
                      { "replay", "draw", .word = "auto" },
                      { "replay", "late_fraction", .number = NAN },
                      { "mer", "compensate_learning_rate", .word = "false" },
                      { "l2", "lambda", .number = 1 },
                      { "ewc", "lambda", .number = 1 },
                      { "ewc", "gamma", .number = 1 },
                      { "ewc", "normalize", .word = "none" },
                      { "ewc", "mode", .word = "online" },
                      { "ewc", "step", .word = "gradient" },
                      { "ewc", "curvature", .word = "diagonal" },
                      { "ewc", "block_size", .number = 256 },
                      { "si", "strength", .number = 1 },
                      { "si", "damping", .number = 1 },
                      { "mer", "mode", .word = "algorithm1" },
                      { "mer", "beta", .number = 1 },
                      { "mer", "gamma", .number = 1 },
                      { "mer", "epsilon", .number = 1 },
                      { "mer", "groups", .number = 1 },
                      { "mer", "group_steps", .number = 1 },
                      { "mer", "interval", .number = 1 },
                      { "mer", "compensate_learning_rate", .number = 0 },
                      { "agem", "reference_batches", .number = 1 },
                      { "der", "alpha", .number = 1 },
                      { "der", "beta", .number = 1 },
                      { "der", "top_k", .number = 4 },
                      { "lwf", "alpha", .number = 1 },
                      { "merge", "share", .number = 0.5 },
                      { "lwf", "temperature", .number = 2 },
                      { "generative", "fraction", .number = 1 },
                      { "generative", "temperature", .number = 1 },
                      { "generative", "top_k", .number = 0 } },
    };
}

typedef struct FoundInteger {
    const char *name;
    int64_t value;
    bool found;
} FoundInteger;

static inline HsStatus find_integer(void *user, const char *name, int64_t *value, int64_t most)
{
    FoundInteger *found = user;
    (void)most;
    if (strcmp(name, found->name) == 0) {
        found->value = *value;
        found->found = true;
    }
    return HS_OK;
}

static inline HsStatus skip_real(void *user, const char *name, double *value)
{
    (void)user, (void)name, (void)value;
    return HS_OK;
}

static inline HsStatus skip_tensor(void *user, const char *family, const char *span, HsTensor *tensor)
{
    (void)user, (void)family, (void)span, (void)tensor;
    return HS_OK;
}

/* By its name in checkpoints. */
static inline int64_t state_integer(HsContinual *continual, const char *name)
{
    FoundInteger found = { .name = name };
    const HsStateVisitor visitor = { &found, find_integer, skip_real, skip_tensor, find_integer };
    cr_assert_eq(hs_continual_visit(continual, &visitor), HS_OK);
    cr_assert(found.found, "no %s", name);
    return found.value;
}

#endif
