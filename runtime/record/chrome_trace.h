/* SPDX-License-Identifier: MIT
 *
 * Spans and counters as a timeline that chrome://tracing and Perfetto show: the Trace Event Format's JSON object form,
 *     {"displayTimeUnit":"ms","traceEvents":[ {"ph":"X",...}, {"ph":"C",...}, ... ]}
 * with complete events (X: ts and dur in microseconds), counters (C) and the names of process and tracks (M).  An
 * operation's event carries what it computes and costs:
 *     "args":{"formula":"c = ...","flops":75497472,"bytes":884736,"format":"bf16","transposes":"nt"}
 * with the format where there are flops, and the transposes of a product (kernels/ops/cost.h).
 *
 * Events are written as they come, to a temporary name; the file has its own once it is finished.
 */
#ifndef HS_RUNTIME_RECORD_CHROME_TRACE_H
#define HS_RUNTIME_RECORD_CHROME_TRACE_H

#include "runtime/record/trace.h"

typedef struct HsChromeTrace HsChromeTrace;

/* One series of a counter; several in one counter are stacked. */
typedef struct HsTraceSeries {
    const char *name;
    size_t bytes;
} HsTraceSeries;

/* `path` is borrowed until the end.  process, device: names that the viewer shows.  errors: HS_EIO, HS_ENOMEM */
HsStatus hs_chrome_trace_create(const char *path, const char *process, const char *device, HsChromeTrace **trace);
/* What hs_trace_read returned for optimizer step `step`, attached at `origin_s` of hs_clock_s, which is not before the
 * file's making.  Waiting for data has a track of the host's, the rest is nested on the device's. */
HsStatus hs_chrome_trace_add_spans(HsChromeTrace *trace, double origin_s, int64_t step, const HsTraceSpan *spans,
                                   int count);
/* A counter's value from `at_s` of hs_clock_s on. */
HsStatus hs_chrome_trace_add_counter(HsChromeTrace *trace, double at_s, const char *name, const HsTraceSeries *series,
                                     int count);
/* The file is complete and at its path. */
HsStatus hs_chrome_trace_finish(HsChromeTrace *trace);
/* An unfinished file is removed; NULL is no trace. */
void hs_chrome_trace_destroy(HsChromeTrace *trace);

#endif
