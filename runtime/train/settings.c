/* SPDX-License-Identifier: MIT
 *
 * Settings that cannot take effect in a run of this length.  None is wrong by itself, so that each is one warning; what
 * follows from it is said in numbers.
 *
 *     steps     0 ........ warmup ........ decay ........ of a task, or (continual.schedule: single) of the run
 *     every N   once at least within the run, where the user has set it
 */
#include <stdio.h>
#include <string.h>

#include "kernels/base/log.h"
#include "optim/schedule.h"
#include "runtime/train/run.h"

/* The schedule over `length` steps; true: there is something to warn of.  what: "the run", "task x" */
static bool warn_phase(const HsConfig *config, const char *what, int64_t length, double peak)
{
    const int64_t warmup = config->schedule.warmup_steps, decay = config->schedule.decay_steps;
    const double low = config->schedule.min_learning_rate;
    const bool decays = decay > 0 && !hs_is(config->schedule.kind, "constant");
    HsSchedule schedule;
    if (hs_schedule_init(&schedule, config->schedule.kind, peak, low, warmup, decay > 0 ? decay : length,
                         config->schedule.wsd_decay_fraction) != HS_OK ||
        hs_schedule_set_decay(&schedule, config->schedule.wsd_shape) != HS_OK)
        return false; /* the task's begin says why */
    const double last = hs_schedule_rate(&schedule, length - 1);
    if (warmup > length)
        hs_warn("schedule.warmup_steps is %lld and %s has %lld steps: its learning rate ends at %.3g and never reaches "
                "%.3g",
                (long long)warmup, what, (long long)length, last, peak);
    else if (decays && decay > length)
        hs_warn("schedule.decay_steps is %lld and %s has %lld steps: its learning rate ends at %.3g, and not at "
                "schedule.min_learning_rate, %.3g",
                (long long)decay, what, (long long)length, last, low);
    else if (decays && decay < length && low == 0)
        hs_warn("schedule.decay_steps is %lld and %s has %lld steps: the learning rate of the last %lld is 0",
                (long long)decay, what, (long long)length, (long long)(length - decay));
    else
        return false;
    return true;
}

/* Of several tasks the first that has something to warn of stands for all. */
static void warn_schedule(const HsTraining *training)
{
    const HsLengths *lengths = &training->lengths;
    const HsConfig *config = training->config;
    const bool whole = hs_is(config->continual.schedule, "single") || lengths->phase_count == 1;
    /* Later tasks have a warm-up of another length, or none. */
    const bool rewarm =
        hs_is(hs_training_schedule(training), "rewarm") || hs_is(hs_training_schedule(training), "infinite");
    bool warned = whole && warn_phase(config, "the run", lengths->total_steps, config->training.learning_rate);
    for (int i = 0; !whole && !warned && i < (rewarm ? 1 : lengths->phase_count); i++) {
        const double own = config->tasks[i].learning_rate;
        char what[96];
        snprintf(what, sizeof what, "task %.80s", config->tasks[i].name);
        warned = warn_phase(config, what, lengths->phase_steps[i], own > 0 ? own : config->training.learning_rate);
    }
}

/* Keys that the kind of schedule does not read. */
static void warn_unread(const HsTraining *training)
{
    const HsConfig *config = training->config;
    const char *const over_tasks = hs_training_schedule(training);
    const bool infinite = hs_is(over_tasks, "infinite");
    const bool constant = hs_is(config->schedule.kind, "constant"), wsd = hs_is(config->schedule.kind, "wsd");
    const struct {
        const char *key, *needs;
        bool unread;
    } rules[] = {
        { "schedule.decay_steps", "schedule.kind linear, cosine or wsd", constant && config->schedule.decay_steps > 0 },
        { "schedule.min_learning_rate", "schedule.kind linear, cosine or wsd",
          constant && config->schedule.min_learning_rate > 0 },
        { "schedule.wsd_decay_fraction", "schedule.kind wsd", !wsd && config->schedule.wsd_decay_fraction != 0.2 },
        { "schedule.wsd_shape", "schedule.kind wsd", !wsd && !infinite && !hs_is(config->schedule.wsd_shape, "sqrt") },
        { "schedule.decay_steps", "another continual.schedule than infinite",
          infinite && config->schedule.decay_steps > 0 },
        { "continual.rewarm_fraction", "continual.schedule rewarm or infinite",
          !hs_is(over_tasks, "rewarm") && !infinite && config->continual.rewarm_fraction != 0.01 },
        { "early_stop.min_delta", "early_stop.patience above 0",
          config->early_stop.patience == 0 && config->early_stop.min_delta > 0 },
    };
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (rules[i].unread)
            hs_warn("%s has no effect: it needs %s", rules[i].key, rules[i].needs);
}

/* What happens every N steps, and never does where N is more than the run has. */
static void warn_never(const HsTraining *training)
{
    const HsConfig *config = training->config;
    const int64_t steps = training->lengths.total_steps;
    const HsTraceSteps trace = hs_config_trace_steps(config);
    const struct {
        const char *key, *instead;
        int64_t every;
    } rules[] = {
        { "checkpoint_freq", "saved at its end only", config->training.checkpoint_freq },
        { "evaluation.every", "evaluated at its end only", config->evaluation.every },
        { "evaluation.all_tasks_every", "all tasks are evaluated at boundaries only",
          config->evaluation.all_tasks_every },
        { "continual.consolidate_every", "nothing is consolidated, and nothing protects what was learned",
          training->lengths.unmarked ? config->continual.consolidate_every : 0 },
        { "logging.trace", "nothing is traced", trace.first },
    };
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (rules[i].every > steps && hs_config_is_set(config, rules[i].key))
            hs_warn("%s is %lld and the run has %lld steps: %s", rules[i].key, (long long)rules[i].every,
                    (long long)steps, rules[i].instead);
    const int64_t patience = config->early_stop.patience, every = config->evaluation.every;
    if (patience > 0 && every > 0 && patience > steps / every)
        hs_warn(
            "early_stop.patience is %lld evaluations, one in %lld steps, and the run has %lld steps: it never stops "
            "early",
            (long long)patience, (long long)every, (long long)steps);
}

/* Only later tasks make a model forget. */
static void warn_retained(const HsTraining *training)
{
    const HsConfig *config = training->config;
    const int last = config->task_count - 1;
    if (!config->tasks[last].retain)
        hs_warn("tasks.%d.retain is false, and no task comes behind %s, which stays as it was learned: append one",
                last, config->tasks[last].name);
}

/* What Gemma's published weights make of their residual stream and branches is beyond 65504, the largest number of fp16. */
void hs_training_warn_range(const HsTraining *training)
{
    const HsConfig *config = training->config;
    if (hs_is(training->precision.name, "fp16") && config->model.norm_offset && config->training.init_from[0])
        hs_warn("precision.mode is fp16, and activations of Gemma's published weights are beyond its largest number, "
                "65504: steps are skipped or evaluations infinite; set precision.mode: bf16 or fp32");
}

void hs_training_warn_settings(const HsTraining *training)
{
    if (training->engine.comm->rank != 0)
        return;
    warn_schedule(training);
    warn_unread(training);
    warn_never(training);
    warn_retained(training);
}
