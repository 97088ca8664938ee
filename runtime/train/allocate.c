/* SPDX-License-Identifier: MIT
 *
 * What a run allocates: model, programs, optimizer, strategies, scratch, batches, in the order in which each needs the
 * one before.  Steps allocate nothing.
 *
 * The memory plan is this same code on a device that only counts, in a dry context: what it predicts is what is
 * allocated afterwards, and training never takes more.
 */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/config/continual.h"
#include "runtime/train/fisher.h"
#include "runtime/train/run.h"

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

/* The paper's scales: 1, and 128 under the root for the one factor of a whole tensor (section 5.1).  A mode in f32 has
 * exact products; in the others 11 bits of a gradient are more than its 16-bit activations left in it. */
static HsApolloConfig apollo_config(const HsConfig *config, const HsPrecision *precision)
{
    const bool of_tensors = hs_is(config->apollo.granularity, "tensor");
    const HsProductPolicy tf32 = HS_POLICY_TF32;
    return (HsApolloConfig){ .rank = config->apollo.rank,
                             .interval = config->apollo.interval,
                             .scale = config->apollo.scale > 0 ? config->apollo.scale
                                      : of_tensors             ? sqrt(128.0)
                                                               : 1.0,
                             .granularity = of_tensors ? HS_APOLLO_TENSOR : HS_APOLLO_CHANNEL,
                             .growth_limit = config->apollo.growth_limit,
                             .policy = precision->weight == HS_F32 ? precision->forward : tf32 };
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
        .average_decay = config->average.decay,
        .moments = hs_is(config->optimizer.moments, "bf16") ? HS_BF16 : HS_F32,
        .muon = { .momentum = config->muon.momentum,
                  .momentum_start = config->muon.momentum_start,
                  .momentum_end = config->muon.momentum_end < 0 ? config->muon.momentum : config->muon.momentum_end,
                  .momentum_warmup_steps = config->muon.momentum_warmup_steps,
                  .equilibrate = config->muon.equilibrate,
                  .beta2 = config->muon.beta2,
                  .cautious_decay = config->muon.cautious_decay,
                  .head_group = config->muon.head_group,
                  .nesterov = config->muon.nesterov,
                  .polynomial =
                      hs_is(config->muon.polynomial, "polar-express") ? HS_MUON_POLAR_EXPRESS : HS_MUON_NEWTON_SCHULZ,
                  .steps = config->muon.steps,
                  .product = precision->weight,
                  .policy = precision->forward },
        .apollo = apollo_config(config, precision),
        .seed = (uint64_t)config->training.seed,
    };
    return hs_optimizer_kind_find(config->optimizer.kind, &rules->kind);
}

/* Matrices updated as a whole (by Muon, APOLLO, some strategies) belong to one rank. */
static bool stays_whole(const HsSpan *span, const void *user)
{
    const HsTraining *training = user;
    return (hs_continual_whole_matrices(&training->continual_config) && span->uses != 0) ||
           hs_optimizer_kind_needs_whole(hs_optimizer_kind_of(&training->optimizer.config, span));
}

/* Every trainable parameter with its group, then those with states on this rank. */
static HsStatus divide_states(HsTraining *training, const HsOptimizerConfig *rules)
{
    HsExchange *exchange = &training->exchange;
    const HsStrategy *matrices = hs_continual_whole_matrices(&training->continual_config);
    const bool shared = training->config->distributed.zero > 0;
    if (shared && matrices)
        return hs_fail(HS_ECONFIG,
                       "distributed.zero: %lld divides parameters among processes, and strategy %s works on whole "
                       "matrices: set zero to 0%s%s",
                       (long long)training->config->distributed.zero, matrices->name,
                       matrices->by_element ? ", or " : "", matrices->by_element ? matrices->by_element : "");
    HsSpan *whole = calloc((size_t)training->model.param_count + 1, sizeof *whole);
    if (!whole)
        return hs_fail(HS_ENOMEM, "no memory for %d parameter spans", training->model.param_count);
    const int count = hs_model_spans(&training->model, whole);
    exchange->shards.whole = whole;
    exchange->shards.whole_count = count;
    training->optimizer.config = *rules;
    HS_TRY(hs_training_mark_excluded(training, whole, count));
    HS_TRY(hs_training_join_groups(training));
    HS_TRY(hs_shards_create(whole, count, exchange->ranks.count > 1, stays_whole, training, shared,
                            training->engine.comm, &exchange->shards));
    exchange->share = hs_shards_share(&exchange->shards, training->engine.comm);
    exchange->share.on_host = hs_training_offload_level(training) != HS_OFFLOAD_NONE;
    training->spans = exchange->share.all + exchange->share.first;
    training->span_count = exchange->share.count;
    exchange->shards.streams = hs_training_streams_weights(training);
    return hs_training_create_exchange(training);
}

