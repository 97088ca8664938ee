/* SPDX-License-Identifier: MIT
 *
 * The strategies' place in a run: what they leave free, what they cost, how strong they act, and the Fisher's passes.
 * Effective strength is always shown: a penalty that does nothing and one that tears the model apart look alike in a
 * configuration.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base/log.h"
#include "runtime/config/continual.h"
#include "runtime/model/selector.h"
#include "runtime/pages/report.h"
#include "runtime/train/evaluate.h"
#include "runtime/train/fisher.h"
#include "runtime/train/trainer.h"

static bool is(const char *value, const char *word)
{
    return strcmp(value, word) == 0;
}

HsStatus hs_trainer_mark_excluded(const HsTrainer *trainer, HsSpan *spans, int count)
{
    const HsModel *model = &trainer->model;
    const char *section;
    const HsStringList *entries = hs_config_excluded(trainer->config, &trainer->continual_config, &section);
    if (!entries)
        return HS_OK;
    bool *free_params = calloc((size_t)model->param_count, sizeof *free_params);
    if (!free_params)
        return hs_fail(HS_ENOMEM, "no memory to mark %d parameters", model->param_count);
    char key[64];
    snprintf(key, sizeof key, "%.40s.exclude", section);
    HsStatus status = hs_params_select(model, key, entries, free_params);
    int excluded = 0;
    for (int i = 0; i < count; i++) {
        spans[i].excluded = free_params[spans[i].parameter];
        excluded += spans[i].excluded;
    }
    free(free_params);
    HS_TRY(status);
    if (excluded == count)
        return hs_fail(HS_ECONFIG, "%s.exclude excludes every parameter: nothing would be protected", section);
    return HS_OK;
}

/* A count for each token and task, where the model writes its own rehearsal. */
static size_t openings_bytes(const HsTrainer *trainer)
{
    const bool writes = hs_continual_writes_rehearsal(&trainer->continual_config) != NULL;
    return writes ? (size_t)trainer->config->task_count * (size_t)trainer->vocabulary * sizeof *trainer->openings : 0;
}

size_t hs_trainer_reservoir_bytes(const HsTrainer *trainer)
{
    const HsConfig *config = trainer->config;
    if (!hs_continual_replays(&trainer->continual_config))
        return 0;
    const size_t tokens = hs_reservoir_bytes(hs_config_buffer_size(config), config->training.max_length,
                                             trainer->vocabulary, trainer->masked);
    const size_t marks = trainer->model.documents
                             ? hs_reservoir_mark_bytes(hs_config_buffer_size(config), config->training.max_length)
                             : 0;
    const size_t logits = hs_reservoir_logit_bytes(hs_config_buffer_size(config), config->training.max_length,
                                                   trainer->model.vocabulary, trainer->distillation.kept);
    return hs_size_add(hs_size_add(hs_size_add(tokens, marks), logits), openings_bytes(trainer));
}

static void describe(const HsTrainer *trainer)
{
    const HsContinualConfig *config = &trainer->continual_config;
    for (int task = 0; task < config->tasks; task++)
        if (!hs_continual_retains(config, task))
            hs_info("task %s is to be forgotten once it has ended (tasks.%d.retain: false)",
                    trainer->config->tasks[task].name, task);
    for (int i = 0; i < config->strategy_count; i++) {
        const HsStrategy *strategy = hs_strategy_find(config->strategies[i]);
        if (!strategy->does_nothing)
            hs_info("strategy %s: %s", strategy->name, strategy->doc);
    }
    if (trainer->has_reservoir)
        hs_info("replay buffer: %lld sequences, %.1f MiB on the host", (long long)trainer->reservoir.capacity,
                (double)hs_trainer_reservoir_bytes(trainer) / (1024.0 * 1024.0));
    hs_continual_describe(config);
    if (is(trainer->config->continual.schedule, "auto") && is(hs_trainer_schedule(trainer), "infinite"))
        hs_info(
            "continual.schedule auto: infinite: the learning rate is held from task to task and let down at the end of "
            "the last one, where schedule.kind would let it down in each (continual.schedule: fresh)");
}

