/* SPDX-License-Identifier: MIT
 *
 * Relations between keys, checked once everything is read.  A message points at the key that the user wrote.
 * Rules look at values, not at which keys were written, wherever they can: a printed configuration writes every key
 * and must load again.
 */
#include "runtime/config/continual.h"
#include "runtime/config/mixture.h"
#include "runtime/config/model_types.h"
#include "runtime/config/table.h"
#include "runtime/io/byte_size.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static HsStatus check_recompute(HsConfig *config)
{
    char **recompute = &config->memory.recompute;
    if (!config->training.use_gradient_checkpointing || hs_is(*recompute, "block"))
        return HS_OK;
    if (hs_config_is_set(config, "memory.recompute"))
        return hs_config_relation_fail(
            config, "memory.recompute", NULL,
            "memory.recompute: %s contradicts use_gradient_checkpointing: true, which means block; "
            "remove one",
            *recompute);
    char *block = strdup("block");
    if (!block)
        return hs_fail(HS_ENOMEM, "out of memory while reading the configuration");
    free(*recompute);
    *recompute = block;
    return HS_OK;
}

static HsStatus check_schedule(const HsConfig *config)
{
    char a[32], b[32];
    double peak = config->training.learning_rate, minimum = config->schedule.min_learning_rate;
    if (minimum > peak)
        return hs_config_relation_fail(config, "schedule.min_learning_rate", "learning_rate",
                                       "schedule.min_learning_rate (%s) must be at most learning_rate (%s)",
                                       hs_config_real_text(minimum, a), hs_config_real_text(peak, b));
    int64_t warmup = config->schedule.warmup_steps, decay = config->schedule.decay_steps;
    if (warmup > 0 && decay > 0 && warmup >= decay)
        return hs_config_relation_fail(
            config, "schedule.warmup_steps", "schedule.decay_steps",
            "schedule.warmup_steps (%lld) must be less than schedule.decay_steps (%lld), which counts "
            "the warm-up in",
            (long long)warmup, (long long)decay);
    if (config->training.max_steps == 0 && config->training.max_epochs == 0)
        return hs_config_relation_fail(
            config, "max_epochs", "max_steps",
            "max_epochs and max_steps are both 0: nothing would be trained; set one of them");
    return HS_OK;
}

static HsStatus check_scale_order(const HsConfig *config, const char *low_key, double low, const char *high_key,
                                  double high)
{
    char a[32], b[32];
    if (low <= high)
        return HS_OK;
    return hs_config_relation_fail(config, low_key, high_key, "%s (%s) must be at most %s (%s)", low_key,
                                   hs_config_real_text(low, a), high_key, hs_config_real_text(high, b));
}

static HsStatus check_precision(const HsConfig *config)
{
    double low = config->precision.min_scale, first = config->precision.init_scale, high = config->precision.max_scale;
    HS_TRY(check_scale_order(config, "precision.min_scale", low, "precision.max_scale", high));
    HS_TRY(check_scale_order(config, "precision.min_scale", low, "precision.init_scale", first));
    HS_TRY(check_scale_order(config, "precision.init_scale", first, "precision.max_scale", high));
    const char *mode = config->precision.mode;
    bool may_drop_masters = hs_is(mode, "bf16") || (hs_is(mode, "auto") && config->training.use_amp);
    if (!config->precision.master_weights && !may_drop_masters)
        return hs_config_relation_fail(config, "precision.master_weights", "precision.mode",
                                       "precision.master_weights: false needs precision.mode bf16 (it is %s%s)", mode,
                                       hs_is(mode, "auto") ? " with use_amp: false, which means fp32" : "");
    return HS_OK;
}

