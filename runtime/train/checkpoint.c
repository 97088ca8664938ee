/* SPDX-License-Identifier: MIT
 *
 * What a checkpoint of a run holds, and the way back.
 *
 *   model.safetensors      every parameter: the FP32 master where there is one, else the weight itself; with
 *                          average.decay the average, of schedule-free x
 *   optimizer.safetensors  "<parameter>.<m|v|m_absmax|v_absmax|momentum|second_moment|z_minus_y>" for every trainable
 *                          parameter, and with those two "<parameter>.trained", what model.safetensors has without
 *                          of delayed scaling (precision.fp8) also fp8.history, fp8.kept and fp8.recorded
 *   trainer.json           HsTrainingState (numbers.c); the strategies' part (checkpoint_continual.c)
 *   continual.safetensors  the strategies' tensors and the replay buffer
 *   config.yaml, tokenizer.json
 *   carried.json           where the run began with a folder of Hugging Face: what exports pass on of it
 *
 * Nothing in it depends on the clock, so equal runs have equal checkpoints, byte for byte.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "kernels/base/log.h"
#include "runtime/config/recipe.h"
#include "runtime/config/continual.h"
#include "runtime/checkpoint/weights.h"
#include "runtime/config/chat_template.h"
#include "runtime/config/table.h"
#include "runtime/io/storage.h"
#include "runtime/model/coded.h"
#include "runtime/train/run.h"

/* In trainer.json: files of validation were left out of the folders and patterns of training. */
#define VALIDATION_APART "validation_apart"

/* The tensors a checkpoint names, pointing at the run's memory. */
typedef struct TensorLists {
    HsWeights model;
    HsNamedTensor *optimizer;
    int optimizer_count;
    HsDelayedScales scales; /* in host memory; none without delayed scaling */
} TensorLists;

/* Delayed scaling's state: what the scales of the next step follow from.  A new mode begins without. */
static HsStatus list_scales(HsRun *run, TensorLists *lists)
{
    HsTraining *training = &run->training;
    HsModelScalings *const scalings = &training->model.scalings;
    if (!hs_tensor_present(&scalings->history) || run->new_mode)
        return HS_OK;
    HS_TRY(hs_delayed_scales_read(&training->model, &training->engine.context, &lists->scales));
    const HsNamedTensor entries[] = {
        { .name = "fp8.history", .tensor = scalings->history, .context = &training->engine.context },
        { .name = "fp8.kept", .tensor = hs_tensor_1d(lists->scales.kept, HS_F32, scalings->count) },
        { .name = "fp8.recorded", .tensor = hs_tensor_1d(lists->scales.recorded, HS_I32, scalings->count) },
    };
    for (size_t i = 0; i < sizeof entries / sizeof entries[0]; i++)
        lists->optimizer[lists->optimizer_count++] = entries[i];
    return HS_OK;
}

/* A state by its name.  Where the model's file has a mean, what is trained: in the average's place, or, of schedule-free,
 * behind the states. */
static HsNamedTensor entry_of(HsTraining *training, int parameter, int state)
{
    const HsOptimizerConfig *rules = &training->optimizer.config;
    const HsShards *shards = &training->exchange.shards;
    const HsSpan *span = &shards->whole[parameter];
    const bool trained =
        &span->state[state] == hs_optimizer_average(rules, span) || state == hs_optimizer_state_count(rules, span);
    const HsTensor *tensor = &span->state[state];
    if (trained)
        tensor = hs_tensor_present(&span->master) ? &span->master : &span->weight;
    HsNamedTensor entry = { .tensor = *tensor, .context = &training->engine.context };
    snprintf(entry.name, sizeof entry.name, "%.80s.%s", span->name,
             trained ? "trained" : hs_optimizer_state_name(rules, span, state));
    const int64_t count = hs_tensor_count(tensor);
    if (count < span->count && count == hs_dynamic_blocks(span->count))
        entry.share = hs_shards_share_of(shards, parameter, HS_DYNAMIC_BLOCK);
    else if (tensor != &span->weight || hs_training_streams_weights(training)) /* else every rank has all of it */
        entry.share = hs_shards_share_of(shards, parameter, span->count / count);
    return entry;
}

