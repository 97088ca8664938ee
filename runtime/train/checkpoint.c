/* SPDX-License-Identifier: MIT
 *
 * What a checkpoint of a run holds, and the way back.
 *
 *   model.safetensors      every parameter: the FP32 master where there is one, else the weight itself
 *   optimizer.safetensors  "<parameter>.<m|v|m_absmax|v_absmax|momentum>" for every trainable parameter
 *                          of delayed scaling (precision.fp8) also fp8.history, fp8.kept and fp8.recorded
 *   trainer.json           HsTrainerState (numbers.c); the strategies' part (checkpoint_continual.c)
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
#include "runtime/config/continual.h"
#include "runtime/checkpoint/weights.h"
#include "runtime/config/chat_template.h"
#include "runtime/config/table.h"
#include "runtime/io/storage.h"
#include "runtime/model/coded.h"
#include "runtime/train/trainer.h"

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
static HsStatus list_scales(HsTrainer *trainer, TensorLists *lists)
{
    HsModelScalings *const scalings = &trainer->model.scalings;
    if (!hs_tensor_present(&scalings->history) || trainer->new_mode)
        return HS_OK;
    HS_TRY(hs_delayed_scales_read(&trainer->model, &trainer->engine.context, &lists->scales));
    const HsNamedTensor entries[] = {
        { .name = "fp8.history", .tensor = scalings->history, .context = &trainer->engine.context },
        { .name = "fp8.kept", .tensor = hs_tensor_1d(lists->scales.kept, HS_F32, scalings->count) },
        { .name = "fp8.recorded", .tensor = hs_tensor_1d(lists->scales.recorded, HS_I32, scalings->count) },
    };
    for (size_t i = 0; i < sizeof entries / sizeof entries[0]; i++)
        lists->optimizer[lists->optimizer_count++] = entries[i];
    return HS_OK;
}

static HsStatus list_tensors(HsTrainer *trainer, TensorLists *lists)
{
    memset(lists, 0, sizeof *lists);
    const HsModel *model = &trainer->model;
    const HsOptimizerConfig *rules = &trainer->optimizer.config;
    const size_t count = (size_t)model->param_count;
    const HsShards *shards = &trainer->shards;
    HS_TRY(hs_weights_list(model, shards->whole, shards->whole_count, &trainer->engine.context, HS_NAMING_OWN,
                           &lists->model));
    enum { SCALES = 3 };
    lists->optimizer = calloc(HS_SPAN_STATES * count + SCALES, sizeof *lists->optimizer);
    if (!lists->optimizer)
        return hs_fail(HS_ENOMEM, "no memory to list %zu tensors of a checkpoint", count);
    for (int i = 0; i < shards->whole_count; i++) {
        const HsSpan *span = &shards->whole[i];
        for (int s = 0; s < hs_optimizer_state_count(rules, span); s++) {
            HsNamedTensor *entry = &lists->optimizer[lists->optimizer_count++];
            snprintf(entry->name, sizeof entry->name, "%.80s.%s", span->name, hs_optimizer_state_name(rules, span, s));
            entry->tensor = span->state[s];
            entry->context = &trainer->engine.context;
            const bool blocks = hs_tensor_count(&span->state[s]) < span->count;
            entry->share = hs_shards_share_of(shards, i, blocks ? HS_DYNAMIC_BLOCK : 1);
        }
    }
    return list_scales(trainer, lists);
}

static void free_lists(TensorLists *lists)
{
    hs_weights_deinit(&lists->model);
    free(lists->optimizer);
    hs_delayed_scales_free(&lists->scales);
}

static HsStatus write_extra(void *user, const char *folder)
{
    HsTrainer *trainer = user;
    HS_TRY(hs_trainer_write_continual(trainer, folder));
    char path[4096];
    snprintf(path, sizeof path, "%s/tokenizer.json", folder);
    HS_TRY(hs_tokenizer_save(trainer->data.tokenizer, path));
    HS_TRY(hs_carried_write(&trainer->carried, folder));
    snprintf(path, sizeof path, "%s/config.yaml", folder);
    char *text;
    HsStatus status = hs_config_text(trainer->config, &text);
    if (status == HS_OK)
        status = hs_storage_write_file(path, text, strlen(text));
    free(text);
    return status;
}

/* Checkpoints hold whole tensors: what another process writes wants this one's ranges of them, and its share of the
 * strategies' statistics, in the order of `save`. */
