/* SPDX-License-Identifier: MIT
 *
 * Steps of a small training, traced on the host and on a device with its own memory: every action of the plan is
 * there and nested, parts add up to the wall's time, no bit of the training changes, and failures leave ranges
 * balanced.
 */
#include <criterion/criterion.h>
#include <math.h>

#include "kernels/base/log.h"
#include "runtime/record/trace.h"
#include "kernels/base/clock.h"
#include "runtime/train/training.h"
#include "tests/support/scratch.h"

#define OK(expression) cr_assert_eq((expression), HS_OK, "%s: %s", #expression, hs_error_message())

typedef struct Fixture {
    Scratch scratch;
    HsConfig config;
    HsTraining training;
} Fixture;

static const char *const on_cpu[] = { "device=cpu", "memory.recompute=block" };
static const char *const on_emu[] = { "device=emu", "memory.recompute=block" };
static const char *const on_emu_recorded[] = { "device=emu", "kernels.cuda_graph=true" };

static void make(Fixture *fixture, const char *const settings[2])
{
    char out_dir[300];
    hs_log_set_level(HS_LOG_WARNING);
    fixture->scratch = scratch_make();
    snprintf(out_dir, sizeof out_dir, "out_dir=%s", fixture->scratch.folder);
    const char *overrides[] = { out_dir,
                                settings[0],
                                settings[1],
                                "max_length=16",
                                "batch_size=2",
                                "gradient_accumulation_steps=2",
                                "max_steps=8",
                                "model.width=32",
                                "model.heads=2",
                                "model.layers=2",
                                "model.dropout=0.1",
                                "precision.mode=bf16",
                                "threads=1",
                                "tasks.0.synthetic_tokens=8000" };
    OK(hs_config_load(&fixture->config, NULL, sizeof overrides / sizeof *overrides, overrides));
    OK(hs_training_create(&fixture->config, &fixture->training, NULL));
    OK(hs_training_begin_task(&fixture->training));
}

static void unmake(Fixture *fixture)
{
    hs_training_destroy(&fixture->training);
    hs_config_deinit(&fixture->config);
    scratch_remove(&fixture->scratch);
}

static double step(Fixture *fixture)
{
    double loss;
    HsStepReport report;
    OK(hs_training_step(&fixture->training, &loss, &report));
    return loss;
}

/* Depths rise by one at a time, and every span lies within the one around it and after the one before it. */
static void expect_nested(const HsTraceSpan *spans, int count)
{
    const HsTraceSpan *open[16] = { 0 };
    /* Ends are sums of starts and lengths below a minute, each with a rounding. */
    const double rounding = 60 * 0x1p-51;
    int depth = -1;
    for (int i = 0; i < count; i++) {
        const HsTraceSpan *span = &spans[i];
        cr_assert(span->depth >= 0 && span->depth <= depth + 1 && span->depth < 16, "depth %d after %d at %s",
                  span->depth, depth, span->name);
        cr_assert(span->seconds >= 0);
        depth = span->depth;
        if (depth > 0) {
            const double outer_end = open[depth - 1]->start_s + open[depth - 1]->seconds;
            cr_assert(span->start_s >= open[depth - 1]->start_s &&
                          span->start_s + span->seconds <= outer_end + rounding,
                      "%s stands out of %s", span->name, open[depth - 1]->name);
        }
        if (open[depth] && open[depth]->start_s + open[depth]->seconds > span->start_s + rounding)
            cr_assert(depth == 0, "%s begins before %s ends", span->name, open[depth]->name);
        open[depth] = span;
    }
}

static HsRangeKind phase_of(const HsProgram *program, const HsAction *action)
{
    if (action->node == program->model->loss_node)
        return HS_RANGE_HEAD;
    return action->kind == HS_ACTION_FORWARD     ? HS_RANGE_FORWARD
           : action->kind == HS_ACTION_RECOMPUTE ? HS_RANGE_RECOMPUTE
                                                 : HS_RANGE_BACKWARD;
}

