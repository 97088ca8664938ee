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
#include <stdio.h>

#include "kernels/base/log.h"
#include "optim/continual/internal.h"

/* Stochastic rounding's draws: sites from here on, apart from the optimizer's, which are the parameters' indices. */
enum { MER_SITE = 0x4d455200 };

/* What makes up for interpolation rates that shrink displacements (mer.compensate_learning_rate).
 *
 * A window of rate lr moves theta by about d K lr u, u the mean update direction and d the displacement factor, so
 * rate lr / d undoes the interpolation to first order.  But the K inner steps themselves then go K lr / d away from the
 * snapshot, and all but the first of their gradients are taken there.  Two things bound how far that may be:
 *   - a quadratic of curvature h is stable under gradient descent for lr h < 2, and rates in use stand within about
 *     one order of magnitude of it;
 *   - AdamW moves every weight by up to its rate in each step, however small the gradient: lr = 1e-3 and d = 0.01 would
 *     move every weight by 0.1 a step, five times the spread (0.02) that weights begin with.  Muon's steps have
 *     their own size too.
 * So where even the largest stable rate, times d, is less than the rate that trains best, no learning rate makes up for
 * d.  Rates that train about equally well span a factor of 3 below the stable ones (on real text 2e-3 and 6e-3 end 0.05
 * nats apart): LEAST_DISPLACEMENT.  Smaller factors are raised to it.  What the learning rate was meant for is then
 * unknown, somewhere between lr (it was found with this d) and lr / d (it was found without): a trial decides
 * (runtime/train/trial.c).
 * Above PLAIN_DISPLACEMENT a window learns as plain steps do: on real text 0.7 ends 0.01 nats from plain replay.
 * `true` is what there was before auto: lr / d, at most COMPENSATION_LIMIT times lr, and d as it is. */
static const double PLAIN_DISPLACEMENT = 0.7, LEAST_DISPLACEMENT = 0.3, COMPENSATION_LIMIT = 10.0;

typedef enum MerMode { MER_ALGORITHM1, MER_ALGORITHM6, MER_ALGORITHM7, MER_REPTILE, MER_MODES } MerMode;

static const char *const mode_words[MER_MODES] = {
    [MER_ALGORITHM1] = "algorithm1",
    [MER_ALGORITHM6] = "algorithm6",
    [MER_ALGORITHM7] = "algorithm7",
    [MER_REPTILE] = "reptile",
};

typedef struct MerSettings {
    MerMode mode;
    double beta, gamma, epsilon;
    int64_t groups, group_steps, interval;
    double asked; /* the displacement factor of the settings as they were made; that of these may be raised */
    HsRateScale scale;
} MerSettings;

typedef struct MerState {
    MerSettings settings;
    HsTensorSet group_start, window_start; /* window_start only with several groups */
    int64_t steps_in_interval;             /* since the window (reptile: the interval) began */
    int64_t group_open;                    /* 1: a step was made since the group began */
    int64_t interpolations;                /* counts them: the draws of stochastic rounding */
} MerState;

/* A group of one step would only make every step shorter. */
enum { GROUP_STEPS = 4 };

static int64_t own_group_steps(const HsContinualConfig *config)
{
    const bool alone = config->accumulation == 1 && hs_continual_word_is(config, "mer", "mode", "algorithm1");
    return alone ? GROUP_STEPS : config->accumulation;
}

/* A setting, or what auto stands for. */
static double number_or(const HsContinualConfig *config, const char *name, double automatic)
{
    const double number = hs_continual_number(config, "mer", name);
    return isnan(number) ? automatic : number;
}

