/* SPDX-License-Identifier: MIT
 *
 * The training loop.  One optimizer step:
 *
 *     batch (prefetched) -> per micro-batch: forward, head with loss, backward: gradients accumulate
 *     -> unscale, check, clip, step or skip, scaler update (optim/update.c) -> packed weights refreshed
 *     -> step record -> checkpoint if due (before evaluation: a crash there loses nothing) -> evaluation if due
 *
 * The loss of a step is the mean over the counted targets of the whole effective batch, known before the first
 * micro-batch runs, so that N micro-batches weigh their targets exactly as one batch would.
 */
#include <math.h>
#include <signal.h>
#include <string.h>

#include "kernels/base/log.h"
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

/* Forward and backward of every micro-batch; *loss is the mean over the counted targets. */
static HsStatus accumulate(HsTrainer *trainer, const HsBatch *batch, double *loss)
{
    const HsConfig *config = trainer->config;
    int64_t micro_tokens = config->training.batch_size * config->training.max_length;
    int64_t counted = batch->counted > 0 ? batch->counted : 1;
    float gradient_scale = trainer->optimizer.scaler.scale / (float)counted;
    double total = 0;
    for (int64_t micro = 0; micro < config->training.gradient_accumulation_steps; micro++) {
        int64_t offset = micro * micro_tokens;
        double sum = 0;
        HS_TRY(hs_plan_train(&trainer->train_plan, &trainer->engine.context, batch->tokens + offset,
                             batch->targets + offset, (uint64_t)config->training.seed,
                             (uint32_t)(trainer->state.applied_steps + trainer->state.skipped_steps), offset,
                             gradient_scale, &sum));
        total += sum;
    }
    *loss = total / (double)counted;
    return HS_OK;
}

