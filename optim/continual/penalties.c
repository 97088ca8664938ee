/* SPDX-License-Identifier: MIT
 *
 * What l2, ewc and si share: the quadratic penalty
 *     (strength/2) sum over spans, elements  importance (p - anchor)^2        l2: importance 1
 * The update rules take its step (HsProtection in kernels/ops/ops.h).  Here its tensors are made and attached
 * to the spans, its value and the statistics of its importance are computed, and its state is saved.
 *
 * Invariant: a span's protection has an anchor exactly when `anchored` is 1 and the span is not excluded.  Before the
 * first anchor there is nothing to be pulled towards, and the update is the unprotected one, bit for bit.
 */
#include <assert.h>
#include <math.h>
#include <stdlib.h>

#include "kernels/base/log.h"
#include "optim/continual/internal.h"

/* With replay the share of an automatic strength that is left.  Replayed sequences have the earlier tasks' loss itself
 * in every batch; the quadratic, an approximation of it, mostly takes from what the new task can learn. */
static const double SHARE_BESIDE_REPLAY = 0.0415;
/* The quadratic is true near its anchor: the further a new task moves the parameters, the more the earlier tasks' true
 * losses grow beyond it.  More foreign tasks move them further, and so does a larger model, with steps as large in
 * each of more parameters.  The exponents are those that follow the best of grids of strengths (bench/strength.sh) on real
 * text and made languages; the strengths alone are right for typical tasks and a typical model. */
static const double TYPICAL_FOREIGNNESS = 3.0, TYPICAL_PARAMETERS = 0.2e6;
static const double PARAMETERS_LEAST = 0.1e6, PARAMETERS_MOST = 1e7;
/* Of one task, e^7: beyond that it is no more foreign than random tokens.  Of all: none of the grids asked for more. */
static const double TASK_FOREIGNNESS_MOST = 1100.0, FOREIGNNESS_MOST = 80.0;

/* How a strength grows with the tasks' foreignness and the parameters, as powers. */
typedef struct Growth {
    double foreignness, parameters;
} Growth;

static const Growth *growth_of(const HsPenalty *penalty)
{
    static const Growth diagonal = { 1.2, 0.9 }, kronecker = { 1.4, 0.8 };
    return penalty->kronecker ? &kronecker : &diagonal;
}

static double for_foreignness(const HsPenalty *penalty, double foreignness)
{
    return pow(fmin(foreignness, FOREIGNNESS_MOST) / TYPICAL_FOREIGNNESS, growth_of(penalty)->foreignness);
}

/* A span's tensor, absent where the family or the span's share of it is. */
static HsTensor tensor_of(const HsTensorSet *set, int span)
{
    return set->tensors ? set->tensors[span] : (HsTensor){ 0 };
}

static void protect(HsContinual *continual, const HsPenalty *penalty)
{
    for (int i = 0; i < continual->span_count; i++) {
        HsSpan *span = &continual->spans[i];
        span->protection = (HsProtection){ 0 };
        if (span->excluded)
            continue;
        const HsOptimizerKind kind = span->group ? span->group->kind : continual->config.optimizer;
        if (penalty->anchored) {
            span->protection = penalty->settings;
            span->protection.proximal |= penalty->proximal_descent && kind == HS_OPTIMIZER_SGD;
            span->protection.anchor = tensor_of(&penalty->anchor, i);
            span->protection.importance = tensor_of(&penalty->importance, i);
            if (penalty->kronecker && hs_kronecker_serves(span)) {
                span->protection.anchor = (HsTensor){ 0 };
                span->protection.pull = hs_kronecker_pull_of(penalty->kronecker, i);
            }
        }
        span->protection.path = tensor_of(&penalty->path, i); /* from the first step on */
    }
}

static bool is_diagonal(const HsSpan *span)
{
    return span->uses == 0;
}