static MerSettings settings_as_made(const HsContinualConfig *config)
{
    const int64_t group_steps = (int64_t)hs_continual_number(config, "mer", "group_steps");
    MerSettings settings = {
        .beta = number_or(config, "beta", 1.0),
        .epsilon = hs_continual_number(config, "mer", "epsilon"),
        .groups = (int64_t)hs_continual_number(config, "mer", "groups"),
        .group_steps = group_steps > 0 ? group_steps : own_group_steps(config),
        .interval = (int64_t)hs_continual_number(config, "mer", "interval"),
        .scale = { 1.0, 1.0 },
    };
    for (MerMode mode = MER_ALGORITHM1; mode < MER_MODES; mode++)
        if (hs_continual_word_is(config, "mer", "mode", mode_words[mode]))
            settings.mode = mode;
    const double inner = settings.mode == MER_ALGORITHM1 ? settings.beta : 1.0; /* the others have no beta */
    settings.gamma = number_or(config, "gamma", inner > PLAIN_DISPLACEMENT ? PLAIN_DISPLACEMENT / inner : 1.0);
    return settings;
}

/* Interpolation rates where a group, and where a window closes; 1: nothing is done there. */
typedef struct MerRates {
    double group, window;
} MerRates;

static bool has_two_snapshots(const MerSettings *settings)
{
    return settings->mode == MER_ALGORITHM1 && settings->groups > 1;
}

/* With one snapshot everything happens where the window closes. */
static MerRates rates_of(const MerSettings *settings)
{
    const double beta = settings->beta, gamma = settings->gamma;
    if (has_two_snapshots(settings))
        return (MerRates){ .group = beta, .window = gamma };
    const double window[MER_MODES] = {
        [MER_ALGORITHM1] = beta * gamma,
        [MER_ALGORITHM6] = gamma,
        [MER_ALGORITHM7] = gamma,
        [MER_REPTILE] = settings->epsilon,
    };
    return (MerRates){ .group = 1.0, .window = window[settings->mode] };
}

/* What a window's displacement is multiplied by: s beta gamma, gamma (6, 7), epsilon (reptile). */
static double displacement_of(const MerSettings *settings)
{
    const MerRates rates = rates_of(settings);
    /* Groups of a window follow each other from where the last one ended: their displacements add up. */
    return rates.group * rates.window * (has_two_snapshots(settings) ? (double)settings->groups : 1.0);
}

/* Rates with which the factor is LEAST_DISPLACEMENT: the outer one is raised first. */
static void raise_displacement(MerSettings *settings)
{
    const double missing = LEAST_DISPLACEMENT / displacement_of(settings);
    if (settings->mode == MER_REPTILE) {
        settings->epsilon = LEAST_DISPLACEMENT;
        return;
    }
    const double gamma = fmin(settings->gamma * missing, 1.0);
    if (settings->mode == MER_ALGORITHM1)
        settings->beta = fmin(settings->beta * missing * settings->gamma / gamma, 1.0);
    settings->gamma = gamma;
}

/* A factor of 0 was not meant to learn, and stays. */
static MerSettings settings_of(const HsContinualConfig *config)
{
    MerSettings settings = settings_as_made(config);
    const double asked = settings.asked = displacement_of(&settings);
    const bool automatic = hs_continual_word_is(config, "mer", "compensate_learning_rate", "auto");
    /* Many groups may displace more than plain steps do; the rate is raised, never lowered.  d = 0 asks for infinity.
     */
    if (hs_continual_word_is(config, "mer", "compensate_learning_rate", "true"))
        settings.scale.least = settings.scale.most = fmax(1.0, fmin(1.0 / asked, COMPENSATION_LIMIT));
    if (!automatic || asked >= PLAIN_DISPLACEMENT || asked == 0)
        return settings;
    if (asked >= LEAST_DISPLACEMENT) {
        /* Reptile's windows are long, and what it moves within one is not lr times their length. */
        if (settings.mode != MER_REPTILE)
            settings.scale.least = settings.scale.most = 1.0 / asked;
        return settings;
    }
    raise_displacement(&settings);
    settings.scale.most = 1.0 / asked;
    return settings;
}

static HsRateScale mer_rate_scale(const HsContinualConfig *config)
{
    return settings_of(config).scale;
}

