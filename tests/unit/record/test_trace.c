/* SPDX-License-Identifier: MIT
 *
 * Traces: the split of constructed spans with known answers, and ranges on a device with a clock that the test sets:
 * times are right however long the trace, order and depth are those of the ranges, and a device that fails is reported
 * by reading and harms nothing else.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/record/trace.h"

#define OK(expression) cr_assert_eq((expression), HS_OK, "%s: %s", #expression, hs_error_message())

/* --- the split --- */

static HsTraceSpan span(HsRangeKind kind, const char *name, int depth, double start_s, double seconds)
{
    HsTraceSpan made = { .kind = kind, .depth = depth, .start_s = start_s, .seconds = seconds };
    snprintf(made.name, sizeof made.name, "%s", name);
    return made;
}

static void expect_split(const HsTraceSpan *spans, int count, double wall_s, const double expected[HS_PART_COUNT])
{
    double seconds[HS_PART_COUNT], sum = 0;
    hs_trace_split(spans, count, wall_s, seconds);
    /* Times are small multiples of 1/8: every sum is exact. */
    for (int part = 0; part < HS_PART_COUNT; part++) {
        cr_expect_eq(seconds[part], expected[part], "%s: %g instead of %g", hs_step_part_name((HsStepPart)part),
                     seconds[part], expected[part]);
        sum += seconds[part];
    }
    cr_expect_eq(sum, wall_s);
}

Test(trace, time_belongs_to_the_innermost_part)
{
    const HsTraceSpan spans[] = {
        span(HS_RANGE_DATA, "data", 0, 0.0, 0.5),
        span(HS_RANGE_STEP, "step", 0, 0.5, 10.0),
        span(HS_RANGE_OPERATION, "begin_step", 1, 0.75, 0.25), /* in no part: other */
        span(HS_RANGE_FORWARD, "forward", 1, 1.0, 2.0),
        span(HS_RANGE_LAYER, "layer", 2, 1.0, 1.5),
        span(HS_RANGE_OPERATION, "matmul", 3, 1.25, 1.0), /* forward's own */
        span(HS_RANGE_HEAD, "head", 1, 3.0, 1.0),
        span(HS_RANGE_BACKWARD, "backward", 1, 4.0, 3.0),
        span(HS_RANGE_RECOMPUTE, "recompute", 2, 4.5, 1.0), /* taken from backward */
        span(HS_RANGE_LAYER, "layer", 3, 4.5, 0.5),
        span(HS_RANGE_UPDATE, "update", 1, 7.0, 1.5),
        span(HS_RANGE_STRATEGY, "strategy", 1, 8.5, 0.5),
    };
    const double expected[HS_PART_COUNT] = {
        [HS_PART_DATA] = 0.5,      [HS_PART_FORWARD] = 2.0, [HS_PART_HEAD] = 1.0,     [HS_PART_BACKWARD] = 2.0,
        [HS_PART_RECOMPUTE] = 1.0, [HS_PART_UPDATE] = 1.5,  [HS_PART_STRATEGY] = 0.5, [HS_PART_OTHER] = 2.5,
    };
    expect_split(spans, sizeof spans / sizeof *spans, 11.0, expected);
}

Test(trace, waiting_hides_behind_the_device)
{
    const HsTraceSpan spans[] = {
        span(HS_RANGE_STEP, "step", 0, 1.0, 2.0), /* until 3 */
        span(HS_RANGE_UPDATE, "update", 1, 1.0, 2.0),
        span(HS_RANGE_DATA, "data", 0, 2.5, 0.25), /* all of it behind the step */
        span(HS_RANGE_DATA, "data", 0, 2.75, 1.0), /* until 3.75: a quarter hidden before, */
        span(HS_RANGE_STEP, "step", 0, 3.5, 1.0),  /* and a quarter after */
        span(HS_RANGE_UPDATE, "update", 1, 3.5, 0.75),
        span(HS_RANGE_DATA, "data", 0, 5.0, 0.125), /* the device had nothing to do */
    };
    const double expected[HS_PART_COUNT] = {
        [HS_PART_DATA] = 0.5 + 0.125, [HS_PART_UPDATE] = 2.75, [HS_PART_OTHER] = 6.0 - 0.625 - 2.75
    };
    expect_split(spans, sizeof spans / sizeof *spans, 6.0, expected);
}

Test(trace, nothing_noted_is_all_other)
{
    const double expected[HS_PART_COUNT] = { [HS_PART_OTHER] = 3.0 };
    expect_split(NULL, 0, 3.0, expected);
}

/* --- a device with a variable as its clock --- */

struct HsEvent {
    double at_s;
};

