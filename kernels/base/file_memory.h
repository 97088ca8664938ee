/* SPDX-License-Identifier: MIT
 *
 * Memory with its pages in a file without a name, for what is too large for the machine's memory and is read and
 * written once a step, in order:
 *
 *     [piece k - 1: written behind] [piece k: in use] [piece k + 1: read ahead]
 *
 * The system keeps what has room in its file cache and gives it up when the room is needed.  The file is gone with the
 * process, however that ends.  A device without access to pageable memory may copy from and to it, and no more.
 */
#ifndef HS_KERNELS_BASE_FILE_MEMORY_H
#define HS_KERNELS_BASE_FILE_MEMORY_H

#include <stddef.h>

#include "kernels/base/status.h"

/* `bytes` of zeros, aligned to a page, in a file of `folder`; its room is taken at once.
 * errors: HS_EIO, HS_ENOMEM where the folder, or room in it, is missing */
HsStatus hs_file_memory_map(const char *folder, size_t bytes, void **pointer);
/* Safe with NULL. */
void hs_file_memory_unmap(void *pointer, size_t bytes);
/* Advice: this part is needed next; this part is not needed again in this step. */
void hs_file_memory_ahead(void *pointer, size_t bytes);
void hs_file_memory_behind(void *pointer, size_t bytes);

#endif
