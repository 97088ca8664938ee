/* SPDX-License-Identifier: MIT
 *
 * The part of YAML that a configuration needs, as a small tree: maps with text keys, lists, scalars.
 * Anchors, aliases, merge keys, tags and further documents are refused with a reason, so that what is read is what
 * stands there.  The only file that includes libyaml is yaml.c.
 */
#ifndef HS_RUNTIME_CONFIG_YAML_H
#define HS_RUNTIME_CONFIG_YAML_H

#include <stdbool.h>
#include <stddef.h>

#include "kernels/base/status.h"

typedef enum HsYamlKind { HS_YAML_SCALAR, HS_YAML_LIST, HS_YAML_MAP } HsYamlKind;

/* Errors point at line:column: of the key for a map's member, of the value otherwise; both count from 1. */
typedef struct HsYaml {
    HsYamlKind kind;
    int line, column;
    char *key;  /* member of a map; NULL otherwise */
    char *text; /* scalar: UTF-8 without NUL characters; NULL otherwise */
    bool plain; /* scalar written without quotes */
    int count;  /* list and map: children */
    struct HsYaml *first, *last, *next;
} HsYaml;

/* Parse one document -> *root, NULL when it is empty.  `name` stands before line and column in messages; NULL for an
 * override: its messages begin with "command line: ".  errors: HS_ECONFIG, HS_ENOMEM. */
HsStatus hs_yaml_parse(const char *name, const char *text, size_t length, HsYaml **root);
void hs_yaml_destroy(HsYaml *root);

/* A value from the command line or the key table: YAML when it begins with a quote or a bracket, else text verbatim
 * ("ROMEO:" would be a map to YAML). */
HsStatus hs_yaml_parse_value(const char *text, HsYaml **value);

/* HS_ECONFIG "NAME:LINE:COLUMN: message"; without a name "command line: message". */
HsStatus hs_yaml_fail(const char *name, int line, int column, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* No value at all: `key:`, `key: ~`, `key: null`. */
bool hs_yaml_is_null(const HsYaml *node);

#endif