static double now_s;
static int records_left, events_held;

static HsStatus scripted_create(HsDevice *device, HsEvent **event)
{
    (void)device;
    *event = calloc(1, sizeof **event);
    events_held += *event != NULL;
    return *event ? HS_OK : HS_ENOMEM;
}

static void scripted_destroy(HsDevice *device, HsEvent *event)
{
    (void)device;
    events_held -= event != NULL;
    free(event);
}

static HsStatus scripted_record(HsDevice *device, HsEvent *event, HsStream *stream)
{
    (void)device;
    (void)stream;
    if (records_left-- <= 0)
        return hs_fail(HS_EDEVICE, "no more events");
    event->at_s = now_s;
    return HS_OK;
}

/* A float of milliseconds, as CUDA reports it. */
static HsStatus scripted_elapsed_ms(HsDevice *device, HsEvent *start, HsEvent *stop, double *milliseconds)
{
    (void)device;
    *milliseconds = (double)(float)(1e3 * (stop->at_s - start->at_s));
    return HS_OK;
}

static HsStatus scripted_sync(HsDevice *device, HsStream *stream)
{
    (void)device;
    (void)stream;
    return HS_OK;
}

static HsDevice scripted = { .event_create = scripted_create,
                             .event_destroy = scripted_destroy,
                             .event_record = scripted_record,
                             .event_elapsed_ms = scripted_elapsed_ms,
                             .stream_sync = scripted_sync };

static HsTrace *watch(HsContext *context, bool detailed)
{
    HsTrace *trace;
    *context = (HsContext){ .device = &scripted };
    records_left = 1000000;
    OK(hs_trace_create(context, detailed, &trace));
    OK(hs_trace_attach(trace));
    return trace;
}

static void begin(HsContext *context, double at_s, HsRangeKind kind, const char *name)
{
    now_s = at_s;
    hs_range_begin(context, kind, name);
}

static void end(HsContext *context, double at_s)
{
    now_s = at_s;
    hs_range_end(context);
}

Test(trace, short_ranges_are_exact_in_long_traces)
{
    enum { STEPS = 300 };
    HsContext context;
    const HsTraceSpan *spans;
    int count;
    now_s = 0;
    HsTrace *trace = watch(&context, false);
    /* Steps 0.7 s apart, in each an update of 5 us. */
    for (int i = 0; i < STEPS; i++) {
        begin(&context, 0.7 * i, HS_RANGE_STEP, "step");
        begin(&context, 0.7 * i + 0.25, HS_RANGE_UPDATE, "update");
        begin(&context, 0.7 * i + 0.25, HS_RANGE_OPERATION, "adamw"); /* not noted */
        end(&context, 0.7 * i + 0.250004);
        end(&context, 0.7 * i + 0.250005);
        end(&context, 0.7 * i + 0.5);
    }
    OK(hs_trace_read(trace, &spans, &count));
    cr_assert_eq(count, 2 * STEPS);
    /* A reading is at most 1.7 s from its anchor: a float's half unit there, in each of two readings; the anchors' own
     * add up over the trace. */
    const double reading = 1e-3 * 0x1p-24 * 2048;
    for (int i = 0; i < STEPS; i++) {
        const HsTraceSpan *step = &spans[2 * i], *update = step + 1;
        cr_expect_str_eq(step->name, "step");
        cr_expect_str_eq(update->name, "update");
        cr_expect(step->depth == 0 && update->depth == 1);
        cr_assert(fabs(update->seconds - 5e-6) <= 2 * reading, "update %d took %g s", i, update->seconds);
        cr_assert(fabs(step->seconds - 0.5) <= 2 * reading, "step %d took %g s", i, step->seconds);
        cr_assert(fabs(step->start_s - 0.7 * i) <= (i + 1) * reading, "step %d began at %g s", i, step->start_s);
    }
    hs_trace_destroy(trace);
    cr_expect_null(context.observer);
    cr_expect_eq(events_held, 0);
}

Test(trace, reads_continue_where_the_last_one_ended)
{
    HsContext context;
    const HsTraceSpan *spans;
    int count;
    now_s = 10;
    HsTrace *trace = watch(&context, true);
    for (int read = 1; read <= 3; read++) {
        begin(&context, 10 + 2 * read, HS_RANGE_FORWARD, "forward");
        begin(&context, 10 + 2 * read + 0.5, HS_RANGE_LAYER, "layer");
        end(&context, 10 + 2 * read + 0.75);
        end(&context, 10 + 2 * read + 1);
        OK(hs_trace_read(trace, &spans, &count));
        cr_assert_eq(count, 2 * read);
        cr_expect_eq(spans[count - 2].start_s, 2 * read);
        cr_expect_eq(spans[count - 2].seconds, 1);
        cr_expect_eq(spans[count - 1].start_s, 2 * read + 0.5);
        cr_expect_eq(spans[count - 1].seconds, 0.25);
    }
    const int held = events_held;
    OK(hs_trace_attach(trace)); /* forgets, and uses its events again */
    begin(&context, 20, HS_RANGE_FORWARD, "forward");
    end(&context, 21);
    OK(hs_trace_read(trace, &spans, &count));
    cr_expect_eq(count, 1);
    cr_expect_eq(events_held, held);
    hs_trace_destroy(trace);
}

