/* SPDX-License-Identifier: MIT
 *
 * A quadratic penalty with every parameter alike, the control of Kirkpatrick et al. 2017: no importance, one anchor.
 *
 * An automatic strength takes every parameter for an average one: it is in units of the mean over parameters of the
 * Fisher information, added up over the tasks so far.  That mean is the gradients' sum of squares, for which no tensor
 * is needed.
 */
#include <math.h>

#include "optim/continual/internal.h"

typedef struct L2State {
    HsPenalty penalty; /* first: the penalties' functions take it for the whole */
    double fisher;     /* automatic: over the tasks so far, the sum of the Fisher information's mean over parameters */
} L2State;

/* Of an automatic strength, in that unit. */
static const double L2_NATURAL = 0.48;

static bool l2_needs_fisher(const HsContinualConfig *config)
{
    return isnan(hs_continual_number(config, "l2", "lambda"));
}

static int l2_tensors(const HsContinualConfig *config)
{
    (void)config;
    return 1;
}

static HsStatus l2_create(HsContinual *continual, void *state)
{
    static const HsPenaltyNames names = { .strategy = "l2", .anchor = "l2.anchor" };
    const double lambda = hs_continual_number(&continual->config, "l2", "lambda");
    return hs_penalty_create(continual, state, &names, (HsProtection){ .strength = (float)lambda });
}

static HsStatus l2_dry_run(HsContinual *continual, void *state, HsContext *dry)
{
    const HsPenalty *penalty = state;
    if (penalty->automatic)
        HS_TRY(hs_continual_dry_statistics(continual, dry));
    return hs_penalty_dry_run(continual, state, dry);
}

static HsStatus l2_visit(HsContinual *continual, void *state, const HsStateVisitor *visitor)
{
    L2State *l2 = state;
    if (l2->penalty.automatic)
        HS_TRY(visitor->real(visitor->user, "l2.fisher", &l2->fisher));
    return hs_penalty_visit(continual, state, visitor);
}

/* Over the spans that are protected; waits for the device. */
static HsStatus add_squares(HsContinual *continual, HsContext *context, const HsFisherSample *sample, double *sum)
{
    HsDevice *device = continual->device;
    const HsSpan *all = continual->share.all; /* gradients of samples are of all spans */
    const size_t spans = (size_t)continual->share.all_count;
    for (size_t i = 0; i < spans; i++)
        continual->arguments[i] = all[i].gradient;
    const HsGradStatsArgs args = { .tensors = continual->arguments,
                                   .count = continual->share.all_count,
                                   .sum_squares = continual->device_values,
                                   .nonfinite = (int64_t *)(void *)(continual->device_values + spans) };
    HS_TRY(hs_op_grad_stats(context, &args));
    double *host = continual->host_values;
    HS_TRY(device->copy(device, context->stream, host, continual->device_values, spans * sizeof *host));
    HS_TRY(device->stream_sync(device, context->stream));
    const double multiplier = (double)sample->multiplier;
    for (size_t i = 0; i < spans; i++) {
        const HsTensor *gradient = &all[i].gradient;
        if (!all[i].excluded)
            *sum += (double)sample->weight * multiplier * multiplier * host[i];
        HS_TRY(device->fill_zero(device, context->stream, gradient->data, hs_tensor_bytes(gradient)));
    }
    return HS_OK;
}

/* The mean over parameters of the diagonal Fisher information of one task. */
static HsStatus mean_fisher(HsContinual *continual, HsContext *context, int task, HsFisherSource *source, double *mean)
{
    double sum = 0, count = 0, elements = 0;
    for (;;) {
        HsFisherSample sample = { 0 };
        HS_TRY(source->next(source->user, &sample));
        if (sample.end)
            break;
        if (sample.part) {
            double numbers[] = { sum, count };
            HS_TRY(source->sum_part(source->user, numbers, 2));
            sum = numbers[0];
            count = numbers[1];
            continue;
        }
        HS_TRY(add_squares(continual, context, &sample, &sum));
        count += sample.count;
    }
    for (int i = 0; i < continual->share.all_count; i++)
        elements += continual->share.all[i].excluded ? 0.0 : (double)continual->share.all[i].count;
    *mean = sum / (count * elements);
    if (isfinite(*mean) && *mean > 0)
        return HS_OK;
    return hs_fail(HS_ENUMERIC,
                   "l2: after task %d (the first is 0) the Fisher information, from which l2.lambda: auto is found, is "
                   "%g: set l2.lambda to a number",
                   task, *mean);
}

static HsStatus l2_after_task(HsContinual *continual, void *state, HsContext *context, int task, HsFisherSource *source)
{
    L2State *l2 = state;
    HsPenalty *penalty = &l2->penalty;
    if (penalty->automatic) {
        double mean = 0;
        HS_TRY(mean_fisher(continual, context, task, source, &mean));
        l2->fisher += mean;
        hs_penalty_choose(continual, penalty, L2_NATURAL, 1.0 / l2->fisher);
    }
    HS_TRY(hs_tensor_set_copy_parameters(continual, context, &penalty->anchor));
    return hs_penalty_anchored(continual, penalty, context, task);
}

const HsStrategy hs_strategy_l2 = {
    .name = "l2",
    .doc = "a quadratic penalty towards the latest task's end, every parameter alike (the control of Kirkpatrick et "
           "al. 2017)",
    .role = HS_ROLE_PENALIZES,
    .section = "l2",
    .needs_fisher = l2_needs_fisher,
    .strength_key = "l2.lambda",
    .tensors_per_parameter = l2_tensors,
    .state_bytes = sizeof(L2State),
    .create = l2_create,
    .destroy = hs_penalty_destroy,
    .dry_run = l2_dry_run,
    .after_task = l2_after_task,
    .visit = l2_visit,
    .anchored = hs_penalty_acts,
    .is_automatic = hs_penalty_is_automatic,
    .meet_task = hs_penalty_meet_task,
    .penalty = hs_penalty_value,
    .importance = hs_penalty_importance,
};
