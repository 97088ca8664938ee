/* SPDX-License-Identifier: MIT
 *
 * What a run shows while it runs: a bar that redraws itself on a terminal (standard error), or plain lines (standard
 * output).  Log messages clear the bar first and bring it back, so that lines do not tear.  One bar in a process.
 */
#ifndef HS_RUNTIME_RECORD_PROGRESS_H
#define HS_RUNTIME_RECORD_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "kernels/base/status.h"

typedef struct HsProgressView { /* 0 where unknown; loss may be NAN */
    int64_t step;
    double loss, tokens_per_second, peak_share, loss_scale;
    int64_t memory_bytes;
    double eta_s;
} HsProgressView;

typedef struct HsProgress {
    bool bar, lines;
    int64_t total_steps;
    double drawn_at_s; /* monotonic; negative before the first */
    HsProgressView view;
} HsProgress;

/* mode: "auto" (a bar when standard error is a terminal) | "bar" | "lines" | "none".  errors: HS_ECONFIG */
HsStatus hs_progress_init(HsProgress *progress, const char *mode, int64_t total_steps);
/* New numbers; drawn at most ten times a second. */
void hs_progress_update(HsProgress *progress, const HsProgressView *view);
/* A line to keep: on standard output, or above the bar. */
void hs_progress_print(HsProgress *progress, const char *line);
/* Clears the bar and takes the log hooks away. */
void hs_progress_deinit(HsProgress *progress);

/* "12s", "3m 05s", "2h 07m", "4d 03h": at most `size` bytes; and "950", "24.1k", "3.2M". */
void hs_progress_format_time(double seconds, char *text, size_t size);
void hs_progress_format_count(double count, char *text, size_t size);

/* The bar's text for a terminal of `columns` columns: never wider than columns - 1. */
void hs_progress_format_bar(const HsProgressView *view, int64_t total_steps, int columns, char *text, size_t size);

#endif
