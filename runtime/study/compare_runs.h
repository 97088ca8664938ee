/* SPDX-License-Identifier: MIT
 *
 * The runs of a comparison.  Private to compare*.c and grid.c.
 */
#ifndef HS_RUNTIME_STUDY_COMPARE_RUNS_H
#define HS_RUNTIME_STUDY_COMPARE_RUNS_H

#include "runtime/pages/report.h"
#include "runtime/study/compare.h"
#include "runtime/study/compare_page.h"
#include "runtime/study/compare_variants.h"

enum { HS_COMPARE_PATH_BYTES = 4096 };

typedef struct HsComparison {
    const HsCompareOptions *options;
    char *table; /* of a front, its default points as --strategies has them; NULL: the options' own */
    char *text;  /* of the configuration's file, as it was when the comparison began */
    size_t length;
    char out_dir[HS_COMPARE_PATH_BYTES / 2];
    HsVariants variants;
    int64_t first_seed;
    int tasks;
    int64_t steps;      /* of the shortest task, where its length is given in steps or tokens; else INT64_MAX */
    bool keep_best;     /* a run's loss is the lowest of its evaluations, since that model is kept */
    int64_t threads;    /* of the configuration; 0: not given */
    int jobs;           /* runs at a time */
    int64_t cores;      /* that runs at a time share; 0: they have threads as configured */
    int64_t each;       /* threads of each run under way; 0: as configured */
    double processor_s; /* of the runs trained in this call, */
    int trained;        /* and how many they are */
} HsComparison;

/* One run: what it is, and what came of it. */
typedef struct HsCompareRun {
    int variant;
    int64_t seed, divisor; /* of the full length, 1: as configured */
    HsRunResult result;
    double loss; /* lower is better: retained loss, of one task validation loss; INFINITY: diverged */
    bool found;  /* finished before: hs_compare_find has read it */
} HsCompareRun;

/* The runs of these variants (NULL: of all), seed by seed, in `*count`; hs_compare_free_runs ends them.  errors: HS_ENOMEM */
HsStatus hs_compare_list_runs(const HsComparison *comparison, const int *variants, int variant_count, int64_t divisor,
                              HsCompareRun **runs, int64_t *count);
void hs_compare_free_runs(HsCompareRun *runs, int64_t count);
/* The same of all variants at full length, which `work` trains and reports; before that, what jobs at a time mean. */
HsStatus hs_compare_all(HsComparison *comparison,
                        HsStatus (*work)(HsComparison *comparison, HsCompareRun *runs, int64_t count));

/* The configuration of one variant's run, as its process will have it. */
HsStatus hs_compare_load(const HsComparison *comparison, int variant, int64_t seed, int64_t divisor, HsConfig *config);
/* "VARIANT-seedN", below out_dir */
void hs_compare_run_name(const HsComparison *comparison, const HsCompareRun *run, char *name, size_t bytes);
/* Chooses jobs and cores for at most `count` runs at a time. */
HsStatus hs_compare_settle_jobs(HsComparison *comparison, int64_t count);
/* Reads those of the runs that are finished; returns how many in `found`. */
HsStatus hs_compare_find(const HsComparison *comparison, HsCompareRun *runs, int64_t count, int64_t *found);
/* Trains those of the runs that are not finished, and reads the results of all.  `where` begins progress lines. */
HsStatus hs_compare_train(HsComparison *comparison, HsCompareRun *runs, int64_t count, const char *where);

/* Results as rows, variant by variant, where the runs' order is seed by seed.  Borrows; the caller frees both. */
HsStatus hs_compare_rows(const HsComparison *comparison, const HsCompareRun *runs, HsCompareRow **rows,
                         HsRunResult **results);

/* --- compare_front_table.c --- */

/* The variants of a front without --strategies and --grid: the default table for the configuration, without those that
 * it refuses, each of which is logged with the reason.  errors: HS_ECONFIG where fewer than two are left */
HsStatus hs_front_table(HsComparison *comparison);

/* --- compare_front_runs.c --- */

HsStatus hs_compare_front(HsComparison *comparison);

/* --- compare_rules.c --- */

/* A grid without values; the rules of train.size have them. */
#define HS_GRID_RATES "learning_rate=auto"
/* Options whose grids have all values, in `grids`, which the caller ends.  errors: HS_ECONFIG where there is no rule */
HsStatus hs_compare_take_rules(HsCompareOptions *options, HsStringList *grids);

/* --- grid.c --- */

HsStatus hs_grid_search(HsComparison *comparison);
/* Rungs of this search. */
int hs_grid_rungs(const HsComparison *comparison);

#endif
