/* SPDX-License-Identifier: MIT
 *
 * Making a training run: engine, precision, data, model, plans, optimizer, in the order in which each needs the one
 * before.  Everything is allocated here; the loop allocates nothing.
 */
#include "runtime/trainer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base/log.h"
#include "runtime/config_continual.h"

static HsScalerKind scaler_kind(const HsConfig *config, const HsPrecision *precision)
{
    static const struct {
        const char *name;
        HsScalerKind kind;
    } kinds[] = { { "dynamic", HS_SCALER_DYNAMIC }, { "static", HS_SCALER_STATIC }, { "none", HS_SCALER_NONE } };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(config->precision.loss_scale, kinds[i].name) == 0)
            return kinds[i].kind;
    return precision->loss_scaling ? HS_SCALER_DYNAMIC : HS_SCALER_NONE;
}

static HsOptimizerConfig optimizer_config(const HsConfig *config)
{
    return (HsOptimizerConfig){
        .kind = strcmp(config->optimizer.kind, "sgd") == 0 ? HS_OPTIMIZER_SGD : HS_OPTIMIZER_ADAMW,
        .beta1 = config->optimizer.betas[0],
        .beta2 = config->optimizer.betas[1],
        .epsilon = config->optimizer.epsilon,
        .momentum = config->optimizer.momentum,
        .nesterov = config->optimizer.nesterov,
        .weight_decay = config->training.weight_decay,
        .clip_norm = config->optimizer.clip_norm,
        .seed = (uint64_t)config->training.seed,
    };
}

static HsStatus create_optimizer(HsTrainer *trainer, const HsOptimizerConfig *rule)
{
    const HsConfig *config = trainer->config;
    HsSchedule schedule; /* a placeholder: each task sets its own */
    HS_TRY(hs_schedule_init(&schedule, "constant", config->training.learning_rate, 0, 0, 0, 0));
    HsScalerConfig scaler = {
        .kind = scaler_kind(config, &trainer->precision),
        .init_scale = config->precision.init_scale,
        .growth_factor = config->precision.growth_factor,
        .backoff_factor = config->precision.backoff_factor,
        .min_scale = config->precision.min_scale,
        .max_scale = config->precision.max_scale,
        .growth_interval = config->precision.growth_interval,
        .hysteresis = config->precision.hysteresis,
    };
    trainer->spans = calloc((size_t)trainer->model.param_count, sizeof *trainer->spans);
    if (!trainer->spans)
        return hs_fail(HS_ENOMEM, "no memory for %d parameter spans", trainer->model.param_count);
    trainer->span_count = hs_model_spans(&trainer->model, trainer->spans);
    HS_TRY(hs_trainer_mark_excluded(trainer, trainer->spans, trainer->span_count));
    HS_TRY(
        hs_optimizer_init(&trainer->optimizer, &trainer->engine.device, rule, &schedule, &scaler, trainer->span_count));
    trainer->has_optimizer = true;
    return HS_OK;
}

/* The tokenizer of the checkpoint to go on from, so that the vocabulary cannot drift; NULL when starting fresh. */
static HsStatus checkpoint_tokenizer(const char *folder, HsTokenizer **tokenizer)
{
    *tokenizer = NULL;
    if (!folder)
        return HS_OK;
    char path[4096];
    snprintf(path, sizeof path, "%s/tokenizer.json", folder);
    return hs_tokenizer_load(path, tokenizer);
}

static double mebibytes(size_t bytes)
{
    return (double)bytes / (1024.0 * 1024.0);
}

/* What the strategies will take on the device: spans have their shapes before anything is allocated. */
static HsStatus continual_bytes(HsTrainer *trainer, size_t *bytes)
{
    HsSpan *spans = calloc((size_t)trainer->model.param_count, sizeof *spans);
    if (!spans)
        return hs_fail(HS_ENOMEM, "no memory for %d parameter spans", trainer->model.param_count);
    int count = hs_model_spans(&trainer->model, spans);
    HsStatus status = hs_trainer_mark_excluded(trainer, spans, count);
    *bytes = status == HS_OK ? hs_continual_device_bytes(&trainer->continual_config, spans, count) : 0;
    free(spans);
    return status;
}

