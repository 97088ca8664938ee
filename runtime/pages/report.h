/* SPDX-License-Identifier: MIT
 *
 * report.html of a run, from its metrics.jsonl alone: self-contained (no network, no scripts needed to read it),
 * readable in light and dark.  Sections: what ran; the matrix as a heat map with the summary and each figure's meaning;
 * loss curves with task boundaries (training, replay, validation per task); forgetting bars; the penalty's importance
 * by tensor; memory.  Sections without data are left out.
 */
#ifndef HS_RUNTIME_PAGES_REPORT_H
#define HS_RUNTIME_PAGES_REPORT_H

#include <stdbool.h>
#include <stdio.h>

#include "runtime/record/matrix.h"

/* Reads out_dir/metrics.jsonl, writes out_dir/report.html (temporary name, renamed).
 * errors: HS_EIO, HS_EFORMAT naming file and line */
HsStatus hs_report_write(const char *out_dir);
/* The same page on a stream, while the run trains too.  *ended: it has ended, or diverged. */
HsStatus hs_report_print_on(FILE *stream, const char *out_dir, bool *ended);

/* What a run says of itself: its last matrix, losses, tokens a second, memory, time.  matrix->tasks 0: no matrix. */
typedef struct HsRunResult {
    HsMatrix matrix;
    double tokens_per_second; /* median of the step records */
    int64_t memory_bytes;
    /* of the memory: what a strategy keeps of earlier tasks in numbers: importance, anchors, snapshots, a teacher */
    int64_t kept_bytes;
    int64_t parameters; /* all of the model's; 0: the record does not say */
    double seconds;     /* of training and evaluating, what was done twice after a kill once; NAN: not recorded */
    int64_t steps;
    /* Of a run of one task: the latest evaluation's loss and the lowest; NAN: not measured, or not a number. */
    double validation_loss, best_validation_loss;
    bool finished; /* has an "end" record */
    bool diverged; /* ended by numbers that were not finite */
} HsRunResult;
/* errors: HS_EIO where there is no record, HS_EFORMAT, HS_ENOMEM */
HsStatus hs_run_result_read(const char *out_dir, HsRunResult *result);
void hs_run_result_deinit(HsRunResult *result);

#endif
