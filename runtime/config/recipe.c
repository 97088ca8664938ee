/* SPDX-License-Identifier: MIT
 *
 * The rules.  A reason says what was measured (bench/recipe.sh; bench/results/cpu-zen5-2core/recipe.md), or that nothing
 * was, and by what other programs the value is.
 */
#include "runtime/config/recipe.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "runtime/config/table.h"

/* --- the numbers --- */

/* Features a layer: 32 at a million parameters, 64 at 85 million, as GPT-2 small has them; between and beyond on a line
 * of logarithms. */
static double features_a_layer(double size)
{
    const double ratio = 32 * pow(size / 1e6, log(2) / log(85));
    return ratio < 32 ? 32 : ratio > 128 ? 128 : ratio;
}

static int64_t whole(double value, int64_t step)
{
    const int64_t rounded = step * (int64_t)floor(value / (double)step + 0.5);
    return rounded > step ? rounded : step;
}

static int64_t head_of(double width)
{
    return width < 120 ? 16 : width < 240 ? 32 : 64;
}

/* 12 layers width^2 = size, with width = ratio layers. */
static void shape(HsRecipe *recipe)
{
    const double ratio = features_a_layer(recipe->size);
    int64_t layers = whole(cbrt(recipe->size / (12 * ratio * ratio)), 1);
    layers = layers < 2 ? 2 : layers;
    const double width = sqrt(recipe->size / (12 * (double)layers));
    recipe->layers = layers;
    recipe->width = whole(width, head_of(width));
}

static int64_t length_of(double size)
{
    return size < 10e6 ? 256 : size < 60e6 ? 512 : 1024;
}

/* Tokens of a step: a power of 2 near BATCH (tokens / BATCH_AT)^0.383. */
static const double BATCH = 2048, BATCH_AT = 8e6, BATCH_POWER = 0.383;

static double batch_tokens(double tokens)
{
    const double batch = exp2(floor(log2(BATCH * pow(tokens / BATCH_AT, BATCH_POWER)) + 0.5));
    return batch < 512 ? 512 : batch;
}

/* The best rates of width RATE_WIDTH for a run of RATE_STEPS steps of RATE_BATCH tokens, and the powers by which they
 * move.  Batches beyond what batch_tokens gives want no higher rate: gradients of a short run differ little from row to
 * row (McCandlish et al. 2018).  AdamW's is a part of Muon's. */
static const double RATE = 1.7e-2, EMBEDDING_RATE = 1.4e-2, RATE_WIDTH = 128, RATE_BATCH = 1024, RATE_STEPS = 60;
static const double RATE_POWER = -0.64, EMBEDDING_POWER = -1, BATCH_RATE_POWER = 0.5, STEPS_POWER = -0.43,
                    OF_ADAMW = 0.5;

/* Two digits: a sweep knows no more of it. */
static double rounded(double rate)
{
    char digits[HS_RECIPE_VALUE];
    snprintf(digits, sizeof digits, "%.2g", rate);
    return strtod(digits, NULL);
}

static void settle_model(HsRecipe *recipe, double batch)
{
    const double width = (double)recipe->width / RATE_WIDTH;
    const double counted = fmin(batch, fmax(RATE_BATCH, batch_tokens(recipe->tokens)));
    const double course =
        pow(counted / RATE_BATCH, BATCH_RATE_POWER) * pow((double)recipe->steps / RATE_STEPS, STEPS_POWER);
    recipe->learning_rate = rounded(RATE * pow(width, RATE_POWER) * course * (recipe->muon ? 1 : OF_ADAMW));
    recipe->embedding_rate = rounded(EMBEDDING_RATE * pow(width, EMBEDDING_POWER) * course);
    recipe->heads = recipe->width / head_of((double)recipe->width);
    recipe->heads = recipe->heads < 1 ? 1 : recipe->heads;
    while (recipe->width % recipe->heads != 0)
        recipe->heads--;
}

void hs_recipe_settle(HsRecipe *recipe)
{
    const double batch = (double)(recipe->batch_size * recipe->accumulation * recipe->max_length);
    const double steps = floor(recipe->tokens / batch);
    recipe->steps = steps < 1 ? 1 : steps > HS_NO_BOUND ? (int64_t)HS_NO_BOUND : (int64_t)steps;
    recipe->warmup_steps = recipe->steps / 20;
    if (recipe->size > 0)
        settle_model(recipe, batch);
}

void hs_recipe_choose_batch(HsRecipe *recipe)
{
    const double rows = floor(batch_tokens(recipe->tokens) / (double)(recipe->max_length * recipe->accumulation) + 0.5);
    recipe->batch_size = rows < 1 ? 1 : rows > 1048576 ? 1048576 : (int64_t)rows;
}

HsRecipe hs_recipe_of_size(double size, double tokens)
{
    HsRecipe recipe = { .size = size, .accumulation = 1, .muon = true };
    shape(&recipe);
    recipe.tokens = tokens > 0 ? tokens : HS_RECIPE_TOKENS_A_SIZE * size;
    recipe.max_length = length_of(size);
    hs_recipe_choose_batch(&recipe);
    hs_recipe_settle(&recipe);
    return recipe;
}

