/* SPDX-License-Identifier: MIT
 *
 * train.size and its rules.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/config/recipe.h"
#include "runtime/config/table.h"

#define RUN(call) cr_assert_eq((call), HS_OK, "%s", hs_error_message())

static HsStatus parse(HsConfig *config, const char *text)
{
    return hs_config_parse(config, "c.yaml", text, strlen(text), 0, NULL);
}

static void refuses(const char *text, const char *expected)
{
    HsConfig config;
    cr_assert_eq(parse(&config, text), HS_ECONFIG, "%s", text);
    cr_expect_not_null(strstr(hs_error_message(), expected), "%s: %s", text, hs_error_message());
}

Test(recipe, sizes_are_read)
{
    static const struct {
        const char *text;
        double size;
    } good[] = { { "30M", 30e6 },     { "0.8M", 0.8e6 }, { "1.5B", 1.5e9 }, { "300k", 300e3 },
                 { "250000", 250e3 }, { "10k", 1e4 },    { "100B", 1e11 } };
    static const char *const bad[] = { "", "M", "-3M", "3T", "3 M", "9k", "101B", "inf", "nan", "0x10M", "3MM" };
    double size = 0;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        cr_expect(hs_recipe_read_size(good[i].text, &size), "%s", good[i].text);
        cr_expect_float_eq(size, good[i].size, good[i].size * 1e-12, "%s is %g", good[i].text, size);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        cr_expect(!hs_recipe_read_size(bad[i], &size), "%s is no size", bad[i]);
}

/* Work is filled by the tokens that a size is worth, or by all that the text is worth. */
Test(recipe, sizes_follow_from_work)
{
    const double rounding = 1e-12;
    for (double work = 1e10; work < 1e20; work *= 37) {
        const double size = hs_recipe_size_of_work(work, INFINITY), tokens = work / size;
        cr_expect_float_eq(tokens, HS_RECIPE_TOKENS_A_SIZE * size, rounding * tokens);
        const double half = hs_recipe_size_of_work(work, tokens / 2);
        cr_expect_float_eq(half * tokens / 2, work, rounding * work, "half of the tokens, twice the size");
        const double short_text = hs_recipe_size_of_work(work, tokens / 100);
        cr_expect_float_eq(short_text * HS_RECIPE_LEAST_TOKENS_A_SIZE, tokens / 100, rounding * tokens);
    }
}

/* A configuration that train.size has filled in has the rates that it would be given. */
Test(recipe, rates_of_a_configuration)
{
    static const char *const sizes[] = { "100k", "3M", "80M" };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        HsConfig config;
        HsRecipe recipe;
        char text[64];
        snprintf(text, sizeof text, "train: {size: %s}\nmax_steps: 500\n", sizes[i]);
        RUN(parse(&config, text));
        RUN(hs_recipe_of_config(&config, 500, &recipe));
        cr_expect_eq(recipe.learning_rate, config.training.learning_rate, "%s: %g", sizes[i], recipe.learning_rate);
        cr_expect_eq(recipe.embedding_rate, config.groups[0].learning_rate, "%s: %g", sizes[i], recipe.embedding_rate);
        cr_expect_eq(recipe.steps, 500);
        hs_config_deinit(&config);
    }
}

/* A shape has the size that it is of, to half a layer and half a head; rates fall as the width grows. */
Test(recipe, shapes_follow_the_size)
{
    double last_width = 0, last_rate = 1;
    for (double size = 1e5; size < 2e10; size *= 1.7) {
        const HsRecipe recipe = hs_recipe_of_size(size, 1e9);
        const double layers = (double)recipe.layers, width = (double)recipe.width;
        const double head = width < 120 ? 16 : width < 240 ? 32 : 64, made = 12 * layers * width * width;
        const double off = pow(1 + head / 2 / (width - head / 2), 2);
        cr_expect(made <= size * off && made >= size / off, "%g is made %g", size, made);
        cr_expect_eq(recipe.width % recipe.heads, 0);
        cr_expect(width >= last_width);
        cr_expect(width == last_width || recipe.learning_rate < last_rate + 1e-12);
        last_width = width;
        last_rate = recipe.learning_rate;
    }
}

/* The losses that were measured (bench/results/cpu-zen4-2core/recipe.md), within the law's error; no others. */
Test(recipe, the_law_is_of_the_sizes_that_were_measured)
{
    static const double sizes[] = { 98304, 153600, 230400, 331776, 602112 },
                        losses[] = { 1.6151, 1.4847, 1.3455, 1.2692, 1.1056 };
    double loss = 0;
    for (int i = 0; i < 5; i++) {
        cr_expect(hs_recipe_measured_loss(sizes[i], &loss));
        cr_expect(fabs(loss / losses[i] - 1) < HS_RECIPE_LAW_ERROR, "%g at %g", loss, sizes[i]);
    }
    cr_expect(!hs_recipe_measured_loss(5e4, &loss));
    cr_expect(!hs_recipe_measured_loss(1e6, &loss));
}

