/* SPDX-License-Identifier: MIT
 *
 * Writing the Trace Event Format.  Viewers nest complete events of a track by their times alone, so a span must not
 * stand out of the one around it, not even by a rounding: times are whole nanoseconds here, and an inner span's are
 * clamped to the outer one's.
 */
#include "runtime/record/chrome_trace.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/base/clock.h"

enum { PROCESS = 1, DEVICE_TRACK = 1, HOST_TRACK = 2, MOST_DEPTH = 16 };

struct HsChromeTrace {
    const char *path;
    char *temporary;
    FILE *file;
    double zero_s; /* what the file counts from: its making */
};

static HsStatus fail_writing(const HsChromeTrace *trace)
{
    return hs_fail(HS_EIO, "%s cannot be written: %s", trace->path, strerror(errno));
}

static void put_string(FILE *file, const char *text)
{
    putc('"', file);
    for (const char *at = text; *at; at++) {
        const unsigned char byte = (unsigned char)*at;
        if (byte < 0x20)
            fprintf(file, "\\u%04x", byte);
        else if (byte == '"' || byte == '\\')
            fprintf(file, "\\%c", byte);
        else
            putc(byte, file);
    }
    putc('"', file);
}

/* Microseconds with three digits behind the point: exactly what the nanoseconds are. */
static void put_time(FILE *file, const char *key, int64_t nanoseconds)
{
    fprintf(file, ",\"%s\":%lld.%03lld", key, (long long)(nanoseconds / 1000), (long long)(nanoseconds % 1000));
}

static void put_track_name(FILE *file, const char *what, int track, const char *name)
{
    fprintf(file, "{\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"name\":\"%s\",\"args\":{\"name\":", PROCESS, track, what);
    put_string(file, name);
    fputs("}}", file);
}

HsStatus hs_chrome_trace_create(const char *path, const char *process, const char *device, HsChromeTrace **trace)
{
    HsStatus status = HS_OK;
    HsChromeTrace *made = calloc(1, sizeof *made);
    *trace = NULL;
    if (!made || asprintf(&made->temporary, "%s.tmp", path) < 0) {
        free(made);
        return hs_fail(HS_ENOMEM, "no memory to write %s", path);
    }
    made->path = path;
    made->zero_s = hs_clock_s();
    made->file = fopen(made->temporary, "w");
    if (!made->file) {
        status = fail_writing(made);
        hs_chrome_trace_destroy(made);
        return status;
    }
    fputs("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n", made->file);
    put_track_name(made->file, "process_name", DEVICE_TRACK, process);
    fputs(",\n", made->file);
    put_track_name(made->file, "thread_name", DEVICE_TRACK, device);
    fputs(",\n", made->file);
    put_track_name(made->file, "thread_name", HOST_TRACK, "host: waiting for data");
    *trace = made;
    return HS_OK;
}

void hs_chrome_trace_destroy(HsChromeTrace *trace)
{
    if (!trace)
        return;
    if (trace->file) {
        (void)fclose(trace->file);
        (void)remove(trace->temporary);
    }
    free(trace->temporary);
    free(trace);
}

static int64_t clamp(int64_t value, int64_t least, int64_t most)
{
    value = value < least ? least : value;
    return value > most ? most : value;
}

static int64_t nanoseconds(const HsChromeTrace *trace, double at_s)
{
    return clamp(llround(1e9 * (at_s - trace->zero_s)), 0, INT64_MAX);
}

/* What the operation computes, and the least work in it (kernels/ops/cost.h); the format is that of its products. */
static void put_operation(FILE *file, const char *name, const HsOpCost *cost)
{
    const char *formula = hs_op_formula(name); /* none: hs_at_once */
    fputs(",\"args\":{\"formula\":", file);
    put_string(file, formula ? formula : "several operations side by side");
    fprintf(file, ",\"flops\":%.17g,\"bytes\":%.17g", cost->flops, cost->bytes);
    if (cost->flops > 0)
        fprintf(file, ",\"format\":\"%s\"",
                hs_policy_is_tf32(cost->policy) && cost->dtype == HS_F32 ? "tf32" : hs_dtype_name(cost->dtype));
    if (cost->transposes)
        fprintf(file, ",\"transposes\":\"%s\"", cost->transposes);
    if (cost->predicted_s > 0)
        fprintf(file, ",\"predicted_us\":%.3f", 1e6 * cost->predicted_s);
    putc('}', file);
}

