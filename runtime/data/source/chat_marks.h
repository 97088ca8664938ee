/* SPDX-License-Identifier: MIT
 *
 * What a conversation's objects say apart from roles and texts: which messages the loss counts, and what no template
 * here renders.  Private to chat_document.c and document.c.
 */
#ifndef HS_RUNTIME_DATA_SOURCE_CHAT_MARKS_H
#define HS_RUNTIME_DATA_SOURCE_CHAT_MARKS_H

#include "runtime/data/source/chat.h"
#include "runtime/io/json.h"

bool hs_chat_is_there(const HsJson *node); /* and is not null */
/* NULL, null, and what is empty. */
bool hs_chat_is_nothing(const HsJson *node);

/* Whether the loss counts a message of the role, by its marks `weight` (0 or 1), `train`, `training` and `loss` (true
 * or false).  errors: HS_EFORMAT for other values, and for marks that contradict each other */
HsStatus hs_chat_read_marks(const char *place, const HsJson *message, HsChatRole role, bool *counted);

/* Members that say what cannot be rendered, of a message and of the whole.  errors: HS_EFORMAT naming one */
HsStatus hs_chat_refuse_message(const char *place, const HsJson *message);
HsStatus hs_chat_refuse_conversation(const char *place, const HsJson *object);

/* An answer that was preferred and one that was not: what DPO learns from. */
bool hs_chat_is_preference(const HsJson *object);
HsStatus hs_chat_refuse_preference(const char *place);

#endif
