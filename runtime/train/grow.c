/* SPDX-License-Identifier: MIT
 *
 * A run continues because its list of tasks became longer.
 *
 * A boundary consolidates, saves and evaluates after the last task as after any other, and all that is random is keyed
 * by a task's index, so the state at a checkpoint is that of the run which had the longer list from the start, to the
 * bit.  What is checked here is what would make that untrue: tasks that are not where they were, lengths that changed,
 * rates that depended on the length of the whole, tasks that were mixed.
 *
 *     tasks    a b c | d          c is finished, or any of them is in training
 *     matrix   untrained row      d is measured on the initial weights, before the checkpoint's come
 *              rows already there d is not measured, and never can be
 *              the latest row     again, with d, where the model has not moved since: forward transfer needs it
 */
#include <stdio.h>
#include <string.h>

#include "kernels/base/log.h"
#include "runtime/io/utf8.h"
#include "runtime/train/run.h"

/* --- the list against the checkpoint's --- */

static bool has_task(const HsConfig *config, const char *name)
{
    for (int i = 0; i < config->task_count; i++)
        if (hs_is(config->tasks[i].name, name))
            return true;
    return false;
}

/* Names distinguish tasks (check_task in runtime/config/check.c); `at` is the first place where they differ. */
static HsStatus refuse_list(const HsConfig *config, const HsConfig *saved, int at, const char *folder)
{
    const char *const was = saved->tasks[at].name;
    const char *const now = at < config->task_count ? config->tasks[at].name : NULL;
    const bool gone = !has_task(config, was), known = now && has_task(saved, now);
    const char *const mend = "tasks that a run had stay as they were, and new ones stand behind them";
    if (gone && (!now || known))
        return hs_fail(HS_ECONFIG,
                       "tasks.%d.name: task `%.60s` of %s was removed: put it back, or choose another out_dir; %s", at,
                       was, folder, mend);
    if (gone)
        return hs_fail(HS_ECONFIG,
                       "tasks.%d.name is `%.60s`, and was `%.60s` in %s: set it back, or choose another out_dir; %s",
                       at, now, was, folder, mend);
    if (!known)
        return hs_fail(HS_ECONFIG,
                       "tasks.%d.name: task `%.60s` was inserted before `%.60s`, which is task %d of %s: move it to "
                       "the end of tasks, or choose another out_dir; %s",
                       at, now, was, at, folder, mend);
    return hs_fail(HS_ECONFIG,
                   "tasks.%d.name is `%.60s`, and was `%.60s` in %s: the order of the tasks changed: set it back, or "
                   "choose another out_dir; %s",
                   at, now, was, folder, mend);
}

/* What a task left in the replay buffer, the importance or the adapters cannot be separated any more. */
static HsStatus check_retained(const HsConfig *config, const HsConfig *saved, const char *folder)
{
    for (int i = 0; i < saved->task_count; i++)
        if (config->tasks[i].retain != saved->tasks[i].retain)
            return hs_fail(HS_ECONFIG,
                           "tasks.%d.retain is %s, and was %s in %s: what protects task `%.60s`, or leaves it out, was "
                           "made so while it was trained. Set it back (appended tasks may have either value). To have "
                           "it otherwise, train the tasks from it on in another out_dir, with init_from a checkpoint "
                           "from before it",
                           i, config->tasks[i].retain ? "true" : "false", saved->tasks[i].retain ? "true" : "false",
                           folder, saved->tasks[i].name);
    return HS_OK;
}

/* It was trained, or it was not. */
static HsStatus check_known(const HsConfig *config, const HsConfig *saved, const char *folder)
{
    for (int i = 0; i < saved->task_count; i++)
        if (config->tasks[i].known != saved->tasks[i].known)
            return hs_fail(HS_ECONFIG, "tasks.%d.known is %s, and was %s in %s: set it back, or choose another out_dir",
                           i, config->tasks[i].known ? "true" : "false", saved->tasks[i].known ? "true" : "false",
                           folder);
    return HS_OK;
}

/* A task without its own length has the top level's: with another it would have been another task. */
static HsStatus check_lengths(const HsConfig *config, const HsConfig *saved, const char *folder)
{
    const bool by_steps = config->training.max_steps != saved->training.max_steps;
    const bool by_epochs = config->training.max_steps == 0 && config->training.max_epochs != saved->training.max_epochs;
    for (int i = 0; (by_steps || by_epochs) && i < saved->task_count; i++) {
        const HsTaskConfig *task = &saved->tasks[i];
        if (task->steps > 0 || task->tokens > 0 || task->epochs > 0)
            continue;
        return hs_fail(HS_ECONFIG,
                       "%s differs from %s, where task `%.60s` has its length from it, and tasks were appended: set it "
                       "back, and give the new tasks their own steps, tokens or epochs",
                       by_steps ? "max_steps" : "max_epochs", folder, task->name);
    }
    return HS_OK;
}

static const char *differing_length(const HsTaskConfig *now, const HsTaskConfig *was)
{
    return now->steps != was->steps ? "steps" : now->tokens != was->tokens ? "tokens" : "epochs";
}

/* A task's own length may be another while it is trained or before; and of the last task, with none behind it now, when
 * it has ended, too, as it is then opened again (hs_training_reopen). */
