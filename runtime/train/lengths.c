/* SPDX-License-Identifier: MIT
 *
 * How many optimizer steps each task has, and where tasks end in a stream without boundaries.
 */
#include <math.h>
#include <stdlib.h>

#include "runtime/config/continual.h"
#include "runtime/train/trainer.h"

/* More than a counter of steps holds is no number of steps: hs_trainer_count_steps refuses it. */
static int64_t whole_steps(double steps)
{
    return steps <= HS_NO_BOUND ? (int64_t)steps : INT64_MAX;
}

/* Nothing that may be replayed in a task is to be retained: of earlier tasks, or of its own. */
static bool replays_nothing(const HsTrainer *trainer, const HsReplayPlan *plan, int task)
{
    for (int earlier = 0; earlier < task + (plan->choice == HS_REPLAY_ANY); earlier++)
        if (hs_continual_retains(&trainer->continual_config, earlier))
            return false;
    return true;
}

/* A task that changes nothing is as long as it takes to see a replay buffer of it, or all of it. */
static int64_t known_steps(const HsTrainer *trainer, int task, double new_rows)
{
    const int64_t windows = hs_dataset_windows(&trainer->data.tasks[task]);
    const int64_t buffer =
        hs_continual_replays(&trainer->continual_config) ? hs_config_buffer_size(trainer->config) : 1;
    const double steps = ceil((double)(buffer < windows ? buffer : windows) / new_rows);
    return steps > 1 ? (int64_t)steps : 1;
}

bool hs_trainer_is_known(const HsTrainer *trainer, int task)
{
    return !trainer->one_phase && task < trainer->continual_config.known;
}

int64_t hs_trainer_task_steps(const HsTrainer *trainer, int task)
{
    const HsConfig *config = trainer->config;
    const HsTaskConfig *own = &config->tasks[task];
    const HsReplayPlan run = hs_continual_replay_plan(&trainer->continual_config, trainer->rows_per_step);
    HsReplayPlan plan = hs_replay_plan_of_task(&run, task, 0);
    if (replays_nothing(trainer, &plan, task))
        plan.fraction = 0;
    double new_rows = hs_replay_new_rows_per_step(&plan);
    if (own->steps > 0)
        return own->steps;
    if (own->tokens > 0)
        return whole_steps((double)own->tokens / (new_rows * (double)config->training.max_length));
    if (own->epochs == 0 && hs_trainer_is_known(trainer, task))
        return known_steps(trainer, task, new_rows);
    if (own->epochs == 0 && config->training.max_steps > 0)
        return config->training.max_steps;
    double epochs = own->epochs > 0 ? own->epochs : config->training.max_epochs;
    return whole_steps(epochs * (double)hs_dataset_windows(&trainer->data.tasks[task]) / new_rows);
}

static HsStatus fail_short(const HsTrainer *trainer, int task)
{
    char held[64] = "";
    if (trainer->has_data)
        snprintf(held, sizeof held, " (the data hold %lld)", (long long)hs_dataset_windows(&trainer->data.tasks[task]));
    return hs_fail(HS_ECONFIG,
                   "task %s: its length is less than one step of %lld sequences%s: lower batch_size, raise max_epochs "
                   "or the task's epochs or tokens, or set max_steps or the task's steps",
                   trainer->config->tasks[task].name, (long long)trainer->rows_per_step, held);
}

HsStatus hs_trainer_count_steps(HsTrainer *trainer)
{
    const HsConfig *config = trainer->config;
    trainer->joint = hs_continual_mixes_tasks(&trainer->continual_config);
    trainer->unmarked = trainer->continual_config.unmarked;
    trainer->one_phase = trainer->joint || trainer->unmarked;
    trainer->phase_count = trainer->one_phase ? 1 : config->task_count;
    trainer->phase_steps = calloc((size_t)trainer->phase_count, sizeof *trainer->phase_steps);
    trainer->task_ends = calloc((size_t)config->task_count, sizeof *trainer->task_ends);
    if (!trainer->phase_steps || !trainer->task_ends)
        return hs_fail(HS_ENOMEM, "no memory for %d tasks", trainer->phase_count);
    for (int task = 0; task < config->task_count; task++) {
        int64_t steps = hs_trainer_task_steps(trainer, task);
        if (steps < 1)
            return fail_short(trainer, task);
        const double all = (double)trainer->total_steps + (double)steps;
        if (all > HS_NO_BOUND)
            return hs_fail(
                HS_ECONFIG,
                "task %s: with it the run has %.3g steps, more than can be counted: lower max_epochs, or the "
                "task's epochs or steps, or set max_steps",
                config->tasks[task].name, all);
        trainer->phase_steps[trainer->one_phase ? 0 : task] += steps;
        trainer->total_steps += steps;
        trainer->task_ends[task] = trainer->total_steps;
    }
    return HS_OK;
}

int64_t hs_trainer_steps_to_task_end(const HsTrainer *trainer)
{
    for (int task = 0; trainer->unmarked && task + 1 < trainer->data.count; task++)
        if (trainer->task_ends[task] > trainer->state.task_steps)
            return trainer->task_ends[task] - trainer->state.task_steps;
    return INT64_MAX;
}

bool hs_trainer_at_task_end(const HsTrainer *trainer)
{
    for (int task = 0; trainer->unmarked && task + 1 < trainer->data.count; task++)
        if (trainer->task_ends[task] == trainer->state.task_steps)
            return true;
    return false;
}