static void put_span(FILE *file, const HsTraceSpan *span, int64_t step, int64_t begin_ns, int64_t end_ns)
{
    static const char *const categories[] = {
        [HS_RANGE_STEP] = "step",           [HS_RANGE_DATA] = "data",       [HS_RANGE_FORWARD] = "phase",
        [HS_RANGE_HEAD] = "phase",          [HS_RANGE_RECOMPUTE] = "phase", [HS_RANGE_BACKWARD] = "phase",
        [HS_RANGE_UPDATE] = "phase",        [HS_RANGE_STRATEGY] = "phase",  [HS_RANGE_LAYER] = "layer",
        [HS_RANGE_OPERATION] = "operation",
    };
    fprintf(file, ",\n{\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"cat\":\"%s\",\"name\":", PROCESS,
            span->kind == HS_RANGE_DATA ? HOST_TRACK : DEVICE_TRACK, categories[span->kind]);
    put_string(file, span->name);
    put_time(file, "ts", begin_ns);
    put_time(file, "dur", end_ns - begin_ns);
    if (span->kind == HS_RANGE_STEP)
        fprintf(file, ",\"args\":{\"step\":%lld}", (long long)step);
    if (span->kind == HS_RANGE_OPERATION)
        put_operation(file, span->name, &span->cost);
    putc('}', file);
}

HsStatus hs_chrome_trace_add_spans(HsChromeTrace *trace, double origin_s, int64_t step, const HsTraceSpan *spans,
                                   int count)
{
    int64_t ends[MOST_DEPTH] = { 0 }; /* of the latest span of each depth, on the device's track */
    int64_t least = nanoseconds(trace, origin_s);
    for (int i = 0; i < count; i++) {
        const HsTraceSpan *span = &spans[i];
        const double start_s = origin_s + span->start_s;
        const bool inner = span->depth > 0 && span->kind != HS_RANGE_DATA;
        assert(span->depth < MOST_DEPTH);
        const int64_t most = inner ? ends[span->depth - 1] : INT64_MAX;
        /* Spans side by side meet: the second does not begin within the first because both were rounded. */
        if (span->kind != HS_RANGE_DATA && ends[span->depth] > least)
            least = ends[span->depth];
        const int64_t begin_ns = clamp(nanoseconds(trace, start_s), least, most);
        const int64_t end_ns = clamp(nanoseconds(trace, start_s + span->seconds), begin_ns, most);
        put_span(trace->file, span, step, begin_ns, end_ns);
        if (span->kind != HS_RANGE_DATA)
            ends[span->depth] = end_ns;
        least = begin_ns; /* in the order of their beginning */
    }
    return ferror(trace->file) ? fail_writing(trace) : HS_OK;
}

HsStatus hs_chrome_trace_add_counter(HsChromeTrace *trace, double at_s, const char *name, const HsTraceSeries *series,
                                     int count)
{
    FILE *file = trace->file;
    fprintf(file, ",\n{\"ph\":\"C\",\"pid\":%d,\"tid\":%d,\"name\":", PROCESS, DEVICE_TRACK);
    put_string(file, name);
    put_time(file, "ts", nanoseconds(trace, at_s));
    fputs(",\"args\":{", file);
    for (int i = 0; i < count; i++) {
        if (i > 0)
            putc(',', file);
        put_string(file, series[i].name);
        fprintf(file, ":%zu", series[i].bytes);
    }
    fputs("}}", file);
    return ferror(file) ? fail_writing(trace) : HS_OK;
}

HsStatus hs_chrome_trace_finish(HsChromeTrace *trace)
{
    FILE *file = trace->file;
    fputs("\n]}\n", file);
    const bool written = fflush(file) == 0 && !ferror(file) && fsync(fileno(file)) == 0;
    HsStatus status = written ? HS_OK : fail_writing(trace);
    trace->file = NULL;
    if (fclose(file) != 0 && status == HS_OK)
        status = fail_writing(trace);
    if (status == HS_OK && rename(trace->temporary, trace->path) != 0)
        status = fail_writing(trace);
    if (status != HS_OK)
        (void)remove(trace->temporary);
    return status;
}
