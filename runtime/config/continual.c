/* SPDX-License-Identifier: MIT
 *
 * From keys to optim/'s settings: each strategy's section, key by key.
 */
#include "runtime/config/continual.h"
#include "runtime/config/table.h"

#include <stdlib.h>
#include <string.h>

static bool section_is_written(const HsConfig *config, const char *section)
{
    for (int i = 0; i < hs_config_key_count; i++) {
        const HsConfigKey *key = &hs_config_key_table[i];
        if (hs_is(key->section, section) &&
            config->origin->key[hs_config_origin_index(key, 0)].source != HS_SOURCE_DEFAULT)
            return true;
    }
    return false;
}

static HsStatus fail_many(int count)
{
    return hs_fail(HS_ECONFIG,
                   "continual.strategy lists %d; at most one of l2, ewc, si, inc-lora, o-lora, one of er, mer, a-gem, "
                   "der++, generative, lwf, and merge go together",
                   count);
}

HsStatus hs_config_resolve_strategies(HsConfig *config)
{
    HsStringList *list = &config->continual.strategy;
    if (list->count != 1 || !hs_is(list->items[0], "auto"))
        return HS_OK;
    const char *names[HS_STRATEGIES_MAX] = { "none" };
    int count = 0;
    /* Sections that stand for a strategy when they are written. */
    for (int i = 0; i < hs_strategy_count; i++) {
        const HsStrategy *strategy = hs_strategy_table[i];
        if (!strategy->section || !section_is_written(config, strategy->section))
            continue;
        if (count == HS_STRATEGIES_MAX)
            return fail_many(count + 1);
        names[count++] = strategy->name;
    }
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

int64_t hs_config_buffer_size(const HsConfig *config)
{
    return config->replay.buffer_size > 0 ? config->replay.buffer_size : config->mer.buffer_size;
}

static HsSetting setting_of(const HsConfig *config, const HsConfigKey *key)
{
    const unsigned char *value = (const unsigned char *)config + key->offset;
    HsSetting setting = { .section = key->section, .name = key->name };
    switch (key->type) {
    case HS_KEY_INT:
    case HS_KEY_BYTES:
        setting.number = (double)*(const int64_t *)(const void *)value; /* bounds are below 2^53 */
        break;
    case HS_KEY_REAL:
        setting.number = *(const double *)(const void *)value;
        break;
    case HS_KEY_BOOL:
        setting.number = *(const bool *)value;
        break;
    case HS_KEY_STRING:
        setting.word = *(const char *const *)(const void *)value;
        break;
    case HS_KEY_REALS2:
    case HS_KEY_STRINGS:
    case HS_KEY_TYPE_COUNT:
        setting.section = NULL; /* lists are the training loop's */
        break;
    }
    return setting;
}

static void add_section(const HsConfig *config, const char *section, HsContinualConfig *continual)
{
    for (int i = 0; i < hs_config_key_count; i++) {
        const HsConfigKey *key = &hs_config_key_table[i];
        if (!hs_is(key->section, section))
            continue;
        const HsSetting setting = setting_of(config, key);
        if (setting.section)
            hs_continual_set(continual, setting);
    }
}

static bool retains(const void *user, int task)
{
    const HsConfig *config = user;
    return task >= config->task_count || config->tasks[task].retain;
}

static HsBeginning beginning_of(const HsConfig *config)
{
    if (!hs_is(config->adapter.kind, "none"))
        return config->adapter.init_from[0] ? HS_BEGINS_TRAINED : HS_BEGINS_WITH_DRAWN_ADAPTER;
    return config->training.init_from[0] ? HS_BEGINS_TRAINED : HS_BEGINS_UNTRAINED;
}

static int known_tasks(const HsConfig *config)
{
    int known = 0;
    while (known < config->task_count && config->tasks[known].known)
        known++;
    return known;
}

HsStatus hs_config_continual(const HsConfig *config, HsContinualConfig *continual)
{
    *continual = (HsContinualConfig){ .seed = (uint64_t)config->training.seed,
                                      .batch_rows = config->training.batch_size,
                                      .tasks = config->task_count,
                                      .beginning = beginning_of(config),
                                      .known = known_tasks(config),
                                      .unmarked = hs_is(config->continual.boundaries, "none"),
                                      .retains = retains,
                                      .user = config,
                                      .accumulation = config->training.gradient_accumulation_steps };
    HS_TRY(hs_optimizer_kind_find(config->optimizer.kind, &continual->optimizer));
    const HsStringList *names = &config->continual.strategy;
    if (names->count > HS_STRATEGIES_MAX)
        return fail_many(names->count);
    add_section(config, "replay", continual); /* every strategy that replays */
    for (int i = 0; i < names->count; i++) {
        const HsStrategy *strategy = hs_strategy_find(names->items[i]); /* NULL: hs_continual_check refuses it */
        continual->strategies[continual->strategy_count++] = names->items[i];
        if (strategy && strategy->section)
            add_section(config, strategy->section, continual);
        if (strategy && strategy->needs_fisher)
            add_section(config, "ewc", continual); /* how it is estimated */
    }
    return HS_OK;
}

int64_t hs_config_rows_per_step(const HsConfig *config)
{
    HsContinualConfig continual;
    const bool split = hs_config_continual(config, &continual) == HS_OK && hs_continual_splits_accumulation(&continual);
    return config->training.batch_size * (split ? 1 : config->training.gradient_accumulation_steps);
}

static int64_t common_divisor(int64_t a, int64_t b)
{
    while (b > 0) {
        const int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

int64_t hs_config_micro_batch_most(const HsConfig *config)
{
    const int64_t parts = config->distributed.virtual_ranks, rows = hs_config_rows_per_step(config);
    HsContinualConfig continual;
    if (parts <= 1 || hs_config_continual(config, &continual) != HS_OK)
        return config->training.batch_size;
    const int64_t references = hs_continual_replay_plan(&continual, rows).reference_rows;
    return common_divisor(common_divisor(config->training.batch_size, rows / parts), references / parts);
}

int64_t hs_config_micro_batch(const HsConfig *config)
{
    return config->memory.micro_batch > 0 ? config->memory.micro_batch : hs_config_micro_batch_most(config);
}

const HsStringList *hs_config_excluded(const HsConfig *config, const HsContinualConfig *continual, const char **section)
{
    for (int i = 0; i < continual->strategy_count; i++) {
        const HsStrategy *strategy = hs_strategy_find(continual->strategies[i]);
        const HsConfigKey *key = strategy->section ? hs_config_key_find(strategy->section, "exclude") : NULL;
        if (!key || key->type != HS_KEY_STRINGS)
            continue;
        *section = strategy->section;
        return (const HsStringList *)(const void *)((const unsigned char *)config + key->offset);
    }
    return NULL;
}
