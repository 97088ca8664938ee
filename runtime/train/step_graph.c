/* SPDX-License-Identifier: MIT
 *
 * Recorded steps (kernels.cuda_graph): which runs record theirs, and when a recording is no longer true.
 */
#include "kernels/base/log.h"
#include "runtime/train/trainer.h"

/* A host that works in the middle of a step is no part of a recording. */
bool hs_trainer_can_record(const HsTrainer *trainer)
{
    return trainer->engine.cuda_graph && !hs_continual_host_work(&trainer->continual_config) &&
           !trainer->optimizer.config.offload;
}

void hs_trainer_describe_graph(const HsTrainer *trainer)
{
    if (!trainer->engine.cuda_graph)
        return;
    const HsStrategy *host = hs_continual_host_work(&trainer->continual_config);
    const HsStrategy *beside = hs_continual_beside_step(&trainer->continual_config);
    char also[96] = "";
    if (beside)
        snprintf(also, sizeof also, "; %s's %s run beside it", beside->name, beside->beside_step);
    if (trainer->optimizer.config.offload)
        hs_info("cuda_graph: no step is recorded, as the host updates the states (memory.offload)");
    else if (host)
        hs_info("cuda_graph: no step is recorded, as %s %s", host->name, host->host_work);
    else
        hs_info("cuda_graph: from a task's second step on, steps are replays of one recording%s", also);
}

void hs_trainer_forget_graph(HsTrainer *trainer)
{
    HsDevice *device = &trainer->engine.device;
    if (trainer->graph)
        device->graph_destroy(device, trainer->graph);
    trainer->graph = NULL;
    trainer->graph_warm = false;
}