HsStatus hs_penalty_create(HsContinual *continual, HsPenalty *penalty, const HsPenaltyNames *names,
                           HsProtection settings)
{
    penalty->names = names;
    penalty->settings = settings;
    penalty->automatic = isnan(settings.strength);
    penalty->foreignness = TYPICAL_FOREIGNNESS;
    if (penalty->automatic)
        penalty->settings.strength = 0; /* until the first anchor: nothing pulls */
    int protected_spans = 0;
    for (int i = 0; i < continual->share.all_count; i++) {
        const HsSpan *span = &continual->share.all[i];
        protected_spans += !span->excluded;
        penalty->parameters += span->excluded ? 0.0 : (double)span->count;
    }
    if (protected_spans == 0)
        return hs_fail(
            HS_ECONFIG,
            "continual.strategy: %s has nothing to protect, as ewc.exclude names every parameter: remove some of them",
            names->strategy);
    const struct {
        const char *name;
        HsTensorSet *set;
    } wanted[] = {
        { names->anchor, &penalty->anchor },
        { names->importance, &penalty->importance },
        { names->path, &penalty->path },
    };
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++)
        if (wanted[i].name)
            HS_TRY(hs_tensor_set_create_for(
                continual, HS_MEMORY_PENALTY, wanted[i].name,
                penalty->kronecker && wanted[i].set == &penalty->importance ? is_diagonal : NULL, wanted[i].set));
    if (names->importance) {
        penalty->stats.tensors = calloc((size_t)protected_spans, sizeof *penalty->stats.tensors);
        if (!penalty->stats.tensors)
            return hs_fail(HS_ENOMEM, "%s: no memory for the statistics of %d tensors", names->strategy,
                           protected_spans);
    }
    protect(continual, penalty);
    return HS_OK;
}

void hs_penalty_destroy(HsContinual *continual, void *state)
{
    HsPenalty *penalty = state;
    hs_tensor_set_destroy(continual, &penalty->importance);
    hs_tensor_set_destroy(continual, &penalty->anchor);
    hs_tensor_set_destroy(continual, &penalty->path);
    hs_kronecker_destroy(continual, penalty->kronecker);
    free(penalty->stats.tensors);
}

HsStatus hs_tensor_set_measure(HsContinual *continual, HsContext *context, const HsTensorSet *set,
                               HsTensorSetStats *stats)
{
    *stats = (HsTensorSetStats){ 0 };
    for (int i = 0; i < continual->span_count; i++)
        if (hs_tensor_present(&set->tensors[i]))
            continual->arguments[stats->tensors++] = set->tensors[i];
    for (int i = 0; i < continual->share.all_count; i++)
        stats->elements += hs_tensor_set_has(set, &continual->share.all[i]) ? continual->share.all[i].count : 0;
    const size_t tensors = (size_t)stats->tensors;
    double *values = continual->device_values;
    const HsImportanceStatsArgs args = { .tensors = continual->arguments,
                                         .count = stats->tensors,
                                         .maximum = values,
                                         .sum = values + tensors,
                                         .sum_squares = values + 2 * tensors };
    if (tensors > 0)
        HS_TRY(hs_op_importance_stats(context, &args));
    HS_TRY(hs_continual_fetch_values(continual, context, set->tensors, 3));
    const double *host = continual->host_values;
    for (int i = 0; i < continual->share.all_count; i++) {
        stats->maximum = fmax(stats->maximum, host[i]);
        stats->sum += host[continual->share.all_count + i];
    }
    if (!isfinite(stats->maximum) || !isfinite(stats->sum))
        return hs_fail(HS_ENUMERIC,
                       "the importance is not finite, as squared gradients are too large for f32: lower learning_rate");
    return HS_OK;
}

/* Shares of the sum over diagonals and factors alike. */
static void share_out(const HsContinual *continual, HsImportance *importance, double sum)
{
    for (int t = 0; t < importance->count; t++) {
        HsImportanceTensor *tensor = &importance->tensors[t];
        for (int i = 0; i < continual->span_count; i++)
            if (continual->spans[i].name == tensor->name)
                tensor->share = sum > 0 ? tensor->mean * (double)continual->spans[i].count / sum : 0.0;
    }
}

