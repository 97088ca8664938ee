/* SPDX-License-Identifier: MIT
 *
 * A run as its metrics.jsonl has it, between report_read.c, which reads it, and the files that add sections to
 * the page.
 */
#ifndef HS_RUNTIME_PAGES_REPORT_INTERNAL_H
#define HS_RUNTIME_PAGES_REPORT_INTERNAL_H

#include "runtime/io/json.h"
#include "runtime/model/model.h"
#include "runtime/pages/page.h"
#include "runtime/record/matrix.h"

enum { HS_REPORT_ROLE_BYTES = 32 };

typedef struct HsReportSeries { /* y at optimizer step x */
    double *x, *y;
    int64_t count;
    size_t x_capacity, y_capacity;
} HsReportSeries;

/* A task's curves, from its own evaluations, those of all tasks and the matrix's rows. */
typedef struct HsReportTask {
    HsReportSeries validation, accuracy[HS_ITEM_SET_COUNT];
} HsReportTask;

/* What casts into codes did to one role of tensors, over the steps of the record. */
typedef struct HsReportRole {
    char name[HS_REPORT_ROLE_BYTES];
    HsReportSeries exponent, saturated, zeroed; /* log2 of the largest magnitude; shares in percent */
} HsReportRole;

typedef struct HsReport {
    HsJson *run, *importance, *samples, *scales,
        *sources;    /* the latest event of each, its members checked; NULL: none */
    HsMatrix matrix; /* of the latest matrix event; tasks 0: none */
    HsReportSeries train, replay, distillation, penalty, speed;
    HsReportSeries overall; /* evaluations that name no task: of the only one, or of all */
    HsReportSeries overall_accuracy[HS_ITEM_SET_COUNT];
    double bits_per_byte; /* of the latest evaluation; NAN: not known */
    HsReportTask *tasks;
    int task_count;
    HsReportRole roles[HS_SCALING_ROLES];
    int role_count;
    HsReportSeries task_ends; /* x: step of a matrix event, y: its task */
    HsReportSeries pressures; /* x: step of a pressure event, y: the micro-batch from there on */
    char changes[1024];       /* "at step N: KEYS; ..." of changed events */
    char forgotten[1024];     /* "NAME at step N: P% of it was left; ..." of forgetting events */
    char stops[1024];         /* "at step N, after ..." of early_stop events */
    /* by the clock of each line, which begins again where a run is resumed: the sum of the parts before the latest, */
    double earlier_s, latest_s; /* and the latest */
    int64_t steps;
    char diverged[1024]; /* why the run ended by numbers that were not finite; "" */
    bool finished;
} HsReport;

/* Reads every line; nothing to free on failure.  errors: HS_EIO, HS_ENOMEM, HS_EFORMAT "PATH:LINE: ..." */
HsStatus hs_report_read(const char *out_dir, HsReport *report);
void hs_report_deinit(HsReport *report);
/* Of those that are known; orders them in place.  NAN: none is. */
double hs_report_median(double *values, int64_t count);
int64_t hs_report_memory_bytes(const HsReport *report); /* sum of the run event's parts */
int64_t hs_report_kept_bytes(const HsReport *report);   /* of those that hold what a strategy keeps in numbers */

/* --- report_tasks.c, for the files that add sections --- */

/* Marks of a chart, with room for those of memory pressure.  marks NULL: no memory */
typedef struct HsReportMarks {
    HsChartMark *marks;
    int count;
} HsReportMarks;

static inline HsChartSeries hs_report_curve(const char *name, const HsReportSeries *points)
{
    return (HsChartSeries){ name, points->x, points->y, points->count };
}

/* As many as the matrix, the run event or the evaluations name. */
int hs_report_task_count(const HsReport *report);
bool hs_report_any_known(const double *values, int64_t count);
/* From the matrix, else the run event, else a number. */
const char *hs_report_task_name(const HsReport *report, int task, HsPage *page);
/* Where tasks begin. */
HsReportMarks hs_report_task_marks(const HsReport *report, HsPage *page);
/* The tasks' names, as a heat map takes them; NULL: no memory */
const char *const *hs_report_columns(const HsMatrix *matrix, HsPage *page);

/* --- report_items.c --- */

void hs_report_add_accuracy(const HsReport *report, HsPage *page);
void hs_report_add_samples(const HsReport *report, HsPage *page);
void hs_report_add_sources(const HsReport *report, HsPage *page);

/* --- report_scales.c --- */

void hs_report_add_scales(const HsReport *report, HsPage *page);

#endif
