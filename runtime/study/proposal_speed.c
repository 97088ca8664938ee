/* SPDX-License-Identifier: MIT
 *
 * How fast this machine trains what a proposal says: the proposal's own lines are loaded and trained from for about two
 * seconds, with nothing written.  And what it would take of the device's memory, by the planner.
 */
#include "runtime/study/proposal.h"

#include <math.h>
#include <stdlib.h>

#include "kernels/base/clock.h"
#include "kernels/base/log.h"
#include "runtime/study/planner.h"
#include "runtime/train/evaluate.h"
#include "runtime/train/training.h"

enum { UNTIMED_STEPS = 2, LEAST_STEPS = 3, MOST_STEPS = 400, EVALUATED_TOKENS = 8192 };
/* At most; of a short run a fiftieth is enough. */
static const double TIMED_S = 2, LEAST_TIMED_S = 0.3, TIMED_SHARE = 0.02, SLOW_S = 6;

/* --- the configuration of a measurement --- */

/* "tasks.0.train=[a, b]", of names that YAML could take for something else. */
static HsStatus add_list(HsStringList *overrides, int task, const HsStringList *files)
{
    size_t length = 0;
    char *text = NULL;
    FILE *const stream = open_memstream(&text, &length);
    if (!stream)
        return hs_fail(HS_ENOMEM, "no memory for a list of files");
    fprintf(stream, "tasks.%d.train=[", task);
    for (int i = 0; i < files->count; i++) {
        fputs(i > 0 ? ", " : "", stream);
        hs_proposal_quote(files->items[i], stream);
    }
    fputc(']', stream);
    fclose(stream);
    const HsStatus status = hs_string_list_add(overrides, "%s", text);
    free(text);
    return status;
}

/* Nothing is written, no text is kept, and no step but those that are timed is made. */
static HsStatus add_overrides(const HsProposal *proposal, int64_t rows, HsStringList *overrides)
{
    static const char *const fixed[] = { "data.cache=off",           "resume=never",
                                         "evaluation.every=0",       "logging.tensorboard=false",
                                         "logging.device_seconds=0", "checkpoint_freq=0" };
    for (int i = 0; i < proposal->request->override_count; i++)
        HS_TRY(hs_string_list_add(overrides, "%s", proposal->request->overrides[i]));
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
        HS_TRY(hs_string_list_add(overrides, "%s", fixed[i]));
    for (int i = 0; i < proposal->request->text_count; i++)
        if (proposal->texts[i].sample.count > 0)
            HS_TRY(add_list(overrides, i, &proposal->texts[i].sample));
    if (rows < proposal->recipe.batch_size)
        HS_TRY(hs_string_list_add(overrides, "batch_size=%lld", (long long)rows));
    return HS_OK;
}

static HsStatus load(const HsProposal *proposal, int64_t rows, HsConfig *config)
{
    HsStringList overrides = { 0 };
    char *text = NULL;
    HsStatus status = add_overrides(proposal, rows, &overrides);
    if (status == HS_OK)
        status = hs_proposal_text(proposal, &text);
    if (status == HS_OK)
        status = hs_config_parse(config, "proposal", text, strlen(text), overrides.count,
                                 (const char *const *)overrides.items);
    free(text);
    hs_string_list_deinit(&overrides);
    return status;
}

/* --- a short training --- */

static HsStatus time_steps(HsTraining *training, double wanted_s, HsProposalSpeed *speed)
{
    const double tokens = (double)training->rows_per_step * (double)training->config->training.max_length;
    const double first_s = hs_clock_s();
    double began_s = first_s, now_s = first_s;
    int steps = 0, timed = 0;
    for (; steps < MOST_STEPS; steps++) {
        double loss;
        HsStepReport report;
        HS_TRY(hs_training_step(training, &loss, &report));
        now_s = hs_clock_s();
        timed = steps + 1 - UNTIMED_STEPS;
        if (steps + 1 == UNTIMED_STEPS)
            began_s = now_s;
        /* A step of seconds says enough by itself. */
        if ((timed >= LEAST_STEPS && now_s - began_s >= wanted_s) || (timed >= 1 && now_s - first_s >= SLOW_S))
            break;
        if (timed <= 0 && now_s - first_s >= 2 * SLOW_S) {
            began_s = first_s;
            timed = steps + 1;
            break;
        }
    }
    speed->tokens_per_second = tokens * timed / (now_s - began_s);
    return HS_OK;
}

/* The loss of weights that exist, on the first text. */
static HsStatus evaluate(HsTraining *training, double *loss)
{
    const HsEvaluator evaluator = hs_training_evaluator(training);
    const int64_t windows = EVALUATED_TOKENS / training->config->training.max_length;
    HsEvaluation evaluation;
    HS_TRY(hs_evaluate_text(&evaluator, &training->data.tasks[0], windows > 0 ? windows : 1, &evaluation));
    *loss = evaluation.loss;
    return HS_OK;
}

static void read_figures(const HsTraining *training, HsProposalSpeed *speed)
{
    speed->parameters = (double)hs_model_parameter_count(&training->model);
    for (int i = 0; i < training->data.count && i < HS_PROPOSAL_TEXTS; i++)
        speed->tokens[i] = (double)training->data.tasks[i].train.count;
    snprintf(speed->device, sizeof speed->device, "%.200s", training->engine.why);
}

HsStatus hs_proposal_measure(const HsProposal *proposal, int64_t rows, bool want_loss, HsProposalSpeed *speed)
{
    HsConfig config;
    static HsTraining training; /* large; one at a time */
    *speed = (HsProposalSpeed){ .untrained_loss = NAN };
    HS_TRY(load(proposal, rows, &config));
    const double began_s = hs_clock_s(), share_s = TIMED_SHARE * 3600 * proposal->request->hours;
    const double wanted_s = fmin(fmax(share_s, LEAST_TIMED_S), TIMED_S);
    hs_log_set_level(HS_LOG_ERROR); /* its lines are of a run, and there is none */
    HsStatus status = hs_training_create(&config, &training, NULL);
    if (status == HS_OK) {
        read_figures(&training, speed);
        status = hs_training_begin_task(&training);
        speed->start_s = hs_clock_s() - began_s;
        if (status == HS_OK && want_loss)
            status = evaluate(&training, &speed->untrained_loss);
        if (status == HS_OK)
            status = time_steps(&training, wanted_s, speed);
        hs_training_destroy(&training);
    }
    hs_log_set_level(HS_LOG_INFO);
    hs_config_deinit(&config);
    return status;
}

HsStatus hs_proposal_plan(const HsProposal *proposal, double *bytes, double *limit)
{
    HsConfig config;
    static HsTraining training;
    HsMemoryPlan plan;
    const HsPlannerOptions options = { 0 };
    HS_TRY(load(proposal, 1, &config));
    hs_log_set_level(HS_LOG_ERROR);
    HsStatus status = hs_planner_open(&config, &options, &training);
    if (status == HS_OK)
        status = hs_training_plan(&training, &config, &plan);
    if (status == HS_OK) {
        *bytes = (double)plan.device_bytes;
        *limit = (double)hs_training_memory_limit(&training);
    }
    hs_training_destroy(&training);
    hs_log_set_level(HS_LOG_INFO);
    hs_config_deinit(&config);
    return status;
}
