/* SPDX-License-Identifier: MIT
 *
 * One optimizer step in two halves: starting it enqueues everything on the device, collecting it waits for its report.
 * In between the host may start more (runtime/train/step_queue.h); how many is the loop's business.
 *
 *     start:    batch up -> [ gradients of every micro-batch -> strategies -> decisions -> update ] -> strategies
 *     collect:  losses and outcome down -> counters
 *
 * Gradients are scaled by  loss scale / counted targets of the whole effective batch,  the latter known before the
 * first micro-batch runs, so that N micro-batches weigh their targets exactly as one batch would.  So do N ranks
 * (runtime/exchange/reduce.h): the effective batch is that of all of them.
 *
 * With kernels.cuda_graph what stands in brackets is recorded once in a task and then replayed: it reads everything
 * that changes from device memory, but for the number of rows that the head takes (runtime/model/target_rows.h).  For
 * each of its few sizes there is a recording.  The first step of a size runs as it is: whatever is made at a first use
 * is made then.
 */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "kernels/base/log.h"
#include "runtime/exchange/reduce.h"
#include "runtime/train/run.h"

/* --- on the device --- */

/* Rows of a step and what comes of them, in device memory. */
typedef struct Rows {
    const int32_t *tokens, *targets, *target_rows;
    const int64_t *target_counts; /* on the host, by a micro-batch's first row; NULL in a dry run */
    int64_t count;
    int64_t first_row; /* of the first of them, for random numbers */
    const float *gradient_scale;
    void *losses; /* NULL: not wanted */
} Rows;

/* One virtual rank's rows, micro-batch after micro-batch; in the last of the last, sums are made during backward. */
static HsStatus run_part(HsTraining *training, const Rows *rows, int64_t part, bool last)
{
    const bool compares = rows->losses != NULL && hs_training_compares_logits(training);
    const HsConfig *config = training->config;
    const int64_t length = config->training.max_length;
    const size_t loss_bytes = hs_dtype_bytes(training->precision.statistic);
    const int64_t part_rows = rows->count / training->exchange.ranks.count, first = part * part_rows;
    for (int64_t row = first; row < first + part_rows; row += training->train_program.batch) {
        const int64_t offset = row * length;
        const HsHeadWork head_work = compares ? hs_training_head_work(training, row) : (HsHeadWork){ 0 };
        const HsProgramFeed feed = {
            .tokens = rows->tokens + offset,
            .targets = rows->targets + offset,
            .seed = (uint64_t)config->training.seed,
            .step_counter = &training->optimizer.state->attempt,
            .gradient_scale = rows->gradient_scale,
            .row_offset = rows->first_row * length + offset,
            .losses = rows->losses ? (unsigned char *)rows->losses + (size_t)offset * loss_bytes : NULL,
            .head_work = compares ? &head_work : NULL,
            .left_out = rows->losses ? &training->run_left_out : NULL,
            .target_rows = rows->target_counts ? (HsTargetRows){ rows->target_rows + offset, rows->target_counts[row] }
                                               : (HsTargetRows){ 0 },
        };
        if (compares)
            HS_TRY(hs_training_ask_teacher(training, row));
        training->exchange.buckets.open = last && row + training->train_program.batch >= first + part_rows;
        HS_TRY(hs_program_train_queued(&training->train_program, &training->engine.context, &feed));
    }
    return HS_OK;
}

/* The same where gradients pass: in each round every process has one of N consecutive virtual ranks, and their sum is
 * made while they pass.  Rounds are added along the tree as parts are. */
static HsStatus run_rounds(HsTraining *training, const Rows *rows)
{
    const HsComm *comm = training->engine.comm;
    hs_training_exchange(training);
    for (int64_t i = 0; i < training->exchange.ranks.own; i++) {
        HS_TRY(run_part(training, rows, i * comm->size + comm->rank, false));
        HS_TRY(hs_partial_sums_add(&training->exchange.sums, &training->engine.context, i));
    }
    return HS_OK;
}

/* The gradients of all rows: of this process's virtual ranks, then of all processes. */
static HsStatus run_rows(HsTraining *training, const Rows *rows)
{
    HsExchange *exchange = &training->exchange;
    const HsVirtualRanks *ranks = &exchange->ranks;
    HsContext *context = &training->engine.context;
    if (hs_training_passes_gradients(training))
        return run_rounds(training, rows);
    const bool several = exchange->buckets.count > 0;
    hs_training_exchange(training);
    for (int64_t i = 0; i < ranks->own; i++) {
        const bool last = several && i == ranks->own - 1;
        HS_TRY(run_part(training, rows, ranks->first + i, last));
        if (!last)
            HS_TRY(hs_partial_sums_add(&exchange->sums, context, i));
    }
    return several ? hs_buckets_join(&exchange->buckets, context) : HS_OK;
}

