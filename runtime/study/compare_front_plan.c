/* SPDX-License-Identifier: MIT
 *
 * Plans of a front's points, and the hours that their runs take.
 *
 * A run that is to come takes what the finished runs of its variant took; where there is none, its planned time times
 * what finished runs of other variants took over theirs; where no run is finished, its planned time: products and
 * parameters at the rates that this device measures, which small models are far from, so that it is "at least".
 */
#include "runtime/study/compare_front_plan.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "kernels/base/log.h"
#include "runtime/config/continual.h"
#include "runtime/record/progress.h"
#include "runtime/study/planner.h"
#include "runtime/study/process_apart.h"

/* --- by configurations --- */

static void name_strategies(const HsContinualConfig *continual, char text[HS_FRONT_STRATEGY_BYTES])
{
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < continual->strategy_count && used < HS_FRONT_STRATEGY_BYTES; i++)
        used += (size_t)snprintf(text + used, HS_FRONT_STRATEGY_BYTES - used, "%s%s", i > 0 ? "+" : "",
                                 continual->strategies[i]);
    if (continual->strategy_count == 0)
        snprintf(text, HS_FRONT_STRATEGY_BYTES, "none");
}

static HsStatus read_price(const HsConfig *config, HsFrontPrice *price)
{
    HsContinualConfig continual;
    HS_TRY(hs_config_continual(config, &continual));
    const bool mixes = hs_continual_mixes_tasks(&continual);
    *price = (HsFrontPrice){
        .all_text = mixes,
        .keeps_text = mixes || (hs_continual_replays(&continual) && !hs_continual_writes_rehearsal(&continual)),
        .buffer = hs_config_buffer_size(config),
        .length = config->training.max_length,
        .rows = hs_config_rows_per_step(config),
    };
    name_strategies(&continual, price->strategy);
    return HS_OK;
}

/* --- by plans, in a process apart --- */

typedef struct Planned {
    int64_t trainable;
    double seconds;
} Planned;

static double tokens_of(const HsTraining *training)
{
    double tokens = 0;
    for (int i = 0; i < training->data.count; i++)
        tokens += (double)training->data.tasks[i].train.count;
    return tokens;
}

static bool plan_variant(const HsTraining *training, const HsComparison *comparison, int variant, HsDeviceRates *rates,
                         Planned *planned)
{
    HsConfig config;
    HsTraining draft;
    HsMemoryPlan plan;
    if (hs_compare_load(comparison, variant, comparison->first_seed, 1, &config) != HS_OK)
        return false;
    const bool made = hs_training_draft(training, &config, &draft) == HS_OK;
    if (made) {
        hs_training_measure_plan(&draft, &plan);
        planned->trainable = hs_model_trainable_count(&draft.model);
        if (isnan(rates->flops)) { /* measured once */
            const size_t parameters = hs_planner_parameter_bytes(&plan), most = hs_training_memory_limit(training) / 8;
            *rates = hs_planner_rates(training, &(HsPlannerOptions){ 0 }, &training->precision,
                                      parameters < most ? parameters : most);
        }
        if (rates->flops > 0)
            planned->seconds = (double)training->lengths.total_steps * hs_memory_plan_seconds(&plan, rates);
        hs_training_release(&draft);
    }
    hs_config_deinit(&config);
    return made;
}

/* What is asked, and the answer. */
typedef struct Plans {
    const HsComparison *comparison;
    HsFrontText text;
    Planned planned[]; /* of each variant */
} Plans;

static void make_plans(void *user)
{
    Plans *plans = user;
    const HsComparison *comparison = plans->comparison;
    HsFrontText *text = &plans->text;
    static HsTraining training;
    HsConfig config;
    HsDeviceRates rates = { .flops = NAN };
    size_t bytes = 0;
    if (hs_compare_load(comparison, 0, comparison->first_seed, 1, &config) != HS_OK)
        return;
    if (hs_task_data_bytes(&config, &bytes) == HS_OK)
        text->bytes = (double)bytes;
    if (hs_planner_open(&config, &(HsPlannerOptions){ 0 }, &training) != HS_OK)
        return;
    if (training.has_data)
        text->tokens = tokens_of(&training);
    for (int i = 0; i < comparison->variants.count; i++)
        if (!plan_variant(&training, comparison, i, &rates, &plans->planned[i]))
            plans->planned[i] = (Planned){ 0 };
}

