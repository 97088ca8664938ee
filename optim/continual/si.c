/* SPDX-License-Identifier: MIT
 *
 * Synaptic intelligence (Zenke et al. 2017): a parameter matters by how much its own moves lowered the loss,
 *     omega = - sum over steps  g (p_new - p_old)                              (eq. 3; by the update rules, in `path`)
 *     Omega = max(0, Omega + omega / ((p_end - p_start)^2 + damping))          (eq. 5, when a task is over)
 * The anchor is where the current task began: for eq. 5 the start, for the penalty the end of the one before.
 * Behind a task that is not to be retained these are two places: the anchor stays at the end of the latest task that is,
 * the task's path is dropped, and p_start, where the next one began, has another tensor (`start`).
 *
 * g is the task's gradient, unscaled and unclipped, without the penalty.  Moves that are not an optimizer step's (MER's
 * interpolation) belong to no gradient: they enter the denominator only.
 */
#include "optim/continual/internal.h"

typedef struct SiState {
    HsPenalty penalty; /* first: the penalties' functions take it for the whole */
    float damping;
    HsTensorSet start; /* where some task is not to be retained, */
    int64_t apart;     /* and 1 while it is another place than the anchor */
} SiState;

static int si_tensors(const HsContinualConfig *config)
{
    return hs_continual_retains_all(config) ? 3 : 4;
}

/* An automatic c.  1 lets a path's own loss change weigh as a task's (Zenke et al. 2017, after eq. 5). */
static const double NATURAL_STRENGTH = 0.48;

/* Zenke et al. 2017, eq. 4, is  c sum Omega (theta - theta*)^2, without a 1/2. */
static HsStatus si_create(HsContinual *continual, void *state)
{
    static const HsPenaltyNames names = {
        .strategy = "si", .anchor = "si.anchor", .importance = "si.importance", .path = "si.path"
    };
    SiState *si = state;
    const double strength = hs_continual_number(&continual->config, "si", "strength");
    si->damping = (float)hs_continual_number(&continual->config, "si", "damping");
    HS_TRY(hs_penalty_create(continual, &si->penalty, &names, (HsProtection){ .strength = (float)(2.0 * strength) }));
    if (hs_continual_retains_all(&continual->config))
        return HS_OK;
    return hs_tensor_set_create(continual, HS_MEMORY_PENALTY, "si.start", &si->start);
}

static void si_destroy(HsContinual *continual, void *state)
{
    SiState *si = state;
    hs_tensor_set_destroy(continual, &si->start);
    hs_penalty_destroy(continual, &si->penalty);
}

static HsStatus si_dry_run(HsContinual *continual, void *state, HsContext *dry)
{
    for (int i = 0; i < continual->span_count; i++) {
        const HsTensor wide = hs_span_wide(&continual->spans[i]);
        const HsConsolidatePathArgs args = { .path = wide,
                                             .importance = wide,
                                             .anchor = wide,
                                             .parameter = hs_span_parameter(&continual->spans[i]),
                                             .damping = 1 };
        HS_TRY(hs_op_consolidate_path(dry, &args));
    }
    return hs_penalty_dry_run(continual, state, dry);
}

/* The path was the task's own loss: nothing of it becomes importance. */
static HsStatus si_discard_task(HsContinual *continual, void *state, HsContext *context, int task)
{
    const SiState *si = state;
    HsDevice *device = continual->device;
    (void)task;
    for (int i = 0; i < continual->span_count; i++) {
        const HsTensor *path = &si->penalty.path.tensors[i];
        if (hs_tensor_present(path))
            HS_TRY(device->fill_zero(device, context->stream, path->data, hs_tensor_bytes(path)));
    }
    return HS_OK;
}

static HsStatus si_begin_task(HsContinual *continual, void *state, HsContext *context, int task)
{
    SiState *si = state;
    HsPenalty *penalty = &si->penalty;
    if (!penalty->anchored) {
        HS_TRY(si_discard_task(continual, state, context, task)); /* what a trial of rates left */
        return hs_tensor_set_copy_parameters(continual, context, &penalty->anchor);
    }
    /* Later tasks begin where consolidation put the anchor, but behind one that was discarded. */
    si->apart = !hs_continual_retains(&continual->config, task - 1);
    return si->apart ? hs_tensor_set_copy_parameters(continual, context, &si->start) : HS_OK;
}

static HsStatus si_after_task(HsContinual *continual, void *state, HsContext *context, int task, HsFisherSource *source)
{
    SiState *si = state;
    HsPenalty *penalty = &si->penalty;
    const HsTensorSet *began = si->apart ? &si->start : &penalty->anchor;
    (void)source;
    for (int i = 0; i < continual->span_count; i++) {
        if (!hs_tensor_present(&penalty->path.tensors[i]))
            continue;
        const HsConsolidatePathArgs args = { .path = penalty->path.tensors[i],
                                             .importance = penalty->importance.tensors[i],
                                             .anchor = began->tensors[i],
                                             .parameter = hs_span_parameter(&continual->spans[i]),
                                             .damping = si->damping };
        HsStatus status = hs_op_consolidate_path(context, &args);
        if (status != HS_OK)
            return hs_error_prefix(status, "si, tensor %s", continual->spans[i].name);
    }
    if (si->apart)
        HS_TRY(hs_tensor_set_copy_parameters(continual, context, &penalty->anchor));
    hs_penalty_choose(continual, penalty, 2.0 * NATURAL_STRENGTH, 1.0);
    return hs_penalty_anchored(continual, penalty, context, task);
}

/* Where every task is to be retained the state is what it was in the first releases. */
static HsStatus si_visit(HsContinual *continual, void *state, const HsStateVisitor *visitor)
{
    SiState *si = state;
    if (si->start.tensors)
        HS_TRY(visitor->added_integer(visitor->user, "si.apart", &si->apart, 1));
    if (si->apart)
        HS_TRY(hs_tensor_set_visit(continual, &si->start, "si.start", visitor));
    return hs_penalty_visit(continual, &si->penalty, visitor);
}

const HsStrategy hs_strategy_si = {
    .name = "si",
    .doc = "synaptic intelligence: a quadratic penalty weighted by what each parameter did for the loss along the "
           "way (Zenke et al. 2017)",
    .role = HS_ROLE_PENALIZES,
    .section = "si",
    .strength_key = "si.strength",
    .tensors_per_parameter = si_tensors,
    .state_bytes = sizeof(SiState),
    .create = si_create,
    .destroy = si_destroy,
    .dry_run = si_dry_run,
    .begin_task = si_begin_task,
    .after_task = si_after_task,
    .discard_task = si_discard_task,
    .visit = si_visit,
    .anchored = hs_penalty_acts,
    .is_automatic = hs_penalty_is_automatic,
    .meet_task = hs_penalty_meet_task,
    .penalty = hs_penalty_value,
    .importance = hs_penalty_importance,
};
