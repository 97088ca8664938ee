/* SPDX-License-Identifier: MIT
 *
 * What a checkpoint holds, for people: tensors with their statistics, how many of their values a 16-bit format would
 * lose, what casts into codes would make of matrices, and where the exponents lie.
 */
#ifndef HS_RUNTIME_PAGES_INSPECT_H
#define HS_RUNTIME_PAGES_INSPECT_H

#include <stdio.h>

#include "kernels/base/status.h"

/* `folder`: a checkpoint, or a run (then its latest).  Verified first.  A value underflows a format when it is not zero
 * and below the smallest normal number (precision is lost there), and overflows above the largest finite one. errors:
 * those of hs_checkpoint_open; HS_EIO when `out` cannot be written */
HsStatus hs_inspect_checkpoint(const char *folder, FILE *out);
/* The same, and as a self-contained page with charts at `path` (NULL: none), which is written whole or not at all. */
HsStatus hs_inspect_checkpoint_page(const char *folder, FILE *out, const char *path);

#endif
