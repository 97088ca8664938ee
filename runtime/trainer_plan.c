/* SPDX-License-Identifier: MIT
 *
 * What a run would take of its device, what else would fit, and the refusal of what does not.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base/log.h"
#include "runtime/trainer.h"

/* --- from a draft to figures --- */

static double as_bytes(const HsMemoryPlan *plan, HsMemoryCategory category)
{
    return (double)plan->bytes[category];
}

/* The update reads gradients twice (norm, step) and clears them, reads and writes parameters and moments, and weights
 * are packed anew; each micro-batch reads weights in both directions and adds to the gradients. */
static double bytes_moved(const HsMemoryPlan *plan)
{
    const double parameters =
        as_bytes(plan, HS_MEMORY_MASTERS) > 0 ? as_bytes(plan, HS_MEMORY_MASTERS) : as_bytes(plan, HS_MEMORY_WEIGHTS);
    const double update = 2 * parameters + 2 * as_bytes(plan, HS_MEMORY_MOMENTS) +
                          3 * as_bytes(plan, HS_MEMORY_GRADIENTS) + as_bytes(plan, HS_MEMORY_WEIGHTS) +
                          as_bytes(plan, HS_MEMORY_PENALTY) + 2 * as_bytes(plan, HS_MEMORY_PACKED);
    const double pass = 2 * as_bytes(plan, HS_MEMORY_GRADIENTS) + 2 * as_bytes(plan, HS_MEMORY_WEIGHTS);
    return update + (double)plan->micro_batches * pass;
}

void hs_trainer_measure_plan(const HsTrainer *trainer, HsMemoryPlan *plan)
{
    const HsPlan *pass = &trainer->train_plan;
    const HsDevice *device = &trainer->engine.device;
    const double passes = (double)(trainer->rows_per_step / pass->batch);
    *plan = (HsMemoryPlan){
        .kept_bytes = pass->kept_bytes,
        .head_bytes = pass->head_bytes,
        .parameters = hs_model_parameter_count(&trainer->model),
        .micro_batch = pass->batch,
        .micro_batches = trainer->rows_per_step / pass->batch,
        .tokens = trainer->rows_per_step * pass->sequence_length,
        .actions = trainer->rows_per_step / pass->batch * pass->action_count,
        .forward_flops = passes * pass->forward_flops,
        .backward_flops = passes * pass->backward_flops,
        .recompute_flops = passes * pass->recompute_flops,
    };
    memcpy(plan->bytes, device->account.peak, sizeof plan->bytes);
    plan->device_bytes = hs_memory_sum(plan->bytes);
    if (!device->host_accessible)
        plan->device_bytes -= plan->bytes[HS_MEMORY_REPLAY];
    plan->bytes_moved = bytes_moved(plan);
}

HsStatus hs_trainer_plan(const HsTrainer *trainer, const HsConfig *config, HsMemoryPlan *plan)
{
    HsTrainer draft;
    HS_TRY(hs_trainer_draft(trainer, config, &draft));
    hs_trainer_measure_plan(&draft, plan);
    hs_trainer_release(&draft);
    return HS_OK;
}

/* --- what would fit --- */

static const struct {
    const char *recompute;
    int64_t every;
} policies[] = { { "none", 1 }, { "mlp", 1 }, { "attention", 1 }, { "block", 2 }, { "block", 1 } };
enum { POLICIES = sizeof policies / sizeof *policies };

enum { MOST_DIVISORS = 256 }; /* no number of sequences that batch_size may be has more than 240 */

typedef struct Search {
    const HsTrainer *trainer;
    size_t limit;
    int64_t rows[MOST_DIVISORS]; /* micro-batches: the divisors of the batch, large ones first */
    int count;
    HsFit fit;
    HsMemoryPlan plan;
    double seconds;
    bool found;
} Search;

static void list_divisors(Search *search, int64_t batch)
{
    for (int64_t rows = 1; rows <= batch / rows; rows++) {
        if (batch % rows != 0)
            continue;
        assert(search->count + 2 <= MOST_DIVISORS);
        search->rows[search->count++] = batch / rows;
    }
    /* Their counterparts: the small ones; a square's root stands once. */
    for (int i = search->count - 1; i >= 0; i--)
        if (batch / search->rows[i] != search->rows[i])
            search->rows[search->count++] = batch / search->rows[i];
}

static HsStatus plan_fit(const Search *search, const HsFit *fit, HsMemoryPlan *plan)
{
    HsConfig config;
    hs_fit_apply(search->trainer->config, fit, &config);
    return hs_trainer_plan(search->trainer, &config, plan);
}

/* What no micro-batch and no policy changes. */
static size_t fixed_bytes(const HsMemoryPlan *plan)
{
    const size_t changing = plan->bytes[HS_MEMORY_ACTIVATIONS] + plan->bytes[HS_MEMORY_WORKSPACE];
    return plan->device_bytes - changing;
}

/* Of equals the first stays: the larger micro-batch, then the earlier policy, as they are offered. */
static void offer_fit(Search *search, const HsFit *fit, const HsMemoryPlan *plan)
{
    const HsDeviceRates rates = hs_nominal_rates(&search->trainer->engine.device);
    const double seconds = hs_memory_plan_seconds(plan, &rates);
    if (search->found &&
        (seconds > search->seconds || (seconds >= search->seconds && fit->micro_batch <= search->fit.micro_batch)))
        return;
    search->fit = *fit;
    search->plan = *plan;
    search->seconds = seconds;
    search->found = true;
}