/* The gradient on sequences of earlier tasks, handed over to the strategy that wants it. */
static HsStatus run_reference(HsTraining *training, int64_t rows)
{
    const HsStepQueue *queue = &training->queue;
    /* Behind the batch's own rows, so that dropout masks are other ones. */
    const Rows reference = { .tokens = queue->batch.reference_tokens,
                             .targets = queue->batch.reference_targets,
                             .target_rows = queue->batch.reference_target_rows,
                             .target_counts = queue->target_counts ? queue->target_counts + queue->shape.rows : NULL,
                             .count = rows,
                             .first_row = queue->shape.rows,
                             .gradient_scale = &training->optimizer.gradient_scales[HS_ROWS_REFERENCE] };
    HS_TRY(run_rows(training, &reference));
    return hs_continual_take_reference(training->continual, &training->engine.context);
}

/* Until its gradients are there a step can be abandoned without side effects: its batch stays the next one. */
static void accept_batch(HsTraining *training)
{
    if (training->batch_in_hand)
        hs_stream_accept(training->stream);
    training->batch_in_hand = false;
}

/* From the batch in its place to updated weights. */
static HsStatus run_step(HsTraining *training, int64_t reference_rows)
{
    HsContext *context = &training->engine.context;
    HsOptimizer *optimizer = &training->optimizer;
    const HsStepQueue *queue = &training->queue;
    HS_TRY(hs_optimizer_begin(optimizer, context));
    training->model.scalings.stale = true; /* in a recording, too: weights are cast once in every step */
    if (reference_rows > 0)
        HS_TRY(run_reference(training, reference_rows));
    const Rows trained = { .tokens = queue->batch.tokens,
                           .targets = queue->batch.targets,
                           .target_rows = queue->batch.target_rows,
                           .target_counts = queue->target_counts,
                           .count = queue->shape.rows,
                           .gradient_scale = &optimizer->gradient_scales[HS_ROWS_TRAINED],
                           .losses = queue->losses };
    HS_TRY(run_rows(training, &trained));
    accept_batch(training);
    hs_range_begin(context, HS_RANGE_STRATEGY, "strategies, on gradients");
    HsStatus looked = hs_continual_before_update(training->continual, context);
    hs_range_end(context);
    HS_TRY(looked);
    hs_range_begin(context, HS_RANGE_UPDATE, "update");
    HsStatus status = hs_optimizer_update(optimizer, context, training->spans, training->span_count);
    if (status == HS_OK)
        status = hs_model_roll_scales(&training->model, context, training->engine.comm);
    training->model.scalings.begun = training->model.scalings.stale = true;
    hs_range_end(context);
    return status;
}

HsStatus hs_training_walk_step(HsTraining *draft)
{
    draft->model.scalings.begun = true; /* as in every step but the first */
    return run_step(draft, 0);
}

/* An update packs the whole parameters that it writes; not what came in parts. */
HsStatus hs_training_publish_weights(HsTraining *training)
{
    HsExchange *exchange = &training->exchange;
    HsContext *context = &training->engine.context;
    HS_TRY(hs_shards_gather_weights(&exchange->shards, context));
    return exchange->shards.cut || exchange->shards.comm ? hs_model_pack(&training->model, context) : HS_OK;
}

/* --- recorded steps --- */

static HsStatus record(HsTraining *training, HsGraph **made)
{
    HsDevice *device = &training->engine.device;
    HsStream *stream = training->engine.context.stream;
    HS_TRY(device->graph_begin(device, stream));
    HsStatus status = run_step(training, 0);
    HsGraph *graph = NULL;
    /* Recording ends also after a failure; the failure's message is the one to report. */
    char message[512];
    snprintf(message, sizeof message, "%.511s", status == HS_OK ? "" : hs_error_message());
    HsStatus ended = device->graph_end(device, stream, &graph);
    if (status != HS_OK) {
        if (graph)
            device->graph_destroy(device, graph);
        return hs_fail(status, "a step cannot be recorded (kernels.cuda_graph: false runs without): %s", message);
    }
    HS_TRY(ended);
    *made = graph;
    return HS_OK;
}

static HsStatus replay(HsTraining *training)
{
    HsDevice *device = &training->engine.device;
    HsStepGraph *recorded = &training->graphs[training->queue.target_size];
    if (!recorded->warm) {
        recorded->warm = true;
        return run_step(training, 0);
    }
    if (!recorded->graph)
        HS_TRY(record(training, &recorded->graph));
    return device->graph_launch(device, recorded->graph, training->engine.context.stream);
}

