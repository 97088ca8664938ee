/* SPDX-License-Identifier: MIT
 *
 * What l2, ewc and si share: the quadratic penalty
 *     (strength/2) sum over spans, elements  importance (p - anchor)^2        l2: importance 1
 * whose step is taken by the update rules (HsProtection in kernels/ops.h).  Here its tensors are made and attached to
 * the spans, its value and the statistics of its importance are computed, and its state is saved.
 *
 * Invariant: a span's protection has an anchor exactly when `anchored` is 1 and the span is not excluded.  Before the
 * first anchor there is nothing to be pulled towards, and the update is the unprotected one, bit for bit.
 */
#include <math.h>
#include <stdlib.h>

#include "optim/continual_internal.h"

static HsProtection l2_settings(const HsContinualConfig *config)
{
    return (HsProtection){ .strength = (float)config->l2.lambda };
}

static HsProtection ewc_settings(const HsContinualConfig *config)
{
    return (HsProtection){ .strength = (float)config->ewc.lambda, .proximal = config->ewc.proximal };
}

/* Zenke et al. 2017, eq. 4, is  c sum Omega (theta - theta*)^2, without a 1/2. */
static HsProtection si_settings(const HsContinualConfig *config)
{
    return (HsProtection){ .strength = (float)(2.0 * config->si.strength) };
}

/* A penalty's tensors, by their names in checkpoints (NULL: it has none), and the rest of a span's protection. */
typedef struct PenaltyRow {
    const char *strategy, *anchor, *importance, *path;
    HsProtection (*settings)(const HsContinualConfig *config);
} PenaltyRow;

static const PenaltyRow rows[] = {
    { "l2", "l2.anchor", NULL, NULL, l2_settings },
    { "ewc", "ewc.anchor", "ewc.importance", NULL, ewc_settings },
    { "si", "si.anchor", "si.importance", "si.path", si_settings },
};

static const PenaltyRow *row_of(const HsContinual *continual)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (hs_continual_has(&continual->config, rows[i].strategy))
            return &rows[i];
    return NULL;
}

/* A span's tensor, absent where the family or the span's share of it is. */
static HsTensor tensor_of(const HsFamily *family, int span)
{
    return family->tensors ? family->tensors[span] : (HsTensor){ 0 };
}

static void protect(HsContinual *continual)
{
    const PenaltyRow *row = row_of(continual);
    for (int i = 0; i < continual->span_count; i++) {
        HsSpan *span = &continual->spans[i];
        span->protection = (HsProtection){ 0 };
        if (span->excluded)
            continue;
        if (continual->anchored) {
            span->protection = row->settings(&continual->config);
            span->protection.anchor = tensor_of(&continual->anchor, i);
            span->protection.importance = tensor_of(&continual->importance, i);
        }
        span->protection.path = tensor_of(&continual->path, i); /* from the first step on */
    }
}

HsStatus hs_penalty_create(HsContinual *continual)
{
    const PenaltyRow *row = row_of(continual);
    int protected_spans = 0;
    for (int i = 0; i < continual->span_count; i++)
        protected_spans += !continual->spans[i].excluded;
    if (protected_spans == 0)
        return hs_fail(
            HS_ECONFIG,
            "continual.strategy: %s has nothing to protect, every parameter is excluded: shorten ewc.exclude",
            row->strategy);
    const bool separate = continual->config.ewc.separate && hs_continual_has(&continual->config, "ewc");
    const struct {
        const char *name;
        HsFamily *family;
    } wanted[] = {
        { row->anchor, &continual->anchor },
        { row->importance, &continual->importance },
        { row->path, &continual->path },
        { separate ? "ewc.fresh" : NULL, &continual->fresh },
    };
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++)
        if (wanted[i].name)
            HS_TRY(hs_family_create(continual, HS_MEMORY_PENALTY, wanted[i].name, wanted[i].family));
    if (row->importance) {
        continual->stats.tensors = calloc((size_t)protected_spans, sizeof *continual->stats.tensors);
        if (!continual->stats.tensors)
            return hs_fail(HS_ENOMEM, "%s: no memory for the statistics of %d tensors", row->strategy, protected_spans);
    }
    protect(continual);
    return HS_OK;
}

