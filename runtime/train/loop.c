/* SPDX-License-Identifier: MIT
 *
 * The training loop.  One optimizer step:
 *
 *     batch (prefetched, new and replayed sequences mixed) -> per micro-batch: forward, head with loss, backward:
 *     gradients accumulate -> strategies look at the gradients (A-GEM) -> unscale, check, clip, step or skip, penalty,
 *     scaler update (optim/update.c) -> strategies look at the step (MER)
 *     -> step record -> checkpoint if due (before evaluation: a crash there loses nothing) -> evaluation if due
 *
 * The loss of a step is the mean over the counted targets of the whole effective batch, known before the first
 * micro-batch runs, so that N micro-batches weigh their targets exactly as one batch would.
 */
#include <math.h>

#include "kernels/base/log.h"
#include "runtime/pages/report.h"
#include "runtime/train/run.h"

static double window_rate(const HsRun *run)
{
    double elapsed = hs_clock_s() - run->window_start_s;
    return elapsed > 0 ? (double)run->training.window_tokens / elapsed : 0;
}

static void start_window(HsRun *run)
{
    run->window_start_s = hs_clock_s();
    run->training.window_tokens = 0;
}

static HsStatus record_step(HsRun *run, const HsStepReport *report)
{
    HsTraining *training = &run->training;
    HsMetricsRecord record = hs_run_record(run, "step");
    HsTrainingState *state = &training->state;
    double penalty;
    HS_TRY(hs_continual_penalty(training->continual, &training->engine.context, &penalty));
    record.penalty = hs_continual_anchored(training->continual) ? penalty : NAN;
    record.loss = state->window_steps > 0 ? state->window_loss / (double)state->window_steps : NAN;
    if (state->window_replay_steps > 0)
        record.replay_loss = state->window_replay_loss / (double)state->window_replay_steps;
    if (state->window_distillation_steps > 0)
        record.distillation = state->window_distillation / (double)state->window_distillation_steps;
    record.learning_rate = report->learning_rate;
    record.grad_norm = report->gradient_norm;
    record.loss_scale = (double)report->loss_scale;
    record.tokens_per_second = window_rate(run);
    HS_TRY(hs_metrics_record(run->metrics, &record));
    HsScalingFigures roles[HS_SCALING_ROLES];
    int role_count;
    HS_TRY(hs_scaling_figures(&training->model, &training->engine.context, training->engine.comm, roles, &role_count));
    HS_TRY(hs_metrics_scales(run->metrics, record.step, roles, role_count));
    hs_training_start_losses(state);
    start_window(run);
    return HS_OK;
}

static bool due(int64_t every, int64_t step)
{
    return every > 0 && step % every == 0;
}

static void show_progress(HsRun *run, double loss)
{
    HsTraining *training = &run->training;
    double rate = window_rate(run);
    double per_step = (double)(training->rows_per_step * training->config->training.max_length);
    double left = (double)(training->lengths.total_steps - training->state.counters.applied_steps) * per_step;
    double share = training->peak_flops > 0 ? rate * hs_training_flops_per_token(training) / training->peak_flops : 0;
    hs_metrics_progress(run->metrics, training->state.counters.applied_steps, loss, rate, share,
                        training->state.counters.loss_scale, (int64_t)training->engine.device.current_bytes,
                        rate > 0 ? left / rate : 0);
}

static void tell_left(const HsRun *run)
{
    const HsMatrix *matrix = &run->matrix;
    const int last = matrix->tasks - 1;
    for (int task = 0; task < matrix->tasks; task++)
        if (matrix->forgets[task])
            hs_info("left of %s: %.0f%% (its loss is %.4f; the untrained model's was %.4f, its lowest %.4f)",
                    matrix->names[task], 100 * hs_matrix_left(matrix, task), *hs_matrix_at(matrix, last, task),
                    matrix->untrained[task], *hs_matrix_at(matrix, last, task) - hs_matrix_forgetting(matrix, task));
}

