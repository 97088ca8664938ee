/* SPDX-License-Identifier: MIT
 *
 * train.size: the recipe's values, for keys that the configuration does not give.  What is given counts for the others:
 * a width for the rate, a length for the batch, a batch for the rate and the steps.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/config/recipe.h"
#include "runtime/config/table.h"
#include "runtime/io/files.h"

/* Takes a given number in place of the recipe's. */
static bool take_given(const HsConfig *config, const char *dotted, int64_t value, int64_t *field)
{
    if (!hs_config_is_set(config, dotted))
        return false;
    *field = value;
    return true;
}

/* Some task, or the run, has a length. */
static bool has_length(const HsConfig *config)
{
    bool has = hs_config_is_set(config, "max_steps") || hs_config_is_set(config, "max_epochs");
    for (int i = 0; i < config->task_count; i++)
        has |= config->tasks[i].steps > 0 || config->tasks[i].tokens > 0 || config->tasks[i].epochs > 0;
    return has;
}

/* Tokens that the configuration gives its tasks, each as many in the mean; 0: it gives none. */
static double given_tokens(const HsConfig *config)
{
    double tokens = 0;
    for (int i = 0; i < config->task_count; i++)
        tokens += (double)config->tasks[i].tokens;
    return tokens / config->task_count;
}

static HsRecipe recipe_of(const HsConfig *config, double size)
{
    const double tokens = given_tokens(config);
    /* max_steps is each task's. */
    HsRecipe recipe =
        hs_recipe_of_size(size, tokens > 0 ? tokens : HS_RECIPE_TOKENS_A_SIZE * size / config->task_count);
    recipe.muon = !hs_config_is_set(config, "optimizer.kind") || hs_is(config->optimizer.kind, "muon");
    recipe.accumulation = config->training.gradient_accumulation_steps;
    take_given(config, "model.width", config->model.width, &recipe.width);
    take_given(config, "model.layers", config->model.layers, &recipe.layers);
    take_given(config, "max_length", config->training.max_length, &recipe.max_length);
    if (!take_given(config, "batch_size", config->training.batch_size, &recipe.batch_size))
        hs_recipe_choose_batch(&recipe);
    if (hs_config_is_set(config, "max_steps") && config->training.max_steps > 0)
        recipe.tokens = (double)config->training.max_steps * (double)recipe.batch_size * (double)recipe.accumulation *
                        (double)recipe.max_length;
    hs_recipe_settle(&recipe);
    return recipe;
}

HsStatus hs_recipe_of_config(const HsConfig *config, double steps, HsRecipe *recipe)
{
    const char *const kind = config->optimizer.kind;
    const bool muon = hs_is(kind, "muon");
    if (!muon && strncmp(kind, "adamw", 5) != 0)
        return hs_fail(HS_ECONFIG, "there is a rule for the rate of muon and of adamw, and none for optimizer.kind: %s",
                       kind);
    if (config->training.init_from[0] != '\0') {
        *recipe = hs_recipe_of_tuning(config->model.max_positions, hs_is(config->adapter.kind, "none"));
        return HS_OK;
    }
    *recipe = (HsRecipe){ .size = hs_recipe_blocks(config->model.layers, config->model.width),
                          .layers = config->model.layers,
                          .width = config->model.width,
                          .max_length = config->training.max_length,
                          .batch_size = config->training.batch_size,
                          .accumulation = config->training.gradient_accumulation_steps,
                          .muon = muon };
    recipe->tokens = steps * (double)recipe->batch_size * (double)recipe->accumulation * (double)recipe->max_length;
    hs_recipe_settle(recipe);
    return HS_OK;
}

/* Nothing where the configuration lists groups. */
static HsStatus take_groups(HsConfig *config, const HsRecipe *recipe, const HsRecipeRule *rule)
{
    char value[HS_RECIPE_VALUE], text[HS_RECIPE_VALUE + HS_DOTTED_BYTES];
    if (config->group_count > 0 || !recipe->muon)
        return HS_OK;
    rule->write(recipe, value);
    snprintf(text, sizeof text, "%s=%s", rule->key, value);
    HS_TRY(hs_config_override(config, text));
    for (int i = 0; i < hs_config_key_count; i++) {
        const HsConfigKey *const key = &hs_config_key_table[i];
        if (hs_config_key_is_group(key) && (hs_is(key->name, "match") || hs_is(key->name, "learning_rate")))
            config->origin->key[hs_config_origin_index(key, 0)].source = HS_SOURCE_SIZE;
    }
    return HS_OK;
}

