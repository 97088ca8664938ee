/* SPDX-License-Identifier: MIT
 *
 * One optimizer step in two halves: starting it enqueues everything on the device, collecting it waits for its report.
 * In between the host may start more (runtime/step_queue.h); how many is the loop's business.
 *
 *     start:    batch up -> [ gradients of every micro-batch -> strategies -> decisions -> update ] -> strategies
 *     collect:  losses and outcome down -> counters
 *
 * Gradients are scaled by  loss scale / counted targets of the whole effective batch,  the latter known before the
 * first micro-batch runs, so that N micro-batches weigh their targets exactly as one batch would.
 *
 * With kernels.cuda_graph what stands in brackets is recorded once in a task and then replayed: it reads everything
 * that changes from device memory.  The first step of a task runs as it is: whatever is made at a first use is made
 * then.
 */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "kernels/base/log.h"
#include "runtime/trainer.h"

/* --- on the device --- */

/* A task's own memory on the device, micro-batch after micro-batch. */
static HsStatus run_micro_batches(HsTrainer *trainer, const int32_t *tokens, const int32_t *targets, int64_t rows,
                                  int64_t first_row, const float *gradient_scale, void *losses)
{
    const HsConfig *config = trainer->config;
    const int64_t length = config->training.max_length;
    const size_t loss_bytes = hs_dtype_bytes(trainer->precision.statistic);
    for (int64_t row = 0; row < rows; row += trainer->train_plan.batch) {
        const int64_t offset = row * length;
        const HsPlanFeed feed = {
            .tokens = tokens + offset,
            .targets = targets + offset,
            .seed = (uint64_t)config->training.seed,
            .step_counter = &trainer->optimizer.state->attempt,
            .gradient_scale = gradient_scale,
            .row_offset = first_row * length + offset,
            .losses = losses ? (unsigned char *)losses + (size_t)offset * loss_bytes : NULL,
        };
        HS_TRY(hs_plan_train_queued(&trainer->train_plan, &trainer->engine.context, &feed));
    }
    return HS_OK;
}

/* A-GEM's gradient on sequences of earlier tasks, handed over to the strategy. */
static HsStatus run_reference(HsTrainer *trainer, int64_t rows)
{
    const HsStepQueue *queue = &trainer->queue;
    /* Behind the batch's own rows, so that dropout masks are other ones. */
    HS_TRY(run_micro_batches(trainer, queue->batch.reference_tokens, queue->batch.reference_targets, rows,
                             queue->shape.rows, &trainer->optimizer.gradient_scales[1], NULL));
    return hs_continual_take_reference(trainer->continual, &trainer->engine.context);
}

/* Until its gradients are there a step can be given up as if it had never begun: its batch stays the next one. */
static void accept_batch(HsTrainer *trainer)
{
    if (trainer->batch_in_hand)
        hs_stream_accept(trainer->stream);
    trainer->batch_in_hand = false;
}

/* From the batch in its place to updated weights. */
static HsStatus run_step(HsTrainer *trainer, int64_t reference_rows)
{
    HsContext *context = &trainer->engine.context;
    HsOptimizer *optimizer = &trainer->optimizer;
    const HsStepQueue *queue = &trainer->queue;
    HS_TRY(hs_optimizer_begin(optimizer, context));
    if (reference_rows > 0)
        HS_TRY(run_reference(trainer, reference_rows));
    HS_TRY(run_micro_batches(trainer, queue->batch.tokens, queue->batch.targets, queue->shape.rows, 0,
                             &optimizer->gradient_scales[0], queue->losses));
    accept_batch(trainer);
    hs_range_begin(context, HS_RANGE_STRATEGY, "strategies, on gradients");
    HsStatus looked = hs_continual_before_update(trainer->continual, context);
    hs_range_end(context);
    HS_TRY(looked);
    hs_range_begin(context, HS_RANGE_UPDATE, "update");
    HsStatus status = hs_optimizer_update(optimizer, context, trainer->spans, trainer->span_count);
    hs_range_end(context);
    return status;
}

/* --- recorded steps --- */

/* A-GEM's projection is the host's decision, in the middle of a step. */
static bool can_record(const HsTrainer *trainer)
{
    return trainer->engine.cuda_graph && !hs_continual_has(&trainer->continual_config, "a-gem");
}

void hs_trainer_describe_graph(const HsTrainer *trainer)
{
    if (!trainer->engine.cuda_graph)
        return;
    if (!can_record(trainer))
        hs_info("cuda_graph: no step is recorded, as a-gem looks at each step's gradients on the host");
    else
        hs_info("cuda_graph: from a task's second step on, steps are replays of one recording%s",
                hs_continual_has(&trainer->continual_config, "mer") ? "; mer's interpolations run beside it" : "");
}

void hs_trainer_forget_graph(HsTrainer *trainer)
{
    HsDevice *device = &trainer->engine.device;
    if (trainer->graph)
        device->graph_destroy(device, trainer->graph);
    trainer->graph = NULL;
    trainer->graph_warm = false;
}