static HsStatus hand_over(HsTrainer *trainer)
{
    HsStatus status;
    TensorLists lists = { 0 };
    if (!trainer->shards.comm)
        return HS_OK;
    HsJson *state = hs_json_object();
    HS_TRY_GOTO(status, hs_trainer_save_continual(trainer, state), done);
    HS_TRY_GOTO(status, list_tensors(trainer, &lists), done);
    HS_TRY_GOTO(status, hs_weights_spell_out(&lists.model), done);
    HS_TRY_GOTO(status, hs_safetensors_write(NULL, lists.model.items, lists.model.count, NULL, NULL), done);
    HS_TRY_GOTO(status, hs_safetensors_write(NULL, lists.optimizer, lists.optimizer_count, NULL, NULL), done);
    status = hs_trainer_write_continual(trainer, NULL);
done:
    hs_json_destroy(state);
    free_lists(&lists);
    return status;
}

/* names: further ones of the checkpoint, beside `latest`. */
static HsStatus save(HsTrainer *trainer, const char *out_dir, const char *const *names, int name_count)
{
    /* The record of this checkpoint lies before the position that the checkpoint stores, so that a resumed run goes on
     * behind it. */
    assert(trainer->queue.count == 0);
    HsMetricsRecord record = hs_trainer_record(trainer, "checkpoint");
    HS_TRY(hs_metrics_record(trainer->metrics, &record));
    HsMetricsPosition position;
    HS_TRY(hs_metrics_sync(trainer->metrics, &position));
    /* Before a task's first step too, whose beginning may have reset some of it. */
    hs_trainer_copy_optimizer_state(trainer);
    trainer->state.micro_batch = trainer->train_program.batch;
    trainer->state.tuning_hash = (int64_t)trainer->engine.tuning_hash;
    trainer->state.jsonl_bytes = position.jsonl_bytes;
    trainer->state.tensorboard_bytes = position.tensorboard_bytes;
    /* The mixing thread rests, so that reservoir and position belong to the batches trained on so far.  A resumed run
     * that saves before its first step (an evaluation was still due) has no stream yet: the state says where it will
     * begin. */
    if (hs_stream_is_running(trainer->stream)) {
        hs_stream_settle(trainer->stream);
        trainer->state.position = hs_stream_position(trainer->stream);
    }
    if (!hs_trainer_records(trainer))
        return hand_over(trainer);
    HsStatus status;
    TensorLists lists = { 0 };
    HsJson *state = hs_trainer_numbers_json(&trainer->state);
    hs_json_set(state, "files", hs_trainer_files_json(trainer));
    hs_json_set_bool(state, VALIDATION_APART, !trainer->keeps_validation);
    if (trainer->origin)
        hs_json_set(state, "origin", hs_trainer_origin_json(trainer));
    HS_TRY_GOTO(status, hs_trainer_save_continual(trainer, state), done);
    HS_TRY_GOTO(status, list_tensors(trainer, &lists), done);
    HS_TRY_GOTO(status, hs_weights_spell_out(&lists.model), done);
    HsCheckpointContent content = {
        .step = trainer->state.counters.applied_steps,
        .model = lists.model.items,
        .model_count = lists.model.count,
        .optimizer = lists.optimizer,
        .optimizer_count = lists.optimizer_count,
        .state = state,
        .write_extra = write_extra,
        .user = trainer,
        .names = names,
        .name_count = name_count,
    };
    status = hs_checkpoint_save(out_dir, &content, trainer->config->training.keep_checkpoints);
done:
    free_lists(&lists);
    hs_json_destroy(state);
    return status;
}

HsStatus hs_trainer_save_aside(HsTrainer *trainer, const char *out_dir)
{
    return save(trainer, out_dir, NULL, 0);
}

static HsStatus save_in_run(HsTrainer *trainer, const char *const *names, int name_count)
{
    HS_TRY(save(trainer, trainer->config->training.out_dir, names, name_count));
    trainer->saved_at = trainer->state.counters.applied_steps;
    return HS_OK;
}

HsStatus hs_trainer_save(HsTrainer *trainer)
{
    return save_in_run(trainer, NULL, 0);
}

HsStatus hs_trainer_save_best(HsTrainer *trainer, int task)
{
    char own[32];
    const char *const names[] = { HS_CHECKPOINT_BEST, own };
    snprintf(own, sizeof own, HS_CHECKPOINT_BEST "-%d", task + 1);
    return save_in_run(trainer, names, trainer->phase_count > 1 ? 2 : 1);
}