static HsStatus take(HsConfig *config, const HsRecipe *recipe, const HsRecipeRule *rule)
{
    char section[HS_DOTTED_BYTES] = "training", value[HS_RECIPE_VALUE];
    const char *const dot = strrchr(rule->key, '.');
    if (dot)
        snprintf(section, sizeof section, "%.*s", (int)(dot - rule->key), rule->key);
    const HsConfigKey *const key = hs_config_key_find(section, dot ? dot + 1 : rule->key);
    HsYaml *node;
    rule->write(recipe, value);
    HS_TRY(hs_yaml_parse_value(value, &node));
    const HsStatus status = hs_config_value_set(key, "train.size", node, config);
    hs_yaml_destroy(node);
    config->origin->key[hs_config_origin_index(key, 0)].source = HS_SOURCE_SIZE;
    return status;
}

HsStatus hs_config_adopt_size(HsConfig *config)
{
    const char *const text = config->train.size;
    double size;
    if (text[0] == '\0')
        return HS_OK;
    if (!hs_recipe_read_size(text, &size))
        return hs_config_relation_fail(
            config, "train.size", NULL,
            "train.size must be a number of parameters from 10k to 100B, such as 300k, 30M or "
            "1.5B (got %.40s)",
            text);
    if (config->training.init_from[0] != '\0')
        return hs_config_relation_fail(config, "train.size", "init_from",
                                       "train.size is of a model from scratch, and init_from names weights, which have "
                                       "a size: remove one of the two");
    if (!hs_is(config->model.shape, "none"))
        return hs_config_relation_fail(config, "train.size", "model.shape",
                                       "train.size and model.shape both say how large the model is: remove one of the "
                                       "two");
    const bool long_enough = has_length(config);
    const HsRecipe recipe = recipe_of(config, size);
    for (int i = 0; i < hs_recipe_rule_count; i++) {
        const HsRecipeRule *const rule = &hs_recipe_rules[i];
        if (hs_is(rule->key, HS_RECIPE_GROUPS))
            HS_TRY(take_groups(config, &recipe, rule));
        else if (!hs_config_is_set(config, rule->key) && !(long_enough && hs_is(rule->key, "max_steps")))
            HS_TRY(take(config, &recipe, rule));
    }
    return HS_OK;
}

/* By way of its text, as all values are set. */
static HsStatus copy_value(const HsConfigKey *key, const void *from, void *to)
{
    char *text = NULL;
    size_t size = 0;
    HsYaml *node;
    FILE *const stream = open_memstream(&text, &size);
    if (!stream)
        return hs_fail(HS_ENOMEM, "no memory for the value of %s", key->name);
    hs_config_value_print(key, from, stream);
    HS_TRY(hs_close_text(stream, &text));
    HsStatus status = hs_yaml_parse_value(text, &node);
    if (status == HS_OK) {
        status = hs_config_value_set(key, "train.size", node, to);
        hs_yaml_destroy(node);
    }
    free(text);
    return status;
}

HsStatus hs_config_keep_filled(HsConfig *config, const HsConfig *saved, bool *changed)
{
    *changed = false;
    if (config->train.size[0] == '\0' || !hs_is(config->train.size, saved->train.size))
        return HS_OK;
    for (int i = 0; i < hs_config_key_count; i++) {
        const HsConfigKey *const key = &hs_config_key_table[i];
        if (hs_config_key_is_task(key) || hs_config_key_places(config, key) == 0 ||
            hs_config_key_places(saved, key) == 0 || key->resume == HS_RESUME_LENGTH ||
            config->origin->key[hs_config_origin_index(key, 0)].source != HS_SOURCE_SIZE)
            continue;
        void *const now = hs_config_key_object(config, key, 0);
        const void *const then = hs_config_key_object(saved, key, 0);
        if (hs_config_value_equal(key, now, then))
            continue;
        HS_TRY(copy_value(key, then, now));
        *changed = true;
    }
    return HS_OK;
}

const char *hs_config_filled_by_size(const HsConfig *config, char text[HS_RECIPE_FILLED])
{
    size_t used = 0;
    FILE *const stream = fmemopen(text, HS_RECIPE_FILLED, "w");
    text[0] = '\0';
    for (int i = 0; stream && i < hs_config_key_count; i++) {
        const HsConfigKey *const key = &hs_config_key_table[i];
        char dotted[HS_DOTTED_BYTES];
        if (hs_config_key_is_task(key) || hs_config_key_places(config, key) == 0 ||
            config->origin->key[hs_config_origin_index(key, 0)].source != HS_SOURCE_SIZE)
            continue;
        fprintf(stream, "%s%s ", used++ > 0 ? ", " : "", hs_config_key_dotted(key, dotted));
        hs_config_value_print(key, hs_config_key_object(config, key, 0), stream);
    }
    if (stream)
        fclose(stream);
    text[HS_RECIPE_FILLED - 1] = '\0';
    return text;
}
