/* SPDX-License-Identifier: MIT
 *
 * Meta-experience replay (Riemer et al. 2019): sequential steps on new and replayed sequences, then a step back
 * towards where they began, which approximates aligning the gradients of both.
 *
 *     algorithm 1   A0 = theta; s times { W0 = theta; K steps; theta = W0 + beta (theta - W0) }
 *                   theta = A0 + gamma (theta - A0)
 *     algorithm 6   A0 = theta; K steps; theta = A0 + gamma (theta - A0);     7: the same, with the rates of replay.h
 *     reptile       A0 = theta; `interval` steps; theta = A0 + epsilon (theta - A0)    (Nichol et al. 2018)
 *
 * With one group W0 and A0 are the same values, hence the same memory, and the two interpolations are one:
 *     A0 + gamma (A0 + beta (theta - A0) - A0) = A0 + beta gamma (theta - A0).
 * A rate of exactly 1 changes nothing and costs no pass; the snapshot it would use is then never read.
 *
 * Snapshots are f32 and of the fp32 parameter (master, or the weight that stands for it).  State between two steps:
 *     steps_in_interval   steps since A0; 0: nothing is open
 *     group_open          a step was made since W0
 * A skipped step (fp16 overflow) is a step of its group: the boundaries follow the data, not what became of it.
 */
#include <assert.h>
#include <math.h>

#include "optim/continual_internal.h"

/* Stochastic rounding's draws: sites from here on, apart from the optimizer's, which are the span indices. */
enum { MER_SITE = 0x4d455200 };

/* The most that mer.compensate_learning_rate multiplies the rate by.
 *
 * A window of rate lr moves theta by about d K lr u, u the mean update direction and d the displacement factor, so
 * rate lr / d undoes the interpolation to first order.  But the K inner steps themselves then go K lr / d away from the
 * snapshot, and all but the first of their gradients are taken there.  Two things bound how far that may be:
 *   - a quadratic of curvature h is stable under gradient descent for lr h < 2, and rates in use stand within about
 *     one order of magnitude of it;
 *   - AdamW moves every weight by up to its rate in each step, however small the gradient: lr = 1e-3 and d = 0.01 would
 *     move every weight by 0.1 a step, five times the spread (0.02) that weights begin with.
 * Measured (configs/cl-benchmark.yaml's tasks, 4 layers of width 64, fp32, one seed; beta = gamma = 0.1, so d = 0.01;
 * mean loss on each task right after training on it): rate x 1 3.42, x 10 2.93, x 30 2.85, x 100 2.98; with beta 0.1
 * and gamma 1 x 10 gives 2.22, and d = 0.3 without compensation 2.42. So one order of magnitude is given back at most.
 * Where 1/d is larger the run still learns less in a window than plain training does, which is what small interpolation
 * rates ask for. */
static const double COMPENSATION_LIMIT = 10.0;

/* Interpolation rates where a group, and where a window closes; 1: nothing is done there. */
typedef struct MerRates {
    double group, window;
} MerRates;

static bool has_two_snapshots(const HsContinualConfig *config)
{
    return config->mer.mode == HS_MER_ALGORITHM1 && config->mer.groups > 1;
}

/* With one snapshot everything happens where the window closes. */
static MerRates rates_of(const HsContinualConfig *config)
{
    const double beta = config->mer.beta, gamma = config->mer.gamma;
    if (has_two_snapshots(config))
        return (MerRates){ .group = beta, .window = gamma };
    const double window[] = {
        [HS_MER_ALGORITHM1] = beta * gamma,
        [HS_MER_ALGORITHM6] = gamma,
        [HS_MER_ALGORITHM7] = gamma,
        [HS_MER_REPTILE] = config->mer.epsilon,
    };
    return (MerRates){ .group = 1.0, .window = window[config->mer.mode] };
}

double hs_mer_displacement(const HsContinualConfig *config)
{
    if (!hs_continual_has(config, "mer"))
        return 1.0;
    const MerRates rates = rates_of(config);
    /* Groups of a window follow each other from where the last one ended: their displacements add up. */
    return rates.group * rates.window * (has_two_snapshots(config) ? (double)config->mer.groups : 1.0);
}

