/* SPDX-License-Identifier: MIT
 *
 * The matrix as members of a JSON object:
 *
 *   names [T] strings, losses: the first rows, each [T], untrained [T], floor [T], joint [T]  (null: unknown)
 */
#ifndef HS_RUNTIME_RECORD_MATRIX_JSON_H
#define HS_RUNTIME_RECORD_MATRIX_JSON_H

#include "runtime/io/json.h"
#include "runtime/record/matrix.h"

enum { HS_MATRIX_TASKS_MOST = 1024 }; /* what a file may claim: T*T figures are allocated on its word */

/* The first `rows` rows and the rest into `object`; and the summary as a separate object, for readers that do not
 * want to compute.  Memory that runs out shows when the tree is written (json.h). */
void hs_matrix_to_json(const HsMatrix *matrix, int rows, HsJson *object);
HsJson *hs_matrix_summary_json(const HsMatrix *matrix);
/* The matrix from such an object; nothing to free on failure.  `name` stands for the file and line in messages.
 * errors: HS_EFORMAT, HS_ENOMEM */
HsStatus hs_matrix_from_json(const char *name, const HsJson *object, HsMatrix *matrix);

#endif