/* The statistics of the importance as it stands; none for l2: its importance is 1 everywhere. */
static HsStatus update_stats(HsContinual *continual, HsPenalty *penalty, HsContext *context)
{
    HsImportance *importance = &penalty->stats;
    importance->count = 0;
    if (!penalty->importance.tensors || !penalty->anchored)
        return HS_OK;
    HsTensorSetStats stats;
    HS_TRY(hs_tensor_set_measure(continual, context, &penalty->importance, &stats));
    const int all = continual->share.all_count;
    const double *maximum = continual->host_values, *sum = maximum + all;
    for (int i = 0, end; i < all; i = end) { /* parts of one parameter are one tensor to readers of this */
        const HsSpan *span = &continual->share.all[i];
        double largest = 0, total = 0, elements = 0;
        for (end = i; end < all && continual->share.all[end].parameter == span->parameter; end++) {
            largest = fmax(largest, maximum[end]);
            total += sum[end];
            elements += (double)continual->share.all[end].count;
        }
        if (hs_tensor_set_has(&penalty->importance, span))
            importance->tensors[importance->count++] =
                (HsImportanceTensor){ .name = span->name,
                                      .maximum = largest,
                                      .mean = total / elements,
                                      .share = stats.sum > 0 ? total / stats.sum : 0.0 };
    }
    importance->maximum = stats.maximum;
    importance->strength = (double)penalty->settings.strength;
    if (penalty->kronecker) {
        HS_TRY(hs_kronecker_measure(continual, penalty->kronecker, context, importance, &stats.sum, &stats.elements));
        share_out(continual, importance, stats.sum);
        importance->factored = true;
    }
    importance->mean = stats.sum / (double)stats.elements;
    return HS_OK;
}

HsStatus hs_penalty_anchored(HsContinual *continual, HsPenalty *penalty, HsContext *context, int task)
{
    const char *strategy = penalty->names->strategy;
    penalty->anchored = 1;
    protect(continual, penalty);
    HsStatus status = update_stats(continual, penalty, context);
    if (status != HS_OK)
        return hs_error_prefix(status, "%s, after task %d (the first is 0)", strategy, task);
    if (penalty->names->importance && penalty->stats.maximum == 0)
        return hs_fail(
            HS_ENUMERIC,
            "%s: after task %d (the first is 0) the importance is 0 in every parameter, so that nothing would "
            "be protected: was any step applied, and is the learning rate above 0?",
            strategy, task);
    return HS_OK;
}

double hs_penalty_natural(const HsContinual *continual, const HsPenalty *penalty, double alone)
{
    if (hs_continual_replays(&continual->config))
        return SHARE_BESIDE_REPLAY * alone;
    const double parameters = fmin(fmax(penalty->parameters, PARAMETERS_LEAST), PARAMETERS_MOST);
    return alone * for_foreignness(penalty, penalty->foreignness) *
           pow(parameters / TYPICAL_PARAMETERS, growth_of(penalty)->parameters);
}

void hs_penalty_choose(const HsContinual *continual, HsPenalty *penalty, double alone, double unit)
{
    if (!penalty->automatic)
        return;
    const double natural = hs_penalty_natural(continual, penalty, alone);
    penalty->settings.strength = (float)(natural / unit);
    hs_info("%s: strength auto: %.4g, %.3g times what weighs an earlier task's curvature as its loss%s",
            penalty->names->strategy, (double)penalty->settings.strength, natural,
            hs_continual_replays(&continual->config) ? ", little because replay protects as well" : "");
}

bool hs_penalty_is_automatic(const void *state)
{
    const HsPenalty *penalty = state;
    return penalty->automatic;
}

HsStatus hs_penalty_meet_task(HsContinual *continual, void *state, double foreignness)
{
    HsPenalty *penalty = state;
    assert(penalty->automatic && !hs_continual_replays(&continual->config) && "asked for");
    if (!penalty->anchored || isnan(foreignness))
        return HS_OK;
    /* One task says little of those to come: a typical one is counted in. */
    const double task = fmin(fmax(foreignness, 1.0), TASK_FOREIGNNESS_MOST), before = penalty->foreignness;
    const double counted = (double)++penalty->met;
    penalty->foreignness = exp((counted * log(before) + log(task)) / (counted + 1));
    penalty->settings.strength *=
        (float)(for_foreignness(penalty, penalty->foreignness) / for_foreignness(penalty, before));
    penalty->stats.strength = (double)penalty->settings.strength;
    protect(continual, penalty);
    hs_info("%s: strength auto: %.4g, as the new task's text is %.3g times as perplexing as the one before's",
            penalty->names->strategy, (double)penalty->settings.strength, foreignness);
    return HS_OK;
}

