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
#include "runtime/train/trainer.h"

static double window_rate(const HsTrainer *trainer)
{
    double elapsed = hs_clock_s() - trainer->window_start_s;
    return elapsed > 0 ? (double)trainer->window_tokens / elapsed : 0;
}

static void start_window(HsTrainer *trainer)
{
    trainer->window_start_s = hs_clock_s();
    trainer->window_tokens = 0;
}

static HsStatus record_step(HsTrainer *trainer, const HsStepReport *report)
{
    HsMetricsRecord record = hs_trainer_record(trainer, "step");
    HsTrainerState *state = &trainer->state;
    double penalty;
    HS_TRY(hs_continual_penalty(trainer->continual, &trainer->engine.context, &penalty));
    record.penalty = hs_continual_anchored(trainer->continual) ? penalty : NAN;
    record.loss = state->window_steps > 0 ? state->window_loss / (double)state->window_steps : NAN;
    if (state->window_replay_steps > 0)
        record.replay_loss = state->window_replay_loss / (double)state->window_replay_steps;
    if (state->window_distillation_steps > 0)
        record.distillation = state->window_distillation / (double)state->window_distillation_steps;
    record.learning_rate = report->learning_rate;
    record.grad_norm = report->gradient_norm;
    record.loss_scale = (double)report->loss_scale;
    record.tokens_per_second = window_rate(trainer);
    HS_TRY(hs_metrics_record(trainer->metrics, &record));
    HsScalingFigures roles[HS_SCALING_ROLES];
    int role_count;
    HS_TRY(hs_scaling_figures(&trainer->model, &trainer->engine.context, trainer->engine.comm, roles, &role_count));
    HS_TRY(hs_metrics_scales(trainer->metrics, record.step, roles, role_count));
    hs_trainer_start_losses(state);
    start_window(trainer);
    return HS_OK;
}

static bool due(int64_t every, int64_t step)
{
    return every > 0 && step % every == 0;
}

static void show_progress(HsTrainer *trainer, double loss)
{
    double rate = window_rate(trainer);
    double per_step = (double)(trainer->rows_per_step * trainer->config->training.max_length);
    double left = (double)(trainer->total_steps - trainer->state.counters.applied_steps) * per_step;
    double share = trainer->peak_flops > 0 ? rate * trainer->flops_per_token / trainer->peak_flops : 0;
    hs_metrics_progress(trainer->metrics, trainer->state.counters.applied_steps, loss, rate, share,
                        trainer->state.counters.loss_scale, (int64_t)trainer->engine.device.current_bytes,
                        rate > 0 ? left / rate : 0);
}

static void tell_left(const HsTrainer *trainer)
{
    const HsMatrix *matrix = &trainer->matrix;
    const int last = matrix->tasks - 1;
    for (int task = 0; task < matrix->tasks; task++)
        if (matrix->forgets[task])
            hs_info("left of %s: %.0f%% (its loss is %.4f; the untrained model's was %.4f, its lowest %.4f)",
                    matrix->names[task], 100 * hs_matrix_left(matrix, task), *hs_matrix_at(matrix, last, task),
                    matrix->untrained[task], *hs_matrix_at(matrix, last, task) - hs_matrix_forgetting(matrix, task));
}

