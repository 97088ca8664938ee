/* SPDX-License-Identifier: MIT
 *
 * Early warning (evaluation.watch): an earlier task whose loss rises while another is trained is named while it happens.
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
 *     n                     the most that cost LOOK_SHARE of the task's training, whose step is three passes of its batches
 *                           (forward, and backward as two), at most LOOKS_MOST
 *
 * Shorter tasks have none.  What a look compares with is measured once, at the task's end.
 */
#include <math.h>
#include <stdlib.h>

#include "kernels/base/log.h"
#include "runtime/train/evaluate.h"
#include "runtime/train/trainer.h"

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

HsStatus hs_trainer_create_watch(HsTrainer *trainer)
{
    const size_t count = (size_t)trainer->data.count;
    trainer->watch.at_end = calloc(2 * count, sizeof *trainer->watch.at_end);
    if (!trainer->watch.at_end)
        return hs_fail(HS_ENOMEM, "no memory to watch %zu tasks", count);
    trainer->watch.warned = trainer->watch.at_end + count;
    for (size_t i = 0; i < count; i++)
        trainer->watch.at_end[i] = NAN;
    return HS_OK;
}

void hs_trainer_destroy_watch(HsTrainer *trainer)
{
    free(trainer->watch.at_end);
    trainer->watch = (HsTrainerWatch){ 0 };
}

static bool is_watched(const HsTrainer *trainer, int task)
{
    return hs_continual_retains(&trainer->continual_config, task);
}

static Place place_of(const HsTrainer *trainer)
{
    const HsTrainerState *state = &trainer->state;
    const bool over = state->task == trainer->phase_count;
    Place place = { .ended = trainer->joint ? 0 : (int)state->task,
                    .step = state->task_steps,
                    .steps = over ? state->task_steps : trainer->phase_steps[state->task] };
    for (int task = 0; trainer->unmarked && task + 1 < trainer->data.count; task++) {
        if (trainer->task_ends[task] > state->task_steps)
            break;
        place.ended = task + 1;
        place.step = state->task_steps - trainer->task_ends[task];
        place.steps = trainer->task_ends[task + 1] - trainer->task_ends[task];
    }
    return place;
}

/* By looks, and not by surveys. */
static bool takes_looks(const HsTrainer *trainer)
{
    const HsConfig *config = trainer->config;
    return trainer->watch.at_end && config->evaluation.watch && config->evaluation.all_tasks_every == 0 &&
           !trainer->joint;
}

static Looks looks_of(const HsTrainer *trainer, const Place *place)
{
    Looks looks = { .first = place->ended };
    if (!takes_looks(trainer) || !trainer->state.task_begun)
        return looks;
    const double batches = (double)trainer->rows_per_step / (double)trainer->config->training.batch_size;
    const double share = LOOK_SHARE * STEP_PASSES * batches * (double)place->steps;
    const double pays_for = share / LOOK_BATCHES; /* tasks in one look, looks at one task */
    int tasks = 0;
    while (looks.first > 0 && tasks + 1 <= pays_for) {
        looks.first--;
        tasks += is_watched(trainer, looks.first);
    }
    if (tasks == 0)
        return looks;
    looks.count = pays_for / tasks < LOOKS_MOST ? (int64_t)(pays_for / tasks) : LOOKS_MOST;
    looks.count = looks.count < place->steps ? looks.count : place->steps - 1;
    looks.period = place->steps / (looks.count + 1);
    return looks;
}

bool hs_trainer_look_due(const HsTrainer *trainer)
{
    const Place place = place_of(trainer);
    const Looks looks = looks_of(trainer, &place);
    return looks.count > 0 && place.step > 0 && place.step % looks.period == 0 &&
           place.step / looks.period <= looks.count &&
           trainer->state.looked_at != trainer->state.counters.applied_steps;
}

int64_t hs_trainer_steps_to_look(const HsTrainer *trainer)
{
    const Place place = place_of(trainer);
    const Looks looks = looks_of(trainer, &place);
    if (looks.count == 0 || place.step / looks.period >= looks.count)
        return INT64_MAX;
    return looks.period - place.step % looks.period;
}

