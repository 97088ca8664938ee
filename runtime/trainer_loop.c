/* SPDX-License-Identifier: MIT
 *
 * The training loop.  One optimizer step:
 *
 *     batch (prefetched, new and replayed sequences mixed) -> per micro-batch: forward, head with loss, backward:
 *     gradients accumulate -> strategies look at the gradients (A-GEM) -> unscale, check, clip, step or skip, penalty,
 *     scaler update (optim/update.c) -> strategies look at the step (MER) -> packed weights refreshed
 *     -> step record -> checkpoint if due (before evaluation: a crash there loses nothing) -> evaluation if due
 *
 * The loss of a step is the mean over the counted targets of the whole effective batch, known before the first
 * micro-batch runs, so that N micro-batches weigh their targets exactly as one batch would.
 */
#include <math.h>
#include <signal.h>
#include <string.h>

#include "kernels/base/log.h"
#include "runtime/report.h"
#include "runtime/trainer.h"

static volatile sig_atomic_t stop_signal;

static void on_signal(int number)
{
    if (stop_signal) { /* the second time: leave at once, as the default action does */
        signal(number, SIG_DFL);
        raise(number);
    }
    stop_signal = number;
}

void hs_trainer_install_signals(void)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_signal;
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

/* Sums of losses over the counted targets of an optimizer step, in row order. */
typedef struct StepLoss {
    double new_sum, replay_sum;
    int64_t new_count, replay_count;
} StepLoss;

/* The micro-batch that ran last, sequence by sequence.  Each micro-batch is summed by itself first. */
static void split_losses(const HsTrainer *trainer, const HsStreamBatch *batch, int64_t first_row, StepLoss *loss)
{
    int64_t length = trainer->config->training.max_length;
    double sums[2] = { 0, 0 };
    int64_t counts[2] = { 0, 0 };
    for (int64_t row = 0; row < trainer->config->training.batch_size; row++) {
        int replayed = batch->replayed[first_row + row] != 0;
        for (int64_t t = 0; t < length; t++) {
            if (batch->targets[(first_row + row) * length + t] < 0)
                continue;
            sums[replayed] += hs_plan_row_loss(&trainer->train_plan, row * length + t);
            counts[replayed]++;
        }
    }
    loss->new_sum += sums[0];
    loss->new_count += counts[0];
    loss->replay_sum += sums[1];
    loss->replay_count += counts[1];
}

static uint32_t attempt(const HsTrainer *trainer)
{
    return (uint32_t)(trainer->state.applied_steps + trainer->state.skipped_steps);
}

/* Forward and backward of every micro-batch. */
static HsStatus accumulate(HsTrainer *trainer, const HsStreamBatch *batch, StepLoss *loss)
{
    const HsConfig *config = trainer->config;
    int64_t length = config->training.max_length;
    int64_t counted = batch->counted > 0 ? batch->counted : 1;
    float gradient_scale = trainer->optimizer.scaler.scale / (float)counted;
    *loss = (StepLoss){ 0 };
    for (int64_t row = 0; row < batch->rows; row += config->training.batch_size) {
        int64_t offset = row * length;
        double sum = 0;
        HS_TRY(hs_plan_train(&trainer->train_plan, &trainer->engine.context, batch->tokens + offset,
                             batch->targets + offset, (uint64_t)config->training.seed, attempt(trainer), offset,
                             gradient_scale, &sum));
        split_losses(trainer, batch, row, loss);
    }
    return HS_OK;
}

/* A-GEM's gradient on sequences of earlier tasks, handed over to the strategy. */
static HsStatus accumulate_reference(HsTrainer *trainer, const HsStreamBatch *batch)
{
    const HsConfig *config = trainer->config;
    int64_t length = config->training.max_length;
    int64_t counted = batch->reference_counted > 0 ? batch->reference_counted : 1;
    float gradient_scale = trainer->optimizer.scaler.scale / (float)counted;
    for (int64_t row = 0; row < batch->reference_rows; row += config->training.batch_size) {
        int64_t offset = row * length;
        double sum = 0;
        /* Behind the batch's own rows, so that dropout masks are other ones. */
        HS_TRY(hs_plan_train(&trainer->train_plan, &trainer->engine.context, batch->reference_tokens + offset,
                             batch->reference_targets + offset, (uint64_t)config->training.seed, attempt(trainer),
                             batch->rows * length + offset, gradient_scale, &sum));
    }
    return hs_continual_take_reference(trainer->continual, &trainer->engine.context);
}