static HsStatus check_memory(const HsConfig *config)
{
    const struct {
        const char *key;
        int64_t bytes;
    } sizes[] = { { "memory.limit", config->memory.limit },
                  { "memory.place.gpu", config->memory_place.gpu },
                  { "memory.place.cpu", config->memory_place.cpu } };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (sizes[i].bytes > 0 && sizes[i].bytes < HS_MEMORY_LEAST_BYTES)
            return hs_config_relation_fail(
                config, sizes[i].key, NULL,
                "%s must be 0 or at least 1MiB, and a number without a unit is in bytes (got %lld): write %lldMiB",
                sizes[i].key, (long long)sizes[i].bytes, (long long)sizes[i].bytes);
    return HS_OK;
}

static HsStatus check_kernels(const HsConfig *config)
{
    if (hs_is(config->kernels.cuda_graph, "true") && config->kernels.sync_launch)
        return hs_config_relation_fail(
            config, "kernels.cuda_graph", "kernels.sync_launch",
            "kernels.cuda_graph records kernels without running them, and kernels.sync_launch waits "
            "for each: set one of them to false");
    return HS_OK;
}

/* What evaluations decide needs evaluations on the way. */
static HsStatus check_evaluation(const HsConfig *config)
{
    const char *const keys[] = { "early_stop.patience", "keep_best" };
    const bool wanted[] = { config->early_stop.patience > 0, config->training.keep_best };
    for (int i = 0; i < 2; i++)
        if (wanted[i] && config->evaluation.every == 0)
            return hs_config_relation_fail(
                config, keys[i], "evaluation.every",
                "%s uses evaluations during training, but evaluation.every is 0: set it, or remove "
                "%s",
                keys[i], keys[i]);
    return HS_OK;
}

/* "10-12", or "10" for one step. */
static bool read_steps(const char *text, HsTraceSteps *steps)
{
    int used = -1;
    long long first = 0, last = 0;
    if (sscanf(text, "%lld-%lld%n", &first, &last, &used) != 2 || text[used] != '\0') {
        used = -1;
        if (sscanf(text, "%lld%n", &first, &used) != 1 || text[used] != '\0')
            return false;
        last = first;
    }
    *steps = (HsTraceSteps){ first, last };
    return first >= 1 && last >= first;
}

HsTraceSteps hs_config_trace_steps(const HsConfig *config)
{
    HsTraceSteps steps;
    return read_steps(config->logging.trace, &steps) ? steps : (HsTraceSteps){ 0 };
}

static HsStatus check_observation(const HsConfig *config)
{
    HsTraceSteps steps;
    if (config->logging.trace[0] != '\0' && !read_steps(config->logging.trace, &steps))
        return hs_config_relation_fail(
            config, "logging.trace", NULL,
            "logging.trace must be a range of steps such as 10-12, counted from 1 (got %.40s)", config->logging.trace);
    const int64_t at_once = config->memory.micro_batch;
    if (at_once > 0 && config->training.batch_size % at_once != 0)
        return hs_config_relation_fail(config, "memory.micro_batch", "batch_size",
                                       "batch_size (%lld) must be a multiple of memory.micro_batch (%lld)",
                                       (long long)config->training.batch_size, (long long)at_once);
    return HS_OK;
}

static HsStatus check_length_groups(const HsConfig *config)
{
    const char *const key = "data.group_by_length";
    if (!config->data.group_by_length)
        return HS_OK;
    if (!hs_is(config->data.packing, "none"))
        return hs_config_relation_fail(config, key, "data.packing",
                                       "%s is of documents in separate rows: set data.packing: none (it is %s)", key,
                                       config->data.packing);
    if (!hs_is(config->data.sampling, "epoch"))
        return hs_config_relation_fail(config, key, "data.sampling",
                                       "%s orders the rows of an epoch: set data.sampling: epoch (it is %s)", key,
                                       config->data.sampling);
    for (int task = 0; task < config->task_count; task++)
        if (hs_task_is_mixed(&config->tasks[task]))
            return hs_config_relation_fail(config, key, NULL,
                                           "%s and weights do not go together, as each row of a step may be of another "
                                           "source: remove it, or the weights of task %s",
                                           key, config->tasks[task].name);
    return HS_OK;
}