static HsStatus list_tensors(HsRun *run, TensorLists *lists)
{
    HsTraining *training = &run->training;
    memset(lists, 0, sizeof *lists);
    const HsModel *model = &training->model;
    const HsOptimizerConfig *rules = &training->optimizer.config;
    const size_t count = (size_t)model->param_count;
    const HsShards *shards = &training->exchange.shards;
    HsSpan *averaged = hs_training_averaged_parameters(training);
    const HsStatus status = averaged ? hs_weights_list(model, averaged, shards->whole_count, &training->engine.context,
                                                       HS_NAMING_OWN, &lists->model)
                                     : hs_fail(HS_ENOMEM, "no memory to list %zu parameters of a checkpoint", count);
    if (status == HS_OK)
        hs_training_derive_items(training, averaged, &lists->model);
    free(averaged);
    HS_TRY(status);
    enum { SCALES = 3 };
    lists->optimizer = calloc(HS_SPAN_STATES * count + SCALES, sizeof *lists->optimizer);
    if (!lists->optimizer)
        return hs_fail(HS_ENOMEM, "no memory to list %zu tensors of a checkpoint", count);
    for (int i = 0; i < shards->whole_count; i++)
        for (int s = 0;
             s < hs_optimizer_state_count(rules, &shards->whole[i]) + hs_optimizer_derives(rules, &shards->whole[i]);
             s++)
            lists->optimizer[lists->optimizer_count++] = entry_of(training, i, s);
    return list_scales(run, lists);
}

static void free_lists(TensorLists *lists)
{
    hs_weights_deinit(&lists->model);
    free(lists->optimizer);
    hs_delayed_scales_free(&lists->scales);
}

static HsStatus write_extra(void *user, const char *folder)
{
    HsRun *run = user;
    HsTraining *training = &run->training;
    HS_TRY(hs_training_write_continual(training, folder));
    char path[4096];
    snprintf(path, sizeof path, "%s/tokenizer.json", folder);
    HS_TRY(hs_tokenizer_save(training->data.tokenizer, path));
    HS_TRY(hs_carried_write(&run->carried, folder));
    snprintf(path, sizeof path, "%s/config.yaml", folder);
    char *text;
    HsStatus status = hs_config_text(training->config, &text);
    if (status == HS_OK)
        status = hs_storage_write_file(path, text, strlen(text));
    free(text);
    return status;
}

/* Checkpoints hold whole tensors: what another process writes wants this one's ranges of them, and its share of the
 * strategies' statistics, in the order of `save`. */
static HsStatus hand_over(HsRun *run)
{
    HsStatus status;
    TensorLists lists = { 0 };
    if (!run->training.exchange.shards.comm)
        return HS_OK;
    HsJson *state = hs_json_object();
    HS_TRY_GOTO(status, hs_run_save_continual(run, state), done);
    HS_TRY_GOTO(status, list_tensors(run, &lists), done);
    HS_TRY_GOTO(status, hs_weights_spell_out(&lists.model), done);
    HS_TRY_GOTO(status, hs_safetensors_write(NULL, lists.model.items, lists.model.count, NULL, NULL), done);
    HS_TRY_GOTO(status, hs_safetensors_write(NULL, lists.optimizer, lists.optimizer_count, NULL, NULL), done);
    status = hs_training_write_continual(&run->training, NULL);
done:
    hs_json_destroy(state);
    free_lists(&lists);
    return status;
}

