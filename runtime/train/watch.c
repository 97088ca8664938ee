/* SPDX-License-Identifier: MIT
 *
 * Early warning (evaluation.watch): an earlier task is named as soon as its loss rises while another is trained.
 *
 *     rise     the loss now, less the loss when the task ended, on the same windows
 *     warned   when  rise > TENTH (untrained loss - loss when it ended),  a tenth of what the task had learned;
 *              and again each time that the rise has doubled since
 *
 * There is no allowance for noise, as there is none: dropout is off and the windows are the same, so equal weights have
 * equal losses.  That a rise matters is what the bound says, in the unit of what is at stake; replay that protects well
 * stays at a few hundredths of it.
 *
 * The losses come from surveys, where evaluation.all_tasks_every asks for them, and are compared with the matrix.  Where it
 * does not, a task of S steps has n looks, at S/(n+1), 2S/(n+1), ..., each at LOOK_BATCHES of every task that has ended:
 *
 *     batches of one look   LOOK_BATCHES m,  of m tasks: as many of the latest as a single look can pay for
 *     n                     the most that cost LOOK_SHARE of the task's training; a step is three passes of its batches
 *                           (forward, and backward as two), at most LOOKS_MOST
 *
 * Shorter tasks have none.  What a look compares with is measured once, at the task's end.
 */
#include <math.h>
#include <stdlib.h>

#include "kernels/base/log.h"
#include "runtime/train/evaluate.h"
#include "runtime/train/run.h"

enum { LOOK_BATCHES = 4, LOOKS_MOST = 32, STEP_PASSES = 3 };
static const double TENTH = 0.1, LOOK_SHARE = 0.01;

/* Where the training stands in the task that it is at. */
typedef struct Place {
    int ended;           /* tasks that are over */
    int64_t step, steps; /* applied of the task so far, and in all */
} Place;

/* The looks of that task. */
typedef struct Looks {
    int64_t period, count; /* at `period`, 2 `period`, .. `count` `period` of its steps; count 0: none */
    int first;             /* of the tasks that are over, from this one on */
} Looks;

HsStatus hs_run_create_watch(HsRun *run)
{
    const size_t count = (size_t)run->training.data.count;
    run->watch.at_end = calloc(2 * count, sizeof *run->watch.at_end);
    if (!run->watch.at_end)
        return hs_fail(HS_ENOMEM, "no memory to watch %zu tasks", count);
    run->watch.warned = run->watch.at_end + count;
    for (size_t i = 0; i < count; i++)
        run->watch.at_end[i] = NAN;
    return HS_OK;
}

void hs_run_destroy_watch(HsRun *run)
{
    free(run->watch.at_end);
    run->watch = (HsRunWatch){ 0 };
}

static bool is_watched(const HsTraining *training, int task)
{
    return hs_continual_retains(&training->continual_config, task);
}

static Place place_of(const HsTraining *training)
{
    const HsLengths *lengths = &training->lengths;
    const HsTrainingState *state = &training->state;
    const bool over = state->task == lengths->phase_count;
    Place place = { .ended = lengths->joint ? 0 : (int)state->task,
                    .step = state->task_steps,
                    .steps = over ? state->task_steps : lengths->phase_steps[state->task] };
    for (int task = 0; lengths->unmarked && task + 1 < training->data.count; task++) {
        if (lengths->task_ends[task] > state->task_steps)
            break;
        place.ended = task + 1;
        place.step = state->task_steps - lengths->task_ends[task];
        place.steps = lengths->task_ends[task + 1] - lengths->task_ends[task];
    }
    return place;
}

/* By looks, and not by surveys. */
static bool takes_looks(const HsRun *run)
{
    const HsConfig *config = run->training.config;
    return run->watch.at_end && config->evaluation.watch && config->evaluation.all_tasks_every == 0 &&
           !run->training.lengths.joint;
}

static Looks looks_of(const HsRun *run, const Place *place)
{
    const HsTraining *training = &run->training;
    Looks looks = { .first = place->ended };
    if (!takes_looks(run) || !training->state.task_begun)
        return looks;
    const double batches = (double)training->rows_per_step / (double)training->config->training.batch_size;
    const double share = LOOK_SHARE * STEP_PASSES * batches * (double)place->steps;
    const double pays_for = share / LOOK_BATCHES; /* tasks in one look, looks at one task */
    int tasks = 0;
    while (looks.first > 0 && tasks + 1 <= pays_for) {
        looks.first--;
        tasks += is_watched(training, looks.first);
    }
    if (tasks == 0)
        return looks;
    looks.count = pays_for / tasks < LOOKS_MOST ? (int64_t)(pays_for / tasks) : LOOKS_MOST;
    looks.count = looks.count < place->steps ? looks.count : place->steps - 1;
    looks.period = place->steps / (looks.count + 1);
    return looks;
}

