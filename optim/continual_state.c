/* SPDX-License-Identifier: MIT
 *
 * A run's strategies: made, told where training stands, saved.  Each call goes to every active row that has an answer.
 *
 * Rows that replay come first: at a task's end MER closes its open group, and only then is the place where the task
 * ended known, which a penalty anchors.
 */
#include <stdlib.h>

#include "optim/continual_internal.h"

enum { VALUES_PER_SPAN = 4, LISTS = 3 };

size_t hs_continual_value_bytes(int span_count)
{
    return ((size_t)span_count * VALUES_PER_SPAN + 1) * sizeof(double);
}

/* Names may be the caller's; the table's outlive it. */
static void activate(HsContinual *continual)
{
    static const HsStrategyRole order[] = { HS_ROLE_REPLAYS, HS_ROLE_PENALIZES, HS_ROLE_ALONE };
    HsContinualConfig *config = &continual->config;
    for (int i = 0; i < config->strategy_count; i++)
        config->strategies[i] = hs_strategy_find(config->strategies[i])->name;
    for (size_t role = 0; role < sizeof order / sizeof order[0]; role++)
        for (int i = 0; i < config->strategy_count; i++) {
            const HsStrategy *strategy = hs_strategy_find(config->strategies[i]);
            if (strategy->role == order[role])
                continual->active[continual->active_count++] = strategy;
        }
}

/* Room for sums that come back from the device, and for lists of tensors: steps allocate nothing. */
static HsStatus create_values(HsContinual *continual)
{
    const size_t spans = (size_t)continual->span_count, bytes = hs_continual_value_bytes(continual->span_count);
    void *block = NULL;
    HS_TRY(hs_memory_alloc(continual->device, HS_MEMORY_STATISTICS, bytes, &block));
    continual->device_values = block;
    continual->device_offset = continual->device_values + VALUES_PER_SPAN * spans;
    continual->host_values = malloc(bytes);
    continual->arguments = calloc(LISTS * spans + 1, sizeof *continual->arguments);
    if (!continual->host_values || !continual->arguments)
        return hs_fail(HS_ENOMEM, "continual learning: no memory for the sums of %d tensors, %zu bytes",
                       continual->span_count, bytes);
    return HS_OK;
}

HsStatus hs_continual_create(const HsContinualConfig *config, HsContext *context, HsSpan *spans, int count,
                             HsContinual **created)
{
    *created = NULL;
    HS_TRY(hs_continual_check(config));
    HsContinual *continual = calloc(1, sizeof *continual);
    if (!continual)
        return hs_fail(HS_ENOMEM, "no memory for continual learning, %zu bytes", sizeof *continual);
    continual->config = *config;
    continual->context = context;
    continual->device = context->device;
    continual->spans = spans;
    continual->span_count = count;
    activate(continual);
    for (int i = 0; i < count; i++)
        spans[i].protection = (HsProtection){ 0 };

    HsStatus status = HS_OK;
    if (hs_continual_device_bytes(config, spans, count) > 0)
        HS_TRY_GOTO(status, create_values(continual), failed);
    for (int i = 0; i < continual->active_count; i++)
        if (continual->active[i]->create)
            HS_TRY_GOTO(status, continual->active[i]->create(continual), failed);
    *created = continual;
    return HS_OK;
failed:
    hs_continual_destroy(continual);
    return status;
}

void hs_continual_destroy(HsContinual *continual)
{
    if (!continual)
        return;
    for (int i = 0; i < continual->span_count; i++)
        continual->spans[i].protection = (HsProtection){ 0 };
    HsFamily *families[] = { &continual->importance,  &continual->anchor,       &continual->path,     &continual->fresh,
                             &continual->group_start, &continual->window_start, &continual->reference };
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++)
        hs_family_destroy(continual, families[i]);
    hs_memory_release(continual->device, HS_MEMORY_STATISTICS, hs_continual_value_bytes(continual->span_count),
                      continual->device_values);
    free(continual->host_values);
    free(continual->arguments);
    free(continual->stats.tensors);
    free(continual);
}

