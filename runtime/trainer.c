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

/* Applied steps of the whole run: max_steps, or as many as max_epochs hold. */
static HsStatus count_steps(HsTrainer *trainer)
{
    const HsConfig *config = trainer->config;
    trainer->rows_per_step = config->training.batch_size * config->training.gradient_accumulation_steps;
    trainer->total_steps = config->training.max_steps;
    if (trainer->total_steps > 0)
        return HS_OK;
    int64_t windows = hs_dataset_windows(&trainer->dataset);
    double steps = config->training.max_epochs * (double)windows / (double)trainer->rows_per_step;
    if (!(steps >= 1))
        return hs_fail(
            HS_ECONFIG,
            "max_epochs %g of %lld sequences is less than one step of %lld: lower batch_size, raise max_epochs "
            "or set max_steps",
            config->training.max_epochs, (long long)windows, (long long)trainer->rows_per_step);
    trainer->total_steps = (int64_t)steps;
    return HS_OK;
}

static HsStatus create_optimizer(HsTrainer *trainer, const HsOptimizerConfig *rule)
{
    const HsConfig *config = trainer->config;
    HsSchedule schedule;
    int64_t decay_steps = config->schedule.decay_steps > 0 ? config->schedule.decay_steps : trainer->total_steps;
    HS_TRY(hs_schedule_init(&schedule, config->schedule.kind, config->training.learning_rate,
                            config->schedule.min_learning_rate, config->schedule.warmup_steps, decay_steps,
                            config->schedule.wsd_decay_fraction));
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

/* Refuse before anything is allocated. */
static HsStatus check_memory(HsTrainer *trainer, int states)
{
    size_t model = hs_model_bytes(&trainer->model, &trainer->engine.context, true, states);
    size_t activations = trainer->train_plan.activation_bytes + trainer->evaluation_plan.activation_bytes;
    size_t workspace = trainer->train_plan.workspace_bytes + trainer->evaluation_plan.workspace_bytes;
    double share = trainer->config->training.target_gpu_util;
    double allowed = share * (double)trainer->engine.device.memory_bytes;
    if ((double)(model + activations + workspace) <= allowed)
        return HS_OK;
    return hs_fail(
        HS_ENOMEM,
        "the plan needs %.0f MiB (model and optimizer %.0f, activations %.0f, workspace %.0f), but "
        "target_gpu_util %g of %.0f MiB allows %.0f: lower batch_size and raise gradient_accumulation_steps, or "
        "set memory.recompute: block",
        mebibytes(model + activations + workspace), mebibytes(model), mebibytes(activations), mebibytes(workspace),
        share, mebibytes(trainer->engine.device.memory_bytes), allowed / (1024.0 * 1024.0));
}

static HsStatus create_model_and_plans(HsTrainer *trainer, const HsOptimizerConfig *rule)
{
    const HsConfig *config = trainer->config;
    HsContext *context = &trainer->engine.context;
    HsRecompute policy;
    HS_TRY(
        hs_recompute_find(config->training.use_gradient_checkpointing ? "block" : config->memory.recompute, &policy));
    HS_TRY(hs_model_create(config, &trainer->precision, hs_tokenizer_vocabulary(trainer->dataset.tokenizer),
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
    hs_info("data: %lld training and %lld validation tokens, %lld steps of %lld x %lld tokens",
            (long long)trainer->dataset.train.count, (long long)trainer->dataset.validation.count,
            (long long)trainer->total_steps, (long long)trainer->rows_per_step, (long long)config->training.max_length);
    hs_info("memory (MiB): weights %.1f, masters %.1f, gradients %.1f, optimizer %.1f, packed %.1f, activations %.1f, "
            "workspace %.1f",
            mebibytes(model->weights.capacity), mebibytes(model->masters.capacity),
            mebibytes(model->gradients.capacity), mebibytes(model->states.capacity), mebibytes(model->packed.capacity),
            mebibytes(trainer->train_plan.activations.capacity), mebibytes(trainer->train_plan.workspace.capacity));
    if (hs_config_is_set(config, "ewc.lambda") || hs_config_is_set(config, "mer.buffer_size"))
        hs_info(
            "the sections ewc and mer are set, but this version trains one task without a continual strategy: they are "
            "checked and kept, and change nothing");
}

static HsStatus create_loader_and_metrics(HsTrainer *trainer)
{
    const HsConfig *config = trainer->config;
    HS_TRY(hs_loader_create(&trainer->dataset, trainer->rows_per_step, trainer->state.next_sample,
                            config->data.prefetch, config->data.workers, &trainer->loader));
    HsMetricsPosition position = { trainer->state.jsonl_bytes, trainer->state.tensorboard_bytes };
    HsMetricsOptions options = {
        .out_dir = config->training.out_dir,
        .tensorboard = config->logging.tensorboard,
        .progress = config->logging.progress,
        .total_steps = trainer->total_steps,
        .resume_at = trainer->resumed ? &position : NULL,
    };
    return hs_metrics_create(&options, &trainer->metrics);
}

static HsStatus create(HsTrainer *trainer, const char *folder)
{
    HsConfig *config = trainer->config;
    HS_TRY(hs_engine_init(&trainer->engine, config->training.device, config->training.threads));
    HS_TRY(hs_precision_resolve(config, trainer->engine.has_bf16, &trainer->precision, trainer->precision_why,
                                sizeof trainer->precision_why));
    HsTokenizer *tokenizer;
    HS_TRY(checkpoint_tokenizer(folder, &tokenizer));
    HS_TRY(hs_dataset_create(config, &config->tasks[0], tokenizer, &trainer->dataset));
    trainer->has_dataset = true;
    HS_TRY(count_steps(trainer));
    HsOptimizerConfig rule = optimizer_config(config);
    HS_TRY(create_model_and_plans(trainer, &rule));
    HS_TRY(create_optimizer(trainer, &rule));
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
        trainer->peak_flops = context->backend->peak_flops(context, trainer->precision.forward.a);
    trainer->flops_per_token = hs_model_flops_per_token(&trainer->model, config->training.max_length);
    describe(trainer);
    return create_loader_and_metrics(trainer);
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
    if (trainer->loader)
        hs_loader_destroy(trainer->loader);
    if (trainer->has_optimizer)
        hs_optimizer_deinit(&trainer->optimizer);
    if (trainer->has_train_plan)
        hs_plan_destroy(&trainer->train_plan);
    if (trainer->has_evaluation_plan)
        hs_plan_destroy(&trainer->evaluation_plan);
    if (trainer->has_model)
        hs_model_destroy(&trainer->model);
    if (trainer->has_dataset)
        hs_dataset_deinit(&trainer->dataset);
    free(trainer->spans);
    free(trainer->evaluation_tokens);
    free(trainer->evaluation_targets);
    memset(trainer, 0, sizeof *trainer);
}
