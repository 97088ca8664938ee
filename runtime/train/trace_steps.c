/* SPDX-License-Identifier: MIT
 *
 * logging.trace: the timeline of a few optimizer steps, in out_dir/trace.json.
 *
 *     steps  8  9 | 10   11   12 | 13 ...      ahead of each other, one at a time between the bars, ahead again
 *                   a detailed HsTrace each    what is in none of them (evaluations, checkpoints) is a gap
 *
 * Steps are counted as they start, from 1, skipped ones too; a resumed run continues.  The file holds what this
 * process traced: a run that ends inside the range leaves the steps it came to, and one that is resumed there the rest.
 *
 * Memory is shown twice: bytes by category, as the device's account has them around each step, and inside the step
 * what of the activation arena is alive at each action, which follows from the program's lifetimes.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base/log.h"
#include "runtime/record/chrome_trace.h"
#include "runtime/train/run.h"

struct HsRunTrace {
    HsTrace *ranges;
    HsChromeTrace *file;
    char path[4096];
    bool attached;       /* a step is being traced: */
    int64_t current;     /* its number */
    int64_t first, last; /* steps in the file; 0: none yet */
};

/* The number of the step that starts next. */
static int64_t next_step(const HsTraining *training)
{
    return training->state.counters.applied_steps + training->state.counters.skipped_steps + training->queue.count + 1;
}

/* Of several processes one's steps are shown. */
static bool in_range(const HsTraining *training, int64_t step)
{
    const HsTraceSteps steps = hs_config_trace_steps(training->config);
    return hs_training_records(training) && steps.first > 0 && step >= steps.first && step <= steps.last;
}

bool hs_run_trace_admits(const HsRun *run)
{
    const HsTraining *training = &run->training;
    const bool alone = (run->trace && run->trace->attached) || in_range(training, next_step(training));
    return !alone || training->queue.count == 0;
}

static HsStatus create(HsTraining *training, HsRunTrace *trace)
{
    const HsEngine *engine = &training->engine;
    const char *out_dir = training->config->training.out_dir;
    char process[4096], device[256];
    snprintf(trace->path, sizeof trace->path, "%s/trace.json", out_dir);
    snprintf(process, sizeof process, "%s (%s)", out_dir, training->precision.name);
    snprintf(device, sizeof device, "%s: %s%s", engine->context.backend->name, engine->device.description,
             engine->emulated ? " (emulated: times mean nothing)" : "");
    HS_TRY(hs_trace_create(&training->engine.context, true, &trace->ranges));
    return hs_chrome_trace_create(trace->path, process, device, &trace->file);
}

static HsStatus count_categories(const HsRun *run)
{
    const HsMemoryAccount *account = &run->training.engine.device.account;
    HsTraceSeries series[HS_MEMORY_COUNT];
    int count = 0;
    for (int i = 0; i < HS_MEMORY_COUNT; i++)
        if (account->peak[i] > 0)
            series[count++] = (HsTraceSeries){ hs_memory_row((HsMemoryCategory)i)->name, account->current[i] };
    return hs_chrome_trace_add_counter(run->trace->file, hs_clock_s(), "memory by category (bytes)", series, count);
}

HsStatus hs_run_trace_begin(HsRun *run)
{
    HsTraining *training = &run->training;
    const int64_t step = next_step(training);
    if (!in_range(training, step))
        return HS_OK;
    assert(training->queue.count == 0);
    if (!run->trace) {
        run->trace = calloc(1, sizeof *run->trace);
        if (!run->trace)
            return hs_fail(HS_ENOMEM, "no memory for a trace");
        HS_TRY(create(training, run->trace));
    }
    HsRunTrace *trace = run->trace;
    HS_TRY(hs_trace_attach(trace->ranges));
    trace->attached = true;
    trace->current = step;
    return count_categories(run);
}

