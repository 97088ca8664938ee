/* SPDX-License-Identifier: MIT
 *
 * A mode is an ordinary training with its steps started and collected here, in turns with other runs'.
 *
 *     turn     | start start .. | collect   collect   collect ... |       the queue is kept full, then runs empty
 *     timed                     |- no -----|-- yes ---|-- yes --  |       caches and clocks settle in the first
 *
 * After the last step come measurements that a run has no need of: they change nothing that was measured before.
 */
#include "runtime/study/bench_run.h"

#include "kernels/base/clock.h"
#include "runtime/train/evaluate.h"
#include "runtime/train/signals.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LEAST_STEPS = 4, UNTIMED_STEPS = 2, WATCHED_STEPS = 3 };
#define TURN_S 1.0

/* --- steps --- */

HsStatus hs_bench_runner_start(HsBenchRunner *runner)
{
    HsTraining *training = &runner->training;
    HsBenchRun *run = runner->run;
    HS_TRY(hs_training_create(&runner->config, training, NULL));
    runner->alive = true;
    HS_TRY(hs_config_text(&runner->config, &run->config)); /* as it was run: memory.auto_fit may have changed it */
    run->losses = calloc((size_t)run->wanted, sizeof *run->losses);
    run->seconds = calloc((size_t)run->wanted, sizeof *run->seconds);
    if (!run->losses || !run->seconds)
        return hs_fail(HS_ENOMEM, "no memory for the losses of %lld steps", (long long)run->wanted);
    run->tokens_per_step = training->rows_per_step * runner->config.training.max_length;
    run->micro_batch = training->train_program.batch;
    run->micro_batches = training->rows_per_step / training->train_program.batch;
    run->parameters = hs_model_parameter_count(&training->model);
    run->flops_per_token = training->flops_per_token;
    run->peak_flops = training->peak_flops;
    run->gradient_format = training->precision.gradient;
    memcpy(run->planned, training->planned.bytes, sizeof run->planned);
    return hs_training_begin_task(training);
}

bool hs_bench_runner_wants(const HsBenchRunner *runner)
{
    return runner->alive && runner->run->failure[0] == '\0' && runner->run->steps < runner->run->wanted;
}

/* Steps that a turn may have: `most`, and few enough to be over in time. */
typedef struct Turn {
    int64_t most, started;
    double began_s;
} Turn;

static bool may_start(const HsBenchRunner *runner, const Turn *turn)
{
    const HsStepQueue *queue = &runner->training.queue;
    return !hs_run_stop_asked() && !hs_step_queue_full(queue) && turn->started < turn->most &&
           runner->run->steps + queue->count < runner->run->wanted &&
           (turn->started < LEAST_STEPS || hs_clock_s() - turn->began_s < TURN_S);
}

static void copy_counts(HsBenchRunner *runner)
{
    const HsTrainingState *state = &runner->training.state;
    runner->run->applied_steps = state->counters.applied_steps;
    runner->run->skipped_steps = state->counters.skipped_steps;
    runner->run->loss_scale = state->counters.loss_scale;
    memcpy(runner->run->peak, runner->training.engine.device.account.peak, sizeof runner->run->peak);
}

static HsStatus take_turn(HsBenchRunner *runner, int64_t most)
{
    HsTraining *training = &runner->training;
    HsBenchRun *run = runner->run;
    Turn turn = { .most = most, .began_s = hs_clock_s() };
    double last_s = NAN;
    for (;;) {
        double loss;
        HsStepReport report;
        for (; may_start(runner, &turn); turn.started++)
            HS_TRY(hs_training_start_step(training));
        if (training->queue.count == 0)
            return HS_OK;
        HS_TRY(hs_training_collect_step(training, &loss, &report));
        const double now_s = hs_clock_s();
        run->losses[run->steps] = loss;
        run->seconds[run->steps] = run->steps < UNTIMED_STEPS ? NAN : now_s - last_s;
        run->steps++;
        last_s = now_s;
    }
}

HsStatus hs_bench_runner_turn(HsBenchRunner *runner, int64_t most)
{
    HsStatus status = take_turn(runner, most);
    runner->run->flops_per_token = hs_training_flops_per_token(&runner->training);
    copy_counts(runner);
    if (status != HS_ENUMERIC)
        return status;
    /* That a mode cannot train this model is a result, not a failure of the bench. */
    snprintf(runner->run->failure, sizeof runner->run->failure, "%s", hs_error_message());
    return HS_OK;
}

/* --- afterwards --- */