/* Waiting is the host's time: next to the device's ranges, before those that were enqueued earlier and begin later. */
Test(trace, waiting_comes_where_the_host_waited)
{
    HsContext context;
    const HsTraceSpan *spans;
    int count;
    now_s = 0;
    HsTrace *trace = watch(&context, false);
    begin(&context, 1000, HS_RANGE_STEP, "step"); /* the device comes to it much later */
    begin(&context, 1000, HS_RANGE_FORWARD, "forward");
    end(&context, 1001);
    end(&context, 1001);
    begin(&context, 1001, HS_RANGE_DATA, "data");
    end(&context, 1001);
    OK(hs_trace_read(trace, &spans, &count));
    cr_assert_eq(count, 3);
    cr_expect_str_eq(spans[0].name, "data");
    cr_expect(spans[0].start_s >= 0 && spans[0].start_s < 999 && spans[0].seconds >= 0);
    cr_expect_str_eq(spans[1].name, "step");
    cr_expect_str_eq(spans[2].name, "forward");
    hs_trace_destroy(trace);
}

Test(trace, failing_to_note_harms_nothing_else)
{
    HsContext context;
    const HsTraceSpan *spans;
    int count;
    HsTrace *trace = watch(&context, true);
    records_left = 11;
    (void)hs_fail(HS_EIO, "an earlier failure");
    begin(&context, 0, HS_RANGE_STEP, "step");
    for (int i = 0; i < 12; i++) {
        begin(&context, i, HS_RANGE_FORWARD, "forward");
        end(&context, i);
    }
    end(&context, 12);
    cr_expect_str_eq(hs_error_message(), "an earlier failure", "noting took the work's message");
    hs_trace_detach(trace);
    cr_expect_eq(hs_trace_read(trace, &spans, &count), HS_EDEVICE);
    cr_expect_str_eq(hs_error_message(), "no more events");
    cr_expect_eq(count, 0);
    records_left = 1000;
    OK(hs_trace_attach(trace)); /* as if nothing had been */
    begin(&context, 20, HS_RANGE_STEP, "step");
    end(&context, 21);
    OK(hs_trace_read(trace, &spans, &count));
    cr_expect_eq(count, 1);
    hs_trace_destroy(trace);
}

/* The dispatcher hands the cost of an operation to the observer; other ranges have none. */
Test(trace, operations_are_noted_with_their_cost)
{
    float x[6] = { 0 }, y[6] = { 0 };
    HsContext context;
    HsTrace *trace = watch(&context, true);
    const HsTraceSpan *spans;
    int count;
    context.backend = hs_backend_ref();
    context.threads = 1;
    const HsCombineArgs add = {
        .x = hs_tensor_1d(x, HS_F32, 6), .y = hs_tensor_1d(y, HS_F32, 6), .alpha = 1.0f, .beta = 1.0f
    };
    const HsMatmulArgs product = { .a.values = hs_tensor_2d(x, HS_F32, 2, 3),
                                   .b.values = hs_tensor_2d(x, HS_F32, 2, 3),
                                   .transpose_b = true,
                                   .alpha = 1.0f,
                                   .c = hs_tensor_2d(y, HS_F32, 2, 2) };
    begin(&context, 1, HS_RANGE_LAYER, "layer");
    OK(hs_op_combine(&context, &add));
    OK(hs_op_matmul(&context, &product));
    end(&context, 2);
    OK(hs_trace_read(trace, &spans, &count));
    cr_assert_eq(count, 3);
    cr_expect(spans[0].cost.bytes == 0 && spans[0].cost.flops == 0, "a layer itself has no cost");
    cr_expect_eq(spans[1].cost.bytes, 3 * 24);
    cr_expect_eq(spans[2].cost.bytes, 2 * 24 + 16);
    cr_expect_eq(spans[2].cost.flops, 2 * 2 * 2 * 3);
    cr_expect_str_eq(spans[2].cost.transposes, "nt");
    hs_trace_destroy(trace);
}
