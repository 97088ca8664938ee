/* SPDX-License-Identifier: MIT
 *
 * memory.offload: whether a run can have its states on the host.
 */
#include <omp.h>
#include <string.h>

#include "runtime/train/trainer.h"

/* Penalties and interpolations read masters on the device, in passes of their own. */
static const HsStrategy *reads_masters(const HsContinualConfig *config)
{
    const HsStrategy *penalty = hs_continual_penalizes(config);
    return penalty ? penalty : hs_continual_beside_step(config);
}

HsStatus hs_trainer_choose_offload(const HsTrainer *trainer, HsOptimizerConfig *rules)
{
    const HsConfig *config = trainer->config;
    const HsDevice *device = &trainer->engine.device;
    const HsStrategy *strategy = reads_masters(&trainer->continual_config);
    rules->offload = strcmp(config->memory.offload, "none") != 0;
    rules->host_threads = config->training.threads > 0 ? (int)config->training.threads : omp_get_num_procs();
    if (!rules->offload)
        return HS_OK;
    if (device->host_accessible)
        return hs_fail(HS_ECONFIG,
                       "memory.offload: %s moves states from a device's memory to the host's, and on %s they are there "
                       "already: set it to none",
                       config->memory.offload, device->name);
    if (strategy)
        return hs_fail(HS_ECONFIG,
                       "memory.offload: %s leaves no master on the device, and strategy %s reads them there: set it to "
                       "none, or choose another continual.strategy",
                       config->memory.offload, strategy->name);
    return HS_OK;
}

bool hs_trainer_may_offload(const HsTrainer *trainer)
{
    const HsConfig *config = trainer->config;
    HsOptimizerKind kind = HS_OPTIMIZER_ADAMW;
    bool whole = hs_optimizer_kind_find(config->optimizer.kind, &kind) != HS_OK || kind == HS_OPTIMIZER_MUON;
    for (int i = 0; i < config->group_count; i++)
        whole = whole || strcmp(config->groups[i].kind, "muon") == 0;
    return strcmp(config->memory.offload, "none") == 0 && !whole && !trainer->engine.device.host_accessible &&
           hs_backend_cpu_fuses() && !reads_masters(&trainer->continual_config);
}