static HsStatus evaluate(HsBenchRunner *runner)
{
    HsTraining *training = &runner->training;
    const HsConfig *config = &runner->config;
    const HsEvaluator evaluator = hs_training_evaluator(training);
    HsEvaluation evaluation;
    HS_TRY(hs_evaluate(&evaluator, &training->data.tasks[0], config->evaluation.batches * config->training.batch_size,
                       &evaluation));
    runner->run->validation_loss = evaluation.loss;
    return HS_OK;
}

/* The gradients of the first sequences of the training data, scaled as a step's are: they weigh what they would weigh
 * in a batch of sequences like them. */
static HsStatus survey(HsBenchRunner *runner)
{
    HsTraining *training = &runner->training;
    const int64_t rows = training->train_program.batch, length = runner->config.training.max_length;
    int64_t counted = 0;
    for (int64_t row = 0; row < rows; row++)
        HS_TRY(hs_dataset_sample(&training->data.tasks[0], row, training->evaluation_tokens + row * length,
                                 training->evaluation_targets + row * length));
    for (int64_t i = 0; i < rows * length; i++)
        counted += training->evaluation_targets[i] >= 0;
    counted = counted > 0 ? counted * runner->run->micro_batches : 1;
    const float scale = training->optimizer.counters.loss_scale / (float)counted;
    const uint32_t step = (uint32_t)(training->state.counters.applied_steps + training->state.counters.skipped_steps);
    return hs_program_gradient_histograms(&training->train_program, &training->engine.context,
                                          training->evaluation_tokens, training->evaluation_targets,
                                          (uint64_t)runner->config.training.seed, step, 0, scale, &runner->run->survey);
}

static HsStatus run_watched(HsBenchRunner *runner)
{
    HsTraining *training = &runner->training;
    for (int started = 0, collected = 0; collected < WATCHED_STEPS; collected++) {
        double loss;
        HsStepReport report;
        for (; started < WATCHED_STEPS && !hs_step_queue_full(&training->queue); started++)
            HS_TRY(hs_training_start_step(training));
        HS_TRY(hs_training_collect_step(training, &loss, &report));
    }
    return HS_OK;
}

HsStatus hs_bench_runner_finish(HsBenchRunner *runner)
{
    HS_TRY(hs_scaling_figures(&runner->training.model, &runner->training.engine.context, runner->training.engine.comm,
                              runner->run->casts, &runner->run->cast_count));
    HS_TRY(evaluate(runner));
    hs_training_probe_peak(&runner->training);
    runner->run->peak_flops = runner->training.peak_flops;
    copy_counts(runner); /* memory as a run takes it: without what the survey and the trace hold */
    HS_TRY(survey(runner));
    for (int part = 0; part < HS_PART_COUNT; part++)
        runner->run->parts[part] = NAN;
    runner->run->finished = true;
    return HS_OK;
}

/* A machine that is briefly busy makes a try slower, never quicker. */
static void keep_quickest(HsBenchRun *run, const double parts[HS_PART_COUNT])
{
    double before = 0, now = 0;
    for (int part = 0; part < HS_PART_COUNT; part++) {
        before += run->parts[part];
        now += parts[part] / WATCHED_STEPS;
    }
    for (int part = 0; part < HS_PART_COUNT && !(before <= now); part++) /* true of a NAN */
        run->parts[part] = parts[part] / WATCHED_STEPS;
}

static HsStatus watch(HsBenchRunner *runner)
{
    HsTrace *trace;
    const HsTraceSpan *spans;
    double loss, parts[HS_PART_COUNT];
    int count;
    HsStepReport report;
    HS_TRY(hs_training_step(&runner->training, &loss, &report)); /* for the caches */
    HS_TRY(hs_trace_create(&runner->training.engine.context, false, &trace));
    HsStatus status = hs_trace_attach(trace);
    const double began_s = hs_clock_s();
    if (status == HS_OK)
        status = run_watched(runner);
    const double wall_s = hs_clock_s() - began_s;
    if (status == HS_OK)
        status = hs_trace_read(trace, &spans, &count);
    if (status == HS_OK) {
        hs_trace_split(spans, count, wall_s, parts);
        keep_quickest(runner->run, parts);
    }
    hs_trace_destroy(trace);
    return status;
}

/* What these steps do to the weights no longer matters. */
HsStatus hs_bench_runner_watch(HsBenchRunner *runner)
{
    /* A recording has no ranges to watch. */
    hs_training_forget_graph(&runner->training);
    runner->training.engine.cuda_graph = false;
    HsStatus status = watch(runner);
    return status == HS_ENUMERIC ? HS_OK : status; /* in a step that is none of the bench's */
}

void hs_bench_runner_stop(HsBenchRunner *runner)
{
    if (runner->alive)
        hs_training_destroy(&runner->training);
    runner->alive = false;
    if (runner->has_config)
        hs_config_deinit(&runner->config);
    runner->has_config = false;
}