/* Copies of parameters, and what measures the whole set; ewc and si add their own passes. */
HsStatus hs_penalty_dry_run(HsContinual *continual, void *state, HsContext *dry)
{
    const int spans = continual->span_count;
    HsTensor *wide = continual->arguments, *parameters = wide + spans;
    double *values = continual->device_values;
    for (int i = 0; i < spans; i++) {
        wide[i] = hs_span_wide(&continual->spans[i]);
        parameters[i] = hs_span_parameter(&continual->spans[i]);
        const HsConvertArgs copy = { .x = parameters[i], .y = wide[i] };
        HS_TRY(hs_op_convert(dry, &copy));
    }
    const HsImportanceStatsArgs stats = {
        .tensors = wide, .count = spans, .maximum = values, .sum = values, .sum_squares = values
    };
    const HsPenaltyArgs penalty = {
        .importance = wide, .anchor = wide, .parameter = parameters, .count = spans, .values = values
    };
    HS_TRY(hs_op_importance_stats(dry, &stats));
    HS_TRY(hs_op_penalty(dry, &penalty));
    const HsPenalty *own = state;
    return own->kronecker ? hs_kronecker_dry_run(continual, own->kronecker, dry) : HS_OK;
}

bool hs_penalty_acts(const void *state)
{
    const HsPenalty *penalty = state;
    return penalty->anchored != 0;
}

const HsImportance *hs_penalty_importance(const void *state)
{
    const HsPenalty *penalty = state;
    return &penalty->stats;
}

HsStatus hs_penalty_value(HsContinual *continual, void *state, HsContext *context, double *value)
{
    const HsPenalty *penalty = state;
    *value = 0.0;
    if (!penalty->anchored)
        return HS_OK;
    const size_t spans = (size_t)continual->span_count;
    HsTensor *importance = continual->arguments, *anchor = importance + spans, *parameter = anchor + spans;
    for (size_t i = 0; i < spans; i++) {
        importance[i] = continual->spans[i].protection.importance;
        anchor[i] = continual->spans[i].protection.anchor; /* absent where excluded: the value there is 0 */
        parameter[i] = hs_span_parameter(&continual->spans[i]);
    }
    const HsPenaltyArgs args = { .importance = importance,
                                 .anchor = anchor,
                                 .parameter = parameter,
                                 .count = continual->span_count,
                                 .values = continual->device_values };
    if (spans > 0)
        HS_TRY(hs_op_penalty(context, &args));
    HS_TRY(hs_continual_fetch_values(continual, context, NULL, 1));
    const double *host = continual->host_values;
    /* Summed here in span order, so that the value does not depend on how a device schedules its work. */
    double sum = penalty->offset;
    for (int i = 0; i < continual->share.all_count; i++)
        sum += host[i];
    if (penalty->kronecker) {
        double factored;
        HS_TRY(hs_kronecker_value(continual, penalty->kronecker, context, &penalty->anchor, &factored));
        sum += factored;
    }
    *value = (double)penalty->settings.strength / 2.0 * sum;
    return HS_OK;
}

HsStatus hs_penalty_visit(HsContinual *continual, void *state, const HsStateVisitor *visitor)
{
    HsPenalty *penalty = state;
    HS_TRY(visitor->integer(visitor->user, "penalty.anchored", &penalty->anchored, 1));
    HS_TRY(visitor->real(visitor->user, "penalty.offset", &penalty->offset));
    if (penalty->automatic) { /* else the configuration has it */
        HS_TRY(visitor->integer(visitor->user, "penalty.met", &penalty->met, INT32_MAX));
        HS_TRY(visitor->real(visitor->user, "penalty.foreignness", &penalty->foreignness));
        double strength = (double)penalty->settings.strength;
        HS_TRY(visitor->real(visitor->user, "penalty.strength", &strength));
        penalty->settings.strength = (float)strength;
    }
    HS_TRY(hs_tensor_set_visit(continual, &penalty->anchor, penalty->names->anchor, visitor));
    HS_TRY(hs_tensor_set_visit(continual, &penalty->importance, penalty->names->importance, visitor));
    HS_TRY(hs_tensor_set_visit(continual, &penalty->path, penalty->names->path, visitor));
    if (penalty->kronecker)
        HS_TRY(hs_kronecker_visit(continual, penalty->kronecker, visitor));
    protect(continual, penalty);
    return update_stats(continual, penalty, continual->context);
}