static HsStatus finish(HsRun *run)
{
    HsTraining *training = &run->training;
    HS_TRY(hs_run_report_processes(run));
    if (hs_training_samples_wanted(training) > 0) { /* one process writes them, and nothing trains any more */
        HS_TRY(hs_training_show_averages(training));
        HS_TRY(hs_training_lend_weights(training));
    }
    if (!hs_training_records(training))
        return HS_OK;
    HS_TRY(hs_run_show_samples(run));
    HsMetricsRecord record = hs_run_record(run, "end");
    record.task = -1;
    record.val_loss = training->state.best_validation;
    if (run->has_matrix)
        record.val_loss = hs_matrix_summary(&run->matrix).retained;
    HS_TRY(hs_metrics_record(run->metrics, &record));
    HsMetricsPosition position;
    HS_TRY(hs_metrics_sync(run->metrics, &position));
    HS_TRY(hs_run_trace_finish(run));
    hs_training_probe_peak(training);
    double rate = run->trained_s > 0 ? (double)run->trained_tokens / run->trained_s : 0;
    const double flops = rate * hs_training_flops_per_token(training);
    if (run->trained_tokens > 0 && training->peak_flops > 0)
        hs_info("speed: %.0f tokens/s, %.0f GFLOP/s, %.0f%% of this device's %.0f GFLOP/s in %s", rate, 1e-9 * flops,
                100 * flops / training->peak_flops, 1e-9 * training->peak_flops, training->precision.name);
    const char *out_dir = training->config->training.out_dir;
    if (run->has_matrix)
        tell_left(run);
    if (run->has_matrix)
        hs_info("done: %lld steps (%lld skipped), mean validation loss over all tasks%s %.4f; outputs in %s",
                (long long)training->state.counters.applied_steps, (long long)training->state.counters.skipped_steps,
                hs_matrix_forgets(&run->matrix) ? " to be retained" : "", record.val_loss, out_dir);
    else
        hs_info("done: %lld steps (%lld skipped), best validation loss %.4f at step %lld; outputs in %s",
                (long long)training->state.counters.applied_steps, (long long)training->state.counters.skipped_steps,
                training->state.best_validation, (long long)training->state.best_step, out_dir);
    if (training->config->training.keep_best)
        hs_info("best checkpoint: %s/checkpoints/" HS_CHECKPOINT_BEST, out_dir);
    HS_TRY(hs_report_write(out_dir));
    hs_info("report: %s/report.html", out_dir);
    return HS_OK;
}

/* Strategies write over their state while they measure a task.  That takes as long as their passes do, so what was
 * trained is saved before, unless it just was. */
static HsStatus save_trained(HsRun *run)
{
    HsTraining *training = &run->training;
    const bool saved = run->saved_at == training->state.counters.applied_steps; /* a task has a step at least */
    const bool measures =
        hs_continual_needs_fisher(&training->continual_config) != NULL &&
        (training->lengths.unmarked || hs_continual_retains(&training->continual_config, (int)training->state.task));
    return measures && !saved ? hs_run_save(run) : HS_OK;
}

/* What is done with an applied step before anything is measured: an unmarked stream's consolidation, a checkpoint. */
static HsStatus settle_step(HsRun *run)
{
    HsTraining *training = &run->training;
    const bool consolidates = hs_training_consolidation_due(training);
    const bool saves = due(training->config->training.checkpoint_freq, training->state.counters.applied_steps);
    if (consolidates) {
        HS_TRY(save_trained(run));
        HS_TRY(hs_run_consolidate_stream(run));
    }
    const bool held = hs_training_steps_to_let_down(training) == 0;
    if (held)
        HS_TRY(hs_run_save_held(run));
    else if (saves)
        HS_TRY(hs_run_save(run));
    if (consolidates || saves || held)
        start_window(run);
    return HS_OK;
}

/* What follows an applied step.  Saving comes before evaluation; a task's last step leaves both to its boundary. */
static HsStatus after_step(HsRun *run, const HsStepReport *report)
{
    HsTraining *training = &run->training;
    const HsConfig *config = training->config;
    const HsTrainingState *state = &training->state;
    int64_t step = state->counters.applied_steps;
    bool last = state->task_steps == training->lengths.phase_steps[state->task];
    if (last || due(config->logging.every, step))
        HS_TRY(record_step(run, report));
    if (last)
        return HS_OK;
    HS_TRY(settle_step(run));
    if (hs_training_at_task_end(training)) {
        HS_TRY(hs_run_evaluate_owed(run));
        start_window(run);
    } else if (due(config->evaluation.every, step)) {
        HS_TRY(hs_run_evaluate_task(run, (int)state->task));
        start_window(run);
    }
    if (due(config->evaluation.all_tasks_every, step) && !hs_training_at_task_end(training)) {
        HS_TRY(hs_run_evaluate_tasks(run));
        start_window(run);
    }
    if (hs_run_look_due(run)) {
        HS_TRY(hs_run_look(run));
        start_window(run);
    }
    return HS_OK;
}

