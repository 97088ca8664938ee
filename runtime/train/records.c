/* SPDX-License-Identifier: MIT
 *
 * What is recorded of a run: the fields that all records share, the run's page and its figures.
 */
#include <math.h>
#include <stdlib.h>

#include "runtime/model/adapter.h"
#include "runtime/train/run.h"

HsMetricsRecord hs_run_record(const HsRun *run, const char *event)
{
    const HsTraining *training = &run->training;
    return (HsMetricsRecord){
        .event = event,
        .step = training->state.counters.applied_steps,
        .loss = NAN,
        .val_loss = NAN,
        .learning_rate = NAN,
        .grad_norm = NAN,
        .loss_scale = NAN,
        .skipped_steps = training->state.counters.skipped_steps,
        .tokens_per_second = NAN,
        .time_s = hs_clock_s() - run->start_s,
        .entropy_floor = NAN,
        .bits_per_byte = NAN,
        .accuracy_seen = NAN,
        .accuracy_unseen = NAN,
        .task = training->lengths.phase_count > 1 && training->state.task_begun ? training->state.task : -1,
        .penalty = NAN,
        .replay_loss = NAN,
        .distillation = NAN,
    };
}

void hs_training_start_losses(HsTrainingState *state)
{
    state->window_loss = state->window_replay_loss = state->window_distillation = 0;
    state->window_steps = state->window_replay_steps = state->window_distillation_steps = 0;
}

void hs_training_list_memory(const HsTraining *training, HsMetricsRun *run)
{
    run->memory_count = 0;
    for (int i = 0; i < HS_MEMORY_COUNT; i++) {
        if (training->planned.bytes[i] == 0)
            continue;
        run->memory[run->memory_count].what = hs_memory_row((HsMemoryCategory)i)->name;
        run->memory[run->memory_count++].bytes = (int64_t)training->planned.bytes[i];
    }
}

HsStatus hs_training_write_run_info(const HsTraining *training, const char *processes)
{
    const HsLengths *lengths = &training->lengths;
    const HsConfig *config = training->config;
    char strategy[128] = "", model[160], adapter[96] = "";
    if (!hs_training_records(training))
        return HS_OK;
    size_t used = 0;
    const HsContinualConfig *continual = &training->continual_config;
    for (int i = 0; i < continual->strategy_count && used < sizeof strategy; i++)
        used += (size_t)snprintf(strategy + used, sizeof strategy - used, "%s%s", i > 0 ? " + " : "",
                                 continual->strategies[i]);
    snprintf(model, sizeof model, "%.40s, %lld layers, width %lld", training->model.family,
             (long long)training->model.layers, (long long)training->model.width);
    if (hs_adapter_wanted(config))
        snprintf(adapter, sizeof adapter, "%s, rank %lld%s", config->adapter.kind, (long long)config->adapter.rank,
                 strcmp(config->adapter.base, "nf4") == 0 ? ", base in nf4" : "");
    const char **names = calloc((size_t)lengths->phase_count, sizeof *names);
    if (!names)
        return hs_fail(HS_ENOMEM, "no memory for %d task names", lengths->phase_count);
    for (int i = 0; i < lengths->phase_count; i++)
        names[i] = lengths->one_phase ? "all tasks" : config->tasks[i].name;
    HsMetricsRun run = {
        .name = config->training.out_dir,
        .device = training->engine.device.description,
        .precision = training->precision.name,
        .strategy = strategy,
        .processes = processes,
        .model = model,
        .from = config->training.init_from[0] ? config->training.init_from : NULL,
        .adapter = adapter[0] ? adapter : NULL,
        .parameters = hs_model_parameter_count(&training->model),
        .trained_parameters = hs_model_trainable_count(&training->model),
        .total_steps = lengths->total_steps,
        .task_count = lengths->phase_count,
        .task_names = names,
        .task_steps = lengths->phase_steps,
    };
    hs_training_list_memory(training, &run);
    HsStatus status = hs_metrics_run(config->training.out_dir, &run);
    free(names);
    return status;
}

void hs_training_probe_peak(HsTraining *training)
{
    const HsContext *context = &training->engine.context;
    const HsPrecision *precision = &training->precision;
    if (context->backend->peak_flops)
        training->peak_flops =
            fmax(training->peak_flops, context->backend->peak_flops(context, precision->weight, precision->forward));
}

void hs_training_copy_optimizer_state(HsTraining *training)
{
    training->state.counters = training->optimizer.counters;
}