static HsStatus finish(HsTrainer *trainer)
{
    HS_TRY(hs_trainer_report_processes(trainer));
    if (hs_trainer_samples_wanted(trainer) > 0) /* one process writes them */
        HS_TRY(hs_trainer_lend_weights(trainer));
    if (!hs_trainer_records(trainer))
        return HS_OK;
    HS_TRY(hs_trainer_show_samples(trainer));
    HsMetricsRecord record = hs_trainer_record(trainer, "end");
    record.task = -1;
    record.val_loss = trainer->state.best_validation;
    if (trainer->has_matrix)
        record.val_loss = hs_matrix_summary(&trainer->matrix).retained;
    HS_TRY(hs_metrics_record(trainer->metrics, &record));
    HsMetricsPosition position;
    HS_TRY(hs_metrics_sync(trainer->metrics, &position));
    HS_TRY(hs_trainer_trace_finish(trainer));
    hs_trainer_probe_peak(trainer);
    double rate = trainer->trained_s > 0 ? (double)trainer->trained_tokens / trainer->trained_s : 0;
    if (trainer->trained_tokens > 0 && trainer->peak_flops > 0)
        hs_info("speed: %.0f tokens/s, %.0f GFLOP/s, %.0f%% of this device's measured %.0f GFLOP/s in %s", rate,
                1e-9 * rate * trainer->flops_per_token, 100 * rate * trainer->flops_per_token / trainer->peak_flops,
                1e-9 * trainer->peak_flops, trainer->precision.name);
    const char *out_dir = trainer->config->training.out_dir;
    if (trainer->has_matrix)
        tell_left(trainer);
    if (trainer->has_matrix)
        hs_info("done: %lld steps (%lld skipped), mean validation loss over all tasks%s %.4f; outputs in %s",
                (long long)trainer->state.counters.applied_steps, (long long)trainer->state.counters.skipped_steps,
                hs_matrix_forgets(&trainer->matrix) ? " to be retained" : "", record.val_loss, out_dir);
    else
        hs_info("done: %lld steps (%lld skipped), best validation loss %.4f at step %lld; outputs in %s",
                (long long)trainer->state.counters.applied_steps, (long long)trainer->state.counters.skipped_steps,
                trainer->state.best_validation, (long long)trainer->state.best_step, out_dir);
    if (trainer->config->training.keep_best)
        hs_info("best checkpoint: %s/checkpoints/" HS_CHECKPOINT_BEST, out_dir);
    HS_TRY(hs_report_write(out_dir));
    hs_info("report: %s/report.html", out_dir);
    return HS_OK;
}

/* Strategies write over their state while they measure a task.  That takes as long as their passes do, so what was
 * trained is saved before, unless it just was. */
static HsStatus save_trained(HsTrainer *trainer)
{
    const bool saved = trainer->saved_at == trainer->state.counters.applied_steps; /* a task has a step at least */
    const bool measures =
        hs_continual_needs_fisher(&trainer->continual_config) != NULL &&
        (trainer->unmarked || hs_continual_retains(&trainer->continual_config, (int)trainer->state.task));
    return measures && !saved ? hs_trainer_save(trainer) : HS_OK;
}

/* What is done with an applied step before anything is measured: an unmarked stream's consolidation, a checkpoint. */
static HsStatus settle_step(HsTrainer *trainer)
{
    const bool consolidates = hs_trainer_consolidation_due(trainer);
    const bool saves = due(trainer->config->training.checkpoint_freq, trainer->state.counters.applied_steps);
    if (consolidates) {
        HS_TRY(save_trained(trainer));
        HS_TRY(hs_trainer_consolidate_stream(trainer));
    }
    const bool held = hs_trainer_steps_to_let_down(trainer) == 0;
    if (held)
        HS_TRY(hs_trainer_save_held(trainer));
    else if (saves)
        HS_TRY(hs_trainer_save(trainer));
    if (consolidates || saves || held)
        start_window(trainer);
    return HS_OK;
}

/* What follows an applied step.  Saving comes before evaluation; a task's last step leaves both to its boundary. */
static HsStatus after_step(HsTrainer *trainer, const HsStepReport *report)
{
    const HsConfig *config = trainer->config;
    const HsTrainerState *state = &trainer->state;
    int64_t step = state->counters.applied_steps;
    bool last = state->task_steps == trainer->phase_steps[state->task];
    if (last || due(config->logging.every, step))
        HS_TRY(record_step(trainer, report));
    if (last)
        return HS_OK;
    HS_TRY(settle_step(trainer));
    if (hs_trainer_at_task_end(trainer)) {
        HS_TRY(hs_trainer_evaluate_owed(trainer));
        start_window(trainer);
    } else if (due(config->evaluation.every, step)) {
        HS_TRY(hs_trainer_evaluate_task(trainer, (int)state->task));
        start_window(trainer);
    }
    if (due(config->evaluation.all_tasks_every, step) && !hs_trainer_at_task_end(trainer)) {
        HS_TRY(hs_trainer_survey(trainer));
        start_window(trainer);
    }
    if (hs_trainer_look_due(trainer)) {
        HS_TRY(hs_trainer_look(trainer));
        start_window(trainer);
    }
    return HS_OK;
}

