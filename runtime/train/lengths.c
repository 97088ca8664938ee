/* SPDX-License-Identifier: MIT
 *
 * How many optimizer steps each task has, and where tasks end in a stream without boundaries.
 */
#include <math.h>
#include <stdlib.h>

#include "kernels/base/log.h"
#include "runtime/config/continual.h"
#include "runtime/train/run.h"

/* More than a counter of steps holds is no number of steps: hs_training_count_steps refuses it. */
static int64_t whole_steps(double steps)
{
    return steps <= HS_NO_BOUND ? (int64_t)steps : INT64_MAX;
}

/* Nothing that may be replayed in a task is to be retained: from earlier tasks or this one. */
static bool replays_nothing(const HsTraining *training, const HsReplayPlan *plan, int task)
{
    for (int earlier = 0; earlier < task + (plan->choice == HS_REPLAY_ANY); earlier++)
        if (hs_continual_retains(&training->continual_config, earlier))
            return false;
    return true;
}

/* A task that changes nothing is as long as it takes to see a replay buffer of it, or all of it. */
static int64_t known_steps(const HsTraining *training, int task, double new_rows)
{
    const int64_t windows = hs_dataset_windows(&training->data.tasks[task]);
    const int64_t buffer =
        hs_continual_replays(&training->continual_config) ? hs_config_buffer_size(training->config) : 1;
    const double steps = ceil((double)(buffer < windows ? buffer : windows) / new_rows);
    return steps > 1 ? (int64_t)steps : 1;
}

bool hs_training_is_known(const HsTraining *training, int task)
{
    return !training->lengths.one_phase && task < training->continual_config.known;
}

/* New sequences of a step, in the mean. */
static double new_rows_of(const HsTraining *training, int task)
{
    const HsReplayPlan run = hs_continual_replay_plan(&training->continual_config, training->rows_per_step);
    HsReplayPlan plan = hs_replay_plan_of_task(&run, task, 0);
    if (replays_nothing(training, &plan, task))
        plan.fraction = 0;
    return hs_replay_new_rows_per_step(&plan);
}

int64_t hs_training_task_steps(const HsTraining *training, int task)
{
    const HsConfig *config = training->config;
    const HsTaskConfig *own = &config->tasks[task];
    const double new_rows = new_rows_of(training, task);
    if (own->steps > 0)
        return own->steps;
    if (own->tokens > 0)
        return whole_steps((double)own->tokens / (new_rows * (double)config->training.max_length));
    if (own->epochs == 0 && hs_training_is_known(training, task))
        return known_steps(training, task, new_rows);
    if (own->epochs == 0 && config->training.max_steps > 0)
        return config->training.max_steps;
    double epochs = own->epochs > 0 ? own->epochs : config->training.max_epochs;
    return whole_steps(epochs * (double)hs_dataset_windows(&training->data.tasks[task]) / new_rows);
}

static HsStatus fail_short(const HsTraining *training, int task)
{
    char held[64] = "";
    if (training->has_data)
        snprintf(held, sizeof held, " (the data hold %lld)",
                 (long long)hs_dataset_windows(&training->data.tasks[task]));
    return hs_fail(HS_ECONFIG,
                   "task %s: its length is less than one step of %lld sequences%s: lower batch_size, raise max_epochs "
                   "or the task's epochs or tokens, or set max_steps or the task's steps",
                   training->config->tasks[task].name, (long long)training->rows_per_step, held);
}

/* A length of all tasks that none takes: max_steps on a command line is meant to make a run shorter. */
static void warn_unused_length(const HsConfig *config)
{
    for (int task = 0; task < config->task_count; task++) {
        const HsTaskConfig *own = &config->tasks[task];
        if (own->steps == 0 && own->tokens == 0 && own->epochs == 0)
            return;
    }
    const char *key = hs_config_is_set(config, "max_steps")    ? "max_steps"
                      : hs_config_is_set(config, "max_epochs") ? "max_epochs"
                                                               : NULL;
    const char *own = config->tasks[0].steps > 0 ? "steps" : config->tasks[0].tokens > 0 ? "tokens" : "epochs";
    if (key)
        hs_warn("%s changes nothing: each task has its length; set tasks.0.%s%s", key, own,
                config->task_count > 1 ? " and the others'" : "");
}

HsStatus hs_training_count_steps(HsTraining *training)
{
    for (int i = 0; training->has_data && i < training->data.count; i++)
        HS_TRY(hs_dataset_set_rows(&training->data.tasks[i], new_rows_of(training, i)));
    HsLengths *lengths = &training->lengths;
    const HsConfig *config = training->config;
    if (training->has_data)
        warn_unused_length(config);
    lengths->joint = hs_continual_mixes_tasks(&training->continual_config);
    lengths->unmarked = training->continual_config.unmarked;
    lengths->one_phase = lengths->joint || lengths->unmarked;
    lengths->phase_count = lengths->one_phase ? 1 : config->task_count;
    lengths->phase_steps = calloc((size_t)lengths->phase_count, sizeof *lengths->phase_steps);
    lengths->task_ends = calloc((size_t)config->task_count, sizeof *lengths->task_ends);
    if (!lengths->phase_steps || !lengths->task_ends)
        return hs_fail(HS_ENOMEM, "no memory for %d tasks", lengths->phase_count);
    for (int task = 0; task < config->task_count; task++) {
        int64_t steps = hs_training_task_steps(training, task);
        if (steps < 1)
            return fail_short(training, task);
        const double all = (double)lengths->total_steps + (double)steps;
        if (all > HS_NO_BOUND)
            return hs_fail(
                HS_ECONFIG,
                "task %s: with it the run has %.3g steps, more than can be counted: lower max_epochs, or the "
                "task's epochs or steps, or set max_steps",
                config->tasks[task].name, all);
        lengths->phase_steps[lengths->one_phase ? 0 : task] += steps;
        lengths->total_steps += steps;
        lengths->task_ends[task] = lengths->total_steps;
    }
    return HS_OK;
}

int64_t hs_training_steps_to_task_end(const HsTraining *training)
{
    const HsLengths *lengths = &training->lengths;
    for (int task = 0; lengths->unmarked && task + 1 < training->data.count; task++)
        if (lengths->task_ends[task] > training->state.task_steps)
            return lengths->task_ends[task] - training->state.task_steps;
    return INT64_MAX;
}

bool hs_training_at_task_end(const HsTraining *training)
{
    for (int task = 0; training->lengths.unmarked && task + 1 < training->data.count; task++)
        if (training->lengths.task_ends[task] == training->state.task_steps)
            return true;
    return false;
}
