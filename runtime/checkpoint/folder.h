/* SPDX-License-Identifier: MIT
 *
 * The layout of checkpoint folders on disk: names, checksums, which is whole.  Private to checkpoint*.c.
 */
#ifndef HS_RUNTIME_CHECKPOINT_FOLDER_H
#define HS_RUNTIME_CHECKPOINT_FOLDER_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/base/status.h"
#include "runtime/io/json.h"

#define HS_CHECKPOINTS_FOLDER   "checkpoints"
#define HS_CHECKPOINT_LATEST    "latest"
#define HS_CHECKPOINT_TEMPORARY ".tmp-"     /* start of every name that may be thrown away */
#define HS_CHECKPOINT_REPLACED  ".replaced" /* end of the name of a step folder that was moved aside */
#define HS_CHECKPOINT_CHECKSUMS "checksums.json"

/* "step-00000200" or "step-00000200.replaced" -> 200; false for any other name. */
bool hs_checkpoint_step_of(const char *name, int64_t *step);

/* What the file parent/pointer (latest, best) names: "step-N".  errors: HS_EIO, HS_EFORMAT naming the file */
enum { HS_CHECKPOINT_NAME_BYTES = 64 };
HsStatus hs_checkpoint_read_name(const char *parent, const char *pointer, char name[HS_CHECKPOINT_NAME_BYTES]);

/* Checksums every file of the folder (the two that were hashed while written come in `known`, file -> 16 hex digits,
 * may be NULL), fsyncs them and writes checksums.json. */
HsStatus hs_checkpoint_seal(const char *folder, int64_t step, const HsJson *known);

/* Every file that checksums.json lists is there with its size and, if asked, its checksum.  The message names the file
 * that is not.  errors: HS_EFORMAT, HS_EIO */
HsStatus hs_checkpoint_verify(const char *folder, bool with_checksums);

#endif