/* A signal, and a device that fills up, are one rank's own; that no further step is started, and that the micro-batch is
 * halved, is everybody's. */
static HsStatus agree(HsTrainer *trainer, bool *stop, bool *hold)
{
    hs_comm_note_step(trainer->engine.comm, trainer->state.counters.applied_steps + 1);
    int64_t flags[] = { hs_trainer_stop_signal(), trainer->pressure.halving };
    HS_TRY(hs_comm_all_reduce(trainer->engine.comm, trainer->engine.context.stream, flags, sizeof flags / sizeof *flags,
                              HS_I64, HS_COMM_MAX));
    *stop = flags[0] != 0;
    if (*stop)
        hs_trainer_stop_by((int)flags[0]);
    trainer->pressure.halving = *hold = flags[1] != 0;
    return HS_OK;
}

/* Steps under way are finished first: they are steps like any other.  hs_trainer_run saves. */
static HsStatus stop_if_asked(HsTrainer *trainer)
{
    bool stop, hold;
    HS_TRY(agree(trainer, &stop, &hold));
    if (!stop || trainer->queue.count > 0)
        return HS_OK;
    return hs_fail(HS_EINTERRUPTED, "asked to stop");
}

/* Applied steps until something is due that reads the run's state: no step may be under way then. */
static int64_t steps_to_next_event(const HsTrainer *trainer)
{
    const HsConfig *config = trainer->config;
    const HsTrainerState *state = &trainer->state;
    const int64_t periods[] = { config->logging.every, config->training.checkpoint_freq, config->evaluation.every,
                                config->evaluation.all_tasks_every };
    int64_t left = trainer->phase_steps[state->task] - state->task_steps;
    for (size_t i = 0; i < sizeof periods / sizeof *periods; i++) {
        int64_t next = periods[i] > 0 ? periods[i] - state->counters.applied_steps % periods[i] : left;
        left = next < left ? next : left;
    }
    const int64_t look = hs_trainer_steps_to_look(trainer), down = hs_trainer_steps_to_let_down(trainer);
    left = look < left ? look : left;
    left = down > 0 && down < left ? down : left;
    if (trainer->unmarked) {
        const int64_t every = config->continual.consolidate_every, next = every - state->task_steps % every;
        const int64_t end = hs_trainer_steps_to_task_end(trainer);
        left = next < left ? next : left;
        left = end < left ? end : left;
    }
    return left;
}

/* As many as there is room for, and as could be needed: each of them may turn out to be applied. */
static HsStatus start_steps(HsTrainer *trainer)
{
    const int64_t most = steps_to_next_event(trainer);
    for (;;) {
        bool stop, hold;
        HS_TRY(agree(trainer, &stop, &hold));
        if (stop || hold || hs_step_queue_full(&trainer->queue) || trainer->queue.count >= most ||
            !hs_trainer_trace_admits(trainer))
            return HS_OK;
        HS_TRY(hs_trainer_trace_begin(trainer));
        HsStatus status = hs_trainer_start_step(trainer);
        if (status == HS_EINTERRUPTED) /* this one was given up; those before it are still to be collected */
            return HS_OK;
        HS_TRY(status);
    }
}

