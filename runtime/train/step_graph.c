/* SPDX-License-Identifier: MIT
 *
 * Recorded steps (kernels.cuda_graph): which runs record theirs, and when a recording is no longer true.
 */
#include "kernels/base/log.h"
#include "runtime/train/run.h"

/* Steps with host work in the middle cannot be captured as a graph. */
bool hs_training_can_record(const HsTraining *training)
{
    return training->engine.cuda_graph && !hs_continual_host_work(&training->continual_config) &&
           !training->optimizer.config.offload;
}

void hs_training_describe_graph(const HsTraining *training)
{
    if (!training->engine.cuda_graph)
        return;
    const HsStrategy *host = hs_continual_host_work(&training->continual_config);
    const HsStrategy *side = hs_continual_outside_step(&training->continual_config);
    char also[96] = "";
    if (side)
        snprintf(also, sizeof also, "; %s's %s run outside it", side->name, side->beside_step);
    if (training->optimizer.config.offload)
        hs_info("cuda_graph: no step is recorded, as the host updates the states (memory.offload)");
    else if (host)
        hs_info("cuda_graph: no step is recorded, as %s %s", host->name, host->host_work);
    else
        hs_info("cuda_graph: from a task's second step on, steps are replays of one recording%s%s",
                training->masked ? ", or of several where the number of targets changes" : "", also);
}

void hs_training_forget_graph(HsTraining *training)
{
    HsDevice *device = &training->engine.device;
    for (int size = 0; size <= HS_TARGET_ROWS_SIZES; size++) {
        HsStepGraph *const recorded = &training->graphs[size];
        if (recorded->graph)
            device->graph_destroy(device, recorded->graph);
        *recorded = (HsStepGraph){ 0 };
    }
}
