/* SPDX-License-Identifier: MIT
 *
 * A trial of learning rates before the first step, where a strategy says between which its own lies (MER with tiny
 * interpolation rates).
 *
 *     weights as drawn -> { steps at the strategies' least rate x 10^(i/2) -> loss of the last of them -> set back } ...
 *
 * Each rate trains the first windows of the first task that changes the model from the same weights, after a warm-up of a quarter of them and without
 * a decay.  Rates are tried in rising order until one is clearly worse than the best so far: what is larger still is
 * worse yet.  The best is what the run takes.  Everything that a step changes is set back: weights, moments, the replay
 * buffer, counters, the place in the data; so a run that is killed here begins again with the same.
 */
#include <math.h>

#include "kernels/base/log.h"
#include "runtime/train/run.h"

/* Of the run's steps one in TRIAL_SHARE for each rate, in whole windows, and within these bounds. */
enum { TRIAL_SHARE = 64, LEAST_WINDOWS = 8, MOST_STEPS = 400 };
/* Nats by which a rate is clearly worse; the losses are means over a quarter of a trial. */
static const double CLEARLY = 0.1;

static int64_t trial_steps(const HsTraining *training)
{
    const HsReplayPlan plan = hs_continual_replay_plan(&training->continual_config, training->rows_per_step);
    const int64_t window = hs_replay_window_steps(&plan),
                  most = training->lengths.phase_steps[training->continual_config.known] / 4;
    int64_t steps = training->lengths.total_steps / TRIAL_SHARE;
    steps = steps < LEAST_WINDOWS * window ? LEAST_WINDOWS * window : steps;
    steps = steps > MOST_STEPS ? MOST_STEPS : steps;
    steps = steps > most ? most : steps;
    return steps < window ? window : steps / window * window;
}

/* A warm-up and then the peak: what decays is not at its rate for long enough to judge. */
static HsStatus hold_rate(HsTraining *training, int64_t steps)
{
    HsSchedule *schedule = &training->optimizer.schedule;
    return hs_schedule_init(schedule, "constant", schedule->peak, 0, steps / 4, steps, 0);
}

/* The mean loss of the last quarter; infinite of a rate that diverges. */
static HsStatus train(HsTraining *training, int64_t steps, double *mean)
{
    const int64_t counted = (steps + 3) / 4;
    double sum = 0;
    for (int64_t step = 0; step < steps; step++) {
        double loss;
        HsStepReport report;
        if (training->engine.comm->size == 1 && hs_run_stop_asked())
            return hs_fail(HS_EINTERRUPTED, "asked to stop");
        HS_TRY(hs_training_start_step(training));
        HS_TRY(hs_training_collect_step(training, &loss, &report));
        sum += step >= steps - counted ? loss : 0;
    }
    *mean = isfinite(sum) ? sum / (double)counted : INFINITY;
    return HS_OK;
}

/* What a trial begins with. */
typedef struct Beginning {
    HsTrainingState state;
    HsStepCounters counters; /* the optimizer's; the state's are of steps that were collected */
} Beginning;

static HsStatus set_back(HsTraining *training, const Beginning *before)
{
    HsContext *context = &training->engine.context;
    hs_stream_settle(training->stream);
    hs_stream_end_task(training->stream);
    hs_training_forget_graph(training);
    if (training->has_reservoir)
        hs_reservoir_clear(&training->reservoir);
    HS_TRY(hs_optimizer_reset_state(&training->optimizer, context, training->spans, training->span_count));
    HS_TRY(hs_training_start(training));
    HS_TRY(hs_training_ready_weights(training));
    training->state = before->state;
    training->optimizer.counters = before->counters;
    return HS_OK;
}

static HsStatus try_rate(HsTraining *training, double factor, int64_t steps, double *loss)
{
    const Beginning before = { .state = training->state, .counters = training->optimizer.counters };
    *loss = INFINITY;
    training->state.rate_found = factor;
    training->state.task = training->continual_config.known;
    HS_TRY(hs_training_begin_task(training));
    HS_TRY(hold_rate(training, steps));
    const HsStatus status = train(training, steps, loss);
    if (status != HS_OK && status != HS_ENUMERIC) {
        training->state = before.state; /* asked to stop: of the run nothing was trained */
        return status;
    }
    HS_TRY(set_back(training, &before));
    hs_info("trial: learning rate %.3g: loss %.3f after %lld steps",
            training->config->training.learning_rate * hs_continual_rate_scale(&training->continual_config).least *
                factor,
            *loss, (long long)steps);
    return HS_OK;
}

HsStatus hs_training_try_rates(HsTraining *training)
{
    const HsRateScale scale = hs_continual_rate_scale(&training->continual_config);
    const HsTrainingState *state = &training->state;
    if (scale.most <= scale.least || state->task > 0 || state->task_begun)
        return HS_OK;
    double best = INFINITY, found = 1;
    training->consolidating = true; /* a signal now: there is nothing to save yet */
    const int64_t steps = trial_steps(training);
    for (double factor = 1; factor * scale.least <= scale.most * (1 + 1e-9); factor *= sqrt(10.0)) {
        double loss;
        HS_TRY(try_rate(training, factor, steps, &loss));
        if (loss < best)
            found = factor;
        else if (loss > best + CLEARLY)
            break;
        best = fmin(best, loss);
    }
    training->consolidating = false;
    if (!isfinite(best))
        return hs_fail(HS_ENUMERIC, "the trial of learning rates diverges with each of them: lower learning_rate");
    training->state.rate_found = found;
    hs_info("trial: the learning rate is %.3g, %.3g times the one that is set",
            training->config->training.learning_rate * scale.least * found, scale.least * found);
    return HS_OK;
}
