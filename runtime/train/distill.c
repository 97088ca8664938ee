/* SPDX-License-Identifier: MIT
 *
 * Steps that compare logits (runtime/model/head_work.h): what they get and what they leave.
 *
 *     reservoir --kept logits of replayed sequences--> step --largest logits of new ones--> reservoir
 *
 * A sequence enters the reservoir when the batch behind its own is mixed, and its logits follow when its step is
 * collected, before the next one starts: so a step that draws it finds them.  This takes one step under way at a time
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
#include "runtime/train/run.h"

bool hs_training_compares_logits(const HsTraining *training)
{
    return training->teaching.distillation.kept > 0 || training->teaching.distillation.teacher;
}

void hs_training_expect_logits(HsTraining *training)
{
    HsDistillation *distillation = &training->teaching.distillation;
    *distillation = hs_continual_distillation(&training->continual_config);
    if (distillation->kept > training->model.vocabulary)
        distillation->kept = training->model.vocabulary;
    if (hs_training_compares_logits(training))
        hs_model_expect_head_work(&training->model, distillation->kept, distillation->teacher);
}

/* Of the whole micro-batch: those that the teacher does not read are never looked at. */
static HsTensor hidden_rows(const HsTraining *training)
{
    const HsSlot *slot = &training->model.slots[training->model.hidden_slot];
    const HsProgram *program = &training->train_program;
    return hs_tensor_2d(training->teaching.hidden.base, slot->dtype, program->batch * program->sequence_length,
                        slot->columns);
}

/* The last sequences of a step, of which those that are taught are some. */
static int64_t taught_rows(const HsTraining *training)
{
    const int64_t rows = training->rows_per_step;
    if (training->teaching.distillation.fresh.weight > 0.0f)
        return rows;
    const HsReplayPlan plan = hs_continual_replay_plan(&training->continual_config, rows);
    return hs_replay_rows_most(&plan);
}

/* Of a micro-batch, the last that the teacher reads. */
static int64_t rows_read(const HsTraining *training)
{
    const int64_t batch = training->train_program.batch, taught = taught_rows(training);
    return taught > 0 && taught < batch ? taught : batch;
}

