/* SPDX-License-Identifier: MIT
 *
 * What evaluations decide.
 *
 *   best   the lowest validation loss of the task: where keep_best asks for it, the checkpoint of that instant is named
 *          `best`.  It is saved after the evaluation's record, so that the checkpoint knows of the evaluation.
 *   gain   a loss below that of the latest gain by more than early_stop.min_delta.  After early_stop.patience
 *          evaluations without one the task in training ends, as if its last step had been applied.
 *
 * Several tasks: each has its own best and its own patience.  At a task's end its entry of the matrix's row counts for
 * the best, and no more for the patience.  Whether a task has stalled follows from the state and the configuration, so
 * a resumed run decides as the undisturbed one did.
 */
#include <math.h>

#include "kernels/base/log.h"
#include "runtime/train/run.h"

void hs_training_judge(HsTraining *training, double loss, bool *best)
{
    HsTrainingState *state = &training->state;
    *best = loss < state->best_validation || (isnan(state->best_validation) && !isnan(loss));
    if (*best) {
        state->best_validation = loss;
        state->best_step = state->counters.applied_steps;
    }
    if (!state->task_begun) /* at a boundary nothing is left to end */
        return;
    const bool first = state->since_gain == 0 || isnan(state->gain_loss);
    if (first || loss < state->gain_loss - training->config->early_stop.min_delta) {
        state->gain_loss = loss;
        state->since_gain = 0;
    }
    state->since_gain++;
}

HsStatus hs_run_keep_best(HsRun *run, int task)
{
    return run->training.config->training.keep_best ? hs_run_save_best(run, task) : HS_OK;
}

bool hs_training_stalled(const HsTraining *training)
{
    const int64_t patience = training->config->early_stop.patience;
    return patience > 0 && training->state.since_gain > patience;
}

HsStatus hs_run_record_stall(HsRun *run)
{
    HsTraining *training = &run->training;
    HsTrainingState *state = &training->state;
    const HsMetricsStall stall = {
        .step = state->counters.applied_steps,
        .task = training->lengths.phase_count > 1 ? state->task : -1,
        .evaluations = state->since_gain - 1,
        .best_loss = state->best_validation,
        .best_step = state->best_step,
    };
    /* Losses since the latest record: the next task's are not to be mixed with them. */
    hs_training_start_losses(state);
    hs_info("early stop at step %lld: %s%s%lld evaluations in a row without a gain (early_stop.patience); the best "
            "validation loss is %.4f, at step %lld",
            (long long)stall.step, stall.task >= 0 ? training->config->tasks[stall.task].name : "",
            stall.task >= 0 ? ": " : "", (long long)stall.evaluations, stall.best_loss, (long long)stall.best_step);
    return hs_metrics_stall(run->metrics, &stall);
}
