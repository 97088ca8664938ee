/* SPDX-License-Identifier: MIT
 *
 * Reading tools from a conversation's objects: what is offered, calls and results, judged by what the template renders.
 * Private to chat_document.c and document.c.
 *
 * made_by NULL: no template is known, so only the form is judged (a tokenizer is learned, or an error follows).
 */
#ifndef HS_RUNTIME_DATA_SOURCE_CHAT_CALLS_H
#define HS_RUNTIME_DATA_SOURCE_CHAT_CALLS_H

#include "runtime/data/source/chat.h"

/* Whether a row has JSON that is rendered as JSON, so that its numbers must keep their spelling. */
bool hs_chat_has_json(const HsJson *row);

/* `tools`, a list or one written as a string, and the one setting of templates that is read,
 * "chat_template_kwargs": {"tools_in_user_message": false}.  *parsed: what tools->list lies in, the caller's to destroy;
 * NULL where that is the row.  errors: HS_EFORMAT, HS_ENOMEM */
HsStatus hs_chat_read_tools(const char *place, const HsJson *row, const HsChatTemplate *made_by, HsJson **parsed,
                            HsChatTools *tools);

/* The calls of a message that has some: its `tool_calls`, or the text of ShareGPT's function_call, which is JSON
 * (*parsed: the caller's to destroy).  errors: HS_EFORMAT, HS_ENOMEM */
HsStatus hs_chat_read_calls(const char *place, const HsJson *calls, const HsChatTemplate *made_by);
HsStatus hs_chat_parse_calls(const char *place, const char *text, const HsChatTemplate *made_by, HsJson **parsed);

/* Whether the template has results under this name of their role.  errors: HS_EFORMAT */
HsStatus hs_chat_check_result(const char *place, const char *role, const HsChatTemplate *made_by);
/* Whether a result that is no text can be rendered. */
bool hs_chat_takes_value(const HsJson *content, const HsChatTemplate *made_by);

#endif
