/* SPDX-License-Identifier: MIT
 *
 * How an optimizer step is divided: its sequences into virtual ranks (virtual_ranks.h), those among processes, each
 * into micro-batches, and a micro-batch's rows into chunks of the head.
 */
#include <stdio.h>
#include <string.h>

#include "kernels/base/log.h"
#include "runtime/config/continual.h"
#include "runtime/train/run.h"

/* The rows of a batch, or those that are drawn in addition to it, in equal parts of whole micro-batches. */
static HsStatus check_rows(const HsTraining *training, int64_t rows, const char *what)
{
    const int64_t count = training->exchange.ranks.count, micro_batch = hs_config_micro_batch(training->config);
    const int processes = training->engine.comm->size;
    if (rows % count == 0 && rows / count % micro_batch == 0)
        return HS_OK;
    return hs_fail(HS_ECONFIG,
                   "%lld sequences of %s cannot be cut into %lld equal parts (distributed.virtual_ranks%s) of whole "
                   "micro-batches (%lld sequences): change batch_size, gradient_accumulation_steps%s or the number of "
                   "processes",
                   (long long)rows, what, (long long)count, processes > 1 ? ", or one a process" : "",
                   (long long)micro_batch, training->config->memory.micro_batch > 0 ? ", memory.micro_batch" : "");
}

static bool is_power_of_two(int64_t count)
{
    return (count & (count - 1)) == 0;
}

/* Gradients that pass are summed once a micro-batch, and consecutive virtual ranks by consecutive processes: so that the
 * sums are those of the other stages, each virtual rank is one micro-batch, and rounds are subtrees. */
static HsStatus check_passing(const HsTraining *training, int64_t rows)
{
    const HsExchange *exchange = &training->exchange;
    const HsConfig *config = training->config;
    const int64_t part = rows / exchange->ranks.count, batch = hs_config_micro_batch(config);
    const int processes = training->engine.comm->size;
    char cause[64];
    if (config->distributed.zero >= 2)
        snprintf(cause, sizeof cause, "distributed.zero: %lld", (long long)config->distributed.zero);
    else
        snprintf(cause, sizeof cause, "memory.offload: %s", config->memory.offload);
    if (config->distributed.exact && part != batch)
        return hs_fail(HS_ECONFIG,
                       "%s sums gradients of each micro-batch (%lld sequences), and a virtual rank has %lld: set "
                       "distributed.virtual_ranks to %lld, or distributed.exact to false",
                       cause, (long long)batch, (long long)part, (long long)(rows / batch));
    if (exchange->ranks.own > 1 && !is_power_of_two(processes))
        return hs_fail(
            HS_ECONFIG,
            "%s needs a number of processes that is a power of two, or as many virtual ranks as processes (%d): there "
            "are %lld",
            cause, processes, (long long)exchange->ranks.count);
    return HS_OK;
}

/* Configured value; default where gradients pass (ZeRO-2/3, offload): one virtual rank per micro-batch. */
static int64_t virtual_ranks(const HsTraining *training)
{
    const HsConfig *config = training->config;
    const int64_t own = training->rows_per_step / training->engine.comm->size;
    int64_t batch = hs_config_micro_batch(config);
    if (config->distributed.virtual_ranks > 0 || !config->distributed.exact || !hs_training_passes_gradients(training))
        return config->distributed.virtual_ranks;
    while (batch > 1 && (own % batch != 0 || config->training.batch_size % batch != 0))
        batch--;
    return training->rows_per_step / batch;
}

