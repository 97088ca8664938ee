/* SPDX-License-Identifier: MIT
 *
 * Synaptic intelligence (Zenke et al. 2017): a parameter matters by how much its own moves lowered the loss,
 *     omega = - sum over steps  g (p_new - p_old)                              (eq. 3; by the update rules, in `path`)
 *     Omega = max(0, Omega + omega / ((p_end - p_start)^2 + damping))          (eq. 5, when a task is over)
 * The anchor is where the current task began: for eq. 5 the start, for the penalty the end of the one before.
 *
 * g is the task's gradient, unscaled and unclipped, without the penalty.  Moves that are not an optimizer step's (MER's
 * interpolation) belong to no gradient: they enter the denominator only.
 */
#include "optim/continual/internal.h"

typedef struct SiState {
    HsPenalty penalty; /* first: the penalties' functions take it for the whole */
    float damping;
} SiState;

static int si_tensors(const HsContinualConfig *config)
{
    (void)config;
    return 3;
}

/* An automatic c.  1 lets a path's own loss change weigh as a task's (Zenke et al. 2017, after eq. 5). */
static const double NATURAL_STRENGTH = 1.3;

/* Zenke et al. 2017, eq. 4, is  c sum Omega (theta - theta*)^2, without a 1/2. */
static HsStatus si_create(HsContinual *continual, void *state)
{
    static const HsPenaltyNames names = {
        .strategy = "si", .anchor = "si.anchor", .importance = "si.importance", .path = "si.path"
    };
    SiState *si = state;
    const double strength = hs_continual_number(&continual->config, "si", "strength");
    si->damping = (float)hs_continual_number(&continual->config, "si", "damping");
    return hs_penalty_create(continual, &si->penalty, &names, (HsProtection){ .strength = (float)(2.0 * strength) });
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

static HsStatus si_begin_task(HsContinual *continual, void *state, HsContext *context, int task)
{
    HsPenalty *penalty = state;
    HsDevice *device = continual->device;
    (void)task;
    /* Later tasks begin where consolidation put the anchor, and with the path that it cleared. */
    if (penalty->anchored)
        return HS_OK;
    for (int i = 0; i < continual->span_count; i++) {
        const HsTensor *path = &penalty->path.tensors[i];
        if (hs_tensor_present(path))
            HS_TRY(device->fill_zero(device, context->stream, path->data, hs_tensor_bytes(path)));
    }
    return hs_tensor_set_copy_parameters(continual, context, &penalty->anchor);
}

static HsStatus si_after_task(HsContinual *continual, void *state, HsContext *context, int task, HsFisherSource *source)
{
    SiState *si = state;
    HsPenalty *penalty = &si->penalty;
    (void)source;
    for (int i = 0; i < continual->span_count; i++) {
        if (!hs_tensor_present(&penalty->path.tensors[i]))
            continue;
        const HsConsolidatePathArgs args = { .path = penalty->path.tensors[i],
                                             .importance = penalty->importance.tensors[i],
                                             .anchor = penalty->anchor.tensors[i],
                                             .parameter = hs_span_parameter(&continual->spans[i]),
                                             .damping = si->damping };
        HsStatus status = hs_op_consolidate_path(context, &args);
        if (status != HS_OK)
            return hs_error_prefix(status, "si, tensor %s", continual->spans[i].name);
    }
    hs_penalty_choose(continual, penalty, 2.0 * NATURAL_STRENGTH, 1.0);
    return hs_penalty_anchored(continual, penalty, context, task);
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
    .destroy = hs_penalty_destroy,
    .dry_run = si_dry_run,
    .begin_task = si_begin_task,
    .after_task = si_after_task,
    .visit = hs_penalty_visit,
    .anchored = hs_penalty_acts,
    .is_automatic = hs_penalty_is_automatic,
    .meet_task = hs_penalty_meet_task,
    .penalty = hs_penalty_value,
    .importance = hs_penalty_importance,
};