static HsStepShape step_shape(const HsTrainer *trainer)
{
    return (HsStepShape){
        .rows = trainer->rows_per_step,
        .reference_rows = hs_continual_replay_plan(&trainer->continual_config, trainer->rows_per_step).reference_rows,
        .length = trainer->config->training.max_length,
        .loss = trainer->precision.statistic,
    };
}

/* Refuse before anything is allocated. */
static HsStatus check_memory(HsTrainer *trainer, int states)
{
    size_t strategies = 0;
    HS_TRY(continual_bytes(trainer, &strategies));
    size_t model = hs_model_bytes(&trainer->model, &trainer->engine.context, true, states);
    const HsStepShape shape = step_shape(trainer);
    size_t activations = trainer->train_plan.activation_bytes + trainer->evaluation_plan.activation_bytes +
                         hs_step_queue_bytes(&trainer->engine.device, &shape);
    size_t workspace = trainer->train_plan.workspace_bytes + trainer->evaluation_plan.workspace_bytes;
    /* The reservoir lies on the host, which is the device's memory only where the device is the host. */
    size_t buffer = trainer->engine.device.host_accessible ? hs_trainer_reservoir_bytes(trainer) : 0;
    size_t total = model + activations + workspace + strategies + buffer;
    double share = trainer->config->training.target_gpu_util;
    double allowed = share * (double)trainer->engine.device.memory_bytes;
    if ((double)total <= allowed)
        return HS_OK;
    return hs_fail(
        HS_ENOMEM,
        "the plan needs %.0f MiB (model and optimizer %.0f, strategies %.0f, replay buffer %.0f, activations %.0f, "
        "workspace %.0f), but target_gpu_util %g of %.0f MiB allows %.0f: lower batch_size and raise "
        "gradient_accumulation_steps, or set memory.recompute: block",
        mebibytes(total), mebibytes(model), mebibytes(strategies), mebibytes(buffer), mebibytes(activations),
        mebibytes(workspace), share, mebibytes(trainer->engine.device.memory_bytes), allowed / (1024.0 * 1024.0));
}

static HsStatus create_model_and_plans(HsTrainer *trainer, const HsOptimizerConfig *rule)
{
    const HsConfig *config = trainer->config;
    HsContext *context = &trainer->engine.context;
    HsRecompute policy;
    HS_TRY(
        hs_recompute_find(config->training.use_gradient_checkpointing ? "block" : config->memory.recompute, &policy));
    HS_TRY(hs_model_create(config, &trainer->precision, hs_tokenizer_vocabulary(trainer->data.tokenizer),
                           &trainer->model));
    trainer->has_model = true;
    HS_TRY(hs_plan_create(&trainer->model, context, config->training.batch_size, config->training.max_length, true,
                          policy, config->memory.recompute_every, &trainer->train_plan));
    trainer->has_train_plan = true;
    HS_TRY(hs_plan_create(&trainer->model, context, config->training.batch_size, config->training.max_length, false,
                          HS_RECOMPUTE_NONE, 1, &trainer->evaluation_plan));
    trainer->has_evaluation_plan = true;
    HS_TRY(check_memory(trainer, hs_optimizer_state_count(rule)));
    HS_TRY(hs_model_commit(&trainer->model, context, true, hs_optimizer_state_count(rule)));
    HS_TRY(hs_plan_commit(&trainer->train_plan, context));
    HS_TRY(hs_plan_commit(&trainer->evaluation_plan, context));
    HS_TRY(hs_model_initialize(&trainer->model, context, (uint64_t)config->training.seed, config->model.init_std));
    return HS_OK;
}

