/* SPDX-License-Identifier: MIT
 *
 * Which tokens end a generated text, besides the tokenizer's end-of-text.
 */
#ifndef HS_RUNTIME_COMMANDS_STOPS_H
#define HS_RUNTIME_COMMANDS_STOPS_H

#include "runtime/commands/loaded_model.h"

/* eos_token_id of generation_config.json (a number or a list) beside the tokenizer, and the token that ends an answer by
 * the configuration's chat template, where the tokenizer has it.  The caller deinits.
 * errors: HS_EFORMAT naming the file, HS_ENOMEM */
HsStatus hs_stops_read(const HsLoadedModel *loaded, HsTokens *stops);

#endif
