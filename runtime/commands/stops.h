/* SPDX-License-Identifier: MIT
 *
 * Which tokens end a generated text.
 */
#ifndef HS_RUNTIME_COMMANDS_STOPS_H
#define HS_RUNTIME_COMMANDS_STOPS_H

#include "runtime/commands/loaded_model.h"

/* eos_token_id (a number or a list) of a Hugging Face folder's generation_config.json, or without that file of its
 * config.json; these alone end a text there, as with transformers: *alone.  A checkpoint of ours carries that file where
 * its run began with such a folder, and the tokenizer's end-of-text ends a text too.  In a conversation also the token that ends an answer by the configuration's chat
 * template, where the tokenizer has it, and without *alone always.  The caller deinits.
 * errors: HS_EFORMAT naming the file, HS_ENOMEM */
HsStatus hs_stops_read(const HsLoadedModel *loaded, bool conversation, HsTokens *stops, bool *alone);

#endif
