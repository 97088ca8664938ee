/* SPDX-License-Identifier: MIT
 *
 * The strict check that every JSON text passes before it is parsed.  Used by json.c only.
 */
#ifndef HS_RUNTIME_IO_JSON_SCAN_H
#define HS_RUNTIME_IO_JSON_SCAN_H

#include <stddef.h>

/* NULL when strings, numbers, blanks and nesting are well formed, else what is wrong at byte *offset.  Numbers that are
 * not finite, as Python names them, are added to *nonfinite; where that is NULL they are wrong. */
const char *hs_json_scan(const char *text, size_t length, size_t *nonfinite, size_t *offset);

/* Those names, ended by NULL. */
extern const char *const hs_json_nonfinite[];

#endif
