/* SPDX-License-Identifier: MIT
 *
 * Making a training: engine, precision, data, model, programs, optimizer, in the order in which each needs the one
 * before.  Everything is allocated here; the loop allocates nothing.
 */
#include "runtime/train/training.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base/log.h"
#include "runtime/config/continual.h"
#include "runtime/config/mixture.h"
#include "runtime/config/recipe.h"

static void log_line(void *user, const char *text)
{
    (void)user;
    hs_info("%s", text);
}

void hs_training_describe(const HsTraining *training)
{
    const HsModel *model = &training->model;
    const HsConfig *config = training->config;
    hs_info("device: %s", training->engine.why);
    hs_info("precision: %s", training->precision_why);
    hs_training_warn_range(training);
    hs_info("model: %s, %lld layers, width %lld, vocabulary %lld, %.3f million parameters", model->family,
            (long long)model->layers, (long long)model->width, (long long)model->vocabulary,
            1e-6 * (double)hs_model_parameter_count(model));
    hs_training_describe_rules(training, log_line, NULL);
    for (int i = 0; i < training->data.count; i++)
        hs_info("%s %s: %lld training and %lld validation tokens",
                training->data.count > 1 ? "task" : "data:", config->tasks[i].name,
                (long long)training->data.tasks[i].train.count, (long long)training->data.tasks[i].validation.count);
    for (int i = 0; i < training->data.count; i++)
        for (int part = 0; part < training->data.tasks[i].part_count; part++)
            hs_info("  source %s: %lld training and %lld validation tokens",
                    hs_task_source_name(&config->tasks[i], part),
                    (long long)training->data.tasks[i].parts[part].train.count,
                    (long long)training->data.tasks[i].parts[part].validation.count);
    hs_info("steps: %lld of %lld x %lld tokens", (long long)training->lengths.total_steps,
            (long long)training->rows_per_step, (long long)config->training.max_length);
    char filled[HS_RECIPE_FILLED];
    if (hs_config_filled_by_size(config, filled)[0] != '\0')
        hs_info("train.size %s sets %s; --print-config has the reasons", config->train.size, filled);
    HsMetricsRun run = { 0 };
    char memory[512] = "";
    size_t used = 0;
    hs_training_list_memory(training, &run);
    for (int i = 0; i < run.memory_count && used < sizeof memory; i++)
        used += (size_t)snprintf(memory + used, sizeof memory - used, "%s%s %.1f", i > 0 ? ", " : "",
                                 run.memory[i].what, hs_mebibytes((double)run.memory[i].bytes));
    hs_info("memory (MiB): %s", memory);
    hs_training_describe_graph(training);
}

HsStatus hs_training_open_stream(HsTraining *training)
{
    HsLengths *lengths = &training->lengths;
    const HsConfig *config = training->config;
    double *weights = calloc((size_t)training->data.count, sizeof *weights);
    int64_t *ends = calloc((size_t)training->data.count, sizeof *ends);
    if (!weights || !ends) {
        free(weights);
        free(ends);
        return hs_fail(HS_ENOMEM, "no memory for %d task weights", training->data.count);
    }
    HsStreamOptions stream = {
        .data = &training->data,
        .joint = lengths->joint,
        .weights = weights,
        .ends = lengths->unmarked ? ends : NULL,
        .plan = hs_continual_replay_plan(&training->continual_config, training->rows_per_step),
        .steps = lengths->phase_steps,
        .reservoir = training->has_reservoir ? &training->reservoir : NULL,
        .rehearses = hs_continual_writes_rehearsal(&training->continual_config) != NULL,
        .continual = &training->continual_config,
        .prefetch = config->data.prefetch,
        .workers = config->data.workers,
    };
    for (int i = 0; i < training->data.count; i++)
        weights[i] = (double)hs_training_task_steps(training, i);
    /* A window is whole: its task ends with it. */
    const int64_t window_steps = hs_replay_window_steps(&stream.plan);
    for (int i = 0; i < training->data.count; i++)
        ends[i] = hs_replay_rows_before(&stream.plan, (lengths->task_ends[i] + window_steps - 1) / window_steps);
    HsStatus status = hs_stream_create(&stream, &training->stream);
    free(weights);
    free(ends);
    return status;
}

/* Steps without a target that counts teach nothing, and say nothing: where they would be most of a task's, a run makes
 * no sense.  Rows are drawn without regard to each other: a step of n rows is empty with the n-th power of the share.
 */
static HsStatus check_targets(const HsTraining *training)
{
    const double noticed = 0.01, most = 0.5;
    const int64_t rows = hs_config_rows_per_step(training->config);
    for (int i = 0; i < training->data.count; i++) {
        double share;
        HS_TRY(hs_dataset_empty_share(&training->data.tasks[i], &share));
        const char *const name = training->config->tasks[i].name;
        const char *const mend = "raise max_length, or shorten the prompts";
        if (pow(share, (double)rows) > most)
            return hs_fail(
                HS_ECONFIG,
                "task %s: %.3g%% of the training windows of max_length %lld hold no token that the loss counts, "
                "and most steps would hold none: %s",
                name, 100 * share, (long long)training->config->training.max_length, mend);
        if (share >= noticed)
            hs_warn("task %s: %.3g%% of the training windows of max_length %lld hold no token that the loss counts and "
                    "teach nothing: %s",
                    name, 100 * share, (long long)training->config->training.max_length, mend);
    }
    return HS_OK;
}

/* Without a word on what to train on it would be the built-in languages: to try this program out, and hardly what a model
 * that came from elsewhere is to learn. */
