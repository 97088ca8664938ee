/* SPDX-License-Identifier: MIT
 *
 * Settings that follow from a model's size and the number of tokens: the one table of rules, each with what was measured.
 * train.size fills a configuration in by it, and `trainer new` writes one.
 *
 *     size -> layers, width, heads, length;  tokens -> batch, steps;  width, batch, steps -> rate
 */
#ifndef HS_RUNTIME_CONFIG_RECIPE_H
#define HS_RUNTIME_CONFIG_RECIPE_H

#include "runtime/config/config.h"

/* Bounds of a size, in parameters of the blocks' matrices, and what is trained on for each of them. */
#define HS_RECIPE_LEAST_SIZE    1e4
#define HS_RECIPE_MOST_SIZE     1e11
#define HS_RECIPE_TOKENS_A_SIZE 10.0
/* The fewest for each where a text is short: four passes over 280 kB of Shakespeare ended at 1.668 nats a byte with ten
 * tokens a parameter, at 1.590 with 2.5 and at 1.542 with 1.25, the fewest that were tried. */
#define HS_RECIPE_LEAST_TOKENS_A_SIZE 1.25
/* Passes over a text up to which repeated tokens are worth nearly what new ones are. */
#define HS_RECIPE_MOST_EPOCHS 4.0

typedef struct HsRecipe {
    double size; /* parameters of the blocks' matrices, 12 layers width^2 */
    int64_t layers, heads, width;
    int64_t max_length, batch_size, accumulation;
    double tokens; /* to be trained on */
    int64_t steps, warmup_steps;
    double learning_rate;
    double embedding_rate; /* of embedding, head and norms */
    bool muon;             /* optimizer.kind; the rates of AdamW are others */
    bool all;              /* hs_recipe_of_tuning's */
} HsRecipe;

/* Parameters of the blocks' matrices in a shape; train.size is what it was chosen for. */
static inline double hs_recipe_blocks(int64_t layers, int64_t width)
{
    return 12 * (double)layers * (double)width * (double)width;
}

/* The shape nearest to a size, trained on `tokens` (0: HS_RECIPE_TOKENS_A_SIZE for each parameter). */
HsRecipe hs_recipe_of_size(double size, double tokens);
/* After one of width, batch, length or tokens was changed: the steps, the rate and the heads that follow. */
void hs_recipe_settle(HsRecipe *recipe);
/* The batch of sequences of max_length that the tokens ask for. */
void hs_recipe_choose_batch(HsRecipe *recipe);

/* The size for which `work`, tokens times size, is HS_RECIPE_TOKENS_A_SIZE tokens a parameter.  Where that is more than
 * the `most` tokens that a text is worth, the size with which these fill the work, and at least
 * HS_RECIPE_LEAST_TOKENS_A_SIZE of them a parameter. */
double hs_recipe_size_of_work(double work, double most);

/* Of weights that exist: length at most `positions` (0: any), one pass's tokens unknown yet; rate by `all`: all of the
 * model is trained, and not an adapter. */
HsRecipe hs_recipe_of_tuning(int64_t positions, bool all);

/* The rules' rates for the model, batch and update rule that a configuration has, over `steps` steps; those of
 * weights that exist where it names some (init_from).  errors: HS_ECONFIG for an update rule whose rate has no rule */
HsStatus hs_recipe_of_config(const HsConfig *config, double steps, HsRecipe *recipe);
/* The rule of learning_rate was measured at such a width, batch and number of steps. */
bool hs_recipe_rate_measured(const HsRecipe *recipe);
/* Why learning_rate is what it is. */
const char *hs_recipe_rate_reason(const HsRecipe *recipe);

/* "30M", "0.8M", "1.5B", "300k", "250000" -> parameters; false: it is no such text, or out of bounds. */
bool hs_recipe_read_size(const char *text, double *size);

/* Nats a byte that training by these rules ended at: on Python's library, in bytes, at ten tokens a parameter; by a law that
 * was off by HS_RECIPE_LAW_ERROR of the loss on a size that was left out.  false: it was not measured at this size, which
 * is not between HS_RECIPE_LAW_LEAST and HS_RECIPE_LAW_MOST. */
#define HS_RECIPE_LAW_ERROR 0.022
#define HS_RECIPE_LAW_LEAST 9e4
#define HS_RECIPE_LAW_MOST  6.5e5
bool hs_recipe_measured_loss(double size, double *loss);

enum { HS_RECIPE_VALUE = 96 };
typedef struct HsRecipeRule {
    const char *key;                                                    /* dotted */
    void (*write)(const HsRecipe *recipe, char value[HS_RECIPE_VALUE]); /* as YAML */
    const char *reason;
} HsRecipeRule;
extern const HsRecipeRule hs_recipe_rules[];
extern const int hs_recipe_rule_count;
/* Of weights that exist. */
extern const HsRecipeRule hs_recipe_tuning_rules[];
extern const int hs_recipe_tuning_rule_count;
/* The rule of optimizer.groups, whose value is the list. */
#define HS_RECIPE_GROUPS "optimizer.groups"
/* The reason of a key's rule; NULL: there is none. */
const char *hs_recipe_reason(const char *dotted);

/* --- recipe_adopt.c --- */

/* The values of train.size, for keys that the configuration does not give; nothing where it is empty.
 * errors: HS_ECONFIG for a size that is none, and next to model.shape or init_from */
HsStatus hs_config_adopt_size(HsConfig *config);
/* Of a run that continues: what train.size has filled in is what it was when the run began with that size, though the
 * length is another now.  *changed: some of it would have been otherwise.  errors: HS_ENOMEM */
HsStatus hs_config_keep_filled(HsConfig *config, const HsConfig *saved, bool *changed);
/* "model.layers 4, learning_rate 0.01, ...": what it has filled in; "" where train.size is empty. */
enum { HS_RECIPE_FILLED = 1024 };
const char *hs_config_filled_by_size(const HsConfig *config, char text[HS_RECIPE_FILLED]);

#endif
