/* SPDX-License-Identifier: MIT
 *
 * Members of a tokenizer.json's parts: each is of its type, and none is there that is not honoured.
 * where: the file and the place in it, as messages begin.
 */
#ifndef HS_RUNTIME_DATA_TOKENIZER_MEMBERS_H
#define HS_RUNTIME_DATA_TOKENIZER_MEMBERS_H

#include "runtime/io/json.h"

/* Whether a part is there: absent and null are not.  errors: HS_EFORMAT when it is no object */
HsStatus hs_members_present(const char *where, const HsJson *node, bool *present);
/* The member `type` -> *type.  errors: HS_EFORMAT */
HsStatus hs_members_type(const char *where, const HsJson *node, const char **type);
/* `known` are the names, one after another, each with a space behind.  errors: HS_EUNSUPPORTED,
 * HS_EFORMAT for a doubled one */
HsStatus hs_members_known(const char *where, const HsJson *node, const char *known);
/* A boolean, or `absent`.  errors: HS_EFORMAT */
HsStatus hs_member_flag(const char *where, const HsJson *node, const char *key, bool absent, bool *value);
/* A string of exactly one character, borrowed.  errors: HS_EFORMAT */
HsStatus hs_member_character(const char *where, const HsJson *node, const char *key, const char **value);
/* A whole number from 0 on.  errors: HS_EFORMAT */
HsStatus hs_member_count(const char *where, const HsJson *node, const char *key, int64_t *value);
/* A list that is not absent.  errors: HS_EFORMAT */
HsStatus hs_member_list(const char *where, const HsJson *node, const char *key, const HsJson **list);
/* When Metaspace puts a space in front: the beginning of the text, of each part. */
typedef enum HsPrefix { HS_PREFIX_NEVER, HS_PREFIX_FIRST, HS_PREFIX_ALWAYS } HsPrefix;
/* prepend_scheme, or the older add_prefix_space: true is always, false never.  errors: HS_EFORMAT */
HsStatus hs_member_scheme(const char *where, const HsJson *node, HsPrefix *prefix);

#endif