/* Gradients that no loss scale mends: find the tensor that went first, save, and stop. */
static HsStatus diagnose(HsTrainer *trainer, const HsBatch *batch, const HsStepReport *report)
{
    const HsConfig *config = trainer->config;
    int64_t micro_tokens = config->training.batch_size * config->training.max_length;
    int64_t counted = batch->counted > 0 ? batch->counted : 1;
    char where[192] = "";
    for (int64_t micro = 0; micro < config->training.gradient_accumulation_steps && where[0] == '\0'; micro++) {
        int64_t offset = micro * micro_tokens;
        HS_TRY(hs_plan_find_nonfinite(&trainer->train_plan, &trainer->engine.context, batch->tokens + offset,
                                      batch->targets + offset, (uint64_t)config->training.seed,
                                      (uint32_t)(trainer->state.applied_steps + trainer->state.skipped_steps - 1),
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

static void copy_scaler_state(HsTrainer *trainer)
{
    HsTrainerState *state = &trainer->state;
    state->applied_steps = trainer->optimizer.applied_steps;
    state->skipped_steps = trainer->optimizer.skipped_steps;
    state->loss_scale = (double)trainer->optimizer.scaler.scale;
    state->scaler_tracker = trainer->optimizer.scaler.tracker;
    state->scaler_hysteresis = trainer->optimizer.scaler.hysteresis_left;
}

static HsStatus train_step(HsTrainer *trainer, double *loss, HsStepReport *report)
{
    const HsBatch *batch;
    HS_TRY(hs_loader_next(trainer->loader, &batch));
    HS_TRY(accumulate(trainer, batch, loss));
    HS_TRY(
        hs_optimizer_step(&trainer->optimizer, &trainer->engine.context, trainer->spans, trainer->span_count, report));
    copy_scaler_state(trainer);
    trainer->state.next_sample = batch->first_index + batch->rows;
    trainer->state.tokens_seen += batch->counted;
    trainer->window_tokens += batch->rows * trainer->config->training.max_length;
    if (report->verdict == HS_SCALER_HOPELESS)
        return diagnose(trainer, batch, report);
    if (report->verdict == HS_SCALER_SKIP) {
        hs_info("step %lld skipped: gradients overflow at loss scale %g; the scale is now %g (%lld skipped so far)",
                (long long)trainer->state.applied_steps, (double)report->loss_scale,
                (double)trainer->optimizer.scaler.scale, (long long)trainer->state.skipped_steps);
        return HS_OK;
    }
    trainer->state.window_loss += *loss;
    trainer->state.window_steps++;
    return hs_model_refresh(&trainer->model, &trainer->engine.context, false);
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
    record.loss = trainer->state.window_loss / (double)trainer->state.window_steps;
    record.learning_rate = report->learning_rate;
    record.grad_norm = report->gradient_norm;
    record.loss_scale = (double)report->loss_scale;
    record.tokens_per_second = window_rate(trainer);
    HS_TRY(hs_metrics_record(trainer->metrics, &record));
    trainer->state.window_loss = 0;
    trainer->state.window_steps = 0;
    start_window(trainer);
    return HS_OK;
}

static HsStatus evaluate(HsTrainer *trainer)
{
    const HsConfig *config = trainer->config;
    double loss;
    HS_TRY(hs_evaluate(&trainer->evaluation_plan, &trainer->engine.context, &trainer->dataset,
                       config->evaluation.batches * config->training.batch_size, trainer->evaluation_tokens,
                       trainer->evaluation_targets, &loss));
    trainer->state.evaluated_at = trainer->state.applied_steps;
    if (isnan(trainer->state.best_validation) || loss < trainer->state.best_validation) {
        trainer->state.best_validation = loss;
        trainer->state.best_step = trainer->state.applied_steps;
    }
    HsMetricsRecord record = hs_trainer_record(trainer, "eval");
    record.val_loss = loss;
    record.entropy_floor = trainer->dataset.validation.entropy_floor;
    HS_TRY(hs_metrics_record(trainer->metrics, &record));
    start_window(trainer);
    return HS_OK;
}

static bool due(int64_t every, int64_t step, int64_t total)
{
    return step == total || (every > 0 && step % every == 0);
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
    record.val_loss = trainer->state.best_validation;
    HS_TRY(hs_metrics_record(trainer->metrics, &record));
    HsMetricsPosition position;
    HS_TRY(hs_metrics_sync(trainer->metrics, &position));
    double rate = trainer->trained_s > 0 ? (double)trainer->trained_tokens / trainer->trained_s : 0;
    if (trainer->trained_tokens > 0 && trainer->peak_flops > 0)
        hs_info("speed: %.0f tokens/s, %.0f GFLOP/s, %.0f%% of this device's measured %.0f GFLOP/s in %s", rate,
                1e-9 * rate * trainer->flops_per_token, 100 * rate * trainer->flops_per_token / trainer->peak_flops,
                1e-9 * trainer->peak_flops, trainer->precision.name);
    hs_info("done: %lld steps (%lld skipped), best validation loss %.4f at step %lld; outputs in %s",
            (long long)trainer->state.applied_steps, (long long)trainer->state.skipped_steps,
            trainer->state.best_validation, (long long)trainer->state.best_step, trainer->config->training.out_dir);
    return HS_OK;
}

/* What follows an applied step.  Saving comes before evaluation. */
static HsStatus after_step(HsTrainer *trainer, const HsStepReport *report)
{
    const HsConfig *config = trainer->config;
    int64_t step = trainer->state.applied_steps;
    if (due(config->logging.every, step, trainer->total_steps))
        HS_TRY(record_step(trainer, report));
    if (due(config->training.checkpoint_freq, step, trainer->total_steps)) {
        HS_TRY(hs_trainer_save(trainer));
        start_window(trainer);
    }
    if (due(config->evaluation.every, step, trainer->total_steps))
        HS_TRY(evaluate(trainer));
    return HS_OK;
}

HsStatus hs_trainer_run(HsTrainer *trainer)
{
    const HsConfig *config = trainer->config;
    trainer->start_s = hs_clock_s();
    start_window(trainer);
    /* A checkpoint is saved before its step's evaluation: a run that died in between owes it. */
    if (trainer->resumed && trainer->state.evaluated_at != trainer->state.applied_steps &&
        due(config->evaluation.every, trainer->state.applied_steps, trainer->total_steps))
        HS_TRY(evaluate(trainer));
    while (trainer->state.applied_steps < trainer->total_steps) {
        if (stop_signal) {
            HS_TRY(hs_trainer_save(trainer));
            return hs_fail(HS_EINTERRUPTED, "stopped by %s after step %lld; saved: the same command goes on from here",
                           stop_signal == SIGINT ? "SIGINT" : "SIGTERM", (long long)trainer->state.applied_steps);
        }
        double loss;
        HsStepReport report;
        double began_s = hs_clock_s();
        HS_TRY(train_step(trainer, &loss, &report));
        trainer->trained_s += hs_clock_s() - began_s;
        trainer->trained_tokens += trainer->rows_per_step * config->training.max_length;
        show_progress(trainer, loss);
        if (report.verdict == HS_SCALER_APPLY)
            HS_TRY(after_step(trainer, &report));
    }
    return finish(trainer);
}