HsStatus hs_front_plan(const HsComparison *comparison, HsFrontPrice *prices, HsFrontText *text)
{
    const int count = comparison->variants.count;
    for (int i = 0; i < count; i++) {
        HsConfig config;
        HS_TRY(hs_compare_load(comparison, i, comparison->first_seed, 1, &config));
        const HsStatus status = read_price(&config, &prices[i]);
        hs_config_deinit(&config);
        HS_TRY(status);
    }
    const size_t bytes = sizeof(Plans) + (size_t)count * sizeof(Planned);
    Plans *plans = calloc(1, bytes);
    if (!plans)
        return hs_fail(HS_ENOMEM, "no memory to plan %d points", count);
    *plans = (Plans){ .comparison = comparison, .text = { NAN, NAN } };
    const bool made = hs_ask_apart(make_plans, plans, plans, bytes);
    *text = made ? plans->text : (HsFrontText){ NAN, NAN };
    for (int i = 0; i < count; i++) {
        prices[i].trainable = made ? plans->planned[i].trainable : 0;
        prices[i].planned_s = made ? plans->planned[i].seconds : 0;
    }
    free(plans);
    return HS_OK;
}

/* --- hours --- */

/* Means over finished runs: of a variant (-1: of all) their seconds, and seconds over planned ones.  NAN: there is
 * none. */
static void mean_times(const HsCompareRun *runs, int64_t count, int variant, const HsFrontPrice *prices,
                       double *seconds, double *ratio)
{
    double sum = 0, ratios = 0;
    int timed = 0, planned = 0;
    for (int64_t i = 0; i < count; i++) {
        const double took = runs[i].result.seconds, plan = prices[runs[i].variant].planned_s;
        if (!runs[i].found || !(took > 0) || (variant >= 0 && runs[i].variant != variant))
            continue;
        sum += took;
        timed++;
        ratios += plan > 0 ? took / plan : 0;
        planned += plan > 0;
    }
    *seconds = timed > 0 ? sum / timed : (double)NAN;
    *ratio = planned > 0 ? ratios / planned : (double)NAN;
}

/* Of one run that is to come.  NAN: nothing says. */
static double expected_s(const HsCompareRun *runs, int64_t count, int variant, const HsFrontPrice *prices)
{
    double own, own_ratio, all, all_ratio;
    const double plan = prices[variant].planned_s > 0 ? prices[variant].planned_s : (double)NAN;
    mean_times(runs, count, variant, prices, &own, &own_ratio);
    mean_times(runs, count, -1, prices, &all, &all_ratio);
    if (isfinite(own))
        return own;
    if (isfinite(all))
        return isfinite(all_ratio * plan) ? all_ratio * plan : all;
    return plan;
}

void hs_front_announce(const HsComparison *comparison, const HsCompareRun *runs, int64_t count, int64_t found,
                       const HsFrontPrice *prices)
{
    const int64_t seeds = comparison->options->seeds;
    char time[32];
    double total = 0;
    hs_info("the front: %d points, %" PRId64 " seed%s: %" PRId64 " runs, of which %" PRId64 " are finished and %" PRId64
            " are to be trained, %d at a time",
            comparison->variants.count, seeds, seeds == 1 ? "" : "s", count, found, count - found, comparison->jobs);
    if (found == count)
        return;
    for (int64_t i = 0; i < count; i++)
        if (!runs[i].found)
            total += expected_s(runs, count, runs[i].variant, prices);
    /* Runs that were timed had their share of the machine, as those to come; a plan's have all of it. */
    if (found > 0)
        total /= comparison->jobs;
    if (!isfinite(total)) {
        hs_info("how long they take is not known yet: the first runs will say");
        return;
    }
    hs_progress_format_time(total, time, sizeof time);
    if (found > 0)
        hs_info("they take about %s by the times of the finished runs", time);
    else
        hs_info(
            "they take at least %s by the planner, at the rates that this device measures; each run's end says more",
            time);
}
