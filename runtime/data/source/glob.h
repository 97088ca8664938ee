/* SPDX-License-Identifier: MIT
 *
 * Patterns that stand for paths: * ? [a-z], ** for folders of any depth, {a,b} and {1..9}.
 */
#ifndef HS_RUNTIME_DATA_SOURCE_GLOB_H
#define HS_RUNTIME_DATA_SOURCE_GLOB_H

#include <stdbool.h>
#include <stddef.h>

#include "kernels/base/status.h"

/* Whether anything in the text stands for something else. */
bool hs_glob_is_pattern(const char *text);

/* The bytes of a pattern in front of the first name that has a wildcard or braces. */
size_t hs_glob_front(const char *text);

/* Hands every path that matches to `take`, in whatever order, and some twice where a pattern has ** or braces twice.  A
 * word of braces without a wildcard is handed out whether it is there or not.
 * errors: HS_EIO where nothing matches, or a folder on the way cannot be read; `take`'s */
typedef HsStatus (*HsPathTaker)(void *user, const char *path);
HsStatus hs_glob_expand(const char *pattern, HsPathTaker take, void *user);

#endif
