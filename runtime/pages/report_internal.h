/* SPDX-License-Identifier: MIT
 *
 * A run as its metrics.jsonl tells it, between report_read.c and report_page.c.
 */
#ifndef HS_RUNTIME_PAGES_REPORT_INTERNAL_H
#define HS_RUNTIME_PAGES_REPORT_INTERNAL_H

#include "runtime/io/json.h"
#include "runtime/record/matrix.h"

typedef struct HsReportSeries { /* y at optimizer step x */
    double *x, *y;
    int64_t count, capacity;
} HsReportSeries;

typedef struct HsReport {
    HsJson *run, *importance; /* the latest event of each, its members checked; NULL: none */
    HsMatrix matrix;          /* of the latest matrix event; tasks 0: none */
    HsReportSeries train, replay, penalty, speed;
    HsReportSeries overall;     /* evaluations that name no task: of the only one, or of all */
    HsReportSeries *validation; /* by task, from evaluations and the matrix's rows */
    int validation_count;
    HsReportSeries task_ends; /* x: step of a matrix event, y: its task */
    HsReportSeries pressures; /* x: step of a pressure event, y: the micro-batch from there on */
    char changes[1024];       /* "at step N: KEYS; ..." of changed events */
    char stops[1024];         /* "at step N, after ..." of early_stop events */
    int64_t steps;
    char diverged[1024]; /* why the run ended by numbers that were not finite; "" */
    bool finished;
} HsReport;

/* Reads every line; nothing to free on failure.  errors: HS_EIO, HS_ENOMEM, HS_EFORMAT "PATH:LINE: ..." */
HsStatus hs_report_read(const char *out_dir, HsReport *report);
void hs_report_deinit(HsReport *report);
int64_t hs_report_memory_bytes(const HsReport *report); /* sum of the run event's parts */

#endif