/* --- starting --- */

static HsStatus enqueue(HsTraining *training, HsStepSlot *slot)
{
    HsContext *context = &training->engine.context;
    HsOptimizer *optimizer = &training->optimizer;
    const bool wanted = hs_continual_wants_reference(training->continual, (int)training->state.task);
    optimizer->learning_rate_scale = slot->step.learning_rate_scale * hs_training_rate_scale(training);
    HS_TRY(hs_optimizer_announce(optimizer, context, slot->counted, slot->reference_counted, slot->input));
    HS_TRY(hs_step_queue_send(&training->queue, slot, optimizer->input));
    /* A recording is replayed as it was made: what changes from step to step cannot be part of its update.  Observed
     * steps run eagerly, as a recording has no ranges, and fold no more than the others, so that the bits are the
     * same. */
    const bool recordable = hs_training_can_record(training), folded = !recordable;
    if (folded)
        hs_continual_fold(training->continual, &slot->step);
    if (recordable && !context->observer)
        HS_TRY(replay(training));
    else
        HS_TRY(run_step(training, wanted ? slot->reference_rows : 0));
    accept_batch(training);
    /* Which of the recorded steps ends a group follows from the data alone: MER's interpolations are outside the
     * recording, but are not waited for either.  A backend that records packs no weights, which would be stale now. */
    hs_range_begin(context, HS_RANGE_STRATEGY, "strategies, on weights");
    HsStatus looked = hs_continual_after_step(training->continual, context, &slot->step, folded);
    if (looked == HS_OK)
        looked = hs_training_publish_weights(training);
    hs_range_end(context);
    HS_TRY(looked);
    training->model.scalings.stale = true;
    return hs_step_queue_receive(&training->queue, slot, optimizer->outcome);
}

HsStatus hs_training_start_step(HsTraining *training)
{
    const HsStreamBatch *batch;
    HsContext *context = &training->engine.context;
    hs_range_begin(context, HS_RANGE_DATA, "data");
    HsStatus got = hs_stream_peek(training->stream, &batch);
    hs_range_end(context);
    HS_TRY(got);
    training->batch_in_hand = true;
    HsStepSlot *slot = hs_step_queue_fill(&training->queue, batch, training->train_program.batch);
    hs_training_load_logits(training, slot, batch);
    const HsTrainingState *state = &training->state;
    slot->attempt = (uint32_t)(state->counters.applied_steps + state->counters.skipped_steps + training->queue.count);
    hs_range_begin(context, HS_RANGE_STEP, "optimizer step");
    HsStatus status = enqueue(training, slot);
    hs_range_end(context);
    return status;
}

/* --- collecting --- */

/* Sums over the counted targets of an optimizer step, in row order: the losses of new rows, and of replayed ones; what
 * comparing logits adds to the loss, over the rows in which they are compared. */
enum { NEW_ROWS, REPLAYED_ROWS, COMPARED_ROWS, ROW_KINDS = HS_TRAINING_LOSS_KINDS };
typedef struct StepLoss {
    double sums[ROW_KINDS];
    int64_t counts[ROW_KINDS];
} StepLoss;

/* One micro-batch, sequence by sequence: its own sums, for this process's rows, and how many targets they are of, for
 * all processes' rows. */
static void split_losses(const HsTraining *training, const HsStepSlot *slot, int64_t first_row, bool own, double *sums,
                         int64_t *counts)
{
    const HsTeacher *teaching = &training->teaching;
    const int64_t length = training->config->training.max_length;
    const HsDistillation *distillation = &teaching->distillation;
    const bool compared[] = {
        [NEW_ROWS] = teaching->taught && distillation->fresh.weight > 0.0f,
        [REPLAYED_ROWS] = distillation->kept > 0 || (teaching->taught && distillation->again.weight > 0.0f),
    };
    for (int64_t row = first_row; row < first_row + training->train_program.batch; row++) {
        const int kind = slot->replayed[row] ? REPLAYED_ROWS : NEW_ROWS;
        for (int64_t i = row * length; i < (row + 1) * length; i++) {
            if (slot->batch.targets[i] < 0)
                continue;
            counts[kind]++;
            counts[COMPARED_ROWS] += compared[kind];
            if (own)
                sums[kind] += hs_dtype_load(training->queue.shape.loss, slot->losses, i);
            if (own && compared[kind])
                sums[COMPARED_ROWS] += hs_dtype_load(training->queue.shape.loss, slot->logits.terms, i);
        }
    }
}