static void describe_stream(const HsTrainer *trainer)
{
    const HsStrategy *penalizes = hs_continual_penalizes(&trainer->continual_config);
    const int64_t every = trainer->config->continual.consolidate_every;
    if (!trainer->unmarked)
        return;
    hs_info("boundaries: none: strategies see one stream of %lld steps", (long long)trainer->total_steps);
    if (penalizes && every >= trainer->total_steps)
        hs_warn("%s protects nothing: continual.consolidate_every is %lld, and the stream has %lld steps: lower it",
                penalizes->name, (long long)every, (long long)trainer->total_steps);
}

static HsStatus create_matrix(HsTrainer *trainer)
{
    const HsConfig *config = trainer->config;
    HsMatrix *matrix = &trainer->matrix;
    HS_TRY(hs_matrix_init(matrix, trainer->data.count));
    trainer->has_matrix = true;
    HS_TRY(hs_trainer_create_watch(trainer));
    matrix->known = trainer->continual_config.known;
    for (int i = 0; i < matrix->tasks; i++) {
        snprintf(matrix->names[i], sizeof matrix->names[i], "%s", config->tasks[i].name);
        matrix->floor[i] = trainer->data.tasks[i].validation.entropy_floor;
        matrix->forgets[i] = !hs_continual_retains(&trainer->continual_config, i);
    }
    if (config->continual.joint_run[0] == '\0')
        return HS_OK;
    HsRunResult joint;
    HS_TRY(hs_run_result_read(config->continual.joint_run, &joint));
    HsStatus status = HS_OK;
    /* A joint run has no row but its last. */
    bool fits = joint.finished && joint.matrix.tasks == matrix->tasks && isnan(*hs_matrix_at(&joint.matrix, 0, 0));
    for (int i = 0; fits && i < matrix->tasks; i++) {
        fits = is(joint.matrix.names[i], matrix->names[i]);
        matrix->joint[i] = *hs_matrix_at(&joint.matrix, matrix->tasks - 1, i);
    }
    if (!fits)
        status = hs_fail(
            HS_ECONFIG,
            "continual.joint_run: %s is not a finished joint run over the same tasks; run the configuration with "
            "continual.strategy=joint first",
            config->continual.joint_run);
    hs_run_result_deinit(&joint);
    return status;
}

/* The reservoir lies in the host's memory, beside the device's account and in it. */
HsStatus hs_trainer_create_reservoir(HsTrainer *trainer)
{
    const HsConfig *config = trainer->config;
    const size_t bytes = hs_trainer_reservoir_bytes(trainer);
    if (!hs_continual_replays(&trainer->continual_config))
        return HS_OK;
    if (bytes > HS_SIZE_MOST)
        return hs_fail(HS_ECONFIG,
                       "a replay buffer of %lld sequences of %lld tokens is more than can be planned: lower %s or "
                       "max_length",
                       (long long)hs_config_buffer_size(config), (long long)config->training.max_length,
                       config->replay.buffer_size > 0 ? "replay.buffer_size" : "mer.buffer_size");
    if (!trainer->engine.context.dry_run) {
        HS_TRY(hs_reservoir_init(&trainer->reservoir, hs_config_buffer_size(config), config->training.max_length,
                                 trainer->vocabulary, trainer->masked, (uint64_t)config->training.seed));
        trainer->has_reservoir = true;
        if (trainer->model.documents)
            HS_TRY(hs_reservoir_keep_marks(&trainer->reservoir));
        if (trainer->distillation.kept > 0)
            HS_TRY(
                hs_reservoir_keep_logits(&trainer->reservoir, trainer->distillation.kept, trainer->model.vocabulary));
    }
    if (!trainer->engine.context.dry_run && openings_bytes(trainer) > 0) {
        trainer->openings = calloc(1, openings_bytes(trainer));
        if (!trainer->openings)
            return hs_fail(HS_ENOMEM, "no memory for the openings of %d tasks", config->task_count);
    }
    hs_memory_add(&trainer->engine.device.account, HS_MEMORY_REPLAY, bytes);
    return HS_OK;
}

