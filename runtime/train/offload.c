/* SPDX-License-Identifier: MIT
 *
 * memory.offload: what of a run may lie on the host.
 */
#include <omp.h>
#include <string.h>

#include "runtime/train/run.h"

static const char *const names[] = HS_WORD_ARRAY(HS_OFFLOAD_LEVELS);

const char *hs_offload_name(HsOffloadLevel level)
{
    return names[level];
}

HsOffloadLevel hs_training_offload_level(const HsTraining *training)
{
    int level = HS_OFFLOAD_WEIGHTS;
    while (level > HS_OFFLOAD_NONE && strcmp(training->config->memory.offload, names[level]) != 0)
        level--;
    return (HsOffloadLevel)level;
}

/* What several processes do not sum block by block, or do not bring block by block, is in every device's memory. */
static HsOffloadLevel most_of_processes(const HsTraining *training)
{
    const int64_t zero = training->config->distributed.zero;
    if (training->engine.comm->size == 1 || zero >= 3)
        return HS_OFFLOAD_WEIGHTS;
    return zero == 2 ? HS_OFFLOAD_GRADIENTS : HS_OFFLOAD_OPTIMIZER;
}

HsStatus hs_training_check_offload(const HsTraining *training)
{
    const HsOffloadLevel level = hs_training_offload_level(training);
    const HsDevice *device = &training->engine.device;
    const HsStrategy *matrices = hs_continual_whole_matrices(&training->continual_config);
    if (level == HS_OFFLOAD_NONE)
        return HS_OK;
    if (device->host_accessible)
        return hs_fail(HS_ECONFIG,
                       "memory.offload: %s moves states from a device's memory to the host's, and on %s they are there "
                       "already: set it to none",
                       names[level], device->name);
    if (matrices)
        return hs_fail(HS_ECONFIG,
                       "memory.offload: %s leaves the device no whole matrices, and strategy %s works on them: set it "
                       "to none%s%s",
                       names[level], matrices->name, matrices->by_element ? ", or " : "",
                       matrices->by_element ? matrices->by_element : "");
    if (level > most_of_processes(training))
        return hs_fail(
            HS_ECONFIG,
            "memory.offload: %s of %d processes need distributed.zero: %d, which has them block by block; it "
            "is %lld",
            names[level], training->engine.comm->size, level == HS_OFFLOAD_WEIGHTS ? 3 : 2,
            (long long)training->config->distributed.zero);
    return HS_OK;
}

void hs_training_choose_offload(const HsTraining *training, HsOptimizerConfig *rules)
{
    const HsConfig *config = training->config;
    rules->offload = hs_training_offload_level(training);
    rules->host_threads = config->training.threads > 0 ? (int)config->training.threads : omp_get_num_procs();
    rules->disk = training->on_disk > HS_DISK_NOTHING ? config->memory_place.disk : NULL;
    rules->masters_on_disk = training->on_disk == HS_DISK_MASTERS;
}

/* Penalties and interpolations have separate passes on a device, which cannot read a file. */
HsDiskLevel hs_training_disk_most(const HsTraining *training)
{
    const HsContinualConfig *continual = &training->continual_config;
    if (training->config->memory_place.disk[0] == '\0')
        return HS_DISK_NOTHING;
    if (training->engine.device.host_accessible)
        return HS_DISK_MASTERS;
    if (hs_training_offload_level(training) == HS_OFFLOAD_NONE)
        return HS_DISK_NOTHING;
    return hs_continual_penalizes(continual) || hs_continual_outside_step(continual) ? HS_DISK_MOMENTS
                                                                                     : HS_DISK_MASTERS;
}

static bool needs_whole(const char *name)
{
    HsOptimizerKind kind = HS_OPTIMIZER_ADAMW;
    return hs_optimizer_kind_find(name, &kind) != HS_OK || hs_optimizer_kind_needs_whole(kind);
}

HsOffloadLevel hs_training_offload_most(const HsTraining *training)
{
    const HsConfig *config = training->config;
    bool whole = needs_whole(config->optimizer.kind);
    for (int i = 0; i < config->group_count; i++)
        whole = whole || (!hs_is(config->groups[i].kind, "inherit") && needs_whole(config->groups[i].kind));
    const bool may = !whole && !training->engine.device.host_accessible && hs_backend_cpu_fuses() &&
                     !hs_continual_whole_matrices(&training->continual_config);
    return may ? most_of_processes(training) : HS_OFFLOAD_NONE;
}
