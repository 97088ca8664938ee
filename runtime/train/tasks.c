/* SPDX-License-Identifier: MIT
 *
 * One task after another.
 *
 *     untrained row -> { begin: schedule, moments, strategies, stream -> steps -> finish: consolidate, save, row } ...
 *
 * A boundary's checkpoint is saved after the strategies have consolidated and before the tasks are evaluated: a run
 * that died in the evaluation lacks a row and nothing else.  Joint training is one phase over all tasks, with one row,
 * the last.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base/log.h"
#include "runtime/train/evaluate.h"
#include "runtime/train/trainer.h"

static bool is(const char *value, const char *word)
{
    return strcmp(value, word) == 0;
}

HsStatus hs_trainer_begin_task(HsTrainer *trainer)
{
    const HsConfig *config = trainer->config;
    HsTrainerState *state = &trainer->state;
    HsContext *context = &trainer->engine.context;
    int task = (int)state->task;
    hs_trainer_forget_graph(trainer);
    HS_TRY(hs_trainer_set_schedule(trainer));
    if (!state->task_begun) {
        state->task_begun = 1;
        state->task_steps = state->since_gain = 0;
        state->position = (HsStreamPosition){ 0 };
        if (task > 0) {
            state->best_validation = NAN;
            const bool first = task == trainer->continual_config.known; /* that changes the model */
            if (first || !is(hs_trainer_schedule(trainer), "single"))
                trainer->optimizer.counters.schedule_steps = 0;
            if (first || !hs_trainer_keeps_moments(trainer))
                HS_TRY(hs_optimizer_reset_state(&trainer->optimizer, context, trainer->spans, trainer->span_count));
        }
        HS_TRY(hs_trainer_meet_task(trainer, task));
        HS_TRY(hs_continual_begin_task(trainer->continual, context, task));
        HS_TRY(hs_trainer_take_teacher(trainer, task));
        HS_TRY(hs_trainer_renew_adapters(trainer, task));
        HS_TRY(hs_trainer_write_rehearsal(trainer, task));
    }
    if (trainer->phase_count > 1)
        hs_info("task %d of %d: %s, %lld steps%s", task + 1, trainer->phase_count, config->tasks[task].name,
                (long long)trainer->phase_steps[task],
                hs_trainer_is_known(trainer, task) ? ", known already: no weight changes" : "");
    return hs_stream_begin_task(trainer->stream, task, &state->position);
}

static HsStatus evaluate(HsTrainer *trainer, int task, HsEvaluation *evaluation)
{
    const HsConfig *config = trainer->config;
    const HsEvaluator evaluator = hs_trainer_evaluator(trainer);
    return hs_evaluate(&evaluator, &trainer->data.tasks[task], config->evaluation.batches * config->training.batch_size,
                       evaluation);
}

/* Means over tasks; of accuracies over those that have items. */
static HsStatus evaluate_mean(HsTrainer *trainer, int first, int count, HsMetricsRecord *record)
{
    int with_items[HS_ITEM_SET_COUNT] = { 0 };
    double *accuracies[] = { &record->accuracy_seen, &record->accuracy_unseen };
    record->val_loss = record->entropy_floor = record->bits_per_byte = 0;
    for (int i = first; i < first + count; i++) {
        HsEvaluation own;
        HS_TRY(evaluate(trainer, i, &own));
        record->val_loss += own.loss / count;
        record->bits_per_byte += hs_bits_per_byte(own.loss, own.bytes_per_token) / count;
        record->entropy_floor += trainer->data.tasks[i].validation.entropy_floor / count;
        for (int set = 0; set < HS_ITEM_SET_COUNT; set++)
            if (own.items[set] > 0) /* a running mean */
                *accuracies[set] = with_items[set]++ == 0
                                       ? own.accuracy[set]
                                       : *accuracies[set] + (own.accuracy[set] - *accuracies[set]) / with_items[set];
    }
    return HS_OK;
}