HsStatus hs_training_divide(HsTraining *training)
{
    HsExchange *exchange = &training->exchange;
    HsConfig *config = training->config;
    const HsComm *comm = training->engine.comm;
    HS_TRY(hs_training_check_offload(training));
    training->rows_per_step = hs_config_rows_per_step(config);
    if (!config->distributed.exact && config->distributed.virtual_ranks > 0)
        return hs_fail(
            HS_ECONFIG,
            "distributed.virtual_ranks: %lld needs distributed.exact: true, which is set to false: leave one "
            "of them out",
            (long long)config->distributed.virtual_ranks);
    const int64_t asked = config->distributed.virtual_ranks;
    HS_TRY(hs_virtual_ranks_divide(virtual_ranks(training), comm, &exchange->ranks));
    exchange->ranks.asked = asked;
    /* As it is from now on, also for a checkpoint that another number of processes continues.  0: one piece. */
    if (config->distributed.exact)
        config->distributed.virtual_ranks = exchange->ranks.count > 1 ? exchange->ranks.count : 0;
    if (exchange->ranks.count == 1)
        return hs_training_passes_gradients(training) ? check_passing(training, training->rows_per_step) : HS_OK;
    const HsReplayPlan plan = hs_continual_replay_plan(&training->continual_config, training->rows_per_step);
    const struct {
        int64_t rows;
        const char *what;
    } passes[] = { { training->rows_per_step, "an optimizer step" },
                   { plan.reference_rows, "the reference gradient" } };
    for (int i = 0; i < 2 && passes[i].rows > 0; i++) {
        HS_TRY(check_rows(training, passes[i].rows, passes[i].what));
        if (hs_training_passes_gradients(training))
            HS_TRY(check_passing(training, passes[i].rows));
    }
    return HS_OK;
}

/* A run that does not set its virtual ranks continues with those that it was begun with. */
HsStatus hs_training_keep_virtual_ranks(HsTraining *training, const char *folder)
{
    HsConfig *config = training->config, saved;
    static const char *const without_limit[] = { "memory.limit=0" };
    char path[4096];
    if (!folder || config->distributed.virtual_ranks > 0 || !config->distributed.exact)
        return HS_OK;
    snprintf(path, sizeof path, "%s/config.yaml", folder);
    HS_TRY(hs_config_load_saved(&saved, path, 1, without_limit));
    const int64_t kept = saved.distributed.virtual_ranks;
    hs_config_deinit(&saved);
    config->distributed.virtual_ranks = kept;
    if (kept > 0 || training->engine.comm->size == 1 || hs_is(config->training.resume, "changed"))
        return HS_OK;
    return hs_fail(HS_ECONFIG,
                   "%s was made by one process with undivided batches (distributed.virtual_ranks: 1). To continue with "
                   "%d processes, which round sums in other places: resume=changed",
                   folder, training->engine.comm->size);
}

int64_t hs_training_micro_batch(const HsTraining *training)
{
    const HsConfig *config = training->config;
    if (training->state.micro_batch > 0)
        return training->state.micro_batch;
    return hs_config_micro_batch(config);
}

/* Bytes of a row's logits and, where they are not in the same place (head_loss.c), of their gradient. */
static size_t logit_row_bytes(const HsAttributes *head)
{
    const bool apart = head->logit_gradient != head->trained_logit || head->own_logit_gradient;
    return (size_t)head->vocabulary *
           (hs_dtype_bytes(head->trained_logit) + (apart ? hs_dtype_bytes(head->logit_gradient) : 0));
}

/* The head's gradient [V,C] is read and written once a chunk: on a GPU, where no cache holds a chunk anyway, few large
 * ones are faster.  From the device's memory alone, so that no limit changes a sum's order. */
void hs_training_choose_head_chunk(const HsTraining *training, HsModel *model)
{
    const HsDevice *device = &training->engine.device;
    HsAttributes *head = &model->nodes[model->loss_node].attributes;
    if (training->config->memory.head_chunk > 0 || device->host_accessible)
        return;
    const size_t row_bytes = logit_row_bytes(head);
    while (head->head_chunk < HS_MOST_HEAD_CHUNK &&
           (size_t)head->head_chunk * 2 * row_bytes <= device->memory_bytes / 32)
        head->head_chunk *= 2;
}

int64_t hs_training_samples_wanted(const HsTraining *training)
{
    enum { TASK_PROMPTS = 3 };
    const int64_t asked = training->config->evaluation.show;
    return asked >= 0 ? asked : training->config->task_count > 1 ? TASK_PROMPTS : 0;
}
