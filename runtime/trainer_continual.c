/* SPDX-License-Identifier: MIT
 *
 * The strategies' place in a run: what they leave free, what they cost, how strong they act, and the Fisher's passes.
 * Effective strength is always shown: a penalty that does nothing and one that tears the model apart look alike in a
 * configuration.
 */
#include <fnmatch.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base/log.h"
#include "runtime/config_continual.h"
#include "runtime/fisher.h"
#include "runtime/report.h"
#include "runtime/trainer.h"

static bool is(const char *value, const char *word)
{
    return strcmp(value, word) == 0;
}

static bool ends_with(const char *name, const char *end)
{
    size_t length = strlen(name), tail = strlen(end);
    return length >= tail && is(name + length - tail, end);
}

static bool is_embedding(const char *name, unsigned flags)
{
    (void)name;
    return flags & HS_PARAM_EMBEDDING;
}

static bool is_norm(const char *name, unsigned flags)
{
    (void)name;
    return flags & HS_PARAM_ONES;
}

static bool is_bias(const char *name, unsigned flags)
{
    (void)flags;
    return ends_with(name, ".bias");
}

/* A tied head is the embedding. */
static bool is_head(const char *name, unsigned flags)
{
    return is(name, "lm_head.weight") || (flags & HS_PARAM_EMBEDDING && flags & HS_PARAM_TIED);
}

static const struct {
    const char *word;
    bool (*matches)(const char *name, unsigned flags);
} kinds[] = { { "embedding", is_embedding }, { "norm", is_norm }, { "bias", is_bias }, { "head", is_head } };

static bool excludes(const char *entry, const char *name, unsigned flags)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (is(entry, kinds[i].word))
            return kinds[i].matches(name, flags);
    return fnmatch(entry, name, 0) == 0;
}

HsStatus hs_trainer_mark_excluded(const HsTrainer *trainer, HsSpan *spans, int count)
{
    const HsStringList *entries = &trainer->config->ewc.exclude;
    if (!hs_continual_has(&trainer->continual_config, "ewc"))
        return HS_OK;
    int excluded = 0;
    for (int e = 0; e < entries->count; e++) {
        bool matched = false;
        for (int i = 0; i < count; i++) {
            /* Spans are the model's parameters in their order. */
            if (!excludes(entries->items[e], spans[i].name, trainer->model.params[i].flags))
                continue;
            matched = true;
            excluded += !spans[i].excluded;
            spans[i].excluded = true;
        }
        if (!matched)
            return hs_fail(HS_ECONFIG,
                           "ewc.exclude: `%s` matches no parameter of this model; it takes embedding, norm, bias, head "
                           "or a pattern of names such as %s",
                           entries->items[e], count > 0 ? spans[count - 1].name : "*.weight");
    }
    if (excluded == count)
        return hs_fail(HS_ECONFIG, "ewc.exclude leaves every parameter free: nothing would be protected");
    return HS_OK;
}

size_t hs_trainer_reservoir_bytes(const HsTrainer *trainer)
{
    const HsConfig *config = trainer->config;
    if (!hs_continual_replays(&trainer->continual_config))
        return 0;
    return hs_reservoir_bytes(hs_config_buffer_size(config), config->training.max_length, trainer->vocabulary,
                              trainer->masked);
}

/* Rates that shrink every displacement, and the lines that mend it. */
static void describe_mer(const HsTrainer *trainer)
{
    const HsContinualConfig *config = &trainer->continual_config;
    double displacement = hs_mer_displacement(config), scale = hs_mer_rate_scale(config);
    bool reptile = config->mer.mode == HS_MER_REPTILE, inner = config->mer.mode == HS_MER_ALGORITHM1;
    if (reptile)
        hs_info("mer: reptile, epsilon %g every %lld steps", config->mer.epsilon, (long long)config->mer.interval);
    else
        hs_info("mer: groups of %lld steps, displacement factor %g", (long long)config->mer.group_steps, displacement);
    if (scale != 1)
        hs_info("mer: compensate_learning_rate multiplies the learning rate by %g", scale);
    if (displacement >= 0.1 || scale != 1)
        return;
    char product[96] = "";
    if (inner)
        snprintf(product, sizeof product, "groups %lld x beta %g x gamma %g = ", (long long)config->mer.groups,
                 config->mer.beta, config->mer.gamma);
    hs_warn("mer: %s%g: every displacement is multiplied by this, and the model will hardly learn. Write either\n"
            "    mer:\n      compensate_learning_rate: true\n"
            "or, to keep the learning rate,\n"
            "    mer:\n      %s",
            product, displacement,
            reptile ? "epsilon: 0.3"
            : inner ? "beta: 1.0\n      gamma: 0.3"
                    : "gamma: 0.3");
}