double hs_mer_rate_scale(const HsContinualConfig *config)
{
    if (!hs_continual_has(config, "mer") || !config->mer.compensate)
        return 1.0;
    /* Many groups may displace more than plain steps do; the rate is raised, never lowered.  d = 0 asks for infinity.
     */
    return fmax(1.0, fmin(1.0 / hs_mer_displacement(config), COMPENSATION_LIMIT));
}

int hs_mer_tensors(const HsContinualConfig *config)
{
    return has_two_snapshots(config) ? 2 : 1;
}

HsStatus hs_mer_create(HsContinual *continual)
{
    HS_TRY(hs_family_create(continual, HS_MEMORY_SNAPSHOTS, "mer.group_start", &continual->group_start));
    if (has_two_snapshots(&continual->config))
        HS_TRY(hs_family_create(continual, HS_MEMORY_SNAPSHOTS, "mer.window_start", &continual->window_start));
    return HS_OK;
}

/* A0; with one group it lives where W0 does. */
static HsFamily *window_snapshot(HsContinual *continual)
{
    return has_two_snapshots(&continual->config) ? &continual->window_start : &continual->group_start;
}

HsStatus hs_mer_begin_task(HsContinual *continual, HsContext *context, int task)
{
    (void)task;
    continual->steps_in_interval = 0;
    continual->group_open = 0;
    HS_TRY(hs_family_copy_parameters(continual, context, &continual->group_start));
    if (has_two_snapshots(&continual->config))
        HS_TRY(hs_family_copy_parameters(continual, context, &continual->window_start));
    return HS_OK;
}

/* What is done where a group or a window ends: steps back, in this order, then the snapshots that become theta. */
typedef struct Closing {
    HsFamily *from[HS_MOST_STEPS_BACK], *taken[HS_MOST_STEPS_BACK];
    double rates[HS_MOST_STEPS_BACK];
    int back_count, taken_count;
} Closing;

static void step_back(Closing *closing, HsFamily *from, double rate)
{
    if (rate == 1.0)
        return;
    closing->from[closing->back_count] = from;
    closing->rates[closing->back_count++] = rate;
}

/* The next group or window begins here.  A rate of 1 leaves its snapshot unread, so it is left as it is. */
static void take(Closing *closing, HsFamily *snapshot, double rate)
{
    if (rate != 1.0)
        closing->taken[closing->taken_count++] = snapshot;
}

static Closing close_group(HsContinual *continual)
{
    const double rate = rates_of(&continual->config).group;
    Closing closing = { 0 };
    step_back(&closing, &continual->group_start, rate);
    take(&closing, &continual->group_start, rate);
    return closing;
}

static Closing close_window(HsContinual *continual, bool group_open)
{
    const MerRates rates = rates_of(&continual->config);
    HsFamily *snapshot = window_snapshot(continual);
    Closing closing = { 0 };
    if (group_open)
        step_back(&closing, &continual->group_start, rates.group);
    step_back(&closing, snapshot, rates.window);
    take(&closing, snapshot, rates.window);
    if (has_two_snapshots(&continual->config)) /* the outer interpolation moved W0's place as well */
        take(&closing, &continual->group_start, rates.group);
    return closing;
}

/* Whether a step that is not counted yet ends the window.  Reptile's interval is counted here: its replay plan has
 * windows of one step. */
static bool ends_window(const HsContinual *continual, const HsReplayStep *step)
{
    return continual->config.mer.mode == HS_MER_REPTILE
               ? continual->steps_in_interval + 1 == continual->config.mer.interval
               : step->closes_window;
}

static bool ends_group(const HsContinual *continual, const HsReplayStep *step)
{
    return has_two_snapshots(&continual->config) && step->closes_group;
}

static Closing closing_of(HsContinual *continual, const HsReplayStep *step)
{
    if (ends_window(continual, step))
        return close_window(continual, true);
    return ends_group(continual, step) ? close_group(continual) : (Closing){ 0 };
}