HsHeadWork hs_training_head_work(const HsTraining *training, int64_t row)
{
    const HsTeacher *teaching = &training->teaching;
    const HsStepQueue *queue = &training->queue;
    const HsDistillation *distillation = &teaching->distillation;
    const int64_t token = row * queue->shape.length, entry = token * queue->shape.kept;
    const HsModel *teacher = &teaching->teacher;
    const HsNode *head = teaching->taught ? &teacher->nodes[teacher->loss_node] : NULL;
    return (HsHeadWork){
        .fresh = distillation->fresh,
        .again = distillation->again,
        .teacher_hidden = teaching->taught ? hidden_rows(training) : (HsTensor){ 0 },
        .teacher_head = head ? &teacher->params[head->params[0]] : NULL,
        .teacher_attributes = head ? &head->attributes : NULL,
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

void hs_training_load_logits(const HsTraining *training, HsStepSlot *slot, const HsStreamBatch *batch)
{
    const int64_t entries = training->queue.shape.length * training->queue.shape.kept;
    for (int64_t row = 0; entries > 0 && row < batch->rows; row++)
        if (batch->slots[row] >= 0)
            hs_reservoir_read_logits(&training->reservoir, batch->slots[row], slot->batch.kept_value + row * entries,
                                     slot->batch.kept_index + row * entries);
}

/* Rows that other processes had; where gradients pass, round by round (step.c). */
static HsStatus share_logits(const HsTraining *training, const HsStepSlot *slot, int64_t entries)
{
    HsComm *comm = training->engine.comm;
    HsStream *stream = training->engine.context.stream;
    const int64_t rounds = hs_training_passes_gradients(training) ? training->exchange.ranks.own : 1;
    const int64_t rows = training->queue.shape.rows / rounds;
    const size_t bytes = (size_t)entries * sizeof *slot->logits.top_value;
    for (int64_t row = 0; row < rounds * rows; row += rows) {
        HS_TRY(hs_share_rows(comm, stream, slot->logits.top_value + row * entries, rows, bytes));
        HS_TRY(hs_share_rows(comm, stream, slot->logits.top_index + row * entries, rows, bytes));
    }
    return HS_OK;
}

HsStatus hs_training_keep_logits(HsTraining *training, const HsStepSlot *slot)
{
    const int64_t entries = training->queue.shape.length * training->queue.shape.kept;
    int64_t count;
    if (entries == 0)
        return HS_OK;
    HS_TRY(share_logits(training, slot, entries));
    hs_stream_settle(training->stream);
    const int64_t *taken = hs_stream_taken(training->stream, &count);
    /* A batch's new sequences are a separate window, and stand first. */
    assert(count == slot->step.new_rows);
    for (int64_t row = 0; row < count; row++)
        if (taken[row] >= 0)
            hs_reservoir_write_logits(&training->reservoir, taken[row], slot->logits.top_value + row * entries,
                                      slot->logits.top_index + row * entries);
    return HS_OK;
}

/* --- the teacher --- */

HsStatus hs_training_create_teacher(HsTraining *training)
{
    HsTeacher *teaching = &training->teaching;
    if (!teaching->distillation.teacher)
        return HS_OK;
    HS_TRY(hs_model_create(training->config, &training->precision, training->vocabulary, &teaching->teacher));
    teaching->has_teacher = true;
    hs_training_choose_head_chunk(training, &teaching->teacher);
    teaching->teacher.teacher = true;
    return hs_model_commit(&teaching->teacher, &training->engine.context, false);
}

HsStatus hs_training_create_teacher_program(HsTraining *training)
{
    HsTeacher *teaching = &training->teaching;
    HsContext *context = &training->engine.context;
    HsProgram *program = &teaching->program;
    if (!teaching->has_teacher)
        return HS_OK;
    /* As large as evaluation's, for which there is room. */
    HS_TRY(hs_program_create(&teaching->teacher, context, rows_read(training), training->config->training.max_length,
                             false, HS_RECOMPUTE_NONE, 1, program));
    HS_TRY(hs_program_commit_in(program, context, &training->train_program));
    const HsTensor hidden = hidden_rows(training);
    hs_arena_init(&teaching->hidden, context->device, HS_MEMORY_TEACHER);
    hs_arena_reserve(&teaching->hidden, hs_tensor_bytes(&hidden));
    return hs_arena_commit(&teaching->hidden);
}

void hs_training_destroy_teacher_program(HsTraining *training)
{
    HsTeacher *teaching = &training->teaching;
    if (teaching->hidden.device)
        hs_arena_deinit(&teaching->hidden);
    hs_program_destroy(&teaching->program);
}

void hs_training_destroy_teacher(HsTraining *training)
{
    HsTeacher *teaching = &training->teaching;
    hs_training_destroy_teacher_program(training);
    if (teaching->has_teacher)
        hs_model_destroy(&teaching->teacher);
    teaching->has_teacher = false;
}

HsStatus hs_training_copy_to_teacher(HsTraining *training, int parameter)
{
    HsDevice *device = &training->engine.device;
    const HsParam *from = &training->model.params[parameter], *to = &training->teaching.teacher.params[parameter];
    return device->copy(device, training->engine.context.stream, hs_param_weight_memory(to),
                        hs_param_weight_memory(from), hs_param_weight_bytes(from));
}

HsStatus hs_training_take_teacher(HsTraining *training, int task)
{
    HsTeacher *teaching = &training->teaching;
    /* The model knows what is to be forgotten: the one before that task still teaches, where there is one. */
    if (task > 0 && !hs_continual_retains(&training->continual_config, task - 1))
        return HS_OK;
    teaching->taught = teaching->has_teacher && task > 0;
    if (!teaching->taught)
        return HS_OK;
    HsStatus status = hs_training_lend_weights(training);
    for (int i = 0; i < training->model.param_count && status == HS_OK; i++)
        status = hs_training_copy_to_teacher(training, i);
    hs_training_take_back_weights(training);
    HS_TRY(status);
    return hs_model_pack(&teaching->teacher, &training->engine.context);
}

HsStatus hs_training_ask_teacher(HsTraining *training, int64_t row)
{
    HsTeacher *teaching = &training->teaching;
    const int64_t length = training->queue.shape.length;
    const int64_t batch = training->train_program.batch, read = teaching->program.batch;
    if (!teaching->taught || row + batch <= training->rows_per_step - taught_rows(training))
        return HS_OK;
    const int32_t *tokens = training->queue.batch.tokens + (row + batch - read) * length;
    const HsTensor hidden = hidden_rows(training);
    return hs_program_encode(&teaching->program, &training->engine.context, tokens,
                             hs_tensor_rows(hidden, (batch - read) * length, read * length));
}