HsStatus hs_trainer_save_held(HsTrainer *trainer)
{
    const char *const names[] = { HS_CHECKPOINT_HELD };
    return save_in_run(trainer, names, 1);
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

HsStatus hs_trainer_find_checkpoint(const HsConfig *config, char **folder)
{
    const char *out_dir = config->training.out_dir;
    *folder = NULL;
    if (strcmp(config->training.resume, "never") == 0) {
        bool exists;
        HS_TRY(hs_checkpoint_exists(out_dir, &exists));
        if (!exists)
            return HS_OK;
        return hs_fail(HS_ECONFIG, "%s holds a run already and resume is never: choose another out_dir, or remove it",
                       out_dir);
    }
    if (strcmp(config->training.resume, "held") == 0)
        HS_TRY(go_back(out_dir));
    HS_TRY(hs_checkpoint_latest(out_dir, folder));
    if (!*folder && strcmp(config->training.resume, "require") == 0)
        return hs_fail(HS_ECONFIG, "%s holds no checkpoint and resume is require", out_dir);
    return HS_OK;
}

/* Of the tasks that both have: hs_trainer_compare_tasks has looked at the list. */
static HsStatus refuse_differences(const HsConfig *config, const HsConfig *saved, const char *folder)
{
    char differing[1024], untrue[1024];
    const bool may_change = strcmp(config->training.resume, "changed") == 0;
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
                       "%s was made with another configuration; differing: %s. To go on with it from there: "
                       "resume=changed. Else set them back, choose another out_dir, or remove the old run",
                       folder, differing);
    return HS_OK;
}

/* What lies elsewhere by now counts as where it was. */
static HsStatus compare_known(HsTrainer *trainer, const HsConfig *saved, const char *folder)
{
    HsConfig shorter = *trainer->config;
    shorter.task_count = saved->task_count;
    shorter.tasks = calloc((size_t)saved->task_count, sizeof *shorter.tasks);
    if (!shorter.tasks)
        return hs_fail(HS_ENOMEM, "no memory for %d tasks", saved->task_count);
    memcpy(shorter.tasks, trainer->config->tasks, (size_t)saved->task_count * sizeof *shorter.tasks);
    /* Nothing was rendered then. */
    if (strcmp(saved->tokenizer.chat_template, HS_CHAT_TEMPLATE_AUTO) == 0)
        shorter.tokenizer.chat_template = saved->tokenizer.chat_template;
    HsStatus status = hs_trainer_accept_moved(trainer, saved, &shorter);
    if (status == HS_OK)
        status = refuse_differences(&shorter, saved, folder);
    free(shorter.tasks);
    return status;
}

/* The configuration that a checkpoint was made with.  memory.limit is of no account here, and in MiB in the first
 * releases' checkpoints, which the check of sizes would refuse. */
static HsStatus load_config_of(const char *folder, HsConfig *saved)
{
    static const char *const without_limit[] = { "memory.limit=0" };
    char path[4096];
    snprintf(path, sizeof path, "%s/config.yaml", folder);
    HS_TRY(hs_config_load_saved(saved, path, 1, without_limit));
    const HsStatus status = hs_trainer_complete_saved(saved);
    if (status != HS_OK)
        hs_config_deinit(saved);
    return status;
}

HsStatus hs_trainer_compare_config(HsTrainer *trainer, const char *folder)
{
    char longer[128] = "";
    const HsConfig *config = trainer->config;
    HsConfig saved;
    HS_TRY(load_config_of(folder, &saved));
    HsStatus status = hs_trainer_compare_tasks(trainer, &saved, folder);
    if (status == HS_OK && hs_trainer_records(trainer))
        status = hs_trainer_read_origin(trainer, folder);
    if (status == HS_OK)
        status = compare_known(trainer, &saved, folder);
    if (status == HS_OK)
        status = hs_config_changes(&saved, config, HS_RESUME_FUTURE, trainer->changes, sizeof trainer->changes);
    if (status == HS_OK)
        status = hs_config_changes(&saved, config, HS_RESUME_LENGTH, longer, sizeof longer);
    if (status == HS_OK && trainer->changes[0])
        hs_info("changed from here on: %s", trainer->changes);
    trainer->new_mode = strcmp(config->precision.mode, saved.precision.mode) != 0 ||
                        strcmp(config->precision_fp8.recipe, saved.precision_fp8.recipe) != 0 ||
                        config->precision_fp8.history != saved.precision_fp8.history;
    trainer->new_length =
        longer[0] && strcmp(config->schedule.kind, "constant") != 0 && config->schedule.decay_steps == 0;
    hs_config_deinit(&saved);
    return status;
}

