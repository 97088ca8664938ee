/* SPDX-License-Identifier: MIT
 *
 * JSON behind one file (cJSON): parse with offsets in errors, read typed members, write compact lines.
 */
#ifndef HS_RUNTIME_IO_JSON_H
#define HS_RUNTIME_IO_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/base/status.h"

typedef struct HsJson HsJson; /* a node; the root owns the tree */

/* Strict: no embedded NUL or \u0000, no malformed UTF-8, no half of a surrogate pair, nothing after the value, 256 levels
 * at most.  Errors: HS_EFORMAT "NAME: byte 123: not JSON: what is wrong". */
HsStatus hs_json_parse(const char *name, const char *text, size_t length, HsJson **root);
/* The same as Python's json module reads it: NaN, Infinity and -Infinity are numbers, all infinite here, so that whatever
 * needs such a number refuses it, and a member that is not looked at may be one. */
HsStatus hs_json_parse_python(const char *name, const char *text, size_t length, HsJson **root);
/* A file of at most `limit` bytes so.  errors: also HS_EIO */
HsStatus hs_json_read_python(const char *path, size_t limit, HsJson **root);
void hs_json_destroy(HsJson *root);
/* Each number of a tree keeps how it is written, which 1, 1.0 and 1e0 do not share; text, length: what hs_json_parse or
 * hs_json_parse_python made the tree of.  errors: HS_ENOMEM */
HsStatus hs_json_keep_spelling(HsJson *root, const char *text, size_t length);
const char *hs_json_spelling(const HsJson *number); /* NULL: not kept, or not a number */

HsJson *hs_json_object(void);
HsJson *hs_json_array(void);
/* NULL when absent or not an object; of doubled keys the last, as Python and JavaScript take it. */
const HsJson *hs_json_get(const HsJson *object, const char *key);
/* Whether no later member of the object has the same key: for those that walk through all. */
bool hs_json_is_last(const HsJson *object, const HsJson *member);
int hs_json_count(const HsJson *node);           /* elements or members */
const HsJson *hs_json_first(const HsJson *node); /* iterate: first, then next; O(1) each */
const HsJson *hs_json_next(const HsJson *node);
const char *hs_json_key(const HsJson *node);
bool hs_json_is_object(const HsJson *node);
bool hs_json_is_array(const HsJson *node);
bool hs_json_is_string(const HsJson *node);
bool hs_json_is_number(const HsJson *node);
bool hs_json_is_true(const HsJson *node);
bool hs_json_is_bool(const HsJson *node);
bool hs_json_is_null(const HsJson *node);       /* written as null: not one that is absent */
const char *hs_json_string(const HsJson *node); /* NULL when not a string */
double hs_json_number(const HsJson *node);      /* NAN when not a number */

/* Setters keep insertion order; numbers are written with enough digits to read back bit for bit; non-finite reals are
 * written as null; 64-bit integers as decimal strings when above 2^53.  A key is
 * set once.  When memory runs out the tree remembers it and hs_json_write returns NULL. */
void hs_json_set_string(HsJson *object, const char *key, const char *value);
void hs_json_set_real(HsJson *object, const char *key, double value);
void hs_json_set_integer(HsJson *object, const char *key, int64_t value);
void hs_json_set_bool(HsJson *object, const char *key, bool value);
void hs_json_set(HsJson *object, const char *key, HsJson *value); /* takes ownership */
/* The same in place of what the key had. */
void hs_json_replace(HsJson *object, const char *key, HsJson *value);
/* Out of the object: the caller's.  NULL: it has no such member. */
HsJson *hs_json_take(HsJson *object, const char *key);
HsJson *hs_json_member(HsJson *object, const char *key); /* hs_json_get of an object that may be changed */
void hs_json_append(HsJson *array, HsJson *value);
HsJson *hs_json_copy(const HsJson *node); /* of the tree below it */
HsJson *hs_json_new_integer(int64_t value);
HsJson *hs_json_new_real(double value);
/* Written as programs that tell kinds of numbers apart write a float: 10.0 for 10. */
HsJson *hs_json_new_float(double value);
HsJson *hs_json_new_bool(bool value);
HsJson *hs_json_new_null(void);
HsJson *hs_json_new_string(const char *value);
/* A string of any bytes: what is no UTF-8, and zero bytes, become U+FFFD each. */
HsJson *hs_json_new_text(const char *bytes, size_t length);

/* Required typed members: HS_EFORMAT "NAME: member `key` is missing | must be an integer". */
HsStatus hs_json_need_integer(const char *name, const HsJson *object, const char *key, int64_t *value);
/* least <= *value <= most */
HsStatus hs_json_need_range(const char *name, const HsJson *object, const char *key, int64_t least, int64_t most,
                            int64_t *value);
HsStatus hs_json_need_real(const char *name, const HsJson *object, const char *key, double *value);
HsStatus hs_json_need_string(const char *name, const HsJson *object, const char *key, const char **value);

/* One number as the writer writes it, without allocating. */
enum { HS_JSON_NUMBER_BYTES = 40 };
void hs_json_format_real(double value, char text[HS_JSON_NUMBER_BYTES]);

/* NULL when memory ran out, here or in a setter; the caller frees. */
char *hs_json_write(const HsJson *root, bool pretty);

#endif
