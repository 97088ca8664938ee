/* SPDX-License-Identifier: MIT
 *
 * The plan of one configuration.
 *
 *   memory by category -> what the limit leaves -> how far the micro-batch could grow -> operations and seconds of a
 *   step -> the fastest way that fits
 */
#include "runtime/study/planner.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "kernels/base/log.h"
#include "runtime/config/continual.h"

enum { NAME_WIDTH = 22 };

/* --- a training on paper --- */

/* The vocabulary without the tasks' texts: from the key, or from a tokenizer that does not depend on them. */
static HsStatus guess_vocabulary(HsTraining *training)
{
    const HsConfig *config = training->config;
    HsTokenizer *tokenizer = NULL;
    if (config->model.vocabulary > 0) {
        training->vocabulary = config->model.vocabulary;
        return HS_OK;
    }
    if (hs_is(config->tokenizer.kind, "char"))
        return hs_fail(HS_ECONFIG, "the vocabulary is not known: set model.vocabulary");
    HS_TRY(hs_tokenizer_create(config->tokenizer.kind, config->tokenizer.path[0] ? config->tokenizer.path : NULL, NULL,
                               0, &tokenizer));
    training->vocabulary = hs_tokenizer_vocabulary(tokenizer);
    hs_tokenizer_destroy(tokenizer);
    return HS_OK;
}

/* Text is read, made and encoded only where that takes about a second. */
static HsStatus read_small_data(HsTraining *training)
{
    const size_t most_bytes = (size_t)16 << 20;
    size_t bytes;
    HS_TRY(hs_task_data_bytes(training->config, &bytes));
    if (bytes > most_bytes)
        return hs_fail(HS_ENOMEM, "%.0f MiB of text are more than the %.0f that a plan reads",
                       hs_mebibytes((double)bytes), hs_mebibytes((double)most_bytes));
    return hs_task_data_create(training->config, NULL, &training->data);
}

/* Steps follow from keys alone where no task's length is in passes over its data. */
static bool steps_need_data(const HsConfig *config)
{
    bool needed = false;
    for (int i = 0; i < config->task_count; i++) {
        const HsTaskConfig *task = &config->tasks[i];
        needed |= task->steps == 0 && task->tokens == 0 && (task->epochs > 0 || config->training.max_steps == 0);
    }
    return needed;
}

/* Texts that are missing or long are not needed for a plan. */
static HsStatus look_at_data(HsTraining *training)
{
    char reason[512];
    if (read_small_data(training) == HS_OK) {
        training->has_data = true;
        training->vocabulary = hs_tokenizer_vocabulary(training->data.tokenizer);
        training->masked = hs_task_data_masked(&training->data);
        return hs_training_count_steps(training);
    }
    snprintf(reason, sizeof reason, "%.511s", hs_error_message());
    HsStatus status = guess_vocabulary(training);
    if (status != HS_OK)
        return hs_error_prefix(status, "%s", reason);
    const bool unknown = steps_need_data(training->config);
    hs_warn("planned without the tasks' data (%s)%s", reason, unknown ? ": the number of steps is not known" : "");
    return unknown ? HS_OK : hs_training_count_steps(training);
}

static bool names_gpu(const char *device)
{
    return strcmp(device, "auto") == 0 || strncmp(device, "cuda", 4) == 0;
}

/* The first of `processes`, without the others: a plan exchanges nothing. */
static HsComm *paper_rank(int processes)
{
    static HsComm comm;
    comm = (HsComm){ .size = processes > 1 ? processes : 1, .local_size = processes > 1 ? processes : 1 };
    return &comm;
}

static HsStatus open_engine(HsTraining *training, const HsPlannerOptions *options)
{
    HsEngineOptions engine = hs_engine_options(training->config);
    engine.allocator = NULL; /* a plan allocates nothing, and is the same with all of them */
    const bool absent = options->device_bytes > 0 && names_gpu(engine.device);
    if (options->card && !absent)
        return hs_fail(HS_ECONFIG, "--card %s is a GPU, and the configuration's device is %s: add device=cuda",
                       options->card->name, engine.device);
    if (absent) { /* the emulator runs the GPU backend's own host code: the same scratch, the same layout */
        engine.device = "emu";
        engine.cublaslt = false;
        engine.tuning = NULL; /* measured on that GPU */
        engine.card = options->card;
    }
    HS_TRY(hs_engine_init(&training->engine, &engine));
    training->engine.comm = paper_rank((int)training->config->distributed.processes);
    if (options->device_bytes > 0)
        training->engine.device.memory_bytes = options->device_bytes;
    if (absent)
        snprintf(training->engine.why, sizeof training->engine.why,
                 "%s of %.0f MiB that is not here, planned with the GPU kernels' own sizes",
                 options->card ? options->card->name : "a GPU", hs_mebibytes((double)options->device_bytes));
    return HS_OK;
}