/* One rank gets a signal, or has a device that fills up; that no further step is started, and that the micro-batch is
 * halved, concerns all. */
static HsStatus agree(HsRun *run, bool *stop, bool *hold)
{
    HsTraining *training = &run->training;
    hs_comm_note_step(training->engine.comm, training->state.counters.applied_steps + 1);
    int64_t flags[] = { hs_run_stop_signal(), run->pressure.halving };
    HS_TRY(hs_comm_all_reduce(training->engine.comm, training->engine.context.stream, flags,
                              sizeof flags / sizeof *flags, HS_I64, HS_COMM_MAX));
    *stop = flags[0] != 0;
    if (*stop)
        hs_run_stop_by((int)flags[0]);
    run->pressure.halving = *hold = flags[1] != 0;
    return HS_OK;
}

/* Steps under way are finished first: they are steps like any other.  hs_run_train saves. */
static HsStatus stop_if_asked(HsRun *run)
{
    bool stop, hold;
    HS_TRY(agree(run, &stop, &hold));
    if (!stop || run->training.queue.count > 0)
        return HS_OK;
    return hs_fail(HS_EINTERRUPTED, "asked to stop");
}

/* Applied steps until something is due that reads the run's state: no step may be under way then. */
static int64_t steps_to_next_event(const HsRun *run)
{
    const HsTraining *training = &run->training;
    const HsConfig *config = training->config;
    const HsTrainingState *state = &training->state;
    const int64_t periods[] = { config->logging.every, config->training.checkpoint_freq, config->evaluation.every,
                                config->evaluation.all_tasks_every };
    int64_t left = training->lengths.phase_steps[state->task] - state->task_steps;
    for (size_t i = 0; i < sizeof periods / sizeof *periods; i++) {
        int64_t next = periods[i] > 0 ? periods[i] - state->counters.applied_steps % periods[i] : left;
        left = next < left ? next : left;
    }
    const int64_t look = hs_run_steps_to_look(run), down = hs_training_steps_to_let_down(training);
    left = look < left ? look : left;
    left = down > 0 && down < left ? down : left;
    if (training->lengths.unmarked) {
        const int64_t every = config->continual.consolidate_every, next = every - state->task_steps % every;
        const int64_t end = hs_training_steps_to_task_end(training);
        left = next < left ? next : left;
        left = end < left ? end : left;
    }
    return left;
}

/* As many as there is room for, and as could be needed: each of them may turn out to be applied. */
static HsStatus start_steps(HsRun *run)
{
    HsTraining *training = &run->training;
    const int64_t most = steps_to_next_event(run);
    for (;;) {
        bool stop, hold;
        HS_TRY(agree(run, &stop, &hold));
        if (stop || hold || hs_step_queue_full(&training->queue) || training->queue.count >= most ||
            !hs_run_trace_admits(run))
            return HS_OK;
        HS_TRY(hs_run_trace_begin(run));
        HsStatus status = hs_training_start_step(training);
        if (status == HS_EINTERRUPTED) /* this one was given up; those before it are still to be collected */
            return HS_OK;
        HS_TRY(status);
    }
}

/* Of the first task that continues with another length than the checkpoint's. */
static void tell_rate(HsRun *run)
{
    HsTraining *training = &run->training;
    const HsSchedule *schedule = &training->optimizer.schedule;
    if (!run->new_length || hs_training_is_known(training, (int)training->state.task))
        return;
    hs_info("the run's length changed, and schedule.kind %s follows it: the learning rate is %.3g now and ends at %.3g",
            training->config->schedule.kind, hs_schedule_rate(schedule, training->optimizer.counters.schedule_steps),
            hs_schedule_rate(schedule, schedule->decay_steps));
    run->new_length = false;
}

