/* SPDX-License-Identifier: MIT
 *
 * What a run would take of its device, and what follows: refused before anything is allocated, or changed to what
 * fits; and what is said about memory when a run ends, or dies of it.
 */
#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base/log.h"
#include "optim/offload.h"
#include "runtime/config/continual.h"
#include "runtime/model/quantized.h"
#include "runtime/train/run.h"

/* --- from a draft to figures --- */

static double as_bytes(const HsMemoryPlan *plan, HsMemoryCategory category)
{
    return (double)plan->bytes[category];
}

/* The update reads gradients twice (norm, step) and clears them, reads and writes parameters and moments, and weights
 * are packed again; each micro-batch reads weights in both directions and adds to the gradients. */
static double bytes_moved(const HsMemoryPlan *plan)
{
    const double parameters =
        as_bytes(plan, HS_MEMORY_MASTERS) > 0 ? as_bytes(plan, HS_MEMORY_MASTERS) : as_bytes(plan, HS_MEMORY_WEIGHTS);
    const double pass = 2 * as_bytes(plan, HS_MEMORY_GRADIENTS) + 2 * as_bytes(plan, HS_MEMORY_WEIGHTS);
    if (plan->bytes[HS_MEMORY_OFFLOADED] > 0) /* read for the norm and by the copy, and cleared; weights come */
        return 3 * as_bytes(plan, HS_MEMORY_GRADIENTS) + plan->offload_up + (double)plan->micro_batches * pass;
    const double update = 2 * parameters + 2 * as_bytes(plan, HS_MEMORY_MOMENTS) +
                          3 * as_bytes(plan, HS_MEMORY_GRADIENTS) + as_bytes(plan, HS_MEMORY_WEIGHTS) +
                          as_bytes(plan, HS_MEMORY_PENALTY) + 2 * as_bytes(plan, HS_MEMORY_PACKED);
    return update + (double)plan->micro_batches * pass;
}

/* The update's moves wait for the last gradient; those of passes run during them. */
static void measure_offload(const HsTraining *training, HsMemoryPlan *plan)
{
    const HsExchange *exchange = &training->exchange;
    const HsOffloadLevel level = training->optimizer.config.offload;
    const HsSpan *spans = training->spans;
    double weights = 0;
    if (level == HS_OFFLOAD_NONE)
        return;
    for (int v = 0; v < exchange->train_visits.count; v++)
        weights += (double)exchange->weight_stream.groups.groups[exchange->train_visits.items[v].group].bytes;
    const HsOffloadTraffic update = hs_offload_traffic(level, spans, training->span_count);
    const HsOffloadTraffic passes =
        hs_offload_pass_traffic(level, spans, training->span_count, (double)plan->micro_batches,
                                (double)exchange->ranks.own, weights / training->engine.comm->size);
    plan->offload_down = update.down;
    plan->offload_up = update.up;
    plan->offload_host = update.host;
    plan->passes_down = passes.down;
    plan->passes_up = passes.up;
    plan->passes_host = passes.host;
}

void hs_training_measure_plan(const HsTraining *training, HsMemoryPlan *plan)
{
    const HsProgram *pass = &training->train_program;
    const HsDevice *device = &training->engine.device;
    const int64_t own = training->rows_per_step / training->engine.comm->size / pass->batch; /* of this process */
    const double passes = (double)own;
    *plan = (HsMemoryPlan){
        .kept_bytes = pass->kept_bytes,
        .head_bytes = pass->head_bytes,
        .parameters = hs_model_parameter_count(&training->model),
        .micro_batch = pass->batch,
        .micro_batches = own,
        .tokens = training->rows_per_step * pass->sequence_length,
        .actions = own * pass->action_count,
        .forward_flops = passes * pass->forward_flops,
        .backward_flops = passes * pass->backward_flops,
        .recompute_flops = passes * pass->recompute_flops,
    };
    memcpy(plan->bytes, device->account.peak, sizeof plan->bytes);
    plan->device_bytes = hs_memory_sum(plan->bytes) - hs_memory_elsewhere(device, plan->bytes);
    plan->disk_bytes = 2.0 * (double)plan->bytes[HS_MEMORY_ON_DISK];
    measure_offload(training, plan);
    plan->bytes_moved = bytes_moved(plan);
}

