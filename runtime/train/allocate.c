/* SPDX-License-Identifier: MIT
 *
 * What a run allocates: model, programs, optimizer, strategies, scratch, batches, in the order in which each needs the
 * one before.  Steps allocate nothing.
 *
 * The memory plan is this same code on a device that only counts, in a dry context: what it predicts is what is
 * allocated afterwards, and training never takes more.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/config/continual.h"
#include "runtime/train/fisher.h"
#include "runtime/train/trainer.h"

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

static HsStatus optimizer_config(const HsConfig *config, const HsPrecision *precision, HsOptimizerConfig *rules)
{
    *rules = (HsOptimizerConfig){
        .beta1 = config->optimizer.betas[0],
        .beta2 = config->optimizer.betas[1],
        .epsilon = config->optimizer.epsilon,
        .momentum = config->optimizer.momentum,
        .nesterov = config->optimizer.nesterov,
        .weight_decay = config->training.weight_decay,
        .clip_norm = config->optimizer.clip_norm,
        .moments = strcmp(config->optimizer.moments, "bf16") == 0 ? HS_BF16 : HS_F32,
        .muon = { .momentum = config->muon.momentum,
                  .nesterov = config->muon.nesterov,
                  .steps = config->muon.steps,
                  .product = precision->weight,
                  .policy = precision->forward },
        .seed = (uint64_t)config->training.seed,
    };
    return hs_optimizer_kind_find(config->optimizer.kind, &rules->kind);
}

/* What is not updated element by element is one process's. */
static bool stays_whole(const HsSpan *span, const void *user)
{
    const HsTrainer *trainer = user;
    return (hs_continual_whole_matrices(&trainer->continual_config) && span->uses != 0) ||
           hs_optimizer_kind_of(&trainer->optimizer.config, span) == HS_OPTIMIZER_MUON;
}

/* Every trainable parameter with its group, then those whose states are this process's. */
static HsStatus divide_states(HsTrainer *trainer, const HsOptimizerConfig *rules)
{
    const HsStrategy *matrices = hs_continual_whole_matrices(&trainer->continual_config);
    const bool shared = trainer->config->distributed.zero > 0;
    if (shared && matrices)
        return hs_fail(HS_ECONFIG,
                       "distributed.zero: %lld divides parameters among processes, and strategy %s works on whole "
                       "matrices: set zero to 0%s%s",
                       (long long)trainer->config->distributed.zero, matrices->name,
                       matrices->by_element ? ", or " : "", matrices->by_element ? matrices->by_element : "");
    HsSpan *whole = calloc((size_t)trainer->model.param_count + 1, sizeof *whole);
    if (!whole)
        return hs_fail(HS_ENOMEM, "no memory for %d parameter spans", trainer->model.param_count);
    const int count = hs_model_spans(&trainer->model, whole);
    trainer->shards.whole = whole;
    trainer->shards.whole_count = count;
    trainer->optimizer.config = *rules;
    HS_TRY(hs_trainer_mark_excluded(trainer, whole, count));
    HS_TRY(hs_trainer_join_groups(trainer));
    HS_TRY(hs_shards_create(whole, count, trainer->ranks.count > 1, stays_whole, trainer, shared, trainer->engine.comm,
                            &trainer->shards));
    trainer->share = hs_shards_share(&trainer->shards, trainer->engine.comm);
    trainer->share.on_host = hs_trainer_offload_level(trainer) != HS_OFFLOAD_NONE;
    trainer->spans = trainer->share.all + trainer->share.first;
    trainer->span_count = trainer->share.count;
    trainer->shards.streams = hs_trainer_streams_weights(trainer);
    return hs_trainer_create_exchange(trainer);
}

/* Masters and states of whole parameters, for checkpoints. */
static void view_states(HsTrainer *trainer)
{
    for (int w = 0, s = 0; w < trainer->shards.whole_count; w++) {
        HsSpan *whole = &trainer->shards.whole[w];
        while (s < trainer->span_count && trainer->spans[s].parameter < whole->parameter)
            s++;
        const bool own = s < trainer->span_count && trainer->spans[s].parameter == whole->parameter;
        hs_optimizer_view(&trainer->optimizer, own ? &trainer->spans[s] : NULL, trainer->precision.master, whole);
        if (hs_trainer_streams_weights(trainer))
            whole->weight.data = own ? trainer->spans[s].weight.data : NULL;
        whole->share = hs_shards_share_of(&trainer->shards, w, 1);
    }
}

