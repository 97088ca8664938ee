/* SPDX-License-Identifier: MIT
 *
 * A row of the table of chat templates.  Private to chat.c, which renders, chat_document.c, which asks
 * what it can, and chat_program.c, which writes it for others.
 */
#ifndef HS_RUNTIME_DATA_SOURCE_CHAT_TEMPLATE_H
#define HS_RUNTIME_DATA_SOURCE_CHAT_TEMPLATE_H

#include "runtime/data/source/chat_tools.h"

enum { TEMPLATE_TOKENS = 4 };

struct HsChatTemplate {
    const char *name;
    const char *tokens[TEMPLATE_TOKENS + 1]; /* special ones in its text, added to the tokenizer's; NULL-terminated */
    const char *begin;                       /* in front of everything; NULL: the tokenizer's begin-of-text */
    const char *before[HS_CHAT_ROLES];       /* a message's content */
    const char *end[HS_CHAT_ROLES];          /* behind it; NULL: the tokenizer's end-of-text */
    const char *after[HS_CHAT_ROLES];        /* behind that; not counted */
    const char *system;                      /* its content where none comes first; NULL: there is none then */
    const char *system_start;                /* how the first one's content begins */
    bool trims;                              /* white space around a content, as Python's strip() */
    bool in_turns;                           /* one system message at most, first; then user and assistant in turns */
    const HsChatToolForm *tools;             /* NULL: it renders none */
};

#endif
