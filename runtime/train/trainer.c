/* SPDX-License-Identifier: MIT
 *
 * Making a training run: engine, precision, data, model, programs, optimizer, in the order in which each needs the one
 * before.  Everything is allocated here; the loop allocates nothing.
 */
#include "runtime/train/trainer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base/log.h"
#include "runtime/config/continual.h"
#include "runtime/io/files.h"
#include "runtime/exchange/reduce.h"

static void log_line(void *user, const char *text)
{
    (void)user;
    hs_info("%s", text);
}

static void describe(const HsTrainer *trainer)
{
    const HsModel *model = &trainer->model;
    const HsConfig *config = trainer->config;
    hs_info("device: %s", trainer->engine.why);
    hs_info("precision: %s", trainer->precision_why);
    hs_info("model: %s, %lld layers, width %lld, vocabulary %lld, %.3f million parameters", model->family,
            (long long)model->layers, (long long)model->width, (long long)model->vocabulary,
            1e-6 * (double)hs_model_parameter_count(model));
    hs_trainer_describe_rules(trainer, log_line, NULL);
    for (int i = 0; i < trainer->data.count; i++)
        hs_info("%s %s: %lld training and %lld validation tokens",
                trainer->data.count > 1 ? "task" : "data:", config->tasks[i].name,
                (long long)trainer->data.tasks[i].train.count, (long long)trainer->data.tasks[i].validation.count);
    hs_info("steps: %lld of %lld x %lld tokens", (long long)trainer->total_steps, (long long)trainer->rows_per_step,
            (long long)config->training.max_length);
    HsMetricsRun run = { 0 };
    char memory[512] = "";
    size_t used = 0;
    hs_trainer_list_memory(trainer, &run);
    for (int i = 0; i < run.memory_count && used < sizeof memory; i++)
        used += (size_t)snprintf(memory + used, sizeof memory - used, "%s%s %.1f", i > 0 ? ", " : "",
                                 run.memory[i].what, hs_mebibytes((double)run.memory[i].bytes));
    hs_info("memory (MiB): %s", memory);
    hs_trainer_describe_graph(trainer);
}

/* Before the first file is written.  A folder that was not there when checkpoints were looked for may have been made,
 * and trained in to the end, by another process since. */
static HsStatus own_folder(HsTrainer *trainer)
{
    const char *out_dir = trainer->config->training.out_dir;
    if (trainer->lock || !hs_trainer_records(trainer))
        return HS_OK;
    HS_TRY(hs_make_directories(out_dir));
    HS_TRY(hs_run_lock_take(out_dir, &trainer->lock));
    bool begun;
    HS_TRY(hs_checkpoint_exists(out_dir, &begun));
    if (!trainer->resumed && begun)
        return hs_fail(HS_EIO, "%s: another process began a run there meanwhile: the same command goes on with it",
                       out_dir);
    return HS_OK;
}

static HsStatus create_stream_and_records(HsTrainer *trainer)
{
    const HsConfig *config = trainer->config;
    double *weights = calloc((size_t)trainer->data.count, sizeof *weights);
    int64_t *ends = calloc((size_t)trainer->data.count, sizeof *ends);
    if (!weights || !ends) {
        free(weights);
        free(ends);
        return hs_fail(HS_ENOMEM, "no memory for %d task weights", trainer->data.count);
    }
    HsStreamOptions stream = {
        .data = &trainer->data,
        .joint = trainer->joint,
        .weights = weights,
        .ends = trainer->unmarked ? ends : NULL,
        .plan = hs_continual_replay_plan(&trainer->continual_config, trainer->rows_per_step),
        .steps = trainer->phase_steps,
        .reservoir = trainer->has_reservoir ? &trainer->reservoir : NULL,
        .rehearses = hs_continual_writes_rehearsal(&trainer->continual_config) != NULL,
        .continual = &trainer->continual_config,
        .prefetch = config->data.prefetch,
        .workers = config->data.workers,
    };
    for (int i = 0; i < trainer->data.count; i++)
        weights[i] = (double)hs_trainer_task_steps(trainer, i);
    /* A window is whole: its task ends with it. */
    const int64_t window_steps = hs_replay_window_steps(&stream.plan);
    for (int i = 0; i < trainer->data.count; i++)
        ends[i] = hs_replay_rows_before(&stream.plan, (trainer->task_ends[i] + window_steps - 1) / window_steps);
    HsStatus status = hs_stream_create(&stream, &trainer->stream);
    free(weights);
    free(ends);
    HS_TRY(status);
    HS_TRY(own_folder(trainer));
    HsMetricsPosition position = { trainer->state.jsonl_bytes, trainer->state.tensorboard_bytes };
    const char *const out_dir = hs_trainer_records(trainer) ? config->training.out_dir : NULL;
    HsMetricsOptions options = {
        .out_dir = out_dir,
        .tensorboard = config->logging.tensorboard,
        .progress = config->logging.progress,
        .total_steps = trainer->total_steps,
        .resume_at = trainer->resumed ? &position : NULL,
    };
    HS_TRY(hs_metrics_create(&options, &trainer->metrics));
    if (trainer->changes[0])
        HS_TRY(hs_metrics_changed(trainer->metrics, trainer->state.counters.applied_steps, trainer->changes));
    const HsMonitorOptions monitor = {
        .device = &trainer->engine.device,
        .emulated = trainer->engine.emulated,
        .every_s = config->logging.device_seconds,
        .out_dir = out_dir,
        .append = trainer->resumed,
    };
    HS_TRY(hs_monitor_create(&monitor, &trainer->monitor));
    char processes[64];
    snprintf(processes, sizeof processes, "%d over %s", trainer->engine.comm->size, hs_comm_name(trainer->engine.comm));
    return hs_trainer_write_run_info(trainer, trainer->engine.comm->size > 1 ? processes : NULL);
}