Test(recipe, a_size_fills_in_what_is_not_given)
{
    HsConfig config, other;
    RUN(parse(&config, "train: {size: 3M}\n"));
    const HsRecipe recipe = hs_recipe_of_size(3e6, 0);
    cr_expect_str_eq(config.model.family, "llama");
    cr_expect_str_eq(config.optimizer.kind, "muon");
    cr_expect_eq(config.model.layers, recipe.layers);
    cr_expect_eq(config.model.width, recipe.width);
    cr_expect_eq(config.training.batch_size, recipe.batch_size);
    cr_expect_eq(config.training.max_steps, recipe.steps);
    cr_expect_float_eq(config.training.learning_rate, recipe.learning_rate, 1e-15);
    cr_assert_eq(config.group_count, 1);
    cr_expect_float_eq(config.groups[0].learning_rate, recipe.embedding_rate, 1e-15);
    cr_expect(!hs_config_is_set(&config, "model.width"));
    hs_config_deinit(&config);

    /* What is given stays, and counts for the others. */
    RUN(parse(&config, "train: {size: 3M}\nmodel: {width: 384}\nbatch_size: 1\nlearning_rate: 0.5\n"));
    cr_expect_eq(config.model.width, 384);
    cr_expect_eq(config.model.layers, recipe.layers);
    cr_expect_eq(config.training.batch_size, 1);
    cr_expect_eq(config.training.max_steps, (int64_t)(10 * 3e6) / config.training.max_length);
    cr_expect_float_eq(config.training.learning_rate, 0.5, 0);
    hs_config_deinit(&config);
    RUN(parse(&config, "train: {size: 3M}\nmodel: {width: 384}\nbatch_size: 8\nmax_steps: 1000\n"));
    RUN(parse(&other, "train: {size: 3M}\nmodel: {width: 192}\nbatch_size: 8\nmax_steps: 1000\n"));
    cr_expect(config.training.learning_rate < other.training.learning_rate);
    cr_expect_eq(config.schedule.warmup_steps, 50);
    hs_config_deinit(&other);
    hs_config_deinit(&config);

    /* Up to the batch that is right for the tokens, which is 2,048 for 8 million, the rate has its square root; a larger
     * one has the rate of that. */
    RUN(parse(&config, "train: {size: 3M}\nmax_length: 256\nbatch_size: 8\nmax_steps: 3906\n"));
    RUN(parse(&other, "train: {size: 3M}\nmax_length: 256\nbatch_size: 4\nmax_steps: 3906\n"));
    cr_expect_float_eq(config.training.learning_rate / other.training.learning_rate, sqrt(2.0), 0.04);
    hs_config_deinit(&other);
    RUN(parse(&other, "train: {size: 3M}\nmax_length: 256\nbatch_size: 64\nmax_steps: 488\n"));
    cr_expect_float_eq(other.training.learning_rate / config.training.learning_rate, pow(488.0 / 3906.0, -0.43), 0.1);
    hs_config_deinit(&other);
    hs_config_deinit(&config);

    /* A length or groups of the file's, and another rule. */
    RUN(parse(&config, "train: {size: 3M}\ntasks: [{name: a, epochs: 2}]\n"
                       "optimizer: {kind: adamw, groups: [{match: head, learning_rate: 1}]}\n"));
    cr_expect_eq(config.training.max_steps, 0);
    cr_expect_eq(config.group_count, 1);
    cr_expect_str_eq(config.groups[0].match.items[0], "head");
    cr_expect_str_eq(config.optimizer.kind, "adamw");
    hs_config_deinit(&config);
}

/* What is printed loads back to the same values, and names the reason of each. */
Test(recipe, filled_values_are_shown_with_their_reasons)
{
    HsConfig config, again;
    char *text = NULL, filled[HS_RECIPE_FILLED];
    size_t size = 0;
    RUN(parse(&config, "train: {size: 800k}\nmodel: {layers: 3}\n"));
    FILE *const stream = open_memstream(&text, &size);
    RUN(hs_config_print(&config, stream, true));
    fclose(stream);
    cr_expect_not_null(strstr(text, "# by train.size 800k: "));
    hs_config_filled_by_size(&config, filled);
    cr_expect_not_null(strstr(filled, "model.width "), "%s", filled);
    cr_expect_not_null(strstr(filled, "learning_rate "), "%s", filled);
    cr_expect_null(strstr(filled, "model.layers"), "%s", filled);
    RUN(hs_config_parse(&again, "again", text, size, 0, NULL));
    cr_expect_eq(hs_config_differences(&config, &again, HS_RESUME_ANY, NULL, filled, sizeof filled), 0, "%s", filled);
    cr_expect_eq(hs_config_filled_by_size(&again, filled)[0], '\0');
    for (int i = 0; i < hs_recipe_rule_count; i++)
        cr_expect(strlen(hs_recipe_rules[i].reason) > 20, "%s has no reason", hs_recipe_rules[i].key);
    free(text);
    hs_config_deinit(&again);
    hs_config_deinit(&config);
}

Test(recipe, what_does_not_go_with_a_size_is_refused)
{
    refuses("train: {size: large}\n", "c.yaml:1:9: train.size must be a number of parameters from 10k to 100B");
    refuses("train: {size: 30M}\nmodel: {shape: gpt2}\n", "train.size and model.shape both say how large");
    refuses("train: {size: 30M}\ninit_from: models/none\n", "train.size is of a model from scratch");
}