HsStatus hs_planner_open(HsConfig *config, const HsPlannerOptions *options, HsTraining *training)
{
    memset(training, 0, sizeof *training);
    training->config = config;
    HS_TRY(open_engine(training, options));
    HS_TRY(hs_config_continual(config, &training->continual_config));
    HS_TRY(hs_training_divide(training)); /* steps are counted in its rows */
    HS_TRY(look_at_data(training));
    return hs_precision_resolve(config, training->engine.products, &training->precision, training->precision_why,
                                sizeof training->precision_why);
}

/* --- memory --- */

static void print_row(FILE *out, const char *name, double bytes, double parameters, const char *doc)
{
    fprintf(out, "  %-*s %10.1f", NAME_WIDTH, name, hs_mebibytes(bytes));
    if (parameters > 0)
        fprintf(out, " %8.2f", bytes / parameters);
    else
        fprintf(out, " %8s", "");
    fprintf(out, "  %s\n", doc);
}

static void print_activations(const HsMemoryPlan *plan, FILE *out)
{
    const double all = (double)plan->bytes[HS_MEMORY_ACTIVATIONS];
    const double kept = (double)plan->kept_bytes, head = (double)plan->head_bytes;
    char doc[160];
    snprintf(doc, sizeof doc, "of these: kept from forward to backward");
    print_row(out, "  kept", kept, 0, doc);
    print_row(out, "  recomputed, passing", all > kept + head ? all - kept - head : 0, 0,
              "of these: made again or needed for a moment; these places are used many times");
    print_row(out, "  logits", head, 0, "of these: memory.head_chunk rows of logits and their gradient");
}

static void print_memory(const HsMemoryPlan *plan, FILE *out)
{
    fprintf(out, "memory                        MiB  B/param  what it holds\n");
    for (int i = 0; i < HS_MEMORY_COUNT; i++) {
        const HsMemoryCategory category = (HsMemoryCategory)i;
        const HsMemoryRow *row = hs_memory_row(category);
        if (category == HS_MEMORY_CACHES) /* of generated text: not training's */
            continue;
        print_row(out, row->name, (double)plan->bytes[i],
                  hs_planner_is_per_parameter(category) ? (double)plan->parameters : 0, row->doc);
        if (category == HS_MEMORY_ACTIVATIONS)
            print_activations(plan, out);
    }
    print_row(out, "total", (double)plan->device_bytes, (double)plan->parameters,
              plan->device_bytes < hs_memory_sum(plan->bytes)
                  ? "in the device's memory: without what lies on the host or on disk"
                  : "");
}

/* Where the device is the CPU the process holds what the plan says, and more. */
static void print_process(const HsTraining *training, const HsMemoryPlan *plan, FILE *out)
{
    const HsProcessPlan process = hs_training_plan_process(training, hs_memory_sum(plan->bytes));
    if (!training->engine.device.host_accessible || training->engine.emulated)
        return;
    fprintf(
        out,
        "the process: at most %.1f MiB: these, %.1f of data in memory%s, %.1f of batches made ahead, and %.0f for the "
        "program and for reading text\n",
        hs_mebibytes((double)process.bytes), hs_mebibytes((double)process.data),
        training->has_data ? "" : " (not known)", hs_mebibytes((double)process.batches),
        hs_mebibytes((double)process.program));
}

/* --- what is left --- */

static HsStatus print_room(const HsTraining *training, const HsMemoryPlan *plan, size_t limit, FILE *out)
{
    const double left = (double)limit - (double)plan->device_bytes;
    int64_t most;
    fprintf(out, "limit: target_gpu_util %g of %.0f MiB = %.0f MiB; %s %.0f MiB\n",
            training->config->training.target_gpu_util, hs_mebibytes((double)hs_training_device_memory(training)),
            hs_mebibytes((double)limit), left >= 0 ? "left:" : "the plan exceeds it by",
            hs_mebibytes(left >= 0 ? left : -left));
    fprintf(out, "micro-batch: %" PRId64 " sequences at a time, %" PRId64 " time%s a step", plan->micro_batch,
            plan->micro_batches, plan->micro_batches == 1 ? "" : "s");
    if (training->config->training.batch_size == training->rows_per_step &&
        training->config->training.gradient_accumulation_steps > 1)
        fprintf(out, " (mer takes the %" PRId64 " batches of an accumulation as separate steps)",
                training->config->training.gradient_accumulation_steps);
    if (left >= 0) {
        HS_TRY(hs_planner_find_most(training, &hs_planner_rows, training->config, plan->micro_batch, plan->device_bytes,
                                    limit, HS_PLANNER_FAR, &most));
        fprintf(out, most > plan->micro_batch ? "; it could grow to %" PRId64 "\n" : "; it cannot grow\n", most);
    } else {
        fprintf(out, "\n");
    }
    return HS_OK;
}

