/* SPDX-License-Identifier: MIT
 *
 * Which of the named chat templates a tokenizer's folder holds.
 *
 * Such a folder says how conversations become text by a program (Jinja), in chat_template.jinja or as chat_template of
 * tokenizer_config.json.  Programs are not run here: those that render as one of our named templates does are known by
 * the XXH3-64 of their text, and any other is refused.  The templates themselves: runtime/data/source/chat.h.
 */
#ifndef HS_RUNTIME_CONFIG_CHAT_TEMPLATE_H
#define HS_RUNTIME_CONFIG_CHAT_TEMPLATE_H

#include "runtime/config/config.h"

#define HS_CHAT_TEMPLATE_AUTO "auto"

/* The name of the template next to the tokenizer, or auto where there is none, or none that is known. */
const char *hs_chat_template_beside(const char *tokenizer_path);
/* The name of the template that a program is; NULL: not one that is known. */
const char *hs_chat_template_known(const char *program);
/* What the template next to a tokenizer is, as an error that names the key to set.  place: where a conversation is. */
HsStatus hs_chat_template_explain(const char *place, const char *tokenizer_path);
/* tokenizer.chat_template where it is auto, from tokenizer.path's folder. */
HsStatus hs_config_adopt_chat_template(HsConfig *config);

#endif
