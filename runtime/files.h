/* SPDX-License-Identifier: MIT
 *
 * Small file-system helpers.
 */
#ifndef HS_RUNTIME_FILES_H
#define HS_RUNTIME_FILES_H

#include <stddef.h>

#include "kernels/base/status.h"

/* mkdir -p.  errors: HS_EIO naming the folder. */
HsStatus hs_make_directories(const char *path);

/* The whole file, NUL-terminated behind its `*length` bytes; caller frees.  errors: HS_EIO, HS_ENOMEM, and HS_EFORMAT
 * when it is larger than `limit` bytes (0: no limit). */
HsStatus hs_read_file(const char *path, size_t limit, char **text, size_t *length);

/* The same of "-", which is the standard input. */
HsStatus hs_read_input(const char *path, size_t limit, char **text, size_t *length);

#endif
