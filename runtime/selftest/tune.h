/* SPDX-License-Identifier: MIT
 *
 * Measuring which kernel, tile and slices suit each matrix product on this GPU: trainer selftest --tune.
 */
#ifndef HS_RUNTIME_SELFTEST_TUNE_H
#define HS_RUNTIME_SELFTEST_TUNE_H

#include <stdio.h>

#include "runtime/train/training.h"

enum { HS_TUNE_MOST_PRODUCTS = 512 };

/* Calls with tensors without data, no two of the same product. */
typedef struct HsTuneList {
    HsMatmulArgs products[HS_TUNE_MOST_PRODUCTS];
    int count, left_out; /* left_out: found no room */
} HsTuneList;

/* Add a call, unless its product is listed already. */
void hs_tune_add(HsTuneList *list, const HsMatmulArgs *args);
/* Those that tables are made for without a configuration (hs_training_layers), in bf16. */
void hs_tune_add_defaults(HsTuneList *list);
/* Those of a configuration's training and evaluation steps, as its dry run asks for them.  training: of hs_planner_open.
 */
HsStatus hs_tune_add_model(HsTuneList *list, const HsTraining *training);

/* Measure each product's choices on the engine's device, write the fastest to the table `path`, and a line of each to
 * `out`.  errors: HS_ECONFIG where the device chooses no kernels by measurement, HS_EIO, HS_ENOMEM, HS_EDEVICE. */
HsStatus hs_tune_run(HsEngine *engine, const HsTuneList *list, const char *path, FILE *out);

#endif