/* Layers, in order, are the plan's actions, each in a phase of its kind; returns how many there were. */
static int expect_actions(const HsProgram *program, const HsTraceSpan *spans, int count)
{
    HsRangeKind phase = HS_RANGE_STEP;
    int layers = 0, operations = 0;
    for (int i = 0; i < count; i++) {
        const HsTraceSpan *span = &spans[i];
        phase = span->depth == 1 ? span->kind : phase;
        operations += span->kind == HS_RANGE_OPERATION;
        if (span->kind != HS_RANGE_LAYER)
            continue;
        const HsAction *action = &program->actions[layers++ % program->action_count];
        cr_assert_str_eq(span->name, program->model->nodes[action->node].name);
        cr_assert_eq(phase, phase_of(program, action), "%s in another phase", span->name);
    }
    cr_expect(operations >= layers, "no layer works without an operation");
    return layers;
}

static int count_kind(const HsTraceSpan *spans, int count, HsRangeKind kind)
{
    int found = 0;
    for (int i = 0; i < count; i++)
        found += spans[i].kind == kind;
    return found;
}

static void expect_traced(const char *const settings[2])
{
    Fixture fixture;
    make(&fixture, settings);
    HsTraining *training = &fixture.training;
    for (int detailed = 1; detailed >= 0; detailed--) {
        HsTrace *trace;
        const HsTraceSpan *spans;
        int count, steps = 2;
        double seconds[HS_PART_COUNT], sum = 0;
        OK(hs_trace_create(&training->engine.context, detailed, &trace));
        step(&fixture); /* not watched */
        OK(hs_trace_attach(trace));
        const double began_s = hs_trace_origin_s(trace);
        for (int i = 0; i < steps; i++)
            step(&fixture);
        const double wall_s = hs_clock_s() - began_s;
        hs_trace_detach(trace);
        step(&fixture); /* nor this one */
        OK(hs_trace_read(trace, &spans, &count));
        expect_nested(spans, count);
        cr_expect_eq(count_kind(spans, count, HS_RANGE_STEP), steps);
        cr_expect_eq(count_kind(spans, count, HS_RANGE_DATA), steps);
        cr_expect_eq(count_kind(spans, count, HS_RANGE_UPDATE), steps);
        cr_expect_eq(count_kind(spans, count, HS_RANGE_HEAD), 2 * steps, "one a micro-batch");
        if (detailed)
            cr_expect_eq(expect_actions(&training->train_program, spans, count),
                         2 * steps * training->train_program.action_count);
        else
            cr_expect_eq(count_kind(spans, count, HS_RANGE_LAYER) + count_kind(spans, count, HS_RANGE_OPERATION), 0);
        hs_trace_split(spans, count, wall_s, seconds);
        for (int part = 0; part < HS_PART_COUNT; part++) {
            /* A device's events are floats of milliseconds, two seconds from their anchor at most: one rounding each.
             */
            cr_expect(seconds[part] >= -2 * count * 0x1p-23, "%s took %g s", hs_step_part_name((HsStepPart)part),
                      seconds[part]);
            sum += seconds[part];
        }
        cr_expect(seconds[HS_PART_FORWARD] > 0 && seconds[HS_PART_BACKWARD] > 0 && seconds[HS_PART_UPDATE] > 0);
        cr_expect(fabs(sum - wall_s) <= HS_PART_COUNT * 0x1p-52 * wall_s, "parts add up to %.17g of %.17g s", sum,
                  wall_s);
        hs_trace_destroy(trace);
        cr_expect_null(training->engine.context.observer);
    }
    unmake(&fixture);
}

Test(trace_steps, steps_on_the_host)
{
    expect_traced(on_cpu);
}

Test(trace_steps, steps_on_a_device)
{
    expect_traced(on_emu);
}

/* The device's memory with the masters, as the checkpoint would have it. */
static unsigned char *copy_masters(HsTraining *training, size_t *bytes)
{
    HsDevice *device = &training->engine.device;
    HsStream *stream = training->engine.context.stream;
    *bytes = training->optimizer.masters.capacity;
    unsigned char *copy = malloc(*bytes);
    cr_assert(copy && *bytes > 0);
    OK(device->copy(device, stream, copy, training->optimizer.masters.base, *bytes));
    OK(device->stream_sync(device, stream));
    return copy;
}

