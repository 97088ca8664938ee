/* SPDX-License-Identifier: MIT
 *
 * How an optimizer step is divided: its sequences into virtual ranks (virtual_ranks.h), those among processes, each
 * into micro-batches, and a micro-batch's rows into chunks of the head.
 */
#include <stdio.h>
#include <string.h>

#include "kernels/base/log.h"
#include "runtime/config/continual.h"
#include "runtime/train/trainer.h"

/* The rows of a batch, or those that are drawn beside it, in equal parts of whole micro-batches. */
static HsStatus check_rows(const HsTrainer *trainer, int64_t rows, const char *what)
{
    const int64_t count = trainer->ranks.count, micro_batch = hs_config_micro_batch(trainer->config);
    const int processes = trainer->engine.comm->size;
    if (rows % count == 0 && rows / count % micro_batch == 0)
        return HS_OK;
    return hs_fail(HS_ECONFIG,
                   "%lld sequences of %s cannot be cut into %lld equal parts (distributed.virtual_ranks%s) of whole "
                   "micro-batches (%lld sequences): change batch_size, gradient_accumulation_steps%s or the number of "
                   "processes",
                   (long long)rows, what, (long long)count, processes > 1 ? ", or one a process" : "",
                   (long long)micro_batch, trainer->config->memory.micro_batch > 0 ? ", memory.micro_batch" : "");
}

static bool is_power_of_two(int64_t count)
{
    return (count & (count - 1)) == 0;
}

/* Gradients that pass are summed once a micro-batch, and consecutive virtual ranks by consecutive processes: so that the
 * sums are those of the other stages, each virtual rank is one micro-batch, and rounds are subtrees. */
static HsStatus check_passing(const HsTrainer *trainer, int64_t rows)
{
    const HsConfig *config = trainer->config;
    const int64_t part = rows / trainer->ranks.count, batch = hs_config_micro_batch(config);
    const int processes = trainer->engine.comm->size;
    char cause[64];
    if (config->distributed.zero >= 2)
        snprintf(cause, sizeof cause, "distributed.zero: %lld", (long long)config->distributed.zero);
    else
        snprintf(cause, sizeof cause, "memory.offload: %s", config->memory.offload);
    if (config->distributed.exact && part != batch)
        return hs_fail(HS_ECONFIG,
                       "%s sums gradients of each micro-batch (%lld sequences), and a virtual rank has %lld: set "
                       "distributed.virtual_ranks to %lld, or exact to false",
                       cause, (long long)batch, (long long)part, (long long)(rows / batch));
    if (trainer->ranks.own > 1 && !is_power_of_two(processes))
        return hs_fail(
            HS_ECONFIG,
            "%s needs a number of processes that is a power of two, or as many virtual ranks as processes (%d): there "
            "are %lld",
            cause, processes, (long long)trainer->ranks.count);
    return HS_OK;
}

/* As configured; where gradients pass each micro-batch is one, unless it is said otherwise. */
static int64_t virtual_ranks(const HsTrainer *trainer)
{
    const HsConfig *config = trainer->config;
    const int64_t own = trainer->rows_per_step / trainer->engine.comm->size;
    int64_t batch = hs_config_micro_batch(config);
    if (config->distributed.virtual_ranks > 0 || !config->distributed.exact || !hs_trainer_passes_gradients(trainer))
        return config->distributed.virtual_ranks;
    while (batch > 1 && (own % batch != 0 || config->training.batch_size % batch != 0))
        batch--;
    return trainer->rows_per_step / batch;
}