static HsStatus restore(HsTrainer *trainer, const HsCheckpoint *checkpoint)
{
    char name[4096];
    TensorLists lists;
    HsStatus status;
    HS_TRY_GOTO(status, list_tensors(trainer, &lists), done);
    snprintf(name, sizeof name, "%s/model.safetensors", checkpoint->folder);
    HS_TRY_GOTO(status,
                hs_weights_restore(name, &checkpoint->model, &trainer->model, trainer->shards.whole,
                                   trainer->shards.whole_count, &trainer->engine.context),
                done);
    snprintf(name, sizeof name, "%s/optimizer.safetensors", checkpoint->folder);
    HS_TRY_GOTO(status, hs_checkpoint_restore(name, &checkpoint->optimizer, lists.optimizer, lists.optimizer_count),
                done);
    if (lists.scales.kept)
        HS_TRY_GOTO(status, hs_delayed_scales_write(&trainer->model, &trainer->engine.context, &lists.scales), done);
    snprintf(name, sizeof name, "%s/trainer.json", checkpoint->folder);
    HsTrainerState *state = &trainer->state;
    HS_TRY_GOTO(status, hs_trainer_read_numbers(name, checkpoint->state, state), done);
    HS_TRY_GOTO(status,
                hs_trainer_check_files(trainer, name, checkpoint->folder, hs_json_get(checkpoint->state, "files")),
                done);
    state->micro_batch = trainer->train_program.batch; /* the same, or what fits by now */
    if (state->tuning_hash != (int64_t)trainer->engine.tuning_hash) {
        status =
            hs_fail(HS_ECONFIG,
                    "%s was made with another table of products (kernels.tuning; hash %012llx then, %012llx now, 0 is "
                    "none), which rounds differently: name that one, choose another out_dir, or remove the old run",
                    checkpoint->folder, (unsigned long long)state->tuning_hash,
                    (unsigned long long)trainer->engine.tuning_hash);
        goto done;
    }
    HS_TRY_GOTO(status, hs_trainer_check_numbers(trainer, name), done);
    if (trainer->new_mode) { /* it begins with its own loss scale */
        const HsStepCounters *const fresh = &trainer->optimizer.counters;
        state->counters.loss_scale = fresh->loss_scale;
        state->counters.scaler_tracker = fresh->scaler_tracker;
        state->counters.scaler_hysteresis = fresh->scaler_hysteresis;
    }
    trainer->optimizer.counters = state->counters;
    status = hs_trainer_restore_continual(trainer, checkpoint->folder, checkpoint->state);
done:
    free_lists(&lists);
    return status;
}

HsStatus hs_trainer_peek_data(HsTrainer *trainer, const char *folder)
{
    HsCheckpoint checkpoint;
    HS_TRY(hs_checkpoint_open(folder, false, &checkpoint));
    trainer->keeps_validation = !hs_json_is_true(hs_json_get(checkpoint.state, VALIDATION_APART));
    HsConfig saved;
    HsStatus status = load_config_of(checkpoint.folder, &saved);
    if (status == HS_OK) {
        status = hs_trainer_keep_defaults(trainer->config, &saved);
        hs_config_deinit(&saved);
    }
    hs_checkpoint_close(&checkpoint);
    return status;
}

HsStatus hs_trainer_peek_micro_batch(HsTrainer *trainer, const char *folder)
{
    HsCheckpoint checkpoint;
    HsTrainerState state = { 0 };
    const int64_t batch = hs_config_micro_batch_most(trainer->config);
    HS_TRY(hs_checkpoint_open(folder, false, &checkpoint));
    char name[4096];
    snprintf(name, sizeof name, "%s/trainer.json", checkpoint.folder);
    HsStatus status = hs_trainer_read_numbers(name, checkpoint.state, &state);
    const int64_t most = trainer->config->training.batch_size;
    if (status == HS_OK && state.micro_batch > most)
        status = hs_fail(HS_EFORMAT, "%s: micro_batch is %lld, and at most %lld", name, (long long)state.micro_batch,
                         (long long)most);
    else if (status == HS_OK && state.micro_batch > 0 && batch % state.micro_batch == 0) {
        /* otherwise batch_size or virtual_ranks was changed, and the comparison of configurations will say so */
        const int64_t configured = hs_trainer_micro_batch(trainer);
        trainer->state.micro_batch = state.micro_batch;
        if (state.micro_batch != configured)
            hs_info("the run continues with its micro-batch of %lld, so that results stay equal to the bit",
                    (long long)state.micro_batch);
    }
    hs_checkpoint_close(&checkpoint);
    return status;
}

HsStatus hs_trainer_restore(HsTrainer *trainer, const char *folder)
{
    HsCheckpoint checkpoint;
    HS_TRY(hs_checkpoint_open(folder, true, &checkpoint));
    HsStatus status = restore(trainer, &checkpoint);
    hs_checkpoint_close(&checkpoint);
    HS_TRY(status);
    trainer->resumed = true;
    trainer->saved_at = trainer->state.counters.applied_steps;
    return hs_trainer_grow_state(trainer);
}
