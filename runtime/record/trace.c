/* SPDX-License-Identifier: MIT
 *
 * Noting ranges and reading the clock that fits the device.
 *
 *     ranges  [step [forward ] [backward  ] ]        every begin and end is a mark, in this order
 *     marks   0     1        2 3          4 5        host: the clock's reading; GPU: event i of the pool, on the stream
 *
 * A GPU reports the distance of two events as a float of milliseconds, which is coarse for distant ones.  So a mark's
 * time is measured from an anchor, the origin at first, which moves on as soon as a mark is a second away from it:
 *     time(mark) = time(anchor) + elapsed(anchor, mark),   rounded by at most 2^-24 of about a second.
 *
 * Invariant: a failure while noting changes nothing of the work that is watched; it is kept, and read returns it.
 */
#include "runtime/record/trace.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base/array.h"
#include "kernels/base/clock.h"

enum { MOST_DEPTH = 16, UNNOTED = -1 };

/* A beginning or an end that an event stands for. */
typedef struct Mark {
    int span;
    bool end;
} Mark;

struct HsTrace {
    HsObserver observer; /* first: the context holds its address */
    HsContext *context;
    bool detailed, attached;
    double origin_s;
    HsTraceSpan *spans;
    int count;
    size_t capacity;
    int open[MOST_DEPTH]; /* the ranges that have begun: index of their span, or UNNOTED */
    int open_count, depth;
    /* devices with their own memory */
    HsEvent *origin;
    HsEvent **events; /* mark i's is event i; used again after every attach */
    int event_count;
    size_t event_capacity;
    Mark *marks;
    int mark_count, read_marks;
    size_t mark_capacity;
    HsEvent *anchor;
    double anchor_s;
    /* the first failure of noting */
    HsStatus failed;
    char message[512];
};

const char *hs_step_part_name(HsStepPart part)
{
#define PART_NAME(enumerator, name, doc) [HS_PART_##enumerator] = name,
    static const char *const names[] = { HS_STEP_PARTS(PART_NAME) };
    return names[part];
}

/* --- noting --- */

static HsStatus grow(void *array_pointer, size_t size, int count, size_t *capacity)
{
    const HsStatus status = hs_array_grow(array_pointer, size, (size_t)count + 1, capacity);
    return status == HS_OK ? HS_OK : hs_error_prefix(status, "no memory for a trace: trace fewer steps");
}

static HsStatus record_event(HsTrace *trace, int span, bool end)
{
    HsDevice *device = trace->context->device;
    const int mark = trace->mark_count;
    HS_TRY(grow(&trace->marks, sizeof *trace->marks, mark, &trace->mark_capacity));
    if (mark == trace->event_count) {
        HS_TRY(grow(&trace->events, sizeof *trace->events, mark, &trace->event_capacity));
        HS_TRY(device->event_create(device, &trace->events[mark]));
        trace->event_count++;
    }
    HS_TRY(device->event_record(device, trace->events[mark], trace->context->stream));
    trace->marks[mark] = (Mark){ span, end };
    trace->mark_count++;
    return HS_OK;
}

/* Waiting for data is the host's time on every device. */
static bool by_clock(const HsTrace *trace, HsRangeKind kind)
{
    return trace->context->device->host_accessible || kind == HS_RANGE_DATA;
}

static HsStatus note_begin(HsTrace *trace, HsRangeKind kind, const char *name, const HsOpCost *cost, int *index)
{
    HS_TRY(grow(&trace->spans, sizeof *trace->spans, trace->count, &trace->capacity));
    HsTraceSpan *span = &trace->spans[trace->count];
    *span = (HsTraceSpan){ .kind = kind, .depth = trace->depth };
    /* A copy: the model that the name belongs to may be gone when the trace is read. */
    snprintf(span->name, sizeof span->name, "%s", name);
    if (cost)
        span->cost = *cost;
    if (by_clock(trace, kind))
        span->start_s = hs_clock_s() - trace->origin_s;
    else
        HS_TRY(record_event(trace, trace->count, false));
    *index = trace->count++;
    trace->depth++;
    return HS_OK;
}

static HsStatus note_end(HsTrace *trace, int index)
{
    HsTraceSpan *span = &trace->spans[index];
    trace->depth--;
    if (!by_clock(trace, span->kind))
        return record_event(trace, index, true);
    span->seconds = hs_clock_s() - trace->origin_s - span->start_s;
    return HS_OK;
}

