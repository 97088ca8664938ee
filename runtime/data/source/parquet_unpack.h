/* SPDX-License-Identifier: MIT
 *
 * Codecs of Parquet's pages.  Private to the parquet*.c files.
 */
#ifndef HS_RUNTIME_DATA_SOURCE_PARQUET_UNPACK_H
#define HS_RUNTIME_DATA_SOURCE_PARQUET_UNPACK_H

#include <stddef.h>

#include "kernels/base/status.h"

enum { HS_PARQUET_UNCOMPRESSED = 0 };

/* A page's bytes, which must unpack to just `expected`, into *buffer, which grows.  errors: HS_EFORMAT, HS_ENOMEM */
HsStatus hs_parquet_unpack(int codec, const char *bytes, size_t size, size_t expected, char **buffer, size_t *capacity);

#endif