/* A micro-batch's place in search->rows and what its plan takes. */
typedef struct Tried {
    int at;
    double bytes;
} Tried;

/* Where the line through two tried ones meets the limit: the largest micro-batch between them that would fit. */
static int guess_between(const Search *search, const Tried *low, const Tried *high)
{
    const double rows_low = (double)search->rows[low->at], rows_high = (double)search->rows[high->at];
    const double share = ((double)search->limit - high->bytes) / (low->bytes - high->bytes);
    int at = low->at + 1;
    while (at < high->at - 1 && (double)search->rows[at] > rows_high + share * (rows_low - rows_high))
        at++;
    return at;
}

/* The largest micro-batch of a policy that fits is its fastest: fewer sequences at a time need less memory, and read
 * the weights and add to the gradients more often.  So the largest of all says how fast the policy can be. */
static HsStatus try_policy(Search *search, int policy, bool narrow_gradients)
{
    HsFit fit = { 0, policies[policy].recompute, policies[policy].every, narrow_gradients };
    const HsDeviceRates rates = hs_nominal_rates(&search->trainer->engine.device);
    Tried low = { -1, 0 }, high = { search->count, 0 }; /* low does not fit, high does */
    while (high.at - low.at > 1) {
        Tried now = { low.at < 0 ? 0 : high.at == search->count ? high.at - 1 : guess_between(search, &low, &high), 0 };
        HsMemoryPlan plan;
        fit.micro_batch = search->rows[now.at];
        HS_TRY(plan_fit(search, &fit, &plan));
        now.bytes = (double)plan.device_bytes;
        if (plan.device_bytes <= search->limit) {
            high = now;
            offer_fit(search, &fit, &plan);
            continue;
        }
        low = now;
        if (search->found && hs_memory_plan_seconds(&plan, &rates) > search->seconds)
            return HS_OK; /* even this one is too slow, and all that are left are slower */
    }
    return HS_OK;
}

static HsStatus try_all(Search *search, bool narrow_gradients)
{
    const HsFit least = { 1, "block", 1, narrow_gradients };
    HsMemoryPlan plan;
    HS_TRY(plan_fit(search, &least, &plan));
    if (fixed_bytes(&plan) > search->limit)
        return HS_OK;
    for (int p = 0; p < POLICIES; p++)
        HS_TRY(try_policy(search, p, narrow_gradients));
    return HS_OK;
}

HsStatus hs_trainer_search(const HsTrainer *trainer, size_t limit, HsFit *fit, HsMemoryPlan *plan, bool *found)
{
    Search search = { .trainer = trainer, .limit = limit };
    const bool narrow = hs_fit_of(trainer->config).narrow_gradients;
    list_divisors(&search, trainer->config->training.batch_size);
    HS_TRY(try_all(&search, narrow));
    if (!search.found && !narrow)
        HS_TRY(try_all(&search, true));
    *found = search.found;
    *fit = search.fit;
    *plan = search.plan;
    return HS_OK;
}

size_t hs_trainer_device_memory(const HsTrainer *trainer)
{
    const size_t own = trainer->engine.device.memory_bytes, asked = (size_t)trainer->config->memory.limit;
    return asked > 0 && asked < own ? asked : own;
}

size_t hs_trainer_memory_limit(const HsTrainer *trainer)
{
    return (size_t)(trainer->config->training.target_gpu_util * (double)hs_trainer_device_memory(trainer));
}

/* --- the largest tensors --- */

static void offer(HsTensorUse *uses, int count, const HsTensorUse *use)
{
    int at = count;
    while (at > 0 && uses[at - 1].bytes < use->bytes)
        at--;
    if (at == count)
        return;
    memmove(uses + at + 1, uses + at, (size_t)(count - at - 1) * sizeof *uses);
    uses[at] = *use;
}

static void offer_tensor(HsTensorUse *uses, int count, HsMemoryCategory category, const char *name,
                         const HsTensor *tensor)
{
    HsTensorUse use = { .category = category, .tensor = *tensor };
    if (!hs_tensor_present(tensor))
        return;
    use.bytes = hs_tensor_bytes(tensor);
    snprintf(use.name, sizeof use.name, "%s", name);
    offer(uses, count, &use);
}

int hs_trainer_list_largest(const HsTrainer *trainer, HsTensorUse *uses, int count)
{
    const HsModel *model = &trainer->model;
    const HsPlan *plan = &trainer->train_plan;
    memset(uses, 0, (size_t)count * sizeof *uses);
    for (int i = 0; i < model->param_count; i++) {
        const HsParam *param = &model->params[i];
        offer_tensor(uses, count, HS_MEMORY_WEIGHTS, param->name, &param->weight);
        offer_tensor(uses, count, HS_MEMORY_MASTERS, param->name, &param->master);
        offer_tensor(uses, count, HS_MEMORY_GRADIENTS, param->name, &param->gradient);
        for (int s = 0; s < 2; s++)
            offer_tensor(uses, count, HS_MEMORY_MOMENTS, param->name, &param->state[s]);
    }
    for (int i = 0; i < plan->buffer_count; i++) {
        const HsBuffer *buffer = &plan->buffers[i];
        char name[96];
        snprintf(name, sizeof name, "%s%s", buffer->gradient ? "gradient of " : "",
                 buffer->slot == HS_NONE ? "scratch of a layer" : model->slots[buffer->slot].name);
        offer_tensor(uses, count, HS_MEMORY_ACTIVATIONS, name, &buffer->tensor);
    }
    int used = 0;
    while (used < count && uses[used].bytes > 0)
        used++;
    return used;
}