/* `earlier`: the message that the work may just have failed with, which is the one to be reported. */
static void keep_failure(HsTrace *trace, HsStatus status, const char *earlier)
{
    if (status == HS_OK)
        return;
    trace->failed = status;
    snprintf(trace->message, sizeof trace->message, "%s", hs_error_message());
    (void)hs_fail(status, "%s", earlier);
}

static void begin(HsObserver *observer, HsContext *context, HsRangeKind kind, const char *name, const HsOpCost *cost)
{
    HsTrace *trace = (HsTrace *)observer;
    const bool inner = kind == HS_RANGE_LAYER || kind == HS_RANGE_OPERATION;
    assert(context == trace->context && trace->open_count < MOST_DEPTH);
    int index = UNNOTED;
    if (trace->failed == HS_OK && (trace->detailed || !inner)) {
        char earlier[512];
        snprintf(earlier, sizeof earlier, "%s", hs_error_message());
        keep_failure(trace, note_begin(trace, kind, name, cost, &index), earlier);
    }
    trace->open[trace->open_count++] = index;
    (void)context;
}

static void end(HsObserver *observer, HsContext *context)
{
    HsTrace *trace = (HsTrace *)observer;
    assert(context == trace->context && trace->open_count > 0);
    const int index = trace->open[--trace->open_count];
    if (trace->failed == HS_OK && index != UNNOTED) {
        char earlier[512];
        snprintf(earlier, sizeof earlier, "%s", hs_error_message());
        keep_failure(trace, note_end(trace, index), earlier);
    }
    (void)context;
}

/* --- the trace --- */

HsStatus hs_trace_create(HsContext *context, bool detailed, HsTrace **trace)
{
    HsDevice *device = context->device;
    HsTrace *made = calloc(1, sizeof *made);
    *trace = NULL;
    if (!made)
        return hs_fail(HS_ENOMEM, "no memory for a trace");
    made->observer = (HsObserver){ begin, end };
    made->context = context;
    made->detailed = detailed;
    HsStatus status = device->event_create(device, &made->origin);
    if (status != HS_OK) {
        free(made);
        return status;
    }
    *trace = made;
    return HS_OK;
}

void hs_trace_destroy(HsTrace *trace)
{
    if (!trace)
        return;
    HsDevice *device = trace->context->device;
    hs_trace_detach(trace);
    for (int i = 0; i < trace->event_count; i++)
        device->event_destroy(device, trace->events[i]);
    device->event_destroy(device, trace->origin);
    free(trace->events);
    free(trace->marks);
    free(trace->spans);
    free(trace);
}

/* With the stream empty, the origin's event and the clock's reading are the same instant but for the call itself. */
HsStatus hs_trace_attach(HsTrace *trace)
{
    HsContext *context = trace->context;
    HsDevice *device = context->device;
    assert(!context->observer || context->observer == &trace->observer);
    assert(trace->open_count == 0);
    trace->count = trace->mark_count = trace->read_marks = trace->depth = 0;
    trace->failed = HS_OK;
    HS_TRY(device->stream_sync(device, context->stream));
    HS_TRY(device->event_record(device, trace->origin, context->stream));
    HS_TRY(device->stream_sync(device, context->stream));
    trace->origin_s = hs_clock_s();
    trace->anchor = trace->origin;
    trace->anchor_s = 0;
    context->observer = &trace->observer;
    trace->attached = true;
    return HS_OK;
}

void hs_trace_detach(HsTrace *trace)
{
    assert(!trace->attached || (trace->open_count == 0 && trace->context->observer == &trace->observer));
    if (trace->attached)
        trace->context->observer = NULL;
    trace->attached = false;
}

double hs_trace_origin_s(const HsTrace *trace)
{
    return trace->origin_s;
}

/* --- reading --- */