static void mer_plan_replay(const HsContinualConfig *config, HsReplayPlan *plan)
{
    const MerSettings settings = settings_of(config);
    plan->fraction = hs_continual_number(config, "replay", "fraction");
    /* Reptile's interval is counted by after_step: its windows are single steps, like those of er. */
    if (settings.mode == MER_REPTILE)
        return;
    assert(settings.group_steps >= 1 && settings.groups >= 1);
    plan->group_steps = settings.group_steps;
    if (settings.mode == MER_ALGORITHM1)
        plan->groups = settings.groups;
    else
        plan->replay_first = true;
    if (settings.mode == MER_ALGORITHM7)
        plan->current_rate_scale = (double)settings.groups;
}

/* Without group_steps the batches of an accumulation are taken one after another. */
static bool mer_splits_accumulation(const HsContinualConfig *config)
{
    return hs_continual_number(config, "mer", "group_steps") == 0 && settings_of(config).mode != MER_REPTILE;
}

/* What a factor below LEAST_DISPLACEMENT means where nothing makes up for it, and the line that does. */
static void warn_of_factor(const MerSettings *settings)
{
    hs_warn(
        "mer: each %s moves the model by %.3g of what its steps do, so it learns as with a learning rate %.3g times as "
        "large, too small to learn much: set mer.compensate_learning_rate: auto, or %s",
        settings->mode == MER_REPTILE ? "interval" : "window", settings->asked, settings->asked,
        settings->mode == MER_REPTILE      ? "mer.epsilon: 0.3"
        : settings->mode == MER_ALGORITHM1 ? "mer.beta: auto and mer.gamma: auto"
                                           : "mer.gamma: auto");
}

/* What a step is, what a window is, and what became of the rates that were asked for. */
static void mer_describe(const HsContinualConfig *config)
{
    const MerSettings settings = settings_of(config);
    const double displacement = displacement_of(&settings);
    if (settings.mode == MER_REPTILE)
        hs_info("mer: reptile, epsilon %g every %lld steps", settings.epsilon, (long long)settings.interval);
    else
        hs_info("mer: groups of %lld optimizer steps%s, displacement factor %g", (long long)settings.group_steps,
                mer_splits_accumulation(config) && config->accumulation > 1
                    ? " on one batch each (mer.group_steps 0: accumulated batches are steps, and not one large batch)"
                    : "",
                displacement);
    if (displacement > settings.asked)
        hs_info("mer: a factor of %.3g learns with no learning rate; compensated (mer.compensate_learning_rate: auto): "
                "the factor is %g, and a trial finds the rate, from once to %.3g times the one that is set",
                settings.asked, displacement, settings.scale.most);
    else if (settings.scale.least != 1)
        hs_info("mer: the learning rate is %.3g times as large, to make up for the displacement factor "
                "(mer.compensate_learning_rate)",
                settings.scale.least);
    else if (displacement < LEAST_DISPLACEMENT)
        warn_of_factor(&settings);
}

static int mer_tensors(const HsContinualConfig *config)
{
    const MerSettings settings = settings_of(config);
    return has_two_snapshots(&settings) ? 2 : 1;
}

static HsStatus mer_create(HsContinual *continual, void *state)
{
    MerState *mer = state;
    mer->settings = settings_of(&continual->config);
    HS_TRY(hs_tensor_set_create(continual, HS_MEMORY_SNAPSHOTS, "mer.group_start", &mer->group_start));
    if (has_two_snapshots(&mer->settings))
        HS_TRY(hs_tensor_set_create(continual, HS_MEMORY_SNAPSHOTS, "mer.window_start", &mer->window_start));
    return HS_OK;
}

static void mer_destroy(HsContinual *continual, void *state)
{
    MerState *mer = state;
    hs_tensor_set_destroy(continual, &mer->group_start);
    hs_tensor_set_destroy(continual, &mer->window_start);
}

static HsStatus mer_dry_run(HsContinual *continual, void *state, HsContext *dry)
{
    (void)state;
    return hs_tensor_set_dry_interpolate(continual, dry);
}

