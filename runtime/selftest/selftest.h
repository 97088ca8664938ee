/* SPDX-License-Identifier: MIT
 *
 * Every operation of a backend against the reference, case by case, within derived tolerances; no test framework
 * needed.
 */
#ifndef HS_RUNTIME_SELFTEST_H
#define HS_RUNTIME_SELFTEST_H

#include <stdio.h>

#include "kernels/backend.h"

/* Run the cases of `only_op` (NULL: of every operation) on context's backend and print one line per operation to `out`:
 * number of cases, worst error as a fraction of its tolerance, and, with_speed, the rate of one larger case.  Lines
 * below it describe the first failures.  context->threads > 1: each case also runs with one thread and must give the
 * same bits.  *failures counts the cases out of tolerance or refused; the status is about the run itself (HS_EINVAL for
 * an unknown operation, HS_ENOMEM). */
HsStatus hs_selftest_run(HsContext *context, const char *only_op, bool with_speed, FILE *out, int *failures);

#endif
