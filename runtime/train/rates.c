/* SPDX-License-Identifier: MIT
 *
 * The learning rate over tasks: continual.schedule, and what strategies multiply a rate by.
 */
#include <math.h>
#include <string.h>

#include "kernels/base/log.h"
#include "runtime/train/run.h"

const char *hs_training_schedule(const HsTraining *training)
{
    const HsConfig *config = training->config;
    const bool decays = !hs_is(config->schedule.kind, "constant") && config->schedule.decay_steps == 0;
    if (!hs_is(config->continual.schedule, "auto"))
        return config->continual.schedule;
    /* An adapter that is drawn anew for each task has nothing that a rate or moments could be held for. */
    const bool holds =
        hs_continual_holds_rate(&training->continual_config) && !hs_continual_new_adapters(&training->continual_config);
    const int trained = training->lengths.phase_count - training->continual_config.known;
    return decays && holds && trained > 1 ? "infinite" : "fresh";
}

bool hs_training_keeps_moments(const HsTraining *training)
{
    const char *const word = training->config->continual.optimizer_state;
    return hs_is(word, "auto") ? hs_is(hs_training_schedule(training), "infinite") : hs_is(word, "keep");
}

/* The part of the last task in which an infinite schedule's rate is let down.  Four domains of real text lose 0.002 nats
 * where it is a fifth of the run, or a tenth. */
static const double LET_DOWN = 0.5;

/* The last step that is held. */
static int64_t held_until(int64_t steps)
{
    return (int64_t)((1 - LET_DOWN) * (double)steps);
}

bool hs_training_comes_down(int64_t step, int64_t steps)
{
    return step > held_until(steps);
}

int64_t hs_training_steps_to_let_down(const HsTraining *training)
{
    const HsLengths *lengths = &training->lengths;
    const HsTrainingState *state = &training->state;
    const bool last = state->task + 1 == lengths->phase_count;
    if (!last || lengths->phase_count < 2 || !hs_is(hs_training_schedule(training), "infinite"))
        return INT64_MAX;
    const int64_t at = held_until(lengths->phase_steps[state->task]);
    return at >= state->task_steps && at > 0 ? at - state->task_steps : INT64_MAX;
}

/* A task under an infinite schedule: up where it begins below the peak, held, and in the last one down. */
static HsStatus set_infinite(HsTraining *training, double peak)
{
    const HsConfig *config = training->config;
    const int task = (int)training->state.task;
    const int64_t length = training->lengths.phase_steps[task];
    const bool first = task <= training->continual_config.known, last = task + 1 == training->lengths.phase_count;
    const bool below = !first && training->state.rate_let_down != 0;
    const double rewarm = below ? ceil(config->continual.rewarm_fraction * (double)length) : 0;
    HsSchedule *schedule = &training->optimizer.schedule;
    HS_TRY(hs_schedule_init(schedule, last ? "wsd" : "constant", peak, config->schedule.min_learning_rate,
                            first ? config->schedule.warmup_steps : (int64_t)rewarm, length, LET_DOWN));
    if (below)
        schedule->warmup_start = config->schedule.min_learning_rate;
    return HS_OK;
}

/* Of the tasks that change nothing. */
static int64_t steps_before_training(const HsTraining *training)
{
    int64_t steps = 0;
    for (int task = 0; hs_training_is_known(training, task); task++)
        steps += training->lengths.phase_steps[task];
    return steps;
}

/* continual.schedule: which part of the run one pass of the schedule's shape covers. */
HsStatus hs_training_set_schedule(HsTraining *training)
{
    HsLengths *lengths = &training->lengths;
    const HsConfig *config = training->config;
    int task = (int)training->state.task;
    if (hs_training_is_known(training, task))
        return hs_schedule_init(&training->optimizer.schedule, "constant", 0, 0, 0, lengths->phase_steps[task], 0);
    const char *const over_tasks = hs_training_schedule(training);
    bool single = hs_is(over_tasks, "single");
    bool rewarm = hs_is(over_tasks, "rewarm") && task > training->continual_config.known;
    double own = lengths->one_phase ? 0 : config->tasks[task].learning_rate;
    double peak = own > 0 ? own : config->training.learning_rate;
    int64_t length = single ? lengths->total_steps - steps_before_training(training) : lengths->phase_steps[task];
    int64_t warmup = config->schedule.warmup_steps;
    if (rewarm)
        warmup = (int64_t)ceil(config->continual.rewarm_fraction * (double)length);
    int64_t decay = config->schedule.decay_steps > 0 ? config->schedule.decay_steps : length;
    HsSchedule *schedule = &training->optimizer.schedule;
    if (hs_is(over_tasks, "infinite"))
        HS_TRY(set_infinite(training, peak));
    else
        HS_TRY(hs_schedule_init(schedule, config->schedule.kind, peak, config->schedule.min_learning_rate, warmup,
                                decay, config->schedule.wsd_decay_fraction));
    HS_TRY(hs_schedule_set_decay(schedule, config->schedule.wsd_shape));
    if (rewarm) /* from where the last task's decay ended */
        schedule->warmup_start = config->schedule.min_learning_rate;
    return HS_OK;
}

double hs_training_rate_scale(const HsTraining *training)
{
    const double found = training->state.rate_found;
    return hs_continual_rate_scale(&training->continual_config).least * (isnan(found) ? 1.0 : found);
}
