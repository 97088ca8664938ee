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
#include "runtime/train/run.h"

HsStatus hs_training_mark_excluded(const HsTraining *training, HsSpan *spans, int count)
{
    const HsModel *model = &training->model;
    const char *section;
    const HsStringList *entries = hs_config_excluded(training->config, &training->continual_config, &section);
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
        return hs_fail(HS_ECONFIG, "%s.exclude excludes every parameter: nothing would be protected; shorten it",
                       section);
    return HS_OK;
}

/* A count for each token and task, where the model writes its own rehearsal. */
static size_t openings_bytes(const HsTraining *training)
{
    const bool writes = hs_continual_writes_rehearsal(&training->continual_config) != NULL;
    return writes ? (size_t)training->config->task_count * (size_t)training->vocabulary * sizeof *training->openings
                  : 0;
}

size_t hs_training_reservoir_bytes(const HsTraining *training)
{
    const HsConfig *config = training->config;
    if (!hs_continual_replays(&training->continual_config))
        return 0;
    const size_t tokens = hs_reservoir_bytes(hs_config_buffer_size(config), config->training.max_length,
                                             training->vocabulary, training->masked);
    const size_t marks = training->model.documents
                             ? hs_reservoir_mark_bytes(hs_config_buffer_size(config), config->training.max_length)
                             : 0;
    const size_t logits = hs_reservoir_logit_bytes(hs_config_buffer_size(config), config->training.max_length,
                                                   training->model.vocabulary, training->teaching.distillation.kept);
    return hs_size_add(hs_size_add(hs_size_add(tokens, marks), logits), openings_bytes(training));
}

static void describe(const HsTraining *training)
{
    const HsContinualConfig *config = &training->continual_config;
    for (int task = 0; task < config->tasks; task++)
        if (!hs_continual_retains(config, task))
            hs_info("task %s is to be forgotten once it has ended (tasks.%d.retain: false)",
                    training->config->tasks[task].name, task);
    for (int i = 0; i < config->strategy_count; i++) {
        const HsStrategy *strategy = hs_strategy_find(config->strategies[i]);
        if (!strategy->does_nothing)
            hs_info("strategy %s: %s", strategy->name, strategy->doc);
    }
    if (training->has_reservoir)
        hs_info("replay buffer: %lld sequences, %.1f MiB on the host", (long long)training->reservoir.capacity,
                (double)hs_training_reservoir_bytes(training) / (1024.0 * 1024.0));
    hs_continual_describe(config);
    if (hs_is(training->config->continual.schedule, "auto") && hs_is(hs_training_schedule(training), "infinite"))
        hs_info(
            "continual.schedule auto: infinite: the learning rate is held from task to task and let down at the end of "
            "the last one, where schedule.kind would let it down in each (continual.schedule: fresh)");
}

static void describe_stream(const HsTraining *training)
{
    const HsLengths *lengths = &training->lengths;
    const HsStrategy *penalizes = hs_continual_penalizes(&training->continual_config);
    const int64_t every = training->config->continual.consolidate_every;
    if (!lengths->unmarked)
        return;
    hs_info("boundaries: none: strategies see one stream of %lld steps", (long long)lengths->total_steps);
    if (penalizes && every >= lengths->total_steps)
        hs_warn("%s protects nothing: continual.consolidate_every is %lld, and the stream has %lld steps: lower it",
                penalizes->name, (long long)every, (long long)lengths->total_steps);
}