/* --- time --- */

/* What does not fit has no time on this device, and nothing is measured for it. */
static void print_time(const HsTraining *training, const HsMemoryPlan *plan, const HsPlannerOptions *options,
                       size_t limit, FILE *out)
{
    const HsLengths *lengths = &training->lengths;
    const double flops = plan->forward_flops + plan->backward_flops + plan->recompute_flops;
    if (plan->device_bytes > limit) {
        fprintf(out, "time: none, as the plan does not fit\n");
        return;
    }
    const size_t parameters = hs_planner_parameter_bytes(plan);
    const HsDeviceRates rates =
        hs_planner_rates(training, options, &training->precision, parameters < limit / 8 ? parameters : limit / 8);
    if (rates.flops <= 0) {
        fprintf(out, "time: no rate was measured for this device, so none is given\n");
        return;
    }
    const double seconds = hs_memory_plan_seconds(plan, &rates);
    fprintf(out, "time: %.3g s of products at %s %.0f GFLOP/s (%s)", flops / rates.flops,
            options->card ? "the datasheet's" : "the measured", rates.flops * 1e-9, training->precision.name);
    if (rates.bytes > 0)
        fprintf(out, ", %.3g s of parameters moved at %.1f GB/s", plan->bytes_moved / rates.bytes, rates.bytes * 1e-9);
    fprintf(out, ": at least %.3g s a step, at most %.0f tokens/s\n", seconds, (double)plan->tokens / seconds);
    if (lengths->total_steps > 0)
        fprintf(out, "the run: %" PRId64 " steps, at least %.0f s\n", lengths->total_steps,
                (double)lengths->total_steps * seconds);
}

static void print_offload(const HsMemoryPlan *plan, FILE *out)
{
    if (plan->disk_bytes > 0)
        fprintf(out, "memory.place.disk: a step reads and writes %.1f MiB, at %.0f GB/s (nominal): %.3g s\n",
                hs_mebibytes(plan->disk_bytes), HS_DISK_BYTES_A_SECOND * 1e-9,
                plan->disk_bytes / HS_DISK_BYTES_A_SECOND);
    if (plan->offload_host <= 0)
        return;
    fprintf(out,
            "memory.offload: the update moves %.1f MiB to the host and %.1f back, at %.0f GB/s each way, and reads and "
            "writes %.1f MiB there at %.0f GB/s (nominal rates), at the same time: %.3g s\n",
            hs_mebibytes(plan->offload_down), hs_mebibytes(plan->offload_up), HS_LINK_BYTES_A_SECOND * 1e-9,
            hs_mebibytes(plan->offload_host), HS_HOST_BYTES_A_SECOND * 1e-9, hs_memory_plan_offload_seconds(plan));
    if (plan->passes_host > 0)
        fprintf(
            out,
            "  passes move %.1f MiB to the host and %.1f from it, while computing: at least %.3g s at these rates\n",
            hs_mebibytes(plan->passes_down), hs_mebibytes(plan->passes_up), hs_memory_plan_passes_seconds(plan));
}

static void print_cost(const HsTraining *training, const HsMemoryPlan *plan, const HsPlannerOptions *options,
                       size_t limit, FILE *out)
{
    fprintf(out,
            "a step: %" PRId64 " tokens; %.3g GFLOP forward, %.3g backward, %.3g recomputed: %.1f MFLOP a token; %.0f "
            "MiB of parameters, gradients and moments moved\n",
            plan->tokens, plan->forward_flops * 1e-9, plan->backward_flops * 1e-9, plan->recompute_flops * 1e-9,
            1e-6 * (plan->forward_flops + plan->backward_flops + plan->recompute_flops) / (double)plan->tokens,
            hs_mebibytes(plan->bytes_moved));
    print_offload(plan, out);
    print_time(training, plan, options, limit, out);
}

/* --- what fits --- */