static HsStatus create_optimizer(HsTrainer *trainer)
{
    const HsConfig *config = trainer->config;
    HsOptimizerConfig rules;
    HS_TRY(optimizer_config(config, &trainer->precision, &rules));
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
    hs_trainer_choose_offload(trainer, &rules);
    HS_TRY(divide_states(trainer, &rules));
    rules.share = &trainer->share;
    HS_TRY(hs_optimizer_init(&trainer->optimizer, &trainer->engine.device, &rules, &schedule, &scaler,
                             trainer->span_count));
    trainer->has_optimizer = true;
    HS_TRY(hs_optimizer_commit(&trainer->optimizer, trainer->spans, trainer->span_count, trainer->precision.master));
    view_states(trainer);
    return HS_OK;
}

/* Where gradients of a virtual rank wait for those of others. */
static HsStatus create_sums(HsTrainer *trainer)
{
    const bool passing = hs_trainer_passes_gradients(trainer);
    const HsSpan *spans = passing ? trainer->spans : trainer->shards.whole;
    const int count = passing ? trainer->span_count : trainer->shards.whole_count;
    HsTensor *gradients = calloc((size_t)count + 1, sizeof *gradients);
    if (!gradients)
        return hs_fail(HS_ENOMEM, "no memory to list %d gradients", count);
    for (int i = 0; i < count; i++)
        gradients[i] = spans[i].gradient;
    const bool on_host = hs_trainer_offload_level(trainer) >= HS_OFFLOAD_GRADIENTS;
    const HsStatus status = hs_partial_sums_init(&trainer->sums, &trainer->engine.device, HS_MEMORY_GRADIENTS, on_host,
                                                 gradients, count, trainer->ranks.own);
    free(gradients);
    return status;
}

/* Scratch of what runs outside the programs, which bring their own: statistics, updates, strategies. */
static HsStatus create_workspace(HsTrainer *trainer)
{
    HsContext *context = &trainer->engine.context, dry = *context;
    dry.dry_run = true;
    dry.workspace_needed = 0;
    HS_TRY(hs_optimizer_update(&trainer->optimizer, &dry, trainer->spans, trainer->span_count));
    HS_TRY(hs_continual_dry_run(trainer->continual, &dry));
    HS_TRY(hs_partial_sums_dry_run(&trainer->sums, &dry));
    HS_TRY(hs_trainer_dry_renew(trainer, &dry));
    hs_arena_init(&trainer->workspace, context->device, HS_MEMORY_WORKSPACE);
    if (dry.workspace_needed == 0)
        return HS_OK;
    hs_arena_reserve(&trainer->workspace, dry.workspace_needed);
    HS_TRY(hs_arena_commit(&trainer->workspace));
    context->workspace = trainer->workspace.base;
    context->workspace_bytes = trainer->workspace.capacity;
    return HS_OK;
}

static HsStepShape step_shape(const HsTrainer *trainer)
{
    return (HsStepShape){
        .rows = trainer->rows_per_step,
        .reference_rows = hs_continual_replay_plan(&trainer->continual_config, trainer->rows_per_step).reference_rows,
        .length = trainer->config->training.max_length,
        .loss = trainer->precision.statistic,
        .compares = hs_trainer_compares_logits(trainer),
        .kept = trainer->distillation.kept,
    };
}

/* Evaluation runs between steps, in the memory of the training program. */
static HsStatus create_plans(HsTrainer *trainer, int64_t micro_batch)
{
    const HsConfig *config = trainer->config;
    HsContext *context = &trainer->engine.context;
    HsRecompute policy;
    HS_TRY(hs_recompute_find(config->memory.recompute, &policy));
    HS_TRY(hs_program_create(&trainer->model, context, micro_batch, config->training.max_length, true, policy,
                             config->memory.recompute_every, &trainer->train_program));
    trainer->has_train_plan = true;
    HS_TRY(hs_program_create(&trainer->model, context, micro_batch, config->training.max_length, false,
                             HS_RECOMPUTE_NONE, 1, &trainer->evaluation_program));
    trainer->has_evaluation_plan = true;
    hs_program_make_room(&trainer->train_program, &trainer->evaluation_program);
    HS_TRY(hs_program_commit(&trainer->train_program, context));
    HS_TRY(hs_program_commit_in(&trainer->evaluation_program, context, &trainer->train_program));
    return hs_trainer_plan_teacher(trainer);
}