static void describe(const HsTrainer *trainer)
{
    const HsModel *model = &trainer->model;
    const HsConfig *config = trainer->config;
    hs_info("device: %s", trainer->engine.why);
    hs_info("precision: %s", trainer->precision_why);
    hs_info("model: %s, %lld layers, width %lld, vocabulary %lld, %.3f million parameters", model->family,
            (long long)model->layers, (long long)model->width, (long long)model->vocabulary,
            1e-6 * (double)hs_model_parameter_count(model));
    for (int i = 0; i < trainer->data.count; i++)
        hs_info("%s %s: %lld training and %lld validation tokens",
                trainer->data.count > 1 ? "task" : "data:", config->tasks[i].name,
                (long long)trainer->data.tasks[i].train.count, (long long)trainer->data.tasks[i].validation.count);
    hs_info("steps: %lld of %lld x %lld tokens", (long long)trainer->total_steps, (long long)trainer->rows_per_step,
            (long long)config->training.max_length);
    HsMetricsRun run = { 0 };
    char memory[512] = "";
    size_t used = 0;
    hs_trainer_list_memory(trainer, &run);
    for (int i = 0; i < run.memory_count && used < sizeof memory; i++)
        used += (size_t)snprintf(memory + used, sizeof memory - used, "%s%s %.1f", i > 0 ? ", " : "",
                                 run.memory[i].what, mebibytes((size_t)run.memory[i].bytes));
    hs_info("memory (MiB): %s", memory);
    hs_trainer_describe_graph(trainer);
}

