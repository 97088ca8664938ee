/* SPDX-License-Identifier: MIT
 *
 * Where time goes: an observer of the context's ranges (kernels/ops/backend.h) that notes when each begins and ends, by
 * the device's own clock: events on the stream for a GPU, the monotonic clock for the host.
 *
 * What is noted is read after the device is done with it.  A recorded CUDA graph runs no ranges: steps that are watched
 * run unrecorded.
 */
#ifndef HS_RUNTIME_RECORD_TRACE_H
#define HS_RUNTIME_RECORD_TRACE_H

#include "kernels/ops/backend.h"

typedef struct HsTrace HsTrace;

typedef struct HsTraceSpan {
    HsRangeKind kind;
    char name[64];
    int depth;               /* 0: outermost */
    double start_s, seconds; /* since the trace was attached; HS_RANGE_DATA by the host's clock */
    HsOpCost cost;           /* HS_RANGE_OPERATION only */
} HsTraceSpan;

/* What a step's time is split into; each instant belongs to the innermost range that is a part. */
#define HS_STEP_PARTS(X)                                               \
    X(DATA, "data", "waiting for the next batch")                      \
    X(FORWARD, "forward", "the model up to its last norm")             \
    X(HEAD, "head and loss", "logits, loss, and their gradients")      \
    X(RECOMPUTE, "recompute", "forward again, for what was not kept")  \
    X(BACKWARD, "backward", "gradients")                               \
    X(UPDATE, "optimizer", "norms, clipping, the fused update")        \
    X(STRATEGY, "strategies", "continual learning outside the update") \
    X(OTHER, "other", "between them: copies, waiting, the host")

typedef enum HsStepPart {
#define HS_STEP_PART_ENUMERATOR(enumerator, name, doc) HS_PART_##enumerator,
    HS_STEP_PARTS(HS_STEP_PART_ENUMERATOR)
#undef HS_STEP_PART_ENUMERATOR
        HS_PART_COUNT
} HsStepPart;
const char *hs_step_part_name(HsStepPart part);

/* detailed: HS_RANGE_LAYER and HS_RANGE_OPERATION are noted too. */
HsStatus hs_trace_create(HsContext *context, bool detailed, HsTrace **trace);
void hs_trace_destroy(HsTrace *trace); /* detaches; NULL is no trace */
/* From now on, and until detached, the context's ranges are noted; attaching waits for the device and forgets what was
 * noted before.  Between ranges, and not while a graph is recorded.  What is noted takes memory until the next attach:
 * some 200 bytes a range, and on a GPU two events. */
HsStatus hs_trace_attach(HsTrace *trace);
void hs_trace_detach(HsTrace *trace);
/* When the trace was attached, by hs_clock_s. */
double hs_trace_origin_s(const HsTrace *trace);
/* Waits for the device; spans in the order of their beginning, valid until the next range, attach or destroy.  Attached
 * or not, between ranges.
 * errors: HS_ENOMEM or HS_EDEVICE that noting met */
HsStatus hs_trace_read(HsTrace *trace, const HsTraceSpan **spans, int *count);
/* Seconds of each part in what was noted; their sum is `wall_s`, the time that the steps took.  What is in no part is
 * HS_PART_OTHER; waiting for data counts only while the device had nothing to do. */
void hs_trace_split(const HsTraceSpan *spans, int count, double wall_s, double seconds[HS_PART_COUNT]);

#endif