static void destroy_plans(HsTrainer *trainer)
{
    hs_trainer_unplan_teacher(trainer);
    if (trainer->has_evaluation_plan)
        hs_program_destroy(&trainer->evaluation_program);
    if (trainer->has_train_plan)
        hs_program_destroy(&trainer->train_program);
    trainer->has_train_plan = trainer->has_evaluation_plan = false;
}

/* The Fisher's statistics are there only while it is measured. */
static HsStatus try_fisher(HsTrainer *trainer)
{
    HsDevice *device = &trainer->engine.device;
    HsFisher fisher = { .program = &trainer->train_program,
                        .context = &trainer->engine.context,
                        .spans = trainer->share.all,
                        .span_count = trainer->share.all_count,
                        .factors = hs_continual_factors(trainer->continual) };
    size_t bytes;
    void *block;
    HsPartialSums partial = { 0 };
    if (!trainer->engine.context.dry_run || !hs_continual_needs_fisher(&trainer->continual_config))
        return HS_OK;
    HsTensor *sums = calloc((size_t)trainer->share.all_count * HS_FISHER_SUMS, sizeof *sums);
    if (!sums)
        return hs_fail(HS_ENOMEM, "no memory to list %d tensors of a Fisher", trainer->share.all_count);
    HsStatus status = hs_trainer_lend_gradients(trainer);
    if (status == HS_OK)
        status = hs_trainer_lend_weights(trainer);
    if (status == HS_OK)
        status = hs_continual_begin_fisher(trainer->continual);
    const int count = status == HS_OK ? hs_continual_fisher_sums(trainer->continual, sums) : 0;
    if (status == HS_OK)
        status = hs_fisher_device_bytes(&fisher, &bytes);
    if (status == HS_OK)
        status = hs_partial_sums_init(&partial, device, HS_MEMORY_STATISTICS, trainer->share.on_host, sums, count,
                                      trainer->ranks.own);
    if (status == HS_OK)
        status = hs_memory_alloc(device, HS_MEMORY_STATISTICS, bytes, &block);
    if (status == HS_OK)
        hs_memory_release(device, HS_MEMORY_STATISTICS, bytes, block);
    hs_partial_sums_deinit(&partial);
    hs_continual_end_fisher(trainer->continual);
    hs_trainer_take_back_weights(trainer);
    hs_trainer_take_back_gradients(trainer);
    free(sums);
    return status;
}

/* Whole weights are there only while a text is written, or a teacher takes them. */
static HsStatus try_whole_weights(HsTrainer *trainer)
{
    const bool later = trainer->has_teacher || hs_continual_writes_rehearsal(&trainer->continual_config);
    if (!trainer->engine.context.dry_run ||
        (hs_trainer_samples_wanted(trainer) == 0 && (!later || trainer->config->task_count < 2)))
        return HS_OK;
    HS_TRY(hs_trainer_lend_weights(trainer));
    hs_trainer_take_back_weights(trainer);
    return HS_OK;
}

/* Weights are cast whole. */
static HsStatus check_codes(const HsTrainer *trainer)
{
    if (!hs_precision_codes(&trainer->precision))
        return HS_OK;
    if (hs_trainer_streams_weights(trainer))
        return hs_fail(HS_ECONFIG, "precision.mode fp8 casts whole weights, which memory.offload: weights and "
                                   "distributed.zero: 3 never have: lower those, or set precision.mode: bf16");
    return HS_OK;
}

/* Tokens, targets and losses are some 16 bytes a token, and a few batches are on their way; MER keeps the sequences of
 * a whole group. */
static HsStatus check_batches(const HsTrainer *trainer)
{
    const HsConfig *config = trainer->config;
    const HsStepShape shape = step_shape(trainer);
    const HsReplayPlan replay = hs_continual_replay_plan(&trainer->continual_config, shape.rows);
    const double rows = (double)hs_replay_window_rows_most(&replay) + (double)shape.reference_rows;
    const double logits = (double)hs_continual_distillation(&trainer->continual_config).kept;
    const double bytes = (64 + 64 * logits) * rows * (double)shape.length;
    if (bytes <= (double)HS_SIZE_MOST)
        return HS_OK;
    return hs_fail(HS_ECONFIG,
                   "%.3g sequences (batch_size %lld, gradient_accumulation_steps %lld%s%s) of %lld tokens (max_length) "
                   "need up to %.3g GiB as batches, more than can be planned: lower them",
                   rows, (long long)config->training.batch_size,
                   (long long)config->training.gradient_accumulation_steps,
                   replay.group_steps > 1 ? ", mer.group_steps" : "",
                   shape.reference_rows > 0 ? ", agem.reference_batches" : "", (long long)shape.length, bytes / 0x1p30);
}

