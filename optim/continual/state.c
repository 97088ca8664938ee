/* SPDX-License-Identifier: MIT
 *
 * A run's strategies: made, informed of the progress, saved.  Each call goes to every active row that has an answer.
 *
 * Rows that replay come first, then merge: at a task's end MER closes its open group, merge goes back a part of the way,
 * and only then is the place where the task ended known, which a penalty anchors.
 */
#include <stdlib.h>

#include "optim/continual/internal.h"

enum { LISTS = 3 };

/* Names may be the caller's; the table's outlive it. */
static void activate(HsContinual *continual)
{
    static const HsStrategyRole order[] = { HS_ROLE_REPLAYS, HS_ROLE_MERGES, HS_ROLE_PENALIZES,
                                            HS_ROLE_TEACHES, HS_ROLE_ADAPTS, HS_ROLE_ALONE };
    HsContinualConfig *config = &continual->config;
    for (int i = 0; i < config->strategy_count; i++)
        config->strategies[i] = hs_strategy_find(config->strategies[i])->name;
    for (size_t role = 0; role < sizeof order / sizeof order[0]; role++)
        for (int i = 0; i < config->strategy_count; i++) {
            const HsStrategy *strategy = hs_strategy_find(config->strategies[i]);
            if (strategy->role == order[role])
                continual->active[continual->active_count++].row = strategy;
        }
}

static HsStatus create_state(HsContinual *continual, int i)
{
    const HsStrategy *row = continual->active[i].row;
    if (row->state_bytes == 0)
        return HS_OK;
    continual->active[i].state = calloc(1, row->state_bytes);
    if (!continual->active[i].state)
        return hs_fail(HS_ENOMEM, "%s: no memory for its state, %zu bytes", row->name, row->state_bytes);
    return row->create(continual, continual->active[i].state);
}

static void destroy_state(HsContinual *continual, int i)
{
    const HsStrategy *row = continual->active[i].row;
    if (continual->active[i].state && row->destroy)
        row->destroy(continual, continual->active[i].state);
    free(continual->active[i].state);
}

/* Room for sums that come back from the device, and for lists of tensors: steps allocate nothing. */
static HsStatus create_values(HsContinual *continual)
{
    /* Of all that are shared, too: a sample's gradients are of all. */
    const size_t spans = (size_t)continual->share.all_count,
                 bytes = hs_continual_value_bytes(continual->share.all_count);
    void *block = NULL;
    HS_TRY(hs_memory_alloc(continual->device, HS_MEMORY_STATISTICS, bytes, &block));
    continual->device_values = block;
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
    return hs_continual_create_shared(config, context, &(HsSpanShare){ spans, count, 0, count, NULL, false }, created);
}

HsStatus hs_continual_create_shared(const HsContinualConfig *config, HsContext *context, const HsSpanShare *share,
                                    HsContinual **created)
{
    HsSpan *const spans = share->all + share->first;
    const int count = share->count;
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
    continual->share = *share;
    activate(continual);
    for (int i = 0; i < count; i++)
        spans[i].protection = (HsProtection){ 0 };

    HsStatus status = HS_OK;
    if (hs_continual_device_bytes(config, share->all, share->all_count) > 0)
        HS_TRY_GOTO(status, create_values(continual), failed);
    for (int i = 0; i < continual->active_count; i++)
        HS_TRY_GOTO(status, create_state(continual, i), failed);
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
    for (int i = 0; i < continual->active_count; i++)
        destroy_state(continual, i);
    hs_memory_release(continual->device, HS_MEMORY_STATISTICS, hs_continual_value_bytes(continual->share.all_count),
                      continual->device_values);
    free(continual->host_values);
    free(continual->arguments);
    free(continual);
}

HsStatus hs_continual_dry_run(HsContinual *continual, HsContext *dry)
{
    for (int i = 0; i < continual->active_count; i++)
        if (continual->active[i].row->dry_run)
            HS_TRY(continual->active[i].row->dry_run(continual, continual->active[i].state, dry));
    return HS_OK;
}

HsStatus hs_continual_begin_task(HsContinual *continual, HsContext *context, int task)
{
    for (int i = 0; i < continual->active_count; i++)
        if (continual->active[i].row->begin_task)
            HS_TRY(continual->active[i].row->begin_task(continual, continual->active[i].state, context, task));
    return HS_OK;
}

static bool is_automatic(const HsContinual *continual, int i)
{
    const HsStrategy *row = continual->active[i].row;
    return row->is_automatic && row->is_automatic(continual->active[i].state);
}

bool hs_continual_wants_foreignness(const HsContinual *continual, int task)
{
    bool wanted = false;
    for (int i = 0; i < continual->active_count; i++)
        wanted = wanted || is_automatic(continual, i);
    return wanted && task > 0 && !continual->config.unmarked && !hs_continual_replays(&continual->config);
}

HsStatus hs_continual_meet_task(HsContinual *continual, double foreignness)
{
    for (int i = 0; i < continual->active_count; i++)
        if (is_automatic(continual, i))
            HS_TRY(continual->active[i].row->meet_task(continual, continual->active[i].state, foreignness));
    return HS_OK;
}

bool hs_continual_wants_reference(const HsContinual *continual, int task)
{
    for (int i = 0; i < continual->active_count; i++)
        if (continual->active[i].row->take_reference)
            return task > 0 || continual->config.unmarked;
    return false;
}