void hs_trainer_destroy_reservoir(HsTrainer *trainer)
{
    if (!trainer->has_reservoir)
        return;
    hs_memory_subtract(&trainer->engine.device.account, HS_MEMORY_REPLAY, hs_trainer_reservoir_bytes(trainer));
    hs_reservoir_deinit(&trainer->reservoir);
    free(trainer->openings);
    trainer->openings = NULL;
    trainer->has_reservoir = false;
}

HsStatus hs_trainer_begin_continual(HsTrainer *trainer)
{
    describe(trainer);
    describe_stream(trainer);
    return trainer->data.count > 1 ? create_matrix(trainer) : HS_OK;
}

static bool steps_proximally(const HsTrainer *trainer)
{
    for (int i = 0; i < trainer->span_count; i++)
        if (trainer->spans[i].protection.proximal)
            return true;
    return false;
}

/* Explicit steps on a quadratic penalty of curvature lambda F diverge from lr lambda F = 2 on. */
static void warn_unstable(const HsTrainer *trainer, const HsImportance *importance, double rate)
{
    const HsStrategy *strategy = hs_continual_penalizes(&trainer->continual_config);
    const double product = rate * importance->strength * importance->maximum;
    if (product < 2 || steps_proximally(trainer))
        return;
    bool unbounded = false;
    for (int i = 0; i < trainer->span_count; i++)
        unbounded =
            unbounded || hs_optimizer_kind_of(&trainer->optimizer.config, &trainer->spans[i]) == HS_OPTIMIZER_SGD;
    const char *key = importance->factored ? NULL : strategy->proximal_key;
    char proximal[64] = "";
    if (unbounded) {
        if (key)
            snprintf(proximal, sizeof proximal, "%s: proximal, or ", key);
        hs_warn("lr * strength * maximum = %.3g is 2 or more: steps on the penalty overshoot and diverge. Set %s%s "
                "below %.3g of its value",
                product, proximal, strategy->strength_key, 2 / product);
    } else {
        if (key)
            snprintf(proximal, sizeof proximal, "; %s: proximal has no such limit", key);
        hs_info("lr * strength * maximum = %.3g is 2 or more: the update rule bounds the step, so the stiffest "
                "parameters jitter by about the learning rate around their anchor%s",
                product, proximal);
    }
}

/* The rate that the next task will train with at most. */
static double next_rate(const HsTrainer *trainer, int task)
{
    const HsConfig *config = trainer->config;
    double own = !trainer->one_phase && task + 1 < trainer->phase_count ? config->tasks[task + 1].learning_rate : 0;
    return (own > 0 ? own : config->training.learning_rate) * hs_trainer_rate_scale(trainer);
}

void hs_trainer_warn_appended(const HsTrainer *trainer)
{
    const int task = (int)trainer->state.task;
    const HsImportance *importance = hs_continual_importance(trainer->continual);
    if (importance->count > 0 && !trainer->state.task_begun && task == trainer->phase_count - trainer->appended)
        warn_unstable(trainer, importance, next_rate(trainer, task - 1));
}

HsStatus hs_trainer_meet_task(HsTrainer *trainer, int task)
{
    enum { WINDOWS = 64 }; /* whatever evaluations are set to: those must not change what is trained */
    const HsEvaluator evaluator = hs_trainer_evaluator(trainer);
    HsEvaluation known, foreign;
    if (!hs_continual_wants_foreignness(trainer->continual, task))
        return HS_OK;
    trainer->consolidating = true; /* a signal now: the checkpoint before it is the one to go on from */
    HS_TRY(hs_evaluate_text(&evaluator, &trainer->data.tasks[task - 1], WINDOWS, &known));
    HS_TRY(hs_evaluate_text(&evaluator, &trainer->data.tasks[task], WINDOWS, &foreign));
    trainer->consolidating = false;
    HS_TRY(hs_continual_meet_task(trainer->continual, exp(foreign.loss - known.loss)));
    const HsImportance *importance = hs_continual_importance(trainer->continual);
    if (importance->count > 0)
        warn_unstable(trainer, importance, next_rate(trainer, task - 1));
    return HS_OK;
}

