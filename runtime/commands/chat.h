/* SPDX-License-Identifier: MIT
 *
 * trainer generate --chat: a conversation with a model, by the template that tokenizer.chat_template names.
 */
#ifndef HS_RUNTIME_COMMANDS_CHAT_H
#define HS_RUNTIME_COMMANDS_CHAT_H

#include "runtime/commands/loaded_model.h"
#include "runtime/engine/generate.h"

typedef struct HsChat HsChat;

/* system: NULL, or the message in front.  The generation's stops are those of hs_stops_read, its prompt is not read.
 * errors: HS_ECONFIG where no template is known, or the tokenizer lacks its tokens */
HsStatus hs_chat_create(HsLoadedModel *loaded, const HsGeneration *generation, const char *system, HsChat **chat);
void hs_chat_destroy(HsChat *chat);
/* The answer to `said`, after all that was said before: written to `out` (NULL: is not), its tokens appended to `added`
 * (may be NULL).  seed: of this answer's draws.  errors: the template's where it has no such order of roles */
HsStatus hs_chat_answer(HsChat *chat, const char *said, size_t length, uint64_t seed, FILE *out, HsTokens *added);
/* As if nothing had been said but the system message. */
void hs_chat_restart(HsChat *chat);
/* A line of `in` is a turn, until it ends; empty ones are passed over.  prompts: a mark before each, for a terminal.
 * seed_of: the seed of turn 0, 1 ... */
HsStatus hs_chat_talk(HsChat *chat, FILE *in, FILE *out, bool prompts,
                      uint64_t (*seed_of)(uint64_t seed, int64_t turn));

#endif