static HsStatus print_fit(const HsTraining *training, const HsMemoryPlan *planned, size_t limit, FILE *out)
{
    HsFit fit;
    HsMemoryPlan plan;
    bool found;
    char lines[HS_FIT_TEXT];
    HS_TRY(hs_training_search(training, limit, &fit, &plan, &found));
    if (!found) {
        fprintf(out, "nothing fits: no micro-batch, recomputation or gradient format is enough; lower max_length, "
                     "model.layers or model.width\n");
        return HS_OK;
    }
    hs_fit_lines(training->config, &fit, lines);
    if (lines[0] == '\0') {
        fprintf(out, "fit: the configuration is the fastest way that fits\n");
        return HS_OK;
    }
    const HsDeviceRates rates = hs_nominal_rates(&training->engine.device);
    fprintf(out,
            "fit: the fastest way in %.0f MiB takes %.0f MiB and about %.2f times the time of the plan above; the "
            "effective batch stays:\n%s",
            hs_mebibytes((double)limit), hs_mebibytes((double)plan.device_bytes),
            hs_memory_plan_seconds(&plan, &rates) / hs_memory_plan_seconds(planned, &rates), lines);
    return HS_OK;
}

static void print_line(void *user, const char *text)
{
    fprintf(user, "%s\n", text);
}

static HsStatus print_plan(HsTraining *training, const HsPlannerOptions *options, FILE *out)
{
    HsTraining draft;
    HsMemoryPlan plan;
    char limits[HS_LIMITS_TEXT];
    const size_t limit = hs_training_memory_limit(training);
    HS_TRY(hs_training_place(training, limit));
    HS_TRY(hs_training_draft(training, training->config, &draft));
    hs_training_measure_plan(&draft, &plan);
    fprintf(out, "device: %s\n", training->engine.why);
    if (hs_limits_describe(&training->engine.device.limits, limits)[0] != '\0')
        fprintf(out, "control groups allow: %s\n", limits);
    fprintf(out, "precision: %s\n", training->precision_why);
    fprintf(out, "model: %s, %" PRId64 " layers, width %" PRId64 ", vocabulary %" PRId64 ", %.3f million parameters\n",
            draft.model.family, draft.model.layers, draft.model.width, draft.model.vocabulary,
            1e-6 * (double)plan.parameters);
    hs_training_describe_rules(&draft, print_line, out);
    fprintf(out, "\n");
    print_memory(&plan, out);
    print_process(training, &plan, out);
    fprintf(out, "\n");
    HsStatus status = HS_OK;
    if (options->layers)
        status = hs_planner_print_layers(&draft, out);
    hs_training_release(&draft);
    HS_TRY(status);
    HS_TRY(hs_planner_print_processes(training, out));
    HS_TRY(print_room(training, &plan, limit, out));
    print_cost(training, &plan, options, limit, out);
    const bool over = plan.device_bytes > limit;
    if (over || options->fit)
        HS_TRY(print_fit(training, &plan, limit, out));
    fflush(out);
    /* A machine that is not here may have another host. */
    if (!over)
        return training->config->memory_place.cpu > 0 ? hs_training_check_host(training, limit) : HS_OK;
    return hs_fail(HS_ENOMEM, "the plan needs %.0f MiB and the limit is %.0f: training would refuse to start",
                   hs_mebibytes((double)plan.device_bytes), hs_mebibytes((double)limit));
}

/* Of a model from scratch, and of one process on a device that is here and has a rate. */
static bool trains_here(const HsTraining *training, const HsPlannerOptions *options)
{
    return options->device_bytes == 0 && !training->engine.emulated && training->engine.context.backend->peak_flops &&
           training->config->training.init_from[0] == '\0' && training->config->distributed.processes <= 1;
}

static double text_tokens(const HsTraining *training)
{
    double tokens = 0;
    for (int i = 0; training->has_data && i < training->data.count; i++)
        tokens += (double)training->data.tasks[i].train.count;
    return tokens;
}

HsStatus hs_planner_run(HsConfig *config, const HsPlannerOptions *options, FILE *out, HsPlannedModel *about)
{
    HsTraining training;
    HsStatus status = hs_planner_open(config, options, &training);
    if (status == HS_OK)
        status = options->ladder    ? hs_planner_print_ladder(&training, options, out)
                 : options->table   ? hs_planner_print_table(&training, options, out)
                 : options->scaling ? hs_planner_print_scaling(&training, options, out)
                 : options->step    ? hs_planner_print_step(&training, options, out)
                                    : print_plan(&training, options, out);
    *about = (HsPlannedModel){ .trains_here = status == HS_OK && trains_here(&training, options),
                               .vocabulary = training.vocabulary,
                               .text_tokens = text_tokens(&training) };
    hs_training_destroy(&training);
    return status;
}