/* Whether this process ran the micro-batch that begins with the row. */
static bool is_own_row(const HsTraining *training, int64_t row)
{
    const HsVirtualRanks *ranks = &training->exchange.ranks;
    const HsComm *comm = training->engine.comm;
    const int64_t part = row / (training->queue.shape.rows / ranks->count);
    if (hs_training_passes_gradients(training))
        return part % comm->size == comm->rank;
    return part >= ranks->first && part < ranks->first + ranks->own;
}

/* Micro-batches are summed by themselves first, then in their order, whichever process had them. */
static HsStatus sum_losses(HsTraining *training, const HsStepSlot *slot, StepLoss *loss)
{
    const int64_t rows = training->queue.shape.rows, batch = training->train_program.batch;
    memset(training->loss_sums, 0, (size_t)(rows / batch * ROW_KINDS) * sizeof *training->loss_sums);
    for (int64_t row = 0; row < rows; row += batch)
        split_losses(training, slot, row, is_own_row(training, row), training->loss_sums + row / batch * ROW_KINDS,
                     loss->counts);
    HS_TRY(hs_share_entries(training->engine.comm, training->engine.context.stream, training->loss_sums,
                            (size_t)(rows / batch * ROW_KINDS)));
    for (int64_t i = 0; i < rows / batch * ROW_KINDS; i++)
        loss->sums[i % ROW_KINDS] += training->loss_sums[i];
    return HS_OK;
}

/* NAN where there is no such target. */
static double mean_of(const StepLoss *loss, int kind)
{
    return loss->counts[kind] > 0 ? loss->sums[kind] / (double)loss->counts[kind] : NAN;
}

/* Means of the step into the sums that the next record shows. */
static void count_losses(HsTrainingState *state, const StepLoss *loss)
{
    if (loss->counts[NEW_ROWS] > 0) {
        state->window_loss += mean_of(loss, NEW_ROWS);
        state->window_steps++;
    }
    if (loss->counts[REPLAYED_ROWS] > 0) {
        state->window_replay_loss += mean_of(loss, REPLAYED_ROWS);
        state->window_replay_steps++;
    }
    if (loss->counts[COMPARED_ROWS] > 0) {
        state->window_distillation =
            mean_of(loss, COMPARED_ROWS) + (state->window_distillation_steps > 0 ? state->window_distillation : 0);
        state->window_distillation_steps++;
    }
}

/* Waits for the oldest step under way and counts it. */
static HsStatus take_report(HsTraining *training, HsStepSlot **slot, HsStepReport *report)
{
    HS_TRY(hs_step_queue_wait(&training->queue, slot));
    hs_optimizer_collect(&training->optimizer, (*slot)->outcome, report);
    hs_training_copy_optimizer_state(training);
    training->state.tokens_seen += (*slot)->counted;
    training->window_tokens += training->rows_per_step * training->config->training.max_length;
    training->run_tokens += training->rows_per_step * training->config->training.max_length;
    training->run_counted += (*slot)->counted;
    return HS_OK;
}

HsStatus hs_training_collect_step(HsTraining *training, double *mean_loss, HsStepReport *report)
{
    StepLoss loss = { 0 };
    HsStepSlot *slot;
    HsTrainingState *state = &training->state;
    HS_TRY(take_report(training, &slot, report));
    HS_TRY(hs_training_keep_logits(training, slot));
    HS_TRY(sum_losses(training, slot, &loss));
    *mean_loss = mean_of(&loss, NEW_ROWS);
    if (report->verdict == HS_SCALER_HOPELESS)
        return hs_fail(HS_ENUMERIC, "gradients are not finite at step %lld with loss scale %g, the smallest allowed",
                       (long long)state->counters.applied_steps, (double)report->loss_scale);
    if (report->verdict == HS_SCALER_SKIP) {
        hs_info("step %lld skipped: gradients overflow at loss scale %g; the scale is now %g (%lld skipped so far)",
                (long long)state->counters.applied_steps, (double)report->loss_scale,
                (double)training->optimizer.counters.loss_scale, (long long)state->counters.skipped_steps);
        return HS_OK;
    }
    state->task_steps++;
    count_losses(state, &loss);
    return HS_OK;
}

HsStatus hs_training_step(HsTraining *training, double *mean_loss, HsStepReport *report)
{
    assert(training->queue.count == 0);
    HS_TRY(hs_training_start_step(training));
    return hs_training_collect_step(training, mean_loss, report);
}

HsStatus hs_training_drop_steps(HsTraining *training)
{
    while (training->queue.count > 0) {
        HsStepSlot *later;
        HsStepReport ignored;
        HS_TRY(take_report(training, &later, &ignored));
    }
    return HS_OK;
}
