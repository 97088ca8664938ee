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
#include "optim/continual_internal.h"

int hs_si_tensors(const HsContinualConfig *config)
{
    (void)config;
    return 3;
}

HsStatus hs_si_begin_task(HsContinual *continual, HsContext *context, int task)
{
    (void)task;
    /* Later tasks begin where consolidation put the anchor. */
    return continual->anchored ? HS_OK : hs_family_copy_parameters(continual, context, &continual->anchor);
}

HsStatus hs_si_after_task(HsContinual *continual, HsContext *context, int task, HsFisherSource *source)
{
    (void)source;
    for (int i = 0; i < continual->span_count; i++) {
        if (!hs_tensor_present(&continual->path.tensors[i]))
            continue;
        const HsConsolidatePathArgs args = { .path = continual->path.tensors[i],
                                             .importance = continual->importance.tensors[i],
                                             .anchor = continual->anchor.tensors[i],
                                             .parameter = hs_span_parameter(&continual->spans[i]),
                                             .damping = (float)continual->config.si.damping };
        HsStatus status = hs_op_consolidate_path(context, &args);
        if (status != HS_OK)
            return hs_error_prefix(status, "si, tensor %s", continual->spans[i].name);
    }
    return hs_penalty_anchored(continual, context, task);
}
