/* SPDX-License-Identifier: MIT
 *
 * From keys to optim/'s numbers.  A choice is looked up by name in one table each.
 */
#include "runtime/config_continual.h"
#include "runtime/config_table.h"

#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    HsNormalize normalize;
} normalizations[] = {
    { "true", HS_NORMALIZE_MAX }, { "max", HS_NORMALIZE_MAX },    { "mean", HS_NORMALIZE_MEAN },
    { "l2", HS_NORMALIZE_L2 },    { "false", HS_NORMALIZE_NONE }, { "none", HS_NORMALIZE_NONE },
};

static const struct {
    const char *name;
    HsMerMode mode;
} mer_modes[] = {
    { "algorithm1", HS_MER_ALGORITHM1 },
    { "algorithm6", HS_MER_ALGORITHM6 },
    { "algorithm7", HS_MER_ALGORITHM7 },
    { "reptile", HS_MER_REPTILE },
};

/* Sections that stand for a strategy when they are written and continual.strategy is auto. */
static const struct {
    const char *section, *strategy;
} implied[] = { { "l2", "l2" }, { "ewc", "ewc" }, { "si", "si" }, { "mer", "mer" }, { "agem", "a-gem" } };

static bool is(const char *value, const char *word)
{
    return strcmp(value, word) == 0;
}

/* MER without group_steps takes the micro-batches of an accumulation window one after another. */
static bool unrolls_accumulation(const HsConfig *config)
{
    bool mer = false;
    for (int i = 0; i < config->continual.strategy.count; i++)
        mer = mer || is(config->continual.strategy.items[i], "mer");
    return mer && config->mer.group_steps == 0 && !is(config->mer.mode, "reptile");
}

static bool section_is_written(const HsConfig *config, const char *section)
{
    for (int i = 0; i < hs_config_key_count; i++) {
        const HsConfigKey *key = &hs_config_key_table[i];
        if (is(key->section, section) &&
            config->origin->key[hs_config_origin_index(key, 0)].source != HS_SOURCE_DEFAULT)
            return true;
    }
    return false;
}

HsStatus hs_config_resolve_strategies(HsConfig *config)
{
    HsStringList *list = &config->continual.strategy;
    if (list->count != 1 || !is(list->items[0], "auto"))
        return HS_OK;
    const char *names[sizeof implied / sizeof *implied] = { "none" };
    int count = 0;
    for (size_t i = 0; i < sizeof implied / sizeof *implied; i++)
        if (section_is_written(config, implied[i].section))
            names[count++] = implied[i].strategy;
    count = count > 0 ? count : 1;
    HsStringList resolved = { 0, calloc((size_t)count, sizeof *resolved.items) };
    bool whole = resolved.items != NULL;
    while (whole && resolved.count < count) {
        resolved.items[resolved.count] = strdup(names[resolved.count]);
        whole = resolved.items[resolved.count] != NULL;
        resolved.count += whole;
    }
    HsStringList *unused = whole ? list : &resolved;
    for (int i = 0; i < unused->count; i++)
        free(unused->items[i]);
    free(unused->items);
    if (!whole)
        return hs_fail(HS_ENOMEM, "out of memory while reading the configuration");
    *list = resolved;
    return HS_OK;
}

int64_t hs_config_rows_per_step(const HsConfig *config)
{
    int64_t micro_batches = unrolls_accumulation(config) ? 1 : config->training.gradient_accumulation_steps;
    return config->training.batch_size * micro_batches;
}

int64_t hs_config_buffer_size(const HsConfig *config)
{
    return config->replay.buffer_size > 0 ? config->replay.buffer_size : config->mer.buffer_size;
}

HsStatus hs_config_continual(const HsConfig *config, HsContinualConfig *continual)
{
    *continual = (HsContinualConfig){
        .seed = (uint64_t)config->training.seed,
        .replay_fraction = config->replay.fraction,
        .l2.lambda = config->l2.lambda,
        .ewc = { .lambda = config->ewc.lambda,
                 .gamma = config->ewc.gamma,
                 .separate = is(config->ewc.mode, "separate"),
                 .proximal = is(config->ewc.step, "proximal") },
        .si = { .strength = config->si.strength, .damping = config->si.damping },
        .mer = { .beta = config->mer.beta,
                 .gamma = config->mer.gamma,
                 .epsilon = config->mer.epsilon,
                 .groups = config->mer.groups,
                 .group_steps = config->mer.group_steps > 0 ? config->mer.group_steps
                                                            : config->training.gradient_accumulation_steps,
                 .interval = config->mer.interval,
                 .compensate = config->mer.compensate_learning_rate },
        .reference_rows = config->agem.reference_batches * config->training.batch_size,
    };
    for (size_t i = 0; i < sizeof normalizations / sizeof *normalizations; i++)
        if (is(config->ewc.normalize, normalizations[i].name))
            continual->ewc.normalize = normalizations[i].normalize;
    for (size_t i = 0; i < sizeof mer_modes / sizeof *mer_modes; i++)
        if (is(config->mer.mode, mer_modes[i].name))
            continual->mer.mode = mer_modes[i].mode;
    const HsStringList *names = &config->continual.strategy;
    if (names->count > HS_STRATEGIES_MAX)
        return hs_fail(HS_ECONFIG,
                       "continual.strategy lists %d; at most one of l2, ewc, si and one of er, mer, a-gem go "
                       "together",
                       names->count);
    for (int i = 0; i < names->count; i++)
        continual->strategies[continual->strategy_count++] = names->items[i];
    return HS_OK;
}
