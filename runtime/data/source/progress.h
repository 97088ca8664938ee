/* SPDX-License-Identifier: MIT
 *
 * How far reading sources is, where it takes long: a line after five seconds, and then every ten.
 */
#ifndef HS_RUNTIME_DATA_SOURCE_PROGRESS_H
#define HS_RUNTIME_DATA_SOURCE_PROGRESS_H

#include "runtime/data/source/units.h"

typedef struct HsSourceProgress {
    const char *what; /* NULL: nothing is said */
    double began_s, next_s;
    int64_t *before; /* [sources] bytes of the files in front of each */
    int64_t total;
    bool said;
} HsSourceProgress;

/* Of the files among sources [first, last).  Without memory nothing is said. */
void hs_source_progress_begin(HsSourceProgress *progress, const HsSourceList *sources, int first, int last,
                              const char *what);
void hs_source_progress_add(HsSourceProgress *progress, const HsUnit *unit);
void hs_source_progress_end(HsSourceProgress *progress);

/* Threads to read with: `asked`, or, where that is 0, as many as this process may use. */
int hs_source_threads(int asked);

#endif
