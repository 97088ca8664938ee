/* SPDX-License-Identifier: MIT
 *
 * Steps that compare logits (runtime/model/head_work.h): what they get and what they leave.
 *
 *     reservoir --kept logits of replayed sequences--> step --largest logits of new ones--> reservoir
 *
 * A sequence enters the reservoir when the batch behind its own is mixed, and its logits follow when its step is
 * collected, before the next one starts: so whoever draws it finds them.  This takes one step under way at a time
 * (step_queue.c).  Which logits a step sees depends on the order of the data alone, as the reservoir does.
 *
 * A teacher is a second model of which there are weights alone.  It runs on each micro-batch before the training program,
 * in the same arenas, and leaves its last hidden rows; its logits are made in the head, chunk by chunk.  Where it teaches
 * on replayed sequences alone, which stand last in a step, it reads no others than the last that may be replayed ones.
 */
#include <assert.h>

#include "runtime/model/layer.h"
#include "runtime/model/quantized.h"
#include "runtime/exchange/reduce.h"
#include "runtime/train/trainer.h"

bool hs_trainer_compares_logits(const HsTrainer *trainer)
{
    return trainer->distillation.kept > 0 || trainer->distillation.teacher;
}

void hs_trainer_expect_logits(HsTrainer *trainer)
{
    HsDistillation *distillation = &trainer->distillation;
    *distillation = hs_continual_distillation(&trainer->continual_config);
    if (distillation->kept > trainer->model.vocabulary)
        distillation->kept = trainer->model.vocabulary;
    if (hs_trainer_compares_logits(trainer))
        hs_model_expect_head_work(&trainer->model, distillation->teacher);
}

/* Of the whole micro-batch: those that the teacher does not read are never looked at. */
static HsTensor hidden_rows(const HsTrainer *trainer)
{
    const HsSlot *slot = &trainer->model.slots[trainer->model.hidden_slot];
    const HsProgram *program = &trainer->train_program;
    return hs_tensor_2d(trainer->teacher_hidden.base, slot->dtype, program->batch * program->sequence_length,
                        slot->columns);
}

/* The last sequences of a step, of which those that are taught are some. */
static int64_t taught_rows(const HsTrainer *trainer)
{
    const int64_t rows = trainer->rows_per_step;
    if (trainer->distillation.fresh.weight > 0.0f)
        return rows;
    const HsReplayPlan plan = hs_continual_replay_plan(&trainer->continual_config, rows);
    return hs_replay_rows_most(&plan);
}

/* Of a micro-batch, the last that the teacher reads. */
static int64_t rows_read(const HsTrainer *trainer)
{
    const int64_t batch = trainer->train_program.batch, taught = taught_rows(trainer);
    return taught > 0 && taught < batch ? taught : batch;
}

HsHeadWork hs_trainer_head_work(const HsTrainer *trainer, int64_t row)
{
    const HsStepQueue *queue = &trainer->queue;
    const HsDistillation *distillation = &trainer->distillation;
    const int64_t token = row * queue->shape.length, entry = token * queue->shape.kept;
    const HsModel *teacher = &trainer->teacher;
    return (HsHeadWork){
        .fresh = distillation->fresh,
        .again = distillation->again,
        .teacher_hidden = trainer->taught ? hidden_rows(trainer) : (HsTensor){ 0 },
        .teacher_head = trainer->taught ? &teacher->params[teacher->nodes[teacher->loss_node].params[0]] : NULL,
        .kept = queue->shape.kept,
        .weight = (float)distillation->weight,
        .target_weight = (float)distillation->target_weight,
        .replayed = queue->batch.replayed + token,
        .kept_value = queue->batch.kept_value + entry,
        .kept_index = queue->batch.kept_index + entry,
        .top_value = queue->logits.top_value + entry,
        .top_index = queue->logits.top_index + entry,
        .terms = (unsigned char *)queue->logits.terms + (size_t)token * hs_dtype_bytes(queue->shape.loss),
    };
}

void hs_trainer_load_logits(const HsTrainer *trainer, HsStepSlot *slot, const HsStreamBatch *batch)
{
    const int64_t entries = trainer->queue.shape.length * trainer->queue.shape.kept;
    for (int64_t row = 0; entries > 0 && row < batch->rows; row++)
        if (batch->slots[row] >= 0)
            hs_reservoir_read_logits(&trainer->reservoir, batch->slots[row], slot->batch.kept_value + row * entries,
                                     slot->batch.kept_index + row * entries);
}

/* Rows that other processes had; where gradients pass, round by round (step.c). */
static HsStatus share_logits(const HsTrainer *trainer, const HsStepSlot *slot, int64_t entries)
{
    HsComm *comm = trainer->engine.comm;
    HsStream *stream = trainer->engine.context.stream;
    const int64_t rounds = hs_trainer_passes_gradients(trainer) ? trainer->ranks.own : 1;
    const int64_t rows = trainer->queue.shape.rows / rounds;
    const size_t bytes = (size_t)entries * sizeof *slot->logits.top_value;
    for (int64_t row = 0; row < rounds * rows; row += rows) {
        HS_TRY(hs_share_rows(comm, stream, slot->logits.top_value + row * entries, rows, bytes));
        HS_TRY(hs_share_rows(comm, stream, slot->logits.top_index + row * entries, rows, bytes));
    }
    return HS_OK;
}