double hs_recipe_size_of_work(double work, double most)
{
    const double size = sqrt(work / HS_RECIPE_TOKENS_A_SIZE);
    if (size * HS_RECIPE_TOKENS_A_SIZE <= most)
        return size;
    return fmin(work / fmax(most, 1), most / HS_RECIPE_LEAST_TOKENS_A_SIZE);
}

/* L = LAW_FLOOR + LAW_FACTOR size^-LAW_POWER, fitted on sizes from HS_RECIPE_LAW_LEAST to HS_RECIPE_LAW_MOST. */
static const double LAW_FLOOR = 0.013, LAW_FACTOR = 17.966, LAW_POWER = 0.21;

bool hs_recipe_measured_loss(double size, double *loss)
{
    *loss = LAW_FLOOR + LAW_FACTOR * pow(size, -LAW_POWER);
    return size >= HS_RECIPE_LAW_LEAST && size <= HS_RECIPE_LAW_MOST;
}

/* bench/results/cpu-zen4-2core/recipe.md */
bool hs_recipe_rate_measured(const HsRecipe *recipe)
{
    const int64_t batch = recipe->batch_size * recipe->accumulation * recipe->max_length;
    return recipe->size > 0 && recipe->muon && recipe->width >= 64 && recipe->width <= 512 && recipe->steps >= 60 &&
           recipe->steps <= 1000 && batch >= 512 && batch <= 4096;
}

/* Of full training and of adapters (configs/finetune.yaml, configs/lora.yaml; LoRA Without Regret: ten times). */
static const double RATE_OF_ALL = 2e-5, RATE_OF_ADAPTERS = 2e-4;

HsRecipe hs_recipe_of_tuning(int64_t positions, bool all)
{
    enum { LENGTH = 512, TOKENS = 8192 };
    HsRecipe recipe = { .accumulation = 1, .width = 1, .all = all };
    recipe.max_length = positions > 0 && positions < LENGTH ? positions : LENGTH;
    recipe.batch_size = TOKENS / recipe.max_length;
    recipe.batch_size = recipe.batch_size > 32 ? 32 : recipe.batch_size;
    recipe.learning_rate = all ? RATE_OF_ALL : RATE_OF_ADAPTERS;
    return recipe;
}

bool hs_recipe_read_size(const char *text, double *size)
{
    static const struct {
        const char *unit;
        double factor;
    } units[] = { { "", 1 }, { "k", 1e3 }, { "K", 1e3 }, { "M", 1e6 }, { "m", 1e6 }, { "B", 1e9 }, { "G", 1e9 } };
    char *end;
    if (text[0] < '0' || text[0] > '9' || strpbrk(text, "xXeE")) /* no sign, no inf, no hexadecimal */
        return false;
    const double number = strtod(text, &end);
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (hs_is(end, units[i].unit)) {
            *size = number * units[i].factor;
            return *size >= HS_RECIPE_LEAST_SIZE && *size <= HS_RECIPE_MOST_SIZE;
        }
    return false;
}

/* --- the table --- */

#define WHOLE(name, field)                                                        \
    static void write_##name(const HsRecipe *recipe, char value[HS_RECIPE_VALUE]) \
    {                                                                             \
        snprintf(value, HS_RECIPE_VALUE, "%" PRId64, recipe->field);              \
    }
WHOLE(layers, layers)
WHOLE(heads, heads)
WHOLE(width, width)
WHOLE(max_length, max_length)
WHOLE(batch_size, batch_size)
WHOLE(max_steps, steps)
WHOLE(warmup_steps, warmup_steps)
#undef WHOLE

#define WORD(name, word)                                                          \
    static void write_##name(const HsRecipe *recipe, char value[HS_RECIPE_VALUE]) \
    {                                                                             \
        (void)recipe;                                                             \
        snprintf(value, HS_RECIPE_VALUE, word);                                   \
    }
WORD(family, "llama")
WORD(optimizer, "muon")
WORD(decay, "0.1")
WORD(schedule, "wsd")
WORD(decay_fraction, "0.8")
WORD(decay_shape, "linear")
WORD(min_rate, "0")
WORD(auto_fit, "true")
WORD(adamw, "adamw")
WORD(light_decay, "0.01")
WORD(cosine, "cosine")
#undef WORD

static void write_rate(const HsRecipe *recipe, char value[HS_RECIPE_VALUE])
{
    hs_config_real_text(recipe->learning_rate, value);
}

static void write_groups(const HsRecipe *recipe, char value[HS_RECIPE_VALUE])
{
    char rate[32];
    snprintf(value, HS_RECIPE_VALUE, "[{match: [embedding, head, norm], learning_rate: %s}]",
             hs_config_real_text(recipe->embedding_rate, rate));
}

static void write_least_rate(const HsRecipe *recipe, char value[HS_RECIPE_VALUE])
{
    snprintf(value, HS_RECIPE_VALUE, "%.2g", recipe->learning_rate / 10);
}

