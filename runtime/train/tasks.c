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
#include "runtime/config/mixture.h"
#include "runtime/train/evaluate.h"
#include "runtime/train/run.h"

HsStatus hs_training_begin_task(HsTraining *training)
{
    HsLengths *lengths = &training->lengths;
    const HsConfig *config = training->config;
    HsTrainingState *state = &training->state;
    HsContext *context = &training->engine.context;
    int task = (int)state->task;
    hs_training_forget_graph(training);
    HS_TRY(hs_training_set_schedule(training));
    if (!state->task_begun) {
        state->task_begun = 1;
        state->task_steps = state->since_gain = 0;
        state->position = (HsStreamPosition){ 0 };
        if (task > 0) {
            state->best_validation = NAN;
            const bool first = task == training->continual_config.known; /* that changes the model */
            if (first || !hs_is(hs_training_schedule(training), "single"))
                training->optimizer.counters.schedule_steps = 0;
            if (first || !hs_training_keeps_moments(training)) {
                HS_TRY(hs_optimizer_reset_state(&training->optimizer, context, training->spans, training->span_count));
                if (hs_training_shows_means(training)) /* schedule-free begins with the mean */
                    HS_TRY(hs_training_ready_weights(training));
            }
        }
        HS_TRY(hs_training_meet_task(training, task));
        HS_TRY(hs_continual_begin_task(training->continual, context, task));
        HS_TRY(hs_training_take_teacher(training, task));
        HS_TRY(hs_training_renew_adapters(training, task));
        HS_TRY(hs_training_write_rehearsal(training, task));
    }
    if (lengths->phase_count > 1)
        hs_info("task %d of %d: %s, %lld steps%s", task + 1, lengths->phase_count, config->tasks[task].name,
                (long long)lengths->phase_steps[task],
                hs_training_is_known(training, task) ? ", known already: no weight changes" : "");
    return hs_stream_begin_task(training->stream, task, &state->position);
}

static HsStatus evaluate(HsTraining *training, int task, HsEvaluation *evaluation)
{
    const HsConfig *config = training->config;
    const HsEvaluator evaluator = hs_training_evaluator(training);
    return hs_evaluate(&evaluator, &training->data.tasks[task],
                       config->evaluation.batches * config->training.batch_size, evaluation);
}

/* Means over tasks; of accuracies over those that have items. */
static HsStatus add_up_tasks(HsTraining *training, int first, int count, HsMetricsRecord *record)
{
    int with_items[HS_ITEM_SET_COUNT] = { 0 };
    double *accuracies[] = { &record->accuracy_seen, &record->accuracy_unseen };
    record->val_loss = record->entropy_floor = record->bits_per_byte = 0;
    for (int i = first; i < first + count; i++) {
        HsEvaluation own;
        HS_TRY(evaluate(training, i, &own));
        record->val_loss += own.loss / count;
        record->bits_per_byte += hs_bits_per_byte(own.loss, own.bytes_per_token) / count;
        record->entropy_floor += training->data.tasks[i].validation.entropy_floor / count;
        for (int set = 0; set < HS_ITEM_SET_COUNT; set++)
            if (own.items[set] > 0) /* a running mean */
                *accuracies[set] = with_items[set]++ == 0
                                       ? own.accuracy[set]
                                       : *accuracies[set] + (own.accuracy[set] - *accuracies[set]) / with_items[set];
    }
    return HS_OK;
}

static HsStatus evaluate_mean(HsTraining *training, int first, int count, HsMetricsRecord *record)
{
    HS_TRY(hs_training_show_averages(training));
    return hs_training_hide_averages(training, add_up_tasks(training, first, count, record));
}

/* What a task's sources have had so far, and the loss of each. */
static HsStatus record_sources(HsRun *run, int task)
{
    HsTraining *training = &run->training;
    const HsConfig *config = training->config;
    const HsDataset *dataset = &training->data.tasks[task];
    const HsEvaluator evaluator = hs_training_evaluator(training);
    HsSourceUse use[HS_MIXTURE_MOST];
    HsMetricsSource sources[HS_MIXTURE_MOST];
    const bool running = hs_stream_is_running(training->stream);
    const int64_t taken =
        running ? hs_stream_position(training->stream).window_first : training->state.position.window_first;
    if (!dataset->parts || training->lengths.one_phase)
        return HS_OK;
    HS_TRY(hs_dataset_source_use(dataset, taken, use));
    HsStatus status = hs_training_show_averages(training);
    for (int i = 0; i < dataset->part_count && status == HS_OK; i++) {
        HsEvaluation own = { 0 };
        status = hs_evaluate_text(&evaluator, &dataset->parts[i],
                                  config->evaluation.batches * config->training.batch_size, &own);
        sources[i] =
            (HsMetricsSource){ hs_task_source_name(&config->tasks[task], i), use[i].share, use[i].epochs, own.loss };
    }
    HS_TRY(hs_training_hide_averages(training, status));
    return hs_metrics_sources(run->metrics, training->state.counters.applied_steps, config->tasks[task].name, sources,
                              dataset->part_count, true);
}

