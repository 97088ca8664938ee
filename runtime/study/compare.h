/* SPDX-License-Identifier: MIT
 *
 * Variants of one configuration, several seeds: the runs, and the table and page that come of them.
 *
 *   compare_variants.c   which variants: the language of --strategies and --grid
 *   compare.c            what is checked before the first run; strategies side by side
 *   compare_rules.c      --grid learning_rate=auto: the values that the rules of train.size suggest
 *   compare_runs.c       a comparison's runs: their configurations and folders, what is missing is trained
 *   process_pool.c       several runs at a time, a process each
 *   compare_figures.c, compare_page.c, compare_print.c: strategies for programs, for eyes, for a terminal
 *   halving.c            the arithmetic of rungs
 *   grid.c               the search: rungs of runs, and which combinations continue
 *   grid_results.c, grid_page.c, grid_print.c: losses by rung, the best combination's lines; the same for eyes, a terminal
 *   compare_front*.c     strategies and strengths: which points no other one makes needless (compare_front.h)
 *
 * A run of a comparison is an ordinary run with a few overrides: nothing is measured here that a single run would not
 * measure, and every one of them can be looked at by itself afterwards.  Runs lie in out_dir/VARIANT-seedN, shorter ones
 * of a search in out_dir/VARIANT-1ofD-seedN; output.log there is what the run said.  They are ordered seed by seed
 * (every variant once, then the next seed), so that what is there after an interruption is balanced.  The same command
 * continues where it stopped: finished runs are read, begun ones continued, missing ones made.  There is no state
 * outside the runs: which variants enter a search's next rung follows from their losses.
 */
#ifndef HS_RUNTIME_STUDY_COMPARE_H
#define HS_RUNTIME_STUDY_COMPARE_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/base/status.h"

typedef struct HsCompareOptions {
    const char *config_path;
    const char *strategies;   /* comma separated; NULL: the configuration's own, with grids only */
    const char *const *grids; /* "KEY=VALUE,VALUE,...", "learning_rate=auto" [grid_count]; 0: strategies side by side */
    int grid_count;
    bool front;          /* every variant a point, at full length; without strategies and grids the default table */
    int64_t eta;         /* of the search: 1/eta continue */
    int rungs;           /* 0: hs_halving_rungs */
    int64_t seeds;       /* of each variant: the configuration's seed, seed + 1, ... */
    int jobs;            /* runs at a time; 0: as many as there are cores and memory for, on a GPU one */
    const char *out_dir; /* NULL: the configuration's out_dir with -compare behind it */
    int override_count;
    const char *const *overrides;
} HsCompareOptions;

/* Trains what is missing, then writes compare.html and compare.json and prints the table; with grids also the best
 * combination's lines.  A run that diverges (HS_ENUMERIC, or a loss that is not finite) is no error: it ranks last.
 * errors: those of a run, naming it; HS_ECONFIG for a variant that cannot be loaded, before any run; HS_ENUMERIC when
 * every combination diverged; HS_EINTERRUPTED */
HsStatus hs_compare(const HsCompareOptions *options);

#endif