/* Text that is kept would have helped, or more of it; the penalty's strength where there is one. */
static void advise(const HsTrainer *trainer, char *text, size_t size)
{
    const HsContinualConfig *config = &trainer->continual_config;
    const HsReplayPlan plan = hs_continual_replay_plan(config, trainer->rows_per_step);
    const HsStrategy *penalizes = hs_continual_penalizes(config);
    if (plan.fraction > 0)
        snprintf(text, size, "a larger replay.fraction (%g now) or replay.buffer_size", plan.fraction);
    else if (hs_continual_replays(config))
        snprintf(text, size, "continual.strategy er, whose batches hold replayed sequences");
    else if (penalizes)
        snprintf(text, size, "a larger %s, or er next to %s, with a replay.fraction of the text",
                 penalizes->strength_key, penalizes->name);
    else
        snprintf(text, size,
                 "continual.strategy er with a replay.fraction of the text, or generative, which keeps none");
}

/* The loss from which a task was learned.  What the model knew before the run it learned from nothing. */
static double loss_before(const HsTrainer *trainer, int task)
{
    return hs_trainer_is_known(trainer, task) ? log((double)trainer->model.vocabulary)
                                              : trainer->matrix.untrained[task];
}

static HsStatus warn(HsTrainer *trainer, int task, double at_end, double now)
{
    const HsTrainerState *state = &trainer->state;
    const char *const name = trainer->config->tasks[task].name;
    const Place place = place_of(trainer);
    const double left = 1 - (now - at_end) / (loss_before(trainer, task) - at_end);
    char advice[256];
    advise(trainer, advice, sizeof advice);
    hs_warn("task %s is being forgotten: its loss is %.4f at step %lld, after %lld steps of %s, and was %.4f when it "
            "ended; %.0f%% of what it had learned is left. What helps: %s",
            name, now, (long long)state->counters.applied_steps, (long long)place.step,
            trainer->config->tasks[place.ended].name, at_end, 100 * left, advice);
    return hs_metrics_forgetting(trainer->metrics, &(HsMetricsForgetting){ .step = state->counters.applied_steps,
                                                                           .task = place.ended,
                                                                           .name = name,
                                                                           .loss = now,
                                                                           .loss_at_end = at_end,
                                                                           .left = left });
}

/* at_end, now: losses on the same windows. */
static HsStatus judge(HsTrainer *trainer, int task, double at_end, double now)
{
    double *const warned = &trainer->watch.warned[task];
    const double learned = loss_before(trainer, task) - at_end, rise = now - at_end;
    if (!is_watched(trainer, task) || !(learned > 0) || !(rise > TENTH * learned) || rise < 2 * *warned)
        return HS_OK;
    *warned = rise;
    return warn(trainer, task, at_end, now);
}

HsStatus hs_trainer_watch_survey(HsTrainer *trainer, int task, double loss)
{
    const Place place = place_of(trainer);
    if (!trainer->watch.at_end || !trainer->config->evaluation.watch || task >= place.ended)
        return HS_OK;
    return judge(trainer, task, *hs_matrix_at(&trainer->matrix, task, task), loss);
}

static HsStatus measure(HsTrainer *trainer, int task, double *loss)
{
    const HsEvaluator evaluator = hs_trainer_evaluator(trainer);
    HsEvaluation evaluation;
    HS_TRY(hs_evaluate_text(&evaluator, &trainer->data.tasks[task], LOOK_BATCHES * trainer->config->training.batch_size,
                            &evaluation));
    *loss = evaluation.loss;
    return HS_OK;
}

HsStatus hs_trainer_look(HsTrainer *trainer)
{
    const Place place = place_of(trainer);
    const Looks looks = looks_of(trainer, &place);
    for (int task = looks.first; task < place.ended; task++) {
        const double at_end = trainer->watch.at_end[task];
        double now;
        if (isnan(at_end) || !is_watched(trainer, task)) /* it ended before there were looks */
            continue;
        HS_TRY(measure(trainer, task, &now));
        HS_TRY(judge(trainer, task, at_end, now));
    }
    trainer->state.looked_at = trainer->state.counters.applied_steps;
    return HS_OK;
}

HsStatus hs_trainer_look_at_end(HsTrainer *trainer, int task)
{
    if (!takes_looks(trainer) || !is_watched(trainer, task) || task + 1 == trainer->data.count)
        return HS_OK;
    return measure(trainer, task, &trainer->watch.at_end[task]);
}