HsStatus hs_run_evaluate_task(HsRun *run, int task)
{
    HsTraining *training = &run->training;
    HsLengths *lengths = &training->lengths;
    /* Where one training is on every task the mean stands for all. */
    HsMetricsRecord record = hs_run_record(run, "eval");
    HS_TRY(
        evaluate_mean(training, lengths->one_phase ? 0 : task, lengths->one_phase ? training->data.count : 1, &record));
    training->state.evaluated_at = training->state.counters.applied_steps;
    bool best;
    hs_training_judge(training, record.val_loss, &best);
    record.task = lengths->phase_count > 1 ? task : -1;
    HS_TRY(hs_metrics_record(run->metrics, &record));
    HS_TRY(record_sources(run, task));
    return best ? hs_run_keep_best(run, task) : HS_OK;
}

HsStatus hs_run_evaluate_tasks(HsRun *run)
{
    HsTraining *training = &run->training;
    const int count = training->data.count;
    HsMetricsTask *tasks = calloc((size_t)count, sizeof *tasks);
    HsStatus status = tasks ? hs_training_show_averages(training)
                            : hs_fail(HS_ENOMEM, "no memory for the figures of %d tasks", count);
    for (int i = 0; i < count && status == HS_OK; i++) {
        HsEvaluation own;
        status = evaluate(training, i, &own);
        if (status == HS_OK)
            tasks[i] = (HsMetricsTask){ .name = training->config->tasks[i].name,
                                        .loss = own.loss,
                                        .accuracy_seen = own.accuracy[HS_ITEMS_SEEN],
                                        .accuracy_unseen = own.accuracy[HS_ITEMS_UNSEEN] };
    }
    status = hs_training_hide_averages(training, status);
    if (status == HS_OK) {
        training->state.surveyed_at = training->state.counters.applied_steps;
        status = hs_metrics_tasks(run->metrics, training->state.surveyed_at, tasks, count);
    }
    for (int i = 0; i < count && status == HS_OK; i++)
        status = hs_run_watch_survey(run, i, tasks[i].loss);
    free(tasks);
    return status;
}

/* What the task's own evaluations measure, out of a row. */
static double trained_loss(const HsRun *run, int row)
{
    const HsMatrix *matrix = &run->matrix;
    double mean = 0;
    for (int task = 0; task < matrix->tasks; task++)
        mean += *hs_matrix_at(matrix, row, task) / matrix->tasks;
    return run->training.lengths.one_phase ? mean : *hs_matrix_at(matrix, row, row);
}

/* Row -1: the untrained model. */
static HsStatus evaluate_cell(HsRun *run, int row, int task)
{
    HsMatrix *matrix = &run->matrix;
    HsEvaluation own;
    HS_TRY(evaluate(&run->training, task, &own));
    *(row < 0 ? &matrix->untrained[task] : hs_matrix_at(matrix, row, task)) = own.loss;
    matrix->bytes_per_token[task] = own.bytes_per_token;
    for (int set = 0; set < HS_ITEM_SET_COUNT; set++)
        *hs_matrix_accuracy(matrix, set, row, task) = own.accuracy[set];
    return HS_OK;
}

HsStatus hs_run_measure_untrained(HsRun *run, int first)
{
    HS_TRY(hs_training_ready_weights(&run->training));
    for (int task = first; task < run->matrix.tasks; task++)
        HS_TRY(evaluate_cell(run, -1, task));
    return HS_OK;
}

/* The next row of the matrix; the first is the untrained model's. */
static HsStatus evaluate_row(HsRun *run)
{
    HsTraining *training = &run->training;
    HsMatrix *matrix = &run->matrix;
    int row = (int)training->state.matrix_rows - 1;
    if (training->lengths.joint && row >= 0)
        row = matrix->tasks - 1;
    const bool own = hs_is(training->config->evaluation.matrix, "own") && row >= 0 && row + 1 < matrix->tasks;
    HsStatus status = hs_training_show_averages(training);
    for (int task = own ? row : 0; task < (own ? row + 1 : matrix->tasks) && status == HS_OK; task++)
        status = evaluate_cell(run, row, task);
    HS_TRY(hs_training_hide_averages(training, status));
    if (row >= 0)
        HS_TRY(hs_run_look_at_end(run, row));
    training->state.matrix_rows++;
    training->state.evaluated_at = training->state.surveyed_at = training->state.counters.applied_steps;
    bool print = row >= 0 && !hs_is(training->config->logging.progress, "none"), best = false;
    if (row >= 0)
        hs_training_judge(training, trained_loss(run, row), &best);
    HS_TRY(hs_metrics_matrix(run->metrics, training->state.counters.applied_steps, row, matrix, print));
    return best ? hs_run_keep_best(run, training->lengths.one_phase ? 0 : row) : HS_OK;
}