/* Each layer's call in a step is an action of the program, micro-batch after micro-batch. */
static HsStatus count_activations(const HsRun *run, const HsTraceSpan *spans, int count, const size_t *live)
{
    const HsProgram *program = &run->training.train_program;
    HsRunTrace *trace = run->trace;
    const double origin_s = hs_trace_origin_s(trace->ranges);
    HsTraceSeries series = { "alive", 0 };
    int action = 0;
    for (int i = 0; i < count; i++) {
        const HsTraceSpan *span = &spans[i];
        if (span->kind != HS_RANGE_LAYER)
            continue;
        assert(strcmp(span->name, program->model->nodes[program->actions[action].node].name) == 0);
        series.bytes = live[action];
        HS_TRY(
            hs_chrome_trace_add_counter(trace->file, origin_s + span->start_s, "live activations (bytes)", &series, 1));
        action++;
        if (action < program->action_count)
            continue;
        action = 0;
        series.bytes = 0;
        HS_TRY(hs_chrome_trace_add_counter(trace->file, origin_s + span->start_s + span->seconds,
                                           "live activations (bytes)", &series, 1));
    }
    assert(action == 0);
    return HS_OK;
}

static HsStatus write_step(HsRun *run)
{
    HsRunTrace *trace = run->trace;
    const HsProgram *program = &run->training.train_program;
    const HsTraceSpan *spans;
    int count;
    HS_TRY(hs_trace_read(trace->ranges, &spans, &count));
    HS_TRY(hs_chrome_trace_add_spans(trace->file, hs_trace_origin_s(trace->ranges), trace->current, spans, count));
    size_t *live = calloc((size_t)program->action_count, sizeof *live);
    if (!live)
        return hs_fail(HS_ENOMEM, "no memory to trace %d actions", program->action_count);
    hs_program_live_bytes(program, live);
    HsStatus status = count_activations(run, spans, count, live);
    free(live);
    HS_TRY(status);
    trace->first = trace->first > 0 ? trace->first : trace->current;
    trace->last = trace->current;
    return count_categories(run);
}

/* The file under its name, if there is a step in it, and nothing left to trace into it. */
static HsStatus close_file(HsRunTrace *trace)
{
    if (!trace->file)
        return HS_OK;
    HsStatus status = trace->last > 0 ? hs_chrome_trace_finish(trace->file) : HS_OK;
    hs_chrome_trace_destroy(trace->file);
    trace->file = NULL;
    HS_TRY(status);
    if (trace->last > 0)
        hs_info("trace: steps %lld to %lld are in %s, which chrome://tracing and Perfetto show",
                (long long)trace->first, (long long)trace->last, trace->path);
    return HS_OK;
}

HsStatus hs_run_trace_end(HsRun *run)
{
    HsRunTrace *trace = run->trace;
    if (!trace || !trace->attached)
        return HS_OK;
    hs_trace_detach(trace->ranges);
    trace->attached = false;
    HS_TRY(write_step(run));
    return in_range(&run->training, trace->current + 1) ? HS_OK : close_file(trace);
}

HsStatus hs_run_trace_finish(HsRun *run)
{
    const char *steps = run->training.config->logging.trace;
    if (run->trace)
        return close_file(run->trace);
    if (steps[0] != '\0')
        hs_info("trace: nothing was traced, as none of the steps %s started in this run, which is at step %lld now",
                steps, (long long)next_step(&run->training) - 1);
    return HS_OK;
}

void hs_run_trace_destroy(HsRun *run)
{
    HsRunTrace *trace = run->trace;
    if (!trace)
        return;
    /* The message to report is why the run ends. */
    char earlier[512];
    snprintf(earlier, sizeof earlier, "%s", hs_error_message());
    if (close_file(trace) != HS_OK) {
        hs_warn("%s", hs_error_message());
        (void)hs_fail(HS_EIO, "%s", earlier);
    }
    hs_trace_destroy(trace->ranges);
    free(trace);
    run->trace = NULL;
}
