/* SPDX-License-Identifier: MIT
 *
 * The rows of a micro-batch that have a target: the head runs on no others (runtime/model/layers/head_rows.c).  The host
 * lists them where it has the targets, before these go to the device, as it is the host that says how many rows the
 * head's products have.
 */
#ifndef HS_RUNTIME_MODEL_TARGET_ROWS_H
#define HS_RUNTIME_MODEL_TARGET_ROWS_H

#include <stdint.h>

typedef struct HsTargetRows {
    const int32_t *list; /* device memory, [N]: their numbers in order, then -1; NULL: not listed, the head takes all */
    int64_t count;       /* how many the head takes: all of them, and perhaps some of the -1 behind */
} HsTargetRows;

/* list [total], on the host as the targets are; returns how many have one. */
int64_t hs_target_rows_list(const int32_t *targets, int64_t total, int32_t *list);

/* Where steps are recorded, each number of rows is a recording: then it is one of few.  Size s, from 0 to
 * HS_TARGET_ROWS_SIZES, stands for as many of these parts of all rows. */
enum { HS_TARGET_ROWS_SIZES = 32 };
int hs_target_rows_size(int64_t total, int64_t count);
int64_t hs_target_rows_of_size(int64_t total, int size);

#endif