static HsStatus train_task(HsRun *run)
{
    HsTraining *training = &run->training;
    int64_t steps = training->lengths.phase_steps[training->state.task];
    HS_TRY(hs_training_begin_task(training));
    tell_rate(run);
    start_window(run);
    while (training->state.task_steps < steps && !hs_training_stalled(training)) {
        double loss;
        HsStepReport report;
        HS_TRY(stop_if_asked(run));
        const HsComm *comm = training->engine.comm;
        const double began_s = hs_clock_s(), exchanged_s = comm->exchange_s, sent = (double)comm->sent_bytes;
        HS_TRY(start_steps(run));
        if (training->queue.count == 0) /* the signal came just now, or during the step */
            continue;
        const HsStatus collected = hs_training_collect_step(training, &loss, &report);
        HS_TRY(collected == HS_ENUMERIC ? hs_run_diagnose(run, &report) : collected);
        HS_TRY(hs_run_trace_end(run));
        run->trained_s += hs_clock_s() - began_s;
        run->exchanged_s += comm->exchange_s - exchanged_s;
        run->sent_bytes += (double)comm->sent_bytes - sent;
        run->trained_tokens += training->rows_per_step * training->config->training.max_length;
        show_progress(run, loss);
        if (report.verdict == HS_SCALER_APPLY)
            HS_TRY(after_step(run, &report));
        HS_TRY(hs_run_watch_pressure(run));
    }
    HS_TRY(stop_if_asked(run));
    HS_TRY(save_trained(run));
    if (hs_training_stalled(training)) /* behind the last checkpoint: a resumed run says the same, once */
        HS_TRY(hs_run_record_stall(run));
    return hs_run_finish_task(run);
}

static HsStatus train_tasks(HsRun *run)
{
    HsTraining *training = &run->training;
    /* A checkpoint is saved before its step's consolidation and evaluation: after a kill in between they are still due.
     */
    if (hs_training_consolidation_due(training))
        HS_TRY(settle_step(run));
    HS_TRY(hs_training_try_rates(training));
    HS_TRY(hs_run_evaluate_owed(run));
    while (training->state.task < training->lengths.phase_count)
        HS_TRY(train_task(run));
    return finish(run);
}

static HsStatus save_and_leave(HsRun *run)
{
    if (!run->training
             .consolidating) /* else the checkpoint before it says all, and the state since then is half done */
        HS_TRY(hs_run_save(run));
    return hs_fail(HS_EINTERRUPTED, "stopped by %s after step %lld; saved: the same command continues from here",
                   hs_run_stop_name(), (long long)run->training.state.counters.applied_steps);
}

/* Lets readers of the record, a comparison for one, distinguish such an end from a crash.  It lies behind what the
 * latest checkpoint covers: a run that continues drops it. */
static HsStatus record_divergence(HsRun *run)
{
    char reason[1024];
    snprintf(reason, sizeof reason, "%.1000s", hs_error_message());
    const HsStatus status = hs_metrics_diverged(run->metrics, run->training.state.counters.applied_steps, reason);
    if (status != HS_OK)
        hs_warn("%s", hs_error_message());
    return hs_fail(HS_ENUMERIC, "%s", reason);
}

HsStatus hs_run_train(HsRun *run)
{
    HsTraining *training = &run->training;
    run->start_s = hs_clock_s();
    hs_run_stop_in_order();
    /* Within a pass a rank cannot leave without the others, which would wait for it: they agree between steps. */
    training->engine.context.stop_asked = training->engine.comm->size == 1 ? hs_run_stop_asked : NULL;
    HsStatus status = train_tasks(run);
    training->engine.context.stop_asked = NULL;
    if (status == HS_EINTERRUPTED) /* a step, an evaluation or a Fisher was abandoned, and is due again */
        status = save_and_leave(run);
    if (status == HS_ENUMERIC)
        status = record_divergence(run);
    if (status != HS_OK && status != HS_EINTERRUPTED)
        hs_comm_abort(training->engine.comm, hs_error_message()); /* the others would wait for this rank */
    hs_training_report_memory(training);
    if (status == HS_ENOMEM)
        hs_training_explain_memory(training);
    return status;
}