HsStatus hs_continual_take_reference(HsContinual *continual, HsContext *context)
{
    for (int i = 0; i < continual->active_count; i++)
        if (continual->active[i].row->take_reference)
            HS_TRY(continual->active[i].row->take_reference(continual, continual->active[i].state, context));
    HsDevice *device = continual->device;
    for (int i = 0; i < continual->span_count; i++) {
        const HsTensor *gradient = &continual->spans[i].gradient;
        HS_TRY(device->fill_zero(device, context->stream, gradient->data, hs_tensor_bytes(gradient)));
    }
    return HS_OK;
}

HsStatus hs_continual_before_update(HsContinual *continual, HsContext *context)
{
    for (int i = 0; i < continual->active_count; i++)
        if (continual->active[i].row->before_update)
            HS_TRY(continual->active[i].row->before_update(continual, continual->active[i].state, context));
    return HS_OK;
}

void hs_continual_fold(HsContinual *continual, const HsReplayStep *step)
{
    for (int i = 0; i < continual->active_count; i++)
        if (continual->active[i].row->fold)
            continual->active[i].row->fold(continual, continual->active[i].state, step);
}

/* The next step's update is a plain one again. */
static void unfold(HsContinual *continual)
{
    for (int i = 0; i < continual->span_count; i++) {
        continual->spans[i].epilogue.back_count = 0;
        continual->spans[i].epilogue.snapshot_count = 0;
    }
}

HsStatus hs_continual_after_step(HsContinual *continual, HsContext *context, const HsReplayStep *step, bool folded)
{
    for (int i = 0; i < continual->active_count; i++)
        if (continual->active[i].row->after_step)
            HS_TRY(continual->active[i].row->after_step(continual, continual->active[i].state, context, step, folded));
    if (folded)
        unfold(continual);
    return HS_OK;
}

HsStatus hs_continual_begin_fisher(HsContinual *continual)
{
    for (int i = 0; i < continual->active_count; i++)
        if (continual->active[i].row->begin_fisher)
            HS_TRY(continual->active[i].row->begin_fisher(continual, continual->active[i].state));
    return HS_OK;
}

void hs_continual_end_fisher(HsContinual *continual)
{
    for (int i = 0; i < continual->active_count; i++)
        if (continual->active[i].row->end_fisher)
            continual->active[i].row->end_fisher(continual, continual->active[i].state);
}

int hs_continual_fisher_sums(const HsContinual *continual, HsTensor *tensors)
{
    int count = 0;
    for (int i = 0; i < continual->active_count; i++)
        if (continual->active[i].row->fisher_sums)
            count += continual->active[i].row->fisher_sums(continual, continual->active[i].state, tensors + count);
    return count;
}

HsStatus hs_continual_after_task(HsContinual *continual, HsContext *context, int task, HsFisherSource *source)
{
    for (int i = 0; i < continual->active_count; i++)
        if (continual->active[i].row->after_task)
            HS_TRY(continual->active[i].row->after_task(continual, continual->active[i].state, context, task, source));
    return HS_OK;
}

HsStatus hs_continual_discard_task(HsContinual *continual, HsContext *context, int task)
{
    for (int i = 0; i < continual->active_count; i++) {
        const HsStrategy *row = continual->active[i].row;
        void *const state = continual->active[i].state;
        if (row->discard_task)
            HS_TRY(row->discard_task(continual, state, context, task));
        else if (row->after_task && row->role != HS_ROLE_PENALIZES)
            HS_TRY(row->after_task(continual, state, context, task, NULL));
    }
    return HS_OK;
}

HsStatus hs_continual_consolidate(HsContinual *continual, HsContext *context, int round, HsFisherSource *source)
{
    for (int i = 0; i < continual->active_count; i++)
        if (continual->active[i].row->role == HS_ROLE_PENALIZES)
            HS_TRY(continual->active[i].row->after_task(continual, continual->active[i].state, context, round, source));
    return HS_OK;
}

bool hs_continual_anchored(const HsContinual *continual)
{
    for (int i = 0; i < continual->active_count; i++)
        if (continual->active[i].row->anchored && continual->active[i].row->anchored(continual->active[i].state))
            return true;
    return false;
}

HsStatus hs_continual_penalty(HsContinual *continual, HsContext *context, double *value)
{
    *value = 0.0;
    for (int i = 0; i < continual->active_count; i++)
        if (continual->active[i].row->penalty) {
            double own;
            HS_TRY(continual->active[i].row->penalty(continual, continual->active[i].state, context, &own));
            *value += own;
        }
    return HS_OK;
}

const HsSpanFactors *hs_continual_factors(const HsContinual *continual)
{
    for (int i = 0; i < continual->active_count; i++)
        if (continual->active[i].row->factors)
            return continual->active[i].row->factors(continual->active[i].state);
    return NULL;
}

const HsImportance *hs_continual_importance(const HsContinual *continual)
{
    static const HsImportance no_importance = { 0 };
    for (int i = 0; i < continual->active_count; i++)
        if (continual->active[i].row->importance)
            return continual->active[i].row->importance(continual->active[i].state);
    return &no_importance;
}

HsStatus hs_continual_visit(HsContinual *continual, const HsStateVisitor *visitor)
{
    for (int i = 0; i < continual->active_count; i++)
        if (continual->active[i].row->visit)
            HS_TRY(continual->active[i].row->visit(continual, continual->active[i].state, visitor));
    return HS_OK;
}