/* Steps without a target that counts teach nothing, and say nothing: where they would be most of a task's, a run makes
 * no sense.  Rows are drawn without regard to each other: a step of n rows is empty with the n-th power of the share.
 */
static HsStatus check_targets(const HsTrainer *trainer)
{
    const double noticed = 0.01, most = 0.5;
    const int64_t rows = hs_config_rows_per_step(trainer->config);
    for (int i = 0; i < trainer->data.count; i++) {
        const double share = hs_dataset_empty_share(&trainer->data.tasks[i]);
        const char *const name = trainer->config->tasks[i].name;
        const char *const mend = "raise max_length, or shorten the prompts";
        if (pow(share, (double)rows) > most)
            return hs_fail(
                HS_ECONFIG,
                "task %s: %.3g%% of the training windows of max_length %lld hold no token that the loss counts, "
                "and most steps would hold none: %s",
                name, 100 * share, (long long)trainer->config->training.max_length, mend);
        if (share >= noticed)
            hs_warn("task %s: %.3g%% of the training windows of max_length %lld hold no token that the loss counts and "
                    "teach nothing: %s",
                    name, 100 * share, (long long)trainer->config->training.max_length, mend);
    }
    return HS_OK;
}

/* Every process reads the whole batch: their files have to be the same. */
static HsStatus compare_data(const HsTrainer *trainer)
{
    HsJson *files = hs_trainer_files_json(trainer);
    char *text = hs_json_write(files, false);
    HsStatus status = text ? hs_check_same(trainer->engine.comm, text, "data files")
                           : hs_fail(HS_ENOMEM, "no memory for a list of files");
    free(text);
    hs_json_destroy(files);
    return status;
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

/* What must be known before anything is planned: device, data, strategies, lengths. */
static HsStatus prepare(HsTrainer *trainer, const char *folder)
{
    HsConfig *config = trainer->config;
    HsEngineOptions engine = hs_engine_options(config);
    engine.comm = trainer->engine.comm;
    HS_TRY(hs_engine_init(&trainer->engine, &engine));
    HsTokenizer *tokenizer;
    HS_TRY(name_text(config));
    HS_TRY(hs_trainer_given_tokenizer(config, folder, &tokenizer));
    HsStatus status = folder ? hs_trainer_peek_data(trainer, folder) : HS_OK;
    if (status != HS_OK) {
        hs_tokenizer_destroy(tokenizer);
        return status;
    }
    HS_TRY((trainer->keeps_validation ? hs_task_data_create_whole : hs_task_data_create)(config, tokenizer,
                                                                                         &trainer->data));
    trainer->has_data = true;
    hs_task_data_warn_shared(config, &trainer->data);
    if (hs_trainer_records(trainer))
        HS_TRY(hs_trainer_carry(config, folder, &trainer->carried));
    HS_TRY(hs_trainer_list_files(trainer));
    HS_TRY(compare_data(trainer));
    trainer->vocabulary = hs_tokenizer_vocabulary(trainer->data.tokenizer);
    trainer->masked = hs_task_data_masked(&trainer->data);
    HS_TRY(check_targets(trainer));
    HS_TRY(hs_config_continual(config, &trainer->continual_config));
    HS_TRY(hs_trainer_keep_virtual_ranks(trainer, folder));
    HS_TRY(hs_trainer_divide(trainer));
    HS_TRY(hs_trainer_count_steps(trainer));
    hs_trainer_warn_settings(trainer);
    return HS_OK;
}

/* Resumed runs go on with the micro-batch they had, which memory pressure may have halved: the same bits. */
static HsStatus take_memory(HsTrainer *trainer, const char *folder)
{
    HsConfig *config = trainer->config;
    HS_TRY(folder ? hs_trainer_peek_micro_batch(trainer, folder) : HS_OK);
    HS_TRY(hs_trainer_fit(trainer));
    HsDevice *device = &trainer->engine.device;
    if (!device->host_accessible && !trainer->engine.emulated)
        HS_TRY(device->free_memory(device, &trainer->free_before));
    HS_TRY(hs_precision_resolve(config, trainer->engine.products, &trainer->precision, trainer->precision_why,
                                sizeof trainer->precision_why));
    HS_TRY(hs_trainer_allocate(trainer));
    const size_t rows = (size_t)(trainer->train_program.batch * config->training.max_length);
    trainer->evaluation_tokens = calloc(rows, sizeof(int32_t));
    trainer->evaluation_targets = calloc(rows, sizeof(int32_t));
    trainer->loss_sums = calloc((size_t)trainer->rows_per_step * HS_TRAINER_LOSS_KINDS, sizeof(double));
    if (!trainer->evaluation_tokens || !trainer->evaluation_targets || !trainer->loss_sums)
        return hs_fail(HS_ENOMEM, "no memory for an evaluation batch of %zu tokens", rows);
    return HS_OK;
}

static HsStatus resume(HsTrainer *trainer, const char *folder)
{
    HS_TRY(hs_trainer_compare_config(trainer, folder));
    const int known = trainer->data.count - trainer->appended;
    if (trainer->appended > 0) { /* by the weights that the run began with; a run of one task has no matrix yet */
        HS_TRY(hs_trainer_start(trainer));
        HS_TRY(hs_trainer_measure_untrained(trainer, known > 1 ? known : 0));
    }
    HS_TRY(hs_trainer_restore(trainer, folder));
    HS_TRY(hs_trainer_reopen(trainer));
    hs_info("going on from %s (step %lld)", folder, (long long)trainer->state.counters.applied_steps);
    return HS_OK;
}

static HsStatus create(HsTrainer *trainer, const char *folder)
{
    HsConfig *config = trainer->config;
    HS_TRY(prepare(trainer, folder));
    HS_TRY(take_memory(trainer, folder));
    if (!folder) { /* else the checkpoint has them */
        HS_TRY(hs_trainer_start(trainer));
        HS_TRY(hs_trainer_list_origin(trainer));
    }
    HS_TRY(hs_trainer_begin_continual(trainer));
    if (folder)
        HS_TRY(resume(trainer, folder));
    HS_TRY(hs_trainer_ready_weights(trainer));
    hs_trainer_probe_peak(trainer);
    trainer->flops_per_token = hs_model_flops_per_token(&trainer->model, config->training.max_length);
    describe(trainer);
    return create_stream_and_records(trainer);
}

/* The folder is one process's; where the run goes on from is everybody's.  *folder: NULL: a run begins. */
static HsStatus find_start(HsTrainer *trainer, char **folder)
{
    const HsConfig *config = trainer->config;
    if (hs_trainer_records(trainer)) {
        HS_TRY(hs_run_lock_take(config->training.out_dir, &trainer->lock));
        HS_TRY(hs_trainer_find_checkpoint(config, folder));
        HS_TRY(hs_checkpoint_clean(config->training.out_dir)); /* what a killed run left half written */
    }
    return hs_share_text(trainer->engine.comm, folder);
}

HsStatus hs_trainer_create(HsConfig *config, HsTrainer *trainer, HsComm *comm)
{
    memset(trainer, 0, sizeof *trainer);
    trainer->config = config;
    trainer->state.evaluated_at = trainer->state.surveyed_at = -1;
    trainer->state.best_validation = trainer->state.rate_found = NAN;
    trainer->engine.comm = comm ? comm : hs_comm_alone();
    char *folder = NULL;
    HsStatus status = comm || config->distributed.processes <= 1
                          ? HS_OK
                          : hs_fail(HS_ECONFIG,
                                    "distributed.processes: %lld is for training, and this command trains in one "
                                    "process: set it to 0",
                                    (long long)config->distributed.processes);
    if (status == HS_OK)
        status = find_start(trainer, &folder);
    if (status == HS_OK)
        status = create(trainer, folder);
    free(folder);
    if (status == HS_ENOMEM)
        hs_trainer_explain_memory(trainer);
    if (status != HS_OK) {
        if (comm)
            hs_comm_abort(comm, hs_error_message());
        hs_trainer_destroy(trainer);
    }
    return status;
}

void hs_trainer_destroy(HsTrainer *trainer)
{
    if (trainer->metrics)
        (void)hs_metrics_destroy(trainer->metrics);
    hs_monitor_destroy(trainer->monitor);
    hs_stream_destroy(trainer->stream);
    hs_step_queue_deinit(&trainer->queue); /* waits for what is under way */
    hs_trainer_trace_destroy(trainer);
    hs_trainer_forget_graph(trainer);
    hs_trainer_release(trainer);
    hs_carried_deinit(&trainer->carried);
    if (trainer->has_data)
        hs_task_data_deinit(&trainer->data);
    if (trainer->has_matrix)
        hs_matrix_deinit(&trainer->matrix);
    hs_trainer_destroy_watch(trainer);
    free(trainer->phase_steps);
    free(trainer->task_ends);
    free(trainer->evaluation_tokens);
    free(trainer->evaluation_targets);
    free(trainer->loss_sums);
    hs_engine_deinit(&trainer->engine);
    hs_trainer_forget_files(trainer);
    hs_trainer_forget_origin(trainer->origin);
    hs_run_lock_release(trainer->lock);
    memset(trainer, 0, sizeof *trainer);
}
