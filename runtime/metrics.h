/* SPDX-License-Identifier: MIT
 *
 * What a run reports: metrics.jsonl (one object a line), TensorBoard events, a progress bar or plain lines.
 * On resume both files are cut back to where the checkpoint left them, so that a killed run's record equals an
 * undisturbed one's.
 */
#ifndef HS_RUNTIME_METRICS_H
#define HS_RUNTIME_METRICS_H

#include "runtime/json.h"

typedef struct HsMetrics HsMetrics;

typedef struct HsMetricsPosition {
    int64_t jsonl_bytes;
    int64_t tensorboard_bytes;
} HsMetricsPosition;

/* One record.  NAN fields and negative counts are left out of the line. */
typedef struct HsMetricsRecord {
    const char *event; /* "step" | "eval" | "checkpoint" | "end" */
    int64_t step;
    double loss, val_loss, learning_rate, grad_norm, loss_scale;
    int64_t skipped_steps;
    double tokens_per_second, time_s;
    double entropy_floor; /* eval: when known */
} HsMetricsRecord;

typedef struct HsMetricsOptions {
    const char *out_dir;
    bool tensorboard;
    const char *progress; /* auto | bar | lines | none */
    int64_t total_steps;
    const HsMetricsPosition *resume_at; /* NULL: fresh files */
} HsMetricsOptions;

HsStatus hs_metrics_create(const HsMetricsOptions *options, HsMetrics **metrics);
/* Appends a line, an event each for the scalars, and prints a plain line when there is no bar (above a bar, only
 * evaluations).  Flushed, not fsynced.  The clock's numbers have a fixed width: equal runs leave files of equal length.
 */
HsStatus hs_metrics_record(HsMetrics *metrics, const HsMetricsRecord *record);
/* Redraws the bar (at most ten times a second); does nothing without one.  peak_share, memory_bytes: 0 when unknown. */
void hs_metrics_progress(HsMetrics *metrics, int64_t step, double loss, double tokens_per_second, double peak_share,
                         double loss_scale, int64_t memory_bytes, double eta_s);
/* fsyncs both files and tells where they end. */
HsStatus hs_metrics_sync(HsMetrics *metrics, HsMetricsPosition *position);
HsStatus hs_metrics_destroy(HsMetrics *metrics);

#endif