/* Gradients that no loss scale mends: find the tensor that went first, save, and stop. */
static HsStatus diagnose(HsTrainer *trainer, const HsStreamBatch *batch, const HsStepReport *report)
{
    const HsConfig *config = trainer->config;
    int64_t counted = batch->counted > 0 ? batch->counted : 1;
    char where[192] = "";
    for (int64_t row = 0; row < batch->rows && where[0] == '\0'; row += config->training.batch_size) {
        int64_t offset = row * config->training.max_length;
        HS_TRY(hs_plan_find_nonfinite(&trainer->train_plan, &trainer->engine.context, batch->tokens + offset,
                                      batch->targets + offset, (uint64_t)config->training.seed, attempt(trainer) - 1,
                                      offset, report->loss_scale / (float)counted, where, sizeof where));
    }
    if (where[0] == '\0')
        snprintf(where, sizeof where, "the gradient of %s, in its accumulation",
                 report->first_nonfinite >= 0 ? trainer->spans[report->first_nonfinite].name : "a parameter");
    HS_TRY(hs_trainer_save(trainer));
    return hs_fail(
        HS_ENUMERIC,
        "gradients are not finite at step %lld with loss scale %g, the smallest allowed; first non-finite value: "
        "%s. A checkpoint of this state was saved; lower learning_rate, or use precision.mode bf16 or fp32",
        (long long)trainer->state.applied_steps, (double)report->loss_scale, where);
}

void hs_trainer_copy_optimizer_state(HsTrainer *trainer)
{
    HsTrainerState *state = &trainer->state;
    state->schedule_steps = trainer->optimizer.schedule_steps;
    state->moment_steps = trainer->optimizer.moment_steps;
    state->applied_steps = trainer->optimizer.applied_steps;
    state->skipped_steps = trainer->optimizer.skipped_steps;
    state->loss_scale = (double)trainer->optimizer.scaler.scale;
    state->scaler_tracker = trainer->optimizer.scaler.tracker;
    state->scaler_hysteresis = trainer->optimizer.scaler.hysteresis_left;
}

/* Means of the step into the sums that the next record shows. */
static void count_losses(HsTrainerState *state, const StepLoss *loss)
{
    if (loss->new_count > 0) {
        state->window_loss += loss->new_sum / (double)loss->new_count;
        state->window_steps++;
    }
    if (loss->replay_count > 0) {
        state->window_replay_loss += loss->replay_sum / (double)loss->replay_count;
        state->window_replay_steps++;
    }
}

HsStatus hs_trainer_step(HsTrainer *trainer, double *mean_loss, HsStepReport *report)
{
    StepLoss loss;
    const HsStreamBatch *batch;
    HsContext *context = &trainer->engine.context;
    HsTrainerState *state = &trainer->state;
    int64_t length = trainer->config->training.max_length;
    HS_TRY(hs_stream_next(trainer->stream, &batch));
    if (batch->reference_rows > 0 && hs_continual_wants_reference(trainer->continual, (int)state->task))
        HS_TRY(accumulate_reference(trainer, batch));
    HS_TRY(accumulate(trainer, batch, &loss));
    *mean_loss = loss.new_count > 0 ? loss.new_sum / (double)loss.new_count : NAN;
    HS_TRY(hs_continual_before_update(trainer->continual, context));
    trainer->optimizer.learning_rate_scale =
        batch->step.learning_rate_scale * hs_mer_rate_scale(&trainer->continual_config);
    HS_TRY(hs_optimizer_step(&trainer->optimizer, context, trainer->spans, trainer->span_count, report));
    HS_TRY(hs_continual_after_step(trainer->continual, context, &batch->step));
    hs_trainer_copy_optimizer_state(trainer);
    state->tokens_seen += batch->counted;
    trainer->window_tokens += batch->rows * length;
    if (report->verdict == HS_SCALER_HOPELESS)
        return diagnose(trainer, batch, report);
    if (report->verdict == HS_SCALER_SKIP) {
        hs_info("step %lld skipped: gradients overflow at loss scale %g; the scale is now %g (%lld skipped so far)",
                (long long)state->applied_steps, (double)report->loss_scale, (double)trainer->optimizer.scaler.scale,
                (long long)state->skipped_steps);
    } else {
        state->task_steps++;
        count_losses(state, &loss);
    }
    /* A skipped step may still end a group of MER's, which moves the weights. */
    return hs_model_refresh(&trainer->model, context, false);
}

HsMetricsRecord hs_trainer_record(const HsTrainer *trainer, const char *event)
{
    return (HsMetricsRecord){
        .event = event,
        .step = trainer->state.applied_steps,
        .loss = NAN,
        .val_loss = NAN,
        .learning_rate = NAN,
        .grad_norm = NAN,
        .loss_scale = NAN,
        .skipped_steps = trainer->state.skipped_steps,
        .tokens_per_second = NAN,
        .time_s = hs_clock_s() - trainer->start_s,
        .entropy_floor = NAN,
        .task = trainer->phase_count > 1 && trainer->state.task_begun ? trainer->state.task : -1,
        .penalty = NAN,
        .replay_loss = NAN,
    };
}

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
    record.learning_rate = report->learning_rate;
    record.grad_norm = report->gradient_norm;
    record.loss_scale = (double)report->loss_scale;
    record.tokens_per_second = window_rate(trainer);
    HS_TRY(hs_metrics_record(trainer->metrics, &record));
    state->window_loss = state->window_replay_loss = 0;
    state->window_steps = state->window_replay_steps = 0;
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
    double left = (double)(trainer->total_steps - trainer->state.applied_steps) * per_step;
    double share = trainer->peak_flops > 0 ? rate * trainer->flops_per_token / trainer->peak_flops : 0;
    hs_metrics_progress(trainer->metrics, trainer->state.applied_steps, loss, rate, share, trainer->state.loss_scale,
                        (int64_t)trainer->engine.device.current_bytes, rate > 0 ? left / rate : 0);
}