bool hs_run_look_due(const HsRun *run)
{
    const HsTraining *training = &run->training;
    const Place place = place_of(training);
    const Looks looks = looks_of(run, &place);
    return looks.count > 0 && place.step > 0 && place.step % looks.period == 0 &&
           place.step / looks.period <= looks.count &&
           training->state.looked_at != training->state.counters.applied_steps;
}

int64_t hs_run_steps_to_look(const HsRun *run)
{
    const Place place = place_of(&run->training);
    const Looks looks = looks_of(run, &place);
    if (looks.count == 0 || place.step / looks.period >= looks.count)
        return INT64_MAX;
    return looks.period - place.step % looks.period;
}

/* Text that is kept would have helped, or more of it; the penalty's strength where there is one. */
static void advise(const HsTraining *training, char *text, size_t size)
{
    const HsContinualConfig *config = &training->continual_config;
    const HsReplayPlan plan = hs_continual_replay_plan(config, training->rows_per_step);
    const HsStrategy *penalizes = hs_continual_penalizes(config);
    if (plan.fraction > 0)
        snprintf(text, size, "a larger replay.fraction (%g now) or replay.buffer_size", plan.fraction);
    else if (hs_continual_replays(config))
        snprintf(text, size, "continual.strategy er, with replayed sequences in its batches");
    else if (penalizes)
        snprintf(text, size, "a larger %s, or er next to %s, with a replay.fraction of the text",
                 penalizes->strength_key, penalizes->name);
    else
        snprintf(text, size,
                 "continual.strategy er with a replay.fraction of the text, or generative, which keeps none");
}

/* The loss from which a task was learned.  What the model knew before the run it learned from nothing. */
static double loss_before(const HsRun *run, int task)
{
    return hs_training_is_known(&run->training, task) ? log((double)run->training.model.vocabulary)
                                                      : run->matrix.untrained[task];
}

static HsStatus warn(HsRun *run, int task, double at_end, double now)
{
    HsTraining *training = &run->training;
    const HsTrainingState *state = &training->state;
    const char *const name = training->config->tasks[task].name;
    const Place place = place_of(training);
    const double left = 1 - (now - at_end) / (loss_before(run, task) - at_end);
    char advice[256];
    advise(training, advice, sizeof advice);
    hs_warn("task %s is being forgotten: its loss is %.4f at step %lld, after %lld steps of %s, and was %.4f when it "
            "ended; %.0f%% of what it had learned is left. What helps: %s",
            name, now, (long long)state->counters.applied_steps, (long long)place.step,
            training->config->tasks[place.ended].name, at_end, 100 * left, advice);
    return hs_metrics_forgetting(run->metrics, &(HsMetricsForgetting){ .step = state->counters.applied_steps,
                                                                       .task = place.ended,
                                                                       .name = name,
                                                                       .loss = now,
                                                                       .loss_at_end = at_end,
                                                                       .left = left });
}

/* at_end, now: losses on the same windows. */
static HsStatus judge(HsRun *run, int task, double at_end, double now)
{
    double *const warned = &run->watch.warned[task];
    const double learned = loss_before(run, task) - at_end, rise = now - at_end;
    if (!is_watched(&run->training, task) || !(learned > 0) || !(rise > TENTH * learned) || rise < 2 * *warned)
        return HS_OK;
    *warned = rise;
    return warn(run, task, at_end, now);
}

HsStatus hs_run_watch_survey(HsRun *run, int task, double loss)
{
    const Place place = place_of(&run->training);
    if (!run->watch.at_end || !run->training.config->evaluation.watch || task >= place.ended)
        return HS_OK;
    return judge(run, task, *hs_matrix_at(&run->matrix, task, task), loss);
}

static HsStatus measure(HsTraining *training, int task, double *loss)
{
    const HsEvaluator evaluator = hs_training_evaluator(training);
    HsEvaluation evaluation;
    HS_TRY(hs_training_show_averages(training));
    HS_TRY(hs_training_hide_averages(training, hs_evaluate_text(&evaluator, &training->data.tasks[task],
                                                                LOOK_BATCHES * training->config->training.batch_size,
                                                                &evaluation)));
    *loss = evaluation.loss;
    return HS_OK;
}

HsStatus hs_run_look(HsRun *run)
{
    HsTraining *training = &run->training;
    const Place place = place_of(training);
    const Looks looks = looks_of(run, &place);
    for (int task = looks.first; task < place.ended; task++) {
        const double at_end = run->watch.at_end[task];
        double now;
        if (isnan(at_end) || !is_watched(training, task)) /* it ended before there were looks */
            continue;
        HS_TRY(measure(training, task, &now));
        HS_TRY(judge(run, task, at_end, now));
    }
    training->state.looked_at = training->state.counters.applied_steps;
    return HS_OK;
}

HsStatus hs_run_look_at_end(HsRun *run, int task)
{
    HsTraining *training = &run->training;
    if (!takes_looks(run) || !is_watched(training, task) || task + 1 == training->data.count)
        return HS_OK;
    return measure(training, task, &run->watch.at_end[task]);
}