/* New sequences of an unmarked stream so far: those of whole windows, or the ones at hand in the first. */
static int64_t samples_passed(const HsTrainer *trainer)
{
    const bool running = hs_stream_is_running(trainer->stream);
    const HsStreamPosition position = running ? hs_stream_position(trainer->stream) : trainer->state.position;
    return position.window_first > 0 ? position.window_first : trainer->rows_per_step;
}

/* MER closed its group at the task's end: passes see the weights that it left. */
static HsStatus read_weights(void *user)
{
    HsTrainer *trainer = user;
    HS_TRY(hs_shards_gather_weights(&trainer->shards, &trainer->engine.context));
    HS_TRY(hs_trainer_lend_weights(trainer));
    return hs_model_pack(&trainer->model, &trainer->engine.context);
}

/* Everything of the Fisher's source but its estimator.  sampler: of an unmarked stream, else NULL. */
static HsFisher fisher_of(HsTrainer *trainer, int task, int64_t samples, const HsSampler *sampler)
{
    const HsConfig *config = trainer->config;
    return (HsFisher){ .on_host = trainer->share.on_host,
                       .stream = sampler,
                       .stream_end = sampler ? samples_passed(trainer) : 0,
                       .program = &trainer->train_program,
                       .context = &trainer->engine.context,
                       .dataset = &trainer->data.tasks[sampler ? 0 : task],
                       .spans = trainer->share.all,
                       .span_count = trainer->share.all_count,
                       .samples = samples,
                       .group = config->training.batch_size,
                       .seed = (uint64_t)config->training.seed,
                       .task = (uint32_t)task,
                       .loss_scale = trainer->optimizer.counters.loss_scale,
                       .prepare = read_weights,
                       .user = trainer,
                       .ranks = trainer->ranks,
                       .comm = trainer->engine.comm };
}

/* sums: [HS_FISHER_SUMS * spans], room for a list. */
static HsStatus begin_fisher(HsTrainer *trainer, int task, const HsSampler *sampler, HsTensor *sums, HsFisher *fisher)
{
    const HsContinualConfig *config = &trainer->continual_config;
    const char *estimator = hs_continual_word(config, "ewc", "estimator");
    *fisher = fisher_of(trainer, task, (int64_t)hs_continual_number(config, "ewc", "fisher_samples"), sampler);
    fisher->factors = hs_continual_factors(trainer->continual);
    HS_TRY(hs_continual_begin_fisher(trainer->continual));
    fisher->sums = sums;
    fisher->sum_count = hs_continual_fisher_sums(trainer->continual, sums);
    HS_TRY(hs_fisher_estimator_find(estimator, &fisher->estimator));
    HS_TRY(hs_fisher_init(fisher));
    hs_info("%s%s: Fisher information, estimator %s, %lld passes", sampler ? "the stream" : "task ",
            sampler ? "" : trainer->config->tasks[task].name, estimator,
            (long long)hs_fisher_passes(fisher, hs_tokenizer_vocabulary(trainer->data.tokenizer)));
    return HS_OK;
}

/* round: the task, or how often the stream was consolidated before.  to_the_end: the training is over for what replays,
 * too. */