/* "10%": a share, else a source, which the data part looks up. */
static HsStatus check_share(const HsConfig *config, int task)
{
    char dotted[HS_DOTTED_BYTES];
    snprintf(dotted, sizeof dotted, "tasks.%d.validation", task);
    const char *share = config->tasks[task].validation;
    size_t length = strlen(share);
    if (length == 0 || share[length - 1] != '%')
        return HS_OK;
    char *end;
    double percent = strtod(share, &end);
    if (end != share + length - 1 || !(percent >= 0 && percent < 100))
        return hs_config_relation_fail(config, dotted, NULL, "%s must be a share from 0%% to below 100%% (got %.40s)",
                                       dotted, share);
    return HS_OK;
}

/* One way of giving a task's length; names that tell the tasks apart. */
static HsStatus check_task(const HsConfig *config, int task)
{
    const HsTaskConfig *own = &config->tasks[task];
    char dotted[HS_DOTTED_BYTES], other[HS_DOTTED_BYTES];
    HS_TRY(check_share(config, task));
    const struct {
        const char *name;
        bool given;
    } lengths[] = { { "steps", own->steps > 0 }, { "tokens", own->tokens > 0 }, { "epochs", own->epochs > 0 } };
    for (int a = 0; a < 3; a++)
        for (int b = a + 1; b < 3; b++)
            if (lengths[a].given && lengths[b].given) {
                snprintf(dotted, sizeof dotted, "tasks.%d.%s", task, lengths[b].name);
                snprintf(other, sizeof other, "tasks.%d.%s", task, lengths[a].name);
                return hs_config_relation_fail(config, dotted, other,
                                               "%s and %s both give the task's length; remove one", other, dotted);
            }
    double peak = own->learning_rate;
    snprintf(dotted, sizeof dotted, "tasks.%d.learning_rate", task);
    if (peak > 0 && config->schedule.min_learning_rate > peak)
        return hs_config_relation_fail(config, dotted, "schedule.min_learning_rate",
                                       "%s must be at least schedule.min_learning_rate", dotted);
    if (peak > 0 && hs_is(config->continual.schedule, "single"))
        return hs_config_relation_fail(
            config, dotted, "continual.schedule",
            "%s contradicts continual.schedule: single, one schedule over all tasks; remove one", dotted);
    if (peak > 0 && hs_is(config->continual.boundaries, "none"))
        return hs_config_relation_fail(
            config, dotted, "continual.boundaries",
            "%s contradicts continual.boundaries: none, one schedule over one stream; remove one", dotted);
    snprintf(dotted, sizeof dotted, "tasks.%d.name", task);
    for (const char *c = own->name; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            return hs_config_relation_fail(
                config, dotted, NULL, "%s holds a control character, which tables and charts would show: remove it",
                dotted);
    for (int earlier = 0; earlier < task; earlier++)
        if (hs_is(config->tasks[earlier].name, own->name))
            return hs_config_relation_fail(config, dotted, NULL,
                                           "%s: tasks.%d is called `%.40s` too; give each task its own name", dotted,
                                           earlier, own->name);
    return HS_OK;
}

/* Kronecker factors are one quadratic, in the Fisher's own units, of single tokens' gradients. */
static HsStatus check_curvature(const HsConfig *config)
{
    const struct {
        const char *key, *value, *mend;
        bool refused;
    } rules[] = {
        { "ewc.mode", config->ewc.mode, "online", hs_is(config->ewc.mode, "separate") },
        { "ewc.step", config->ewc.step, "auto or gradient", hs_is(config->ewc.step, "proximal") },
        { "ewc.normalize", config->ewc.normalize, "auto or none",
          !hs_is(config->ewc.normalize, "auto") && !hs_is(config->ewc.normalize, "none") &&
              !hs_is(config->ewc.normalize, "false") },
        { "ewc.estimator", config->ewc.estimator, "sampled or empirical",
          hs_is(config->ewc.estimator, "exact") || hs_is(config->ewc.estimator, "batched") },
    };
    for (size_t i = 0; hs_is(config->ewc.curvature, "kronecker") && i < sizeof rules / sizeof rules[0]; i++)
        if (rules[i].refused)
            return hs_config_relation_fail(
                config, rules[i].key, "ewc.curvature",
                "%s: %s has no meaning with ewc.curvature: kronecker; set it to %s, or ewc.curvature "
                "to diagonal",
                rules[i].key, rules[i].value, rules[i].mend);
    return HS_OK;
}

/* A task can be left out of what protects only where that knows where it ends, and when it has ended. */
static HsStatus check_retain(const HsConfig *config, const HsContinualConfig *strategies)
{
    char dotted[HS_DOTTED_BYTES] = "";
    int retained = 0;
    for (int task = config->task_count - 1; task >= 0; task--) {
        retained += config->tasks[task].retain;
        if (!config->tasks[task].retain)
            snprintf(dotted, sizeof dotted, "tasks.%d.retain", task);
    }
    if (retained == config->task_count)
        return HS_OK;
    if (retained == 0)
        return hs_config_relation_fail(config, dotted, NULL,
                                       "%s is false, and so it is for every task: no task would be retained, and there "
                                       "is nothing to measure; set it to true for those that are to stay",
                                       dotted);
    if (hs_continual_mixes_tasks(strategies))
        return hs_config_relation_fail(
            config, dotted, "continual.strategy",
            "%s: false contradicts continual.strategy: joint, which trains on every task "
            "until the end; remove the task from tasks, set retain to true, or choose another "
            "strategy",
            dotted);
    if (strategies->unmarked)
        return hs_config_relation_fail(config, dotted, "continual.boundaries",
                                       "%s: false contradicts continual.boundaries: none, with which strategies do "
                                       "not know where a task ends; set boundaries to tasks, or retain to true",
                                       dotted);
    return HS_OK;
}

/* What the model knows comes before what it learns. */
static HsStatus check_known(const HsConfig *config, const HsContinualConfig *strategies)
{
    const int first = strategies->known;
    char dotted[HS_DOTTED_BYTES];
    for (int task = first; task < config->task_count; task++) {
        snprintf(dotted, sizeof dotted, "tasks.%d.known", task);
        if (config->tasks[task].known)
            return hs_config_relation_fail(config, dotted, NULL,
                                           "%s is true, and a task that is trained stands before it, %.60s: move the "
                                           "tasks that the model knows already to the beginning of tasks",
                                           dotted, config->tasks[first].name);
    }
    if (first == 0)
        return HS_OK;
    if (config->training.init_from[0] == '\0')
        return hs_config_relation_fail(config, "tasks.0.known", "init_from",
                                       "tasks.0.known is true, and the model begins untrained: it knows nothing; set "
                                       "init_from, or remove known");
    if (first == config->task_count)
        return hs_config_relation_fail(config, "tasks.0.known", NULL,
                                       "tasks.0.known is true, and so it is for every task: there is nothing to train; "
                                       "append a task, or use trainer eval");
    if (strategies->unmarked)
        return hs_config_relation_fail(
            config, "tasks.0.known", "continual.boundaries",
            "tasks.0.known: true contradicts continual.boundaries: none, with which there is "
            "one stream; set boundaries to tasks, or remove known");
    for (int task = 0; task < first; task++) {
        snprintf(dotted, sizeof dotted, "tasks.%d.retain", task);
        if (!config->tasks[task].retain)
            return hs_config_relation_fail(config, dotted, NULL,
                                           "%s is false, and the model knows that task already: remove it from tasks, "
                                           "and nothing of it is protected",
                                           dotted);
    }
    return HS_OK;
}

static bool is_schedule_free(const HsConfig *config)
{
    bool is = hs_is(config->optimizer.kind, "schedule-free");
    for (int i = 0; i < config->group_count; i++)
        is = is || hs_is(config->groups[i].kind, "schedule-free");
    return is;
}

/* What a strategy makes of the weights between two tasks would be in no average of theirs. */
static HsStatus check_average(const HsConfig *config, const HsContinualConfig *strategies)
{
    const HsStrategy *replaces = hs_continual_replaces_weights(strategies);
    if (replaces && is_schedule_free(config))
        return hs_config_relation_fail(config, "optimizer.kind", "continual.strategy",
                                       "optimizer.kind: schedule-free evaluates and saves a mean over all steps, and "
                                       "strategy %s makes other weights between tasks: choose another of the two",
                                       replaces->name);
    if (config->average.decay == 0 || !replaces)
        return HS_OK;
    return hs_config_relation_fail(config, "average.decay", "continual.strategy",
                                   "average.decay: averages of the steps' weights would be evaluated and saved, and "
                                   "strategy %s makes others between tasks: remove one of the two",
                                   replaces->name);
}

/* Strategies: optim/ knows which there are and which go together. */
static HsStatus check_continual(HsConfig *config)
{
    HsContinualConfig strategies;
    HS_TRY(hs_config_resolve_strategies(config));
    HS_TRY(hs_config_continual(config, &strategies));
    HsStatus status = hs_continual_check(&strategies);
    if (status != HS_OK) {
        char message[512];
        snprintf(message, sizeof message, "%.500s", hs_error_message());
        return hs_config_relation_fail(config, "continual.strategy", NULL, "%s", message);
    }
    HS_TRY(check_retain(config, &strategies));
    HS_TRY(check_known(config, &strategies));
    const char *normalize = config->ewc.normalize;
    if (isnan(config->ewc.lambda) && !hs_is(normalize, "auto") && !hs_is(normalize, "none") &&
        !hs_is(normalize, "false"))
        return hs_config_relation_fail(
            config, "ewc.normalize", "ewc.lambda",
            "ewc.normalize: %s contradicts ewc.lambda: auto, which is in units of the Fisher "
            "information itself; leave it out, or set ewc.lambda to a number",
            normalize);
    const HsStrategy *compares = hs_continual_compares_logits(&strategies);
    if (compares && hs_is(config->precision.logits, "compute"))
        return hs_config_relation_fail(config, "precision.logits", "continual.strategy",
                                       "precision.logits: compute rounds the logits, and strategy %s compares them in "
                                       "f32: set precision.logits: f32",
                                       compares->name);
    HS_TRY(check_average(config, &strategies));
    const HsStrategy *renews = hs_continual_new_adapters(&strategies);
    if (renews && hs_is(config->adapter.kind, "none"))
        return hs_config_relation_fail(config, "continual.strategy", "adapter.kind",
                                       "continual.strategy: %s gives each task an adapter, and adapter.kind is none: "
                                       "set adapter.kind: lora",
                                       renews->name);
    if (renews && hs_is(config->adapter.base, "nf4"))
        return hs_config_relation_fail(
            config, "adapter.base", "continual.strategy",
            "adapter.base: nf4 contradicts continual.strategy: %s, which adds each task's "
            "adapter to the matrices, and four bits would round it away: remove adapter.base",
            renews->name);
    if (strategies.unmarked && config->early_stop.patience > 0)
        return hs_config_relation_fail(
            config, "early_stop.patience", "continual.boundaries",
            "early_stop.patience ends a task, and with continual.boundaries: none there is one stream: "
            "remove one");
    HS_TRY(check_curvature(config));
    bool single_pass = hs_is(config->mer.mode, "algorithm6") || hs_is(config->mer.mode, "reptile");
    if (single_pass && config->mer.groups > 1)
        return hs_config_relation_fail(
            config, "mer.groups", "mer.mode",
            "mer.groups (%lld) has no meaning in mer.mode %s; set it to 1, or choose algorithm1 or "
            "algorithm7",
            (long long)config->mer.groups, config->mer.mode);
    return HS_OK;
}

/* SGD has no moments; any other rule, of a group too, has or leaves some to AdamW. */
static HsStatus check_moments(const HsConfig *config)
{
    bool has_moments = !hs_is(config->optimizer.kind, "sgd");
    for (int i = 0; i < config->group_count; i++)
        has_moments |= !hs_is(config->groups[i].kind, "sgd") && !hs_is(config->groups[i].kind, "inherit");
    if (has_moments || hs_is(config->optimizer.moments, "f32"))
        return HS_OK;
    return hs_config_relation_fail(config, "optimizer.moments", "optimizer.kind",
                                   "optimizer.moments: %s is for AdamW's moments, and optimizer.kind: sgd has none; "
                                   "leave it out, or set optimizer.kind: adamw",
                                   config->optimizer.moments);
}

/* It has a mean already, which beta1 mixes with the newest weights.  train.size would give it AdamW's rate, and a rate that
 * falls. */
static HsStatus check_schedule_free(const HsConfig *config)
{
    if (!is_schedule_free(config))
        return HS_OK;
    if (config->average.decay > 0)
        return hs_config_relation_fail(config, "average.decay", "optimizer.kind",
                                       "average.decay: optimizer.kind: schedule-free evaluates and saves a mean of its "
                                       "weights already; leave average.decay out, or choose another kind");
    if (config->optimizer.betas[0] == 0)
        return hs_config_relation_fail(config, "optimizer.betas", "optimizer.kind",
                                       "optimizer.betas: with optimizer.kind: schedule-free the first must be above 0, "
                                       "such as 0.9: gradients are taken that far from the newest weights");
    const bool whole = hs_is(config->optimizer.kind, "schedule-free");
    const bool rate = hs_config_is_set(config, "learning_rate"), schedule = hs_config_is_set(config, "schedule.kind");
    if (whole && config->train.size[0] != '\0' && !(rate && schedule))
        return hs_config_relation_fail(config, "train.size", "optimizer.kind",
                                       "train.size has no rule for the rate of optimizer.kind: schedule-free: set "
                                       "learning_rate (some 3 to 10 times AdamW's), and schedule.kind: constant with "
                                       "schedule.warmup_steps");
    return HS_OK;
}

static HsStatus check_mixtures(const HsConfig *config)
{
    for (int i = 0; i < config->task_count; i++) {
        const char *key = "";
        char dotted[64], why[400];
        if (hs_task_check_mixture(&config->tasks[i], &key) == HS_OK)
            continue;
        snprintf(dotted, sizeof dotted, "tasks.%d.%s", i, key);
        snprintf(why, sizeof why, "%.390s", hs_error_message());
        return hs_config_relation_fail(config, dotted, NULL, "%s: %s", dotted, why);
    }
    return HS_OK;
}

static HsStatus check_groups(const HsConfig *config)
{
    for (int i = 0; i < config->group_count; i++) {
        const HsGroupConfig *own = &config->groups[i];
        char dotted[HS_DOTTED_BYTES];
        snprintf(dotted, sizeof dotted, "optimizer.groups.%d.match", i);
        if (own->match.count == 0 || own->match.items[0][0] == '\0')
            return hs_config_relation_fail(
                config, dotted, NULL, "%s is missing: say which parameters the group has, such as match: head", dotted);
        snprintf(dotted, sizeof dotted, "optimizer.groups.%d.weight_decay", i);
        if (own->weight_decay < 0 && own->weight_decay > -1)
            return hs_config_relation_fail(config, dotted, NULL,
                                           "%s must be at least 0, or -1 for the top level's weight_decay", dotted);
        snprintf(dotted, sizeof dotted, "optimizer.groups.%d.learning_rate", i);
        if (own->learning_rate > 0 && !(config->training.learning_rate > 0))
            return hs_config_relation_fail(config, dotted, "learning_rate",
                                           "%s scales the top level's learning_rate, which is 0: set that above 0",
                                           dotted);
    }
    return HS_OK;
}

static HsStatus check_adapter(const HsConfig *config)
{
    const struct {
        const char *key;
        bool used; /* another value than the default, which a resolved configuration names too */
    } rules[] = {
        { "adapter.rank", config->adapter.rank != 16 },
        { "adapter.alpha", config->adapter.alpha != 32 },
        { "adapter.rank_stabilized", config->adapter.rank_stabilized },
        { "adapter.dropout", config->adapter.dropout > 0 },
        { "adapter.base", !hs_is(config->adapter.base, "unchanged") },
        { "adapter.also_train", config->adapter.also_train.count > 0 && config->adapter.also_train.items[0][0] },
    };
    for (size_t i = 0; i < sizeof rules / sizeof rules[0] && hs_is(config->adapter.kind, "none"); i++)
        if (rules[i].used)
            return hs_config_relation_fail(config, rules[i].key, "adapter.kind",
                                           "%s is set, but adapter.kind is none: set adapter.kind: lora, or remove it",
                                           rules[i].key);
    if (hs_is(config->adapter.kind, "none"))
        return HS_OK;
    if (config->adapter.targets.count == 0 || config->adapter.targets.items[0][0] == '\0')
        return hs_config_relation_fail(config, "adapter.targets", NULL,
                                       "adapter.targets is empty: say which matrices are adapted, such as all-linear");
    if (hs_is(config->ewc.curvature, "kronecker"))
        return hs_config_relation_fail(config, "ewc.curvature", "adapter.kind",
                                       "ewc.curvature: kronecker needs the matrices themselves to be trained, and "
                                       "adapter.kind is %s: set diagonal, or auto",
                                       config->adapter.kind);
    return HS_OK;
}

HsStatus hs_config_check(HsConfig *config)
{
    HS_TRY(check_recompute(config));
    HS_TRY(check_schedule(config));
    HS_TRY(check_precision(config));
    HS_TRY(check_memory(config));
    HS_TRY(check_kernels(config));
    HS_TRY(check_evaluation(config));
    HS_TRY(check_observation(config));
    HS_TRY(hs_config_check_model(config));
    if (hs_is(config->tokenizer.kind, "bpe") && config->tokenizer.path[0] == '\0')
        return hs_config_relation_fail(config, "tokenizer.kind", NULL,
                                       "tokenizer.kind: bpe needs tokenizer.path, a Hugging Face tokenizer.json");
    if (!hs_is(config->tokenizer.kind, "bpe") && config->tokenizer.path[0] != '\0')
        return hs_config_relation_fail(
            config, "tokenizer.path", "tokenizer.kind",
            "tokenizer.path has no meaning with tokenizer.kind: %s, which reads no file; leave it out, "
            "or set tokenizer.kind: bpe",
            config->tokenizer.kind);
    if (hs_is(config->optimizer.kind, "sgd") && config->optimizer.nesterov && config->optimizer.momentum == 0)
        return hs_config_relation_fail(config, "optimizer.nesterov", "optimizer.momentum",
                                       "optimizer.nesterov: true needs optimizer.momentum above 0");
    HS_TRY(check_moments(config));
    HS_TRY(check_schedule_free(config));
    HS_TRY(check_continual(config));
    HS_TRY(check_mixtures(config));
    HS_TRY(check_length_groups(config));
    HS_TRY(check_groups(config));
    HS_TRY(check_adapter(config));
    for (int task = 0; task < config->task_count; task++)
        HS_TRY(check_task(config, task));
    return HS_OK;
}