/* names: further ones of the checkpoint, in addition to `latest`. */
static HsStatus save(HsRun *run, const char *out_dir, const char *const *names, int name_count)
{
    HsTraining *training = &run->training;
    /* The record of this checkpoint lies before the position that the checkpoint stores, so that a resumed run
     * continues behind it. */
    assert(training->queue.count == 0);
    HsMetricsRecord record = hs_run_record(run, "checkpoint");
    HS_TRY(hs_metrics_record(run->metrics, &record));
    HsMetricsPosition position;
    HS_TRY(hs_metrics_sync(run->metrics, &position));
    /* Before a task's first step too: its beginning may have reset some of it. */
    hs_training_copy_optimizer_state(training);
    training->state.micro_batch = training->train_program.batch;
    training->state.tuning_hash = (int64_t)training->engine.tuning_hash;
    training->state.jsonl_bytes = position.jsonl_bytes;
    training->state.tensorboard_bytes = position.tensorboard_bytes;
    /* The mixing thread rests, so that reservoir and position belong to the batches trained on so far.  A resumed run
     * that saves before its first step (an evaluation was still due) has no stream yet: the state says where it will
     * begin. */
    if (hs_stream_is_running(training->stream)) {
        hs_stream_settle(training->stream);
        training->state.position = hs_stream_position(training->stream);
    }
    if (!hs_training_records(training))
        return hand_over(run);
    HsStatus status;
    TensorLists lists = { 0 };
    HsJson *state = hs_run_numbers_json(&training->state);
    hs_json_set(state, "files", hs_run_files_json(run));
    hs_json_set_bool(state, VALIDATION_APART, !run->keeps_validation);
    if (run->origin)
        hs_json_set(state, "origin", hs_run_origin_json(run));
    HS_TRY_GOTO(status, hs_run_save_continual(run, state), done);
    HS_TRY_GOTO(status, list_tensors(run, &lists), done);
    HS_TRY_GOTO(status, hs_weights_spell_out(&lists.model), done);
    HsCheckpointContent content = {
        .step = training->state.counters.applied_steps,
        .model = lists.model.items,
        .model_count = lists.model.count,
        .optimizer = lists.optimizer,
        .optimizer_count = lists.optimizer_count,
        .state = state,
        .write_extra = write_extra,
        .user = run,
        .names = names,
        .name_count = name_count,
    };
    status = hs_checkpoint_save(out_dir, &content, training->config->training.keep_checkpoints);
done:
    free_lists(&lists);
    hs_json_destroy(state);
    return status;
}

HsStatus hs_run_save_aside(HsRun *run, const char *out_dir)
{
    return save(run, out_dir, NULL, 0);
}

static HsStatus save_in_run(HsRun *run, const char *const *names, int name_count)
{
    HS_TRY(save(run, run->training.config->training.out_dir, names, name_count));
    run->saved_at = run->training.state.counters.applied_steps;
    return HS_OK;
}

HsStatus hs_run_save(HsRun *run)
{
    return save_in_run(run, NULL, 0);
}

HsStatus hs_run_save_best(HsRun *run, int task)
{
    char own[32];
    const char *const names[] = { HS_CHECKPOINT_BEST, own };
    snprintf(own, sizeof own, HS_CHECKPOINT_BEST "-%d", task + 1);
    return save_in_run(run, names, run->training.lengths.phase_count > 1 ? 2 : 1);
}

HsStatus hs_run_save_held(HsRun *run)
{
    const char *const names[] = { HS_CHECKPOINT_HELD };
    return save_in_run(run, names, 1);
}

static HsStatus go_back(const char *out_dir)
{
    bool done;
    HS_TRY(hs_checkpoint_go_back(out_dir, &done));
    if (done)
        hs_info("resume held: back to the checkpoint before the learning rate was let down, in %s", out_dir);
    else
        hs_info("resume held: %s keeps none of before a learning rate was let down: on from its latest checkpoint",
                out_dir);
    return HS_OK;
}

HsStatus hs_run_find_checkpoint(const HsConfig *config, char **folder)
{
    const char *out_dir = config->training.out_dir;
    *folder = NULL;
    if (hs_is(config->training.resume, "never")) {
        bool exists;
        HS_TRY(hs_checkpoint_exists(out_dir, &exists));
        if (!exists)
            return HS_OK;
        return hs_fail(HS_ECONFIG, "%s holds a run already and resume is never: choose another out_dir, or remove it",
                       out_dir);
    }
    if (hs_is(config->training.resume, "held"))
        HS_TRY(go_back(out_dir));
    HS_TRY(hs_checkpoint_latest(out_dir, folder));
    if (!*folder && hs_is(config->training.resume, "require"))
        return hs_fail(
            HS_ECONFIG,
            "%s holds no checkpoint to continue, and resume is require: set resume=auto, or name the out_dir of a run",
            out_dir);
    return HS_OK;
}