static void expect_same_bits(const char *const settings[2])
{
    enum { STEPS = 7 };
    double losses[2][STEPS];
    unsigned char *masters[2];
    size_t bytes;
    for (int traced = 0; traced < 2; traced++) {
        Fixture fixture;
        HsTrace *trace;
        make(&fixture, settings);
        OK(hs_trace_create(&fixture.training.engine.context, true, &trace));
        for (int i = 0; i < STEPS; i++) {
            const bool watched = traced && (i == 0 || i == 4);
            if (watched)
                OK(hs_trace_attach(trace));
            losses[traced][i] = step(&fixture);
            if (!watched)
                continue;
            const HsTraceSpan *spans;
            int count;
            hs_trace_detach(trace);
            OK(hs_trace_read(trace, &spans, &count));
            cr_expect_gt(count_kind(spans, count, HS_RANGE_LAYER), 0, "a replayed step has no ranges");
        }
        const int size = fixture.training.queue.target_size;
        cr_expect_eq(fixture.training.graphs[size].graph != NULL, fixture.training.engine.cuda_graph);
        masters[traced] = copy_masters(&fixture.training, &bytes);
        hs_trace_destroy(trace);
        unmake(&fixture);
    }
    cr_expect_eq(memcmp(losses[0], losses[1], sizeof losses[0]), 0, "losses differ");
    cr_expect_eq(memcmp(masters[0], masters[1], bytes), 0, "weights differ");
    free(masters[0]);
    free(masters[1]);
}

Test(trace_steps, changes_no_bit)
{
    expect_same_bits(on_cpu);
    expect_same_bits(on_emu);
    expect_same_bits(on_emu_recorded);
}

Test(trace_steps, live_bytes_are_those_of_the_buffers_alive)
{
    static const char *const policies[][2] = { { "device=cpu", "memory.recompute=none" },
                                               { "device=cpu", "memory.recompute=block" } };
    for (size_t p = 0; p < sizeof policies / sizeof *policies; p++) {
        Fixture fixture;
        make(&fixture, policies[p]);
        const HsProgram *program = &fixture.training.train_program;
        size_t most = 0, *live = malloc((size_t)program->action_count * sizeof *live);
        cr_assert_not_null(live);
        hs_program_live_bytes(program, live);
        for (int a = 0; a < program->action_count; a++) {
            size_t expected = 0;
            for (int i = 0; i < program->buffer_count; i++)
                if (program->buffers[i].first_action <= a && a <= program->buffers[i].last_action)
                    expected += program->buffers[i].bytes;
            cr_expect_eq(live[a], expected, "action %d", a);
            most = live[a] > most ? live[a] : most;
        }
        cr_expect(most > 0 && most <= program->activation_bytes, "%zu of %zu bytes", most, program->activation_bytes);
        free(live);
        unmake(&fixture);
    }
}

static int matmuls_left;
static HsStatus (*real_matmul)(HsContext *context, const HsMatmulArgs *args);

static HsStatus fail_later(HsContext *context, const HsMatmulArgs *args)
{
    return matmuls_left-- > 0 ? real_matmul(context, args) : hs_fail(HS_EDEVICE, "the product broke");
}

/* Whichever product breaks, in forward, head, recomputation or backward. */
Test(trace_steps, ranges_are_closed_after_a_failure)
{
    for (int working = 0; working < 60; working += 7) {
        Fixture fixture;
        HsTrace *trace;
        const HsTraceSpan *spans;
        int count;
        double loss;
        HsStepReport report;
        make(&fixture, on_cpu);
        HsContext *context = &fixture.training.engine.context;
        HsBackend broken = *context->backend;
        real_matmul = broken.matmul;
        broken.matmul = fail_later;
        matmuls_left = working;
        OK(hs_trace_create(context, true, &trace));
        OK(hs_trace_attach(trace));
        context->backend = &broken;
        cr_assert_eq(hs_training_step(&fixture.training, &loss, &report), HS_EDEVICE, "%d products", working);
        cr_expect_str_eq(hs_error_message(), "the product broke");
        hs_trace_detach(trace); /* asserts that nothing is open */
        OK(hs_trace_read(trace, &spans, &count));
        expect_nested(spans, count);
        /* The last of each depth, down to the broken one. */
        cr_assert(count > 0);
        cr_expect_str_eq(spans[count - 1].name, "matmul");
        cr_expect_eq(spans[count - 1].depth, 3);
        hs_trace_destroy(trace);
        unmake(&fixture);
    }
}
