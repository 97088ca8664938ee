/* SPDX-License-Identifier: MIT
 *
 * Modes side by side: the same model, data and seed trained for the same number of steps in each of several
 * configurations, with what each costs and what it does to the numbers.
 *
 *   bench_modes.c    which modes: the language of --modes
 *   bench.c          what fits at once, which turn is next, what is written
 *   bench_run.c      one mode's run: turns of ordinary training steps, then evaluation, survey, split
 *   bench_figures.c  figures from the measurements
 *   bench_print.c, bench_json.c, bench_page.c, bench_charts.c: the same figures for a terminal, for programs, for eyes
 *
 * Runs that fit the device together take turns of about a second in an order that rotates, so that a machine that slows
 * down slows all of them.  A step counts whether it was applied or skipped: step i sees the same batch in every mode,
 * which is why curves compare step by step.
 */
#ifndef HS_RUNTIME_STUDY_BENCH_H
#define HS_RUNTIME_STUDY_BENCH_H

#include <stdbool.h>

#include "runtime/engine/gradient_histograms.h"
#include "runtime/model/coded_figures.h"
#include "runtime/pages/page.h"
#include "runtime/record/trace.h"
#include "runtime/study/bench_modes.h"

typedef struct HsBenchOptions {
    const char *config_path;
    const char *modes;
    int64_t steps, tokens; /* of each mode; 0: not given */
    const char *out_dir;   /* NULL: the configuration's out_dir with -bench behind it */
    int override_count;
    const char *const *overrides;
} HsBenchOptions;

/* Trains every mode, writes bench.json and bench.html and prints the table.  An interruption ends it with what is
 * there. errors: those of a run, naming its mode (all modes are checked before the first trains); HS_ECONFIG; HS_EIO
 * for a folder that no bench made; HS_EINTERRUPTED */
HsStatus hs_bench(const HsBenchOptions *options);

/* What was measured of a mode.  Zeroed is a run of which nothing is known. */
typedef struct HsBenchRun {
    const HsBenchMode *mode; /* borrowed */
    char precision[16];      /* of the products: "bf16" */
    char *config;            /* as YAML, resolved */
    char failure[512];       /* why it ended early; "" */
    int64_t steps, wanted;   /* trained and asked for */
    double *losses;          /* [wanted]: mean over the step's targets; NAN: none was new */
    double *seconds;         /* [wanted]: between this step's end and the one's before; NAN: not timed */
    int64_t applied_steps, skipped_steps;
    double loss_scale; /* after the last step */
    int64_t parameters, tokens_per_step, micro_batch, micro_batches;
    double flops_per_token, peak_flops; /* peak 0: unknown */
    size_t planned[HS_MEMORY_COUNT], peak[HS_MEMORY_COUNT];
    bool finished; /* what follows is known */
    double validation_loss;
    double parts[HS_PART_COUNT];              /* seconds of a step */
    HsSurvey survey;                          /* gradients of the trained model, times loss_scale */
    HsDtype gradient_format;                  /* of weights */
    HsScalingFigures casts[HS_SCALING_ROLES]; /* of the last step, in modes below 16 bits */
    int cast_count;
} HsBenchRun;

typedef struct HsBenchResults {
    const char *config_path; /* borrowed */
    char device[512];
    bool emulated;    /* times mean nothing */
    bool interleaved; /* else one run after another */
    bool interrupted;
    int64_t steps;
    HsBenchRun *runs; /* [count] */
    int count;
    int reference; /* the run that distances are from */
} HsBenchResults;

/* --- bench_figures.c --- */

/* NAN: not known. */
typedef struct HsBenchFigures {
    int64_t timed_steps;
    double tokens_per_second, tokens_per_second_p10, tokens_per_second_p90; /* median of steps; slow end, fast end */
    double peak_share;    /* of the products' measured peak; recomputation is not counted as work done */
    double training_loss; /* mean over the last tenth of the steps */
    /* |loss - reference's| / |reference's|, step by step: the largest, where it is, and the mean of the last tenth */
    double distance_most, distance_final;
    int64_t distance_step; /* counted from 1; 0: not known */
} HsBenchFigures;
HsBenchFigures hs_bench_figures(const HsBenchResults *results, int run);
/* Of the reference at `step`, from 0; NAN where either loss is not known. */
double hs_bench_distance(const HsBenchRun *run, const HsBenchRun *reference, int64_t step);
/* The value below which `share` (0 to 1) of the values lie, interpolated between neighbours; sorts in place.  NAN of
 * none. */
double hs_bench_percentile(double *values, int64_t count, double share);
/* The first run with fp32's products, else the first. */
int hs_bench_find_reference(const HsBenchResults *results);
/* What of the gradients of a histogram is lost in the format that they were stored in: shares of all elements. */
typedef struct HsBenchLoss {
    double zero, subnormal, overflow; /* zero: underflow, with what was zero anyway */
} HsBenchLoss;
HsBenchLoss hs_bench_loss(const HsHistogram *histogram, HsDtype format);
/* What the casts of the mode's last step did to a HsScalingRole, in percent of its elements; NAN: the mode casts none. */
double hs_bench_zeroed(const HsBenchRun *run, int role);
double hs_bench_saturated(const HsBenchRun *run, int role);

/* --- the outputs --- */

/* Tables at most about 100 columns wide: speed and losses, then split, memory and gradients with a column a mode. */
void hs_bench_print(const HsBenchResults *results, FILE *stream);
/* complete: false marks the folder as a bench's before there are results.  errors: HS_ENOMEM, HS_EIO */
HsStatus hs_bench_write_json(const char *path, const HsBenchResults *results, bool complete);
/* The folders that a bench.json names.  errors: HS_EFORMAT when no bench wrote it */
HsStatus hs_bench_read_folders(const char *path, HsStatus (*visit)(void *user, const char *folder), void *user);
HsStatus hs_bench_write_html(const char *path, const HsBenchResults *results);
/* The charts of the page: sections of it. */
void hs_bench_add_charts(const HsBenchResults *results, HsPage *page);

#endif