static HsStatus write_run_info(HsTrainer *trainer)
{
    const HsConfig *config = trainer->config;
    char strategy[128] = "", model[160];
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
        names[i] = trainer->joint ? "all tasks" : config->tasks[i].name;
    HsMetricsRun run = {
        .name = config->training.out_dir,
        .device = trainer->engine.device.description,
        .precision = trainer->precision.name,
        .strategy = strategy,
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

static HsStatus create_stream_and_metrics(HsTrainer *trainer)
{
    const HsConfig *config = trainer->config;
    double *weights = calloc((size_t)trainer->data.count, sizeof *weights);
    if (!weights)
        return hs_fail(HS_ENOMEM, "no memory for %d task weights", trainer->data.count);
    HsStreamOptions stream = {
        .data = &trainer->data,
        .joint = trainer->joint,
        .weights = weights,
        .plan = hs_continual_replay_plan(&trainer->continual_config, trainer->rows_per_step),
        .reservoir = trainer->has_reservoir ? &trainer->reservoir : NULL,
        .prefetch = config->data.prefetch,
        .workers = config->data.workers,
    };
    for (int i = 0; i < trainer->data.count; i++)
        weights[i] = (double)hs_trainer_task_steps(trainer, i);
    HsStatus status = hs_stream_create(&stream, &trainer->stream);
    free(weights);
    HS_TRY(status);
    HsMetricsPosition position = { trainer->state.jsonl_bytes, trainer->state.tensorboard_bytes };
    HsMetricsOptions options = {
        .out_dir = config->training.out_dir,
        .tensorboard = config->logging.tensorboard,
        .progress = config->logging.progress,
        .total_steps = trainer->total_steps,
        .resume_at = trainer->resumed ? &position : NULL,
    };
    HS_TRY(hs_metrics_create(&options, &trainer->metrics));
    return write_run_info(trainer);
}

/* Scratch of what runs outside the plans, which bring their own: statistics, updates, strategies. */
static HsStatus create_workspace(HsTrainer *trainer)
{
    HsContext *context = &trainer->engine.context, dry = *context;
    dry.dry_run = true;
    dry.workspace_needed = 0;
    HS_TRY(hs_optimizer_update(&trainer->optimizer, &dry, trainer->spans, trainer->span_count));
    HS_TRY(hs_continual_dry_run(trainer->continual, &dry));
    hs_arena_init(&trainer->workspace, context->device, "workspace of the update");
    if (dry.workspace_needed == 0)
        return HS_OK;
    hs_arena_reserve(&trainer->workspace, dry.workspace_needed);
    HS_TRY(hs_arena_commit(&trainer->workspace));
    context->workspace = trainer->workspace.base;
    context->workspace_bytes = trainer->workspace.capacity;
    return HS_OK;
}

static HsStatus create(HsTrainer *trainer, const char *folder)
{
    HsConfig *config = trainer->config;
    const HsEngineOptions engine = hs_engine_options(config);
    HS_TRY(hs_engine_init(&trainer->engine, &engine));
    HS_TRY(hs_precision_resolve(config, trainer->engine.products, &trainer->precision, trainer->precision_why,
                                sizeof trainer->precision_why));
    HsTokenizer *tokenizer;
    HS_TRY(checkpoint_tokenizer(folder, &tokenizer));
    HS_TRY(hs_task_data_create(config, tokenizer, &trainer->data));
    trainer->has_data = true;
    HS_TRY(hs_config_continual(config, &trainer->continual_config));
    HS_TRY(hs_trainer_count_steps(trainer));
    HsOptimizerConfig rule = optimizer_config(config);
    HS_TRY(create_model_and_plans(trainer, &rule));
    HS_TRY(create_optimizer(trainer, &rule));
    HS_TRY(hs_trainer_create_continual(trainer));
    HS_TRY(create_workspace(trainer));
    const HsStepShape shape = step_shape(trainer);
    HS_TRY(hs_step_queue_init(&trainer->queue, &trainer->engine.context, &shape));
    size_t rows = (size_t)(config->training.batch_size * config->training.max_length);
    trainer->evaluation_tokens = calloc(rows, sizeof(int32_t));
    trainer->evaluation_targets = calloc(rows, sizeof(int32_t));
    if (!trainer->evaluation_tokens || !trainer->evaluation_targets)
        return hs_fail(HS_ENOMEM, "no memory for an evaluation batch of %zu tokens", rows);
    if (folder)
        HS_TRY(hs_trainer_resume(trainer, folder));
    HS_TRY(hs_model_refresh(&trainer->model, &trainer->engine.context, true));
    const HsContext *context = &trainer->engine.context;
    if (context->backend->peak_flops)
        trainer->peak_flops =
            context->backend->peak_flops(context, trainer->precision.forward.a, trainer->precision.forward.tf32);
    trainer->flops_per_token = hs_model_flops_per_token(&trainer->model, config->training.max_length);
    describe(trainer);
    return create_stream_and_metrics(trainer);
}

HsStatus hs_trainer_create(HsConfig *config, HsTrainer *trainer)
{
    memset(trainer, 0, sizeof *trainer);
    trainer->config = config;
    trainer->state.evaluated_at = -1;
    trainer->state.best_validation = NAN;
    char *folder = NULL;
    HsStatus status = hs_trainer_find_checkpoint(config, &folder);
    if (status == HS_OK)
        status = hs_checkpoint_clean(config->training.out_dir); /* what a killed run left half written */
    if (status == HS_OK)
        status = create(trainer, folder);
    free(folder);
    if (status != HS_OK)
        hs_trainer_destroy(trainer);
    return status;
}

void hs_trainer_destroy(HsTrainer *trainer)
{
    if (trainer->metrics)
        (void)hs_metrics_destroy(trainer->metrics);
    hs_stream_destroy(trainer->stream);
    hs_step_queue_deinit(&trainer->queue);
    hs_trainer_forget_graph(trainer);
    hs_continual_destroy(trainer->continual);
    if (trainer->has_reservoir)
        hs_reservoir_deinit(&trainer->reservoir);
    if (trainer->has_optimizer)
        hs_optimizer_deinit(&trainer->optimizer);
    if (trainer->workspace.device)
        hs_arena_deinit(&trainer->workspace);
    if (trainer->has_train_plan)
        hs_plan_destroy(&trainer->train_plan);
    if (trainer->has_evaluation_plan)
        hs_plan_destroy(&trainer->evaluation_plan);
    if (trainer->has_model)
        hs_model_destroy(&trainer->model);
    if (trainer->has_data)
        hs_task_data_deinit(&trainer->data);
    if (trainer->has_matrix)
        hs_matrix_deinit(&trainer->matrix);
    free(trainer->phase_steps);
    free(trainer->spans);
    free(trainer->evaluation_tokens);
    free(trainer->evaluation_targets);
    hs_engine_deinit(&trainer->engine);
    memset(trainer, 0, sizeof *trainer);
}