/* Those that work on one span; `wide` has the shape of a family's tensor. */
static HsStatus dry_run_span(const HsContinual *continual, HsContext *dry, const HsSpan *span, HsTensor wide)
{
    const HsTensor parameter = hs_span_parameter(span);
    HsTensor fresh = wide; /* merging wants memory of its own for it; a dry run touches none */
    fresh.data = span->gradient.data;
    const HsConvertArgs copy = { .x = parameter, .y = wide };
    const HsCombineArgs combine = { .x = wide, .y = span->gradient, .alpha = 1, .beta = 1 };
    const HsSquareAccumulateArgs square = { .grad = span->gradient, .accumulator = wide };
    const HsConsolidateArgs consolidate = { .fresh = fresh,
                                            .importance = wide,
                                            .anchor = wide,
                                            .parameter = parameter,
                                            .merge = true,
                                            .offset = continual->device_offset };
    const HsConsolidatePathArgs path = {
        .path = wide, .importance = wide, .anchor = wide, .parameter = parameter, .damping = 1
    };
    const HsInterpolateArgs interpolate = { .anchor = wide, .master = span->master, .weight = span->weight };
    HS_TRY(hs_op_convert(dry, &copy));
    HS_TRY(hs_op_combine(dry, &combine));
    HS_TRY(hs_op_square_accumulate(dry, &square));
    HS_TRY(hs_op_consolidate(dry, &consolidate));
    HS_TRY(hs_op_consolidate_path(dry, &path));
    return hs_op_interpolate(dry, &interpolate);
}

HsStatus hs_continual_dry_run(HsContinual *continual, HsContext *dry)
{
    if (!continual->arguments)
        return HS_OK;
    const int spans = continual->span_count;
    HsTensor *wide = continual->arguments, *gradients = wide + spans, *parameters = gradients + spans;
    for (int i = 0; i < spans; i++) {
        wide[i] = continual->spans[i].weight;
        wide[i].dtype = HS_F32;
        gradients[i] = continual->spans[i].gradient;
        parameters[i] = hs_span_parameter(&continual->spans[i]);
        HS_TRY(dry_run_span(continual, dry, &continual->spans[i], wide[i]));
    }
    double *values = continual->device_values;
    const HsDotArgs dot = { .x = gradients, .y = wide, .count = spans, .values = values };
    const HsImportanceStatsArgs stats = {
        .tensors = wide, .count = spans, .maximum = values, .sum = values, .sum_squares = values
    };
    const HsPenaltyArgs penalty = {
        .importance = wide, .anchor = wide, .parameter = parameters, .count = spans, .values = values
    };
    HS_TRY(hs_op_dot(dry, &dot));
    HS_TRY(hs_op_importance_stats(dry, &stats));
    return hs_op_penalty(dry, &penalty);
}

HsStatus hs_continual_begin_task(HsContinual *continual, HsContext *context, int task)
{
    for (int i = 0; i < continual->active_count; i++)
        if (continual->active[i]->begin_task)
            HS_TRY(continual->active[i]->begin_task(continual, context, task));
    return HS_OK;
}

bool hs_continual_wants_reference(const HsContinual *continual, int task)
{
    return task > 0 && hs_continual_has(&continual->config, "a-gem");
}

HsStatus hs_continual_before_update(HsContinual *continual, HsContext *context)
{
    for (int i = 0; i < continual->active_count; i++)
        if (continual->active[i]->before_update)
            HS_TRY(continual->active[i]->before_update(continual, context));
    return HS_OK;
}

void hs_continual_fold(HsContinual *continual, const HsReplayStep *step)
{
    for (int i = 0; i < continual->active_count; i++)
        if (continual->active[i]->fold) {
            continual->active[i]->fold(continual, step);
            continual->folded = true;
        }
}

/* The next step's update is a plain one again. */
static void unfold(HsContinual *continual)
{
    for (int i = 0; continual->folded && i < continual->span_count; i++) {
        continual->spans[i].tail.back_count = 0;
        continual->spans[i].tail.snapshot_count = 0;
    }
    continual->folded = false;
}

HsStatus hs_continual_after_step(HsContinual *continual, HsContext *context, const HsReplayStep *step)
{
    for (int i = 0; i < continual->active_count; i++)
        if (continual->active[i]->after_step)
            HS_TRY(continual->active[i]->after_step(continual, context, step));
    unfold(continual);
    return HS_OK;
}

HsStatus hs_continual_after_task(HsContinual *continual, HsContext *context, int task, HsFisherSource *source)
{
    for (int i = 0; i < continual->active_count; i++)
        if (continual->active[i]->after_task)
            HS_TRY(continual->active[i]->after_task(continual, context, task, source));
    return HS_OK;
}

const HsImportance *hs_continual_importance(const HsContinual *continual)
{
    return &continual->stats;
}

HsStatus hs_continual_visit(HsContinual *continual, const HsStateVisitor *visitor)
{
    for (int i = 0; i < continual->active_count; i++)
        if (continual->active[i]->visit)
            HS_TRY(continual->active[i]->visit(continual, visitor));
    return HS_OK;
}
