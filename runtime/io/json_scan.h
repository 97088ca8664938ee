/* SPDX-License-Identifier: MIT
 *
 * The strict check that every JSON text passes before it is parsed.  Used by json.c only.
 */
#ifndef HS_RUNTIME_IO_JSON_SCAN_H
#define HS_RUNTIME_IO_JSON_SCAN_H

#include <stddef.h>

/* NULL when strings, numbers, blanks and nesting are well formed, else what is wrong at byte *offset. */
const char *hs_json_scan(const char *text, size_t length, size_t *offset);

#endif