static void describe(const HsTrainer *trainer)
{
    const HsContinualConfig *config = &trainer->continual_config;
    for (int i = 0; i < config->strategy_count; i++) {
        const HsStrategy *strategy = hs_strategy_find(config->strategies[i]);
        if (!is(strategy->name, "none"))
            hs_info("strategy %s: %s", strategy->name, strategy->doc);
    }
    if (trainer->has_reservoir)
        hs_info("replay buffer: %lld sequences, %.1f MiB on the host", (long long)trainer->reservoir.capacity,
                (double)hs_trainer_reservoir_bytes(trainer) / (1024.0 * 1024.0));
    if (hs_continual_has(config, "mer"))
        describe_mer(trainer);
}

static HsStatus create_matrix(HsTrainer *trainer)
{
    const HsConfig *config = trainer->config;
    HsMatrix *matrix = &trainer->matrix;
    HS_TRY(hs_matrix_init(matrix, trainer->data.count));
    trainer->has_matrix = true;
    for (int i = 0; i < matrix->tasks; i++) {
        snprintf(matrix->names[i], sizeof matrix->names[i], "%s", config->tasks[i].name);
        matrix->floor[i] = trainer->data.tasks[i].validation.entropy_floor;
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
        status =
            hs_fail(HS_ECONFIG,
                    "continual.joint_run: %s is no finished joint run over the same tasks; run the configuration with "
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
    trainer->has_reservoir = false;
}

HsStatus hs_trainer_begin_continual(HsTrainer *trainer)
{
    describe(trainer);
    return trainer->data.count > 1 ? create_matrix(trainer) : HS_OK;
}

/* Explicit steps on a quadratic penalty of curvature lambda F diverge from lr lambda F = 2 on. */
static void warn_unstable(const HsTrainer *trainer, const HsImportance *importance, double rate)
{
    const HsContinualConfig *config = &trainer->continual_config;
    double product = rate * importance->strength * importance->maximum;
    if (product < 2 || (hs_continual_has(config, "ewc") && config->ewc.proximal))
        return;
    const char *section = hs_continual_has(config, "ewc") ? "ewc.lambda" : "si.strength";
    if (trainer->optimizer.config.kind == HS_OPTIMIZER_SGD)
        hs_warn(
            "lr * strength * maximum = %.3g is 2 or more: steps on the penalty overshoot and diverge. Set ewc.step: "
            "proximal, or %s below %.3g of its value",
            product, section, 2 / product);
    else
        hs_info(
            "lr * strength * maximum = %.3g is 2 or more: AdamW bounds the step, so the stiffest parameters jitter by "
            "about the learning rate around their anchor; ewc.step: proximal has no such limit",
            product);
}

/* The rate that the next task will train with at most. */
static double next_rate(const HsTrainer *trainer, int task)
{
    const HsConfig *config = trainer->config;
    double own = !trainer->joint && task + 1 < trainer->phase_count ? config->tasks[task + 1].learning_rate : 0;
    return (own > 0 ? own : config->training.learning_rate) * hs_mer_rate_scale(&trainer->continual_config);
}

HsStatus hs_trainer_consolidate(HsTrainer *trainer, int task)
{
    const HsConfig *config = trainer->config;
    HsContext *context = &trainer->engine.context;
    HsStatus status = HS_OK;
    HsFisher fisher = { .plan = &trainer->train_plan,
                        .context = context,
                        .dataset = &trainer->data.tasks[task],
                        .spans = trainer->spans,
                        .span_count = trainer->span_count,
                        .samples = config->ewc.fisher_samples,
                        .group = config->training.batch_size,
                        .seed = (uint64_t)config->training.seed,
                        .task = (uint32_t)task,
                        .loss_scale = trainer->optimizer.scaler.scale };
    HsFisherSource source = { &fisher, hs_fisher_next };
    bool measures = hs_continual_has(&trainer->continual_config, "ewc");
    if (measures) {
        HS_TRY(hs_fisher_estimator_find(config->ewc.estimator, &fisher.estimator));
        HS_TRY(hs_fisher_init(&fisher));
        hs_info("task %s: Fisher information, estimator %s, %lld passes", config->tasks[task].name,
                config->ewc.estimator,
                (long long)hs_fisher_passes(&fisher, hs_tokenizer_vocabulary(trainer->data.tokenizer)));
    }
    HS_TRY_GOTO(status, hs_continual_after_task(trainer->continual, context, task, measures ? &source : NULL), done);
    HS_TRY_GOTO(status, hs_model_refresh(&trainer->model, context, false), done);
    const HsImportance *importance = hs_continual_importance(trainer->continual);
    if (importance->count > 0) {
        double rate = next_rate(trainer, task);
        HS_TRY_GOTO(status,
                    hs_metrics_importance(trainer->metrics, trainer->state.applied_steps, task, rate, importance),
                    done);
        warn_unstable(trainer, importance, rate);
    }
done:
    if (measures)
        hs_fisher_deinit(&fisher);
    return status;
}