static HsStatus train_task(HsTrainer *trainer)
{
    int64_t steps = trainer->phase_steps[trainer->state.task];
    HS_TRY(hs_trainer_begin_task(trainer));
    start_window(trainer);
    while (trainer->state.task_steps < steps && !hs_trainer_stalled(trainer)) {
        double loss;
        HsStepReport report;
        HS_TRY(stop_if_asked(trainer));
        const HsComm *comm = trainer->engine.comm;
        const double began_s = hs_clock_s(), exchanged_s = comm->exchange_s, sent = (double)comm->sent_bytes;
        HS_TRY(start_steps(trainer));
        if (trainer->queue.count == 0) /* the signal came just now, or during the step */
            continue;
        const HsStatus collected = hs_trainer_collect_step(trainer, &loss, &report);
        HS_TRY(collected == HS_ENUMERIC ? hs_trainer_diagnose(trainer, &report) : collected);
        HS_TRY(hs_trainer_trace_end(trainer));
        trainer->trained_s += hs_clock_s() - began_s;
        trainer->exchanged_s += comm->exchange_s - exchanged_s;
        trainer->sent_bytes += (double)comm->sent_bytes - sent;
        trainer->trained_tokens += trainer->rows_per_step * trainer->config->training.max_length;
        show_progress(trainer, loss);
        if (report.verdict == HS_SCALER_APPLY)
            HS_TRY(after_step(trainer, &report));
        HS_TRY(hs_trainer_watch_pressure(trainer));
    }
    HS_TRY(stop_if_asked(trainer));
    HS_TRY(save_trained(trainer));
    if (hs_trainer_stalled(trainer)) /* behind what may be gone on from: a resumed run says the same, once */
        HS_TRY(hs_trainer_record_stall(trainer));
    return hs_trainer_finish_task(trainer);
}

static HsStatus train_tasks(HsTrainer *trainer)
{
    /* A checkpoint is saved before its step's consolidation and evaluation: after a kill in between they are still due.
     */
    if (hs_trainer_consolidation_due(trainer))
        HS_TRY(settle_step(trainer));
    HS_TRY(hs_trainer_try_rates(trainer));
    HS_TRY(hs_trainer_evaluate_owed(trainer));
    while (trainer->state.task < trainer->phase_count)
        HS_TRY(train_task(trainer));
    return finish(trainer);
}

static HsStatus save_and_leave(HsTrainer *trainer)
{
    if (!trainer->consolidating) /* else the checkpoint before it says all, and the state since then is half done */
        HS_TRY(hs_trainer_save(trainer));
    return hs_fail(HS_EINTERRUPTED, "stopped by %s after step %lld; saved: the same command goes on from here",
                   hs_trainer_stop_name(), (long long)trainer->state.counters.applied_steps);
}

/* Whoever looks at the record later, a comparison for one, tells such an end from an accident.  It lies behind what the
 * latest checkpoint covers: a run that goes on drops it. */
static HsStatus record_divergence(HsTrainer *trainer)
{
    char reason[1024];
    snprintf(reason, sizeof reason, "%.1000s", hs_error_message());
    const HsStatus status = hs_metrics_diverged(trainer->metrics, trainer->state.counters.applied_steps, reason);
    if (status != HS_OK)
        hs_warn("%s", hs_error_message());
    return hs_fail(HS_ENUMERIC, "%s", reason);
}

HsStatus hs_trainer_run(HsTrainer *trainer)
{
    trainer->start_s = hs_clock_s();
    hs_trainer_stop_in_order();
    /* In the middle of a pass a rank cannot leave without the others, who would wait for it: they agree between steps. */
    trainer->engine.context.stop_asked = trainer->engine.comm->size == 1 ? hs_trainer_stop_asked : NULL;
    HsStatus status = train_tasks(trainer);
    trainer->engine.context.stop_asked = NULL;
    if (status == HS_EINTERRUPTED) /* a step, an evaluation or a Fisher was abandoned, and is due again */
        status = save_and_leave(trainer);
    if (status == HS_ENUMERIC)
        status = record_divergence(trainer);
    if (status != HS_OK && status != HS_EINTERRUPTED)
        hs_comm_abort(trainer->engine.comm, hs_error_message()); /* the others would wait for this rank */
    hs_trainer_report_memory(trainer);
    if (status == HS_ENOMEM)
        hs_trainer_explain_memory(trainer);
    return status;
}