HsStatus hs_trainer_evaluate_task(HsTrainer *trainer, int task)
{
    /* Where one training is on every task the mean stands for all. */
    HsMetricsRecord record = hs_trainer_record(trainer, "eval");
    HS_TRY(
        evaluate_mean(trainer, trainer->one_phase ? 0 : task, trainer->one_phase ? trainer->data.count : 1, &record));
    trainer->state.evaluated_at = trainer->state.counters.applied_steps;
    bool best;
    hs_trainer_judge(trainer, record.val_loss, &best);
    record.task = trainer->phase_count > 1 ? task : -1;
    HS_TRY(hs_metrics_record(trainer->metrics, &record));
    return best ? hs_trainer_keep_best(trainer, task) : HS_OK;
}

HsStatus hs_trainer_survey(HsTrainer *trainer)
{
    const int count = trainer->data.count;
    HsMetricsTask *tasks = calloc((size_t)count, sizeof *tasks);
    HsStatus status = tasks ? HS_OK : hs_fail(HS_ENOMEM, "no memory for the figures of %d tasks", count);
    for (int i = 0; i < count && status == HS_OK; i++) {
        HsEvaluation own;
        status = evaluate(trainer, i, &own);
        if (status == HS_OK)
            tasks[i] = (HsMetricsTask){ .name = trainer->config->tasks[i].name,
                                        .loss = own.loss,
                                        .accuracy_seen = own.accuracy[HS_ITEMS_SEEN],
                                        .accuracy_unseen = own.accuracy[HS_ITEMS_UNSEEN] };
    }
    if (status == HS_OK) {
        trainer->state.surveyed_at = trainer->state.counters.applied_steps;
        status = hs_metrics_tasks(trainer->metrics, trainer->state.surveyed_at, tasks, count);
    }
    for (int i = 0; i < count && status == HS_OK; i++)
        status = hs_trainer_watch_survey(trainer, i, tasks[i].loss);
    free(tasks);
    return status;
}

/* What the task's own evaluations measure, out of a row. */
static double trained_loss(const HsTrainer *trainer, int row)
{
    const HsMatrix *matrix = &trainer->matrix;
    double mean = 0;
    for (int task = 0; task < matrix->tasks; task++)
        mean += *hs_matrix_at(matrix, row, task) / matrix->tasks;
    return trainer->one_phase ? mean : *hs_matrix_at(matrix, row, row);
}

/* Row -1: the untrained model. */
static HsStatus evaluate_cell(HsTrainer *trainer, int row, int task)
{
    HsMatrix *matrix = &trainer->matrix;
    HsEvaluation own;
    HS_TRY(evaluate(trainer, task, &own));
    *(row < 0 ? &matrix->untrained[task] : hs_matrix_at(matrix, row, task)) = own.loss;
    matrix->bytes_per_token[task] = own.bytes_per_token;
    for (int set = 0; set < HS_ITEM_SET_COUNT; set++)
        *hs_matrix_accuracy(matrix, set, row, task) = own.accuracy[set];
    return HS_OK;
}

HsStatus hs_trainer_measure_untrained(HsTrainer *trainer, int first)
{
    HS_TRY(hs_trainer_ready_weights(trainer));
    for (int task = first; task < trainer->matrix.tasks; task++)
        HS_TRY(evaluate_cell(trainer, -1, task));
    return HS_OK;
}

/* The next row of the matrix; the first is the untrained model's. */
static HsStatus evaluate_row(HsTrainer *trainer)
{
    HsMatrix *matrix = &trainer->matrix;
    int row = (int)trainer->state.matrix_rows - 1;
    if (trainer->joint && row >= 0)
        row = matrix->tasks - 1;
    const bool own = is(trainer->config->evaluation.matrix, "own") && row >= 0 && row + 1 < matrix->tasks;
    for (int task = own ? row : 0; task < (own ? row + 1 : matrix->tasks); task++)
        HS_TRY(evaluate_cell(trainer, row, task));
    if (row >= 0)
        HS_TRY(hs_trainer_look_at_end(trainer, row));
    trainer->state.matrix_rows++;
    trainer->state.evaluated_at = trainer->state.surveyed_at = trainer->state.counters.applied_steps;
    bool print = row >= 0 && !is(trainer->config->logging.progress, "none"), best = false;
    if (row >= 0)
        hs_trainer_judge(trainer, trained_loss(trainer, row), &best);
    HS_TRY(hs_metrics_matrix(trainer->metrics, trainer->state.counters.applied_steps, row, matrix, print));
    return best ? hs_trainer_keep_best(trainer, trainer->one_phase ? 0 : row) : HS_OK;
}

