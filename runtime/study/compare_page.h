/* SPDX-License-Identifier: MIT
 *
 * Strategies side by side: what finished runs say of themselves (report.h), over seeds, as a page, a text table and
 * JSON. How the runs were executed is no matter here.
 *
 * Every figure is the mean over the seeds with a finished run that knows it, with the sample standard deviation
 * sqrt(sum (x - mean)^2 / (n - 1)), unknown for fewer than two.  A row named "joint" gives the others their joint
 * losses (the same seed's last row), hence excess over joint and the perplexity ratio; without it those of the runs
 * stand. Overheads are against the row "none": time a token, tokens/s of none over this one's, minus 1; memory, this
 * one's over none's, minus 1.
 */
#ifndef HS_RUNTIME_STUDY_COMPARE_PAGE_H
#define HS_RUNTIME_STUDY_COMPARE_PAGE_H

#include "runtime/io/json.h"
#include "runtime/pages/page.h"
#include "runtime/pages/report.h"

typedef struct HsCompareRow {
    const char *name; /* of the strategy */
    int seeds;
    const HsRunResult *results; /* [seeds]; a run without a matrix has matrix.tasks 0 */
} HsCompareRow;

typedef struct HsCompareFigure {
    double mean, spread; /* NAN: unknown */
    int count;           /* runs that know it */
} HsCompareFigure;

enum { HS_COMPARE_MEMBERS = sizeof(HsMatrixSummary) / sizeof(double) };

typedef struct HsCompareFigures {
    const char *name; /* borrowed */
    int runs, finished;
    HsCompareFigure members[HS_COMPARE_MEMBERS]; /* in the order of hs_matrix_members */
    HsCompareFigure tokens_per_second, memory_bytes;
    HsCompareFigure seconds, kept_bytes;   /* of a run; of what the strategy keeps in numbers */
    int64_t parameters;                    /* 0: not known */
    double time_overhead, memory_overhead; /* NAN without a row "none" */
    HsMatrix mean;                         /* of the seeds' losses; tasks 0: no finished run has a matrix */
} HsCompareFigures;

/* A member in which there is nothing to know: forgetting, where all tasks are trained on at once.  Shown as "none". */
static inline bool hs_compare_none(const HsCompareFigures *figures, int member)
{
    return member == (int)(offsetof(HsMatrixSummary, forgetting) / sizeof(double)) && figures->mean.tasks > 0 &&
           hs_matrix_is_joint(&figures->mean);
}

/* One per row, on the heap.  errors: HS_ENOMEM; HS_EINVAL when two runs have different numbers of tasks */
HsStatus hs_compare_figures(const HsCompareRow *rows, int count, HsCompareFigures **figures);
void hs_compare_figures_free(HsCompareFigures *figures, int count);

/* For pages and JSON that have more: the page's table, and compare.json as a tree: its member "strategies" has an
 * object a row. */
void hs_compare_add_table(const HsCompareFigures *figures, int count, HsPage *page);
HsJson *hs_compare_json(const HsCompareRow *rows, const HsCompareFigures *figures, int count);

/* A page and JSON, each under a temporary name, then renamed; and a table at most `columns` wide (at least 40; spreads
 * are left out, then columns from the right, where room is short).  errors: also HS_EIO */
HsStatus hs_compare_write_html(const char *path, const char *title, const HsCompareRow *rows, int count);
HsStatus hs_compare_write_json(const char *path, const HsCompareRow *rows, int count);
HsStatus hs_compare_print(const HsCompareRow *rows, int count, int columns, FILE *stream);

#endif
