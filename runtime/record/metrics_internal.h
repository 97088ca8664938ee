/* SPDX-License-Identifier: MIT
 *
 * What metrics.c (the files, a step's record), metrics_continual.c (a task's records) and metrics_scales.c share.
 */
#ifndef HS_RUNTIME_RECORD_METRICS_INTERNAL_H
#define HS_RUNTIME_RECORD_METRICS_INTERNAL_H

#include "runtime/record/metrics.h"
#include "runtime/record/progress.h"

typedef struct HsMetricsLog {
    char *path;
    int descriptor; /* -1 when not written */
    int64_t bytes;  /* whole records so far */
} HsMetricsLog;

struct HsMetrics {
    HsMetricsLog jsonl, tensorboard;
    HsProgress progress;
    double eta_s; /* as hs_metrics_progress last heard */
};

/* Whole records only: what a full disk cut off is taken back. */
HsStatus hs_metrics_append(HsMetricsLog *log, const void *bytes, size_t size);
/* A line that is built as a tree; task -1: left out. */
HsJson *hs_metrics_event_line(const char *event, int64_t step, int task);
/* Appends the tree as one line and destroys it. */
HsStatus hs_metrics_append_line(HsMetrics *metrics, HsJson *line);
/* One value under a tag; does nothing for NAN, or when no TensorBoard file is written. */
HsStatus hs_metrics_append_scalar(HsMetrics *metrics, int64_t step, const char *tag, double value);
/* Values under "GROUP/OWNER/NAME" each. */
typedef struct HsMetricsScalar {
    const char *name;
    double value;
} HsMetricsScalar;
HsStatus hs_metrics_append_scalars(HsMetrics *metrics, int64_t step, const char *group, const char *owner,
                                   const HsMetricsScalar *scalars, int count);

#endif
