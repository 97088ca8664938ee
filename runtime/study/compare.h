/* SPDX-License-Identifier: MIT
 *
 * Several strategies, several seeds, one configuration: the runs, and the table and page that come of them.
 *
 * A variant is written  NAME[+NAME][:key=value]...  such as  ewc  or  ewc+er  or  er:replay.buffer_size=64.  Its runs
 * lie in out_dir/VARIANT-seedN.  Runs are interleaved (every variant once, then the next seed), so that what is there
 * after an interruption is balanced; the same command goes on where it stopped, run by run and within a run.
 */
#ifndef HS_RUNTIME_STUDY_COMPARE_H
#define HS_RUNTIME_STUDY_COMPARE_H

#include <stdint.h>

#include "kernels/base/status.h"

typedef struct HsCompareOptions {
    const char *config_path;
    const char *variants; /* comma separated */
    int64_t seeds;        /* of each variant: the configuration's seed, seed + 1, ... */
    const char *out_dir;  /* NULL: the configuration's out_dir with -compare behind it */
    int override_count;
    const char *const *overrides;
} HsCompareOptions;

/* Trains what is missing, then writes compare.html and compare.json and prints the table.
 * errors: those of a run, naming it; HS_ECONFIG for a variant that is no strategy; HS_EINTERRUPTED */
HsStatus hs_compare(const HsCompareOptions *options);

#endif