/* Masters and states of whole parameters, for checkpoints. */
static void view_states(HsTraining *training)
{
    HsExchange *exchange = &training->exchange;
    for (int w = 0, s = 0; w < exchange->shards.whole_count; w++) {
        HsSpan *whole = &exchange->shards.whole[w];
        while (s < training->span_count && training->spans[s].parameter < whole->parameter)
            s++;
        const bool own = s < training->span_count && training->spans[s].parameter == whole->parameter;
        hs_optimizer_view(&training->optimizer, own ? &training->spans[s] : NULL, training->precision.master, whole);
        if (hs_training_streams_weights(training))
            whole->weight.data = own ? training->spans[s].weight.data : NULL;
        whole->share = hs_shards_share_of(&exchange->shards, w, 1);
    }
}

static HsStatus create_optimizer(HsTraining *training)
{
    const HsConfig *config = training->config;
    HsOptimizerConfig rules;
    HS_TRY(optimizer_config(config, &training->precision, &rules));
    HsSchedule schedule; /* a placeholder: each task sets its own */
    HS_TRY(hs_schedule_init(&schedule, "constant", config->training.learning_rate, 0, 0, 0, 0));
    HsScalerConfig scaler = {
        .kind = scaler_kind(config, &training->precision),
        .init_scale = config->precision.init_scale,
        .growth_factor = config->precision.growth_factor,
        .backoff_factor = config->precision.backoff_factor,
        .min_scale = config->precision.min_scale,
        .max_scale = config->precision.max_scale,
        .growth_interval = config->precision.growth_interval,
        .hysteresis = config->precision.hysteresis,
    };
    hs_training_choose_offload(training, &rules);
    HS_TRY(divide_states(training, &rules));
    rules.share = &training->exchange.share;
    HS_TRY(hs_optimizer_init(&training->optimizer, &training->engine.device, &rules, &schedule, &scaler,
                             training->span_count));
    training->has_optimizer = true;
    HS_TRY(
        hs_optimizer_commit(&training->optimizer, training->spans, training->span_count, training->precision.master));
    view_states(training);
    return HS_OK;
}

/* Where gradients of a virtual rank wait for those of others. */
static HsStatus create_sums(HsTraining *training)
{
    HsExchange *exchange = &training->exchange;
    const bool passing = hs_training_passes_gradients(training);
    const HsSpan *spans = passing ? training->spans : exchange->shards.whole;
    const int count = passing ? training->span_count : exchange->shards.whole_count;
    HsTensor *gradients = calloc((size_t)count + 1, sizeof *gradients);
    if (!gradients)
        return hs_fail(HS_ENOMEM, "no memory to list %d gradients", count);
    for (int i = 0; i < count; i++)
        gradients[i] = spans[i].gradient;
    const bool on_host = hs_training_offload_level(training) >= HS_OFFLOAD_GRADIENTS;
    const HsStatus status = hs_partial_sums_init(&exchange->sums, &training->engine.device, HS_MEMORY_GRADIENTS,
                                                 on_host, gradients, count, exchange->ranks.own);
    free(gradients);
    return status;
}

/* Scratch of what runs outside the programs, which bring their own: statistics, updates, strategies. */
static HsStatus create_workspace(HsTraining *training)
{
    HsContext *context = &training->engine.context, dry = *context;
    dry.dry_run = true;
    dry.observer = NULL;
    dry.workspace_needed = 0;
    HS_TRY(hs_optimizer_update(&training->optimizer, &dry, training->spans, training->span_count));
    HS_TRY(hs_optimizer_show(&training->optimizer, &dry, training->spans, training->span_count));
    HS_TRY(hs_continual_dry_run(training->continual, &dry));
    HS_TRY(hs_partial_sums_dry_run(&training->exchange.sums, &dry));
    HS_TRY(hs_training_dry_renew(training, &dry));
    hs_arena_init(&training->workspace, context->device, HS_MEMORY_WORKSPACE);
    if (dry.workspace_needed == 0)
        return HS_OK;
    hs_arena_reserve(&training->workspace, dry.workspace_needed);
    HS_TRY(hs_arena_commit(&training->workspace));
    context->workspace = training->workspace.base;
    context->workspace_bytes = training->workspace.capacity;
    return HS_OK;
}

