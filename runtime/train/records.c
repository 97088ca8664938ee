/* SPDX-License-Identifier: MIT
 *
 * What is recorded of a run: the fields that all records share, the run's page and its figures.
 */
#include <math.h>
#include <stdlib.h>

#include "runtime/train/trainer.h"

HsMetricsRecord hs_trainer_record(const HsTrainer *trainer, const char *event)
{
    return (HsMetricsRecord){
        .event = event,
        .step = trainer->state.counters.applied_steps,
        .loss = NAN,
        .val_loss = NAN,
        .learning_rate = NAN,
        .grad_norm = NAN,
        .loss_scale = NAN,
        .skipped_steps = trainer->state.counters.skipped_steps,
        .tokens_per_second = NAN,
        .time_s = hs_clock_s() - trainer->start_s,
        .entropy_floor = NAN,
        .bits_per_byte = NAN,
        .accuracy_seen = NAN,
        .accuracy_unseen = NAN,
        .task = trainer->phase_count > 1 && trainer->state.task_begun ? trainer->state.task : -1,
        .penalty = NAN,
        .replay_loss = NAN,
        .distillation = NAN,
    };
}

void hs_trainer_start_losses(HsTrainerState *state)
{
    state->window_loss = state->window_replay_loss = state->window_distillation = 0;
    state->window_steps = state->window_replay_steps = state->window_distillation_steps = 0;
}

void hs_trainer_list_memory(const HsTrainer *trainer, HsMetricsRun *run)
{
    run->memory_count = 0;
    for (int i = 0; i < HS_MEMORY_COUNT; i++) {
        if (trainer->planned.bytes[i] == 0)
            continue;
        run->memory[run->memory_count].what = hs_memory_row((HsMemoryCategory)i)->name;
        run->memory[run->memory_count++].bytes = (int64_t)trainer->planned.bytes[i];
    }
}

HsStatus hs_trainer_write_run_info(const HsTrainer *trainer, const char *processes)
{
    const HsConfig *config = trainer->config;
    char strategy[128] = "", model[160];
    if (!hs_trainer_records(trainer))
        return HS_OK;
    size_t used = 0;
    const HsContinualConfig *continual = &trainer->continual_config;
    for (int i = 0; i < continual->strategy_count && used < sizeof strategy; i++)
        used += (size_t)snprintf(strategy + used, sizeof strategy - used, "%s%s", i > 0 ? " + " : "",
                                 continual->strategies[i]);
    snprintf(model, sizeof model, "%.40s, %lld layers, width %lld", trainer->model.family,
             (long long)trainer->model.layers, (long long)trainer->model.width);
    const char **names = calloc((size_t)trainer->phase_count, sizeof *names);
    if (!names)
        return hs_fail(HS_ENOMEM, "no memory for %d task names", trainer->phase_count);
    for (int i = 0; i < trainer->phase_count; i++)
        names[i] = trainer->one_phase ? "all tasks" : config->tasks[i].name;
    HsMetricsRun run = {
        .name = config->training.out_dir,
        .device = trainer->engine.device.description,
        .precision = trainer->precision.name,
        .strategy = strategy,
        .processes = processes,
        .model = model,
        .parameters = hs_model_parameter_count(&trainer->model),
        .total_steps = trainer->total_steps,
        .task_count = trainer->phase_count,
        .task_names = names,
        .task_steps = trainer->phase_steps,
    };
    hs_trainer_list_memory(trainer, &run);
    HsStatus status = hs_metrics_run(config->training.out_dir, &run);
    free(names);
    return status;
}

void hs_trainer_probe_peak(HsTrainer *trainer)
{
    const HsContext *context = &trainer->engine.context;
    const HsPrecision *precision = &trainer->precision;
    if (context->backend->peak_flops)
        trainer->peak_flops =
            fmax(trainer->peak_flops, context->backend->peak_flops(context, precision->weight, precision->forward));
}

void hs_trainer_copy_optimizer_state(HsTrainer *trainer)
{
    trainer->state.counters = trainer->optimizer.counters;
}