static HsStatus create_matrix(HsRun *run)
{
    HsTraining *training = &run->training;
    const HsConfig *config = training->config;
    HsMatrix *matrix = &run->matrix;
    HS_TRY(hs_matrix_init(matrix, training->data.count));
    run->has_matrix = true;
    HS_TRY(hs_run_create_watch(run));
    matrix->known = training->continual_config.known;
    for (int i = 0; i < matrix->tasks; i++) {
        snprintf(matrix->names[i], sizeof matrix->names[i], "%s", config->tasks[i].name);
        matrix->floor[i] = training->data.tasks[i].validation.entropy_floor;
        matrix->forgets[i] = !hs_continual_retains(&training->continual_config, i);
    }
    if (config->continual.joint_run[0] == '\0')
        return HS_OK;
    HsRunResult joint;
    HS_TRY(hs_run_result_read(config->continual.joint_run, &joint));
    HsStatus status = HS_OK;
    /* A joint run has no row but its last. */
    bool fits = joint.finished && joint.matrix.tasks == matrix->tasks && isnan(*hs_matrix_at(&joint.matrix, 0, 0));
    for (int i = 0; fits && i < matrix->tasks; i++) {
        fits = hs_is(joint.matrix.names[i], matrix->names[i]);
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

/* The reservoir lies in the host's memory, and is entered in the device's account. */
HsStatus hs_training_create_reservoir(HsTraining *training)
{
    const HsConfig *config = training->config;
    const size_t bytes = hs_training_reservoir_bytes(training);
    if (!hs_continual_replays(&training->continual_config))
        return HS_OK;
    if (bytes > HS_SIZE_MOST)
        return hs_fail(HS_ECONFIG,
                       "a replay buffer of %lld sequences of %lld tokens is more than can be planned: lower %s or "
                       "max_length",
                       (long long)hs_config_buffer_size(config), (long long)config->training.max_length,
                       config->replay.buffer_size > 0 ? "replay.buffer_size" : "mer.buffer_size");
    if (!training->engine.context.dry_run) {
        HS_TRY(hs_reservoir_init(&training->reservoir, hs_config_buffer_size(config), config->training.max_length,
                                 training->vocabulary, training->masked, (uint64_t)config->training.seed));
        training->has_reservoir = true;
        if (training->model.documents)
            HS_TRY(hs_reservoir_keep_marks(&training->reservoir));
        if (training->teaching.distillation.kept > 0)
            HS_TRY(hs_reservoir_keep_logits(&training->reservoir, training->teaching.distillation.kept,
                                            training->model.vocabulary));
    }
    if (!training->engine.context.dry_run && openings_bytes(training) > 0) {
        training->openings = calloc(1, openings_bytes(training));
        if (!training->openings)
            return hs_fail(HS_ENOMEM, "no memory for the openings of %d tasks", config->task_count);
    }
    hs_memory_add(&training->engine.device.account, HS_MEMORY_REPLAY, bytes);
    return HS_OK;
}

void hs_training_destroy_reservoir(HsTraining *training)
{
    if (!training->has_reservoir)
        return;
    hs_memory_subtract(&training->engine.device.account, HS_MEMORY_REPLAY, hs_training_reservoir_bytes(training));
    hs_reservoir_deinit(&training->reservoir);
    free(training->openings);
    training->openings = NULL;
    training->has_reservoir = false;
}

void hs_training_describe_strategies(const HsTraining *training)
{
    describe(training);
    describe_stream(training);
}

HsStatus hs_run_begin_continual(HsRun *run)
{
    hs_training_describe_strategies(&run->training);
    return run->training.data.count > 1 ? create_matrix(run) : HS_OK;
}

static bool steps_proximally(const HsTraining *training)
{
    for (int i = 0; i < training->span_count; i++)
        if (training->spans[i].protection.proximal)
            return true;
    return false;
}

/* Explicit steps on a quadratic penalty of curvature lambda F diverge from lr lambda F = 2 on. */
static void warn_unstable(const HsTraining *training, const HsImportance *importance, double rate)
{
    const HsStrategy *strategy = hs_continual_penalizes(&training->continual_config);
    const double product = rate * importance->strength * importance->maximum;
    if (product < 2 || steps_proximally(training))
        return;
    bool unbounded = false;
    for (int i = 0; i < training->span_count; i++)
        unbounded =
            unbounded || hs_optimizer_kind_of(&training->optimizer.config, &training->spans[i]) == HS_OPTIMIZER_SGD;
    const char *key = importance->factored ? NULL : strategy->proximal_key;
    char proximal[64] = "";
    if (unbounded) {
        if (key)
            snprintf(proximal, sizeof proximal, "%s: proximal, or ", key);
        hs_warn("lr * strength * maximum = %.3g is 2 or more: steps on the penalty overshoot and diverge. Set %s%s "
                "below %.3g times its value",
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
static double next_rate(const HsTraining *training, int task)
{
    const HsConfig *config = training->config;
    double own = !training->lengths.one_phase && task + 1 < training->lengths.phase_count
                     ? config->tasks[task + 1].learning_rate
                     : 0;
    return (own > 0 ? own : config->training.learning_rate) * hs_training_rate_scale(training);
}

void hs_run_warn_appended(const HsRun *run)
{
    const HsTraining *training = &run->training;
    const int task = (int)training->state.task;
    const HsImportance *importance = hs_continual_importance(training->continual);
    if (importance->count > 0 && !training->state.task_begun && task == training->lengths.phase_count - run->appended)
        warn_unstable(training, importance, next_rate(training, task - 1));
}

HsStatus hs_training_meet_task(HsTraining *training, int task)
{
    enum { WINDOWS = 64 }; /* whatever evaluations are set to: those must not change what is trained */
    const HsEvaluator evaluator = hs_training_evaluator(training);
    HsEvaluation known, foreign;
    if (!hs_continual_wants_foreignness(training->continual, task))
        return HS_OK;
    training->consolidating = true; /* a signal now: the checkpoint before it is the one to continue from */
    HS_TRY(hs_evaluate_text(&evaluator, &training->data.tasks[task - 1], WINDOWS, &known));
    HS_TRY(hs_evaluate_text(&evaluator, &training->data.tasks[task], WINDOWS, &foreign));
    training->consolidating = false;
    HS_TRY(hs_continual_meet_task(training->continual, exp(foreign.loss - known.loss)));
    const HsImportance *importance = hs_continual_importance(training->continual);
    if (importance->count > 0)
        warn_unstable(training, importance, next_rate(training, task - 1));
    return HS_OK;
}

/* New sequences of an unmarked stream so far: those of whole windows, or the ones at hand in the first. */
static int64_t samples_passed(const HsTraining *training)
{
    const bool running = hs_stream_is_running(training->stream);
    const HsStreamPosition position = running ? hs_stream_position(training->stream) : training->state.position;
    return position.window_first > 0 ? position.window_first : training->rows_per_step;
}

/* MER closed its group at the task's end: passes see the weights that it left. */
static HsStatus read_weights(void *user)
{
    HsTraining *training = user;
    HS_TRY(hs_shards_gather_weights(&training->exchange.shards, &training->engine.context));
    HS_TRY(hs_training_lend_weights(training));
    return hs_model_pack(&training->model, &training->engine.context);
}

/* Everything of the Fisher's source but its estimator.  sampler: of an unmarked stream, else NULL. */
static HsFisher fisher_of(HsTraining *training, int task, int64_t samples, const HsSampler *sampler)
{
    HsExchange *exchange = &training->exchange;
    const HsConfig *config = training->config;
    return (HsFisher){ .on_host = exchange->share.on_host,
                       .stream = sampler,
                       .stream_end = sampler ? samples_passed(training) : 0,
                       .program = &training->train_program,
                       .context = &training->engine.context,
                       .dataset = &training->data.tasks[sampler ? 0 : task],
                       .spans = exchange->share.all,
                       .span_count = exchange->share.all_count,
                       .samples = samples,
                       .group = config->training.batch_size,
                       .seed = (uint64_t)config->training.seed,
                       .task = (uint32_t)task,
                       .loss_scale = training->optimizer.counters.loss_scale,
                       .prepare = read_weights,
                       .user = training,
                       .ranks = exchange->ranks,
                       .comm = training->engine.comm };
}

/* sums: [HS_FISHER_SUMS * spans], room for a list. */
static HsStatus begin_fisher(HsTraining *training, int task, const HsSampler *sampler, HsTensor *sums, HsFisher *fisher)
{
    const HsContinualConfig *config = &training->continual_config;
    const char *estimator = hs_continual_word(config, "ewc", "estimator");
    *fisher = fisher_of(training, task, (int64_t)hs_continual_number(config, "ewc", "fisher_samples"), sampler);
    fisher->factors = hs_continual_factors(training->continual);
    HS_TRY(hs_continual_begin_fisher(training->continual));
    fisher->sums = sums;
    fisher->sum_count = hs_continual_fisher_sums(training->continual, sums);
    HS_TRY(hs_fisher_estimator_find(estimator, &fisher->estimator));
    HS_TRY(hs_fisher_init(fisher));
    hs_info("%s%s: Fisher information, estimator %s, %lld passes", sampler ? "the stream" : "task ",
            sampler ? "" : training->config->tasks[task].name, estimator,
            (long long)hs_fisher_passes(fisher, hs_tokenizer_vocabulary(training->data.tokenizer)));
    return HS_OK;
}

/* round: the task, or how often the stream was consolidated before.  to_the_end: the training is over for what replays,
 * too. */
static HsStatus consolidate(HsRun *run, int round, bool to_the_end)
{
    HsTraining *training = &run->training;
    HsExchange *exchange = &training->exchange;
    HsContext *context = &training->engine.context;
    HsStatus status = HS_OK;
    HsFisher fisher;
    HsFisherSource source = { &fisher, hs_fisher_next, hs_fisher_sum_part };
    const HsSampler sampler = hs_stream_sampler(training->stream, training->lengths.unmarked ? 0 : round);
    const bool measures = hs_continual_needs_fisher(&training->continual_config) != NULL;
    HsStatus (*after)(HsContinual *, HsContext *, int, HsFisherSource *) =
        to_the_end ? hs_continual_after_task : hs_continual_consolidate;
    HsTensor *const sums = measures ? calloc((size_t)exchange->share.all_count * HS_FISHER_SUMS, sizeof *sums) : NULL;
    if (measures && !sums)
        return hs_fail(HS_ENOMEM, "no memory to list %d tensors of a Fisher", exchange->share.all_count);
    if (measures)
        status = hs_training_lend_gradients(training);
    if (measures && status == HS_OK)
        status = begin_fisher(training, round, training->lengths.unmarked ? &sampler : NULL, sums, &fisher);
    if (status != HS_OK) {
        hs_continual_end_fisher(training->continual);
        hs_training_take_back_gradients(training);
        free(sums);
        return status;
    }
    HS_TRY_GOTO(status, after(training->continual, context, round, measures ? &source : NULL), done);
    HS_TRY_GOTO(status, hs_shards_gather_weights(&exchange->shards, context), done);
    HS_TRY_GOTO(status, hs_model_pack(&training->model, context), done);
    const HsImportance *importance = hs_continual_importance(training->continual);
    if (importance->count > 0) {
        double rate = next_rate(training, round);
        HS_TRY_GOTO(
            status,
            hs_metrics_importance(run->metrics, training->state.counters.applied_steps, round, rate, importance), done);
        warn_unstable(training, importance, rate);
    }
done:
    if (measures)
        hs_fisher_deinit(&fisher);
    hs_continual_end_fisher(training->continual);
    if (measures) {
        hs_training_take_back_gradients(training);
        hs_training_take_back_weights(training);
    }
    free(sums);
    return status;
}

static int rounds_of(const HsTraining *training)
{
    return (int)(training->state.task_steps / training->config->continual.consolidate_every);
}

/* A task that is not to be retained leaves no trace in what protects; no Fisher is measured. */
static HsStatus discard(HsTraining *training, int task)
{
    HsContext *context = &training->engine.context;
    if (hs_continual_penalizes(&training->continual_config))
        hs_info("task %s is not to be retained: what holds the tasks before it stays as it was",
                training->config->tasks[task].name);
    HS_TRY(hs_continual_discard_task(training->continual, context, task));
    HS_TRY(hs_shards_gather_weights(&training->exchange.shards, context));
    return hs_model_pack(&training->model, context);
}

HsStatus hs_run_consolidate(HsRun *run, int task)
{
    HsTraining *training = &run->training;
    if (!hs_continual_retains(&training->continual_config, task)) /* refused where tasks are unmarked or mixed */
        return discard(training, task);
    return consolidate(run, training->lengths.unmarked ? rounds_of(training) : task, true);
}

bool hs_training_consolidation_due(const HsTraining *training)
{
    const HsTrainingState *state = &training->state;
    return training->lengths.unmarked && hs_continual_penalizes(&training->continual_config) && state->task == 0 &&
           state->task_steps > 0 && state->task_steps < training->lengths.phase_steps[0] &&
           state->task_steps % training->config->continual.consolidate_every == 0 &&
           state->consolidated_at != state->task_steps;
}

HsStatus hs_run_consolidate_stream(HsRun *run)
{
    HsTraining *training = &run->training;
    training->consolidating = true;
    hs_training_forget_graph(training);
    HS_TRY(consolidate(run, rounds_of(training) - 1, false));
    training->state.consolidated_at = training->state.task_steps;
    training->consolidating = false;
    return HS_OK;
}