static HsStatus name_text(const HsConfig *config)
{
    for (int i = 0; i < config->task_count; i++) {
        char key[32];
        snprintf(key, sizeof key, "tasks.%d.train", i);
        if (hs_config_is_set(config, key))
            continue;
        if (config->training.init_from[0] != '\0')
            return hs_fail(HS_ECONFIG,
                           "init_from names a model, and nothing says what to train it on: set %s to files or folders "
                           "(to the built-in languages: %s)",
                           key, config->tasks[i].train.items[0]);
        hs_info("%s is not set: training on the built-in languages, %s", key, config->tasks[i].train.items[0]);
    }
    return HS_OK;
}

HsStatus hs_training_begin(HsTraining *training, HsConfig *config, HsComm *comm)
{
    memset(training, 0, sizeof *training);
    training->config = config;
    training->state.evaluated_at = training->state.surveyed_at = -1;
    training->state.best_validation = training->state.rate_found = NAN;
    training->engine.comm = comm ? comm : hs_comm_alone();
    if (comm || config->distributed.processes <= 1)
        return HS_OK;
    return hs_fail(
        HS_ECONFIG,
        "distributed.processes: %lld is for trainer train, and this command runs in one process: set it to 0",
        (long long)config->distributed.processes);
}

HsStatus hs_training_open_engine(HsTraining *training)
{
    HsEngineOptions options = hs_engine_options(training->config);
    options.comm = training->engine.comm;
    HS_TRY(hs_engine_init(&training->engine, &options));
    return name_text(training->config);
}

HsStatus hs_training_open_data(HsTraining *training, HsTokenizer *tokenizer, bool whole)
{
    const HsConfig *config = training->config;
    HS_TRY((whole ? hs_task_data_create_whole : hs_task_data_create)(config, tokenizer, &training->data));
    training->has_data = true;
    hs_task_data_warn_shared(config, &training->data);
    training->vocabulary = hs_tokenizer_vocabulary(training->data.tokenizer);
    training->masked = hs_task_data_masked(&training->data);
    return HS_OK;
}

HsStatus hs_training_measure(HsTraining *training, const char *folder)
{
    HS_TRY(check_targets(training));
    HS_TRY(hs_config_continual(training->config, &training->continual_config));
    HS_TRY(hs_training_keep_virtual_ranks(training, folder));
    HS_TRY(hs_training_divide(training));
    HS_TRY(hs_training_count_steps(training));
    hs_training_warn_settings(training);
    return HS_OK;
}

HsStatus hs_training_take_memory(HsTraining *training)
{
    HsConfig *config = training->config;
    HS_TRY(hs_training_fit(training));
    HsDevice *device = &training->engine.device;
    if (!device->host_accessible && !training->engine.emulated)
        HS_TRY(device->free_memory(device, &training->free_before));
    HS_TRY(hs_precision_resolve(config, training->engine.products, &training->precision, training->precision_why,
                                sizeof training->precision_why));
    HS_TRY(hs_training_allocate(training));
    const size_t rows = (size_t)(training->train_program.batch * config->training.max_length);
    training->evaluation_tokens = calloc(rows, sizeof(int32_t));
    training->evaluation_targets = calloc(rows, sizeof(int32_t));
    training->loss_sums = calloc((size_t)training->rows_per_step * HS_TRAINING_LOSS_KINDS, sizeof(double));
    if (!training->evaluation_tokens || !training->evaluation_targets || !training->loss_sums)
        return hs_fail(HS_ENOMEM, "no memory for an evaluation batch of %zu tokens", rows);
    return HS_OK;
}

HsStatus hs_training_settle(HsTraining *training)
{
    HS_TRY(hs_training_ready_weights(training));
    hs_training_probe_peak(training);
    training->flops_per_token = hs_model_flops_per_token(&training->model, training->config->training.max_length);
    return HS_OK;
}

double hs_training_flops_per_token(const HsTraining *training)
{
    const double all = (double)training->run_tokens, nothing = (double)training->run_left_out,
                 headless = all - (double)training->run_counted - nothing;
    if (!(all > 0))
        return training->flops_per_token;
    return (training->flops_per_token * (all - nothing) - hs_model_left_out_flops(&training->model) * headless) / all;
}

static HsStatus create(HsTraining *training, HsConfig *config, HsComm *comm)
{
    HsTokenizer *tokenizer;
    HS_TRY(hs_training_begin(training, config, comm));
    HS_TRY(hs_training_open_engine(training));
    HS_TRY(hs_training_given_tokenizer(config, NULL, &tokenizer));
    HS_TRY(hs_training_open_data(training, tokenizer, false));
    HS_TRY(hs_training_measure(training, NULL));
    HS_TRY(hs_training_take_memory(training));
    HS_TRY(hs_training_start(training));
    hs_training_describe_strategies(training);
    HS_TRY(hs_training_settle(training));
    hs_training_describe(training);
    return hs_training_open_stream(training);
}

HsStatus hs_training_create(HsConfig *config, HsTraining *training, HsComm *comm)
{
    const HsStatus status = create(training, config, comm);
    if (status == HS_ENOMEM)
        hs_training_explain_memory(training);
    if (status != HS_OK && comm)
        hs_comm_abort(comm, hs_error_message());
    if (status != HS_OK)
        hs_training_destroy(training);
    return status;
}

void hs_training_destroy(HsTraining *training)
{
    hs_stream_destroy(training->stream);
    hs_step_queue_deinit(&training->queue); /* waits for what is under way */
    hs_training_forget_graph(training);
    hs_training_release(training);
    if (training->has_data)
        hs_task_data_deinit(&training->data);
    free(training->lengths.phase_steps);
    free(training->lengths.task_ends);
    free(training->evaluation_tokens);
    free(training->evaluation_targets);
    free(training->loss_sums);
    hs_engine_deinit(&training->engine);
    memset(training, 0, sizeof *training);
}