HsStatus hs_trainer_allocate(HsTrainer *trainer)
{
    const HsConfig *config = trainer->config;
    HsContext *context = &trainer->engine.context;
    HS_TRY(check_batches(trainer));
    HS_TRY(hs_model_create(config, &trainer->precision, trainer->vocabulary, &trainer->model));
    trainer->has_model = true;
    hs_trainer_choose_head_chunk(trainer, &trainer->model);
    trainer->model.passing = hs_trainer_passes_gradients(trainer);
    trainer->model.streams = hs_trainer_streams_weights(trainer);
    HS_TRY(check_codes(trainer));
    /* A Fisher may have factors, which are sums over what linear layers read. */
    trainer->model.looks_at_inputs = hs_continual_needs_fisher(&trainer->continual_config) != NULL;
    hs_trainer_expect_logits(trainer);
    HS_TRY(hs_model_commit(&trainer->model, context, true));
    HS_TRY(hs_trainer_create_teacher(trainer));
    HS_TRY(create_plans(trainer, hs_trainer_micro_batch(trainer)));
    HS_TRY(create_optimizer(trainer));
    HS_TRY(create_sums(trainer));
    HS_TRY(hs_continual_create_shared(&trainer->continual_config, context, &trainer->share, &trainer->continual));
    HS_TRY(hs_trainer_create_reservoir(trainer));
    HS_TRY(create_workspace(trainer));
    HS_TRY(try_fisher(trainer));
    HS_TRY(try_whole_weights(trainer));
    HS_TRY(hs_trainer_try_rehearsal(trainer));
    const HsStepShape shape = step_shape(trainer);
    return hs_step_queue_init(&trainer->queue, context, &shape);
}

void hs_trainer_release(HsTrainer *trainer)
{
    hs_step_queue_deinit(&trainer->queue);
    hs_continual_destroy(trainer->continual);
    trainer->continual = NULL;
    hs_trainer_destroy_reservoir(trainer);
    hs_partial_sums_deinit(&trainer->sums);
    if (trainer->has_optimizer)
        hs_optimizer_deinit(&trainer->optimizer);
    trainer->has_optimizer = false;
    if (trainer->workspace.device)
        hs_arena_deinit(&trainer->workspace);
    destroy_plans(trainer);
    hs_trainer_destroy_teacher(trainer);
    if (trainer->has_model)
        hs_model_destroy(&trainer->model);
    trainer->has_model = false;
    hs_trainer_destroy_exchange(trainer);
    hs_shards_destroy(&trainer->shards);
    trainer->spans = NULL;
}

HsStatus hs_trainer_set_micro_batch(HsTrainer *trainer, int64_t micro_batch)
{
    assert(trainer->queue.count == 0 && hs_config_micro_batch_most(trainer->config) % micro_batch == 0);
    HS_TRY(trainer->engine.device.stream_sync(&trainer->engine.device, trainer->engine.context.stream));
    hs_trainer_forget_graph(trainer);
    destroy_plans(trainer);
    trainer->state.micro_batch = micro_batch;
    return create_plans(trainer, micro_batch);
}

HsStatus hs_trainer_draft(const HsTrainer *trainer, const HsConfig *config, HsTrainer *draft)
{
    memset(draft, 0, sizeof *draft);
    /* hs_trainer_allocate changes nothing in it. */
    draft->config = (HsConfig *)(uintptr_t)config;
    draft->engine = trainer->engine;
    hs_device_counting_init(&draft->engine.device, &trainer->engine.device);
    /* Was there before the trainer, and stays. */
    hs_memory_add(&draft->engine.device.account, HS_MEMORY_COMMUNICATION,
                  trainer->engine.device.account.current[HS_MEMORY_COMMUNICATION]);
    draft->engine.context.device = &draft->engine.device;
    draft->engine.context.dry_run = true;
    draft->engine.context.observer = NULL;
    draft->vocabulary = trainer->vocabulary;
    draft->masked = trainer->masked;
    draft->state.micro_batch = trainer->state.micro_batch;
    draft->on_disk = trainer->on_disk;
    HS_TRY(hs_precision_resolve(config, draft->engine.products, &draft->precision, draft->precision_why,
                                sizeof draft->precision_why));
    HS_TRY(hs_config_continual(config, &draft->continual_config));
    HsStatus status = hs_trainer_divide(draft);
    if (status == HS_OK)
        status = hs_trainer_allocate(draft);
    if (status != HS_OK)
        hs_trainer_release(draft);
    return status;
}