static HsStatus resolve_marks(HsTrace *trace)
{
    HsDevice *device = trace->context->device;
    for (; trace->read_marks < trace->mark_count; trace->read_marks++) {
        const Mark *mark = &trace->marks[trace->read_marks];
        HsEvent *event = trace->events[trace->read_marks];
        HsTraceSpan *span = &trace->spans[mark->span];
        double milliseconds;
        HS_TRY(device->event_elapsed_ms(device, trace->anchor, event, &milliseconds));
        const double at_s = trace->anchor_s + 1e-3 * milliseconds;
        if (mark->end)
            span->seconds = at_s - span->start_s;
        else
            span->start_s = at_s;
        if (milliseconds >= 1000) {
            trace->anchor = event;
            trace->anchor_s = at_s;
        }
    }
    return HS_OK;
}

/* The host runs ahead of a GPU, so what it waited for comes before steps that were noted earlier.  Everything else is
 * in order already: one pass, and equal ones stay as they are. */
static void sort_by_start(HsTraceSpan *spans, int count)
{
    for (int i = 1; i < count; i++) {
        const HsTraceSpan moved = spans[i];
        int place = i;
        while (place > 0 && spans[place - 1].start_s > moved.start_s)
            place--;
        memmove(&spans[place + 1], &spans[place], (size_t)(i - place) * sizeof *spans);
        spans[place] = moved;
    }
}

HsStatus hs_trace_read(HsTrace *trace, const HsTraceSpan **spans, int *count)
{
    HsContext *context = trace->context;
    assert(trace->open_count == 0);
    *spans = NULL;
    *count = 0;
    if (trace->failed != HS_OK)
        return hs_fail(trace->failed, "%s", trace->message);
    HS_TRY(context->device->stream_sync(context->device, context->stream));
    HS_TRY(resolve_marks(trace));
    sort_by_start(trace->spans, trace->count);
    *spans = trace->spans;
    *count = trace->count;
    return HS_OK;
}

/* --- the split --- */

/* HS_PART_COUNT: no separate part, its time is that of the range around it. */
static HsStepPart part_of(HsRangeKind kind)
{
    static const HsStepPart parts[] = {
        [HS_RANGE_STEP] = HS_PART_OTHER,          [HS_RANGE_DATA] = HS_PART_DATA,
        [HS_RANGE_FORWARD] = HS_PART_FORWARD,     [HS_RANGE_HEAD] = HS_PART_HEAD,
        [HS_RANGE_RECOMPUTE] = HS_PART_RECOMPUTE, [HS_RANGE_BACKWARD] = HS_PART_BACKWARD,
        [HS_RANGE_UPDATE] = HS_PART_UPDATE,       [HS_RANGE_STRATEGY] = HS_PART_STRATEGY,
        [HS_RANGE_LAYER] = HS_PART_COUNT,         [HS_RANGE_OPERATION] = HS_PART_COUNT,
    };
    return parts[kind];
}

static double later(double a, double b)
{
    return a > b ? a : b;
}

static double earlier(double a, double b)
{
    return a < b ? a : b;
}

void hs_trace_split(const HsTraceSpan *spans, int count, double wall_s, double seconds[HS_PART_COUNT])
{
    HsStepPart around[MOST_DEPTH]; /* the part that ranges of each depth belong to */
    double busy_until = 0, waiting_until = 0, noted = 0;
    memset(seconds, 0, HS_PART_COUNT * sizeof *seconds);
    for (int i = 0; i < count; i++) {
        const HsTraceSpan *span = &spans[i];
        const double end_s = span->start_s + span->seconds;
        assert(span->depth < MOST_DEPTH);
        if (span->kind == HS_RANGE_DATA) {
            /* What the device was doing meanwhile hides this, be it begun before or (below) after. */
            seconds[HS_PART_DATA] += span->seconds - later(0, earlier(end_s, busy_until) - span->start_s);
            waiting_until = end_s;
            continue;
        }
        HsStepPart part = part_of(span->kind);
        const HsStepPart outer = span->depth > 0 ? around[span->depth - 1] : HS_PART_OTHER;
        part = part == HS_PART_COUNT ? outer : part;
        around[span->depth] = part;
        seconds[part] += span->seconds;
        if (span->depth > 0) {
            seconds[outer] -= span->seconds;
        } else {
            seconds[HS_PART_DATA] -= later(0, earlier(end_s, waiting_until) - span->start_s);
            busy_until = end_s;
        }
    }
    for (int part = 0; part < HS_PART_OTHER; part++)
        noted += seconds[part];
    seconds[HS_PART_OTHER] = wall_s - noted;
}