/* Of step back `index` of a closing, on span `span`. */
static HsRng draws_of(const HsContinual *continual, int index, int span)
{
    return (HsRng){ .seed = continual->config.seed,
                    .step = (uint32_t)(continual->interpolations + index),
                    .site = (uint32_t)(MER_SITE + span) };
}

static HsStatus apply(HsContinual *continual, HsContext *context, const Closing *closing)
{
    for (int k = 0; k < closing->back_count; k++)
        for (int i = 0; i < continual->span_count; i++) {
            const HsSpan *span = &continual->spans[i];
            const HsInterpolateArgs args = {
                .anchor = closing->from[k]->tensors[i],
                .master = span->master,
                .weight = span->weight,
                .rate = (float)closing->rates[k],
                .rng = draws_of(continual, k, i),
            };
            HsStatus status = hs_op_interpolate(context, &args);
            if (status != HS_OK)
                return hs_error_prefix(status, "mer, tensor %s", span->name);
        }
    for (int k = 0; k < closing->taken_count; k++)
        HS_TRY(hs_family_copy_parameters(continual, context, closing->taken[k]));
    return HS_OK;
}

void hs_mer_fold(HsContinual *continual, const HsReplayStep *step)
{
    const Closing closing = closing_of(continual, step);
    for (int i = 0; i < continual->span_count; i++) {
        HsUpdateTail *tail = &continual->spans[i].tail;
        tail->back_count = closing.back_count;
        for (int k = 0; k < closing.back_count; k++)
            tail->back[k] = (HsStepBack){ .anchor = closing.from[k]->tensors[i],
                                          .rate = (float)closing.rates[k],
                                          .rng = draws_of(continual, k, i) };
        tail->snapshot_count = closing.taken_count;
        for (int k = 0; k < closing.taken_count; k++)
            tail->snapshots[k] = closing.taken[k]->tensors[i];
    }
}

HsStatus hs_mer_after_step(HsContinual *continual, HsContext *context, const HsReplayStep *step)
{
    const Closing closing = closing_of(continual, step);
    const bool window_ends = ends_window(continual, step);
    if (!continual->folded)
        HS_TRY(apply(continual, context, &closing));
    continual->interpolations += closing.back_count;
    continual->steps_in_interval = window_ends ? 0 : continual->steps_in_interval + 1;
    continual->group_open = !window_ends && !ends_group(continual, step);
    return HS_OK;
}

HsStatus hs_mer_after_task(HsContinual *continual, HsContext *context, int task, HsFisherSource *source)
{
    (void)task, (void)source;
    /* A task may end anywhere: what is open is closed as if it had ended there. */
    if (continual->steps_in_interval == 0)
        return HS_OK;
    const Closing closing = close_window(continual, continual->group_open != 0);
    HS_TRY(apply(continual, context, &closing));
    continual->interpolations += closing.back_count;
    continual->steps_in_interval = 0;
    continual->group_open = 0;
    return HS_OK;
}

HsStatus hs_mer_visit(HsContinual *continual, const HsStateVisitor *visitor)
{
    const HsContinualConfig *config = &continual->config;
    const int64_t window_steps =
        config->mer.mode == HS_MER_REPTILE ? config->mer.interval : config->mer.groups * config->mer.group_steps;
    HS_TRY(visitor->integer(visitor->user, "mer.steps_in_interval", &continual->steps_in_interval, window_steps - 1));
    HS_TRY(visitor->integer(visitor->user, "mer.group_open", &continual->group_open, 1));
    HS_TRY(visitor->integer(visitor->user, "mer.interpolations", &continual->interpolations, HS_COUNT_MOST));
    HS_TRY(hs_family_visit(continual, &continual->group_start, "mer.group_start", visitor));
    if (has_two_snapshots(&continual->config))
        HS_TRY(hs_family_visit(continual, &continual->window_start, "mer.window_start", visitor));
    return HS_OK;
}
