/* SPDX-License-Identifier: MIT
 *
 * Making a run: a training, perhaps where a checkpoint left it, and the folder that it records in.
 */
#include "runtime/train/run.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/base/log.h"
#include "runtime/exchange/reduce.h"
#include "runtime/io/files.h"

/* Before the first file is written.  A folder that was not there when checkpoints were looked for may have been made,
 * and trained in to the end, by another process since. */
static HsStatus own_folder(HsRun *run)
{
    const char *out_dir = run->training.config->training.out_dir;
    if (run->lock || !hs_training_records(&run->training))
        return HS_OK;
    HS_TRY(hs_make_directories(out_dir));
    HS_TRY(hs_run_lock_take(out_dir, &run->lock));
    bool begun;
    HS_TRY(hs_checkpoint_exists(out_dir, &begun));
    if (!run->resumed && begun)
        return hs_fail(HS_EIO, "%s: another process began a run there meanwhile: the same command continues it",
                       out_dir);
    return HS_OK;
}

static HsStatus create_records(HsRun *run)
{
    HsTraining *training = &run->training;
    const HsConfig *config = training->config;
    HS_TRY(own_folder(run));
    HsMetricsPosition position = { training->state.jsonl_bytes, training->state.tensorboard_bytes };
    const char *const out_dir = hs_training_records(training) ? config->training.out_dir : NULL;
    HsMetricsOptions options = {
        .out_dir = out_dir,
        .tensorboard = config->logging.tensorboard,
        .progress = config->logging.progress,
        .total_steps = training->lengths.total_steps,
        .resume_at = run->resumed ? &position : NULL,
    };
    HS_TRY(hs_metrics_create(&options, &run->metrics));
    if (run->changes[0])
        HS_TRY(hs_metrics_changed(run->metrics, training->state.counters.applied_steps, run->changes));
    const HsMonitorOptions monitor = {
        .device = &training->engine.device,
        .emulated = training->engine.emulated,
        .every_s = config->logging.device_seconds,
        .out_dir = out_dir,
        .append = run->resumed,
    };
    HS_TRY(hs_monitor_create(&monitor, &run->monitor));
    char processes[64];
    snprintf(processes, sizeof processes, "%d over %s", training->engine.comm->size,
             hs_comm_name(training->engine.comm));
    return hs_training_write_run_info(training, training->engine.comm->size > 1 ? processes : NULL);
}

/* What must be known before anything is planned: device, data, strategies, lengths. */
static HsStatus prepare(HsRun *run, const char *folder)
{
    HsTraining *training = &run->training;
    const HsConfig *config = training->config;
    HsTokenizer *tokenizer;
    HS_TRY(hs_training_open_engine(training));
    HS_TRY(hs_training_given_tokenizer(config, folder, &tokenizer));
    HsStatus status = folder ? hs_run_peek_data(run, folder) : HS_OK;
    if (status != HS_OK) {
        hs_tokenizer_destroy(tokenizer);
        return status;
    }
    HS_TRY(hs_training_open_data(training, tokenizer, run->keeps_validation));
    if (hs_training_records(training))
        HS_TRY(hs_run_carry(config, folder, &run->carried));
    HS_TRY(hs_run_list_files(run));
    HS_TRY(hs_run_compare_files(run));
    return hs_training_measure(training, folder);
}

static HsStatus resume(HsRun *run, const char *folder)
{
    HsTraining *training = &run->training;
    HS_TRY(hs_run_compare_config(run, folder));
    const int known = training->data.count - run->appended;
    if (run->appended > 0) { /* by the weights that the run began with; a run of one task has no matrix yet */
        HS_TRY(hs_training_start(training));
        HS_TRY(hs_run_measure_untrained(run, known > 1 ? known : 0));
    }
    HS_TRY(hs_run_restore(run, folder));
    HS_TRY(hs_training_reopen(training));
    hs_info("continuing from %s (step %lld)", folder, (long long)training->state.counters.applied_steps);
    return HS_OK;
}

static HsStatus create(HsRun *run, const char *folder)
{
    HsTraining *training = &run->training;
    HS_TRY(prepare(run, folder));
    if (folder) /* with the micro-batch that it had, which memory pressure may have halved: the same bits */
        HS_TRY(hs_training_peek_micro_batch(training, folder));
    HS_TRY(hs_training_take_memory(training));
    if (!folder) { /* else the checkpoint has them */
        HS_TRY(hs_training_start(training));
        HS_TRY(hs_run_list_origin(run));
    }
    HS_TRY(hs_run_begin_continual(run));
    if (folder)
        HS_TRY(resume(run, folder));
    HS_TRY(hs_training_settle(training));
    hs_training_describe(training);
    HS_TRY(hs_training_open_stream(training));
    return create_records(run);
}

/* Rank 0 locks the folder; all ranks learn the checkpoint to resume from.  *folder: NULL: a run begins. */
static HsStatus find_start(HsRun *run, char **folder)
{
    HsTraining *training = &run->training;
    const HsConfig *config = training->config;
    if (hs_training_records(training)) {
        HS_TRY(hs_run_lock_take(config->training.out_dir, &run->lock));
        HS_TRY(hs_run_find_checkpoint(config, folder));
        HS_TRY(hs_checkpoint_clean(config->training.out_dir)); /* what a killed run left half written */
    }
    return hs_share_text(training->engine.comm, folder);
}

HsStatus hs_run_create(HsConfig *config, HsRun *run, HsComm *comm)
{
    memset(run, 0, sizeof *run);
    char *folder = NULL;
    HsStatus status = hs_training_begin(&run->training, config, comm);
    if (status == HS_OK)
        status = find_start(run, &folder);
    if (status == HS_OK)
        status = create(run, folder);
    free(folder);
    if (status == HS_ENOMEM)
        hs_training_explain_memory(&run->training);
    if (status != HS_OK) {
        if (comm)
            hs_comm_abort(comm, hs_error_message());
        hs_run_destroy(run);
    }
    return status;
}

void hs_run_destroy(HsRun *run)
{
    if (run->metrics)
        (void)hs_metrics_destroy(run->metrics);
    hs_monitor_destroy(run->monitor);
    hs_stream_destroy(run->training.stream);
    run->training.stream = NULL;
    hs_step_queue_deinit(&run->training.queue); /* before the trace, which it may still write to */
    hs_run_trace_destroy(run);
    hs_training_destroy(&run->training);
    hs_carried_deinit(&run->carried);
    if (run->has_matrix)
        hs_matrix_deinit(&run->matrix);
    hs_run_destroy_watch(run);
    hs_run_forget_files(run);
    hs_run_forget_origin(run->origin);
    hs_run_lock_release(run->lock);
    memset(run, 0, sizeof *run);
}