/* Of the tasks that both have: hs_run_compare_tasks has looked at the list. */
static HsStatus refuse_differences(const HsConfig *config, const HsConfig *saved, const char *folder)
{
    char differing[1024], untrue[1024];
    const bool may_change = hs_is(config->training.resume, "changed");
    const int future =
        hs_config_differences(config, saved, HS_RESUME_FIXED | HS_RESUME_FUTURE, NULL, differing, sizeof differing);
    const int past = hs_config_differences(config, saved, HS_RESUME_FIXED, NULL, untrue, sizeof untrue);
    if (past > 0)
        return hs_fail(
            HS_ECONFIG,
            "%s was made with another configuration; differing: %s. Set them back, choose another out_dir, or "
            "remove the old run",
            folder, may_change ? untrue : differing);
    if (future > 0 && !may_change)
        return hs_fail(HS_ECONFIG,
                       "%s was made with another configuration; differing: %s. To continue from there: "
                       "resume=changed. Else set them back, choose another out_dir, or remove the old run",
                       folder, differing);
    return HS_OK;
}

/* What lies elsewhere by now counts as where it was. */
static HsStatus compare_known(HsRun *run, const HsConfig *saved, const char *folder)
{
    HsConfig shorter = *run->training.config;
    shorter.task_count = saved->task_count;
    shorter.tasks = calloc((size_t)saved->task_count, sizeof *shorter.tasks);
    if (!shorter.tasks)
        return hs_fail(HS_ENOMEM, "no memory for %d tasks", saved->task_count);
    memcpy(shorter.tasks, run->training.config->tasks, (size_t)saved->task_count * sizeof *shorter.tasks);
    /* Nothing was rendered then. */
    if (strcmp(saved->tokenizer.chat_template, HS_CHAT_TEMPLATE_AUTO) == 0)
        shorter.tokenizer.chat_template = saved->tokenizer.chat_template;
    HsStatus status = hs_run_accept_moved(run, saved, &shorter);
    if (status == HS_OK)
        status = refuse_differences(&shorter, saved, folder);
    free(shorter.tasks);
    return status;
}

/* The configuration that a checkpoint was made with.  memory.limit is irrelevant here, and in MiB in the
 * oldest checkpoints, which the check of sizes would refuse. */
static HsStatus load_config_of(const char *folder, HsConfig *saved)
{
    static const char *const without_limit[] = { "memory.limit=0" };
    char path[4096];
    snprintf(path, sizeof path, "%s/config.yaml", folder);
    HS_TRY(hs_config_load_saved(saved, path, 1, without_limit));
    const HsStatus status = hs_run_complete_saved(saved);
    if (status != HS_OK)
        hs_config_deinit(saved);
    return status;
}

HsStatus hs_run_compare_config(HsRun *run, const char *folder)
{
    char longer[128] = "";
    const HsConfig *config = run->training.config;
    HsConfig saved;
    HS_TRY(load_config_of(folder, &saved));
    HsStatus status = hs_run_compare_tasks(run, &saved, folder);
    if (status == HS_OK && hs_training_records(&run->training))
        status = hs_run_read_origin(run, folder);
    if (status == HS_OK)
        status = compare_known(run, &saved, folder);
    if (status == HS_OK)
        status = hs_config_changes(&saved, config, HS_RESUME_FUTURE, run->changes, sizeof run->changes);
    if (status == HS_OK)
        status = hs_config_changes(&saved, config, HS_RESUME_LENGTH, longer, sizeof longer);
    if (status == HS_OK && run->changes[0])
        hs_info("changed from here on: %s", run->changes);
    run->new_mode = strcmp(config->precision.mode, saved.precision.mode) != 0 ||
                    strcmp(config->precision_fp8.recipe, saved.precision_fp8.recipe) != 0 ||
                    config->precision_fp8.history != saved.precision_fp8.history;
    run->new_length = longer[0] && !hs_is(config->schedule.kind, "constant") && config->schedule.decay_steps == 0;
    hs_config_deinit(&saved);
    return status;
}