HsStatus hs_training_plan(const HsTraining *training, const HsConfig *config, HsMemoryPlan *plan)
{
    HsTraining draft;
    HS_TRY(hs_training_draft(training, config, &draft));
    hs_training_measure_plan(&draft, plan);
    hs_training_release(&draft);
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
    const HsTraining *training;
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
    hs_fit_apply(search->training->config, fit, &config);
    config.distributed.virtual_ranks = search->training->exchange.ranks.asked; /* not what followed from another fit */
    return hs_training_plan(search->training, &config, plan);
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
    const HsDeviceRates rates = hs_nominal_rates(&search->training->engine.device);
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
static HsStatus try_policy(Search *search, int policy, const HsFit *rest)
{
    HsFit fit = *rest;
    fit.recompute = policies[policy].recompute;
    fit.recompute_every = policies[policy].every;
    const HsDeviceRates rates = hs_nominal_rates(&search->training->engine.device);
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

/* Where gradients pass, and the number of virtual ranks is given, a micro-batch is one of them. */
static void leave_possible(Search *search, const HsFit *rest)
{
    const HsTraining *training = search->training;
    const bool passes = training->config->distributed.zero >= 2 || strcmp(rest->offload, "gradients") == 0 ||
                        strcmp(rest->offload, "weights") == 0;
    if (!passes || !training->config->distributed.exact || training->exchange.ranks.asked == 0)
        return;
    const int64_t part = training->rows_per_step / training->exchange.ranks.asked;
    int kept = 0;
    for (int i = 0; i < search->count; i++)
        if (search->rows[i] == part)
            search->rows[kept++] = part;
    search->count = kept;
}

/* All micro-batches and policies, with the rest of a fit as it is. */
static HsStatus try_all(Search *search, const HsFit *rest)
{
    Search own = *search;
    HsFit least = *rest;
    leave_possible(&own, rest);
    if (own.count == 0)
        return HS_OK;
    least.micro_batch = own.rows[own.count - 1];
    least.recompute_every = 1;
    least.recompute = "block";
    HsMemoryPlan plan;
    HS_TRY(plan_fit(&own, &least, &plan));
    if (fixed_bytes(&plan) > own.limit)
        return HS_OK;
    for (int p = 0; p < POLICIES; p++)
        HS_TRY(try_policy(&own, p, rest));
    search->fit = own.fit;
    search->plan = own.plan;
    search->seconds = own.seconds;
    search->found = own.found;
    return HS_OK;
}

HsStatus hs_training_search(const HsTraining *training, size_t limit, HsFit *fit, HsMemoryPlan *plan, bool *found)
{
    Search search = { .training = training, .limit = limit };
    list_divisors(&search, hs_config_micro_batch_most(training->config));
    const HsFit now = hs_fit_of(training->config);
    const int first = (int)hs_training_offload_level(training), most = (int)hs_training_offload_most(training);
    /* In this order: as configured, more and more on the host; then the same with narrow gradients. */
    for (int narrow = now.narrow_gradients; narrow <= 1; narrow++)
        for (int level = first; (level == first || level <= most) && !search.found; level++) {
            HsFit rest = now;
            rest.offload = hs_offload_name((HsOffloadLevel)level);
            rest.narrow_gradients = narrow;
            HS_TRY(try_all(&search, &rest));
        }
    *found = search.found;
    *fit = search.fit;
    *plan = search.plan;
    return HS_OK;
}

/* The name of what sets `bytes`: the device, or a key where that is less. */
static const char *least_memory(const HsTraining *training, size_t *bytes)
{
    const HsConfig *config = training->config;
    const HsDevice *device = &training->engine.device;
    const struct {
        const char *name;
        int64_t bytes;
    } asked[] = { { "memory.limit", config->memory.limit },
                  { device->host_accessible ? "memory.place.cpu" : "memory.place.gpu",
                    device->host_accessible ? config->memory_place.cpu : config->memory_place.gpu } };
    const char *name = device->name;
    *bytes = device->memory_bytes;
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++)
        if (asked[i].bytes > 0 && (size_t)asked[i].bytes < *bytes) {
            *bytes = (size_t)asked[i].bytes;
            name = asked[i].name;
        }
    return name;
}

size_t hs_training_device_memory(const HsTraining *training)
{
    size_t bytes;
    least_memory(training, &bytes);
    return bytes;
}

size_t hs_training_memory_limit(const HsTraining *training)
{
    return (size_t)(training->config->training.target_gpu_util * (double)hs_training_device_memory(training));
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

int hs_training_list_largest(const HsTraining *training, HsTensorUse *uses, int count)
{
    const HsModel *model = &training->model;
    const HsProgram *program = &training->train_program;
    memset(uses, 0, (size_t)count * sizeof *uses);
    for (int i = 0; i < model->param_count; i++) {
        const HsParam *param = &model->params[i];
        HsTensor weight = param->stored.values;
        if (param->stored.layout == HS_LAYOUT_NF4)
            weight = hs_tensor_1d(NULL, HS_U8, (int64_t)hs_param_weight_bytes(param));
        offer_tensor(uses, count, HS_MEMORY_WEIGHTS, param->name, &weight);
        offer_tensor(uses, count, HS_MEMORY_GRADIENTS, param->name, &param->gradient);
    }
    for (int i = 0; i < training->span_count; i++) {
        const HsSpan *span = &training->spans[i];
        offer_tensor(uses, count, HS_MEMORY_MASTERS, span->name, &span->master);
        for (int s = 0; s < HS_SPAN_STATES; s++)
            offer_tensor(uses, count, HS_MEMORY_MOMENTS, span->name, &span->state[s]);
    }
    for (int i = 0; i < program->buffer_count; i++) {
        const HsBuffer *buffer = &program->buffers[i];
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

/* --- against the device --- */

enum { LARGEST_SHOWN = 5, LINE = 512 };

/* "weights 1.5, master weights 3.1": what is there. */
static const char *list_categories(const size_t bytes[HS_MEMORY_COUNT], char text[LINE])
{
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < HS_MEMORY_COUNT && used < LINE; i++)
        if (bytes[i] > 0)
            used += (size_t)snprintf(text + used, LINE - used, "%s%s %.1f", used > 0 ? ", " : "",
                                     hs_memory_row((HsMemoryCategory)i)->name, hs_mebibytes((double)bytes[i]));
    return text;
}

/* Where the memory goes, in lines of the log: totals, then the largest tensors of `owner`. */
static void show_use(const HsTraining *owner, const char *what, const size_t bytes[HS_MEMORY_COUNT])
{
    char text[LINE];
    HsTensorUse uses[LARGEST_SHOWN];
    hs_warn("%s, by use (MiB): %s", what, list_categories(bytes, text));
    int count = hs_training_list_largest(owner, uses, LARGEST_SHOWN);
    for (int i = 0; i < count; i++)
        hs_warn("  %8.1f MiB  %s: %s, %s [%" PRId64 "%s%.0" PRId64 "]", hs_mebibytes((double)uses[i].bytes),
                hs_memory_row(uses[i].category)->name, uses[i].name, hs_dtype_name(uses[i].tensor.dtype),
                uses[i].tensor.shape[0], uses[i].tensor.rank > 1 ? ", " : "",
                uses[i].tensor.rank > 1 ? uses[i].tensor.shape[1] : 0);
}

/* "needs 12 MiB and costs 1.33 times the time a step:" and the lines; says so where nothing fits. */
static void show_alternative(const HsTraining *training, size_t limit)
{
    HsFit fit;
    HsMemoryPlan plan;
    bool found;
    char lines[HS_FIT_TEXT];
    if (hs_training_search(training, limit, &fit, &plan, &found) != HS_OK)
        return;
    if (!found) {
        hs_warn("no micro-batch, recomputation or gradient format makes it fit: lower max_length, model.layers or "
                "model.width, or train on a larger device");
        return;
    }
    const HsDeviceRates rates = hs_nominal_rates(&training->engine.device);
    hs_fit_lines(training->config, &fit, lines);
    if (lines[0] == '\0') {
        hs_warn("the configuration fits as it is (%.0f MiB): something else holds the device's memory",
                hs_mebibytes((double)plan.device_bytes));
        return;
    }
    hs_warn("this would fit: %.0f MiB, a step about %.2f times as long. Write\n%sor set memory.auto_fit: true",
            hs_mebibytes((double)plan.device_bytes),
            hs_memory_plan_seconds(&plan, &rates) / hs_memory_plan_seconds(&training->planned, &rates), lines);
}

static HsStatus refuse(const HsTraining *training, size_t limit, const char *limit_text)
{
    HsTraining draft;
    HS_TRY(hs_training_draft(training, training->config, &draft));
    show_use(&draft, "the plan", training->planned.bytes);
    hs_training_release(&draft);
    show_alternative(training, limit);
    return hs_fail(HS_ENOMEM,
                   "the plan needs %.0f MiB, but %s: nothing was allocated; the lines above say what would fit",
                   hs_mebibytes((double)training->planned.device_bytes), limit_text);
}

/* The limit, and in words where it comes from.  Other processes may hold memory of a GPU: that is not available.
 * The operating system gives the host's memory: what is in use there may become free. */
static HsStatus find_limit(const HsTraining *training, size_t *limit, char text[LINE])
{
    const HsDevice *device = &training->engine.device;
    size_t free_bytes = device->memory_bytes, whole;
    const char *whose = least_memory(training, &whole);
    *limit = hs_training_memory_limit(training);
    snprintf(text, LINE, "target_gpu_util %g of %s's %.0f MiB allows %.0f", training->config->training.target_gpu_util,
             whose, hs_mebibytes((double)whole), hs_mebibytes((double)*limit));
    if (device->host_accessible || !device->free_memory || training->engine.emulated)
        return HS_OK;
    HS_TRY(device->free_memory(device, &free_bytes));
    if (free_bytes >= *limit)
        return HS_OK;
    *limit = free_bytes;
    snprintf(text, LINE, "only %.0f of %s's %.0f MiB are free: other processes hold the rest",
             hs_mebibytes((double)free_bytes), device->name, hs_mebibytes((double)device->memory_bytes));
    return HS_OK;
}

static HsStatus fit(HsTraining *training, size_t limit, const char *limit_text)
{
    HsFit chosen;
    HsMemoryPlan plan;
    bool found;
    char lines[HS_FIT_TEXT];
    HS_TRY(hs_training_search(training, limit, &chosen, &plan, &found));
    if (!found)
        return refuse(training, limit, limit_text);
    hs_info("memory.auto_fit: the plan needs %.0f MiB, but %s; trained with %.0f MiB as if the configuration said\n%s",
            hs_mebibytes((double)training->planned.device_bytes), limit_text, hs_mebibytes((double)plan.device_bytes),
            hs_fit_lines(training->config, &chosen, lines));
    HS_TRY(hs_fit_write(training->config, &chosen));
    training->planned = plan;
    training->config->distributed.virtual_ranks = training->exchange.ranks.asked;
    return hs_training_divide(training); /* how a step is divided follows from the micro-batch, too */
}

/* --- memory.place --- */

/* The first level of memory.offload, from the configured one on, with which the plan fits; none: as it was. */
static HsStatus place_on_host(HsTraining *training, size_t limit)
{
    const int now = (int)hs_training_offload_level(training), most = (int)hs_training_offload_most(training);
    HsFit fit = hs_fit_of(training->config);
    for (int level = now + 1; level <= most && training->planned.device_bytes > limit; level++) {
        HsConfig config;
        HsMemoryPlan plan;
        fit.offload = hs_offload_name((HsOffloadLevel)level);
        hs_fit_apply(training->config, &fit, &config);
        config.distributed.virtual_ranks = training->exchange.ranks.asked;
        HS_TRY(hs_training_plan(training, &config, &plan));
        if (plan.device_bytes > limit)
            continue;
        hs_info("memory.place.gpu: the plan needs %.0f MiB, and %.0f with memory.offload: %s, which is taken",
                hs_mebibytes((double)training->planned.device_bytes), hs_mebibytes((double)plan.device_bytes),
                fit.offload);
        HS_TRY(hs_fit_write(training->config, &fit));
        training->planned = plan;
        training->config->distributed.virtual_ranks = training->exchange.ranks.asked;
        return hs_training_divide(training);
    }
    return HS_OK;
}

/* What of the host's memory the plan takes and cannot be swapped out, and what it may take; 0: unknown. */
static void measure_host(const HsTraining *training, size_t limit, size_t *wanted, size_t *had)
{
    const size_t asked = (size_t)training->config->memory_place.cpu, available = hs_limits_available("");
    if (training->engine.device.host_accessible) {
        *wanted = training->planned.device_bytes;
        *had = limit;
        return;
    }
    *wanted = training->planned.bytes[HS_MEMORY_OFFLOADED];
    *had = asked > 0 && (available == 0 || asked < available) ? asked : available;
}

/* Moments, then masters, where the host has no room. */
static HsStatus place_on_disk(HsTraining *training, size_t limit)
{
    static const char *const what[] = { "nothing", "moments", "moments and masters" };
    const HsDiskLevel most = hs_training_disk_most(training), before = training->on_disk;
    size_t wanted, had;
    measure_host(training, limit, &wanted, &had);
    for (int level = (int)training->on_disk + 1; level <= (int)most && had > 0 && wanted > had; level++) {
        training->on_disk = (HsDiskLevel)level;
        HS_TRY(hs_training_plan(training, training->config, &training->planned));
        measure_host(training, limit, &wanted, &had);
    }
    if (training->on_disk != before)
        hs_info("memory.place: %s go to %s, %.0f MiB: %.0f stay in the host's memory, of %.0f allowed",
                what[training->on_disk], training->config->memory_place.disk,
                hs_mebibytes((double)training->planned.bytes[HS_MEMORY_ON_DISK]), hs_mebibytes((double)wanted),
                hs_mebibytes((double)had));
    return HS_OK;
}

HsStatus hs_training_place(HsTraining *training, size_t limit)
{
    HS_TRY(hs_training_plan(training, training->config, &training->planned));
    if (training->config->memory_place.gpu > 0)
        HS_TRY(place_on_host(training, limit));
    return place_on_disk(training, limit);
}

HsStatus hs_training_check_host(const HsTraining *training, size_t limit)
{
    const HsConfig *config = training->config;
    size_t wanted, had;
    measure_host(training, limit, &wanted, &had);
    if (had == 0 || wanted <= had)
        return HS_OK;
    return hs_fail(HS_ENOMEM,
                   "memory.offload: %s needs %.0f MiB of the host's memory, and %s %.0f: %s, choose optimizer.moments: "
                   "bf16 or adamw8bit, or less of memory.offload",
                   config->memory.offload, hs_mebibytes((double)wanted),
                   config->memory_place.cpu > 0 ? "memory.place.cpu allows" : "the host can give",
                   hs_mebibytes((double)had),
                   config->memory_place.disk[0] ? "allow more" : "name a folder for the rest as memory.place.disk");
}

/* The process with the least room, by what the configuration as it stands would take: the lowest of equals. */
static HsStatus find_fullest(HsComm *comm, int64_t excess, int *fullest)
{
    int64_t most = excess, rank;
    HS_TRY(hs_comm_all_reduce(comm, NULL, &most, 1, HS_I64, HS_COMM_MAX));
    rank = excess == most ? -comm->rank : -comm->size;
    HS_TRY(hs_comm_all_reduce(comm, NULL, &rank, 1, HS_I64, HS_COMM_MAX));
    *fullest = (int)-rank;
    return HS_OK;
}

/* Processes plan their own parts, which are unequal, and a step is divided alike for all: they do as the fullest does.
 * excess: bytes of the configuration beyond the limit, before anything was changed. */
static HsStatus agree(HsTraining *training, int64_t excess)
{
    HsComm *comm = training->engine.comm;
    HsFit fit = hs_fit_of(training->config);
    int fullest;
    HsRecompute policy;
    HS_TRY(hs_recompute_find(fit.recompute, &policy));
    int64_t choice[] = { fit.micro_batch,      policy,
                         fit.recompute_every,  hs_training_offload_level(training),
                         fit.narrow_gradients, training->state.micro_batch };
    HS_TRY(find_fullest(comm, excess, &fullest));
    HS_TRY(hs_comm_broadcast(comm, NULL, choice, sizeof choice / sizeof *choice, HS_I64, fullest));
    fit = (HsFit){ .micro_batch = choice[0],
                   .recompute = hs_recompute_name((HsRecompute)choice[1]),
                   .recompute_every = choice[2],
                   .offload = hs_offload_name((HsOffloadLevel)choice[3]),
                   .narrow_gradients = choice[4] != 0 };
    training->state.micro_batch = choice[5];
    if (comm->rank == fullest)
        return HS_OK;
    char lines[HS_FIT_TEXT];
    if (hs_fit_lines(training->config, &fit, lines)[0] != '\0')
        hs_info("memory: process %d has the least room; all train as if the configuration said\n%s", fullest, lines);
    HS_TRY(hs_fit_write(training->config, &fit));
    training->config->distributed.virtual_ranks = training->exchange.ranks.asked;
    HS_TRY(hs_training_divide(training));
    return hs_training_plan(training, training->config, &training->planned);
}

HsStatus hs_training_fit(HsTraining *training)
{
    const HsConfig *config = training->config;
    const bool adapts = config->memory.auto_fit || config->memory_place.gpu > 0 || training->state.micro_batch > 0;
    size_t limit;
    char limit_text[LINE];
    HS_TRY(find_limit(training, &limit, limit_text));
    HS_TRY(hs_training_plan(training, config, &training->planned));
    const int64_t excess = (int64_t)training->planned.device_bytes - (int64_t)limit;
    HS_TRY(hs_training_place(training, limit));
    if (training->planned.device_bytes > limit && training->state.micro_batch > 0) {
        hs_warn("the micro-batch of %lld that this run had does not fit any more: with the configured one sums will be "
                "rounded "
                "in other places",
                (long long)training->state.micro_batch);
        training->state.micro_batch = 0;
        HS_TRY(hs_training_place(training, limit));
    }
    if (training->planned.device_bytes > limit && config->memory.auto_fit)
        HS_TRY(fit(training, limit, limit_text));
    if (adapts && training->engine.comm->size > 1)
        HS_TRY(agree(training, excess));
    if (training->planned.device_bytes > limit)
        HS_TRY(refuse(training, limit, limit_text));
    HS_TRY(place_on_disk(training, limit)); /* a fit may have moved more to the host */
    return hs_training_check_host(training, limit);
}

void hs_training_explain_memory(const HsTraining *training)
{
    const HsDevice *device = &training->engine.device;
    size_t free_bytes = 0;
    char message[1024];                           /* looking around must not replace what went wrong */
    if (hs_memory_sum(device->account.peak) == 0) /* refused, and explained, before anything was allocated */
        return;
    snprintf(message, sizeof message, "%s", hs_error_message());
    show_use(training, "allocated", device->account.current);
    if (device->free_memory && device->free_memory(device, &free_bytes) == HS_OK) {
        /* What was asked for could not be had, whatever is said to be free: limits of the process, fragments. */
        const size_t less = training->planned.device_bytes / 10 * 9, free_in_all = free_bytes + device->current_bytes;
        show_alternative(training, free_in_all < less ? free_in_all : less);
    }
    (void)hs_fail(HS_ENOMEM, "%s", message);
}