static HsStatus consolidate(HsTrainer *trainer, int round, bool to_the_end)
{
    HsContext *context = &trainer->engine.context;
    HsStatus status = HS_OK;
    HsFisher fisher;
    HsFisherSource source = { &fisher, hs_fisher_next, hs_fisher_sum_part };
    const HsSampler sampler = hs_stream_sampler(trainer->stream, trainer->unmarked ? 0 : round);
    const bool measures = hs_continual_needs_fisher(&trainer->continual_config) != NULL;
    HsStatus (*after)(HsContinual *, HsContext *, int, HsFisherSource *) =
        to_the_end ? hs_continual_after_task : hs_continual_consolidate;
    HsTensor *const sums = measures ? calloc((size_t)trainer->share.all_count * HS_FISHER_SUMS, sizeof *sums) : NULL;
    if (measures && !sums)
        return hs_fail(HS_ENOMEM, "no memory to list %d tensors of a Fisher", trainer->share.all_count);
    if (measures)
        status = hs_trainer_lend_gradients(trainer);
    if (measures && status == HS_OK)
        status = begin_fisher(trainer, round, trainer->unmarked ? &sampler : NULL, sums, &fisher);
    if (status != HS_OK) {
        hs_continual_end_fisher(trainer->continual);
        hs_trainer_take_back_gradients(trainer);
        free(sums);
        return status;
    }
    HS_TRY_GOTO(status, after(trainer->continual, context, round, measures ? &source : NULL), done);
    HS_TRY_GOTO(status, hs_shards_gather_weights(&trainer->shards, context), done);
    HS_TRY_GOTO(status, hs_model_pack(&trainer->model, context), done);
    const HsImportance *importance = hs_continual_importance(trainer->continual);
    if (importance->count > 0) {
        double rate = next_rate(trainer, round);
        HS_TRY_GOTO(
            status,
            hs_metrics_importance(trainer->metrics, trainer->state.counters.applied_steps, round, rate, importance),
            done);
        warn_unstable(trainer, importance, rate);
    }
done:
    if (measures)
        hs_fisher_deinit(&fisher);
    hs_continual_end_fisher(trainer->continual);
    if (measures) {
        hs_trainer_take_back_gradients(trainer);
        hs_trainer_take_back_weights(trainer);
    }
    free(sums);
    return status;
}

static int rounds_of(const HsTrainer *trainer)
{
    return (int)(trainer->state.task_steps / trainer->config->continual.consolidate_every);
}

/* A task that is not to be retained leaves no trace in what protects; no Fisher is measured. */
static HsStatus discard(HsTrainer *trainer, int task)
{
    HsContext *context = &trainer->engine.context;
    if (hs_continual_penalizes(&trainer->continual_config))
        hs_info("task %s is not to be retained: what holds the tasks before it stays as it was",
                trainer->config->tasks[task].name);
    HS_TRY(hs_continual_discard_task(trainer->continual, context, task));
    HS_TRY(hs_shards_gather_weights(&trainer->shards, context));
    return hs_model_pack(&trainer->model, context);
}

HsStatus hs_trainer_consolidate(HsTrainer *trainer, int task)
{
    if (!hs_continual_retains(&trainer->continual_config, task)) /* refused where tasks are unmarked or mixed */
        return discard(trainer, task);
    return consolidate(trainer, trainer->unmarked ? rounds_of(trainer) : task, true);
}

bool hs_trainer_consolidation_due(const HsTrainer *trainer)
{
    const HsTrainerState *state = &trainer->state;
    return trainer->unmarked && hs_continual_penalizes(&trainer->continual_config) && state->task == 0 &&
           state->task_steps > 0 && state->task_steps < trainer->phase_steps[0] &&
           state->task_steps % trainer->config->continual.consolidate_every == 0 &&
           state->consolidated_at != state->task_steps;
}

HsStatus hs_trainer_consolidate_stream(HsTrainer *trainer)
{
    trainer->consolidating = true;
    hs_trainer_forget_graph(trainer);
    HS_TRY(consolidate(trainer, rounds_of(trainer) - 1, false));
    trainer->state.consolidated_at = trainer->state.task_steps;
    trainer->consolidating = false;
    return HS_OK;
}