static bool evaluation_due(const HsTrainer *trainer)
{
    const HsTrainerState *state = &trainer->state;
    const int64_t every = trainer->config->evaluation.every, step = state->counters.applied_steps;
    const bool done = state->task == trainer->phase_count;
    /* A task's last step leaves it to the boundary, which a checkpoint before the Fisher is still ahead of. */
    if (!done && state->task_begun && state->task_steps >= trainer->phase_steps[state->task])
        return false;
    return step > 0 && (done || (every > 0 && step % every == 0));
}

/* Within a task: at its end the matrix's row, or the only task's own evaluation, is the record of every task. */
static bool survey_due(const HsTrainer *trainer)
{
    const HsTrainerState *state = &trainer->state;
    const int64_t every = trainer->config->evaluation.all_tasks_every, step = state->counters.applied_steps;
    if (every == 0 || step == 0 || step % every != 0 || state->surveyed_at == step || !state->task_begun)
        return false;
    return state->task_steps < trainer->phase_steps[state->task];
}

/* Rows that are due by now, the untrained model's counted in. */
static int64_t rows_due(const HsTrainer *trainer)
{
    const HsTrainerState *state = &trainer->state;
    int64_t ended = state->task;
    if (trainer->unmarked && state->task > 0)
        ended = trainer->data.count;
    for (int task = 0; trainer->unmarked && state->task == 0 && task + 1 < trainer->data.count; task++)
        ended += trainer->task_ends[task] <= state->task_steps;
    return ended + 1;
}

HsStatus hs_trainer_evaluate_owed(HsTrainer *trainer)
{
    const HsTrainerState *state = &trainer->state;
    if (trainer->has_matrix && state->matrix_rows < rows_due(trainer))
        return evaluate_row(trainer);
    if (state->evaluated_at != state->counters.applied_steps && evaluation_due(trainer)) {
        int last = trainer->phase_count - 1;
        HS_TRY(hs_trainer_evaluate_task(trainer, state->task < last ? (int)state->task : last));
    }
    if (survey_due(trainer))
        return hs_trainer_survey(trainer);
    return hs_trainer_look_due(trainer) ? hs_trainer_look(trainer) : HS_OK;
}

HsStatus hs_trainer_finish_task(HsTrainer *trainer)
{
    HsTrainerState *state = &trainer->state;
    trainer->consolidating = true;
    hs_stream_settle(trainer->stream);
    state->position = hs_stream_position(trainer->stream);
    hs_stream_end_task(trainer->stream);
    hs_trainer_forget_graph(trainer);
    HS_TRY(hs_trainer_consolidate(trainer, (int)state->task));
    hs_trainer_note_openings(trainer, (int)state->task);
    state->task++;
    state->rate_let_down = !is(hs_trainer_schedule(trainer), "infinite") || state->task == trainer->phase_count;
    state->task_begun = 0;
    trainer->consolidating = false;
    HS_TRY(hs_trainer_save(trainer));
    return hs_trainer_evaluate_owed(trainer);
}

HsStatus hs_trainer_reopen(HsTrainer *trainer)
{
    HsTrainerState *state = &trainer->state;
    int last = trainer->phase_count - 1;
    if (state->task <= last || trainer->phase_steps[last] <= state->task_steps)
        return HS_OK;
    if (hs_trainer_stalled(trainer)) {
        hs_info("the run ended early at step %lld: a larger early_stop.patience, or 0, goes on with it",
                (long long)state->counters.applied_steps);
        return HS_OK;
    }
    /* It has closed the task's books: going on would count it twice. */
    const HsStrategy *closed = hs_continual_keeps_state(&trainer->continual_config);
    if (closed)
        return hs_fail(HS_ECONFIG,
                       "%s is finished, and a run with strategy %s cannot be made longer: set the length back, append "
                       "a task to go on with, or start in a fresh out_dir",
                       trainer->config->training.out_dir, closed->name);
    state->task = last;
    state->task_begun = 1;
    /* The last row is measured anew, those before it are not: a checkpoint saved before it was measured has them all.
     */
    const int64_t rows = trainer->unmarked ? trainer->data.count : last + 1;
    if (state->matrix_rows > rows)
        state->matrix_rows = rows;
    return HS_OK;
}
