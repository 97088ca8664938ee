/* SPDX-License-Identifier: MIT
 *
 * One process owns a run's folder: the one that trains there locks out_dir/.lock, which the system unlocks when the
 * process ends, however it ends.  The file itself stays and means nothing.  Readers (report, eval, generate) take
 * no lock.
 */
#ifndef HS_RUNTIME_TRAIN_RUN_LOCK_H
#define HS_RUNTIME_TRAIN_RUN_LOCK_H

#include <stdbool.h>

#include "kernels/base/status.h"

typedef struct HsRunLock HsRunLock;

/* *lock is NULL, and nothing is made, where there is no folder yet.  Where the file system knows no locks, a warning
 * says so and *lock is NULL, too.  errors: HS_EIO naming the process that holds it, and what to do; HS_ENOMEM */
HsStatus hs_run_lock_take(const char *out_dir, HsRunLock **lock);
/* Whether a process trains there now. */
bool hs_run_lock_held(const char *out_dir);
/* Safe on NULL. */
void hs_run_lock_release(HsRunLock *lock);

#endif
