/* SPDX-License-Identifier: MIT
 *
 * --grid learning_rate=auto: the value that the rules of train.size give for the configuration, then values around it.
 *
 *     measured width, batch and steps    r, r / sqrt 2, sqrt 2 r, r / 2, 2 r
 *     others                             r, r / 2, 2 r, r / 4, 4 r
 *
 * All are trained at full length unless --rungs says otherwise: the best rate falls with the number of steps, so that
 * short runs would choose too high a one.
 */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "kernels/base/log.h"
#include "runtime/config/recipe.h"
#include "runtime/config/table.h"
#include "runtime/study/compare_runs.h"
#include "runtime/study/planner.h"

/* Powers of the factor between two neighbours. */
static const int powers[] = { 0, -1, 1, -2, 2 };

/* Steps of a task in the mean, from the keys, else from the data. */
static HsStatus count_steps(HsConfig *config, double *steps)
{
    static HsTraining training; /* large */
    const HsPlannerOptions options = { 0 };
    hs_log_set_level(HS_LOG_ERROR);
    HsStatus status = hs_planner_open(config, &options, &training);
    *steps = (double)training.lengths.total_steps / config->task_count; /* the schedule is each task's */
    hs_training_destroy(&training);
    hs_log_set_level(HS_LOG_INFO);
    if (status == HS_OK && *steps < 1)
        status = hs_fail(HS_ECONFIG, "the number of steps is not known without the data, and the best rate depends on "
                                     "it: set max_steps or tasks.N.tokens, or list the values");
    return status;
}

/* "learning_rate=a,b,..." */
static HsStatus list_rates(const HsRecipe *recipe, HsStringList *grids)
{
    const double factor = hs_recipe_rate_measured(recipe) ? sqrt(2) : 2;
    char list[256] = "learning_rate=";
    for (size_t i = 0; i < sizeof powers / sizeof *powers; i++) {
        const size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, "%s%.2g", i > 0 ? "," : "",
                 recipe->learning_rate * pow(factor, powers[i]));
    }
    HS_TRY(hs_string_list_add(grids, "%s", list));
    if (recipe->size > 0)
        hs_info("--grid %s: the first is the rule's for width %" PRId64 ", %" PRId64 " steps and %s; %s", list,
                recipe->width, recipe->steps, recipe->muon ? "muon" : "adamw", hs_recipe_rate_reason(recipe));
    else
        hs_info("--grid %s: the first is the rule's for weights that exist; %s", list, hs_recipe_rate_reason(recipe));
    hs_info("its neighbours are a factor of %s apart, as %s", factor < 2 ? "sqrt 2" : "2",
            factor < 2 ? "the rule was measured at such a width, batch and length"
                       : "the rule is carried on to such a width, batch, length or update rule");
    return HS_OK;
}

static HsStatus read_rates(const HsCompareOptions *options, HsStringList *grids)
{
    HsConfig config;
    HsRecipe recipe;
    double steps = 0;
    HS_TRY(hs_config_load(&config, options->config_path, options->override_count, options->overrides));
    HsStatus status = config.training.init_from[0] == '\0' ? count_steps(&config, &steps) : HS_OK;
    if (status == HS_OK)
        status = hs_recipe_of_config(&config, steps, &recipe);
    hs_config_deinit(&config);
    if (status == HS_OK)
        return list_rates(&recipe, grids);
    return hs_error_prefix(status, "--grid " HS_GRID_RATES);
}

HsStatus hs_compare_take_rules(HsCompareOptions *options, HsStringList *grids)
{
    bool taken = false;
    for (int i = 0; i < options->grid_count; i++)
        if (strcmp(options->grids[i], HS_GRID_RATES) == 0) {
            HS_TRY(read_rates(options, grids));
            taken = true;
        } else {
            HS_TRY(hs_string_list_add(grids, "%s", options->grids[i]));
        }
    if (!taken)
        return HS_OK;
    options->grids = (const char *const *)grids->items;
    if (options->rungs == 0 && !options->front) {
        options->rungs = 1;
        hs_info("every run has the full length, as the best rate falls with the number of steps; --rungs says "
                "otherwise");
    }
    return HS_OK;
}
