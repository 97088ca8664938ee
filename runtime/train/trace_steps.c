/* SPDX-License-Identifier: MIT
 *
 * logging.trace: the timeline of a few optimizer steps, in out_dir/trace.json.
 *
 *     steps  8  9 | 10   11   12 | 13 ...      ahead of each other, one at a time between the bars, ahead again
 *                   a detailed HsTrace each    what is in none of them (evaluations, checkpoints) is a gap
 *
 * Steps are counted as they start, from 1, skipped ones too; a resumed run goes on counting.  The file holds what this
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
#include "runtime/train/trainer.h"

struct HsTrainerTrace {
    HsTrace *ranges;
    HsChromeTrace *file;
    char path[4096];
    bool attached;       /* a step is being traced: */
    int64_t current;     /* its number */
    int64_t first, last; /* steps in the file; 0: none yet */
};

/* The number of the step that starts next. */
static int64_t next_step(const HsTrainer *trainer)
{
    return trainer->state.counters.applied_steps + trainer->state.counters.skipped_steps + trainer->queue.count + 1;
}

/* Of several processes one's steps are shown. */
static bool in_range(const HsTrainer *trainer, int64_t step)
{
    const HsTraceSteps steps = hs_config_trace_steps(trainer->config);
    return hs_trainer_records(trainer) && steps.first > 0 && step >= steps.first && step <= steps.last;
}

bool hs_trainer_trace_admits(const HsTrainer *trainer)
{
    const bool alone = (trainer->trace && trainer->trace->attached) || in_range(trainer, next_step(trainer));
    return !alone || trainer->queue.count == 0;
}

static HsStatus create(HsTrainer *trainer, HsTrainerTrace *trace)
{
    const HsEngine *engine = &trainer->engine;
    const char *out_dir = trainer->config->training.out_dir;
    char process[4096], device[256];
    snprintf(trace->path, sizeof trace->path, "%s/trace.json", out_dir);
    snprintf(process, sizeof process, "%s (%s)", out_dir, trainer->precision.name);
    snprintf(device, sizeof device, "%s: %s%s", engine->context.backend->name, engine->device.description,
             engine->emulated ? " (emulated: times mean nothing)" : "");
    HS_TRY(hs_trace_create(&trainer->engine.context, true, &trace->ranges));
    return hs_chrome_trace_create(trace->path, process, device, &trace->file);
}

static HsStatus count_categories(const HsTrainer *trainer)
{
    const HsMemoryAccount *account = &trainer->engine.device.account;
    HsTraceSeries series[HS_MEMORY_COUNT];
    int count = 0;
    for (int i = 0; i < HS_MEMORY_COUNT; i++)
        if (account->peak[i] > 0)
            series[count++] = (HsTraceSeries){ hs_memory_row((HsMemoryCategory)i)->name, account->current[i] };
    return hs_chrome_trace_add_counter(trainer->trace->file, hs_clock_s(), "memory by category (bytes)", series, count);
}

HsStatus hs_trainer_trace_begin(HsTrainer *trainer)
{
    const int64_t step = next_step(trainer);
    if (!in_range(trainer, step))
        return HS_OK;
    assert(trainer->queue.count == 0);
    if (!trainer->trace) {
        trainer->trace = calloc(1, sizeof *trainer->trace);
        if (!trainer->trace)
            return hs_fail(HS_ENOMEM, "no memory for a trace");
        HS_TRY(create(trainer, trainer->trace));
    }
    HsTrainerTrace *trace = trainer->trace;
    HS_TRY(hs_trace_attach(trace->ranges));
    trace->attached = true;
    trace->current = step;
    return count_categories(trainer);
}

/* Each layer's call in a step is an action of the program, micro-batch after micro-batch. */
static HsStatus count_activations(const HsTrainer *trainer, const HsTraceSpan *spans, int count, const size_t *live)
{
    const HsProgram *program = &trainer->train_program;
    HsTrainerTrace *trace = trainer->trace;
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

static HsStatus write_step(HsTrainer *trainer)
{
    HsTrainerTrace *trace = trainer->trace;
    const HsProgram *program = &trainer->train_program;
    const HsTraceSpan *spans;
    int count;
    HS_TRY(hs_trace_read(trace->ranges, &spans, &count));
    HS_TRY(hs_chrome_trace_add_spans(trace->file, hs_trace_origin_s(trace->ranges), trace->current, spans, count));
    size_t *live = calloc((size_t)program->action_count, sizeof *live);
    if (!live)
        return hs_fail(HS_ENOMEM, "no memory to trace %d actions", program->action_count);
    hs_program_live_bytes(program, live);
    HsStatus status = count_activations(trainer, spans, count, live);
    free(live);
    HS_TRY(status);
    trace->first = trace->first > 0 ? trace->first : trace->current;
    trace->last = trace->current;
    return count_categories(trainer);
}

/* The file under its name, if there is a step in it, and nothing left to trace into it. */
static HsStatus close_file(HsTrainerTrace *trace)
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

HsStatus hs_trainer_trace_end(HsTrainer *trainer)
{
    HsTrainerTrace *trace = trainer->trace;
    if (!trace || !trace->attached)
        return HS_OK;
    hs_trace_detach(trace->ranges);
    trace->attached = false;
    HS_TRY(write_step(trainer));
    return in_range(trainer, trace->current + 1) ? HS_OK : close_file(trace);
}

HsStatus hs_trainer_trace_finish(HsTrainer *trainer)
{
    const char *steps = trainer->config->logging.trace;
    if (trainer->trace)
        return close_file(trainer->trace);
    if (steps[0] != '\0')
        hs_info("trace: nothing was traced, as none of the steps %s started in this run, which is at step %lld now",
                steps, (long long)next_step(trainer) - 1);
    return HS_OK;
}

void hs_trainer_trace_destroy(HsTrainer *trainer)
{
    HsTrainerTrace *trace = trainer->trace;
    if (!trace)
        return;
    /* Why the run ends here is the message to be told. */
    char earlier[512];
    snprintf(earlier, sizeof earlier, "%s", hs_error_message());
    if (close_file(trace) != HS_OK) {
        hs_warn("%s", hs_error_message());
        (void)hs_fail(HS_EIO, "%s", earlier);
    }
    hs_trace_destroy(trace->ranges);
    free(trace);
    trainer->trace = NULL;
}