HsStatus hs_trainer_divide(HsTrainer *trainer)
{
    HsConfig *config = trainer->config;
    const HsComm *comm = trainer->engine.comm;
    HS_TRY(hs_trainer_check_offload(trainer));
    trainer->rows_per_step = hs_config_rows_per_step(config);
    if (!config->distributed.exact && config->distributed.virtual_ranks > 0)
        return hs_fail(HS_ECONFIG,
                       "distributed.virtual_ranks: %lld is what distributed.exact: true sums by: leave one "
                       "of them out",
                       (long long)config->distributed.virtual_ranks);
    const int64_t asked = config->distributed.virtual_ranks;
    HS_TRY(hs_virtual_ranks_divide(virtual_ranks(trainer), comm, &trainer->ranks));
    trainer->ranks.asked = asked;
    /* As it is from now on, also for a checkpoint that another number of processes goes on from.  0 says one piece. */
    if (config->distributed.exact)
        config->distributed.virtual_ranks = trainer->ranks.count > 1 ? trainer->ranks.count : 0;
    if (trainer->ranks.count == 1)
        return hs_trainer_passes_gradients(trainer) ? check_passing(trainer, trainer->rows_per_step) : HS_OK;
    const HsReplayPlan plan = hs_continual_replay_plan(&trainer->continual_config, trainer->rows_per_step);
    const struct {
        int64_t rows;
        const char *what;
    } passes[] = { { trainer->rows_per_step, "an optimizer step" }, { plan.reference_rows, "the reference gradient" } };
    for (int i = 0; i < 2 && passes[i].rows > 0; i++) {
        HS_TRY(check_rows(trainer, passes[i].rows, passes[i].what));
        if (hs_trainer_passes_gradients(trainer))
            HS_TRY(check_passing(trainer, passes[i].rows));
    }
    return HS_OK;
}

/* One that says nothing about them goes on with the virtual ranks that it was begun with. */
HsStatus hs_trainer_keep_virtual_ranks(HsTrainer *trainer, const char *folder)
{
    HsConfig *config = trainer->config, saved;
    static const char *const without_limit[] = { "memory.limit=0" };
    char path[4096];
    if (!folder || config->distributed.virtual_ranks > 0 || !config->distributed.exact)
        return HS_OK;
    snprintf(path, sizeof path, "%s/config.yaml", folder);
    HS_TRY(hs_config_load_saved(&saved, path, 1, without_limit));
    const int64_t kept = saved.distributed.virtual_ranks;
    hs_config_deinit(&saved);
    config->distributed.virtual_ranks = kept;
    if (kept > 0 || trainer->engine.comm->size == 1 || strcmp(config->training.resume, "changed") == 0)
        return HS_OK;
    return hs_fail(
        HS_ECONFIG,
        "%s was made by one process whose batches are one piece (distributed.virtual_ranks: 1). To go on with "
        "%d processes, whose sums are rounded elsewhere: resume=changed",
        folder, trainer->engine.comm->size);
}

int64_t hs_trainer_micro_batch(const HsTrainer *trainer)
{
    const HsConfig *config = trainer->config;
    if (trainer->state.micro_batch > 0)
        return trainer->state.micro_batch;
    return hs_config_micro_batch(config);
}

/* The head's gradient [V,C] is read and written once a chunk: on a GPU, where no cache holds a chunk anyway, few large
 * ones are faster.  From the device's memory alone, so that no limit changes a sum's order. */
void hs_trainer_choose_head_chunk(const HsTrainer *trainer, HsModel *model)
{
    const HsDevice *device = &trainer->engine.device;
    HsAttributes *head = &model->nodes[model->loss_node].attributes;
    if (trainer->config->memory.head_chunk > 0 || device->host_accessible)
        return;
    const size_t row_bytes =
        (size_t)head->vocabulary * (hs_dtype_bytes(head->logit) + hs_dtype_bytes(head->logit_gradient));
    while (head->head_chunk < HS_MOST_HEAD_CHUNK &&
           (size_t)head->head_chunk * 2 * row_bytes <= device->memory_bytes / 32)
        head->head_chunk *= 2;
}

int64_t hs_trainer_samples_wanted(const HsTrainer *trainer)
{
    enum { TASK_PROMPTS = 3 };
    const int64_t asked = trainer->config->evaluation.show;
    return asked >= 0 ? asked : trainer->config->task_count > 1 ? TASK_PROMPTS : 0;
}