static HsStatus finish(HsTrainer *trainer)
{
    HsMetricsRecord record = hs_trainer_record(trainer, "end");
    record.task = -1;
    record.val_loss = trainer->state.best_validation;
    if (trainer->has_matrix)
        record.val_loss = hs_matrix_summary(&trainer->matrix).retained;
    HS_TRY(hs_metrics_record(trainer->metrics, &record));
    HsMetricsPosition position;
    HS_TRY(hs_metrics_sync(trainer->metrics, &position));
    double rate = trainer->trained_s > 0 ? (double)trainer->trained_tokens / trainer->trained_s : 0;
    if (trainer->trained_tokens > 0 && trainer->peak_flops > 0)
        hs_info("speed: %.0f tokens/s, %.0f GFLOP/s, %.0f%% of this device's measured %.0f GFLOP/s in %s", rate,
                1e-9 * rate * trainer->flops_per_token, 100 * rate * trainer->flops_per_token / trainer->peak_flops,
                1e-9 * trainer->peak_flops, trainer->precision.name);
    const char *out_dir = trainer->config->training.out_dir;
    if (trainer->has_matrix)
        hs_info("done: %lld steps (%lld skipped), mean validation loss over all tasks %.4f; outputs in %s",
                (long long)trainer->state.applied_steps, (long long)trainer->state.skipped_steps, record.val_loss,
                out_dir);
    else
        hs_info("done: %lld steps (%lld skipped), best validation loss %.4f at step %lld; outputs in %s",
                (long long)trainer->state.applied_steps, (long long)trainer->state.skipped_steps,
                trainer->state.best_validation, (long long)trainer->state.best_step, out_dir);
    HS_TRY(hs_report_write(out_dir));
    hs_info("report: %s/report.html", out_dir);
    return HS_OK;
}

/* What follows an applied step.  Saving comes before evaluation; a task's last step leaves both to its boundary. */
static HsStatus after_step(HsTrainer *trainer, const HsStepReport *report)
{
    const HsConfig *config = trainer->config;
    const HsTrainerState *state = &trainer->state;
    int64_t step = state->applied_steps;
    bool last = state->task_steps == trainer->phase_steps[state->task];
    if (last || due(config->logging.every, step))
        HS_TRY(record_step(trainer, report));
    if (last)
        return HS_OK;
    if (due(config->training.checkpoint_freq, step)) {
        HS_TRY(hs_trainer_save(trainer));
        start_window(trainer);
    }
    if (due(config->evaluation.every, step)) {
        HS_TRY(hs_trainer_evaluate_task(trainer, (int)state->task));
        start_window(trainer);
    }
    return HS_OK;
}

static HsStatus stop_if_asked(HsTrainer *trainer)
{
    if (!stop_signal)
        return HS_OK;
    HS_TRY(hs_trainer_save(trainer));
    return hs_fail(HS_EINTERRUPTED, "stopped by %s after step %lld; saved: the same command goes on from here",
                   stop_signal == SIGINT ? "SIGINT" : "SIGTERM", (long long)trainer->state.applied_steps);
}

static HsStatus train_task(HsTrainer *trainer)
{
    int64_t steps = trainer->phase_steps[trainer->state.task];
    HS_TRY(hs_trainer_begin_task(trainer));
    start_window(trainer);
    while (trainer->state.task_steps < steps) {
        double loss;
        HsStepReport report;
        HS_TRY(stop_if_asked(trainer));
        double began_s = hs_clock_s();
        HS_TRY(hs_trainer_step(trainer, &loss, &report));
        trainer->trained_s += hs_clock_s() - began_s;
        trainer->trained_tokens += trainer->rows_per_step * trainer->config->training.max_length;
        show_progress(trainer, loss);
        if (report.verdict == HS_SCALER_APPLY)
            HS_TRY(after_step(trainer, &report));
    }
    return hs_trainer_finish_task(trainer);
}

HsStatus hs_trainer_run(HsTrainer *trainer)
{
    trainer->start_s = hs_clock_s();
    /* A checkpoint is saved before its step's evaluation: a run that died in between owes it. */
    HS_TRY(hs_trainer_evaluate_owed(trainer));
    while (trainer->state.task < trainer->phase_count)
        HS_TRY(train_task(trainer));
    return finish(trainer);
}