static HsStatus restore(HsRun *run, const HsCheckpoint *checkpoint)
{
    HsTraining *training = &run->training;
    char name[4096];
    TensorLists lists;
    HsStatus status;
    HsSpan *averaged = hs_training_averaged_parameters(training);
    HS_TRY_GOTO(status, list_tensors(run, &lists), done);
    snprintf(name, sizeof name, "%s/model.safetensors", checkpoint->folder);
    HS_TRY_GOTO(status, averaged ? HS_OK : hs_fail(HS_ENOMEM, "no memory to list the parameters of %s", name), done);
    HS_TRY_GOTO(status,
                hs_weights_restore(name, &checkpoint->model, &training->model, averaged,
                                   training->exchange.shards.whole_count, &training->engine.context),
                done);
    snprintf(name, sizeof name, "%s/optimizer.safetensors", checkpoint->folder);
    HS_TRY_GOTO(status, hs_checkpoint_restore(name, &checkpoint->optimizer, lists.optimizer, lists.optimizer_count),
                done);
    if (lists.scales.kept)
        HS_TRY_GOTO(status, hs_delayed_scales_write(&training->model, &training->engine.context, &lists.scales), done);
    snprintf(name, sizeof name, "%s/trainer.json", checkpoint->folder);
    HsTrainingState *state = &training->state;
    HS_TRY_GOTO(status, hs_run_read_numbers(name, checkpoint->state, state), done);
    HS_TRY_GOTO(status, hs_run_check_files(run, name, checkpoint->folder, hs_json_get(checkpoint->state, "files")),
                done);
    state->micro_batch = training->train_program.batch; /* the same, or what fits by now */
    if (state->tuning_hash != (int64_t)training->engine.tuning_hash) {
        status = hs_fail(
            HS_ECONFIG,
            "%s was trained with another kernels.tuning table (hash %012llx then, %012llx now, 0 is "
            "none), which rounds sums differently: name that table, choose another out_dir, or remove the old run",
            checkpoint->folder, (unsigned long long)state->tuning_hash,
            (unsigned long long)training->engine.tuning_hash);
        goto done;
    }
    HS_TRY_GOTO(status, hs_run_check_numbers(run, name), done);
    if (run->new_mode) { /* it begins with its own loss scale */
        const HsStepCounters *const fresh = &training->optimizer.counters;
        state->counters.loss_scale = fresh->loss_scale;
        state->counters.scaler_tracker = fresh->scaler_tracker;
        state->counters.scaler_hysteresis = fresh->scaler_hysteresis;
    }
    training->optimizer.counters = state->counters;
    status = hs_run_restore_continual(run, checkpoint->folder, checkpoint->state);
done:
    free(averaged);
    free_lists(&lists);
    return status;
}

HsStatus hs_run_peek_data(HsRun *run, const char *folder)
{
    HsCheckpoint checkpoint;
    HS_TRY(hs_checkpoint_open(folder, false, &checkpoint));
    run->keeps_validation = !hs_json_is_true(hs_json_get(checkpoint.state, VALIDATION_APART));
    HsConfig saved;
    HsStatus status = load_config_of(checkpoint.folder, &saved);
    if (status == HS_OK) {
        bool kept;
        status = hs_run_keep_defaults(run->training.config, &saved);
        if (status == HS_OK)
            status = hs_config_keep_filled(run->training.config, &saved, &kept);
        if (status == HS_OK && kept)
            hs_info("what train.size sets is as this run began; a new run of this length has other values");
        hs_config_deinit(&saved);
    }
    hs_checkpoint_close(&checkpoint);
    return status;
}

HsStatus hs_training_peek_micro_batch(HsTraining *training, const char *folder)
{
    HsTrainingState state;
    const int64_t batch = hs_config_micro_batch_most(training->config);
    char name[HS_RUN_PATH];
    HsStatus status = hs_run_peek_numbers(folder, name, &state);
    const int64_t most = training->config->training.batch_size;
    if (status == HS_OK && state.micro_batch > most)
        status = hs_fail(HS_EFORMAT, "%s: micro_batch is %lld, and at most %lld", name, (long long)state.micro_batch,
                         (long long)most);
    else if (status == HS_OK && state.micro_batch > 0 && batch % state.micro_batch == 0) {
        /* otherwise batch_size or virtual_ranks was changed, and the comparison of configurations will say so */
        const int64_t configured = hs_training_micro_batch(training);
        training->state.micro_batch = state.micro_batch;
        if (state.micro_batch != configured)
            hs_info("the run continues with its micro-batch of %lld, so that results stay equal to the bit",
                    (long long)state.micro_batch);
    }
    return status;
}

HsStatus hs_run_restore(HsRun *run, const char *folder)
{
    HsCheckpoint checkpoint;
    HS_TRY(hs_checkpoint_open(folder, true, &checkpoint));
    HsStatus status = restore(run, &checkpoint);
    hs_checkpoint_close(&checkpoint);
    HS_TRY(status);
    run->resumed = true;
    run->saved_at = run->training.state.counters.applied_steps;
    return hs_run_grow_state(run);
}