static HsStepShape step_shape(const HsTraining *training)
{
    return (HsStepShape){
        .rows = training->rows_per_step,
        .reference_rows = hs_continual_replay_plan(&training->continual_config, training->rows_per_step).reference_rows,
        .length = training->config->training.max_length,
        .loss = training->precision.statistic,
        .compares = hs_training_compares_logits(training),
        .kept = training->teaching.distillation.kept,
    };
}

/* Evaluation runs between steps, in the memory of the training program. */
static HsStatus create_programs(HsTraining *training, int64_t micro_batch)
{
    const HsConfig *config = training->config;
    HsContext *context = &training->engine.context;
    HsRecompute policy;
    HS_TRY(hs_recompute_find(config->memory.recompute, &policy));
    HS_TRY(hs_program_create(&training->model, context, micro_batch, config->training.max_length, true, policy,
                             config->memory.recompute_every, &training->train_program));
    training->has_train_program = true;
    HS_TRY(hs_program_create(&training->model, context, micro_batch, config->training.max_length, false,
                             HS_RECOMPUTE_NONE, 1, &training->evaluation_program));
    training->has_evaluation_program = true;
    hs_program_make_room(&training->train_program, &training->evaluation_program);
    HS_TRY(hs_program_commit(&training->train_program, context));
    HS_TRY(hs_program_commit_in(&training->evaluation_program, context, &training->train_program));
    return hs_training_create_teacher_program(training);
}

static void destroy_programs(HsTraining *training)
{
    hs_training_destroy_teacher_program(training);
    if (training->has_evaluation_program)
        hs_program_destroy(&training->evaluation_program);
    if (training->has_train_program)
        hs_program_destroy(&training->train_program);
    training->has_train_program = training->has_evaluation_program = false;
}

/* The Fisher's statistics are there only while it is measured. */
static HsStatus try_fisher(HsTraining *training)
{
    HsExchange *exchange = &training->exchange;
    HsDevice *device = &training->engine.device;
    HsFisher fisher = { .program = &training->train_program,
                        .context = &training->engine.context,
                        .spans = exchange->share.all,
                        .span_count = exchange->share.all_count,
                        .factors = hs_continual_factors(training->continual) };
    size_t bytes;
    void *block;
    HsPartialSums partial = { 0 };
    if (!training->engine.context.dry_run || !hs_continual_needs_fisher(&training->continual_config))
        return HS_OK;
    HsTensor *sums = calloc((size_t)exchange->share.all_count * HS_FISHER_SUMS, sizeof *sums);
    if (!sums)
        return hs_fail(HS_ENOMEM, "no memory to list %d tensors of a Fisher", exchange->share.all_count);
    HsStatus status = hs_training_lend_gradients(training);
    if (status == HS_OK)
        status = hs_training_lend_weights(training);
    if (status == HS_OK)
        status = hs_continual_begin_fisher(training->continual);
    const int count = status == HS_OK ? hs_continual_fisher_sums(training->continual, sums) : 0;
    if (status == HS_OK)
        status = hs_fisher_device_bytes(&fisher, &bytes);
    if (status == HS_OK)
        status = hs_partial_sums_init(&partial, device, HS_MEMORY_STATISTICS, exchange->share.on_host, sums, count,
                                      exchange->ranks.own);
    if (status == HS_OK)
        status = hs_memory_alloc(device, HS_MEMORY_STATISTICS, bytes, &block);
    if (status == HS_OK)
        hs_memory_release(device, HS_MEMORY_STATISTICS, bytes, block);
    hs_partial_sums_deinit(&partial);
    hs_continual_end_fisher(training->continual);
    hs_training_take_back_weights(training);
    hs_training_take_back_gradients(training);
    free(sums);
    return status;
}

/* Whole weights are there only while a text is written, or a teacher takes them. */
static HsStatus try_whole_weights(HsTraining *training)
{
    const bool later = training->teaching.has_teacher || hs_continual_writes_rehearsal(&training->continual_config);
    if (!training->engine.context.dry_run ||
        (hs_training_samples_wanted(training) == 0 && (!later || training->config->task_count < 2)))
        return HS_OK;
    HS_TRY(hs_training_lend_weights(training));
    hs_training_take_back_weights(training);
    return HS_OK;
}

/* Each rank casts the complete weights. */
static HsStatus check_codes(const HsTraining *training)
{
    if (!hs_precision_codes(&training->precision))
        return HS_OK;
    if (hs_training_streams_weights(training))
        return hs_fail(HS_ECONFIG, "precision.mode fp8 casts whole weights, which memory.offload: weights and "
                                   "distributed.zero: 3 never have: lower those, or set precision.mode: bf16");
    return HS_OK;
}

/* Tokens, targets and losses are some 16 bytes a token, and a few batches are on their way; MER keeps the sequences of
 * a whole group. */