static HsStatus check_own_lengths(const HsRun *run, const HsConfig *saved, const char *folder)
{
    const HsTaskConfig *tasks = run->training.config->tasks;
    char file[HS_RUN_PATH];
    HsTrainingState state = { .task = -1 };
    for (int i = 0; i < saved->task_count; i++) {
        const HsTaskConfig *now = &tasks[i], *was = &saved->tasks[i];
        if (now->steps == was->steps && now->tokens == was->tokens && now->epochs == was->epochs)
            continue;
        const char *const key = differing_length(now, was);
        if (run->training.lengths.one_phase && run->training.config->task_count > 1)
            return hs_fail(HS_ECONFIG,
                           "tasks.%d.%s differs from %s, where all tasks are one training: set it back, or choose "
                           "another out_dir",
                           i, key, folder);
        if (state.task < 0)
            HS_TRY(hs_run_peek_numbers(folder, file, &state));
        if (i < state.task && (i < saved->task_count - 1 || run->appended > 0))
            return hs_fail(HS_ECONFIG,
                           "tasks.%d.%s differs from %s, where task `%.60s` has ended: set it back, or choose another "
                           "out_dir",
                           i, key, folder, was->name);
    }
    return HS_OK;
}

/* One schedule over all tasks, with rates that follow the number of steps. */
static bool rates_follow_total(const HsConfig *config)
{
    return hs_is(config->continual.schedule, "single") && !hs_is(config->schedule.kind, "constant") &&
           config->schedule.decay_steps == 0;
}

HsStatus hs_run_compare_tasks(HsRun *run, const HsConfig *saved, const char *folder)
{
    HsTraining *training = &run->training;
    const HsConfig *config = training->config;
    for (int i = 0; i < saved->task_count; i++)
        if (i >= config->task_count || !hs_is(config->tasks[i].name, saved->tasks[i].name))
            return refuse_list(config, saved, i, folder);
    HS_TRY(check_retained(config, saved, folder));
    HS_TRY(check_known(config, saved, folder));
    run->appended = config->task_count - saved->task_count;
    HS_TRY(check_own_lengths(run, saved, folder));
    if (run->appended == 0)
        return HS_OK;
    const char *const first = config->tasks[saved->task_count].name;
    if (training->lengths.joint)
        return hs_fail(HS_ECONFIG,
                       "continual.strategy: joint mixes all tasks from the first step on, and task `%.60s` is not in "
                       "%s: remove it, or train all tasks in a fresh out_dir",
                       first, folder);
    if (training->lengths.unmarked)
        return hs_fail(
            HS_ECONFIG,
            "continual.boundaries: none makes one training of all tasks, and task `%.60s` is not in %s: remove "
            "it, or train all tasks in a fresh out_dir",
            first, folder);
    HS_TRY(check_lengths(config, saved, folder));
    if (rates_follow_total(saved) && !hs_is(config->training.resume, "changed"))
        return hs_fail(HS_ECONFIG,
                       "continual.schedule: single with schedule.kind %s gave the steps of %s learning rates that "
                       "followed the length of all tasks, and task `%.60s` would change it.  To continue all the same, "
                       "with the rates of the new length from here on: resume=changed.  Else remove the task, or "
                       "train all tasks in a fresh out_dir",
                       saved->schedule.kind, folder, first);
    return hs_run_check_token_files(run);
}

/* --- the state --- */

/* Under an infinite schedule the rate comes down in the last task, which the list now has behind that one. */
static bool was_let_down(const HsRun *run)
{
    const HsTraining *training = &run->training;
    const HsTrainingState *state = &training->state;
    const int known = training->config->task_count - run->appended;
    if (strcmp(hs_training_schedule(training), "infinite") != 0)
        return false;
    return state->task >= known
               ? state->rate_let_down != 0
               : state->task == known - 1 &&
                     hs_training_comes_down(state->task_steps, training->lengths.phase_steps[state->task]);
}

/* For the log, and for the record that reports show. */
static void tell(HsRun *run)
{
    const HsConfig *config = run->training.config;
    const int known = config->task_count - run->appended;
    const size_t room = sizeof run->changes;
    char names[256] = "";
    size_t used = 0;
    for (int i = known; i < config->task_count && used < sizeof names; i++)
        used +=
            (size_t)snprintf(names + used, sizeof names - used, "%s%s", i > known ? ", " : "", config->tasks[i].name);
    names[hs_utf8_valid_prefix(names, strlen(names))] = '\0'; /* cut to fit, inside a character perhaps */
    hs_info("new tasks: %s; the run had %d until here, and continues as if they had been listed from the start%s",
            names, known,
            was_let_down(run)
                ? ", but for the learning rate: it came down at the end of what was the last task, and rises again"
                : "");
    used = strlen(run->changes);
    snprintf(run->changes + used, room - used, "%stasks: %s appended", used > 0 ? ", " : "", names);
    run->changes[hs_utf8_valid_prefix(run->changes, strlen(run->changes))] = '\0';
}

HsStatus hs_run_grow_state(HsRun *run)
{
    HsTraining *training = &run->training;
    HsTrainingState *state = &training->state;
    if (run->appended == 0)
        return HS_OK;
    tell(run);
    run->new_length = run->new_length || rates_follow_total(training->config);
    /* A run of one task keeps no matrix: its untrained row was measured just now, the task's own is still due. */
    if (training->data.count - run->appended == 1)
        state->matrix_rows = state->counters.applied_steps > 0;
    else if (!state->task_begun && state->task > 0 && state->matrix_rows == state->task + 1)
        state->matrix_rows--;
    hs_run_warn_appended(run);
    /* With one task its best checkpoint had no name but the run's, which is the next task's soon. */
    const bool one = training->data.count - run->appended == 1;
    return one && hs_training_records(training)
               ? hs_checkpoint_name_best(training->config->training.out_dir, HS_CHECKPOINT_BEST "-1")
               : HS_OK;
}
