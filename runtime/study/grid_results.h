/* SPDX-License-Identifier: MIT
 *
 * A search's losses, and what is said of them: for programs (grid_results.c), eyes (grid_page.c), a terminal
 * (grid_print.c).  How the runs were executed is no matter here.
 *
 * Of the combinations that a rung trained, the loss is the mean over seeds; one seed that diverged makes it infinite.
 * Ranks: the combination that reached a later rung first, then the lower loss; losses of different rungs never compare.
 */
#ifndef HS_RUNTIME_STUDY_GRID_RESULTS_H
#define HS_RUNTIME_STUDY_GRID_RESULTS_H

#include "runtime/study/compare_variants.h"
#include "runtime/study/halving.h"

typedef struct HsGridResults {
    const char *title;          /* the configuration's path; this and what follows borrowed */
    const char *criterion;      /* "retained loss", "validation loss" */
    const HsVariants *variants; /* the combinations */
    const HsConfig *best;       /* the best combination's configuration; NULL: every one diverged */
    int64_t seeds, first_seed;
    int64_t eta;
    int rungs;
    int64_t divisors[HS_HALVING_RUNGS]; /* of the full length */
    int64_t counts[HS_HALVING_RUNGS];   /* combinations trained; 0: the rung was left out */
    double *losses;                     /* [combinations, rungs, seeds]; NAN: not trained, INFINITY: diverged */
    int *order;                         /* [combinations], best first; see hs_grid_rank */
} HsGridResults;

/* Everything NAN; the caller fills the rest.  errors: HS_ENOMEM */
HsStatus hs_grid_results_init(HsGridResults *results, const HsVariants *variants, int rungs, int64_t seeds);
void hs_grid_results_deinit(HsGridResults *results);
double *hs_grid_losses(const HsGridResults *results, int combination, int rung); /* [seeds] */

/* NAN: not trained at this rung. */
double hs_grid_mean(const HsGridResults *results, int combination, int rung);
/* Sample standard deviation over seeds; NAN for fewer than two, or where one diverged. */
double hs_grid_spread(const HsGridResults *results, int combination, int rung);
/* The last rung that trained it; -1: none. */
int hs_grid_reached(const HsGridResults *results, int combination);
/* Fills `order`.  errors: HS_ENOMEM */
HsStatus hs_grid_rank(HsGridResults *results);
/* "1/9", "full" */
const char *hs_grid_rung_name(const HsGridResults *results, int rung, char name[32]);
/* What was trained, in runs of full length for each seed. */
double hs_grid_cost(const HsGridResults *results);
/* The best combination's lines, on the heap: as YAML, and as overrides of a command line, quoted for a shell where that
 * is needed.  errors: HS_ENOMEM */
HsStatus hs_grid_best_yaml(const HsGridResults *results, char **text);
HsStatus hs_grid_best_overrides(const HsGridResults *results, char **text);

/* A page and JSON, each under a temporary name, then renamed; and a table.  No figure of theirs is a clock's: the same
 * runs give the same bytes, however they were executed.  errors: HS_ENOMEM, HS_EIO */
HsStatus hs_grid_write_html(const char *path, const HsGridResults *results);
HsStatus hs_grid_write_json(const char *path, const HsGridResults *results);
HsStatus hs_grid_print(const HsGridResults *results, FILE *stream);

#endif