static bool evaluation_due(const HsTraining *training)
{
    const HsTrainingState *state = &training->state;
    const int64_t every = training->config->evaluation.every, step = state->counters.applied_steps;
    const bool done = state->task == training->lengths.phase_count;
    /* A task's last step leaves it to the boundary, which a checkpoint before the Fisher is still ahead of. */
    if (!done && state->task_begun && state->task_steps >= training->lengths.phase_steps[state->task])
        return false;
    return step > 0 && (done || (every > 0 && step % every == 0));
}

/* Within a task: at its end the matrix's row, or the only task's own evaluation, is the record of every task. */
static bool survey_due(const HsTraining *training)
{
    const HsTrainingState *state = &training->state;
    const int64_t every = training->config->evaluation.all_tasks_every, step = state->counters.applied_steps;
    if (every == 0 || step == 0 || step % every != 0 || state->surveyed_at == step || !state->task_begun)
        return false;
    return state->task_steps < training->lengths.phase_steps[state->task];
}

/* Rows that are due by now, the untrained model's counted in. */
static int64_t rows_due(const HsTraining *training)
{
    const HsLengths *lengths = &training->lengths;
    const HsTrainingState *state = &training->state;
    int64_t ended = state->task;
    if (lengths->unmarked && state->task > 0)
        ended = training->data.count;
    for (int task = 0; lengths->unmarked && state->task == 0 && task + 1 < training->data.count; task++)
        ended += lengths->task_ends[task] <= state->task_steps;
    return ended + 1;
}

HsStatus hs_run_evaluate_owed(HsRun *run)
{
    HsTraining *training = &run->training;
    const HsTrainingState *state = &training->state;
    if (run->has_matrix && state->matrix_rows < rows_due(training))
        return evaluate_row(run);
    if (state->evaluated_at != state->counters.applied_steps && evaluation_due(training)) {
        int last = training->lengths.phase_count - 1;
        HS_TRY(hs_run_evaluate_task(run, state->task < last ? (int)state->task : last));
    }
    if (survey_due(training))
        return hs_run_evaluate_tasks(run);
    return hs_run_look_due(run) ? hs_run_look(run) : HS_OK;
}

HsStatus hs_run_finish_task(HsRun *run)
{
    HsTraining *training = &run->training;
    HsTrainingState *state = &training->state;
    training->consolidating = true;
    hs_stream_settle(training->stream);
    state->position = hs_stream_position(training->stream);
    hs_stream_end_task(training->stream);
    hs_training_forget_graph(training);
    HS_TRY(hs_run_consolidate(run, (int)state->task));
    HS_TRY(hs_training_note_openings(training, (int)state->task));
    state->task++;
    state->rate_let_down =
        !hs_is(hs_training_schedule(training), "infinite") || state->task == training->lengths.phase_count;
    state->task_begun = 0;
    training->consolidating = false;
    HS_TRY(hs_run_save(run));
    return hs_run_evaluate_owed(run);
}

HsStatus hs_training_reopen(HsTraining *training)
{
    HsLengths *lengths = &training->lengths;
    HsTrainingState *state = &training->state;
    int last = lengths->phase_count - 1;
    if (state->task <= last || lengths->phase_steps[last] <= state->task_steps)
        return HS_OK;
    if (hs_training_stalled(training)) {
        hs_info("the run ended early at step %lld: a larger early_stop.patience, or 0, continues it",
                (long long)state->counters.applied_steps);
        return HS_OK;
    }
    /* The task's statistics are already final: to continue would count it twice. */
    const HsStrategy *closed = hs_continual_keeps_state(&training->continual_config);
    if (closed)
        return hs_fail(HS_ECONFIG,
                       "%s is finished, and a run with strategy %s cannot be made longer: set the length back, append "
                       "a task to continue with, or start in a fresh out_dir",
                       training->config->training.out_dir, closed->name);
    state->task = last;
    state->task_begun = 1;
    /* The last row is measured anew, those before it are not: a checkpoint saved before it was measured has them all.
     */
    const int64_t rows = lengths->unmarked ? training->data.count : last + 1;
    if (state->matrix_rows > rows)
        state->matrix_rows = rows;
    return HS_OK;
}