static HsStatus record(HsTrainer *trainer)
{
    HsDevice *device = &trainer->engine.device;
    HsStream *stream = trainer->engine.context.stream;
    HS_TRY(device->graph_begin(device, stream));
    HsStatus status = run_step(trainer, 0);
    HsGraph *graph = NULL;
    /* Recording ends also after a failure, whose message comes first. */
    char message[512];
    snprintf(message, sizeof message, "%.511s", status == HS_OK ? "" : hs_error_message());
    HsStatus ended = device->graph_end(device, stream, &graph);
    if (status != HS_OK) {
        if (graph)
            device->graph_destroy(device, graph);
        return hs_fail(status, "recording a step: %s", message);
    }
    HS_TRY(ended);
    trainer->graph = graph;
    return HS_OK;
}

static HsStatus replay(HsTrainer *trainer)
{
    HsDevice *device = &trainer->engine.device;
    if (!trainer->graph_warm) {
        trainer->graph_warm = true;
        return run_step(trainer, 0);
    }
    if (!trainer->graph)
        HS_TRY(record(trainer));
    return device->graph_launch(device, trainer->graph, trainer->engine.context.stream);
}

/* --- starting --- */

static HsStatus enqueue(HsTrainer *trainer, HsStepSlot *slot)
{
    HsContext *context = &trainer->engine.context;
    HsOptimizer *optimizer = &trainer->optimizer;
    const bool wanted = hs_continual_wants_reference(trainer->continual, (int)trainer->state.task);
    optimizer->learning_rate_scale = slot->step.learning_rate_scale * hs_mer_rate_scale(&trainer->continual_config);
    HS_TRY(hs_optimizer_announce(optimizer, context, slot->counted, slot->reference_counted, slot->input));
    HS_TRY(hs_step_queue_send(&trainer->queue, slot, optimizer->input));
    if (!can_record(trainer))
        hs_continual_fold(trainer->continual, &slot->step);
    /* Who watches a step wants its ranges, and a recording has none. */
    const bool recorded = can_record(trainer) && !context->observer;
    HS_TRY(recorded ? replay(trainer) : run_step(trainer, wanted ? slot->reference_rows : 0));
    accept_batch(trainer);
    /* Which of the recorded steps ends a group follows from the data alone: MER's interpolations stand beside the
     * recording, but are not waited for either.  A backend that records packs no weights, which would be stale now. */
    hs_range_begin(context, HS_RANGE_STRATEGY, "strategies, on weights");
    HsStatus looked = hs_continual_after_step(trainer->continual, context, &slot->step);
    hs_range_end(context);
    HS_TRY(looked);
    return hs_step_queue_receive(&trainer->queue, slot, optimizer->outcome);
}

HsStatus hs_trainer_start_step(HsTrainer *trainer)
{
    const HsStreamBatch *batch;
    HsContext *context = &trainer->engine.context;
    hs_range_begin(context, HS_RANGE_DATA, "data");
    HsStatus got = hs_stream_peek(trainer->stream, &batch);
    hs_range_end(context);
    HS_TRY(got);
    trainer->batch_in_hand = true;
    HsStepSlot *slot = hs_step_queue_fill(&trainer->queue, batch);
    const HsTrainerState *state = &trainer->state;
    slot->attempt = (uint32_t)(state->applied_steps + state->skipped_steps + trainer->queue.count);
    hs_range_begin(context, HS_RANGE_STEP, "optimizer step");
    HsStatus status = enqueue(trainer, slot);
    hs_range_end(context);
    return status;
}

/* --- collecting --- */

/* Sums of losses over the counted targets of an optimizer step, in row order. */
typedef struct StepLoss {
    double new_sum, replay_sum;
    int64_t new_count, replay_count;
} StepLoss;

/* One micro-batch, sequence by sequence.  Each micro-batch is summed by itself first. */
static void split_losses(const HsTrainer *trainer, const HsStepSlot *slot, int64_t first_row, StepLoss *loss)
{
    const int64_t length = trainer->config->training.max_length;
    double sums[2] = { 0, 0 };
    int64_t counts[2] = { 0, 0 };
    for (int64_t row = first_row; row < first_row + trainer->train_plan.batch; row++) {
        const int replayed = slot->replayed[row] != 0;
        for (int64_t i = row * length; i < (row + 1) * length; i++) {
            if (slot->batch.targets[i] < 0)
                continue;
            sums[replayed] += hs_dtype_load(trainer->queue.shape.loss, slot->losses, i);
            counts[replayed]++;
        }
    }
    loss->new_sum += sums[0];
    loss->new_count += counts[0];
    loss->replay_sum += sums[1];
    loss->replay_count += counts[1];
}

/* Means of the step into the sums that the next record shows. */
static void count_losses(HsTrainerState *state, const StepLoss *loss)
{
    if (loss->new_count > 0) {
        state->window_loss += loss->new_sum / (double)loss->new_count;
        state->window_steps++;
    }
    if (loss->replay_count > 0) {
        state->window_replay_loss += loss->replay_sum / (double)loss->replay_count;
        state->window_replay_steps++;
    }
}