/* A0; with one group it is stored where W0 is. */
static HsTensorSet *window_snapshot(MerState *mer)
{
    return has_two_snapshots(&mer->settings) ? &mer->window_start : &mer->group_start;
}

static HsStatus mer_begin_task(HsContinual *continual, void *state, HsContext *context, int task)
{
    MerState *mer = state;
    (void)task;
    mer->steps_in_interval = 0;
    mer->group_open = 0;
    HS_TRY(hs_tensor_set_copy_parameters(continual, context, &mer->group_start));
    if (has_two_snapshots(&mer->settings))
        HS_TRY(hs_tensor_set_copy_parameters(continual, context, &mer->window_start));
    return HS_OK;
}

/* What is done where a group or a window ends: steps back, in this order, then the snapshots that become theta. */
typedef struct Closing {
    HsTensorSet *from[HS_MOST_STEPS_BACK], *taken[HS_MOST_STEPS_BACK];
    double rates[HS_MOST_STEPS_BACK];
    int back_count, taken_count;
} Closing;

static void step_back(Closing *closing, HsTensorSet *from, double rate)
{
    if (rate == 1.0)
        return;
    closing->from[closing->back_count] = from;
    closing->rates[closing->back_count++] = rate;
}

/* The next group or window begins here.  A rate of 1 leaves its snapshot unread, so it is left as it is. */
static void take(Closing *closing, HsTensorSet *snapshot, double rate)
{
    if (rate != 1.0)
        closing->taken[closing->taken_count++] = snapshot;
}

static Closing close_group(MerState *mer)
{
    const double rate = rates_of(&mer->settings).group;
    Closing closing = { 0 };
    step_back(&closing, &mer->group_start, rate);
    take(&closing, &mer->group_start, rate);
    return closing;
}

static Closing close_window(MerState *mer, bool group_open)
{
    const MerRates rates = rates_of(&mer->settings);
    HsTensorSet *snapshot = window_snapshot(mer);
    Closing closing = { 0 };
    if (group_open)
        step_back(&closing, &mer->group_start, rates.group);
    step_back(&closing, snapshot, rates.window);
    take(&closing, snapshot, rates.window);
    if (has_two_snapshots(&mer->settings)) /* the outer interpolation moved W0's place as well */
        take(&closing, &mer->group_start, rates.group);
    return closing;
}

/* Whether a step that is not counted yet ends the window.  Reptile's interval is counted here: its replay plan has
 * windows of one step. */
static bool ends_window(const MerState *mer, const HsReplayStep *step)
{
    return mer->settings.mode == MER_REPTILE ? mer->steps_in_interval + 1 == mer->settings.interval
                                             : step->closes_window;
}

static bool ends_group(const MerState *mer, const HsReplayStep *step)
{
    return has_two_snapshots(&mer->settings) && step->closes_group;
}

static Closing closing_of(MerState *mer, const HsReplayStep *step)
{
    if (ends_window(mer, step))
        return close_window(mer, true);
    return ends_group(mer, step) ? close_group(mer) : (Closing){ 0 };
}

/* Of step back `index` of a closing, on span `span`. */
static HsRng draws_of(const HsContinual *continual, const MerState *mer, int index, int span)
{
    return hs_span_draws(continual, span, MER_SITE, (uint32_t)(mer->interpolations + index));
}

static HsStatus apply(HsContinual *continual, const MerState *mer, HsContext *context, const Closing *closing)
{
    for (int k = 0; k < closing->back_count; k++)
        for (int i = 0; i < continual->span_count; i++) {
            HsStatus status = hs_tensor_set_interpolate(continual, context, closing->from[k], i, closing->rates[k],
                                                        draws_of(continual, mer, k, i));
            if (status != HS_OK)
                return hs_error_prefix(status, "mer, tensor %s", continual->spans[i].name);
        }
    for (int k = 0; k < closing->taken_count; k++)
        HS_TRY(hs_tensor_set_copy_parameters(continual, context, closing->taken[k]));
    return HS_OK;
}

