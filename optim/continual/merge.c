/* SPDX-License-Identifier: MIT
 *
 * Merging: when a task ends, the model is the one from before the task plus a share of the task's change, on the line
 * between the two,
 *     theta = theta_before + share (theta_after - theta_before)
 *
 * (Wortsman et al. 2022, "Robust fine-tuning of zero-shot models", WiSE-FT: the share is its alpha.)  It needs no text
 * and no time, and one copy of the parameters.  A run that begins untrained has nothing to keep in its first task.
 *
 *   - an adapter that was drawn for the task: its change s B A is on that line where B alone is multiplied, and A stays.
 *     One that earlier tasks trained: both factors are on their own lines, and their product near its own.
 *   - a task that is to be forgotten: the next one is merged with the model from before it.
 */
#include "optim/continual/internal.h"

/* Draws of stochastic rounding, of bf16 weights without a master. */
enum { MERGE_SITE = 0x4d524700 };

typedef struct MergeState {
    double share;
    HsTensorSet before; /* the parameters that the task began with */
} MergeState;

static int merge_tensors(const HsContinualConfig *config)
{
    (void)config;
    return 1;
}

static HsStatus merge_create(HsContinual *continual, void *state)
{
    MergeState *merge = state;
    merge->share = hs_continual_number(&continual->config, "merge", "share");
    return hs_tensor_set_create(continual, HS_MEMORY_SNAPSHOTS, "merge.before", &merge->before);
}

static void merge_destroy(HsContinual *continual, void *state)
{
    MergeState *merge = state;
    hs_tensor_set_destroy(continual, &merge->before);
}

static HsStatus merge_dry_run(HsContinual *continual, void *state, HsContext *dry)
{
    (void)state;
    return hs_tensor_set_dry_interpolate(continual, dry);
}

static HsStatus merge_begin_task(HsContinual *continual, void *state, HsContext *context, int task)
{
    MergeState *merge = state;
    const bool forgets = task > 0 && !hs_continual_retains(&continual->config, task - 1);
    return forgets ? HS_OK : hs_tensor_set_copy_parameters(continual, context, &merge->before);
}

/* Whether the adapter is as it was drawn when this task begins. */
static bool is_drawn(const HsContinual *continual, int task)
{
    return task <= continual->config.known && continual->config.beginning == HS_BEGINS_WITH_DRAWN_ADAPTER;
}

static HsStatus merge_after_task(HsContinual *continual, void *state, HsContext *context, int task,
                                 HsFisherSource *source)
{
    MergeState *merge = state;
    (void)source;
    if (task == 0 && continual->config.beginning == HS_BEGINS_UNTRAINED)
        return HS_OK;
    for (int i = 0; i < continual->span_count; i++) {
        const HsSpan *span = &continual->spans[i];
        if (span->adapts && is_drawn(continual, task))
            continue;
        HsStatus status = hs_tensor_set_interpolate(continual, context, &merge->before, i, merge->share,
                                                    hs_span_draws(continual, i, MERGE_SITE, (uint32_t)task));
        if (status != HS_OK)
            return hs_error_prefix(status, "merge, tensor %s", span->name);
    }
    return HS_OK;
}

static HsStatus merge_visit(HsContinual *continual, void *state, const HsStateVisitor *visitor)
{
    MergeState *merge = state;
    return hs_tensor_set_visit(continual, &merge->before, "merge.before", visitor);
}

const HsStrategy hs_strategy_merge = {
    .name = "merge",
    .doc = "when a task ends a share of its change stays: the model lies between the one before and the one after it "
           "(WiSE-FT, Wortsman et al. 2022)",
    .role = HS_ROLE_MERGES,
    .section = "merge",
    .needs_boundaries = "merges where a task ends",
    .tensors_per_parameter = merge_tensors,
    .state_bytes = sizeof(MergeState),
    .create = merge_create,
    .destroy = merge_destroy,
    .dry_run = merge_dry_run,
    .begin_task = merge_begin_task,
    .after_task = merge_after_task,
    .visit = merge_visit,
};