const HsRecipeRule hs_recipe_rules[] = {
    { "model.family", write_family,
      "rotary positions, RMS norms and a gated MLP; the rates below were measured with it" },
    { "model.layers", write_layers, "the size as 12 layers width^2; see width" },
    { "model.width", write_width,
      "32 features a layer at a million parameters to 64 at 85 million, between the small recipes of nanoGPT and "
      "GPT-2; this proportion was not measured here" },
    { "model.heads", write_heads,
      "heads of 16 features below width 120, of 32 below 240, of 64 from there on; not measured here" },
    { "max_length", write_max_length, "256 below 10 million parameters, 512 below 60, then 1024; not measured here" },
    { "batch_size", write_batch_size,
      "a power of 2 near 2048 (tokens / 8 million)^0.383 tokens a step: on a million tokens steps of 512, 1024, 2048 "
      "and 4096 ended at 1.567, 1.573, 1.583 and 1.617; the power is nanochat's" },
    { "max_steps", write_max_steps,
      "10 tokens for each parameter of the blocks: with as much arithmetic 49 tokens each ended at 1.351, 10 at 1.346, "
      "4.4 at 1.401 and 1.3 at 1.521 (100k to 600k)" },
    { "learning_rate", write_rate,
      "of matrices, 1.7e-2 (width / 128)^-0.64 (steps / 60)^-0.43 (batch / 1024)^0.5, of a batch above 1024 no more "
      "than the tokens give by themselves: best of a sweep at widths 128, 256, 512: 1.7e-2, 1.1e-2, 7.0e-3, at 60, "
      "250, 1000 steps 2.9e-2, 2.0e-2, 8.8e-3, and at 250 steps of 1024, 4096, 16384 tokens 1.1e-2, 9.4e-3, 9.3e-3; "
      "half of it for adamw" },
    { "weight_decay", write_decay, "the default; not measured here" },
    { "optimizer.kind", write_optimizer,
      "in 0.6 of the steps at the loss of adamw, on nanoGPT's small recipe (bench/update_rules.sh)" },
    { HS_RECIPE_GROUPS, write_groups,
      "of the rest, 1.4e-2 (128 / width), with steps and batch as of matrices: best at widths 256 and 512: 7e-3 and "
      "2.4e-3, at 128 flat from 6e-3 to 1.6e-2" },
    { "schedule.kind", write_schedule,
      "warm-up, constant, decay; a cosine ended where it did, see wsd_decay_fraction" },
    { "schedule.warmup_steps", write_warmup_steps, "a twentieth of the steps; not measured here" },
    { "schedule.wsd_decay_fraction", write_decay_fraction,
      "of 1,000 steps: 1.573 with a decay over 0.8 of them, 1.578 over 0.65, 1.583 over 0.5, 1.612 over 0.2, a cosine "
      "1.582; between 0.5 and 0.8 nothing is decided" },
    { "schedule.wsd_shape", write_decay_shape, "a straight line; 1 - sqrt ended 0.001 higher over half of the steps" },
    { "schedule.min_learning_rate", write_min_rate, "down to nothing; not measured here" },
    { "memory.auto_fit", write_auto_fit,
      "the batch follows from the tokens; how much of it goes through the model at a time, from the memory" },
};
const int hs_recipe_rule_count = sizeof hs_recipe_rules / sizeof *hs_recipe_rules;

const HsRecipeRule hs_recipe_tuning_rules[] = {
    { "max_length", write_max_length, "512 tokens, or as many as the model has positions for" },
    { "batch_size", write_batch_size, "8,192 tokens a step, at most 32 sequences; not measured here" },
    { "learning_rate", write_rate,
      "2e-5 where all of the model is trained, ten times as much for adapters, as other programs have it; not measured "
      "here: trainer compare --grid finds a better one" },
    { "weight_decay", write_light_decay, "little: the weights are to stay near where they are" },
    { "optimizer.kind", write_adamw, "what the model was trained with, most likely" },
    { "schedule.kind", write_cosine, "warm-up, then half a wave down to a tenth" },
    { "schedule.warmup_steps", write_warmup_steps, "a twentieth of the steps" },
    { "schedule.min_learning_rate", write_least_rate, "a tenth of the peak" },
    { "memory.auto_fit", write_auto_fit,
      "how much of a batch goes through the model at a time follows from the memory" },
};
const int hs_recipe_tuning_rule_count = sizeof hs_recipe_tuning_rules / sizeof *hs_recipe_tuning_rules;

const char *hs_recipe_rate_reason(const HsRecipe *recipe)
{
    const HsRecipeRule *rule = recipe->size > 0 ? hs_recipe_rules : hs_recipe_tuning_rules;
    while (!hs_is(rule->key, "learning_rate"))
        rule++;
    return rule->reason;
}

const char *hs_recipe_reason(const char *dotted)
{
    for (int i = 0; i < hs_recipe_rule_count; i++)
        if (hs_is(hs_recipe_rules[i].key, dotted) ||
            (hs_is(hs_recipe_rules[i].key, HS_RECIPE_GROUPS) && strncmp(dotted, HS_RECIPE_GROUPS ".", 17) == 0))
            return hs_recipe_rules[i].reason;
    return NULL;
}