void hs_trainer_copy_optimizer_state(HsTrainer *trainer)
{
    HsTrainerState *state = &trainer->state;
    state->schedule_steps = trainer->optimizer.schedule_steps;
    state->moment_steps = trainer->optimizer.moment_steps;
    state->applied_steps = trainer->optimizer.applied_steps;
    state->skipped_steps = trainer->optimizer.skipped_steps;
    state->loss_scale = (double)trainer->optimizer.scaler.scale;
    state->scaler_tracker = trainer->optimizer.scaler.tracker;
    state->scaler_hysteresis = trainer->optimizer.scaler.hysteresis_left;
}

/* The oldest step under way, in the books. */
static HsStatus take_report(HsTrainer *trainer, HsStepSlot **slot, HsStepReport *report)
{
    HS_TRY(hs_step_queue_wait(&trainer->queue, slot));
    hs_optimizer_collect(&trainer->optimizer, (*slot)->outcome, report);
    hs_trainer_copy_optimizer_state(trainer);
    trainer->state.tokens_seen += (*slot)->counted;
    trainer->window_tokens += trainer->rows_per_step * trainer->config->training.max_length;
    return HS_OK;
}

/* Says what happened, and a command that goes on: from the last checkpoint, with a lower learning rate. */
static HsStatus explain(const HsTrainer *trainer, const HsStepReport *report, const char *where, const char *kept)
{
    const HsConfig *config = trainer->config;
    const char *const out_dir = config->training.out_dir;
    const char *const wider = strcmp(trainer->precision.name, "fp16") == 0   ? " precision.mode=bf16, or"
                              : strcmp(trainer->precision.name, "bf16") == 0 ? " precision.mode=fp32, or"
                                                                             : "";
    bool saved;
    return hs_fail(
        HS_ENUMERIC,
        "gradients are not finite at step %lld with loss scale %g, the smallest allowed; first non-finite value: "
        "%s. The state is kept for inspection in %s; the last checkpoint stays what it was. To go on %s with%s "
        "a lower learning rate: trainer --config %s/config.yaml resume=changed learning_rate=%.2g",
        (long long)trainer->state.applied_steps, (double)report->loss_scale, where, kept,
        hs_checkpoint_exists(out_dir, &saved) == HS_OK && saved ? "from it" : "from the start", wider, out_dir,
        config->training.learning_rate / 3);
}

/* Gradients that no loss scale mends: find the tensor that went first, keep the state, and stop.  Steps that were
 * started behind it have changed nothing and count as skipped. */
static HsStatus diagnose(HsTrainer *trainer, const HsStepSlot *slot, const HsStepReport *report)
{
    const HsConfig *config = trainer->config;
    const int64_t counted = slot->counted > 0 ? slot->counted : 1;
    char where[192] = "", kept[4096];
    while (trainer->queue.count > 0) {
        HsStepSlot *later;
        HsStepReport ignored;
        HS_TRY(take_report(trainer, &later, &ignored));
    }
    for (int64_t row = 0; row < trainer->queue.shape.rows && where[0] == '\0'; row += trainer->train_plan.batch) {
        const int64_t offset = row * config->training.max_length;
        HS_TRY(hs_plan_find_nonfinite(&trainer->train_plan, &trainer->engine.context, slot->batch.tokens + offset,
                                      slot->batch.targets + offset, (uint64_t)config->training.seed, slot->attempt,
                                      offset, report->loss_scale / (float)counted, where, sizeof where));
    }
    if (where[0] == '\0')
        snprintf(where, sizeof where, "the gradient of %s, in its accumulation",
                 report->first_nonfinite >= 0 ? trainer->spans[report->first_nonfinite].name : "a parameter");
    snprintf(kept, sizeof kept, "%s/diverged", config->training.out_dir);
    HS_TRY(hs_trainer_save_aside(trainer, kept));
    return explain(trainer, report, where, kept);
}

HsStatus hs_trainer_collect_step(HsTrainer *trainer, double *mean_loss, HsStepReport *report)
{
    StepLoss loss = { 0 };
    HsStepSlot *slot;
    HsTrainerState *state = &trainer->state;
    HS_TRY(take_report(trainer, &slot, report));
    for (int64_t row = 0; row < trainer->queue.shape.rows; row += trainer->train_plan.batch)
        split_losses(trainer, slot, row, &loss);
    *mean_loss = loss.new_count > 0 ? loss.new_sum / (double)loss.new_count : NAN;
    if (report->verdict == HS_SCALER_HOPELESS)
        return diagnose(trainer, slot, report);
    if (report->verdict == HS_SCALER_SKIP) {
        hs_info("step %lld skipped: gradients overflow at loss scale %g; the scale is now %g (%lld skipped so far)",
                (long long)state->applied_steps, (double)report->loss_scale, (double)trainer->optimizer.scaler.scale,
                (long long)state->skipped_steps);
        return HS_OK;
    }
    state->task_steps++;
    count_losses(state, &loss);
    return HS_OK;
}

HsStatus hs_trainer_step(HsTrainer *trainer, double *mean_loss, HsStepReport *report)
{
    assert(trainer->queue.count == 0);
    HS_TRY(hs_trainer_start_step(trainer));
    return hs_trainer_collect_step(trainer, mean_loss, report);
}