HsStatus hs_trainer_keep_logits(HsTrainer *trainer, const HsStepSlot *slot)
{
    const int64_t entries = trainer->queue.shape.length * trainer->queue.shape.kept;
    int64_t count;
    if (entries == 0)
        return HS_OK;
    HS_TRY(share_logits(trainer, slot, entries));
    hs_stream_settle(trainer->stream);
    const int64_t *taken = hs_stream_taken(trainer->stream, &count);
    /* A batch's new sequences are a window of their own, and stand first. */
    assert(count == slot->step.new_rows);
    for (int64_t row = 0; row < count; row++)
        if (taken[row] >= 0)
            hs_reservoir_write_logits(&trainer->reservoir, taken[row], slot->logits.top_value + row * entries,
                                      slot->logits.top_index + row * entries);
    return HS_OK;
}

/* --- the teacher --- */

HsStatus hs_trainer_create_teacher(HsTrainer *trainer)
{
    if (!trainer->distillation.teacher)
        return HS_OK;
    HS_TRY(hs_model_create(trainer->config, &trainer->precision, trainer->vocabulary, &trainer->teacher));
    trainer->has_teacher = true;
    hs_trainer_choose_head_chunk(trainer, &trainer->teacher);
    trainer->teacher.teacher = true;
    return hs_model_commit(&trainer->teacher, &trainer->engine.context, false);
}

HsStatus hs_trainer_plan_teacher(HsTrainer *trainer)
{
    HsContext *context = &trainer->engine.context;
    HsProgram *program = &trainer->teacher_program;
    if (!trainer->has_teacher)
        return HS_OK;
    /* As large as evaluation's, for which there is room. */
    HS_TRY(hs_program_create(&trainer->teacher, context, rows_read(trainer), trainer->config->training.max_length,
                             false, HS_RECOMPUTE_NONE, 1, program));
    HS_TRY(hs_program_commit_in(program, context, &trainer->train_program));
    const HsTensor hidden = hidden_rows(trainer);
    hs_arena_init(&trainer->teacher_hidden, context->device, HS_MEMORY_TEACHER);
    hs_arena_reserve(&trainer->teacher_hidden, hs_tensor_bytes(&hidden));
    return hs_arena_commit(&trainer->teacher_hidden);
}

void hs_trainer_unplan_teacher(HsTrainer *trainer)
{
    if (trainer->teacher_hidden.device)
        hs_arena_deinit(&trainer->teacher_hidden);
    hs_program_destroy(&trainer->teacher_program);
}

void hs_trainer_destroy_teacher(HsTrainer *trainer)
{
    hs_trainer_unplan_teacher(trainer);
    if (trainer->has_teacher)
        hs_model_destroy(&trainer->teacher);
    trainer->has_teacher = false;
}

HsStatus hs_trainer_copy_to_teacher(HsTrainer *trainer, int parameter)
{
    HsDevice *device = &trainer->engine.device;
    const HsParam *from = &trainer->model.params[parameter], *to = &trainer->teacher.params[parameter];
    return device->copy(device, trainer->engine.context.stream, hs_param_weight_memory(to),
                        hs_param_weight_memory(from), hs_param_weight_bytes(from));
}

HsStatus hs_trainer_take_teacher(HsTrainer *trainer, int task)
{
    /* The model knows what is to be forgotten: the one before that task still teaches, where there is one. */
    if (task > 0 && !hs_continual_retains(&trainer->continual_config, task - 1))
        return HS_OK;
    trainer->taught = trainer->has_teacher && task > 0;
    if (!trainer->taught)
        return HS_OK;
    HsStatus status = hs_trainer_lend_weights(trainer);
    for (int i = 0; i < trainer->model.param_count && status == HS_OK; i++)
        status = hs_trainer_copy_to_teacher(trainer, i);
    hs_trainer_take_back_weights(trainer);
    HS_TRY(status);
    return hs_model_pack(&trainer->teacher, &trainer->engine.context);
}

HsStatus hs_trainer_ask_teacher(HsTrainer *trainer, int64_t row)
{
    const int64_t length = trainer->queue.shape.length;
    const int64_t batch = trainer->train_program.batch, read = trainer->teacher_program.batch;
    if (!trainer->taught || row + batch <= trainer->rows_per_step - taught_rows(trainer))
        return HS_OK;
    const int32_t *tokens = trainer->queue.batch.tokens + (row + batch - read) * length;
    const HsTensor hidden = hidden_rows(trainer);
    return hs_program_encode(&trainer->teacher_program, &trainer->engine.context, tokens,
                             hs_tensor_rows(hidden, (batch - read) * length, read * length));
}