HsStatus hs_family_measure(HsContinual *continual, HsContext *context, const HsFamily *family, HsFamilyStats *stats)
{
    HsDevice *device = continual->device;
    *stats = (HsFamilyStats){ 0 };
    for (int i = 0; i < continual->span_count; i++)
        if (hs_tensor_present(&family->tensors[i])) {
            continual->arguments[stats->tensors++] = family->tensors[i];
            stats->elements += hs_tensor_count(&family->tensors[i]);
        }
    const size_t tensors = (size_t)stats->tensors;
    double *values = continual->device_values;
    const HsImportanceStatsArgs args = { .tensors = continual->arguments,
                                         .count = stats->tensors,
                                         .maximum = values,
                                         .sum = values + tensors,
                                         .sum_squares = values + 2 * tensors };
    HS_TRY(hs_op_importance_stats(context, &args));
    double *host = continual->host_values;
    HS_TRY(device->copy(device, context->stream, host, values, 3 * tensors * sizeof *host));
    HS_TRY(device->stream_sync(device, context->stream));
    for (size_t t = 0; t < tensors; t++) {
        stats->maximum = fmax(stats->maximum, host[t]);
        stats->sum += host[tensors + t];
    }
    if (!isfinite(stats->maximum) || !isfinite(stats->sum))
        return hs_fail(HS_ENUMERIC, "importance is not finite: squared gradients left the range of f32");
    return HS_OK;
}

/* The statistics of the importance as it stands; none for l2, whose importance is 1 everywhere. */
static HsStatus update_stats(HsContinual *continual, HsContext *context)
{
    HsImportance *importance = &continual->stats;
    importance->count = 0;
    if (!continual->importance.tensors || !continual->anchored)
        return HS_OK;
    HsFamilyStats stats;
    HS_TRY(hs_family_measure(continual, context, &continual->importance, &stats));
    const double *maximum = continual->host_values, *sum = maximum + stats.tensors;
    for (int i = 0; i < continual->span_count; i++) {
        const HsTensor *tensor = &continual->importance.tensors[i];
        if (!hs_tensor_present(tensor))
            continue;
        const int t = importance->count++;
        importance->tensors[t] = (HsImportanceTensor){ .name = continual->spans[i].name,
                                                       .maximum = maximum[t],
                                                       .mean = sum[t] / (double)hs_tensor_count(tensor),
                                                       .share = stats.sum > 0 ? sum[t] / stats.sum : 0.0 };
    }
    importance->maximum = stats.maximum;
    importance->mean = stats.sum / (double)stats.elements;
    importance->strength = (double)row_of(continual)->settings(&continual->config).strength;
    return HS_OK;
}

HsStatus hs_penalty_anchored(HsContinual *continual, HsContext *context, int task)
{
    const PenaltyRow *row = row_of(continual);
    continual->anchored = 1;
    protect(continual);
    HsStatus status = update_stats(continual, context);
    if (status != HS_OK)
        return hs_error_prefix(status, "%s, after task %d (the first is 0)", row->strategy, task);
    if (row->importance && continual->stats.maximum == 0)
        return hs_fail(
            HS_ENUMERIC,
            "%s: after task %d (the first is 0) the importance is 0 in every parameter, so that nothing would "
            "be protected: was any step applied, and is the learning rate above 0?",
            row->strategy, task);
    return HS_OK;
}

int hs_l2_tensors(const HsContinualConfig *config)
{
    (void)config;
    return 1;
}

HsStatus hs_l2_after_task(HsContinual *continual, HsContext *context, int task, HsFisherSource *source)
{
    (void)source;
    HS_TRY(hs_family_copy_parameters(continual, context, &continual->anchor));
    return hs_penalty_anchored(continual, context, task);
}

HsStatus hs_continual_penalty(HsContinual *continual, HsContext *context, double *value)
{
    *value = 0.0;
    if (!continual->anchored)
        return HS_OK;
    HsDevice *device = continual->device;
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
    HS_TRY(hs_op_penalty(context, &args));
    double *host = continual->host_values;
    HS_TRY(device->copy(device, context->stream, host, continual->device_values, spans * sizeof *host));
    HS_TRY(device->stream_sync(device, context->stream));
    /* Summed here in span order, so that the value does not depend on how a device schedules its work. */
    double sum = continual->offset;
    for (size_t i = 0; i < spans; i++)
        sum += host[i];
    *value = (double)row_of(continual)->settings(&continual->config).strength / 2.0 * sum;
    return HS_OK;
}

HsStatus hs_penalty_visit(HsContinual *continual, const HsStateVisitor *visitor)
{
    const PenaltyRow *row = row_of(continual);
    HS_TRY(visitor->integer(visitor->user, "penalty.anchored", &continual->anchored, 1));
    HS_TRY(visitor->real(visitor->user, "penalty.offset", &continual->offset));
    HS_TRY(hs_family_visit(continual, &continual->anchor, row->anchor, visitor));
    HS_TRY(hs_family_visit(continual, &continual->importance, row->importance, visitor));
    HS_TRY(hs_family_visit(continual, &continual->path, row->path, visitor));
    protect(continual);
    return update_stats(continual, continual->context);
}