static HsStatus check_batches(const HsTraining *training)
{
    const HsConfig *config = training->config;
    const HsStepShape shape = step_shape(training);
    const HsReplayPlan replay = hs_continual_replay_plan(&training->continual_config, shape.rows);
    const double rows = (double)hs_replay_window_rows_most(&replay) + (double)shape.reference_rows;
    const double logits = (double)hs_continual_distillation(&training->continual_config).kept;
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

HsStatus hs_training_allocate(HsTraining *training)
{
    const HsConfig *config = training->config;
    HsContext *context = &training->engine.context;
    HS_TRY(check_batches(training));
    HS_TRY(hs_model_create(config, &training->precision, training->vocabulary, &training->model));
    training->has_model = true;
    hs_training_choose_head_chunk(training, &training->model);
    training->model.passing = hs_training_passes_gradients(training);
    training->model.streams = hs_training_streams_weights(training);
    HS_TRY(check_codes(training));
    /* A Fisher may have factors, which are sums over what linear layers read. */
    training->model.looks_at_inputs = hs_continual_needs_fisher(&training->continual_config) != NULL;
    hs_training_expect_logits(training);
    HS_TRY(hs_model_commit(&training->model, context, true));
    HS_TRY(hs_training_create_teacher(training));
    HS_TRY(create_programs(training, hs_training_micro_batch(training)));
    HS_TRY(create_optimizer(training));
    HS_TRY(hs_training_create_averages(training));
    HS_TRY(create_sums(training));
    HS_TRY(hs_continual_create_shared(&training->continual_config, context, &training->exchange.share,
                                      &training->continual));
    HS_TRY(hs_training_create_reservoir(training));
    HS_TRY(create_workspace(training));
    HS_TRY(try_fisher(training));
    HS_TRY(try_whole_weights(training));
    HS_TRY(hs_training_try_rehearsal(training));
    const HsStepShape shape = step_shape(training);
    return hs_step_queue_init(&training->queue, context, &shape);
}

void hs_training_release(HsTraining *training)
{
    hs_step_queue_deinit(&training->queue);
    hs_continual_destroy(training->continual);
    training->continual = NULL;
    hs_training_destroy_reservoir(training);
    hs_partial_sums_deinit(&training->exchange.sums);
    if (training->has_optimizer)
        hs_optimizer_deinit(&training->optimizer);
    training->has_optimizer = false;
    if (training->workspace.device)
        hs_arena_deinit(&training->workspace);
    destroy_programs(training);
    hs_training_destroy_teacher(training);
    if (training->has_model)
        hs_model_destroy(&training->model);
    training->has_model = false;
    hs_training_destroy_averages(training);
    hs_training_destroy_exchange(training);
    hs_shards_destroy(&training->exchange.shards);
    training->spans = NULL;
}

HsStatus hs_training_set_micro_batch(HsTraining *training, int64_t micro_batch)
{
    assert(training->queue.count == 0 && hs_config_micro_batch_most(training->config) % micro_batch == 0);
    HS_TRY(training->engine.device.stream_sync(&training->engine.device, training->engine.context.stream));
    hs_training_forget_graph(training);
    destroy_programs(training);
    training->state.micro_batch = micro_batch;
    return create_programs(training, micro_batch);
}

HsStatus hs_training_draft(const HsTraining *training, const HsConfig *config, HsTraining *draft)
{
    memset(draft, 0, sizeof *draft);
    /* hs_training_allocate changes nothing in it. */
    draft->config = (HsConfig *)(uintptr_t)config;
    draft->engine = training->engine;
    hs_device_counting_init(&draft->engine.device, &training->engine.device);
    /* Was there before, and stays. */
    hs_memory_add(&draft->engine.device.account, HS_MEMORY_COMMUNICATION,
                  training->engine.device.account.current[HS_MEMORY_COMMUNICATION]);
    draft->engine.context.device = &draft->engine.device;
    draft->engine.context.dry_run = true;
    draft->engine.context.observer = NULL;
    draft->vocabulary = training->vocabulary;
    draft->masked = training->masked;
    draft->state.micro_batch = training->state.micro_batch;
    draft->on_disk = training->on_disk;
    HS_TRY(hs_precision_resolve(config, draft->engine.products, &draft->precision, draft->precision_why,
                                sizeof draft->precision_why));
    HS_TRY(hs_config_continual(config, &draft->continual_config));
    HsStatus status = hs_training_divide(draft);
    if (status == HS_OK)
        status = hs_training_allocate(draft);
    if (status != HS_OK)
        hs_training_release(draft);
    return status;
}
