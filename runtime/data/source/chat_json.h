/* SPDX-License-Identifier: MIT
 *
 * JSON as Python's json.dumps(value, ensure_ascii=False) writes it, which is what `tojson` is in a chat template of
 * transformers.  Private to the chat_*.c files.
 *
 *     compact     {"a": [1, 2.5, "x"]}           a blank behind each comma and colon
 *     indented    one member a line, `indent` blanks a level; what is empty stays [] or {}
 */
#ifndef HS_RUNTIME_DATA_SOURCE_CHAT_JSON_H
#define HS_RUNTIME_DATA_SOURCE_CHAT_JSON_H

#include "runtime/data/tokenizer/bytes.h"
#include "runtime/io/json.h"

/* indent 0: compact.  Of doubled keys the first one's place and the last one's value, as a dict has them; numbers by
 * their kept spelling (hs_json_keep_spelling).  errors: HS_ENOMEM */
HsStatus hs_chat_put_json(const HsJson *node, int indent, HsBytes *out);
HsStatus hs_chat_put_json_string(const char *text, size_t length, HsBytes *out);

#endif