static void mer_fold(HsContinual *continual, void *state, const HsReplayStep *step)
{
    MerState *mer = state;
    const Closing closing = closing_of(mer, step);
    for (int i = 0; i < continual->span_count; i++) {
        HsUpdateEpilogue *epilogue = &continual->spans[i].epilogue;
        epilogue->back_count = closing.back_count;
        for (int k = 0; k < closing.back_count; k++)
            epilogue->back[k] = (HsStepBack){ .anchor = closing.from[k]->tensors[i],
                                              .rate = (float)closing.rates[k],
                                              .rng = draws_of(continual, mer, k, i) };
        epilogue->snapshot_count = closing.taken_count;
        for (int k = 0; k < closing.taken_count; k++)
            epilogue->snapshots[k] = closing.taken[k]->tensors[i];
    }
}

static HsStatus mer_after_step(HsContinual *continual, void *state, HsContext *context, const HsReplayStep *step,
                               bool folded)
{
    MerState *mer = state;
    const Closing closing = closing_of(mer, step);
    const bool window_ends = ends_window(mer, step);
    if (!folded)
        HS_TRY(apply(continual, mer, context, &closing));
    mer->interpolations += closing.back_count;
    mer->steps_in_interval = window_ends ? 0 : mer->steps_in_interval + 1;
    mer->group_open = !window_ends && !ends_group(mer, step);
    return HS_OK;
}

static HsStatus mer_after_task(HsContinual *continual, void *state, HsContext *context, int task,
                               HsFisherSource *source)
{
    MerState *mer = state;
    (void)task, (void)source;
    /* A task may end anywhere: what is open is closed as if it had ended there. */
    if (mer->steps_in_interval == 0)
        return HS_OK;
    const Closing closing = close_window(mer, mer->group_open != 0);
    HS_TRY(apply(continual, mer, context, &closing));
    mer->interpolations += closing.back_count;
    mer->steps_in_interval = 0;
    mer->group_open = 0;
    return HS_OK;
}

static HsStatus mer_visit(HsContinual *continual, void *state, const HsStateVisitor *visitor)
{
    MerState *mer = state;
    const MerSettings *settings = &mer->settings;
    const int64_t window_steps =
        settings->mode == MER_REPTILE ? settings->interval : settings->groups * settings->group_steps;
    HS_TRY(visitor->integer(visitor->user, "mer.steps_in_interval", &mer->steps_in_interval, window_steps - 1));
    HS_TRY(visitor->integer(visitor->user, "mer.group_open", &mer->group_open, 1));
    HS_TRY(visitor->integer(visitor->user, "mer.interpolations", &mer->interpolations, HS_COUNT_MOST));
    HS_TRY(hs_tensor_set_visit(continual, &mer->group_start, "mer.group_start", visitor));
    if (has_two_snapshots(&mer->settings))
        HS_TRY(hs_tensor_set_visit(continual, &mer->window_start, "mer.window_start", visitor));
    return HS_OK;
}

const HsStrategy hs_strategy_mer = {
    .name = "mer",
    .doc = "meta-experience replay: steps one after another on new and replayed sequences, then interpolation back "
           "to where they began (Riemer et al. 2019)",
    .role = HS_ROLE_REPLAYS,
    .section = "mer",
    .beside_step = "interpolations",
    .describe = mer_describe,
    .tensors_per_parameter = mer_tensors,
    .replay_choice = HS_REPLAY_OWN_FIRST, /* the paper's buffer has the current task's, too */
    .plan_replay = mer_plan_replay,
    .splits_accumulation = mer_splits_accumulation,
    .rate_scale = mer_rate_scale,
    .state_bytes = sizeof(MerState),
    .create = mer_create,
    .destroy = mer_destroy,
    .dry_run = mer_dry_run,
    .begin_task = mer_begin_task,
    .fold = mer_fold,
    .after_step = mer_after_step,
    .after_task = mer_after_task,
    .visit = mer_visit,
};
